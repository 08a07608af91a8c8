from pathlib import Path

import pytest
from each_row import each_row

from dreamgym_kit.errors import UserError
from dreamgym_kit.interfaces import EnvironmentProvider
from dreamgym_kit.recipes.desk.environment import TENANT, DeskEnvironment, open_desk, times_opened
from dreamgym_kit.types import Environment

WORLD = Environment("desk", 1008)


def tenant(world: DeskEnvironment, episode: str, of: Environment = WORLD) -> object:
    return world.configurable(of, episode)[TENANT]


async def test_reset_puts_up_a_file_and_close_takes_it_away(tmp_path: Path) -> None:
    world: EnvironmentProvider = DeskEnvironment(tmp_path)
    await world.reset(WORLD, "double-01.1")
    [file] = tmp_path.glob("*.db")
    assert file.read_bytes().startswith(b"SQLite format 3\0")
    with open_desk(world.configurable(WORLD, "double-01.1")[TENANT]) as desk:
        assert desk.find_customer("Yara")["customer_id"] == "C43"
    await world.close("double-01.1")
    await world.close("double-01.1")
    assert list(tmp_path.iterdir()) == []


async def test_each_episode_has_a_desk_of_its_own(tmp_path: Path) -> None:
    world = DeskEnvironment(tmp_path)
    await world.reset(WORLD, "a.1")
    await world.reset(WORLD, "a.2")
    with open_desk(tenant(world, "a.1")) as first, open_desk(tenant(world, "a.2")) as second:
        first.update_address("C43", "Rome")
        assert (first.books().cities["C43"], second.books().cities["C43"]) == ("Rome", "Lyon")
    await world.close("a.1")
    with open_desk(tenant(world, "a.2")) as second:
        assert second.books().cities["C43"] == "Lyon"
    await world.close("a.2")


async def test_a_file_that_a_killed_run_left_is_replaced(tmp_path: Path) -> None:
    world = DeskEnvironment(tmp_path)
    (tmp_path / f"{tenant(world, 'a.1')}.db").write_text("left over")
    await world.reset(WORLD, "a.1")
    with open_desk(tenant(world, "a.1")) as desk:
        assert desk.find_customer("Yara")
    await world.close("a.1")


@each_row("episode", ["../../etc/passwd", "/abs", "a\0b", "CON", "x" * 300, "名.1", ""])
async def test_an_episode_of_any_name_stays_in_the_folder(tmp_path: Path, episode: str) -> None:
    (tmp_path / "desks").mkdir()
    world = DeskEnvironment(tmp_path / "desks")
    await world.reset(WORLD, episode)
    assert len(list((tmp_path / "desks").iterdir())) == 1
    assert [entry.name for entry in tmp_path.iterdir()] == ["desks"]
    await world.close(episode)


@each_row("named", ["desk-1008-nobody", "../desk", None, 7])
def test_a_desk_that_nobody_put_up_cannot_be_opened(named: object) -> None:
    with pytest.raises(UserError, match="no desk is open for desk_tenant"), open_desk(named):
        pass


async def test_a_world_without_that_seed_is_refused(tmp_path: Path) -> None:
    with pytest.raises(UserError, match="desk:7: desk seed 7 is outside 1000 to 999999"):
        await DeskEnvironment(tmp_path).reset(Environment("desk", 7), "a.1")
    assert list(tmp_path.iterdir()) == []


async def test_every_call_of_a_real_tool_is_counted_also_one_that_finds_no_desk(tmp_path: Path) -> None:
    from dreamgym_kit.recipes.desk.tools import list_orders

    world, before = DeskEnvironment(tmp_path), times_opened()
    await world.reset(WORLD, "a.1")
    config = {"configurable": dict(world.configurable(WORLD, "a.1"))}
    assert list_orders.invoke({"customer_id": "C43"}, config)
    assert times_opened() == before + 1
    await world.close("a.1")
    with pytest.raises(UserError):
        list_orders.invoke({"customer_id": "C43"}, config)
    assert times_opened() == before + 2
