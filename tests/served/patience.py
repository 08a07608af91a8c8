"""A look that waits: on two busy cores an answer may take longer than the kit's own looks do."""

from functools import partial

from dreamgym_kit.adapters.models.vllm import looking

look = partial(looking.look, timeout_s=120.0)
