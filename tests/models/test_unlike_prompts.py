"""Prompts of unlike length that are asked at once: each is read into its own row."""

import asyncio
from pathlib import Path

import pytest
from each_row import each_row

from dreamgym_kit.adapters.models.local import open_local
from dreamgym_kit.chat import ChatMessage, ChatRequest

pytest.importorskip("torch", reason="the extra train is not installed")


@pytest.mark.slow
@each_row("lockstep", [False, True])
def test_prompts_of_unlike_length_asked_at_once_are_each_answered_as_if_alone(
    tmp_path: Path, lockstep: bool
) -> None:
    from nano_double import write_double

    folder = write_double(tmp_path / "model")
    texts = [
        "where is my order?",
        "hi",
        "the orders are late",
        "no",
        "an order",
    ]  # read together: none twice as long

    async def gaps() -> list[float]:
        policy = open_local(folder, lockstep=lockstep)

        async def asked(number: int) -> float:
            async with policy.episode(f"e{number}"):
                reply = await policy.chat(
                    ChatRequest(
                        [ChatMessage("user", texts[number % 5])],
                        temperature=1.0,
                        seed=number,
                        max_tokens=12,
                        exact=True,
                        affinity=f"e{number}",
                    )
                )
            assert reply.tokens is not None
            prompt = reply.tokens.prompt_ids
            (scored,) = await policy.score([prompt + reply.tokens.ids])
            told = zip(scored[len(prompt) - 1 :], reply.tokens.logprobs, strict=True)
            return max(abs(one - other) for one, other in told)

        try:
            return await asyncio.gather(*[asked(number) for number in range(15)])
        finally:
            policy.close()

    assert max(asyncio.run(gaps())) < 1e-4
