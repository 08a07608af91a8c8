"""The smallest program that explains some examples: pairs of a scope and the answer in it.

It is a version space over names, not a search over code: the first examples propose a form, and the first
contradiction drops it. Where several names fit equally well, the program has all of them and answers only
while they agree.
"""

import itertools
import re
from collections import Counter, defaultdict
from collections.abc import Callable, Collection, Iterator, Sequence
from functools import partial
from typing import Any

from dreamgym_kit.dream.programs.conditions import Condition, Example, Has, Is
from dreamgym_kit.dream.programs.environment_fields import FIELD
from dreamgym_kit.dream.programs.forms import (
    FUNCTIONS,
    ON_SCALARS,
    OPERATIONS,
    Apply,
    Arithmetic,
    Concat,
    Const,
    Decimals,
    Drop,
    EditItems,
    Fields,
    Get,
    If,
    Later,
    Linear,
    ListOf,
    MadeUp,
    MakeRecord,
    Map,
    MapItems,
    Minutes,
    Open,
    Program,
    Switch,
    Text,
    Tie,
    Update,
    UpdateKey,
    moment,
    sibling_names,
)
from dreamgym_kit.dream.programs.scope import Scope, element_names, ending, is_id_text, name_cost
from dreamgym_kit.dream.programs.trees import candidates, cost
from dreamgym_kit.dream.programs.values import (
    UNKNOWN,
    decimal_places,
    figure,
    has_digits,
    is_known,
    is_number,
    is_scalar,
    same,
    tokens,
    value_key,
)
from dreamgym_kit.serialization import JsonValue

_MAX_TOKENS = 120  # of a text that is taken apart
_CLOCKS = ("%Y-%m-%dT%H:%M:%S", "%Y-%m-%dT%H:%M", "%Y-%m-%d %H:%M:%S", "%Y-%m-%d %H:%M", "%Y-%m-%d")
_BETWEEN = "\n\r\t -,;|*"  # what stands between a text and what was added to it
_MAX_FIELDS = 60
_ENOUGH = 4  # examples on one side of a test whose other side stays open; lengths of a text
_MAX_ELEMENTS = 60  # of all lists of the examples, from which the form of one is learned
_MARKS = "\ue000-\uf8ff"  # private characters: one stands for a whole argument
_MADE_UP = re.compile(r"(id|_at|time|date|number|token|key|ref|no)_?$")
_IDS = re.compile(r"(id|no|number)_?'", re.IGNORECASE)
_TIME = re.compile(r"(_at|time|timestamp)$")
_DATED = re.compile(r"\d{4}-\d\d-\d\d")
_SECONDS = re.compile(r":\d\d:(?!00)\d\d")

Examples = Sequence[Example]


def explain(
    examples: Examples, field: str = "", depth: int = 3, splits: int = 1, *, arithmetic: bool = True
) -> Program | None:
    """Return a program for all examples, or None. `field`: the value's field; `splits`: most tests."""
    if not examples:
        return None
    outs = [out for _, out in examples]
    kinds = {type(out) for out in outs}
    distinct = {value_key(out) for out in outs}
    if kinds == {type(None)}:
        return Const(None)
    plain = _named_or_constant(examples, field, alike=len(distinct) == 1)
    if plain is not None:
        return plain
    functions = ON_SCALARS if kinds & {str, int, float, bool} else ("sorted", "values", "keys")
    forms: list[Callable[[], Program | None]] = [
        partial(_by_function, examples, function, field) for function in functions
    ]
    if arithmetic and (kinds <= {int, float} or kinds == {str}) and len(examples) >= 2:
        forms.append(lambda: _decimal_text(examples) if kinds == {str} else _numeric(examples))
    if kinds == {str}:
        forms.append(lambda: _text(examples) or _joined(examples) or _later(examples))
    if len(distinct) <= 8 and len(examples) >= 6 and all(map(is_scalar, outs)):
        forms.append(lambda: _case(examples))
    if kinds == {dict} and depth:
        forms.append(lambda: _record(examples, depth, splits))
    if kinds == {list} and depth:
        forms.append(lambda: _list(examples, field, depth))
    if splits and len(examples) >= 4:
        forms.append(lambda: _branch(examples, field, depth, splits))
    return next((program for make in forms if (program := make()) is not None), None)


def _named_or_constant(examples: Examples, field: str, *, alike: bool) -> Program | None:
    named = direct(examples, field)
    if not alike:
        return named
    if named is not None and named.names[0].startswith(("count(", "len(", FIELD)):
        named = None
    if named is not None and "old" in named.names:
        return Get(("old",))  # it stays as it is, whatever that is
    return _constant(examples, named, field) or named


def direct(examples: Examples, field: str = "") -> Get | None:
    """Return the names whose value equals the output most often and contradicts it nowhere."""
    votes: Counter[str] = Counter()
    for scope, out in examples:
        votes.update(scope.names_of(out))
    good = sorted(
        (-count, name_cost(name, field), name)
        for name, count in votes.items()
        if all(not is_known(scope.get(name, UNKNOWN)) or same(scope[name], out) for scope, out in examples)
    )
    solid = [(scope, out) for scope, out in examples if out is not None]
    if len(solid) < len(examples):  # None is everywhere: it may not choose a name
        good = [
            candidate
            for candidate in good
            if sum(candidate[2] in scope for scope, _ in solid) >= 0.8 * len(solid)
        ]
    if not good or -good[0][0] < 0.5 * len(examples):
        return None
    first = good[0]
    names = [
        name
        for _, far, name in good[:6]
        if far <= first[1] + 2.2
        and not name.startswith("last.")
        and (name == first[2] or _equals_several(name, examples))
    ] or [first[2]]
    silent = [scope for scope, _ in examples if not any(name in scope for name in names)]
    if -first[0] < len(examples) and len(silent) > 0.34 * len(examples):
        return None
    return Get(tuple(names))


def _equals_several(name: str, examples: Examples) -> bool:
    """Whether a name had several values: one that always equaled a single value may do so by chance."""
    return len({value_key(scope[name]) for scope, _ in examples if name in scope}) > 1


def _by_several(examples: Examples) -> Get | None:
    """Return names that each equal several different texts and contradict none; together they give most."""
    values: dict[str, dict[int, str]] = defaultdict(dict)
    for place, (scope, out) in enumerate(examples):
        for name in scope.names_of(out):
            values[name][place] = out
    names = [
        name
        for name, equal in values.items()
        if len(equal) >= 3
        and len(set(equal.values())) > 1
        and all(same(scope.get(name, out), out) for scope, out in examples)
    ]
    explained = {place for name in names for place in values[name]}
    return Get(tuple(sorted(names))) if 2 * len(explained) > len(examples) else None


def _constant(examples: Examples, named: Get | None, field: str) -> Program | None:
    """Explain equal outputs: by a constant, or by an argument that had this value each time."""
    first, out = examples[0]
    if len(examples) == 1 and named is not None and is_scalar(out):
        return named
    for name in first.names_of(out):
        if name.startswith("next.") and all(same(scope.get(name, UNKNOWN), out) for scope, _ in examples):
            return Get((name,))  # every episode began where the counter did
    if isinstance(out, str):
        echo = _echo(examples, out) or _argument(examples, out, field)
        if echo is not None:
            return echo
    if named is not None:
        name = named.names[0]
        if len({value_key(scope[name]) for scope, _ in examples if name in scope}) == 1:
            last = re.split(r"[.>\[()]", name)[-1]
            if last == field or (name.startswith("args.") and isinstance(out, str) and len(examples) < 3):
                return named
    small = is_scalar(out) or len(str(out)) <= 2
    if not small or (len(examples) < 2 and named is not None):
        return None
    return _with_numbers(examples, out) or Const(out)


def _argument(examples: Examples, out: str, field: str) -> Get | None:
    """Return the argument whose value is this text in all examples."""
    names = [
        name
        for name in examples[0][0]
        if name.startswith(("args.", "item."))
        and len(out) >= 2
        and all(same(scope.get(name, UNKNOWN), out) for scope, _ in examples)
    ]
    return Get((min(names, key=lambda name: name_cost(name, field)),)) if names else None


def _with_numbers(examples: Examples, out: JsonValue) -> Text | None:
    """Explain one text in all examples that contains a number from the call."""
    if not isinstance(out, str) or len(examples) < 2:
        return None
    parts = _fixed([scope for scope, _ in examples], out)
    ties = (part for part in parts if isinstance(part, Tie))
    numbers = any(isinstance(part, Apply) for part in parts) or any(has_digits(str(tie.of)) for tie in ties)
    return Text(tuple(parts)) if numbers else None


def _echo(examples: Examples, out: str) -> Text | None:
    """Explain one text in all examples by a text with the argument that it contains."""
    first = examples[0][0]
    names = [
        name
        for name, value in first.items()
        if name.startswith("args.")
        and isinstance(value, str)
        and len(value) >= 3
        and value != out
        and re.search(r"(?<!\w)" + re.escape(value) + r"(?!\w)", out)
        and all(scope.get(name) == value for scope, _ in examples)
    ]
    if not names:
        return None
    name = max(names, key=lambda arg: len(first[arg]))
    head, _, tail = out.partition(first[name])
    scopes = [scope for scope, _ in examples]
    return Text((*_fixed(scopes, head), Get((name,)), *_fixed(scopes, tail)))


def _fixed(scopes: Sequence[Scope], text: str) -> list[str | Program]:
    """Split fixed text into constants and ties: words that always equaled another value may not be fixed."""
    parts: list[str | Program] = []
    for token in tokens(text):
        tied = _tied(scopes, token)
        if isinstance(tied, Apply) and _IDS.search(repr(tied.to)):
            parts.append(tied)  # the text names what the call names
        elif tied is not None:
            parts.append(Tie(token, tied))
        elif parts and isinstance(parts[-1], str):
            parts[-1] += token
        else:
            parts.append(token)
    return parts


def _by_function(examples: Examples, function: str, field: str) -> Apply | None:
    """Explain values as a function of one name."""
    apply, good = FUNCTIONS[function], []
    scope, out = examples[0]
    lengths = len({value_key(length) for _, length in examples})
    for name, value in scope.items():
        if not is_known(value):
            continue
        of_text = isinstance(value, str) and isinstance(out, str) and len(value) == len(out)
        if function in ("lower", "upper") and not of_text:
            continue
        by_chance = function == "length" and isinstance(value, str) and lengths < _ENOUGH
        if by_chance or not same(apply(value), out):
            continue
        results = [
            (apply(example_scope[name]), wanted)
            for example_scope, wanted in examples
            if is_known(example_scope.get(name, UNKNOWN))
        ]
        if len(results) >= 0.6 * len(examples) and all(same(got, wanted) for got, wanted in results):
            good.append((name_cost(name, field), name))
    return Apply(function, Get((min(good)[1],))) if good else None


def _close(left: float, right: float) -> bool:
    return abs(left - right) < 1e-6 or abs(round(left, 2) - right) < 1e-6


def _numeric(examples: Examples) -> Program | None:
    """Explain numbers by arithmetic on two names, a linear function of one, or a weighted sum of siblings."""
    if len({value_key(out) for _, out in examples}) < 2:
        return None
    ways = (_step, _difference, _two_numbers, _line, _weighted_sum)
    return next((form for way in ways if (form := way(examples)) is not None), None)


def _decimal_text(examples: Examples) -> Decimals | None:
    """Explain texts as a computed number with a fixed number of decimals."""
    places = {decimal_places(out) for _, out in examples}
    numbers = [(scope, number) for scope, out in examples if (number := figure(out)) is not None]
    some = places.pop() if len(places) == 1 else None
    form = _numeric(numbers) if some is not None else None
    if some is None or form is None:
        return None
    written = Decimals(form.to if isinstance(form, Apply) else form, some)
    return written if _fits(written, examples) else None


def _step(examples: Examples) -> Program | None:
    """Explain a counter that changes by one or two."""
    for name, _ in examples[0][0].numbers():
        if not name.startswith("old"):
            continue
        olds = [(old, out) for scope, out in examples if (old := figure(scope.get(name))) is not None]
        steps = {round(out - old, 6) for old, out in olds}
        if len(steps) == 1 and abs(step := steps.pop()) in (1, 2):
            return Arithmetic("+", Get((name,)), Const(int(step)))
    return None


def _difference(examples: Examples) -> Linear | None:
    """Explain a price of what an argument adds to a field of its name: 50 * (args.bags - order.bags)."""
    names = [name for name, _ in examples[0][0].numbers()]
    for new, old in itertools.product(names, names):
        if not new.startswith("args.") or old.startswith("args.") or ending(new) != ending(old):
            continue
        for before in ((), ("old",)):
            rises = set()
            for scope, out in examples:
                numbers = [figure(scope.get(name)) for name in (new, old, *before)]
                known = [number for number in numbers if number is not None]
                if len(known) < len(numbers):
                    break
                rises.add((known[0] - known[1], out - sum(known[2:])))
            else:
                prices = {round(rise / more, 4) for more, rise in rises if more}
                exact = len(prices) == 1 and all(more or not rise for more, rise in rises)
                if exact and len(examples) > 2 and len(rises) > 1 and (price := prices.pop()):
                    terms = ((new, price), (old, -price), *((name, 1.0) for name in before))
                    return Linear(terms, whole=_whole(examples))
    return None


def _two_numbers(examples: Examples) -> Program | None:
    scope, out = examples[0]
    atoms: list[tuple[Program, float, float]] = [
        (Get((name,)), value, name_cost(name)) for name, value in scope.numbers()
    ]
    factors = [entry for entry in scope.numbers() if entry[0].startswith(("args.", "item.", "element."))][:6]
    products: list[tuple[Program, float, float]] = [
        (
            Arithmetic("*", Get((name,)), Get((other,))),
            value * factor,
            1.5 + name_cost(name) + name_cost(other),
        )
        for name, value in factors
        for other, factor in scope.numbers()[:25]
        if name != other and len(examples) > 2  # two may agree by chance
    ]
    proposed = []
    for (left, x, far), (right, y, further) in itertools.chain(
        itertools.product(atoms, atoms + products), itertools.product(products, atoms)
    ):
        both_plain = isinstance(left, Get) and isinstance(right, Get)
        for op, operate in OPERATIONS.items():
            if op == "*" and not both_plain:
                continue
            if op != "-" and repr(left) > repr(right):  # the other order is equal
                continue
            if _close(operate(x, y), out):
                proposed.append((far + further, op, left, right))
    proposed.sort(key=lambda candidate: candidate[0])
    best: tuple[float, Program] | None = None
    for far, op, left, right in proposed[:400]:
        form = Arithmetic(op, left, right)
        agreed = _agreed(form, examples)
        if agreed is None or agreed < max(2, 0.6 * len(examples)):
            continue
        if best is None or far - 0.1 * agreed < best[0]:
            best = (far - 0.1 * agreed, form)
    if best is None:
        return None
    got = [(best[1](example_scope), wanted) for example_scope, wanted in examples]
    exact = all(value is UNKNOWN or abs(value - wanted) <= 1e-9 for value, wanted in got)
    return best[1] if exact else Apply("round2", best[1])


def _agreed(form: Program, examples: Examples) -> int | None:
    """Count the examples that a number program explains; None where it contradicts one."""
    agreed = 0
    for scope, out in examples:
        value = form(scope)
        if is_number(value):
            if not _close(value, out):
                return None
            agreed += 1
    return agreed


def _line(examples: Examples) -> Linear | None:
    for name, _ in examples[0][0].numbers():
        points = [
            (float(x), float(out)) for scope, out in examples if (x := figure(scope.get(name))) is not None
        ]
        if len(points) < max(4, 0.8 * len(examples)) or len({x for x, _ in points}) < 3:
            continue
        (x1, y1), (x2, y2) = min(points), max(points)
        if x1 == x2:
            continue
        factor = round((y2 - y1) / (x2 - x1), 4)
        plus = round(y1 - factor * x1, 4)
        if factor and all(abs(round(factor * x + plus, 2) - y) < 0.0051 for x, y in points):
            return Linear(((name, factor),), plus, _whole(examples))
    return None


def _weighted_sum(examples: Examples) -> Linear | None:
    import numpy as np  # most suites need none of it

    names = [
        name
        for name, _ in examples[0][0].numbers()
        if name.startswith("sibling.") and all(figure(scope.get(name)) is not None for scope, _ in examples)
    ]
    wanted = np.array([float(out) for _, out in examples])
    for size in (2, 3):
        if len(examples) < size + 4:
            break
        for some in itertools.combinations(names, size):
            values = np.array([[figure(scope[name]) for name in some] for scope, _ in examples])
            factors, *_ = np.linalg.lstsq(values, wanted, rcond=None)
            rounded = [round(float(factor), 3) for factor in factors]
            sums = np.round(values @ np.array(rounded), 2)
            if all(rounded) and bool(np.all(np.abs(sums - wanted) < 0.0151)):
                return Linear(tuple(zip(some, rounded, strict=True)), whole=_whole(examples))
    return None


def _whole(examples: Examples) -> bool:
    return all(isinstance(out, int) for _, out in examples)


def _case(examples: Examples) -> Switch | None:
    """Explain outputs as a constant for each of a few values of one name."""
    best: tuple[tuple[int, float], str, dict[Any, tuple[JsonValue, JsonValue]]] | None = None
    for name in sorted({name for scope, _ in examples for name in scope}):
        cases: dict[Any, tuple[JsonValue, JsonValue]] = {}
        hits = 0
        for scope, out in examples:
            value = scope.get(name, UNKNOWN)
            if not is_known(value) or not is_scalar(value) or isinstance(value, float):
                continue
            key = value_key(value)
            if (isinstance(value, str) and is_id_text(value)) or (
                key in cases and not same(cases[key][1], out)
            ):
                hits = -1
                break
            cases[key] = (value, out)
            hits += 1
        if hits < 0.9 * len(examples) or not 2 <= len(cases) <= 8 or hits < 3 * len(cases):
            continue
        far = (len(cases), name_cost(name))
        if best is None or far < best[0]:
            best = (far, name, cases)
    return Switch(best[1], tuple(best[2].values())) if best else None


def _text(examples: Examples) -> Text | None:
    """Explain texts as fixed text with named values in between."""
    shown = [_with_marks(scope, out) for scope, out in examples]
    if len({len(parts) for parts in shown}) != 1 or len(shown[0]) > _MAX_TOKENS:
        return None
    parts: list[str | Program] = []
    scopes = [scope for scope, _ in examples]
    for column in zip(*shown, strict=True):
        if len(set(column)) == 1 and not (len(examples) == 1 and _is_argument(scopes[0], column[0])):
            fixed, *more = _fixed(scopes, column[0])
            if not more and isinstance(fixed, str) and parts and isinstance(parts[-1], str):
                parts[-1] += fixed
            else:
                parts += [fixed, *more]
            continue
        if all(part.isspace() for part in column):
            return None
        pairs = list(zip(scopes, column, strict=True))
        hole: Program | None = direct(pairs)
        for function in ("str", "money", "lower", "day", "clock"):
            hole = hole or _by_function(pairs, function, "")
        if hole is None:
            return None
        parts.append(hole)
    return (
        None
        if not any(isinstance(part, Program) for part in parts) and len(examples) < 2
        else Text(tuple(parts))
    )


def _joined(examples: Examples) -> Text | None:
    """Explain texts as a known one that another follows, after the same sign: a note and what is added."""
    for name in _names_of(str, examples):
        rests = [(scope, out[len(scope[name]) :]) for scope, out in examples if out.startswith(scope[name])]
        if len(rests) < len(examples) or len({rest for _, rest in rests}) < 2:
            continue
        signs = {rest[: len(rest) - len(rest.lstrip(_BETWEEN))] for _, rest in rests}
        for between in ["", *signs] if len(signs) == 1 else [""]:
            follows = direct([(scope, rest[len(between) :]) for scope, rest in rests])
            if follows is not None:
                return Text((Get((name,)), *([between] if between else []), follows))
    return None


def _later(examples: Examples) -> Later | None:
    """Explain a time as another one and so many minutes: always as many, given, or between two times."""
    wanted = [at for _, out in examples if (at := moment(out)) is not None]
    forms = [form for form in _CLOCKS if [at.strftime(form) for at in wanted] == [out for _, out in examples]]
    if not forms or len(examples) < 2:
        return None
    known = {name: [moment(scope[name]) for scope, _ in examples] for name in _names_of(str, examples)}
    times = {name: [at for at in values if at] for name, values in known.items() if None not in values}
    for start, starts in times.items():
        spans = [(end - at).total_seconds() / 60 for end, at in zip(wanted, starts, strict=True)]
        rows = [(scope, span) for (scope, _), span in zip(examples, spans, strict=True)]
        minutes: Program | None = Const(spans[0]) if len(set(spans)) == 1 and len(spans) > 2 else direct(rows)
        for since, until in itertools.permutations(times, 2) if minutes is None else ():
            between = Minutes(Get((since,)), Get((until,)))
            if start not in (since, until) and all(between(scope) == span for scope, span in rows):
                minutes = between
                break
        if minutes is not None:
            return Later(Get((start,)), minutes, forms[0])
    return None


def _tied(scopes: Sequence[Scope], token: str) -> Program | None:
    """Return a program for a numeric argument or record field that equaled this word in every example."""
    if not token[:1].isalnum():
        return None
    for name in scopes[0]:
        of_record = "<args." in name and "?" not in name and len(token) > 2
        value = scopes[0][name]
        if of_record and value == token and all(scope.get(name) == token for scope in scopes):
            return Get((name,))
        numbers = name.startswith("args.") and is_number(value) and str(value) == token
        if numbers and all(str(scope.get(name)) == token for scope in scopes):
            return Apply("str", Get((name,)))
    return None


def _with_marks(scope: Scope, text: str) -> list[str]:
    """Split a text into tokens; an argument, or a known value of several words, is one of them."""
    marks: dict[str, str] = {}
    there = [(name, value) for name, value in scope.items() if isinstance(value, str) and value in text]
    for name, value in sorted(there, key=lambda entry: not entry[0].startswith(("args.", "item."))):
        if len(value) > 1 and (name.startswith(("args.", "item.")) or " " in value):
            mark = chr(0xE000 + len(marks))
            text = text.replace(value, mark)
            marks[mark] = value
    parts: list[str] = []
    for part in re.findall(f"[{_MARKS}]|[^{_MARKS}]+", text):
        parts += [marks[part]] if part in marks else tokens(part)
    return parts


def _is_argument(scope: Scope, text: str) -> bool:
    return len(text) > 2 and any(name.startswith("args.") and value == text for name, value in scope.items())


def _record(examples: Examples, depth: int, splits: int) -> Program | None:
    names = set(examples[0][1])
    if 0 < len(names) <= 12 and all(set(out) == names for _, out in examples):
        each = {
            name: direct([(scope, out[name]) for scope, out in examples], name) for name in examples[0][1]
        }
        if all(form and form.names[0].startswith(("args.", "item.", "element.")) for form in each.values()):
            return MakeRecord({name: form for name, form in each.items() if form})
    updated = _entered(examples, depth) or _updated(examples, depth, splits)
    if updated is not None and all(isinstance(updated.base(scope), dict) for scope, _ in examples):
        return updated
    return _composed(examples, depth, splits) or updated  # an update may have more fields than some examples


def _entered(examples: Examples, depth: int) -> UpdateKey | None:
    """Explain maps as a known map in which an argument names an entry."""
    for name in _names_of(dict, examples):
        pairs = [(scope.child({"old": scope.get(name, UNKNOWN)}), out) for scope, out in examples]
        form = edited_map(pairs, "", depth)
        if form is not None and form.adds:
            return UpdateKey(Get((name,)), form.key, form.change, adds=True)
    return None


def _names_of(kind: type, examples: Examples) -> list[str]:
    """Return the names that have a value of this kind in all examples, the nearest first."""
    shared = set.intersection(*(set(scope) for scope, _ in examples))
    names = (name for name in shared if all(isinstance(scope[name], kind) for scope, _ in examples))
    return sorted(names, key=lambda name: (name_cost(name), name))


def _updated(examples: Examples, depth: int, splits: int) -> Update | None:
    """Explain records as a known record with some fields changed."""
    base = _nearest(examples)
    if base is None:
        return None
    of_base = [(scope, out) for scope, out in examples if isinstance(scope.get(base), dict)]
    changed: dict[str, None] = {}
    removed: set[str] = set()
    for scope, out in of_base:
        old = scope[base]
        changed |= dict.fromkeys(name for name in out if name not in old or not same(old[name], out[name]))
        removed |= {name for name in old if name not in out}
    if len(of_base) < 0.5 * len(examples) or _keys_vary(of_base, base, changed, removed):
        return None
    fields: dict[str, Program] = {}
    where_present: list[str] = []
    for name in changed:
        pairs = [
            (scope.child({"old": scope[base].get(name, UNKNOWN)}), out[name])
            for scope, out in of_base
            if name in out
        ]
        form: Program | None
        if len(pairs) < len(of_base) and len(pairs) < 2:
            form, optional = _seen_once(pairs), True
        else:
            form = explain(pairs, name, depth - 1, splits) or edited_map(pairs, name, depth)
            optional = any(name not in scope[base] and name not in out for scope, out in of_base)
        if form is None:
            return None
        fields[name] = form
        where_present += [name] * optional
    return Update(Get((base,)), fields, tuple(sorted(removed)), tuple(where_present))


def _keys_vary(examples: Examples, base: str, changed: Collection[str], removed: Collection[str]) -> bool:
    """Whether the changed keys are ids and not names of fields: most records have other keys."""

    def often(count: int) -> bool:
        return 2 * count >= len(examples)

    for name in removed:
        if not often(sum(name in scope[base] for scope, _ in examples)) or any(
            name in o for _, o in examples
        ):
            return True
    return len(examples) > 3 and any(
        not often(sum(name in out for _, out in examples))
        and not all(is_number(out.get(name, 0)) for _, out in examples)
        for name in changed
    )


def _composed(examples: Examples, depth: int, splits: int) -> MakeRecord | None:
    """Explain a record field by field."""
    counts = Counter(name for _, out in examples for name in out)
    if len(counts) > _MAX_FIELDS:
        return None
    fields: dict[str, Program] = {}
    optional: dict[str, tuple[Program, tuple[str, ...]]] = {}
    for name, count in counts.items():
        form = explain(
            [(scope, out[name]) for scope, out in examples if name in out], name, depth - 1, splits
        )
        if form is None:
            return None
        if count == len(examples):
            fields[name] = form
            continue
        tells = [
            other
            for other in {other for scope, _ in examples for other in scope}
            if all(
                (scope.get(other, UNKNOWN) is not UNKNOWN and scope[other] is not None) == (name in out)
                for scope, out in examples
            )
        ]
        if not tells or count < 3:
            return None
        optional[name] = (form, (min(tells, key=lambda other: (name_cost(other, name), other)),))
    return MakeRecord(fields, optional)


def _nearest(examples: Examples) -> str | None:
    """Return the name of the record in scope that shares most fields with the output."""
    votes: dict[str, float] = {}
    for scope, out in examples:
        for name, value in scope.items():
            if isinstance(value, dict) and len(value) >= 2:
                hits = sum(field in out and same(item, out[field]) for field, item in value.items())
                if hits >= max(2, 0.4 * len(out)):
                    votes[name] = votes.get(name, 0.0) + hits / max(len(out), len(value))
    best = min(votes, key=lambda name: (-round(votes[name], 1), name_cost(name), name), default=None)
    return best if best is not None and votes[best] >= 0.35 * len(examples) else None


def _seen_once(pairs: Examples) -> Program | None:
    """Explain a change that was seen once, if uneven figures add up: 62.0 + 2674.4 = 2736.4."""
    scope, out = pairs[0]
    old, new, places = figure(scope.get("old")), figure(out), decimal_places(out)
    if old is None or new is None:
        return None
    good = sorted(
        (name_cost(name), op, name)
        for name, value in scope.numbers()
        if name != "old" and abs(value) >= 10 and value != int(value)
        for op in "+-"
        if _close(OPERATIONS[op](old, value), new)
    )
    if not good:
        return None
    op = good[0][1]
    names = tuple(name for _, other, name in good if other == op)[:6]
    form = Arithmetic(op, Get(("old",)), Get(names))
    return Apply("round2", form) if places is None else Decimals(form, places)


def edited_map(pairs: Examples, field: str, depth: int) -> UpdateKey | None:
    """Explain a change of one entry of the map `old`, or a new one, under a key that a name gives."""
    keys: list[str | None] = []
    for scope, out in pairs:
        old = scope.get("old", UNKNOWN)
        if not isinstance(old, dict) or not isinstance(out, dict) or not set(old) <= set(out):
            return None
        changed = [name for name in out if name not in old or not same(old[name], out[name])]
        if len(changed) > 1:
            return None
        keys.append(changed[0] if changed else None)
    selector = direct([(scope, key) for (scope, _), key in zip(pairs, keys, strict=True) if key is not None])
    if selector is None:
        return None
    inside, adds = [], False
    for scope, out in pairs:
        key, old = selector(scope), scope["old"]
        if isinstance(key, str) and key in out:
            adds = adds or key not in old
            inside.append((scope.child(element_names(old[key])) if key in old else scope, out[key]))
    change = explain(inside, field, depth - 1, 1)
    return UpdateKey(Get(("old",)), selector, change, adds) if change else None


def _list(examples: Examples, field: str, depth: int) -> Program | None:
    for base in _lists_in(examples, field):
        of_base = [(scope, out) for scope, out in examples if isinstance(scope.get(base), list)]
        if len(of_base) >= 0.6 * len(examples):
            program = _from_list(of_base, base, field, depth)
            if program is not None:
                return program
    per_item = _for_each_item(examples, field, depth)
    if per_item is not None and any(out for _, out in examples):
        return per_item
    lengths = {len(out) for _, out in examples}
    return _fixed_list(examples, field, depth) if len(lengths) == 1 and 0 < lengths.pop() <= 3 else None


def _from_list(examples: Examples, base: str, field: str, depth: int) -> Program | None:
    """Explain a list by a known one: extended, shortened, with edited elements, or mapped."""
    pairs = [(scope[base], (scope, out)) for scope, out in examples]
    if all(len(out) >= len(old) and all(map(same, old, out)) for old, (_, out) in pairs):
        tails = [(scope, out[len(old) :]) for old, (scope, out) in pairs]
        if not any(tail for _, tail in tails):
            return Get((base,))
        tail = _tail(tails, base, field, depth)
        if tail is not None:
            return Concat((Get((base,)), tail))
    if all(len(out) <= len(old) for old, (_, out) in pairs):
        dropped = _dropped(examples, base)
        if dropped is not None:
            return dropped
    same_length = all(len(out) == len(old) for old, (_, out) in pairs)
    of_items = same_length and any(scope.items_of_args for scope, _ in examples)
    edited = _edited_items(examples, base, depth) if of_items else None
    return edited or _mapped(examples, base, field, depth)


def _mapped(examples: Examples, name: str, field: str, depth: int) -> Map | None:
    """Explain a list as one value for each element of a known list of the same length."""
    if any(not isinstance(scope.get(name), list) or len(scope[name]) != len(out) for scope, out in examples):
        return None
    pairs = [
        (scope.child(element_names(item)), out_item)
        for scope, out in examples
        for item, out_item in zip(scope[name], out, strict=True)
    ]
    each = explain(pairs[:_MAX_ELEMENTS], field, depth - 1, 0, arithmetic=False)
    return Map(Get((name,)), each) if each is not None else None


def _lists_in(examples: Examples, field: str = "") -> list[str]:
    there = Counter(name for scope, _ in examples for name, value in scope.items() if isinstance(value, list))
    filled = {
        name for scope, _ in examples for name, value in scope.items() if isinstance(value, list) and value
    }
    names = sorted(there, key=lambda name: (-there[name], name_cost(name, field), name))
    return [
        name
        for name in names
        if there[name] >= 0.6 * len(examples)
        and (name in filled or name.endswith(f".{field}") or name == "old")
    ][:12]


def _tail(tails: Examples, base: str, field: str, depth: int) -> Program | None:
    """Explain the elements appended to a list."""
    if len({len(tail) for _, tail in tails}) == 1:
        fixed = _fixed_list(tails, field, depth)
        if fixed is not None:
            return fixed
    mapped = (_mapped(tails, name, field, depth) for name in [base, *_lists_in(tails)])
    return next((form for form in mapped if form is not None), None) or _for_each_item(tails, field, depth)


def _fixed_list(examples: Examples, field: str, depth: int) -> ListOf | None:
    forms = []
    for place in range(len(examples[0][1])):
        form = explain([(scope, out[place]) for scope, out in examples], field, depth - 1, 1)
        if form is None:
            return None
        forms.append(form)
    return ListOf(tuple(forms))


def _for_each_item(examples: Examples, field: str, depth: int) -> MapItems | None:
    """Explain a list as one value for each element of the list arguments."""
    if any(len(out) != len(scope.items_of_args) for scope, out in examples):
        return None
    each = explain(
        [
            (scope.child(item), out_item)
            for scope, out in examples
            for item, out_item in zip(scope.items_of_args, out, strict=True)
        ][:_MAX_ELEMENTS],
        field,
        depth - 1,
        1,
    )
    return MapItems(each) if each is not None else None


def _dropped(examples: Examples, base: str) -> Drop | None:
    lost = []
    for scope, out in examples:
        remaining = set(map(value_key, out))
        lost.append([item for item in scope[base] if value_key(item) not in remaining])
    if not any(lost):
        return None
    records = [item for scope, _ in examples for item in scope[base] if isinstance(item, dict)]
    for field in [None, *sorted({name for item in records for name in item})]:
        if any(isinstance(item, dict) is (field is None) for items in lost for item in items):
            continue
        if field is not None and any(field not in item for items in lost for item in items):
            continue
        pairs = [
            (scope, items[0] if field is None else items[0][field])
            for (scope, _), items in zip(examples, lost, strict=True)
            if len(items) == 1
        ]
        selector = direct(pairs) if pairs else None
        if selector is not None:
            form = Drop(Get((base,)), field, selector)
            if _fits(form, examples):
                return form
    return None


def _edited_items(examples: Examples, base: str, depth: int) -> EditItems | None:
    """Explain a list in which the elements named by a list argument are edited."""
    names = {
        name for scope, _ in examples for item in scope.items_of_args for name in item if name.count(".") == 1
    }
    fields = {
        name for scope, _ in examples for item in scope[base] if isinstance(item, dict) for name in item
    }
    for field in sorted(fields):
        for name in sorted(names):
            pairs = _rewritten(examples, base, field, name)
            change = explain(pairs[:_MAX_ELEMENTS], "", depth - 1, 1) if pairs else None
            if change is not None:
                return EditItems(Get((base,)), field, name, change)
    return None


def _rewritten(examples: Examples, base: str, field: str, name: str) -> list[Example] | None:
    """Pair the elements that a list argument names, before and after; None if others changed too."""
    pairs: list[Example] = []
    for scope, out in examples:
        old = scope[base]
        changed = {
            place
            for place, (item, out_item) in enumerate(zip(old, out, strict=True))
            if not same(item, out_item)
        }
        matched: set[int] = set()
        for item in scope.items_of_args:
            wanted = item.get(name, UNKNOWN)
            hit = next(
                (
                    place
                    for place, element in enumerate(old)
                    if place not in matched
                    and isinstance(element, dict)
                    and same(element.get(field, UNKNOWN), wanted)
                ),
                None,
            )
            if hit is None:
                return None
            matched.add(hit)
            pairs.append((scope.child({**item, **element_names(old[hit])}), out[hit]))
        if not changed <= matched:
            return None
    return pairs


def _fits(form: Program, examples: Examples) -> bool:
    results = [(value, out) for scope, out in examples if (value := form(scope)) is not UNKNOWN]
    return len(results) >= max(1, 0.5 * len(examples)) and all(same(value, out) for value, out in results)


def _branch(examples: Examples, field: str, depth: int, splits: int) -> If | None:
    """Return two programs and the test that chooses between them."""
    for condition, sides in _parted(examples):
        forms = [form for side in sides if (form := explain(side, field, depth, splits - 1)) is not None]
        if len(forms) == len(sides):
            return If(condition, *forms)
    return None


def partly(examples: Examples, field: str, depth: int) -> If | None:
    """Return a program for the examples on one side of a test; what the others are stays open."""
    for condition, sides in _parted(examples):
        forms = [explain(side, field, depth, 0) if len(side) >= _ENOUGH else None for side in sides]
        if any(forms):
            return If(condition, *(form or Open() for form in forms))
    return None


def _parted(examples: Examples) -> Iterator[tuple[Condition, Sequence[Examples]]]:
    """Yield tests that part the examples as their values do, with both sides; the most even ones first."""
    scopes = [scope for scope, _ in examples]
    ways = [*itertools.islice(_ways_to_part(examples), 4), *itertools.islice(_by_presence(scopes), 4)]
    given = [Has(name) for _, name in ways if name]
    best: dict[tuple[bool, ...], tuple[float, Condition]] = {}
    for condition, truths in candidates(scopes, 120) if ways else ():
        if UNKNOWN in truths or (isinstance(condition, Is) and isinstance(condition.value, float)):
            continue
        turned = [not truth for truth in truths]
        far = cost(condition) - (condition in given)
        if any(truths == labels or turned == labels for labels, _ in ways):
            key = tuple(truths)
            best[key] = min(best.get(key, (far, condition)), (far, condition), key=lambda found: found[0])
    uneven = {key: abs(len(key) - 2 * sum(key)) for key in best}
    for key in sorted(best, key=lambda key: (uneven[key], best[key][0])):
        rows = list(zip(examples, key, strict=True))
        sides = [[example for example, truth in rows if truth is side] for side in (True, False)]
        yield best[key][1], sides


def _ways_to_part(examples: Examples) -> Iterator[tuple[list[bool], str]]:
    """Yield splits of the examples: by the most frequent output, by None, by what one name explains."""
    keys = [value_key(out) for _, out in examples]
    first, count = Counter(keys).most_common(1)[0]
    if 2 <= count < len(examples):
        yield [key == first for key in keys], ""
    nothing = [out is None for _, out in examples]
    if any(nothing) and not all(nothing):
        yield nothing, ""
    votes: Counter[str] = Counter()
    for scope, out in examples:
        votes.update(scope.names_of(out))
    for name, hits in votes.most_common(4):
        if 2 <= hits < len(examples):
            labels = [name in scope and same(scope[name], out) for scope, out in examples]
            if not all(labels):
                yield labels, name


def _by_presence(scopes: Sequence[Scope]) -> Iterator[tuple[list[bool], str]]:
    """Yield splits of the examples by an optional argument."""
    given = Counter(name for scope in scopes for name in scope if name.startswith("args."))
    for name, count in given.items():
        if name.count(".") == 1 and 2 <= count <= len(scopes) - 2:
            yield [name in scope for scope in scopes], name


def record_with_gaps(examples: Examples, *, writes: bool) -> Fields | None:
    """Explain a record field by field; unexplained ids and times are made up."""
    counts = Counter(name for _, out in examples for name in out)
    if any(count < len(examples) for count in counts.values()):
        return None
    forms: dict[str, Program] = {}
    scopes = [scope for scope, _ in examples]
    for turn in range(3):
        for name in counts:
            if name in forms and not _is_open(forms[name]):
                continue
            pairs = [(scope, out[name]) for scope, (_, out) in zip(scopes, examples, strict=True)]
            forms.pop(name, None)
            forms[name] = _gap(pairs, name, turn, writes=writes) or partly(pairs, name, 3) or Open()
        if not any(map(_is_open, forms.values())):
            break
        explained = [name for name, form in forms.items() if not (_is_open(form) or isinstance(form, MadeUp))]
        scopes = [
            scope.child(sibling_names({name: out[name] for name in explained})) for scope, out in examples
        ]
    return Fields(tuple(forms.items()))


def _is_open(form: Program) -> bool:
    return isinstance(form, Open) or (isinstance(form, If) and Open() in (form.then, form.otherwise))


def _gap(pairs: Examples, name: str, turn: int, *, writes: bool) -> Program | None:
    texts = all(isinstance(value, str) for _, value in pairs)
    form = explain(pairs, name, 3, 1) if not turn or figure(pairs[0][1]) is not None else None
    if turn and texts and form is None:
        form = _text(pairs)  # an amount in it may be another field
    counter = next((key for key in pairs[0][0] if key.startswith("next.") and key.endswith(f".{name}")), None)
    if counter is not None and not isinstance(form, (Get, Const)):
        return Get((counter,))
    if form is None and writes and not turn and texts:
        form = _by_several(pairs)
    if form is None and writes and is_made_up(name, [value for _, value in pairs]):
        return MadeUp(pairs[0][1])
    if form is None and not turn and all(isinstance(value, dict) for _, value in pairs):
        return record_with_gaps(pairs, writes=writes)
    return form


def is_made_up(name: str, values: Sequence[JsonValue]) -> bool:
    """Whether a tool seems to make up these values: ids that vary, times."""
    texts = [value for value in values if isinstance(value, str)]
    if len(texts) < len(values):
        return False
    distinct, low = len(set(texts)), name.lower()
    if all(map(_DATED.match, texts)):  # a clock shows seconds, a given time has none
        return bool(_TIME.search(low)) and distinct > 1 and any(map(_SECONDS.search, texts))
    varied = distinct > min(3, 0.5 * len(texts)) and all(len(text.split()) == 1 for text in texts)
    return varied and bool(_MADE_UP.search(low)) and 2 * sum(map(has_digits, texts)) > len(texts)
