"""What a server is for, and which of vLLM's flags that takes.

All roles: usage tells how much of a prompt came from the prefix cache, no page of another site may read an
answer, and `dreamgym_door` stands before every route. What the kit itself asks: sampling parameters come from
the request and never from the model's `generation_config.json`; a block of the prefix cache is 32 tokens, the
least that processors and GPUs both take (the default is larger: short prompts are then never found in it).
"""

import json
from dataclasses import dataclass
from enum import StrEnum

DOOR = "dreamgym_door.Door"
BLOCK = 32  # tokens of a block of the prefix cache
# Whitespace without end fits any JSON schema; only the server can forbid it, and only where its backend is
# named. Answers: guidance, for xgrammar lets raw control characters into strings. Tools: xgrammar, for
# guidance refuses the grammar of a forced call.
_ANSWERS, _CALLS = (
    json.dumps({"backend": one, "disable_any_whitespace": True}) for one in ("guidance", "xgrammar")
)


class Role(StrEnum):
    """What the kit asks a server for."""

    EXPERIENCE = "experience"  # JSON decisions of the dream's model
    POLICY = "policy"  # the model being trained: exact tokens, tools
    DEPLOYED = "deployed"  # what agents use in production


@dataclass(frozen=True, slots=True)
class Wanted:
    """What may be asked of a role beyond its own flags."""

    scale_out: bool = False  # tokens in, tokens out: /inference/v1/generate
    lora_rank: int = 0  # the largest rank of adapters that are loaded later; 0: none
    tool_parser: str = "hermes"


PLAIN = Wanted()


def flags_of(role: Role, wanted: Wanted = PLAIN) -> list[str]:
    """The flags of a role."""
    flags = ["--enable-prompt-tokens-details", "--allowed-origins", "[]", "--middleware", DOOR]
    if role is not Role.DEPLOYED:  # whose users may count on the model's own sampling
        flags += ["--generation-config", "vllm", "--block-size", str(BLOCK)]
        form = _ANSWERS if role is Role.EXPERIENCE else _CALLS
        flags += ["--structured-outputs-config", form]
    if role is not Role.EXPERIENCE:
        flags += ["--enable-auto-tool-choice", "--tool-call-parser", wanted.tool_parser]
    if role is Role.POLICY:
        flags += ["--logprobs-mode", "processed_logprobs"]  # of the distribution that was sampled from
    if wanted.scale_out:
        flags += ["--enable-scale-out"]
    if wanted.lora_rank:
        flags += ["--enable-lora", "--max-lora-rank", str(wanted.lora_rank), "--max-loras", "2"]
    return flags
