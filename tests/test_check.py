"""`.ci/run` ends with what failed and how to run it alone, and names a test that passes the second time."""

import importlib.util
import json
import shutil
import sys
from pathlib import Path
from types import ModuleType

import pytest

CHECKOUT = Path(__file__).parents[1]
PROJECT = """
[tool.pytest.ini_options]
addopts = ["--import-mode=importlib"]
asyncio_default_fixture_loop_scope = "function"
"""
ONCE = (
    "def test_once():\n    import pathlib\n    seen = pathlib.Path('seen')\n    first = not seen.exists()\n"
)
ONCE += "    seen.touch()\n    assert not first, 'the first time'\n"


@pytest.fixture(scope="module")
def checking() -> ModuleType:
    spec = importlib.util.spec_from_file_location("check", CHECKOUT / ".ci" / "check.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules["check"] = module  # its dataclasses look themselves up
    spec.loader.exec_module(module)
    return module


def checked(
    checking: ModuleType, folder: Path, capfd: pytest.CaptureFixture[str], tests: str
) -> tuple[bool, list[str]]:
    """Check a project of one test file; whether that passed, and the last lines."""
    (folder / "env").symlink_to(sys.prefix)
    source = folder / "source"
    (source / "tests").mkdir(parents=True)
    (source / "pyproject.toml").write_text(PROJECT)
    (source / "tests" / "test_it.py").write_text(tests)
    for file in ("conftest.py", "fresh.py", "places.py"):
        shutil.copy(CHECKOUT / "tests" / file, source / "tests")
    check = checking.Check(folder)
    check.suite("fast", nightly=False)
    check.again()
    passed = check.told()
    return passed, capfd.readouterr().out.splitlines()


@pytest.mark.slow
def test_a_test_that_passes_the_second_time_is_named_and_fails_nothing(
    checking: ModuleType, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    passed, lines = checked(checking, tmp_path, capfd, f"def test_right():\n    pass\n\n\n{ONCE}")
    assert passed
    assert lines[-2] == "FLAKY tests/test_it.py::test_once: AssertionError: the first time"
    assert lines[-1] == "2 passed, 0 failed, 0 skipped"


@pytest.mark.nightly
@pytest.mark.slow
def test_a_test_that_fails_twice_fails_the_check_and_says_how_to_run_it(
    checking: ModuleType, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    cases = "import pytest\n@pytest.mark.parametrize('n', ['a b', '[x]'])\n"
    tests = f"{cases}def test_wrong(n):\n    assert n == ''\n"
    passed, lines = checked(checking, tmp_path, capfd, tests)
    assert not passed
    assert lines[-1] == "0 passed, 2 failed, 0 skipped"
    told = "\n".join(lines[-5:])
    assert "FAILED tests/test_it.py::test_wrong[a b] (fast, 0 s): AssertionError: assert 'a b' == ''" in told
    assert "  alone: .ci/run --suite fast 'tests/test_it.py::test_wrong[[x]]'" in told


@pytest.mark.nightly
@pytest.mark.slow
def test_more_than_five_failures_are_not_run_again(
    checking: ModuleType, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    tests = "".join(ONCE.replace("once", f"once_{n}").replace("'seen'", f"'seen-{n}'") for n in range(6))
    passed, lines = checked(checking, tmp_path, capfd, tests)
    assert not passed
    assert lines[-1] == "0 passed, 6 failed, 0 skipped"


@pytest.mark.nightly
@pytest.mark.slow
def test_a_file_that_cannot_be_collected_fails_the_check(
    checking: ModuleType, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    passed, lines = checked(checking, tmp_path, capfd, "import nothing_like_this\n")
    assert not passed
    assert any(line.startswith("FAILED tests/test_it.py") and "nothing_like_this" in line for line in lines)
    assert lines[-1] == "0 passed, 1 failed, 0 skipped"


@pytest.mark.slow
def test_a_killed_pytest_fails_the_check_though_its_one_failure_passes_again(
    checking: ModuleType, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    kills = "def test_zz_kills():\n    import os, pathlib\n    if not pathlib.Path('killed').exists():\n"
    kills += "        pathlib.Path('killed').touch()\n        os.kill(os.getppid(), 9)\n"
    passed, lines = checked(checking, tmp_path, capfd, f"{ONCE}\n\n{kills}")
    assert not passed
    assert any(line.startswith("FAILED fast: pytest ended with code -9") for line in lines)


def test_a_test_whose_process_ended_is_no_passed_one(checking: ModuleType, tmp_path: Path) -> None:
    phases = [("test_a", "setup"), ("test_a", "call"), ("test_a", "teardown"), ("test_b", "setup")]
    lines = [
        json.dumps({"test": test, "when": when, "outcome": "passed", "seconds": 0.5, "error": ""})
        for test, when in phases
    ]
    (written := tmp_path / "outcomes.jsonl").write_text("\n".join([*lines, '{"test": "torn']))
    outcomes, whole = checking.read_outcomes(written, "fast")
    assert [(one.test, one.outcome, one.seconds) for one in outcomes] == [
        ("test_a", "passed", 1.5),
        ("test_b", "failed", 0.5),
    ]
    assert not whole
