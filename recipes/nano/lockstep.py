"""Many episodes at once on real desks, without LangGraph: all rows say one token, then all say the next.

The quickest honest way to see what a nano model does: the desks are real (SQLite in memory), the tools are
the desk's own, the judge is the desk's checker. Each row draws from its own seed, so that what it says does
not depend on its neighbours.
"""

import contextlib
from collections.abc import Sequence
from dataclasses import dataclass, field

import torch
from torch import Tensor

from dreamgym_kit.recipes.desk.cases import Case, make_case
from dreamgym_kit.recipes.desk.checkers import differences, goal
from dreamgym_kit.recipes.desk.database import Desk, scratch_desk
from dreamgym_kit.recipes.nano.decode import Cache, Decoder
from dreamgym_kit.recipes.nano.direct import DirectTools, Told
from dreamgym_kit.recipes.nano.stream import Said, Stream

MAX_TURNS = 12  # LangGraph's default limit of 25 steps allows as many
MAX_SAID = 80  # tokens a turn
_CONTEXT = 768


@dataclass(slots=True)
class Played:
    """One episode as a model played it."""

    case: Case
    ids: list[int]
    said: list[bool]  # which ids the model sampled
    logprobs: list[float]  # natural; 0.0 where it did not
    turns: list[tuple[Said, tuple[Told, ...]]] = field(default_factory=list)
    last_word: str | None = None  # None: it came to no end
    solved: bool = False

    @property
    def family(self) -> str:
        """What kind of request it was about."""
        return self.case.family


def play(
    decoder: Decoder, stream: Stream, seeds: Sequence[int], *, seed: int = 0, temperature: float = 1.0
) -> list[Played]:
    """Play one episode on the desk of each seed; temperature 0 takes the likeliest token.

    `seed` and the place in `seeds` decide what a row draws.
    """
    with contextlib.ExitStack() as open_desks, torch.inference_mode():
        rows = []
        for place, world in enumerate(seeds):
            case = make_case(world)
            desk = open_desks.enter_context(scratch_desk(case.rows))
            ids = stream.request(case.text)
            played = Played(case, ids, [False] * len(ids), [0.0] * len(ids))
            rows.append(_Row(played, desk, _draws(seed, place)))
        _Rollout(decoder, stream, temperature).run(rows)
        for row in rows:
            row.judge()
    return [row.played for row in rows]


def _draws(seed: int, place: int) -> torch.Generator:
    return torch.Generator().manual_seed((seed << 24) + place)


class _Row:
    """One episode under way."""

    def __init__(self, played: Played, desk: Desk, draws: torch.Generator) -> None:
        self.played, self.draws = played, draws
        self.unread = list(played.ids)  # given, and not yet read by the model
        self._desk = desk
        self._tools = DirectTools(desk)

    def hear(self, stream: Stream, ids: list[int], logprobs: list[float]) -> bool:
        """Take what the model said in this turn, make its calls; gives whether the episode goes on."""
        played = self.played
        played.ids += ids
        played.said += [True] * len(ids)
        played.logprobs += logprobs
        if ids[-1] != stream.end:
            return False
        said = stream.read(ids)
        if not said.calls:
            played.last_word = said.text
            return False
        self._tools.begin_turn()
        told = tuple(self._tools.call(name, args) for name, args in said.calls)
        played.turns.append((said, told))
        answer = stream.told(told)
        if len(played.turns) == MAX_TURNS or len(played.ids) + len(answer) + MAX_SAID > _CONTEXT:
            return False
        self.unread = [ids[-1], *answer]  # the end token was said, but not read
        played.ids += answer
        played.said += [False] * len(answer)
        played.logprobs += [0.0] * len(answer)
        return True

    def judge(self) -> None:
        case = self.played.case
        wrong = differences(goal(case.seed, case.text), self._desk.books(), case.customer_id)
        self.played.solved = self.played.last_word is not None and not wrong


class _Rollout:
    def __init__(self, decoder: Decoder, stream: Stream, temperature: float) -> None:
        self._decoder, self._stream, self._temperature = decoder, stream, temperature

    def run(self, rows: list[_Row]) -> None:
        cache = self._decoder.new_cache(len(rows), _CONTEXT)
        while rows:
            said = self._turn(rows, cache)
            on = [row.hear(self._stream, *what) for row, what in zip(rows, said, strict=True)]
            if not all(on):
                cache = cache.keep(
                    torch.tensor([place for place, goes in enumerate(on) if goes], dtype=torch.long)
                )
                rows = [row for row, goes in zip(rows, on, strict=True) if goes]

    def _turn(self, rows: list[_Row], cache: Cache) -> list[tuple[list[int], list[float]]]:
        """One turn of every row: its sampled ids and their log-probs."""
        state, place = self._read(rows, cache)
        said: list[tuple[list[int], list[float]]] = [([], []) for _ in rows]
        chances = torch.stack(
            [torch.rand(MAX_SAID, generator=row.draws, dtype=torch.float64) for row in rows]
        )
        silent = [False] * len(rows)
        for step in range(MAX_SAID):
            chosen, logprobs = self._choose(self._decoder.logits(state), chances[:, step])
            for row, (token, logprob) in enumerate(zip(chosen.tolist(), logprobs.tolist(), strict=True)):
                if not silent[row]:
                    said[row][0].append(token)
                    said[row][1].append(logprob)
                    silent[row] = token == self._stream.end
            if all(silent):
                break
            state = self._decoder.read(chosen[:, None], place[:, None], cache)[:, 0]
            place = place + 1
        return said

    def _read(self, rows: list[_Row], cache: Cache) -> tuple[Tensor, Tensor]:
        """Let every row read what it was given; the state after it, and the place of what comes next."""
        counts = torch.tensor([len(row.unread) for row in rows])
        ends = torch.tensor([len(row.played.ids) for row in rows])
        longest = int(counts.max())
        ids = torch.tensor([row.unread + [self._stream.pad] * (longest - len(row.unread)) for row in rows])
        places = (ends - counts)[:, None] + torch.arange(longest)
        states = self._decoder.read(ids, places, cache)
        return states[torch.arange(len(rows)), counts - 1], ends

    def _choose(self, logits: Tensor, chances: Tensor) -> tuple[Tensor, Tensor]:
        """A token for each row, and its log-prob at the temperature (at 1 where that is 0)."""
        logprobs = torch.log_softmax(logits / (self._temperature or 1.0), -1)
        if self._temperature == 0:
            chosen = logprobs.argmax(-1)
        else:
            below = logprobs.double().exp().cumsum(-1)
            chosen = torch.searchsorted(below, chances[:, None] * below[:, -1:], right=True)[:, 0]
        return chosen, logprobs.gather(1, chosen[:, None])[:, 0]
