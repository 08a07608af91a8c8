"""Everything around a call that its outcome may hang on, by name, before any of it is put into words.

The names are those that the tool's program sees (`programs.scope`), such as `order_id<args.order_id>.status`
of the order that an argument names. Beside them: `after.cancel_order` that this was done to what the call
names, `refused.refund_payment` that this failed for it, `heard.args.x` whether an earlier answer had this
value, `again` how often the tool did it before, `amount~order_id<args.order_id>.total` how an argument
compares, `amount~0` its sign. What is not known has no name: open world.
"""

import re
from collections.abc import Iterator, Mapping, Sequence
from typing import NamedTuple

from dreamgym_kit.dream.json_values import as_number
from dreamgym_kit.dream.programs.collections import VIEW
from dreamgym_kit.dream.programs.dreaming import ProgramEpisode
from dreamgym_kit.dream.programs.model import outcome_form
from dreamgym_kit.dream.programs.scope import SHARED, Scope
from dreamgym_kit.dream.programs.values import SeenStep, is_scalar
from dreamgym_kit.serialization import JsonValue

_GAP = re.compile(r"\s+")
_PLAIN = re.compile(r"(?:sum|len|sorted|round2|abs|sumdiff|count|next|last)[.(]|last_|args\.|item\.|all ")
_NO_FACTS = ("next.", "last.", "count(", SHARED)
_DEEPEST = 2  # links between a record and an argument that is compared with it


class CallFacts(NamedTuple):
    """What a call can see, as its program reads it and by name."""

    scope: Scope
    values: Mapping[str, JsonValue]


def facts_of(dream: ProgramEpisode, tool: str, args: Mapping[str, JsonValue]) -> CallFacts:
    """Return the facts around a call, in a fixed order."""
    scope, state = dream.scope(tool, args), dream.state
    references = {name for of, name in dream.model.collections.arg_refs if of == tool}
    given = {name: value for name, value in args.items() if name not in references and is_scalar(value)}
    hidden = {f"args.{name}" for name in references}
    facts: dict[str, JsonValue] = {
        _word(name): value
        for name, value in scope.items()
        if is_scalar(value) and name not in hidden and not name.startswith(_NO_FACTS)
    }
    if state.count[tool]:
        facts["again"] = state.count[tool]
    facts |= {f"heard.{name}": value for name, value in scope.seen_earlier.items()}
    for name, value in given.items():
        number = as_number(value)
        sign = "zero" if number == 0 else "below" if (number or 0) < 0 else "above"
        facts[f"{name}~0"] = "no_number" if number is None else sign
    facts.update(_compared(given, scope))
    things = dream.model.things(tool, args)
    facts |= {f"after.{done}": True for done, named, _ in state.written if named & things}
    facts |= {f"refused.{failed}": True for failed, named in state.refused if named & things}
    return CallFacts(scope, facts)


def form_of_failure(step: SeenStep) -> str | None:
    """Name the form of a failure: its text without what differs from call to call; None of other answers.

    It rests on nothing that was mined, so what was learned from some recordings holds for others.
    """
    return None if step.ok else form_text(outcome_form(step))


def form_text(form: Sequence[object]) -> str:
    """A form of an outcome as text."""
    return str(form[1])


def _word(name: str) -> str:
    return _GAP.sub("_", name)


def _compared(given: Mapping[str, JsonValue], scope: Scope) -> Iterator[tuple[str, JsonValue]]:
    others = [
        (name, value)
        for name, value in scope.items()
        if isinstance(value, (str, int, float))
        and not isinstance(value, bool)
        and not _PLAIN.match(name)
        and not name.startswith(VIEW)
        and name.count(">.") <= _DEEPEST
    ]
    for name, value in given.items():
        number = as_number(value)
        for of, other_value in others:
            other = as_number(other_value)
            if number is not None and other is not None:
                same = "equal" if number == other else "less" if number < other else "more"
                yield _word(f"{name}~{of}"), same
            elif isinstance(value, str) and isinstance(other_value, str) and number is None and other is None:
                yield _word(f"{name}~{of}"), "same" if value == other_value else "other"
