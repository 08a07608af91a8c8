"""R2: a journal cut at any byte loads; at most the last record is repeated."""

import os
from pathlib import Path

import pytest

from dreamgym_kit.rollout.journal import Journal
from dreamgym_kit.types import Answer, Call, Effect, Environment, Episode, Transition, Verdict


def episode(number: int) -> Episode:
    step = Transition(Call("pay", {"id": number}), Answer('{"sum": "}\\n"}'), Effect.WRITE, f"t{number}.1", 1)
    return Episode(f"t{number}.1", f"t{number}", 1, Environment(), Verdict.PASSED, "paid", (step,))


EPISODES = [episode(number) for number in range(5)]


def cut_everywhere(folder: Path, *, last: int) -> tuple[int, int, int]:
    """Cut at every byte of the last records, resume each: (cuts, whole lines lost, wrong after resume)."""
    whole = folder / "whole.jsonl"
    with Journal(whole) as journal:
        for finished in EPISODES:
            journal.append(finished)
    data = whole.read_bytes()
    ends = [place + 1 for place, byte in enumerate(data) if byte == ord("\n")]
    cuts = lost = wrong = 0
    for cut in range(ends[len(EPISODES) - last - 1], len(data) + 1):
        path = folder / "cut.jsonl"
        path.write_bytes(data[:cut])
        whole_lines = sum(end <= cut for end in ends)
        with Journal(path) as journal:
            lost += list(journal.done) != [finished.id for finished in EPISODES[:whole_lines]]
            repeated = [finished for finished in EPISODES if journal.append(finished)]
        wrong += len(repeated) != len(EPISODES) - whole_lines or path.read_bytes() != data
        cuts += 1
    return cuts, lost, wrong


def test_every_cut_of_the_last_record_loads_and_resumes(tmp_path: Path) -> None:
    cuts, lost, wrong = cut_everywhere(tmp_path, last=1)
    print(f"R2 cuts={cuts} lost={lost} wrong={wrong}")
    assert cuts > 300
    assert (lost, wrong) == (0, 0)


@pytest.mark.slow
def test_a_journal_that_leaves_the_torn_line_in_place_is_caught(tmp_path: Path, monkeypatch) -> None:
    monkeypatch.setattr(os, "ftruncate", lambda _descriptor, _size: None)
    _, _, wrong = cut_everywhere(tmp_path, last=1)
    assert wrong > 0


@pytest.mark.slow
def test_every_cut_of_the_last_three_records_loads_and_resumes(tmp_path: Path) -> None:
    cuts, lost, wrong = cut_everywhere(tmp_path, last=3)
    print(f"R2 cuts={cuts} lost={lost} wrong={wrong}")
    assert cuts > 1000
    assert (lost, wrong) == (0, 0)
