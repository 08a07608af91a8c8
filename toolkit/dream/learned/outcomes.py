"""What became of a call: that it went well, or which of its tool's failures it met.

The form of a failure is its text without what differs from call to call (arguments, numbers, quotes). It
rests on nothing that was mined, so what was learned from some recordings holds for others.
"""

from collections.abc import Mapping
from typing import NamedTuple

from dreamgym_kit.dream.state.forms import form_of
from dreamgym_kit.dream.state.models import ToolModels
from dreamgym_kit.dream.state.names import Names
from dreamgym_kit.dream.state.observed import failed
from dreamgym_kit.serialization import JsonValue


def form_of_failure(seen: JsonValue, args: Mapping[str, JsonValue]) -> str | None:
    """Name the form of a failure; None of an answer that is none."""
    if not failed(seen):
        return None
    return form_of(seen, Names({f"args.{name}": value for name, value in args.items()}))


class Written(NamedTuple):
    """An answer from a template; `doubtful` where other worlds contradicted such answers too often."""

    seen: JsonValue
    doubtful: bool


def written(models: ToolModels, tool: str, form: str | None, names: Names) -> Written | None:
    """The answer of this outcome, by the template that was mined of such answers.

    None where no recording had that outcome, or where a part of the answer would be a guess: to decide that
    a call goes well is not to know what it says.
    """
    args = {name[5:]: value for name, value in names.values.items() if _is_argument(name)}
    known = [(answer.template.seen, answer) for (of, _), answer in models.answers.items() if of == tool]
    for _, outcome in sorted(known, key=lambda entry: -entry[0]):
        if outcome.failure != (form is not None):
            continue
        filled = outcome.template.fill(names)
        if filled is not None and not filled.guessed and form_of_failure(filled.value, args) == form:
            return Written(filled.value, outcome.contested(filled.grade))
    return None


def _is_argument(name: str) -> bool:
    return name.startswith("args.") and "." not in name[5:] and "(" not in name
