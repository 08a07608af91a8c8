"""`dreamgym-kit buffer rules`: what can be mined from the recordings, with its evidence."""

from contextlib import closing
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from dreamgym_kit.cli import options
from dreamgym_kit.cli.output import say, say_json

if TYPE_CHECKING:
    from dreamgym_kit.dream.state.wording import RuleLine

_LISTED = 60

Explain = Annotated[
    str | None,
    typer.Option("--explain", metavar="TOOL", help="All that is known of one tool.", show_default=False),
]


def command(
    explain: Explain = None,
    buffer: options.Buffer = None,
    tenant: options.Tenant = None,
    settings_file: options.SettingsFile = None,
    as_json: options.AsJson = False,
) -> None:
    """Mine tool models from the buffer: what answers look like, what writes change, what they leave alone.

    Right and wrong are counted on worlds that a rule was not made from.
    """
    from dreamgym_kit.adapters.stores.sqlite import SqliteStore
    from dreamgym_kit.dream.state.history import recordings
    from dreamgym_kit.dream.state.mining import mine
    from dreamgym_kit.dream.state.wording import explain as explained
    from dreamgym_kit.dream.state.wording import rule_lines
    from dreamgym_kit.errors import UnknownName

    settings = options.settings_for(None, settings_file, {"buffer": buffer, "tenant": tenant})
    path = settings.resolve(settings.buffer)
    with closing(SqliteStore(path, read_only=True)) as store:
        episodes = recordings(store.scan(tenant=settings.tenant))
    models = mine(episodes)
    known = sorted({tool for tool, _ in models.answers})
    if explain is not None and explain not in known:
        raise UnknownName("tool", explain, known=known, source=str(path), where="the recordings")
    lines = [line for line in rule_lines(models) if explain in (None, line.tool)]
    if as_json:
        say_json({"transitions": models.transitions, "rules": [line.to_json() for line in lines]})
    elif explain is not None:
        for text in explained(models, explain):
            say(_one_line(text))
    else:
        _show(lines, path, len(episodes))


def _show(lines: "list[RuleLine]", path: Path, episodes: int) -> None:
    say(f" {path}: {len(lines)} rules mined from {episodes} episodes")
    if not lines:
        say(" Fill  dreamgym-kit record")
        return
    shown = [line for line in lines if line.kind != "keeps"]
    width = max(len("tool"), *(len(_one_line(line.tool)) for line in lines))
    say(f"\n {'tool':{width}}  {'kind':7}  {'right':>5}  {'wrong':>5}  {'worlds':>6}  rule")
    for line in shown[:_LISTED]:
        counts = f"{line.right:5}  {line.wrong:5}  {line.worlds:6}"
        say(f" {_one_line(line.tool):{width}}  {line.kind:7}  {counts}  {_one_line(line.says)}")
    rest = len(lines) - len(shown[:_LISTED])
    if rest:
        say(f" and {rest} more, most of them reads that a write leaves alone: --json lists all")
    say("\n One tool  dreamgym-kit buffer rules --explain TOOL")


def _one_line(text: str) -> str:
    from dreamgym_kit.report.clean import one_line

    return one_line(text)
