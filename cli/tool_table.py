"""A graph's tools on a terminal: by effect for a glance, one line each to go through them."""

from collections.abc import Iterator, Sequence

from dreamgym_kit.report.colors import WIDTH, hung
from dreamgym_kit.report.sanitize import one_line
from dreamgym_kit.types import Effect, ToolSpec

_FIRST = 15  # columns before the names
_GAP = 2
_NAME_MAX = 40
_MOST = 160  # columns, also where nothing is folded
_EFFECTS = (Effect.DESTRUCTIVE, Effect.WRITE, Effect.READ, Effect.PURE, Effect.CONTROL)


def format_effects(tools: Sequence[ToolSpec], *, written: str | None = None) -> str:
    """Names in columns under each effect that the tools can have, the irreversible ones first.

    Args:
        tools: all of them.
        written: the file that the guesses stand in for a person to correct, if there is one.
    """
    lines: list[str] = []
    for effect in _EFFECTS:
        names = [_marked(spec) for spec in tools if spec.effect is effect]
        for number, row in enumerate(_columns(sorted(names))):
            lines.append(f"  {'' if number else effect:<12} {row}")
    if any(spec.source == "guessed" for spec in tools):
        where = f"correct it in {written}" if written else "dreamgym-kit init writes them down to correct"
        lines.append(f"  (? is a guess; {where})")
    return "\n".join(lines) or "  no tools"


def tool_rows(tools: Sequence[ToolSpec]) -> list[str]:
    """One line a tool: name, effect, who said so."""
    width = min(_NAME_MAX, max((len(one_line(spec.name)) for spec in tools), default=0))
    rows = []
    for spec in tools:
        head = f"  {one_line(spec.name):<{width}}  {spec.effect:<11}  {spec.source:<9}  "
        rows.append(hung(head, one_line(spec.reason)).rstrip())
    return rows


def _marked(spec: ToolSpec) -> str:
    return one_line(spec.name) + ("?" if spec.source == "guessed" else "")


def _columns(names: Sequence[str]) -> Iterator[str]:
    """Rows of names, read downwards; a name is never cut."""
    if not names:
        return
    width = max(len(name) for name in names) + _GAP
    across = max(1, (min(WIDTH.get(), _MOST) - _FIRST + _GAP) // width)
    down = -(-len(names) // across)
    for row in range(down):
        yield "".join(f"{name:<{width}}" for name in names[row::down]).rstrip()
