"""What a model's answer has to agree with, and the answer that code settles on.

Before the model is asked: what is known of the things that the call names, and the answer that was told
before, if nothing has touched it since. After it: known fields are put where the model left an example's
value standing, ids that a tool makes up are made up by code, and what contradicts records, effects or the
answer itself is refused with the reason, for one repair. What contradicts this episode's calls alone,
`contradictions` refuses.
"""

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from functools import reduce
from operator import getitem
from typing import Any, NamedTuple

from dreamgym_kit.dream import things
from dreamgym_kit.dream.contradictions import KnownFacts, known_facts
from dreamgym_kit.dream.decision import MAX_CHANGES, Decision
from dreamgym_kit.dream.entities import Record, mentioned, records
from dreamgym_kit.dream.json_values import copy_json, is_key, is_scalar, spell, walk
from dreamgym_kit.dream.observed import answer_of, failed, observation, opened
from dreamgym_kit.dream.programs.collections import VIEW, WHOLE
from dreamgym_kit.dream.programs.dreaming import ProgramEpisode
from dreamgym_kit.dream.programs.effects import Assign, Delete, Keep
from dreamgym_kit.dream.programs.environment_fields import FIELD
from dreamgym_kit.dream.programs.experience import ProgramTracker
from dreamgym_kit.dream.programs.model import ToolProgram, made_up_places
from dreamgym_kit.dream.programs.values import UNKNOWN, SeenStep, same, value_key
from dreamgym_kit.dream.things import is_id_name
from dreamgym_kit.errors import NotSerializable
from dreamgym_kit.interfaces import Situation
from dreamgym_kit.serialization import JsonValue
from dreamgym_kit.types import Answer, Call, Source, Transition

_MAX_FIELDS = 16  # of one thing, in a prompt
_SURE = 0.9  # confidence from which on a record contradicts an answer
_WORDS = re.compile(r"[\s:#/]+")
_WRAPPED = frozenset({"$json", "$answer", "content"})


class Claim(NamedTuple):
    """One changed fact."""

    entity: str
    field: str
    value: JsonValue


class ConsistencyCheck:
    """Checks one call's answer against known facts. Holds the programs' lock while it reads."""

    def __init__(self, programs: ProgramTracker, call: Call, situation: Situation) -> None:
        self._programs, self._call, self._situation = programs, call, situation
        self._episode_facts: KnownFacts = known_facts(situation.history)
        self._writes = situation.tool.effect.changes_environment
        with programs.lock:
            dream, self._args = programs.before(call, situation)
            self.facts = self._facts(dream)
        self.earlier_answer = None if self._writes else self._earlier_answer()

    def settle(self, answer: Answer, decision: Decision, examples: tuple[Transition, ...]) -> Answer:
        """Return the answer, corrected where code knows better.

        Raises:
            NotSerializable: it contradicts what is known; says what, for one repair.
        """
        if answer.unanswered:
            return answer
        with self._programs.lock:
            dream, _ = self._programs.before(self._call, self._situation)
            seen = observation(answer)
            if answer.error is not None:
                self._check_failure(dream)
                return answer
            claims = tuple(_claims_of(answer.changes))
            if self._writes:
                claims = tuple(claim._replace(entity=self._thing(claim.entity, seen)) for claim in claims)
                seen, claims = self._made_up(dream, seen, claims)
                claims = self._checked_claims(dream, seen, claims)
            else:
                seen = self._agreeing(dream, seen, decision)
            self._check_ids(dream, seen, decision, examples)
        return replace(answer_of(seen, answer), changes=tuple(claim._asdict() for claim in claims))

    def _earlier_answer(self) -> Answer | None:
        """Return this read's earlier answer with the changes since; None if a change is not known."""
        place = next(
            (
                place
                for place, entry in reversed(list(enumerate(self._situation.history)))
                if entry.call.key == self._call.key
            ),
            None,
        )
        if place is None:
            return None
        before = self._situation.history[place].answer
        if before.unanswered or before.source is Source.FAULT:
            return None
        changes: list[Claim] = []
        for entry in self._situation.history[place + 1 :]:
            if not entry.effect.changes_environment or (entry.answer.error and not entry.answer.timed_out):
                continue
            if not entry.answer.changes or entry.answer.error:
                return None
            changes += _claims_of(entry.answer.changes)
        seen = copy_json(observation(before))
        if changes and (failed(seen) or things.rows_of(before.content) is not None):
            return None  # what was not there may be, and what is listed may be another
        for change in changes:
            shown = [
                record
                for record in records(seen, self._call.args)
                if record.entity == change.entity and change.field in record.fields
            ]
            if not shown:
                return None
            for record in shown:
                record.fields[change.field] = change.value
        like = Answer(source=Source.MODEL, confidence=before.confidence, why="as it was told before")
        return answer_of(seen, like)

    def _facts(self, dream: ProgramEpisode) -> dict[str, JsonValue]:
        facts: dict[str, JsonValue] = {}
        for name in dict.fromkeys(things.identifiers(self._call.args)):
            fields: dict[str, JsonValue] = dict(self._episode_facts.changes.get(name, {}))
            for thing, known_fields in self._episode_facts.fields.items():
                fields.update(known_fields if thing[1] == name else {})
            for row in _rows_of(dream, name):
                fields.update({field: value for field, value in row.items() if is_scalar(value)})
            fields.pop(WHOLE, None)
            shown = [(field, value) for field, value in fields.items() if str(value) != name]
            if shown:
                facts[name] = dict(shown[:_MAX_FIELDS])
        changed = changing_fields(dream.model.tools.get(self._call.tool))
        if changed:
            facts[f"fields that {self._call.tool} was seen to change"] = sorted(changed)
        return facts

    def _agreeing(self, dream: ProgramEpisode, seen: JsonValue, decision: Decision) -> JsonValue:
        """Return a read's answer with known values in the fields that the model did not decide."""
        settled = copy_json(seen)
        known_rows = self._known_rows(dream, settled)
        for record in records(settled, self._call.args):
            known_fields = {} if decision.like is None else self._fields_of(record)
            for name, value in {**known_fields, **known_rows.get(record.entity, {})}.items():
                if name == record.named or name not in record.fields or same(record.fields[name], value):
                    continue
                place = _leaf((*record.path, name))
                if decision.like is None or place in decision.leaves:
                    raise NotSerializable(
                        f"{place or name}: {name} of {record.entity} is known to be {spell(value)[:80]}, "
                        f"not {spell(record.fields[name])[:80]}; nothing has changed it"
                    )
                record.fields[name] = value
        return settled

    def _known_rows(self, dream: ProgramEpisode, seen: JsonValue) -> dict[str, dict[str, JsonValue]]:
        """Return the known fields of the records in an answer, by id."""
        inside, wrap = opened(seen)
        step = SeenStep(self._call.tool, self._args, True, inside, False, wrap)
        rows: dict[str, dict[str, JsonValue]] = {}
        for fact in dream.model.collections.facts(step):
            row = dream.state.at(fact.row) if not fact.collection.startswith(VIEW) else None
            if isinstance(row, dict) and dream.state.confidence.get(fact.row, 1.0) >= _SURE:
                scalars = {name: value for name, value in row.items() if name != WHOLE and is_scalar(value)}
                rows.setdefault(str(fact.key), {}).update(scalars)
        return rows

    def _check_failure(self, dream: ProgramEpisode) -> None:
        """A look-up does not fail for a record that is known."""
        document = dream.model.collections.documents.get(self._call.tool)
        if self._writes or document is None or document.key_arg not in self._args:
            return
        key = self._args[str(document.key_arg)]
        if isinstance(dream.state.row(document.collection, key), dict):
            raise NotSerializable(f"error: {spell(key)[:80]} is known: it is there")

    def _made_up(
        self, dream: ProgramEpisode, seen: JsonValue, claims: tuple[Claim, ...]
    ) -> tuple[JsonValue, tuple[Claim, ...]]:
        """The ids that this tool makes up are made up by code: new each time, in the recorded form."""
        places = made_up_places(dream.model.tools.get(self._call.tool))
        if not places or failed(seen):
            return seen, claims
        inside, wrap = opened(copy_json(seen))
        scope, renamed = dream.scope(self._call.tool, self._args), {}
        for place, value in list(walk(inside)):
            if place not in places or not is_key(value):
                continue
            counted = scope.get(f"next.{self._call.tool}.{'.'.join(map(str, place))}", UNKNOWN)
            made = dream.make_up(str(value)) if counted is UNKNOWN else counted
            renamed[str(value)] = str(made)
            if place:
                reduce(getitem, place[:-1], inside)[place[-1]] = made
            else:
                inside = made
        return wrap(inside), tuple(
            claim._replace(entity=renamed.get(claim.entity, claim.entity)) for claim in claims
        )

    def _checked_claims(
        self, dream: ProgramEpisode, seen: JsonValue, claims: tuple[Claim, ...]
    ) -> tuple[Claim, ...]:
        """Return the claimed changes and those that the answer shows; none contradicts a recording."""
        shown = {
            (record.entity, name): (value, record)
            for record in records(seen, self._call.args)
            for name, value in record.scalars()
        }
        for claim in claims:
            shown_field = shown.get((claim.entity, claim.field))
            if shown_field is not None and not same(shown_field[0], claim.value):
                raise NotSerializable(
                    f"set: {claim.field} of {claim.entity} is {spell(shown_field[0])[:80]} in the answer"
                )
        claimed = {(claim.entity, claim.field) for claim in claims}
        implied = tuple(
            Claim(entity, name, value)
            for (entity, name), (value, record) in shown.items()
            if (entity, name) not in claimed and not same(self._fields_of(record).get(name, value), value)
        )
        every = (*claims, *implied)
        if len(every) > MAX_CHANGES:
            raise NotSerializable(f"set: the answer and set change {len(every)} facts; at most {MAX_CHANGES}")
        for claim in every:
            self._check_effect(dream, claim, seen)
        return every

    def _fields_of(self, record: Record) -> Mapping[str, Any]:
        thing = (things.kind_of(record.named, self._call.tool), record.entity)
        return self._episode_facts.fields.get(thing, {})

    def _thing(self, entity: str, seen: JsonValue) -> str:
        """Return the id of a changed thing: the text itself, or the only id among its words ("order o9").

        The call, its answer, or an earlier call that shares an id with them must name it.
        """
        named = {name.casefold(): name for name in (*mentioned(seen), *mentioned(dict(self._args)))}
        words = [word for word in (entity, *_WORDS.split(entity)) if word]
        for word in words:
            if word.casefold() in named:
                return named[word.casefold()]
        made = {record.thing[1] for record in things.records(seen, self._call)}
        near = {*things.identifiers(self._call.args), *made}
        for word in words:
            if any(word in names and names & near for names in map(_named_in, self._situation.history)):
                return word
        raise NotSerializable(f"set: nothing that is known is named '{entity[:60]}'")

    def _check_effect(self, dream: ProgramEpisode, claim: Claim, seen: JsonValue) -> None:
        """One change against the tool's recorded effects."""
        tool = self._call.tool
        program = dream.model.tools.get(tool)
        if program is None:
            return
        inside, wrap = opened(seen)
        step = SeenStep(tool, self._args, True, inside, True, wrap)
        scope = dream.model.after_names(dream.scope(tool, self._args), step)
        ruled = False
        for prefix, (collection, key) in scope.rows.items():
            effect = program.effect_on(prefix)
            if str(key) != claim.entity or not isinstance(effect, (Assign, Keep)):
                continue
            row = dream.state.row(collection, key)
            after = dict(row) if isinstance(row, dict) else {}
            for name, form in effect.fields.items() if isinstance(effect, Assign) else ():
                after[name] = form(scope.child({"old": after.get(name, UNKNOWN)}))
            for name in effect.unknown if isinstance(effect, Assign) else ():
                after[name] = UNKNOWN
            value = after.get(claim.field, UNKNOWN)
            ruled = ruled or claim.field in after
            if value is not UNKNOWN and not same(value, claim.value):
                raise NotSerializable(
                    f"set: it is known that {claim.field} of {claim.entity} is {spell(value)[:80]} "
                    f"after {tool}, not {spell(claim.value)[:80]}"
                )
        only = changing_fields(program)
        if not ruled and only and claim.field not in only:
            listed = ", ".join(sorted(only))
            raise NotSerializable(f"set: recordings show that {tool} changes {listed}, never {claim.field}")

    def _check_ids(
        self, dream: ProgramEpisode, seen: JsonValue, decision: Decision, examples: tuple[Transition, ...]
    ) -> None:
        """An id of an example's world that stayed in the form is no id of this world."""
        if decision.like is None or examples[decision.like - 1].environment == self._situation.environment:
            return
        given = {*mentioned(dict(self._args))}
        if self._writes:  # what a write makes may have the same number
            made = next(iter(things.records(seen, self._call)), None)
            given |= {made.thing[1]} if made is not None else set()
        theirs = set(mentioned(observation(examples[decision.like - 1].answer)))
        for path, value in walk(seen, depth=8):
            name = next((str(part) for part in reversed(path) if isinstance(part, str)), "")
            if not is_id_name(name) or not isinstance(value, str) or value in given or value not in theirs:
                continue
            place = _leaf(path)
            if place not in decision.leaves and not self._has_heard(dream, value):
                raise NotSerializable(
                    f"leaves: '{place}' still has the example's {value}, which is not of this environment"
                )

    def _has_heard(self, dream: ProgramEpisode, name: str) -> bool:
        return dream.state.has_seen(name) or any(
            name in words for words in map(_named_in, self._situation.history)
        )


def changing_fields(program: ToolProgram | None) -> frozenset[str]:
    """The fields of records that a tool was seen to change; empty where it may change others as well."""
    given = program.effects if program is not None else {}
    effects = [effect for of, effect in given.items() if not of.startswith(FIELD)]
    if any(effect is None or isinstance(effect, Delete) for effect in effects):
        return frozenset()
    assigned = [effect for effect in effects if isinstance(effect, Assign)]
    if any(effect.named is not None for effect in assigned):
        return frozenset()
    return frozenset(name for effect in assigned for name in (*effect.fields, *effect.unknown))


def _rows_of(dream: ProgramEpisode, key: str) -> Iterator[Mapping[str, Any]]:
    """The known records with this key."""
    keys: Sequence[JsonValue] = (key, int(key)) if key.isdecimal() else (key,)
    for collection in dream.model.collections.key_fields:
        for value in keys:
            row = dream.state.at((collection, value_key(value)))
            if isinstance(row, dict):
                yield row


def _claims_of(changes: Sequence[Mapping[str, JsonValue]]) -> Iterator[Claim]:
    return (
        Claim(str(change.get("entity")), str(change.get("field")), change.get("value")) for change in changes
    )


def _named_in(entry: Transition) -> set[str]:
    content = things.opened(entry.answer.content)
    return {*things.identifiers(entry.call.args), *things.identifiers(content)}


def _leaf(path: tuple[str | int, ...]) -> str:
    return ".".join(str(part) for part in path if part not in _WRAPPED)
