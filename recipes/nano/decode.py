"""A nano model's forward pass as plain tensor operations, with a cache: for many episodes in lockstep.

The maths of Qwen3 and nothing around it: on models this small the framework around a layer costs more than
the layer. A test holds it equal to transformers' own model.
"""

from dataclasses import dataclass
from typing import TYPE_CHECKING

import torch
from torch import Tensor
from torch.nn.functional import rms_norm, scaled_dot_product_attention, silu

if TYPE_CHECKING:
    from transformers import Qwen3ForCausalLM


@dataclass(frozen=True, slots=True)
class _Layer:
    before: Tensor
    inward: Tensor  # queries, keys and values in one
    query_norm: Tensor
    key_norm: Tensor
    out: Tensor
    between: Tensor
    gate_up: Tensor
    down: Tensor


class Cache:
    """Keys and values of earlier tokens; row by row, place by place."""

    def __init__(self, layers: list[tuple[Tensor, Tensor]]) -> None:
        self.layers = layers

    def keep(self, rows: Tensor) -> "Cache":
        """The cache of some rows only."""
        return Cache([(keys[rows], values[rows]) for keys, values in self.layers])


class Decoder:
    """A snapshot of a model's weights that reads tokens and foretells the next ones."""

    def __init__(self, model: "Qwen3ForCausalLM") -> None:
        config = model.config
        self._heads, self._kv_heads = config.num_attention_heads, config.num_key_value_heads
        self._size, self._epsilon = config.head_dim, config.rms_norm_eps
        weights = {name: weight.detach() for name, weight in model.state_dict().items()}
        self._embedding, self._head = weights["model.embed_tokens.weight"], weights["lm_head.weight"]
        self._last_norm = weights["model.norm.weight"]
        self._layers = [_layer(weights, place) for place in range(config.num_hidden_layers)]
        theta = config.rope_parameters["rope_theta"]
        speed = 1.0 / theta ** (torch.arange(0, self._size, 2, dtype=torch.float32) / self._size)
        turned = torch.arange(config.max_position_embeddings, dtype=torch.float32)[:, None] * speed
        angle = torch.cat([turned, turned], -1)
        self._cos, self._sin = angle.cos().to(self._head), angle.sin().to(self._head)

    def new_cache(self, rows: int, length: int) -> Cache:
        """An empty cache for as many rows, each up to `length` tokens long."""
        shape = (rows, self._kv_heads, length, self._size)
        return Cache([(self._head.new_zeros(shape), self._head.new_zeros(shape)) for _ in self._layers])

    def read(self, ids: Tensor, places: Tensor, cache: Cache) -> Tensor:
        """Read tokens into the cache; gives the states behind them.

        Args:
            ids: shape [rows, tokens]; rows that have less to read are padded at the end.
            places: where each token stands in its row, the same shape. What padding writes is overwritten
                before anything looks at it.
            cache: of these rows; changed.

        Returns:
            States, shape [rows, tokens, width]; `logits` makes sense of them.
        """
        rows, tokens = ids.shape
        seen = int(places.max()) + 1
        mask = (torch.arange(seen)[None, None, :] <= places[:, :, None])[:, None]
        cos, sin = self._cos[places][:, None], self._sin[places][:, None]
        row = torch.arange(rows)[:, None]
        state = self._embedding[ids]
        for layer, (keys, values) in zip(self._layers, cache.layers, strict=True):
            parts = (self._norm(state, layer.before) @ layer.inward).view(rows, tokens, -1, self._size)
            query, key, value = parts.split([self._heads, self._kv_heads, self._kv_heads], 2)
            query = self._turn(self._norm(query, layer.query_norm).transpose(1, 2), cos, sin)
            key = self._turn(self._norm(key, layer.key_norm).transpose(1, 2), cos, sin)
            keys[row, :, places], values[row, :, places] = key.transpose(1, 2), value
            looked = scaled_dot_product_attention(
                query, keys[:, :, :seen], values[:, :, :seen], attn_mask=mask, enable_gqa=True
            )
            state = state + looked.transpose(1, 2).reshape(rows, tokens, -1) @ layer.out
            gate, up = (self._norm(state, layer.between) @ layer.gate_up).chunk(2, -1)
            state = state + (silu(gate) * up) @ layer.down
        return self._norm(state, self._last_norm)

    def logits(self, states: Tensor) -> Tensor:
        """What comes next, shape [..., vocabulary]."""
        return states @ self._head.T

    def _norm(self, state: Tensor, weight: Tensor) -> Tensor:
        return rms_norm(state, (state.shape[-1],), weight, self._epsilon)

    def _turn(self, state: Tensor, cos: Tensor, sin: Tensor) -> Tensor:
        half = self._size // 2
        return state * cos + torch.cat([-state[..., half:], state[..., :half]], -1) * sin


def _layer(weights: dict[str, Tensor], place: int) -> _Layer:
    def named(name: str) -> Tensor:
        return weights[f"model.layers.{place}.{name}.weight"]

    inward = torch.cat([named(f"self_attn.{part}_proj") for part in "qkv"])
    return _Layer(
        before=named("input_layernorm"),
        inward=inward.T.contiguous(),
        query_norm=named("self_attn.q_norm"),
        key_norm=named("self_attn.k_norm"),
        out=named("self_attn.o_proj").T.contiguous(),
        between=named("post_attention_layernorm"),
        gate_up=torch.cat([named("mlp.gate_proj"), named("mlp.up_proj")]).T.contiguous(),
        down=named("mlp.down_proj").T.contiguous(),
    )
