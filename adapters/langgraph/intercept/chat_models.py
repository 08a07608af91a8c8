"""The gate at the chat model's leaf: what the model asked for, before any node can act on it.

Here a model's tool calls are announced to the session (their order is what later makes parallel calls
deterministic), and a call to a bound name that the gate does not hold is refused: some node would run
a function by itself. Answers from an LLM cache are switched off: a dream must neither read nor fill it.
Where the episode has a policy, that is asked in the model's place (`policy.responses.Leaf`).

Calls past every tool: whether somebody's own code could run what a model asks for, and whether it did.

A ToolNode runs tools and answers unknown names by itself. A node that looks functions up by name runs what it
finds. So where it is not known what stands behind a name (a bare schema was bound, or the model was never
told of it), the living functions of that name are looked at. One look costs some ten milliseconds; what it
found is kept for the graph.

After every turn of a model it is asked whether the calls of before passed the gate. A conversation that goes
on shows what became of its calls. One that has its answer, though the gate saw no such call, was run by
somebody's own code: the episode ends there, before the next call. One that has none is only suspected, since
what runs side by side may still be on its way; the end of the episode settles it.
"""

import functools
import gc
import json
import re
import sysconfig
import types
import weakref
from collections import Counter
from collections.abc import AsyncIterator, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any, NamedTuple
from urllib.parse import urlsplit

from langchain_core.language_models.chat_models import BaseChatModel
from langchain_core.messages import AIMessage, AIMessageChunk, BaseMessage, ToolMessage
from langchain_core.outputs import ChatResult
from langchain_core.tools import BaseTool
from langgraph.prebuilt import ToolNode

from dreamgym_kit.adapters.langgraph.analysis.gc_objects import instances_of
from dreamgym_kit.adapters.langgraph.analysis.nodes import nodes_of, unwrapped
from dreamgym_kit.adapters.langgraph.intercept.bound_names import HOLDINGS, name_of, own_entry
from dreamgym_kit.adapters.langgraph.intercept.call_context import config_here, letting_through, session_key
from dreamgym_kit.adapters.langgraph.intercept.functions import (
    forget_cached,
    hook_made_around,
    hook_twins,
    hooked_names,
    is_hooked,
    registered,
)
from dreamgym_kit.adapters.langgraph.intercept.memory import graphs_of
from dreamgym_kit.adapters.langgraph.intercept.model_replay import turn_of
from dreamgym_kit.adapters.langgraph.intercept.patches import of_same_kind, plain_wrapper
from dreamgym_kit.adapters.langgraph.intercept.provider_tools import provider_tools, without_left_out
from dreamgym_kit.adapters.langgraph.policy.capture import capture_of
from dreamgym_kit.adapters.langgraph.policy.responses import (
    Leaf,
    chunks_of_reply,
    events_of_reply,
    result_of_reply,
)
from dreamgym_kit.canonical import canonical
from dreamgym_kit.guard import egress
from dreamgym_kit.routing.process import PROCESS, current, find
from dreamgym_kit.routing.session import Session
from dreamgym_kit.routing.transcript_check import PAST_THE_GATE
from dreamgym_kit.serialization import to_json
from dreamgym_kit.settings import advice
from dreamgym_kit.settings.secrets import looks_secret
from dreamgym_kit.types import Executed

_LIBRARIES = tuple({sysconfig.get_paths()[name] for name in ("stdlib", "platstdlib", "purelib", "platlib")})


def answers_unknown_names(session: Session) -> bool:
    """Whether a graph of this episode has a ToolNode."""
    return any(True for _ in _tool_nodes(session))


def tool_of_node(session: Session, name: str) -> BaseTool | None:
    """The tool of that name that a ToolNode of this episode runs."""
    tools = (node.tools_by_name.get(name) for node in _tool_nodes(session))
    return next((tool for tool in tools if tool is not None), None)


def loose_function(session: Session, name: str, *, again: bool = False) -> str | None:
    """Return the "module:qualname" of a user's function of that name that no gate holds; None: there is none.

    `again`: search again for a function that was found before: it may be hooked by now.
    """
    graphs = graphs_of(session)
    places = _PLACES.setdefault(graphs[0] if graphs else session, {})
    if name not in places or (again and places[name] is not None):
        places[name] = _find(name)
    return places[name]


def _find(name: str) -> str | None:
    if _first(name) is None:
        return None
    gc.collect()  # what nobody can reach any more cannot be run
    return _first(name)


_PLACES: "weakref.WeakKeyDictionary[Any, dict[str, str | None]]" = weakref.WeakKeyDictionary()
"""By graph, or by session where no graph runs."""


def _first(name: str) -> str | None:
    for function in instances_of(types.FunctionType):
        if function.__name__ == name and _is_loose(function):
            return _where(function)
    for table in instances_of(dict):
        # dict.get, not the table's own: a subclass may run code
        value = dict.get(table, name) if type(table) is dict else None
        candidate = _under(value)
        if candidate is not None and _is_loose(candidate, bound=type(value) is types.MethodType):
            return _where(candidate)
    return None


def _under(value: Any) -> types.FunctionType | None:
    """The function that a function, method or partial runs; a tool's own methods are gated."""
    while type(value) in (functools.partial, types.MethodType):
        if type(value) is types.MethodType and isinstance(value.__self__, BaseTool):
            return None
        value = value.func if type(value) is functools.partial else value.__func__
    return value if isinstance(value, types.FunctionType) else None


def _is_loose(function: types.FunctionType, *, bound: bool = False) -> bool:
    """Whether a function is a user's, no gate holds it, and it is no method (unless taken off an object)."""
    if function.__code__.co_filename.startswith(("<", *_LIBRARIES)) or is_hooked(function):
        return False
    if HOLDINGS.is_body(function):
        return False
    # a client's method is named as the tool that calls it: that says nothing
    outside = function.__qualname__.rpartition(".")[0]
    return bound or not outside or outside.endswith("<locals>")


def _tool_nodes(session: Session) -> Iterator[ToolNode]:
    for graph in graphs_of(session):
        for _, bound in nodes_of(graph):
            yield from (runnable for runnable in unwrapped(bound) if isinstance(runnable, ToolNode))


def _where(function: types.FunctionType) -> str:
    return f"{function.__module__}:{function.__qualname__}"


def check_answered(session: Session, messages: Any) -> None:
    """Look at the conversation that a model is about to go on with.

    Raises:
        RealCallExecuted: a call of it was answered past the gate.
    """
    if session.mode.bare or not session.asked_ids or not isinstance(messages, Sequence):
        return
    given = {message.tool_call_id: message.status for message in messages if isinstance(message, ToolMessage)}
    missing = past_the_gate(session, messages)
    session.passed_over.update({str(call["id"]): call["name"] for call in missing if call["id"] not in given})
    ran = [call for call in missing if given.get(call["id"]) == "success"]
    if ran:
        raise session.ran([Executed(call["name"], to_json(call["args"]), PAST_THE_GATE) for call in ran])


def past_the_gate(session: Session, messages: Sequence[Any]) -> list[Any]:
    """Return the calls of this episode in a conversation that bypassed the gate, with an id or without."""
    gated, structured = HOLDINGS.names | hooked_names(), HOLDINGS.structured | session.policy.structured
    unseen = [
        call
        for message in messages
        if isinstance(message, AIMessage)
        for call in message.tool_calls
        if call["id"] in session.asked_ids and call["id"] not in session.held_call_ids
    ]
    left = Counter(session.held_without_id)
    names = set(session.asked_ids.values())
    spare = sum(times for name, times in left.items() if name not in names)  # under the name of what acted
    missing = []
    for call in unseen:
        name = call["name"]
        if name not in gated or name in structured | session.unknown_names or call["id"] in session.excused:
            continue
        if left[name] > 0:
            left[name] -= 1
        elif spare > 0:
            spare -= 1
        else:
            missing.append(call)
    return missing


def excuse(session: Session, question: object) -> None:
    """Excuse calls that an interrupt asks a person about: the agent may answer them ("the user declined")."""
    text = str(question)
    for call_id, name in session.asked_ids.items():
        about = name in text or call_id in text
        if about and call_id not in session.held_call_ids and loose_function(session, name) is None:
            session.excused.add(call_id)


STREAMS = ("_stream", "_stream_chat_model_events")
ASYNC_STREAMS = ("_astream", "_astream_chat_model_events")


def host_of(model: object) -> str | None:
    """Where a chat model sends its requests, "host:port"; None where it does not say."""
    try:
        client = getattr(model, "root_client", None) or getattr(model, "_client", None)
        base = getattr(client, "base_url", None) or getattr(model, "openai_api_base", None)
        parts = urlsplit(str(base)) if base else None
    except Exception:  # noqa: BLE001  a client that cannot be made is met where the model is asked
        return None
    if parts is None or not parts.hostname:
        return None
    return f"{parts.hostname}:{parts.port or (443 if parts.scheme == 'https' else 80)}"


_KEY = re.compile("KEY|TOKEN|SECRET", re.IGNORECASE)
"""In the name of a variable that holds one; another may have the same value by chance, such as CI=1."""


class AgentModel(NamedTuple):
    """A model of an OpenAI-compatible server, as `[experience]` names one."""

    url: str
    model: str
    key_env: str | None  # the environment variable that holds its key, if one does

    @property
    def lines(self) -> list[str]:
        """Its section of dreamgym.toml."""
        pairs = {"model": self.model, **({"key_env": self.key_env} if self.key_env else {})}
        named = [f"{name} = {json.dumps(value)}" for name, value in pairs.items()]
        return ["[experience]", f"urls = [{json.dumps(self.url)}]", *named]


def served_models(models: Iterable[object], environ: Mapping[str, str]) -> list[AgentModel]:
    """Return the OpenAI-compatible servers of chat models, else the server in environment variables."""
    made = (_served(model, environ) for model in models)
    servers = dict.fromkeys(served for served in made if served is not None)
    url = environ.get("OPENAI_BASE_URL") or environ.get("OPENAI_API_BASE")
    name = environ.get("OPENAI_MODEL") or environ.get("OPENAI_MODEL_NAME")
    if not servers and url and name and _is_plain(url):  # a graph that makes its model when it is asked
        key = "OPENAI_API_KEY" if environ.get("OPENAI_API_KEY") else None
        return [AgentModel(url.rstrip("/"), name, key)]
    return list(servers)


def _served(model: object, environ: Mapping[str, str]) -> AgentModel | None:
    """Of a model that the openai package asks; Azure's deployments have addresses of another form."""
    try:
        client = getattr(model, "root_client", None)
        name, url = getattr(model, "model_name", None), str(getattr(client, "base_url", ""))
        key = getattr(client, "api_key", None)
    except Exception:  # noqa: BLE001  a client that cannot be made is met where the model is asked
        return None
    if type(client).__name__ != "OpenAI" or not isinstance(name, str) or not url or not _is_plain(url):
        return None
    holders = [variable for variable, value in environ.items() if value == key and _KEY.search(variable)]
    return AgentModel(url.rstrip("/"), name, min(holders, default=None))


def _is_plain(url: str) -> bool:
    """Whether an address may stand in a settings file: it holds nothing that looks like a secret."""
    return not ({"@", "?", "#"} & set(url) or any(map(looks_secret, url.split("/"))))


def generating(real: Any) -> Any:
    """Wrap `_generate`."""

    @functools.wraps(real)
    def wrapper(self: BaseChatModel, *args: Any, **kwargs: Any) -> ChatResult:
        session = _session(self, args, kwargs)
        with turn_of(session, self, args, kwargs) as turn, _failing(session), letting_through(self):
            leaf = Leaf(session, real, self, args, kwargs)
            result: ChatResult = turn.result() or turn.record(leaf.now(result_of_reply))
        if session is not None:
            _register_calls(session, self, [generation.message for generation in result.generations], kwargs)
        return result

    return plain_wrapper(wrapper, real)


def generating_async(real: Any) -> Any:
    """Wrap `_agenerate`."""

    @functools.wraps(real)
    async def wrapper(self: BaseChatModel, *args: Any, **kwargs: Any) -> ChatResult:
        session = _session(self, args, kwargs)
        with turn_of(session, self, args, kwargs) as turn, _failing(session), letting_through(self):
            leaf = Leaf(session, real, self, args, kwargs)
            result: ChatResult = turn.result() or turn.record(await leaf.result())
        if session is not None:
            _register_calls(session, self, [generation.message for generation in result.generations], kwargs)
        return result

    return plain_wrapper(wrapper, real)


def streaming(real: Any) -> Any:
    """Wrap a sync stream of chunks or events."""
    events = real.__name__.endswith("_events")
    form = events_of_reply if events else chunks_of_reply

    @functools.wraps(real)
    def wrapper(self: BaseChatModel, *args: Any, **kwargs: Any) -> Iterator[Any]:
        session = _session(self, args, kwargs)
        if session is None:
            yield from real(self, *args, **kwargs)
            return
        calls = _TurnCalls()
        with turn_of(session, self, args, kwargs, events=events) as turn, _failing(session):
            leaf = Leaf(session, real, self, args, kwargs)
            for place, part in enumerate(turn.parts() or leaf.now(form)):
                if not place:  # the caller may stop reading here
                    _answered(session)
                _register_part(session, self, part, kwargs, calls)
                turn.add(part)
                yield part
            turn.end()
        calls.announce(session)

    return plain_wrapper(wrapper, real)


def streaming_async(real: Any) -> Any:
    """Wrap an async stream of chunks or events."""
    events = real.__name__.endswith("_events")
    form = events_of_reply if events else chunks_of_reply

    @functools.wraps(real)
    async def wrapper(self: BaseChatModel, *args: Any, **kwargs: Any) -> AsyncIterator[Any]:
        session = _session(self, args, kwargs)
        calls = _TurnCalls()
        with turn_of(session, self, args, kwargs, events=events) as turn, _failing(session):
            leaf = Leaf(session, real, self, args, kwargs)
            begun = False
            parts = turn.parts()
            async for part in _as_async(parts) if parts else leaf.parts(form):
                if not begun:
                    begun = True
                    _answered(session)
                if session is not None:
                    _register_part(session, self, part, kwargs, calls)
                turn.add(part)
                yield part
            turn.end()
        if session is not None:
            calls.announce(session)

    return plain_wrapper(wrapper, real)


async def _as_async(parts: Iterable[Any]) -> AsyncIterator[Any]:
    for part in parts:
        yield part


def binding(real: Any) -> Any:
    """Wrap `bind_tools`: learn what the model is told of, and hook plain functions at once."""

    @functools.wraps(real)
    def wrapper(self: BaseChatModel, tools: Any, *args: Any, **kwargs: Any) -> Any:
        tools, session = list(tools), current.get()
        if capture_of(session) is None:  # else the leaf sees whether this model is asked at all
            tools = without_left_out(session, tools)
        own = [tool for tool in tools if not provider_tools(tool)]
        HOLDINGS.add_bound(self, own, structured="ls_structured_output_format" in kwargs)
        return real(self, tools, *args, **kwargs)

    return plain_wrapper(wrapper, real)


def uncached(real: Any) -> Any:
    """Wrap `_generate_with_cache` or `_agenerate_with_cache`: in a session no LLM cache is read or filled."""
    return of_same_kind(real, lambda model, *_: (real, _without_cache(model)))


def stopping_async(real: Any) -> Any:
    """Wrap `agenerate`, which gathers results and trips over one that is an `EpisodeStop`."""

    @functools.wraps(real)
    async def wrapper(self: BaseChatModel, *args: Any, **kwargs: Any) -> Any:
        try:
            return await real(self, *args, **kwargs)
        except AttributeError as error:
            session = current.get()
            if session is None or session.stopped is None:
                raise
            raise session.stopped from error

    return plain_wrapper(wrapper, real)


def _without_cache(model: BaseChatModel) -> BaseChatModel:
    session = current.get()
    if session is None or session.mode.bare or model.cache is False:
        return model
    if model.cache is None or model.cache is True:
        from langchain_core.globals import get_llm_cache

        if get_llm_cache() is None and model.cache is None:
            return model
    copy = model.model_copy(update={"cache": False})
    HOLDINGS.tell_copy(model, copy)
    return copy


@contextmanager
def _failing(session: Session | None) -> Iterator[None]:
    """Keep what a model raises: how an episode ends that it ends is the endpoint's doing, not the agent's."""
    before = session.model_answers if session is not None else 0
    try:
        yield
    except Exception as error:
        if session is not None:
            session.model_errors.append(error)
            if session.model_answers == before:  # else another model answered meanwhile
                session.unrecovered = error
        raise
    _answered(session)


def _answered(session: Session | None) -> None:
    if session is not None:
        session.model_answers += 1
        session.unrecovered = None


def _session(model: BaseChatModel, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Session | None:
    if not PROCESS.armed and current.get() is None:
        return None
    session = find(session_key(config_here()), "a chat model")
    if session is not None:
        session.check_open("a chat model")
        if (host := host_of(model)) is not None:
            egress.models_at([host])
        check_answered(session, args[0] if args else kwargs.get("messages"))
    return session


class _TurnCalls:
    """The calls of one model turn, in order, collected while the turn is streamed."""

    def __init__(self) -> None:
        self._names: dict[str, str] = {}
        self._requests: dict[str, str] = {}
        self._by_index: dict[Any, str] = {}

    def begin(self, name: str, call_id: str | None, request: str, index: Any = None) -> None:
        """Add a call, with the part of its arguments that has arrived."""
        key = call_id or f"?{len(self._names)}"
        self._names[key], self._requests[key] = name, request
        if index is not None:
            self._by_index[index] = key

    def go_on(self, index: Any, request: str) -> None:
        """Append to a call's arguments."""
        key = self._by_index.get(index)
        if key is not None:
            self._requests[key] += request

    def announce(self, session: Session) -> None:
        """Report the calls to the session. A call whose arguments did not arrive equals no other call."""
        forget_cached()
        if self._names:
            requests = [
                f"{name}({request})" if request else key
                for (key, name), request in zip(self._names.items(), self._requests.values(), strict=True)
            ]
            session.asked_for(self._names, requests)


def _register_calls(
    session: Session, model: BaseChatModel, messages: Iterable[BaseMessage], kwargs: dict[str, Any]
) -> None:
    """Check and register the calls in whole answers of a model."""
    calls = _TurnCalls()
    for message in messages:
        for name, call_id, request in _calls_of(message):
            _check_interceptable(session, model, name, kwargs)
            calls.begin(name, call_id, request)
    calls.announce(session)


def _register_part(
    session: Session, model: BaseChatModel, part: Any, kwargs: dict[str, Any], calls: _TurnCalls
) -> None:
    """Check and register the calls in one streamed part, before the consumer sees it."""
    message = getattr(part, "message", None)
    if isinstance(message, AIMessageChunk) and message.tool_call_chunks:
        for chunk in message.tool_call_chunks:
            if chunk.get("name"):
                _check_interceptable(session, model, str(chunk["name"]), kwargs)
                calls.begin(str(chunk["name"]), chunk["id"], chunk["args"] or "", chunk["index"])
            else:
                calls.go_on(chunk["index"], chunk["args"] or "")
        return
    requested = _calls_of(message) if isinstance(message, BaseMessage) else _calls_in_event(part)
    for name, call_id, request in requested:
        _check_interceptable(session, model, name, kwargs)
        calls.begin(name, call_id, request)


def _calls_of(message: BaseMessage) -> list[tuple[str, str | None, str]]:
    """Names, ids and arguments of the calls in a whole message, also in the form of before tool calls."""
    if not isinstance(message, AIMessage):
        return []
    calls = [(call["name"], call["id"], canonical(to_json(call["args"]))) for call in message.tool_calls]
    older = message.additional_kwargs.get("function_call")
    if not calls and isinstance(older, dict) and older.get("name"):
        calls.append((str(older["name"]), None, str(older.get("arguments") or "")))
    return calls


def _calls_in_event(part: Any) -> list[tuple[str, str | None, str]]:
    """Protocol events: a content block that starts or finishes."""
    blocks = (
        [part.get(key) for key in ("content", "content_block", "block")] if isinstance(part, dict) else []
    )
    return [
        (str(block["name"]), block.get("id"), "")
        for block in blocks
        if isinstance(block, dict) and "tool_call" in str(block.get("type")) and block.get("name")
    ]


def _check_interceptable(session: Session, model: BaseChatModel, name: str, kwargs: dict[str, Any]) -> None:
    """Refuse a call that code outside the gate would run.

    Tools and functions that were bound are gated. For a bare schema, or an empty tool or function, the code
    that runs is unknown: a tool of that name must exist and no loose function. The framework answers a name
    that was never bound ("not a valid tool"), unless a node runs functions by name. A model that was never
    seen being bound has its names from elsewhere: none of them is trusted.
    """
    if session.mode.bare or name in session.policy.structured:
        return
    binding = HOLDINGS.binding_of(model)
    seen = binding is not None and binding.runs_seen_code(name)
    if registered(name):
        if not seen:
            _check_alone(session, name)
        return
    in_node = tool_of_node(session, name)
    unhookable = HOLDINGS.unhookable.get(name) or (own_entry(in_node) if in_node is not None else None)
    if unhookable is None and (seen or in_node is not None):
        return
    names = {name_of(tool) for tool in kwargs.get("tools") or kwargs.get("functions") or ()}
    bound = name in names or (binding is not None and name in binding.schemas)
    if unhookable is not None:
        why = f"is a callable that cannot be hooked ({unhookable})"
    elif bound:
        why = "is bound to the model by its schema alone"
    elif binding is None and not names:
        why = "the model knows from somewhere that the gate does not see"
    elif answers_unknown_names(session) or loose_function(session, name) is None:
        session.count("unknown_tool")
        session.unknown_names.add(name)
        return
    else:
        why = "the model was never told of"
    loose = loose_function(session, name)
    interceptable = name in hooked_names() or HOLDINGS.has_tool(name)
    if unhookable is not None or loose is not None or not interceptable:
        _refuse(session, name, why, loose or f"package.module:{name}")


def _check_alone(session: Session, name: str) -> None:
    """Refuse a registered name under which a node may run another function."""
    if loose_function(session, name) is None:
        return
    hook_made_around(name)  # it may be what the registered one calls
    hook_twins()  # or one that was made since, of the same origin
    if (other := loose_function(session, name, again=True)) is not None:
        _refuse(session, name, "is the name of more functions than the one that is registered", other)


def _refuse(session: Session, name: str, why: str, function: str) -> None:
    session.refuse(
        f"the model called '{name}', which {why}: some node would run it for real. Name the function that "
        f"runs it, or say that it only shapes an answer; "
        f"{advice.format_lines(advice.function_answered(function, name=name), advice.only_shapes(name))}"
    )
