"""How does a function act on the world? Read from its code and the values that it names; nothing is called.

Only what the code names is seen: a client in a database of clients is not. The guard meets those while the
dream runs.

Whether code changes what outlives its call is read from its bytecode. A list that the code made itself, or
was handed, may grow: that is computing. What it has from a global name, an attribute, a closure or a call may
be somebody else's. Only straight stretches of code are followed; after each jump, and after each instruction
that is not known here, nothing is taken for the code's own.
"""

import builtins
import collections
import contextlib
import copy
import dis
import functools
import gc
import inspect
import io
import itertools
import os
import re
import sys
import types
from collections.abc import Iterator, Mapping, Sequence, Sized
from dataclasses import dataclass, field
from typing import Any

from langchain_core.language_models import BaseLanguageModel
from langchain_core.language_models.chat_models import BaseChatModel
from langchain_core.runnables import Runnable, RunnableSequence
from langchain_core.tools import BaseTool, StructuredTool, Tool, tool
from langgraph.pregel import Pregel
from pydantic import BaseModel

from dreamgym_kit.adapters.langgraph.analysis.gc_objects import closure_of
from dreamgym_kit.adapters.langgraph.analysis.nodes import is_framework
from dreamgym_kit.adapters.langgraph.intercept.functions import of_library, real_of, under

_CHANGES = frozenset(
    {
        "append", "extend", "insert", "add", "update", "setdefault", "pop", "popitem", "remove",
        "discard", "clear",
    }
)  # fmt: skip
_CONTAINER = {"STORE_SUBSCR": 2, "DELETE_SUBSCR": 2, "STORE_ATTR": 1, "DELETE_ATTR": 1, "STORE_SLICE": 3}
"""Instructions that change something, and how deep in the stack it lies."""
_MAKERS = (
    list, dict, set, tuple, sorted, str, int, float, bool, len, repr, bytes, bytearray,
    collections.defaultdict, collections.Counter, collections.deque, collections.OrderedDict, copy.deepcopy,
)  # fmt: skip
_MAKES = frozenset(
    {
        "BUILD_LIST", "BUILD_MAP", "BUILD_SET", "BUILD_TUPLE", "BUILD_CONST_KEY_MAP", "BUILD_STRING",
        "FORMAT_VALUE", "FORMAT_SIMPLE", "FORMAT_WITH_SPEC", "LOAD_CONST", "LOAD_SMALL_INT",
    }
)  # fmt: skip
_DROPS = frozenset(
    {
        "POP_TOP", "STORE_DEREF", "STORE_GLOBAL", "STORE_NAME",
        # into a literal that is being built
        "LIST_EXTEND", "LIST_APPEND", "SET_UPDATE", "SET_ADD", "DICT_UPDATE", "DICT_MERGE", "MAP_ADD",
    }
)  # fmt: skip
_ATTRIBUTE = ("LOAD_ATTR", "LOAD_METHOD")
_GIVES = frozenset({"LOAD_DEREF", "LOAD_NAME", "LOAD_CLOSURE", "PUSH_NULL"})
_COMBINES = frozenset({"BINARY_OP", "BINARY_SUBSCR", "COMPARE_OP", "IS_OP", "CONTAINS_OP"})
_IDLE = frozenset(
    {"NOP", "CACHE", "PRECALL", "KW_NAMES", "RESUME", "COPY_FREE_VARS", "MAKE_CELL", "NOT_TAKEN"}
)
_JUMPS = frozenset(dis.hasjrel) | frozenset(dis.hasjabs)


@functools.lru_cache(maxsize=512)
def instructions_of(code: types.CodeType) -> tuple[dis.Instruction, ...]:
    """The instructions of a code object; each is read several times in the start of a dream."""
    return tuple(dis.get_instructions(code))


@functools.lru_cache(maxsize=4096)
def _may_change(code: types.CodeType) -> bool:
    """Whether any instruction changes something: most functions have none."""
    return any(map(_changes_at, instructions_of(code)))


def _changes_at(instruction: dis.Instruction) -> int:
    """How deep in the stack what an instruction changes lies; 0: it changes nothing."""
    by_method = instruction.opname in _ATTRIBUTE and instruction.argval in _CHANGES
    return 1 if by_method else _CONTAINER.get(instruction.opname, 0)


class _Made:
    """Made by the code itself, or immutable."""


class _Maker:
    """A callable that gives something new."""


_Label = str | type[_Made] | type[_Maker] | None  # a local's name; None: it may be somebody else's


def changes_others(code: types.CodeType, names: Mapping[str, Any], *, handed: bool) -> bool:
    """Whether code may change what it neither made nor was handed.

    Args:
        code: of one function, without those inside it.
        names: the global names of its module.
        handed: its arguments are its caller's matter; else, as a lambda's inside it, they may be anybody's.
    """
    count = code.co_argcount + code.co_kwonlyargcount
    return _Stretches(names, () if handed else code.co_varnames[:count]).changes(code)


class _Stretches:
    """One reading of one code object."""

    def __init__(self, names: Mapping[str, Any], others: tuple[str, ...]) -> None:
        self._names = names
        self._stack: list[_Label] = []
        self._came_of: dict[str, list[_Label]] = {
            other: [None] for other in others
        }  # what was stored in each
        self._changed: list[_Label] = []

    def changes(self, code: types.CodeType) -> bool:
        """See `changes_others`."""
        if not _may_change(code):
            return False
        for instruction in instructions_of(code):
            if instruction.is_jump_target:
                self._stack.clear()
            self._step(instruction)
        return not all(self._own(label, set()) for label in self._changed)

    def _own(self, label: _Label, seen: set[str]) -> bool:
        if not isinstance(label, str):
            return label is _Made
        if label in seen:
            return True
        seen.add(label)
        return all(self._own(source, seen) for source in self._came_of.get(label, ()))

    def _step(self, instruction: dis.Instruction) -> None:
        name = instruction.opname
        if name in _IDLE:
            return
        if depth := _changes_at(instruction):
            self._changed.append(self._at(depth))
        if name.startswith(("LOAD_FAST", "STORE_FAST")):
            self._local(instruction)
        elif name == "CALL":
            self._call(int(instruction.arg or 0))
        elif name in ("SWAP", "COPY"):
            self._move(name, int(instruction.arg or 0))
        elif (moved := self._moved(instruction)) is not None:
            self._pop(moved[0])
            self._stack.extend(moved[1])
        else:  # a jump, or what is not known here
            self._stack.clear()
        if instruction.opcode in _JUMPS:
            self._stack.clear()

    def _moved(self, instruction: dis.Instruction) -> tuple[int, list[_Label]] | None:
        """How many an instruction takes off the stack, and what it puts there."""
        name, effect = instruction.opname, dis.stack_effect(instruction.opcode, instruction.arg, jump=False)
        if name in _MAKES:
            return 1 - effect, [_Made]
        if name in _DROPS or name in _CONTAINER:
            return -effect, []
        if name in _GIVES:
            return 0, [None]
        if name == "LOAD_GLOBAL":
            return 0, [self._global(str(instruction.argval))] * effect
        if name in _ATTRIBUTE:
            return 1, [None] * (1 + effect)
        return (2, [None]) if name in _COMBINES else None

    def _local(self, instruction: dis.Instruction) -> None:
        """Locals are loaded and stored one at a time, or, in later Pythons, in pairs."""
        if "AND_CLEAR" in instruction.opname:
            self._stack.append(None)
            return
        locals_ = instruction.argval if isinstance(instruction.argval, tuple) else (instruction.argval,)
        steps = [step for step in instruction.opname.split("_") if step in ("LOAD", "STORE")]
        for step, local in zip(steps, locals_, strict=True):
            if step == "LOAD":
                self._stack.append(str(local))
            else:
                self._came_of.setdefault(str(local), []).append(self._pop(1))

    def _global(self, name: str) -> _Label:
        value = self._names.get(name, vars(builtins).get(name))
        return _Maker if any(value is maker for maker in _MAKERS) else None

    def _call(self, count: int) -> None:
        self._pop(count)
        called = (self._pop(1), self._pop(1))  # a callable and an empty place, in either order
        self._stack.append(_Made if _Maker in called else None)

    def _move(self, name: str, depth: int) -> None:
        stack = self._stack
        if name == "COPY":
            stack.append(self._at(depth))
        elif depth > len(stack):
            stack.clear()
        else:
            stack[-1], stack[-depth] = stack[-depth], stack[-1]

    def _at(self, depth: int) -> _Label:
        return self._stack[-depth] if depth <= len(self._stack) else None

    def _pop(self, count: int) -> _Label:
        """Take so many; gives the last one taken."""
        label: _Label = None
        for _ in range(count):
            label = self._stack.pop() if self._stack else None
        return label


# Modules whose use means that a function acts on the world by itself.
_ACTING_MODULES = frozenset(
    {
        "aiobotocore", "aiofiles", "aiohttp", "aiokafka", "aiomysql", "aiosmtplib", "aiosqlite", "asana",
        "asyncio.streams", "asyncio.subprocess", "asyncpg", "asyncssh", "atlassian", "azure", "boto3",
        "botocore", "braintree", "cassandra", "celery", "chromadb", "clickhouse_connect",
        "clickhouse_driver", "concurrent.futures.process", "confluent_kafka", "curl_cffi", "dbm", "discord",
        "distributed", "docker", "dramatiq", "dropbox", "duckdb", "elasticsearch", "exchangelib", "fabric",
        "firebase_admin", "ftplib", "git", "github", "gitlab", "google.cloud", "googleapiclient", "grpc",
        "gspread", "http.client", "httplib2", "httpx", "httpx2", "hubspot", "huey", "hvac", "imaplib",
        "intercom", "jira", "kafka", "kubernetes", "langgraph_sdk", "ldap3", "minio", "mmap", "motor",
        "msgraph", "multiprocessing.connection", "multiprocessing.managers", "multiprocessing.pool",
        "multiprocessing.queues", "multiprocessing.shared_memory", "mysql", "nats", "neo4j",
        "notion_client", "O365", "opensearchpy", "oracledb", "paramiko", "paypalrestsdk", "pexpect", "pika",
        "pinecone", "plaid", "playwright", "poplib", "praw", "psycopg", "psycopg2", "psycopg_pool",
        "pycurl", "pymongo", "pymysql", "pyodbc", "pysftp", "qdrant_client", "ray", "razorpay", "redis",
        "requests", "resend", "rq", "selenium", "sendgrid", "serial", "shelve", "shopify", "shutil",
        "simple_salesforce", "slack_bolt", "slack_sdk", "smbclient", "smtplib", "snowflake",
        "socket", "sqlalchemy", "sqlite3", "sqlmodel", "square", "stripe", "subprocess", "supabase",
        "telegram", "telethon", "telnetlib", "tornado.httpclient", "trello", "treq", "tweepy", "twilio",
        "urllib", "urllib3", "weaviate", "websocket", "websockets", "zeep", "zenpy", "zmq",
    }
)  # fmt: skip
_HARMLESS = frozenset({"urllib.error", "urllib.parse"})  # parts of those that only compute
_HARMLESS_NAMES = frozenset(
    {
        "httpx.Headers", "httpx.QueryParams", "httpx.Timeout", "httpx.URL", "multiprocessing.pool.ThreadPool",
        "shutil.disk_usage", "shutil.get_terminal_size", "shutil.which", "socket.gethostname",
        "socket.inet_aton", "socket.inet_ntoa", "sqlite3.Row", "subprocess.list2cmdline",
    }
)  # fmt: skip
_ACTING_OF_OS = frozenset(
    {
        "chmod", "execv", "execve", "kill", "killpg", "link", "makedirs", "mkdir", "popen",
        "posix_spawn", "remove", "removedirs", "rename", "replace", "rmdir", "spawnv", "symlink",
        "system", "truncate", "unlink", "write",
    }
)  # fmt: skip
_COMPUTES = frozenset(
    {
        "annotated_types", "anthropic", "attr", "attrs", "dateutil", "jinja2", "loguru", "mcp",
        "numpy", "openai", "pandas", "polars", "pydantic", "pydantic_core", "pytz", "scipy",
        "structlog", "tenacity", "tiktoken", "typing_extensions", "yaml",
    }
)  # fmt: skip
_CLIENT = re.compile(r"(Client|Collection|Connection|Database|Driver|Pool|Producer|Session)$")
_FOR_WRITING = re.compile(r"(?=.*[wax+])[rwaxbtU+]{1,4}")
OPENS = "a file opened for writing"
OPEN = "a file or connection that is open already"
UNREADABLE = "a value that cannot be read"
_HTTP = ("aiohttp", "httpx", "requests")
_SENDS = frozenset({"delete", "get", "patch", "post", "put", "request", "send", "stream"})
"""Code without these that names a class of chat models makes its HTTP client for the model."""
_WRITE_WORDS = frozenset({"write_text", "write_bytes"})
_STORES = frozenset({"STORE_SUBSCR", "DELETE_SUBSCR", "STORE_ATTR", "DELETE_ATTR"})


@dataclass(frozen=True, slots=True)
class Reached:
    """A user's function that code can come to."""

    function: types.FunctionType
    owner: Any = None  # the object or class that it is a method of
    name: str = ""  # under which it is looked up at run time; a callable given by name
    chosen: bool = False  # at run time, by what a model or a table says


@dataclass(slots=True)
class Reading:
    """What the code of one function says."""

    acts: str | None = None  # what it reaches the world by
    doubt: str | None = None  # else: why it is not known to only compute
    reached: list[Reached] = field(default_factory=list)
    graphs: list[Pregel[Any]] = field(default_factory=list)
    forms: list[type] = field(default_factory=list)  # of the user's own: what a model's answer is made into
    words: frozenset[str] = frozenset()  # names and attributes in the code


def read(
    function: types.FunctionType, owner: Any = None, *, makes: bool = False, given: Sequence[Any] = ()
) -> Reading:
    """Read one function's own code, and what it names of the user's and of the arguments of a call.

    With `makes`, a function that makes tools is not taken for what they do: they are met when called.
    """
    function = real_of(function)
    if makes:
        function = _without_made(function)
    codes = list(codes_of(function.__code__))
    words = frozenset(name for code in codes for name in code.co_names)
    reading = Reading(words=words)
    stores = {instruction.opname for code in codes for instruction in instructions_of(code)}
    changes = any(
        changes_others(code, function.__globals__, handed=code is function.__code__) for code in codes
    )
    made = owner is None or function.__name__ in ("__init__", "__post_init__")  # an object of the call's own
    if "STORE_GLOBAL" in stores or (not made and stores & _STORES):
        reading.doubt = "state that outlives the call"
    chosen = "with_structured_output" in words
    values = [
        *_names_used(function),
        *(function.__defaults__ or ()),
        *(function.__kwdefaults__ or {}).values(),
    ]
    values += _attributes([*given, owner, *values], words, 1 + len(given))
    makes_model = any(issubclass(type(one), type) and issubclass(one, BaseLanguageModel) for one in values)
    makes_model = makes_model and not words & (_SENDS - {"get"} if "environ" in words else _SENDS)
    for value in values:
        try:
            chosen = chosen or value is exec or value is eval or _is_structured(value)
            if not (makes_model and _module_of(value).partition(".")[0] in _HTTP):
                reading.acts = reading.acts or acts_by(value)
            reading.doubt = reading.doubt or _doubt(value, function, changes=changes)
        except Exception:  # noqa: BLE001  a proxy may raise from anything, and what it stands for is not known
            reading.doubt = reading.doubt or UNREADABLE
    for value in values:
        with contextlib.suppress(Exception):
            reading.graphs += [value] if isinstance(value, Pregel) else []
            reading.forms += _forms(value)
            reading.reached += list(_reached(value, words, chosen=chosen))
    if reading.acts is None and (words & _WRITE_WORDS or any(map(_opens_for_writing, codes))):
        reading.acts = OPENS
    return reading


def is_users(function: Any) -> bool:
    """Whether a function is of the user's own code, not of a library or of what a library made."""
    return (
        isinstance(function, types.FunctionType)
        and not of_library(function)
        and not is_framework(function.__module__ or "")
    )


def codes_of(code: types.CodeType) -> Iterator[types.CodeType]:
    """A code object, and those of the functions and classes written in it."""
    yield code
    for constant in code.co_consts:
        if isinstance(constant, types.CodeType):
            yield from codes_of(constant)


def _without_made(function: types.FunctionType) -> types.FunctionType:
    """Return a function that makes tools without the inner functions that it does not call, else itself."""
    code = function.__code__
    named = (function.__globals__.get(name) for name in code.co_names)
    if not any(value is tool or value is StructuredTool or value is Tool for value in named):
        return function
    listed = [step for step in instructions_of(code) if step.opname not in ("CACHE", "COPY_FREE_VARS")]
    called = {
        step.argval
        for before, step, after in zip(listed, listed[1:], listed[2:], strict=False)
        if "PUSH_NULL" in (before.opname, after.opname) and step.opname.startswith("LOAD_")
    }
    constants = tuple(
        None if isinstance(constant, types.CodeType) and constant.co_name not in called else constant
        for constant in code.co_consts
    )
    made = types.FunctionType(
        code.replace(co_consts=constants), function.__globals__, function.__name__, None, function.__closure__
    )
    made.__kwdefaults__, made.__defaults__ = function.__kwdefaults__, function.__defaults__
    made.__module__ = function.__module__
    return made


@functools.lru_cache(maxsize=4096)
def asks_arguments(code: types.CodeType) -> bool:
    """Whether code uses an attribute of an argument: what it does depends on what it is given."""
    names = code.co_varnames[: code.co_argcount + code.co_kwonlyargcount]
    return any(
        before.opname.startswith(("LOAD_FAST", "LOAD_DEREF"))
        and step.opname in ("LOAD_ATTR", "LOAD_METHOD")
        and (before.argval[-1] if isinstance(before.argval, tuple) else before.argval) in names
        for inner in codes_of(code)
        for before, step in itertools.pairwise(instructions_of(inner))
    )


@functools.lru_cache(maxsize=4096)
def _opens_for_writing(code: types.CodeType) -> bool:
    """Whether a mode for writing is among the arguments of an `open`; its first argument is a path."""
    instructions = [
        instruction
        for instruction in instructions_of(code)
        if instruction.opname not in ("CACHE", "PUSH_NULL")
    ]
    for place, instruction in enumerate(instructions):
        if instruction.argval == "open" and instruction.opname.startswith("LOAD_"):
            function = instruction.opname in ("LOAD_GLOBAL", "LOAD_NAME")
            given = constants_given(instructions[place + 1 : place + 40])[1 if function else 0 :]
            if any(type(text) is str and _FOR_WRITING.fullmatch(text) for text in given):
                return True
    return False


def constants_given(following: Sequence[dis.Instruction]) -> list[Any]:
    """Constant arguments of the call whose function was loaded last; None for each that is computed.

    Where branches make the arguments' number unclear, all constants that follow.
    """
    stack: list[Any] = []
    for instruction in following:
        calls = instruction.opname.startswith(("PRECALL", "CALL"))  # the first is Python 3.11's
        if calls and len(stack) == (instruction.arg or 0) + (instruction.opname == "CALL_KW"):
            return stack
        height = len(stack) + dis.stack_effect(instruction.opcode, instruction.arg, jump=False)
        loaded = instruction.argval if "CONST" in instruction.opname else None
        stack = [*stack[:height], *[None] * (height - len(stack) - 1), loaded][: max(height, 0)]
    return [None, *(instruction.argval for instruction in following if "CONST" in instruction.opname)]


def _names_used(function: types.FunctionType) -> Iterator[Any]:
    """Values of the global names, imported modules and closure cells that the code names."""
    for code in codes_of(function.__code__):
        instructions = instructions_of(code)
        for place, instruction in enumerate(instructions):
            after = instructions[place + 1 : place + 60]  # of one import, or one chain of attributes
            if instruction.opname in ("LOAD_GLOBAL", "LOAD_NAME"):
                value = function.__globals__.get(instruction.argval, vars(builtins).get(instruction.argval))
                yield _attribute_of(value, after)
            elif instruction.opname == "IMPORT_NAME":
                yield from _imported(str(instruction.argval), after)
    yield from closure_of(function)


def _imported(name: str, following: Sequence[dis.Instruction]) -> Iterator[Any]:
    """What an import inside a function gives, where the module is loaded; else its name has to do."""
    module = sys.modules.get(name) or types.ModuleType(name)
    names = []
    for instruction in following:
        if instruction.opname == "IMPORT_FROM":
            names.append(str(instruction.argval))
        elif (names and instruction.opname == "POP_TOP") or not instruction.opname.startswith(
            ("STORE_", "IMPORT_FROM", "CACHE")
        ):
            break
    yield from (vars(module).get(key, types.ModuleType(name)) for key in names) if names else (module,)


def _attribute_of(value: Any, following: Sequence[dis.Instruction]) -> Any:
    """What code takes from a module that it names: `urllib.parse.quote` is no `urllib`."""
    for instruction in following:
        module = issubclass(type(value), types.ModuleType)  # a proxy may raise from being asked for its class
        if not module or instruction.opname not in ("LOAD_ATTR", "LOAD_METHOD"):
            break
        try:
            value = vars(value)[instruction.argval]
        except KeyError:
            break
    return value


def _attributes(owners: list[Any], words: frozenset[str], of_any: int) -> list[Any]:
    """Return the attributes that the code names, of the first owners and of the user's objects."""
    values: list[Any] = []
    for place in range(_MAX_ATTRIBUTES):
        if place == len(owners):
            break
        owner = owners[place]
        if place >= of_any and not _is_users(owner):
            continue
        of_owner = [value for name in words if (value := _attribute(owner, name)) is not None]
        values += of_owner
        owners += [value for value in of_owner if not any(value is other for other in owners)]
    return values


def _is_users(value: Any) -> bool:
    try:
        return is_users_object(value)
    except Exception:  # noqa: BLE001  a proxy may raise from anything: it is not read
        return False


def _attribute(owner: Any, name: str) -> Any:
    """What an object or its class has under a name, without running any code of it."""
    if owner is None or issubclass(type(owner), types.ModuleType):
        return None
    value = inspect.getattr_static(owner, name, None)
    if value is None and issubclass(type(owner), BaseModel):
        value = (object.__getattribute__(owner, "__pydantic_private__") or {}).get(name)
    if type(value) is types.MemberDescriptorType and not isinstance(owner, type):  # a slot
        with contextlib.suppress(AttributeError):
            value = value.__get__(owner)
    if isinstance(value, (staticmethod, classmethod)):
        value = value.__func__
    return types.MethodType(value, owner) if isinstance(value, types.FunctionType) else value


def acts_by(value: Any) -> str | None:
    """Return what a value is or reaches outside the process; None: nothing known."""
    if isinstance(value, io.IOBase):
        return OPEN if _is_open_for_writing(value) else None
    if type(value) in (dict, list, tuple, set) and len(value) <= _MAX_IN_A_TABLE:  # of clients alone
        acting = [acts_by(entry) for entry in (value.values() if type(value) is dict else value)]
        return acting[0] if acting and all(acting) else None
    if isinstance(value, types.BuiltinFunctionType | types.FunctionType):
        name = value.__name__
        if name in _ACTING_OF_OS and vars(os).get(name) is value:
            return f"os.{name}"
    module = _module_of(value)
    named = isinstance(value, type) or inspect.isroutine(value)  # of others it might run code
    if f"{module}.{getattr(value if named else type(value), '__name__', '')}" in _HARMLESS_NAMES:
        return None
    parts = module.split(".")
    packages = (".".join(parts[:end]) for end in (1, 2, 3))
    acting_module = next((name for name in packages if name in _ACTING_MODULES), None)
    if acting_module is not None or named or isinstance(value, types.ModuleType):
        return acting_module
    if parts[0] in sys.stdlib_module_names and parts[0] != "logging" and _holds_stream(value):
        return OPEN
    library = parts[0] not in sys.stdlib_module_names | _COMPUTES and not is_framework(module)
    client = _CLIENT.search(type(value).__name__) and library and is_library_class(type(value))
    return f"{parts[0]}.{type(value).__name__}" if client else None


def _is_open_for_writing(stream: io.IOBase) -> bool:
    """Whether what is written there leaves the process: not a buffer in memory, not its own output."""
    if is_users_object(stream):  # its `writable` is the user's code, which is not run here
        return True
    if isinstance(stream, (io.BytesIO, io.StringIO)) or stream is sys.stdout or stream is sys.stderr:
        return False
    try:
        return stream.writable()
    except ValueError:  # closed
        return False


def _holds_stream(value: Any) -> bool:
    """Whether an object of Python's own library (a csv writer, an archive) writes to an open file."""
    if isinstance(value, Sized) and len(value) > _MAX_IN_A_TABLE:
        return False
    held = gc.get_referents(value)
    tables = [part for part in held if type(part) is dict and len(part) <= _MAX_IN_A_TABLE]
    held += [inner for part in tables for inner in part.values()]
    owners = (part.__self__ if type(part) is types.BuiltinFunctionType else part for part in held)
    return any(isinstance(owner, io.IOBase) and _is_open_for_writing(owner) for owner in owners)


def _doubt(value: Any, function: types.FunctionType, *, changes: bool) -> str | None:
    """Why code that names this value is not known to only compute."""
    if value is sys.stdout or value is sys.stderr:
        return "a stream of the process"
    if isinstance(value, Runnable):
        return None
    plain = isinstance(value, (dict, list, set)) or (type(value).__dictoffset__ and is_users_object(value))
    if plain and changes and not isinstance(value, type | types.ModuleType) and not callable(value):
        return "state that outlives the call"
    module = _module_of(value)
    top = module.partition(".")[0]
    own = (function.__module__ or "").partition(".")[0]
    if top in sys.stdlib_module_names | _COMPUTES | {"", own} or is_framework(module):
        return None
    library = value.__name__ not in sys.modules if isinstance(value, types.ModuleType) else True
    return top if library and _is_of_library(value) else None


def _reached(value: Any, words: frozenset[str], *, chosen: bool, name: str = "") -> Iterator[Reached]:
    """The user's functions behind a value: itself, a table's entries, an object's methods."""
    inner, owner = unpacked(value)
    if isinstance(owner, BaseTool) or isinstance(value, (BaseTool, BaseChatModel)):
        return
    if is_users(inner):
        yield Reached(inner, owner, name, chosen or type(value).__name__ == _TASK)
    elif isinstance(value, (dict, list, tuple, set, frozenset)):
        yield from _of_table(value, words, name) if len(value) <= _MAX_IN_A_TABLE else ()
    elif isinstance(value, types.ModuleType):
        if "getattr" in words and not _is_of_library(value):
            of_module = ((key, item) for key, item in list(vars(value).items()) if is_users(item))
            yield from (
                Reached(item, None, key, True) for key, item in of_module if item.__module__ == value.__name__
            )
    elif is_users_object(value):
        yield from _methods(value, words, chosen=chosen, name=name)


def unpacked(value: Any) -> tuple[Any, Any]:
    """What a partial, a task, a method, a cache or a decorator of a library runs; and what it is bound to."""
    owner = None
    while True:
        if isinstance(value, types.MethodType):
            value, owner = value.__func__, value.__self__
        elif isinstance(value, functools.partial) or type(value).__name__ == _TASK:
            value = value.func
        elif under(value) is not value:
            value = under(value)
        elif not is_users(value) and isinstance(wrapped := _wrapped(value), types.FunctionType):
            value = wrapped
        else:
            return value, owner


def _wrapped(value: Any) -> Any:
    """What a decorator was put around; looked up without running code of the value."""
    if type(value) is types.FunctionType:  # nearly all are: its own attributes are all that it has
        return value.__dict__.get("__wrapped__")
    return inspect.getattr_static(value, "__wrapped__", None)


def _of_table(table: Any, words: frozenset[str], name: str) -> Iterator[Reached]:
    for key, entry in table.items() if isinstance(table, dict) else ((None, entry) for entry in table):
        if callable(entry) or isinstance(entry, (dict, list, tuple)) or is_users_object(entry):
            yield from _reached(entry, words, chosen=True, name=key if isinstance(key, str) else name)


_MAX_ATTRIBUTES = 200
_TASK = "_TaskFunction"  # what `@task` makes
_MAX_IN_A_TABLE = 500


def _methods(value: Any, words: frozenset[str], *, chosen: bool, name: str) -> Iterator[Reached]:
    """Methods that code may call on a user's object or class: those that it names, or any if by `getattr`."""
    kind = value if isinstance(value, type) else type(value)
    made = (
        {"__init__", "__post_init__"} if isinstance(value, type) else {"__call__", "__enter__", "__aenter__"}
    )
    for cls in kind.__mro__:
        for key, entry in vars(cls).items():
            method: Any = entry.__func__ if isinstance(entry, (staticmethod, classmethod)) else under(entry)
            dynamic = "getattr" in words and not key.startswith("_") and not isinstance(value, type)
            if is_users(method) and (key in words | made or dynamic):
                yield Reached(method, value, name if key in {"__call__", "run"} else key, chosen or dynamic)


def _is_structured(value: Any) -> bool:
    """Whether a runnable is a model that answers in a form: code chooses by what it says."""
    if not isinstance(value, RunnableSequence):
        return False
    return any("ls_structured_output_format" in (getattr(step, "kwargs", None) or {}) for step in value.steps)


def _forms(value: Any) -> list[type]:
    """The user's classes that a model answers in, by a runnable: code may call their methods."""
    if not _is_structured(value):
        return []
    given = [getattr(step, name, None) for step in value.steps for name in ("tools", "pydantic_object")]
    listed = [kind for entry in given for kind in (entry if isinstance(entry, list) else [entry])]
    return [kind for kind in listed if isinstance(kind, type) and is_users_object(kind)]


def form_methods(kind: type, words: frozenset[str]) -> Iterator[Reached]:
    """Methods of such a class that code names: what a model chose is done by them."""
    for method in _methods(kind, words, chosen=True, name=kind.__name__):
        if method.name not in ("__init__", "__post_init__"):
            yield Reached(method.function, kind, kind.__name__, True)


def is_users_object(value: Any) -> bool:
    """Whether a value is a class of the user's own code, or an object of one."""
    kind = value if isinstance(value, type) else type(value)
    if issubclass(kind, (BaseTool, BaseException, Runnable)) or kind.__module__ == "builtins":
        return False
    return not is_library_class(kind)


def is_library_class(kind: type) -> bool:
    """Whether a class is not of the user's own code."""
    module = sys.modules.get(kind.__module__)
    return module is None or _is_of_library(module) or is_framework(kind.__module__)


def _is_of_library(value: Any) -> bool:
    module = value if isinstance(value, types.ModuleType) else sys.modules.get(_module_of(value))
    return module is not None and of_library(vars(module).get("__file__") or "<built in>")


def _module_of(value: Any) -> str:
    if isinstance(value, types.ModuleType):
        return "" if value.__name__ in _HARMLESS else value.__name__
    owner = value if isinstance(value, type) else type(value)
    if isinstance(value, (BaseTool, BaseChatModel, Pregel)) or issubclass(owner, BaseException):
        return ""
    module = (getattr(value, "__module__", None) if inspect.isroutine(value) else owner.__module__) or ""
    return "" if module in _HARMLESS else str(module).lstrip("_")
