"""Why a user's module or factory could not be loaded, in words that say what to set, install or move.

Reads the exception and the project's folder; nothing is run. Only the user's own frames are told.
"""

import os
import re
import traceback
from collections.abc import Sequence
from pathlib import Path

from dotenv import dotenv_values

from dreamgym_kit.adapters.langgraph.intercept.functions import of_library
from dreamgym_kit.errors import EpisodeStop, GraphNotLoaded, UserError

_OURS = f"{Path(__file__).parents[3]}{os.sep}"  # an editable install is of no library
_AGENTS = f"{_OURS}recipes{os.sep}"  # sample agents that we ship are somebody's own code
_MAX_FRAMES = 6
_MAX_LINES = 4  # of a message that has several
_VARIABLE = re.compile(
    r"\b[A-Z][A-Z0-9]*(?:_[A-Z0-9]+)*_(?:KEY|TOKEN|SECRET|PASSWORD|URL|URI|DSN|ENDPOINT)\b"
)
_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")  # what a shell can set
_AT_IMPORT = 'under `if __name__ == "__main__":`'


def not_loaded(action: str, error: BaseException, folder: Path) -> UserError:
    """Give the error that says why `action` ("importing agent") failed, and what to do about it."""
    if isinstance(error, EpisodeStop):
        at_import = "outside every episode" in str(error)
        hint = f". It runs its agent while it is imported; that belongs {_AT_IMPORT}." if at_import else ""
        return UserError(f"{action}: {error}{hint}")
    variables = _variables(error)
    frames = [f"  {line}" for line in own_frames(error)] or ["  (no frame of your own code)"]
    lines = [f"{action} failed: {_short(error)}", *frames, _hint(error, variables, folder)]
    return GraphNotLoaded("\n".join(line for line in lines if line), variables=variables)


def in_env_file(variables: Sequence[str], folder: Path) -> bool:
    """Whether the folder's .env would set all of them."""
    file = folder / ".env"
    return bool(variables) and file.is_file() and set(variables) <= dotenv_values(file).keys()


def _variables(error: BaseException) -> tuple[str, ...]:
    """The environment variables that are missed; of those that a message offers, the first."""
    frames = traceback.extract_tb(error.__traceback__)
    if isinstance(error, KeyError) and frames and frames[-1].filename.endswith(("os.py", "<frozen os>")):
        return (str(error.args[0]),) if _NAME.fullmatch(str(error.args[0])) else ()
    if isinstance(error, ImportError):
        return ()
    return tuple(name for name in _VARIABLE.findall(str(error)) if name not in os.environ)[:1]


def _hint(error: BaseException, variables: Sequence[str], folder: Path) -> str:
    if variables:
        return (
            f"  It needs {', '.join(variables)}, which is not set. To look at the graph any text will do; "
            "record and simulate ask the real model."
        )
    if isinstance(error, ModuleNotFoundError):
        return f"  Install what the project needs into this environment: {_install(error, folder)}"
    if isinstance(error, SystemExit):
        return f"  It ends the program while it is imported; that belongs {_AT_IMPORT}."
    if isinstance(error, EOFError):
        return f"  It asks for input while it is imported, and nobody answers; that belongs {_AT_IMPORT}."
    return ""


def _install(error: ModuleNotFoundError, folder: Path) -> str:
    if (folder / "pyproject.toml").is_file() or (folder / "setup.py").is_file():
        return "pip install -e ."
    if (folder / "requirements.txt").is_file():
        return "pip install -r requirements.txt"
    return f"the package that has '{(error.name or '').partition('.')[0]}' is missing."


def _short(error: BaseException) -> str:
    """The message on one line; what a settings class lacks stands below its first."""
    stripped = [line.strip() for line in str(error).strip().split("\n")]
    lines = stripped[:_MAX_LINES] if type(error).__name__ == "ValidationError" else stripped[:1]
    text = ": ".join(line for line in lines if line)
    return f"{type(error).__name__}: {text}" if text else type(error).__name__


def raised_by_us(error: BaseException) -> bool:
    """Whether the code that raised it is the kit's."""
    frames = traceback.extract_tb(error.__traceback__)
    return bool(frames) and _is_ours(frames[-1].filename)


def raised_by_agent(error: BaseException) -> bool:
    """Whether the code that raised it is the agent's own: not the kit's, and of no library."""
    frames = traceback.extract_tb(error.__traceback__)
    return bool(frames) and not _is_ours(frames[-1].filename) and not of_library(frames[-1].filename)


def _is_ours(file: str) -> bool:
    return file.startswith(_OURS) and not file.startswith(_AGENTS)


def is_own(file: str) -> bool:
    """Whether code is the user's: none of ours, none of an installed package's."""
    return not _is_ours(file) and not of_library(file)


def own_frames(error: BaseException) -> tuple[str, ...]:
    """The user's part of a traceback, outermost first: no frames of ours or of installed packages."""
    frames = [frame for frame in traceback.extract_tb(error.__traceback__) if is_own(frame.filename)]
    lines = [
        f"{frame.filename}:{frame.lineno} in {frame.name}: {frame.line}" for frame in frames[-_MAX_FRAMES:]
    ]
    if isinstance(error, SyntaxError) and error.filename:  # the line that does not parse has no frame
        lines.append(f"{error.filename}:{error.lineno}: {(error.text or '').strip()}")
    return tuple(lines)
