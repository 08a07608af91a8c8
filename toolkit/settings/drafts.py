"""Drafted tool models: a file beside the buffer, in the settings' own form, with who drafted each and when.

A person who agrees with one moves its tables to dreamgym.toml. What cannot be read is refused like settings.
"""

import tomllib
from collections.abc import Mapping
from pathlib import Path

from dreamgym_kit.errors import UserError
from dreamgym_kit.settings.buffer_url import Address, buffer_of
from dreamgym_kit.settings.lines import lines_of
from dreamgym_kit.settings.read import refuse_secrets
from dreamgym_kit.settings.schema import Settings
from dreamgym_kit.settings.tool_models import ToolModelSettings, read_model

_HEAD = """\
# Tool models that a language model drafted, kept where no recording contradicts them. They are used where
# neither settings nor recordings say anything. Agree with one: move its tables to dreamgym.toml.

"""


def drafts_file(settings: Settings) -> Path:
    """Where drafts are kept: beside the buffer; of one behind an address, beside the settings."""
    place = buffer_of(settings)
    if isinstance(place, Address):
        return settings.folder / f"{place.name}.drafts.toml"
    return place.with_suffix(".drafts.toml")


def read_drafts(path: Path) -> dict[str, ToolModelSettings]:
    """The drafts of a file, by tool; none where there is no file.

    Raises:
        UserError: it cannot be read; names the place.
    """
    if not path.exists():
        return {}
    try:
        text = path.read_text(encoding="utf-8")
        data = tomllib.loads(text)
    except (OSError, UnicodeDecodeError, tomllib.TOMLDecodeError, RecursionError) as error:
        raise UserError(f"{path}: drafts cannot be read: {error}; mend or delete the file.") from None
    where = Settings(path=path.absolute(), lines=lines_of(text)).where
    refuse_secrets(data, where)
    tools = data.get("tools", {})
    if not isinstance(tools, Mapping) or not all(isinstance(tool, Mapping) for tool in tools.values()):
        raise UserError(f"{path}: holds no [tools.NAME.model]; delete it and draft again.")
    return {
        name: read_model(tool.get("model", {}), ("tools", name, "model"), where)
        for name, tool in tools.items()
    }


def render_drafts(drafts: Mapping[str, ToolModelSettings]) -> str:
    """The text of the file."""
    from dreamgym_kit.settings.render import render_model

    lines = [line for name, model in sorted(drafts.items()) for line in render_model(name, model)]
    return _HEAD + "\n".join(lines)
