"""Episodes as JSON, and the journal: what it acknowledged is there, once, whatever happened to its end."""

import errno
import json
import os
from dataclasses import replace
from pathlib import Path

import pytest
from each_row import each_row
from hypothesis import given, settings
from hypothesis import strategies as st

from dreamgym_kit.errors import NotSerializable, RunDirectoryError
from dreamgym_kit.rollout import journal, line_log
from dreamgym_kit.rollout.journal import (
    Journal,
    JournalReader,
    TornLine,
    episode_from_record,
    episode_to_record,
)
from dreamgym_kit.types import (
    Answer,
    Call,
    Effect,
    Environment,
    Episode,
    Executed,
    Finding,
    Source,
    Spend,
    Split,
    Transition,
    UserTurn,
    Verdict,
)


def episode(number: int, reason: str = "paid", final: object = None) -> Episode:
    return Episode(f"t{number}.1", f"t{number}", 1, Environment(), Verdict.PASSED, reason, final=final)


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "episodes.jsonl"


def write(path: Path, *numbers: int) -> bytes:
    with Journal(path) as opened:
        for number in numbers:
            opened.append(episode(number))
    return path.read_bytes()


def test_an_episode_is_accepted_once(path: Path) -> None:
    with Journal(path) as opened:
        assert opened.append(episode(1, "first"))
        assert not opened.append(episode(1, "second"))
    with Journal(path) as opened:
        assert not opened.append(episode(1, "third"))
    assert [found.reason for found in JournalReader(path)] == ["first"]


def test_of_an_episode_in_which_a_real_call_ran_the_last_record_wins(path: Path) -> None:
    first = replace(episode(1, "one ran"), executed=(Executed("refund", {"order": "o1"}),))
    both = replace(first, executed=(*first.executed, Executed("mail")))
    with Journal(path) as opened:
        opened.append(episode(2))
        assert opened.append(first)
        assert list(JournalReader(path)) == [episode(2), first]
        assert not opened.append(first)  # nothing new
        assert opened.append(both)
        assert not opened.append(episode(1, "nothing ran"))
        assert opened.executed == {"t1.1": both}
    assert list(JournalReader(path)) == [episode(2), both]
    with Journal(path) as opened:
        assert not opened.append(episode(1, "in a later leg"))
        assert list(opened.done) == ["t2.1", "t1.1"]


def test_what_ran_is_told_of_though_the_disk_refuses(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    ran = replace(episode(1, "one ran"), executed=(Executed("refund"),))
    with Journal(path) as opened:
        monkeypatch.setattr(line_log, "write_whole", full)
        with pytest.raises(RunDirectoryError):
            opened.append(ran)
        assert opened.executed == {"t1.1": ran}


def full(_descriptor: int, _data: bytes) -> None:
    raise OSError(errno.ENOSPC, "No space left on device")


def test_of_two_records_of_one_episode_the_first_wins(path: Path) -> None:
    line = write(path, 1)
    path.write_bytes(line + line)
    reader = JournalReader(path)
    assert [found.id for found in reader] == ["t1.1"]


def test_reading_a_torn_journal_changes_nothing_and_says_so(path: Path) -> None:
    whole = write(path, 1, 2)
    path.write_bytes(whole[:-9])
    reader = JournalReader(path)
    assert [found.id for found in reader] == ["t1.1"]
    size = len(whole) // 2 - 9
    assert reader.torn == TornLine(2, len(whole) // 2, size)
    assert str(reader.torn) == f"line 2 was half-written ({size} bytes); its episode is run again"
    assert path.read_bytes() == whole[:-9]


def test_a_half_written_line_that_happens_to_be_json_is_torn(path: Path) -> None:
    whole = write(path, 1, 2)
    start = len(whole) // 2
    record = json.loads(whole[start:])
    record["episode"]["reason"] = ""
    path.write_bytes(whole[:start] + json.dumps(record, separators=(",", ":")).encode() + b"\n")
    reader = JournalReader(path)
    assert ([found.id for found in reader], reader.torn is not None) == (["t1.1"], True)


def test_a_tail_of_zeros_after_a_power_cut_is_torn(path: Path) -> None:
    whole = write(path, 1)
    path.write_bytes(whole + b"\0" * 4096)
    with Journal(path) as opened:
        assert list(opened.done) == ["t1.1"]
    assert path.read_bytes() == whole


def test_a_damaged_line_with_others_after_it_is_an_error_that_names_it(path: Path) -> None:
    whole = write(path, 1, 2, 3)
    path.write_bytes(whole.replace(b"paid", b"payd", 1))
    message = (
        f"{path}:1: this line is damaged: its checksum does not match; "
        "remove it to have its episode run again."
    )
    with pytest.raises(RunDirectoryError) as caught:
        Journal(path)
    assert str(caught.value) == message
    assert path.read_bytes() == whole.replace(b"paid", b"payd", 1)


def test_a_line_of_a_newer_version_is_named(path: Path) -> None:
    path.write_bytes(write(path, 1).replace(b'"journal":1', b'"journal":2'))
    with pytest.raises(
        RunDirectoryError, match=r"episodes.jsonl:1: written in journal version 2, this version reads 1"
    ):
        Journal(path)


@each_row("body", [b'{"schema":1}', b"NaN", b"[" * 5000 + b"]" * 5000, b"{"])
def test_a_line_with_a_right_sum_and_wrong_content_is_named(path: Path, body: bytes) -> None:
    path.write_bytes(b'{"journal":1,"sum":"%s","episode":%s}\n' % (journal._checksum(body), body))
    with pytest.raises(RunDirectoryError, match=r"episodes.jsonl:1: this line is damaged: "):
        list(JournalReader(path))


@each_row(
    ("old", "new", "said"),
    [
        ('"elapsed_s":0.0', '"elapsed_s":1e999', "number 1e999 is not finite"),
        ('"messages":[]', '"messages":[{"tool_calls":5}]', "digest: "),
        ('"verdict":"success"', '"verdict":"\\ud800"', "verdict: "),
        ('"messages":[]', '"messages":"\\ud800"', "messages: expected "),
    ],
)
def test_a_hostile_value_with_a_right_sum_is_named(tmp_path: Path, old: str, new: str, said: str) -> None:
    path = tmp_path / "episodes.jsonl"
    body = write(path, 1).partition(b'"episode":')[2].removesuffix(b"}\n")
    changed = body.replace(old.encode(), new.encode(), 1)
    assert changed != body
    path.write_bytes(b'{"journal":1,"sum":"%s","episode":%s}\n' % (journal._checksum(changed), changed))
    with pytest.raises(RunDirectoryError) as caught:
        list(JournalReader(path))
    assert said in str(caught.value)


UNSURE = Transition(Call("look", {}), Answer("x", confidence=1.5), Effect.READ, "t.2", 1)


@each_row("bad", [episode(2, final={"x": float("nan")}), replace(episode(2), transitions=(UNSURE,))])
def test_what_could_not_be_read_again_leaves_no_trace(path: Path, bad: Episode) -> None:
    before = write(path, 1)
    with Journal(path) as opened, pytest.raises(NotSerializable):
        opened.append(bad)
    assert path.read_bytes() == before


def test_what_the_reader_would_refuse_for_its_size_is_not_written(path: Path, monkeypatch) -> None:
    monkeypatch.setattr(journal, "MAX_LINE", 1000)
    with Journal(path) as opened:
        with pytest.raises(NotSerializable, match=r"episode 't1.1' is larger than 1000 bytes"):
            opened.append(episode(1, "x" * 1000))
        assert opened.append(episode(1))


def test_a_folder_and_a_pipe_in_its_place_are_named(tmp_path: Path) -> None:
    (tmp_path / "folder").mkdir()
    os.mkfifo(tmp_path / "pipe")
    with pytest.raises(RunDirectoryError, match=r"folder: cannot be opened \(Is a directory\)"):
        Journal(tmp_path / "folder")
    with pytest.raises(RunDirectoryError, match="pipe: is not a plain file; move it away"):
        Journal(tmp_path / "pipe")
    with pytest.raises(RunDirectoryError, match="pipe: is not a plain file"):
        list(JournalReader(tmp_path / "pipe"))


@pytest.mark.nightly
def test_ten_thousand_episodes_are_streamed(path: Path) -> None:
    import tracemalloc

    with Journal(path) as opened:
        for number in range(10_000):
            opened.append(episode(number, "x" * 10_000))
    tracemalloc.start()
    count = sum(1 for _ in JournalReader(path))
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert count == 10_000
    assert peak < 10 * 2**20


STEP = Transition(
    call=Call("refund", {"id": "pay_1", "usd": 88.0}, call_id="c1", node="tools"),
    answer=Answer({"ok": False}, Source.FAULT, 0.5, [1], "timed out", "Timeout", {"x": [1]}, ("t",), "y"),
    effect=Effect.DESTRUCTIVE,
    episode="a.1",
    step=1,
    environment=Environment("desk", 7),
    task="a",
    after="abc",
    tenant="acme",
    split=Split.HELD_OUT,
    elapsed_s=0.25,
    recorded_at=1.5,
)  # fmt: skip
FULL = Episode(
    id="a.1",
    task="a",
    repeat=1,
    environment=Environment("desk", 7),
    verdict=Verdict.FAILED,
    reason="refunded twice",
    transitions=(STEP,),
    messages=(
        {"role": "assistant", "content": "ok", "tool_calls": [{"id": "c1", "name": "refund", "args": {}}]},
    ),
    reward=0.25,
    stop="violation",
    violations=("tried to mail",),
    findings=(Finding("repeated_write", "refunded twice", (1, 2), "critical"),),
    model_calls=3,
    tokens=100,
    cost_usd=0.02,
    attempt=2,
    started_at=1.0,
    elapsed_s=2.5,
    counts={"bad_arguments": 1},
    final={"done": [True, None]},
    dream_spend={"judge": Spend(1, 20, 5, 16, 0.001, 1)},
    user_turns=(
        UserTurn("interrupt", "script", 1, 1, {"really": True}, "yes"),
        UserTurn("reply", "task", 0, 0),
    ),
    executed=(Executed("refund", {"order": "o1"}, "its real body ran"),),
    traceback=("agent.py:41 in route: found.group()",),
)
LATER = ("user_turns", "executed", "traceback")  # fields that runs of earlier versions do not have
values = st.recursive(
    st.one_of(st.none(), st.booleans(), st.integers(), st.floats(-1e300, 1e300), st.text()),
    lambda inner: st.one_of(st.lists(inner, max_size=3), st.dictionaries(st.text(), inner, max_size=3)),
    max_leaves=8,
)  # fmt: skip


def through_json(episode: Episode) -> Episode:
    return episode_from_record(json.loads(json.dumps(episode_to_record(episode))))


def test_every_field_comes_back() -> None:
    assert through_json(FULL) == FULL
    assert through_json(Episode("b.1", "b", 1, Environment(), Verdict.PASSED, "ok")).reward is None


@settings(max_examples=50, derandomize=True, deadline=None)
@given(content=values, final=values, text=st.text(st.characters()))
def test_any_json_value_comes_back(content: object, final: object, text: str) -> None:
    step = replace(STEP, answer=Answer(content))
    episode = replace(
        FULL, id=text, reason=text, transitions=(step,), messages=({"content": content},), final=final
    )
    assert through_json(episode) == episode


@each_row("name", LATER)
def test_a_record_from_before_a_field_was_kept_is_read(name: str) -> None:
    record = episode_to_record(replace(FULL, **{name: ()}))
    del record[name]
    assert episode_from_record(record) == replace(FULL, **{name: ()})


def test_executed_calls_say_their_arguments_and_long_ones_are_cut_at_their_end() -> None:
    call = Executed("pay", {"to": "bob", "n": 2, "note": "x" * 400})
    assert str(call).startswith("pay(to='bob', n=2, note='xxx")
    assert str(call).endswith("x... (+102 chars))")


@each_row(
    ("change", "message"),
    [
        ({"sibling": "1"}, "sibling: expected a whole number, got '1'"),
        ({"transitions": [{}]}, "transitions[0].schema: missing"),
    ],
)
def test_a_wrong_field_is_named(change: dict[str, object], message: str) -> None:
    with pytest.raises(NotSerializable) as caught:
        episode_from_record(episode_to_record(FULL) | change)
    assert str(caught.value) == message


@each_row("change", [{"verdict": "success"}, {"executed": []}, {"user_turns": []}])
def test_a_record_that_was_edited_does_not_pass(change: dict[str, object]) -> None:
    with pytest.raises(NotSerializable, match=r"^digest: '[0-9a-f]{40}' is not the digest of this content"):
        episode_from_record(episode_to_record(FULL) | change)


@each_row(("stop", "now"), [("lost", "error"), ("error", "error"), ("limit", "inconclusive")])
def test_what_the_kit_failed_in_an_earlier_version_is_an_error(stop: str, now: str) -> None:
    old = replace(FULL, verdict=Verdict.INCONCLUSIVE, stop=stop)
    record = episode_to_record(old)
    assert record["verdict"] == "undetermined"
    assert episode_from_record(record) == replace(old, verdict=Verdict(now))
