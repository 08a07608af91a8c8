"""The model card of a nano experience model: what lies beside its weights, in words."""

from collections.abc import Mapping
from typing import Any

_HEAD = """\
---
license: apache-2.0
library_name: transformers
tags: [dreamgym-kit, experience-model, from-scratch]
---

# A nano experience model of the support desk

{parameters:,} parameters, a Qwen3 architecture, trained from nothing on {lessons:,} recorded calls in
{worlds} train worlds of dreamgym-kit's support desk (seed {seed}). It says what becomes of a tool call: why,
with which outcome, and what that changes, in about ten tokens. Code tells it what is known, without ids, and
writes the answer of what it decides. It knows the desk's thirteen tools and their {refusals} kinds of
refusal, and nothing else.

## How it does

In {held_out} held-out worlds, call by call, at a support of {threshold:g}. `recorded` repeats, `composed`
adds what was mined, `nano` decides all that the state does not show, `layered` lets it decide where
`composed` abstains or is less sure about a write. Share of all calls answered exactly; in brackets, of those
that were answered.

"""

_USE = """
Which payments the desk's gateway times out for nothing tells beforehand, so no model can be right about every
refund. {tokens:.0f} tokens a question; equal questions are asked once. Expected calibration error {ece:.3f}.

## Use

    [learned]
    model = "this directory"

`learned.json` holds its words, its calibration and these figures. The same directory is served by vLLM.

## How it was made

    python -m dreamgym_kit.recipes.nano experience OUT --seed {seed}{how}
"""

_KINDS = ("all", "reads", "writes", "refused")


def card(facts: Mapping[str, Any]) -> str:
    """Write the card of a model with these facts."""
    return (
        _HEAD.format(**facts)
        + _table("Worlds that were crawled beforehand", facts["crawled"])
        + _table("Worlds that nothing was recorded of", facts["unseen"])
        + _USE.format(**facts, how="" if facts.get("reasons", True) else " --no-reasoning")
    )


def _table(title: str, arms: Mapping[str, Mapping[str, Any]]) -> str:
    tools = sorted(kind for kind in arms["nano"] if kind not in _KINDS)
    lines = [f"{title}:\n\n| calls | {' | '.join(arms)} |\n| --- |{' --- |' * len(arms)}\n"]
    for kind in (*_KINDS, *tools):
        cells = [arms[arm].get(kind, (0, 0.0, 1.0)) for arm in arms]
        shown = " | ".join(f"{share:.3f} ({right:.3f})" for _, share, right in cells)
        lines.append(f"| {kind} ({cells[0][0]}) | {shown} |\n")
    return "".join(lines) + "\n"
