"""Count a run in one pass over its episodes.

It has one episode in memory and keeps a short line of each. The order of episodes does not matter: equal
episodes give an equal summary, so a resumed run reports like an uninterrupted one.
"""

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from math import fsum
from typing import NamedTuple

from dreamgym_kit.dream.faults import took_effect
from dreamgym_kit.report.metrics import (
    CRITICAL,
    EFFECT_ORDER,
    GROUNDED,
    SURE,
    EpisodeLine,
    FindingGroup,
    RunMetrics,
    ToolUse,
    TrustPoint,
    Unanswered,
    natural,
)
from dreamgym_kit.rollout.events import unaccounted
from dreamgym_kit.rollout.rundir import EVENTS, MANIFESTS, RunDirectory
from dreamgym_kit.serialization import JsonValue
from dreamgym_kit.types import Effect, Episode, Executed, Finding, Source, Spend, Transition, format_executed

__all__ = ["RunMetrics", "Tally", "summarize"]


def summarize(
    episodes: Iterable[Episode], manifest: Mapping[str, JsonValue], curve: Iterable[TrustPoint] = ()
) -> RunMetrics:
    """Count a run in one pass; one episode is in memory at a time.

    Args:
        episodes: each once, in any order.
        manifest: the run's manifest: `mode` ("dream" or "record") is read here, the rest is passed on.
        curve: fidelity on held-out recordings, by threshold.
    """
    tally = Tally()
    for episode in episodes:
        tally.add(episode)
    return tally.summary(manifest, curve)


@dataclass(slots=True)
class _FindingTally:
    effect: Effect | None
    places: list[tuple[str, int | None, str]] = field(default_factory=list)  # episode, step, sentence


_AT_THE_END = (
    *("evaluates", "gate", "not_run", "reached", "sandbox", "spent", "stopped", "strays"),
    *("unaccounted", "unaccounted_calls", "unmatched", "reasoned_support", "servers", "environment_facts"),
)
_Why = tuple[str, str, tuple[str, ...]]  # tool, reason, what `[match]` could ignore


class _Unanswered(NamedTuple):
    task: str
    args: Mapping[str, JsonValue]
    crawled: str | None  # the environment of which a crawl makes this very call


def _crawl_answers(step: Transition, before: Sequence[Transition]) -> bool:
    """Whether a crawl makes this call: a read before any write, with at most one value, seen in an answer."""
    if step.effect is not Effect.READ or any(earlier.effect.changes_environment for earlier in before):
        return False
    contents = "".join(str(earlier.answer.content) for earlier in before if not earlier.answer.unanswered)
    return len(step.call.args) <= 1 and all(str(value) in contents for value in step.call.args.values())


@dataclass(slots=True)
class Tally:
    """Counts so far."""

    lines: list[EpisodeLine] = field(default_factory=list)
    tools: dict[str, ToolUse] = field(default_factory=dict)
    findings: dict[tuple[str, str, str | None], _FindingTally] = field(default_factory=dict)
    violations: list[tuple[str, str]] = field(default_factory=list)
    unanswered: dict[_Why, list[_Unanswered]] = field(default_factory=dict)
    executed: list[tuple[str, Executed]] = field(default_factory=list)
    really: list[tuple[str, Executed]] = field(default_factory=list)  # real answers: executed in a dream
    counts: dict[str, int] = field(default_factory=dict)
    real_calls: int = 0
    spoiled_calls: int = 0  # executed calls whose answer a fault replaced; real with real tools
    model_calls: int = 0
    tokens: int = 0
    costs: list[float] = field(default_factory=list)
    spends: dict[str, list[Spend]] = field(default_factory=dict)
    first: float | None = None
    last: float = 0.0

    def add(self, episode: Episode) -> None:
        """Count an episode."""
        before: list[Transition] = []
        for step in episode.transitions:
            self._call(step)
            if step.answer.unanswered:
                self._unanswered(step, episode.task, before)
            before.append(step)
        for name in {step.call.tool for step in episode.transitions}:
            self.tools[name].episodes += 1
        self._findings(episode)
        self._executed(episode)
        self.violations += [(episode.id, text) for text in episode.violations]
        for kind, count in episode.counts.items():
            self.counts[kind] = self.counts.get(kind, 0) + count
        self.model_calls += episode.model_calls
        self.tokens += episode.tokens
        self.costs.append(episode.cost_usd)
        for part, spend in episode.dream_spend.items():
            self.spends.setdefault(part, []).append(spend)
        self.first = episode.started_at if self.first is None else min(self.first, episode.started_at)
        self.last = max(self.last, episode.started_at + episode.elapsed_s)
        self.lines.append(_line(episode))

    def add_missing(self, episodes: Iterable[Episode]) -> None:
        """Count uncounted episodes: errors of an earlier part that were not run again."""
        counted = {line.id for line in self.lines}
        for episode in episodes:
            if episode.id not in counted:
                self.add(episode)

    def charge(self, part: str, spend: Spend) -> None:
        """Add a cost outside of episodes."""
        if spend.calls:
            self.costs.append(spend.cost_usd)
            self.spends.setdefault(part, []).append(spend)

    def _call(self, step: Transition) -> None:
        tool = self.tools.setdefault(step.call.tool, ToolUse(step.call.tool, step.effect))
        tool.calls += 1
        source = str(step.answer.source)
        tool.sources[source] = tool.sources.get(source, 0) + 1
        tool.presumed += step.answer.source in GROUNDED and step.answer.confidence < SURE
        made = step.answer.source is Source.FAULT
        tool.errors += step.answer.error is not None and not made  # faults are counted by source
        if not step.effect.runs_in_dream:
            self.real_calls += step.answer.source is Source.REAL
            self.spoiled_calls += made and took_effect(step.answer)

    def _unanswered(self, step: Transition, task: str, before: Sequence[Transition]) -> None:
        """Group by the first reason; the distance of the best guess differs by call."""
        nearest, why = step.answer.nearest, step.answer.why.partition("; ")[0]
        key = (step.call.tool, why or "the dream cannot tell", nearest.ignore if nearest is not None else ())
        world = str(step.environment) if _crawl_answers(step, before) else None
        self.unanswered.setdefault(key, []).append(_Unanswered(task, step.call.args, world))

    def _executed(self, episode: Episode) -> None:
        """Count reported executed calls, and those known only from a real answer."""
        steps = [
            Executed(step.call.tool, step.call.args)
            for step in episode.transitions
            if step.answer.source is Source.REAL and not step.effect.runs_in_dream
        ]
        for call in episode.executed:
            recorded = next(
                (step for step in steps if (step.tool, step.args) == (call.tool, call.args)), None
            )
            if recorded is None:
                self.executed.append((episode.id, call))
        self.really += [(episode.id, step) for step in steps]

    def _findings(self, episode: Episode) -> None:
        by_step = {step.step: step for step in episode.transitions}
        repeated: set[int] = set()
        wrong: set[int] = set()
        for finding in episode.findings:
            last = finding.steps[-1] if finding.steps else None
            step = by_step.get(last) if last is not None else None
            key = (finding.kind, finding.severity, step.call.tool if step else None)
            group = self.findings.setdefault(key, _FindingTally(step.effect if step else None))
            group.places.append((episode.id, last, finding.text))
            if step is not None:
                repeated |= {step.step} if finding.kind.startswith("repeated") else set()
                wrong |= {step.step} if finding.severity == CRITICAL else set()
        for number in repeated:
            self.tools[by_step[number].call.tool].repeated += 1
        for number in wrong:
            self.tools[by_step[number].call.tool].wrong += 1

    def summary(self, manifest: Mapping[str, JsonValue], curve: Iterable[TrustPoint] = ()) -> RunMetrics:
        """Return the counts; `manifest` and `curve` as for `summarize`."""
        counted = RunMetrics(
            manifest=dict(manifest),
            episodes=tuple(sorted(self.lines, key=lambda line: (natural(line.task), line.repeat, line.id))),
            tools=self._tools(),
            findings=self._groups(),
            violations=tuple(sorted(self.violations, key=lambda pair: natural(pair[0]))),
            real_calls=self.real_calls
            + len(self.executed)
            + self.spoiled_calls * (manifest.get("mode") == "record"),
            counts=dict(sorted(self.counts.items())),
            model_calls=self.model_calls,
            tokens=self.tokens,
            cost_usd=fsum(self.costs),
            elapsed_s=_seconds(manifest) or max(0.0, self.last - (self.first or 0.0)),
            # added so that the sum does not depend on the order of episodes
            dream_spend={
                part: replace(sum(spends, Spend()), cost_usd=fsum(spend.cost_usd for spend in spends))
                for part, spends in sorted(self.spends.items())
            },
            curve=tuple(curve),
            unanswered=self._groups_unanswered(),
        )
        executed = self.executed if counted.really_read else [*self.executed, *self.really]
        return replace(counted, executed=tuple(sorted(executed, key=lambda pair: natural(pair[0]))))

    def _groups_unanswered(self) -> tuple[Unanswered, ...]:
        groups = [
            Unanswered(
                tool,
                why,
                len(calls),
                tuple(sorted({call.task for call in calls}, key=natural)),
                ignore,
                calls[0].args,
                Counter(call.crawled for call in calls if call.crawled is not None),
            )
            for (tool, why, ignore), calls in self.unanswered.items()
        ]
        return tuple(sorted(groups, key=lambda group: (-group.calls, group.tool, group.why, group.ignore)))

    def _tools(self) -> tuple[ToolUse, ...]:
        uses = [replace(use, sources=dict(sorted(use.sources.items()))) for use in self.tools.values()]
        return tuple(sorted(uses, key=lambda use: (EFFECT_ORDER.index(use.effect), -use.calls, use.name)))

    def _groups(self) -> tuple[FindingGroup, ...]:
        groups = []
        for (kind, severity, tool), finding in self.findings.items():
            places = sorted(finding.places, key=lambda place: (natural(place[0]), place[1] or 0, place[2]))
            at = tuple((episode, step) for episode, step, _ in places)
            groups.append(FindingGroup(kind, severity, tool, finding.effect, places[0][2], len(at), at))
        return tuple(sorted(groups, key=_worst_first))


def _seconds(manifest: Mapping[str, JsonValue]) -> float:
    """Return the seconds of all parts of a resumed run, without pauses; 0 if not recorded."""
    spent = manifest.get("spent")
    seconds = spent.get("seconds") if isinstance(spent, Mapping) else None
    return seconds if isinstance(seconds, int | float) else 0.0


def _worst_first(group: FindingGroup) -> tuple[bool, int, int, str, str]:
    effect = len(EFFECT_ORDER) if group.effect is None else EFFECT_ORDER.index(group.effect)
    return group.severity != CRITICAL, effect, -group.count, group.kind, group.tool or ""


def _line(episode: Episode) -> EpisodeLine:
    anomaly, anomaly_step = _worst(episode)
    faults = sum(step.answer.source is Source.FAULT for step in episode.transitions)
    if anomaly is not None and faults:  # faults may explain it, so the reason mentions them
        anomaly += f" (with {faults} injected fault{'s' if faults > 1 else ''})"
    return EpisodeLine(
        id=episode.id,
        task=episode.task,
        repeat=episode.repeat,
        verdict=episode.verdict,
        reason=episode.reason,
        stop=episode.stop,
        calls=len(episode.transitions),
        anomaly=anomaly,
        anomaly_step=anomaly_step,
        elapsed_s=episode.elapsed_s,
        cost_usd=episode.cost_usd,
        uses=_uses(episode),
        faults=faults,
        traceback=episode.traceback,
        blame=episode.blame,
        imagined=any(step.answer.source is Source.IMAGINED for step in episode.transitions),
        would=episode.would,
    )


def _uses(episode: Episode) -> tuple[tuple[str, int, int], ...]:
    """Return each tool with its number of calls and its first step."""
    steps: dict[str, list[int]] = {}
    for step in episode.transitions:
        steps.setdefault(step.call.tool, []).append(step.step)
    return tuple((tool, len(numbers), numbers[0]) for tool, numbers in steps.items())


def _worst(episode: Episode) -> tuple[str | None, int | None]:
    """Return an episode's worst anomaly and its step; None for warnings only."""
    if episode.executed:
        return format_executed(episode.executed), None
    if episode.violations:
        return episode.violations[0], None
    by_step = {step.step: step.effect for step in episode.transitions}

    def rank(finding: Finding) -> int:
        effect = by_step.get(finding.steps[-1]) if finding.steps else None
        return len(EFFECT_ORDER) if effect is None else EFFECT_ORDER.index(effect)

    critical = sorted((finding for finding in episode.findings if finding.severity == CRITICAL), key=rank)
    if not critical:
        return None, None
    return critical[0].text, critical[0].steps[-1] if critical[0].steps else None


def facts_of(directory: RunDirectory) -> dict[str, JsonValue]:
    """Return the manifest with the facts from the end of the run, such as gate and blocked calls."""
    facts = MANIFESTS.write(directory.manifest)
    ended = (directory.read_report() or {}).get("manifest")
    if isinstance(ended, dict):
        facts |= {name: ended[name] for name in _AT_THE_END if name in ended}
    elif directory.mode == "record":  # killed: the event log has its real writes
        lost = unaccounted(directory.path / EVENTS, directory.episodes())
        facts |= {"unaccounted": lost.writes, "unaccounted_calls": lost.calls}
    return facts


def curve_from_json(report: Mapping[str, JsonValue]) -> tuple[TrustPoint, ...]:
    """Read the curve of an earlier report; empty if absent or unreadable."""
    fidelity = report.get("fidelity", report.get("trust"))  # `trust`: key of earlier versions
    points = fidelity.get("curve") if isinstance(fidelity, Mapping) else None
    try:
        return tuple(
            TrustPoint(
                point["confidence"] if "confidence" in point else point["threshold"],
                point["answered"],
                point["exact"],
            )
            for point in points or ()
        )
    except (TypeError, KeyError):
        return ()


def curve_of(directory: RunDirectory) -> list[TrustPoint]:
    """Return the curve measured when the run was made."""
    return list(curve_from_json(directory.read_report() or {}))
