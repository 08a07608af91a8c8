"""What `[train]` says of the update, in the trainer's words."""

from dreamgym_kit.adapters.trainers.options import GrpoOptions, LoraOptions
from dreamgym_kit.settings.schema import Settings


def options_of(settings: Settings) -> GrpoOptions:
    """How a trainer is to learn, by `[train]` and `[policy]`."""
    said = settings.train
    return GrpoOptions(
        algorithm=said.algorithm,
        loss=said.loss,
        learning_rate=said.lr,
        warmup_steps=said.warmup,
        clip=said.clip,
        beta=said.beta,
        gae=said.gae,
        value_rate=said.value_lr,
        value_weight=said.value_weight,
        dpo_beta=said.dpo_beta,
        max_grad_norm=said.grad_clip,
        temperature=settings.policy.temperature,
        micro_batches=said.pieces,
        max_completion=settings.policy.max_output,
        lora=None if said.lora is None else LoraOptions(rank=said.lora, alpha=2 * said.lora),
        adapter_beside=said.lora is not None and bool(settings.policy.urls),
        seed=said.seed,
        save_every=said.save_every,
        keep=said.keep,
        report_to=said.report_to,
    )
