"""What `[train]` says of the update, in the trainer's words."""

from dreamgym_kit.adapters.trainers.options import GrpoOptions, LoraOptions
from dreamgym_kit.settings.schema import Settings


def options_of(settings: Settings) -> GrpoOptions:
    """How a trainer is to learn, by `[train]` and `[policy]`."""
    said = settings.train
    return GrpoOptions(
        algorithm=said.algorithm,
        loss=said.loss_type,
        learning_rate=said.lr,
        warmup_steps=said.warmup,
        clip=said.clip_ratio,
        beta=said.beta,
        gae=said.gae_lambda,
        value_rate=said.value_lr,
        value_weight=said.value_weight,
        dpo_beta=said.dpo_beta,
        max_grad_norm=said.grad_clip,
        temperature=settings.policy.temperature,
        micro_batches=said.micro_batches,
        max_completion=settings.policy.max_output,
        lora=None if said.lora_rank is None else LoraOptions(rank=said.lora_rank, alpha=2 * said.lora_rank),
        adapter_beside=said.lora_rank is not None and bool(settings.policy.urls),
        seed=said.seed,
        save_every=said.save_every,
        keep=said.keep_checkpoints,
        report_to=said.report_to,
    )
