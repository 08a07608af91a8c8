"""What tools do, guessed as `init` guesses it: by name and description alone, against what their authors say.

Beds: the true effects of three public tool suites, judged from their code (tests/data/beds/README.md). Lists:
what GitHub's MCP server, the reference MCP servers and Stripe's toolkit say of their own tools (readOnlyHint
and the like, in tests/data/tool_lists.jsonl at pinned commits; the guess is not told it).

`unsafe`: tools that act, guessed `read`. `overcautious`: reads that are guessed to act.
`questions_per_agent`: the median that `init` asks of the agents of tests/agents/agents.lock, where
$DREAMGYM_AGENTS has them.
"""

import json
import os
import statistics
import subprocess
import sys
import tempfile
import tomllib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from beds import BEDS, BESIDE, SMALL, NotHere

from dreamgym_kit.routing.effects import guess_effect
from dreamgym_kit.types import Effect

TESTS = Path(__file__).resolve().parents[1]
LISTS = TESTS / "data" / "tool_lists.jsonl"
READS = ("pure", "read")
Tool = tuple[str, str, tuple[str, ...]]  # name, description, the effects that are right


def measure(seed: int) -> Iterator[tuple[str, float, str]]:
    """Measure; `seed` changes nothing."""
    del seed
    folder = Path(os.environ.get("SHARED_DATA_FOLDER", BESIDE)) / "beds"
    if not folder.is_dir():
        raise NotHere(f"the beds are not in {folder} (SHARED_DATA_FOLDER names another folder)")
    yield from figures(folder, BEDS)
    agents = os.environ.get("DREAMGYM_AGENTS")
    if not agents:
        print("effects: without public agents; see DREAMGYM_AGENTS in tests/agents/get.py", file=sys.stderr)
        return
    entries = tomllib.loads((TESTS / "agents" / "agents.lock").read_text("utf-8"))["agent"]
    asked = [questions(entry, Path(agents)) for entry in entries]
    yield "agents", len(asked), ""
    yield "questions_per_agent", statistics.median(asked), "median"


def quick(seed: int) -> Iterator[tuple[str, float, str]]:
    """The beds that are in this repository, and the lists."""
    del seed
    yield from figures(SMALL, ("workbench", "retail"))


def figures(folder: Path, beds: tuple[str, ...]) -> Iterator[tuple[str, float, str]]:
    """Guess all, and name on stderr what was guessed wrong."""
    of_beds = [tool for bed in beds for tool in in_bed(folder / bed / "tools.json")]
    rows = [json.loads(line) for line in LISTS.read_text("utf-8").splitlines()]
    acts = ("write", "destructive")
    listed = [(row["name"], row["description"], acts if row["acts"] else READS) for row in rows]
    yield "tools", len(of_beds) + len(listed), ""
    unsafe = [tool for tool in (*of_beds, *listed) if wrong(tool) and guessed(tool) is Effect.READ]
    print(f"unsafe: {[name for name, _, _ in unsafe]}", file=sys.stderr)
    yield "unsafe", len(unsafe), "tools"
    for name, tools in (("overcautious", of_beds), ("overcautious_lists", listed)):
        reads = [tool for tool in tools if tool[2][0] in READS]
        over = [tool for tool in reads if wrong(tool)]
        print(f"{name}: {[tool[0] for tool in over]}", file=sys.stderr)
        yield name, len(over) / len(reads), f"of {len(reads)} reads"


def in_bed(file: Path) -> Iterator[Tool]:
    """The tools of a bed, with what is right to say of each."""
    for tool in json.loads(file.read_text("utf-8"))["tools"]:
        yield tool["name"], tool["description"], (tool["effect"], *tool.get("also_right", ()))


def guessed(tool: Tool) -> Effect:
    """As `init` does it, without hints."""
    return guess_effect(*tool[:2])[0]


def wrong(tool: Tool) -> bool:
    """Whether a tool that acts is guessed to read, or one that reads to act."""
    right = {*tool[2]}
    return not right & {*READS} if guessed(tool) is Effect.READ else right <= {*READS}


def questions(agent: dict[str, Any], folder: Path) -> int:
    """How many questions `init` asks about a public agent.

    Raises:
        RuntimeError: `init` could not read it.
    """
    home = folder / str(agent["repository"]).replace("/", "+") / agent["folder"]
    keys = {"OPENAI_API_KEY": "none", "ANTHROPIC_API_KEY": "none"}
    with tempfile.TemporaryDirectory() as project:
        done = subprocess.run(
            [Path(sys.executable).with_name("dreamgym-kit"), "init", agent["graph"], "--json"],
            cwd=project,
            env={**os.environ, **keys, "PYTHONPATH": str(home)},
            capture_output=True,
            text=True,
            check=False,
        )
    if done.returncode:
        raise RuntimeError(f"{agent['name']}: {done.stderr[-400:]}")
    asked = json.loads(done.stdout)["questions"]
    print(f"{agent['name']}: {asked}", file=sys.stderr)
    return len(asked)
