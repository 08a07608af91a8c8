"""What a model is to learn of each recorded call: the very prompt of a dream, and the decision that is right.

Each part of a prompt (history, examples, state) is left out at random now and then, so that a model is no
stranger to being without; it is not taught to know what stood there. A call is never shown itself: examples
are of other episodes, and, where worlds suffice, rules and examples are of other worlds, as they will be in a
world that nobody has recorded.

A recorded answer is put as the decision that code would make it of: outcome, example, leaves, changes. A
target is kept only where `render` and `Ground.settle`, the very code that reads a model's decision, make the
recorded answer of it again, up to ids that the tool makes up. So nothing is learned that could not be said,
and nothing has to be said that code fills in by itself.
"""

import json
import random
import re
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from math import sqrt
from typing import NamedTuple

from dreamgym_kit.chat import ChatMessage
from dreamgym_kit.dream.answer_schema import AnswerSchema
from dreamgym_kit.dream.consistency import ConsistencyCheck
from dreamgym_kit.dream.decision import MAX_CHANGES, Decision, read_decision, render
from dreamgym_kit.dream.entities import mentioned, records
from dreamgym_kit.dream.environment_facts import FactIndex
from dreamgym_kit.dream.held_out import as_seen, situation_of
from dreamgym_kit.dream.json_values import is_scalar, spell, walk
from dreamgym_kit.dream.llm_experience import Retrieve, Schemas, question_messages
from dreamgym_kit.dream.observed import failed, observation
from dreamgym_kit.dream.programs.experience import ProgramTracker
from dreamgym_kit.dream.prompt import shown_tools
from dreamgym_kit.errors import NotSerializable
from dreamgym_kit.interfaces import Situation
from dreamgym_kit.serialization import JsonValue
from dreamgym_kit.training.annotation import Annotation, StepNote, Trajectory, fits
from dreamgym_kit.types import Answer, Call, ToolSpec, Transition

Change = Mapping[str, JsonValue]
_Fact = tuple[str, str]  # entity, field
SURE, GUESSED = 0.95, 0.3
"""Confidence of a target that the prompt tells, and of one that it does not. What either is worth is tried
on held-out calls afterwards (`reasoned_support`)."""
_ORDER = ("reasoning", "outcome", "like", "leaves", "answer", "error", "set", "confidence")
_NOTHING: Mapping[str, JsonValue] = {"like": None, "leaves": [], "answer": None, "error": "", "set": []}


@dataclass(frozen=True, slots=True)
class TargetDecision:
    """What a model should have said of one call."""

    decision: Mapping[str, JsonValue]  # the decision, in the order of its schema
    changes_known: bool  # whether `set` is to be learned
    shown: bool  # whether the prompt tells what stands in it


@dataclass(frozen=True, slots=True)
class Query:
    """One recorded call as it would be put to the model."""

    row: Transition
    situation: Situation
    examples: tuple[Transition, ...]
    ground: ConsistencyCheck
    form: AnswerSchema | None
    as_seen: Callable[[Answer], str]  # what the agent sees, with a sign for made-up ids
    left_out: tuple[str, ...] = ()  # parts of the prompt that are not shown: history, state

    @property
    def history(self) -> Sequence[Transition]:
        """What is shown of the episode before."""
        return () if "history" in self.left_out else self.situation.history

    @property
    def facts(self) -> Mapping[str, JsonValue]:
        """What is shown of the state."""
        return {} if "state" in self.left_out else self.ground.facts

    @property
    def hidden(self) -> frozenset[str]:
        """Values that stand only in what is not shown."""
        shown = _words(self.facts, self.history, self.row.call)
        return _words(self.ground.facts, self.situation.history, self.row.call) - shown


def target_of(query: Query, reasoning: str, changes: Sequence[Change] | None) -> TargetDecision | None:
    """Return the decision that makes a recorded answer; None if no decision does.

    `reasoning`: why the tool answered so. `changes`: what it changed; None: nobody knows.
    """
    if query.row.answer.update is not None:
        return None
    shown = _is_shown(query)
    sets = (
        [[{**change, "value": _pointed(change["value"], query.row.call)} for change in changes]]
        if changes
        else []
    )
    for tried in (*sets, []):  # changes that contradict what recordings show of the tool are not taught
        for way in _ways(query):
            whole = {"reasoning": reasoning, **_NOTHING, **way, "set": tried}
            if not query.situation.tool.effect.changes_environment or way["outcome"] == "error":
                whole["set"] = []
            made = _made(query, whole)
            if made is None or query.as_seen(made) != query.as_seen(query.row.answer):
                continue
            sure = shown and _leaves_shown(query, whole)
            whole["confidence"] = SURE if sure else GUESSED
            changes_kept = changes is not None and whole["set"] == (sets[0] if sets else [])
            return TargetDecision(
                {name: whole[name] for name in _ORDER}, changes_kept or way["outcome"] == "error", sure
            )
    return None


def spelled(target: TargetDecision) -> tuple[str, tuple[tuple[int, int], ...]]:
    """A target's JSON as a server's grammar spells it, and the places in it that are not learned."""
    parts: list[str] = []
    unlearned: list[tuple[int, int]] = []
    at = 1
    for name, value in target.decision.items():
        key = f"{', ' if parts else ''}{json.dumps(name)}: "
        text = json.dumps(value, ensure_ascii=False)
        if name == "set" and not target.changes_known:
            unlearned.append((at + len(key), at + len(key) + len(text)))
        parts.append(key + text)
        at += len(key) + len(text)
    return "{" + "".join(parts) + "}", tuple(unlearned)


def _ways(query: Query) -> Iterator[dict[str, JsonValue]]:
    """Ways to say the answer, those that say least first."""
    answer, tool = query.row.answer, query.row.call.tool
    if answer.error is not None:
        for number, example in enumerate(query.examples, 1):
            if example.call.tool == tool and example.answer.error == answer.error:
                yield {"outcome": "error", "like": number}
        yield {"outcome": "error", "error": answer.error}
        return
    ranked = []
    for number, example in enumerate(query.examples, 1):
        if example.call.tool == tool and example.answer.error is None and example.answer.update is None:
            for leaves in _leaves(query, number):
                ranked.append((len(leaves), number, leaves))
    for _, number, leaves in sorted(ranked, key=lambda way: way[:2]):
        listed = [{"path": path, "value": value} for path, value in leaves.items()]
        yield {"outcome": "ok", "like": number, "leaves": listed}
    content = answer.content
    yield {
        "outcome": "ok",
        "answer": content if isinstance(content, str) else json.dumps(content, ensure_ascii=False),
    }


def _leaves(query: Query, number: int) -> Iterator[dict[str, JsonValue]]:
    """What has to be replaced in an example: without what code knows, and else all of it."""
    plain = {"outcome": "ok", "like": number}
    for settled in (True, False):
        made = _made(query, {"reasoning": "", **_NOTHING, **plain}, settled=settled)
        if made is None:
            continue
        wanted, there = json.loads(query.as_seen(query.row.answer)), json.loads(query.as_seen(made))
        changed = _differing(there, wanted, ())
        if changed is not None:
            yield {path: _pointed(value, query.row.call) for path, value in changed.items()}


def _made(query: Query, draft: Mapping[str, JsonValue], *, settled: bool = True) -> Answer | None:
    """The answer that code makes of a decision; None where it refuses."""
    row = query.row
    try:
        decision: Decision = read_decision(json.dumps({**draft, "confidence": 1.0}))
        made = render(decision, row.call, query.situation.tool, query.examples, query.form)
        if settled:
            made = query.ground.settle(made, decision, query.examples)
    except NotSerializable:
        return None
    if made.error is not None and row.answer.error_type is not None:
        made = replace(made, error_type=row.answer.error_type)  # its class is no part of a decision
    return made


def _differing(form: JsonValue, wanted: JsonValue, path: tuple[str, ...]) -> dict[str, JsonValue] | None:
    """By path, the leaves in which two observations differ; None where their forms do."""
    if isinstance(form, dict) and isinstance(wanted, dict):
        if set(form) != set(wanted):
            return None
        if set(form) == {"$json", "$spelling"}:
            return _differing(form["$json"], wanted["$json"], path)
        if set(form) == {"$answer"}:  # what stands beside the content follows from it
            return _differing(form["$answer"].get("content"), wanted["$answer"].get("content"), path)
        pairs = [(name, form[name], wanted[name]) for name in form]
    elif isinstance(form, list) and isinstance(wanted, list):
        if len(form) != len(wanted):
            return None
        pairs = [(str(place), *both) for place, both in enumerate(zip(form, wanted, strict=True))]
    elif is_scalar(form) and is_scalar(wanted):
        return {} if spell(form) == spell(wanted) else {".".join(path): wanted}
    else:
        return None
    leaves: dict[str, JsonValue] = {}
    for name, before, after in pairs:
        inner = None if "." in name or not name else _differing(before, after, (*path, name))
        if inner is None:
            return None
        leaves |= inner
    return leaves


def _pointed(value: JsonValue, call: Call) -> JsonValue:
    """`arg:NAME` where a value is an argument: copying is code's work."""
    named = (name for name, given in call.args.items() if isinstance(given, str) and given == value)
    name = next(named, None) if isinstance(value, str) and len(value) > 1 else None
    return value if name is None else f"arg:{name}"


def _is_shown(query: Query) -> bool:
    """Whether the things that a call names are known, or its tool was never seen to answer in two ways."""
    if any(name in query.facts for name in mentioned(dict(query.row.call.args))):
        return True
    outcomes = {
        example.answer.error is None for example in query.examples if example.call.tool == query.row.call.tool
    }
    return outcomes == {query.row.answer.error is None} or not query.situation.tool.effect.changes_environment


def _leaves_shown(query: Query, decision: Mapping[str, JsonValue]) -> bool:
    """Whether the values that a decision states stand in what the model is shown of this very world."""
    if decision["outcome"] == "error":
        return True
    stated = [leaf["value"] for leaf in decision["leaves"]]
    if decision["answer"] is not None:
        stated += [value for _, value in walk(observation(query.row.answer), depth=8) if is_scalar(value)]
    if not stated:
        return True
    shown_words = _words(query.facts, query.history, query.row.call)
    return all(str(value) in shown_words or str(value).startswith("arg:") for value in stated)


def _words(facts: Mapping[str, JsonValue], history: Sequence[Transition], call: Call) -> frozenset[str]:
    """Values that a model is shown of the world that a call is made in."""
    parts = [dict(facts), dict(call.args), *(observation(row.answer) for row in history)]
    parts += [dict(row.call.args) for row in history]
    values = {str(value) for part in parts for _, value in walk(part, depth=8) if is_scalar(value)}
    return frozenset({*facts, *values})


def observed_changes(steps: Sequence[Transition]) -> dict[int, tuple[Change, ...]]:
    """By step of a write that worked, the facts that it changed; a write that nobody tells of is left out.

    They are known by the reads before and after it in its own episode, whichever reads they were: a fact that
    was told after the write before and again before the write after belongs to the one write between. What a
    write did is known where a fact of a thing that it names was told on both sides, or where any fact is
    found changed. Writes that changed more than `MAX_CHANGES` facts are left out too: no decision says that.
    """
    writes: list[Transition] = []  # that worked
    latest: dict[_Fact, tuple[int, JsonValue]] = {}  # how many writes there had been, and the value
    changes: dict[int, dict[_Fact, JsonValue]] = {}
    for step in steps:
        seen = observation(step.answer)
        if failed(seen):
            continue
        if step.effect.changes_environment:
            writes.append(step)
            continue
        for record in records(seen, step.call.args):
            for name, value in record.scalars():
                fact = record.entity, name
                since, before = latest.get(fact, (-1, None))
                if since >= 0 and since == len(writes) - 1:
                    write = writes[-1]
                    changed = spell(before) != spell(value)
                    if changed or record.entity in mentioned(dict(write.call.args)):
                        changes.setdefault(write.step, {}).update({fact: value} if changed else {})
                latest[fact] = len(writes), value
    return {
        step: tuple(
            {"entity": entity, "field": name, "value": value} for (entity, name), value in facts.items()
        )
        for step, facts in changes.items()
        if len(facts) <= MAX_CHANGES
    }


PARTS = ("history", "examples", "state")
_MAX_REPEATED = 10
_NOT_SHOWN = "What decides it is not shown."
_WORD = re.compile(r"\w(?:[\w.@:-]*\w)?")


@dataclass(frozen=True, slots=True)
class Leaving:
    """How often each part of a prompt is left out, 0..1; and whether reasons are taught at all."""

    history: float = 0.15
    examples: float = 0.15
    state: float = 0.15
    reasoning: bool = True


USUALLY = Leaving()


class Sight(NamedTuple):
    """What may be seen of other recordings while a trajectory is taught."""

    retrieve: Retrieve
    schemas: Schemas
    facts: Callable[[Situation], FactIndex]
    programs: ProgramTracker


@dataclass(frozen=True, slots=True)
class CallLesson:
    """One prompt, and the text that is right."""

    row: str  # the transition's id
    tool: str
    kind: str  # "ok", "error"
    messages: tuple[ChatMessage, ...]
    answer: str
    unlearned: tuple[tuple[int, int], ...] = ()  # places of `answer` that are given, not learned
    left_out: tuple[str, ...] = ()
    examples: tuple[str, ...] = ()  # ids of the transitions shown


@dataclass(slots=True)
class Counts:
    """What became of recorded calls."""

    lessons: Counter[str] = field(default_factory=Counter)  # by tool
    unsayable: Counter[str] = field(default_factory=Counter)  # by tool: no decision makes the answer
    unannotated: int = 0  # trajectories
    unknown_tools: Counter[str] = field(default_factory=Counter)


def lessons_of(
    trajectory: Trajectory,
    annotation: Annotation,
    sight: Sight,
    specs: Mapping[str, ToolSpec],
    counts: Counts,
    *,
    leaving: Leaving = USUALLY,
    seed: int = 0,
) -> Iterator[CallLesson]:
    """The lessons of one annotated trajectory, in its order."""
    if not fits(annotation, trajectory.steps):
        counts.unannotated += 1
        return
    observed = observed_changes(trajectory.steps)
    for place, (row, note) in enumerate(zip(trajectory.steps, annotation.notes, strict=True)):
        tool = row.call.tool
        if tool not in specs:
            counts.unknown_tools[tool] += 1
            continue
        chance = random.Random(f"{seed} {row.id}")  # noqa: S311  the same recordings give the same lessons
        left_out = tuple(part for part in PARTS if chance.random() < getattr(leaving, part))
        query = query_for(row, trajectory.steps[:place], sight, specs[tool], left_out=left_out)
        changes = note.changes if note.changes is not None else observed.get(row.step)
        if not row.effect.changes_environment:
            changes = ()
        target = target_of(query, _reason(note, query) if leaving.reasoning else "", changes)
        if target is None:
            counts.unsayable[tool] += 1
            continue
        counts.lessons[tool] += 1
        answer, unlearned = spelled(target)
        yield CallLesson(
            row=row.id,
            tool=tool,
            kind=str(target.decision["outcome"]),
            messages=tuple(_messages(query, chance, sight.facts(query.situation), specs)),
            answer=answer,
            unlearned=unlearned,
            left_out=left_out,
            examples=tuple(example.id for example in query.examples),
        )


def query_for(
    row: Transition,
    before: Sequence[Transition],
    sight: Sight,
    spec: ToolSpec,
    *,
    left_out: Sequence[str] = (),
) -> Query:
    """A recorded call as the dream would ask it."""
    situation = situation_of(row, before, spec)
    shown: tuple[Transition, ...] = ()
    if "examples" not in left_out:
        near = sight.retrieve(row.call, situation)
        shown = tuple(example for example in near if example.id != row.id and example.episode != row.episode)
    model = sight.programs.programs(row.tenant).model
    return Query(
        row=row,
        situation=situation,
        examples=shown,
        ground=ConsistencyCheck(sight.programs, row.call, situation),
        form=sight.schemas(row.call, situation),
        as_seen=lambda answer: as_seen(answer, row.call.tool, model),
        left_out=tuple(left_out),
    )


def balanced(lessons: Sequence[CallLesson]) -> list[CallLesson]:
    """Lessons, rare ones several times: classes (tool, outcome) come by the square root of their counts."""
    counts = Counter((lesson.tool, lesson.kind) for lesson in lessons)
    most = max(map(sqrt, counts.values()), default=1.0)
    return [
        lesson
        for lesson in lessons
        for _ in range(min(_MAX_REPEATED, max(1, round(most / sqrt(counts[lesson.tool, lesson.kind])))))
    ]


def _reason(note: StepNote, query: Query) -> str:
    """A note, unless it speaks of what is not shown: no reason is to be made up."""
    spoken = set(_WORD.findall(note.reasoning))
    return _NOT_SHOWN if any(len(word) > 1 and word in spoken for word in query.hidden) else note.reasoning


def _messages(
    query: Query, chance: random.Random, facts: FactIndex, specs: Mapping[str, ToolSpec]
) -> list[ChatMessage]:
    def mark() -> str:
        return f"{chance.getrandbits(64):016x}"

    row = query.row
    if not row.after and row.call.key in facts.by_call:  # a dream answers such a call from the recording
        facts = FactIndex(fact for key, fact in facts.by_call.items() if key != row.call.key)
    return question_messages(
        row.call,
        replace(query.situation, history=query.history),
        state=query.facts,
        form=query.form,
        facts=facts,
        tools=shown_tools(specs),
        examples=query.examples,
        draw=mark,
    )
