"""Decision trees over conditions, and laws: which outcome a call has, what always held."""

import itertools
import math
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from typing import Any

from msgspec import Struct

from dreamgym_kit.dream.programs.collections import VIEW
from dreamgym_kit.dream.programs.conditions import (
    Among,
    AnyOf,
    AtMost,
    Condition,
    CountedIn,
    Differ,
    EachItem,
    Has,
    HeardBefore,
    In,
    InRange,
    Is,
    Less,
    NoItem,
    OfKind,
    Same,
    SameOr,
    Shaped,
    Truth,
    kind_of,
    text_shape,
)
from dreamgym_kit.dream.programs.environment_fields import FIELD
from dreamgym_kit.dream.programs.scope import Scope, all_names, ending, is_id_text
from dreamgym_kit.dream.programs.values import (
    UNKNOWN,
    ValueKey,
    figure,
    has_digits,
    is_known,
    is_scalar,
    is_thing,
    value_key,
)
from dreamgym_kit.serialization import JsonValue


class TreeLeaf(Struct, frozen=True, tag=True):
    """The recorded labels of this leaf: (label, count), the most frequent first."""

    counts: tuple[tuple[Any, int], ...]


class TreeNode(Struct, frozen=True, tag=True):
    """A test, with a subtree for each truth value."""

    condition: Condition
    yes: "Tree | None"
    no: "Tree | None"
    unknown: "Tree | None"

    def branch(self, truth: Truth) -> "Tree | None":
        """Return the subtree for a truth value."""
        return self.yes if truth is True else self.no if truth is False else self.unknown


Tree = TreeLeaf | TreeNode

_LIKELY = 6  # values of a name that are tried
_MIN_GAIN = 0.25
_COST, _COST_OF_UNKNOWN = 0.12, 0.02
_MAX_CONDITIONS = 400


def grow(
    scopes: Sequence[Scope], labels: Sequence[Any], depth: int = 6, limits: Sequence[float] = ()
) -> Tree:
    """Return a decision tree for labelled scopes; `limits` are numbers in the tool's own texts."""
    count = Counter(labels)
    leaf = TreeLeaf(tuple(count.most_common()))
    if len(count) == 1 or depth == 0 or len(scopes) < 2:
        return leaf
    whole, best, best_score = _impurity(count), None, 0.0
    for condition, truths in candidates(scopes, limits=limits):
        parts: dict[str, Counter[Any]] = {"yes": Counter(), "no": Counter(), "unknown": Counter()}
        for truth, label in zip(truths, labels, strict=True):
            parts["yes" if truth is True else "no" if truth is False else "unknown"][label] += 1
        if not parts["yes"] or not (parts["no"] or parts["unknown"]):
            continue
        gain = whole - sum(map(_impurity, parts.values()))
        score = gain - _COST * cost(condition) - _COST_OF_UNKNOWN * parts["unknown"].total()
        if best is None or score > best_score + 1e-9:
            best, best_score = (condition, truths), score
    if best is None or best_score <= _MIN_GAIN:
        return leaf
    condition, truths = best

    def part(wanted: Truth) -> Tree | None:
        some = [place for place, truth in enumerate(truths) if truth is wanted]
        if not some:
            return None
        return grow([scopes[place] for place in some], [labels[place] for place in some], depth - 1, limits)

    return TreeNode(condition, part(True), part(False), part(UNKNOWN))


def leaf_of(tree: Tree | None, scope: Scope) -> TreeLeaf | None:
    """Return the leaf for a scope; None where no example led there."""
    while isinstance(tree, TreeNode):
        tree = tree.branch(tree.condition(scope))
    return tree


def has_grounds(tree: Tree | None, scope: Scope) -> bool:
    """Whether a known value leads to the leaf, and not only that a thing is unknown."""
    while isinstance(tree, TreeNode):
        truth = tree.condition(scope)
        if truth is not UNKNOWN and _is_ground(tree.condition, truth, scope):
            return True
        tree = tree.branch(truth)
    return False


def _is_ground(condition: Condition, truth: bool, scope: Scope) -> bool:
    text = repr(condition)
    of_row = "<args." in text or "<item." in text or any(f"{prefix}?" in text for prefix in scope.rows)
    if isinstance(condition, Is):
        name = condition.name
        return of_row or name.startswith(("view:", FIELD)) or (truth and name.startswith("args."))
    if isinstance(condition, Less):
        return "args." in text or of_row or not isinstance(condition.left, str)
    if isinstance(condition, (Same, CountedIn, In, EachItem)):
        return of_row
    if isinstance(condition, Has):
        return of_row and not truth and scope.get(condition.name.rstrip("?") + "?") is False
    return isinstance(condition, OfKind)


def cost(condition: Condition) -> float:
    """Return the cost of a test: complex tests and long names cost more."""
    base = {Is: 1.0, OfKind: 0.8, Has: 1.5, Same: 1.5, In: 1.5, CountedIn: 1.6, Less: 2.0, EachItem: 2.0}
    text = ",".join(map(str, _parts(condition)))
    far = 0.8 * ("last." in text) + 0.5 * ("count(" in text) + 1.0 * ("next." in text)
    of_arg = 0.6 * (isinstance(condition, Is) and condition.name.startswith("args."))
    return base[type(condition)] + 0.02 * (len(text) + 14) + of_arg + far


def candidates(
    scopes: Sequence[Scope], most: int = _MAX_CONDITIONS, limits: Sequence[float] = ()
) -> Iterator[tuple[Condition, list[Truth]]]:
    """Yield the tests that divide these scopes, each with its truth value in each scope."""
    for condition in _thinkable(scopes, most, limits):
        truths = [condition(scope) for scope in scopes]
        if True in truths and (False in truths or UNKNOWN in truths):
            yield condition, truths


def _thinkable(scopes: Sequence[Scope], most: int, limits: Sequence[float]) -> Iterator[Condition]:
    names = all_names(list(scopes))
    for name, count in names.items():
        if count < len(scopes) and not name.startswith(("item.", FIELD)):
            yield Has(name)
        if name.startswith("args."):
            kinds = {kind_of(scope[name]) for scope in scopes if name in scope}
            yield from (OfKind(name, kind) for kind in sorted(kinds) if len(kinds) > 1)
        yield from _values_of(name, scopes, count)
    yield from _comparisons(scopes, names, limits)
    yield from _of_arguments(scopes, names, most * 3)
    yield from _of_items(scopes)


def _values_of(name: str, scopes: Sequence[Scope], count: int) -> Iterator[Condition]:
    values = [scope[name] for scope in scopes if name in scope and is_scalar(scope[name])]
    counts = Counter(map(value_key, values))
    if len(counts) < 2:
        return
    by_key = {value_key(value): value for value in values}
    for key, seen in counts.most_common(_LIKELY):
        kind, value = key
        if kind == "s" and is_id_text(value) and len(counts) > 3:
            continue
        if kind == "n" and (value == "nan" or abs(value) > 3 or value != int(value)):
            continue
        plain = value in (None, "", 0, True, False)
        if seen >= 2 and (len(counts) <= 12 or seen >= 0.15 * count or plain):
            yield Is(name, by_key[key])


def _comparisons(
    scopes: Sequence[Scope], names: Counter[str], limits: Sequence[float]
) -> Iterator[Condition]:
    numeric = [
        name
        for name in names
        if any(figure(scope.get(name)) is not None for scope in scopes)
        and not name.lower().endswith(("id", "number"))
    ][:40]
    for name in numeric:
        yield Less(name, 0)
        if name.startswith("args.") and len({figure(scope.get(name)) for scope in scopes} - {None}) > 1:
            yield Less(name, 1)
    counted = Counter(name for scope in scopes for name, _ in scope.numbers())
    near = [name for name, _ in counted.most_common(26)]
    for left, right in itertools.permutations(near, 2):
        comparable = left.startswith(("args.", "sum")) or right.startswith(("args.", "sum"))
        comparable = comparable or left.rsplit(".", 1)[-1] == right.rsplit(".", 1)[-1]
        if comparable and not any(name.startswith(("count(", "last.")) for name in (left, right)):
            yield Less(left, right)
    for name in near:
        for limit in limits:
            yield Less(limit, name)
            yield Less(name, limit)


def _of_arguments(scopes: Sequence[Scope], names: Counter[str], most: int) -> Iterator[Condition]:
    args = [name for name in names if name.startswith("args.")]
    pairs = ((arg, name) for arg in args for name in names if name != arg)
    yield from itertools.islice(
        itertools.chain.from_iterable(_of_argument(arg, name, scopes) for arg, name in pairs), most
    )
    lists = [arg for arg in args if any(isinstance(scope.get(arg), list) for scope in scopes)]
    yield from itertools.starmap(Same, itertools.combinations([f"len({arg})" for arg in lists], 2))


def _of_argument(arg: str, name: str, scopes: Sequence[Scope]) -> Iterator[Condition]:
    """Yield tests that relate an argument to another name."""
    kinds = {type(scope.get(arg)) for scope in scopes}
    of_keys, of_lists = bool(kinds & {str, int}), list in kinds
    values = (scope[name] for scope in scopes if is_known(scope.get(name, UNKNOWN)))
    value = next((value for value in values if value is not None), None)
    of_records = isinstance(value, list) and bool(value) and isinstance(value[0], dict)
    if isinstance(value, (list, dict)):
        if of_keys or (of_lists and not of_records):
            yield In(arg, name)
        if of_lists and isinstance(value, list) and of_records:
            yield from (CountedIn(arg, name, field) for field in list(value[0])[:8])
    elif of_keys and isinstance(value, (str, int)):
        yield Same(arg, name)


def _of_items(scopes: Sequence[Scope]) -> Iterator[Condition]:
    items = [item for scope in scopes for item in scope.items_of_args]
    names = list(dict.fromkeys(name for item in items for name in item))
    for name in names:
        values = {
            value_key(item[name]): item[name] for item in items if name in item and is_scalar(item[name])
        }
        if 1 <= len(values) <= 3:
            yield from (EachItem(Is(name, value)) for value in values.values())
        yield EachItem(Has(name))
    plain = [name for name in names if name.count(".") == 1]
    for left, right in itertools.combinations(plain, 2):
        yield EachItem(Same(left, right))


def _impurity(counts: Counter[Any]) -> float:
    total = counts.total()
    return -sum(count * math.log2(count / total) for count in counts.values()) if total else 0.0


def _parts(condition: Condition) -> list[Any]:
    return [getattr(condition, name) for name in condition.__struct_fields__]


_SHORT = 40  # characters of a text that may be one of a few
_STORES = ("balance", "stock", "limit", "available", "quantity")
_FEW_VALUES = ("status", "state", "kind", "type", "source")


def laws(scopes: Sequence[Scope], least: int = 4) -> tuple[Condition, ...]:
    """Return the conditions that held in all successful calls and might have failed."""
    return tuple(_laws(scopes, all_names(list(scopes)), least))


def _laws(scopes: Sequence[Scope], names: Counter[str], least: int) -> Iterator[Condition]:
    def always(condition: Condition) -> bool:
        truths = [condition(scope) for scope in scopes]
        return truths.count(True) >= max(least, 0.3 * len(scopes)) and False not in truths

    often = {name: count for name, count in names.items() if count >= least}
    yield from filter(always, [Is(name, True) for name in often if name.endswith(">?")])
    for name, count in often.items():
        yield from _value_laws(name, count, scopes, least)
    args = [name for name in names if name.startswith("args.")]
    optional = tuple(arg for arg in args if arg.count(".") == 1 and names[arg] < len(scopes))
    if len(scopes) >= 2 * least and len(optional) > 1:
        yield from filter(always, [AnyOf(optional)])
    keys = [arg for arg in args if all(has_digits(str(scope[arg])) for scope in scopes if arg in scope)]
    yield from filter(always, map(HeardBefore, keys))
    for arg in args:
        for name in names:
            yield from filter(always, _list_laws(arg, name, scopes))
            of_field = name != arg and "<args." in name and not name.startswith("len(")
            if of_field and _is_bound(arg, name, scopes, 6, 1 / 3):
                yield AtMost(arg, name)
        yield from _agreements(arg, names, scopes)
    lengths = [f"len({arg})" for arg in args if f"len({arg})" in names]
    yield from filter(always, itertools.starmap(Same, itertools.combinations(lengths, 2)))
    totals = [name for name in names if name.startswith(("sumdiff(", "sum(item."))][:12]
    stores = [name for name in names if name.endswith(_STORES) and "<args." in name]
    for total, name in itertools.product(totals, stores):
        if _is_bound(total, name, scopes, 12, 0.4):
            yield AtMost(total, name)
    yield from _item_laws(scopes, always, least)


def _item_laws(
    scopes: Sequence[Scope], always: Callable[[Condition], bool], least: int
) -> Iterator[Condition]:
    """Yield conditions that held for each element of the list arguments."""
    values: dict[str, dict[ValueKey, Any]] = {}
    for scope in scopes:
        for item in scope.items_of_args:
            for name, value in item.items():
                if is_scalar(value):
                    values.setdefault(name, {})[value_key(value)] = value
    flags = [name for name, seen in values.items() if len(seen) == 1 and next(iter(seen))[0] == "b"]
    yield from filter(always, [EachItem(Is(name, *values[name].values())) for name in flags])
    plain = [name for name in values if name.count(".") == 1 and "@" not in name]
    for left, right in itertools.combinations(plain, 2):
        truths = [Same(left, right)(scope.child(item)) for scope in scopes for item in scope.items_of_args]
        if truths.count(False) >= least and True not in truths:
            yield NoItem(Same(left, right))


def _value_laws(name: str, count: int, scopes: Sequence[Scope], least: int) -> Iterator[Condition]:
    """Yield conditions on the values of one name."""
    there = [scope[name] for scope in scopes if name in scope]
    plain = [value for value in there if is_scalar(value)]
    counts = Counter(map(value_key, plain))
    values = {value_key(value): value for value in plain}
    kinds = {kind for kind, _ in counts}
    if name.startswith(("sum(args.", "diff(")) and kinds == {"n"} and len(counts) > 1:
        yield InRange(name, min(values.values()), max(values.values()))
    if name.startswith("args."):
        of = {kind_of(value) for value in there}
        if len(of) == 1:
            yield OfKind(name, of.pop())
        often = counts.total() >= 8 * len(counts) and min(counts.values(), default=0) >= 2
        is_word = kinds == {"s"} and not any(has_digits(text, 2) for _, text in counts)
        if is_word and often and len(counts) <= 4:
            yield Among(name, tuple(values.values()))
        if kinds == {"n"} and len(counts) > 1 and count >= 5:
            yield InRange(name, min(values.values()), max(values.values()))
        if len(counts) >= 5 and all(isinstance(value, str) and is_thing(value) for value in there):
            yield from _text_laws(name, list(values.values()))
    if "<args." in name and name.count(">") == 1 and "[" not in name.rpartition(">")[2]:
        yield from _record_laws(name, count, plain, scopes, least)


def _record_laws(
    name: str, count: int, plain: Sequence[Any], scopes: Sequence[Scope], least: int
) -> Iterator[Condition]:
    """Yield conditions on a field of the very record that an argument names."""
    counts, values = Counter(map(value_key, plain)), {value_key(value): value for value in plain}
    only = _only_record(name, scopes)
    if only is not None:  # many calls tell no more of it than one does, and nothing of another record
        if set(counts) == {only}:
            yield Is(name, values[only])
        return
    kinds, least_often = {kind for kind, _ in counts}, 0.5 * len(scopes)
    if len(counts) == 1 and count >= max(least, least_often) and kinds <= {"s", "b"} and ending(name) != "ok":
        yield Is(name, next(iter(values.values())))
    texts = kinds == {"s"} and all(len(text) < _SHORT for _, text in counts)
    often = count >= max(4 * len(counts), least_often)
    if texts and 2 <= len(counts) <= 3 and often and name.endswith(_FEW_VALUES):
        yield Among(name, tuple(values.values()))


def _only_record(name: str, scopes: Sequence[Scope]) -> ValueKey | None:
    """Return the key of the record that all calls name; None where they name several."""
    prefix = name.partition(">")[0] + ">"
    keys = {value_key(scope.rows[prefix][1]) for scope in scopes if prefix in scope.rows}
    return keys.pop() if len(keys) == 1 else None


def _text_laws(name: str, texts: Sequence[str]) -> Iterator[Condition]:
    """Yield laws of texts: a common shape, such as an email address, or a range of numeric strings."""
    shapes = {text_shape(text) for text in texts}
    if len(shapes) <= max(1, len(texts) // 8):
        yield Shaped(name, tuple(sorted(shapes)))
    if all(text.isdecimal() for text in texts):
        yield InRange(name, min(map(int, texts)), max(map(int, texts)))
    numbers = [number for text in texts if (number := figure(text)) is not None]
    if len(numbers) == len(texts):
        yield InRange(name, min(numbers), max(numbers))


def _list_laws(arg: str, name: str, scopes: Sequence[Scope]) -> Iterator[Condition]:
    if name.startswith("args."):
        return
    value = next(
        (scope[name] for scope in scopes if isinstance(scope.get(name), (list, dict)) and scope[name]), None
    )
    given = next((scope[arg] for scope in scopes if arg in scope), None)
    if value is None:
        return
    of_records = isinstance(value, list) and isinstance(value[0], dict)
    if isinstance(given, list) and of_records:
        yield from (CountedIn(arg, name, field) for field in list(value[0])[:10])
    elif isinstance(given, str) and not of_records:
        yield In(arg, name)


def _is_bound(low: str, high: str, scopes: Sequence[Scope], least: int, near: float) -> bool:
    """Whether one number never exceeded another, and came close enough for this to be no accident."""
    pairs = [
        (left, right)
        for scope in scopes
        if (left := figure(scope.get(low))) is not None and (right := figure(scope.get(high))) is not None
    ]
    if 2 * len(set(pairs)) < least or len(pairs) < least or any(left > right for left, right in pairs):
        return False
    return any(left > near * right > 0 for left, right in pairs)


def _is_key_of_another(arg: str, name: str) -> bool:
    """Whether a name belongs to a record with a composite key that includes this argument."""
    return arg.removeprefix("args.") in name.partition(">")[0].replace("+", " ").split()


def _agreements(
    arg: str, names: Counter[str], scopes: Sequence[Scope], least: int = 4
) -> Iterator[Condition]:
    """Yield laws on an argument and a field: never equal, always equal, or equal but for one kind of call."""
    given = {scope[arg] for scope in scopes if isinstance(scope.get(arg), str)}
    if len(given) < 3:
        return
    for name, count in names.items():
        if name == arg or count < 3 or not ("<args." in name or name.startswith(VIEW)):
            continue
        values = {scope[name] for scope in scopes if isinstance(scope.get(name), str)}
        if len(values) < 3:
            continue
        truths = [Same(arg, name)(scope) for scope in scopes]
        if truths.count(False) >= 3 and True not in truths and _look_alike(given, values):
            yield Differ(arg, name)
        elif truths.count(True) >= max(least, 0.8 * len(truths)) and False not in truths:
            if f"<{arg}>" not in name and not _is_key_of_another(arg, name):
                yield Same(arg, name)
        elif truths.count(True) >= max(3, 0.4 * len(truths)) and False in truths:
            odd = [scope for scope, truth in zip(scopes, truths, strict=True) if truth is False]
            excuses = _common_texts(odd, f"<{arg}>")
            if excuses and len(odd) >= 2:
                yield SameOr(arg, name, excuses)


def _common_texts(scopes: Sequence[Scope], of: str) -> tuple[tuple[str, JsonValue], ...]:
    shared = set.intersection(*(set(scope) for scope in scopes))
    return tuple(
        (name, scopes[0][name])
        for name in scopes[0]
        if name in shared
        and of in name
        and isinstance(scopes[0][name], str)
        and len({value_key(scope[name]) for scope in scopes}) == 1
    )


def _look_alike(left: set[str], right: set[str]) -> bool:
    def shapes(texts: set[str]) -> set[str]:
        return {
            "".join("#" if character.isdigit() else character for character in text)[:30] for text in texts
        }

    return bool(shapes(left) & shapes(right))
