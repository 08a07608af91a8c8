"""`doctor` ends with 2 wherever `simulate` would not begin, and names the part that is wrong."""

import json
from pathlib import Path
from typing import Any, NamedTuple

import pytest

FLAGS = ("agent:graph", "--tasks", "tasks.jsonl")
NOT_RUN = (2, 5)  # cannot run, no task


class Broken(NamedTuple):
    """A project with one thing wrong."""

    check: str  # doctor's line about it
    settings: str = ""
    task: str | None = None  # the only line of the tasks
    agent: str = ""  # at the end of agent.py
    files: tuple[tuple[str, str], ...] = ()


def asks(**fields: object) -> str:
    return json.dumps({"id": "t-1", "input": "Please refund A-1", **fields}) + "\n"


def provider(method: str) -> dict[str, Any]:
    """A world whose class has one method of its own."""
    code = f"{SHOP}    {method}\n"
    return {
        "check": "tasks",
        "settings": '[environments.default]\nref = "shop:Shop"\n',
        "files": (("shop.py", code),),
    }


SHOP = """
class Shop:
    def configurable(self, world, episode): return {}
    async def reset(self, world, episode): ...
    async def close(self, episode): ...
"""
PROJECTS = {
    "nothing": Broken(""),
    "an expected tool that the graph lacks": Broken("tasks", task=asks(expect={"calls": ["refnd_payment"]})),
    "a limit of a tool that the graph lacks": Broken("tasks", task=asks(expect={"max": {"refund": 1}})),
    "an input field that the state lacks": Broken("tasks", task=asks(input={"mesages": "hello"})),
    "a checker that is not there": Broken("tasks", task=asks(checker="agent:twice")),
    "a checker by an unknown name": Broken("tasks", task=asks(checker="twice")),
    "a checker that is not a function": Broken("tasks", task=asks(checker="agent:ENDED")),
    "a task that is not JSON": Broken("tasks", task="{\n"),
    "no task": Broken("tasks", task=""),
    "a detector of a module that is not there": Broken(
        "detectors", '[findings]\ndetectors = ["checks:big_refund"]\n'
    ),
    "a detector that is not there": Broken("detectors", '[findings]\ndetectors = ["agent:big_refund"]\n'),
    "a buffer that is not one": Broken(
        "recordings", 'buffer = "notes.db"\n', files=(("notes.db", "notes\n" * 500),)
    ),
    "a buffer's server that is away": Broken(
        "recordings", 'buffer = "weaviate://127.0.0.1:9?grpc=10&tenant=t&timeout=1"\n'
    ),
    "an unknown key": Broken("settings", "[simulate]\nrepeat = 2\n"),
    "settings of a tool that is not there": Broken("graph", '[tools.refund]\neffect = "write"\n'),
    "faults of a tool that is not there": Broken("graph", '[faults.refund]\nkinds = ["timeout"]\n'),
    "a node that is not there": Broken("graph", '[nodes.agnt]\neffect = "pure"\n'),
    "a function that is not there": Broken("graph", '[functions."agent:refund"]\neffect = "write"\n'),
    "a graph that raises when it is imported": Broken("graph", agent='raise ValueError("no shop")\n'),
    "an endpoint that is away": Broken(
        "experience", '[experience]\nurls = ["http://127.0.0.1:9/v1"]\nmodel = "m"\nmax_attempts = 1\n'
    ),
    "an endpoint without a model": Broken("experience", '[experience]\nurls = ["http://127.0.0.1:9/v1"]\n'),
    "an endpoint whose key is not set": Broken(
        "experience",
        '[experience]\nurls = ["http://127.0.0.1:9/v1"]\nmodel = "m"\nkey_env = "NOBODY_SET_THIS_KEY"\n',
    ),
    "an acceptance file that is not there": Broken(
        "experience",
        '[experience]\nurls = ["http://127.0.0.1:9/v1"]\nmodel = "m"\nmax_attempts = 1\n'
        'acceptance = "acceptance.json"\n',
    ),
    "a folder for runs that is a file": Broken("runs", 'runs = "notes"\n', files=(("notes", ""),)),
    "rules that cannot be read": Broken("recordings", files=(("rules/pay.toml", "{"),)),
    "a directory that is not a model": Broken(
        "experience", '[experience]\ndir = "notes"\n', files=(("notes/config.json", "{}"),)
    ),
    "a directory that is not there": Broken("experience", '[experience]\ndir = "learned"\n'),
    "a served name without a server": Broken("experience", '[experience]\nmodel = "qwen"\n'),
    "a world of a module that is not there": Broken(
        "tasks", '[environments.default]\nref = "shop_world:Shop"\n'
    ),
    "a world that lacks a method": Broken(
        "tasks", '[environments.default]\nref = "shop:Shop"\n', files=(("shop.py", "class Shop: ...\n"),)
    ),
    "a world that cannot be made": Broken(**provider("def __init__(self, url): ...")),
    "a world that raises when it is made": Broken(**provider("def __init__(self): 1 / 0")),
    "a world that connects when it is made": Broken(
        **provider("def __init__(self): __import__('socket').create_connection(('127.0.0.1', 9))")
    ),
    "a world of other arguments": Broken(**provider("def configurable(self): return {}")),
    "a world whose reset takes no world": Broken(**provider("async def reset(self, episode): ...")),
    "a world that is configured later": Broken(
        **provider("async def configurable(self, world, episode): ...")
    ),
    "a world that is isolated perhaps": Broken(**provider("isolated = 'no'")),
    "a world without async": Broken(**provider("def reset(self, world, episode): ...") | {"check": ""}),
    "a checker without arguments": Broken(
        "tasks", task=asks(checker="agent:empty"), agent="def empty(): ...\n"
    ),
    "a checker that is a class": Broken(
        "tasks", task=asks(checker="agent:Checks"), agent="class Checks:\n    def __init__(self, x): ...\n"
    ),
    "a folder for runs in which none can be made": Broken("runs", 'runs = "/proc/runs"\n'),
    "an unknown engine": Broken("settings", '[workers]\nbackend = "slurm"\n'),
    "an address for workers here": Broken("engine", '[workers]\ncount = 2\naddress = "head:6379"\n'),
}
QUICK = ("nothing", "an expected tool that the graph lacks", "an endpoint that is away", "no task")


@pytest.mark.parametrize(
    "name", [name if name in QUICK else pytest.param(name, marks=pytest.mark.slow) for name in PROJECTS]
)
def test_doctor_ends_with_2_where_simulate_would_not_begin(run, recorded: Path, name: str) -> None:
    broken = PROJECTS[name]
    (recorded / "dreamgym.toml").write_text(broken.settings)
    if broken.task is not None:
        (recorded / "tasks.jsonl").write_text(broken.task)
    for file, text in broken.files:
        (recorded / file).parent.mkdir(exist_ok=True)
        (recorded / file).write_text(text)
    with (recorded / "agent.py").open("a") as agent:
        agent.write(broken.agent)
    simulated = run("simulate", *FLAGS)
    told = run("doctor", *FLAGS, "--json")
    stops = [check["name"] for check in json.loads(told.stdout)["checks"] if check["level"] == "stop"]
    assert (simulated.returncode in NOT_RUN) == bool(broken.check), simulated.stderr
    assert stops[:1] == ([broken.check] if broken.check else []), told.stdout
    assert told.returncode == (2 if broken.check else 0)
