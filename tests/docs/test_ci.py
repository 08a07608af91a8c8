"""docs/ci.md and docs/results.md say what the code does: settings parse, flags exist, examples run."""

import re
import tomllib
from pathlib import Path

import pytest
from typer.main import get_command

from dreamgym_kit.cli.main import app
from dreamgym_kit.findings.case import Case
from dreamgym_kit.findings.detectors import BUILT_IN, Detectors
from dreamgym_kit.settings.load import parse_settings
from dreamgym_kit.settings.read import keys_of
from dreamgym_kit.settings.schema import GateSettings
from dreamgym_kit.types import Answer, Call, Effect, Task, Transition

DOCS = Path(__file__).parents[2] / "docs"
CI = (DOCS / "ci.md").read_text()
RESULTS = (DOCS / "results.md").read_text()


def blocks(page: str, language: str) -> list[str]:
    return re.findall(rf"```{language}\n(.*?)```", page, re.DOTALL)


def test_the_settings_on_the_page_are_read_and_name_every_rule() -> None:
    (block,) = blocks(CI, "toml")
    gate = parse_settings(block).gate
    assert set(tomllib.loads(block)["gate"]) == set(keys_of(GateSettings))
    assert (gate.min_pass_rate, gate.max_calls_per_tool, gate.forbid) == (
        0.9,
        {"refund_payment": 1},
        ("delete_*",),
    )


def test_every_rule_has_its_flag_and_every_flag_is_on_the_page() -> None:
    known, compared = (
        {flag for option in get_command(app).commands[name].params for flag in option.opts if "--" in flag}
        for name in ("simulate", "compare")
    )
    named = set(re.findall(r"--[a-z][a-z-]+", CI))
    rules = {f"--{key.replace('_', '-')}" for key in keys_of(GateSettings)}
    assert (rules & known) | {"--set"} <= named
    assert named <= known | compared
    assert set(re.findall(r"--set gate\.(\w+)=", CI)) <= set(keys_of(GateSettings))
    rows = re.findall(r"^\| `(\w+)` \| `--", CI, re.MULTILINE)
    assert rows == list(keys_of(GateSettings))


def test_every_detector_is_on_the_page() -> None:
    assert re.findall(r"^\| `(\w+)` \|", RESULTS, re.MULTILINE) == list(BUILT_IN)


def test_the_detector_on_the_page_finds_what_it_says() -> None:
    (block,) = blocks(RESULTS, "python")
    names: dict[str, object] = {}
    exec(block, names)
    steps = [
        Transition(Call("refund_payment", {"amount": amount}), Answer("ok"), Effect.DESTRUCTIVE, "e", number)
        for number, amount in enumerate(("20.00", "88.00"), start=1)
    ]
    (found,) = Detectors({"big_refund": names["big_refund"]}).episode_done(Case(Task("t", {}), steps))
    assert (found.kind, found.text, found.steps) == ("big_refund", "refunded 88.00", (2,))
    (settings,) = blocks(RESULTS, "toml")
    assert parse_settings(settings).findings.detectors == ("my_agent.checks:big_refund",)


def test_the_figure_on_the_page_is_that_of_the_bench() -> None:
    table = (DOCS.parent / "tests" / "bench" / "figures.md").read_text()
    rows = dict(re.findall(r"^\| findings_foreign \| (\w+) \| ([\d.]+) \|", table, re.MULTILINE))
    said = re.search(r"found ([\d.]+)% \(\[benchmark\]", RESULTS)
    assert said is not None
    assert float(said[1]) == pytest.approx(100 * float(rows["found"]), abs=0.1)
