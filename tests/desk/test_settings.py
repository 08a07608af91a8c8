from pathlib import Path

from dreamgym_kit.adapters.langgraph.analysis.inspection import inspect_graph
from dreamgym_kit.recipes.desk import tasks
from dreamgym_kit.recipes.desk.tools import LOCAL_TOOLS, parcel_tools
from dreamgym_kit.rollout.tool_lock import LOCK_FILE, check_lock
from dreamgym_kit.settings.load import load_settings

SETTINGS = load_settings(file=Path(tasks.__file__).parent / "dreamgym.toml", environ={})


async def test_the_settings_say_the_effect_of_every_tool_and_of_no_other() -> None:
    async with parcel_tools() as parcels:
        names = {tool.name for tool in (*LOCAL_TOOLS, *parcels)}
    assert {*SETTINGS.tools} == names


async def test_the_shipped_lock_has_the_tools_as_they_are() -> None:
    facts = await inspect_graph(str(SETTINGS.graph), SETTINGS)
    lock = SETTINGS.folder / LOCK_FILE
    for name in ("desk", str(SETTINGS.graph)):  # as `demo` calls it, and as settings do
        assert check_lock(lock, name, facts.locked, writes=False) == []
    assert {tool.name: tool.server for tool in facts.locked if tool.server} == {"track_parcel": "mcp"}
