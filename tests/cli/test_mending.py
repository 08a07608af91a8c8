"""What is typed next holds no more than it says, whatever names and paths hold."""

import json
import shlex
from pathlib import Path

import pytest

from dreamgym_kit.adapters.langgraph.analysis.loading import load_object
from dreamgym_kit.cli.running import next_command
from dreamgym_kit.errors import AmbiguousGraph, UnknownName, UserError


def failing(folder: Path, name: str, source: str) -> UserError:
    (folder / f"{name}.py").write_text(source)
    with pytest.raises(UserError) as raised:
        load_object(f"{name}:graph", folder=folder)
    return raised.value


def test_a_variable_that_no_shell_can_set_is_not_put_into_a_command(tmp_path: Path) -> None:
    plain = failing(tmp_path, "mending_plain", "import os\nos.environ['SHOP_NAME']")
    assert (
        next_command(plain, "init", "a:g", tmp_path)
        == "export SHOP_NAME=placeholder && dreamgym-kit init a:g"
    )
    odd = failing(tmp_path, "mending_odd", "import os\nos.environ['X; touch hurt']")
    assert next_command(odd, "init", "a:g", tmp_path) == "dreamgym-kit init a:g"


def test_graphs_are_quoted_and_their_hidden_characters_spelled() -> None:
    error = AmbiguousGraph("/x/langgraph.json", ["langgraph.json:a\x1b[2J b", "langgraph.json:c"])
    typed = next_command(error, "doctor", "sub dir/langgraph.json", Path("/x"))
    assert typed.isprintable()
    assert "sub dir/langgraph.json:a\\x1b[2J b" in typed
    plain = next_command(
        AmbiguousGraph("x", ["langgraph.json:c"]), "init", "sub dir/langgraph.json", Path("/x")
    )
    assert shlex.split(plain) == ["dreamgym-kit", "init", "sub dir/langgraph.json:c"]


@pytest.mark.slow
def test_no_screen_of_doctor_holds_what_a_project_file_hides(run, project: Path) -> None:
    graphs = {"a\x1b[2J\u202e": "./agent.py:graph", "b": "./agent.py:graph"}
    (project / "langgraph.json").write_text(json.dumps({"graphs": graphs}))
    for arguments in (("doctor",), ("doctor", "langgraph.json"), ("init",), ("init", "langgraph.json")):
        done = run(*arguments)
        assert done.returncode == 2
        said = done.stdout + done.stderr
        assert all(char.isprintable() or char == "\n" for char in said), said


def test_a_mistyped_graph_is_typed_right_the_next_time() -> None:
    slip = UnknownName("graph", "suport", known=["support", "sales"], source="langgraph.json", where="it")
    typed = next_command(slip, "doctor", "langgraph.json:suport", Path("/x"))
    assert typed == "dreamgym-kit doctor langgraph.json:support"
    far = UnknownName("graph", "zzz", known=["support"], source="langgraph.json", where="it")
    assert (
        next_command(far, "init", "langgraph.json:zzz", Path("/x")) == "dreamgym-kit init langgraph.json:zzz"
    )
