"""A run of 32 episodes against two replicas, of which one may be killed; what of it has to be the same."""

import json
from pathlib import Path

from dreamgym_kit import simulate
from dreamgym_kit.rollout.rundir import RunDirectory
from dreamgym_kit.settings.load import parse_settings

AGENT = '''
from langchain.agents import create_agent
from langchain_core.tools import tool
from langchain_openai import ChatOpenAI

@tool
def get_order(order_id: str) -> str:
    """Read an order."""
    raise AssertionError("a real tool ran")

graph = create_agent(ChatOpenAI(model="gpt-x"), [get_order])
'''
SETTINGS = """[tools.get_order]
effect = "read"
[simulate]
repeats = 8
concurrency = 8
[policy]
max_output = {tokens}
urls = [{urls}]
{more}
"""
TASKS, SIBLINGS = 4, 8


def run(
    folder: Path, urls: list[str], model: str, *, tokens: int = 24, more: str = ""
) -> list[tuple[str, ...]]:
    """Id, verdict and end of each episode, in the order of ids."""
    folder.mkdir()
    (folder / "killed_server_agent.py").write_text(AGENT)
    tasks = [
        {"id": f"t{one}", "input": {"messages": [{"role": "user", "content": f"order {one}?"}]}}
        for one in range(TASKS)
    ]
    (folder / "tasks.jsonl").write_text("".join(json.dumps(task) + "\n" for task in tasks))
    named = ", ".join(f'"{url}"' for url in urls)
    settings = parse_settings(
        SETTINGS.format(tokens=tokens, urls=named, more=more), path=folder / "dreamgym.toml"
    )
    graph = f"{folder / 'killed_server_agent.py'}:graph"
    result = simulate(graph, folder / "tasks.jsonl", settings=settings, policy=model)
    episodes = RunDirectory.open(result.directory).episodes()
    return sorted((one.id, one.verdict.value, one.stop, str(one.final)) for one in episodes)
