"""Rows that are decoded together: each step gives each of them one token; rows join and leave between steps.

Equal rows in equal order give equal floats: nothing here looks at a clock or at another batch. A row draws
one number a token from a generator of its own, seeded by its request, and takes the token whose stretch of
the cumulated probabilities holds it: rows do not touch each other's randomness.
"""

from collections.abc import Callable, Sequence
from concurrent.futures import Future, InvalidStateError
from contextlib import suppress
from dataclasses import dataclass, field
from math import isfinite
from typing import TYPE_CHECKING

import torch
from torch import Tensor

from dreamgym_kit.adapters.models.kv_cache import CacheRows, KeptRow, Places
from dreamgym_kit.adapters.models.local_network import Network
from dreamgym_kit.errors import EndpointError

if TYPE_CHECKING:
    from dreamgym_kit.adapters.models.local_grammar import Grammar

_ATTENTION = 2**25  # query-key pairs of one pass while prompts are read: bounds the mask in memory
_DEAD_SHARE = 0.25  # of rows that have ended; with more of them the others are packed


@dataclass(frozen=True, slots=True)
class SamplingParams:
    """How one row's tokens are chosen."""

    temperature: float  # 0: always the likeliest
    top_p: float
    draws: tuple[float, ...]  # in [0, 1), one for each token there may be


def sampling(temperature: float, top_p: float, seed: int | None, tokens: int) -> SamplingParams:
    """What a request asks for; without a seed, no two are alike."""
    if temperature == 0:
        return SamplingParams(0.0, 1.0, ())
    generator = torch.Generator()
    if seed is None:
        generator.seed()
    else:
        generator.manual_seed(seed % 2**63)
    drawn = torch.rand(tokens, generator=generator, dtype=torch.float64)
    return SamplingParams(temperature, top_p, tuple(drawn.tolist()))


class TokenSampler:
    """Chooses for the rows of a batch, as long as these are the same."""

    def __init__(self, rows: Sequence[SamplingParams], device: torch.device) -> None:
        self._greedy = [row.temperature == 0 for row in rows]
        self._rows = rows
        divisors = [1.0 if row.temperature == 0 else row.temperature for row in rows]
        plain = all(divisor == 1.0 for divisor in divisors)
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
    nucleus = torch.where(before < top_p * chances.sum(-1, keepdim=True), ordered, 0.0)
    return torch.zeros_like(chances).scatter_(-1, order, nucleus)


@dataclass(frozen=True, slots=True)
class Ask:
    """A request as the engine takes it."""

    key: str  # the episode
    prompt: tuple[int, ...]
    text: str  # that the prompt's ids spell
    render_answer: Callable[[Sequence[int]], str]  # how an answer will stand behind it, as history
    most: int  # tokens
    sampling: SamplingParams
    seed: int | None
    stop: tuple[str, ...]
    grammar: "Grammar | None"
    future: "Future[Sampled]" = field(compare=False, default_factory=Future)


@dataclass(frozen=True, slots=True)
class Sampled:
    """What became of it."""

    ids: tuple[int, ...]
    logprobs: tuple[float, ...]
    finish: str  # "stop" or "length"
    cut: int  # characters of the text that ids spell, before a stop text; -1: none was met
    version: str
    reused: int  # tokens of the prompt whose keys and values were there


@dataclass(slots=True)
class _Row:
    ask: Ask
    reused: int
    length: int  # tokens in the cache
    token: int  # the next to be read
    ids: list[int] = field(default_factory=list)
    logprobs: list[float] = field(default_factory=list)
    over: bool = False


class RunningBatch:
    """What runs on one model at one time.

    A batch ends with the network that it began with.
    """

    def __init__(
        self, network: Network, version: str, *, ends: frozenset[int], decode: Callable[[Sequence[int]], str]
    ) -> None:
        self.version = version
        self._network, self._ends, self._decode = network, ends, decode
        self._rows: list[_Row] = []
        self._cache: CacheRows | None = None
        self._chooser: TokenSampler | None = None

    @property
    def asks(self) -> list[Ask]:
        """The requests that have no answer yet."""
        return [row.ask for row in self._rows if not row.over]

    def join(self, asks: Sequence[tuple[Ask, KeptRow | None, int]]) -> None:
        """Add requests; each may begin with the first tokens of a cached row."""
        self._pack()
        rows = [_Row(ask, reused, len(ask.prompt) - 1, ask.prompt[-1]) for ask, _, reused in asks]
        network = self._network
        room = max(row.length for row in rows) + 2
        cache = CacheRows(network.shape, len(rows), room, device=network.device, dtype=network.dtype)
        for place, (_, prefix, reused) in enumerate(asks):
            if prefix is not None:
                cache.put(place, prefix, reused)
        self._read(rows, cache)
        if self._cache is None or not self._rows:
            self._cache = cache
        else:
            self._cache.join(cache)
        self._rows += rows
        self._chooser = None

    def step(self) -> list[tuple[Ask, Sampled, KeptRow]]:
        """Give each row its next token; return the rows that ended, and their cached keys and values."""
        rows, cache = self._rows, self._cache
        if cache is None or not rows:
            return []
        device = self._network.device
        cache.grow(max(row.length for row in rows) + 1)
        tokens = torch.tensor([[row.token] for row in rows], device=device)
        positions = torch.tensor([[row.length] for row in rows], device=device)
        at = Places(positions, max(row.length for row in rows) + 1, window=self._network.window)
        logits = self._network.logits(tokens, at, cache)[:, -1]
        if self._chooser is None:
            self._chooser = TokenSampler([row.ask.sampling for row in rows], device)
        chosen, logprobs = self._chooser.choose(logits, [len(row.ids) for row in rows], self._forbidden())
        ended = []
        for place, row in enumerate(rows):
            if row.over:
                continue
            if row.ask.future.done():  # cancelled: nobody waits for it
                row.over = True
                continue
            row.length += 1
            try:
                done = self._took(row, chosen[place], logprobs[place])
            except EndpointError as error:  # of this row alone
                row.over = True
                with suppress(InvalidStateError):  # cancelled just now
                    row.ask.future.set_exception(error)
                continue
            if done is not None:
                ended.append((row.ask, done, cache.copy(place, row.length)))
        if sum(row.over for row in rows) > _DEAD_SHARE * len(rows):
            self._pack()
        return ended

    def _took(self, row: _Row, token: int, logprob: float) -> Sampled | None:
        """Book a token; the whole answer where it was the last."""
        if not isfinite(logprob):
            raise EndpointError("server", f"the weights '{self.version}' give no number for a token (NaN)")
        row.ids.append(token)
        row.logprobs.append(logprob)
        row.token = token
        ask = row.ask
        whole = ask.grammar is not None and token not in self._ends and not ask.grammar.took(token)
        cut = self._cut(row) if ask.stop else -1
        if token in self._ends or cut >= 0 or whole:
            finish = "stop"
        elif len(row.ids) >= ask.most:
            finish = "length"
        else:
            return None
        row.over = True
        return Sampled(tuple(row.ids), tuple(row.logprobs), finish, cut, self.version, row.reused)

    def _cut(self, row: _Row) -> int:
        longest = max(len(stop) for stop in row.ask.stop)
        tail = self._decode(row.ids[-4 * longest - 4 :])  # a character is at most four tokens
        if not any(stop in tail for stop in row.ask.stop):
            return -1
        text = self._decode(row.ids)
        return min((at for stop in row.ask.stop if (at := text.find(stop)) >= 0), default=-1)

    def _forbidden(self) -> torch.Tensor | None:
        masks = [
            row.ask.grammar.forbidden() if row.ask.grammar is not None and not row.over else None
            for row in self._rows
        ]
        first = next((mask for mask in masks if mask is not None), None)
        if first is None:
            return None
        free = torch.zeros_like(first)
        return torch.stack([free if mask is None else mask for mask in masks]).to(self._network.device)

    def _pack(self) -> None:
        """Drop the rows that have ended."""
        alive = [place for place, row in enumerate(self._rows) if not row.over]
        if len(alive) == len(self._rows):
            return
        self._rows = [self._rows[place] for place in alive]
        self._chooser = None
        if not alive:
            self._cache = None
        elif self._cache is not None:
            self._cache.only(alive)

    def _read(self, rows: Sequence[_Row], cache: CacheRows) -> None:
        """Read the prompts up to their last token: rows of similar length together, in bounded pieces."""
        order = sorted(
            (place for place, row in enumerate(rows) if row.length > row.reused),
            key=lambda place: (rows[place].length - rows[place].reused, place),
        )
        while order:
            most = rows[order[-1]].length - rows[order[-1]].reused
            together = [place for place in order if 2 * (rows[place].length - rows[place].reused) >= most]
            order = order[: len(order) - len(together)]
            together.sort()
            self._read_alike([rows[place] for place in together], together, cache)

    def _read_alike(self, rows: Sequence[_Row], places: Sequence[int], cache: CacheRows) -> None:
        """Read the prompts of some of the rows of `cache`, padded to the longest."""
        network = self._network
        most = max(row.length - row.reused for row in rows)
        end = max(row.reused for row in rows) + most
        many = 1 if end > network.context else max(1, _ATTENTION // (most * end))
        if len(rows) > many:
            self._read_alike(rows[:many], places[:many], cache)
            self._read_alike(rows[many:], places[many:], cache)
            return
        apart = list(places) != list(range(cache.count))
        mine = cache
        if apart:
            mine = CacheRows(network.shape, len(rows), end, device=network.device, dtype=network.dtype)
            for place, (row, source) in enumerate(zip(rows, places, strict=True)):
                mine.put(place, cache.view(source, row.reused), row.reused)
        mine.grow(end)
        piece = max(16, _ATTENTION // (len(rows) * end))
        for start in range(0, most, piece):
            self._read_piece(rows, mine, start, min(piece, most - start))
        if apart:
            for place, (row, target) in enumerate(zip(rows, places, strict=True)):
                cache.put(target, mine.view(place, row.length), row.length)

    def _read_piece(self, rows: Sequence[_Row], mine: CacheRows, start: int, width: int) -> None:
        """Read `width` tokens of each row, from its `start`-th new one on."""
        device = self._network.device
        pieces = [row.ask.prompt[row.reused + start : row.length][:width] for row in rows]
        tokens = [[*piece, *[0] * (width - len(piece))] for piece in pieces]
        first = torch.tensor([[row.reused + start] for row in rows], device=device)
        end = max(row.reused for row in rows) + start + width
        at = Places(first + torch.arange(width, device=device), end, window=self._network.window)
        self._network.read(torch.tensor(tokens, device=device), at, mine)
