"""What lets mined rules hold on tools that nobody looked at: what chance splits is put together again."""

import pytest

from dreamgym_kit.dream.state.advance import forget
from dreamgym_kit.dream.state.candidates import OTHER_WORLDS, PRESUMED
from dreamgym_kit.dream.state.dreaming import Knowledge, Told, consider
from dreamgym_kit.dream.state.expressions import evaluate, explanations
from dreamgym_kit.dream.state.forms import enumerated_texts, form_of
from dreamgym_kit.dream.state.history import HistoryStep, Pool, RecordedEpisode
from dreamgym_kit.dream.state.mining import mine, pooled
from dreamgym_kit.dream.state.names import Names
from dreamgym_kit.dream.state.observed import failed
from dreamgym_kit.dream.state.templates import Template
from dreamgym_kit.dream.state.texts import mask
from dreamgym_kit.dream.state.trees import TreeCase, grow, predict
from dreamgym_kit.dream.state.values import spell
from dreamgym_kit.dream.state.views import State
from dreamgym_kit.dream.state.volatile import symbol_of

WRITES = ("sign_in", "close_case", "reopen_case")


def step(tool, seen, **args):
    return HistoryStep(tool, args, spell(args), seen, tool in WRITES, failed(seen))


def asked(known: Knowledge, world: str, tool: str, **args: object) -> list[Told]:
    return consider(known, State({}), world, tool, args)[0]


def test_a_word_stays_itself_where_an_argument_happens_to_say_it_too() -> None:
    episodes = [
        RecordedEpisode(f"e{world}", f"w{world}", (step("sign_in", {"kind": "Bearer"}, name=name),))
        for world, name in enumerate(["ann", "bob", "cec", "dan", "eve", "fay", "Bearer"])
    ]
    enumerated = enumerated_texts(episodes)["sign_in"]
    forms = {
        form_of(one.seen, Names({"args.name": one.args["name"]}), enumerated)
        for episode in episodes
        for one in episode.steps
    }
    assert forms == {"{kind:Bearer}"}


def test_an_echo_of_an_argument_keeps_its_form() -> None:
    episodes = [
        RecordedEpisode(f"e{world}", f"w{world}", (step("sign_in", {"mode": mode}, mode=mode),))
        for world, mode in enumerate(["fast", "slow", "fast", "slow", "fast"])
    ]
    enumerated = enumerated_texts(episodes).get("sign_in", frozenset())
    assert {
        form_of({"mode": mode}, Names({"args.mode": mode}), enumerated) for mode in ("fast", "slow", "odd")
    } == {"{mode:s}"}


def test_the_words_in_a_symbol_are_not_the_callers() -> None:
    symbol = symbol_of("sign_in", "access_token", 1)
    assert mask(f"token {symbol}", Names({"args.scope": "access_token"})) == f"token {symbol}"
    assert mask(f"token {symbol}", Names({"args.token": symbol})) != f"token {symbol}"


def test_a_test_that_tells_sure_calls_from_doubtful_ones_survives_pruning() -> None:
    """Where the door is known to be locked the engine always starts; elsewhere mostly too, but not surely."""
    door = ("is", "view.last:lock.answer.door")
    cases = []
    for world in range(9):
        cases += [TreeCase({door: "locked"}, "starts", f"w{world}")] * 4
        cases += [TreeCase({}, form, f"w{world}") for form in ("starts", "starts", "door open", "brake")]
    tree = grow(cases)
    assert predict(tree, {door: "locked"}).purity > 0.9
    assert predict(tree, {}).contested


def catalogue(wrong: bool = False) -> Knowledge:
    def worked(world: int) -> tuple[HistoryStep, ...]:
        towns = [step("zip_of", {"zip": f"1000{place}"}, town=f"town{place}") for place in range(6)]
        towns += [step("zip_of", {"zip": "unknown"}, town=f"x{world}{place}") for place in range(4)]
        if wrong and world == 1:
            towns[0] = step("zip_of", {"zip": "99999"}, town="town0")
        return (*towns, step("zip_of", {"zip": f"2000{world}"}, town=f"only{world}"))

    episodes = [RecordedEpisode(f"e{world}", f"w{world}", worked(world)) for world in range(6)]
    models = mine(episodes)
    return Knowledge(models, pooled(episodes, models))


def test_a_catalogue_is_believed_from_one_other_world_and_before_what_is_usual() -> None:
    told = asked(catalogue(), "new", "zip_of", town="only3")
    assert [one.seen for one in told if one.support >= 0.5] == [{"zip": "20003"}]
    assert told[0].basis == OTHER_WORLDS


def test_a_tool_that_once_answered_otherwise_elsewhere_is_no_catalogue() -> None:
    told = [one for one in asked(catalogue(wrong=True), "new", "zip_of", town="only3") if one.basis != "rule"]
    assert all(one.support < 0.5 for one in told)


def test_what_a_write_answers_once_it_was_done_does_not_make_it_unsteady() -> None:
    pool = Pool(lambda one: one.writes and not one.failed)
    closed = step("close_case", {"closed": True}, case="c1")
    again = step("close_case", {"error": "already closed"}, case="c1")
    other = step("reopen_case", {"open": True}, case="c2")
    pool.add(RecordedEpisode("a", "w", (closed, again)))
    pool.add(RecordedEpisode("b", "w", (other, closed, again)))
    assert pool.steadiness()["close_case"] > 0.7


@pytest.mark.parametrize(
    ("kind", "before", "after"),
    [("with", ["a", "b"], ["a", "b", "c"]), ("with", ["c"], ["c"]), ("without", ["a", "c", "b"], ["a", "b"])],
)
def test_a_list_that_is_answered_is_the_known_one_with_or_without_what_was_given(kind, before, after) -> None:
    names = Names({"args.item": "c", "view.list.items": before})
    found = {one.kind: one for one in explanations(after, names) if one.kind in ("with", "without")}
    assert evaluate(found[kind], names) == after
    more = Names({"args.item": "z", "view.list.items": ["y", "z"]})
    assert evaluate(found[kind], more) == (["y", "z"] if kind == "with" else ["y"])


def test_an_answer_with_a_guessed_constant_is_graded_apart_from_one_that_names_all() -> None:
    template = Template()
    for number in range(10):
        known = {"view.next.id": number + 5} if number < 6 else {}
        template.see({"id": number + 5 if number < 6 else 1 + number % 3}, Names(known))
    named = template.fill(Names({"view.next.id": 40}))
    guessed = template.fill(Names({}))
    assert named is not None
    assert guessed is not None
    assert (named.value, named.guessed, guessed.grade) == ({"id": 40}, False, "guessed")


def test_a_number_that_becomes_a_float_does_so_for_floats_too() -> None:
    template = Template()
    for number in (5.0, 7.5, 8, 9.25):
        template.see({"price": float(number)}, Names({"args.price": number}))
    filled = template.fill(Names({"args.price": 320}))
    assert filled is not None
    assert spell(filled.value) == '{"price":320.0}'


def test_what_an_unanswered_write_named_may_be_there() -> None:
    models = mine([])
    after = forget(models, State({}), step("close_case", {"closed": True}, case="c77"))
    assert after.may_have("c77")
    assert not after.denies("c77")
    assert not after.has_seen("c77")  # nobody said that it is there
    assert not after.views


def test_that_a_call_always_failed_vouches_for_nothing_once_something_was_written() -> None:
    """Looked for before it was made, a case was never found; the agent has just made something."""

    def worked(world: int) -> list[RecordedEpisode]:
        missing = [
            step("show_case", {"error": f"no case c{world}{n}"}, case=f"c{world}{n}") for n in range(3)
        ]
        shown = [step("show_case", {"case": f"d{world}{n}"}, case=f"d{world}{n}") for n in range(2)]
        return [RecordedEpisode(f"e{world}", f"w{world}", (*missing, *shown))]

    episodes = [one for world in range(8) for one in worked(world)]
    models = mine(episodes)
    pool = pooled(episodes, models)
    known = Knowledge(models, pool)
    after = forget(models, State({}, pool.root("w2")), step("close_case", {"closed": True}, case="c20"))
    told = consider(known, after, "w2", "show_case", {"case": "c20"})[0]
    assert all(one.basis in (PRESUMED, "line") or not failed(one.seen) for one in told)
