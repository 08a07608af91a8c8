"""The spans of an episode are what viewers of the GenAI convention expect, and say that it was a dream."""

import json
from collections.abc import Callable, Iterable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from dreamgym_kit.adapters.otel.sinks import export_run
from dreamgym_kit.errors import UserError
from dreamgym_kit.rollout.rundir import RunDirectory
from dreamgym_kit.types import Episode

Write = Callable[[Iterable[Episode]], Path]
Told = dict[str, Any]


def export(directory: Path, to: Path) -> list[Told]:
    """The resources of an exported file, with plain attributes everywhere."""
    export_run(RunDirectory.open(directory), str(to))
    lines = [json.loads(line) for line in to.read_text("utf-8").splitlines()]
    return [resource for line in lines for resource in line["resourceSpans"]]


def plain(attributes: list[Told]) -> Told:
    return {one["key"]: next(iter(one["value"].values())) for one in attributes}


def spans_of(resources: list[Told]) -> list[Told]:
    return [span for one in resources for scope in one["scopeSpans"] for span in scope["spans"]]


@pytest.fixture
def spans(write_run: Write, episode: Episode, tmp_path: Path) -> list[Told]:
    return spans_of(export(write_run([episode]), tmp_path / "spans.jsonl"))


def named(spans: list[Told], name: str) -> Told:
    span = next(one for one in spans if one["name"] == name)
    return {**span, "attributes": plain(span["attributes"])}


def test_an_episode_is_one_trace_of_an_agent_with_its_turns_and_calls(spans: list[Told]) -> None:
    root = named(spans, "invoke_agent shop:graph")
    children = sorted(one["name"] for one in spans if one.get("parentSpanId") == root["spanId"])
    assert "parentSpanId" not in root
    assert children == ["chat", "chat", "chat", "execute_tool look", "execute_tool refund"]
    assert {one["traceId"] for one in spans} == {root["traceId"]}
    assert len(root["traceId"]) == 32
    assert len({one["spanId"] for one in spans}) == len(spans) == 6
    assert {one["name"].split()[0]: one["kind"] for one in spans} == {
        "invoke_agent": 1,
        "chat": 3,
        "execute_tool": 1,
    }


def test_a_call_has_the_conventions_attributes_and_says_where_its_answer_came_from(spans: list[Told]) -> None:
    call = named(spans, "execute_tool refund")
    known = call["attributes"]
    assert (known["gen_ai.operation.name"], known["gen_ai.tool.name"]) == ("execute_tool", "refund")
    assert (known["gen_ai.tool.type"], known["gen_ai.tool.call.id"]) == ("function", "c2")
    assert json.loads(known["gen_ai.tool.call.arguments"]) == {"order": "o1", "n": 2}
    assert known["error.type"] == "TimeoutError"
    assert call["status"] == {"message": "no answer", "code": 2}
    ours = {name: value for name, value in known.items() if name.startswith("dreamgym.")}
    del ours["dreamgym.transition"]
    assert ours == {
        "dreamgym.dreamt": True,
        "dreamgym.source": "fault",
        "dreamgym.confidence": 0.75,
        "dreamgym.effect": "destructive",
        "dreamgym.episode": "t.1",
        "dreamgym.step": "2",
        "dreamgym.environment": "shop:3",
        "dreamgym.task": "t",
        "dreamgym.node": "tools",
    }


def test_times_are_those_of_the_run_and_a_turn_lies_between_what_it_heard_and_asked(
    spans: list[Told],
) -> None:
    begun = 1_795_271_485
    told = {
        (one["name"], int(one["startTimeUnixNano"]) / 1e9 - begun, int(one["endTimeUnixNano"]) / 1e9 - begun)
        for one in spans
    }
    assert told == {
        ("invoke_agent shop:graph", 0.0, 4.0),
        ("chat", 0.0, 1.0),
        ("execute_tool look", 1.0, 1.5),
        ("chat", 1.5, 2.0),
        ("execute_tool refund", 2.0, 2.5),
        ("chat", 2.5, 4.0),
    }


def test_messages_stand_where_the_convention_has_them(spans: list[Told]) -> None:
    agent = named(spans, "invoke_agent shop:graph")["attributes"]
    assert json.loads(agent["gen_ai.input.messages"]) == [
        {"role": "user", "parts": [{"type": "text", "content": "Refund o1."}]}
    ]
    assert json.loads(agent["gen_ai.output.messages"]) == [
        {"role": "assistant", "parts": [{"type": "text", "content": "It failed."}], "finish_reason": "stop"}
    ]
    assert (agent["input.value"], agent["output.value"]) == ("Refund o1.", "It failed.")
    second = plain([one for one in spans if one["name"] == "chat"][1]["attributes"])
    heard = {"type": "tool_call_response", "id": "c1", "response": "captured"}
    assert json.loads(second["gen_ai.input.messages"]) == [{"role": "tool", "parts": [heard]}]
    (said,) = json.loads(second["gen_ai.output.messages"])
    assert (said["finish_reason"], said["parts"][0]["name"]) == ("tool_call", "refund")


def test_verdict_and_findings_are_events_of_the_agent(spans: list[Told]) -> None:
    verdict, finding = named(spans, "invoke_agent shop:graph")["events"]
    assert (verdict["name"], plain(verdict["attributes"])) == (
        "gen_ai.evaluation.result",
        {
            "gen_ai.evaluation.name": "verdict",
            "gen_ai.evaluation.score.label": "failed",
            "gen_ai.evaluation.explanation": "not refunded",
            "gen_ai.evaluation.score.value": 0.25,
        },
    )
    assert plain(finding["attributes"])["dreamgym.finding.kind"] == "swallowed_error"


def test_the_run_is_a_resource_and_a_service_name_of_the_environment_goes_first(
    write_run: Write, episode: Episode, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    directory = write_run([episode])
    known = plain(export(directory, tmp_path / "a.jsonl")[0]["resource"]["attributes"])
    assert (known["service.name"], known["dreamgym.run"], known["dreamgym.mode"]) == (
        "dreamgym-kit",
        "7f3a",
        "dream",
    )
    monkeypatch.setenv("OTEL_SERVICE_NAME", "shop-dreams")
    known = plain(export(directory, tmp_path / "b.jsonl")[0]["resource"]["attributes"])
    assert (known["service.name"], known["openinference.project.name"]) == ("shop-dreams", "shop-dreams")
    monkeypatch.setenv("OTEL_RESOURCE_ATTRIBUTES", "openinference.project.name=ours,service.name=theirs")
    monkeypatch.delenv("OTEL_SERVICE_NAME")
    known = plain(export(directory, tmp_path / "c.jsonl")[0]["resource"]["attributes"])
    assert (known["service.name"], known["openinference.project.name"]) == ("theirs", "ours")


def test_the_same_run_gives_the_same_file_and_no_two_episodes_share_a_trace(
    write_run: Write, episode: Episode, tmp_path: Path
) -> None:
    repeat = replace(episode, id="t.2", repeat=2)
    directory = write_run([episode, repeat])
    first = export(directory, tmp_path / "a.jsonl")
    export(directory, tmp_path / "b.jsonl")
    assert (tmp_path / "a.jsonl").read_bytes() == (tmp_path / "b.jsonl").read_bytes()
    assert len({span["traceId"] for span in spans_of(first)}) == 2


def test_an_episode_that_was_refused_is_an_error_and_one_without_calls_is_still_told(
    write_run: Write, episode: Episode, tmp_path: Path
) -> None:
    refused = replace(episode, stop="violation", violations=("tried to mail",))
    silent = replace(episode, id="u.1", messages=(), transitions=(), findings=())
    spans = spans_of(export(write_run([refused, silent]), tmp_path / "spans.jsonl"))
    roots = [one for one in spans if one["name"].startswith("invoke_agent")]
    assert [one["status"].get("code") for one in roots] == [2, None]
    violations = plain(roots[0]["attributes"])["dreamgym.violations"]
    assert violations == {"values": [{"stringValue": "tried to mail"}]}


def test_an_sdk_that_is_switched_off_is_said_and_leaves_no_file(
    write_run: Write, episode: Episode, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("OTEL_SDK_DISABLED", "true")
    (target := tmp_path / "spans.jsonl").write_text("the old one")
    with pytest.raises(UserError, match="OTEL_SDK_DISABLED is set"):
        export_run(RunDirectory.open(write_run([episode])), str(target))
    assert target.read_text() == "the old one"
    assert [path.name for path in tmp_path.iterdir() if path.is_file()] == ["spans.jsonl"]
