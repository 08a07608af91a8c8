"""Tool models that somebody stated: declared in settings by a person, or drafted by a model and kept.

Of a declared model each part beats what was mined (its failures, its answer, what is said of one read); what
it leaves out is mined. A draft is used only where nothing was mined that is sure enough. Both are data of
`settings.tool_models`; here they are evaluated against a state. A condition on something that nobody knows
counts as not met, and as a doubt.
"""

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from fnmatch import fnmatchcase

from dreamgym_kit.dream.state.names import Names
from dreamgym_kit.dream.state.observed import failed
from dreamgym_kit.dream.state.operations import OperationStep, apply, locate
from dreamgym_kit.dream.state.stated_values import Stated, compiled, steps_of
from dreamgym_kit.dream.state.values import MISSING, add, as_number, copy_json, fields, is_scalar, spell
from dreamgym_kit.dream.state.views import State, View
from dreamgym_kit.dream.state.wrapping import is_raw, opened, unwrapped
from dreamgym_kit.serialization import JsonValue
from dreamgym_kit.settings.load import drafts_file, read_drafts
from dreamgym_kit.settings.schema import Settings
from dreamgym_kit.settings.tool_models import (
    ChangeSettings,
    ConditionSettings,
    FailSettings,
    ToolModelSettings,
    ViewSettings,
)

DECLARED, DRAFTED = "declared", "drafted"
_SUPPORT = {DECLARED: 0.97, DRAFTED: 0.6}
_LAST = "view.last:"
_DOUBT = 0.5  # what an answer is worth once more for each condition that nobody can tell


@dataclass(frozen=True, slots=True)
class StatedOutcome:
    """What a stated model says about a call: a failure, or success (`seen` is MISSING if it tells no answer).

    Attributes:
        part: which part says so: "answer", or "fails.2".
        doubts: conditions that nobody could tell.
        sure: 0..1, how sure the views are that it rests on.
    """

    seen: object
    failure: bool
    part: str
    doubts: int
    sure: float

    def support(self, source: str) -> float:
        """0..1, by who stated it."""
        return float(_SUPPORT[source] * self.sure * _DOUBT**self.doubts)


class StatedModel:
    """One tool, as somebody stated it.

    Args:
        tool: its name.
        said: the data.
        source: DECLARED or DRAFTED.
        writes: whether it changes the world; None: if the data says that it changes or keeps something.
    """

    def __init__(
        self, tool: str, said: ToolModelSettings, *, source: str = DECLARED, writes: bool | None = None
    ) -> None:
        self.tool, self.said, self.source = tool, said, source
        self.writes = bool(said.changes or said.keeps) if writes is None else writes
        self._fails = [(_conditions(fail.when), _told(fail)) for fail in said.fails]
        self._answer = compiled(said.answer) if said.answer is not None else None
        self._changes = [(number, _Change(change)) for number, change in enumerate(said.changes, start=1)]

    @property
    def support(self) -> float:
        """0..1, that a view is right after what is said of it."""
        return _SUPPORT[self.source]

    def around(self, names: Names, state: State, spelled: str) -> tuple[Names, float]:
        """The names around a call with those of the model's own views, and how sure these are."""
        more: dict[str, JsonValue] = {"call.done": (self.tool, spelled) in state.done}
        sure = 1.0
        for alias, view in self.said.views.items():
            found, confidence = _resolved(view, names.with_more(more), state)
            sure = min(sure, confidence)
            more.update({f"{alias}{name}": value for name, value in found.items()})
        return names.with_more(more), sure

    def outcome(self, names: Names, sure: float = 1.0) -> StatedOutcome | None:
        """What the tool answers; None where nothing is said of that."""
        doubts = 0
        for number, (conditions, told) in enumerate(self._fails, start=1):
            held = [condition(names) for condition in conditions]
            if False in held:
                continue
            if None in held:
                doubts += 1
                continue
            return StatedOutcome(told.value(names), True, f"fails.{number}", doubts, sure)
        if self._answer is None and not self.said.fails_only:
            return None
        seen = MISSING if self._answer is None else self._answer.value(names)
        return StatedOutcome(seen, False, "answer", doubts, sure)

    def speaks_of(self, read: str) -> bool:
        """Whether it says what its success does to a read."""
        return self.keeps(read) or any(change.read == read for _, change in self._changes)

    def keeps(self, read: str) -> bool:
        """Whether it says that the read is left alone."""
        return any(fnmatchcase(read, pattern) for pattern in self.said.keeps) and not any(
            change.read == read for _, change in self._changes
        )

    def changes_of(self, read: str) -> tuple[int, ...]:
        """The numbers of the changes of a read."""
        return tuple(number for number, change in self._changes if change.read == read)

    def after(self, view: View, names: Names) -> tuple[object, tuple[int, ...]]:
        """A view after a success, and the numbers of the changes that selected it.

        The view is MISSING where a change cannot be worked out. `names` holds `answer.` and the own views.
        """
        names = names.with_more({f"key.{name}": value for name, value in view.args.items()})
        made: object = view.observation
        used = []
        for number, change in self._changes:
            if change.read == view.tool and change.selects(view, names):
                used.append(number)
                made = change.apply(made, names)
        return made, tuple(used)

    def told(self, names: Names) -> Iterable[tuple[str, dict[str, JsonValue], JsonValue]]:
        """Reads that nobody has made yet, of which a success tells the whole answer: read, args, answer."""
        for _, change in self._changes:
            args = change.args(names)
            if change.whole is not None and args is not None:
                made = change.whole.value(names.with_more({f"key.{key}": arg for key, arg in args.items()}))
                if made is not MISSING:
                    yield change.read, args, made


def stated_models(settings: Settings) -> dict[str, StatedModel]:
    """What settings declare of tools, and drafts of the tools that they do not declare.

    Raises:
        UserError: the file of drafts cannot be read.
    """
    declared = {name: tool for name, tool in settings.tools.items() if tool.model is not None}
    drafts = read_drafts(drafts_file(settings))
    found = {
        name: StatedModel(
            name,
            draft,
            source=DRAFTED,
            writes=settings.tools[name].effect.changes_environment if name in settings.tools else None,
        )
        for name, draft in drafts.items()
    }
    for name, said in declared.items():
        if said.model is not None:
            found[name] = StatedModel(name, said.model, writes=said.effect.changes_environment)
    return found


def names_of_success(names: Names, seen: JsonValue) -> Names:
    """The names around a write with those of its own answer."""
    inner = unwrapped(seen)
    told = {f"answer.{name}": field for name, field in fields(inner, 20).items() if name and is_scalar(field)}
    return names.with_more({**told, "answer": inner})


def _told(fail: FailSettings) -> Stated:
    if fail.error is None:
        return compiled(fail.answer)
    return compiled({"$answer": {"error": fail.error, "error_type": fail.error_type}})


def _resolved(view: ViewSettings, names: Names, state: State) -> tuple[dict[str, JsonValue], float]:
    """What a named view says here, by name behind its alias; nothing where it is not known."""
    wanted = _wanted(view.bind, names)
    if wanted is None:
        return {}, 1.0
    held = [one for one in state.views.values() if one.tool == view.read and _bound(one, wanted)]
    if not held:
        return {}, 1.0
    if view.row:
        return _row(view, held, names)
    if len(held) > 1:  # which of them is meant is not said
        return {}, 1.0
    if failed(held[0].observation):
        return {".failed": True}, held[0].confidence
    return {".failed": False, **_named(unwrapped(held[0].observation))}, held[0].confidence


def _row(view: ViewSettings, held: list[View], names: Names) -> tuple[dict[str, JsonValue], float]:
    wanted = _wanted(view.row, names)
    if wanted is None:
        return {}, 1.0
    found: dict[str, tuple[JsonValue, float]] = {}
    sure = 1.0
    for one in held:
        sure = min(sure, one.confidence)
        place = locate(unwrapped(one.observation), steps_of(view.at), names) if view.at else None
        rows = unwrapped(one.observation) if not view.at else place.value if place is not None else None
        for row in rows if isinstance(rows, list) else ():
            if isinstance(row, dict) and all(spell(row.get(key)) == text for key, text in wanted.items()):
                found[spell(row)] = row, one.confidence
    if len(found) == 1:
        ((row, confidence),) = found.values()
        return {".missing": False, **_named(row)}, confidence
    if not found and (view.bind or held[0].spelled == "{}"):  # the one list that would hold it is known
        return {".missing": True}, sure
    return {}, 1.0


def _named(value: JsonValue) -> dict[str, JsonValue]:
    return {"": value, **{f".{name}": field for name, field in fields(value, 40).items() if name}}


def _wanted(bind: Mapping[str, str], names: Names) -> dict[str, str] | None:
    """What a binding asks for, as spelled; None where a name is not known."""
    if any(name not in names.values for name in bind.values()):
        return None
    return {of: spell(names.values[name]) for of, name in bind.items()}


def _bound(view: View, wanted: Mapping[str, str]) -> bool:
    inner = unwrapped(view.observation) if any(of.startswith(".") for of in wanted) else None
    for of, text in wanted.items():
        if of.startswith("."):
            if not isinstance(inner, dict) or of[1:] not in inner or spell(inner[of[1:]]) != text:
                return False
        elif of not in view.args or spell(view.args[of]) != text:
            return False
    return True


def _conditions(when: Iterable[ConditionSettings]) -> list[Callable[[Names], bool | None]]:
    return [_condition(one.of, one.test, compiled(one.value)) for one in when]


def _condition(of: str, test: str, value: Stated) -> Callable[[Names], bool | None]:
    def holds(names: Names) -> bool | None:
        against = value.value(names)
        if of not in names.values or against is MISSING:
            unknown = [name for name in (of, *value.names()) if name not in names.values]
            # that a write has not happened yet is known: nothing equals what it said
            never = bool(unknown) and all(name.startswith(_LAST) for name in unknown)
            return test in ("is_not", "not_in") if never else None
        return _TESTS[test](names.values[of], against)

    return holds


def _equal(left: JsonValue, right: JsonValue) -> bool:
    return spell(left) == spell(right)


def _compared(left: JsonValue, right: JsonValue, test: Callable[[float, float], bool]) -> bool | None:
    one, other = as_number(left), as_number(right)
    return None if one is None or other is None else test(one, other)


def _held_in(value: JsonValue, holder: JsonValue) -> bool | None:
    if not isinstance(holder, (list, dict, str)):
        return None
    return str(value) in holder if isinstance(holder, str) else value in holder or str(value) in holder


_TESTS: Mapping[str, Callable[[JsonValue, JsonValue], bool | None]] = {
    "is": _equal,
    "is_not": lambda left, right: not _equal(left, right),
    "one_of": lambda left, right: any(_equal(left, one) for one in right),
    "above": lambda left, right: _compared(left, right, lambda one, other: one > other),
    "below": lambda left, right: _compared(left, right, lambda one, other: one < other),
    "at_least": lambda left, right: _compared(left, right, lambda one, other: one >= other),
    "at_most": lambda left, right: _compared(left, right, lambda one, other: one <= other),
    "in": _held_in,
    "not_in": lambda left, right: None if (held := _held_in(left, right)) is None else not held,
}


class _Change:
    """One entry of `changes`, compiled."""

    def __init__(self, said: ChangeSettings) -> None:
        self.read, self._bind = said.read, said.bind
        self.whole = compiled(said.whole) if said.whole is not None else None
        self._operations = [(kind, steps_of(path), compiled(value)) for kind, path, value in said.operations]

    def selects(self, view: View, names: Names) -> bool:
        wanted = _wanted(self._bind, names)
        return wanted is not None and _bound(view, wanted)

    def args(self, names: Names) -> dict[str, JsonValue] | None:
        """The arguments of the read that it gives whole; None where they are not all arguments."""
        if any(of.startswith(".") or name not in names.values for of, name in self._bind.items()):
            return None
        return {of: names.values[name] for of, name in self._bind.items()}

    def apply(self, before: object, names: Names) -> object:
        """The view after the change; MISSING where it cannot be told."""
        if self.whole is not None:
            made = self.whole.value(names)
            if made is MISSING or before is MISSING or failed(before) or is_raw(made):
                return made
            _, put = opened(before)
            return put(made)
        if before is MISSING or failed(before):
            return MISSING
        inner, put = opened(before)
        made = copy_json(inner)
        for kind, path, stated in self._operations:
            place = locate(made, path, names) if path else None
            if path and place is None:
                continue  # the row or key is not in this view
            old: object = made if not path else place.value if place is not None else MISSING
            value = stated.value(names, old)
            if value is MISSING:
                return MISSING
            try:
                made = _done(kind, made, path, names, old, copy_json(value))
            except (LookupError, TypeError):
                return MISSING
        return put(made)


def _done(
    kind: str, made: JsonValue, path: tuple[OperationStep, ...], names: Names, old: object, value: JsonValue
) -> JsonValue:
    if kind in ("add", "subtract"):
        value = add(old, value, 1 if kind == "add" else -1)
        if value is MISSING:
            raise LookupError(kind)
        kind = "set"
    if kind == "remove":
        if not isinstance(old, list):
            raise LookupError(kind)
        old[:] = [item for item in old if not _matches(item, value)]
        return made
    return apply(kind, made, path, names, value)


def _matches(item: JsonValue, wanted: JsonValue) -> bool:
    """Whether an item of a list is meant: equal, or a record that has these fields."""
    if isinstance(item, dict) and isinstance(wanted, dict):
        return all(key in item and spell(item[key]) == spell(one) for key, one in wanted.items())
    return spell(item) == spell(wanted)
