"""The model card of a nano model: what its manifest says, in words."""

from collections.abc import Mapping
from typing import Any

_HEAD = """\
---
license: apache-2.0
library_name: transformers
tags: [dreamgym-kit, tool-use, from-scratch]
---

# A nano policy for the support desk

{parameters:,} parameters, a Qwen3 architecture, trained from nothing on {episodes:,} recorded episodes of
dreamgym-kit's support desk (seed {seed}). It exists to show, within minutes on a processor, that training in
the dream changes how an agent works. It knows fifteen tools, nine kinds of request and nothing else: neither
English nor your desk. It is no assistant.

It learned from colleagues of every sort: {senior:.0%} work right, {junior:.0%} have habits that skip checks,
the rest slip now and then; {solved:.0%} of their work ended well. For the first {first:.0%} of its lessons it
read seniors only, then everybody. So it often knows better than it does, and has room to improve, on purpose.

## How it does

Solved in worlds that nothing was recorded or trained on, on the desk's real tools, judged by its books:

| family | sampled (temperature 1) | greedy |
| --- | --- | --- |
"""

_USE = """
## Use

    from transformers import AutoModelForCausalLM, AutoTokenizer

Its chat template renders neither system prompt nor tool schemas: both were learned. Calls are written as
Hermes writes them (`<tool_call>`). Sample at temperature 1 for training.

## How it was made

    python -m dreamgym_kit.recipes.nano build OUT --seed {seed}

Settings, seeds, scores and versions stand in `nano.json`.
"""


def card(facts: Mapping[str, Any]) -> str:
    """Write the card of a model with this manifest."""
    data, scores = facts["data"], facts["scores"]
    sampled, greedy = scores["sampled"], scores["greedy"]
    head = _HEAD.format(
        parameters=facts["parameters"],
        episodes=data["episodes"],
        seed=facts["seed"],
        senior=data["mix"]["senior"],
        junior=data["mix"]["junior"],
        solved=data["solved"],
        first=facts["lessons"]["seniors_first"],
    )
    rows = [
        f"| {family} | {share:.0%} | {greedy['by_family'][family]:.0%} |\n"
        for family, share in sampled["by_family"].items()
    ]
    rows.append(f"| all | **{sampled['solved']:.1%}** | {greedy['solved']:.1%} |\n")
    return head + "".join(rows) + _failures(sampled) + _USE.format(seed=facts["seed"])


def _failures(sampled: Mapping[str, Any]) -> str:
    lines = [f"| {kind} | {share:.1%} |\n" for kind, share in sampled["failures"].items()]
    return "\nWhy episodes fail (share of all, sampled):\n\n| why | share |\n| --- | --- |\n" + "".join(lines)
