"""`evaluate` on the command line: asks before real tools run, its codes, and going on with a stopped run."""

import json
from pathlib import Path

import pytest
from each_row import each_row

FLAGS = ("agent:graph", "--tasks", "tasks.jsonl")


@pytest.mark.slow
def test_a_dreamed_evaluation_is_scored_and_held_against_an_earlier_one(run, recorded: Path) -> None:
    done = run("evaluate", *FLAGS, "-n", "2")
    assert done.returncode == 0, done.stderr
    assert done.stdout.startswith("EVALUATED  0 passed, 4 failed, 0 inconclusive, 0 errors\n")
    assert "\n  Pass rate     0% of 2 tasks x 2 repeats (95% CI 0-66%, by task)\n" in done.stdout
    assert "  pass^2        0% (95% CI 0-66%)\n" in done.stdout
    assert "  Real calls    0 executed, 0 blocked, of 12 tool calls\n" in done.stdout
    assert not (recorded / "REAL").exists()
    (first,) = (recorded / "runs").iterdir()
    again = run("evaluate", *FLAGS, "-n", "2", "--baseline", str(first), "--json", "--require", "not-worse")
    said = json.loads(again.stdout)
    assert again.returncode == 0, again.stderr
    assert said["kind"] == "evaluate"
    assert said["comparison"]["word"] == "no_difference"
    assert said["sentence"].startswith("No difference can be seen: B solves as many as A on the same 2 tasks")
    better = run("evaluate", *FLAGS, "--baseline", str(first), "--require", "better")
    assert better.returncode == 1
    assert better.stdout.startswith("NO DIFFERENCE  No difference can be seen:")
    assert "\n  gate must_be: no difference, required better\n" in better.stdout
    shown = run("report", str(first))
    assert shown.stdout.startswith("EVALUATED  0 passed, 4 failed, 0 inconclusive, 0 errors\n")
    assert json.loads(run("report", str(first), "--json").stdout)["headline"].startswith("EVALUATED")


@pytest.mark.slow
def test_a_share_of_the_calls_fails_by_plan_where_the_settings_say_so(run, recorded: Path) -> None:
    done = run("evaluate", *FLAGS, "--set", "evaluate.faults=1", "--json")
    assert done.returncode == 0, done.stderr
    (calls,) = (recorded / "runs").glob("*/episodes.jsonl")
    assert '"fault"' in calls.read_text()


@pytest.mark.slow
def test_real_tools_run_only_when_asked_and_agreed_to(run, project: Path, own_systems) -> None:
    own_systems()
    done = run("evaluate", *FLAGS, "--real")
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr.startswith(
        "Real calls: at most 50 an episode, 100 in all.\n"
        "2 episodes will run on the REAL tools. What these can do:\n"
    )
    assert "error: evaluate runs real tools, and there is no terminal to ask at; agree with" in done.stderr
    assert not (project / "REAL").exists()
    done = run("evaluate", *FLAGS, "--real", "--yes")
    assert done.returncode == 0, done.stderr
    assert (project / "REAL").read_text() == "xxxx"
    assert "  Real calls    6 of 6 tool calls, as asked\n" in done.stdout
    assert not (project / "dreamgym.db").exists()


@each_row(
    ("flags", "code", "said"),
    [
        (
            ("--require", "better"),
            2,
            "evaluate: --require goes with --baseline RUN, or with",
        ),
        (("--split", "held_out"), 5, "split: none of the 2 tasks is held_out. Nothing was run."),
        (("--policy", "no-such-model"), 2, "no-such-model: no such directory"),
        (
            ("--real", "--yes"),
            2,
            "settings: nothing resets the environment 'default' between episodes, and 'refund_payment'",
        ),
    ],
)
def test_what_cannot_be_evaluated_is_named_and_nothing_runs(
    run, recorded: Path, flags: tuple[str, ...], code: int, said: str
) -> None:
    if "--policy" in flags:
        pytest.importorskip("torch", reason="the extra train is not installed")
    done = run("evaluate", *FLAGS, *flags)
    assert (done.returncode, done.stdout, said in done.stderr) == (code, "", True), done.stderr
    assert not (recorded / "REAL").exists()
    assert not [*(recorded / "runs").glob("*")]  # the folder is made before the sandbox closes


@pytest.mark.slow
def test_a_run_is_resumed_and_nothing_is_run_twice(run, recorded: Path) -> None:
    assert run("evaluate", *FLAGS, "-n", "2", "--set", "budget.max_calls=5").returncode == 3
    (first,) = (recorded / "runs").iterdir()
    journal = (first / "episodes.jsonl").read_text().splitlines()
    done = run("evaluate", *FLAGS, "-n", "2", "--resume", str(first))
    assert done.returncode == 0, done.stderr
    assert (first / "episodes.jsonl").read_text().splitlines()[: len(journal)] == journal
    assert "0 passed, 4 failed" in done.stdout


@pytest.mark.slow
@pytest.mark.nightly
def test_two_model_directories_are_tried_one_after_the_other(run, recorded: Path, tmp_path: Path) -> None:
    pytest.importorskip("torch", reason="the extra train is not installed")
    from nano_double import write_double  # type: ignore[import-not-found]

    for seed, name in enumerate(("start", "trained")):
        write_double(tmp_path / name, seed)
    flags = (
        "--baseline",
        str(tmp_path / "start"),
        "--policy",
        str(tmp_path / "trained"),
        "--set",
        "limits.recursion_limit=6",
    )
    done = run("evaluate", *FLAGS, *flags, OMP_NUM_THREADS="1")
    assert done.returncode == 0, done.stderr
    assert len(list((recorded / "runs").iterdir())) == 2
    said = " ".join(done.stdout.split())  # a long path stands on a line of its own
    first, second = (said.index(f"agent:graph, policy {tmp_path / name} ") for name in ("start", "trained"))
    assert first < second
    assert not (recorded / "REAL").exists()
