"""New weights for every replica of a policy, proven on each of them: all, or the policy stops answering.

Requests under way end first, new ones wait. As a LoRA adapter, where the directory brings one and every
server takes them: each version has a name of its own, and the old one is unloaded. Else as a whole model:
paused, read, cached prompts dropped, resumed. Then canaries tell what is served, and a whole model is named.

A replica that is gone is taken out; it is asked again when it serves the present weights, which it is given
if it has others. A replica that is there and has other weights ends it: no mix of versions answers unseen.
"""

import asyncio
import secrets
from collections import Counter
from collections.abc import AsyncIterator, Callable, Collection, Coroutine, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

from dreamgym_kit.adapters.models.addresses import EndpointAddress
from dreamgym_kit.adapters.models.vllm.canary import (
    ExpectedScores,
    canaries,
    cause,
    compute_expected,
    differs,
    packed,
    served_by,
    unpacked,
)
from dreamgym_kit.adapters.models.vllm.features import Features, by_adapter, detect
from dreamgym_kit.adapters.models.vllm.replica import Replica, Turnstile
from dreamgym_kit.deployment.model_files import (
    ADAPTER,
    ModelFiles,
    read_files,
    same_template,
    same_tokenizer,
)
from dreamgym_kit.errors import EndpointError, UserError

_Work = Callable[[Replica], Coroutine[Any, Any, object]]

_ANY_VOCABULARY = 200  # ids that every tokenizer has
_ALIKE = 0.2  # nats between replicas of one model before any weights were loaded: 16 bits, other kernels
_MIN_CONTEXT = 64
_AT_ONCE = 16  # scores under way
_UNPROVEN = "dreamgym-unproven"  # what weights are called until their canaries have answered


@dataclass(frozen=True, slots=True)
class Serving:
    """The weights that answer."""

    name: str  # as the servers are asked for them
    version: str
    folder: Path | None = None  # None: those that the servers were started with
    adapter: Path | None = None
    named: bool = False  # a whole model, under the old name: the servers were told its version


@dataclass(frozen=True, slots=True)
class _Proof:
    """What every replica has to answer."""

    rows: Sequence[Sequence[int]]
    expected: ExpectedScores
    most: float
    advice: str


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
        self._replicas, self._model, self._most = tuple(replicas), model, most
        self._doubt = doubt
        self._serving = Serving(model, model)
        self._turnstile = Turnstile()
        self._brought: Counter[EndpointAddress] = Counter()
        self._features: dict[EndpointAddress, Features] = {}
        self._proof: _Proof | None = None
        self._loaded: set[str] = set()  # adapters
        self._broken = ""
        self._follows_lora = False

    @property
    def version(self) -> str:
        """Names the weights that answer from now on."""
        return self._serving.version

    @property
    def model(self) -> str:
        """The name that the servers were started with."""
        return self._model

    @property
    def features(self) -> tuple[Features, ...]:
        """What the servers can do, of those that were looked at."""
        return tuple(self._features.values())

    @property
    def ports(self) -> set[int]:
        """Those that the servers listen on."""
        return {replica.address.port for replica in self._replicas}

    async def look(self) -> tuple[Features, ...]:
        """Ask every server what it can do.

        Raises:
            EndpointError: one is not there, or lets nobody in.
        """
        features = await asyncio.gather(*[detect(replica, self._model) for replica in self._replicas])
        self._features = {server.address: able for server, able in zip(self._replicas, features, strict=True)}
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
            gap = max(
                abs(a - b) for pair in zip(score, scores[0], strict=True) for a, b in zip(*pair, strict=True)
            )
            if not gap <= _ALIKE:
                raise UserError(
                    f"{replica} and {self._replicas[0]} serve '{self._model}' with different weights (their "
                    f"log-probs of the same tokens are {gap:.3g} nats apart); start both with the same model."
                )
        self._proof = _Proof(
            rows, ExpectedScores(scores[0], ()), _ALIKE, "; restart it with the same weights"
        )

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
                raise EndpointError("stale_weights", self._broken)
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
        proof = self._proof or _Proof((), ExpectedScores((), ()), self._most, "")
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
            self._proof = _Proof(spec["rows"], expected, spec["most"], "; its own process has to bring them")
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
        if not self._features:
            await self.look()
        folder, files = await asyncio.to_thread(self._checked, weights)
        serving = self._planned(folder, version)
        rows = canaries(files.vocabulary, self._context())
        expected = await asyncio.to_thread(compute_expected, folder, rows)
        proof = _Proof(rows, expected, self._most, cause(files))
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
        replica = self._of(address)
        if replica is not None and self._serving.named:
            await _says_its_name(replica, self._serving)

    def brought(self, address: EndpointAddress) -> int:
        """How often `prove` has begun to bring a replica its weights."""
        return self._brought[address]

    def brings(self, address: EndpointAddress) -> bool:
        """Whether a replica that does not know the model's name can be brought it.

        An adapter is gone when its server was started anew.
        """
        return self._serving.adapter is not None and self._of(address) is not None

    async def prove(self, address: EndpointAddress) -> None:
        """Let a replica that was lost prove that it serves the present weights; give it those if it does not.

        To be asked once at a time for each address, as `Trusted` does.

        Raises:
            EndpointError: it is not there, or cannot be brought to serve them.
        """
        replica, serving, proof = self._of(address), self._serving, self._proof
        if replica is None or proof is None:
            return
        wrong = await self._other(replica, serving, proof)
        if wrong and serving.folder is not None:
            self._brought[address] += 1
            await self._given(replica, serving)
            wrong = await self._differs(replica, serving, proof)
            if not wrong:
                await self._named(replica, serving)
        if wrong:
            raise EndpointError("stale_weights", wrong, retryable=True)

    def _of(self, address: EndpointAddress) -> Replica | None:
        """None for a router: who answered there is not known."""
        return next((replica for replica in self._replicas if replica.address == address), None)

    async def _other(self, replica: Replica, serving: Serving, proof: _Proof) -> str:
        """How what a replica serves is not `serving`, as far as can be told beside other requests."""
        # Canaries of 16 bits cannot tell one step from the next; the name that it was given can.
        return await _named_otherwise(replica, serving) or await self._differs(replica, serving, proof)

    async def _differs(self, replica: Replica, serving: Serving, proof: _Proof) -> str:
        """`_other`, whatever the replica calls them."""
        scored = not self._lora  # see `in_use`
        if scored or proof.expected.after:
            return await self._wrong(replica, serving, proof, scored=scored)
        return await _lacks(replica, serving)

    def _planned(self, folder: Path, version: str) -> Serving:
        """As what the weights are to be brought: what every server can take."""
        adapter = folder / ADAPTER
        brought = (adapter / "adapter_config.json").is_file()
        if by_adapter(self.features, brought=brought, source=str(folder)):
            name = f"{self._model}.{version}.{secrets.token_hex(3)}"  # never one that was used before
            return Serving(name, version, folder, adapter)
        return Serving(self._model, version, folder, named=True)

    async def _add(self, serving: Serving, proof: _Proof) -> None:
        """Another name; the old one goes on where it does not come to all."""
        present = self._before(proof)
        self._loaded.add(serving.name)
        failed = await self._everywhere(lambda replica: self._given(replica, serving))
        failed |= await self._everywhere(
            lambda replica: self._shown(replica, serving, proof, present), but=failed.keys()
        )
        if self._settled(failed):
            await self._unload()
            raise _not_everywhere(serving, failed, "the version before goes on")
        self._serving, self._proof, self._broken = serving, proof, ""

    async def _replace(self, serving: Serving, proof: _Proof) -> None:
        """Other weights under the same name, while nothing of ours is under way."""
        present, failed = self._before(proof), {}
        if not self._broken:  # else some may be paused
            # cached under the old weights, so that a cache that is not dropped shows
            failed = await self._everywhere(lambda replica: served_by(replica, serving.name, proof.rows))
        self._broken = f"the change to {serving.version} was broken off; what the servers hold is not known"
        for step in (
            lambda replica: self._given(replica, serving),
            lambda replica: self._shown(replica, serving, proof, present),
            lambda replica: self._named(replica, serving),
        ):
            failed |= await self._everywhere(step, but=failed.keys())
        if self._settled(failed):
            self._broken = str(_not_everywhere(serving, failed, "nothing is answered until a load succeeds"))
            raise EndpointError("stale_weights", self._broken)
        self._serving, self._proof, self._broken = serving, proof, ""

    async def _given(self, replica: Replica, serving: Serving) -> None:
        """Send a replica the weights. One that fails in between stays paused: it answers nobody wrongly.

        What they are called it is told when they are proven (`_named`): the name is what others go by.
        """
        if serving.adapter is not None:
            await replica.load_adapter(serving.name, serving.adapter)
        elif serving.folder is not None:
            await replica.pause()
            await replica.name_weights(_UNPROVEN)
            await replica.reload(serving.folder)
            await replica.reset_cache()
            await replica.resume()

    async def _named(self, replica: Replica, serving: Serving) -> None:
        if serving.named:
            await replica.name_weights(serving.version)
            await _says_its_name(replica, serving)

    async def _shown(
        self, replica: Replica, serving: Serving, proof: _Proof, before: ExpectedScores | None
    ) -> None:
        wrong = await self._wrong(replica, serving, proof, before)
        if wrong:
            raise EndpointError("stale_weights", wrong)

    async def _wrong(
        self,
        replica: Replica,
        serving: Serving,
        proof: _Proof,
        before: ExpectedScores | None = None,
        *,
        scored: bool = True,
    ) -> str:
        """How a replica's canaries are not those of the weights; "" where they are."""
        try:
            served = await served_by(replica, serving.name, proof.rows, scored=scored)
        except EndpointError as error:
            if error.status != 404:
                raise
            return _unknown(replica, serving)
        text = differs(served, proof.expected, before, most=proof.most)
        return f"{replica}: {text}{proof.advice}" if text else ""

    async def _everywhere(
        self, work: _Work, *, but: Collection[Replica] = ()
    ) -> dict[Replica, EndpointError]:
        """Do it on every replica at once; who failed, and how."""
        replicas = [replica for replica in self._replicas if replica not in but]
        done = await asyncio.gather(*map(work, replicas), return_exceptions=True)
        failed: dict[Replica, EndpointError] = {}
        for replica, outcome in zip(replicas, done, strict=True):
            if isinstance(outcome, EndpointError):
                failed[replica] = outcome
            elif isinstance(outcome, BaseException):
                raise outcome
        return failed

    def _settled(self, failed: dict[Replica, EndpointError]) -> bool:
        """Take out who is gone; True where what is left cannot go on."""
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

    def _before(self, proof: _Proof) -> ExpectedScores | None:
        """What the weights that are served now answer to the same canaries."""
        known = self._proof if self._serving.folder is not None else None
        return known.expected if known is not None and known.rows == proof.rows else None

    def _context(self) -> int:
        sizes = [model.context for item in self.features for model in item.models.values() if model.context]
        return min(sizes, default=_MIN_CONTEXT)

    def _checked(self, weights: Path) -> tuple[Path, ModelFiles]:
        """Look at the directory before a server does: one that is not whole kills it at the next request."""
        folder = weights.absolute()
        files = read_files(folder)
        _let_read(files)
        served = self._root()
        if served is None:
            return folder, files
        old = read_files(served)
        if not same_tokenizer(served, folder):
            raise UserError(f"{folder}: not the tokenizer of {served}, which the servers were started with.")
        if not same_template(served, folder):
            raise UserError(f"{folder}: not the chat template of {served}, which the servers go on with.")
        both = files.tensors.keys() & old.tensors.keys()
        alike = [name for name in both if files.tensors[name] == old.tensors[name]]
        if files.kind != old.kind or not both or len(alike) < len(both):
            raise UserError(f"{folder}: another architecture than {served}, which the servers run.")
        return folder, files

    def _root(self) -> Path | None:
        """Where the servers' own model lies, if that is on this machine, too."""
        for server in self.features:
            served = server.models.get(self._model)
            if served is not None and served.root and (Path(served.root) / "config.json").is_file():
                return Path(served.root)
        return None


async def _named_otherwise(replica: Replica, serving: Serving) -> str:
    """How a server that was told what its weights are called does not say so; "" where it does."""
    name = await replica.weights_name() if serving.named else serving.version
    if name == serving.version:
        return ""
    if name is None:
        return f"{replica} does not say what its weights are called (/weight_info, which vLLM 0.32 has)"
    return f"{replica} says that its weights are '{name}', and they are to be '{serving.version}'"


async def _says_its_name(replica: Replica, serving: Serving) -> None:
    wrong = await _named_otherwise(replica, serving)
    if wrong:
        raise EndpointError("stale_weights", wrong, retryable=True)


async def _lacks(replica: Replica, serving: Serving) -> str:
    """What can be found out where nothing may be scored; an adapter's name stands for its weights."""
    names = {model.name for model in await replica.models()}
    return "" if serving.name in names else _unknown(replica, serving)


def _unknown(replica: Replica, serving: Serving) -> str:
    return f"{replica} does not know '{serving.name}'"  # started anew since: an adapter is gone


def _let_read(files: ModelFiles) -> None:
    """Who may read the directory may read its weights: save_pretrained writes them for the owner alone."""
    shared = files.folder.stat().st_mode & 0o044
    for shard in files.shards:
        mode = shard.stat().st_mode & 0o777
        if mode | shared != mode:
            shard.chmod(mode | shared)


def _not_everywhere(serving: Serving, failed: dict[Replica, EndpointError], then: str) -> EndpointError:
    reasons = " ".join(str(error) for error in failed.values())
    return EndpointError("stale_weights", f"{serving.version} is not served everywhere ({then}): {reasons}")
