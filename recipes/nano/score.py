"""How well a nano model works the desk: real held-out worlds, and where it fails.

Every world is one that nothing was recorded or trained on. A failure is told by the first of these that
holds: the model named an id that nobody told it, came to no end, left out a look that a good colleague
takes, used the right tools with wrong arguments, or decided otherwise.
"""

import time
from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum

from dreamgym_kit.recipes.desk.cases import CUSTOMER_IDS, FAMILIES, HELD_OUT_SEEDS, ORDER_IDS, PAYMENT_IDS
from dreamgym_kit.recipes.desk.policy import Habits
from dreamgym_kit.recipes.nano.episodes import work
from dreamgym_kit.recipes.nano.lockstep import Decoder, Played, play
from dreamgym_kit.recipes.nano.tokens import Stream

_READS = ("find_customer", "list_orders", "get_order", "list_payments", "track_parcel")
_IDS = frozenset({*CUSTOMER_IDS, *ORDER_IDS, *PAYMENT_IDS})
_LOOKS = frozenset({*_READS, "refund_quote"})


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
    decoder: Decoder,
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
        for each in play(decoder, stream, environments, seed=seed + number, temperature=temperature)
    ]
    return summarise(played, time.process_time() - began)


def summarise(played: Sequence[Played], cpu_s: float) -> Score:
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
    heard = played.case.text
    for reply, answers in played.turns:
        for _, args in reply.calls:
            yield from (value for value in args.values() if value in _IDS and str(value) not in heard)
        heard += "".join(answer.text for answer in answers)


def _share(solved: Sequence[bool] | Iterator[bool]) -> float:
    flags = list(solved)
    return sum(flags) / len(flags)
