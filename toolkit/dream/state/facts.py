"""Facts around a call that its success may hang on: equalities, presence, comparisons, what is known to fail.

Values count as facts only when they recur in several worlds: a password or a title that one world has makes
pure leaves and nonsense.
"""

from collections import Counter
from collections.abc import Callable, Collection, Hashable, Iterable

from dreamgym_kit.dream.state.likeness import well_known
from dreamgym_kit.dream.state.names import Names
from dreamgym_kit.dream.state.trees import Feature, Test
from dreamgym_kit.dream.state.values import as_number, is_key, is_number, is_scalar
from dreamgym_kit.dream.state.views import State
from dreamgym_kit.serialization import JsonValue

_MOST = 0.8  # share of calls that fail where a test says so
_ALL = 0.97  # a list without the value says so only if it names all there is, not a few of them

Common = frozenset[tuple[str, str]]
"""(name, text) that stood around calls in several worlds."""


def facts_around(
    tool: str,
    spelled: str,
    names: Names,
    state: State,
    common: Common,
    before: str | None = None,
) -> dict[Feature, Hashable]:
    """All facts around a call.

    `before` is the form that the same call was answered with in this world, after whatever writes.
    """
    facts: dict[Feature, Hashable] = {}
    values = names.values
    given = [(name, value) for name, value in values.items() if name.startswith("args.")]
    around = [(name, value) for name, value in values.items() if name.startswith(("view.", "row."))]
    numbers = [(name, number) for name, value in around if (number := as_number(value)) is not None]
    holders = [(name, value) for name, value in around if isinstance(value, (list, dict))]
    known = well_known(state)
    facts.update(_own_values(names, common))
    for name, value in given:
        number = as_number(value)
        if number is not None:
            facts["positive", name] = number > 0
            for other, bound in numbers:
                facts[">", name, other] = number > bound
        facts["type", name] = type(value).__name__
        if is_scalar(value) and value is not None:
            _compare(facts, name, value, holders, [*around, *given])
            if is_key(value) and "(" not in name:
                seen = state.has_seen(str(value))
                if seen or (known and not state.may_have(str(value))):  # silence tells of known worlds only
                    facts["seen", name] = seen
    facts["done",] = (tool, spelled) in state.done
    if before is not None:
        facts["before",] = before
    return facts


def _own_values(names: Names, common: Common) -> dict[Feature, Hashable]:
    facts: dict[Feature, Hashable] = {}
    for name, value in names.values.items():
        if isinstance(value, bool) or value is None:
            facts["is", name] = str(value)
        elif isinstance(value, str) and name.startswith("view.probe:"):
            facts["is", name] = value
    facts.update(
        {feature: text for feature, text in texts_around(names).items() if (feature[1], text) in common}
    )
    return facts


def texts_around(names: Names) -> dict[Feature, str]:
    """Texts that are facts where they are common: those that recur in several worlds."""
    return {
        ("is", name): str(value)
        for name, value in names.values.items()
        if (isinstance(value, str) and len(value) < 60 and not name.startswith("view.probe:"))
        or (is_number(value) and name.startswith("view."))
        if not (name.startswith("view.last:") and ".args." in name)  # what was asked for is no state
    }


def _compare(
    facts: dict[Feature, Hashable],
    name: str,
    value: JsonValue,
    holders: list[tuple[str, JsonValue]],
    others: list[tuple[str, JsonValue]],
) -> None:
    for other, holder in holders:
        if f"={name[5:]}]" in other and isinstance(holder, dict):
            continue  # the very record that was found by this value
        facts["in", name, other] = value in holder or str(value) in holder
    for other, known in others:
        if type(known) is type(value) and f"={name[5:]}]" not in other and (other[0] != "a" or other > name):
            facts["=", name, other] = known == value


def vouched(path: Iterable[Test], fails: Callable[[str], bool], denied: Collection[str] = ()) -> bool:
    """Whether a failure rests on something known of this world or of the call, not on how often calls failed.

    `denied` names the arguments of which it says that there is no such thing: only what is known of one of
    them may tell that, whatever else recorded absences happened to go with.

    One test on the way to it must be about something known, and must tell: calls where that was otherwise
    went well, calls where it was so failed. That most recorded calls of a tool failed says how they were
    recorded, not that this one fails.
    """
    return any(
        test.way < 2
        and _may_vouch(test)
        and (not denied or any(_is_about(test, name) for name in denied))
        and _failing(test.here, fails, _ALL if test.feature[0] in ("in", ">") else _MOST)
        and _working(test.there, fails)
        for test in path
    )


def _is_about(test: Test, argument: str) -> bool:
    """Whether a test asks for what is known of the thing that an argument names, or of that very call."""
    return test.feature[0] in ("before", "done") or any(
        name == f"args.{argument}" or f"={argument}]" in name or f"({argument}:" in name
        for name in test.feature[1:]
    )


def _may_vouch(test: Test) -> bool:
    """What was never seen may be there all the same, and no equality is no evidence against a text."""
    kind, name = test.feature[0], test.feature[-1]
    if kind == "seen":
        return False
    if kind == "before":
        return test.way == 0
    if kind == "is" and name.startswith("args."):
        return test.way == 0
    return True


def _failing(forms: Counter[str], fails: Callable[[str], bool], share: float) -> bool:
    bad = sum(count for form, count in forms.items() if fails(form))
    return bad >= 2 and bad >= share * forms.total()


def _working(forms: Counter[str], fails: Callable[[str], bool]) -> bool:
    good = sum(count for form, count in forms.items() if not fails(form))
    return good >= 2 and good >= 0.5 * forms.total()
