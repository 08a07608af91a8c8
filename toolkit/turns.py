"""What a policy said, as training sees it: turns, samples, batches, and what an update reported.

Token ids and log-probs are those of the sampler, never tokenised again. Made in `training`, read by
trainers (adapters) and by the alarms.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field


@dataclass(frozen=True, slots=True)
class Turn:
    """One model call of the agent that the policy answered."""

    episode: str
    index: int  # 0-based place among the episode's turns, in the order they were asked
    prompt_ids: tuple[int, ...]
    ids: tuple[int, ...]  # sampled
    logprobs: tuple[float, ...]  # natural, one for each sampled id
    version: str  # of the weights that sampled it
    node: str | None = None  # the graph node that asked
    model: str = ""  # the chat model of the graph that the policy stood in for
    finish: str = "stop"  # "length": cut off; "abort": the server ended it
    temperature: float = 1.0
    unfit: str = ""  # why it must not be trained on; "": it may


@dataclass(frozen=True, slots=True)
class Sample:
    """One row for the trainer: turns of one episode that extend each other, as one stream of tokens.

    `ids[:start]` was given to the policy; from there on `mask` is 1 where the policy sampled the token
    and 0 where it was given (a tool's answer, the template's own marks).
    """

    episode: str
    ids: tuple[int, ...]
    start: int  # the first token that may be trained on
    mask: tuple[int, ...]  # shape [len(ids) - start]
    logprobs: tuple[float, ...]  # the same shape; 0.0 where mask is 0
    turns: tuple[int, ...]  # indices of the turns in it
    versions: tuple[str, ...]  # of the weights that sampled it, oldest first, each once
    advantage: float = 0.0
    weight: float = 1.0  # of each of its sampled tokens in the loss
    reward: float = 0.0  # of its episode, where it is the trainer that makes an advantage of it (PPO)
    pair: str = ""  # which two episodes are held against each other (DPO); advantage 1: the better, -1

    @property
    def trained(self) -> int:
        """How many tokens of it the policy sampled."""
        return sum(self.mask)


@dataclass(frozen=True, slots=True)
class Batch:
    """What one optimiser step learns from."""

    step: int  # 1-based
    samples: tuple[Sample, ...]
    facts: Mapping[str, float] = field(default_factory=dict)  # about the episodes behind it, for the logs


@dataclass(frozen=True, slots=True)
class UpdateFacts:
    """What one optimiser step reported."""

    step: int  # 1-based
    loss: float
    grad_norm: float
    entropy: float  # nats a token, mean over sampled tokens
    kl: float  # nats a token, from the weights that sampled
    clipped: float  # 0..1 share of tokens at the clip
    logprob_gap: float  # largest |sampled - recomputed| before the update, nats; nan where versions differ
    seconds: float
    cpu_seconds: float
    figures: Mapping[str, float] = field(default_factory=dict)  # of the algorithm: "value_loss", ...
