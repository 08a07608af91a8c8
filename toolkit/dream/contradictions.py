"""Check an answer for contradictions: the tool's declared form, the environment's facts, the episode's calls.

The check asks no model and ignores confidence. An answer may invent what no earlier answer shows; it may not
differ from earlier answers. An ID names one thing. A read shows the known fields of a thing until a write
names it. A list keeps its rows, gains created ones and loses removed ones. A write changes what it names, and
what its answer reports as changed.
"""

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field

from dreamgym_kit.dream.answer_schema import schema_for
from dreamgym_kit.dream.faults import FaultKind, fault_kind, took_effect
from dreamgym_kit.dream.json_values import is_scalar
from dreamgym_kit.dream.things import (
    DENIES,
    MAKES,
    REMOVES,
    EntityRecord,
    Scalar,
    Thing,
    denies,
    failure_of,
    id_arguments,
    identifiers,
    is_clock_name,
    is_id_name,
    is_partial,
    is_view_argument,
    kind_of,
    kinds_of,
    names_more,
    noun,
    plain_items,
    records,
    rows_of,
    same,
    words,
)
from dreamgym_kit.interfaces import TELLING
from dreamgym_kit.serialization import JsonValue
from dreamgym_kit.types import Answer, Call, Source, ToolSpec, Transition

Fact = Mapping[str, JsonValue]
"""An answer about an environment's base state: `{"tool", "args", "answer"}`, or `"error"` for the answer."""
MAX_REASONS = 4
"""Maximum number of contradictions reported for one answer."""
_SETS = frozenset(["change", "edit", "modify", "rename", "replace", "set", "update"])
_KEEPS_ROWS = MAKES | _SETS | {"notify", "pay", "refund", "send"}
_GONE = re.compile(
    r"(?i)\b(?:deleted|removed|revoked|destroyed|erased|gone|deactivated|inactive|archived)\b|active': False"
)


@dataclass(slots=True)
class _Rows:
    """The known rows of a read."""

    call: Call
    things: set[Thing]
    partial: bool  # the answer has further rows, for example on a next page
    plain: bool = False  # its items are values, not records
    touched: set[str] = field(default_factory=set)  # IDs in writes that may have removed rows


@dataclass(slots=True)
class KnownFacts:
    """What facts and earlier calls show, in order."""

    fields: dict[Thing, dict[str, Scalar]] = field(default_factory=dict)
    by_argument: set[Thing] = field(default_factory=set)
    changes: dict[str, dict[str, Scalar]] = field(default_factory=dict)  # by ID, of what nothing told of yet
    removed: set[Thing] = field(default_factory=set)
    left: set[tuple[str, Thing]] = field(default_factory=set)  # (group's ID, member removed from it)
    made: dict[Thing, frozenset[str]] = field(default_factory=dict)  # with the IDs in the call
    rows: dict[str, _Rows] = field(default_factory=dict)  # by the key of their call
    whole: dict[str, JsonValue] = field(default_factory=dict)  # answers without records, by call
    views: dict[tuple[Thing, str], str] = field(default_factory=dict)  # see `_view`
    denied: set[str] = field(default_factory=set)  # keys of calls whose answer was "not found"

    def failed(self, call: Call, error: str) -> None:
        """Record that a read found nothing."""
        if DENIES.search(error):
            self.denied.add(call.key)

    def shown(self, call: Call, content: JsonValue) -> None:
        """Record a read's answer."""
        entities = list(records(content, call))
        for record in entities:
            self.fields.setdefault(record.thing, {}).update(record.fields)
            self.views |= {(record.thing, name): _view(call) for name in record.fields}
            self.removed.discard(record.thing)
            if record.by_argument:
                self.by_argument.add(record.thing)
        if rows_of(content) is not None:
            plain = plain_items(content)
            things = plain or {record.thing for record in entities if record.in_list}
            self.rows[call.key] = _Rows(call, things, is_partial(content), bool(plain))
        if not entities:
            self.whole[call.key] = content

    def uncertain(self, call: Call) -> None:
        """Record that a write timed out: things that it names may have changed."""
        self.whole.clear()
        self.denied.clear()
        self._doubt(call, set(identifiers(call.args)), {})

    def written(self, call: Call, answer: Answer) -> None:
        """Record a write: things that it names may have changed, except in fields that its answer shows."""
        self.whole.clear()
        self.denied.clear()
        entities = list(records(answer.content, call))
        named = set(identifiers(call.args))
        new = {record.thing for record in entities if self._is_new(record, call, named)}
        given = {name: value for name, value in call.args.items() if is_scalar(value)}
        if answer.source is not Source.MODEL or not answer.changes:  # else it said all that it changes
            before = {thing: dict(fields) for thing, fields in self.fields.items()}
            self._doubt(call, named | {record.thing[1] for record in entities}, given)
            if answer.source is Source.IMAGINED and answer.changes:  # its changes are known, except in lists
                self.fields = {thing: before[thing] | fields for thing, fields in self.fields.items()}
        self.views = {at: view for at, view in self.views.items() if at[0][1] not in named}
        for thing in new:
            self.made[thing] = frozenset(named)
            self.removed.discard(thing)
            self.fields[thing] = {name: value for name, value in given.items() if is_scalar(value)}
        for record in entities:
            if not record.by_argument:
                self.fields.setdefault(record.thing, {}).update(record.fields)
        self.changed(answer)
        if REMOVES & set(words(call.tool)):
            self._take_out(call)

    def changed(self, answer: Answer) -> None:
        """Learn what an answer says that it changed."""
        for change in answer.changes:
            whole = change.get("fields")  # of an imagined write
            values = whole if isinstance(whole, Mapping) else {str(change.get("field")): change.get("value")}
            key = str(change.get("entity"))
            if answer.source is Source.MODEL and not any(thing[1] == key for thing in self.fields):
                plain = {name: value for name, value in values.items() if is_scalar(value)}
                self.changes.setdefault(key, {}).update(plain)
            for thing in [thing for thing in self.fields if thing[1] == key]:
                for name, value in values.items():
                    self.fields[thing][name] = value if is_scalar(value) else str(value)
                if change.get("change") == "delete":
                    self.removed.add(thing)

    def _is_new(self, record: EntityRecord, call: Call, named: set[str]) -> bool:
        if record.in_list or record.by_argument:
            return False
        makes = bool(MAKES & set(words(call.tool)))
        if record.thing[1] in named:
            return makes and record.thing[0] in kinds_of(call.tool) and record.thing not in self.fields
        return makes or record.thing not in self.fields

    def _doubt(self, call: Call, mentioned: set[str], given: Mapping[str, JsonValue]) -> None:
        """Drop fields that a write may have changed; keep those that it set to an argument."""
        kinds, verbs = kinds_of(call.tool), set(words(call.tool))
        makes = bool(verbs & MAKES)
        named = {key for _, key in self.fields} & mentioned
        self.changes = {key: fields for key, fields in self.changes.items() if key not in mentioned}
        for thing, fields in self.fields.items():
            loose = thing[0] == "" or (not named and thing in self.by_argument)
            of_many = not makes and thing[0] in kinds and mentioned & set(map(str, fields.values()))
            if thing[1] not in mentioned and not loose and not of_many:
                continue
            for name in list(fields):
                value = given.get(name)
                sets = thing[1] in mentioned and not makes and (isinstance(value, str) or verbs & _SETS)
                if name in given and sets:
                    fields[name] = value
                elif "name" not in name.lower():
                    del fields[name]
        for key, rows in list(self.rows.items()):
            if rows.plain and self._may_change_items(rows, kinds, mentioned):
                del self.rows[key]
            elif not verbs & _KEEPS_ROWS or not all(map(is_id_name, rows.call.args)):
                rows.touched |= mentioned

    @staticmethod
    def _may_change_items(rows: _Rows, kinds: set[str], mentioned: set[str]) -> bool:
        """Whether a write may change a list of plain values: it names the list's owner, or its kind."""
        return noun(rows.call.tool) in kinds or bool(mentioned & set(identifiers(rows.call.args)))

    def _take_out(self, call: Call) -> None:
        things = [thing for thing, _ in id_arguments(call)] or [
            (kind_of(name, call.tool), str(value)) for name, value in call.args.items() if is_scalar(value)
        ]
        if len(things) == 1 and id_arguments(call) and things[0][0] not in kinds_of(call.tool):
            owner = things[0][1]  # it lost a tag, a hold or all of its items, but still exists
            self.rows = {
                key: rows for key, rows in self.rows.items() if owner not in identifiers(rows.call.args)
            }
            return
        if len(things) == 1:
            self.removed.add(things[0])
            self.made.pop(things[0], None)
        else:  # a member of a group: gone from the group's lists, but still exists
            self.left |= {(owner[1], thing) for owner in things for thing in things if owner != thing}
        for rows in self.rows.values():
            rows.things -= self.removed
            if len(things) == 1 and things[0][1] in set(identifiers(rows.call.args)):
                rows.things.clear()  # the things listed belonged to the removed one


def contradictions(
    call: Call,
    answer: Answer,
    *,
    spec: ToolSpec,
    history: Sequence[Transition] = (),
    facts: Sequence[Fact] = (),
) -> list[str]:
    """Return what an answer contradicts, as sentences; an empty list if nothing.

    Args:
        call: the agent's call.
        answer: the proposed answer.
        spec: the tool; its declared answer schema counts.
        history: this episode's earlier calls, oldest first, with the effect of each.
        facts: answers about the environment's base state, of any episode:
            `{"tool": name, "args": {...}, "answer": content}`, or `"error": text` in place of the answer.

    Returns:
        At most `MAX_REASONS` sentences; each names the field, its known value and the answer's value.
    """
    if answer.unanswered:
        return []
    form = schema_for(spec, ())
    broken = form.breaks(answer) if form is not None else None
    if broken is not None:
        return [f"the answer does not have the declared form of {call.tool}: {broken}"]
    all_facts = known_facts(history, facts)
    failure = failure_of(answer)
    if failure is not None:
        wrong = () if spec.effect.changes_environment else _wrong_denial(call, failure, all_facts)
    elif spec.effect.changes_environment:
        wrong = _wrong_write(call, answer, all_facts)
    else:
        wrong = _wrong_read(call, answer, all_facts)
    return list(dict.fromkeys(wrong))[:MAX_REASONS]


def known_facts(history: Sequence[Transition], facts: Sequence[Fact] = ()) -> KnownFacts:
    """Collect the facts of the environment, then those of the episode's answers; see `contradictions`."""
    all_facts = KnownFacts()
    for fact in facts:
        args = fact.get("args")
        call = Call(str(fact.get("tool") or ""), args if isinstance(args, dict) else {})
        error = fact.get("error")
        answer = Answer(fact.get("answer"), error=None if error is None else str(error))
        failure = failure_of(answer)
        if failure is not None:
            all_facts.failed(call, failure)
        else:
            all_facts.shown(call, answer.content)
    for entry in history:
        _learn(all_facts, entry)
    return all_facts


def _learn(facts: KnownFacts, entry: Transition) -> None:
    answer, writes = entry.answer, entry.effect.changes_environment
    if writes and fault_kind(answer) not in (None, FaultKind.SLOW):
        if took_effect(answer):  # nobody saw the answer, and it is done
            facts.uncertain(entry.call)
            facts.changed(answer)
        return
    if answer.source not in TELLING and answer.source is not Source.IMAGINED:
        return
    failure = failure_of(answer)
    if failure is not None:
        if not writes:
            facts.failed(entry.call, failure)
        elif answer.timed_out:
            facts.uncertain(entry.call)
    elif writes:
        facts.written(entry.call, answer)
    else:
        facts.shown(entry.call, answer.content)


def _wrong_read(call: Call, answer: Answer, facts: KnownFacts) -> Iterator[str]:
    entities = list(records(answer.content, call))
    requested = {thing for thing, _ in id_arguments(call)}
    for thing in sorted(requested & facts.removed):
        if not _GONE.search(str(answer.content)) and (entities or rows_of(answer.content)):
            yield f"{_spell(thing)} was removed in this episode: it is not there"
    for record in entities:
        if record.thing in facts.removed and not _GONE.search(str(record.fields)):
            yield f"{_spell(record.thing)} was removed in this episode: no answer shows it"
        yield from _differing(record, facts, _view(call))
    for kind, key in [record.thing for record in entities if not record.in_list][:1]:
        other = next((value for of, value in requested if of == kind and not same(value, key)), None)
        if other is not None:
            yield f"{kind} {other} was asked for, and the answer is of {kind} {key}"
    if call.key in facts.denied:
        yield "the same call was answered that nothing is there, and nothing was written since"
    clock = is_clock_name(call.tool)
    if call.key in facts.whole and facts.whole[call.key] != answer.content and not clock:
        before = str(facts.whole[call.key])[:120]
        yield f"the same call was answered {before!r}, and nothing was written since"
    if rows_of(answer.content) is not None:
        things = plain_items(answer.content) or {record.thing for record in entities if record.in_list}
        yield from _wrong_rows(call, answer.content, things, facts)
        yield from _missing_rows(call, answer.content, things, facts)
    else:
        yield from _missing_from_lists(entities, facts)


def _wrong_rows(call: Call, content: JsonValue, things: set[Thing], facts: KnownFacts) -> Iterator[str]:
    """Compare rows with those that the same call listed before."""
    requested_ids = set(identifiers(call.args))
    for owner, thing in sorted(facts.left):
        if owner in requested_ids and thing in things:
            yield f"{_spell(thing)} was taken out of {owner} in this episode"
    before = facts.rows.get(call.key)
    if before is None:
        return
    if is_partial(content) and not before.partial and not before.touched:
        yield f"the same call listed all {len(before.things)} rows before: there are no more"
    for thing in sorted(before.things - things):
        out = thing in facts.removed or any((owner, thing) in facts.left for owner in requested_ids)
        if not out and thing[1] not in before.touched:
            yield f"{_spell(thing)} was listed before, and nothing removed it: the list still has it"
    for thing in sorted(things - before.things - set(facts.made)):
        if thing[1] not in before.touched:
            yield f"{_spell(thing)} was not listed before, and nothing made it"


def _missing_rows(call: Call, content: JsonValue, things: set[Thing], facts: KnownFacts) -> Iterator[str]:
    """Created things, and things known to match the list's arguments, must be listed."""
    kinds = {thing[0] for thing in things} or {noun(call.tool)}
    if kinds == {""} or is_partial(content) or names_more(call.tool, kinds, call.args):
        return
    requested_ids = set(identifiers(call.args))
    for thing, fields in facts.fields.items():
        if thing[0] not in kinds or thing in things or thing in facts.removed:
            continue
        if any((owner, thing) in facts.left for owner in requested_ids):
            continue
        if thing in facts.made and _selects(call, fields, facts.made[thing]):
            yield f"{_spell(thing)} was made in this episode: the list has it"
        elif call.args and _selects(call, fields, frozenset()):
            yield f"{_spell(thing)} was told of with {_spell_args(call)}: the list has it"


def _missing_from_lists(entities: Iterable[EntityRecord], facts: KnownFacts) -> Iterator[str]:
    """Report things that match the arguments of an earlier list and are not in it."""
    for record in entities:
        if record.thing in facts.fields:
            continue
        for rows in facts.rows.values():
            kinds = {thing[0] for thing in rows.things} or {noun(rows.call.tool)}
            if record.thing[0] not in kinds or record.thing in rows.things or not rows.call.args:
                continue
            if (
                rows.partial
                or record.thing[1] in rows.touched
                or names_more(rows.call.tool, kinds, rows.call.args)
            ):
                continue
            if _selects(rows.call, record.fields, frozenset()):
                criteria = _spell_args(rows.call)
                yield f"{rows.call.tool} listed what has {criteria}, and {_spell(record.thing)} is not in it"


def _wrong_write(call: Call, answer: Answer, facts: KnownFacts) -> Iterator[str]:
    named, verbs = set(identifiers(call.args)), set(words(call.tool))
    for thing, _ in id_arguments(call):
        if thing in facts.removed and not verbs & (REMOVES | MAKES):
            yield f"{_spell(thing)} was removed in this episode: the call fails"
    entities = list(records(answer.content, call))
    for record in entities[:1]:
        yield from _other_arguments(call, record)
        new = record.thing[1] not in named and verbs & MAKES and record.thing[0] in kinds_of(call.tool)
        if new and record.thing in facts.fields:
            yield f"{_spell(record.thing)} is there already: what {call.tool} makes has a new ID"
    for record in entities[1:]:
        if record.thing[1] not in named:
            yield from _differing(record, facts)


def _other_arguments(call: Call, record: EntityRecord) -> Iterator[str]:
    for _, name in id_arguments(call):
        shown = record.fields.get(name)
        if shown is not None and not same(shown, call.args[name]):
            yield f"{name} is {call.args[name]!r} in the call, and {shown!r} in the answer"


def _wrong_denial(call: Call, error: str, facts: KnownFacts) -> Iterator[str]:
    """Report a read's error that denies a known thing."""
    for thing, _ in id_arguments(call):
        exists = thing in facts.fields and thing not in facts.removed and thing[0] in kinds_of(call.tool)
        if exists and denies(error, thing):
            yield f"error: {_spell(thing)} was told of before and nothing removed it: it is there"


def _view(call: Call) -> str:
    """Return the arguments that decide how a read shows a thing, such as a language or a date; "" if none."""
    rest = {name: value for name, value in call.args.items() if is_view_argument(name, value)}
    return Call("", rest).key if rest else ""


def _differing(record: EntityRecord, facts: KnownFacts, view: str = "") -> Iterator[str]:
    for name, value in record.fields.items():
        if is_clock_name(name):
            continue
        known_fields = facts.changes.get(record.thing[1], {}) | facts.fields.get(record.thing, {})
        before = known_fields.get(name, value)
        views = {view, facts.views.get((record.thing, name), "")}
        if not same(before, value) and ("" in views or len(views) == 1):
            yield (
                f"{name} of {_spell(record.thing)} is known to be {before!r}, not {value!r}: nothing has "
                "changed it, and another thing has another ID"
            )


def _selects(call: Call, fields: Mapping[str, Scalar], owners: frozenset[str]) -> bool:
    """Whether all arguments of a list match a thing: its fields, or the IDs in the call that created it."""
    return all(
        same(fields[name], value) if name in fields else str(value) in owners
        for name, value in call.args.items()
    )


def _spell(thing: Thing) -> str:
    return " ".join(thing)[:90]


def _spell_args(call: Call) -> str:
    return ", ".join(f"{name} {value!r}" for name, value in call.args.items())[:120]
