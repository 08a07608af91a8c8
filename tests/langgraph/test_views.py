"""A view shows the agent the same parts of real, recorded and dreamed answers."""

import json
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from langchain.agents import create_agent
from langchain_core.tools import tool
from shapes.models import ScriptedModelDouble, asks

import dreamgym_kit
from dreamgym_kit import Task, effect
from dreamgym_kit.adapters.stores.memory import MemoryStore
from dreamgym_kit.errors import UserError
from dreamgym_kit.rollout.rundir import RunDirectory
from dreamgym_kit.settings.load import load_settings
from dreamgym_kit.settings.schema import Settings, ToolSettings
from dreamgym_kit.settings.views import seen_through, viewed
from dreamgym_kit.types import Answer, Call, Effect, Transition

PAGE = (
    "<!doctype html><html><head><title>Orders</title><script>track()</script></head>"
    "<body><h1>Order <b>7</b></h1><p>1 &lt; 2 &amp; <a href='/x'>open</a></p>"
    "<input value='blue'></body></html>"
)
ROWS = {"results": [{"id": 1, "name": "a", "html": "<i>x</i>"}, {"id": 2, "html": PAGE}], "took_ms": 12}
VIEWS: dict[str, tuple[tuple[str, ...], Any, Any]] = {
    "fields of items": (
        ("results[].name", "took_ms"),
        ROWS,
        {"results": [{"name": "a"}, {}], "took_ms": 12},
    ),
    "first items": (("results[:1].id",), ROWS, {"results": [{"id": 1}]}),
    "any key": (
        ("*[].id",),
        {"a": [{"id": 1, "b": 2}], "c": [{"id": 3}]},
        {"a": [{"id": 1}], "c": [{"id": 3}]},
    ),
    "page": (("text()",), PAGE, "Orders\nOrder 7\n1 < 2 & open\nblue"),
    "page in an object": (("results[:1].html.text()",), ROWS, {"results": [{"html": "x"}]}),
    "JSON in a text": (("took_ms",), json.dumps(ROWS), '{"took_ms": 12}'),
    "blocks": (("text()",), [{"type": "text", "text": "<p>hi</p>"}], [{"type": "text", "text": "hi"}]),
    "a text that shows a tag": (("text()",), "<p>&lt;b&gt;</p>", "&lt;b>"),
    "an image beside": (
        ("text()",),
        [{"type": "text", "text": "<p>hi</p>"}, {"type": "image", "url": "u"}],
        [{"type": "text", "text": "hi"}, {"type": "image", "url": "u"}],
    ),
    "what is never closed": (("text()",), "<p>paid</p><![x[y", "paid\n&lt;![x[y"),
    "another form": (("results[].name",), "no such order", "no such order"),
    "none of its parts": (("results[].name",), {"error": "not found"}, {"error": "not found"}),
}


@pytest.mark.parametrize("name", VIEWS)
def test_a_view_keeps_the_parts_that_it_names_and_is_stable(name: str) -> None:
    paths, content, expected = VIEWS[name]
    view = viewed(Answer(content), paths)
    assert view.content == expected
    assert viewed(view, paths) is view


@pytest.mark.parametrize("path", ["", "a..b", "a[0]", "a[", "text().a"])
def test_a_wrong_path_is_refused_where_it_stands(tmp_path: Path, path: str) -> None:
    file = tmp_path / "dreamgym.toml"
    file.write_text(f'[tools.get]\neffect = "read"\nview = ["{path}"]\n', "utf-8")
    with pytest.raises(UserError, match=rf"dreamgym\.toml:3: .*view.*{'path' if path else ''}"):
        load_settings(file)


@effect("read")
@tool("views_get_order", response_format="content_and_artifact")
def get_order(order: str) -> tuple[dict[str, Any], list[str]]:
    """Look an order up."""
    return {"id": order, "status": "open", "page": PAGE, "log": ["x"] * 1_000}, [order]


def said(settings: Settings, buffer: Any, *, real: bool, tmp_path: Path) -> list[Any]:
    model = ScriptedModelDouble(script=[[asks("views_get_order", {"order": "o1"}, "1")], "Done."])
    run = dreamgym_kit.record if real else dreamgym_kit.simulate
    task = Task("t", {"messages": [{"role": "user", "content": "go"}]}, expect={"max": {}})
    result = run(create_agent(model, [get_order]), [task], buffer=buffer, settings=settings)
    (episode,) = RunDirectory.open(result.directory).episodes()
    return [message["content"] for message in episode.messages if message["role"] == "tool"]


@pytest.mark.parametrize("recorded_with_view", [True, False])
def test_the_agent_sees_the_view_of_real_and_dreamed_answers(
    tmp_path: Path, recorded_with_view: bool
) -> None:
    whole = Settings().with_overrides({"runs": str(tmp_path)})
    with_view = whole.with_overrides(
        {"tools": {"views_get_order": ToolSettings(Effect.READ, view=("status", "page.text()"))}}
    )
    buffer = MemoryStore()
    real = said(with_view if recorded_with_view else whole, buffer, real=True, tmp_path=tmp_path)
    dream = said(with_view, buffer, real=False, tmp_path=tmp_path)
    view = {"status": "open", "page": "Orders\nOrder 7\n1 < 2 & open\nblue"}
    assert json.loads(dream[0]) == view
    assert not recorded_with_view or real == dream
    (row,) = buffer.scan()
    assert (row.answer.content == view) == recorded_with_view
    assert row.answer.artifact == ["o1"]


HOSTILE = ["<a ", "<a b='", "<!--", "<![x[", "<script>", "<p/", "&lt;", "<b>", "<a b='>", "<\"'>"]


@pytest.mark.parametrize("piece", HOSTILE)
def test_a_hostile_page_takes_time_in_proportion_to_its_length(piece: str) -> None:
    def work(pieces: int) -> int:
        text, steps = piece * pieces, 0

        def step(frame: Any, event: str, argument: Any) -> None:
            nonlocal steps
            steps += 1

        sys.setprofile(step)
        try:
            view = viewed(Answer(text), ("text()",))
        finally:
            sys.setprofile(None)
        assert viewed(view, ("text()",)).content == view.content
        return steps

    assert work(4_000) <= 5 * work(1_000) + 100


def test_a_failure_is_not_viewed_and_a_secret_that_a_view_shows_is_masked() -> None:
    failed = Answer("<p>no such order</p>", error="no such order")
    assert viewed(failed, ("text()",)) is failed
    buffer = MemoryStore()
    row = Transition(Call("page", {}), Answer("<p>a&amp;b</p>"), Effect.READ, "e", 1)
    buffer.put([row])
    tools = {"page": ToolSettings(Effect.READ, view=("text()",))}
    hide = lambda answer: replace(answer, content=str(answer.content).replace("a&b", "*"))  # noqa: E731
    (seen,) = seen_through(buffer, tools, hide).scan()
    assert seen.answer.content == "*"
