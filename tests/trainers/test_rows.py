"""A batch in pieces is the batch: nothing lost, nothing twice, nothing learned that was not sampled."""

from collections import Counter

import pytest

pytest.importorskip("torch", reason="the extra train is not installed", exc_type=ImportError)
from hypothesis import given
from hypothesis import strategies as st

from dreamgym_kit.adapters.trainers.tensors import minibatches_of, pieces_of, tensors_of
from dreamgym_kit.turns import Batch, Sample


@st.composite
def samples(draw: st.DrawFn) -> Sample:
    start = draw(st.integers(1, 5))
    mask = draw(st.lists(st.integers(0, 1), min_size=1, max_size=8))
    length = start + len(mask)
    return Sample(
        episode=draw(st.sampled_from("abcdef")),
        ids=tuple(draw(st.lists(st.integers(0, 50), min_size=length, max_size=length))),
        start=start,
        mask=tuple(mask),
        logprobs=tuple(-draw(st.floats(0, 4, width=32)) if own else 0.0 for own in mask),
        turns=(0,),
        versions=("v",),
        advantage=draw(st.floats(-2, 2, width=32)),
        weight=draw(st.floats(0.125, 4, width=32)),
    )


batches = st.lists(samples(), min_size=1, max_size=12).map(lambda rows: Batch(3, tuple(rows)))


@given(batches, st.integers(1, 5), st.integers(0, 3))
def test_every_sample_is_in_one_minibatch_and_no_episode_in_two(batch: Batch, number: int, seed: int) -> None:
    dealt = minibatches_of(batch, number, seed=seed)
    assert len(dealt) == number
    assert Counter(sample for part in dealt for sample in part) == Counter(batch.samples)
    of = [{sample.episode for sample in part} for part in dealt]
    assert sum(map(len, of)) == len({sample.episode for sample in batch.samples})
    assert max(map(len, of)) - min(map(len, of)) <= 1
    assert dealt == minibatches_of(batch, number, seed=seed)


@given(batches, st.integers(1, 5), st.integers(1, 3))
def test_processes_share_the_rows_and_have_pieces_of_as_many(batch: Batch, number: int, ranks: int) -> None:
    shares = [pieces_of(batch.samples, number, rank=rank, ranks=ranks) for rank in range(ranks)]
    assert {len(pieces) for pieces in shares} == {number}
    assert len({tuple(map(len, pieces)) for pieces in shares}) == 1
    sizes = [len(piece) for piece in shares[0]]
    assert max(sizes) - min(sizes) <= 1
    rows = [row for pieces in shares for piece in pieces for row in piece]
    learned = Counter(row for row in batch.samples if row.trained)
    assert Counter(row for row in rows if row.trained) == learned
    assert len(rows) - len(batch.samples) < ranks


@given(st.lists(samples(), min_size=1, max_size=6))
def test_the_tensors_of_a_piece_say_what_its_samples_say(rows: list[Sample]) -> None:
    tensors = {name: tensor.tolist() for name, tensor in tensors_of(tuple(rows), tokens=7).items()}
    assert tensors["num_items_in_batch"] == 7
    assert {len(prompt) for prompt in tensors["prompt_ids"]} == {min(row.start for row in rows)}
    for place, row in enumerate(rows):
        prompt, completion = tensors["prompt_ids"][place], tensors["completion_ids"][place]
        there = [one for one, real in zip(completion, tensors["completion_mask"][place], strict=True) if real]
        assert (*prompt, *there) == row.ids
        cut = len(prompt)
        sampled = [cut + at for at, own in enumerate(tensors["sampled"][place]) if own]
        assert sampled == [row.start + at for at, own in enumerate(row.mask) if own]
        for at, one in enumerate(tensors["tool_mask"][place]):
            assert one == (row.weight if cut + at in sampled else 0.0)
        old = tensors["old_per_token_logps"][place]
        assert [old[at - cut] for at in sampled] == [
            value for value, own in zip(row.logprobs, row.mask, strict=True) if own
        ]
        assert tensors["advantages"][place] == row.advantage


def test_a_piece_without_samples_is_a_row_that_counts_for_nothing() -> None:
    tensors = tensors_of((), tokens=5)
    assert tensors["prompt_ids"].shape == tensors["completion_ids"].shape == (1, 1)
    assert float(tensors["tool_mask"].sum()) == 0.0
    assert not tensors["sampled"].any()
