"""Are sampled log-probs those that training recomputes? Sampled in episodes, recomputed by a padded forward.

Episodes of several turns with tool calls and answers, the history of some rewritten on the way (forks),
decoded in changing company by the policy in process with kept keys and values; merged into samples as a
training does it, and every sample recomputed by the library's own model in padded batches, at the temperature
of the sampling. Of the shipped nano policy where its weights are there; else of one drawn by chance.
`max_abs_diff` is over every sampled token, of both temperatures. float32, one torch thread.
"""

import asyncio
import os
import random
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any

os.environ.setdefault("HF_HUB_OFFLINE", "1")
sys.path.append(str(Path(__file__).parents[1]))  # `nano_double` lies beside this folder

from training.conversations import merged

from dreamgym_kit.chat import ChatMessage, ChatRequest
from dreamgym_kit.turns import Sample, Turn

EPISODES = 200  # at each temperature
TEMPERATURES = (1.0, 0.7)
_TOOL = {
    "type": "function",
    "function": {
        "name": "get_order",
        "parameters": {"type": "object", "properties": {"id": {"type": "string"}}},
    },
}
_NANO = Path(__file__).parents[2] / "recipes" / "nano" / "weights" / "policy"


def measure(seed: int) -> list[tuple[str, float, str]]:
    """Figures for the bench runner."""
    return _figures(seed, EPISODES)


def quick(seed: int) -> list[tuple[str, float, str]]:
    """The same with few episodes."""
    return _figures(seed, 12)


def _figures(seed: int, episodes: int) -> list[tuple[str, float, str]]:
    import torch

    from dreamgym_kit.adapters.models.local import open_local

    torch.set_num_threads(1)
    worst, total, tokens, samples, forks, merges = 0.0, 0.0, 0, 0, 0, 0
    with tempfile.TemporaryDirectory() as scratch:
        folder = _model(Path(scratch) / "model", seed)
        for temperature in TEMPERATURES:
            policy = open_local(folder)
            turns = asyncio.run(_played(policy, seed, episodes, temperature))
            policy.close()
            rows, counted = merged(turns)
            forks, merges = forks + counted.forks, merges + counted.merged
            for gap in _gaps(folder, rows, temperature):
                worst, total, tokens = max(worst, gap), total + gap, tokens + 1
            samples += len(rows)
    return [
        ("max_abs_diff", worst, "nats"),
        ("mean_abs_diff", total / max(1, tokens), "nats"),
        ("samples", samples, "samples"),
        ("tokens", tokens, "sampled tokens"),
        ("forks", forks, "samples that began anew"),
        ("merged", merges, "turns that went on"),
    ]


def _model(folder: Path, seed: int) -> Path:
    if (_NANO / "model.safetensors").is_file():
        return _NANO
    from nano_double import write_double

    return write_double(folder, seed)


async def _played(policy: Any, seed: int, episodes: int, temperature: float) -> list[Turn]:
    """Turns of all episodes, about 40 of them under way at a time."""
    at_once = asyncio.Semaphore(40)

    async def one(number: int) -> list[Turn]:
        async with at_once, policy.episode(f"e{number}"):
            return await _episode(policy, f"e{number}", random.Random(f"{seed} {number}"), temperature)

    return [turn for turns in await asyncio.gather(*map(one, range(episodes))) for turn in turns]


async def _episode(policy: Any, key: str, chance: random.Random, temperature: float) -> list[Turn]:
    said = [ChatMessage("user", f"My order {chance.randrange(9999)} {'is late ' * chance.randrange(1, 20)}?")]
    turns: list[Turn] = []
    for index in range(chance.randrange(1, 6)):
        request = ChatRequest(
            tuple(said),
            temperature=temperature,
            max_tokens=chance.choice((4, 24, 60)),
            seed=chance.randrange(2**31),
            affinity=key,
            tools=(_TOOL,),
            exact=True,
        )
        reply = await policy.chat(request)
        got = reply.tokens
        turns.append(
            Turn(key, index, got.prompt_ids, got.ids, got.logprobs, got.version, temperature=temperature)
        )
        said.append(ChatMessage("assistant", reply.content, reply.tool_calls))
        said += [
            ChatMessage("tool", f'{{"ok": {index}}}', call_id=one.id, name=one.name)
            for one in reply.tool_calls
        ]
        said.append(ChatMessage("user", f"and {chance.randrange(99)} then?"))
        if chance.random() < 0.2:  # an agent that sums up what was said: this is a fork
            said = [ChatMessage("user", f"In short: order {chance.randrange(99)}."), said[-1]]
    return turns


def _gaps(folder: Path, samples: Sequence[Sample], temperature: float) -> list[float]:
    """|sampled - recomputed| of every sampled token, in batches of 16 padded to the longest."""
    import torch
    from transformers import AutoModelForCausalLM

    model = AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float32).eval()
    gaps: list[float] = []
    for first in range(0, len(samples), 16):
        rows = samples[first : first + 16]
        longest = max(len(one.ids) for one in rows)
        ids = torch.tensor([[*one.ids, *[0] * (longest - len(one.ids))] for one in rows])
        mask = torch.tensor([[1] * len(one.ids) + [0] * (longest - len(one.ids)) for one in rows])
        with torch.no_grad():
            logits = model(ids, attention_mask=mask).logits[:, :-1].float() / temperature
        again = logits.log_softmax(-1).gather(-1, ids[:, 1:, None])[..., 0].tolist()
        for row, one in enumerate(rows):
            for place, (mine, logprob) in enumerate(zip(one.mask, one.logprobs, strict=True)):
                if mine:
                    gaps.append(abs(logprob - again[row][one.start + place - 1]))
    return gaps
