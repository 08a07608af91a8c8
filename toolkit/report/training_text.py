"""A training on the terminal: what it was worth, then how it went. 80 columns, ASCII."""

from collections.abc import Iterator

from dreamgym_kit.report.clean import one_line
from dreamgym_kit.report.curriculum import facts_of_curriculum
from dreamgym_kit.report.headline import servers_told
from dreamgym_kit.report.paint import PLAIN, Paint, fold
from dreamgym_kit.report.training import Training, mean_success, share_of
from dreamgym_kit.report.whole import duration, interval_told, whole_percent
from dreamgym_kit.training.records import EvaluationRecord

_LABEL = 14
_FEW = 3


def render_training(training: Training, *, paint: Paint = PLAIN) -> str:
    """Give the whole screen of a training, without what to do next."""
    sign, word = training.stamp
    colour = {"passed": paint.green, "failed": paint.red}.get(sign, paint.yellow)
    head = fold(f" {word}  {one_line(training.sentence)}", indent=len(word) + 3).replace(
        word, colour(word), 1
    )
    return "\n".join([head, *_rows(training)]) + "\n"


def facts_of_training(training: Training) -> Iterator[tuple[str, str]]:
    """Label and text of each line; the page tells the same."""
    for evaluation in _ends(training):
        yield "held out", _measured(evaluation)
    first, last = mean_success(training.steps[:_FEW]), mean_success(training.steps[-_FEW:])
    if first is not None and last is not None:
        yield "dream", _dreamt(first, last)
    steps = training.steps
    yield "steps", f"{len(steps)} of {training.planned}"
    yield "episodes", _episodes(training)
    if training.curriculum is not None:
        yield from facts_of_curriculum(training.curriculum)
    yield "learned", _learned(training)
    if steps:
        yield "policy", _policy(training)
    for told in servers_told(training.outcome.get("servers")):
        yield "server", told
    yield "time", _time(training)


def _ends(training: Training) -> list[EvaluationRecord]:
    """The first evaluation and the last."""
    found = list(training.evaluations)
    return found if len(found) < 2 else [found[0], found[-1]]


def _rows(training: Training) -> Iterator[str]:
    for label, text in facts_of_training(training):
        yield fold(f"  {label:<{_LABEL - 2}}{one_line(text)}", indent=_LABEL)


def _measured(evaluation: EvaluationRecord) -> str:
    share = share_of(evaluation)
    where = "real tools" if evaluation.real else "dreamed"
    when = "before" if evaluation.step == 0 else f"after step {evaluation.step}"
    rest = f"{len(evaluation.outcomes)} tasks, {evaluation.inconclusive} episodes inconclusive, {where}"
    if share is None:
        return f"{when}: nothing was decided ({rest})"
    interval = f"({interval_told(share.low, share.high)})"
    return f"{when}: {whole_percent(share.mean)} % {interval}, {rest}"


def _episodes(training: Training) -> str:
    facts = [step.facts for step in training.steps]
    return (
        f"{sum(one.episodes for one in facts):,}, {sum(one.inconclusive for one in facts):,} inconclusive; "
        f"{sum(one.dead for one in facts):,} of {sum(one.groups for one in facts):,} groups dead, "
        f"{sum(one.small for one in facts):,} with fewer than two decided"
    )


def _dreamt(first: float, last: float) -> str:
    moved = f"pass rate {whole_percent(first)} % in the first steps, {whole_percent(last)} % in the last"
    return f"{moved}; that is what it learned from, not what it is worth"


def _learned(training: Training) -> str:
    facts = [step.facts for step in training.steps]
    tokens, samples = sum(one.tokens for one in facts), sum(one.samples for one in facts)
    unfit = sum(sum(one.unfit.values()) for one in facts)
    return (
        f"{tokens:,} tokens in {samples:,} samples, {sum(one.forks for one in facts):,} forks, "
        f"{unfit:,} turns left out as unfit"
    )


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
    told = ", ".join(
        f"{named.get(phase, phase)} {whole_percent(seconds / whole)} %" for phase, seconds in parts if seconds
    )
    return f"{duration(whole)}: {told}"
