"""Events: written as they happen, by many threads, never the end of a run; real writes are counted."""

import errno
import json
import threading
from pathlib import Path

from dreamgym_kit.rollout import atomic_files
from dreamgym_kit.rollout.events import EventLog, FanOut, NoEvents, Unaccounted, unaccounted
from dreamgym_kit.types import Answer, Call, Effect, Environment, Episode, Source, Transition, Verdict


class ListSink:
    """Keeps what it hears."""

    def __init__(self) -> None:
        self.heard: list[tuple[str, dict]] = []

    def emit(self, kind: str, /, **facts: object) -> None:
        self.heard.append((kind, facts))


class BrokenSink:
    """A double of a display that fails."""

    def __init__(self) -> None:
        self.asked = 0

    def emit(self, kind: str, /, **facts: object) -> None:
        self.asked += 1
        raise OSError("no terminal")


def lines(path: Path) -> list[dict]:
    return [json.loads(line) for line in path.read_text().splitlines()]


def test_each_event_is_a_line_once_emit_returns(tmp_path: Path) -> None:
    with EventLog(tmp_path / "events.jsonl") as log:
        log.emit("call", episode="a.1", tool="pay", step=1, provenance="real", effect="write")
        (line,) = lines(tmp_path / "events.jsonl")
    assert line.pop("at") > 1e9
    assert line == {
        "event": "call", "episode": "a.1", "tool": "pay", "step": 1, "provenance": "real", "effect": "write",
    }  # fmt: skip


def test_facts_that_are_no_json_are_made_plain(tmp_path: Path) -> None:
    with EventLog(tmp_path / "events.jsonl") as log:
        log.emit("finding", text="\ud800\x1b[31m", steps=(1, 2), more=float("nan"), at="x", event="y")
    (line,) = lines(tmp_path / "events.jsonl")
    assert (line["event"], line["steps"], line["more"]) == ("finding", [1, 2], {"$float": "nan"})


def test_threads_do_not_tear_each_others_lines(tmp_path: Path) -> None:
    with EventLog(tmp_path / "events.jsonl") as log:
        threads = [
            threading.Thread(target=lambda: [log.emit("call", text="x" * 5000) for _ in range(50)])
            for _ in range(8)
        ]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    assert len(lines(tmp_path / "events.jsonl")) == 400


def test_a_full_disk_silences_the_log_and_not_the_run(tmp_path: Path, monkeypatch) -> None:
    log = EventLog(tmp_path / "events.jsonl")

    def full(_descriptor: int, _data: bytes) -> int:
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(atomic_files.os, "write", full)
    log.emit("call")
    monkeypatch.undo()
    log.emit("call")
    assert "events.jsonl: cannot be written (No space left on device)" in log.failed
    log.close()
    log.emit("call")
    assert lines(tmp_path / "events.jsonl") == []


def test_every_sink_hears_and_a_broken_one_is_dropped() -> None:
    first, broken, last = ListSink(), BrokenSink(), ListSink()
    fan = FanOut([first, broken, NoEvents(), last])
    fan.emit("run_started", run="a")
    fan.emit("run_finished")
    assert first.heard == last.heard == [("run_started", {"run": "a"}), ("run_finished", {})]
    assert broken.asked == 1


def test_a_resumed_log_goes_on_after_a_torn_line(tmp_path: Path) -> None:
    (path := tmp_path / "events.jsonl").write_text('{"at": 1}\n{"at')
    with EventLog(path) as log:
        log.emit("run_started")
    whole, torn, added = path.read_text().splitlines()
    assert (whole, torn) == ('{"at": 1}', '{"at')
    assert json.loads(added)["event"] == "run_started"


def log_of(path: Path, *calls: tuple[str, str, str, str]) -> Path:
    with EventLog(path) as log:
        for episode, tool, effect, provenance in calls:
            log.emit("call", episode=episode, tool=tool, effect=effect, provenance=provenance, step=1)
    return path


def finished(name: str, *tools: str) -> Episode:
    steps = tuple(
        Transition(Call(tool, {}), Answer("ok", Source.REAL), Effect.WRITE, name, number)
        for number, tool in enumerate(tools, start=1)
    )
    return Episode(f"{name}.1", name, 1, Environment(), Verdict.PASSED, "ok", transitions=steps)


def test_writes_of_episodes_that_did_not_finish_are_told(tmp_path: Path) -> None:
    log = log_of(
        tmp_path / "events.jsonl",
        ("a.1", "place", "write", "real"),
        ("b.1", "place", "write", "real"),
        ("b.1", "mail", "destructive", "real"),
        ("b.1", "look", "read", "real"),
        ("c.1", "place", "write", "recorded"),
    )
    lost = unaccounted(log, [finished("a", "place")])
    assert lost.writes == [
        {"episode": "b.1", "tool": "place", "calls": 1},
        {"episode": "b.1", "tool": "mail", "calls": 1},
    ]
    assert lost.calls == 3


def test_what_an_episode_did_before_it_was_run_again_is_told(tmp_path: Path) -> None:
    twice = [("a.1", "place", "write", "real")] * 2
    log = log_of(tmp_path / "events.jsonl", *twice)
    with log.open("a") as half:
        half.write('{"event": "call", "episode": "z')
    assert unaccounted(log, [finished("a", "place")]).writes == [
        {"episode": "a.1", "tool": "place", "calls": 1}
    ]
    assert unaccounted(tmp_path / "none.jsonl", []) == Unaccounted([], 0)


def test_a_write_that_began_and_never_ended_is_told_and_one_that_asked_a_person_is_not(
    tmp_path: Path,
) -> None:
    path = tmp_path / "events.jsonl"
    with EventLog(path) as log:
        for kind in ("body_started", "body_paused", "body_started"):  # asked, and ran again
            log.emit(kind, episode="a.1", tool="place", effect="write")
        log.emit("call", episode="a.1", tool="place", effect="write", provenance="real", step=1)
        log.emit("body_started", episode="b.1", tool="mail", effect="destructive")
    lost = unaccounted(path, [finished("a", "place")])
    assert lost == Unaccounted([{"episode": "b.1", "tool": "mail", "calls": 1}], 1)
