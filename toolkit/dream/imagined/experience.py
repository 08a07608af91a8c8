"""Experience model for unrecorded tools: answers are invented and consistent, but never evidence.

An answer is accepted if it has the tool's form and contradicts no fact of its environment; its confidence is
always 0. Reads are answered for the base state, so that all episodes share them; code applies the episode's
writes. The model drafts the program of each write tool once; what the program leaves open is asked for each
call. Repeats, workers and runs ask each question once. Questions that share a name are asked one at a time.
"""

import asyncio
import json
import random
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import replace
from typing import TYPE_CHECKING

from dreamgym_kit.canonical import digest
from dreamgym_kit.chat import ChatRequest
from dreamgym_kit.dream.answer_schema import AnswerSchema, schema_for
from dreamgym_kit.dream.contradictions import contradictions, known_facts
from dreamgym_kit.dream.environment_facts import (
    DRAFTS,
    EnvironmentFacts,
    FactsFile,
    episode_records,
    names_in,
    schema_digest,
)
from dreamgym_kit.dream.imagined.changes import (
    KINDS,
    PROGRAM_ERRORS,
    EntityChange,
    UnclearChange,
    after_changes,
    changes_in,
    changes_of,
    made_in,
    names_changed,
    outcome_of,
    scope_of_write,
)
from dreamgym_kit.dream.programs.dreaming import made_like
from dreamgym_kit.dream.programs.scope import Scope
from dreamgym_kit.dream.programs.values import UNKNOWN
from dreamgym_kit.dream.prompt import (
    IMAGINED,
    PROMPT_VERSION,
    call_part,
    forms_of,
    messages_for,
    shown_tools,
    tool_part,
)
from dreamgym_kit.dream.recorded import abstention
from dreamgym_kit.dream.structured_output import CountedEndpoint, UnusableReply, ask, closed, read_object
from dreamgym_kit.dream.things import opened
from dreamgym_kit.errors import EndpointError, NotSerializable
from dreamgym_kit.interfaces import Account, ChatEndpoint, Situation
from dreamgym_kit.serialization import JsonValue, escaped, is_exact
from dreamgym_kit.types import Answer, Call, Environment, Source, Task, ToolSpec, Transition

if TYPE_CHECKING:
    from dreamgym_kit.dream.drafting import ProgramDraft

_AGAIN_S = 0.02  # between checks whether another question has ended
_USUALLY = ChatRequest((), seed=0)
_CALLS_A_TASK, _MORE_TOKENS = 4, 500  # estimates: new calls per task; tokens of facts, question and reply
_ANY: dict[str, JsonValue] = {"type": ["object", "array", "string", "number", "boolean", "null"]}
ANSWER_SCHEMA = closed(
    reasoning={"type": "string"},
    outcome={"type": "string", "enum": ["ok", "error"]},
    answer=_ANY,
    error={"type": "string"},
    changes={
        "type": "array",
        "items": closed(
            entity={"type": "string"},
            change={"type": "string", "enum": list(KINDS)},
            fields={"type": "object"},
        ),
    },
)
SEED_SCHEMA = closed(
    reasoning={"type": "string"},
    facts={
        "type": "array",
        "items": closed(tool={"type": "string"}, args={"type": "object"}, answer=_ANY),
    },
)


class SeedingFailed(Exception):
    """The entities of a task could not be created; the message says why."""


class ImaginedExperience:
    """Implements `interfaces.ExperienceModel` over a chat endpoint and environment facts.

    Args:
        endpoint: the model's endpoint.
        facts: the facts of each environment; stores new answers.
        specs: the agent's tools.
        imagines: whether a tool's answers may be imagined.
        schemas: returns the schema of a tool's answers; by default the declared one.
        sampling: request whose sampling settings are used for every question.
        recorded: returns the recordings of all episodes that call a tool, which its drafted program may not
            contradict; None: no programs are drafted.
    """

    waits = True

    def __init__(
        self,
        endpoint: ChatEndpoint,
        facts: EnvironmentFacts,
        specs: Mapping[str, ToolSpec],
        *,
        imagines: Callable[[str], bool] = lambda _: True,
        schemas: Callable[[Call, Situation], AnswerSchema | None] | None = None,
        sampling: ChatRequest = _USUALLY,
        recorded: Callable[[str], Sequence[Transition]] | None = None,
    ) -> None:
        self._recorded, self._programs = recorded, dict[str, "ProgramDraft"]()
        self._endpoint, self._facts, self._specs = endpoint, facts, specs
        self._imagines = imagines
        self._schemas = schemas or (lambda _, situation: schema_for(situation.tool, ()))
        self._sampling = sampling
        self._unusable: dict[tuple[Environment, str], str] = {}  # why the reply for a task could not be used
        self._shown = shown_tools(specs)
        self._tools = digest([schema_digest(spec) for _, spec in sorted(specs.items())])

    def close(self) -> None:
        """End the run's use of its environments: they may be reset."""
        self._facts.close()

    def expected(self, tasks: Sequence[Task]) -> tuple[int, int]:
        """Estimate (questions, tokens) for new tasks, before any call is known.

        One question creates a task's entities; each further question answers a new call. Equal calls in other
        episodes cost nothing, so repeats do not count.
        """
        for task in tasks:
            self._facts.file(task.environment)  # only workers may use it, but this process reports on it
        questions = len(tasks) * (1 + _CALLS_A_TASK)
        shared = messages_for(IMAGINED, [("question", "entities")], tools=self._shown)
        return questions, questions * (sum(len(part.content) for part in shared) // 4 + _MORE_TOKENS)

    def environments(self) -> list[JsonValue]:
        """Return fact counts and replaced facts of each environment used, for the report."""
        return [
            {
                "environment": str(environment),
                "facts": len(book.facts),
                "seeded": len(book.seeded),
                "replaced": [f"{row.call}: {row.why}" for row in book.replaced],
            }
            for environment, book in self._facts.books()
        ]

    async def answer(self, call: Call, situation: Situation) -> Answer:
        """See `ExperienceModel.answer`."""
        if not self._imagines(call.tool):
            return abstention(f"{call.tool} may not be imagined (simulate.imagine, tools.NAME.imagine)")
        if not is_exact(dict(call.args)):
            return abstention(f"an argument of {call.tool} has no JSON form")
        changes = changes_in(situation.history)
        if situation.tool.effect.changes_environment or names_changed(call, changes):
            if (made := self._made(call, situation, changes)) is not None:
                return made
            return await self._answered(call, situation, after=situation.after)
        base = await self._answered(call, situation, after="")
        if base.unanswered or not situation.after:
            return base
        try:
            return after_changes(base, call, changes)
        except UnclearChange:
            return await self._answered(call, situation, after=situation.after)

    def _made(self, call: Call, situation: Situation, changes: Sequence[EntityChange]) -> Answer | None:
        """Answer a look-up of a thing that the episode created, in the form of the tool's known answers."""
        rows = [row for row in self._facts.all_facts(situation.environment) if row["tool"] == call.tool]
        made = [made_in(changes, call, opened(row.get("answer"))) for row in rows[-1:]]
        if not made or made[0] is None:
            return None
        try:
            return formed(
                made[0], situation.tool, self._schemas(call, situation), reason="made in this episode"
            )
        except NotSerializable:
            return None

    async def seed(self, task: Task, texts: Sequence[str], account: Account | None = None) -> None:
        """Create the entities that a task needs, once: answers of reading tools, stored all or none.

        Args:
            task: names the environment.
            texts: the request to the agent.
            account: charged for the question.

        Raises:
            SeedingFailed: the endpoint failed, or its reply and its correction are unusable.
        """
        environment, name = task.environment, digest([list(texts), self._tools, PROMPT_VERSION])
        reads = [spec for _, spec in sorted(self._specs.items()) if self._reads(spec)]
        if not reads or self._is_seeded(environment, name):
            return

        def read(text: str) -> None:
            output = read_object(text, SEED_SCHEMA)
            reason = f"made for a task: {output['reasoning']}"
            answers = [seeded for row in output["facts"] if (seeded := self._seeded(row, reason)) is not None]
            if problems := self._facts.seed(environment, name, answers):
                raise NotSerializable("; ".join(problems))

        async with self._turn(self._facts.file(environment), [""]):
            if self._is_seeded(environment, name):
                return
            request = replace(
                self._sampling,
                messages=messages_for(
                    IMAGINED,
                    [("question", "entities")],
                    tools=self._shown,
                    forms=forms_of(reads),
                    spoken=texts,
                    facts=self._facts.shown(environment, list(texts)),
                ),
                schema=SEED_SCHEMA,
                schema_name="entities",
                affinity=str(environment),
            )
            try:
                await ask(CountedEndpoint(self._endpoint, account, "experience"), request, read)
            except EndpointError as error:
                raise SeedingFailed(f"the model gave no answer: {error}") from error
            except UnusableReply as error:  # remembered, so that repeats do not pay for it again
                if account is not None:
                    account.count("unusable_entities")
                why = f"the model's entities could not be used: {error.shown}"
                self._unusable[environment, name] = why
                raise SeedingFailed(why) from error

    def _is_seeded(self, environment: Environment, task: str) -> bool:
        if why := self._unusable.get((environment, task)):
            raise SeedingFailed(why)
        return self._facts.is_seeded(environment, task)

    def _reads(self, spec: ToolSpec) -> bool:
        return (
            self._imagines(spec.name)
            and not spec.effect.runs_in_dream
            and not spec.effect.changes_environment
        )

    def _seeded(self, row: Mapping[str, JsonValue], reason: str) -> tuple[Call, Answer] | None:
        """Return an entity as a tool's call and answer; None if the tool writes or is not imagined."""
        spec, args = self._specs.get(str(row["tool"])), row["args"]
        if spec is None or not isinstance(args, Mapping):
            raise NotSerializable(f"facts: {str(row['tool'])[:80]!r} is not a tool of this agent")
        if not self._reads(spec):
            return None
        answer = formed(row["answer"], spec, schema_for(spec, ()), reason=reason)
        return Call(spec.name, dict(args)), answer

    async def _answered(self, call: Call, situation: Situation, *, after: str) -> Answer:
        """Return the stored fact that answers the call in a state, else ask the model for it."""
        environment = situation.environment
        stored = self._facts.find(environment, call, after)
        if stored is not None:
            return stored
        async with self._turn(self._facts.file(environment), names_in(dict(call.args)) or [""]):
            stored = self._facts.find(environment, call, after)
            if stored is not None:
                return stored
            try:
                return await self._ask_model(call, situation, after)
            except EndpointError as error:
                return abstention(f"the dream's model gave no answer: {error}")
            except UnusableReply as error:
                if situation.account is not None:
                    situation.account.count("unusable_decisions")
                return abstention(f"the model's answer could not be used: {error.shown}")

    async def _ask_model(self, call: Call, situation: Situation, after: str) -> Answer:
        environment, spec = situation.environment, situation.tool
        form = self._schemas(call, situation)
        program = await self._program(situation) if spec.effect.changes_environment else None
        by_code = self._by_program(program, call, situation, form) if program is not None else None
        if by_code is not None and not self._problems(call, by_code, situation, after, "drafted"):
            return self._facts.find(environment, call, after) or by_code

        def read(text: str) -> Answer:
            answer = read_answer(text, spec, form)
            if program is not None and answer.error is None:
                answer = self._changed_by(program, call, situation, answer)
            if problems := self._problems(call, answer, situation, after, "imagined"):
                raise NotSerializable("; ".join(problems))
            return self._facts.find(environment, call, after) or answer

        request = replace(
            self._sampling,
            messages=messages_for(
                IMAGINED,
                [tool_part(spec, spec.answer_schema), call_part(call)],
                tools=self._shown,
                spoken=situation.spoken,
                facts=self._facts.shown(environment, [*situation.spoken, dict(call.args)]),
                history=situation.history if after else (),
            ),
            schema=ANSWER_SCHEMA,
            schema_name="answer",
            affinity=str(environment),
        )
        return await ask(CountedEndpoint(self._endpoint, situation.account, "experience"), request, read)

    def _problems(
        self, call: Call, answer: Answer, situation: Situation, after: str, origin: str
    ) -> list[str]:
        """Store an answer, or return what it contradicts."""
        environment, spec, history = situation.environment, situation.tool, situation.history
        if after or spec.effect.changes_environment:
            facts = self._facts.related(environment, *episode_records(call, answer, history))
            if problems := contradictions(call, answer, spec=spec, history=history, facts=facts):
                return problems
        return self._facts.accept(environment, call, answer, after=after, origin=origin)

    async def _program(self, situation: Situation) -> "ProgramDraft | None":
        """Return the drafted program of a write tool, without what recordings contradict."""
        tool = situation.tool.name
        if self._recorded is not None and tool in self._specs and tool not in self._programs:
            async with self._turn(self._facts.file(DRAFTS), [tool]):
                if tool not in self._programs:
                    draft = await self._drafted(situation)
                    self._programs[tool] = draft.against(self._recorded(tool)) if draft.file else draft
        program = self._programs.get(tool)
        return program if program is not None and program.file else None

    async def _drafted(self, situation: Situation) -> "ProgramDraft":
        """Return the draft that is kept of a write tool; the first call of any run asks the model for it."""
        from dreamgym_kit.dream.drafting import ProgramDraft, program_draft

        spec = situation.tool
        stored = self._facts.find(DRAFTS, Call(spec.name, {}))
        if stored is not None:
            return ProgramDraft.of(spec.name, stored.content)
        endpoint = CountedEndpoint(self._endpoint, situation.account, "experience")
        reads = [tool for tool in self._shown if not tool.effect.changes_environment]
        shapes = self._facts.shapes(situation.environment)
        try:
            draft = await program_draft(endpoint, spec, reads, shapes, self._sampling)
        except EndpointError:
            return ProgramDraft(spec.name)
        self._facts.accept(DRAFTS, Call(spec.name, {}), draft.fact, origin="drafted")
        return draft

    def _scope(self, program: "ProgramDraft", call: Call, situation: Situation) -> Scope:
        rows = episode_records(call, Answer(), situation.history)
        facts = self._facts.related(situation.environment, *rows)
        scope = scope_of_write(program.file, call, situation.tool, known_facts(situation.history, facts))
        chance = random.Random(f"{situation.environment} {situation.after} {call.key}")  # noqa: S311
        scope.maker = lambda like: made_like(like, chance)
        return scope

    def _by_program(
        self, draft: "ProgramDraft", call: Call, situation: Situation, form: AnswerSchema | None
    ) -> Answer | None:
        """Answer a write by its program; None if that leaves the outcome, answer or changes open."""
        rules, why = draft.rules, "by its drafted program"
        try:
            scope = self._scope(draft, call, situation)
            outcome, out = outcome_of(rules.program, scope)
            if outcome is None or out is UNKNOWN or (outcome[0] and not draft.tells_changes):
                return None
            if not outcome[0]:
                return _failed(out if isinstance(out, str) else json.dumps(out, ensure_ascii=False), why)
            changes = changes_of(rules.program, scope, out)
            return formed(out, situation.tool, form, reason=why, changes=changes)
        except PROGRAM_ERRORS:  # also what is unclear, or has another form
            return None

    def _changed_by(self, draft: "ProgramDraft", call: Call, situation: Situation, answer: Answer) -> Answer:
        """Return a model's answer with the program's changes, which are believed above the model's."""
        try:
            scope = self._scope(draft, call, situation)
            changes = changes_of(draft.rules.program, scope, opened(answer.content))
        except PROGRAM_ERRORS:
            return answer
        return replace(answer, changes=tuple(map(escaped, changes))) if draft.tells_changes else answer

    @asynccontextmanager
    async def _turn(self, file: FactsFile, names: Sequence[str] | frozenset[str]) -> AsyncIterator[None]:
        """Lock these names for the block, so that questions about the same thing run one at a time."""
        wanted = sorted(names)
        while not file.begin(wanted):  # noqa: ASYNC110  another process may hold it and cannot notify this loop
            await asyncio.sleep(_AGAIN_S)
        try:
            yield
        finally:
            file.end(wanted)


def read_answer(text: str, spec: ToolSpec, form: AnswerSchema | None) -> Answer:
    """Parse the reply to the question "answer".

    Raises:
        NotSerializable: it does not match the reply's schema or the tool's answer schema.
    """
    output = read_object(text, ANSWER_SCHEMA)
    if output["outcome"] == "error":
        message = output["error"].strip()
        if not message:
            raise NotSerializable("error: the tool's message is missing")
        return _failed(message, output["reasoning"])
    if output["changes"] and not spec.effect.changes_environment:
        raise NotSerializable(f"changes: {spec.name} only reads; it changes nothing")
    return formed(output["answer"], spec, form, reason=output["reasoning"], changes=output["changes"])


def _failed(message: str, why: str) -> Answer:
    return Answer(
        error=message[:1000],
        error_type="ToolException",
        source=Source.IMAGINED,
        confidence=0.0,
        why=why,
    )


def formed(
    value: JsonValue,
    spec: ToolSpec,
    form: AnswerSchema | None,
    *,
    reason: str,
    changes: Sequence[Mapping[str, JsonValue]] = (),
) -> Answer:
    """Build an imagined answer in the form of the tool's answers.

    Raises:
        NotSerializable: the value does not match their schema.
    """
    content, artifact = escaped(value), None
    if form is not None and form.form == "structured":
        artifact = {"structured_content": content}
        content = json.dumps(value, ensure_ascii=False)
    elif form is not None and form.form in ("value", "json") and form.is_text:
        content = content if isinstance(content, str) else json.dumps(value, ensure_ascii=False)
    answer = Answer(
        content=content,
        artifact=artifact,
        source=Source.IMAGINED,
        confidence=0.0,
        changes=tuple(escaped(dict(change)) for change in changes),
        why=reason,
    )
    broken = form.breaks(answer) if form is not None else None
    if broken is not None:
        raise NotSerializable(f"the answer does not have the form of {spec.name}'s answers: {broken}")
    return answer
