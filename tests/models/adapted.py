"""Model directories that differ by a little: moved weights, half of them, or an adapter on the first."""

import shutil
from pathlib import Path

from nano_double import write_double

RATE = 2e-3


def moved(base: Path, folder: Path, *, seed: int, half: bool = False) -> Path:
    """The weights of `base`, each moved by `RATE` up or down; with `half`, every second tensor only."""
    import torch
    from safetensors.torch import load_file, save_file

    shutil.copytree(base, folder)
    held = load_file(base / "model.safetensors")
    dice = torch.Generator().manual_seed(seed)
    steps = {name: RATE * torch.randn(one.shape, generator=dice).sign() for name, one in sorted(held.items())}
    new = {
        name: one if half and place % 2 else one + steps[name]
        for place, (name, one) in enumerate(sorted(held.items()))
    }
    save_file(new, folder / "model.safetensors", metadata={"format": "pt"})
    return folder


def adapted(base: Path, folder: Path, *, seed: int) -> Path:
    """`base` with an adapter merged into it, and the adapter alone beside: as a trainer writes them."""
    import torch
    from peft import LoraConfig, get_peft_model

    from dreamgym_kit.adapters.models.folders import (
        calm,
        load_model,
        load_tokenizer,
        write_adapter,
        write_model,
    )
    from dreamgym_kit.adapters.trainers.tensors import merged
    from dreamgym_kit.deployment.model_files import ADAPTER

    with calm(), torch.random.fork_rng(), torch.no_grad():
        torch.manual_seed(seed)
        wanted = LoraConfig(r=4, lora_alpha=8, target_modules="all-linear", task_type="CAUSAL_LM")
        model = get_peft_model(load_model(base), wanted)
        for name, one in model.named_parameters():
            if "lora_B" in name:
                one.normal_(0, 0.05)
        whole, tensors = merged(model)
    tokenizer = load_tokenizer(base)
    write_model(folder, whole, tokenizer, tensors=tensors)
    write_adapter(folder / ADAPTER, model, tokenizer, base=str(base))
    return folder


def small(folder: Path, **options) -> Path:
    """A model that a real vLLM serves on a CPU, too."""
    return write_double(folder, context=512, head=32, **options)
