"""Tokens per CPU second of the policy in process, at 1, 8, 32 and 64 concurrent episodes, beside HF generate.

An untrained nano policy of the shipped size, one torch thread, prompts of about 100 tokens and 64 tokens
said. The policy is asked through its port by as many coroutines, so that templates, tokenising, waiting and
the making of replies are in its figure; generate gets the same prompt ids as one padded batch and gives no
log-probs.
The median of several turns taken one after the other.
"""

import asyncio
import os
import statistics
import tempfile
import time
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

os.environ.setdefault("HF_HUB_OFFLINE", "1")

from dreamgym_kit.chat import ChatMessage, ChatRequest

WIDTHS = (1, 8, 32, 64)
SAID = 64
ROUNDS = 5
_WORDS = ("order", "lamp", "refund", "late", "please", "the", "customer", "was", "charged", "twice")


def measure(seed: int) -> list[tuple[str, float, str]]:
    """Figures for the bench runner."""
    return _figures(seed, WIDTHS, ROUNDS)


def quick(seed: int) -> list[tuple[str, float, str]]:
    """The same at two widths: of each side its best turn, which neighbours disturbed least."""
    return _figures(seed, (1, 8), 9, of=max)


def _figures(
    seed: int,
    widths: tuple[int, ...],
    rounds: int,
    of: Callable[[Iterable[float]], float] = statistics.median,
) -> list[tuple[str, float, str]]:
    import torch

    from dreamgym_kit.adapters.models.local import open_local
    from dreamgym_kit.recipes.nano.start import save_untrained

    torch.set_num_threads(1)
    with tempfile.TemporaryDirectory() as scratch:
        folder = Path(scratch) / "model"
        save_untrained(folder, seed=seed)
        theirs = _Generate(folder)
        policy = open_local(folder)
        try:
            figures = []
            for width in widths:
                asks = [_request(seed, number) for number in range(width)]
                prompts = asyncio.run(_said(policy, asks))[1]  # also warms it up
                theirs.speed(prompts)
                pairs = [(_speed(policy, asks), theirs.speed(prompts)) for _ in range(rounds)]
                ours, hf = (of(one) for one in zip(*pairs, strict=True))
                figures += [(f"at_{width}", ours, "tokens/CPU s"), (f"hf_at_{width}", hf, "tokens/CPU s")]
                figures += [("ratio_at_8", ours / hf, "x generate")] if width == 8 else []
        finally:
            policy.close()
    return figures


def _request(seed: int, number: int) -> ChatRequest:
    text = " ".join(_WORDS[(number + place * (number + 3)) % len(_WORDS)] for place in range(40))
    return ChatRequest(
        [ChatMessage("user", text)], temperature=1.0, max_tokens=SAID, seed=seed * 1000 + number, exact=True
    )


async def _said(policy: Any, asks: list[ChatRequest]) -> tuple[int, list[tuple[int, ...]]]:
    """Ask all at once; how many tokens were said, and the prompts."""
    replies = await asyncio.gather(*map(policy.chat, asks))
    return sum(len(one.tokens.ids) for one in replies), [one.tokens.prompt_ids for one in replies]


def _speed(policy: Any, asks: list[ChatRequest]) -> float:
    began = time.process_time()
    said, _ = asyncio.run(_said(policy, asks))
    return said / (time.process_time() - began)


class _Generate:
    """The library's own way to sample."""

    def __init__(self, folder: Path) -> None:
        from transformers import AutoModelForCausalLM

        self._model = AutoModelForCausalLM.from_pretrained(folder).eval()

    def speed(self, prompts: list[tuple[int, ...]]) -> float:
        import torch

        longest = max(map(len, prompts))
        ids = torch.tensor([[0] * (longest - len(one)) + list(one) for one in prompts])
        mask = torch.tensor([[0] * (longest - len(one)) + [1] * len(one) for one in prompts])
        began = time.process_time()
        made = self._model.generate(
            ids,
            attention_mask=mask,
            do_sample=True,
            temperature=1.0,
            top_k=0,
            top_p=1.0,
            min_new_tokens=SAID,
            max_new_tokens=SAID,
        )
        return (made.shape[1] - longest) * len(prompts) / (time.process_time() - began)
