"""What a dream answers from, as settings have it: recordings, rules, a learned and a reasoning model."""

import threading
from collections.abc import AsyncIterator, Container, Iterator, Mapping, Sequence
from contextlib import (
    AbstractAsyncContextManager,
    AsyncExitStack,
    asynccontextmanager,
    closing,
    contextmanager,
    nullcontext,
)
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any

from dreamgym_kit.adapters.langgraph.run.request import RunRequest
from dreamgym_kit.adapters.models.named_models import (
    allowance,
    directory_of,
    gate_of_settings,
    learned_directory,
    open_experience,
)
from dreamgym_kit.adapters.stores.factory import is_far, kept_programs
from dreamgym_kit.chat import ChatRequest
from dreamgym_kit.dream.answer_schema import AnswerSchema, schema_for
from dreamgym_kit.dream.calibration import ReasonedSupport, ReasonedTrial, learn_support
from dreamgym_kit.dream.chain import ChainedExperience, FallbackChain, without
from dreamgym_kit.dream.environment_facts import EnvironmentFacts, FactIndex, recorded_facts
from dreamgym_kit.dream.held_out import audit_reasoned
from dreamgym_kit.dream.imagined.experience import ImaginedExperience
from dreamgym_kit.dream.llm_experience import Allows, ReasonedExperience
from dreamgym_kit.dream.matching import Match
from dreamgym_kit.dream.programs.experience import ProgramTracker
from dreamgym_kit.dream.programs.rules_files import read_rules
from dreamgym_kit.dream.prompt import PROMPT_VERSION, shown_tools
from dreamgym_kit.dream.recorded import RecordedExperience
from dreamgym_kit.dream.things import identifiers, opened
from dreamgym_kit.errors import UserError
from dreamgym_kit.guard import egress
from dreamgym_kit.interfaces import ChatEndpoint, ExperienceModel, HybridQuery, Situation, TransitionStore
from dreamgym_kit.replay.masking import masked_answer
from dreamgym_kit.replay.retrieval import question_text
from dreamgym_kit.rollout.budgets import BudgetedEndpoint, RunAccount, RunBudget
from dreamgym_kit.rollout.environment_files import EnvironmentFile, environments_folder, facts_path
from dreamgym_kit.rollout.rundir import RunDirectory
from dreamgym_kit.routing.router import Mode
from dreamgym_kit.settings.load import rules_folder
from dreamgym_kit.settings.schema import PolicySettings, Settings
from dreamgym_kit.settings.views import seen_through
from dreamgym_kit.types import Call, Environment, Spend, Split, ToolSpec, Transition

if TYPE_CHECKING:
    from dreamgym_kit.adapters.models.vllm.looking import ServerWatch
    from dreamgym_kit.dream.judge import ModelJudge

_FAILURES = 3
_MORE = 4  # times as many are looked for where some must not be shown
_FACT_ROWS = 2_000  # newest reads of an environment that may be facts
_FORM_ROWS = 500  # newest recordings that a tool's form is read from


def chained_experience(
    store: TransitionStore | None, settings: Settings, specs: Mapping[str, ToolSpec] | None = None
) -> ExperienceModel | None:
    """The dream that repeats what a store holds; else it goes by programs, mined or written by a person.

    None where there is nothing to go by.

    Raises:
        UserError: files in the folder rules cannot be read.
    """
    rules = read_rules(rules_folder(settings))
    if store is None and not rules:
        return None

    def recordings(environment: Environment, tenant: str) -> list[Transition]:
        return _scanned(store, environment=environment, tenant=tenant)

    match = Match({pattern: rule.ignore for pattern, rule in settings.match.items()})
    return ChainedExperience(
        RecordedExperience(recordings, match),
        lambda tenant: _scanned(store, tenant=tenant),
        threshold=settings.simulate.min_confidence,
        specs=specs,
        rules=rules,
        program_store=kept_programs(store, settings),
    )


@contextmanager
def with_decisions(first: ExperienceModel | None, settings: Settings) -> Iterator[ExperienceModel | None]:
    """`first`, and behind it the learned model that settings name, open for the block.

    Without recordings there is nothing that its decisions could be written from, and it is left out; so it is
    where the state that it decides in is. Where reasoning is, the one decides that was taught without it.

    Raises:
        MissingExtra: the packages of the extra `train` are not installed, and it is to run in this process.
        UserError: the directory cannot be read, or the server is named wrongly; nothing was run.
    """
    conf, folder = settings.experience, learned_directory(settings)
    if folder is None:
        yield first
        return
    parts = settings.simulate.disable
    if "reasoning" in parts:
        folder = settings.resolve(conf.no_reasoning_model) if conf.no_reasoning_model is not None else None
    if folder is None or "state" in parts:
        yield first
        return
    from dreamgym_kit.dream.learned.experience import LearnedExperience
    from dreamgym_kit.dream.learned.vocabulary import read_learned

    with egress.exempt():  # the kit's own files
        learned = read_learned(folder)
    if not isinstance(first, ChainedExperience):
        yield first
        return
    served = bool(conf.urls) and "reasoning" not in parts and (conf.served_name or conf.model is None)
    with _opened(folder, settings, served=bool(served)) as endpoint:
        decides = LearnedExperience(
            endpoint, learned, programs=first.programs, threshold=settings.simulate.min_confidence
        )
        yield FallbackChain(without(first, parts), decides, second_opinion=True)


@contextmanager
def _opened(folder: Path, settings: Settings, *, served: bool) -> Iterator[ChatEndpoint]:
    experience = settings.experience
    if served:
        from dreamgym_kit.adapters.models.remote import open_remote

        policy = PolicySettings(
            model=experience.served_name or str(folder),
            urls=experience.urls,
            key_env=experience.key_env,
            key_file=experience.key_file,
        )
        with closing(open_remote(policy, source=settings.where("experience"))) as remote:
            yield remote
        return
    from dreamgym_kit.adapters.models.local import open_local

    with egress.exempt():  # loads torch and the weights
        local = open_local(folder)
    with closing(local):
        yield local


@asynccontextmanager
async def experience_endpoint(
    settings: Settings, budget: RunBudget, *, dreams: bool, check: bool = True, role: str = ""
) -> AsyncIterator[ChatEndpoint | None]:
    """Open the endpoint of the settings for the block; None while recording, or if none is named.

    `check`: ask it once, to be sure that it answers. `role`: as for `open_experience`.

    Raises:
        UserError: it is named wrongly, or gives no answer; nothing was run.
    """
    endpoint = open_experience(settings, role=role) if dreams else None
    if endpoint is None:
        yield None
        return
    with closing(endpoint):
        budgeted = BudgetedEndpoint(endpoint, budget)
        if check:
            from dreamgym_kit.adapters.models.named_models import check_endpoint

            await check_endpoint(budgeted)
        yield budgeted


def servers_watched(
    settings: Settings, mode: Mode, *, chat: ChatEndpoint | None, policy: bool
) -> "AbstractAsyncContextManager[ServerWatch | None]":
    """`watched`, of the servers that are vLLM's and that a run asks; None where it asks none.

    Args:
        settings: name them.
        mode: of the run; only a dream asks a learned experience model.
        chat: the dream's own model, where it has one.
        policy: whether a policy of the settings acts.
    """
    inner = chat.endpoint if isinstance(chat, BudgetedEndpoint) else chat
    learned = mode is Mode.DREAM and learned_directory(settings) is not None
    sections = ["experience"] if learned or getattr(inner, "is_vllm", False) else []
    sections += ["policy"] if policy else []
    if not sections:
        return nullcontext()
    from dreamgym_kit.adapters.models.vllm.looking import watched

    return watched(settings, sections)


def with_model(
    first: ExperienceModel | None,
    chat: ChatEndpoint | None,
    settings: Settings,
    store: TransitionStore | None,
    support: ReasonedSupport | None = None,
    *,
    before: ExperienceModel | None = None,
    allows: Allows | None = None,
    only: Container[str] | None = None,
    specs: Mapping[str, ToolSpec] | None = None,
) -> ExperienceModel | None:
    """`first`, and behind it the model where there is one; `support`: what its confidence is worth.

    `before`: what is asked before the model instead, `first` and more. `only`: ids of the recordings that the
    model may be shown; None: all but the held-out ones. `allows`: which tools the model may answer.
    """
    parts, base = settings.simulate.disable, before or first
    # what was taught without reasons decides without them, and may
    dropped = [
        part for part in parts if part != "reasoning" or settings.experience.no_reasoning_model is None
    ]
    code = without(base, dropped) if base is not None else None
    if chat is None or "reasoning" in parts:
        return code
    programs = None
    if isinstance(first, ChainedExperience) and "state" not in parts:
        programs = first.programs
    if settings.simulate.imagine or any(tool.imagine for tool in settings.tools.values()):
        allows = _only_recorded(store, settings, allows)
    model = reasoned_over(
        store,
        chat,
        settings,
        only=only,
        programs=programs,
        support=support,
        allows=allows,
        specs=specs,
    )
    reasons = without(model, parts)
    return reasons if code is None else FallbackChain(code, reasons)


def _only_recorded(store: TransitionStore | None, settings: Settings, allows: Allows | None) -> Allows:
    """As `allows`, but of imagined tools those that were recorded: one question for a call is enough."""
    recorded = {row.call.tool for row in _scanned(store, tenant=settings.tenant)}

    def barred(tool: str) -> str | None:
        if settings.imagines(tool) and tool not in recorded:
            return ""
        return allows(tool) if allows is not None else None

    return barred


def imagined_experience(
    chat: ChatEndpoint | None,
    settings: Settings,
    store: TransitionStore | None,
    specs: Mapping[str, ToolSpec],
) -> ImaginedExperience | None:
    """The model that invents what nobody recorded; None where no tool's answers may be imagined.

    Raises:
        UserError: some may, and no model is configured.
    """
    wanted = {name for name in specs if settings.imagines(name)}
    if not wanted:
        return None
    if chat is None:
        raise UserError(
            "imagined answers need a model, and [experience] names none. Set experience.urls and "
            "experience.model (doctor asks it one question). Nothing was run."
        )
    folder, recorded = environments_folder(settings), RecordedAnswers(store)
    facts = EnvironmentFacts(
        lambda environment: EnvironmentFile(facts_path(folder, environment)),
        specs,
        recorded=lambda environment: _scanned(store, tenant=settings.tenant, environment=environment),
        model=settings.experience.model or settings.experience.dir or "",
        prompt=PROMPT_VERSION,
        clock=lambda: datetime.now(UTC).isoformat(timespec="seconds"),
    )

    def calling(tool: str) -> list[Transition]:
        rows = _scanned(store, tenant=settings.tenant)
        episodes = {row.episode for row in rows if row.call.tool == tool}
        return [row for row in rows if row.episode in episodes]

    return ImaginedExperience(
        chat,
        facts,
        specs,
        imagines=wanted.__contains__,
        schemas=recorded.schema,
        sampling=sampling_of(settings),
        recorded=calling,
    )


def sampling_of(settings: Settings) -> ChatRequest:
    """How the dream's model is sampled, in a request without messages."""
    experience = settings.experience
    return ChatRequest(
        (),
        max_tokens=experience.max_output,
        temperature=experience.temperature,
        top_p=experience.top_p,
        seed=settings.simulate.seed,
    )


def reasoned_over(
    store: TransitionStore | None,
    chat: ChatEndpoint,
    settings: Settings,
    *,
    only: Container[str] | None = None,
    programs: ProgramTracker | None = None,
    support: ReasonedSupport | None = None,
    allows: Allows | None = None,
    specs: Mapping[str, ToolSpec] | None = None,
) -> ReasonedExperience:
    """The model's side as settings have it, with examples, facts and forms from recordings.

    `only`: ids of the recordings that may be shown; None: all but the held-out ones. `specs`: the agent's
    tools, named in each prompt.
    """
    recorded = RecordedAnswers(store, only, examples=settings.experience.examples)
    return ReasonedExperience(
        chat,
        retrieve=None if "retrieval" in settings.simulate.disable else recorded.examples,
        schemas=recorded.schema,
        programs=programs,
        support=support,
        allows=allows,
        threshold=settings.simulate.min_confidence,
        sampling=sampling_of(settings),
        far=is_far(store),
        decides=recorded.deciding,
        facts=None if "retrieval" in settings.simulate.disable else recorded.facts,
        tools=shown_tools(specs or {}),
    )


class RecordedAnswers:
    """What was recorded of each tool, without the held-out rows; forms are read once a tool.

    Threads may share it: where the store is a server, each call asks in a thread of its own.
    """

    def __init__(
        self, store: TransitionStore | None, only: Container[str] | None = None, *, examples: int = 6
    ) -> None:
        self._store, self._only, self._examples = store, only, examples
        self._episodes: dict[tuple[str, Environment], list[Transition]] = {}
        self._rows: dict[tuple[str, str], list[Transition]] = {}
        self._facts: dict[tuple[str, Environment], FactIndex] = {}
        self._reading = threading.Lock()  # siblings that begin together read a tool's rows once
        self._schemas: dict[tuple[str, str], AnswerSchema | None] = {}

    def examples(self, call: Call, situation: Situation) -> Sequence[Transition]:
        """What is most like the call among its tool's recordings, none of the episode's own.

        The newest failures stand behind: the like of a call that went well shows no form of a failure.
        """
        like = self._like(call, situation)
        failed = [
            row
            for row in reversed(self._recorded(situation.tenant, call.tool))
            if row.answer.error is not None and row.episode != situation.episode
        ]
        ids = {row.id for row in like}
        beside = min(_FAILURES, self._examples // 2)
        return [*like, *[row for row in failed if row.id not in ids][:beside]]

    def deciding(self, example: Transition) -> Transition | None:
        """The last read before the example, in the same episode, that shows what the example's call names.

        None for a read that succeeded: its own answer tells all.
        """
        if example.answer.error is None and not example.effect.changes_environment:
            return None
        rows = self._reads(example.tenant, example.environment)
        named = set(identifiers(example.call.args))
        return next(
            (
                row
                for row in reversed(rows)
                if row.episode == example.episode and row.step < example.step and self._may_be_shown(row)
                if named & {*identifiers(row.call.args), *identifiers(opened(row.answer.content))}
            ),
            None,
        )

    def facts(self, situation: Situation) -> FactIndex:
        """What other episodes read of the environment's base state."""
        key = (situation.tenant, situation.environment)
        rows = [row for row in self._reads(*key)[-_FACT_ROWS:] if self._may_be_shown(row)]
        other = [row for row in rows if row.episode != situation.episode]
        if len(other) < len(rows):  # a recorded episode is asked again, to measure or to teach
            return recorded_facts(other)
        with self._reading:
            if key not in self._facts:
                self._facts[key] = recorded_facts(rows)
            return self._facts[key]

    def _reads(self, tenant: str, environment: Environment) -> list[Transition]:
        key = (tenant, environment)
        with self._reading:
            if key not in self._episodes:
                rows = _scanned(self._store, tenant=tenant, environment=environment)
                self._episodes[key] = [row for row in rows if not row.effect.changes_environment]
            return self._episodes[key]

    def schema(self, call: Call, situation: Situation) -> AnswerSchema | None:
        """The form of a tool's answers: declared, or as recorded."""
        key = (situation.tenant, call.tool)
        if key not in self._schemas:
            answers = [row.answer for row in self._recorded(*key)[-_FORM_ROWS:]]
            self._schemas[key] = schema_for(situation.tool, answers)
        return self._schemas[key]

    def _like(self, call: Call, situation: Situation) -> list[Transition]:
        if self._store is None or not self._examples:
            return []
        query = HybridQuery(
            question_text(call, situation.task),
            tool=call.tool,
            tenant=situation.tenant,
            k=self._examples if self._only is None else _MORE * self._examples,
            not_episode=situation.episode,
        )
        with egress.exempt():  # the buffer is the kit's own file, its embedder a host of the settings
            rows = [hit.transition for hit in self._store.search(query)]
        return [row for row in rows if self._may_be_shown(row) and row.answer.update is None][
            : self._examples
        ]

    def _recorded(self, tenant: str, tool: str) -> list[Transition]:
        key = (tenant, tool)
        with self._reading:
            if key not in self._rows:
                rows = _scanned(self._store, tenant=tenant, tool=tool)
                self._rows[key] = [row for row in rows if self._may_be_shown(row)]
            return self._rows[key]

    def _may_be_shown(self, row: Transition) -> bool:
        return row.split is Split.TRAIN and (self._only is None or row.id in self._only)


async def held_out_trials(
    directory: RunDirectory,
    store: TransitionStore | None,
    chat: ChatEndpoint | None,
    settings: Settings,
    specs: Mapping[str, ToolSpec],
    budget: RunBudget,
) -> tuple[list[ReasonedTrial], Spend]:
    """The trials of this run and what they cost: kept by an earlier leg, or asked now.

    None without a model or recordings.
    """
    if chat is None or store is None or not settings.experience.calibration_calls:
        return [], Spend()
    earlier = directory.read_trials()
    if earlier is not None:
        budget.count_earlier(calls=0, usd=earlier[1].cost_usd)
        return earlier

    def reasoner(seen: Sequence[Transition], chain: ChainedExperience) -> ReasonedExperience:
        shown = frozenset(row.id for row in seen)
        return reasoned_over(store, chat, settings, only=shown, programs=chain.programs, specs=specs)

    account = RunAccount()
    trials = await audit_reasoned(
        _scanned(store, tenant=settings.tenant),
        reasoner,
        specs,
        most=settings.experience.calibration_calls,
        threshold=settings.simulate.min_confidence,
        seed=settings.simulate.seed,
        account=account,
        at_once=settings.simulate.concurrency,
    )
    with egress.exempt():
        directory.write_trials(trials, account.spend)
    return trials, account.spend


def _scanned(store: TransitionStore | None, **of: Any) -> list[Transition]:
    if store is None:
        return []
    with egress.exempt():  # the buffer is the kit's own file
        return list(store.scan(**of))


@dataclass(frozen=True, slots=True)
class AnswerSources:
    """Who answers a run's calls."""

    model: ExperienceModel | None = None  # None: the real tools
    recorded: ExperienceModel | None = None  # the part of it that needs no endpoint
    chat: ChatEndpoint | None = None  # makes tasks, and judges where a curriculum says so
    second: "ModelJudge | None" = None  # judges beside the checker; the checker wins
    user: ChatEndpoint | None = None  # plays the users that tasks describe as personas
    support: ReasonedSupport = field(default_factory=lambda: learn_support(()))
    spend: Spend = field(default_factory=Spend)  # of trying the model on held-out recordings
    trials: Sequence[ReasonedTrial] = ()  # held-out calls that calibrated the model
    imagined: ImaginedExperience | None = None  # the part of the model that invents


async def answer_sources(
    stack: AsyncExitStack,
    request: RunRequest,
    specs: Mapping[str, ToolSpec],
    budget: RunBudget,
    directory: RunDirectory | None,
    *,
    trials: Sequence[ReasonedTrial] = (),
) -> AnswerSources:
    """Open the endpoint, try it on held-out recordings, and put the chain together.

    Without a `directory` nothing is tried: the driver of this worker did, and passes its `trials`.
    """
    settings, dreams, check = request.settings, not request.mode.bare, directory is not None
    chat = await stack.enter_async_context(experience_endpoint(settings, budget, dreams=dreams, check=check))
    gate, spend = None, Spend()
    if chat is not None:
        with egress.exempt():  # the kit's own files
            gate = gate_of_settings(settings)
    store = seen_through(request.store, settings.tools, masked_answer)
    if gate is not None or directory_of(settings) is not None:  # it was trained on these recordings
        trials = gate.trials if gate is not None else ()
    elif directory is not None:
        trials, spend = await held_out_trials(directory, store, chat, settings, specs, budget)
    support = learn_support(trials)
    if not dreams:
        return AnswerSources(chat=chat, support=support, spend=spend, trials=trials)
    recorded = request.experience or chained_experience(store, settings, specs)
    decides = stack.enter_context(with_decisions(recorded, settings))
    allows = allowance(settings, gate, training=request.trains) if chat is not None else None
    model = with_model(recorded, chat, settings, store, support, before=decides, allows=allows, specs=specs)
    imagined = imagined_experience(chat, settings, store, specs)
    if imagined is not None and request.measures and not settings.train.imagined:
        raise UserError(
            "train and evaluate take no imagined answers, which prove nothing. Record the tools, or set "
            "train.imagined = true. Nothing was run."
        )
    if imagined is not None:
        stack.callback(imagined.close)
        model = imagined if model is None else FallbackChain(model, imagined)
    text = chat if directory_of(settings) is None else None  # a directory decides, and no more

    async def of(role: str) -> ChatEndpoint | None:
        if getattr(settings.experience, f"{role}_model") is None:
            return text
        own = experience_endpoint(settings, budget, dreams=True, check=check, role=role)
        return await stack.enter_async_context(own)

    judge, second = await of("judge") if settings.experience.judge else None, None
    if judge is not None:
        from dreamgym_kit.dream.judge import ModelJudge

        second = ModelJudge(judge)
    return AnswerSources(model, recorded, text, second, await of("user"), support, spend, trials, imagined)
