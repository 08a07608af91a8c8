"""Phases: done once, begun anew where they were broken off, refused under another plan."""

import os
import signal
from pathlib import Path

import pytest

from dreamgym_kit.errors import UserError
from dreamgym_kit.recipes.whole_way import Phases


def test_what_is_done_is_not_done_again(tmp_path: Path) -> None:
    done: list[str] = []

    def work() -> dict[str, int]:
        done.append("once")
        return {"calls": 3}

    out = tmp_path / "out"
    assert Phases(out, {"seed": 1}).run("record", work)[1] is False
    facts, known = Phases(out, {"seed": 1}).run("record", work)
    assert (facts["calls"], known, done) == (3, True, ["once"])
    assert Phases(out, {"seed": 1}).seconds.keys() == {"record"}


def test_a_phase_killed_at_any_moment_is_begun_anew_without_what_it_left(tmp_path: Path) -> None:
    out = tmp_path / "out"

    def begun(*, dies: bool) -> int:
        """How a process of its own ended that ran the phase."""

        def work() -> dict[str, str]:
            assert not (out / "half").exists()
            (out / "half").mkdir()
            (out / "half" / "a").write_text("a")
            if dies:
                os.kill(os.getpid(), signal.SIGKILL)
            return {"weights": "half/a"}

        child = os.fork()
        if not child:
            try:
                Phases(out, {}).run("first", work, clears=("half",))
            except BaseException:
                os._exit(1)
            os._exit(0)
        return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])

    assert [begun(dies=True), begun(dies=False)] == [-signal.SIGKILL, 0]
    assert (out / "half" / "a").read_text() == "a"
    assert sorted(path.name for path in out.iterdir()) == ["half", "phases.json"]


def test_another_plan_or_something_else_is_refused(tmp_path: Path) -> None:
    out = tmp_path / "out"
    Phases(out, {"seed": 1})
    with pytest.raises(UserError, match="was begun by another plan"):
        Phases(out, {"seed": 2})
    (tmp_path / "mine").mkdir()
    (tmp_path / "mine" / "file").write_text("mine")
    with pytest.raises(UserError, match="is there already; name another folder"):
        Phases(tmp_path / "mine", {})
    (out / "phases.json").write_text("{")
    with pytest.raises(UserError, match="is damaged"):
        Phases(out, {"seed": 1})
