"""`init` and `doctor` as a newcomer meets them: each ends with what to type next, and that works as typed."""

import json
import os
import pty
import re
import subprocess
import tomllib
from collections.abc import Callable
from contextlib import closing
from pathlib import Path

import pytest
from fiction_double import FictionDouble
from langchain_openai import AzureChatOpenAI, ChatOpenAI
from newcomers import projects

from dreamgym_kit.adapters.langgraph.intercept.chat_models import AgentModel, served_models

pytestmark = pytest.mark.slow
Typed = Callable[..., str]
KEY_FROM_SDK = """
import os
class OpenAIError(Exception): pass
if not os.environ.get("OPENAI_API_KEY"):
    raise OpenAIError("Missing credentials. Pass an api_key, or set OPENAI_API_KEY or OPENAI_ADMIN_KEY.")
"""


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "here").mkdir()
    return tmp_path / "here"


@pytest.fixture
def typed(folder: Path, environment: dict[str, str], command: str) -> Typed:
    """Type a line into a shell at a terminal of 80 columns; gives what is seen."""
    unset = {name: value for name, value in environment.items() if name not in ("OPENAI_API_KEY", "SHOP_URL")}
    path = f"{Path(command).parent}{os.pathsep}{unset['PATH']}"

    def typed(line: str, code: int = 0, answer: str = "") -> str:
        ours, theirs = pty.openpty()
        os.write(ours, answer.encode())
        done = subprocess.run(
            ["bash", "-c", line],
            cwd=folder,
            env=unset | {"PATH": path, "COLUMNS": "80", "NO_COLOR": "1"},
            stdin=theirs,
            capture_output=True,
            text=True,
            timeout=100,
            check=False,
        )
        os.close(ours)
        os.close(theirs)
        said = done.stdout + done.stderr
        assert done.returncode == code, said
        assert "Traceback" not in said
        return said

    return typed


def next_typed(said: str) -> str:
    """The command at the end of a screen."""
    found = re.findall(r"^(?:Then: | [A-Z][a-z]+ +)(\S.*?)(?:   .*)?$", said, re.MULTILINE)
    assert found, said
    return found[-1]


@pytest.mark.nightly
def test_thirty_tools_are_readable_at_80_columns_and_every_step_works(folder: Path, typed: Typed) -> None:
    (folder / "office.py").write_text(projects.agent(*projects.THIRTY))
    said = typed("dreamgym-kit init")  # the only graph here
    assert " 30 tools found:\n" in said
    assert {name for name in projects.THIRTY if f" {name}?" in said} == set(projects.THIRTY)
    steps = dict(re.findall(r"^ ([A-Z][a-z]+) +(\S.*?)   ", said, re.MULTILINE))
    assert list(steps) == ["Correct", "Edit", "Check", "Record", "Dream"]
    assert (folder / steps["Correct"]).is_file()
    assert (folder / steps["Edit"]).is_file()
    checked = typed(steps["Check"], 2)  # nothing is recorded yet
    assert "30 guessed: 12 read, 9 write, 9 destructive" in checked
    listed = typed("dreamgym-kit doctor --tools", 2)
    rows = [
        line for line in listed.splitlines() if re.match(r"  \w+ +(read|write|destructive) +guessed ", line)
    ]
    assert len(rows) == 30
    shown = (said + checked + listed).splitlines()
    assert [
        line for line in shown if len(line) > 80 and "dreamgym" not in line and str(folder) not in line
    ] == []
    assert typed("dreamgym-kit init --confirm").startswith(
        " 30 effects in dreamgym.toml are no longer guesses"
    )
    assert next_typed(typed("dreamgym-kit doctor", 2)).startswith("dreamgym-kit record")
    typed(f"{steps['Record']} --yes")
    ready = typed("dreamgym-kit doctor")
    assert " 0 to stop, 0 to fix.\n" in ready
    assert "0 executed, 0 blocked, of 1 tool call" in typed(next_typed(ready), 3)  # a task of no checker


def test_a_task_of_a_graph_that_does_not_talk_has_the_fields_of_its_state(folder: Path, typed: Typed) -> None:
    state = "class State(TypedDict):\n    topic: str\n    rounds: int\n"
    source = projects.agent().replace(
        "builder = StateGraph(MessagesState)", f"{state}builder = StateGraph(State)"
    )
    (folder / "writer.py").write_text(f"from typing_extensions import TypedDict\n{source}")
    typed("dreamgym-kit init writer:graph")
    task = json.loads((folder / "tasks.jsonl").read_text())
    assert task == {"id": "first-1", "input": {"topic": "...", "rounds": 0}}


@pytest.mark.parametrize(
    "before",
    [
        pytest.param("import os\nKEY = os.environ['OPENAI_API_KEY']", id="reads"),
        pytest.param(KEY_FROM_SDK, id="sdk", marks=pytest.mark.nightly),
    ],
)
@pytest.mark.parametrize("what", [pytest.param("init", marks=pytest.mark.nightly), "doctor"])
def test_a_missing_key_is_named_with_what_to_type(folder: Path, typed: Typed, before: str, what: str) -> None:
    (folder / "agent.py").write_text(projects.agent(before=before))
    said = typed(f"dreamgym-kit {what} agent:graph", 2)
    assert "It needs OPENAI_API_KEY, which is not set." in " ".join(said.split())
    then = next_typed(said)
    assert then == f"export OPENAI_API_KEY=placeholder && dreamgym-kit {what} agent:graph"
    code = 2 if what == "doctor" else 0  # nothing is recorded yet
    assert "2 tools" in typed(then, code)
    (folder / ".env").write_text("OPENAI_API_KEY=mine\n")
    (folder / "dreamgym.toml").unlink(missing_ok=True)
    then = next_typed(typed(f"dreamgym-kit {what} agent:graph", 2))
    assert then == f"set -a; . {folder}/.env; set +a; dreamgym-kit {what} agent:graph"
    assert "2 tools" in typed(then, code)


@pytest.mark.nightly
def test_a_project_of_several_graphs_says_which_there_are_and_what_it_lacks(
    folder: Path, typed: Typed
) -> None:
    projects.project(folder)
    said = typed("dreamgym-kit init", 2)
    both = ["dreamgym-kit init langgraph.json:sales", "dreamgym-kit init langgraph.json:support"]
    assert [line.strip() for line in said.splitlines()[1:]] == both
    assert next_typed(typed("dreamgym-kit init langgraph.json", 2)) == both[0]
    lacks = typed(both[0], 2)
    assert "It needs SHOP_URL, which is not set." in lacks
    assert f"takes its environment from {folder}/.env, and there is no such file." in lacks
    (folder / ".env").write_text("SHOP_URL=http://shop.invalid\n")
    assert " 2 tools found:\n" in typed(both[0])
    assert " ok    graph       langgraph.json:sales imports; 2 tools" in typed("dreamgym-kit doctor", 2)
    asked = typed("dreamgym-kit doctor langgraph.json", 2)
    assert next_typed(asked) == "dreamgym-kit doctor langgraph.json:sales"
    again = next_typed(typed(both[1], 2))
    assert again == "dreamgym-kit init langgraph.json:support --update"
    assert " 2 tools found:\n" in typed(again)


@pytest.mark.parametrize(
    ("before", "told", "setting"),
    [
        (
            "open('made.txt', 'w').write('x')",
            "write {folder}/made.txt (agent.py:1 in <module>)",
            "allow_paths",
        ),
        (
            "import socket\ntry:\n    socket.create_connection(('127.0.0.1', 9), 1)\nexcept OSError: pass",
            "connect to 127.0.0.1:9 (agent.py:3 in <module>)",
            "allow_hosts",
        ),
        (
            "import subprocess\nsubprocess.run(['true'])",
            "run true (agent.py:2 in <module>)",
            "allow_commands",
        ),
    ],
    ids=["writes", "connects", "starts"],
)
@pytest.mark.nightly
def test_what_loading_touches_is_told_before_a_dry_run_refuses_it(
    folder: Path, typed: Typed, before: str, told: str, setting: str
) -> None:
    (folder / "agent.py").write_text(projects.agent(before=before))
    sentence = f"loading the graph makes it {told.format(folder=folder)}, which a dry run refuses"
    said = " ".join(typed("dreamgym-kit init agent:graph").split())
    assert sentence in said
    refused = typed("dreamgym-kit doctor", 2)
    assert sentence in " ".join(refused.split())
    assert next_typed(refused) == "dreamgym-kit doctor"
    assert "refused to " in typed("dreamgym-kit simulate", 2)
    (allow,) = set(re.findall(r"\[guard\] (allow_\w+ = \[.*?\])", said))
    assert allow.startswith(setting)
    file = folder / "dreamgym.toml"
    file.write_text(f"{file.read_text()}[guard]\n{allow}\n")
    assert " stop  graph " not in typed("dreamgym-kit doctor", 2)  # nothing is recorded yet
    typed("dreamgym-kit simulate", 3)


@pytest.mark.parametrize(
    ("before", "after", "told"),
    [
        ("import sys\nsys.exit('usage: agent.py')", "", "It ends the program while it is imported"),
        ("input('Your name? ')", "", "It runs its agent while it is imported"),
        ("", "graph.invoke({'messages': [('user', 'hi')]})", "It runs its agent while it is imported"),
        (
            "import asyncio",
            "asyncio.run(graph.ainvoke({'messages': [('user', 'hi')]}))",
            "It runs its agent while it is imported",
        ),
        ("", "TOOLS[0].invoke({'id': '7'})", "It runs its agent while it is imported"),
        ("import not_installed_here", "", "Install what the project needs into this environment"),
    ],
    ids=["exits", "asks", "runs", "runs-async", "calls", "lacks"],
)
def test_a_module_that_acts_when_imported_is_told_what_belongs_elsewhere(
    folder: Path, typed: Typed, before: str, after: str, told: str
) -> None:
    (folder / "agent.py").write_text(projects.agent(before=before, after=after))
    line = "dreamgym-kit init agent:graph"
    if before.startswith("input"):
        line, told = f"{line} < /dev/null", "It asks for input while it is imported"
    said = typed(line, 2)
    assert told in said
    assert next_typed(said) == "dreamgym-kit init agent:graph"
    assert not (folder / "dreamgym.toml").exists()


def test_what_a_module_prints_is_no_part_of_the_result(folder: Path, typed: Typed) -> None:
    printing = "import os\nprint('Welcome')\nos.system('echo from a program')"
    (folder / "agent.py").write_text(projects.agent(before=printing))
    assert len(json.loads(typed("dreamgym-kit init agent:graph --json 2> /dev/null"))["tools"]) == 2
    assert "next" in json.loads(typed("dreamgym-kit doctor --json 2> /dev/null", 2))


def test_without_a_graph_what_is_here_is_named(folder: Path, typed: Typed) -> None:
    said = typed("dreamgym-kit init", 2)
    assert said.endswith("none was found here; name it: dreamgym-kit init my_agent:graph\n")
    (folder / "one.py").write_text(f"import re\npattern = re.compile('x')\n{projects.agent()}")
    (folder / "broken.py").write_text("def (")
    asked = typed("dreamgym-kit doctor", 2)
    assert "none was named; found here: one.py:graph\n" in asked
    assert next_typed(asked) == "dreamgym-kit init one.py:graph"


@pytest.mark.parametrize(
    ("command_word", "after", "code"),
    [
        ("init", "", 0),
        ("init", "raise RuntimeError", 2),
        ("doctor", "", 2),
        ("doctor", "raise RuntimeError", 2),
    ],
)
def test_a_thread_that_the_module_starts_does_not_keep_the_command(
    folder: Path, typed: Typed, command_word: str, after: str, code: int
) -> None:
    thread = "import threading, time\nthreading.Thread(target=time.sleep, args=(3600,)).start()\n"
    (folder / "agent.py").write_text(projects.agent(before=thread, after=after))
    assert next_typed(typed(f"dreamgym-kit {command_word} agent.py:graph", code=code))


def test_init_offers_the_model_that_the_agent_asks_and_doctor_asks_it_one_question(
    folder: Path, typed: Typed
) -> None:
    with closing(FictionDouble()) as model:
        server = f"base_url='{model.url}', model='fiction', api_key=os.environ['SHOP_KEY']"
        made = f"import os\nfrom langchain_openai import ChatOpenAI\nserved = ChatOpenAI({server})"
        (folder / "agent.py").write_text(projects.agent(after=made))
        init, file = "SHOP_KEY=a-key-of-the-shop dreamgym-kit init agent:graph", folder / "dreamgym.toml"
        section = f'[experience]\nurls = ["{model.url}"]\nmodel = "fiction"\nkey_env = "SHOP_KEY"\n'
        shown = typed(f"{init} </dev/null")
        assert "schemas and task texts" in " ".join(shown.split())
        assert section in re.sub(r"^ +", "", shown, flags=re.MULTILINE)
        assert "[experience]" not in file.read_text()
        for more, answer, wanted in (("", "n\n", False), ("", "y\n", True), (" --update", "y\n", True)):
            if more:
                file.write_text('graph = "agent:graph"\n[tools]\nget_invoice = "read"\n')
            else:
                file.unlink()
            typed(f"{init}{more}", answer=answer)
            experience = tomllib.loads(file.read_text()).get("experience")
            named = {"urls": [model.url], "model": "fiction", "key_env": "SHOP_KEY"}
            assert experience == (named if wanted else None)
        again = typed(f"{init} --update")  # what is named is not asked for again
        assert "schemas and task texts" not in " ".join(again.split())
        assert model.asked == 0
        typed("SHOP_KEY=a-key-of-the-shop dreamgym-kit doctor")
        assert model.asked == 1


def test_a_model_of_a_form_that_a_dream_cannot_ask_is_not_offered() -> None:
    azure = AzureChatOpenAI(
        azure_endpoint="https://shop.invalid", api_key="k", api_version="1", model="gpt", azure_deployment="d"
    )
    secret = ChatOpenAI(base_url="https://user:word@shop.invalid/v1", api_key="k", model="gpt")
    assert served_models([azure, secret, object()], {}) == []
    named = {"OPENAI_BASE_URL": "http://shop.invalid/v1/", "OPENAI_MODEL": "gpt", "OPENAI_API_KEY": "k"}
    assert served_models([], named) == [AgentModel("http://shop.invalid/v1", "gpt", "OPENAI_API_KEY")]
    assert served_models([], {**named, "OPENAI_MODEL": ""}) == []
