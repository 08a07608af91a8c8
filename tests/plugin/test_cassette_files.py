"""Cassettes on disk: reviewable, without secrets, the same bytes each time, whoever writes at once."""

import json
import threading
from dataclasses import replace
from pathlib import Path

import pytest
from each_row import each_row

from dreamgym_kit.adapters.pytest_plugin.cassette import Cassette, ModelTurn, Recording, belonging_to
from dreamgym_kit.adapters.stores.memory import MemoryStore
from dreamgym_kit.errors import UserError
from dreamgym_kit.replay.transfer import import_jsonl
from dreamgym_kit.types import Answer, Call, Effect, Reply, Transition


def called(step: int, tool: str = "get_order", *, at: float = 5.0, content: object = "ok") -> Transition:
    call = Call(tool, {"order_id": "o1"}, call_id=f"random-{at}")
    return Transition(call, Answer(content), Effect.READ, "run-7:t.1", step, elapsed_s=at, recorded_at=at)


def turn(task: str, number: int = 1) -> ModelTurn:
    return ModelTurn(
        task, number, ({"role": "user", "content": "x"},), {"content": "y"}, "m", ("get_order",), "0", ("d1",)
    )


def put(cassette: Cassette, task: str, *calls: Transition, turns: tuple[ModelTurn, ...] = ()) -> None:
    cassette.write(Recording(task, calls, turns), instead_of=belonging_to(task))


def test_the_same_recording_gives_the_same_bytes_whatever_the_clock(tmp_path: Path) -> None:
    cassette = Cassette(tmp_path / "a" / "t.jsonl")
    put(cassette, "t", called(1, content="Zoë 🐱"), called(2), turns=(turn("t"),))
    first = cassette.path.read_bytes(), cassette.models.read_bytes()
    put(cassette, "t", called(1, at=9.0, content="Zoë 🐱"), called(2, at=9.5), turns=(turn("t"),))
    assert (cassette.path.read_bytes(), cassette.models.read_bytes()) == first
    assert "Zoë 🐱" in first[0].decode()
    assert sorted(path.name for path in cassette.path.parent.iterdir()) == ["t.jsonl", "t.models.jsonl"]


def test_text_that_has_no_utf8_form_is_kept(tmp_path: Path) -> None:
    cassette = Cassette(tmp_path / "t.jsonl")
    put(cassette, "t", called(1, content="half \ud83d"))
    assert cassette.calls()[0].answer.content == "half \ud83d"


def test_a_recorded_yes_stays_apart_from_a_no(tmp_path: Path) -> None:
    cassette = Cassette(tmp_path / "t.jsonl")
    yes, no = (
        replace(called(step), call=replace(called(step).call, replies=(Reply("refund?", reply),)))
        for step, reply in ((1, "yes"), (2, "no"))
    )
    put(cassette, "t", yes, no)
    kept = [entry.call for entry in cassette.calls()]
    assert [call.replies for call in kept] == [yes.call.replies, no.call.replies]
    assert kept[0].key != kept[1].key


def test_a_buffer_takes_a_cassette(tmp_path: Path) -> None:
    cassette = Cassette(tmp_path / "t.jsonl")
    put(cassette, "t", called(1), called(2))
    report = import_jsonl(cassette.path, MemoryStore())
    assert (report.new, report.problems) == (2, ())


def test_a_test_replaces_its_own_lines_only(tmp_path: Path) -> None:
    cassette = Cassette(tmp_path / "shared.jsonl")
    put(cassette, "b", called(1))
    put(cassette, "a", called(1), called(2))
    cassette.write(Recording("b#2", (called(1),)), instead_of=lambda task: task == "b#2")
    assert [entry.task for entry in cassette.calls()] == ["a", "a", "b", "b#2"]
    put(cassette, "b", called(1, "list_orders"))
    assert [(one.task, one.call.tool) for one in cassette.calls()][2:] == [("b", "list_orders")]
    assert cassette.holds("a")
    assert not cassette.holds("c")


def test_writers_at_once_lose_nothing(tmp_path: Path) -> None:
    cassette = Cassette(tmp_path / "shared.jsonl")
    threads = [
        threading.Thread(target=put, args=(cassette, f"t{number:02}", called(1), called(2)))
        for number in range(24)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert [entry.task for entry in cassette.calls()] == [f"t{n // 2:02}" for n in range(48)]


@each_row(
    ("name", "line", "why"),
    [
        ("t.jsonl", '{"schema": 1}', "t.jsonl:2: call: missing"),
        ("t.jsonl", "{oops", "t.jsonl:2: "),
        (
            "t.models.jsonl",
            '{"task": "t", "turm": 1}',
            "t.models.jsonl:2: turm: no such field; did you mean 'turn'?",
        ),
        ("t.models.jsonl", "[]", "t.models.jsonl:2: a recorded turn: expected an object"),
    ],
)
def test_a_line_that_was_broken_by_hand_is_named(tmp_path: Path, name: str, line: str, why: str) -> None:
    cassette = Cassette(tmp_path / "t.jsonl")
    put(cassette, "t", called(1), turns=(turn("t"),))
    with (tmp_path / name).open("a") as file:
        file.write(line + "\n")
    with pytest.raises(UserError) as caught:
        (cassette.calls(), cassette.turns())
    assert why in str(caught.value)
    assert str(caught.value).endswith("; record the test again")


def test_an_answer_that_is_none_is_refused_before_a_test_runs(tmp_path: Path) -> None:
    cassette = Cassette(tmp_path / "t.jsonl")
    put(cassette, "t", turns=(replace(turn("t"), answer={"content": "x", "lc_kwargs": {}}),))
    with pytest.raises(UserError, match=r"said: unknown field 'lc_kwargs'"):
        cassette.turns()


def test_secrets_of_tools_and_models_stay_out_of_cassettes(project, run, monkeypatch) -> None:
    secret = "tops3cret-Value-123"
    monkeypatch.setenv("SHOP_API_KEY", secret)
    agent = project.path / "agent.py"
    agent.write_text(
        agent.read_text()
        .replace('"status": "open"', f'"status": "open {secret}"')
        .replace(' is cancelled."', f' is cancelled {secret}."')
    )
    project.makepyfile(
        test_orders=f"""
        import pytest
        from agent import graph

        @pytest.mark.dream(models="recorded")
        def test_cancels(dream):
            episode = dream.run(graph, "{secret} Please cancel order o1.")
            episode.called("cancel_order")
        """
    )
    run("--dream-record=once").assert_outcomes(passed=1)
    files = [path for path in project.path.glob("cassettes/**/*") if path.is_file()]
    assert len(files) == 2
    for path in files:
        assert secret not in path.read_text()
        assert "<masked>" in path.read_text()
        assert all(json.loads(line) for line in path.read_text().splitlines())
    run().assert_outcomes(passed=1)
