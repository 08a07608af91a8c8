"""Terminal, JSON and page tell the same: each figure is computed once."""

import json
import subprocess
import sys
from pathlib import Path

import pytest
from each_row import each_row
from pages.blocks import blocks, unpacked
from pages.runs import CURVE, episode, judged_run, many, run_directory, small_run

from dreamgym_kit.report.page.overview import rules_to_json
from dreamgym_kit.report.page.writing import page_of
from dreamgym_kit.report.summary import curve_from_json, summarize
from dreamgym_kit.report.terminal import episode_list, render_run
from dreamgym_kit.rollout.rundir import MANIFESTS, RunDirectory
from dreamgym_kit.types import Episode, Verdict


@pytest.fixture(params=["small", "many", "undecided", "judged"])
def directory(request: pytest.FixtureRequest, tmp_path: Path) -> Path:
    runs: dict[str, list[Episode]] = {
        "small": small_run(),
        "many": list(many(150)),
        "judged": judged_run(),
        "undecided": [episode("a", verdict=Verdict.INCONCLUSIVE)],
    }
    return run_directory(tmp_path, runs[request.param], CURVE if request.param == "judged" else None)


def test_the_page_tells_what_json_and_terminal_tell(directory: Path) -> None:
    opened = RunDirectory.open(directory)
    curve = curve_from_json(opened.read_report() or {})
    summary = summarize(opened.episodes(), MANIFESTS.write(opened.manifest), curve)
    told, text = json.loads(json.dumps(summary.to_json())), " ".join(render_run(summary).split())
    page = blocks(page_of(opened, place="r").html)[0]
    del told["manifest"]
    assert page["report"] == told
    verdict = page["verdict"]
    assert f"{verdict['word']} {verdict['counted']}" == " ".join(told["headline"].split())
    assert f"{verdict['word']} {verdict['counted']}" in text
    for _, fact in verdict["facts"]:
        assert " ".join(fact.split()) in text
    for part, spend in told["cost"]["dream"].items():
        tokens = f"{spend['prompt_tokens'] + spend['completion_tokens']:,}"
        label = f"tokens of the dream: {part}, {spend['calls']} answers"
        assert {"value": tokens, "label": label} in page["cost"]["stats"]
    listed = episode_list(summary)
    for line, more in zip(told["list"], page["episodes"], strict=True):
        assert ("bad" in more) == (line["anomaly"] is not None)
        assert len(more["path"].split()) == line["calls"]
        assert line["id"] in listed


@pytest.mark.parametrize("mode", ["dream", "record"])
@pytest.mark.parametrize("asked", [(), ("critical",)])
@pytest.mark.parametrize("violations", [(), ("a connection",)])
def test_the_rules_say_together_what_the_verdict_says(
    mode: str, asked: tuple[str, ...], violations: tuple[str, ...]
) -> None:
    manifest = {"matters": {"mode": mode}, "gate": {"fail_on": list(asked)}}
    for episodes in (small_run(), [episode("a", violations=violations)], []):
        summary = summarize(episodes, manifest)
        rules = rules_to_json(summary)
        assert all(rule["passed"] is not False for rule in rules) == (summary.verdict is Verdict.PASSED)
        if any(line.violations for line in episodes):
            assert summary.verdict is Verdict.FAILED


def test_steps_have_the_numbers_that_the_terminal_gives_them(directory: Path) -> None:
    journal = {one.id: one for one in RunDirectory.open(directory).episodes()}
    for detail in unpacked(page_of(RunDirectory.open(directory), place="r").html):
        calls = [(one["step"], one["tool"]) for one in detail["steps"] if one["kind"] == "call"]
        assert calls == [(step.step, step.call.tool) for step in journal[detail["id"]].transitions]


def test_the_command_writes_the_page_and_links_the_worst_step(directory: Path, tmp_path: Path) -> None:
    done = _typed("view", str(directory), "--no-browser")
    assert (done.returncode, done.stderr) == (0, "")
    html = (directory / "report.html").read_text("utf-8")
    ref = blocks(html)[0]["verdict"]["next"][0]["ref"]
    link = f"#e={ref[0]}" + (f"&s={ref[1]}" if ref[1] else "")
    assert done.stdout.splitlines()[1].strip() == (directory / "report.html").as_uri() + link
    again = _typed("export", str(directory), "-o", str(tmp_path / "x.html"))
    assert (again.stdout, again.stderr) == (f" {tmp_path / 'x.html'}\n", "")
    assert blocks((tmp_path / "x.html").read_text("utf-8"))[0]["verdict"] == blocks(html)[0]["verdict"]
    assert list(directory.glob(".*")) == []


@each_row(
    ("arguments", "said"),
    [
        (["nowhere/x.html"], "error: -o nowhere/x.html: name a file in a folder that is there.\n"),
        (["png:x"], "RUN is a run of episodes, which has no such form.\n"),
        (["x.pdf"], "put the form and a colon before it: md:$GITHUB_STEP_SUMMARY. Nothing was run.\n"),
    ],
)
def test_wrong_use_is_told_in_one_line(arguments: list[str], said: str, tmp_path: Path) -> None:
    run = str(run_directory(tmp_path, small_run()))
    done = _typed("export", run, "-o", *arguments)
    assert (done.returncode, done.stdout, done.stderr.count("\n")) == (2, "", 1)
    assert done.stderr.replace(run, "RUN").endswith(said)


def _typed(*arguments: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "dreamgym_kit.cli.main", *arguments]
    return subprocess.run(command, capture_output=True, text=True, check=False)
