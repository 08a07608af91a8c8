"""Imported episodes name the states that their calls met as the ledger does, so that a dream can use them."""

import asyncio
import json
from pathlib import Path
from typing import Any

from dreamgym_kit.adapters.stores.memory import MemoryStore
from dreamgym_kit.adapters.traces.importing import import_traces
from dreamgym_kit.adapters.traces.seen import Belonging
from dreamgym_kit.dream.call_log import CallLog
from dreamgym_kit.dream.recorded import RecordedExperience
from dreamgym_kit.interfaces import Situation
from dreamgym_kit.types import Answer, Call, Effect, Environment, ToolSpec, Transition, history_digest

TURNS = [
    [("get_order", {"id": 1})],
    [("update_order", {"id": 1}), ("update_order", {"id": 2})],
    [("get_order", {"id": 1}), ("get_order", {"id": 2})],
    [("update_order", {"id": 3}), ("get_order", {"id": 3})],
    [("get_order", {"id": 3})],
]


def conversation() -> dict[str, Any]:
    messages: list[dict[str, Any]] = []
    for turn, calls in enumerate(TURNS):
        asked = [
            {"id": f"{turn}.{place}", "function": {"name": tool, "arguments": json.dumps(args)}}
            for place, (tool, args) in enumerate(calls)
        ]
        messages.append({"role": "assistant", "tool_calls": asked})
        messages += [
            {"role": "tool", "tool_call_id": one["id"], "content": one["id"]} for one in reversed(asked)
        ]
    return {"id": "t", "messages": messages}


def runs() -> list[dict[str, Any]]:
    """The same episode as LangSmith runs: threads started the second call of each turn first."""
    found: list[dict[str, Any]] = []
    for turn, calls in enumerate(TURNS):
        at = 1_700_000_000 + 10 * turn
        found.append({"run_type": "llm", "id": f"llm{turn}", "trace_id": "t", "end_time": at})
        for place, (tool, args) in enumerate(calls):
            found.append(
                {
                    "run_type": "tool",
                    "id": f"{turn}.{place}",
                    "trace_id": "t",
                    "name": tool,
                    "inputs": args,
                    "outputs": {"output": f"{turn}.{place}"},
                    "start_time": at + 1 + place,
                    "end_time": at + 9,
                }
            )
    return found[::-1]


def imported(tmp_path: Path, rows: list[dict[str, Any]], **more: Any) -> list[Transition]:
    (path := tmp_path / "rows.jsonl").write_text("\n".join(map(json.dumps, rows)))
    import_traces(path, store := MemoryStore(), **more)
    return list(store.scan())


def as_the_ledger_has_it() -> list[tuple[str, str]]:
    ledger = CallLog(episode="t", task="", environment=Environment(), tenant="default")
    for turn, calls in enumerate(TURNS):
        ledger.announce([f"{turn}.{place}" for place in range(len(calls))])
        for place, (tool, args) in enumerate(calls):
            call = Call(tool, args, f"{turn}.{place}")
            where = ledger.place(call)
            effect = Effect.WRITE if tool == "update_order" else Effect.READ
            ledger.commit(where, call, Answer(""), effect, after=ledger.after(where), elapsed_s=0, at=0)
    return [(row.call.key, row.after) for row in ledger.transitions()]


def test_states_are_named_as_the_ledger_names_them_whichever_recorder_saw_them(tmp_path: Path) -> None:
    for rows in ([conversation()], runs()):
        found = imported(tmp_path, rows)
        assert [(row.call.key, row.after) for row in found] == as_the_ledger_has_it()
        assert [row.step for row in found] == list(range(1, 9))


def test_a_dream_answers_from_an_imported_episode_only_in_the_state_it_was_recorded_in(
    tmp_path: Path,
) -> None:
    rows = imported(tmp_path, [conversation()], belonging=Belonging(Environment("shop", 3), "acme"))
    dream = RecordedExperience(
        lambda world, tenant: [r for r in rows if (r.environment, r.tenant) == (world, tenant)]
    )
    read = Call("get_order", {"id": 1})
    writes = [Call("update_order", {"id": number}).key for number in (1, 2)]
    tool = ToolSpec("get_order", Effect.READ)
    for after, content in (("", "0.0"), (history_digest(writes), "2.0"), (history_digest(writes[:1]), None)):
        place = Situation(Environment("shop", 3), "", "e", (), after, tool, tenant="acme")
        assert asyncio.run(dream.answer(read, place)).content == content


def test_a_write_that_nobody_answered_still_makes_another_state(tmp_path: Path) -> None:
    row = conversation()
    row["messages"] = [one for one in row["messages"] if one.get("tool_call_id") != "1.0"]
    kept = imported(tmp_path, [row])
    whole = [pair for pair in as_the_ledger_has_it() if pair[0] != Call("update_order", {"id": 1}).key]
    assert [(one.call.key, one.after) for one in kept] == whole
    assert [one.step for one in kept] == [1, 3, 4, 5, 6, 7, 8]


def test_without_model_calls_those_that_overlap_are_one_turn(tmp_path: Path) -> None:
    rows = [row for row in runs() if row["run_type"] == "tool"]
    found = imported(tmp_path, rows)
    assert [(row.call.key, row.after) for row in found] == as_the_ledger_has_it()


def test_what_a_person_said_about_a_tool_wins_over_its_name(tmp_path: Path) -> None:
    (first, *_) = imported(tmp_path, [conversation()])
    assert first.effect is Effect.READ
    (first, second, *_) = imported(tmp_path, [conversation()], effects=lambda name, description: Effect.WRITE)
    assert first.effect is Effect.WRITE
    assert second.after == history_digest([first.call.key])
