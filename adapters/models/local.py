"""A model directory as a policy in this process: the same port as a remote server, exact ids and log-probs.

Implements `interfaces.PolicyServer` for any causal language model of the transformers library: one thread
owns the model, requests of any thread and event loop share its batches, float32 on the CPU and one torch
thread unless said otherwise. Needs the extra `train`; importing this module does not.
"""

import asyncio
import hashlib
import json
import time
from array import array
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING

from dreamgym_kit.bounded_json import read_json
from dreamgym_kit.chat import ChatReply, ChatRequest, SampledTokens, ToolRequest
from dreamgym_kit.deployment.model_files import ModelFiles, check_replaces, read_files
from dreamgym_kit.errors import EndpointError, MissingExtra, NotSerializable, UserError

if TYPE_CHECKING:
    from dreamgym_kit.adapters.models.kv_cache import PrefixCache
    from dreamgym_kit.adapters.models.local_batch import Ask, Sampled
    from dreamgym_kit.adapters.models.local_engine import Engine
    from dreamgym_kit.adapters.models.local_grammar import Grammars
    from dreamgym_kit.adapters.models.local_prompts import Prompts

_CACHE_BYTES = 512 * 2**20
_OPENS, _CLOSES = "<tool_call>", "</tool_call>"
_MAX_CALL = 2**20  # characters of one call


class LocalPolicy:
    """Made by `open_local`. Usable from any thread and event loop, any number of requests at once."""

    def __init__(
        self,
        files: ModelFiles,
        engine: "Engine",
        prompts: "Prompts",
        grammars: "Grammars",
        cache: "PrefixCache",
        ends: frozenset[int],
    ) -> None:
        self.weights = files.folder  # what answers now
        self._files = files
        self._engine = engine
        self._prompts = prompts
        self._grammars = grammars
        self._cache = cache
        self._ends = ends

    @property
    def version(self) -> str:
        """Names the weights that answer from now on."""
        return self._engine.version

    @property
    def device(self) -> str:
        """Where the weights lie, as torch calls it."""
        return str(self._engine.network.device)

    @property
    def context(self) -> int:
        """Tokens that prompt and answer may have together."""
        return self._engine.network.context

    @property
    def impatient(self) -> int:
        """Batches that lockstep started without an episode that did not ask in time."""
        return self._engine.impatient

    @asynccontextmanager
    async def episode(self, key: str) -> AsyncIterator[None]:
        """While inside, the episode `key` lives: lockstep waits for its requests (`ChatRequest.affinity`)."""
        self._engine.begin(key)
        try:
            yield
        finally:
            self._engine.end(key)

    async def chat(self, request: ChatRequest) -> ChatReply:
        """See `ChatEndpoint.chat`."""
        started = time.perf_counter()
        ask = self._make_ask(request)
        sampled = await asyncio.wrap_future(self._engine.ask(ask))
        return self._reply(request, ask, sampled, time.perf_counter() - started)

    async def load(self, weights: Path, version: str) -> None:
        """See `PolicyServer.load`."""
        from dreamgym_kit.adapters.models.local_network import load_network

        files = await asyncio.to_thread(read_files, weights)
        served, engine = self._files, self._engine
        check_replaces(files, served)
        device = str(engine.network.device)
        network = await asyncio.to_thread(load_network, files, device=device)
        if network.shape != engine.network.shape or network.context != engine.network.context:
            raise UserError(f"{weights}: another architecture than {served.folder}, served now.")
        await asyncio.wrap_future(engine.do(lambda: engine.serve(network, version), between_batches=True))
        self.weights = weights

    async def score(self, ids: Sequence[Sequence[int]]) -> list[list[float]]:
        """See `PolicyServer.score`."""
        from dreamgym_kit.adapters.models.local_network import score

        engine = self._engine
        rows = [tuple(row) for row in ids]
        done: list[list[float]] = await asyncio.wrap_future(
            engine.do(lambda: score(engine.network, rows), between_batches=False)
        )
        return done

    def close(self) -> None:
        """End the engine's thread; what waits fails. Calling it twice does no harm."""
        self._engine.close()

    def _make_ask(self, request: ChatRequest) -> "Ask":
        from dreamgym_kit.adapters.models.local_batch import Ask, sampling

        tools = request.tools if request.tool_choice != "none" else ()
        rendered = self._prompts.render(request.messages, tools)
        prompt = self._cache.ids(
            request.affinity, rendered.text, lambda text: self._prompts.encode(replace(rendered, text=text))
        )
        left = self.context - len(prompt)
        if left < 1 or not prompt:
            raise EndpointError(
                "context",
                f"the prompt has {len(prompt)} tokens, and the policy's context is {self.context} with its "
                "answer; shorten what the agent puts into it",
            )
        most = max(1, min(request.max_tokens, left))
        return Ask(
            key=request.affinity,
            prompt=prompt,
            text=rendered.text,
            render_answer=lambda ids: self._prompts.render_answer(ids, rendered.mark, self._ends),
            most=most,
            sampling=sampling(request.temperature, request.top_p, request.seed, most),
            seed=request.seed,
            stop=tuple(stop for stop in request.stop if stop),
            grammar=self._grammars.of(request),
        )

    def _reply(self, request: ChatRequest, ask: "Ask", sampled: "Sampled", elapsed_s: float) -> ChatReply:
        ids = sampled.ids[:-1] if sampled.ids[-1] in self._ends else sampled.ids
        text = self._prompts.decode(ids)
        if sampled.cut >= 0:
            text = text[: sampled.cut]
        wanted = request.tools and request.tool_choice != "none"
        answer = parse_answer(text, _turn(ask.prompt, sampled.ids)) if wanted else ParsedAnswer(text, ())
        tokens = SampledTokens(
            ask.prompt,
            sampled.ids,
            sampled.logprobs,
            sampled.version,
            constrained=ask.grammar is not None or ask.sampling.top_p < 1,
        )
        return ChatReply(
            content=answer.content,
            finish_reason="tool_calls" if answer.calls and sampled.finish == "stop" else sampled.finish,
            model=sampled.version,
            prompt_tokens=len(ask.prompt),
            completion_tokens=len(sampled.ids),
            cached_tokens=sampled.reused,
            cache_told=True,
            elapsed_s=elapsed_s,
            tool_calls=answer.calls,
            tokens=tokens if request.exact else None,
        )


def open_local(
    folder: Path,
    *,
    version: str = "v0",
    lockstep: bool = False,
    window_s: float = 0.002,
    patience_s: float = 60.0,
    cache_bytes: int = _CACHE_BYTES,
    device: str = "cpu",
) -> LocalPolicy:
    """Serve a model directory in this process.

    Args:
        folder: config.json, *.safetensors, tokenizer files and chat template.
        version: names the weights in every answer.
        lockstep: batches start when every live episode waits, so that no float depends on timing.
        window_s: how long the first request waits for others.
        patience_s: how long lockstep waits for an episode that does not ask.
        cache_bytes: most bytes of keys and values to keep for later turns.
        device: "cpu", or what torch calls a device.

    Raises:
        MissingExtra: torch or transformers are not installed.
        UserError: the directory is not a model that can be served; says which file, and what to do.
    """
    try:
        from dreamgym_kit.adapters.models.folders import load_served_tokenizer
        from dreamgym_kit.adapters.models.kv_cache import PrefixCache
        from dreamgym_kit.adapters.models.local_engine import Engine, Pace
        from dreamgym_kit.adapters.models.local_grammar import Grammars
        from dreamgym_kit.adapters.models.local_network import load_network
        from dreamgym_kit.adapters.models.local_prompts import Prompts

        files = read_files(folder)
    except ModuleNotFoundError as error:
        if error.name and error.name.startswith("dreamgym_kit"):
            raise
        raise MissingExtra("train", needed_by="a policy in process") from None
    tokenizer = load_served_tokenizer(files)
    network = load_network(files, device=device)
    prompts = Prompts(tokenizer)
    own = tokenizer.eos_token_id
    ends = files.ends | ({own} if isinstance(own, int) else set())
    cache = PrefixCache(most_bytes=cache_bytes, ends=ends)
    pace = Pace(lockstep=lockstep, window_s=window_s, patience_s=patience_s)
    engine = Engine(network, version, pace=pace, ends=ends, decode=prompts.decode, cache=cache)
    grammars = Grammars(tokenizer, vocabulary=files.vocabulary, ends=ends)
    return LocalPolicy(files, engine, prompts, grammars, cache, ends)


def _turn(prompt: Sequence[int], ids: Sequence[int]) -> str:
    """Names a turn by what was read and said in it."""
    return hashlib.blake2b(array("q", (*prompt, -1, *ids)).tobytes(), digest_size=6).hexdigest()


@dataclass(frozen=True, slots=True)
class ParsedAnswer:
    """An answer taken apart."""

    content: str
    calls: tuple[ToolRequest, ...]


def parse_answer(text: str, turn: str) -> ParsedAnswer:
    """Take an answer's text apart, with calls as Hermes writes them.

    One malformed call leaves all of it as content: the agent and its parser see what the model wrote. Else
    the text before the first call is the content, without the line's end that the form puts between. `turn`
    goes into the calls' ids, which no other turn of the conversation may have.
    """
    outside, inside = _apart(text)
    calls = [_call(inner.strip(), f"call_{turn}_{number}") for number, inner in enumerate(inside)]
    whole = [call for call in calls if call is not None]
    if not whole or len(whole) < text.count(_OPENS):
        return ParsedAnswer(text, ())
    before, after = outside[0], "".join(outside[1:]).strip()
    content = before.removesuffix("\n") + (f"\n{after}" if after else "")
    return ParsedAnswer(content if content.strip() else "", tuple(whole))


def _apart(text: str) -> tuple[list[str], list[str]]:
    """What stands outside of the marks of calls, and what stands within each pair of them."""
    outside, inside, at = list[str](), list[str](), 0
    while (opens := text.find(_OPENS, at)) >= 0 and (closes := text.find(_CLOSES, opens)) >= 0:
        outside.append(text[at:opens])
        inside.append(text[opens + len(_OPENS) : closes])
        at = closes + len(_CLOSES)
    return [*outside, text[at:]], inside


def _call(text: str, name: str) -> ToolRequest | None:
    try:
        call = read_json(text, max_bytes=_MAX_CALL)
    except NotSerializable:
        return None
    if not isinstance(call, dict) or not isinstance(call.get("name"), str) or not call["name"]:
        return None
    args = call.get("arguments", {})
    if not isinstance(args, dict):
        return None
    return ToolRequest(call["name"], json.dumps(args, ensure_ascii=False), name)
