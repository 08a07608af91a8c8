"""What a model's answer has to agree with, and the answer that code settles on.

Before the model is asked: what is known of the things that the call names, and the answer that was told
before, if nothing has touched it since. After it: known fields are put where the model left an example's
value standing, ids that a tool makes up are made up by code, and what contradicts told facts, recorded
effects or the answer itself is refused with the reason, for one repair.
"""

import re
from collections.abc import Iterator, Mapping
from dataclasses import replace
from functools import reduce
from operator import getitem

from dreamgym_kit.dream import things
from dreamgym_kit.dream.decision import MAX_CHANGES, Decision
from dreamgym_kit.dream.state.claims import (
    Claim,
    believed,
    changing_fields,
    differs,
    is_sure,
    records_of,
    said_of,
)
from dreamgym_kit.dream.state.dreaming import Knowledge, follow
from dreamgym_kit.dream.state.entities import is_id_name, mentioned, records
from dreamgym_kit.dream.state.history import HistoryStep
from dreamgym_kit.dream.state.models import ToolModels
from dreamgym_kit.dream.state.observed import answer_of, failed, observation
from dreamgym_kit.dream.state.values import copy_json, field_path, is_key, spell, walk
from dreamgym_kit.dream.state.views import State
from dreamgym_kit.dream.state_tracker import StateTracker, TrackedEpisode
from dreamgym_kit.errors import NotSerializable
from dreamgym_kit.interfaces import Situation
from dreamgym_kit.serialization import JsonValue, escaped_args
from dreamgym_kit.types import Answer, Call, Source, Transition

_MAX_FIELDS = 16  # of one thing, in a prompt
_WORDS = re.compile(r"[\s:#/]+")
_WRAPPED = frozenset({"$json", "$answer", "content"})


class ConsistencyCheck:
    """One call's ground. Takes the following's lock for as long as it reads."""

    def __init__(self, following: StateTracker, call: Call, situation: Situation) -> None:
        self._following, self._call, self._situation = following, call, situation
        with following.lock:
            self._knowledge: Knowledge = following.knowledge(situation.tenant)
            self._followed: TrackedEpisode = following.follow(situation)
            self._state, self._known = self._followed.state, self._followed.known
            self._args: Mapping[str, JsonValue] = self._followed.renaming.symbolic(escaped_args(call.args))
            self.facts = self._concrete(self._facts())
            self.held = self._held()

    def settle(self, answer: Answer, decision: Decision, examples: tuple[Transition, ...]) -> Answer:
        """The answer as code lets it stand.

        Raises:
            NotSerializable: it contradicts what is known; says what, for one repair.
        """
        if answer.unanswered:
            return answer
        with self._following.lock:
            seen = self._followed.renaming.symbolic(observation(answer))
            if answer.error is not None:
                self._check_failure(seen)
                return answer
            claims = self._followed.claims(answer.changes)
            if self._situation.tool.effect.changes_environment:
                claims = tuple(one._replace(entity=self._thing(one.entity, seen)) for one in claims)
                seen, claims = self._made_up(seen, claims)
                claims = self._checked_claims(seen, claims, answer.confidence)
            else:
                seen = self._agreeing(seen, decision)
            self._check_ids(seen, decision, examples)
            settled = answer_of(self._concrete(seen), answer)
            return replace(settled, changes=tuple(self._concrete(claim._asdict()) for claim in claims))

    def _concrete(self, value: JsonValue) -> JsonValue:
        return self._followed.concrete(value, self._situation, self._call)

    def _held(self) -> Answer | None:
        """The answer that this read was told before, while nothing has touched it."""
        if self._situation.tool.effect.changes_environment:
            return None
        view = self._state.get(self._call.tool, spell(dict(self._args)))
        if view is None or view.source == "recorded" or not is_sure(view):
            return None
        like = Answer(
            source=Source.MODEL,
            confidence=round(min(1.0, view.confidence), 4),
            why="as it was told before",
        )
        return answer_of(self._concrete(view.observation), like)

    def _facts(self) -> dict[str, JsonValue]:
        found: dict[str, JsonValue] = {}
        for entity in dict.fromkeys(mentioned(dict(self._args))):
            fields = dict(self._known.shown.get(entity, {}))
            for view, record in records_of(self._state, entity):
                if is_sure(view, entity):
                    fields.update(record.scalars())
            fields.update(self._known.fields.get(entity, {}))
            if fields:
                found[entity] = dict(list(fields.items())[:_MAX_FIELDS])
        changes = changing_fields(self._knowledge.models, self._call.tool)
        if changes:
            found[f"fields that {self._call.tool} was seen to change"] = sorted(changes)
        return found

    def _agreeing(self, seen: JsonValue, decision: Decision) -> JsonValue:
        """A read's answer with what is known in the places that the model did not decide."""
        settled = copy_json(seen)
        for record in records(settled, self._args):
            known = {
                **(self._known.shown.get(record.entity, {}) if record.kind_is_known else {}),
                **said_of(self._state, self._known, record, self._call.tool),
            }
            for name, value in known.items():
                if name == record.named or name not in record.fields:
                    continue
                if not differs(record.fields[name], value):
                    continue
                place = _leaf((*record.path, name))
                if decision.like is None or place in decision.leaves:
                    raise NotSerializable(
                        f"{place or name}: {name} of {record.entity} is known to be {self._shown(value)}, "
                        f"not {self._shown(record.fields[name])}; nothing has changed it"
                    )
                record.fields[name] = value
        return settled

    def _check_failure(self, seen: JsonValue) -> None:
        """A read does not deny what the agent was told of."""
        if self._situation.tool.effect.changes_environment:
            return
        form = self._knowledge.models.form(self._step(seen))
        if (self._call.tool, form) in self._following.no_denials(self._situation.tenant):
            return
        for name, value in self._args.items():
            if not is_key(value) or str(value) not in spell(seen) or not self._tells(name):
                continue
            if self._known.there(str(value), name):
                shown = self._shown(value)
                raise NotSerializable(
                    f"error: {shown} was told of before and nothing was done to it: it is there"
                )

    def _tells(self, named: str) -> bool:
        """Whether this read is known to answer with records of this id."""
        views = [view for (tool, _), view in self._state.views.items() if tool == self._call.tool]
        return not views or any(
            record.named == named for view in views for record in records(view.observation, view.args)
        )

    def _made_up(self, seen: JsonValue, claims: tuple[Claim, ...]) -> tuple[JsonValue, tuple[Claim, ...]]:
        """The ids that this tool makes up are made up by code: new each time, in the recorded form."""
        symbols = self._knowledge.models.fresh_for(self._call.tool, self._state)
        if not symbols or failed(seen):
            return seen, claims
        settled, renamed = copy_json(seen), {}
        for path, value in list(walk(settled)):
            symbol = symbols.get(field_path(path))
            if symbol is not None and is_key(value):
                renamed[str(value)] = str(symbol)
                if path:
                    reduce(getitem, path[:-1], settled)[path[-1]] = symbol
                else:
                    settled = symbol
        return settled, tuple(
            claim._replace(entity=renamed.get(claim.entity, claim.entity)) for claim in claims
        )

    def _checked_claims(
        self, seen: JsonValue, claims: tuple[Claim, ...], support: float
    ) -> tuple[Claim, ...]:
        """The told changes and those that the answer shows, none against what was recorded."""
        shown = {
            (record.entity, name): value
            for record in records(seen, self._args)
            for name, value in record.scalars()
        }
        for claim in claims:
            said = shown.get((claim.entity, claim.field))
            if said is not None and differs(said, claim.value):
                raise NotSerializable(
                    f"set: {claim.field} of {claim.entity} is {self._shown(said)} in the answer"
                )
        told = {(claim.entity, claim.field) for claim in claims}
        implied = tuple(
            Claim(record.entity, name, record.fields[name])
            for record in records(seen, self._args)
            for name, known in said_of(self._state, self._known, record, self._call.tool).items()
            if name in record.fields
            and differs(record.fields[name], known)
            and (record.entity, name) not in told
        )
        every = (*claims, *implied)
        if len(every) > MAX_CHANGES:
            raise NotSerializable(f"set: the answer and set change {len(every)} facts; at most {MAX_CHANGES}")
        step = self._step(seen)
        after = follow(self._knowledge, self._state, step, confidence=support) if every else self._state
        for claim in every:
            self._check_effect(claim, step, after)
        return every

    def _thing(self, entity: str, seen: JsonValue) -> str:
        """The id that a change is of: as it was said, or the one id among its words ("order o9").

        It is named by the call or its answer, or a call of this episode told of it together with one that is.
        """
        named = {name.casefold(): name for name in (*mentioned(seen), *mentioned(dict(self._args)))}
        words = [word for word in (entity, *_WORDS.split(entity)) if word]
        for word in words:
            if word.casefold() in named:
                return named[word.casefold()]
        made = {record.thing[1] for record in things.records(seen, self._call)}
        near = {*things.identifiers(self._call.args), *made}
        for word in words:
            if self._state.has_heard(word) and self._told_together(word, near):
                return word
        raise NotSerializable(f"set: nothing that is known is named '{entity[:60]}'")

    def _told_together(self, thing: str, named: set[str]) -> bool:
        for entry in self._situation.history:
            content = things.opened(entry.answer.content)
            words = {*things.identifiers(entry.call.args), *things.identifiers(content)}
            if thing in words and words & named:
                return True
        return False

    def _check_effect(self, claim: Claim, step: HistoryStep, after: State) -> None:
        """One change against the tool's recorded effects, where those rest on enough."""
        models = self._knowledge.models
        only = changing_fields(models, self._call.tool)
        ruled = False
        for fields in ruled_records(models, self._state, after, step, claim.entity, claim.field):
            ruled = True
            for value in (of.get(claim.field) for of in fields):
                if differs(value, claim.value):
                    raise NotSerializable(
                        f"set: it is known that {claim.field} of {claim.entity} is {self._shown(value)} "
                        f"after {self._call.tool}, not {self._shown(claim.value)}"
                    )
        if not ruled and only is not None and claim.field not in only:
            listed = ", ".join(sorted(only)) or "nothing"
            raise NotSerializable(
                f"set: recordings show that {self._call.tool} changes {listed}, never {claim.field}"
            )

    def _check_ids(self, seen: JsonValue, decision: Decision, examples: tuple[Transition, ...]) -> None:
        """An id of an example's world that stayed in the form is no id of this world."""
        if decision.like is None or examples[decision.like - 1].environment == self._situation.environment:
            return
        given = {*mentioned(dict(self._args))}
        if self._situation.tool.effect.changes_environment:  # what a write makes may have the same number
            made = next(iter(things.records(seen, self._call)), None)
            given |= {made.thing[1]} if made is not None else set()
        theirs = set(mentioned(observation(examples[decision.like - 1].answer)))
        for path, value in walk(seen, depth=8):
            name = next((str(part) for part in reversed(path) if isinstance(part, str)), "")
            if not is_id_name(name) or not isinstance(value, str) or value in given or value not in theirs:
                continue
            place = _leaf(path)
            if place not in decision.leaves and not self._state.has_heard(value):
                raise NotSerializable(
                    f"leaves: '{place}' still has the example's {value}, which is not of this environment"
                )

    def _step(self, seen: JsonValue) -> HistoryStep:
        args = self._args
        return HistoryStep(self._call.tool, args, spell(dict(args)), seen, True, failed(seen))

    def _shown(self, value: JsonValue) -> str:
        return spell(self._concrete(value))[:80]


def ruled_records(
    models: ToolModels, before: State, after: State, step: HistoryStep, entity: str, field: str
) -> Iterator[list[Mapping[str, JsonValue]]]:
    """By read that showed a field of a thing: its records after a step, where believed rules tell."""
    for view, record in records_of(before, entity):
        later = after.get(view.tool, view.spelled)
        if field in record.fields and later is not None and believed(models, step, view):
            shown = records(later.observation, view.args)
            yield [other.fields for other in shown if other.entity == entity]


def _leaf(path: tuple[str | int, ...]) -> str:
    return ".".join(str(part) for part in path if part not in _WRAPPED)
