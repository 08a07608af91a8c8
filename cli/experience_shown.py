"""What `dreamgym-kit experience` shows of an annotating and of a trial."""

import shlex
from pathlib import Path
from typing import TYPE_CHECKING

from dreamgym_kit.cli.output import say, say_json, tell

if TYPE_CHECKING:
    from dreamgym_kit.adapters.distilling.annotating import Annotated as Outcome
    from dreamgym_kit.adapters.distilling.material import Material
    from dreamgym_kit.training.distil.exactness import Exactness
    from dreamgym_kit.training.distil.gate import Gate
    from dreamgym_kit.vocabulary import Spend


def annotated(done: "Outcome", known: "Material", out: Path, *, spend: "Spend", as_json: bool) -> None:
    """What came of an annotating, what all of it has cost so far, and what follows."""
    taught, measured = known.sides.taught, known.sides.measured
    if as_json:
        say_json(
            {
                "episodes": len(taught),
                "annotated": done.before + done.made,
                "made": done.made,
                "held_out": len(measured),
                "groups": known.sides.groups,
                "unusable": done.unusable,
                "stopped": done.stopped or None,
                "spend": {"answers": spend.calls, "tokens": spend.tokens, "usd": round(spend.cost_usd, 6)},
            }
        )
        return
    for name, why in list(done.unusable.items())[:20]:
        tell(f"not annotated: {one_line(name)}: {one_line(why)}")
    if done.stopped:
        tell(f"stopped: {one_line(done.stopped)}; run it again to go on")
    by = ", ".join(known.begun.by)
    say(f" {out}  {done.before + done.made} of {len(taught)} episodes annotated, {done.made} of them now")
    say(f" held out {len(measured)} episodes: {known.sides.groups} groups apart by {by}")
    if spend.calls:
        say(f" teacher so far: {spend.calls} answers, {spend.tokens:,} tokens, {spend.cost_usd:.4f} USD")
    train = f"dreamgym-kit experience train {shlex.quote(str(out))} --model DIR"
    say(following("Train", train, "a model on them"))


def exact(found: "Exactness", gate: "Gate", path: Path) -> None:
    """Exactness and verdict of each tool."""
    from dreamgym_kit.training.distil.exactness import WAYS

    width = max(4, *(len(one_line(tool.tool)) for tool in found.tools))
    say(f" {found.calls} held-out calls; share answered exactly as recorded\n")
    say(f" {'tool':{width}}  {'calls':>5}  " + "  ".join(f"{way:>8}" for way in WAYS) + "  gate")
    for tool in found.tools:
        shares = "  ".join(f"{tool.exact[way] / tool.calls:8.3f}" for way in WAYS)
        one = gate.tools[tool.tool]
        say(f" {one_line(tool.tool):{width}}  {tool.calls:5}  {shares}  {one.verdict}: {one.why}")
    say(f" {'all':{width}}  {found.calls:5}  " + "  ".join(f"{found.share(way):8.3f}" for way in WAYS))
    if found.calibration is not None:
        say(f"\n calibration error {found.calibration:.3f}")
    say(f" gate  {path}")


def following(name: str, command: str, what: str) -> str:
    """The next command to type."""
    from dreamgym_kit.report.terminal import next_steps

    return next_steps([(name, command, what)])


def one_line(text: str) -> str:
    """Text of others on one line, nothing in it acted on."""
    from dreamgym_kit.report.clean import one_line as cleaned

    return cleaned(text)
