"""Turns become samples: each sampled token of a fit turn in exactly one, given tokens never learned from."""

from collections import Counter
from dataclasses import replace

import pytest
from each_row import each_row
from hypothesis import given
from hypothesis import strategies as st
from training.conversations import ODDITIES, SAMPLED, logprob_of, merged, several, spoiled

from dreamgym_kit.training.samples import why_unfit
from dreamgym_kit.turns import Sample, Turn


def turn(index: int, prompt: tuple[int, ...], ids: tuple[int, ...], version: str = "w0") -> Turn:
    return Turn("t.1", index, prompt, ids, tuple(map(logprob_of, ids)), version)


def learned(samples: list[Sample]) -> list[int]:
    rows = [row for one in samples for row in zip(one.ids[one.start :], one.mask, strict=True)]
    return [token for token, kept in rows if kept]


@given(several())
def test_every_sampled_token_of_a_fit_turn_is_learned_from_once_and_no_other_is(turns: list[Turn]) -> None:
    fit = [token for one in turns if not why_unfit(one) for token in one.ids]
    samples, counts = merged(turns)
    assert Counter(learned(samples)) == Counter(fit)
    assert counts.trained == len(fit)
    assert counts.sampled == sum(len(one.ids) for one in turns)


@pytest.mark.slow
@given(several())
def test_log_probs_stay_with_their_tokens(turns: list[Turn]) -> None:
    for sample in merged(turns)[0]:
        rows = zip(sample.ids[sample.start :], sample.mask, sample.logprobs, strict=True)
        assert all(logprob == (logprob_of(token) if kept else 0.0) for token, kept, logprob in rows)


@given(several())
def test_what_comes_before_a_sampled_token_is_what_its_sampler_read(turns: list[Turn]) -> None:
    read = {
        token: one.prompt_ids + one.ids[:place]
        for one in turns
        if not why_unfit(one)
        for place, token in enumerate(one.ids)
    }
    for sample in merged(turns)[0]:
        for place, kept in enumerate(sample.mask, start=sample.start):
            if kept:
                assert sample.ids[:place] == read[sample.ids[place]]


@given(several())
def test_a_sample_begins_and_ends_with_a_token_that_is_learned_from(turns: list[Turn]) -> None:
    for sample in merged(turns)[0]:
        assert sample.start >= 1
        assert (sample.mask[0], sample.mask[-1]) == (1, 1)
        assert sample.trained == sum(sample.mask)


@given(several())
def test_every_turn_is_counted_once_as_a_start_a_merge_or_unfit(turns: list[Turn]) -> None:
    samples, counts = merged(turns)
    assert counts.turns == len(turns) == len(samples) + counts.merged + sum(counts.unfit.values())
    assert counts.forks == len(samples) - len({sample.episode for sample in samples})
    assert sorted((sample.episode, index) for sample in samples for index in sample.turns) == sorted(
        (one.episode, one.index) for one in turns if not why_unfit(one)
    )


@given(several(), st.randoms(use_true_random=False))
def test_the_order_in_which_turns_are_given_changes_nothing(turns: list[Turn], chance) -> None:
    order = {one.episode: place for place, one in enumerate(turns)}
    shuffled = sorted(chance.sample(turns, len(turns)), key=lambda one: order[one.episode])
    assert merged(shuffled) == merged(turns)


@given(several())
def test_merging_what_was_merged_changes_nothing(turns: list[Turn]) -> None:
    samples, _ = merged(turns)
    assert [bare(one) for one in merged(as_turns(samples))[0]] == [bare(one) for one in samples]


def as_turns(samples: list[Sample]) -> list[Turn]:
    """Samples taken apart again: a turn for each run of learned tokens."""
    found: list[tuple[str, int, tuple[int, ...], tuple[int, ...]]] = []
    for sample in samples:
        place, indices = sample.start, iter(sample.turns)
        while place < len(sample.ids):
            end = place
            while end < len(sample.ids) and sample.mask[end - sample.start]:
                end += 1
            if end > place:
                found.append((sample.episode, next(indices), sample.ids[:place], sample.ids[place:end]))
            place = end + 1 if end == place else end
    return [
        Turn(episode, index, prompt, ids, tuple(map(logprob_of, ids)), "w")
        for episode, index, prompt, ids in found
    ]


def bare(sample: Sample) -> Sample:
    """Without what taking apart loses: turns that follow each other without a gap are one."""
    return replace(sample, turns=(), versions=())


def test_turns_that_extend_each_other_are_one_sample_and_what_lies_between_is_masked() -> None:
    samples, counts = merged(
        [turn(0, (1, 2), (1000, 1001)), turn(1, (1, 2, 1000, 1001, 3, 3), (1002,), "w1")]
    )
    assert samples == [
        Sample(
            "t.1",
            ids=(1, 2, 1000, 1001, 3, 3, 1002),
            start=2,
            mask=(1, 1, 0, 0, 1),
            logprobs=(logprob_of(1000), logprob_of(1001), 0.0, 0.0, logprob_of(1002)),
            turns=(0, 1),
            versions=("w0", "w1"),
        )
    ]
    assert (counts.merged, counts.forks) == (1, 0)


def test_a_rewritten_history_forks() -> None:
    samples, counts = merged([turn(0, (1, 2), (1000,)), turn(1, (1, 3, 1000, 2), (1001,))])
    assert [sample.turns for sample in samples] == [(0,), (1,)]
    assert samples[1].ids == (1, 3, 1000, 2, 1001)
    assert samples[1].mask == (1,)
    assert (counts.merged, counts.forks) == (0, 1)


def test_two_answers_to_the_same_prompt_fork_and_the_history_goes_on_in_its_own() -> None:
    said, other = turn(0, (1,), (1000,)), turn(1, (1,), (1001,))
    samples, counts = merged([said, other, turn(2, (1, 1001, 2), (1002,))])
    assert [sample.turns for sample in samples] == [(0,), (1, 2)]
    assert counts.forks == 1


@each_row("odd", ODDITIES)
def test_an_unfit_turn_is_counted_and_stands_in_later_prompts_only(odd: str) -> None:
    first = turn(0, (1,), (1000,))
    unfit = spoiled(turn(1, (1, 1000, 2), (1001, 1002)), odd)
    after = turn(2, (1, 1000, 2, 1001, 1002, 3), (1003,))
    samples, counts = merged([first, unfit, after])
    assert [sample.ids for sample in samples] == [(1, 1000, 2, 1001, 1002, 3, 1003)]
    assert samples[0].mask == (1, 0, 0, 0, 0, 1)
    assert samples[0].turns == (0, 2)
    assert counts.unfit == {why_unfit(unfit): 1}
    assert (counts.turns, counts.merged, counts.forks) == (3, 1, 0)


def test_a_turn_that_is_asked_again_after_an_abort_goes_on_where_it_would_have() -> None:
    first, broken = turn(0, (1,), (1000,)), spoiled(turn(1, (1, 1000, 2), (1001,)), "aborted")
    samples, counts = merged([first, broken, turn(2, (1, 1000, 2), (1002,))])
    assert [sample.ids for sample in samples] == [(1, 1000, 2, 1002)]
    assert counts.forks == 0


def test_an_episode_of_unfit_turns_alone_has_no_sample() -> None:
    samples, counts = merged([spoiled(turn(0, (1,), (SAMPLED,)), "nan")])
    assert samples == []
    assert (counts.turns, counts.trained, counts.sampled) == (1, 0, 1)


def test_two_turns_of_the_same_index_are_refused() -> None:
    with pytest.raises(ValueError, match=r"'t\.1' has two turns of the same index"):
        merged([turn(0, (1,), (1000,)), turn(0, (1,), (1001,))])
