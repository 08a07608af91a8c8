"""SFT on successes: episodes that went well are made likelier (rejection sampling, RAFT: arXiv 2304.06767).

Batches hold successes only, each weighing the same; no ratio, no clip, no advantage. Imported only where TRL
is there.
"""

from collections.abc import Mapping
from typing import Any

from dreamgym_kit.adapters.trainers.grpo import KitGrpo


class KitSft(KitGrpo):
    """Learns by the mean over episodes of the mean negative log-prob of their sampled tokens."""

    def _objective(self, model: Any, inputs: Mapping[str, Any]) -> Any:
        logps = self._logps(model, inputs)
        return -(logps * inputs["tool_mask"]).sum() / self._tokens_a_share(inputs)
