"""Which calls of a dream fail, how, and what the agent is told: a plan in code, never a prompt.

A rule names tools by pattern, a rate and kinds. Whether a call fails is drawn by hash from the seed, the
episode, the tool and how often the tool was called in it: the same seed gives the same faults whichever
call is faster, and a rule or a tool more leaves the faults of the others as they were. A fault never
reaches a real tool, and its answers say so (`Source.FAULT`), so that no report counts them as the
agent's own or takes them for grounded. An evaluation on the real tools may be under faults as well: there a
call either does not reach its tool, or is done and its answer spoiled.
"""

import hashlib
import json
import re
import threading
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from enum import StrEnum
from fnmatch import fnmatchcase

from dreamgym_kit.canonical import canonical
from dreamgym_kit.settings.schema import FaultSettings
from dreamgym_kit.types import Answer, Call, Effect, Source, Transition

_WHY = "fault plan: "
COMMON = ("error", "timeout", "timeout_applied", "rate_limit")
"""Kinds of faults where somebody wants faults and does not say which."""

_TRANSIENT_TYPES = re.compile(
    r"timeout|timedout|connect(ion)?(error|reset|refused|aborted)|(read|write|network|protocol|transport)error"
    r"|ratelimit|throttl|serviceunavailable|temporar|toomanyrequests",
    re.IGNORECASE,
)
_TRANSIENT_WORDS = re.compile(
    r"\b(408|425|429|502|503|504)\b|too many requests|rate.?limit|timed? ?out|temporar(y|ily)"
    r"|connection (was )?(reset|refused|aborted|closed)|service unavailable|bad gateway",
    re.IGNORECASE,
)


class FaultKind(StrEnum):
    """A way in which a tool breaks."""

    ERROR = "error"  # 500: it failed and changed nothing
    TIMEOUT = "timeout"  # no answer, and nothing was done
    TIMEOUT_APPLIED = "timeout_applied"  # no answer, though it was done
    RATE_LIMIT = "rate_limit"  # 429 with a time to wait
    SLOW = "slow"  # the right answer, late
    MALFORMED = "malformed"  # the right answer, cut off
    STALE_READ = "stale_read"  # what a read would have told before this episode's writes
    OUTAGE = "outage"  # 503 for several calls of the tool in a row, while other tools work

    @property
    def answers(self) -> bool:
        """Whether the dream is asked at all: the call is done, or at least read."""
        return self in (self.TIMEOUT_APPLIED, self.SLOW, self.MALFORMED, self.STALE_READ)


@dataclass(frozen=True, slots=True)
class Fault:
    """What befalls one call."""

    kind: FaultKind
    wait_s: float = 0.0  # how long the agent waits for its answer (slow), or is told to wait (rate limit)
    cut: float = 0.5  # share of a malformed answer that arrives, 0..1


@dataclass(frozen=True, slots=True)
class FaultPlan:
    """Every fault of a run, decided before it begins; empty plans nothing."""

    rules: Mapping[str, FaultSettings]
    seed: int = 0
    real: bool = False  # real calls fail by it too
    prefix: str = ""  # of episodes' ids, not drawn by: two runs of one seed meet the same faults

    def fault(
        self, call: Call, effect: Effect, *, episode: str, occurrence: int, wrote: bool = True
    ) -> Fault | None:
        """What befalls this call.

        Args:
            call: the call as the agent made it; only its tool counts.
            effect: only reads can be stale, only what changes the world can time out with effect.
            episode: the episode's id.
            occurrence: how many calls of this tool the episode made before this one.
            wrote: whether something was changed before; nothing is stale where nothing was.
        """
        for pattern, rule in self.rules.items():
            if not fnmatchcase(call.tool, pattern):
                continue
            place = (self.seed, episode.removeprefix(self.prefix), call.tool, pattern)
            kind = self._kind(rule, place, occurrence)
            if kind is None or not _possible(kind, effect, wrote):
                continue
            return Fault(kind, rule.wait_s, 0.2 + 0.6 * _draw(*place, occurrence, "cut"))
        return None

    def _kind(self, rule: FaultSettings, place: Sequence[object], occurrence: int) -> FaultKind | None:
        """The kind that is drawn here, or an outage that began a few calls ago and is not over."""
        drawn = _drawn(rule, place, occurrence)
        if drawn is not None:
            return drawn
        since = range(max(0, occurrence - rule.outage_calls + 1), occurrence)
        lasting = any(_drawn(rule, place, earlier) is FaultKind.OUTAGE for earlier in since)
        return FaultKind.OUTAGE if lasting else None


def rules_at(rules: Mapping[str, FaultSettings], rate: float) -> dict[str, FaultSettings]:
    """Return the rules at another rate; if there are none, one rule for all tools."""
    if rate <= 0:
        return {}
    base_rules = rules or {"*": FaultSettings(kinds=COMMON)}
    return {pattern: replace(rule, rate=rate) for pattern, rule in base_rules.items()}


class Occurrences:
    """Numbers the calls of each tool in one episode, as the model asked for them. Thread-safe."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._counts: Counter[str] = Counter()
        self._reserved: dict[str, int] = {}

    def reserve(self, calls: Mapping[str, str]) -> None:
        """Reserve the numbers of these calls (id -> tool), in the order in which a model requested them."""
        with self._lock:
            for call_id, tool in calls.items():
                self._reserved[call_id] = self._counts[tool]
                self._counts[tool] += 1

    def next(self, call: Call) -> int:
        """Return the number of a call; a repeat and a call that no model requested get a new one."""
        with self._lock:
            number = self._reserved.pop(call.call_id, None) if call.call_id is not None else None
            if number is not None:
                return number
            self._counts[call.tool] += 1
            return self._counts[call.tool] - 1


def failing(fault: Fault, call: Call) -> Answer:
    """Return the error that the agent gets for a call that the dream does not answer."""
    kind, text = _FAILURES[fault.kind]
    message = text.format(tool=call.tool, seconds=f"{fault.wait_s:g}")
    return Answer(source=Source.FAULT, error=message, error_type=kind, why=_WHY + fault.kind)


def spoiled(fault: Fault, call: Call, answer: Answer) -> Answer:
    """Return the faulty answer that replaces the dream's answer; an abstention stays one."""
    if answer.unanswered:
        return answer
    why = _WHY + fault.kind
    if fault.kind is FaultKind.TIMEOUT_APPLIED:
        if answer.error is not None:  # it was refused: nothing took effect that a time-out could hide
            return replace(failing(replace(fault, kind=FaultKind.TIMEOUT), call), cites=answer.cites)
        failure = failing(fault, call)
        return replace(failure, cites=answer.cites, confidence=answer.confidence, changes=answer.changes)
    if fault.kind is FaultKind.MALFORMED:
        if answer.error is not None or answer.update is not None:
            return answer
        return replace(answer, content=_cut(answer.content, fault.cut), source=Source.FAULT, why=why)
    return replace(answer, source=Source.FAULT, why=why)


def fault_kind(answer: Answer) -> FaultKind | None:
    """The fault that an answer is; None for every other answer."""
    if answer.source is not Source.FAULT or not answer.why.startswith(_WHY):
        return None
    name = answer.why.removeprefix(_WHY)
    return FaultKind(name) if name in set(FaultKind) else None


def took_effect(answer: Answer) -> bool:
    """Whether a call with this answer was done: all are but those that a fault kept from being done."""
    kind = fault_kind(answer)
    return kind is None or kind.answers


def ran(answer: Answer) -> bool:
    """Whether the real tool ran: also where a fault made something else of its answer."""
    return answer.source is Source.REAL or (fault_kind(answer) is not None and took_effect(answer))


def is_transient(answer: Answer) -> bool:
    """Whether an answer is a failure that passes, by the name of its type or by what it says.

    The way to a system was shut for a moment: part of an agent's own episode, but no answer for a crawl,
    which asks what there is.
    """
    if answer.error is None:
        return False
    return bool(_TRANSIENT_TYPES.search(answer.error_type or "") or _TRANSIENT_WORDS.search(answer.error))


def faults_of(transitions: Iterable[Transition]) -> dict[str, int]:
    """How many calls of an episode were made to fail, by kind."""
    kinds = (fault_kind(entry.answer) for entry in transitions)
    return dict(sorted(Counter(str(kind) for kind in kinds if kind is not None).items()))


_FAILURES: Mapping[FaultKind, tuple[str, str]] = {
    FaultKind.ERROR: ("RuntimeError", "{tool}: 500 Internal Server Error"),
    FaultKind.TIMEOUT: ("TimeoutError", "{tool}: timed out, no answer"),
    FaultKind.TIMEOUT_APPLIED: ("TimeoutError", "{tool}: timed out, no answer"),
    FaultKind.RATE_LIMIT: ("RuntimeError", "{tool}: 429 Too Many Requests; retry after {seconds} s"),
    FaultKind.OUTAGE: ("ConnectionError", "{tool}: 503 Service Unavailable"),
}


def _possible(kind: FaultKind, effect: Effect, wrote: bool) -> bool:
    if kind is FaultKind.TIMEOUT_APPLIED:
        return effect.changes_environment
    return kind is not FaultKind.STALE_READ or (wrote and effect is Effect.READ)


def _drawn(rule: FaultSettings, place: Sequence[object], occurrence: int) -> FaultKind | None:
    if _draw(*place, occurrence, "whether") >= rule.rate:
        return None
    kinds = rule.kinds or (FaultKind.ERROR,)
    return FaultKind(kinds[int(_draw(*place, occurrence, "kind") * len(kinds))])


def _draw(*place: object) -> float:
    """A number in 0..1 that depends on the place and on nothing else, on every machine."""
    raw = hashlib.sha256(canonical(list(place)).encode("ascii")).digest()
    return int.from_bytes(raw[:6], "big") / 2**48


def _cut(content: object, share: float) -> str:
    text = content if isinstance(content, str) else json.dumps(content, ensure_ascii=False)
    return text[: max(1, min(len(text) - 1, int(len(text) * share)))] if len(text) > 1 else ""
