"""The files of recipes/deploy as data, and what both kinds of them have to keep."""

import re
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import Any

import yaml
from docblocks.reading import CHECKOUT, DOCS

from dreamgym_kit.settings.secrets import looks_secret

DEPLOY = CHECKOUT / "recipes" / "deploy"
COMPOSE = sorted((DEPLOY / "compose").glob("*.yml"))
KUBERNETES = sorted((DEPLOY / "kubernetes").glob("*.yml"))
IMAGES = sorted((DEPLOY / "images").glob("*.Dockerfile"))
PAGE = DOCS / "scale.md"

_TAG = re.compile(r"v?\d+\.\d+(\.\d+)?([-.]\w+)*")
_SECRET_NAME = re.compile(r"KEY|PASSWORD|SECRET|TOKEN")
_NO_SECRET = re.compile(r"ENABLED|_KEY_ENV$|USERS$")


@cache
def documents(text: str) -> list[Any]:
    """What a file holds; not to be changed."""
    loaded = yaml.load_all(text, Loader=yaml.CSafeLoader)
    return [one for one in loaded if one is not None]


def leaves(value: Any, place: str = "") -> Iterator[tuple[str, Any]]:
    """Every scalar with where it stands."""
    if isinstance(value, dict):
        for name, inner in value.items():
            yield from leaves(inner, f"{place}.{name}")
    elif isinstance(value, list):
        for number, inner in enumerate(value):
            yield from leaves(inner, f"{place}[{number}]")
    else:
        yield place, value


def asks_for_a_secret(name: str) -> bool:
    return bool(_SECRET_NAME.search(name)) and not _NO_SECRET.search(name)


def loose_tag(image: str) -> bool:
    """Whether an image may be another one tomorrow."""
    name, at, digest = image.partition("@")
    if at:
        return not re.fullmatch(r"sha256:[0-9a-f]{64}", digest)
    tag = name.rpartition("/")[2].partition(":")[2]
    return not _TAG.fullmatch(tag)


def secrets_told(value: Any) -> list[str]:
    """Where a text has the form of a key."""
    found = []
    for place, text in leaves(value):
        if isinstance(text, str) and looks_secret(re.sub(r"\$\{[^}]*\}", "", text)):
            found.append(f"{place}: looks like a key")
    return found


@cache
def documented() -> set[str]:
    """The names that the page tells."""
    return set(re.findall(r"`([A-Za-z_][\w.-]*)`", PAGE.read_text("utf-8")))


def planted(path: Path, old: str, new: str) -> str:
    """The file with a fault in it; what is replaced has to be there."""
    text = path.read_text("utf-8")
    assert old in text, f"{path.name} has no '{old}' any more"
    return text.replace(old, new, 1)
