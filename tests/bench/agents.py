"""Agents that nobody here wrote: does the kit do right by them with no line of them changed?

The agents of tests/agents/agents.lock, under `DREAMGYM_AGENTS` (see `get.py`). Their models are scripted by a
server here, which also sees every other request; hosts beside it cannot be reached. For each: it runs without
the kit; `init`, then `record` and `simulate` of one task. Where a command refuses, the lines that it prints
are added and counted, and it is tried again. Right is an agent whose recording the dream repeats, message by
message, without a blocked call, a finding or a leak. An agent that does not run without the kit either is
listed apart: no figure counts it.
"""

import json
import os
import statistics
import subprocess
import sys
import tempfile
import tomllib
from collections.abc import Collection, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from advice import BARE, FOR_THE_PERSON, LINE, MODEL, TESTS, Server, servers, with_line

from dreamgym_kit.rollout.rundir import RunDirectory
from dreamgym_kit.types import Episode

DEADLINE_S = 120.0
TRIES = 3  # of one command, with the lines that the one before printed
SETTINGS = "dreamgym.toml"
UPDATE = "dreamgym-kit init --update"
KEYS = ("ANTHROPIC", "OPENAI", "TAVILY", "GEMINI", "GOOGLE", "GROQ", "LANGSMITH", "DEEPSEEK")
BARE_RUN = """
import asyncio, json, sys
from dreamgym_kit.adapters.langgraph.analysis.loading import open_graph
async def main():
    async with open_graph(sys.argv[1]) as graph:
        from langgraph.store.memory import InMemoryStore
        from dreamgym_kit.adapters.langgraph.analysis.nodes import runtime_context
        graph.store = graph.store or InMemoryStore()
        given = json.loads(sys.argv[2])
        config = {"configurable": {"thread_id": "1"}, "recursion_limit": 50}
        await graph.ainvoke(given, config, context=runtime_context(graph, {}))
asyncio.run(main())
"""
_UNSEEN = ("id", "tool_call_id", "tool_calls")


@dataclass
class Tried:
    """The result for one agent."""

    name: str
    apart: str = ""  # why it does not run without the kit
    wrong: str = ""  # why it is not right
    lines: list[str] = field(default_factory=list)  # that a person has to add
    leaks: int = 0
    false_alarms: int = 0


def measure(seed: int) -> Iterator[tuple[str, float, str]]:
    """Measure; `seed` changes nothing."""
    del seed
    folder = os.environ.get("DREAMGYM_AGENTS")
    if not folder:
        raise Absent("DREAMGYM_AGENTS does not name what tests/agents/get.py fetched")
    yield from figures(Path(folder), ())


class Absent(Exception):
    """The agents are not here, and need not be."""

    skips = True


def figures(folder: Path, only: Collection[str]) -> Iterator[tuple[str, float, str]]:
    """Try each agent; says on stderr what was wrong."""
    sys.path.insert(0, str(TESTS / "agents"))
    from get import agents, folder_of

    found = []
    with servers() as (elsewhere, model), tempfile.TemporaryDirectory() as root:
        for place, agent in enumerate(agents()):
            if not only or agent["name"] in only:
                home = folder_of(agent, folder) / agent["folder"]
                project = Project(Path(root) / f"p{place}", agent, home, folder / "site", elsewhere, model)
                found.append(tried(project))
                print(_told(found[-1]), file=sys.stderr, flush=True)
    ran = [one for one in found if not one.apart]
    yield "subjects", len(ran), ""
    yield "apart", len(found) - len(ran), "agents"
    yield "right_share", sum(not one.wrong for one in ran) / max(1, len(ran)), ""
    yield "leaks", sum(one.leaks for one in ran), "calls"
    yield "false_alarms", sum(one.false_alarms for one in ran), "episodes"
    yield "settings_lines", statistics.median([len(one.lines) for one in ran] or [0]), "lines"


def _told(one: Tried) -> str:
    lines = f" with {len(one.lines)} lines: {'; '.join(one.lines)}" if one.lines else ""
    return f"{one.name}: {f'apart: {one.apart}' if one.apart else one.wrong or 'right'}{lines}"


class Project:
    """A folder of its own for an agent."""

    def __init__(
        self, folder: Path, agent: dict[str, Any], home: Path, site: Path, elsewhere: Server, model: Server
    ) -> None:
        folder.mkdir()
        self.folder, self.agent, self.home = folder, agent, home
        self.elsewhere, self.model = elsewhere, model
        self.graph = str(home / agent["graph"]) if ".py:" in agent["graph"] else str(agent["graph"])
        task = {
            "id": "t",
            "input": agent["input"],
            "expect": {"max": {}},
            "replies": agent.get("replies", []),
        }
        (folder / "task.jsonl").write_text(json.dumps(task) + "\n")
        url = f"http://127.0.0.1:{model.port}"
        self.environ = {
            **os.environ,
            **{f"{name}_API_KEY": "placeholder" for name in KEYS},
            "PYTHONPATH": os.pathsep.join((str(home), str(site))),
            "OPENAI_BASE_URL": f"{url}/v1",
            "OPENAI_API_BASE": f"{url}/v1",
            "ANTHROPIC_BASE_URL": url,
            "ANTHROPIC_API_URL": url,
            "HTTP_PROXY": f"http://127.0.0.1:{elsewhere.port}",
            "HTTPS_PROXY": f"http://127.0.0.1:{elsewhere.port}",
            "NO_PROXY": "127.0.0.1,localhost",
            "LANGSMITH_TRACING": "false",
            "HOME": str(folder),
            "NO_COLOR": "1",
        }
        for unset in ("CI", "DREAMGYM_AGENTS"):
            self.environ.pop(unset, None)

    def python(self, *arguments: str) -> subprocess.CompletedProcess[str]:
        """Run Python in the folder."""
        try:
            return subprocess.run(
                [sys.executable, *arguments], cwd=self.folder, env=self.environ, input="y\n",
                capture_output=True, text=True, timeout=DEADLINE_S, check=False,
            )  # fmt: skip
        except subprocess.TimeoutExpired:
            return subprocess.CompletedProcess(arguments, 124, "", f"no end after {DEADLINE_S:g} s")

    def kit(self, name: str, *arguments: str) -> subprocess.CompletedProcess[str]:
        """Run a command of the kit."""
        return self.python("-m", "dreamgym_kit.cli.main", name, self.graph, *arguments)

    def episode(self) -> Episode | None:
        """Of the newest run."""
        runs = sorted((self.folder / "runs").glob("*/"), key=lambda path: path.stat().st_mtime)
        episodes = list(RunDirectory.open(runs[-1]).episodes()) if runs else []
        return episodes[0] if episodes else None


def tried(project: Project) -> Tried:
    """Try one agent."""
    one = Tried(project.agent["name"])
    bare = project.python("-c", BARE_RUN, project.graph, json.dumps(project.agent["input"]))
    if bare.returncode:
        one.apart = _last(bare.stderr)
        return one
    begun = project.kit("init")
    if begun.returncode:
        one.wrong = f"init: {_last(begun.stderr or begun.stdout)}"
        return one
    real = _ended(project, one, "record", "--yes")
    if real is None:
        return one
    before = len(project.elsewhere.heard)
    dream = _ended(project, one, "simulate")
    one.leaks = len(project.elsewhere.heard) - before
    if dream is None:
        return one
    one.leaks += len(dream.executed)
    alarms = {(finding.kind, finding.text) for finding in dream.findings} - {
        (finding.kind, finding.text) for finding in real.findings
    }
    one.false_alarms = bool(dream.violations or alarms)
    if one.leaks or one.false_alarms:
        one.wrong = f"leaks {one.leaks}, blocked {dream.violations}, findings {alarms}"[:400]
    elif (dream.stop, _said(dream)) != (real.stop, _said(real)):
        one.wrong = f"real {real.stop} {real.reason}, dream {dream.stop} {dream.reason}"[:500]
    return one


def _ended(project: Project, one: Tried, command: str, *arguments: str) -> Episode | None:
    """The episode that a command ran, after adding the settings lines it printed; None if it ran none."""
    text = ""
    for _ in range(TRIES):
        known = project.episode()
        done = project.kit(command, "--tasks", "task.jsonl", *arguments)
        text = f"{done.stdout}\n{done.stderr}"
        episode = project.episode()
        fresh = episode is not None and (known is None or episode.started_at != known.started_at)
        if fresh and episode is not None and not episode.violations:
            return episode
        if UPDATE in text and UPDATE not in one.lines and not fresh:
            one.lines.append(UPDATE)  # an entry of dreamgym.lock
            project.kit("init", "--update")
            continue
        lines = [line for line in printed(text) if line not in one.lines]
        if not lines:
            if fresh:
                return episode
            break
        one.lines.append(lines[0])
        file = project.folder / SETTINGS
        file.write_text(with_line(file.read_text(), lines[0]))
    one.wrong = f"{command}: {_last(text)}"
    return None


def printed(text: str) -> list[str]:
    """Lines for dreamgym.toml that a command suggests, the safest first."""
    plain = " ".join(text.replace('\\"', '"').split())
    found = [*LINE.findall(plain), *((line, "") for line in BARE.findall(plain))]
    lines = dict.fromkeys(line for line, then in found if FOR_THE_PERSON not in line)
    models = [line for line, then in found if then == MODEL]
    return [line for line in (*models, *lines) if _is_toml(line)]


def _is_toml(line: str) -> bool:
    try:
        with_line("", line)
    except (tomllib.TOMLDecodeError, ValueError):
        return False
    return True


def _said(episode: Episode) -> list[dict[str, Any]]:
    """The messages, without those of graphs that tool bodies ran and without ids."""
    return [
        {key: value for key, value in message.items() if key not in _UNSEEN}
        | {"calls": [[call["name"], call["args"]] for call in message.get("tool_calls") or ()]}
        for message in episode.messages
        if "within" not in message
    ]


def _last(text: str) -> str:
    lines = [line.strip() for line in text.strip().splitlines() if line.strip()]
    return " | ".join(lines[-3:])[-400:]


if __name__ == "__main__":
    for row in figures(Path(os.environ["DREAMGYM_AGENTS"]), sys.argv[1:]):
        print(*row)
