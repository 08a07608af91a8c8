"""Log-probs of given tokens under the weights that are served, by the same pass that samples."""

from collections.abc import Sequence

import torch

from dreamgym_kit.adapters.models.local_network import Network
from dreamgym_kit.adapters.models.local_rows import Places, Rows
from dreamgym_kit.errors import EndpointError

_PIECE = 512  # tokens of one pass: bounds the logits in memory


def score(network: Network, ids: Sequence[Sequence[int]]) -> list[list[float]]:
    """Natural log-prob of each id after the first, at temperature 1.

    Raises:
        EndpointError: a row is longer than the model's context.
    """
    return [_one(network, row) for row in ids]


def _one(network: Network, ids: Sequence[int]) -> list[float]:
    if len(ids) > network.context:
        raise EndpointError("rejected", f"{len(ids)} tokens; the policy's context is {network.context}")
    rows = Rows(network.shape, 1, len(ids), device=network.device, dtype=network.dtype)
    found: list[float] = []
    for start in range(0, len(ids) - 1, _PIECE):
        end = min(start + _PIECE, len(ids) - 1)
        positions = torch.arange(start, end, device=network.device)[None]
        tokens = torch.tensor([list(ids[start:end])], device=network.device)
        logits = network.all_logits(tokens, Places(positions, end, window=network.window), rows)
        next_ids = torch.tensor([list(ids[start + 1 : end + 1])], device=network.device)
        found += torch.log_softmax(logits, -1).gather(-1, next_ids[..., None])[0, :, 0].tolist()
    return found
