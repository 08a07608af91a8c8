"""Qwen3 in plain tensor operations: the library's numbers at less than half the cost of a small step.

A nano model's step is mostly Python around tiny operations; here query, key and value are one product, gate
and up another, and nothing else is between. Answers are those of `TransformersNetwork` within float noise.
"""

from typing import Any

import torch
import torch.nn.functional as nn
from torch import Tensor
from transformers import PreTrainedModel

from dreamgym_kit.adapters.models.local_rows import Places, Rows, RowShape


def fits(model: PreTrainedModel) -> bool:
    """Whether a model is a Qwen3 of the form that is written out here."""
    config: Any = model.config
    if config.model_type != "qwen3" or type(model).__name__ != "Qwen3ForCausalLM":
        return False
    rope = dict(config.rope_parameters or {})
    return (
        rope.get("rope_type", "default") == "default"
        and rope.get("partial_rotary_factor", 1.0) == 1.0
        and set(config.layer_types) == {"full_attention"}
        and config.hidden_act == "silu"
        and not config.attention_bias
    )


class _Layer:
    """One block's weights, fused; its own copies, so that training cannot move them."""

    def __init__(self, block: Any) -> None:
        own, feed = block.self_attn, block.mlp
        self.qkv = torch.cat([own.q_proj.weight, own.k_proj.weight, own.v_proj.weight]).detach()
        self.out = own.o_proj.weight.detach().clone()
        self.gate_up = torch.cat([feed.gate_proj.weight, feed.up_proj.weight]).detach()
        self.down = feed.down_proj.weight.detach().clone()
        self.norm_in = block.input_layernorm.weight.detach().clone()
        self.norm_feed = block.post_attention_layernorm.weight.detach().clone()
        self.norm_q = own.q_norm.weight.detach().clone()
        self.norm_k = own.k_norm.weight.detach().clone()


class Qwen3Network:
    """Implements `local_network.Network` for a model that `fits`."""

    window: int | None = None

    def __init__(self, model: PreTrainedModel) -> None:
        config: Any = model.config
        self.device, self.dtype = model.device, model.dtype
        self.context = int(config.max_position_embeddings)
        self._eps = float(config.rms_norm_eps)
        self._heads, self._width = int(config.num_attention_heads), int(config.head_dim)
        self.shape = RowShape(
            int(config.num_hidden_layers), int(config.num_key_value_heads), self._width, self._width
        )
        with torch.no_grad():
            self._embedding = model.model.embed_tokens.weight.detach().clone()
            tied = model.lm_head.weight is model.model.embed_tokens.weight
            self._head = self._embedding if tied else model.lm_head.weight.detach().clone()
            self._norm = model.model.norm.weight.detach().clone()
            self._layers = [_Layer(block) for block in model.model.layers]
        theta = float(config.rope_parameters["rope_theta"])
        steps = torch.arange(0, self._width, 2, dtype=torch.int64, device=self.device).float()
        turns = 1.0 / theta ** (steps / self._width)
        angles = torch.arange(min(self.context, 2**17), device=self.device).float()[:, None] * turns
        self._cos = torch.cat([angles.cos()] * 2, -1).to(self.dtype)
        half = angles.sin()
        self._sin = torch.cat([-half, half], -1).to(self.dtype)  # for (second half, first half)

    def read(self, tokens: Tensor, at: Places, rows: Rows) -> None:
        """See `Network.read`."""
        self._run(tokens, at, rows)

    def next_logits(self, tokens: Tensor, at: Places, rows: Rows) -> Tensor:
        """See `Network.next_logits`."""
        return self._logits(self._run(tokens, at, rows)[:, -1])

    def all_logits(self, tokens: Tensor, at: Places, rows: Rows) -> Tensor:
        """See `Network.all_logits`."""
        return self._logits(self._run(tokens, at, rows))

    def _logits(self, state: Tensor) -> Tensor:
        normed = nn.rms_norm(state, (state.shape[-1],), self._norm, self._eps)
        return nn.linear(normed, self._head).float()

    def _run(self, tokens: Tensor, at: Places, rows: Rows) -> Tensor:
        count, length = tokens.shape
        state = nn.embedding(tokens, self._embedding)
        # positions of padding may lie behind the context
        places = at.positions.clamp(max=self._cos.shape[0] - 1)
        cos, sin = self._cos[places][:, :, None], self._sin[places][:, :, None]
        mask = at.mask()
        own, held, width, eps = self._heads, self.shape.heads, self._width, self._eps
        for number, layer in enumerate(self._layers):
            normed = nn.rms_norm(state, (state.shape[-1],), layer.norm_in, eps)
            mixed = nn.linear(normed, layer.qkv).view(count, length, own + 2 * held, width)
            query = _turned(nn.rms_norm(mixed[:, :, :own], (width,), layer.norm_q, eps), cos, sin)
            key = _turned(nn.rms_norm(mixed[:, :, own : own + held], (width,), layer.norm_k, eps), cos, sin)
            keys, values = rows.write(
                number, at, key.transpose(1, 2), mixed[:, :, own + held :].transpose(1, 2)
            )
            seen = self._attended(query, keys, values, mask)
            state = state + nn.linear(seen, layer.out)
            normed = nn.rms_norm(state, (state.shape[-1],), layer.norm_feed, eps)
            gate, up = nn.linear(normed, layer.gate_up).chunk(2, -1)
            state = state + nn.linear(nn.silu(gate) * up, layer.down)
        return state

    def _attended(self, query: Tensor, keys: Tensor, values: Tensor, mask: Tensor) -> Tensor:
        """Attention of [rows, tokens, heads, width]; one token a row is a query for each shared head."""
        count, length = query.shape[:2]
        if length == 1:  # the heads that share keys stand as so many queries: nothing is repeated
            grouped = query.reshape(count, self.shape.heads, -1, self._width)
            seen = nn.scaled_dot_product_attention(grouped, keys, values, attn_mask=mask)
            return seen.reshape(count, 1, -1)
        seen = nn.scaled_dot_product_attention(
            query.transpose(1, 2), keys, values, attn_mask=mask, enable_gqa=True
        )
        return seen.transpose(1, 2).reshape(count, length, -1)


def _turned(states: Tensor, cos: Tensor, sin: Tensor) -> Tensor:
    """Rotary positions (arXiv 2104.09864), halves as the library pairs them."""
    half = states.shape[-1] // 2
    return states * cos + torch.cat([states[..., half:], states[..., :half]], -1) * sin
