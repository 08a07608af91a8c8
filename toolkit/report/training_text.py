"""A training on the terminal: its result, then its course. 80 columns, ASCII."""

from collections.abc import Iterator

from dreamgym_kit.report.colors import PLAIN, Paint, screen
from dreamgym_kit.report.headline import format_servers
from dreamgym_kit.report.percent import duration, format_interval, whole_percent
from dreamgym_kit.report.sanitize import one_line
from dreamgym_kit.report.training import CurriculumFacts, Training, mean_success, share_of
from dreamgym_kit.training.records import EvaluationRecord

_FEW = 3
_MOST = 4  # places of failure that are shown


def render_training(training: Training, *, paint: Paint = PLAIN) -> str:
    """Format a training, without next steps."""
    sign, word = training.stamp
    color = {"passed": paint.green, "failed": paint.red}.get(sign, paint.yellow)
    facts = ((label, one_line(text)) for label, text in facts_of_training(training))
    return screen(word, one_line(training.sentence), color, facts)


def facts_of_training(training: Training) -> Iterator[tuple[str, str]]:
    """Yield (label, text) for each line, also for the page."""
    evaluations = training.evaluations
    for evaluation in (*evaluations[:1], *evaluations[1:][-1:]):  # the first and the last
        yield "held out", _measured(evaluation)
    first, last = mean_success(training.steps[:_FEW]), mean_success(training.steps[-_FEW:])
    if first is not None and last is not None:
        moved = f"pass rate {whole_percent(first)} % in the first steps, {whole_percent(last)} % in the last"
        yield "dream", f"{moved}; that is what it learned from, not what it is worth"
    steps = training.steps
    yield "steps", f"{len(steps)} of {training.planned}"
    yield "episodes", _episodes(training)
    if training.curriculum is not None:
        yield from facts_of_curriculum(training.curriculum)
    yield "learned", _learned(training)
    if steps:
        yield "policy", _policy(training)
    for server in format_servers(training.outcome.get("servers")):
        yield "server", server
    yield "time", _time(training)


def _measured(evaluation: EvaluationRecord) -> str:
    share = share_of(evaluation)
    where = "real tools" if evaluation.real else "dreamed"
    when = "before" if evaluation.step == 0 else f"after step {evaluation.step}"
    rest = f"{len(evaluation.outcomes)} tasks, {evaluation.inconclusive} episodes inconclusive, {where}"
    if share is None:
        return f"{when}: nothing was decided ({rest})"
    interval = f"({format_interval(share.low, share.high)})"
    return f"{when}: {whole_percent(share.mean)} % {interval}, {rest}"


def _episodes(training: Training) -> str:
    count = training.total
    return (
        f"{count('episodes'):,}, {count('inconclusive'):,} inconclusive; {count('dead'):,} of "
        f"{count('groups'):,} groups dead, {count('small'):,} with fewer than two decided"
    )


def _learned(training: Training) -> str:
    count, unfit = training.total, sum(sum(step.facts.unfit.values()) for step in training.steps)
    learned = f"{count('tokens'):,} tokens in {count('samples'):,} samples, {count('forks'):,} forks"
    return f"{learned}, {unfit:,} turns left out as unfit"


def _policy(training: Training) -> str:
    first, last = training.steps[0], training.steps[-1]
    most = max((step.kl or 0.0 for step in training.steps), default=0.0)
    entropy = f"entropy {_nats(first.entropy)} to {_nats(last.entropy)} nats a token"
    return f"{entropy}; one update moved it by {most:.2g} at most"


def _nats(value: float | None) -> str:
    return "?" if value is None else f"{value:.3g}"


def _time(training: Training) -> str:
    spent = training.seconds()
    whole = sum(spent.values())
    if not whole:
        return "not known"
    named = {"waited": "rollouts"}
    parts = sorted(spent.items(), key=lambda part: -part[1])
    shares = ", ".join(
        f"{named.get(phase, phase)} {whole_percent(seconds / whole)} %" for phase, seconds in parts if seconds
    )
    return f"{duration(whole)}: {shares}"


def facts_of_curriculum(facts: CurriculumFacts) -> Iterator[tuple[str, str]]:
    """Yield (label, text) for each line."""
    yield "curriculum", _chosen(facts)
    if facts.made or facts.refused:
        yield "made tasks", _made(facts)
    if facts.failed_at:
        places = list(facts.failed_at.items())[:_MOST]
        yield "fails at", f"{', '.join(f'{place} {count}' for place, count in places)} (episodes)"


def _chosen(facts: CurriculumFacts) -> str:
    text = f"{facts.groups:,} groups of {facts.tasks:,} tasks, {_share(facts.in_turn, facts)} in turn"
    if any(facts.rests.values()):
        text += f"; resting: {', '.join(f'{count} {why}' for why, count in facts.rests.items())}"
    if facts.left_out:
        text += f"; left out as perhaps impossible: {facts.left_out} groups"
    return text


def _made(facts: CurriculumFacts) -> str:
    makers = {"rules": "by rules", "model": "by a model"}
    made = ", ".join(f"{count} {makers.get(how, how)}" for how, count in facts.made.items())
    text = f"{made or 'none'}, in {_share(facts.of_made, facts)} of the groups"
    if facts.refused:
        not_taken = ", ".join(f"{count} {why.replace('_', ' ')}" for why, count in facts.refused.items())
        text += f"; not taken: {not_taken}"
    return text


def _share(count: int, facts: CurriculumFacts) -> str:
    return f"{whole_percent(count / facts.groups) if facts.groups else 0} %"
