"""What is mined from a small ticket shop that exists only here, and what is refused to be mined."""

import pytest
from each_row import each_row

from dreamgym_kit.dream.calibration import Trial, calibrate
from dreamgym_kit.dream.state.audit import learn
from dreamgym_kit.dream.state.dreaming import Knowledge, consider, follow, replay
from dreamgym_kit.dream.state.history import HistoryStep, RecordedEpisode, recordings
from dreamgym_kit.dream.state.likeness import Usual, unlike
from dreamgym_kit.dream.state.mining import mine, pooled, renamed
from dreamgym_kit.dream.state.observed import answer_of, failed, observation
from dreamgym_kit.dream.state.values import add, spell
from dreamgym_kit.dream.state.views import State, View
from dreamgym_kit.dream.state.volatile import mint, symbol_of
from dreamgym_kit.dream.state.worlds import start
from dreamgym_kit.types import Answer, Call, Effect, Source, Transition

WRITES = ("sell", "add_note", "close_shop", "new_guest", "let")


def work(world, calls, *, stock=5, notes=()):
    """Run calls on a shop: items with a stock, notes, an open flag, guests with made-up ids."""
    items = {f"i{world}": stock, f"j{world}": stock + 3}
    notes, opened, steps = list(notes), True, []
    for number, (tool, args) in enumerate(calls):
        item = args.get("item")
        if tool == "get_item":
            seen = (
                {"item": item, "stock": items[item]} if item in items else {"error": f"no item called {item}"}
            )
        elif tool == "list_notes":
            seen = list(notes)
        elif not opened:
            seen = {"error": "The shop is closed."}
        elif tool == "sell" and item not in items:
            seen = {"error": f"no item called {item}"}
        elif tool == "sell" and args["count"] > items[item]:
            seen = {"error": f"only {items[item]} of {item} left"}
        elif tool == "sell":
            items[item] -= args["count"]
            seen = {"sold": args["count"], "item": item}
        elif tool == "add_note":
            notes.append(args["text"])
            seen = {"ok": True}
        elif tool == "new_guest":
            seen = {"guest_id": f"g-{world * 7919 % 9973:04d}-{number}", "name": args["name"]}
        else:
            opened, seen = False, {"ok": True}
        steps.append(HistoryStep(tool, args, spell(args), seen, tool in WRITES, failed(seen)))
    return steps


def shop(world, number, calls, **kinds):
    return RecordedEpisode(f"e{world}-{number}", f"w{world}", tuple(work(world, calls, **kinds)))


def recorded():
    episodes = []
    for world in range(10):
        i, j = {"item": f"i{world}"}, {"item": f"j{world}"}
        look = [("get_item", i), ("get_item", j), ("list_notes", {})]
        sell = ("sell", {**i, "count": 1 + world % 3})
        episodes += [
            shop(world, 0, look, stock=5 + world),
            shop(world, 1, [*look, sell, *look], stock=5 + world),
            shop(world, 2, [*look, ("add_note", {"text": f"t{world}"}), *look], stock=5 + world),
            shop(world, 3, [*look, ("sell", {**i, "count": 90 + world}), *look], stock=5 + world),
            shop(world, 6, [("get_item", {"item": "zz"})]),
            shop(world, 4, [("new_guest", {"name": f"n{world}"}), ("new_guest", {"name": f"m{world}"})]),
            shop(
                world,
                5,
                [("close_shop", {}), sell, ("sell", {**j, "count": 2}), ("add_note", {"text": "x"})],
                stock=5 + world,
            ),
        ]
    return episodes


@pytest.fixture(scope="module")
def known():
    models = mine(recorded())
    return Knowledge(models, pooled([renamed(one, models) for one in recorded()], models))


def after(known, calls, world="new"):
    """A state that was told these (tool, args, seen), and the best answer to a question."""
    return lambda tool, **args: all_after(known, calls, tool, world, **args)[0]


def all_after(known, calls, tool, world="new", **args):
    """All answers to a question in a state that was told these (tool, args, seen), best first."""
    state = State({})
    for name, given, seen in calls:
        state = follow(
            known, state, HistoryStep(name, given, spell(given), seen, name in WRITES, failed(seen))
        )
    return consider(known, state, world, tool, args)[0]


def test_a_sale_takes_from_the_stock_of_its_item_and_of_no_other(known) -> None:
    ask = after(
        known,
        [
            ("get_item", {"item": "p"}, {"item": "p", "stock": 40}),
            ("get_item", {"item": "q"}, {"item": "q", "stock": 9}),
            ("sell", {"item": "p", "count": 4}, {"sold": 4, "item": "p"}),
        ],
    )
    assert ask("get_item", item="p").seen == {"item": "p", "stock": 36}
    assert ask("get_item", item="q").seen == {"item": "q", "stock": 9}


def test_a_note_is_appended_and_the_stock_stays(known) -> None:
    ask = after(
        known,
        [
            ("list_notes", {}, ["a", "b"]),
            ("get_item", {"item": "p"}, {"item": "p", "stock": 40}),
            ("add_note", {"text": "c"}, {"ok": True}),
        ],
    )
    assert ask("list_notes").seen == ["a", "b", "c"]
    assert ask("get_item", item="p").seen == {"item": "p", "stock": 40}


def test_a_failure_is_told_with_the_values_of_this_world(known) -> None:
    ask = after(
        known,
        [
            ("get_item", {"item": "p"}, {"item": "p", "stock": 4}),
            ("sell", {"item": "p", "count": 1}, {"sold": 1, "item": "p"}),
        ],
    )
    assert ask("sell", item="p", count=50).seen == {"error": "only 3 of p left"}
    assert ask("sell", item="p", count=2).seen == {"sold": 2, "item": "p"}


def test_a_hidden_flag_shows_in_a_failure_that_names_no_argument(known) -> None:
    ask = after(
        known,
        [
            ("close_shop", {}, {"ok": True}),
            ("sell", {"item": "p", "count": 1}, {"error": "The shop is closed."}),
        ],
    )
    assert ask("sell", item="p", count=2).seen == {"error": "The shop is closed."}


def test_what_was_never_seen_is_not_called_absent(known) -> None:
    options, _ = consider(known, State({}), "new", "get_item", {"item": "zz"})
    assert all(not failed(one.seen) or one.support < 0.5 for one in options)


def test_a_made_up_id_is_the_next_symbol_and_gets_a_value_of_the_recorded_form(known) -> None:
    told = after(known, [])("new_guest", name="Eva").seen
    assert told == {"guest_id": symbol_of("new_guest", "guest_id", 1), "name": "Eva"}
    made = mint(told["guest_id"], known.models.fresh, "seed")
    assert made == mint(told["guest_id"], known.models.fresh, "seed")
    assert made.startswith("g-")
    assert made != mint(told["guest_id"], known.models.fresh, "other")


def test_an_unanswered_write_takes_with_it_what_it_may_have_touched(known) -> None:
    calls = work(
        77,
        [("get_item", {"item": "i77"}), ("sell", {"item": "i77", "count": 1}), ("get_item", {"item": "i77"})],
    )
    told = replay(known, State({}), RecordedEpisode("e", "w77", tuple(calls)), threshold=1.1)
    assert told == [None, None, None]


def test_an_episode_does_not_explain_itself() -> None:
    alone = [shop(1, 0, [("get_item", {"item": "i1"})])]
    models = mine(alone)
    assert start(pooled(alone, models), models, "w1", without="e1-0").views == {}
    assert len(start(pooled(alone, models), models, "w1").views) == 1


def test_mining_twice_gives_the_same_models() -> None:
    first, second = mine(recorded()), mine(recorded())
    assert {key: sorted(rules) for key, rules in first.rules.items()} == {
        key: sorted(rules) for key, rules in second.rules.items()
    }
    assert [(rule.bind, rule.program) for rules in first.rules.values() for rule in rules.values()] == [
        (rule.bind, rule.program) for rules in second.rules.values() for rule in rules.values()
    ]


def test_nothing_recorded_gives_a_dream_that_knows_nothing() -> None:
    assert consider(learn([]), State({}), "w", "get_item", {"item": "a"})[0] == []


def test_dreamt_and_pure_calls_teach_nothing() -> None:
    def row(provenance, effect):
        return Transition(Call("f", {}), Answer(1, source=provenance), effect, "e", 1)

    rows = [row(Source.DERIVED, Effect.READ), row(Source.REAL, Effect.PURE)]
    assert recordings(rows) == []


@each_row(
    "answer",
    [
        Answer("plain"),
        Answer({"a": 1}),
        Answer(None, error="no", error_type="ToolException"),
        Answer([{"type": "text", "text": '{"a": 1}'}], artifact={"a": 1}),
        Answer(None, update={"messages": [{"content": '{"a":1,"b":"\u00fc"}'}]}),
        Answer('{"a":   1}'),
    ],
)
def test_an_answer_survives_being_seen(answer) -> None:
    assert answer_of(observation(answer), Answer()) == answer


@each_row(
    ("left", "right", "total"), [("10.00", "9.90", "19.90"), (1, 2, 3), (0.1, 0.2, 0.3), ("-1", "1", "0")]
)
def test_money_in_texts_adds_up_with_its_decimals(left, right, total) -> None:
    assert add(left, right) == total


def test_calibration_never_says_more_of_less_support() -> None:
    trials = [Trial("t", "composed", place / 200, place % 7 != 0 and place > 60) for place in range(200)]
    calibration = calibrate(trials)
    told = [calibration.support("t", "composed", place / 50) for place in range(51)]
    assert told == sorted(told)
    assert told[0] < 0.2 < 0.7 < told[-1]


def test_a_presumed_absence_is_never_raised_above_its_own_support(known) -> None:
    """The worst error: "no item" of what was merely never seen. However well other answers went."""
    sure = calibrate([Trial("get_item", "presumed", 0.3, exact=True)] * 100)
    believing = Knowledge(known.models, known.pool, sure)
    options, _ = consider(believing, State({}), "new", "get_item", {"item": "zz"})
    absent = [one for one in options if failed(one.seen)]
    assert absent
    assert max(one.support for one in absent) < 0.5


def fence(world, number, asked):
    """A pen for animals: `let` opens the gate of one animal, which only its own read shows."""
    opened, steps = {"a": False, "b": False, "c": True}, []
    for tool, args in asked:
        name, seen = f"{args['animal']}{world}", {"done": True}
        if tool == "let":
            opened[args["animal"]] = args["opened"]
        else:
            seen = {"animal": name, "opened": opened[args["animal"]]}
        given = {**args, "animal": name}
        steps.append(HistoryStep(tool, given, spell(given), seen, tool == "let", False))
    return RecordedEpisode(f"f{world}-{number}", f"w{world}", tuple(steps))


@each_row("redundant", [False, True])
def test_that_others_were_left_alone_says_nothing_of_the_thing_a_write_names(redundant) -> None:
    look, shown = ("look", {"animal": "a"}), ("look", {"animal": "c"})
    let = ("let", {"animal": "c", "opened": True}) if redundant else ("let", {"animal": "b", "opened": True})
    asked = [look, shown, let, look, *([shown] if redundant else [])]
    episodes = [fence(world, number, asked) for world in range(6) for number in range(2)]
    models = mine(episodes)
    ask = after(
        Knowledge(models, pooled([renamed(one, models) for one in episodes], models)),
        [
            ("look", {"animal": "a9"}, {"animal": "a9", "opened": False}),
            ("look", {"animal": "b9"}, {"animal": "b9", "opened": False}),
            ("let", {"animal": "a9", "opened": True}, {"done": True}),
        ],
    )
    assert ask("look", animal="b9").seen == {"animal": "b9", "opened": False}
    assert ask("look", animal="b9").support >= 0.5
    assert ask("look", animal="a9").support < 0.5, "nothing is known of it after the write"


def test_a_thing_found_by_another_name_is_not_kept_through_a_write_that_names_its_id() -> None:
    def step(tool, args, seen):
        return HistoryStep(tool, args, spell(args), seen, tool == "let", False)

    def by_name(world, other):
        return step("find", {"name": f"{other}{world}"}, {"animal_id": f"{other}-{world}", "opened": False})

    def opened(world, other):
        return step("let", {"animal_id": f"{other}-{world}"}, {"done": True})

    episodes = [
        RecordedEpisode(
            f"f{world}-{number}",
            f"w{world}",
            (by_name(world, "ann"), opened(world, "bob"), by_name(world, "ann")),
        )
        for world in range(6)
        for number in range(2)
    ]
    models = mine(episodes)
    known = Knowledge(models, pooled([renamed(one, models) for one in episodes], models))
    told = [(one.tool, one.args, one.seen) for one in (by_name(9, "ann"), opened(9, "ann"))]
    assert all(one.support < 0.5 for one in all_after(known, told, "find", name="ann9"))
    told = [(one.tool, one.args, one.seen) for one in (by_name(9, "ann"), opened(9, "bob"))]
    assert all_after(known, told, "find", name="ann9")[0].support >= 0.5


@each_row(
    ("heard", "denied", "said", "strange"),
    [
        (2, "zz", "Sell zz.", ["item"]),
        (2, "zy", "Sell zz.", []),
        (2, "zy", "Sell zz-1.", ["item"]),
        (0, "zz", "", []),
    ],
    ids=[
        "denied, though somebody named it",
        "another was denied",
        "nobody named it",
        "a name that need not be known, as where things are made",
    ],
)
def test_what_a_read_has_denied_is_not_presumed_to_be_there(heard, denied, said, strange) -> None:
    args = {"item": denied}
    view = View("get_item", spell(args), {"error": f"no item called {denied}"}, confidence=0.9, source="told")
    usual = {("sell", "item"): Usual(calls=2, heard=heard)}
    state = State({}, spoken=(said,)).told(view)
    assert list(unlike(usual, "sell", {"item": "zz"}, state)) == strange
