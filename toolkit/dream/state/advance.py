"""The state after a call: reads are kept, and a write is put through the rules, view by view.

A view that a write provably leaves alone is carried over, one that a rule changes is changed, one that
nobody can tell of is forgotten. Confidence goes down only by the rules that a view went through.
"""

from collections.abc import Iterator, Mapping
from dataclasses import replace

from dreamgym_kit.dream.state.absences import denied_by
from dreamgym_kit.dream.state.effects import EffectRule, shared_things
from dreamgym_kit.dream.state.history import OFF_RECORD, HistoryStep
from dreamgym_kit.dream.state.models import LAST, ToolModels
from dreamgym_kit.dream.state.names import Names
from dreamgym_kit.dream.state.stated_effects import said_to_keep, through_statements
from dreamgym_kit.dream.state.values import MISSING, fields, is_scalar, spell
from dreamgym_kit.dream.state.views import State, View, ViewKey
from dreamgym_kit.serialization import JsonValue

TOLD = 0.97  # a view that was just told
_ELSEWHERE = 0.9  # prior that a write which selects one view leaves the others alone
_DOUBTFUL = 0.5  # a view that is likelier wrong than right is not kept


def advance(
    models: ToolModels, state: State, step: HistoryStep, names: Names, line: int, *, confidence: float = TOLD
) -> State:
    """The state after a call was answered.

    `names` is what could be named when the call was made (`names.around`), `line` the node of the recorded
    writes after it, `confidence` (0..1) how sure the answer is what the tool would have said.
    """
    views: dict[ViewKey, View] = dict(state.views)
    pseudo = {
        name: View(name, "{}", value, confidence=confidence, source="told", step=state.writes)
        for name, value in models.pseudo_reads(step).items()
    }
    if not step.writes:
        views[step.tool, step.spelled] = View(
            step.tool,
            step.spelled,
            step.seen,
            confidence=confidence,
            source="told",
            step=state.writes,
            spared=state.sure,
        )
        views.update({(name, "{}"): view for name, view in pseudo.items()})
        return replace(state, views=views, line=line)
    if not models.advances(step):
        views.update({(name, "{}"): view for name, view in pseudo.items()})
        return replace(state, views=views, line=line, refused=state.refused | denied_by(step))
    # what the write has told of hidden things was so before it: it goes through the rules like all else
    before = {**state.views, **{(name, "{}"): view for name, view in pseudo.items()}}
    views = _through_rules(models, before, step, names, state.writes)
    sure = min(1.0, confidence / TOLD)
    if sure < 1.0:
        views.update(_spared(models, state, step, views, sure))
    gone = tuple(view for key, view in state.views.items() if key not in views)
    last = {"args": dict(step.args), "answer": step.seen}
    views[LAST + step.tool, "{}"] = View(
        LAST + step.tool, "{}", last, confidence=confidence, source="told", step=state.writes
    )
    minted = {**state.minted, step.tool: state.minted.get(step.tool, 0) + (not step.failed)}
    done = state.done if step.failed else state.done | {(step.tool, step.spelled)}
    after = replace(
        state,
        views=views,
        line=line,
        sure=state.sure * sure,
        writes=state.writes + 1,
        done=done,
        minted=minted,
        forgotten=(*state.forgotten, *gone),
    )
    return through_statements(models, state, after, step, names)


def forget(models: ToolModels, state: State, step: HistoryStep) -> State:
    """The state after a write that nobody could answer: what it never touches is still known."""
    kept = dict(_left_alone(models, state.views, step))
    gone = tuple(view for key, view in state.views.items() if key not in kept)
    write = View(step.tool, step.spelled, None, confidence=0.0, source="rule", step=state.writes)
    return replace(
        state,
        views=kept,
        line=OFF_RECORD,
        writes=state.writes + 1,
        forgotten=(*state.forgotten, *gone),
        unanswered=(*state.unanswered, write),
    )


def _left_alone(
    models: ToolModels, views: Mapping[ViewKey, View], step: HistoryStep
) -> Iterator[tuple[ViewKey, View]]:
    """The views that a write leaves alone, whatever becomes of it."""
    forms = [rules for (write, _), rules in models.rules.items() if write == step.tool]
    for key, view in views.items():
        if said_to_keep(models, step.tool, key[0]) or (
            forms and all(_leaves(rules.get(key[0]), step, view) for rules in forms)
        ):
            yield key, view


def _spared(
    models: ToolModels, state: State, step: HistoryStep, after: Mapping[ViewKey, View], sure: float
) -> dict[ViewKey, View]:
    """The views after a write of which nobody is sure, as far as that does not concern them."""
    alone = _left_alone(models, state.views, step)
    return {key: after[key].sparing(sure) for key, _ in alone if key in after}


def names_after(names: Names, seen: JsonValue) -> Names:
    """The names around a write once its answer is known."""
    if is_scalar(seen):
        return names
    told = {f"answer.{name}": value for name, value in fields(seen, 20).items() if name and is_scalar(value)}
    return names.with_more(told)


def with_keys(names: Names, args: Mapping[str, JsonValue]) -> Names:
    """The names with the arguments of a read that an effect is told of."""
    return names.with_more({f"key.{name}": value for name, value in args.items()}) if args else names


def _through_rules(
    models: ToolModels, before: Mapping[ViewKey, View], step: HistoryStep, names: Names, writes: int
) -> dict[ViewKey, View]:
    rules = models.rules.get((step.tool, models.form(step)), {})
    after = names_after(names, step.seen)
    views: dict[ViewKey, View] = {}
    for key, view in before.items():
        kept = view if key[0].startswith(LAST) else _after(models, step, rules.get(key[0]), view, after)
        if kept is not None:
            views[key] = kept
    for read, rule in rules.items():
        if rule.program is None and rule.right >= 2:
            told = _whole(models, step.tool, read, rule, after, writes)
            if told is not None:
                views.setdefault((told.tool, told.spelled), told)
    return views


def _after(
    models: ToolModels, step: HistoryStep, rule: EffectRule | None, view: View, names: Names
) -> View | None:
    """One view after a write; None when nobody can tell any more."""
    write, prior = step.tool, models.keeps(step.tool, view.tool)
    changed = rule is not None and not rule.keeps and rule.selects(view.args, view.observation, names)
    if not changed and not _witnessed(rule, step, view):
        return None
    if rule is None or not rule.tells(prior):
        return view.believed(prior, f"{write} -> ?") if prior > _DOUBTFUL else None
    selected = rule.selects(view.args, view.observation, names)
    if rule.contested if selected else rule.contested_elsewhere:
        return None
    if not selected:
        support = rule.support_elsewhere(max(prior, _ELSEWHERE))
        return view.believed(support, f"{write} -> elsewhere") if support > _DOUBTFUL else None
    if rule.keeps:
        support = rule.support(prior)
        return view.believed(support, f"{write} keeps") if support > _DOUBTFUL else None
    made = rule.apply(view.observation, with_keys(names, view.args))
    if made is MISSING:
        return None
    held = view.believed(rule.support(prior), f"{write} changes")
    if spell(made) == spell(view.observation):
        return held
    return View(
        view.tool,
        view.spelled,
        made,
        confidence=held.confidence,
        source="rule",
        step=view.step,
        through=held.through,
    )


def _leaves(rule: EffectRule | None, step: HistoryStep, view: View) -> bool:
    return rule is not None and rule.keeps and _witnessed(rule, step, view)


def _witnessed(rule: EffectRule | None, step: HistoryStep, view: View) -> bool:
    """Whether it was ever seen that this write leaves such a view alone, of the very thing that it names.

    That it left the reads of other things alone says nothing of the one it was called for.
    """
    shared = shared_things(step.args, view)
    return not shared or (rule is not None and rule.witnessed(shared))


def _whole(
    models: ToolModels, write: str, read: str, rule: EffectRule, names: Names, writes: int
) -> View | None:
    """A read that nobody has made yet, where the write tells all of its answer."""
    args = {of: names.values[name] for of, name in rule.bind if name in names.values}
    if any(of.startswith(".") for of, _ in rule.bind) or set(args) != models.parameters.get(
        read, frozenset()
    ):
        return None
    made = rule.apply(MISSING, with_keys(names, args))
    if made is MISSING:
        return None
    support = TOLD * rule.support(models.keeps(write, read))
    return View(read, spell(args), made, confidence=support, source="rule", step=writes)
