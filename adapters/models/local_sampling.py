"""Which token comes next in each row, and its log-prob: rows do not touch each other's randomness.

A row draws one number a token from a generator of its own, seeded by its request, and takes the token whose
stretch of the cumulated probabilities holds it. So equal requests get equal answers in any company, as far as
the floats of the logits are equal.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor


@dataclass(frozen=True, slots=True)
class Sampling:
    """How one row's tokens are chosen."""

    temperature: float  # 0: always the likeliest
    top_p: float
    draws: tuple[float, ...]  # in [0, 1), one for each token there may be


def sampling(temperature: float, top_p: float, seed: int | None, tokens: int) -> Sampling:
    """What a request asks for; without a seed, no two are alike."""
    if temperature == 0:
        return Sampling(0.0, 1.0, ())
    generator = torch.Generator()
    if seed is None:
        generator.seed()
    else:
        generator.manual_seed(seed % 2**63)
    drawn = torch.rand(tokens, generator=generator, dtype=torch.float64)
    return Sampling(temperature, top_p, tuple(drawn.tolist()))


class Chooser:
    """Chooses for the rows of a batch, as long as these are the same."""

    def __init__(self, rows: Sequence[Sampling], device: torch.device) -> None:
        self._greedy = [row.temperature == 0 for row in rows]
        self._rows = rows
        divisors = [1.0 if row.temperature == 0 else row.temperature for row in rows]
        plain = all(one == 1.0 for one in divisors)
        self._divisors = None if plain else torch.tensor(divisors, device=device)[:, None]
        self._top_p = (
            torch.tensor([row.top_p for row in rows], device=device, dtype=torch.float64)[:, None]
            if any(row.top_p < 1 for row in rows)
            else None
        )
        self._is_greedy = torch.tensor(self._greedy, device=device)

    def choose(
        self, logits: Tensor, made: Sequence[int], forbidden: Tensor | None
    ) -> tuple[list[int], list[float]]:
        """The next token of each row and its log-prob over all tokens at the row's temperature.

        Args:
            logits: float32 [rows, vocabulary].
            made: how many tokens each row has already.
            forbidden: True where a grammar allows no token; the log-probs do not know of it.
        """
        scaled = logits if self._divisors is None else logits / self._divisors
        logprobs = torch.log_softmax(scaled, -1)
        allowed = logprobs if forbidden is None else logprobs.masked_fill(forbidden, -torch.inf)
        if all(self._greedy):
            chosen = allowed.argmax(-1)
        else:
            chosen = self._drawn(allowed, made)
            if any(self._greedy):
                chosen = torch.where(self._is_greedy, allowed.argmax(-1), chosen)
        picked = logprobs.gather(-1, chosen[:, None])[:, 0]
        return chosen.tolist(), picked.tolist()

    def _drawn(self, allowed: Tensor, made: Sequence[int]) -> Tensor:
        draws = [
            row.draws[count] if count < len(row.draws) else 0.0
            for row, count in zip(self._rows, made, strict=True)
        ]
        chances = allowed.double().exp_()
        if self._top_p is not None:
            chances = _nucleus(chances, self._top_p)
        cumulated = chances.cumsum(-1)
        mark = torch.tensor(draws, device=allowed.device, dtype=torch.float64)[:, None] * cumulated[:, -1:]
        return torch.searchsorted(cumulated, mark, right=True)[:, 0].clamp_(max=allowed.shape[-1] - 1)


def _nucleus(chances: Tensor, top_p: Tensor) -> Tensor:
    """Zeros outside of the fewest tokens whose chances sum to `top_p` (arXiv 1904.09751)."""
    ordered, order = chances.sort(-1, descending=True)
    before = ordered.cumsum(-1) - ordered
    kept = torch.where(before < top_p * chances.sum(-1, keepdim=True), ordered, 0.0)
    return torch.zeros_like(chances).scatter_(-1, order, kept)
