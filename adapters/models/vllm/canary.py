"""Weight canaries: fixed token sequences that both the server and this process score.

A server's reply to "load these weights" proves nothing: it answers 200 and may still use an old LM head (tied
embeddings on a CPU), cached prompts of the old weights, or other weights. Two results are compared on each
replica: scores, which are always recomputed, and the log-prob of a token sampled after each canary, which
comes from the prefix cache if that has the canary.
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
