"""The gate on the command line: codes 0, 1 and 2, the files for CI, and the same words everywhere."""

import json
import shlex
from pathlib import Path
from xml.etree import ElementTree

import pytest
import yaml
from each_row import each_row
from typer.main import get_command

from dreamgym_kit.cli.main import app, flags_of
from dreamgym_kit.cli.options import OLD_FLAGS
from dreamgym_kit.settings.load import assigned, environment_names, parse_settings

ACTIONS = Path(__file__).parents[2] / "recipes" / "ci" / "github-actions.yml"
BASE = ("simulate", "agent:graph", "--tasks", "tasks.jsonl")


def test_the_gate_holds_and_the_code_is_0(recorded: Path, run) -> None:
    loose = ("--min-pass-rate", "0", "--set", 'gate.max_calls_per_tool={"refund_payment": 2}')
    done = run(*BASE, *loose, "--forbid", "delete_*", "--set", "gate.max_seconds=600")
    assert done.returncode == 0, done.stderr
    assert done.stdout.startswith("PASSED  0 passed, 2 failed")


@each_row(
    ("flags", "why"),
    [
        (
            ("--set", 'gate.max_calls_per_tool={"refund_payment": 1}'),
            "the agent called refund_payment 2 times in one episode; more than 1",
        ),
        (
            ("--forbid", "refund_*"),
            "none allowed: the agent called refund_payment 4 times, which is forbidden",
        ),
        (("--min-pass-rate", "0.9"), "gate min_pass_rate: 0%, required 90%"),
        (
            ("--fail-on", "critical", "--min-pass-rate", "0"),
            "gate fail_on critical: 2 findings, none allowed: refund_payment A-1 called twice",
        ),
    ],
)
def test_a_broken_rule_is_named_and_the_code_is_1(
    recorded: Path, run, flags: tuple[str, ...], why: str
) -> None:
    done = run(*BASE, *flags)
    assert done.returncode == 1, done.stderr
    assert why in " ".join(done.stdout.split())


@pytest.mark.slow
def test_settings_and_flags_add_up_and_a_report_says_the_same_again(recorded: Path, run) -> None:
    (recorded / "dreamgym.toml").write_text(
        '[gate]\nforbid = ["refund_*"]\nmax_calls_per_tool = {get_order = 1}\n'
    )
    done = run(*BASE, "--forbid", "delete_*", "--json", "-o", "out/j.xml", "-o", "out/s.md")
    assert done.returncode == 1, done.stderr
    gate = json.loads(done.stdout)["gate"]
    named = [rule["key"] for rule in gate]
    always = ["real_calls", "min_pass_rate", "max_inconclusive", "max_errors"]
    assert named == [*always, "forbid refund_*", "forbid delete_*", "max_calls_per_tool get_order"]
    again = run("export", "-o", "again.xml", "-o", "again.md", "-o", "again.json")
    assert again.returncode == 0, again.stderr
    assert json.loads((recorded / "again.json").read_text())["gate"] == gate
    assert (recorded / "again.xml").read_text() == (recorded / "out/j.xml").read_text()
    assert (recorded / "again.md").read_text() == (recorded / "out/s.md").read_text()
    root = ElementTree.fromstring((recorded / "again.xml").read_text())
    assert (root.get("tests"), root.get("failures")) == ("9", "4")


def test_a_summary_is_added_to_what_is_there(recorded: Path, run) -> None:
    (recorded / "summary.md").write_text("before\n")
    run(*BASE, "-o", "md:summary.md")
    told = (recorded / "summary.md").read_text()
    assert told.startswith("before\n## FAILED  0 passed, 2 failed, 0 inconclusive, 0 errors\n")


@each_row(
    ("typed", "now"),
    [
        (("buffer", "rules"), "buffer rules is now rules show, rules export or rules draft."),
        (("deploy", "--back"), "deploy --back is now deploy rollback."),
        (("deploy", "models/desk", "--force", "x"), "deploy models/desk is now deploy promote models/desk."),
        (("record", "--crawl"), "--crawl is now the command crawl."),
        (("report", "--runs", "x"), "--runs is now the setting runs, or DREAMGYM_RUNS=VALUE."),
        (("simulate", "--gate-success=1"), "--gate-success is now --min-pass-rate."),
        (("evaluate", "--gate-success=1"), "--gate-success is now --set gate.min_pass_rate=VALUE."),
        (("train", "--n", "2", "--seed=3"), "--n is now --group-size. --seed is now --set train.seed=VALUE."),
        (("simulate", "--bf16"), "--bf16 belongs to experience train (--set distill.bf16=true)."),
        (
            ("record", "--per-second", "1"),
            "--per-second belongs to s2r (--set s2r.rate=VALUE); crawl (--rate).",
        ),
        (("report", "--only", "success"), "--only success is now --only passed."),
    ],
)
def test_an_old_command_is_code_2_and_names_the_new_one(
    project: Path, run, typed: tuple[str, ...], now: str
) -> None:
    done = run(*typed)
    assert (done.returncode, done.stdout, done.stderr) == (2, "", f"error: {now}\n")


def test_every_replacement_of_an_old_flag_is_an_option_or_a_key() -> None:
    flags = [flag for of_command in flags_of(get_command(app)).values() for flag in of_command]
    keys = [".".join(key) for key in environment_names().values()]
    for typed in " | ".join(OLD_FLAGS.values()).split(" | "):
        kind, _, key = typed.partition(" ")
        there = kind in flags or kind[0] != "-"
        assert key.strip("'").partition("=")[0] in keys if kind == "--set" else there


@each_row(
    ("flags", "why"),
    [
        (("--set", "gate.max_calls_per_tool=refund_payment"), "gate.max_calls_per_tool: wants a JSON object"),
        (("--set", "gate.max_inconclusive"), "write KEY=VALUE"),
        (("--set", "gate.max_inconclusiv=1"), "did you mean 'gate.max_inconclusive'?"),
        (("--min-pass-rate", "90"), "--min-pass-rate: gate.min_pass_rate must be at most 1; found 90."),
        (("--min-pass-rate", "inf"), "--min-pass-rate: gate.min_pass_rate is no number to work with"),
    ],
)
def test_a_gate_that_cannot_be_meant_is_code_2(project: Path, run, flags: tuple[str, ...], why: str) -> None:
    done = run(*BASE, *flags, COLUMNS="200")
    assert (done.returncode, why in done.stderr) == (2, True), done.stderr


def test_a_detector_of_the_settings_looks_and_one_that_fails_is_named(recorded: Path, run) -> None:
    (recorded / "checks.py").write_text(
        "from dreamgym_kit.types import Finding\n\n\n"
        "def slow_look(case):\n"
        "    for step in case.steps:\n"
        '        if step.call.tool == "get_order":\n'
        '            yield Finding("slow_look", f"{step.call.args}", (step.step,), "critical")\n\n\n'
        "def broken(case):\n"
        "    return case.nothing\n"
    )
    (recorded / "dreamgym.toml").write_text(
        '[findings]\ndetectors = ["checks:slow_look", "checks:broken"]\n[gate]\nfail_on = ["slow_look"]\n'
    )
    done = run(*BASE, "--json")
    said = json.loads(done.stdout)
    assert done.returncode == 1, done.stderr
    kinds = {found["kind"]: found["text"] for found in said["findings"]}
    assert kinds["detector_failed"].startswith("the detector broken failed: AttributeError")
    assert "slow_look" in kinds
    assert sum(said["counts"].values()) == 2


def test_the_actions_example_is_what_the_command_line_takes() -> None:
    """Every step's command parses, and every option in it is one of the command's."""
    flow = yaml.safe_load(ACTIONS.read_text())
    steps = flow["jobs"]["dry-run"]["steps"]
    commands = [shlex.split(step["run"]) for step in steps if "dreamgym-kit" in step.get("run", "")]
    ours = [words for words in commands if words[0] == "dreamgym-kit"]
    assert [words[1] for words in ours] == ["buffer", "simulate"]
    simulate = get_command(app).commands["simulate"]
    context = simulate.make_context("simulate", ours[1][2:])
    assert context.params["forbid"] == ["delete_*"]
    assert "gate.max_usd=2" in context.params["assigned"]
    settings = parse_settings("")
    for text in context.params["assigned"]:
        settings = assigned(settings, text)
    assert settings.gate.max_calls_per_tool == {"refund_payment": 1}
    assert flow["permissions"] == {"contents": "read"}
    assert any(step.get("if") == "always()" for step in steps)


@pytest.mark.slow
def test_a_slip_in_a_name_of_the_gate_is_told_and_stays_with_the_run(recorded: Path, run) -> None:
    """Without a word a gate that forbids `refund_paymnt` would pass for ever."""
    done = run(*BASE, "--forbid", "refund_paymnt", "--fail-on", "repeated_wrte", "--min-pass-rate", "0")
    assert done.returncode == 0, done.stderr
    told = " ".join(done.stderr.split())
    assert "forbid 'refund_paymnt' matches no tool of this graph; did you mean 'refund_payment'?" in told
    assert "fail_on 'repeated_wrte' matches no kind of finding; did you mean 'repeated_write'?" in told
    rules = {rule["key"]: rule["measured"] for rule in json.loads(run("report", "--json").stdout)["gate"]}
    assert "no such tool" in rules["forbid refund_paymnt"]
    assert "no such kind" in rules["fail_on repeated_wrte"]
