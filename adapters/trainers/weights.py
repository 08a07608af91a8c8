"""A trained model's weights as others need them: merged, and asked for log-probs."""

from collections.abc import Sequence
from typing import Any

import torch

VALUE_HEAD = "value_head"
"""How a model calls the head that PPO learns with; nobody else needs it."""

_TOKENS_A_PASS = 16_384  # padding included
_NUMBERS_A_PASS = 2**28  # of logits


def merged(model: Any) -> tuple[Any, dict[str, Any] | None]:
    """The model without its adapter, and the weights to write for it; None: those that it holds.

    Merged beside the model, never in it: taking an adapter out again would leave a rounding behind.
    """
    from peft import PeftModel
    from peft.tuners.lora import LoraLayer

    if not isinstance(model, PeftModel):
        return model, _without_value_head(model)
    base = model.get_base_model()
    tensors = {
        name.replace(".base_layer.", "."): tensor
        for name, tensor in base.state_dict().items()
        if ".lora_" not in name and not name.startswith(f"{VALUE_HEAD}.")
    }
    with torch.no_grad():
        for name, module in base.named_modules():
            if isinstance(module, LoraLayer):
                weight = module.get_base_layer().weight
                delta = module.get_delta_weight(model.active_adapter)
                tensors[f"{name}.weight"] = weight + delta.to(weight.dtype)
    return base, tensors


def _without_value_head(model: Any) -> dict[str, Any] | None:
    if not hasattr(model, VALUE_HEAD):
        return None
    held = model.state_dict()
    return {name: tensor for name, tensor in held.items() if not name.startswith(f"{VALUE_HEAD}.")}


def without_dropout(model: Any) -> Any:
    """The model, as it samples: with dropout the ratios to the sampler's log-probs would be of another one.

    Some layers hold it as a module, others as a number of their own. The config stays as it is.
    """
    for module in model.modules():
        if isinstance(module, torch.nn.Dropout):
            module.p = 0.0
        for name, value in list(vars(module).items()):
            if "dropout" in name and isinstance(value, float):
                setattr(module, name, 0.0)
    return model


def score(model: Any, ids: Sequence[Sequence[int]], *, temperature: float = 1.0) -> list[list[float]]:
    """Natural log-prob of each id after the first; rows are padded at the right, so no mask is needed."""
    order = sorted(range(len(ids)), key=lambda place: -len(ids[place]))
    tokens = min(_TOKENS_A_PASS, _NUMBERS_A_PASS // model.config.get_text_config().vocab_size)
    scores: list[list[float]] = [[] for _ in ids]
    training = model.training
    model.eval()
    try:
        with torch.no_grad():
            while order:
                rows = max(1, tokens // max(1, len(ids[order[0]])))
                taken, order = order[:rows], order[rows:]
                for place, logprobs in zip(
                    taken, _pass(model, [ids[place] for place in taken], temperature), strict=True
                ):
                    scores[place] = logprobs
    finally:
        model.train(training)
    return scores


def _pass(model: Any, rows: Sequence[Sequence[int]], temperature: float) -> list[list[float]]:
    width = max(len(row) for row in rows)
    if width < 2:
        return [[] for _ in rows]
    padded = torch.tensor([[*row, *[0] * (width - len(row))] for row in rows], device=model.device)
    logits = model(input_ids=padded, use_cache=False).logits[:, :-1].float() / temperature
    logprobs = logits.log_softmax(-1).gather(-1, padded[:, 1:, None])[..., 0].tolist()
    return [scored[: max(0, len(row) - 1)] for scored, row in zip(logprobs, rows, strict=True)]
