"""New weights for every replica of a policy, proven on each of them: all, or the policy stops answering.

Requests under way end first, new ones wait. As a LoRA adapter, where the directory brings one and every
server takes them: each version has a name of its own, and the old one is unloaded. Else as a whole model:
paused, read, cached prompts dropped, resumed. Then canaries tell what is served, and a whole model is named.

A replica that is gone is taken out; it is asked again when it serves the present weights, which it is given
if it has others. A replica that is there and has other weights ends it: no mix of versions answers unseen.

Weight canaries: fixed token sequences that both the server and this process score.

A server's reply to "load these weights" proves nothing: it answers 200 and may still use an old LM head (tied
embeddings on a CPU), cached prompts of the old weights, or other weights. Two results are compared on each
replica: scores, which are always recomputed, and the log-prob of a token sampled after each canary, which
comes from the prefix cache if that has the canary.
"""

import asyncio
import secrets
import struct
from base64 import b64decode, b64encode
from collections import Counter
from collections.abc import AsyncIterator, Callable, Coroutine, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

from dreamgym_kit.adapters.models.addresses import EndpointAddress
from dreamgym_kit.adapters.models.vllm.replica import Features, Replica, by_adapter, detect
from dreamgym_kit.deployment.model_files import ADAPTER, ModelFiles, check_replaces, read_files
from dreamgym_kit.errors import EndpointError, UserError
from dreamgym_kit.trust.weight_check import attest

STALE = "stale_weights"
_UNPROVEN = "dreamgym-unproven"  # name of weights whose canaries have not matched yet
_ROWS, _LENGTH = 4, 160  # ids: longer than the blocks that servers cache by
_STRIDES = (7919, 104_729)  # steps through the vocabulary, by position and by row; primes


@dataclass(frozen=True, slots=True)
class ExpectedScores:
    """Log-probs that a directory's weights give, computed in this process.

    `scores[i]` are the log-probs of canary i's ids after the first; `after[i]` those of every token after it,
    empty where another server computed them.
    """

    scores: Sequence[Sequence[float]]
    after: Sequence[Sequence[float]]


@dataclass(frozen=True, slots=True)
class Served:
    """A replica's answers. `drawn[i]` is the token sampled after canary i, and its log-prob."""

    scores: list[list[float]]
    drawn: list[tuple[int, float]]


def canaries(vocabulary: int, context: int) -> list[list[int]]:
    """Give token ids from the whole vocabulary; equal models get equal ids."""
    length = max(2, min(_LENGTH, context - 2))
    return [
        [(_STRIDES[0] * place + _STRIDES[1] * row + 17) % vocabulary for place in range(length)]
        for row in range(_ROWS)
    ]


def compute_expected(folder: Path, rows: Sequence[Sequence[int]]) -> ExpectedScores:
    """Compute them with transformers, in float32 on the CPU. Blocks; frees the model afterwards.

    Raises:
        UserError: the directory does not hold a complete model.
    """
    import torch

    from dreamgym_kit.adapters.models.folders import load_model

    model = load_model(folder).eval()
    with torch.no_grad():
        logprobs = model(input_ids=torch.tensor(rows), use_cache=False).logits.float().log_softmax(-1)
    ids = torch.tensor(rows)[:, 1:, None]
    return ExpectedScores(logprobs[:, :-1].gather(-1, ids)[..., 0].tolist(), logprobs[:, -1].tolist())


def packed(after: Sequence[Sequence[float]]) -> list[str]:
    """`ExpectedScores.after` for another process: float32 rows in base64, as they can be long."""
    return [b64encode(struct.pack(f"<{len(row)}f", *row)).decode("ascii") for row in after]


def unpacked(rows: Sequence[str]) -> list[Sequence[float]]:
    """Reverse `packed`."""
    decoded = [b64decode(row) for row in rows]
    return [struct.unpack(f"<{len(row) // 4}f", row) for row in decoded]


async def served_by(
    replica: Replica, model: str, rows: Sequence[Sequence[int]], *, scored: bool = True
) -> Served:
    """Ask a replica for scores, then for sampled tokens; without `scored`, for sampled tokens only."""
    scores = [await replica.score(model, row) for row in rows] if scored else []
    drawn = [await replica.next_token(model, row, seed) for seed, row in enumerate(rows)]
    return Served(scores, drawn)


def differs(served: Served, now: ExpectedScores, before: ExpectedScores | None, *, most: float) -> str:
    """Describe how a replica's answers differ from the weights' own; "" if they match.

    Args:
        served: the replica's answers.
        now: expected with the weights that it must have.
        before: expected with its previous weights; None if unknown.
        most: allowed difference of one log-prob, in nats.
    """

    def row_by_row(expected: ExpectedScores) -> list[Sequence[float]]:
        """Give the answers expected with these weights."""
        drawn = [
            row[id_] if id_ < len(row) else float("-inf")
            for row, (id_, _) in zip(expected.after, served.drawn, strict=bool(expected.after))
        ]
        return [*(expected.scores if served.scores else ()), *([drawn] if expected.after else ())]

    answered = [*served.scores, *([[logprob for _, logprob in served.drawn]] if now.after else ())]
    old = None if before is None else row_by_row(before)
    return attest(answered, row_by_row(now), old, most=most)[1]


def cause(files: ModelFiles) -> str:
    """Name the usual cause when a server's answers do not match the weights that it loaded."""
    if files.config.get("tie_word_embeddings") and "lm_head.weight" not in files.tensors:
        return (
            "; the model's embeddings are tied, and on a CPU vLLM keeps its old LM head when they change: "
            "train a model with a separate lm_head, use LoRA ([train] lora_rank), or restart the server "
            "with these weights"
        )
    return "; restart the server with these weights and check its log"


@dataclass(frozen=True, slots=True)
class Serving:
    """The weights that the servers must use."""

    name: str  # the model name in requests
    version: str
    folder: Path | None = None  # None: the weights that the servers started with
    adapter: Path | None = None
    named: bool = False  # a full model under the old name: the servers are sent its version


@dataclass(frozen=True, slots=True)
class Proof:
    """The answers required of every replica."""

    rows: Sequence[Sequence[int]]
    expected: ExpectedScores
    most: float
    advice: str


async def bring(replica: Replica, serving: Serving) -> None:
    """Send a replica the weights. If that fails midway, the replica stays paused and gives no wrong answers.

    Their name is sent once they are checked (`give_name`), since other clients rely on it.
    """
    if serving.adapter is not None:
        await replica.load_adapter(serving.name, serving.adapter)
    elif serving.folder is not None:
        await replica.pause()
        await replica.name_weights(_UNPROVEN)
        await replica.reload(serving.folder)
        await replica.reset_cache()
        await replica.resume()


async def check(
    replica: Replica,
    serving: Serving,
    proof: Proof,
    *,
    before: ExpectedScores | None = None,
    scored: bool = True,
) -> None:
    """Raise if a replica's canaries do not match the weights.

    If prompts cannot be scored and no sampled tokens are known, only the adapter's name is checked.
    """
    unknown = f"{replica} does not know '{serving.name}'"  # restarted since: adapters are lost
    if not scored and not proof.expected.after:
        if serving.name not in {model.name for model in await replica.models()}:
            raise _stale(unknown)
        return
    try:
        served = await served_by(replica, serving.name, proof.rows, scored=scored)
    except EndpointError as error:
        if error.status == 404:
            raise _stale(unknown) from None
        raise
    problem = differs(served, proof.expected, before, most=proof.most)
    if problem:
        raise _stale(f"{replica}: {problem}{proof.advice}")


async def give_name(replica: Replica, serving: Serving) -> None:
    """Send the name of the weights to a server that passed the check."""
    if serving.named:
        await replica.name_weights(serving.version)
        await check_name(replica, serving)


async def check_name(replica: Replica, serving: Serving) -> None:
    """Raise if a server does not report the name that it was sent for its weights."""
    name = await replica.weights_name() if serving.named else serving.version
    if name is None:
        raise _stale(f"{replica} does not report the name of its weights (/weight_info; needs vLLM 0.32)")
    if name != serving.version:
        raise _stale(f"{replica} reports weights '{name}', expected '{serving.version}'")


def _stale(problem: str) -> EndpointError:
    return EndpointError(STALE, problem, retryable=True)


_ANY_VOCABULARY = 200  # ids that every tokenizer has
_ALIKE = 0.2  # nats between replicas of one model before any weights were loaded: 16 bits, other kernels
_MIN_CONTEXT = 64
_AT_ONCE = 16  # scores under way


class Turnstile:
    """Lets many requests through together, or one change alone; to be used on one event loop."""

    def __init__(self) -> None:
        self._changed = asyncio.Condition()
        self._under_way = 0
        self._shut = False

    @asynccontextmanager
    async def request(self) -> AsyncIterator[None]:
        """In the block, one of many requests is under way; it waits while somebody is alone."""
        async with self._changed:
            await self._changed.wait_for(lambda: not self._shut)
            self._under_way += 1
        try:
            yield
        finally:
            async with self._changed:
                self._under_way -= 1
                self._changed.notify_all()

    @asynccontextmanager
    async def alone(self) -> AsyncIterator[None]:
        """Keep new requests out, wait for those under way, and have the block to itself."""
        async with self._changed:
            await self._changed.wait_for(lambda: not self._shut)
            self._shut = True
        try:
            async with self._changed:
                await self._changed.wait_for(lambda: not self._under_way)
            yield
        finally:
            async with self._changed:
                self._shut = False
                self._changed.notify_all()


class ServedWeights:
    """What a policy's replicas serve. Everything that waits is to be run inside of the transport's `run`.

    `most`: nats that a canary's log-prob may be off. `doubt`: is told of a replica that was lost, and must
    prove itself before it is asked again; None where a router chooses, so that none can be left out.
    """

    def __init__(
        self,
        replicas: Sequence[Replica],
        model: str,
        *,
        most: float,
        doubt: Callable[[EndpointAddress], None] | None,
    ) -> None:
        self.model = model  # the name that the servers were started with
        self.features: tuple[Features, ...] = ()  # what the servers can do; empty before `look`
        self._replicas, self._most, self._doubt = tuple(replicas), most, doubt
        self._by_address = {replica.address: replica for replica in replicas}
        self._serving = Serving(model, model)
        self._turnstile = Turnstile()
        self._brought: Counter[EndpointAddress] = Counter()
        self._proof: Proof | None = None
        self._loaded: set[str] = set()  # adapters
        self._broken = ""
        self._follows_lora = False

    @property
    def version(self) -> str:
        """Names the weights that answer from now on."""
        return self._serving.version

    @property
    def ports(self) -> set[int]:
        """Those that the servers listen on."""
        return {replica.address.port for replica in self._replicas}

    async def look(self) -> tuple[Features, ...]:
        """Ask every server what it can do.

        Raises:
            EndpointError: one is not there, or lets nobody in.
        """
        features = await asyncio.gather(*[detect(replica, self.model) for replica in self._replicas])
        self.features = tuple(features)
        return self.features

    async def agree(self) -> None:
        """Prove that all replicas were started with the same weights, and remember what those answer.

        Raises:
            UserError: one answers otherwise than the first.
        """
        if self._serving.folder is not None:  # which proves more
            return
        rows = canaries(_ANY_VOCABULARY, self._context())

        async def score_rows(replica: Replica) -> list[list[float]]:
            return [await replica.score(self._serving.name, row) for row in rows]

        async with self._turnstile.alone():
            scores = await asyncio.gather(*map(score_rows, self._replicas))
        for replica, score in zip(self._replicas[1:], scores[1:], strict=True):
            gap, problem = attest(score, scores[0], None, most=_ALIKE)
            if problem:
                raise UserError(
                    f"{replica} and {self._replicas[0]} serve '{self.model}' with different weights (their "
                    f"log-probs of the same tokens are {gap:.3g} nats apart); start both with the same model."
                )
        self._proof = Proof(rows, ExpectedScores(scores[0], ()), _ALIKE, "; restart it with the same weights")

    @asynccontextmanager
    async def in_use(self, *, scoring: bool = False) -> AsyncIterator[Serving]:
        """In the block, the weights that are given answer.

        `scoring`: log-probs of prompts are asked for. A server with LoRA on is then asked for nothing else at
        the same time: on a CPU, vLLM 0.32 dies of a batch that has such a request and another in it.

        Raises:
            EndpointError: the last change of weights failed.
        """
        lone = scoring and self._lora
        async with self._turnstile.alone() if lone else self._turnstile.request():
            if self._broken:
                raise EndpointError(STALE, self._broken)
            yield self._serving

    @property
    def scores_at_once(self) -> int:
        """How many prompts may be scored at the same time, see `in_use`."""
        return 1 if self._lora else _AT_ONCE

    @property
    def _lora(self) -> bool:
        return self._follows_lora or any(server.lora for server in self.features)

    def spec(self) -> dict[str, Any]:
        """What another process has to know to ask for the present weights, as JSON; see `follow`."""
        serving = self._serving
        proof = self._proof or Proof((), ExpectedScores((), ()), self._most, "")
        # Where nothing may be scored (see `in_use`) and no adapter's name tells, drawn tokens have to.
        drawn = self._lora and serving.adapter is None
        return {
            "name": serving.name,
            "version": serving.version,
            "adapter": str(serving.adapter) if serving.adapter is not None else None,
            "lora": self._lora,
            "named": serving.named,
            "rows": [list(row) for row in proof.rows],
            "scores": [list(row) for row in proof.expected.scores],
            "after": packed(proof.expected.after) if drawn else [],
            "most": proof.most,
        }

    async def follow(self, spec: Mapping[str, Any]) -> None:
        """Ask for the weights that another process brought to the servers; nothing is brought from here.

        Every replica proves that it serves them before it is asked: one that was away when they came may be
        back with others. Until the other process brings it some, it is left out. `spec`: what `spec` gave.
        """
        adapter = Path(spec["adapter"]) if spec["adapter"] is not None else None
        expected = ExpectedScores(spec["scores"], unpacked(spec["after"]))
        async with self._turnstile.alone():
            self._serving = Serving(spec["name"], spec["version"], adapter=adapter, named=spec["named"])
            self._proof = Proof(spec["rows"], expected, spec["most"], "; its own process has to bring them")
            self._follows_lora, self._broken = spec["lora"], ""
        if self._doubt is not None:
            for replica in self._replicas:
                self._doubt(replica.address)

    async def load(self, weights: Path, version: str) -> None:
        """Bring a model directory to every replica, and prove that it arrived.

        Raises:
            UserError: the directory cannot be served in place of the present weights, which stay.
            EndpointError: it did not arrive everywhere; nothing answers until a later load succeeds, except
                that of adapters the old one stays.
        """
        if not self.features:
            await self.look()
        files = await asyncio.to_thread(self._read, weights)
        serving = self._planned(files.folder, version)
        rows = canaries(files.vocabulary, self._context())
        expected = await asyncio.to_thread(compute_expected, files.folder, rows)
        proof = Proof(rows, expected, self._most, cause(files))
        async with self._turnstile.alone():
            if serving.adapter is not None:
                await self._add(serving, proof)
            else:
                await self._replace(serving, proof)
            await self._unload()

    async def recognise(self, address: EndpointAddress) -> None:
        """Whether a replica still serves the present weights, by the name that it was told.

        An adapter needs none: its name is in each answer.

        Raises:
            EndpointError: it serves something else, or does not say.
        """
        replica = self._by_address.get(address)
        if replica is not None:
            await check_name(replica, self._serving)

    def brought(self, address: EndpointAddress) -> int:
        """How often `prove` has begun to bring a replica its weights."""
        return self._brought[address]

    def brings(self, address: EndpointAddress) -> bool:
        """Whether a replica that does not know the model's name can be brought it.

        An adapter is gone when its server was started anew.
        """
        return self._serving.adapter is not None and address in self._by_address

    async def prove(self, address: EndpointAddress) -> None:
        """Let a replica that was lost prove that it serves the present weights; give it those if it does not.

        To be asked once at a time for each address, as `ReplicaVerifier` does.

        Raises:
            EndpointError: it is not there, or cannot be brought to serve them.
        """
        replica, serving, proof = self._by_address.get(address), self._serving, self._proof
        if replica is None or proof is None:  # behind a router it is not known which server answered
            return
        scored = not self._lora  # see `in_use`
        try:
            # Canaries of 16 bits cannot tell one step from the next; the name that it was given can.
            await check_name(replica, serving)
            await check(replica, serving, proof, scored=scored)
        except EndpointError as error:
            if error.kind != STALE or serving.folder is None:
                raise
        else:
            return
        self._brought[address] += 1
        await bring(replica, serving)
        await check(replica, serving, proof, scored=scored)
        await give_name(replica, serving)

    def _planned(self, folder: Path, version: str) -> Serving:
        """As what the weights are to be brought: what every server can take."""
        adapter = folder / ADAPTER
        brought = (adapter / "adapter_config.json").is_file()
        if by_adapter(self.features, brought=brought, source=str(folder)):
            name = f"{self.model}.{version}.{secrets.token_hex(3)}"  # never one that was used before
            return Serving(name, version, folder, adapter)
        return Serving(self.model, version, folder, named=True)

    async def _add(self, serving: Serving, proof: Proof) -> None:
        """Another name; the old one goes on where it does not come to all."""
        before = self._expected_before(proof)
        self._loaded.add(serving.name)
        failed = await self._everywhere(
            lambda replica: bring(replica, serving),
            lambda replica: check(replica, serving, proof, before=before),
        )
        if self._must_stop(failed):
            await self._unload()
            raise _not_everywhere(serving, failed, "the version before goes on")
        self._serving, self._proof, self._broken = serving, proof, ""

    async def _replace(self, serving: Serving, proof: Proof) -> None:
        """Other weights under the same name, while nothing of ours is under way."""
        before, failed = self._expected_before(proof), {}
        if not self._broken:  # else some may be paused
            # cached under the old weights, so that a cache that is not dropped shows
            failed = await self._everywhere(lambda replica: served_by(replica, serving.name, proof.rows))
        self._broken = f"the change to {serving.version} was broken off; what the servers hold is not known"
        failed = await self._everywhere(
            lambda replica: bring(replica, serving),
            lambda replica: check(replica, serving, proof, before=before),
            lambda replica: give_name(replica, serving),
            failed=failed,
        )
        if self._must_stop(failed):
            error = _not_everywhere(serving, failed, "nothing is answered until a load succeeds")
            self._broken = str(error)
            raise error
        self._serving, self._proof, self._broken = serving, proof, ""

    async def _everywhere(
        self,
        *steps: Callable[[Replica], Coroutine[Any, Any, object]],
        failed: Mapping[Replica, EndpointError] | None = None,
    ) -> dict[Replica, EndpointError]:
        """Take each step on all replicas at once, without those that failed before; which failed, and how."""
        failures = dict(failed or {})
        for step in steps:
            replicas = [replica for replica in self._replicas if replica not in failures]
            outcomes = await asyncio.gather(*map(step, replicas), return_exceptions=True)
            for replica, outcome in zip(replicas, outcomes, strict=True):
                if isinstance(outcome, EndpointError):
                    failures[replica] = outcome
                elif isinstance(outcome, BaseException):
                    raise outcome
        return failures

    def _must_stop(self, failed: Mapping[Replica, EndpointError]) -> bool:
        """Leave out replicas that are gone; True where what is left cannot go on."""
        gone = [replica for replica, error in failed.items() if error.kind == "connection"]
        if self._doubt is None or len(gone) < len(failed) or len(gone) == len(self._replicas):
            return bool(failed)
        for replica in gone:
            self._doubt(replica.address)
        return False

    async def _unload(self) -> None:
        """Unload adapters that answer nobody any more; one that cannot be now is tried again later."""
        for name in sorted(self._loaded - {self._serving.name}):
            failed = await self._everywhere(partial(Replica.unload_adapter, name=name))
            if all(error.kind == "connection" for error in failed.values()):
                self._loaded.discard(name)

    def _expected_before(self, proof: Proof) -> ExpectedScores | None:
        """Return the scores of the same canaries by the weights that are served now."""
        proof_before = self._proof if self._serving.folder is not None else None
        return proof_before.expected if proof_before is not None and proof_before.rows == proof.rows else None

    def _context(self) -> int:
        sizes = [model.context for item in self.features for model in item.models.values() if model.context]
        return min(sizes, default=_MIN_CONTEXT)

    def _read(self, weights: Path) -> ModelFiles:
        """Look at the directory before a server does: one that is not whole kills it at the next request."""
        files = read_files(weights.absolute())
        _let_read(files)
        served = self._root()
        if served is not None:
            check_replaces(files, read_files(served))
        return files

    def _root(self) -> Path | None:
        """Where the servers' own model lies, if that is on this machine, too."""
        for server in self.features:
            served = server.models.get(self.model)
            if served is not None and served.root and (Path(served.root) / "config.json").is_file():
                return Path(served.root)
        return None


def _let_read(files: ModelFiles) -> None:
    """Who may read the directory may read its weights: save_pretrained writes them for the owner alone."""
    shared = files.folder.stat().st_mode & 0o044
    for shard in files.shards:
        mode = shard.stat().st_mode & 0o777
        if mode | shared != mode:
            shard.chmod(mode | shared)


def _not_everywhere(serving: Serving, failed: Mapping[Replica, EndpointError], then: str) -> EndpointError:
    reasons = " ".join(str(error) for error in failed.values())
    return EndpointError(STALE, f"{serving.version} is not served everywhere ({then}): {reasons}")
