"""`crawl` with wrong input: named before a graph is loaded or a tool runs."""

from each_row import each_row
from typer.testing import CliRunner

from dreamgym_kit.cli.main import app
from dreamgym_kit.errors import UserError


def refused(tmp_path, *arguments):
    (tmp_path / "dreamgym.toml").write_text('graph = "nowhere_at_all:graph"\n')
    settings = ("--config", str(tmp_path / "dreamgym.toml"))
    done = CliRunner().invoke(app, [*settings, "crawl", "--yes", *arguments])
    assert isinstance(done.exception, UserError)
    return str(done.exception)


@each_row(
    ("content", "message"),
    [
        (None, "cannot be read: No such file or directory; nothing was run."),
        (b"\xff\xfe\x00", "not UTF-8; nothing was run."),
        (b"x" * (2**20 + 1), "1048577 bytes are more than ids can be (limit 1048576)."),
    ],
)
def test_ids_that_cannot_be_read_are_named(tmp_path, content, message) -> None:
    file = tmp_path / "ids.txt"
    if content is not None:
        file.write_bytes(content)
    assert refused(tmp_path, "--ids", str(file)) == f"{file}: {message}"


def test_a_world_that_is_none_is_named(tmp_path) -> None:
    assert refused(tmp_path, "--environment", "shop:three").startswith(
        "--environment shop:three: expected NAME or NAME:VARIANT"
    )
