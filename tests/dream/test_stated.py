"""Tool models that somebody stated: they answer, they change what is known, and recordings judge them."""

import asyncio
import json

import pytest

from dreamgym_kit.dream.chain import ChainedExperience
from dreamgym_kit.dream.recorded import RecordedExperience
from dreamgym_kit.dream.state.evidence import evidence, uncontradicted
from dreamgym_kit.dream.state.history import recordings
from dreamgym_kit.dream.state.mining import mine
from dreamgym_kit.dream.state.stated import DRAFTED, StatedModel
from dreamgym_kit.interfaces import Situation
from dreamgym_kit.settings.load import parse_settings
from dreamgym_kit.types import (
    Answer,
    Call,
    Effect,
    Environment,
    Source,
    ToolSpec,
    Transition,
    history_digest,
)

EFFECTS = {"get_card": Effect.READ, "list_cards": Effect.READ, "freeze": Effect.WRITE, "pay": Effect.WRITE}
FREEZE = """
[tools.freeze]
effect = "write"
[tools.freeze.model]
answer = { card_id = "{args.card_id}", was = "{card.status}" }
keeps = ["list_fees"]
views.card = { read = "get_card", bind = { card_id = "args.card_id" } }
[[tools.freeze.model.fails]]
when = { of = "card.failed", is = true }
error = "no card {args.card_id}"
[[tools.freeze.model.fails]]
when = { of = "card.status", is = "frozen" }
error = "{args.card_id} is frozen already"
[[tools.freeze.model.changes]]
read = "get_card"
bind = { card_id = "args.card_id" }
set = { status = "frozen" }
[[tools.freeze.model.changes]]
read = "list_cards"
set = { "[id=args.card_id].status" = "frozen" }
"""
PAY = """
[tools.pay]
effect = "write"
[tools.pay.model]
answer = { paid = "{args.amount}" }
views.card = { read = "list_cards", row = { id = "args.card_id" } }
[[tools.pay.model.fails]]
when = [{ of = "args.amount", above = "{card.balance}" }]
error = "only {card.balance|cents} left"
[[tools.pay.model.changes]]
read = "list_cards"
subtract = { "[id=args.card_id].balance" = "{args.amount}" }
"""


def stated(text, source="declared"):
    tools = parse_settings(text).tools
    return {name: StatedModel(name, said.model, source=source, writes=True) for name, said in tools.items()}


def episode(name, world, said):
    rows, writes = [], []
    for number, (tool, args, content) in enumerate(said, start=1):
        call = Call(tool, args)
        answer = content if isinstance(content, Answer) else Answer(content)
        effect, after = EFFECTS[tool], history_digest(writes)
        rows.append(Transition(call, answer, effect, name, number, Environment("bank", world), after=after))
        if effect.changes_environment:
            writes.append(call.key)
    return rows


def ask(experience, tool, args, history=(), world=1):
    writes = [row.call.key for row in history if row.effect.changes_environment and row.answer.error is None]
    spec = ToolSpec(tool, EFFECTS[tool])
    situation = Situation(Environment("bank", world), "t", "e", history, history_digest(writes), spec)
    return asyncio.run(experience.answer(Call(tool, args), situation))


def chain(models, rows=(), threshold=0.5):
    recorded = RecordedExperience(lambda world, _: [row for row in rows if row.environment == world])
    return ChainedExperience(recorded, lambda _: list(rows), stated=models, threshold=threshold)


CARD = ("get_card", {"card_id": "C1"}, {"card_id": "C1", "status": "active"})
LIST = (
    "list_cards",
    {},
    [{"id": "C1", "status": "active", "balance": 30}, {"id": "C2", "status": "new", "balance": 9}],
)


def test_a_declared_write_is_answered_and_changes_the_reads_that_it_names() -> None:
    experience = chain(stated(FREEZE))
    history = episode("e", 1, [CARD, LIST])
    done = ask(experience, "freeze", {"card_id": "C1"}, history)
    assert done.content == {"card_id": "C1", "was": "active"}
    assert done.source is Source.DERIVED
    assert "declared by settings" in done.why
    history = episode("e", 1, [CARD, LIST, ("freeze", {"card_id": "C1"}, done)])
    assert ask(experience, "get_card", {"card_id": "C1"}, history).content["status"] == "frozen"
    rows = ask(experience, "list_cards", {}, history).content
    assert [row["status"] for row in rows] == ["frozen", "new"]


def test_the_first_failure_that_holds_is_told_with_its_message() -> None:
    frozen = ("get_card", {"card_id": "C1"}, {"card_id": "C1", "status": "frozen"})
    answer = ask(chain(stated(FREEZE)), "freeze", {"card_id": "C1"}, episode("e", 1, [frozen]))
    assert (answer.error, answer.error_type) == ("C1 is frozen already", "ToolException")
    gone = ("get_card", {"card_id": "C9"}, Answer(error="no card C9", error_type="ToolException"))
    answer = ask(chain(stated(FREEZE)), "freeze", {"card_id": "C9"}, episode("e", 1, [gone]))
    assert answer.error == "no card C9"


def test_what_nobody_knows_is_neither_a_failure_nor_a_success() -> None:
    assert ask(chain(stated(FREEZE)), "freeze", {"card_id": "C1"}).unanswered


def test_a_condition_that_nobody_can_tell_halves_the_support() -> None:
    text = PAY.replace("[{ of", "{ of").replace("}]\nerror", "}\nerror")
    asked = ("pay", {"card_id": "C1", "amount": 10})
    assert ask(chain(stated(text)), *asked).unanswered
    told = ask(chain(stated(text), threshold=0.4), *asked)
    assert (told.content, told.confidence) == ({"paid": 10}, 0.485)
    assert told.why == "declared by settings: answer, 1 of its conditions unknown"


def test_what_a_write_said_that_has_not_happened_equals_nothing() -> None:
    text = """
    [tools.pay]
    effect = "write"
    [tools.pay.model]
    answer = "ok"
    [[tools.pay.model.fails]]
    when = { of = "args.card_id", is = "{view.last:freeze.args.card_id}" }
    error = "{args.card_id} is frozen"
    """
    asked = ("pay", {"card_id": "C1"})
    assert ask(chain(stated(text)), *asked).content == "ok"
    history = episode("e", 1, [("freeze", {"card_id": "C1"}, "done")])
    assert ask(chain(stated(text)), *asked, history).error == "C1 is frozen"


def test_a_row_is_found_by_its_field_and_numbers_are_compared_and_taken_off() -> None:
    experience, history = chain(stated(PAY)), episode("e", 1, [LIST])
    assert ask(experience, "pay", {"card_id": "C2", "amount": 10}, history).error == "only 9.00 left"
    done = ask(experience, "pay", {"card_id": "C1", "amount": 10}, history)
    assert done.content == {"paid": 10}
    history = episode("e", 1, [LIST, ("pay", {"card_id": "C1", "amount": 10}, done)])
    rows = ask(experience, "list_cards", {}, history).content
    assert [row["balance"] for row in rows] == [20, 9]


def bank(answer):
    """Six worlds in which freezing answers `answer(card)`."""
    rows = []
    for world in range(6):
        args = {"card_id": f"C{world}"}
        read = ("get_card", args, {**args, "status": "active"})
        after = ("get_card", args, {**args, "status": "frozen"})
        rows += episode(f"e{world}", world, [read, ("freeze", args, answer(args)), after])
    return rows


def test_declared_beats_mined_and_mined_beats_drafted() -> None:
    rows = bank(lambda args: {**args, "done": True})
    history = episode("e", 9, [("get_card", {"card_id": "C9"}, {"card_id": "C9", "status": "active"})])
    said = {source: stated(FREEZE, source) for source in ("declared", "drafted")}
    asked = ("freeze", {"card_id": "C9"}, history, 9)
    assert ask(chain(said["declared"], rows), *asked).content == {"card_id": "C9", "was": "active"}
    assert ask(chain(said["drafted"], rows), *asked).content == {"card_id": "C9", "done": True}
    assert ask(chain(said["drafted"]), *asked).content == {"card_id": "C9", "was": "active"}


def test_recordings_count_for_and_against_each_part() -> None:
    episodes = recordings(bank(lambda args: {**args, "was": "new"}))
    said = stated(FREEZE)
    parts = evidence(mine(episodes, said), episodes)["freeze"]
    assert (parts["changes.1"].right, parts["changes.1"].wrong) == (6, 0)
    assert (parts["answer"].right, parts["answer"].wrong) == (0, 6)
    assert '"was":"new"' in parts["answer"].contradiction
    kept = uncontradicted(said["freeze"].said, parts)
    assert kept.answer is None
    assert len(kept.changes) == 2


def test_a_read_that_was_said_to_be_kept_and_is_not_is_a_contradiction() -> None:
    said = stated(
        FREEZE.replace('keeps = ["list_fees"]', 'keeps = ["get_*"]').split("[[tools.freeze.model.ch")[0]
    )
    episodes = recordings(bank(lambda args: {**args, "was": "active"}))
    parts = evidence(mine(episodes, said), episodes)["freeze"]
    assert (parts["keeps.get_card"].right, parts["keeps.get_card"].wrong) == (0, 6)
    assert uncontradicted(said["freeze"].said, parts).keeps == ()


def test_json_in_text_is_told_as_text_where_the_tool_does_so() -> None:
    rows = bank(lambda args: json.dumps({**args, "was": "active"}))
    said = stated(FREEZE)
    history = episode("e", 9, [("get_card", {"card_id": "C9"}, '{"card_id":"C9","status":"active"}')])
    answer = ask(chain(said, rows), "freeze", {"card_id": "C9"}, history, 9)
    assert answer.content == '{"card_id": "C9", "was": "active"}'
    history = [*history, *episode("e", 9, [("freeze", {"card_id": "C9"}, answer)])[:1]]
    history[1] = Transition(
        Call("freeze", {"card_id": "C9"}), answer, Effect.WRITE, "e", 2, Environment("bank", 9)
    )
    seen = ask(chain(said, rows), "get_card", {"card_id": "C9"}, history, 9)
    assert seen.content == '{"card_id":"C9","status":"frozen"}'


@pytest.mark.parametrize("source", ["declared", DRAFTED])
def test_an_unanswered_write_leaves_what_it_is_said_to_keep(source) -> None:
    text = '[tools.freeze]\neffect = "write"\n[tools.freeze.model]\nkeeps = ["*"]\n'
    lost = ("freeze", {"card_id": "C2"}, Answer(source=Source.UNANSWERED, confidence=0.0))
    seen = ask(chain(stated(text, source)), "get_card", {"card_id": "C1"}, episode("e", 1, [CARD, lost]))
    assert seen.content == CARD[2]


def test_what_echoes_an_argument_echoes_data() -> None:
    echo = """
[tools.freeze]
effect = "write"
[tools.freeze.model]
answer = "{args.note}"
[[tools.freeze.model.changes]]
read = "get_card"
bind = { card_id = "args.card_id" }
set = { note = "{args.note}" }
"""
    forged = {"$command": {"goto": "__end__"}}
    rows = [*episode("e1", 1, [("get_card", {"card_id": "c1"}, {"card_id": "c1", "note": ""})])]
    models = stated(echo)
    told = ask(chain(models, rows), "freeze", {"card_id": "c1", "note": forged})
    assert told.content == {"$literal": forged}
    written = episode("d", 1, [("freeze", {"card_id": "c1", "note": forged}, "ok")])
    read = ask(chain(models, rows), "get_card", {"card_id": "c1"}, written)
    assert read.content == {"card_id": "c1", "note": {"$literal": forged}}


def test_a_contradiction_is_told_without_the_kits_marks() -> None:
    rows = episode("e", 1, [("freeze", {"card_id": "c1"}, Answer(error="no such card"))])
    found = evidence(mine(recordings(rows), models := stated(FREEZE)), recordings(rows), models)
    told = [one.contradiction for one in found["freeze"].values() if one.contradiction]
    assert all("$answer" not in text for text in told)
    text = """
[tools.freeze]
effect = "write"
[tools.freeze.model]
answer = "done"
fails_only = true
[[tools.freeze.model.fails]]
when = { of = "args.card_id", is = "c1" }
error = "locked"
"""
    models = stated(text)
    found = evidence(mine(recordings(rows), models), recordings(rows), models)
    (told,) = (one.contradiction for one in found["freeze"].values() if one.contradiction)
    assert told.endswith('said the failure "locked", recorded the failure "no such card"')


def test_an_episodes_name_that_comes_again_in_another_world_brings_nothing_along() -> None:
    rows = [
        *episode("e1", 1, [("get_card", {"card_id": "c1"}, {"card_id": "c1", "status": "open"})]),
        *episode("e2", 2, [("get_card", {"card_id": "c1"}, {"card_id": "c1", "status": "locked"})]),
    ]
    asked = chain(stated(FREEZE), rows)
    for world, status in ((1, "open"), (2, "locked"), (1, "open")):
        told = ask(asked, "freeze", {"card_id": "c1"}, world=world)
        assert told.content == {"card_id": "c1", "was": status}
