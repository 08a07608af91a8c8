"""Where settings come from: `dreamgym.toml`, then the environment; flags are laid over by the command.

The file is the nearest `dreamgym.toml` at or above the start folder. Every key has an environment
variable: `DREAMGYM_` and the section and the key in capitals, joined by underscores
(`DREAMGYM_SIMULATE_REPEATS`, `DREAMGYM_LIMITS_MAX_SECONDS`; keys of the top: `DREAMGYM_GRAPH`). Lists are
separated by commas. A table with names of the user's own (tools, functions, nodes, checkers, environments)
is one variable with a JSON object, laid over the file's table name by name. Paths in the file are
relative to the file, paths in the environment to the current folder.
"""

import os
import tomllib
from collections.abc import Iterable, Mapping
from contextlib import suppress
from dataclasses import replace
from fnmatch import fnmatchcase
from functools import cache, partial, reduce
from pathlib import Path
from typing import Any, get_origin

from dreamgym_kit.bounded_json import read_json
from dreamgym_kit.errors import NotSerializable, UnknownName, UserError
from dreamgym_kit.settings.buffer_url import buffer_of, place_of
from dreamgym_kit.settings.read import keys_of, lines_of, read_settings, renamed, sections
from dreamgym_kit.settings.schema import SETTINGS_FILE, Settings, declared, kind_of
from dreamgym_kit.settings.secrets import keep_secret, with_whole_paths
from dreamgym_kit.types import ToolSpec

PREFIX = "DREAMGYM_"
_MAX_BYTES = 2**20


def in_ci() -> bool:
    """Whether this runs in continuous integration: nobody is asked there, and no project is written into."""
    return os.environ.get("CI", "").lower() not in ("", "0", "false")


def find_settings(start: Path) -> Path | None:
    """Find the nearest `dreamgym.toml` at or above a folder (or a file's folder)."""
    here = start.absolute()
    files = (folder / SETTINGS_FILE for folder in (here, *here.parents))
    return next((file for file in files if file.is_file()), None)


def load_settings(
    start: Path | None = None,
    *,
    file: Path | None = None,
    environ: Mapping[str, str] | None = None,
    assignments: Iterable[str] = (),
) -> Settings:
    """Read the settings that hold here.

    Args:
        start: where the upward search begins; the current folder when None.
        file: this file and no search.
        environ: variables instead of the process's own.
        assignments: each KEY=VALUE of a command line, laid over all else.

    Raises:
        UserError: names file and line, or all variables and assignments that are wrong, and what to do.
    """
    path = file if file is not None else find_settings(start if start is not None else Path.cwd())
    settings = Settings() if path is None else parse_settings(text_of(path), path=path.absolute())
    variables = (os.environ if environ is None else environ).items()
    ours = [(name, text) for name, text in variables if name.startswith(PREFIX) and text]
    problems: list[UserError] = []
    for lay in [
        *(partial(_with_variable, variable=name, text=text) for name, text in ours),
        *(partial(assigned, text=text) for text in assignments),
    ]:
        try:
            settings = lay(settings)
        except UserError as error:
            problems.append(error)
    if problems:
        raise problems[0] if len(problems) == 1 else UserError("\n".join(map(str, problems)))
    settings = with_whole_paths(settings, Path.cwd())
    keep_secret(settings)
    return settings


def parse_settings(text: str, *, path: Path | None = None) -> Settings:
    """Read settings from TOML text; `path` is where it stands, for messages and relative paths."""
    name = path.name if path is not None else SETTINGS_FILE
    try:
        data = tomllib.loads(text)
    except tomllib.TOMLDecodeError as error:
        own = "; a tool with a table of its own has its effect there, not in [tools]" * ("[tools." in text)
        raise UserError(f"{name}: not TOML: {error}{own}") from None
    except RecursionError:
        raise UserError(f"{name}: not TOML that we read: nested too deep") from None
    except ValueError as error:  # an integer of more than 4,300 digits
        raise UserError(f"{name}: not TOML that we read: {error}") from None
    lines = lines_of(text)
    places = Settings(path=path if path is not None else Path(name), lines=lines)
    settings = Settings(**read_settings(data, places.where), path=path, lines=lines)
    buffer_of(settings)
    return settings if path is None else with_whole_paths(settings, path.absolute().parent)


def check_match(settings: Settings, specs: Mapping[str, ToolSpec]) -> None:
    """Check `[match]` against the tools that there are.

    Raises:
        UnknownName: it names a tool or an argument that the graph does not have.
    """
    for pattern, rule in settings.match.items():
        source = settings.where("match", pattern)
        fitting = [spec for name, spec in specs.items() if fnmatchcase(name, pattern)]
        if not fitting:
            raise UnknownName("tool", pattern, known=sorted(specs), source=source, where="the graph")
        schemas = [spec.args_schema.get("properties") for spec in fitting]
        if not all(isinstance(schema, Mapping) for schema in schemas):
            continue
        arguments = {name for schema in schemas for name in schema or ()}
        for name in rule.ignore:
            if name not in arguments:
                where = f"those of {pattern}"
                raise UnknownName("argument", name, known=sorted(arguments), source=source, where=where)


def check_nodes(settings: Settings, node_names: Iterable[str]) -> list[UnknownName]:
    """List the nodes that settings name and the graph does not have."""
    names = sorted(set(node_names))
    return [
        UnknownName("node", name, known=names, source=settings.where("nodes", name), where="the graph")
        for name in settings.nodes
        if name not in names
    ]


def graph_from_here(spec: str) -> str:
    """Make the file in a graph's name absolute when it is given on a command line or in the environment."""
    file, colon, attribute = spec.rpartition(":")
    path, rest = (file, colon + attribute) if colon else (spec, "")
    with suppress(OSError, ValueError):
        if (path.endswith((".py", ".json")) or "/" in path) and Path(path).exists():
            return f"{Path(path).absolute()}{rest}"
    return spec


@cache
def environment_names() -> Mapping[str, tuple[str, ...]]:
    """Every environment variable and the key it sets."""
    names: dict[str, tuple[str, ...]] = {}
    for name in keys_of(Settings):
        inner = sections().get(name)
        if inner is None:
            names[f"{PREFIX}{name.upper()}"] = (name,)
        else:
            names.update({f"{PREFIX}{name}_{key}".upper(): (name, key) for key in keys_of(inner)})
    return names


def origins(settings: Settings, environ: Mapping[str, str]) -> list[tuple[str, Any, str]]:
    """Each key that differs from its default: its name, its value, and the file or variable that says so."""
    usual, changed = Settings(), []
    for variable, key in environment_names().items():
        value, default = (reduce(getattr, key, record) for record in (settings, usual))
        if value != default:
            origin = variable if environ.get(variable) else settings.where(*key)
            changed.append((".".join(key), value, origin))
    return changed


def text_of(path: Path) -> str:
    """The text of a settings file.

    Raises:
        UserError: it cannot be read.
    """
    try:
        raw = path.read_bytes()
    except OSError as error:
        reason = error.strerror or type(error).__name__
        raise UserError(
            f"{path}: settings cannot be read: {reason}; `dreamgym-kit init` writes them."
        ) from None
    if len(raw) > _MAX_BYTES:
        raise UserError(f"{path}: {len(raw)} bytes are more than settings can be (limit {_MAX_BYTES}).")
    try:
        return raw.decode("utf-8-sig").replace("\r\n", "\n")
    except UnicodeDecodeError as error:
        raise UserError(f"{path}: not UTF-8 at byte {error.start}; save it as UTF-8.") from None


def _variable(section: str, key: str) -> str:
    return f"{PREFIX}{section}_{key}".upper()


def _with_variable(settings: Settings, variable: str, text: str) -> Settings:
    keys = environment_names()
    if variable not in keys:
        was = {_variable(*old): _variable(*now) for old, now in renamed().items() if len(old) == 2}
        if variable in was:
            raise UserError(f"{variable} is now called {was[variable]}. Rename it.")
        raise UnknownName("variable", variable, known=keys, source="environment", where="the settings")
    return laid_over(settings, variable, keys[variable], text)


def laid_over(settings: Settings, source: str, key: tuple[str, ...], given: object) -> Settings:
    """Lay one value over the settings: it goes the same way through the reader as the file.

    Args:
        settings: below it.
        source: names where it was said, for messages.
        key: which one.
        given: its text, as a variable spells it; a list is added to what the settings list.

    Raises:
        UserError: the key cannot have this value.
    """
    value = _from_text(kind_of(key), given, source) if isinstance(given, str) else given
    data: dict[str, Any] = {key[0]: value if len(key) == 1 else {key[1]: value}}
    read = read_settings(data, lambda *_: source)[key[0]]
    if len(key) == 2:
        section = getattr(settings, key[0])
        now = getattr(read, key[1])
        if isinstance(given, list):
            now = tuple(dict.fromkeys([*getattr(section, key[1]), *now]))
        read = replace(section, **{key[1]: now})
    elif isinstance(read, dict):
        read = {**getattr(settings, key[0]), **read}
    elif declared(Settings)[key[0]].form == "path":
        read = str(Path(read).absolute())
    elif key[0] == "buffer":
        read = str(place_of(read, Path.cwd(), source=source))
    elif key[0] == "graph":
        read = graph_from_here(read)
    return replace(settings, **{key[0]: read})


def assigned(settings: Settings, text: str) -> Settings:
    """Lay one KEY=VALUE of a command line over the settings; the value is spelled as in a variable.

    Raises:
        UserError: there is no such key, or it cannot have this value.
    """
    dotted, equals, value = text.partition("=")
    keys = {".".join(key): key for key in environment_names().values()}
    now = {".".join(old): ".".join(new) for old, new in renamed().items()}
    if not equals:
        raise UserError(f"--set {text}: write KEY=VALUE, for example simulate.concurrency=4.")
    if dotted in now:
        raise UserError(f"--set {dotted} is now --set {now[dotted]}.")
    if dotted not in keys:
        raise UnknownName("key", dotted, known=sorted(keys), source="--set", where="the settings")
    return laid_over(settings, f"--set {dotted}", keys[dotted], value)


def _from_text(kind: Any, text: str, variable: str) -> Any:
    """A variable's text as the value that the file would hold; what does not fit stays text."""
    if kind is bool:
        return {"true": True, "false": False}.get(text.strip().lower(), text)
    if kind is int or kind is float:
        with suppress(ValueError):
            return kind(text)
        return text
    if get_origin(kind) is tuple:
        return [part.strip() for part in text.split(",") if part.strip()]
    if kind is str:
        return text
    try:
        return read_json(text)
    except NotSerializable as error:
        raise UserError(f"{variable}: wants a JSON object: {error}") from None


def rules_folder(settings: Settings) -> Path:
    """Where a person's rules are, a file for each tool: beside the settings."""
    return settings.folder / "rules"


def drafts_folder(settings: Settings) -> Path:
    """Where drafted rules wait for a person: they answer nothing before they are moved to `rules_folder`."""
    return rules_folder(settings) / "drafts"
