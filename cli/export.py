"""`dreamgym-kit export`: a run as files that other programs read; `-o` of the commands that make runs."""

import json
import shlex
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, NamedTuple
from urllib.parse import quote

from dreamgym_kit.cli import options
from dreamgym_kit.cli.output import near, pasted, say, tell
from dreamgym_kit.cli.running import opened, summary_of
from dreamgym_kit.errors import UserError, require_extra
from dreamgym_kit.report.sanitize import one_line

if TYPE_CHECKING:
    from dreamgym_kit.report.metrics import RunMetrics
    from dreamgym_kit.rollout.rundir import RunDirectory
    from dreamgym_kit.serialization import JsonValue

EXAMPLES = (
    "dreamgym-kit export -o junit.xml -o report.html",
    "dreamgym-kit export -o md:$GITHUB_STEP_SUMMARY",
    "dreamgym-kit export runs/2026-11-21-desk-7f3a -o otel:spans.jsonl",
    "dreamgym-kit export -o otel:http://localhost:4318 --otel-headers OTLP_HEADERS",
    "dreamgym-kit export runs/2026-11-21-train-desk-7f3a -o png:curves",
)
_FORMATS = {".xml": "xml", ".md": "md", ".html": "html", ".json": "json"}
_PREFIXES = ("xml", "md", "html", "json", "otel", "png")
_TRAINING = ("html", "json", "png")
_EPISODES = ("xml", "md", "html", "json", "otel")

Outputs = Annotated[
    list[str],
    options.option(
        "--output -o",
        "FILE.xml (JUnit), FILE.md, FILE.html, FILE.json, otel:FILE|URL, png:DIR (a training's curves); "
        "md:FILE appends to FILE.",
        "FILE",
    ),
]
Headers = Annotated[
    str | None,
    options.option(
        "--otel-headers", "Environment variable with the endpoint's headers: key=value,key=value.", "VARIABLE"
    ),
]


class ReportFile(NamedTuple):
    """One thing to write."""

    format: str  # of _PREFIXES
    place: str
    append: bool = False

    @property
    def text(self) -> str:
        """As it was typed."""
        return f"-o {self.place}" if not self.append else f"-o {self.format}:{self.place}"


def command(output: Outputs, run: options.Run = None, otel_headers: Headers = None) -> None:
    """Write a run as JUnit, Markdown, HTML, JSON or OTel.

    The extension, or a prefix with a colon, selects the format. A training has a page, JSON and curves.
    """
    from dreamgym_kit.rollout.rundir import TRAINING

    targets, directory = targets_of(output), opened(run)
    training = directory.mode == TRAINING
    for target in targets:
        if target.format not in (_TRAINING if training else _EPISODES):
            kind = "a training" if training else "a run of episodes"
            raise UserError(f"{target.text}: {directory.path} is {kind}, which has no such form.")
    if otel_headers is not None and not any(target.format == "otel" for target in targets):
        raise UserError("--otel-headers goes with -o otel:URL.")
    if training:
        _write_training(directory, targets)
        return
    summary = summary_of(directory)
    for target in targets:
        if target.format == "otel":
            _write_spans(directory, target.place, otel_headers)
        else:
            write(target, summary, directory.path)
            say(f" {target.place}")


def targets_of(texts: Sequence[str] | None, *, reports: bool = False) -> list[ReportFile]:
    """What each `-o` names. `reports`: only forms that `write` knows, for a command that runs first.

    Raises:
        UserError: one has neither a known extension nor a known prefix, or is not a report.
    """
    targets = [_target(text) for text in texts or ()]
    for target in targets:
        if reports and target.format in ("otel", "png"):
            raise UserError(
                f"-o {target.format}: this command writes .xml, .md, .html and .json. For spans and curves: "
                f"dreamgym-kit export RUN -o {target.format}:..."
            )
    return targets


def _target(text: str) -> ReportFile:
    prefix, colon, place = text.partition(":")
    if colon and prefix in _PREFIXES and place:
        return ReportFile(prefix, place, append=prefix not in ("otel", "png"))
    name, equals, place = text.partition("=")
    if equals and name in (*_PREFIXES, "junit"):
        name = "xml" if name == "junit" else name
        now = place if _FORMATS.get(Path(place).suffix) == name else f"{name}:{place or 'FILE'}"
        raise UserError(f"-o {text}: write -o {now}; a file of that name is -o ./{text}. Nothing was run.")
    if (form := _FORMATS.get(Path(text).suffix)) is None:
        raise UserError(
            f"-o {text}: name a file that ends in .xml (JUnit), .md, .html or .json, or put the form and a "
            "colon before it: md:$GITHUB_STEP_SUMMARY. Nothing was run."
        )
    return ReportFile(form, text)


def write(target: ReportFile, summary: "RunMetrics", directory: Path, *, data: "JsonValue" = None) -> None:
    """Write one form of a run.

    Args:
        target: which, and where.
        summary: its figures.
        directory: where it is.
        data: the JSON form, where that is not the summary's.

    Raises:
        UserError: it cannot be written there.
    """
    from dreamgym_kit.report.documents import junit, markdown

    if target.format == "html":
        write_page(directory, _file(target))
        return
    look = looker(directory)
    if target.format == "json":
        _put(target, _json(data if data is not None else summary.to_json()))
    else:
        _put(target, (junit if target.format == "xml" else markdown)(summary, look))


def looker(directory: Path) -> Callable[[str], str]:
    """The command that shows an episode of a run."""
    place = shlex.quote(near(directory))
    return lambda episode: f"dreamgym-kit report {place} --episode {pasted(episode)}"


def write_page(directory: Path, target: Path) -> str:
    """Write a run's page, or a training's, and give the link to it with what to look at first.

    Raises:
        RunDirectoryError: it cannot be written there; what stood there still does.
    """
    from dreamgym_kit.report.page.writing import document, page_of
    from dreamgym_kit.rollout.atomic_files import write_atomically
    from dreamgym_kit.rollout.rundir import TRAINING, RunDirectory

    opened, link = RunDirectory.open(directory), target.absolute().as_uri()
    if opened.mode == TRAINING:
        from dreamgym_kit.report.training import training_of
        from dreamgym_kit.report.training_curves import training_block

        html = document(training_block(training_of(opened), name=directory.name))
        write_atomically(target, html.encode("utf-8"))
        return link
    page = page_of(opened, place=shlex.quote(near(directory)))
    write_atomically(target, page.html.encode("utf-8"))
    for warning in page.warnings:
        tell(f"warning: {one_line(warning)}")
    if page.look_at is None:
        return link
    name, step = page.look_at
    return f"{link}#e={quote(name, safe='', errors='replace')}" + (f"&s={step}" if step is not None else "")


def _write_training(directory: "RunDirectory", targets: Sequence[ReportFile]) -> None:
    from dreamgym_kit.report.training import training_of

    for target in targets:
        if target.format == "png":
            from dreamgym_kit.adapters.plots import draw_training

            draw_training(training_of(directory), Path(target.place))
        elif target.format == "json":
            _put(target, _json({"directory": str(directory.path), **training_of(directory).to_json()}))
        else:
            write_page(directory.path, _file(target))
        say(f" {target.place}")


def _write_spans(directory: "RunDirectory", place: str, headers: str | None) -> None:
    require_extra("otel", needed_by="export -o otel:")
    from dreamgym_kit.adapters.otel.sinks import export_run

    done = export_run(directory, place, headers=headers)
    for warning in done.warnings:
        tell(f"warning: {one_line(warning)}")
    traces = "1 trace" if done.episodes == 1 else f"{done.episodes:,} traces"
    refused = f", {done.refused:,} refused" if done.refused else ""
    say(f" {one_line(done.to)}  {traces}, {done.spans:,} spans{refused}")


def _file(target: ReportFile) -> Path:
    """Where a page goes: a file of its own, which is replaced in one step."""
    from dreamgym_kit.rollout.atomic_files import is_folder

    file = Path(target.place)
    if is_folder(file) or not is_folder(file.absolute().parent):
        raise UserError(f"{target.text}: name a file in a folder that is there.")
    return file


def _json(value: "JsonValue") -> str:
    return json.dumps(value, indent=2, allow_nan=False) + "\n"


def _put(target: ReportFile, text: str) -> None:
    """A prefix adds, since $GITHUB_STEP_SUMMARY holds other steps' too; a device or pipe is fine."""
    from dreamgym_kit.guard import egress
    from dreamgym_kit.sandbox.confining import deliver

    file = Path(target.place)
    try:
        with egress.exempt():  # the file was named on our own command line
            if deliver(file, text.encode("utf-8", "backslashreplace"), append=target.append):
                return
            file.parent.mkdir(parents=True, exist_ok=True)
            with file.open("a" if target.append else "w", encoding="utf-8", errors="backslashreplace") as out:
                out.write(text)
    except OSError as error:
        raise UserError(f"{file}: cannot be written: {error.strerror}; the run itself is kept.") from None


VIEW_EXAMPLES = ("dreamgym-kit view", "dreamgym-kit view runs/2026-11-21-desk-7f3a --no-browser")

NoBrowser = Annotated[bool, options.option("--no-browser", "Write the page and say where it is.")]


def view(run: options.Run = None, no_browser: NoBrowser = False) -> None:
    """Open the report of a run in the browser.

    It is one file, RUN/report.html, that needs no server and no network.
    """
    import webbrowser

    from dreamgym_kit.report.page.writing import PAGE

    directory = opened(run).path
    target: Path = directory / PAGE
    link = write_page(directory, target)
    say(f" {near(target)}  {target.stat().st_size / 1e6:.1f} MB")
    say(f" {link}")
    if not no_browser and not webbrowser.open(link):
        tell("warning: no browser was found here; open the file named above.")
