"""A process that has everything imported and gives each trial a fresh copy of itself.

It reads a line of JSON for each trial ({"folder", "way", "seconds"}), forks, and writes a line when the copy
has ended. A copy runs a graph for real (`real`, `real_async`), in a dream by the command line (`cli`), or by
Python (`python`): there the agent is imported before the dream begins, as in a notebook or a service.
"""

import contextlib
import importlib
import json
import os
import runpy
import signal
import sys
import time
from pathlib import Path
from typing import Any

TASK = "please see to order o1"


def main() -> None:
    """Serve until stdin ends."""
    for line in sys.stdin:
        asked = json.loads(line)
        child = os.fork()
        if not child:
            _trial(Path(asked["folder"]), asked["way"])
        print(_code(child, asked["seconds"]), flush=True)


def _code(child: int, seconds: float) -> int:
    """The exit code of a copy; it is killed, with all that it started, when its time is up."""
    ends = time.monotonic() + seconds
    while True:
        ended, status = os.waitpid(child, os.WNOHANG)
        if ended:
            with contextlib.suppress(ProcessLookupError, PermissionError):
                os.killpg(child, signal.SIGKILL)  # what it left running
            return os.waitstatus_to_exitcode(status)
        if time.monotonic() > ends:
            os.killpg(child, signal.SIGKILL)
        time.sleep(0.005)


def _trial(folder: Path, way: str) -> None:
    os.setsid()
    os.chdir(folder)
    for descriptor, name in ((0, os.devnull), (1, f"{way}.out"), (2, f"{way}.err")):
        flags = os.O_RDONLY if not descriptor else os.O_WRONLY | os.O_CREAT | os.O_TRUNC
        os.dup2(os.open(name, flags), descriptor)
    sys.path.insert(0, str(folder))
    code = 70
    try:
        code = WAYS[way]()
    except SystemExit as ended:
        code = ended.code if isinstance(ended.code, int) else 1
    except BaseException:
        import traceback

        traceback.print_exc()
    finally:
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(code)


def _real() -> int:
    """Run the graph without the kit; the last message is what the dream of a twin has to say."""
    return _tell(importlib.import_module("agent").graph.invoke(_given()))


def _real_async() -> int:
    import asyncio

    async def run() -> Any:
        graph = importlib.import_module("agent").graph
        if not hasattr(graph, "ainvoke"):
            graph = await graph()
        return await graph.ainvoke(_given())

    return _tell(asyncio.run(run()))


def _given() -> dict[str, Any]:
    return {"messages": [("user", TASK)]}


def _tell(ended: dict[str, Any]) -> int:
    print(json.dumps({"answer": ended["messages"][-1].content}), flush=True)
    return 0


def _cli() -> int:
    from dreamgym_kit.cli.main import main as command

    sys.argv = ["dreamgym-kit", "simulate", "--tasks", "tasks.jsonl", "--json"]
    command()
    return 0


def _python() -> int:
    from dreamgym_kit import simulate
    from dreamgym_kit.errors import UserError

    graph = importlib.import_module("agent").graph
    try:
        result = simulate(graph, "tasks.jsonl")
    except UserError as error:
        print(error, file=sys.stderr)
        return 2
    print(json.dumps(result.summary.to_json()), flush=True)

    return result.exit_code


WAYS = {"real": _real, "real_async": _real_async, "cli": _cli, "python": _python}


if __name__ == "__main__":
    for name in (
        "langchain.agents",
        "langgraph.func",
        "langgraph.prebuilt",
        "dreamgym_kit.adapters.langgraph.run.api",
        "dreamgym_kit.adapters.models.named_models",
        "dreamgym_kit.cli.running",
        "dreamgym_kit.report.terminal",
        "mcp.client.streamable_http",
        "langchain_mcp_adapters.client",
    ):
        with contextlib.suppress(ImportError):
            importlib.import_module(name)
    if sys.argv[1:] and sys.argv[1]:
        runpy.run_path(sys.argv[1])
    main()
