"""Does a function act on the world by itself? Read from its code; nothing is called.

Only what the code names is seen: a client in a dictionary or behind `getattr` is not. The guard meets
those while the dream runs.
"""

import dis
import inspect
import types
from collections.abc import Iterator
from typing import Any

from langchain_core.language_models.chat_models import BaseChatModel
from langchain_core.tools import BaseTool
from langgraph.pregel import Pregel

# Modules whose use means that a node acts on the world by itself.
_ACTING_MODULES = frozenset(
    {
        "aiohttp", "aiosmtplib", "asyncpg", "boto3", "botocore", "ftplib", "grpc", "httpx",
        "httpx2", "imaplib", "kafka", "motor", "mysql", "paramiko", "pika", "poplib", "psycopg",
        "psycopg2", "pymongo", "redis", "requests", "selenium", "slack_sdk", "smtplib", "socket",
        "sqlalchemy", "sqlite3", "stripe", "subprocess", "telnetlib", "twilio", "urllib", "urllib3",
        "websockets",
    }
)  # fmt: skip
_HARMLESS = frozenset({"urllib.error", "urllib.parse"})  # parts of those that only compute
_MAX_DEPTH = 4


def acts_by_itself(
    function: types.FunctionType, depth: int = 0, seen: frozenset[int] = frozenset()
) -> str | None:
    """Name the first acting module that a function's own code, or code of its package that it names, uses.

    Functions that the gate already holds are the gate's.
    """
    if id(function) in seen or depth > _MAX_DEPTH:
        return None
    if function.__code__.co_filename.startswith("<gate in "):
        return None
    package = (function.__module__ or "").partition(".")[0]
    for value in _names_used(function):
        module = _module_of(value)
        if module in _ACTING_MODULES:
            return module
        inner = inspect.unwrap(value) if callable(value) and not isinstance(value, type) else value
        if isinstance(inner, types.FunctionType) and (inner.__module__ or "").partition(".")[0] == package:
            found = acts_by_itself(inner, depth + 1, seen | {id(function)})
            if found:
                return found
    return None


def _names_used(function: types.FunctionType) -> Iterator[Any]:
    """Values of the global names, imported modules and closure cells that the code names."""
    codes = [function.__code__]
    while codes:
        code = codes.pop()
        codes.extend(constant for constant in code.co_consts if isinstance(constant, types.CodeType))
        instructions = list(dis.get_instructions(code))
        for place, instruction in enumerate(instructions):
            if instruction.opname == "LOAD_GLOBAL" and instruction.argval in function.__globals__:
                yield _attribute_of(function.__globals__[instruction.argval], instructions[place + 1 :])
            elif instruction.opname == "IMPORT_NAME":
                yield types.ModuleType(str(instruction.argval))
    for cell in function.__closure__ or ():
        try:
            yield cell.cell_contents
        except ValueError:
            continue


def _attribute_of(value: Any, following: list[dis.Instruction]) -> Any:
    """What code takes from a module that it names: `urllib.parse.quote` is no `urllib`."""
    for instruction in following:
        if not isinstance(value, types.ModuleType) or instruction.opname not in ("LOAD_ATTR", "LOAD_METHOD"):
            break
        try:
            value = vars(value)[instruction.argval]
        except KeyError:
            break
    return value


def _module_of(value: Any) -> str:
    if isinstance(value, types.ModuleType):
        return "" if value.__name__ in _HARMLESS else value.__name__.partition(".")[0]
    owner = value if isinstance(value, type) else type(value)
    if isinstance(value, (BaseTool, BaseChatModel, Pregel)) or issubclass(owner, BaseException):
        return ""
    module = (getattr(value, "__module__", None) if inspect.isroutine(value) else owner.__module__) or ""
    if module in _HARMLESS:
        return ""
    return str(module).partition(".")[0].lstrip("_")
