"""`rules/TOOL.toml`: what is mined is written, read, corrected; recordings have the last word."""

from pathlib import Path

import pytest

from dreamgym_kit.dream.programs.dreaming import ProgramEpisode
from dreamgym_kit.dream.programs.experience import Programs, learn
from dreamgym_kit.dream.programs.rules_files import as_file, read_rules
from dreamgym_kit.dream.programs.values import SeenStep
from dreamgym_kit.errors import UserError
from tests.dream.programs.planted_shop import WORLD, crawl, recorded, specs
from tests.each_row import each_row

CANCELLED = """
writes = true
arguments = ["order_id"]
decides = 'Decide(Is("order_id<args.order_id>.status", "cancelled"), "again", "ok")'
[outcomes.ok]
answer = 'Text("Order ", Get("args.order_id"), " is open")'
[outcomes.again]
fails = true
answer = 'Const("error: cancelled for good")'
[updates]
"order_id<args.order_id>" = 'Assign({"status": Const("open")}, [], None, 1)'
"""


@pytest.fixture(scope="module")
def mined() -> Programs:
    return learn([*recorded(), crawl()], specs())


def written(programs: Programs, folder: Path) -> Path:
    folder.mkdir()
    for tool, program in programs.model.tools.items():
        arguments = sorted(programs.model.parameters[tool].names)
        text = as_file(program, arguments, writes=tool in programs.model.writes)
        (folder / f"{tool}.toml").write_text(text, "utf-8")
    return folder


def test_mined_program_round_trips_through_its_file(mined: Programs, tmp_path: Path) -> None:
    folder = written(mined, tmp_path / "rules")
    before = {file.name: file.read_text("utf-8") for file in folder.iterdir()}
    declared = learn([*recorded(), crawl()], specs(), rules=read_rules(folder))
    assert (declared.rejected, declared.model.declared) == ((), frozenset(mined.model.tools))
    again = written(declared, tmp_path / "again")
    assert {file.name: file.read_text("utf-8") for file in again.iterdir()} == before
    assert "cancel_order.toml" in before


def test_a_corrected_program_that_recordings_contradict_is_named_and_not_used(
    mined: Programs, tmp_path: Path
) -> None:
    folder = written(mined, tmp_path / "rules")
    file = folder / "cancel_order.toml"
    file.write_text(file.read_text("utf-8").replace('" cancelled: "', '" gone: "'), "utf-8")
    with pytest.warns(UserWarning, match=r"rules/cancel_order.toml is not used: call \d+ of .* gone: "):
        declared = learn([*recorded(), crawl()], specs(), rules=read_rules(folder))
    assert [one.tool for one in declared.rejected] == ["cancel_order"]
    assert declared.model.declared == frozenset(mined.model.tools) - {"cancel_order"}
    assert declared.model.tools["cancel_order"].says == mined.model.tools["cancel_order"].says


def test_a_tool_that_nobody_recorded_answers_and_changes_records_by_its_file(tmp_path: Path) -> None:
    (tmp_path / "reopen_order.toml").write_text(CANCELLED)
    programs = learn([*recorded(), crawl()], specs(), rules=read_rules(tmp_path))
    dream = ProgramEpisode(programs.model, WORLD, programs.trust)
    orders = dream.consider("list_orders", {})
    assert orders is not None
    order = next(one["order_id"] for one in orders.out if one["status"] == "shipped")
    told = dream.consider("reopen_order", {"order_id": order})
    assert told is not None
    assert (told.out, told.confidence >= 0.9) == (f"Order {order} is open", True)
    dream.observe(SeenStep("reopen_order", {"order_id": order}, True, told.out, True, told.wrap))
    after = dream.consider("get_order", {"order_id": order})
    assert after is not None
    assert after.out["status"] == "open"


@each_row(
    "old, new, said",
    [
        ("Text(", "Txt(", r":6: unknown form 'Txt'; did you mean 'Text'\?"),
        ("None, 1)", "None, sen=1)", r":11: Assign has no 'sen'; write Assign\(fields"),
        ("decides", "decide", r":4: unknown key 'decide'; did you mean 'decides'\?"),
        ('"ok")', '"oky")', r": no \[outcomes.oky\]; did you mean 'ok'\?"),
        ('Const("open")', '"open"', r':11: Assign.fields: "open" is not a Program'),
        ('" is open")', '" is open"', r":6: not a program: "),
        ("Const(", "__import__(", r":9: unknown form '__import__'; did you mean"),
        ("Text(", "Text.__call__(", r":6: unknown form 'Text.__call__'"),
        ('Get("args.order_id")', '"a" * 99', r":6: '.*' is neither a form nor"),
        (
            'Const("open")',
            'Apply("uper", Get("old"))',
            r":11: Apply has no function 'uper'; did you mean 'upper'",
        ),
        ('Const("open")', "[" * 150 + "]" * 150, r"reopen_order.toml:11: "),
        ('Const("open")', "Const(-1e999)", r":11: a number this large cannot be read"),
        ("writes = true", "writes = maybe", r"Invalid value \(at line 2"),
        ("writes = true", f"writes = {'[' * 5000}", r"reopen_order.toml: "),
        ("writes = true", f"writes = {'9' * 5000}", r"reopen_order.toml: "),
    ],
)
def test_a_wrong_file_is_refused_with_its_line_and_the_nearest_form(
    old: str, new: str, said: str, tmp_path: Path
) -> None:
    assert old in CANCELLED
    (tmp_path / "reopen_order.toml").write_text(CANCELLED.replace(old, new, 1))
    with pytest.raises(UserError, match=said):
        read_rules(tmp_path)
