"""Does what a line of advice foretells happen?

`doctor` and `simulate` run over graphs of tests/shapes that act in different ways, and over the public agents
of tests/agents/agents.lock. Each line for dreamgym.toml that they print is added by itself, `simulate` runs
again, and what then happens is held against what the line says: a bank, a file and a program tell what ran,
a model's server tells what it was asked.
"""

import json
import os
import re
import shutil
import subprocess
import sys
import tempfile
import threading
import tomllib
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import tomlkit
from advice_cases import ACTS, MAKES, SINGLES, agent_of

TESTS = Path(__file__).parents[1]
DEADLINE_S = 180.0
LINE = re.compile(r'((?:\[[^\[\]\s]+\] )?\w+ = (?:\["[^"]*"\]|"[^"]*")(?:, name = "[^"]*")?) \(([^()]+)\)')
BARE = re.compile(  # without what happens then
    r"\[(?:tools|functions|nodes|guard)[^\[\]\s]*\] \w+ = (?:\[[^\]]*\]|\"[^\"]*\")(?!(?:, name = \S+)? \()"
)
MODEL = "the model is really asked, in every dream"
FOR_THE_PERSON = "package.module"  # in a line that cannot be added as it stands


@dataclass(frozen=True)
class Subject:
    """A project."""

    name: str
    graph: str
    task: dict[str, Any]
    files: tuple[tuple[str, str], ...] = ()
    path: str = ""  # of its packages
    settings: str = ""


@dataclass
class Run:
    """What came of one `simulate`."""

    text: str  # all that it printed
    report: dict[str, Any]
    bank: list[dict[str, Any]]  # requests
    asked: list[dict[str, Any]]  # requests to the model
    touched: bool  # the file is there, by the agent or by its program
    tool_ran: bool


def measure(seed: int) -> Iterator[tuple[str, float, str]]:
    """Measure; `seed` changes nothing, every case is planted."""
    del seed
    agents = os.environ.get("DREAMGYM_AGENTS")
    if not agents:
        print(
            "advice: without public agents; DREAMGYM_AGENTS names what tests/agents/get.py fetched",
            file=sys.stderr,
        )
    yield from figures(
        [*shapes(list(MAKES)), *singles(list(SINGLES)), *(public(Path(agents)) if agents else ())]
    )


def quick(seed: int) -> Iterator[tuple[str, float, str]]:
    """A few of the shapes."""
    del seed
    yield from figures([*shapes(["create_agent"])[:2], *singles(["model"])])


def figures(subjects: Sequence[Subject]) -> Iterator[tuple[str, float, str]]:
    """Try every line once, and say on stderr what was wrong, and what no run can show."""
    tried: list[Subject] = []
    unseen = wrong = 0
    with servers() as (bank, model), tempfile.TemporaryDirectory() as root:
        for place, subject in enumerate(subjects):
            project = Project(Path(root) / f"p{place}", subject, bank, model)
            for line, then in project.lines():
                why = project.tried(line, then)
                if why == UNSEEN:
                    unseen += 1
                    print(f"not seen: {subject.name}: {line}", file=sys.stderr)
                    continue
                tried.append(subject)
                if why:
                    wrong += 1
                    print(f"wrong: {subject.name}: {line} ({then}): {why}", file=sys.stderr)
    yield "lines", len(tried), ""
    yield "wrong", wrong, "lines"
    yield "not_seen", unseen, "lines"
    if any(subject.path for subject in subjects):
        yield "public", sum(bool(subject.path) for subject in tried), "lines of public agents"


def shapes(makes: Sequence[str]) -> list[Subject]:
    """Every way to act in every make of agent."""
    return [
        Subject(f"{make}, {act}", "agent:graph", SAID, (("agent.py", agent_of(make, act)),))
        for make in makes
        for act in ACTS
    ]


def singles(names: Sequence[str]) -> list[Subject]:
    """What does not depend on the make."""
    return [
        Subject(name, "agent:graph", SAID, (("agent.py", SINGLES[name][0]),), settings=SINGLES[name][1])
        for name in names
    ]


def public(folder: Path) -> list[Subject]:
    """The agents of the lock."""
    sys.path.insert(0, str(TESTS / "agents"))
    from get import agents, folder_of

    return [
        Subject(
            one["name"],
            one["graph"],
            {"id": "t", "input": one["input"], "expect": {"max": {}}},
            path=str(folder_of(one, folder) / one["folder"]),
        )
        for one in agents()
    ]


SAID = {
    "id": "t",
    "input": {"messages": [{"role": "user", "content": "Please do it."}]},
    "expect": {"max": {}},
}


UNSEEN = "no dream shows it"  # another thing keeps the dream from beginning, or the agent from calling it


class Project:
    """A folder with a subject, which is run with one setting after the other."""

    def __init__(self, folder: Path, subject: Subject, bank: "Server", model: "Server") -> None:
        folder.mkdir()
        self.folder, self.subject, self.bank, self.model = folder, subject, bank, model
        self.before, self.model_line = Run("", {}, [], [], False, False), ""
        for name, text in subject.files:
            (folder / name).write_text(text)
        (folder / "tasks.jsonl").write_text(json.dumps(subject.task) + "\n")

    def lines(self) -> list[tuple[str, str]]:
        """Every line that `doctor` and `simulate` print, with what it foretells."""
        self._settings(self.subject.settings)
        told = json.loads(self._command("doctor", "--json").stdout)
        text = "\n".join(f"{check['text']} {check['remedy']}" for check in told["checks"])
        dreamt = self.run(self.subject.settings)
        text += dreamt.text
        plain = " ".join(text.replace('\\"', '"').split())
        found = dict.fromkeys(LINE.findall(plain))
        self.before = dreamt
        self.model_line = next((line for line, then in found if then == MODEL), "")
        bare = [(line, "") for line in dict.fromkeys(BARE.findall(plain))]
        return [(line, then) for line, then in [*found, *bare] if FOR_THE_PERSON not in line]

    def tried(self, line: str, then: str) -> str:
        """What does not happen as foretold once the line stands there; empty where all does."""
        check = CHECKS.get(then)
        if check is None:
            return "it says nothing of what happens then" if not then else "nobody knows how to see that"
        settings = with_line(self.subject.settings, line)
        if line.startswith("[tools.") and self.model_line:  # else the agent never comes to its tools
            settings = with_line(settings, self.model_line)
        try:
            return check(line, self.run(settings), self)
        except (ValueError, KeyError) as error:
            return f"could not be tried: {error!r}"

    def run(self, settings: str) -> Run:
        """Dream once."""
        self._settings(settings)
        for name in ("touched", "tool_ran", "dreamgym.lock"):
            (self.folder / name).unlink(missing_ok=True)
        shutil.rmtree(self.folder / "runs", ignore_errors=True)
        self.bank.heard.clear()
        self.model.heard.clear()
        done = self._command("simulate", "--json")
        report = json.loads(done.stdout) if done.stdout.startswith("{") else {}
        return Run(
            done.stdout + done.stderr,
            report,
            list(self.bank.heard),
            list(self.model.heard),
            (self.folder / "touched").exists(),
            (self.folder / "tool_ran").exists(),
        )

    def _settings(self, text: str) -> None:
        (self.folder / "dreamgym.toml").write_text(text)

    def _command(self, name: str, *arguments: str) -> subprocess.CompletedProcess[str]:
        environ = {
            **os.environ,
            "PYTHONPATH": os.pathsep.join(filter(None, [self.subject.path, str(TESTS)])),
            "BANK": f"http://127.0.0.1:{self.bank.port}",
            "OPENAI_BASE_URL": f"http://127.0.0.1:{self.model.port}/v1",
            "OPENAI_API_KEY": "placeholder",
            "NO_COLOR": "1",
        }
        for unset in ("CI", "DREAMGYM_AGENTS"):  # the latter would read as a setting
            environ.pop(unset, None)
        command = [sys.executable, "-m", "dreamgym_kit.cli.main", name, self.subject.graph]
        return subprocess.run(
            [*command, "--tasks", "tasks.jsonl", *arguments],
            cwd=self.folder, env=environ, capture_output=True, text=True, timeout=DEADLINE_S, check=False,
        )  # fmt: skip


def with_line(settings: str, line: str) -> str:
    """The settings with one more line, as a person would write it there."""
    head, _, rest = line.partition("] ") if line.startswith("[") else ("", "", line)
    named = re.sub(r', name = ("[^"]*")$', r"\nname = \1", rest)
    added = tomllib.loads(f"{head}]\n{named}\n" if head else f"{named}\n")
    whole = tomllib.loads(settings)
    _merge(whole, added)
    return tomlkit.dumps(whole)


def _merge(into: dict[str, Any], added: dict[str, Any]) -> None:
    for key, value in added.items():
        if isinstance(value, dict):
            _merge(into.setdefault(key, {}), value)
        else:
            into[key] = [*into[key], *value] if isinstance(value, list) and key in into else value


# What a line foretells -----------------------------------------------------------------------------


def answered(line: str, run: Run, project: Project) -> str:
    """Its calls are answered, and nothing of it runs."""
    section, named = next(iter(tomllib.loads(line.partition("] ")[0] + "]").items()))
    key = next(iter(named)).rpartition(":")[2].rpartition(".")[2]
    if run.bank or run.touched or run.tool_ran:
        return f"it ran: bank {len(run.bank)}, file {run.touched}, tool {run.tool_ran}"
    if section == "tools" and not run.report and not project.before.report:
        return UNSEEN
    if not run.report:
        return f"no dream: {run.text[-300:]}"
    used = {tool["name"]: tool for tool in run.report["tools"]}
    if section == "tools" and key not in used:
        return UNSEEN
    if run.report["violations"]:
        return f"still refused: {run.report['violations'][0]['text'][:200]}"
    if key not in used:
        return f"not called in the dream: {list(used)}"
    return "it was real" if "real" in used[key]["sources"] else ""


def reached(line: str, run: Run, project: Project) -> str:
    """The host is reached, and the report counts it."""
    host = line.split('"')[1]
    del project
    if host not in {request["host"] for request in run.bank}:
        return f"nothing arrived: {run.text[-300:]}"
    return "" if host in run.report["reached"] else f"the report counts {run.report['reached']}"


def asks_model(line: str, run: Run, project: Project) -> str:
    """The model is asked, and is no host that the report counts."""
    if not run.asked and not run.report and not project.before.report:
        return UNSEEN
    host = line.split('"')[1]
    if host not in {request["host"] for request in run.asked}:
        return f"the model was not asked: {run.text[-300:]}"
    return f"the report counts {run.report['reached']}" if run.report["reached"] else ""


def touched(line: str, run: Run, project: Project) -> str:
    """The file, or what the program writes, is there."""
    del line, project
    return "" if run.touched else f"nothing was written: {run.text[-300:]}"


def node_ran(line: str, run: Run, project: Project) -> str:
    """The node's own code ran, and met the guard."""
    del line, project
    return "" if "refused to connect" in run.text else f"the node did not run: {run.text[-300:]}"


def not_offered(line: str, run: Run, project: Project) -> str:
    """The dream begins, and no request has the tool."""
    del project
    if not run.report:
        return f"no dream: {run.text[-300:]}"
    if not run.asked:
        return f"the model was not asked: {run.text[-300:]}"
    name = line.split('"')[1]
    return "it was offered" if any(name in json.dumps(one.get("tools", [])) for one in run.asked) else ""


def runs_nothing(line: str, run: Run, project: Project) -> str:
    """The episode is not refused for it, and nothing ran."""
    del line, project
    if not run.report or run.report["violations"]:
        return f"refused: {run.text[-300:]}"
    return "something ran" if run.bank or run.touched or run.tool_ran else ""


CHECKS: dict[str, Callable[[str, Run, Project], str]] = {
    "a dream answers its calls from what was recorded, and it does not run": answered,
    "it is really reached, in every dream; the report counts that": reached,
    MODEL: asks_model,
    "it is really touched, in every dream": touched,
    "it really runs, in every dream": touched,
    "the node really runs, in every dream": node_ran,
    "in a dream the model is not offered it": not_offered,
    "its calls are answers, and run nothing": runs_nothing,
}


# Servers -------------------------------------------------------------------------------------------


class Server(ThreadingHTTPServer):
    """Counts what it is asked; answers as a model's server where that is asked."""

    daemon_threads = True

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), _Handler)
        self.heard: list[dict[str, Any]] = []

    @property
    def port(self) -> int:
        return int(self.server_address[1])


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    def do_POST(self) -> None:
        body = self.rfile.read(int(self.headers.get("Content-Length", 0)))
        said = json.loads(body) if body.startswith(b"{") else {}
        assert isinstance(self.server, Server)
        self.server.heard.append({**said, "host": self.headers.get("Host", "")})
        anthropic = self.path.split("?")[0].endswith("/messages")
        sent = json.dumps(_anthropic(said) if anthropic else _completion(said)).encode()
        self.send_response(200)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(sent)))
        self.end_headers()
        self.wfile.write(sent)

    def log_message(self, *_: Any) -> None:
        """Say nothing."""


def _completion(asked: dict[str, Any]) -> dict[str, Any]:
    """A call of the first function that is offered, once; then a text, or `Done` where a call is required."""
    functions = [one["function"] for one in asked.get("tools", []) if one.get("type") == "function"]
    before = any(message.get("role") == "tool" for message in asked.get("messages", []))
    message: dict[str, Any] = {"role": "assistant", "content": "Done."}
    last = next((one for one in functions if one["name"] == "Done"), None)
    forced = before and last is not None and asked.get("tool_choice") in ("required", "any")
    if functions and (not before or forced):
        called = last if before and last is not None else functions[0]
        arguments = {name: _value(one) for name, one in called["parameters"].get("properties", {}).items()}
        call = {"name": called["name"], "arguments": json.dumps(arguments)}
        message |= {
            "content": None,
            "tool_calls": [{"id": f"call-{1 + before}", "type": "function", "function": call}],
        }
    elif "response_format" in asked:
        schema = asked["response_format"].get("json_schema", {}).get("schema", {})
        told = {name: _value(one) for name, one in schema.get("properties", {}).items()}
        message["content"] = json.dumps(told)
    choice = {"index": 0, "message": message, "finish_reason": "stop"}
    usage = {"prompt_tokens": 1, "completion_tokens": 1, "total_tokens": 2}
    return {
        "id": "c",
        "object": "chat.completion",
        "created": 0,
        "model": "m",
        "choices": [choice],
        "usage": usage,
    }


def _anthropic(asked: dict[str, Any]) -> dict[str, Any]:
    """The same, as Anthropic's servers say it."""
    tools = [one for one in asked.get("tools", []) if "input_schema" in one]
    before = "tool_result" in json.dumps(asked.get("messages", []))
    content: list[dict[str, Any]] = [{"type": "text", "text": "Done."}]
    forced = asked.get("tool_choice", {}).get("type") in ("tool", "any")
    if tools and (not before or forced):
        properties = tools[0]["input_schema"].get("properties", {})
        given = {name: _value(one) for name, one in properties.items()}
        content = [{"type": "tool_use", "id": "toolu_1", "name": tools[0]["name"], "input": given}]
    reason = "tool_use" if content[0]["type"] == "tool_use" else "end_turn"
    usage = {"input_tokens": 1, "output_tokens": 1}
    return {
        "id": "m", "type": "message", "role": "assistant", "model": "m", "content": content,
        "stop_reason": reason, "stop_sequence": None, "usage": usage,
    }  # fmt: skip


def _value(schema: dict[str, Any]) -> Any:
    if "enum" in schema:
        return "respond" if "respond" in schema["enum"] else schema["enum"][0]
    blanks: dict[str, Any] = {"integer": 1, "number": 1, "boolean": True, "array": [], "object": {}}
    return blanks.get(str(schema.get("type")), "2026-11-27")


@contextmanager
def servers() -> Iterator[tuple[Server, Server]]:
    """A bank and a model."""
    both = Server(), Server()
    for server in both:
        threading.Thread(target=server.serve_forever, daemon=True).start()
    try:
        yield both
    finally:
        for server in both:
            server.shutdown()
            server.server_close()
