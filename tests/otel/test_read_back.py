"""What was exported and is imported again is what was answered; what was changed on its way is told."""

import json
import tempfile
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

import pytest
from each_row import each_row
from hypothesis import given, settings
from hypothesis import strategies as st
from replay import drawn

from dreamgym_kit.adapters.otel.sinks import export_run
from dreamgym_kit.adapters.stores.memory import MemoryStore
from dreamgym_kit.adapters.traces.importing import TraceReport, import_traces
from dreamgym_kit.replay.masking import Masker, masked_answer
from dreamgym_kit.rollout.rundir import Manifest, RunDirectory
from dreamgym_kit.types import Environment, Episode, Transition, Verdict

Write = Callable[[Iterable[Episode]], Path]

MASKER = Masker()


def holds_secrets(step: Transition) -> bool:
    """What is masked on its way out does not come back as it was; nothing recorded holds any."""
    args = step.call.args
    return MASKER.plain(args) is not args or masked_answer(step.answer, MASKER) is not step.answer


hostile = st.sampled_from(
    ['{"a": 1}', "[1]", '"x"', "null", "1.0", "\ud800", "a\udc00b", "\0", "\r\n", "<masked>"]
)
texts = hostile | st.text(st.characters(exclude_categories=()), max_size=8)  # lone surrogates too
numbers = st.floats(-1e300, 1e300)
changes = st.lists(st.dictionaries(texts, drawn.json_values(texts, numbers), max_size=3), max_size=2).map(
    tuple
)
transitions = drawn.transitions(
    texts, numbers, content=hostile, seconds=st.floats(0, 4e9), changes=changes
).filter(lambda one: not holds_secrets(one))  # hypothesis takes words from the sources: "PASSWORD" is one


def exported(directory: Path, to: Path) -> Path:
    export_run(RunDirectory.open(directory), str(to))
    return to


def read_back(path: Path) -> tuple[list[Transition], TraceReport]:
    store = MemoryStore()
    report = import_traces(path, store)
    return list(store.scan()), report


@pytest.mark.slow
@given(st.lists(transitions, max_size=4, unique_by=lambda one: one.id))
@settings(max_examples=100, deadline=None)
def test_whatever_a_transition_holds_comes_back_from_an_export(steps: list[Transition]) -> None:
    with tempfile.TemporaryDirectory() as folder:
        root = Path(folder)
        with RunDirectory.create(root, "run", Manifest("7f3a", 1.0, {"graph": "g"})) as directory:
            with directory.journal() as journal:
                journal.append(Episode("e.1", "e", 1, Environment(), Verdict.PASSED, "ok", tuple(steps)))
            back, report = read_back(exported(directory.path, root / "spans.jsonl"))
        assert (report.unread, report.unanswered) == (0, 0)
    assert {one.id: one for one in back} == {one.id: one for one in steps}


def test_limits_of_the_environment_do_not_cut_a_call(
    write_run: Write, episode: Episode, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("OTEL_ATTRIBUTE_VALUE_LENGTH_LIMIT", "3")
    monkeypatch.setenv("OTEL_SPAN_ATTRIBUTE_COUNT_LIMIT", "2")
    monkeypatch.setenv("OTEL_TRACES_SAMPLER", "always_off")
    back, _ = read_back(exported(write_run([episode]), tmp_path / "spans.jsonl"))
    assert sorted(back, key=lambda one: one.step) == list(episode.transitions)


def spans_of(path: Path) -> list[dict[str, Any]]:
    lines = [json.loads(line) for line in path.read_text().splitlines()]
    return [
        span
        for line in lines
        for resource in line["resourceSpans"]
        for scope in resource["scopeSpans"]
        for span in scope["spans"]
    ]


def attributes(span: dict[str, Any]) -> dict[str, Any]:
    return {one["key"]: next(iter(one["value"].values())) for one in span["attributes"]}


@each_row(
    ("name", "value"),
    [
        ("gen_ai.tool.call.result", "refunded"),
        ("gen_ai.tool.call.arguments", "[REDACTED]"),
        ("gen_ai.tool.call.arguments", '{"order": "o2", "n": 1}'),
        ("gen_ai.tool.call.result", None),
        ("dreamgym.transition", None),
        ("dreamgym.transition", "{}"),
        ("dreamgym.transition", "[1]"),
        ("dreamgym.transition", '{"call": 1, "answer": {}}'),
    ],
)
def test_a_call_that_was_changed_on_its_way_is_told_and_never_taken_for_a_real_one(
    run_dir: Path, tmp_path: Path, name: str, value: str | None
) -> None:
    path = exported(run_dir, tmp_path / "spans.jsonl")
    spans = spans_of(path)
    span = next(one for one in spans if one["name"] == "execute_tool look")
    span["attributes"] = [one for one in span["attributes"] if one["key"] != name]
    if value is not None:
        span["attributes"].append({"key": name, "value": {"stringValue": value}})
    path.write_text("".join(json.dumps(one) + "\n" for one in spans))
    back, report = read_back(path)
    assert [one.call.tool for one in back] == ["refund"]
    assert (report.read, report.unread) == (1, 1)
    assert f"span {span['spanId']}: a call that dreamgym-kit exported" in report.problems[0]


def test_a_dreamt_call_in_a_langfuse_or_langsmith_export_stays_dreamt(
    write_run: Write, episode: Episode, tmp_path: Path
) -> None:
    span = next(
        one
        for one in spans_of(exported(write_run([episode]), tmp_path / "spans.jsonl"))
        if one["name"] == "execute_tool look"
    )
    known = attributes(span)
    given, said = known.pop("gen_ai.tool.call.arguments"), known.pop("gen_ai.tool.call.result")
    langfuse = {
        "id": "o",
        "type": "TOOL",
        "traceId": "t",
        "name": "execute_tool look",
        "input": json.loads(given),
        "output": said,
        "metadata": {"attributes": known},
    }
    langsmith = {
        "id": "r",
        "run_type": "tool",
        "trace_id": "t",
        "name": "look",
        "inputs": json.loads(given),
        "outputs": said,
        "extra": {"metadata": known},
    }
    for record in (langfuse, langsmith):
        (path := tmp_path / "other.jsonl").write_text(json.dumps(record))
        assert read_back(path)[0] == [episode.transitions[0]]
    langfuse["output"] = "something else"
    path.write_text(json.dumps(langfuse))
    assert read_back(path)[1].unread == 1
