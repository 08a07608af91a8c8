"""docs/recordings.md knows every `buffer` command and every key of `[replay]`."""

import tomllib
from pathlib import Path

from each_row import each_row

from dreamgym_kit.cli.buffer import EXAMPLES, app
from dreamgym_kit.settings.load import parse_settings
from dreamgym_kit.settings.read import keys_of
from dreamgym_kit.settings.schema import ReplaySettings

PAGE = (Path(__file__).parents[2] / "docs" / "recordings.md").read_text()
BLOCKS = [block.split("```")[0] for block in PAGE.split("```toml\n")[1:]]


@each_row("name", [str(command.name) for command in app.registered_commands])
def test_every_buffer_command_is_described_and_shown(name: str) -> None:
    assert f"| `{name}" in PAGE
    assert f"dreamgym-kit buffer {name}" in PAGE
    assert any(f"buffer {name}" in line for line in EXAMPLES)


def test_every_key_of_the_section_is_told() -> None:
    told = PAGE + (Path(__file__).parents[2] / "docs" / "weaviate.md").read_text()
    assert [key for key in keys_of(ReplaySettings) if f"{key} = " not in told] == []


def test_the_settings_shown_are_settings() -> None:
    assert len(BLOCKS) == 2
    for block in BLOCKS:
        assert parse_settings(block).replay != ReplaySettings()
        switched_on = block.replace("# embedder", "embedder").replace('embedder = "hashed"', "")
        for line in switched_on.splitlines():
            if " = " in line:
                key = next(iter(tomllib.loads(line)))
                assert key in keys_of(ReplaySettings), line
