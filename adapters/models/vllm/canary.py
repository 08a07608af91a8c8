"""Canaries: fixed tokens that a server and this process both score, the one over HTTP, the other by itself.

What a server answers to "load these weights" proves nothing: it says 200 and goes on with an old LM head
(tied embeddings on a CPU), with cached prompts of the old weights, or with weights of its own. Two things are
compared on each replica: scores, which are computed anew, and the log-prob of a token drawn after each
canary, which comes from the prefix cache where that has the canary.
"""

import struct
from base64 import b64decode, b64encode
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from dreamgym_kit.adapters.models.vllm.replica import Replica
from dreamgym_kit.deployment.model_files import ModelFiles
from dreamgym_kit.errors import EndpointError
from dreamgym_kit.trust.weight_check import attest

STALE = "stale_weights"
_UNPROVEN = "dreamgym-unproven"  # what weights are called until their canaries have answered
_ROWS, _LENGTH = 4, 160  # ids: longer than the blocks that servers cache by
_STRIDES = (7919, 104_729)  # through the vocabulary, by place and by row; primes


@dataclass(frozen=True, slots=True)
class ExpectedScores:
    """What the weights of a directory give, computed here.

    `scores[i]` are the log-probs of canary i's ids after the first; `after[i]` those of every token after it,
    nothing where it was another server that was asked.
    """

    scores: Sequence[Sequence[float]]
    after: Sequence[Sequence[float]]


@dataclass(frozen=True, slots=True)
class Served:
    """What a replica gave. `drawn[i]` is the token that it drew after canary i, and its log-prob."""

    scores: list[list[float]]
    drawn: list[tuple[int, float]]


def canaries(vocabulary: int, context: int) -> list[list[int]]:
    """Ids from all over the vocabulary, the same for equal models."""
    length = max(2, min(_LENGTH, context - 2))
    return [
        [(_STRIDES[0] * place + _STRIDES[1] * row + 17) % vocabulary for place in range(length)]
        for row in range(_ROWS)
    ]


def compute_expected(folder: Path, rows: Sequence[Sequence[int]]) -> ExpectedScores:
    """Compute it with transformers, in float32 on the CPU. Blocks; the model is let go of at once.

    Raises:
        UserError: the directory holds no whole model.
    """
    import torch

    from dreamgym_kit.adapters.models.folders import load_model

    model = load_model(folder).eval()
    with torch.no_grad():
        logprobs = model(input_ids=torch.tensor(rows), use_cache=False).logits.float().log_softmax(-1)
    ids = torch.tensor(rows)[:, 1:, None]
    return ExpectedScores(logprobs[:, :-1].gather(-1, ids)[..., 0].tolist(), logprobs[:, -1].tolist())


def packed(after: Sequence[Sequence[float]]) -> list[str]:
    """`ExpectedScores.after` for another process: rows of float32, which a large vocabulary makes long."""
    return [b64encode(struct.pack(f"<{len(row)}f", *row)).decode("ascii") for row in after]


def unpacked(rows: Sequence[str]) -> list[Sequence[float]]:
    """What `packed` was given."""
    decoded = [b64decode(row) for row in rows]
    return [struct.unpack(f"<{len(row) // 4}f", row) for row in decoded]


async def served_by(
    replica: Replica, model: str, rows: Sequence[Sequence[int]], *, scored: bool = True
) -> Served:
    """Ask a replica for both, one after the other; only for drawn tokens where not `scored`."""
    scores = [await replica.score(model, row) for row in rows] if scored else []
    drawn = [await replica.next_token(model, row, seed) for seed, row in enumerate(rows)]
    return Served(scores, drawn)


def differs(served: Served, now: ExpectedScores, before: ExpectedScores | None, *, most: float) -> str:
    """How a replica's answers are not those of the weights; "" where they are.

    Args:
        served: by the replica.
        now: by the weights that it must have.
        before: by those that it had; None where they are not known.
        most: nats that one log-prob may be off.
    """

    def row_by_row(expected: ExpectedScores) -> list[Sequence[float]]:
        """What these weights would have answered."""
        drawn = [
            row[id_] if id_ < len(row) else float("-inf")
            for row, (id_, _) in zip(expected.after, served.drawn, strict=bool(expected.after))
        ]
        return [*(expected.scores if served.scores else ()), *([drawn] if expected.after else ())]

    answered = [*served.scores, *([[logprob for _, logprob in served.drawn]] if now.after else ())]
    old = None if before is None else row_by_row(before)
    return attest(answered, row_by_row(now), old, most=most)[1]


def cause(files: ModelFiles) -> str:
    """What usually makes a server answer otherwise than the weights that it said it had loaded."""
    if files.config.get("tie_word_embeddings") and "lm_head.weight" not in files.tensors:
        return (
            "; the model's embeddings are tied, and on a CPU vLLM keeps its old LM head when they change: "
            "train a model with an lm_head of its own, use LoRA ([train] lora_rank), or restart the server "
            "with these weights"
        )
    return "; restart the server with these weights, and look into its log"


@dataclass(frozen=True, slots=True)
class Serving:
    """The weights that answer."""

    name: str  # as the servers are asked for them
    version: str
    folder: Path | None = None  # None: those that the servers were started with
    adapter: Path | None = None
    named: bool = False  # a whole model, under the old name: the servers were told its version


@dataclass(frozen=True, slots=True)
class Proof:
    """What every replica has to answer."""

    rows: Sequence[Sequence[int]]
    expected: ExpectedScores
    most: float
    advice: str


async def bring(replica: Replica, serving: Serving) -> None:
    """Send a replica the weights. One that fails in between stays paused: it answers nobody wrongly.

    What they are called it is told when they are proven (`give_name`): the name is what others go by.
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
    """Raise where a replica's canaries are not those of the weights.

    Where prompts may not be scored and no drawn tokens are known, an adapter's name stands for its weights.
    """
    unknown = f"{replica} does not know '{serving.name}'"  # started anew since: an adapter is gone
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
    """Tell a server that has proven its weights what they are called."""
    if serving.named:
        await replica.name_weights(serving.version)
        await check_name(replica, serving)


async def check_name(replica: Replica, serving: Serving) -> None:
    """Raise where a server that was told what its weights are called does not say so."""
    name = await replica.weights_name() if serving.named else serving.version
    if name is None:
        raise _stale(
            f"{replica} does not say what its weights are called (/weight_info, which vLLM 0.32 has)"
        )
    if name != serving.version:
        raise _stale(f"{replica} says that its weights are '{name}', and they are to be '{serving.version}'")


def _stale(problem: str) -> EndpointError:
    return EndpointError(STALE, problem, retryable=True)
