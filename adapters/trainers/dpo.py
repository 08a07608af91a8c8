"""DPO (arXiv 2305.18290) on pairs of siblings, by the token ids that were sampled.

TRL's `DPOTrainer` wants prompt and answers as text, or one row a side, and counts a tool's answers as the
policy's own words. Here a side is an episode: all of its samples (forks), its sampled tokens only. The
reference are the weights that training began with. Imported only where TRL is there.
"""

from collections.abc import Mapping, Sequence
from typing import Any

import torch

from dreamgym_kit.adapters.trainers.grpo import KitGrpo
from dreamgym_kit.adapters.trainers.rows import Piece, pieces_of_pairs
from dreamgym_kit.turns import Sample


class KitDpo(KitGrpo):
    """Learns by `-log sigmoid(beta * (log-ratio of the better episode - that of the worse one))`.

    A log-ratio is the sum over an episode's sampled tokens of log pi - log pi_start. Every pair weighs the
    same.
    """

    def _cut(self, samples: Sequence[Sample]) -> list[Piece]:
        return pieces_of_pairs(
            samples, self._options.micro_batches, rank=self.ranks.rank, ranks=self.ranks.number
        )

    def _prepare_piece(self, piece: Piece, tensors: dict[str, Any], samples: Sequence[Sample]) -> None:
        super()._prepare_piece(piece, tensors, samples)
        tensors["kit_sides"] = tensors["advantages"]
        tensors["advantages"] = torch.zeros_like(tensors["kit_sides"])  # none are clipped
        names = list(dict.fromkeys(row.pair for row in piece)) or [""]
        numbers = {name: number for number, name in enumerate(names)}
        places = [numbers[row.pair] for row in piece] or [0]
        tensors["kit_pairs"] = torch.tensor(places, device=self.accelerator.device)
        tensors["kit_pairs_here"] = len(names) if piece else 0
        tensors["kit_pairs_in_all"] = len({row.pair for row in samples})

    def _objective(self, model: Any, inputs: Mapping[str, Any]) -> Any:
        logps = self._logps(model, inputs)
        moved = ((logps - inputs["ref_per_token_logps"]) * inputs["sampled"]).sum(-1)
        margins = torch.zeros(max(1, inputs["kit_pairs_here"]), dtype=moved.dtype, device=moved.device)
        margins = self.beta * margins.index_add(0, inputs["kit_pairs"], moved * inputs["kit_sides"])
        here = torch.arange(len(margins), device=margins.device) < inputs["kit_pairs_here"]
        losses = -torch.nn.functional.logsigmoid(margins) * here
        whole = max(1, inputs["kit_pairs_in_all"])
        if self.noted is not None:
            part = 1 / (whole * self._options.minibatches)
            told = margins.detach()[here]
            self.noted.tell("margin", float(told.sum()) * part)
            self.noted.tell("preferred", float((told > 0).sum()) * part)
        return losses.sum() * self.ranks.number / whole
