"""What recordings say of stated tool models: how often each part was right, and where it was contradicted.

A draft keeps only the parts that nothing contradicts. What a person declared stays, with its contradictions
shown beside it.
"""

from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from fnmatch import fnmatchcase

from dreamgym_kit.dream.state.advance import advance
from dreamgym_kit.dream.state.history import HistoryStep, Pool, RecordedEpisode
from dreamgym_kit.dream.state.mining import pooled, renamed
from dreamgym_kit.dream.state.models import ToolModels
from dreamgym_kit.dream.state.names import Names, around
from dreamgym_kit.dream.state.stated import StatedModel, names_of_success
from dreamgym_kit.dream.state.values import MISSING, spell
from dreamgym_kit.dream.state.views import State, View, ViewKey
from dreamgym_kit.dream.state.worlds import reads_at, start
from dreamgym_kit.serialization import JsonValue
from dreamgym_kit.settings.tool_models import ToolModelSettings

_CERTAIN = 0.75  # confidence in a read from which on it is held against a statement
_CERTAIN_CHANGED = 0.9  # the same where it would contradict: an earlier write may have changed it
_SHOWN = 400


@dataclass(slots=True)
class RuleEvidence:
    """Of one part of a stated model: calls where it was right, and where not, with the first of those."""

    right: int = 0
    wrong: int = 0
    contradiction: str = ""

    def count(self, said: object, seen: JsonValue, where: str) -> None:
        """Compare what was said with what was seen."""
        if said is not MISSING and spell(said) == spell(seen):
            self.right += 1
            return
        self.wrong += 1
        if not self.contradiction:
            told = "something that cannot be worked out" if said is MISSING else _told(said)
            self.contradiction = f"{where}: said {told[:_SHOWN]}, recorded {_told(seen)[:_SHOWN]}"


def _told(seen: JsonValue) -> str:
    """An observation as a person is shown it: a failure by its words, no mark of ours."""
    whole = seen.get("$answer") if isinstance(seen, dict) and len(seen) == 1 else None
    if isinstance(whole, dict) and whole.get("error") is not None:
        return f"the failure {spell(whole['error'])}"
    return spell(seen)


Found = Mapping[str, Mapping[str, RuleEvidence]]
"""By tool and part: "answer", "fails_only", "fails.2", "changes.1", "keeps.get_order"."""


def evidence(
    models: ToolModels, episodes: Sequence[RecordedEpisode], stated: Mapping[str, StatedModel] | None = None
) -> Found:
    """Hold stated models against recordings; `models` is what was mined of them, with the statements."""
    said = models.stated if stated is None else stated
    found: dict[str, dict[str, RuleEvidence]] = {tool: defaultdict(RuleEvidence) for tool in said}
    plain = replace(models, stated={})  # a statement is not followed by what it says itself
    in_symbols = [renamed(episode, models) for episode in episodes]
    pool = pooled(in_symbols, models)
    for episode in in_symbols:
        for state, number, step, line in _walked(plain, pool, episode):
            if step.tool in said:
                where = f"{episode.world}, {episode.id}, call {number}"
                names = around(step.args, state, models.fresh_for(step.tool, state))
                known, _ = said[step.tool].around(names, state, step.spelled)
                parts = found[step.tool]
                _judge_answer(parts, models, said[step.tool], step, known, where)
                if step.writes and not step.failed:
                    after = reads_at(pool, plain, line, None)
                    _judge_effects(parts, said[step.tool], state, after, step, known, where)
    return found


def uncontradicted(
    said: ToolModelSettings, parts: Mapping[str, RuleEvidence], *, tolerance: float = 0.0
) -> ToolModelSettings:
    """The model without the parts that recordings contradict in more than this share of calls."""

    def holds(part: str) -> bool:
        known = parts.get(part)
        return known is None or known.wrong <= tolerance * (known.right + known.wrong)

    fails = [fail for number, fail in enumerate(said.fails, start=1) if holds(f"fails.{number}")]
    return replace(
        said,
        fails=tuple(fails),
        fails_only=said.fails_only and holds("fails_only") and len(fails) == len(said.fails),
        answer=said.answer if holds("answer") else None,
        changes=tuple(
            change for number, change in enumerate(said.changes, start=1) if holds(f"changes.{number}")
        ),
        keeps=tuple(
            pattern
            for pattern in said.keeps
            if not any(
                part.startswith("keeps.") and not holds(part) and _names_read(pattern, part) for part in parts
            )
        ),
    )


def _names_read(pattern: str, part: str) -> bool:
    return fnmatchcase(part.removeprefix("keeps."), pattern)


def _walked(
    models: ToolModels, pool: Pool, episode: RecordedEpisode
) -> Iterator[tuple[State, int, HistoryStep, int]]:
    """Each call of an episode with the state that it met and the node after it."""
    state = start(pool, models, episode.world)
    for number, step in enumerate(episode.steps, start=1):
        names = around(step.args, state, models.fresh_for(step.tool, state))
        line = pool.next(state.line, step)
        yield state, number, step, line
        state = advance(models, state, step, names, line)
        if models.advances(step):
            views: dict[ViewKey, View] = dict(state.views)
            for key, seen in reads_at(pool, models, line, None).items():
                views[key] = View(*key, seen, confidence=0.99, source="told", step=state.writes)
            state = replace(state, views=views)


def _judge_answer(
    parts: dict[str, RuleEvidence],
    models: ToolModels,
    said: StatedModel,
    step: HistoryStep,
    names: Names,
    where: str,
) -> None:
    outcome = said.outcome(names)
    if outcome is None:
        return
    if outcome.failure:
        parts[outcome.part].count(outcome.seen, step.seen, where)
    elif not step.failed:
        if outcome.seen is not MISSING:
            parts["answer"].count(models.wrapped(step.tool, outcome.seen), step.seen, where)
    elif said.said.fails_only and not outcome.doubts:
        parts["fails_only"].count("no failure", step.seen, where)


def _judge_effects(
    parts: dict[str, RuleEvidence],
    said: StatedModel,
    state: State,
    after: Mapping[ViewKey, JsonValue],
    step: HistoryStep,
    names: Names,
    where: str,
) -> None:
    known = names_of_success(names, step.seen)
    for key, seen in after.items():
        view = state.views.get(key)
        if view is None or ":" in view.tool or view.confidence <= _CERTAIN or not said.speaks_of(view.tool):
            continue
        made, used = said.after(view, known)
        differs = made is MISSING or spell(made) != spell(seen)
        if differs and view.confidence < _CERTAIN_CHANGED:
            continue
        numbers = used or said.changes_of(view.tool)
        for part in [f"changes.{number}" for number in numbers] or [f"keeps.{view.tool}"]:
            parts[part].count(made, seen, f"{where}, {view.tool} {view.spelled}")
