"""One episode's turns: its graph's chat models are answered by the policy, and what was sampled is kept.

The graph runs unchanged; at the leaf of its chat models (`chat_models`) the policy is asked instead, exactly,
and each answer is kept as a `Turn`. What an answer is drawn with follows from the seed, the episode, the
place in the graph and the request, never from which of two parallel calls came first; so does the order
of the turns.
"""

import asyncio
import hashlib
import threading
from collections import Counter
from collections.abc import AsyncIterator, Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import AsyncExitStack, asynccontextmanager, contextmanager
from dataclasses import dataclass, field, replace
from fnmatch import fnmatchcase
from typing import Any

from langchain_core.language_models.chat_models import BaseChatModel

from dreamgym_kit.adapters.langgraph.intercept.call_context import (
    CallSite,
    CallSites,
    config_here,
    metadata_here,
    path_of,
    session_key,
)
from dreamgym_kit.adapters.langgraph.policy.requests import PolicyAsked, policy_prompt
from dreamgym_kit.chat import ChatMessage, ChatReply, ChatRequest, ToolRequest
from dreamgym_kit.errors import ContextFull, EndpointError, EpisodeStop
from dreamgym_kit.interfaces import ChatEndpoint
from dreamgym_kit.routing.process import current
from dreamgym_kit.routing.session import Session
from dreamgym_kit.threads import run_in_thread
from dreamgym_kit.turns import Turn

_GONE = frozenset({"connection", "unauthorized", "not_found", "refused_address", "server", "stale_weights"})
_ALONE = (
    "#alone"  # behind the key of an episode that holds up the loop: the server knows of none of that name
)
_CONSTRAINED = "a grammar chose among the tokens"  # no sample to learn from
_ID_LETTERS = 9  # letters and digits: what the strictest chat template takes for a call's id


@dataclass(frozen=True, slots=True, kw_only=True)
class ModelPolicy:
    """What answers in place of a graph's chat models, and how it is asked.

    Attributes:
        server: the policy; its answers carry exact tokens.
        only_nodes: nodes ("agent", "team/agent", "team", patterns) whose models it answers for; the models
            of others answer for themselves. Empty: it answers for all.
        temperature: of the sampling, whatever the graph's own models were set to.
        max_output: most tokens of one answer.
        seed: same seed, same answers.
        scope: sets episodes of the same id apart that the server is asked for at the same time.
        grammar: hold answers to schemas and forced tools with a grammar. Such answers are never learned
            from; without it the policy may miss the form, and learns from that.
        notes: what a person should know, in plain words; each once.
        announced: episodes that the server was told of before they began, by id; see `announce`.
        gone: hears when the server is there no more.
    """

    server: ChatEndpoint
    only_nodes: tuple[str, ...] = ()
    temperature: float = 1.0
    max_output: int = 512
    seed: int = 0
    grammar: bool = True
    scope: str = ""
    notes: dict[str, None] = field(default_factory=dict)
    announced: dict[str, AsyncExitStack] = field(default_factory=dict)
    gone: Callable[[EndpointError], None] = lambda _: None

    def answers_for(self, path: str) -> bool:
        """Whether the models of the node at `path` are the policy's."""
        return not self.only_nodes or any(_covers(pattern, path) for pattern in self.only_nodes)

    def key(self, episode: str) -> str:
        """What the server knows an episode by."""
        return f"{self.scope}/{episode}" if self.scope else episode

    async def announce(self, episodes: Iterable[str]) -> None:
        """Tell the server of episodes that are about to begin: it may wait until all of them ask."""
        for episode in episodes:
            stack = self.announced[episode] = AsyncExitStack()
            begin = getattr(self.server, "episode", None)
            if begin is not None:
                await stack.enter_async_context(begin(self.key(episode)))

    async def dismiss(self) -> None:
        """Those that were announced and never began are over, too."""
        while self.announced:
            await self.announced.popitem()[1].aclose()

    @asynccontextmanager
    async def lives(self, episode: str) -> AsyncIterator[None]:
        """In the block, the server knows that the episode goes on asking."""
        if episode not in self.announced:
            await self.announce([episode])
        stack = self.announced.pop(episode)
        try:
            yield
        finally:
            await stack.aclose()


def _covers(pattern: str, path: str) -> bool:
    parts = path.split("/")
    ways = ["/".join(parts[:end]) for end in range(1, len(parts) + 1)]
    return any(fnmatchcase(way, pattern) for way in (*ways, parts[-1]))


@dataclass(frozen=True, slots=True)
class _Asking:
    """One request on its way."""

    place: CallSite
    fingerprint: str  # of what was asked
    occurrence: int  # how often the very same was asked at this place before
    model: str
    prompt: PolicyAsked
    request: ChatRequest


@dataclass(frozen=True, slots=True)
class PolicyReply:
    """An answer with what the graph's model class wants to find in it."""

    reply: ChatReply
    parsed: bool  # the answer's JSON stands beside its text as well


class Capture:
    """The policy's side of one episode. Thread-safe; made on the loop that the episode runs on."""

    def __init__(self, policy: ModelPolicy, session: Session, episode: str) -> None:
        self.policy = policy
        self.episode = episode
        self.places = CallSites()
        self._session = session
        self._loop = asyncio.get_running_loop()
        self._lock = threading.Lock()
        self._counts: Counter[tuple[CallSite, str]] = Counter()
        self._written: dict[str, ToolRequest] = {}
        self._texts: set[str] = set()
        self._turns: list[tuple[_Asking, Turn]] = []

    def takes(self, args: Mapping[str, Any]) -> bool:
        """Whether the policy answers this call; `args` are those of the model's leaf, by name."""
        return not self.policy.only_nodes or self.policy.answers_for(path_of(self.places.place(_where(args))))

    async def answer(
        self, model: BaseChatModel, args: Mapping[str, Any], *, alone: bool = False
    ) -> PolicyReply:
        """Ask the policy in place of `model`.

        `alone`: no other episode can ask meanwhile, so that the server must not wait for them.

        Raises:
            EpisodeStop: it gave no answer, or none with exact tokens.
        """
        asking = self._asking(model, args, alone=alone)
        try:
            reply = await self.policy.server.chat(asking.request)
        except EndpointError as error:
            if error.kind in _GONE:
                self.policy.gone(error)
            if error.kind == "context" and self._goes_on(asking.prompt.messages):
                full = ContextFull(f"its conversation outgrew the policy's context: {error}")
                raise self._stopped(full) from error
            raise self._stopped(EpisodeStop(f"the policy did not answer: {error}")) from error
        if reply.tokens is None:
            why = "the policy's server gave no token ids and log-probs with its answer"
            raise self._stopped(EpisodeStop(why))
        reply = replace(reply, tool_calls=self._with_ids(asking, reply.tool_calls))
        self._keep(asking, reply)
        if reply.finish_reason == "abort":
            raise self._stopped(EpisodeStop("the policy's server broke off an answer"))
        return PolicyReply(reply, asking.prompt.parsed)

    def answer_now(self, model: BaseChatModel, args: Mapping[str, Any]) -> PolicyReply:
        """The same from sync code, whichever thread and loop it runs in."""
        try:
            here = asyncio.get_running_loop()
        except RuntimeError:
            here = None
        answering = self.answer(model, args, alone=here is self._loop)
        if here is None and self._loop.is_running():
            return asyncio.run_coroutine_threadsafe(answering, self._loop).result()
        if here is None:
            return asyncio.run(answering)
        # the caller blocks its own event loop: wait on another one
        return run_in_thread(lambda: asyncio.run(answering), name="dreamgym-policy")

    def turns(self) -> tuple[Turn, ...]:
        """What the policy said, in the order of places, numbered."""
        with self._lock:
            ordered = sorted(self._turns, key=_order)
        return tuple(replace(turn, index=index) for index, (_, turn) in enumerate(ordered))

    def _asking(self, model: BaseChatModel, args: Mapping[str, Any], *, alone: bool) -> _Asking:
        prompt = policy_prompt(args["messages"], args.get("stop"), args["kwargs"], self._written)
        place = self.places.place(_where(args))
        fingerprint = _fingerprint(prompt)
        with self._lock:
            occurrence = self._counts[place, fingerprint]
            self._counts[place, fingerprint] += 1
        name = model_name(model)
        self._note(model, name, prompt, alone=alone)
        seed = drawn_number(self.policy.seed, self.episode, place, fingerprint, occurrence)
        request = ChatRequest(
            messages=prompt.messages,
            schema=prompt.schema if self.policy.grammar else None,
            schema_name=prompt.schema_name,
            temperature=self.policy.temperature,
            top_p=1.0,
            max_tokens=min(self.policy.max_output, prompt.max_tokens or self.policy.max_output),
            seed=seed,
            affinity=self.policy.key(self.episode) + (_ALONE if alone else ""),
            group=self.policy.key(self.episode).rpartition(".")[0],  # ids are "<task>.<sibling>"
            tools=prompt.tools if self.policy.grammar else prompt.loose_tools,
            tool_choice=prompt.tool_choice if self.policy.grammar or prompt.tool_choice == "none" else "auto",
            parallel_calls=prompt.parallel_calls,
            stop=prompt.stop,
            exact=True,
        )
        return _Asking(place, fingerprint, occurrence, name, prompt, request)

    def _with_ids(self, asking: _Asking, calls: Sequence[ToolRequest]) -> tuple[ToolRequest, ...]:
        """Ids of our own: unique in the episode, and the same whenever it is run again."""
        own = tuple(
            replace(call, id=_word(asking.place, asking.fingerprint, asking.occurrence, number))
            for number, call in enumerate(calls)
        )
        with self._lock:
            self._written.update((call.id, call) for call in own)
        return own

    def _keep(self, asking: _Asking, reply: ChatReply) -> None:
        tokens = reply.tokens
        assert tokens is not None
        turn = Turn(
            episode=self.episode,
            index=0,  # known when all have been asked
            prompt_ids=tokens.prompt_ids,
            ids=tokens.ids,
            logprobs=tokens.logprobs,
            version=tokens.version,
            node=path_of(asking.place) or None,
            model=asking.model,
            finish=reply.finish_reason,
            temperature=self.policy.temperature,
            unfit=_CONSTRAINED if tokens.constrained else "",
        )
        with self._lock:
            self._turns.append((asking, turn))
            if reply.content:
                self._texts.add(reply.content)

    def _note(self, model: BaseChatModel, name: str, prompt: PolicyAsked, *, alone: bool) -> None:
        temperature = getattr(model, "temperature", None)
        notes = [f"the policy is not told of {part}" for part in prompt.left_out]
        if isinstance(temperature, (int, float)) and temperature != self.policy.temperature:
            notes.append(
                f"{name} is set to temperature {temperature:g}; the policy that stands in for it samples at "
                f"{self.policy.temperature:g}"
            )
        if alone:
            notes.append(
                f"{name} is called synchronously on the event loop (`invoke` in an async node): all other "
                "episodes stand still meanwhile; `await model.ainvoke(...)` lets them go on"
            )
        self.policy.notes.update(dict.fromkeys(notes))

    def _goes_on(self, messages: Sequence[ChatMessage]) -> bool:
        """Whether something that the policy said in this episode stands among the messages."""
        with self._lock:
            texts, written = set(self._texts), set(self._written)
        own = (message for message in messages if message.role == "assistant")
        return any(msg.content in texts or any(call.id in written for call in msg.tool_calls) for msg in own)

    def _stopped(self, stop: EpisodeStop) -> EpisodeStop:
        self._session.stopped = self._session.stopped or stop
        return stop


_CAPTURES: dict[str, Capture] = {}


@contextmanager
def captured(policy: ModelPolicy, session: Session, episode: str | None = None) -> Iterator[Capture]:
    """In the block, the chat models of the session's graph are answered by the policy.

    `episode`: its id in the turns; the session's own where that is left out.
    """
    capture = _CAPTURES[session.id] = Capture(policy, session, episode or session.episode)
    try:
        yield capture
    finally:
        _CAPTURES.pop(session.id, None)


def capture_of(session: Session | None) -> Capture | None:
    """The capture of a session, where it has one; without a session, of the one that the config names."""
    if not _CAPTURES:
        return None
    return _CAPTURES.get(session.id if session is not None else session_key(config_here()) or "")


def graph_entered(args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> None:
    """A graph is about to run, with these arguments: where it does may be inside of another's node."""
    if not _CAPTURES:
        return
    passed = next((value for value in (kwargs.get("config"), *args[1:2]) if isinstance(value, Mapping)), {})
    session = current.get()
    key = session.id if session is not None else session_key(passed) or session_key(config_here())
    capture = _CAPTURES.get(key or "")
    if capture is not None:
        metadata = passed.get("metadata") or {}
        capture.places.enter(metadata if "langgraph_checkpoint_ns" in metadata else metadata_here())


def model_name(model: BaseChatModel) -> str:
    """What a chat model is called, as its class has it."""
    return str(getattr(model, "model_name", None) or getattr(model, "model", None) or type(model).__name__)


def _where(args: Mapping[str, Any]) -> Mapping[str, Any]:
    """LangGraph's facts about the call: with the model's own callbacks, else around it."""
    metadata = getattr(args.get("run_manager"), "metadata", None)
    return metadata if metadata and "langgraph_node" in metadata else metadata_here()


def _order(pair: tuple[_Asking, Turn]) -> tuple[CallSite, int, tuple[int, ...], str, int]:
    """By place; what one node run asked by itself: shorter prompts first, as a growing history has them."""
    asking, turn = pair
    return (asking.place, len(turn.prompt_ids), turn.prompt_ids, asking.fingerprint, asking.occurrence)


def _fingerprint(prompt: PolicyAsked) -> str:
    """Names what was asked, call ids left out."""
    hasher = hashlib.blake2b(digest_size=12)
    for message in prompt.messages:
        calls = [(call.name, call.args) for call in message.tool_calls]
        hasher.update(repr((message.role, message.content, message.name, calls)).encode("utf-8", "replace"))
    hasher.update(repr((prompt.tool_choice, prompt.schema_name, prompt.tools_named)).encode())
    return hasher.hexdigest()


def drawn_number(*parts: object) -> int:
    """A number that follows from these parts alone."""
    return int.from_bytes(hashlib.blake2b(repr(parts).encode(), digest_size=4).digest(), "big") >> 1


def _word(*parts: object) -> str:
    return hashlib.blake2b(repr(parts).encode(), digest_size=_ID_LETTERS).hexdigest()[:_ID_LETTERS]
