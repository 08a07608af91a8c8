"""The one command to type next after something failed; it works as it is typed."""

from pathlib import Path
from typing import TYPE_CHECKING

from dreamgym_kit.cli.output import pasted
from dreamgym_kit.errors import AmbiguousGraph, GraphNotLoaded, UnknownName

if TYPE_CHECKING:
    from dreamgym_kit.errors import UserError

PLACEHOLDER = "placeholder"


def next_command(error: "UserError", command: str, graph: str | None, folder: Path) -> str:
    """Give what to type once what `error` says is mended, with what can be typed to mend it.

    Args:
        error: what stopped the command.
        command: its name.
        graph: what was asked for.
        folder: where the project is.
    """
    from dreamgym_kit.adapters.langgraph.analysis.import_errors import in_env_file

    if isinstance(error, AmbiguousGraph):
        first = error.choices[0]
        return _typed(command, f"{graph}:{first.partition(':')[2]}" if graph else first)
    if isinstance(error, UnknownName) and error.near and graph is not None:
        file, colon, name = graph.rpartition(":")
        return _typed(command, f"{file}{colon}{error.near}" if name == error.name else graph)
    again = _typed(command, graph)
    if isinstance(error, GraphNotLoaded) and error.variables:
        if in_env_file(error.variables, folder):
            return f"set -a; . {pasted(str(folder / '.env'))}; set +a; {again}"
        exports = " ".join(f"{name}={PLACEHOLDER}" for name in error.variables)
        return f"export {exports} && {again}"
    return again


def _typed(command: str, graph: str | None) -> str:
    return " ".join(["dreamgym-kit", command, *([pasted(graph)] if graph else [])])
