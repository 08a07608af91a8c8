"""What a write does to one read: a rule mined from the read before and after it, with its evidence.

A rule has a binding (which argument or answer of the write selects the view), and a program: `keep` (it
does not touch this read: the commonest rule, and the one most needed), a few operations, or the whole new
answer. It counts how often it was right on worlds that it was not made from.
"""

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

from dreamgym_kit.dream.state.entities import is_id_name
from dreamgym_kit.dream.state.names import Names
from dreamgym_kit.dream.state.operations import OperationStep, apply, difference, general_paths, locate
from dreamgym_kit.dream.state.templates import Template
from dreamgym_kit.dream.state.trees import CONTESTED
from dreamgym_kit.dream.state.values import MISSING, copy_json, is_key, is_scalar, spell
from dreamgym_kit.dream.state.views import View
from dreamgym_kit.serialization import JsonValue

Operation = tuple[tuple[OperationStep, ...], str]

_MAX_OPERATIONS = 4
_CANDIDATES = 12
_FITTED = 120  # examples that a rule is made from
_WITNESSES = 2  # reads of the very thing that a write names, before it may be said to leave that alone


class Example(NamedTuple):
    """One write, and one read on both sides of it."""

    names: Names  # around the write, with `answer.` and `key.`
    read_args: Mapping[str, JsonValue]
    before: JsonValue
    after: JsonValue
    known: bool  # whether `before` was known
    world: str
    args: Mapping[str, JsonValue]  # of the write
    shared: frozenset[tuple[str, str]]  # see `shared_things`

    @property
    def same(self) -> bool:
        """Whether the write left the read as it was."""
        return spell(self.before) == spell(self.after)


@dataclass(slots=True)
class EffectRule:
    """What a write (in one form of its answer) does to the views of one read."""

    bind: tuple[tuple[str, str], ...] = ()  # (of the read: argument or ".field", name around the write)
    program: tuple[Operation, ...] | None = ()  # () keeps, None gives the whole answer
    operations: dict[Operation, Template] = field(default_factory=dict)
    whole: Template = field(default_factory=Template)
    same: int = 0  # bound pairs that stayed equal
    changed: int = 0
    right: int = 0  # held out
    wrong: int = 0
    other_same: int = 0  # pairs that the binding does not select
    other: int = 0
    worlds: int = 0
    about: Counter[tuple[str, str]] = field(default_factory=Counter)  # known pairs about the thing written to
    alike: frozenset[str] = frozenset()  # arguments that write and read have both

    @property
    def keeps(self) -> bool:
        """Whether the write leaves this read alone."""
        return self.program == ()

    def tells(self, prior: float) -> bool:
        """Whether it says more than that writes seldom touch reads: seen on both sides, or mostly right."""
        return self.same + self.changed + self.other > 0 or (self.right >= 2 and self.support(prior) > prior)

    def support(self, prior: float) -> float:
        """0..1, that the view is right after the rule; `prior`: share of reads that writes leave alone."""
        if self.keeps:
            return (self.same + 4 * prior) / (self.same + self.changed + 4)
        tried = self.right + self.wrong
        held_out = (self.right + 0.5) / (tried + 1) if tried else 0.3
        return held_out if self.worlds > 1 else min(held_out, 0.35)

    def support_elsewhere(self, prior: float) -> float:
        """0..1, that a view which the binding does not select stays as it is."""
        return (self.other_same + 4 * prior) / (self.other + 4)

    @property
    def contested(self) -> bool:
        """Whether recordings contradict too often what it says of the views that it is about."""
        if self.keeps:
            return _too_many(self.changed, self.same)
        return _too_many(self.wrong, self.right)

    @property
    def contested_elsewhere(self) -> bool:
        """The same of the views that the binding does not select."""
        return _too_many(self.other - self.other_same, self.other_same)

    def witnessed(self, shared: Iterable[tuple[str, str]]) -> bool:
        """Whether reads of the very thing that the write names were seen around it, not only of others."""
        return all(self.about[pair] >= _WITNESSES for pair in shared)

    def selects(self, read_args: Mapping[str, JsonValue], before: JsonValue, names: Names) -> bool:
        """Whether the binding holds for a view."""
        for of, name in self.bind:
            if name not in names.values:
                return False
            value = _of_read(of, read_args, before)
            if value is MISSING or spell(value) != spell(names.values[name]):
                return False
        return True

    def apply(self, before: object, names: Names) -> object:
        """The view after the write; MISSING when the rule cannot tell."""
        if self.program is None:
            made = self.whole.fill(names)
            return MISSING if made is None else made.value
        return run(self.program, self.operations, before, names)


def _too_many(against: int, agreeing: int) -> bool:
    return against >= 2 and against > CONTESTED * (against + agreeing)


def shared_things(args: Mapping[str, JsonValue], view: View) -> frozenset[tuple[str, str]]:
    """(argument of a write, argument or field of a read) that name one thing; numbers only by one name.

    Fields count where a name says that they hold an id: an order may be read by its customer's address.
    """
    found = set()
    for name, arg in args.items():
        for pattern, of, _ in view.index.get(str(arg), ()) if is_key(arg) else ():
            alike = isinstance(arg, str) or name == (of or pattern)
            if alike and (of is None or is_id_name(name) or is_id_name(of)):
                found.add((name, pattern if of is None else f"{pattern}.{of}"))
    return frozenset(found)


def _witnesses(example: Example) -> frozenset[tuple[str, str]]:
    """What the pair shows a write doing to the thing it names; nothing where it says what was so already."""
    before, keys = example.before, {name for name, _ in example.shared}
    said = {name: value for name, value in example.args.items() if name not in keys}
    if isinstance(before, dict) and any(before.get(name, MISSING) == value for name, value in said.items()):
        return frozenset()
    return example.shared


def run(
    program: tuple[Operation, ...], operations: Mapping[Operation, Template], before: object, names: Names
) -> object:
    """Do the operations to a copy; MISSING when one cannot be done."""
    if before is MISSING:
        return MISSING
    after = copy_json(before)
    for path, kind in program:
        value = None
        if kind != "delete":
            place = locate(after, path, names) if path else None
            if path and place is None and kind in ("set", "new"):
                continue  # the row or key is not in this view
            old: object = after if not path else place.value if place is not None else MISSING
            made = operations[path, kind].fill(names, old if kind == "set" else MISSING)
            if made is None:
                return MISSING
            value = copy_json(made.value)
        try:
            after = apply(kind, after, path, names, value)
        except (LookupError, TypeError):
            return MISSING
    return after


def mine_rule(examples: Sequence[Example]) -> EffectRule:
    """Make the rule of one (write, form, read) from its examples."""
    rule = EffectRule(bind=_binding(examples))
    bound: list[Example] = []
    for example in examples:
        if rule.selects(example.read_args, example.before, example.names):
            bound.append(example)
        elif example.known:
            rule.other += 1
            rule.other_same += example.same
        if example.known:
            rule.about.update(_witnesses(example))
    _fit(rule, bound[:_FITTED])
    rule.same = sum(example.known and example.same for example in bound)
    rule.changed = sum(example.known and not example.same for example in bound)
    rule.worlds = len({example.world for example in bound})
    rule.alike = frozenset(name for one in examples for name in one.args if name in one.read_args)
    if not rule.keeps:
        _hold_out(rule, bound)
    return rule


def _of_read(of: str, read_args: Mapping[str, JsonValue], before: JsonValue) -> object:
    if not of.startswith("."):
        return read_args.get(of, MISSING)
    return before.get(of[1:], MISSING) if isinstance(before, dict) else MISSING


def _binding(examples: Sequence[Example]) -> tuple[tuple[str, str], ...]:
    """Up to three equalities that select the changed views, and as few unchanged ones as can be."""
    changed = [example for example in examples if example.known and not example.same]
    pool = (changed or [example for example in examples if not example.known])[:200]
    same = [example for example in examples if example.known and example.same][:400]
    if not pool:
        return ()
    # an argument that selects the view is believed before a record that happens to agree
    return _best_binding(pool, same, ("args.", "answer.")) or _best_binding(pool, same, ("row.",))


def _best_binding(
    pool: Sequence[Example], same: Sequence[Example], prefixes: tuple[str, ...]
) -> tuple[tuple[str, str], ...]:
    equalities = [_equalities(example, prefixes) for example in pool]
    kept = [_equalities(example, prefixes) for example in same]
    counts = Counter(equality for found in equalities for equality in found)
    candidates = [equality for equality, _ in counts.most_common(20)]

    def worth(chosen: tuple[tuple[str, str], ...]) -> float:
        wanted = set(chosen)
        return sum(wanted <= equality for equality in equalities) - 0.5 * sum(
            wanted <= found for found in kept
        )

    def preference(equality: tuple[str, str]) -> tuple[float, bool, bool, int, tuple[str, str]]:
        of, name = equality
        alike = name.endswith(f".{of.lstrip('.')}")
        return worth((*chosen, equality)), alike, not of.startswith("."), -len(name), equality

    chosen: tuple[tuple[str, str], ...] = ()
    best = worth(()) if same else 0.0
    while candidates and len(chosen) < 3:
        equality = max(candidates, key=preference)
        value = worth((*chosen, equality))
        covered = sum({*chosen, equality} <= found for found in equalities)
        if value <= best + 1e-9 or covered <= 0.6 * len(pool):
            break
        chosen, best = (*chosen, equality), value
        candidates = [candidate for candidate in candidates if candidate[0] != equality[0]]
    return chosen


def _equalities(example: Example, prefixes: tuple[str, ...]) -> set[tuple[str, str]]:
    found = set()
    shown = dict(example.read_args)
    if isinstance(example.before, dict):
        shown.update({f".{key}": value for key, value in example.before.items() if is_scalar(value)})
    for of, value in shown.items():
        if isinstance(value, bool) or value is None or not is_scalar(value):
            continue
        for name in example.names.by_spelling.get(spell(value), ()):
            if name.startswith(prefixes):
                found.add((of, name))
    return found


def _fit(rule: EffectRule, examples: Sequence[Example]) -> None:
    counts: Counter[Operation] = Counter()
    changed = [example for example in examples if example.known and not example.same]
    for example in examples:
        if not example.known:
            rule.whole.see(example.after, example.names)
    for example in changed:
        rule.whole.see(example.after, example.names)
        for change in difference(example.before, example.after, example.names):
            for path in general_paths(change.path, example.names):
                operation = (path, change.kind)
                counts[operation] += 1
                if change.kind != "delete":
                    old = change.old if change.kind == "set" else MISSING
                    rule.operations.setdefault(operation, Template()).see(change.value, example.names, old)
    if not changed:
        kept = any(example.known for example in examples)
        rule.program = () if kept or not examples else None
        return
    sample = changed[:40]
    program = _grow(rule, counts, sample)
    exact = sum(_exact(run(program, rule.operations, one.before, one.names), one.after) for one in sample)
    whole = sum(_exact(_whole(rule, one.names), one.after) for one in sample)
    rule.program = program if program and exact >= whole else None
    rule.operations = {one: rule.operations[one] for one in rule.program or () if one in rule.operations}


def _grow(rule: EffectRule, counts: Counter[Operation], sample: Sequence[Example]) -> tuple[Operation, ...]:
    """Add operations while they bring the examples nearer to what happened."""
    ordered = sorted(counts, key=lambda one: (-counts[one], sum(map(_strangeness, one[0])), str(one)))
    program: tuple[Operation, ...] = ()
    best = 0.0
    while len(program) < _MAX_OPERATIONS:
        tries = [
            (_nearness(rule, (*program, operation), sample), -place, operation)
            for place, operation in enumerate(ordered[:_CANDIDATES])
            if operation not in program
        ]
        if not tries:
            break
        value, _, operation = max(tries, key=lambda one: one[:2])
        if value <= best + 1e-9:
            break
        program, best = (*program, operation), value
        if best >= len(sample):
            break
    return program


def _strangeness(step: OperationStep) -> float:
    """Of two ways to say where, the one by an argument is the likelier, best by one of the same name."""
    if step.kind == "key":
        return 1.0
    by_answer = 2.0 if step.name.startswith("answer.") else 0.0
    return by_answer + (0.5 if step.kind == "row" and not step.name.endswith(f".{step.key}") else 0.0)


def _nearness(rule: EffectRule, program: tuple[Operation, ...], sample: Sequence[Example]) -> float:
    total = 0.0
    for example in sample:
        made = run(program, rule.operations, example.before, example.names)
        if made is MISSING:
            continue
        if _exact(made, example.after):
            total += 1
            continue
        left = sum(1 for _ in difference(made, example.after, example.names))
        first = sum(1 for _ in difference(example.before, example.after, example.names))
        total += 0.9 * max(0.0, (first - left) / (first + 1))
    return total


def _hold_out(rule: EffectRule, bound: Sequence[Example]) -> None:
    """Fit on one half of the worlds, try on the other, both ways."""
    worlds = sorted({example.world for example in bound})
    if len(worlds) < 2:
        return
    for half in (set(worlds[::2]), set(worlds[1::2])):
        other = EffectRule(bind=rule.bind)
        _fit(other, [example for example in bound if example.world not in half][:80])
        for example in [one for one in bound if one.world in half][:80]:
            if not example.known and other.program is not None:
                continue
            made = other.apply(example.before if example.known else MISSING, example.names)
            if _exact(made, example.after):
                rule.right += 1
            else:
                rule.wrong += made is not MISSING


def _whole(rule: EffectRule, names: Names) -> object:
    made = rule.whole.fill(names)
    return MISSING if made is None else made.value


def _exact(made: object, after: JsonValue) -> bool:
    return made is not MISSING and spell(made) == spell(after)
