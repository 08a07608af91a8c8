"""What somebody stated of a write, in the place of what was mined of it; a draft only where nothing was."""

from dataclasses import replace

from dreamgym_kit.dream.state.effects import EffectRule
from dreamgym_kit.dream.state.history import HistoryStep
from dreamgym_kit.dream.state.models import ToolModels
from dreamgym_kit.dream.state.names import Names
from dreamgym_kit.dream.state.stated import DECLARED, DRAFTED, StatedModel, names_of_success
from dreamgym_kit.dream.state.values import MISSING, spell
from dreamgym_kit.dream.state.views import State, View, ViewKey

_DOUBTFUL = 0.5  # a view that is likelier wrong than right is not kept, unless a person says how it is


def said_to_keep(models: ToolModels, tool: str, read: str) -> bool:
    """Whether somebody stated that a write leaves a read alone."""
    said = models.stated.get(tool)
    return said is not None and said.keeps(read)


def through_statements(
    models: ToolModels, before: State, after: State, step: HistoryStep, names: Names
) -> State:
    """The state after a write with what was stated of it.

    `after` is what the mined rules make of `before`; `names` is what could be named when the call was made.
    """
    said = models.stated.get(step.tool)
    if said is None or step.failed:
        return after
    known, sure = said.around(names, before, step.spelled)
    known = names_of_success(known, step.seen)
    rules = models.rules.get((step.tool, models.form(step)), {})
    views: dict[ViewKey, View] = dict(after.views)
    gone = []
    for key, view in before.views.items():
        if ":" in view.tool or not said.speaks_of(view.tool) or _is_mined(said, rules.get(view.tool), models):
            continue
        kept = _stated(said, view, known, sure)
        if kept is not None:
            views[key] = kept
        elif views.pop(key, None) is not None:
            gone.append(view)
    for read, args, made in said.told(known):
        seen, confidence = models.wrapped(read, made), said.support * sure
        told = View(read, spell(args), seen, confidence=confidence, source="rule", step=before.writes)
        views.setdefault((told.tool, told.spelled), told)
    return replace(after, views=views, forgotten=(*after.forgotten, *gone))


def _stated(said: StatedModel, view: View, names: Names, sure: float) -> View | None:
    """One view after the write, by what was stated; None where that cannot be worked out."""
    made, used = said.after(view, names)
    held = view.believed(said.support * (sure if used else 1.0), f"{said.tool} {said.source}")
    if made is MISSING or (said.source == DRAFTED and held.confidence <= _DOUBTFUL):
        return None
    return held.saying(made) if used else held


def _is_mined(said: StatedModel, rule: EffectRule | None, models: ToolModels) -> bool:
    """Whether the recordings say as well what a draft says; they are believed before it."""
    return said.source != DECLARED and rule is not None and rule.tells(models.keeps(said.tool, ""))
