"""A large policy that works the desk as the shipped nano policy does: its weights within a larger Qwen3.

Nothing large learns the desk within minutes, so the nano policy is grown instead, by zeros where something
new would be heard (Chen et al., "Net2Net", arXiv 1511.05641): the start of a training is the nano policy's,
its arithmetic and memory are the large model's. The vocabulary stays.
"""

from pathlib import Path
from typing import Any

from dreamgym_kit.recipes.nano.build import WEIGHTS, Shape


def write_grown(folder: Path, shape: Shape, *, seed: int, device: str) -> int:
    """Write the model directory; gives its number of parameters.

    `shape`: at least the nano policy's in everything, with as many heads for each key head; the width of a
    head is a multiple.
    """
    from transformers import AutoTokenizer

    from dreamgym_kit.adapters.models.folders import load_model
    from dreamgym_kit.recipes.nano.start import save_model

    model = grown(load_model(WEIGHTS), shape, seed=seed, device=device)
    save_model(model, AutoTokenizer.from_pretrained(WEIGHTS), folder)
    return int(model.num_parameters())


def grown(small: Any, shape: Shape, *, seed: int, device: str) -> Any:
    """The larger model, in evaluation mode on `device`."""
    import torch
    from transformers import Qwen3Config, Qwen3ForCausalLM

    own = small.config
    config = Qwen3Config(
        **own.to_dict()
        | {
            "hidden_size": shape.width,
            "num_hidden_layers": shape.layers,
            "num_attention_heads": shape.heads,
            "num_key_value_heads": shape.kv_heads,
            "head_dim": shape.head_width,
            "intermediate_size": shape.inner,
            "layer_types": ["full_attention"] * shape.layers,
            # a mean over more channels is smaller, so what is added to it is, too
            "rms_norm_eps": own.rms_norm_eps * own.hidden_size / shape.width,
        }
    )
    with torch.random.fork_rng(), torch.device(device):
        torch.manual_seed(seed)
        large = Qwen3ForCausalLM(config).eval()
    weights, given = large.state_dict(), small.to(device).state_dict()
    with torch.no_grad():
        for name, weight in weights.items():
            part = name.rsplit(".", 2)[-2]
            if part in ("embed_tokens", "lm_head", "o_proj", "down_proj"):
                weight.zero_()  # what is new says nothing at first
            if name in given:
                _write(weight, given[name], _rows(part, own, shape), _columns(part, own, shape))
                if weight.dim() == 1:
                    weight.mul_(_gain(part, own, shape))
    return large


def _write(weight: Any, given: Any, rows: Any, columns: Any) -> None:
    """Put a matrix or a norm's weights at these places; its rows hear of nothing else."""
    if weight.dim() == 1:
        weight[rows[0]] = given
        return
    weight[rows[1]] = 0.0
    weight[rows[0][:, None], columns[None]] = given


def _rows(part: str, own: Any, shape: Shape) -> tuple[Any, Any]:
    """Where rows go, and which rows belong to what was there before."""
    import torch

    if part in ("q_proj", "k_proj", "v_proj"):
        heads = own.num_attention_heads if part == "q_proj" else own.num_key_value_heads
        return _in_heads(heads, own, shape), torch.arange(heads * shape.head_width)
    if part in ("q_norm", "k_norm"):
        return _in_heads(1, own, shape), torch.arange(shape.head_width)
    count = {"gate_proj": own.intermediate_size, "up_proj": own.intermediate_size}.get(part, own.hidden_size)
    count = own.vocab_size if part in ("embed_tokens", "lm_head") else count
    return torch.arange(count), torch.arange(count)


def _columns(part: str, own: Any, shape: Shape) -> Any:
    import torch

    if part == "o_proj":
        return _in_heads(own.num_attention_heads, own, shape)
    return torch.arange(own.intermediate_size if part == "down_proj" else own.hidden_size)


def _in_heads(heads: int, own: Any, shape: Shape) -> Any:
    """Places of the dimensions of heads: each pair where the wider head turns as fast."""
    import torch

    half, times = own.head_dim // 2, shape.head_width // own.head_dim
    pairs = torch.arange(half) * times
    places = torch.cat([pairs, pairs + shape.head_width // 2])
    return (torch.arange(heads)[:, None] * shape.head_width + places).flatten()


def _gain(part: str, own: Any, shape: Shape) -> float:
    """What a norm's weights are multiplied by, for the mean over more channels and the scale of attention."""
    if part in ("q_norm", "k_norm"):
        return float((own.head_dim / shape.head_width) ** 0.25)
    return float((own.hidden_size / shape.width) ** 0.5)
