"""Which graphs a folder seems to hold, for a person who has not named one. Reads; imports nothing."""

import ast
from collections.abc import Iterator
from pathlib import Path

from dreamgym_kit.errors import UserError

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
