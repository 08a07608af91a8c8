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
from dreamgym_kit.trust.weight_check import attest

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
    _, problem = attest(
        _rows(served.scores, [logprob for _, logprob in served.drawn], now),
        _rows(now.scores if served.scores else [], _of(now, served), now),
        None
        if before is None
        else _rows(before.scores if served.scores else [], _of(before, served), before),
        most=most,
    )
    return problem


def cause(files: ModelFiles) -> str:
    """What usually makes a server answer otherwise than the weights that it said it had loaded."""
    if files.config.get("tie_word_embeddings") and "lm_head.weight" not in files.tensors:
        return (
            "; the model's embeddings are tied, and on a CPU vLLM keeps its old LM head when they change: "
            "train a model with an lm_head of its own, use LoRA ([train] lora_rank), or restart the server "
            "with these weights"
        )
    return "; restart the server with these weights, and look into its log"


def _rows(
    scores: Sequence[Sequence[float]], drawn: Sequence[float], expected: ExpectedScores
) -> list[Sequence[float]]:
    return [*scores, drawn] if expected.after else [*scores]


def _of(expected: ExpectedScores, served: Served) -> list[float]:
    if not expected.after:
        return []
    return [
        row[id_] if id_ < len(row) else float("-inf")
        for row, (id_, _) in zip(expected.after, served.drawn, strict=True)
    ]
