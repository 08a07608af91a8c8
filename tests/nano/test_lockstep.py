from typing import Any

import pytest

pytest.importorskip("torch", reason="the extra train is not installed")
import torch

from dreamgym_kit.recipes.desk.cases import TRAIN_SEEDS
from dreamgym_kit.recipes.nano.episodes import record, work
from dreamgym_kit.recipes.nano.lockstep import Decoder, play
from dreamgym_kit.recipes.nano.start import new_model
from dreamgym_kit.recipes.nano.tokens import Stream, build_tokenizer

stream = Stream(build_tokenizer())
model: Any = new_model(stream.tokenizer, seed=1).double()  # so that no rounding turns a token
decoder = Decoder(model)


def padded(rows: list[list[int]]) -> Any:
    longest = max(map(len, rows))
    return torch.tensor([row + [stream.pad] * (longest - len(row)) for row in rows])


def test_plain_decoding_foretells_what_transformers_does() -> None:
    rows = [list(stream.row(worked).ids) for worked in record(8, seed=1)]
    ids = padded(rows)
    with torch.no_grad():
        expected = model(ids).logits
        states = decoder.read(
            ids, torch.arange(ids.shape[1]).expand_as(ids), decoder.new_cache(len(rows), ids.shape[1])
        )
        assert torch.allclose(decoder.logits(states), expected, atol=1e-5)


@pytest.mark.slow
def test_reading_piece_by_piece_with_gaps_padded_changes_nothing() -> None:
    rows = [list(stream.row(worked).ids)[:90] for worked in record(6, seed=2)]
    first = [30 + 5 * place for place in range(len(rows))]
    cache = decoder.new_cache(len(rows), 120)
    with torch.no_grad():
        expected = decoder.logits(
            decoder.read(padded(rows), torch.arange(90).expand(6, 90), decoder.new_cache(6, 90))
        )
        heads = padded([row[:cut] for row, cut in zip(rows, first, strict=True)])
        decoder.read(heads, torch.arange(heads.shape[1]).expand_as(heads), cache)
        for step in range(90 - max(first)):
            places = torch.tensor([[cut + step] for cut in first])
            token = torch.tensor([[row[cut + step]] for row, cut in zip(rows, first, strict=True)])
            got = decoder.logits(decoder.read(token, places, cache))[:, 0]
            wanted = expected[torch.arange(6), places[:, 0]]
            assert torch.allclose(got, wanted, atol=1e-4)


@pytest.mark.slow
def test_a_row_says_the_same_whoever_plays_beside_it() -> None:
    worlds = list(TRAIN_SEEDS[:6])
    together = play(decoder, stream, worlds, seed=3)
    alone = play(decoder, stream, worlds[:1], seed=3)
    other = play(decoder, stream, worlds[:1], seed=4)
    assert together[0].ids == alone[0].ids
    assert other[0].ids != alone[0].ids


@pytest.mark.slow
def test_logprobs_are_those_of_the_model_at_the_places_it_spoke() -> None:
    for played in play(decoder, stream, TRAIN_SEEDS[:4], seed=1):
        ids = torch.tensor([played.ids])
        with torch.no_grad():
            whole = torch.log_softmax(model(ids).logits[0, :-1], -1).gather(1, ids[0, 1:, None])[:, 0]
        said = torch.tensor(played.sampled[1:])
        logprobs = torch.tensor(played.logprobs[1:], dtype=whole.dtype)
        assert torch.allclose(whole[said], logprobs[said], atol=1e-4)
        assert not logprobs[~said].any()


class _Recital:
    """A decoder double: says, token by token, what a recorded colleague said in this row."""

    def __init__(self, rows: list[list[int]]) -> None:
        self.rows = rows

    def new_cache(self, rows: int, length: int) -> Any:
        return _Rows(list(range(rows)))

    def read(self, ids: Any, places: Any, cache: Any) -> Any:
        nexts = [
            [self.rows[row][min(place + 1, len(self.rows[row]) - 1)] for place in line]
            for row, line in zip(cache.rows, places.tolist(), strict=True)
        ]
        return torch.nn.functional.one_hot(torch.tensor(nexts), len(stream.tokenizer)).float() * 50

    def logits(self, states: Any) -> Any:
        return states


class _Rows:
    def __init__(self, rows: list[int]) -> None:
        self.rows = rows

    def keep(self, kept: Any) -> "_Rows":
        return _Rows([self.rows[place] for place in kept.tolist()])


@pytest.mark.slow
def test_whoever_says_what_a_colleague_said_leaves_the_desk_as_they_did() -> None:
    worked = list(record(60, seed=9))
    rows = [stream.row(each) for each in worked]
    played = play(
        _Recital([list(row.ids) for row in rows]), stream, [each.seed for each in worked], temperature=0
    )  # type: ignore[arg-type]
    for each, row, done in zip(worked, rows, played, strict=True):
        assert (tuple(done.ids), tuple(done.sampled)) == (row.ids, row.sampled)
        assert (done.solved, done.last_word) == (each.solved, each.last_word)
    assert 0.4 < sum(each.solved for each in worked) / 60 < 0.9
    assert work(worked[0].seed, worked[0].habits) == worked[0]
