"""What a test's dream is to be like: the command line, pytest's ini, and the marks of the test.

The closest mark wins, key by key: function, class, module. Whether real tools may run is said on the command
line or in the ini alone, never by a mark, and a CI system (`CI` set) heeds the command line only.
"""

import re
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from dreamgym_kit.adapters.pytest_plugin.plugin import MODELS, RecordMode, mode_of
from dreamgym_kit.canonical import digest
from dreamgym_kit.errors import UnknownName, UserError
from dreamgym_kit.settings.buffer_url import Place, place_of
from dreamgym_kit.types import Environment

MARK_KEYS = ("cassette", "models", "buffer", "settings", "environment")


@dataclass(frozen=True, slots=True)
class DreamOptions:
    """How one test dreams.

    Attributes:
        test: its name in cassettes.
        folder: where the test is.
        cassette: the file of its tool calls.
        models: whose chat models are taped: "auto" (a provider's), "recorded" (all) or "live" (none).
        buffer: a buffer whose recordings and tool models answer what the cassette does not; None: none.
        settings: the `dreamgym.toml` that holds; None: the nearest one above the test.
    """

    test: str
    folder: Path
    cassette: Path
    mode: RecordMode
    models: str
    buffer: Place | bool | None
    settings: Path | None
    environment: Environment


def options_of(item: pytest.Item) -> DreamOptions:
    """What holds for one test.

    Raises:
        UserError: a mark says something that there is not.
    """
    marked = _marked(item)
    folder = item.path.parent
    models = str(marked.get("models", item.config.getini("dream_models")))
    if models not in MODELS:
        raise UserError(f"{item.nodeid}: models: '{models}' is none of {', '.join(MODELS)}")
    cassettes = folder / item.config.getini("dream_cassettes")
    named = marked.get("cassette")
    own = _file_name(item.nodeid.split("::", 1)[-1])
    path = cassettes / item.path.stem / f"{own}.jsonl" if named is None else _named(cassettes, named)
    settings = marked.get("settings")
    environment = marked.get("environment", Environment())
    return DreamOptions(
        test=f"{item.path.stem}.{own}",
        folder=folder,
        cassette=path,
        mode=RecordMode(mode_of(item.config)),
        models=models,
        buffer=_buffer(item, marked.get("buffer")),
        settings=folder / settings if settings is not None else None,
        environment=environment if isinstance(environment, Environment) else Environment(str(environment)),
    )


def _marked(item: pytest.Item) -> dict[str, Any]:
    values: dict[str, Any] = {}
    for mark in item.iter_markers("dream"):  # the closest first
        if mark.args:
            raise UserError(f"{item.nodeid}: @pytest.mark.dream takes keywords only: {', '.join(MARK_KEYS)}")
        for name, value in mark.kwargs.items():
            if name not in MARK_KEYS:
                raise UnknownName(
                    "key", name, known=MARK_KEYS, source=item.nodeid, where="@pytest.mark.dream"
                )
            values.setdefault(name, value)
    return values


def _buffer(item: pytest.Item, buffer: Any) -> Place | bool | None:
    if buffer is None or isinstance(buffer, bool):
        return buffer
    return place_of(str(buffer), item.path.parent, source=f"{item.nodeid}: buffer")


def _named(cassettes: Path, name: object) -> Path:
    """A cassette that a mark names lies in the folder of cassettes, whatever the name is."""
    plain = Path(str(name))
    if not plain.name:
        raise UserError(f"cassette: '{name}' is no name; say one")
    if plain.is_absolute() or ".." in plain.parts:
        raise UserError(f"cassette: '{name}' lies outside {cassettes}; say a name")
    return cassettes / (plain if plain.suffix == ".jsonl" else plain.with_name(f"{plain.name}.jsonl"))


def _file_name(name: str) -> str:
    """A test's name as a file has it; told apart by a digest where that takes letters from it."""
    function, bracket, parameters = name.partition("[")
    plain = function.replace("::", ".") + bracket.replace("[", "-") + parameters.removesuffix("]")
    safe = re.sub(r"[^A-Za-z0-9_.-]+", "-", plain)[:100]
    return safe if safe == plain else f"{safe}-{digest(name)[:8]}"
