from typing import Any

import pytest

pytest.importorskip("torch", reason="the extra train is not installed")
import torch

from dreamgym_kit.adapters.models.kv_cache import CacheRows, Places, RowShape
from dreamgym_kit.adapters.models.local_network import Network
from dreamgym_kit.recipes.nano.episodes import record, work
from dreamgym_kit.recipes.nano.score import play
from dreamgym_kit.recipes.nano.start import new_model
from dreamgym_kit.recipes.nano.tokens import Stream, build_tokenizer

stream = Stream(build_tokenizer())
model: Any = new_model(stream.tokenizer, seed=1).double()  # so that no rounding turns a token
network = Network(model)


class _Recital:
    """A network double: says, token by token, what a recorded colleague said after the same tokens.

    What it "computes" of a token is the token itself, so the cache shows what each row has read.
    """

    shape, context, window = RowShape(1, 1, 1, 1), 2048, None
    device, dtype = torch.device("cpu"), torch.float64

    def __init__(self, rows: list[list[int]]) -> None:
        self.next = {tuple(row[:end]): row[end] for row in rows for end in range(1, len(row))}

    def read(self, tokens: Any, at: Places, rows: CacheRows) -> Any:
        states = tokens[:, None, :, None].double()
        return rows.write(0, at, states, states)[0]

    def logits(self, tokens: Any, at: Places, rows: CacheRows) -> Any:
        seen = self.read(tokens, at, rows)[:, 0, :, 0].long().tolist()
        nexts = [
            self.next.get(tuple(row[: int(end) + 1]), stream.end)
            for row, end in zip(seen, at.positions[:, -1], strict=True)
        ]
        return torch.nn.functional.one_hot(torch.tensor(nexts)[:, None], len(stream.tokenizer)).float() * 50


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
