"""Bar X1: canary secrets everywhere where a run meets them; none is in any artefact, log or on the screen."""

import base64
import json
import os
import shutil
import subprocess
import sys
from pathlib import Path
from urllib.parse import quote

import pytest
from bars.leak_search import leaking_files, leaks, spellings
from bench.faulty_endpoint_double import FaultyEndpointDouble, serving
from each_row import each_row

ENV = 'canary-env/7Qx9+Wz="k4T~'
PASSWORD = "canary-dbpass-9Zr4Kp"
DOTENV = "canary-dotenv-3Hn8Vb2m"
MODEL_KEY = "canary-endpoint-5Lw1Xc7y"
FORM = "sk-proj-canaryABCDEF0123456789abcd"
BY_NAME = "canary-by-name-only"
SECRETS = [ENV, PASSWORD, DOTENV, MODEL_KEY, FORM, BY_NAME]
INPUTS = ("agent.py", ".env", "langgraph.json", "tasks.jsonl", "REAL")

AGENT = '''
import base64, json, os
from urllib.parse import quote
from typing import TypedDict
from langchain_core.language_models import BaseChatModel
from langchain_core.messages import AIMessage, ToolMessage
from langchain_core.outputs import ChatGeneration, ChatResult
from langchain_core.tools import tool
from langgraph.graph import START, MessagesState, StateGraph
from langgraph.prebuilt import ToolNode, tools_condition

KEY, URL = os.environ["SHOP_API_KEY"], os.environ["DATABASE_URL"]
LATE = os.environ["LATE_SERVICE_TOKEN"]  # from .env, read with the graph
FORM = "sk-proj-" + "canaryABCDEF0123456789abcd"
WORD = "canary-" + "by-name-only"


@tool
def call_shop(order: str, api_key: str, password: str, header: str, note: str) -> dict:
    """Ask the shop."""
    open("REAL", "a").write("x")
    basic = base64.b64encode(f"me:{KEY}".encode()).decode()
    return {"plain": KEY, "url": quote(KEY, safe=""), "basic": basic, "json": json.dumps({"k": KEY}),
            "db": URL, "late": [LATE, {"deep": f"x{LATE}x"}], KEY: 1,
            "client_secret": WORD, "form": FORM, "order": order}


@tool
def pay(order: str) -> str:
    """Pay."""
    local_secret = KEY
    raise RuntimeError(f"cannot reach {URL} as {local_secret} with Bearer {LATE}")


class ScriptedDouble(BaseChatModel):
    @property
    def _llm_type(self):
        return "scripted-double"

    def _generate(self, messages, stop=None, run_manager=None, **kwargs):
        done = sum(isinstance(message, ToolMessage) for message in messages)
        order = str(messages[0].content).split()[-1]
        args = {"order": order, "api_key": KEY, "password": WORD, "header": f"Bearer {FORM}", "note": URL}
        calls = [("call_shop", args), ("pay", {"order": order})]
        if done < len(calls):
            name, given = calls[done]
            message = AIMessage(f"Using {KEY}.", tool_calls=[{"id": f"c{done}", "name": name, "args": given}])
        elif "2" in order:
            local_secret = KEY
            raise ValueError(f"the model's own failure with {local_secret} at {URL}")
        else:
            message = AIMessage(f"Done with {KEY} and {quote(KEY)}.")
        return ChatResult(generations=[ChatGeneration(message=message)])


class Kept(MessagesState):
    session: dict


def agent(state):
    return {"messages": [ScriptedDouble().invoke(state["messages"])], "session": {"token": KEY, "at": URL}}


def check(outcome):
    raise LookupError(f"no {KEY} in {URL}")


builder = StateGraph(Kept)
builder.add_node("agent", agent)
builder.add_node("tools", ToolNode([call_shop, pay], handle_tool_errors=True))
builder.add_edge(START, "agent")
builder.add_conditional_edges("agent", tools_condition)
builder.add_edge("tools", "agent")
graph = builder.compile()
'''


@pytest.fixture(scope="module")
def project(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("shop")
    (folder / "agent.py").write_text(AGENT)
    (folder / ".env").write_text(f"LATE_SERVICE_TOKEN={DOTENV}\n")
    (folder / "langgraph.json").write_text('{"graphs": {"g": "./agent.py:graph"}, "env": ".env"}')
    tasks = [
        {"id": f"t{number}", "input": f"my key is {ENV}, order A-{number}", "checker": "agent:check"}
        for number in (1, 2)
    ]
    (folder / "tasks.jsonl").write_text("".join(json.dumps(task) + "\n" for task in tasks))
    (folder / "dreamgym.toml").write_text(
        '[tools.call_shop]\neffect = "read"\n[tools.pay]\neffect = "destructive"\n'
    )
    return folder


def run(folder: Path, *arguments: str, **more: str) -> tuple[int, str]:
    """The exit code, and everything that the command said."""
    ours = ("DREAMGYM_", "NO_COLOR", "FORCE_COLOR", "COLUMNS")
    environ = {name: value for name, value in os.environ.items() if not name.startswith(ours)}
    environ |= {"SHOP_API_KEY": ENV, "DATABASE_URL": f"postgres://svc:{PASSWORD}@db.example/x", **more}
    command = str(Path(sys.executable).with_name("dreamgym-kit"))
    done = subprocess.run(
        [command, *arguments],
        cwd=folder,
        env=environ,
        capture_output=True,
        stdin=subprocess.DEVNULL,
        check=False,
    )
    return done.returncode, (done.stdout + done.stderr).decode()


def test_a_planted_leak_is_found_in_every_spelling(tmp_path: Path) -> None:
    for name, spelled in spellings(ENV).items():
        assert leaks(b"before " + spelled + b" after", [ENV]), name
        (tmp_path / "artefact").write_bytes(b"x" + spelled)
        assert leaking_files(tmp_path, [ENV], inputs=[]), name
    assert leaks(base64.b64encode(f"me:{ENV}".encode()), [ENV])
    assert leaks(json.dumps({"a": f"https://x/?k={quote(ENV)}"}).encode(), [ENV])
    assert not leaks(b"nothing of the kind", SECRETS)


@pytest.fixture(scope="module")
def told(project: Path) -> str:
    """Everything that recording, dreaming and reporting said."""
    said = []
    for arguments in (
        ("record", "langgraph.json", "--tasks", "tasks.jsonl", "--yes"),
        ("simulate", "langgraph.json", "--tasks", "tasks.jsonl", "--repeats", "2"),
        ("simulate", "langgraph.json", "--tasks", "tasks.jsonl", "--json"),
        ("simulate", "langgraph.json", "--tasks", "tasks.jsonl", "--set", "workers.count=2"),
        ("report", "--list"),
        ("report", "--episode", "t1.1"),
        ("report", "--json"),
        ("export", "-o", "page.html"),
        ("buffer", "stats"),
        ("rules", "show"),
        ("buffer", "search", "shop order"),
        ("buffer", "export", "exported.jsonl"),
    ):
        code, text = run(project, *arguments)
        assert code in (0, 1, 4), (arguments, text)
        said.append(text)
    return "\n".join(said)


@pytest.mark.slow
def test_no_artefact_of_a_run_holds_a_secret(project: Path, told: str) -> None:
    assert (project / "REAL").exists()  # the real tools saw what is masked here
    assert list(project.glob("runs/*/episodes.jsonl"))
    assert leaking_files(project, SECRETS, inputs=INPUTS) == []
    assert leaks(told.encode(), SECRETS) == []
    journal = "".join(path.read_text() for path in project.glob("runs/*/episodes.jsonl"))
    assert "<masked:" in journal


@pytest.mark.slow
def test_a_dream_answers_what_was_recorded_under_masks(project: Path, told: str) -> None:
    code, text = run(project, "simulate", "langgraph.json", "--tasks", "tasks.jsonl", "--json")
    report, _ = json.JSONDecoder().raw_decode(text)
    assert report["coverage"]["sources"] == {"recorded": 4}
    assert code == 1  # one task crashes, the checker of the other raises


@pytest.mark.slow
def test_an_endpoint_that_repeats_the_key_leaves_it_nowhere(project: Path, told: str, tmp_path: Path) -> None:
    folder = tmp_path / "asked"
    shutil.copytree(project, folder, ignore=shutil.ignore_patterns("runs", "dreamgym.db*", "__pycache__"))
    with serving(FaultyEndpointDouble()) as server:
        server.refuse = lambda body: (
            None if "ready" in str(body) else f"bad key {MODEL_KEY} for {ENV} {quote(ENV, safe='')}"
        )
        (folder / "dreamgym.toml").write_text(
            f'[experience]\nurls = ["{server.url}"]\nmodel = "m"\nkey_env = "PLAIN_NAME"\nmax_attempts = 1\n'
        )
        _, text = run(folder, "simulate", "langgraph.json", "--tasks", "tasks.jsonl", PLAIN_NAME=MODEL_KEY)
        assert len(server.requests) > 1
        assert leaks(json.dumps(server.requests).encode(), SECRETS) == []  # nor is it told of the others
        server.refuse = lambda body: f"bad key {MODEL_KEY}"
        code, early = run(
            folder, "simulate", "langgraph.json", "--tasks", "tasks.jsonl", PLAIN_NAME=MODEL_KEY
        )
    assert (code, "cannot be asked" in early) == (2, True)
    assert leaks((text + early).encode(), SECRETS) == []
    assert leaking_files(folder, SECRETS, inputs=INPUTS) == []


@pytest.mark.slow
@each_row(
    "settings",
    [
        f'[experience]\napi_key = "{FORM}"\n',
        f'graph = "agent:{FORM}"\n',
        f'[experience]\nurls = ["http://svc:{PASSWORD}@models.example/v1"]\nmodel = "m"\n',
        f'[experience]\nurls = ["http://{FORM}@models.example/v1"]\nmodel = "m"\n',
        f'[tools."{FORM}"]\neffect = "read"\n',
        f"graph = '{FORM}",
    ],
)
def test_a_secret_in_the_settings_is_refused_and_not_repeated(tmp_path: Path, settings: str) -> None:
    (tmp_path / "agent.py").write_text(AGENT)
    (tmp_path / "dreamgym.toml").write_text(settings)
    code, text = run(tmp_path, "simulate", "agent:graph", LATE_SERVICE_TOKEN=DOTENV)
    assert code == 2
    assert leaks(text.encode(), SECRETS) == []
    assert leaking_files(tmp_path, SECRETS, inputs=(*INPUTS, "dreamgym.toml")) == []


@pytest.mark.slow
@each_row(
    "arguments",
    [
        ("simulate", "agent:graph", "--tasks", f"{DOTENV}.jsonl"),
        ("simulate", f"nowhere_{PASSWORD}:graph", "--tasks", "tasks.jsonl"),
        ("report", f"runs/{MODEL_KEY}"),
    ],
)
def test_a_secret_on_the_command_line_is_not_repeated(tmp_path: Path, arguments: tuple[str, ...]) -> None:
    (tmp_path / "agent.py").write_text(AGENT)
    code, text = run(tmp_path, *arguments, LATE_SERVICE_TOKEN=DOTENV, MODEL_API_KEY=MODEL_KEY)
    assert code == 2
    assert leaks(text.encode(), SECRETS) == []


@pytest.mark.slow
def test_a_graph_that_fails_to_import_tells_no_secret(tmp_path: Path) -> None:
    broken = [
        "import os",
        "def connect():",
        "    local = os.environ['SHOP_API_KEY']",
        "    raise OSError(local)",
    ]
    (tmp_path / "agent.py").write_text("\n".join([*broken, "connect()", ""]))
    (tmp_path / "tasks.jsonl").write_text('{"id": "a", "input": "x"}\n')
    code, text = run(tmp_path, "simulate", "agent:graph", "--tasks", "tasks.jsonl")
    assert (code, "<masked>" in text) == (2, True)
    assert leaks(text.encode(), SECRETS) == []
