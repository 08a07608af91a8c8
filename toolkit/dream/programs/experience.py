"""The programs of a tenant's tools, and the state of each running episode."""

import hashlib
import json
import threading
import time
import traceback
import warnings
from collections import OrderedDict
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Protocol

from dreamgym_kit.dream.faults import FaultKind, fault_kind, took_effect
from dreamgym_kit.dream.matching import SecretUses
from dreamgym_kit.dream.programs.collections import RecordedCalls
from dreamgym_kit.dream.programs.dreaming import ProgramAnswer, ProgramEpisode
from dreamgym_kit.dream.programs.mining import mine
from dreamgym_kit.dream.programs.model import Model
from dreamgym_kit.dream.programs.notation import packed, unpacked
from dreamgym_kit.dream.programs.rules_files import Contradiction, ToolRules, contradictions, with_declared
from dreamgym_kit.dream.programs.scope import Parameters
from dreamgym_kit.dream.programs.trust import MININGS, CurvePoint, Trust, measure
from dreamgym_kit.dream.programs.values import step_of, without_defaults
from dreamgym_kit.dream.recorded_episodes import HistoryStep, RecordedEpisode, recordings
from dreamgym_kit.dream.recorded_episodes import step_of as history_step
from dreamgym_kit.interfaces import Situation
from dreamgym_kit.serialization import JsonValue, escaped_args
from dreamgym_kit.types import Answer, Call, Source, ToolSpec, Transition

CRAWL = "crawl:"
"""Prefix of the ids of crawled episodes."""
_CRAWLED = 30  # calls of an episode that only reads, from which on it is taken for a crawl
_MAX_MEASURED = 4_000  # calls that are mined again to learn what confidence is worth
_MAX_EPISODES = 4_096  # whose states are kept; a forgotten one is followed again from its history
_REAL = (Source.REAL, Source.RECORDED)

MINER = hashlib.sha256(
    b"".join(file.read_bytes() for file in sorted(Path(__file__).parents[1].rglob("*.py")))
).hexdigest()
"""The version of all code that mining depends on."""
AllRecordings = Callable[[str], Iterable[Transition]]
"""Gives every transition recorded for one tenant, in the order recorded."""


class KeptPrograms(Protocol):
    """Keeps what was mined, by the digest of what it was mined from. Neither raises."""

    def read(self, digest: str) -> JsonValue:
        """Return what is stored under this digest; None if there is nothing, or it is damaged."""

    def write(self, digest: str, mined: JsonValue) -> None:
        """Keep it."""


@dataclass(frozen=True, slots=True)
class Programs:
    """The mined programs of a tenant's tools."""

    model: Model
    trust: Trust
    asking: frozenset[str] = frozenset()  # tools that asked a person in some recording: a reply decides
    secrets: SecretUses = field(default_factory=lambda: SecretUses(()))
    rejected: tuple[Contradiction, ...] = ()  # the first of each tool whose rules recordings contradict


class ProgramTracker:
    """Episodes over the programs of a tenant's tools. Hold `lock` while asking.

    Args:
        all_recordings: what programs are mined from, once for each tenant.
        specs: the agent's tools: which arguments have which defaults. Of a tool that is not among them, the
            arguments that all its recorded calls have are taken for required.
        rules: what a person wrote, by tool.
        measured: whether recordings are held out to learn what confidence is worth; costs most of the mining.
        program_store: holds programs mined by earlier runs; None: every run mines anew.

    Attributes:
        watch: receives, during mining, the share done (0..1) and the seconds so far; an exception from it
            ends the mining.
    """

    def __init__(
        self,
        all_recordings: AllRecordings,
        specs: Mapping[str, ToolSpec],
        *,
        rules: Mapping[str, ToolRules] | None = None,
        measured: bool = True,
        program_store: KeptPrograms | None = None,
    ) -> None:
        self._program_store = program_store
        self.watch: Callable[[float, float], None] = lambda *_: None
        self._all, self._specs, self._rules, self._measured = all_recordings, specs, rules or {}, measured
        self._programs: dict[str, Programs] = {}
        self._episodes: OrderedDict[tuple[str, str, str], _Followed] = OrderedDict()
        self.lock = threading.Lock()

    def curve(self, tenant: str) -> tuple[CurvePoint, ...]:
        """Return the threshold curve on held-out recordings; empty if nothing or too little was mined."""
        programs = self._programs.get(tenant)
        return programs.trust.curve() if programs is not None else ()

    def programs(self, tenant: str) -> Programs:
        """Return a tenant's programs, mining them on the first call."""
        if tenant not in self._programs:
            rows, began = list(self._all(tenant)), time.monotonic()
            asking = frozenset(row.call.tool for row in rows if row.call.replies)
            try:
                episodes = recordings(rows)
                mined = learn(
                    episodes,
                    self._specs,
                    rules=self._rules,
                    measured=self._measured,
                    program_store=self._program_store,
                    watch=lambda share: self.watch(share, time.monotonic() - began),
                )
            except Exception as error:  # noqa: BLE001  other sources answer all the same
                _warn("No programs could be mined from the recordings", error)
                mined = learn([], self._specs, rules=self._rules)
            self._programs[tenant] = replace(mined, asking=asking, secrets=SecretUses(rows))
        return self._programs[tenant]

    def consider(self, call: Call, situation: Situation) -> ProgramAnswer | None:
        """Return a program's prediction for a call, at any confidence; None where no program has one."""
        if call.tool in self.programs(situation.tenant).asking:
            return None
        try:
            dream, args = self.before(call, situation)
            return dream.consider(call.tool, args)
        except Exception as error:  # noqa: BLE001  other sources answer all the same
            _warn(f"No program answers {call.tool} in episode {situation.episode}", error)
            return None

    def before(self, call: Call, situation: Situation) -> tuple[ProgramEpisode, dict[str, JsonValue]]:
        """The episode as a call meets it, and the call's arguments as programs see them.

        What is made up next depends on the call and its situation alone.
        """
        dream = self.follow(situation)
        dream.seed(f"{situation.environment} {situation.after} {call.key}")
        return dream, without_defaults(escaped_args(call.args), _defaults(dream.model.parameters, call.tool))

    def follow(self, situation: Situation) -> ProgramEpisode:
        """The episode after its history, from where it was followed to last time."""
        programs = self.programs(situation.tenant)
        key = (situation.tenant, str(situation.environment), situation.episode)
        followed = self._episodes.get(key)
        if followed is None or not followed.precedes(situation.history):
            world = f"{situation.tenant}/{situation.environment}"
            followed = _Followed(ProgramEpisode(programs.model, world, programs.trust))
        for entry in list(situation.history)[len(followed.marks) :]:
            followed.take(entry)
        self._episodes[key] = followed
        self._episodes.move_to_end(key)
        while len(self._episodes) > _MAX_EPISODES:
            self._episodes.popitem(last=False)
        return followed.dream


class _Followed:
    """An episode as far as it was followed."""

    def __init__(self, dream: ProgramEpisode) -> None:
        self.dream = dream
        self.marks: list[tuple[str, int, Answer]] = []

    def precedes(self, history: Sequence[Transition]) -> bool:
        """Whether this is an earlier point of that history."""
        return len(self.marks) <= len(history) and all(
            mark == _mark(later) for mark, later in zip(self.marks, history, strict=False)
        )

    def take(self, entry: Transition) -> None:
        """Go on by one answered call."""
        self.marks.append(_mark(entry))
        if entry.effect.runs_in_dream:
            return
        defaults = _defaults(self.dream.model.parameters, entry.call.tool)
        step = step_of(history_step(entry), defaults)
        fault = fault_kind(entry.answer)
        if entry.answer.unanswered or fault not in (None, FaultKind.SLOW):
            # what a fault says is no fact; a write that went through under it has changed something unseen
            if entry.answer.unanswered or took_effect(entry.answer):
                self.dream.unseen(step.tool, step.args)
                self.dream.changed(entry.answer.changes, entry.answer.confidence)
            return
        self.dream.observe(step, None if entry.answer.source in _REAL else entry.answer.confidence)
        self.dream.changed(entry.answer.changes, entry.answer.confidence)


def learn(
    episodes: Sequence[RecordedEpisode],
    specs: Mapping[str, ToolSpec],
    *,
    rules: Mapping[str, ToolRules] | None = None,
    measured: bool = True,
    program_store: KeptPrograms | None = None,
    watch: Callable[[float], None] = lambda _: None,
) -> Programs:
    """Mine programs from recordings, and measure them on recordings held out from mining.

    `rules` replace the mined programs of their tools, unless a recording contradicts them. `program_store`:
    see `ProgramTracker`; `watch`: see `mine`.
    """
    steps = [step for episode in episodes for step in episode.steps]
    parameters = _parameters(steps, specs)
    writes = frozenset(step.tool for step in steps if step.writes)
    teaching: list[RecordedCalls] = []
    crawled: list[RecordedCalls] = []
    for number, episode in enumerate(episodes):
        calls = seen_calls(episode, parameters, number)
        only_reads = not any(step.writes for step in episode.steps)
        crawl = only_reads and (episode.id.startswith(CRAWL) or len(calls.steps) >= _CRAWLED)
        (crawled if crawl else teaching).append(calls)
    seen = (teaching, parameters, writes, crawled)
    tried = _newest(teaching, _MAX_MEASURED) if measured else []

    schemas = {name: spec.args_schema for name, spec in specs.items()}
    given = (
        [MINER, measured, schemas, [(episode.id, episode.world, episode.steps) for episode in episodes]]
        if program_store
        else []
    )
    digest = hashlib.sha256(json.dumps(given, sort_keys=True).encode()).hexdigest()
    mined = _read(program_store, digest, seen)
    if mined is None:
        model = mine(*seen, watch=lambda part: watch(part / (1 + MININGS)))
        trust = measure(tried, *seen[1:], lambda done: watch((1 + done) / (1 + MININGS)))
        with suppress(KeyError, RecursionError):  # of another kind, or nested deeply: it is mined each time
            if program_store is not None:
                program_store.write(digest, packed((model.mined_parts(), trust.counts, trust.calls)))
        mined = model, trust
    model, trust = mined
    model, rejected = _with_rules(model, rules or {}, teaching)
    return Programs(model, trust, rejected=rejected)


def _read(
    program_store: KeptPrograms | None, digest: str, seen: tuple[Any, ...]
) -> tuple[Model, Trust] | None:
    """Return stored programs; None if there are none, or they do not fit these recordings."""
    stored = program_store.read(digest) if program_store is not None else None
    if stored is None:
        return None
    try:
        mined, counts, calls = unpacked(stored)
        return mine(*seen, mined=mined), Trust(counts, calls)
    except Exception:  # noqa: BLE001  a foreign file may have a right checksum; it is replaced
        return None


def seen_calls(
    episode: RecordedEpisode, parameters: Mapping[str, Parameters], number: float = 0
) -> RecordedCalls:
    """Convert a recorded episode for mining; of two episodes, the one with the higher `number` is newer."""
    steps = (step_of(step, _defaults(parameters, step.tool)) for step in episode.steps)
    number = number if episode.at is None else episode.at
    return RecordedCalls(episode.id, episode.world, tuple(steps), number)


def _with_rules(
    mined: Model, rules: Mapping[str, ToolRules], episodes: Sequence[RecordedCalls]
) -> tuple[Model, tuple[Contradiction, ...]]:
    """Return the model with all uncontradicted rules, and the first contradiction of each rejected file."""
    rejected: dict[str, Contradiction] = {}
    while True:
        used = {tool: tool_rules for tool, tool_rules in rules.items() if tool not in rejected}
        model = with_declared(mined, used)
        contradiction = next(contradictions(model, episodes), None) if used else None
        if contradiction is None:
            return model, tuple(rejected.values())
        rejected[contradiction.tool] = contradiction
        text = f"rules/{contradiction.tool}.toml is not used: {contradiction.describe()}"
        warnings.warn(text, UserWarning, stacklevel=2)


def _newest(episodes: Sequence[RecordedCalls], most: int) -> list[RecordedCalls]:
    newest: list[RecordedCalls] = []
    for episode in reversed(episodes):
        most -= len(episode.steps)
        if most < 0:
            break
        newest.append(episode)
    return newest[::-1]


def _parameters(steps: Sequence[HistoryStep], specs: Mapping[str, ToolSpec]) -> dict[str, Parameters]:
    declared = {name: Parameters(spec.args_schema) for name, spec in specs.items() if spec.args_schema}
    given: dict[str, list[frozenset[str]]] = {}
    for step in steps:
        if step.tool not in declared:
            given.setdefault(step.tool, []).append(frozenset(step.args))
    return declared | {
        tool: Parameters.required_only(frozenset.intersection(*names)) for tool, names in given.items()
    }


def _defaults(parameters: Mapping[str, Parameters], tool: str) -> Mapping[str, object]:
    tool_parameters = parameters.get(tool)
    return tool_parameters.defaults if tool_parameters is not None else {}


def _warn(subject: str, error: Exception) -> None:
    place = traceback.extract_tb(error.__traceback__)[-1]
    where = f"{Path(place.filename).name}:{place.lineno}"
    text = f"{subject}: {type(error).__name__}: {error} ({where}). Please report it."
    warnings.warn(text, RuntimeWarning, stacklevel=2)


def _mark(entry: Transition) -> tuple[str, int, Answer]:
    """Tells the calls of one episode apart, and an episode that is run again from its first run."""
    return entry.call.key, entry.step, entry.answer
