"""`dreamgym-kit deploy`: weights that beat what is in use for real take its place; and the way back."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from dreamgym_kit.cli import options
from dreamgym_kit.cli.output import say, say_json

if TYPE_CHECKING:
    from dreamgym_kit.adapters.langgraph.deploying import Deployed
    from dreamgym_kit.deployment.pointing import Pointing
    from dreamgym_kit.deployment.records import Event

SHELF = "deployed"
EXAMPLES = (
    "dreamgym-kit deploy runs/2026-11-21-train-desk-7f3a --evaluated B --against A",
    "dreamgym-kit deploy models/desk-v2 --evaluated B --against A --record calls.db",
    "dreamgym-kit deploy models/desk --force 'the first one'",
    "dreamgym-kit deploy",
    "dreamgym-kit deploy --back",
    "dreamgym-kit deploy --back --to v001",
)
CODES = (
    "Exit codes: 0 in use, or told what is; 1 the comparison does not say that it is better, nothing was "
    "changed; 2 there is no fit comparison, or nothing can be done."
)

Weights = Annotated[
    Path | None,
    typer.Argument(
        metavar="WEIGHTS",
        help="A training's run directory, or a model directory; nothing: what is in use.",
        show_default=False,
    ),
]
Evaluated = Annotated[
    Path | None,
    typer.Option(
        "--evaluated", metavar="RUN", help="The real evaluation of these weights (B).", show_default=False
    ),
]
Against = Annotated[
    Path | None,
    typer.Option(
        "--against", metavar="RUN", help="That of what they are to replace (A).", show_default=False
    ),
]
Into = Annotated[Path, typer.Option("--into", metavar="DIR", help="The folder of versions.")]
Force = Annotated[
    str | None,
    typer.Option(
        "--force", metavar="WHY", help="In use all the same; the card says so, and why.", show_default=False
    ),
]
Back = Annotated[
    bool, typer.Option("--back", help="Put the version before in use again.", show_default=False)
]
To = Annotated[
    str | None, typer.Option("--to", metavar="VERSION", help="With --back: this one.", show_default=False)
]
Name = Annotated[
    str | None, typer.Option("--name", help="How the server calls the model.", show_default=False)
]
Record = Annotated[
    str | None,
    typer.Option(
        "--record", metavar="BUFFER", help="Keep its calls while it is in use; '': no.", show_default=False
    ),
]


def command(
    weights: Weights = None,
    evaluated: Evaluated = None,
    against: Against = None,
    tasks: options.Tasks = None,
    into: Into = Path(SHELF),
    force: Force = None,
    back: Back = False,
    to: To = None,
    name: Name = None,
    record: Record = None,
    settings_file: options.SettingsFile = None,
    as_json: options.AsJson = False,
) -> None:
    """Put weights in use if the paired comparison on the REAL tools says that they are better.

    Each version keeps a card: data, seeds, scores, what it was not tested on. Without WEIGHTS it tells what
    is in use and how a graph is pointed at it.
    """
    from dreamgym_kit.adapters.langgraph.deploying import deploy, roll_back
    from dreamgym_kit.errors import UserError
    from dreamgym_kit.settings.places import place_of

    if to is not None and not back:
        raise UserError("deploy: --to goes with --back.")
    if weights is None and not back:
        if any(one is not None for one in (evaluated, against, force)):
            raise UserError("deploy: name the weights: a training's run directory, or a model directory.")
        _tell_state(into, as_json=as_json)
        return
    if back:
        if weights is not None:
            raise UserError("deploy: --back takes no weights; name a version with --to.")
        done = roll_back(into, to=to, why=force or "")
    else:
        assert weights is not None  # told above
        settings = options.settings_for(None, settings_file, {"tasks": tasks})
        kept = str(place_of(record, Path.cwd(), source="--record")) if record else record
        done = deploy(
            weights,
            evaluated=evaluated,
            against=against,
            into=into,
            force=force,
            name=name,
            record=kept,
            settings=settings,
        )
    _show(done, into, as_json=as_json)
    if not done.done:
        raise typer.Exit(1)


def _show(done: "Deployed", into: Path, *, as_json: bool) -> None:
    import shlex

    from dreamgym_kit.cli.running import near, stdout_paint
    from dreamgym_kit.report.clean import one_line
    from dreamgym_kit.report.paint import fold
    from dreamgym_kit.report.terminal import next_steps

    if as_json:
        say_json(done.to_json())
        return
    paint = stdout_paint()
    word = "IN USE" if done.done else "NOT PROMOTED"
    line = fold(f" {word}  {one_line(done.sentence)}", indent=len(word) + 3)
    say(line.replace(word, (paint.green if done.done else paint.red)(word), 1))
    if not done.done:
        return
    _point(done.pointing)
    if done.card is not None:
        say(f"\n  card  {near(done.card)}")
    named = "" if into == Path(SHELF) else f" --into {shlex.quote(near(into.absolute()))}"
    back = f"dreamgym-kit deploy --back{named}"
    say(next_steps([("Back", back, "the version before")]) if done.event.before else "")


def _point(pointing: "Pointing") -> None:
    from dreamgym_kit.deployment.pointing import KEY

    say("\n" + "\n".join(f"  {line}" for line in pointing.lines))
    say(f"  ({KEY} is a secret of your own, set where the server runs and where the agent does)")


def _tell_state(into: Path, *, as_json: bool) -> None:
    """What is in use, how it came to be, and how a graph is pointed at it."""
    from dreamgym_kit.deployment.pointing import Pointing
    from dreamgym_kit.deployment.shelf import Shelf
    from dreamgym_kit.deployment.use import read_use
    from dreamgym_kit.report.clean import one_line

    with Shelf(into) as shelf:
        current, events, use, edited = shelf.current, shelf.events, read_use(shelf.folder), False
        if current is not None:
            shelf.whole(current)
            edited = not shelf.as_written(current)
        pointing = Pointing(shelf.merged, use.name, use.record, str(into))
    if as_json:
        from dreamgym_kit.deployment.records import EVENTS

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
        say(f"  {_when(event)}  {one_line(_told(event))}")
    if current is not None:
        _point(pointing)


def _when(event: "Event") -> str:
    from datetime import UTC, datetime

    return datetime.fromtimestamp(event.at, UTC).strftime("%Y-%m-%d %H:%M")


def _told(event: "Event") -> str:
    said = event.why or event.sentence or " ".join(event.reasons)
    named = event.version or event.weights[:8]
    return f"{event.deed.value.replace('_', ' '):<12} {named}  {said}".rstrip()
