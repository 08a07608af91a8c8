"""What to type next: after a failure, or where no graph was named. Imports nothing of the project."""

import ast
from collections.abc import Iterator
from pathlib import Path

from dreamgym_kit.cli.output import pasted
from dreamgym_kit.errors import AmbiguousGraph, GraphNotLoaded, UnknownName, UserError

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
        return typed_command(command, f"{graph}:{first.partition(':')[2]}" if graph else first)
    if isinstance(error, UnknownName) and error.near and graph is not None:
        file, colon, name = graph.rpartition(":")
        return typed_command(command, f"{file}{colon}{error.near}" if name == error.name else graph)
    again = typed_command(command, graph)
    if isinstance(error, GraphNotLoaded) and error.variables:
        if in_env_file(error.variables, folder):
            return f"set -a; . {pasted(str(folder / '.env'))}; set +a; {again}"
        exports = " ".join(f"{name}={PLACEHOLDER}" for name in error.variables)
        return f"export {exports} && {again}"
    return again


def typed_command(command: str, graph: str | None) -> str:
    """A command of ours with a graph, to paste into a shell."""
    return " ".join(["dreamgym-kit", command, *([pasted(graph)] if graph else [])])


_MAKERS = frozenset(
    {"compile", "create_agent", "create_react_agent", "create_deep_agent", "create_supervisor"}
)
_MAX_FILES = 500
_MAX_BYTES = 1_000_000


def graphs_here(folder: Path) -> list[str]:
    """Give what could be named, the surest first: graphs of langgraph.json, then of modules at hand."""
    from dreamgym_kit.adapters.langgraph.analysis.projects import PROJECT_FILE, graphs_of

    if (folder / PROJECT_FILE).is_file():
        try:
            return [f"{PROJECT_FILE}:{name}" for name in graphs_of(folder / PROJECT_FILE)]
        except UserError:
            return []
    files = sorted([*folder.glob("*.py"), *folder.glob("src/*.py"), *folder.glob("src/*/*.py")])[:_MAX_FILES]
    return [f"{file.relative_to(folder)}:{name}" for file in files for name in _made_in(file)]


def _made_in(file: Path) -> Iterator[str]:
    """Names that a module gives to what makes a graph."""
    try:
        if file.stat().st_size > _MAX_BYTES:
            return
        parsed = ast.parse(file.read_bytes())
    except (OSError, SyntaxError, ValueError, RecursionError, MemoryError):
        return
    for statement in parsed.body:
        if isinstance(statement, ast.Assign) and isinstance(statement.value, ast.Call):
            made_by = statement.value.func
            called = getattr(made_by, "attr", None) or getattr(made_by, "id", None)
            if called in _MAKERS and not _is_pattern(made_by):
                yield from (target.id for target in statement.targets if isinstance(target, ast.Name))


def _is_pattern(function: ast.expr) -> bool:
    """`re.compile` makes no graph."""
    owner = function.value if isinstance(function, ast.Attribute) else None
    return isinstance(owner, ast.Name) and owner.id in ("re", "regex")
