"""The one command to type next after something failed; it works as it is typed."""

import shlex
from pathlib import Path
from typing import TYPE_CHECKING

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
    from dreamgym_kit.adapters.langgraph.import_trouble import in_env_file
    from dreamgym_kit.errors import GraphNotLoaded, SeveralGraphs

    again = ["dreamgym-kit", command, *([graph] if graph else [])]
    if isinstance(error, SeveralGraphs):
        return shlex.join([*again[:2], error.choices[0]])
    if isinstance(error, GraphNotLoaded) and error.variables:
        if in_env_file(error.variables, folder):
            return f"set -a; . {shlex.quote(str(folder / '.env'))}; set +a; {shlex.join(again)}"
        told = " ".join(f"{name}={PLACEHOLDER}" for name in error.variables)
        return f"export {told} && {shlex.join(again)}"
    return shlex.join(again)
