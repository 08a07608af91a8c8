"""`dreamgym.lock`: what a line covers, what stops a run, and what is written when."""

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from each_row import each_row
from hypothesis import given
from hypothesis import strategies as st

from dreamgym_kit.errors import UserError
from dreamgym_kit.rollout.tool_lock import (
    DecidedBy,
    LockDiffers,
    LockedTool,
    check_lock,
    confirm_lock,
    locked_tool,
    read_lock,
    tool_digest,
    write_lock,
)
from dreamgym_kit.types import Effect, ToolSpec

SCHEMA = {
    "type": "object",
    "description": "Refund.",
    "properties": {
        "order": {"type": "string", "description": "which"},
        "description": {"type": "string", "enum": ["a", "title"]},
    },
    "required": ["order"],
}
REFUND = LockedTool("refund", "0" * 16, Effect.DESTRUCTIVE, DecidedBy.GUESS)
READ = LockedTool("read", "1" * 16, Effect.READ, DecidedBy.AUTHOR)


@pytest.fixture
def lock(tmp_path: Path) -> Path:
    write_lock(path := tmp_path / "dreamgym.lock", "shop", [REFUND, READ])
    return path


@each_row(
    ("schema", "annotations", "same"),
    [
        ({**SCHEMA, "description": "Refunds an order.", "title": "R"}, {}, True),
        ({**SCHEMA, "required": []}, {}, False),
        ({**SCHEMA, "properties": {"order": {"type": "string"}}}, {}, False),
        ({**SCHEMA, "properties": {**SCHEMA["properties"], "amount": {}}}, {}, False),
        (SCHEMA, {"readOnlyHint": True}, False),
        (SCHEMA, {"title": "Refund!", "readOnlyHint": None}, True),
    ],
)
def test_digest_covers_schema_and_annotations_and_no_prose(
    schema: dict[str, Any], annotations: dict[str, object], same: bool
) -> None:
    assert (tool_digest("refund", schema, annotations) == tool_digest("refund", SCHEMA)) is same


@given(
    st.lists(
        st.builds(
            LockedTool,
            st.text(min_size=1),
            st.just("0" * 16),
            st.sampled_from([Effect.READ, Effect.DESTRUCTIVE]),
            st.sampled_from(DecidedBy),
            st.text(),
        ),
        unique_by=lambda tool: tool.name,
    )
)
def test_any_names_come_back_from_a_file_with_a_line_each(
    tmp_path_factory: pytest.TempPathFactory, tools: list[LockedTool]
) -> None:
    path = tmp_path_factory.mktemp("lock") / "dreamgym.lock"
    write_lock(path, "shop", tools)
    write_lock(path, 'a: "b"', [READ])
    assert read_lock(path) == {"shop": {tool.name: tool for tool in tools}, 'a: "b"': {"read": READ}}
    assert path.read_text("utf-8").count("digest = ") == len(tools) + 1


def test_same_tools_pass_and_leave_the_file_alone(lock: Path) -> None:
    before = lock.stat()
    assert check_lock(lock, "shop", [READ, REFUND], writes=True) == []
    assert (lock.stat().st_mtime_ns, lock.stat().st_ino) == (before.st_mtime_ns, before.st_ino)


@each_row(
    ("tools", "line"),
    [
        ([READ, REFUND, replace(READ, name="wipe", server="crm")], "+ wipe from crm: new, read (author)"),
        (
            [READ, replace(REFUND, digest="f" * 16)],
            f"~ refund: schema or annotations {'0' * 16} -> {'f' * 16}",
        ),
        ([READ, replace(REFUND, server="crm")], "~ refund: server none -> crm"),
        ([READ, replace(REFUND, effect=Effect.READ)], "~ refund: effect destructive -> read"),
    ],
)
def test_new_or_changed_tool_is_refused_and_named(lock: Path, tools: Sequence[LockedTool], line: str) -> None:
    with pytest.raises(LockDiffers) as refused:
        check_lock(lock, "shop", tools, writes=True)
    assert line in str(refused.value)
    assert read_lock(lock) == {"shop": {"refund": REFUND, "read": READ}}


@each_row("writes", [True, False])
def test_an_effect_that_a_person_wrote_wins_over_the_lock(tmp_path: Path, writes: bool) -> None:
    write_lock(lock := tmp_path / "dreamgym.lock", "shop", [REFUND, READ])
    said = replace(REFUND, effect=Effect.WRITE, decided_by=DecidedBy.USER)
    assert check_lock(lock, "shop", [READ, said], writes=writes) == []
    assert read_lock(lock) == {"shop": {"refund": said if writes else REFUND, "read": READ}}


def test_a_tool_that_vanished_is_a_note(lock: Path) -> None:
    assert check_lock(lock, "shop", [READ], writes=True) == ["dreamgym.lock: refund is no longer in shop"]


def test_a_graph_that_the_lock_does_not_have_is_added_beside_the_others(lock: Path) -> None:
    assert check_lock(lock, "other", [REFUND], writes=True) != []
    assert read_lock(lock) == {"shop": {"refund": REFUND, "read": READ}, "other": {"refund": REFUND}}


def test_confirming_makes_each_guess_the_users(lock: Path) -> None:
    assert confirm_lock(lock, {"refund": Effect.WRITE}) == 1
    now = read_lock(lock)
    assert now is not None
    assert now["shop"]["refund"] == replace(REFUND, effect=Effect.WRITE, decided_by=DecidedBy.USER)
    assert now["shop"]["read"] == READ


@each_row(
    "text",
    [
        "version = 2",
        "version = 1\n[graphs.shop]\nrefund = 3",
        'version = 1\n[graphs.shop]\nrefund = { digest = "0", effect = "pure", decided_by = "guess" }',
        'version = 1\n[graphs.shop]\nrefund = { digest = "0", effect = "harmless", decided_by = "user" }',
        "<<<<<<< ours",
        "\udcff",
    ],
)
def test_a_damaged_lock_is_refused_with_its_path(tmp_path: Path, text: str) -> None:
    (path := tmp_path / "dreamgym.lock").write_bytes(text.encode("utf-8", "surrogateescape"))
    with pytest.raises(UserError, match=r"dreamgym\.lock: "):
        check_lock(path, "shop", [REFUND], writes=True)


def test_a_guess_is_a_guess_and_settings_are_the_users() -> None:
    sources = ("guessed", "mcp", "declared", "decorator")
    decided = [locked_tool(ToolSpec("t", Effect.READ, source=source)).decided_by for source in sources]
    assert decided == [DecidedBy.GUESS, DecidedBy.GUESS, DecidedBy.USER, DecidedBy.AUTHOR]
