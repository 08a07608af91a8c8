"""Day one: foreign agents of which nothing was recorded, dreamed with a model that imagines consistently.

The agents have the tools of WorkBench, tau2 retail and BFCL and call what episodes of these suites call. The
model is a double over HTTP that reads its prompts; its answers agree with each other, and a real one's may
not. Ten tasks of each agent, eight repeats. `answered`: calls with an answer; `whole`: episodes in which all
calls were answered; `questions_per_decision`: questions about calls, corrections included, for each different
environment, state and call; `seedings`: questions before a task, for each task; `tokens_per_call`: characters
/ 4 of all prompts and replies by tool calls; `cached_share`: of the prompts' characters, how many an earlier
prompt of the run began with.
"""

import json
import os
import tempfile
from collections.abc import Mapping, Sequence
from contextlib import closing
from pathlib import Path
from typing import Any

from fiction_double import FictionDouble
from langchain_core.language_models import BaseChatModel
from langchain_core.messages import AIMessage, BaseMessage, ToolMessage
from langchain_core.outputs import ChatGeneration, ChatResult
from langchain_core.tools import StructuredTool
from langgraph.graph import START, MessagesState, StateGraph
from langgraph.prebuilt import ToolNode, tools_condition

from dreamgym_kit import simulate
from dreamgym_kit.rollout.rundir import RunDirectory
from dreamgym_kit.settings.schema import ExperienceSettings, Settings, SimulateSettings, ToolSettings
from dreamgym_kit.types import Effect, Environment, Episode, Task

SMALL = Path(__file__).resolve().parents[1] / "data" / "beds"
BESIDE = Path(__file__).resolve().parents[3] / "shared" / "data"
BEDS = ("workbench", "retail", "bfcl")
TASKS, REPEATS = 10, 8
Figure = tuple[str, float, str]


class NotHere(Exception):
    """The suites' tools are not on this machine."""

    skips = True


def measure(seed: int) -> list[Figure]:
    """Figures for the bench runner. Nothing is drawn by chance."""
    folder = Path(os.environ.get("SHARED_DATA_FOLDER", BESIDE)) / "beds"
    if not folder.is_dir():
        raise NotHere(f"the beds are not in {folder} (SHARED_DATA_FOLDER names another folder)")
    return figures(folder, BEDS, tasks=TASKS, repeats=REPEATS)


def quick(seed: int) -> list[Figure]:
    """Two agents whose tools are in this repository, three tasks, four repeats."""
    return figures(SMALL, ("workbench", "retail"), tasks=3, repeats=4)


def figures(folder: Path, beds: Sequence[str], *, tasks: int, repeats: int) -> list[Figure]:
    """Figures over all agents."""
    episodes: list[Episode] = []
    prompts, replies, decisions, cached = 0, 0, 0, 0
    asked, seeded = 0, 0
    for bed in beds:
        with closing(FictionDouble()) as model:
            run = _run(folder / bed, model, tasks=tasks, repeats=repeats)
            seeded += model.questions.count("entities")
            asked += len(model.prompts) - model.questions.count("entities")
            prompts += sum(map(len, model.prompts))
            replies += sum(map(len, model.replies))
            cached += _begun_before(model.prompts)
        decisions += len({decision for episode in run for decision in _decisions(episode)})
        episodes += run
    steps = [step for episode in episodes for step in episode.transitions]
    answered = [step for step in steps if not step.answer.unanswered]
    whole = [episode for episode in episodes if episode.stop == "finished"]
    return [
        ("answered", len(answered) / max(1, len(steps)), "of calls"),
        ("whole", len(whole) / max(1, len(episodes)), "of episodes"),
        ("questions_per_decision", asked / max(1, decisions), "questions"),
        ("seedings", seeded / len(beds) / tasks, "questions a task"),
        ("tokens_per_call", (prompts + replies) / 4 / max(1, len(steps)), "tokens"),
        ("cached_share", cached / max(1, prompts), "of prompt text"),
        ("calls", len(steps), "calls"),
    ]


def _decisions(episode: Episode) -> set[tuple[str, str, str]]:
    return {(str(step.environment), step.after, step.call.key) for step in episode.transitions}


def _begun_before(prompts: Sequence[str]) -> int:
    """Characters of prompts that an earlier one begins with."""
    return sum(
        max((_alike(prompt, other) for other in prompts[:at]), default=0) for at, prompt in enumerate(prompts)
    )


def _alike(left: str, right: str) -> int:
    """Characters that both begin with."""
    low, high = 0, min(len(left), len(right))
    while low < high:
        middle = (low + high + 1) // 2
        low, high = (middle, high) if left[:middle] == right[:middle] else (low, middle - 1)
    return low


def _run(bed: Path, model: FictionDouble, *, tasks: int, repeats: int) -> list[Episode]:
    """The episodes of an agent with the tools of a bed."""
    tools = json.loads((bed / "tools.json").read_text("utf-8"))["tools"]
    lines = (bed / "train.jsonl").read_text("utf-8").splitlines()[:tasks]
    scripts = {row["id"]: row for row in map(json.loads, lines)}
    with tempfile.TemporaryDirectory() as folder:
        settings = Settings(
            buffer=str(Path(folder) / "none.db"),
            runs=str(Path(folder) / "runs"),
            simulate=SimulateSettings(repeats=repeats, imagine=True),
            experience=ExperienceSettings(urls=(model.url,), model="fiction"),
            tools={tool["name"]: ToolSettings(Effect(tool["effect"])) for tool in tools},
        )
        result = simulate(_agent(tools, scripts), [*map(_task, scripts.values())], settings=settings)
        return list(RunDirectory.open(result.directory).episodes())


def _task(row: Mapping[str, Any]) -> Task:
    name, _, number = row["world"].rpartition("-")
    environment = Environment(name, int(number)) if number.isdigit() else Environment(row["world"])
    called = [call["tool"] for call in row["calls"]][:1]
    text = {"messages": [{"role": "user", "content": f"[{row['id']}] {row['task']}"}]}
    return Task(row["id"], text, environment=environment, expect={"calls": called})


def _agent(tools: Sequence[Mapping[str, Any]], scripts: Mapping[str, Mapping[str, Any]]) -> Any:
    def never(**_: Any) -> None:
        raise RuntimeError("no tool runs in a dream")

    class ScriptedDouble(BaseChatModel):
        """Calls what the task's episode called, whatever it is answered."""

        @property
        def _llm_type(self) -> str:
            return "scripted-double"

        def _generate(self, messages: list[BaseMessage], *_: Any, **__: Any) -> ChatResult:
            calls = scripts[str(messages[0].content)[1:].partition("]")[0]]["calls"]
            done = sum(isinstance(message, ToolMessage) for message in messages)
            said = AIMessage("Done.")
            if done < len(calls):
                call = calls[done]
                asked = {"id": f"call-{done}", "name": call["tool"], "args": call["args"]}
                said = AIMessage("", tool_calls=[asked])
            return ChatResult(generations=[ChatGeneration(message=said)])

    made = [
        StructuredTool(
            name=tool["name"],
            description=tool["description"],
            args_schema={"title": "args", "description": tool["description"], **tool["args"]},
            func=never,
        )
        for tool in tools
    ]
    model = ScriptedDouble()
    builder = StateGraph(MessagesState)
    builder.add_node("agent", lambda state: {"messages": [model.invoke(state["messages"])]})
    builder.add_node("tools", ToolNode(made))
    builder.add_edge(START, "agent")
    builder.add_conditional_edges("agent", tools_condition)
    builder.add_edge("tools", "agent")
    return builder.compile()
