"""What an untrained nano model starts from: an ordinary Qwen3 with copying written into two layers.

Learning to copy from nothing costs such a model more steps than all the rest, so two attention circuits
are written into the weights before training (an induction head; the idea is of Olsson et al., "In-context
Learning and Induction Heads", arXiv 2209.11895; the formulas here are our own). Layer 0 writes a sketch of
the previous token beside each token; layer 1 looks for the place whose previous token was the current one
and copies what stands there. Nothing but weights is special: the model loads wherever Qwen3 loads.
"""

from pathlib import Path
from typing import TYPE_CHECKING

import torch
from torch import Tensor

from dreamgym_kit.adapters.models.folders import write_model
from dreamgym_kit.recipes.nano.build import Shape
from dreamgym_kit.recipes.nano.tokens import CONTEXT

if TYPE_CHECKING:
    from transformers import PreTrainedTokenizerBase, Qwen3ForCausalLM

_ROPE_THETA = 1e6
_SPREAD = 0.08  # of the embeddings' entries
_REACH = 200  # tokens: pairs that turn less than 1.3 rad over it are as good as unturned
_NEAR = 0.03  # rad per token from which a pair tells neighbours apart
_SHARPNESS = (2.0, 2.2)  # norm weights of queries and keys in the two circuits
_COPY_GAIN = 5.0


def new_model(
    tokenizer: "PreTrainedTokenizerBase", *, seed: int = 0, shape: Shape | None = None
) -> "Qwen3ForCausalLM":
    """Make an untrained model for this tokenizer; equal seeds give equal weights.

    The head is a matrix of its own (untied), so that servers reload it exactly; it starts as a copy of the
    embeddings.
    """
    from transformers import Qwen3Config, Qwen3ForCausalLM

    size = shape or Shape()
    config = Qwen3Config(
        vocab_size=len(tokenizer),
        hidden_size=size.width,
        num_hidden_layers=size.layers,
        num_attention_heads=size.heads,
        num_key_value_heads=size.kv_heads,
        head_dim=size.head_width,
        intermediate_size=size.inner,
        max_position_embeddings=CONTEXT,
        rope_parameters={"rope_type": "default", "rope_theta": _ROPE_THETA},
        rms_norm_eps=1e-6,
        tie_word_embeddings=False,
        bos_token_id=None,
        eos_token_id=tokenizer.eos_token_id,
        pad_token_id=tokenizer.pad_token_id,
        dtype=torch.float32,
    )
    with torch.random.fork_rng(devices=[]):  # transformers draws its own first weights, replaced below
        model = Qwen3ForCausalLM(config).eval()
    write_start(model, torch.Generator().manual_seed(seed))
    return model


def write_start(model: "Qwen3ForCausalLM", chance: torch.Generator) -> None:
    """Write the starting weights: small random ones, and the two circuits of the copy head."""
    weights = model.state_dict()
    with torch.no_grad():
        for name, weight in weights.items():
            if weight.dim() == 1:
                weight.fill_(1.0)
            else:
                outward = name.endswith(("o_proj.weight", "down_proj.weight"))
                spread = weight.shape[1] if not outward else model.config.hidden_size
                weight.normal_(0, (0.1 if outward else 0.5) * spread**-0.5, generator=chance)
        _Circuits(weights, model, chance).write()
        weights["lm_head.weight"].copy_(weights["model.embed_tokens.weight"])


def save_model(model: "Qwen3ForCausalLM", tokenizer: "PreTrainedTokenizerBase", folder: Path) -> None:
    """Write a model directory that any Qwen3 loader takes: safetensors, tokenizer, chat template.

    What stood there is replaced, in one step.
    """
    model.generation_config.update(
        do_sample=True,
        temperature=1.0,
        top_k=0,
        top_p=1.0,
        eos_token_id=tokenizer.eos_token_id,
        pad_token_id=tokenizer.pad_token_id,
    )
    write_model(folder, model, tokenizer)


class _Circuits:
    """Where things stand in the residual stream: [constant 1, the token, a sketch of the previous token]."""

    def __init__(
        self, weights: dict[str, Tensor], model: "Qwen3ForCausalLM", chance: torch.Generator
    ) -> None:
        config = model.config
        self.weights, self.chance = weights, chance
        self.width, self.turn = config.hidden_size, config.head_dim
        self.heads, self.kv_heads = config.num_attention_heads, config.num_key_value_heads
        half = self.turn // 2
        speed = _ROPE_THETA ** (-torch.arange(0, self.turn, 2, dtype=torch.float64) / self.turn)
        self.speed = speed  # rad per token of each pair of dimensions
        slow = [pair for pair in range(half) if speed[pair] * _REACH < 1.3]
        self.still = [*slow, *(pair + half for pair in slow)]  # dimensions of a head that RoPE leaves alone
        self.near = [pair for pair in range(half) if speed[pair] >= _NEAR]
        self.token = slice(1, self.width - len(self.still))
        self.before = self.width - len(self.still)  # where the sketch of the previous token begins
        self.sketch = self._orthonormal(len(self.still))

    def write(self) -> None:
        embedding = self.weights["model.embed_tokens.weight"]
        embedding.normal_(0, _SPREAD, generator=self.chance)
        embedding[:, 0] = 4 * _SPREAD  # a channel that is the same for every token
        embedding[:, self.before :] = 0
        self._look_one_back()
        self._copy_what_followed()

    def _look_one_back(self) -> None:
        """Layer 0, head 0: attends to the token before and writes its sketch."""
        query, key, value, out = self._head(0, 0)
        half = self.turn // 2
        loudness = [2.0, 1.5]
        for place, pair in enumerate(self.near):
            loud = loudness[place] if place < len(loudness) else 1.0
            query[pair, 0] = loud
            key[pair, 0] = loud * torch.cos(self.speed[pair])
            key[pair + half, 0] = loud * torch.sin(self.speed[pair])
        self._sharpen(0)
        size = len(self.still)
        value[:size, self.token] = self.sketch
        for place in range(size):
            out[self.before + place, place] = 2 * _SPREAD

    def _copy_what_followed(self) -> None:
        """Layer 1, one head for each key head: finds where this token was the one before, copies."""
        inner = self.before - 1
        rows = self._orthonormal(min(self.kv_heads * self.turn, inner))
        self._sharpen(1)
        for group in range(self.kv_heads):
            query, key, value, out = self._head(1, group * (self.heads // self.kv_heads))
            for place, dimension in enumerate(self.still):
                query[dimension, self.token] = self.sketch[place]
                key[dimension, self.before + place] = 1.0
            mine = rows[group * self.turn : (group + 1) * self.turn]
            value[: len(mine), self.token] = mine
            out[self.token, : len(mine)] = mine.T * _COPY_GAIN * _SPREAD

    def _head(self, layer: int, head: int) -> tuple[Tensor, Tensor, Tensor, Tensor]:
        """Rows of query, key, value and columns of the output of one head, emptied; views to write to."""
        at = f"model.layers.{layer}.self_attn"
        mine = slice(head * self.turn, (head + 1) * self.turn)
        group = head // (self.heads // self.kv_heads)
        shared = slice(group * self.turn, (group + 1) * self.turn)
        parts = (
            self.weights[f"{at}.q_proj.weight"][mine],
            self.weights[f"{at}.k_proj.weight"][shared],
            self.weights[f"{at}.v_proj.weight"][shared],
            self.weights[f"{at}.o_proj.weight"][:, mine],
        )
        for part in parts:
            part.zero_()
        return parts

    def _sharpen(self, layer: int) -> None:
        for each in ("q_norm", "k_norm"):
            self.weights[f"model.layers.{layer}.self_attn.{each}.weight"].fill_(_SHARPNESS[layer])

    def _orthonormal(self, rows: int) -> Tensor:
        drawn = torch.randn(self.before - 1, rows, generator=self.chance)
        return torch.linalg.qr(drawn)[0].T.contiguous()
