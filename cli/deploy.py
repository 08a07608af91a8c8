"""`dreamgym-kit deploy`: weights that beat what is in use for real take its place; and the way back."""

import shlex
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from dreamgym_kit.cli import options
from dreamgym_kit.cli.output import near, say, say_json, say_steps, stdout_paint
from dreamgym_kit.errors import ExitCode
from dreamgym_kit.report.colors import fold
from dreamgym_kit.report.sanitize import one_line

if TYPE_CHECKING:
    from dreamgym_kit.adapters.langgraph.deploy import Deployed
    from dreamgym_kit.deployment.model_registry import Pointing

SHELF = "deployed"
EXAMPLES = (
    "dreamgym-kit deploy promote runs/2026-11-21-train-desk-7f3a --evaluation B --baseline A",
    "dreamgym-kit deploy promote models/desk-v2 --evaluation B --baseline A --record calls.db",
    "dreamgym-kit deploy promote models/desk --force 'the first one'",
    "dreamgym-kit deploy status",
    "dreamgym-kit deploy rollback",
    "dreamgym-kit deploy rollback v001",
)
_CODES = (
    "Exit codes: 0 current; 1 the comparison does not show that it is better: nothing was changed; "
    "2 there is no usable comparison, or the command cannot run."
)
app = options.group("Promote, roll back or list model versions.", EXAMPLES, _CODES)

Weights = Annotated[Path, options.argument("WEIGHTS", "A training's run directory, or a model directory.")]
Evaluation = Annotated[
    Path | None, options.option("--evaluation", "Evaluation of these weights on the real tools (B).", "RUN")
]
Baseline = Annotated[
    Path | None, options.option("--baseline", "Evaluation of the model to replace (A).", "RUN")
]
Registry = Annotated[Path, typer.Option("--registry", metavar="DIR", help="Model registry.")]
Force = Annotated[
    str | None,
    options.option(
        "--force", "Promote without a winning comparison. REASON goes on the model card.", "REASON"
    ),
]
Version = Annotated[str | None, options.argument("VERSION", "Version (default: the previous one).")]
Why = Annotated[str | None, options.option("--why", "Reason to keep in the history.", "REASON")]
Name = Annotated[str | None, options.option("--name", "Name under which the server serves the model.")]
Record = Annotated[
    str | None,
    options.option(
        "--record",
        "Record its real calls while it is current; '' to stop.",
        "BUFFER",
    ),
]


@app.command("promote")
def promote(
    weights: Weights,
    evaluation: Evaluation = None,
    baseline: Baseline = None,
    tasks: options.Tasks = None,
    registry: Registry = Path(SHELF),
    force: Force = None,
    name: Name = None,
    record: Record = None,
    as_json: options.AsJson = False,
) -> None:
    """Make a model current if it beats the current one.

    The paired comparison on the REAL tools decides. Each version keeps a card: data, seeds, scores, what it
    was not tested on.
    """
    from dreamgym_kit.adapters.langgraph.deploy import deploy
    from dreamgym_kit.settings.buffer_url import place_of

    settings = options.settings_for(tasks=tasks)
    place = str(place_of(record, Path.cwd(), source="--record")) if record else record
    done = deploy(
        weights,
        evaluated=evaluation,
        against=baseline,
        into=registry,
        force=force,
        name=name,
        record=place,
        settings=settings,
    )
    _show(done, registry, as_json=as_json)


@app.command("rollback")
def rollback(
    version: Version = None,
    registry: Registry = Path(SHELF),
    why: Why = None,
    as_json: options.AsJson = False,
) -> None:
    """Return to an earlier version."""
    from dreamgym_kit.adapters.langgraph.deploy import roll_back

    _show(roll_back(registry, to=version, why=why or ""), registry, as_json=as_json)


@app.command("status")
def status(registry: Registry = Path(SHELF), as_json: options.AsJson = False) -> None:
    """Show the current version and how to use it."""
    from dreamgym_kit.deployment.model_registry import EVENTS, ModelRegistry

    with ModelRegistry(registry) as shelf:
        current, events, edited = shelf.current, shelf.events, False
        if current is not None:
            shelf.verified_folder(current)
            edited = not shelf.as_written(current)
        pointing = shelf.pointing(registry, shelf.use)
    if as_json:
        say_json(
            {
                "in_use": None if current is None else current.name,
                "weights": None if current is None else current.weights,
                "card_as_written": not edited,
                "lines": list(pointing.lines) if current is not None else [],
                "history": [EVENTS.write(event) for event in events],
            }
        )
        return
    say(f" IN USE  {current.name if current is not None else 'nothing yet'}\n")
    if edited:
        say("  Its card was changed or removed since it was put there; what was measured stands below.\n")
    for event in events:
        reason = event.why or event.sentence or " ".join(event.reasons)
        text = f"{event.deed.value.replace('_', ' '):<12} {event.version or event.weights[:8]}  {reason}"
        say(f"  {datetime.fromtimestamp(event.at, UTC):%Y-%m-%d %H:%M}  {one_line(text.rstrip())}")
    if current is not None:
        _point(pointing)


def _show(done: "Deployed", into: Path, *, as_json: bool) -> None:
    if as_json:
        say_json(done.to_json())
    else:
        paint = stdout_paint()
        word = "IN USE" if done.done else "NOT PROMOTED"
        line = fold(f" {word}  {one_line(done.sentence)}", indent=len(word) + 3)
        say(line.replace(word, (paint.green if done.done else paint.red)(word), 1))
    if not done.done:
        raise typer.Exit(ExitCode.FAILED)
    if as_json:
        return
    _point(done.pointing)
    if done.card is not None:
        say(f"\n  card  {near(done.card)}")
    named = "" if into == Path(SHELF) else f" --registry {shlex.quote(near(into.absolute()))}"
    if done.event.before:
        say_steps(("Back", f"dreamgym-kit deploy rollback{named}", "the version before"))
    else:
        say()


def _point(pointing: "Pointing") -> None:
    from dreamgym_kit.deployment.model_registry import KEY

    say("\n" + "\n".join(f"  {line}" for line in pointing.lines))
    say(f"  ({KEY} is a secret of your own, set where the server runs and where the agent does)")
