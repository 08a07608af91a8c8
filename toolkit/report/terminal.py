"""A run on the terminal: matrix, gate, what it would have done, what to trust. 80 columns, ASCII.

Lays out what `figures` says and decides nothing. Text from tools, tasks and models passes `clean`;
ids are never cut, since they are what one copies.
"""

import textwrap
from collections.abc import Mapping, Sequence
from itertools import groupby

from dreamgym_kit.plain import JsonValue
from dreamgym_kit.report.clean import one_line, shown
from dreamgym_kit.report.executed import executed_of, what_to_do
from dreamgym_kit.report.figures import CRITICAL, GROUNDED, EpisodeLine, FindingGroup, Summary, ToolUse
from dreamgym_kit.report.headline import headline, stamp
from dreamgym_kit.report.paint import PLAIN, Paint
from dreamgym_kit.report.whole import interval_told, whole_percent
from dreamgym_kit.report.wording import past_times
from dreamgym_kit.vocabulary import Effect, Provenance, Spend, Verdict

WIDTH = 80
_LABEL = 14  # columns before a value
_BAND = WIDTH - 4  # tasks on one line of the matrix
_BANDS = 5
_STEP = 10  # columns before a command to paste
_SHOWN = (0.3, 0.5, 0.7, 0.9)  # thresholds of the curve; all of them are in the JSON form
_TOOLS_NAMED = 5
_TOLD = ("abstained", "judges_agree", "judges_disagree")  # counts that a line of their own tells
_LEGEND = "! anomaly x failure - undetermined . success"


def render_run(summary: Summary, *, paint: Paint = PLAIN, fail_on_findings: bool = False) -> str:
    """Give the whole first screen of a run, without what to do next."""
    parts = [matrix(summary, paint), verdict(summary, paint, fail_on_findings=fail_on_findings)]
    if summary.executed:  # first of all, whatever else there is to say
        parts = [executed_first(summary, paint), *parts]
    return "\n\n".join(part for part in parts if part) + "\n"


def executed_first(summary: Summary, paint: Paint = PLAIN) -> str:
    """That real calls ran, each with its arguments, and what to do next; empty where none did."""
    if not summary.executed:
        return ""
    told = [
        f"FAILED  {one_line(executed_of(summary))}",
        *(f"  {one_line(step)}" for step in what_to_do(summary)),
    ]
    lines = [textwrap.wrap(text, WIDTH, subsequent_indent="    ", break_on_hyphens=False) for text in told]
    return "\n".join([*map(paint.red, lines[0]), *(row for step in lines[1:] for row in step)])


def matrix(summary: Summary, paint: Paint = PLAIN) -> str:
    """One column a task, one row a sibling, the worst task first."""
    tasks = list(summary.tasks.values())
    if not tasks:
        return ""
    rows = max(line.sibling for lines in tasks for line in lines)
    head = f" {_count(len(tasks), 'task')} across, {_count(rows, 'episode')} down"
    gap = WIDTH - len(head) - len(_LEGEND)
    lines = [f"{head}{' ' * gap}{_LEGEND}"] if gap >= 2 else [head, f" {_LEGEND}"]
    for start in range(0, min(len(tasks), _BAND * _BANDS), _BAND):
        lines += [""] if start else []
        lines += _band(tasks[start : start + _BAND], paint)
    if len(tasks) > _BAND * _BANDS:
        lines.append(f"  the {_BAND * _BANDS} worst of {len(tasks)} tasks")
    return "\n".join(lines)


def _band(tasks: Sequence[Sequence[EpisodeLine]], paint: Paint) -> list[str]:
    cells = [{line.sibling: line.mark for line in lines} for lines in tasks]
    rows = max(sibling for column in cells for sibling in column)
    painted = {"!": paint.red, "x": paint.red, "-": paint.yellow, ".": paint.green}
    lines = []
    for sibling in range(1, rows + 1):
        marks = "".join(column.get(sibling, " ") for column in cells).rstrip()
        runs = ((mark, "".join(run)) for mark, run in groupby(marks))
        lines.append("  " + "".join(painted[mark](run) if mark in painted else run for mark, run in runs))
    return lines


def verdict(summary: Summary, paint: Paint = PLAIN, *, fail_on_findings: bool = False) -> str:
    """Give the gate, the headline and the figures below it."""
    lines = [] if summary.executed else [_stamp(summary, paint, fail_on_findings=fail_on_findings)]
    for rule in summary.rules()[0 if summary.recorded else 1 :]:  # the first one is the headline's
        if not rule.passed:
            lines += [paint.red(row) for row in _row("gate", f"{one_line(rule.rule)}: {one_line(rule.why)}")]
    lines += _row("success", _success(summary))
    lines += _row("did" if summary.recorded else "would have", changes_told(summary))
    if not summary.recorded:
        lines += _row("trust", trust_told(summary))
        lines += _row("held out", held_out_told(summary)) if summary.curve else []
        lines += _row("reasoned", reasoned_told(summary)) if reasoned_told(summary) else []
    lines += _real(summary, paint)
    lines += _row("faults", faults_told(summary)) if faults_told(summary) else []
    lines += _row("also", also_told(summary)) if also_told(summary) else []
    lines += _judges(summary, paint)
    lines += _row("cost", _cost(summary))
    if summary.dream_spend:
        lines += _row("dream cost", _dream_cost(summary))
    lines += [line for told in servers_told(summary.fact("servers")) for line in _row("server", told)]
    return "\n".join(lines)


def _stamp(summary: Summary, paint: Paint, *, fail_on_findings: bool) -> str:
    """The gate in two words, and the headline beside it."""
    state, word = stamp(summary, fail_on_findings=fail_on_findings)
    colour = {"failed": paint.red, "passed": paint.green}.get(state, paint.yellow)
    wrapped = fold(f" {word}  {one_line(headline(summary))}", indent=len(word) + 3)
    return wrapped.replace(word, colour(word), 1)


def _success(summary: Summary) -> str:
    undetermined = f"{summary.undetermined} undetermined"
    if summary.rate is None or summary.interval is None:
        return f"not known: no episode was decided, {undetermined}"
    return (
        f"{whole_percent(summary.rate)} %  ({interval_told(*summary.interval)})   "
        f"{summary.success} of {summary.decided} decided, {undetermined}"
    )


def changes_told(summary: Summary) -> str:
    """Say what the agent changed, or would have: what cannot be undone first."""
    changing = [tool for tool in summary.tools if tool.effect.changes_world and tool.calls]
    if not changing:
        return f"changed nothing{' more' if summary.executed else ''}"
    told = [past_times(one_line(tool.name), tool.calls) for tool in changing[:_TOOLS_NAMED]]
    if len(changing) > _TOOLS_NAMED:
        told.append(f"and {len(changing) - _TOOLS_NAMED} more tools")
    wrong = sum(tool.wrong for tool in changing)
    return ", ".join(told) + (f"; {wrong} of these wrong" if wrong else "")


def trust_told(summary: Summary) -> str:
    """Say how many of the dream's answers rest on something, and where all of them came from."""
    if summary.grounded is None:
        return "no answer was dreamt"
    counts = summary.provenance
    rules = any(counts.get(said) for said in GROUNDED if said is not Provenance.RECORDED)
    told = f"{whole_percent(summary.grounded)} % of answers rest on recordings{' and rules' if rules else ''}"
    came = {said: counts.get(said, 0) for said in (*GROUNDED, Provenance.REASONED, Provenance.ABSTAINED)}
    parts = [f"{count} {said}" for said, count in came.items() if count]
    if summary.presumed:
        parts.append(f"{summary.presumed} of these presumed")
    if len(parts) > 1 or rules:
        told += f": {', '.join(parts)}"
    weakest = summary.weakest
    if weakest is not None:
        told += f"; weakest: {one_line(weakest.name)} ({weakest.grounded} of {weakest.dreamt})"
    return told


def held_out_told(summary: Summary) -> str:
    """What mined answers were worth on recordings that nothing was mined from, by the support asked for."""
    told = [
        f"{whole_percent(point.answered)} % of calls {whole_percent(point.exact)} % exact "
        f"at {point.threshold:g}"
        for point in summary.curve
        if point.exact is not None and point.threshold in _SHOWN
    ]
    return "mined answers by support: " + ", ".join(told)


def reasoned_told(summary: Summary) -> str:
    """What the dream's model was worth on held-out recordings; empty where it was not asked."""
    tried = summary.fact("reasoned_support")
    if not isinstance(tried, list) or not tried:
        return ""
    right = sum(row["right"] for row in tried)
    count = sum(row["tried"] for row in tried)
    return f"the model was right in {right} of {count} held-out calls"


def _real(summary: Summary, paint: Paint) -> list[str]:
    if summary.really_read:
        return _row("real calls", f"{summary.real_calls} of {summary.calls}, as asked")
    blocked = f"{len(summary.executed)} executed, {len(summary.violations)} refused"
    rows = _row("real calls", blocked if summary.executed else f"{summary.real_calls} of {summary.calls}")
    colour = paint.red if summary.real_calls else paint.green
    rows = [colour(row) for row in rows]
    if summary.abstentions:
        rows += _row("not known", f"{_count(summary.abstentions, 'call')} that no recording answers")
    if summary.violations:
        rows += [paint.red(row) for row in _row("refused", one_line(summary.violations[0][1]))]
    return rows


def _cost(summary: Summary) -> str:
    told = [_count(summary.model_calls, "model call")]
    told += [_count(summary.tokens, "token")] if summary.tokens else []
    told += [f"USD {summary.cost_usd:.2f}"] if summary.cost_usd else []
    return ", ".join([*told, duration(summary.elapsed_s)])


def faults_told(summary: Summary) -> str:
    """How many calls were made to fail, and whom it befell; empty where none was."""
    if not summary.faults:
        return ""
    episodes = (
        ("failed", Verdict.FAILURE, summary.failure),
        ("undetermined", Verdict.UNDETERMINED, summary.undetermined),
        ("good", Verdict.SUCCESS, summary.success),
    )
    told = [f"{summary.faulted(verdict)} of {count} {word}" for word, verdict, count in episodes if count]
    return f"{_count(summary.faults, 'call')} made to fail, in {', '.join(told)} episodes"


def also_told(summary: Summary) -> str:
    """What else was counted; empty where nothing was."""
    return ", ".join(f"{count} {_words(what)}" for what, count in summary.counts.items() if what not in _TOLD)


def _judges(summary: Summary, paint: Paint) -> list[str]:
    told = judges_told(summary)
    rows = _row("judges", told) if told else []
    return [paint.yellow(row) for row in rows] if summary.judges[1] else rows


def judges_told(summary: Summary) -> str:
    """How often a model beside the checker agreed with it; empty where none was asked."""
    agreed, differed = summary.judges
    if not agreed + differed:
        return ""
    return f"a model beside the checker agreed {agreed} of {agreed + differed} times"


def _dream_cost(summary: Summary) -> str:
    parts = []
    for part, spend in summary.dream_spend.items():
        told = [_count(spend.calls, "answer"), _count(spend.tokens, "token")]
        told += [cached_told(spend)] if spend.cached_share is not None else []
        told += [f"USD {spend.cost_usd:.2f}"] if spend.cost_usd else []
        parts.append(f"{one_line(part)} {', '.join(told)}")
    return "; ".join(parts)


def servers_told(rows: JsonValue) -> list[str]:
    """What each server counted while a run went on, a sentence each; `rows`: the report's "servers"."""
    return [_server_told(row) for row in rows if isinstance(row, Mapping)] if isinstance(rows, list) else []


def _server_told(row: Mapping[str, JsonValue]) -> str:
    said = {name: value if isinstance(value, int | float) else 0 for name, value in row.items()}
    known = row.get("cached_share") is not None
    share = f" ({whole_percent(said['cached_share'])} % cached)" if known else ""
    return (
        f"{one_line(str(row.get('server', '')))} read {said.get('prompt_tokens', 0):,} tokens{share}, wrote "
        f"{said.get('generated_tokens', 0):,}; at most {said.get('most_running', 0):,} requests ran and "
        f"{said.get('most_waiting', 0):,} waited"
    )


def cached_told(spend: Spend) -> str:
    """Which share of the prompts came from the server's prefix cache."""
    return f"{whole_percent(spend.cached_share or 0.0)} % of its prompts from the prefix cache"


def tool_table(summary: Summary, paint: Paint = PLAIN) -> str:
    """Give every tool with its effect, its calls and where its answers came from."""
    if not summary.tools:
        return " No tool was called."
    width = max(len(one_line(tool.name)) for tool in summary.tools)
    return "\n".join(_tool_row(tool, width, paint) for tool in summary.tools)


def _tool_row(tool: ToolUse, width: int, paint: Paint) -> str:
    effect = f"{tool.effect:<11}"
    if tool.effect is Effect.DESTRUCTIVE:
        effect = paint.red(effect)
    mix = ", ".join(
        f"{count} {said}" for said, count in sorted(tool.provenance.items(), key=lambda item: -item[1])
    )
    wrong = paint.red(f"  ! {tool.wrong} wrong") if tool.wrong else ""
    return f" {one_line(tool.name):<{width}}  {effect}  {tool.calls:>6}  {mix}{wrong}"


def finding_list(summary: Summary, paint: Paint = PLAIN, *, limit: int = 8) -> str:
    """Give the kinds of findings, worst first, each with the place to look at."""
    lines = [_finding_row(group, paint) for group in summary.findings[:limit]]
    if len(summary.findings) > limit:
        lines.append(f" {len(summary.findings) - limit} more kinds; all: --json")
    return "\n".join(lines)


def _finding_row(group: FindingGroup, paint: Paint) -> str:
    colour = paint.red if group.severity == CRITICAL else paint.yellow
    episode, step = group.at[0]
    place = f"{one_line(episode)}{f' step {step}' if step is not None else ''}"
    more = f", and {group.count - 1} more" if group.count > 1 else ""
    text = fold(f" ! {one_line(group.text)}", indent=3)
    return f"{text.replace('!', colour('!'), 1)}\n   {_words(group.kind)}: {place}{more}"


def episode_list(
    summary: Summary, paint: Paint = PLAIN, *, only: str | None = None, limit: int | None = None
) -> str:
    """List episodes, the worst first, each with its verdict and what to know about it.

    Args:
        summary: the run.
        paint: colours, or none.
        only: a verdict, or "anomaly".
        limit: most episodes listed; the rest is counted.
    """
    worst_first = {"!": 0, "x": 1, "-": 2, ".": 3}
    wanted = sorted(
        (
            line
            for line in summary.episodes
            if only in (None, line.verdict) or (only == "anomaly" and line.mark == "!")
        ),
        key=lambda line: worst_first[line.mark],
    )
    named = wanted if limit is None else wanted[:limit]
    width = max((len(one_line(line.id)) for line in named), default=0)
    lines = [_episode_row(line, width, paint) for line in named]
    if len(wanted) > len(named):
        lines.append(f" {len(wanted) - len(named)} more; all: --limit {len(wanted)}")
    return "\n".join(lines) if lines else " None of the episodes is like that."


def _episode_row(line: EpisodeLine, width: int, paint: Paint) -> str:
    colour = {Verdict.SUCCESS: paint.green, Verdict.FAILURE: paint.red, Verdict.UNDETERMINED: paint.yellow}
    step = f"step {line.anomaly_step}  " if line.anomaly_step is not None else ""
    mark = "! " if line.anomaly is not None else ""
    head = f" {one_line(line.id):<{width}}  "
    word = f"{line.verdict:<12}"
    room = max(20, WIDTH - len(head) - len(word) - 2 - len(step) - len(mark))
    return f"{head}{colour[line.verdict](word)}  {step}{mark}{shown(line.anomaly or line.reason, room)}"


def next_steps(steps: Sequence[tuple[str, str, str]]) -> str:
    """Give what to do next: (word, command to paste, what it does); commands are never cut."""
    fit = [step for step in steps if _STEP + len(step[1]) + 3 + len(step[2]) <= WIDTH]
    width = max((len(command) for _, command, _ in fit), default=0)
    lines = []
    for word, command, why in steps:
        line = f" {word:<{_STEP - 1}}{command:<{width}}   {why}"
        lines.append(line if len(line) <= WIDTH else f" {word:<{_STEP - 1}}{command}\n{' ' * _STEP}{why}")
    return "\n".join(lines)


def duration(seconds: float) -> str:
    """Say how long something took or will take: "4.2 s", "1:02", "1:02:03"."""
    if seconds < 60:
        return f"{seconds:.1f} s"
    minutes, rest = divmod(round(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours}:{minutes:02}:{rest:02}" if hours else f"{minutes}:{rest:02}"


def _row(label: str, value: str) -> list[str]:
    return fold(f"  {label:<{_LABEL - 2}}{value}", indent=_LABEL).split("\n")


def fold(text: str, *, indent: int) -> str:
    """Fold at the terminal's width, never inside a word: ids, paths and commands stay whole."""
    folded = textwrap.wrap(
        text, WIDTH, subsequent_indent=" " * indent, break_long_words=False, break_on_hyphens=False
    )
    return "\n".join(folded) or text


def _words(name: str) -> str:
    return one_line(name).replace("_", " ")


def _count(number: int, what: str) -> str:
    return f"{number:,} {what}{'' if number == 1 else 's'}"
