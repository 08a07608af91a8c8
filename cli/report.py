"""`dreamgym-kit report`: a run again, one of its episodes, or a list of them."""

import shlex
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from dreamgym_kit.cli import gate_options, options, otel, s2r, training
from dreamgym_kit.cli.output import say, say_json, tell

if TYPE_CHECKING:
    from dreamgym_kit.report.figures import Summary
    from dreamgym_kit.rollout.rundir import RunDirectory
    from dreamgym_kit.vocabulary import Episode

EXAMPLES = (
    "dreamgym-kit report",
    "dreamgym-kit report runs/2026-11-21-desk-7f3a --tools",
    "dreamgym-kit report --last --only failed --limit 2",
    "dreamgym-kit report --episode refund-03.2",
    "dreamgym-kit report --html --open",
    "dreamgym-kit report --json > report.json",
    "dreamgym-kit report --junit junit.xml --markdown summary.md",
    "dreamgym-kit report --otel http://localhost:4318",
)
_LISTED = 20


class Only(StrEnum):
    """Which episodes to list."""

    PASSED = "passed"
    FAILED = "failed"
    INCONCLUSIVE = "inconclusive"
    ERROR = "error"
    ANOMALY = "anomaly"


Run = Annotated[
    Path | None,
    typer.Argument(metavar="RUN", help="A run directory; the newest one when left out.", show_default=False),
]
Last = Annotated[
    bool, typer.Option("--last", help="The newest run, as when RUN is left out.", show_default=False)
]
EpisodeId = Annotated[
    str | None,
    typer.Option("--episode", metavar="ID", help="This episode, step by step.", show_default=False),
]
OnlyThese = Annotated[
    Only | None, typer.Option("--only", help="List the episodes of this kind.", show_default=False)
]
List = Annotated[bool, typer.Option("--list", help="List the episodes, the worst first.", show_default=False)]
Full = Annotated[
    bool, typer.Option("--full", help="With --episode: cut no text, however long.", show_default=False)
]
Limit = Annotated[int, typer.Option("--limit", min=1, help="Most episodes listed.")]
Tools = Annotated[
    bool,
    typer.Option("--tools", help="Every tool: effect, calls, where answers came from.", show_default=False),
]
Html = Annotated[
    bool,
    typer.Option("--html", help="Write the run as one HTML file, RUN/report.html.", show_default=False),
]
To = Annotated[
    Path | None,
    typer.Option("--to", metavar="FILE", help="With --html: write it to FILE instead.", show_default=False),
]
Open = Annotated[
    bool, typer.Option("--open", help="With --html: open it in the browser.", show_default=False)
]

Plots = Annotated[
    Path | None,
    typer.Option("--plots", metavar="DIR", help="Draw a training's curves as PNG.", show_default=False),
]


Runs = Annotated[Path | None, typer.Option("--runs", help="Folder that holds the runs.", show_default=False)]


def command(
    run: Run = None,
    last: Last = False,
    episode: EpisodeId = None,
    only: OnlyThese = None,
    list_all: List = False,
    limit: Limit = _LISTED,
    full: Full = False,
    tools: Tools = False,
    html: Html = False,
    to: To = None,
    open_it: Open = False,
    plots: Plots = None,
    junit: gate_options.Junit = None,
    markdown: gate_options.Markdown = None,
    otel_target: otel.Target = None,
    otel_headers: otel.Headers = None,
    runs: Runs = None,
    settings_file: options.SettingsFile = None,
    as_json: options.AsJson = False,
) -> None:
    """Print a run, or one episode, in the terminal.

    What the agent would have done, what to look at first, how sure that is.
    """
    from dreamgym_kit.errors import UserError

    directory = _open(run, last, runs, settings_file)
    others = (episode, only, list_all or None, tools or None, junit, markdown, otel_target)
    if s2r.shown(directory, as_json=as_json) or training.shown(
        directory, to, html=html, plots=plots, open_it=open_it, as_json=as_json, others=others
    ):
        return
    shown_alone = episode is not None or only is not None or list_all or tools
    if otel_headers is not None and otel_target is None:
        raise UserError("report: --otel-headers goes with --otel URL.")
    if otel_target is not None:
        if shown_alone or html or to is not None or open_it or junit is not None or markdown is not None:
            raise UserError("report: --otel exports the whole run; name nothing else with it but --json.")
        otel.write_traces(directory, otel_target, otel_headers, as_json=as_json)
        return
    if html or to is not None or open_it:
        if shown_alone:
            raise UserError(
                "report: --html shows the whole run; leave out --episode, --only, --list and --tools."
            )
        _write_page(directory, to, open_it=open_it, as_json=as_json)
        return
    if episode is not None:
        _show_episode(directory, episode, full=full, as_json=as_json)
        return
    summary = summary_of(directory)
    gate_options.write_reports(summary, directory.path, junit, markdown)
    if as_json:
        say_json(summary.to_json())
    elif only is not None or list_all:
        _show_list(summary, directory, only, limit)
    else:
        _show_run(summary, directory, tools=tools)


def _open(run: Path | None, last: bool, runs: Path | None, settings_file: Path | None) -> "RunDirectory":
    from dreamgym_kit.errors import UserError
    from dreamgym_kit.rollout.rundir import RunDirectory, latest_run

    if run is not None:
        if last:
            raise UserError("report: name a RUN or say --last, not both.")
        return RunDirectory.open(run)
    settings = options.settings_for(None, settings_file, {"runs": runs})
    return RunDirectory.open(latest_run(settings.resolve(settings.runs)))


def summary_of(directory: "RunDirectory") -> "Summary":
    """Count a run's episodes; what was torn is said on stderr."""
    from dreamgym_kit.report.kept import curve_of, facts_of
    from dreamgym_kit.report.summary import summarise

    episodes = directory.episodes()
    summary = summarise(episodes, facts_of(directory), curve_of(directory))
    if episodes.torn is not None:
        tell(f"warning: {directory.path}: {episodes.torn}")
    return summary


def _show_run(summary: "Summary", directory: "RunDirectory", *, tools: bool) -> None:
    from dreamgym_kit.cli.running import look_at, near, stdout_paint
    from dreamgym_kit.report.terminal import finding_list, next_steps, render_run, tool_table

    paint = stdout_paint()
    say(render_run(summary, paint=paint))
    say(f" {near(directory.path)}\n")
    if summary.findings:
        say(finding_list(summary, paint) + "\n")
    if tools:
        say(tool_table(summary, paint) + "\n")
    place = shlex.quote(near(directory.path))
    steps = [("List", f"dreamgym-kit report {place} --list", "its episodes, the worst first")]
    steps.append(("Page", f"dreamgym-kit report {place} --html", "the same as one HTML file"))
    if not tools:
        steps.append(("Tools", f"dreamgym-kit report {place} --tools", "where each tool's answers came from"))
    say(next_steps([look_at(summary, directory.path), *steps]))


def _write_page(directory: "RunDirectory", to: Path | None, *, open_it: bool, as_json: bool) -> None:
    """Write the page and say where it is, with a link to what to look at first."""
    import webbrowser
    from urllib.parse import quote

    from dreamgym_kit.cli.running import near
    from dreamgym_kit.report.clean import one_line
    from dreamgym_kit.report.page.writing import page_of, write_page

    target = training.page_target(directory, to)
    page = page_of(directory, place=shlex.quote(near(directory.path)))
    write_page(page, target)
    for warning in page.warnings:
        tell(f"warning: {one_line(warning)}")
    link = target.absolute().as_uri()
    if page.look_at is not None:
        name, step = page.look_at
        link += f"#e={quote(name, safe='', errors='replace')}" + (f"&s={step}" if step is not None else "")
    if as_json:
        say_json({"page": str(target), "bytes": len(page.html.encode("utf-8")), "link": link})
    else:
        say(f" {near(target)}  {len(page.html) / 1e6:.1f} MB")
        say(f" {link}")
    if open_it and not webbrowser.open(link):
        tell("warning: no browser was found here; open the file named above.")


def _show_list(summary: "Summary", directory: "RunDirectory", only: Only | None, limit: int) -> None:
    from dreamgym_kit.cli.running import near, stdout_paint
    from dreamgym_kit.report.terminal import episode_list, next_steps

    say(
        episode_list(summary, stdout_paint(), only=only.value if only is not None else None, limit=limit)
        + "\n"
    )
    place = shlex.quote(near(directory.path))
    say(next_steps([("Look", f"dreamgym-kit report {place} --episode ID", "one of them, step by step")]))


def _show_episode(directory: "RunDirectory", name: str, *, full: bool, as_json: bool) -> None:
    from dreamgym_kit.cli.running import stdout_paint
    from dreamgym_kit.report.episode import render_episode
    from dreamgym_kit.rollout.records import episode_to_record

    found = _find(directory, name)
    if as_json:
        say_json(episode_to_record(found))
        return
    recorded = directory.manifest.matters.get("mode") in ("record", "s2r-staged", "s2r-live")
    say(render_episode(found, paint=stdout_paint(), recorded=recorded, full=full).rstrip("\n"))


def _find(directory: "RunDirectory", name: str) -> "Episode":
    from dreamgym_kit.errors import UnknownName

    known = []
    for episode in directory.episodes():
        if episode.id == name:
            return episode
        known.append(episode.id)
    raise UnknownName("episode", name, known=known[:100], source=str(directory.path), where="the run")
