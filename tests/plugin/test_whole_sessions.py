"""pytest in processes of its own: parallel workers, replays of the same bytes, what loading costs."""

import os
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest

PLUGIN = ("-p", "dreamgym_kit.adapters.pytest_plugin.plugin")
CHECKOUT = Path(__file__).parents[2]
TESTS = """
    import json, os, pathlib
    import pytest
    from agent import graph

    def keep(name, episode):
        folder = os.environ.get("KEEP")
        if folder:
            pathlib.Path(folder, name).write_text(json.dumps(episode.to_json()) + str(episode))

    @pytest.mark.dream(models="recorded")
    @pytest.mark.parametrize("order", ["o1", "o2", "o3", "o4"])
    def test_alone(dream, order):
        episode = dream.run(graph, "cancel " + order)
        keep(order, episode)
        episode.called_once("cancel_order", order_id=order)

    @pytest.mark.dream(cassette="together", models="recorded")
    @pytest.mark.parametrize("order", ["o1", "o2", "o3", "o4", "o5", "o6"])
    def test_together(dream, order):
        dream.run(graph, "cancel " + order).called_once("cancel_order", order_id=order)
"""


def session(project: pytest.Pytester, *args: str, **environ: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "pytest", *PLUGIN, "-q", "-p", "no:cacheprovider", *args],
        cwd=project.path,
        env={**os.environ, "COLUMNS": "200", **environ},
        capture_output=True,
        text=True,
        check=False,
    )


def files(project: pytest.Pytester) -> dict[str, bytes]:
    return {str(path): path.read_bytes() for path in project.path.glob("cassettes/**/*") if path.is_file()}


@pytest.mark.nightly
@pytest.mark.slow
def test_parallel_workers_record_and_replay_and_lose_nothing(project: pytest.Pytester) -> None:
    project.makepyfile(test_orders=TESTS)
    done = session(project, "-p", "xdist", "-n", "2", "--dream-record=once")
    assert "10 passed" in done.stdout, done.stdout
    assert "cassettes/together.jsonl" in done.stdout
    together = files(project)
    done = session(project, "-p", "xdist", "-n", "2")
    assert "10 passed" in done.stdout, done.stdout
    assert files(project) == together
    assert len((project.path / "touched").read_text().splitlines()) == 20
    for path in project.path.glob("cassettes/**/*.jsonl"):
        path.unlink()
    assert "10 passed" in session(project, "--dream-record=once").stdout
    assert files(project) == together


@pytest.mark.nightly
@pytest.mark.slow
def test_three_replays_in_three_processes_are_the_same_bytes(
    project: pytest.Pytester, tmp_path: Path
) -> None:
    project.makepyfile(test_orders=TESTS)
    assert "passed" in session(project, "-k", "alone", "--dream-record=once").stdout
    cassettes, seen = files(project), []
    for seed in ("0", "1", "77"):
        folder = tmp_path / seed
        folder.mkdir()
        done = session(project, "-k", "alone", PYTHONHASHSEED=seed, KEEP=str(folder))
        assert "4 passed" in done.stdout, done.stdout
        seen.append({path.name: path.read_bytes() for path in folder.iterdir()})
    assert len(seen[0]) == 4
    assert seen[0] == seen[1] == seen[2]
    assert files(project) == cassettes


@pytest.mark.slow
def test_a_session_that_does_not_dream_imports_nothing_of_the_kit(project: pytest.Pytester) -> None:
    project.makepyfile(
        test_plain="""
        import sys
        def test_plain():
            heavy = {"langchain_core", "langgraph", "pydantic", "numpy", "dreamgym_kit.adapters.langgraph"}
            assert not heavy & set(sys.modules)
            assert {name for name in sys.modules if name.startswith("dreamgym_kit")} == {
                "dreamgym_kit", "dreamgym_kit.adapters", "dreamgym_kit.adapters.pytest_plugin",
                "dreamgym_kit.adapters.pytest_plugin.plugin"}
        """
    )
    done = session(project, "test_plain.py")
    assert "1 passed" in done.stdout, done.stdout


def test_pytest_finds_the_plugin_by_its_entry_point() -> None:
    declared = tomllib.loads((CHECKOUT / "pyproject.toml").read_text())["project"]["entry-points"]["pytest11"]
    assert declared == {"dreamgym": PLUGIN[1]}
    packaged = tomllib.loads((CHECKOUT / "pyproject.toml").read_text())["project"]["dependencies"]
    assert not any(one.startswith("pytest") for one in packaged)
