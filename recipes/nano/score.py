"""How well a nano model works the desk: real held-out worlds, and where it fails.

Many episodes are played at once without LangGraph, turn by turn, by the in-process engine's own batches. The
desks are real (SQLite in memory), the tools are the desk's own, the judge is the desk's checker. Each row
draws from its own seed, so that what it says does not depend on its neighbors.

Every measured world is one that nothing was recorded or trained on. A failure is named by the first of these
that holds: the model named an id that nobody told it, came to no end, left out a look that a good colleague
takes, used the right tools with wrong arguments, or decided otherwise.
"""

import time
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field
from enum import StrEnum

import torch

from dreamgym_kit.adapters.models.kv_cache import KeptRow
from dreamgym_kit.adapters.models.local_batch import Ask, RunningBatch, Sampled, SamplingParams
from dreamgym_kit.adapters.models.local_network import Network
from dreamgym_kit.recipes.desk.cases import (
    CUSTOMER_IDS,
    FAMILIES,
    HELD_OUT_SEEDS,
    ORDER_IDS,
    PAYMENT_IDS,
    DeskCase,
    make_case,
)
from dreamgym_kit.recipes.desk.checkers import differences, goal
from dreamgym_kit.recipes.desk.database import Desk, scratch_desk
from dreamgym_kit.recipes.desk.policy import Habits
from dreamgym_kit.recipes.nano.episodes import CallResult, DirectTools, work
from dreamgym_kit.recipes.nano.tokens import NanoTurn, Stream, request_text, told_text

MAX_TURNS = 12  # LangGraph's default limit of 25 steps allows as many
MAX_SAID = 80  # tokens a turn
_CONTEXT = 768
_LOOKS = ("find_customer", "list_orders", "get_order", "list_payments", "track_parcel", "refund_quote")
_IDS = frozenset({*CUSTOMER_IDS, *ORDER_IDS, *PAYMENT_IDS})


@dataclass(slots=True)
class Played:
    """One episode as a model played it."""

    case: DeskCase
    ids: list[int]
    sampled: list[bool]  # which ids the model sampled
    logprobs: list[float]  # natural; 0.0 where it did not
    turns: list[tuple[NanoTurn, tuple[CallResult, ...]]] = field(default_factory=list)
    last_word: str | None = None  # None: it came to no end
    solved: bool = False

    @property
    def family(self) -> str:
        """What kind of request it was about."""
        return self.case.family

    def add(self, ids: Sequence[int], logprobs: Sequence[float] = ()) -> None:
        """Append tokens; those that the model sampled come with their log-probs."""
        self.ids += ids
        self.sampled += [bool(logprobs)] * len(ids)
        self.logprobs += logprobs or [0.0] * len(ids)


def play(
    network: Network, stream: Stream, seeds: Sequence[int], *, seed: int = 0, temperature: float = 1.0
) -> list[Played]:
    """Play one episode on the desk of each seed; temperature 0 takes the likeliest token.

    `seed` and the place in `seeds` decide what a row draws.
    """
    with ExitStack() as open_desks, torch.inference_mode():
        rows = []
        for place, environment in enumerate(seeds):
            case = make_case(environment)
            desk = open_desks.enter_context(scratch_desk(case.rows))
            rows.append(_Row(case, desk, stream, torch.Generator().manual_seed((seed << 24) + place)))
        going = rows
        while going:
            _say(network, stream, going, temperature)
            going = [row for row in going if row.answer(stream)]
        for row in rows:
            row.judge()
    return [row.played for row in rows]


class _Row:
    """One episode under way."""

    def __init__(self, case: DeskCase, desk: Desk, stream: Stream, draws: torch.Generator) -> None:
        self.played = Played(case, [], [], [])
        self.played.add(stream.encode(request_text(case.text)))
        self.cache: KeptRow | None = None  # keys and values of the turns so far
        self.turn: Sampled | None = None  # what the model said last
        self._desk, self._tools, self._draws = desk, DirectTools(desk), draws

    def ask(self, place: int, temperature: float) -> Ask:
        """The request for the next turn."""
        draws = torch.rand(MAX_SAID, generator=self._draws, dtype=torch.float64)
        return Ask(
            key=str(place),
            prompt=tuple(self.played.ids),
            text="",
            render_answer=lambda _: "",
            most=MAX_SAID,
            sampling=SamplingParams(temperature, 1.0, tuple(draws.tolist())),
            seed=None,
            stop=(),
            grammar=None,
        )

    def answer(self, stream: Stream) -> bool:
        """Make the calls of the last turn; gives whether the episode goes on."""
        played, turn = self.played, self.turn
        assert turn is not None
        played.add(turn.ids, turn.logprobs)
        if turn.finish == "length":
            return False
        reply = stream.read(turn.ids)
        if not reply.calls:
            played.last_word = reply.text
            return False
        self._tools.begin_turn()
        answers = tuple(self._tools.call(name, args) for name, args in reply.calls)
        played.turns.append((reply, answers))
        answer = stream.encode(told_text(answers))
        if len(played.turns) == MAX_TURNS or len(played.ids) + len(answer) + MAX_SAID > _CONTEXT:
            return False
        played.add(answer)
        return True

    def judge(self) -> None:
        case = self.played.case
        wrong = differences(goal(case.seed, case.text), self._desk.books(), case.customer_id)
        self.played.solved = self.played.last_word is not None and not wrong


def _say(network: Network, stream: Stream, rows: Sequence[_Row], temperature: float) -> None:
    """Generate one turn for every row; cached tokens of earlier turns are not read again."""
    batch = RunningBatch(network, "", ends=frozenset({stream.end}), decode=stream.tokenizer.decode)
    batch.join(
        [
            (row.ask(place, temperature), row.cache, row.cache.length if row.cache else 0)
            for place, row in enumerate(rows)
        ]
    )
    while batch.asks:
        for ask, turn, cache in batch.step():
            row = rows[int(ask.key)]
            row.turn, row.cache = turn, cache


class Failure(StrEnum):
    """Why an episode did not end as it should."""

    INVENTED = "named an id that nobody told"
    NO_END = "came to no end"
    SKIPPED_LOOK = "left out a look"
    ARGUMENTS = "right tools, wrong arguments"
    DECISION = "decided otherwise"


@dataclass(frozen=True, slots=True)
class Score:
    """What some episodes came to."""

    episodes: int
    solved: float  # 0..1, of all
    by_family: Mapping[str, float]
    failures: Mapping[str, float]  # share of all episodes, by kind of failure
    refused_calls: float  # calls an episode that no tool took, or that the desk refused
    tokens: float  # an episode, said and told
    cpu_s: float


def held_out_worlds(per_family: int) -> list[int]:
    """The first held-out worlds, families in turn."""
    return list(HELD_OUT_SEEDS[: per_family * len(FAMILIES)])


def measure(
    network: Network,
    stream: Stream,
    environments: Sequence[int],
    *,
    temperature: float = 1.0,
    samplings: int = 1,
    seed: int = 0,
) -> Score:
    """Play every world `samplings` times on its real desk and say what came of it."""
    began = time.process_time()
    played = [
        each
        for number in range(samplings)
        for each in play(network, stream, environments, seed=seed + number, temperature=temperature)
    ]
    return summarize(played, time.process_time() - began)


def summarize(played: Sequence[Played], cpu_s: float) -> Score:
    """Count what episodes came to."""
    by_family: dict[str, list[bool]] = defaultdict(list)
    for each in played:
        by_family[each.family].append(each.solved)
    failures = Counter(str(kind) for each in played if (kind := failure_of(each)) is not None)
    refused = sum(answer.failed for each in played for _, answers in each.turns for answer in answers)
    return Score(
        episodes=len(played),
        solved=_share(each.solved for each in played),
        by_family={family: _share(by_family[family]) for family in FAMILIES if family in by_family},
        failures={str(kind): failures[str(kind)] / len(played) for kind in Failure},
        refused_calls=refused / len(played),
        tokens=sum(len(each.ids) for each in played) / len(played),
        cpu_s=cpu_s,
    )


def failure_of(played: Played) -> Failure | None:
    """Why an episode failed; None where it did not."""
    if played.solved:
        return None
    if any(_invented(played)):
        return Failure.INVENTED
    if played.last_word is None:
        return Failure.NO_END
    made = Counter(name for reply, _ in played.turns for name, _ in reply.calls)
    right = work(played.case.seed, Habits())
    wanted = Counter(use.tool for exchange in right.exchanges for use in exchange.turn.uses)
    if any(made[tool] < count for tool, count in wanted.items() if tool in _LOOKS):
        return Failure.SKIPPED_LOOK
    return Failure.ARGUMENTS if made == wanted else Failure.DECISION


def _invented(played: Played) -> Iterator[str]:
    """Ids that stand in a call and nowhere before it."""
    text = played.case.text
    for reply, answers in played.turns:
        for _, args in reply.calls:
            yield from (value for value in args.values() if value in _IDS and str(value) not in text)
        text += "".join(answer.text for answer in answers)


def _share(solved: Iterable[bool]) -> float:
    flags = list(solved)
    return sum(flags) / len(flags)
