"""Real writes that stand in no finished episode are counted from the log."""

from pathlib import Path

from dreamgym_kit.rollout.events import EventLog, Unaccounted, unaccounted
from dreamgym_kit.types import Answer, Call, Effect, Environment, Episode, Source, Transition, Verdict


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
