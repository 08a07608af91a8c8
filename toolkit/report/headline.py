"""A run in words, by fixed rules: its verdict, broken rules and figures, for every output.

The first line is the verdict with the counts of all episodes. Below are the broken gate rules, the reasons of
episodes that did not pass (equal reasons once), and the figures, the pass rate first.
"""

import json
import re
import shlex
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple

from dreamgym_kit.report.gate_rules import Rule, verdict_of
from dreamgym_kit.report.metrics import (
    CRITICAL,
    GROUNDED,
    EpisodeLine,
    FindingGroup,
    RunMetrics,
    TrustPoint,
    Unanswered,
)
from dreamgym_kit.report.percent import duration, format_count, format_some, whole_bounds, whole_percent
from dreamgym_kit.report.sanitize import one_line, shown
from dreamgym_kit.rollout.tasks import selectable
from dreamgym_kit.sandbox.confining import NONE, Confinement
from dreamgym_kit.serialization import JsonValue
from dreamgym_kit.types import REACHED, Source, Verdict

EVALUATES = "evaluates"  # manifest key of an evaluation: "measured" without a requirement, or "required"
_TOOLS_NAMED = 5  # and hosts and episodes named in a line
_REASONS = 6  # reasons of unanswered calls
_STEPS = 3  # to answer unanswered calls
_SHOWN = 100  # characters of a call
_SELECTED = 8  # tasks named in a command
_BARE_KEY = re.compile(r"[A-Za-z0-9_-]+")  # a TOML key without quotes
_INTERRUPTED = ("SIGINT", "SIGTERM", "SIGHUP", "interrupted")
_EXPLAINED = ("forbid", "max_calls", "fail_on", "detectors", "episodes")  # rules that need more than figures
_SURE = 0.5  # default confidence that a dream requires
_NOT_ALSO = ("abstained", "judges_agree", "judges_disagree")  # counts with their own line


def word(summary: RunMetrics, *, also: Sequence[Rule] = ()) -> str:
    """Return the run's verdict in capitals: "PASSED", or "INCONCLUSIVE (interrupted)" for an interrupted run.

    A recording without problems is RECORDED, because it judges no agent; an evaluation without a required
    rate is EVALUATED. `also`: rules in addition to those of the gate.
    """
    verdict, evaluates = verdict_of((*summary.rules(), *also)), summary.fact(EVALUATES)
    if verdict is Verdict.PASSED:
        rests = any(line.imagined for line in summary.episodes if line.verdict.conclusive)
        measured = "RECORDED" if summary.fact("mode") == "record" and evaluates is None else verdict.upper()
        measured = "EVALUATED" if evaluates == "measured" else measured
        return f"{measured} (imagined)" if rests else measured
    if verdict is not Verdict.INCONCLUSIVE or not summary.not_run:
        return verdict.upper()
    stopped = str(summary.fact("stopped") or "")
    return f"{verdict.upper()} ({'interrupted' if stopped in _INTERRUPTED else 'unfinished'})"


def format_counts(counts: Mapping[Verdict, int]) -> str:
    """Format the episodes of each verdict: "21 passed, 1 failed, 10 inconclusive, 0 errors"."""
    errors = counts[Verdict.ERROR]
    parts = [f"{counts[verdict]} {verdict}" for verdict in Verdict if verdict is not Verdict.ERROR]
    return ", ".join([*parts, f"{errors} error{'s'[: errors != 1]}"])


def headline(summary: RunMetrics, *, also: Sequence[Rule] = ()) -> str:
    """Return the verdict with the counts of all episodes; `also` as for `word`."""
    counts, imagined = format_counts(summary.by_verdict), format_would(summary)
    if imagined:
        inconclusive = f"{summary.inconclusive} {Verdict.INCONCLUSIVE}"
        counts = counts.replace(inconclusive, f"{inconclusive} (imagined: {imagined})")
    return f"{word(summary, also=also)}  {counts}"


def format_would(summary: RunMetrics) -> str:
    """Format the verdicts that inconclusive episodes would have if imagined answers counted; may be ""."""
    if not any(line.imagined for line in summary.episodes if line.verdict is Verdict.INCONCLUSIVE):
        return ""
    return f"{summary.would(Verdict.PASSED)} would pass, {summary.would(Verdict.FAILED)} would fail"


def format_broken(rules: Sequence[Rule]) -> list[str]:
    """Format each broken rule of a gate: "gate min_pass_rate: 88%, required 100%"."""
    return [_broken(rule) for rule in rules if not rule.passed]


def _broken(rule: Rule) -> str:
    text = f"gate {one_line(rule.key)}: {rule.measured}, {rule.limit}"
    return f"{text}: {one_line(rule.why)}" if rule.key.startswith(_EXPLAINED) and rule.why else text


def format_pass_rate(summary: RunMetrics) -> str:
    """Format the pass rate of conclusive episodes, its interval by task, and its range with the others."""
    once = summary.once
    if once is None:
        return "not known: no episode is conclusive" if summary.episodes else "not known: no episode was run"
    tasks, whole = once.tasks, len(summary.tasks)
    sizes = {len(lines) for lines in summary.tasks.values()}
    repeats = f" x {max(sizes)} repeats" if max(sizes) > 1 else ""
    repeats = f", {format_count(len(summary.episodes), 'episode')}" if len(sizes) > 1 else repeats
    low, high = whole_bounds(once.low, once.high)
    of = f"{format_count(tasks, 'task')}{repeats}"
    of = f"the {tasks} conclusive task{'s'[: tasks != 1]}" if tasks < whole else of
    text = f"{whole_percent(once.mean)}% of {of} (95% CI {low}-{high}%, by task)"
    left = summary.inconclusive + summary.errors
    if left:
        low, high = whole_bounds(once.worst, once.best)
        which = "one that is not conclusive" if left == 1 else f"{left} that are not conclusive"
        text += f"; {low}-{high}% with the {which} failed or passed"
    return text


_ID = re.compile(r"\b(?=[\w-]*\d)[\w-]{12,}|\b0x[0-9a-f]+")
"""Matches request IDs and memory addresses, which differ between equal errors."""


@dataclass(frozen=True, slots=True)
class Cause:
    """A reason why episodes did not pass."""

    verdict: Verdict
    episodes: tuple[str, ...]
    reason: str
    traceback: tuple[str, ...] = ()
    outcome: str = ""  # the displayed verdict

    def __str__(self) -> str:
        name, *more = (one_line(episode) for episode in self.episodes)
        if self.verdict is Verdict.ERROR and more:
            return f"{len(self.episodes)} episodes  {self.outcome or self.verdict}: {one_line(self.reason)}"
        same = format_some([_short_id(other, name) for other in more], _TOOLS_NAMED)
        text = f"{name}  {self.outcome or self.verdict}: {one_line(self.reason)}"
        return f"{text} (same in {same})" if more else text


def _short_id(other: str, name: str) -> str:
    """Return ".2" for "books.2" after "books.1"."""
    task, dot, repeat = other.rpartition(".")
    return f".{repeat}" if dot and task == name.rpartition(".")[0] else other


def _same(line: EpisodeLine) -> str:
    """Return the key of equal causes: without an error's request IDs and the text before it."""
    if line.verdict is not Verdict.ERROR:
        return line.reason.partition("; confidence ")[0]
    return _ID.sub("*", line.reason.partition("; before that")[0])


def causes(summary: RunMetrics) -> list[Cause]:
    """Return why episodes did not pass: failures, errors, inconclusive; the most frequent first."""
    by_cause: dict[tuple[object, ...], list[EpisodeLine]] = {}
    for lines in summary.tasks.values():
        for line in lines:
            if line.verdict is not Verdict.PASSED:
                task = line.task if line.verdict is Verdict.FAILED else ""
                by_cause.setdefault((line.verdict, task, _same(line)), []).append(line)
    order = (Verdict.FAILED, Verdict.ERROR, Verdict.INCONCLUSIVE)
    groups = sorted(by_cause.values(), key=lambda lines: (order.index(lines[0].verdict), -len(lines)))
    return [
        Cause(
            lines[0].verdict,
            tuple(line.id for line in lines),
            lines[0].reason,
            lines[0].traceback,
            lines[0].outcome,
        )
        for lines in groups
    ]


def format_real(summary: RunMetrics) -> str:
    """Format the real calls of a run."""
    if summary.really_read:
        lost = summary.fact("unaccounted_calls")
        more = f"; {lost} more in episodes that did not finish" if isinstance(lost, int) and lost else ""
        return f"{summary.real_calls} of {format_count(summary.calls, 'tool call')}, as asked{more}"
    strays = summary.fact("strays")
    blocked = len(summary.violations) + (len(strays) if isinstance(strays, list) else 0)
    return (
        f"{len(summary.executed)} executed, {blocked} blocked, of {format_count(summary.calls, 'tool call')}"
    )


def format_changes(summary: RunMetrics) -> str:
    """Format the agent's (simulated) changes that were answered, destructive ones first."""
    answered = {tool.name: tool.calls - tool.sources.get(Source.UNANSWERED, 0) for tool in summary.tools}
    changing = [tool for tool in summary.tools if tool.effect.changes_environment and answered[tool.name]]
    if not changing:
        return f"none{' but these' if summary.executed else ''}"
    named = format_some(
        [f"{one_line(tool.name)} {answered[tool.name]}" for tool in changing], _TOOLS_NAMED, " tools"
    )
    wrong = sum(tool.wrong for tool in changing)
    made = "made" if summary.recorded else "simulated"
    return f"{made}: {named}" + (f"; {wrong} of these wrong" if wrong else "")


def format_unaccounted(summary: RunMetrics) -> str:
    """Format real writes of episodes that were cut, lost or run again; "" if there are none."""
    lost = summary.fact("unaccounted")
    if not isinstance(lost, list) or not lost:
        return ""
    named = [
        f"{one_line(str(row['tool']))} {row['calls']} in {one_line(str(row['episode']))}" for row in lost
    ]
    return f"real writes, done or begun, that no finished episode lists: {format_some(named, _TOOLS_NAMED)}"


def format_coverage(summary: RunMetrics) -> str:
    """Format the share of answers from recordings and rules, and the sources of all answers."""
    if summary.grounded is None:
        return "no call was answered by the dream"
    counts = summary.sources
    rules = any(counts.get(source) for source in GROUNDED if source is not Source.RECORDED)
    dreamt = sum(tool.dreamt for tool in summary.tools)
    came = {source: counts.get(source, 0) for source in (*GROUNDED, Source.MODEL, Source.IMAGINED)}
    parts = [f"{count} {source}" for source, count in came.items() if count]
    parts += [f"{summary.presumed} of these presumed"] if summary.presumed else []
    parts += [f"{summary.abstentions} unanswered"] if summary.abstentions else []
    source = f"recordings{' and rules' if rules else ''}"
    text = f"{whole_percent(summary.grounded)}% of {format_count(dreamt, 'call')} answered from {source}"
    text += f": {', '.join(parts)}" if parts else ""
    weakest = summary.weakest
    if weakest is not None:
        text += f"; weakest: {one_line(weakest.name)} ({weakest.grounded} of {weakest.dreamt})"
    return text


def format_imagined(summary: RunMetrics) -> str:
    """Format imagined answers by tool, and the tasks to record first; "" if there are none."""
    invented = {tool.name: count for tool in summary.tools if (count := tool.sources.get(Source.IMAGINED, 0))}
    if not invented:
        return ""
    named = [f"{one_line(name)} {count}" for name, count in sorted(invented.items(), key=lambda row: -row[1])]
    text = (
        f"{sum(invented.values())} answers that prove nothing: {format_some(named, _TOOLS_NAMED, ' tools')}"
    )
    imagined_facts = summary.fact("environment_facts")
    replaced = (
        [str(why) for row in imagined_facts if isinstance(row, Mapping) for why in row.get("replaced") or ()]
        if isinstance(imagined_facts, list)
        else []
    )
    if replaced:
        text += f"; recordings replaced {len(replaced)} earlier ones: {one_line(replaced[0])}"
    tasks = _covering(summary, set(invented))
    if tasks and all(map(selectable, tasks)):
        text += f"; record first: {_record(summary)} -k {shlex.quote(' or '.join(tasks[:_SELECTED]))}"
    return text


def _covering(summary: RunMetrics, left: set[str]) -> list[str]:
    """Return a small set of tasks that together call all these tools."""
    used = {
        task: {tool for line in lines for tool, _, _ in line.uses} for task, lines in summary.tasks.items()
    }
    tasks: list[str] = []
    while left and used and used[best := max(used, key=lambda task: len(left & used[task]))] & left:
        tasks.append(best)
        left = left - used.pop(best)
    return tasks


def format_unanswered(summary: RunMetrics) -> list[str]:
    """Format unanswered calls by tool and reason, one line each, the most frequent first."""
    named = summary.unanswered[:_REASONS]
    digits = max((len(f"{row.calls:,}") for row in named), default=0)
    width = max((len(one_line(row.tool)) for row in named), default=0)
    lines = [
        f"{row.calls:>{digits},} {one_line(row.tool):<{width}}  "
        f"{one_line(row.why.removeprefix(f'{row.tool} '))}"
        for row in named
    ]
    left = sum(row.calls for row in summary.unanswered[_REASONS:])
    return [*lines, f"and {format_count(left, 'other call')}"] if left else lines


def format_to_answer(summary: RunMetrics) -> list[str]:
    """Format how to answer unanswered calls: settings to add, tasks to record."""
    return [
        line for step in answer_steps(summary) for line in (step.text, *(f"  {text}" for text in step.lines))
    ]


class AnswerStep(NamedTuple):
    """A step after which so many of the run's unanswered calls are answered, if the agent asks them again."""

    calls: int
    text: str
    lines: tuple[str, ...]  # to add to dreamgym.toml, or to type


def answer_steps(summary: RunMetrics) -> list[AnswerStep]:
    """Return the three steps that answer most unanswered calls: settings, calls to record, crawls."""
    rows = () if summary.recorded else summary.unanswered
    steps = [*_ignoring(rows), *_recording(rows, summary), *_crawling(rows, summary)]
    return sorted(steps, key=lambda step: -step.calls)[:_STEPS]


def _ignoring(rows: Sequence[Unanswered]) -> Iterator[AnswerStep]:
    ignored: dict[str, set[str]] = {}
    for row in rows:
        ignored.setdefault(row.tool, set()).update(row.ignore)
    name = {
        tool: tool if _BARE_KEY.fullmatch(tool) else json.dumps(tool) for tool in ignored if ignored[tool]
    }
    width = max(map(len, name.values()), default=0)
    lines = [
        f"{key:<{width}} = {{ ignore = {json.dumps(sorted(ignored[tool]))} }}" for tool, key in name.items()
    ]
    if answers := sum(row.calls for row in rows if row.ignore):
        text = "If these arguments do not change the answer, add to dreamgym.toml"
        yield AnswerStep(answers, f"{text} (answers {answers:,}):", ("[match]", *lines))


def _recording(rows: Sequence[Unanswered], summary: RunMetrics) -> Iterator[AnswerStep]:
    for tool in dict.fromkeys(row.tool for row in rows):
        mine = [row for row in rows if row.tool == tool]
        tasks = dict.fromkeys(task for row in mine for task in row.tasks)
        calls = sum(row.calls for row in mine)
        some = len(tasks) < len(summary.tasks) and len(tasks) <= _SELECTED and all(map(selectable, tasks))
        more = f" and {calls - 1:,} more" if calls > 1 else ""
        args = ", ".join(f"{name}={value!r}" for name, value in mine[0].args.items())
        call = shown(one_line(f"{tool}({args})"), _SHOWN)
        command = _record(summary) + (f" -k {shlex.quote(' or '.join(tasks))}" if some else "")
        yield AnswerStep(calls, f"Record {call}{more} (answers {calls:,}):", (command,))


def _record(summary: RunMetrics) -> str:
    """Return the command that records the run's tasks."""
    return str(summary.fact("record") or "dreamgym-kit record")


def _crawling(rows: Sequence[Unanswered], summary: RunMetrics) -> Iterator[AnswerStep]:
    worlds = Counter[str]()
    for row in rows:
        worlds.update(row.crawls)
    crawl = ["crawl" if word == "record" else word for word in shlex.split(_record(summary))]
    if "--tasks" in crawl:  # what their texts name is read beside what recordings name: more calls
        at = crawl.index("--tasks")
        del crawl[at : at + 2]
    for world, calls in worlds.items():
        if one_line(world) != world:
            continue  # it cannot be typed
        command = shlex.join([*crawl, "--environment", world])
        yield AnswerStep(calls, f"Crawl {world} (answers {calls:,}):", (command,))


def fidelity_point(summary: RunMetrics) -> TrustPoint | None:
    """Return the shares of held-out recordings at the run's confidence; None: not measured."""
    threshold = summary.fact("threshold")
    required = threshold if isinstance(threshold, int | float) else _SURE
    points = [point for point in summary.curve if point.threshold <= required + 1e-9]
    return max(points, key=lambda point: point.threshold, default=None)


def format_fidelity(summary: RunMetrics) -> str:
    """Format the dream's fidelity on held-out recordings; "" if not measured."""
    parts = []
    if (point := fidelity_point(summary)) is not None:
        exact = point.answered * (point.exact or 0.0)
        parts.append(
            f"{whole_percent(exact)}% of held-out recordings reproduced exactly "
            f"({whole_percent(point.answered)}% answered)"
        )
    tried = summary.fact("reasoned_support")
    if isinstance(tried, list) and tried:
        right, count = (sum(row[name] for row in tried) for name in ("right", "tried"))
        parts.append(f"the model was right in {right} of {count} held-out calls")
    return "; ".join(parts)


def format_guard(summary: RunMetrics) -> str:
    """Format the isolation of a dream; "" if the run does not state it."""
    sandbox = summary.fact("sandbox")
    if not isinstance(sandbox, Mapping):
        return ""
    stands = Confinement(str(sandbox.get("kind")), one_line(str(sandbox.get("why"))))
    return f"egress guard only, {stands}" if stands.kind == NONE else f"egress guard and {stands}"


def format_reached(summary: RunMetrics) -> str:
    """Format the reached allowed hosts, except those of models; "" if there are none."""
    named = [
        f"{one_line(host)} in {format_count(n, 'episode')}" if n else f"{one_line(host)} outside of episodes"
        for host, n in summary.reached.items()
    ]
    return f"for real: {format_some(named, _TOOLS_NAMED, ' hosts')}" if named else ""


def format_faults(summary: RunMetrics) -> str:
    """Format the injected faults and the verdicts of their episodes; "" if there are none."""
    if not summary.faults:
        return ""
    parts = [
        f"{summary.faulted(verdict)} of {count} {verdict}"
        for verdict, count in summary.by_verdict.items()
        if count
    ]
    return f"{format_count(summary.faults, 'call')} made to fail, in {', '.join(parts)} episodes"


def format_findings(summary: RunMetrics) -> str:
    """Format the number of findings, and the worst; those of inconclusive episodes last, without names."""
    counted = {line.id for line in summary.episodes if line.counted}
    lead = [group for group in summary.findings if any(episode in counted for episode, _ in group.at)]
    parts = []
    for severity in (CRITICAL, "warning"):
        count = sum(
            sum(episode in counted for episode, _ in group.at)
            for group in lead
            if (group.severity == CRITICAL) is (severity == CRITICAL)
        )
        if count:
            parts.append(f"{count} critical" if severity == CRITICAL else format_count(count, "warning"))
    whole = sum(group.count for group in summary.findings)
    rest = whole - sum(sum(episode in counted for episode, _ in group.at) for group in lead)
    named = f": {_place(lead[0], counted)}" if lead else ""
    more = [f"{rest} in episodes that are not conclusive"] if rest else []
    return "; ".join([*([", ".join(parts) + named] if parts else []), *more])


def _place(group: FindingGroup, counted: set[str]) -> str:
    episode, step = next(place for place in group.at if place[0] in counted)
    return f"{one_line(group.kind)} in {one_line(episode)}{f', call {step}' if step is not None else ''}"


def format_judges(summary: RunMetrics) -> str:
    """Format how often the LLM judge agreed with the checker; "" without a judge."""
    agreed, differed = summary.judges
    if not agreed + differed:
        return ""
    return f"a model beside the checker agreed {agreed} of {agreed + differed} times"


def format_also(summary: RunMetrics) -> str:
    """Format other counts; "" if there are none."""
    return ", ".join(
        format_count(count, one_line(name).replace("_", " ").removesuffix("s"))
        for name, count in summary.counts.items()
        if name not in _NOT_ALSO and name.removeprefix(REACHED) not in summary.reached
    )


def format_usage(summary: RunMetrics) -> str:
    """Format model calls, tokens, dollars and seconds of the whole run."""
    parts = [format_count(summary.model_calls, "model call")]
    parts += [format_count(summary.tokens, "token")] if summary.tokens else []
    parts += [f"USD {summary.cost_usd:.2f}"] if summary.cost_usd else []
    return ", ".join([*parts, duration(summary.elapsed_s)])


def format_dream_usage(summary: RunMetrics) -> str:
    """Format the model usage of each part of the dream; "" if there is none."""
    parts = []
    for part, spend in summary.dream_spend.items():
        figures = [format_count(spend.calls, "answer"), format_count(spend.tokens, "token")]
        if spend.cached_share is not None:
            figures.append(f"{whole_percent(spend.cached_share)}% of its prompts from the prefix cache")
        figures += [f"USD {spend.cost_usd:.2f}"] if spend.cost_usd else []
        parts.append(f"{one_line(part)} {', '.join(figures)}")
    return "; ".join(parts)


def format_servers(rows: JsonValue) -> list[str]:
    """Format each server's counts during the run, one sentence each; `rows`: the report's "servers"."""
    return [_format_server(row) for row in rows if isinstance(row, Mapping)] if isinstance(rows, list) else []


def _format_server(row: Mapping[str, JsonValue]) -> str:
    facts = {name: value if isinstance(value, int | float) else 0 for name, value in row.items()}
    has_share = row.get("cached_share") is not None
    share = f" ({whole_percent(facts['cached_share'])}% cached)" if has_share else ""
    return (
        f"{one_line(str(row.get('server', '')))} read {facts.get('prompt_tokens', 0):,} tokens{share}, wrote "
        f"{facts.get('generated_tokens', 0):,}; at most {facts.get('most_running', 0):,} requests ran and "
        f"{facts.get('most_waiting', 0):,} waited"
    )


def format_figures(summary: RunMetrics) -> list[tuple[str, str]]:
    """Return the figures below a verdict as (label, text); empty ones are left out."""
    dreamt = not summary.recorded
    unanswered = format_unanswered(summary) if dreamt else []
    rows = [
        ("Pass rate", format_pass_rate(summary)),
        ("Real calls", format_real(summary)),
        ("Guard", format_guard(summary)),
        ("Reached", format_reached(summary)),
        ("Side effects", format_changes(summary)),
        ("Unaccounted", format_unaccounted(summary)),
        ("Coverage", format_coverage(summary) if dreamt else ""),
        ("Imagined", format_imagined(summary)),
        *(("" if place else "Unanswered", line) for place, line in enumerate(unanswered)),
        ("Fidelity", format_fidelity(summary) if dreamt else ""),
        ("Findings", format_findings(summary)),
        ("Faults", format_faults(summary)),
        ("Judges", format_judges(summary)),
        ("Also", format_also(summary)),
        ("Usage", format_usage(summary)),
        ("Dream usage", format_dream_usage(summary)),
        *(("Server", server) for server in format_servers(summary.fact("servers"))),
    ]
    return [(label, text) for label, text in rows if text]
