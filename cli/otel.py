"""`report --otel`: a run as OpenTelemetry traces, for the viewers that people already have."""

from typing import TYPE_CHECKING, Annotated

import typer

from dreamgym_kit.cli.output import say, say_json, tell

if TYPE_CHECKING:
    from dreamgym_kit.rollout.rundir import RunDirectory

Target = Annotated[
    str | None,
    typer.Option(
        "--otel",
        metavar="FILE|URL",
        help="Export the episodes as OpenTelemetry GenAI traces: OTLP/JSON lines, or an OTLP/HTTP endpoint.",
        show_default=False,
    ),
]
Headers = Annotated[
    str | None,
    typer.Option(
        "--otel-headers",
        metavar="VARIABLE",
        help="With --otel URL: the environment variable that holds its headers, as key=value,key=value.",
        show_default=False,
    ),
]


def write_traces(directory: "RunDirectory", target: str, headers: str | None, *, as_json: bool) -> None:
    """Export a run and say what was exported."""
    from dreamgym_kit.adapters.otel.extra import require_extra
    from dreamgym_kit.report.clean import one_line

    require_extra("report --otel")
    from dreamgym_kit.adapters.otel.exporting import export_run

    done = export_run(directory, target, headers=headers)
    for warning in done.warnings:
        tell(f"warning: {one_line(warning)}")
    if as_json:
        say_json({"to": done.to, "traces": done.episodes, "spans": done.spans, "refused": done.refused})
    else:
        traces = "1 trace" if done.episodes == 1 else f"{done.episodes:,} traces"
        say(f" {one_line(done.to)}  {traces}, {done.spans:,} spans")
