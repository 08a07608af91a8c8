"""Every real file is read to the last call. They are no part of the project: `DATA` says where they lie."""

import json
import os
from collections import Counter
from collections.abc import Sequence
from itertools import pairwise
from pathlib import Path

import pytest
from each_row import each_row

from dreamgym_kit.adapters.stores.memory import MemoryStore
from dreamgym_kit.adapters.traces.importing import TraceReport, import_traces
from dreamgym_kit.types import Source, Transition

BESIDE = Path(__file__).parents[2].parent / "shared" / "data"

DATA = Path(os.environ.get("SHARED_DATA_FOLDER", BESIDE))
needs_files = pytest.mark.skipif(
    not DATA.is_dir(), reason=f"the real files are not in {DATA} (SHARED_DATA_FOLDER names another folder)"
)

# file: transitions, of these failed, calls without an answer, records that are no trace, episodes
EXPECTED = {
    "langfuse/claude-agent-2025-12-22.trace.json": (2, 0, 0, 0, 1),
    "langfuse/koog-2025-08-26.trace.json": (2, 0, 0, 0, 1),
    "langfuse/langgraph-js-2025-10-30.trace.json": (1, 0, 0, 0, 1),
    "langfuse/langgraph-python-2025-08-22.trace.json": (1, 0, 0, 0, 1),
    "langfuse/microsoft-agent-2025-12-17.trace.json": (1, 0, 0, 0, 1),
    "langfuse/openai-agents-2025-09-30.trace.json": (1, 0, 0, 0, 1),
    "langfuse/pydantic-ai-tools-2025-12-04.trace.json": (3, 0, 0, 0, 1),
    "langfuse/vercel-aisdk-2025-11-17.trace.json": (1, 0, 0, 0, 1),
    "langsmith/langgraph_sdk_runs.jsonl": (4, 1, 0, 0, 2),
    "messages/nemo_gym_example_mcp_weather_rollouts.jsonl": (5, 0, 0, 0, 5),
    "messages/nemo_gym_indirect_prompt_injection_rollouts.jsonl": (9, 0, 0, 0, 5),
    "messages/nemo_gym_workplace_assistant_rollouts.jsonl": (8, 0, 0, 0, 5),
    "messages/nemo_gym_xlam_fc_rollouts.jsonl": (6, 0, 0, 0, 5),
    "messages/openai_chat_requests.jsonl": (29, 0, 0, 0, 23),
    "messages/sharegpt_toolcall.json": (37, 0, 0, 0, 25),
    "openinference/claude_agent_live_spans.json": (6, 0, 0, 0, 1),
    "openinference/langchain_adot_event_bodies.json": (1, 0, 0, 0, 1),
    "openinference/langchain_spans.json": (1, 0, 1, 0, 1),
    "openinference/langgraph_otlp.json": (4, 1, 0, 0, 2),
    "openinference/openai_agents_live_spans.json": (4, 0, 0, 0, 1),
    "openinference/smolagents_live_spans.json": (2, 0, 0, 0, 1),
    "otel/adk_live_spans.json": (1, 0, 0, 0, 1),
    "otel/jaeger_export_helm.json": (1, 0, 0, 0, 1),
    "otel/openai_agents_genai_adot_spans.json": (1, 0, 0, 0, 1),
    "otel/openai_agents_genai_live_spans.json": (5, 0, 0, 0, 1),
    "otel/openllmetry_langgraph_otlp.jsonl": (4, 1, 0, 0, 2),
    "otel/otel_genai_convention_spans.json": (2, 1, 0, 0, 1),
    "otel/pydantic_ai_live_spans.json": (1, 0, 0, 0, 1),
    "otel/strands_events_otlp.json": (3, 1, 0, 0, 1),
    "otel/tempo_export_batches.json": (1, 0, 0, 0, 1),
    "worlds/alfworld_agentbench_messages.jsonl": (78, 0, 12, 0, 12),
    "worlds/alfworld_react_prompts.jsonl": (390, 0, 0, 0, 36),
    "worlds/alfworld_textworld17_episode.json": (25, 0, 0, 0, 1),
    "worlds/webarena_browsergym_actions.json": (0, 0, 18, 0, 0),
    "worlds/webarena_lite_tasks.json": (0, 0, 0, 24, 0),
    "worlds/webarena_prompt_pairs.jsonl": (0, 0, 0, 5, 0),
    "worlds/webshop_react_episodes.jsonl": (182, 0, 0, 0, 30),
}


def imported(name: str) -> tuple[list[Transition], TraceReport]:
    store = MemoryStore()
    report = import_traces(DATA / name, store)
    return list(store.scan()), report


def told(rows: Sequence[Transition]) -> list[tuple[str, object, object, str | None]]:
    return [(row.call.tool, dict(row.call.args), row.answer.content, row.answer.error) for row in rows]


@needs_files
@each_row("name", EXPECTED)
def test_every_call_of_a_real_file_is_read_and_the_rest_is_told(name: str) -> None:
    rows, report = imported(name)
    failed = sum(row.answer.error is not None for row in rows)
    episodes = len({row.episode for row in rows})
    assert (len(rows), failed, report.unanswered, report.unread, episodes) == EXPECTED[name]
    assert report.new == report.read == len(rows)
    assert {row.answer.source for row in rows} <= {Source.REAL}
    assert all(row.call.tool and row.episode and row.step >= 1 for row in rows)
    assert (len(report.problems), len(report.notes)) == (report.unread, report.unanswered)
    again = import_traces(DATA / name, MemoryStore())
    assert again == report


@needs_files
@each_row(
    "name",
    [
        "langsmith/langgraph_sdk_runs.jsonl",
        "openinference/langgraph_otlp.json",
        "otel/openllmetry_langgraph_otlp.jsonl",
    ],
)
def test_one_agent_through_three_recorders_gives_the_same_calls(name: str) -> None:
    rows, _ = imported(name)
    shipped = '{"order_id": "%s", "status": "shipped", "total": 41.5}'
    late = {"order_id": "A-17", "amount": 20.0, "reason": "late"}
    assert told(rows) == [
        ("get_order", {"order_id": "A-17"}, shipped % "A-17", None),
        ("get_order", {"order_id": "B-2"}, shipped % "B-2", None),
        ("refund", late, "refunded 20.0 for A-17", None),
        ("refund", {"order_id": "A-17", "amount": 99.0}, None, "amount exceeds the order total"),
    ]
    assert [row.step for row in rows] == [1, 2, 3, 1]
    assert [row.call.call_id for row in rows] == ["call_1", "call_2", "call_3", "call_9"]
    assert rows[3].answer.error_type == "ValueError"


@needs_files
def test_the_older_form_with_events_is_read_with_its_failure() -> None:
    rows, _ = imported("otel/strands_events_otlp.json")
    assert told(rows)[1:] == [
        ("refund", {"order_id": "A-17", "amount": 20.0}, "refunded 20.0 for A-17", None),
        (
            "refund",
            {"order_id": "A-17", "amount": 99.0},
            "Error: amount exceeds the order total",
            "amount exceeds the order total",
        ),
    ]
    assert rows[1].after == ""
    assert rows[2].after != ""  # it met a world in which the first refund was made


@needs_files
def test_one_id_for_all_calls_of_an_episode_does_not_mix_up_their_answers() -> None:
    rows, report = imported("worlds/alfworld_agentbench_messages.jsonl")
    source = (DATA / "worlds/alfworld_agentbench_messages.jsonl").read_text().splitlines()
    wanted = []
    for line in source:
        messages = json.loads(line)["messages"]
        for asked, answered in pairwise(messages):
            if answered["role"] == "tool":
                action = json.loads(asked["tool_calls"][0]["function"]["arguments"])
                wanted.append(("take_action", action, answered["content"], None))
    assert told(rows) == wanted
    assert len({row.call.call_id for row in rows}) < len({row.episode for row in rows}) * 2
    assert all("the trace has no answer to it" in note for note in report.notes)


@needs_files
def test_thoughts_are_no_calls_and_are_counted() -> None:
    rows, report = imported("worlds/alfworld_react_prompts.jsonl")
    assert report.passed == {"thought": 91}
    assert not [row for row in rows if str(row.call.args["action"]).startswith("think")]


@needs_files
def test_mcp_results_are_the_text_that_the_agent_saw() -> None:
    (jaeger,), _ = imported("otel/jaeger_export_helm.json")
    assert str(jaeger.answer.content).startswith('[{"name":"jaeger"')
    assert jaeger.recorded_at == pytest.approx(1771835735.4, abs=0.1)  # from microseconds
    (tempo,), _ = imported("otel/tempo_export_batches.json")
    assert str(tempo.answer.content).startswith("NAME")
    assert tempo.recorded_at == pytest.approx(1777555055.6, abs=0.1)


@needs_files
def test_what_a_model_asked_for_and_no_span_shows_is_noted() -> None:
    _, report = imported("openinference/langchain_spans.json")
    path = DATA / "openinference/langchain_spans.json"
    assert report.notes == (f"{path}:2: call of get_weather (toolu_001): requested, but without a tool span",)


@needs_files
def test_records_without_calls_are_counted_by_kind() -> None:
    totals: Counter[str] = Counter()
    for name in EXPECTED:
        totals.update(imported(name)[1].passed)
    assert totals["thought"] > 91
    assert totals["span"] > 20
    assert totals["observation"] > 20
