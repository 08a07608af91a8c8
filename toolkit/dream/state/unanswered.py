"""What a write that nobody could answer may have changed: there, what is usual says nothing of this episode.

That a cart is mostly empty was learned where all that was done to it was known.
"""

import re
from collections.abc import Iterable, Iterator, Mapping

from dreamgym_kit.dream.state.effects import EffectRule
from dreamgym_kit.dream.state.models import LAST, ToolModels
from dreamgym_kit.dream.state.stated_effects import said_to_keep
from dreamgym_kit.dream.state.trees import Test
from dreamgym_kit.dream.state.values import spell
from dreamgym_kit.dream.state.views import State, View
from dreamgym_kit.serialization import JsonValue

_NOT_KNOWN = 2  # the branch of a test whose fact nobody knows
_LEFT_ALONE = 0.5  # share of reads that such a write leaves alone, from which on an unknown pair is no doubt
_SURELY_LEFT = 0.95  # the same where an absence is claimed


def unknown_since(
    models: ToolModels,
    state: State,
    tool: str,
    args: Mapping[str, JsonValue],
    path: Iterable[Test] = (),
    *,
    guessed: bool = False,
) -> str | None:
    """The write after which nobody knows what a call is answered.

    One that nobody could answer, or that changed a read which nobody had made and on which the answer hangs.

    `path` is what the answer hangs on, `guessed` whether a part of it is only usual.
    """
    if tool not in models.writes:
        touched = (one.tool for one in state.unanswered if _read_touched(models, one, tool, args))
        return next(touched, None) or (
            _changed_by_done(models, state, tool, args, path) if tool in _not_known(path) else None
        )
    if not state.unanswered:
        return None
    hangs_on = _not_known(path)
    return next(
        (
            one.tool
            for one in state.unanswered
            if (one.tool, one.spelled) == (tool, spell(dict(args)))
            or (_changed(models, one.tool) & (_changed(models, tool) | hangs_on if guessed else hangs_on))
        ),
        None,
    )


def _changed_by_done(
    models: ToolModels, state: State, read: str, args: Mapping[str, JsonValue], path: Iterable[Test]
) -> str | None:
    """A write of this episode that changes the read, where the answer hangs on nothing that it told."""
    told = {
        name.split(".")[1]
        for test in path
        if test.way != _NOT_KNOWN
        for name in test.feature[1:]
        if "." in name
    }
    for tool, spelled in state.done:
        write = View(tool, spelled, None, confidence=0.0, source="rule")
        if LAST + tool not in told and read not in told and _changes(models, write, read, args):
            return tool
    return None


def _changes(models: ToolModels, write: View, read: str, args: Mapping[str, JsonValue]) -> bool:
    rules = _rules(models, write.tool, read)
    return not said_to_keep(models, write.tool, read) and any(
        not rule.keeps and not _of_another(rule, write, args) for rule in rules
    )


def source_touched(models: ToolModels, state: State, read: str) -> bool:
    """Whether such a write may have put something into the answers of a read."""
    return any(_read_touched(models, one, read, {}, _SURELY_LEFT) for one in state.unanswered)


def _not_known(path: Iterable[Test]) -> set[str]:
    """The reads that an answer hangs on and that nobody has told."""
    return {_read_of(name) for test in path if test.way == _NOT_KNOWN for name in test.feature[1:]}


def _read_of(name: str) -> str:
    """The read that a name was told by: "get_cart" of "view.get_cart.total"."""
    return re.split(r"[.(]", name)[1] if "." in name else ""


def _read_touched(
    models: ToolModels,
    write: View,
    read: str,
    args: Mapping[str, JsonValue],
    least: float = _LEFT_ALONE,
) -> bool:
    if said_to_keep(models, write.tool, read):
        return False
    rules = list(_rules(models, write.tool, read))
    if not rules:
        return models.keeps(write.tool, read) < least
    return any(not rule.keeps and not _of_another(rule, write, args) for rule in rules)


def _changed(models: ToolModels, write: str) -> set[str]:
    return {
        read
        for (tool, _), by_read in models.rules.items()
        if tool == write
        for read, rule in by_read.items()
        if ":" not in read and not rule.keeps
    }


def _rules(models: ToolModels, write: str, read: str) -> Iterator[EffectRule]:
    for (tool, _), by_read in models.rules.items():
        if tool == write and read in by_read:
            yield by_read[read]


def _of_another(rule: EffectRule, write: View, args: Mapping[str, JsonValue]) -> bool:
    """Whether the rule changes reads of what the write names, and this read is of another thing."""
    for of, name in rule.bind:
        given = name.removeprefix("args.")
        if of in args and given in write.args and spell(args[of]) != spell(write.args[given]):
            return True
    return False
