import asyncio
import json
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest
from each_row import each_row
from langchain_core.messages import AIMessage, HumanMessage, ToolMessage
from langchain_core.tools import BaseTool
from langgraph.types import Command

from dreamgym_kit.errors import UserError
from dreamgym_kit.recipes.desk.environment import TENANT, DeskEnvironment, open_desk
from dreamgym_kit.recipes.desk.tools import LOCAL_TOOLS, parcel_tools, track_parcel
from dreamgym_kit.types import Environment

WORLD = Environment(
    "desk", 1008
)  # Yara C43 in Lyon, gold: O89 kettle delivered, paid by P57 and, failed, P39
TOOLS = {tool.name: tool for tool in (*LOCAL_TOOLS, track_parcel)}
Config = dict[str, Any]


@pytest.fixture
async def config(tmp_path: Path) -> AsyncIterator[Config]:
    world = DeskEnvironment(tmp_path)
    await world.reset(WORLD, "t.1")
    yield {"configurable": dict(world.configurable(WORLD, "t.1"))}
    await world.close("t.1")


async def use(tool: BaseTool, config: Config, **args: str) -> Any:
    return await tool.ainvoke({"type": "tool_call", "id": "call_01", "name": tool.name, "args": args}, config)


GOOD: dict[str, tuple[dict[str, str], Any]] = {
    "find_customer": (
        {"name": "Yara"},
        {"customer_id": "C43", "name": "Yara", "city": "Lyon", "tier": "gold"},
    ),
    "list_orders": ({"customer_id": "C43"}, [{"order_id": "O89", "item": "kettle", "status": "delivered"}]),
    "get_order": (
        {"order_id": "O43"},
        {
            "order_id": "O43",
            "customer_id": "C31",
            "item": "mixer",
            "status": "packed",
            "days": "16",
            "total": "21.80",
        },
    ),
    "list_payments": (
        {"order_id": "O89"},
        [
            {"payment_id": "P57", "amount": "52.60", "status": "captured", "refunded": "0.00"},
            {"payment_id": "P39", "amount": "52.60", "status": "failed", "refunded": "0.00"},
        ],
    ),
    "track_parcel": ({"order_id": "O38"}, {"order_id": "O38", "carrier": "north", "state": "lost"}),
    "refund_quote": ({"amount": "52.60", "days": "16"}, {"share": "half", "quote": "26.30"}),
    "update_address": ({"customer_id": "C43", "city": "Rome"}, {"customer_id": "C43", "city": "Rome"}),
    "cancel_order": ({"order_id": "O43"}, {"order_id": "O43", "status": "cancelled"}),
    "reship_order": ({"order_id": "O38"}, {"order_id": "O38", "reshipped": "yes"}),
    "create_ticket": (
        {"customer_id": "C43", "topic": "refund"},
        {"ticket_id": "T1", "customer_id": "C43", "topic": "refund"},
    ),
    "refund_payment": (
        {"payment_id": "P57", "amount": "52.60"},
        {"payment_id": "P57", "amount": "52.60", "status": "refunded", "refunded": "52.60"},
    ),
    "send_mail": ({"customer_id": "C43", "body": "Hello."}, {"customer_id": "C43", "mail": "sent"}),
    "delete_customer": ({"customer_id": "C43"}, {"customer_id": "C43", "deleted": "yes"}),
}
BAD: dict[str, tuple[dict[str, str], str]] = {
    "find_customer": ({"name": "Nobody"}, "no customer is called Nobody"),
    "list_orders": ({"customer_id": "C99"}, "no customer C99"),
    "get_order": ({"order_id": "O99"}, "no order O99"),
    "list_payments": ({"order_id": "O99"}, "no order O99"),
    "track_parcel": ({"order_id": "O43"}, "no parcel was sent for O43 yet"),
    "refund_quote": ({"amount": "much", "days": "16"}, "'much' is not an amount such as 19.90"),
    "update_address": ({"customer_id": "C99", "city": "Rome"}, "no customer C99"),
    "cancel_order": ({"order_id": "O99"}, "no order O99"),
    "reship_order": ({"order_id": "O99"}, "no order O99"),
    "create_ticket": ({"customer_id": "C99", "topic": "refund"}, "no customer C99"),
    "escalate": ({"target_id": "O99", "reason": "missing"}, "no order or customer O99"),
    "refund_payment": ({"payment_id": "P39", "amount": "52.60"}, "P39 failed, there is nothing to refund"),
    "send_mail": ({"customer_id": "C99", "body": "Hello."}, "no customer C99"),
    "delete_customer": ({"customer_id": "C99"}, "no customer C99"),
}


def test_every_tool_is_tried_below() -> None:
    special = {"escalate", "summarise_case"}  # a Command, and the state: tests of their own
    assert {*GOOD} | special == {*TOOLS}
    assert {*BAD} == {*TOOLS} - {"summarise_case"}
    assert len(TOOLS) == 15


@each_row("name", GOOD)
async def test_a_tool_does_its_work_on_the_real_desk(name: str, config: Config) -> None:
    args, expected = GOOD[name]
    message = await use(TOOLS[name], config, **args)
    assert (message.status, json.loads(message.content)) == ("success", expected)


@each_row("name", BAD)
async def test_a_refusal_reaches_the_agent_as_a_failed_call_and_ends_nothing(
    name: str, config: Config
) -> None:
    args, said = BAD[name]
    message = await use(TOOLS[name], config, **args)
    assert isinstance(message, ToolMessage)
    assert (message.status, message.content) == ("error", said)


async def test_what_tools_did_is_in_the_database_of_that_episode(config: Config) -> None:
    for name in ("update_address", "cancel_order", "refund_payment", "send_mail"):
        await use(TOOLS[name], config, **GOOD[name][0])
    with open_desk(config["configurable"][TENANT]) as desk:
        books = desk.books()
    assert (books.cities["C43"], books.orders["O43"], books.mailed) == ("Rome", "cancelled", {"C43"})
    assert books.payments["P57"].refunded_cents == 5260


async def test_a_refund_that_times_out_is_an_error_to_the_agent_and_money_in_the_database(
    config: Config,
) -> None:
    slow = {"payment_id": "P22", "amount": "21.80"}
    first = await use(TOOLS["refund_payment"], config, **slow)
    assert first.status == "error"
    assert first.content == "TimeoutError: no answer from the payment gateway after 30 s"
    paid = json.loads((await use(TOOLS["list_payments"], config, order_id="O43")).content)
    assert paid[0]["refunded"] == "21.80"


async def test_escalate_answers_with_a_command_that_updates_the_state(config: Config) -> None:
    command = await use(TOOLS["escalate"], config, target_id="O89", reason="missing")
    assert isinstance(command, Command)
    assert isinstance(command.update, dict)
    assert command.update["escalated"] == ["O89"]
    [told] = command.update["messages"]
    assert (told.tool_call_id, json.loads(told.content)) == (
        "call_01",
        {"target_id": "O89", "escalated": "yes"},
    )


async def test_summarise_case_counts_from_the_state_that_is_put_into_it() -> None:
    messages = [
        HumanMessage("I want to complain."),
        AIMessage("", tool_calls=[]),
        ToolMessage("{}", tool_call_id="1"),
        ToolMessage("no order O99", tool_call_id="2", status="error"),
    ]
    state = {"messages": messages, "escalated": ["O89", "C43"]}
    message = await TOOLS["summarise_case"].ainvoke(
        {"type": "tool_call", "id": "3", "name": "summarise_case", "args": {"state": state}}
    )
    assert json.loads(message.content) == {"calls": "2", "failed": "1", "escalated": "O89 C43"}


def test_the_model_sees_only_what_it_has_to_fill_in() -> None:
    seen = {
        name: list(tool.tool_call_schema.model_json_schema()["properties"]) for name, tool in TOOLS.items()
    }  # type: ignore[union-attr]
    assert seen["summarise_case"] == []
    assert seen["escalate"] == ["target_id", "reason"]
    assert all({*given} <= {*seen[name]} for name, (given, _) in {**GOOD, **BAD}.items())
    hidden = {"config", "state", "tool_call_id", TENANT}
    assert not any(hidden & {*names} for names in seen.values())


async def test_without_a_desk_a_tool_says_what_to_do_and_ends_the_run() -> None:
    with pytest.raises(UserError, match="call DeskEnvironment"):
        await use(TOOLS["find_customer"], {}, name="Yara")


async def test_track_parcel_over_mcp_asks_for_the_order_alone_and_finds_the_episode_s_desk(
    config: Config,
) -> None:
    async with parcel_tools() as [tool]:
        assert isinstance(tool.args_schema, dict)
        assert list(tool.args_schema["properties"]) == ["order_id"]
        assert (tool.metadata or {})["readOnlyHint"] is True
        message = await use(tool, config, order_id="O38")
    assert message.status == "success"
    assert json.loads(message.content[0]["text"]) == {"order_id": "O38", "carrier": "north", "state": "lost"}
    assert message.artifact["structured_content"]["state"] == "lost"


@each_row(
    ("args", "said"),
    [
        ({"order_id": "O43"}, "no parcel was sent for O43 yet"),
        ({}, "'order_id' is a required property"),
        ({"order_id": "O38", "tenant": "other"}, "'tenant' was unexpected"),
    ],
)
async def test_what_the_mcp_server_refuses_reaches_the_agent(
    args: dict[str, str], said: str, config: Config
) -> None:
    async with parcel_tools() as [tool]:
        message = await use(tool, config, **args)
    assert message.status == "error"
    assert said in message.content[0]["text"]


async def test_without_a_desk_the_mcp_server_refuses() -> None:
    async with parcel_tools() as [tool]:
        message = await use(tool, {}, order_id="O38")
    assert (message.status, "no desk is open" in message.content[0]["text"]) == ("error", True)


async def test_one_mcp_session_serves_many_episodes_without_mixing_them(tmp_path: Path) -> None:
    world = DeskEnvironment(tmp_path)
    worlds = {"a": Environment("desk", 1008), "b": Environment("desk", 1017)}
    orders: dict[str, set[str]] = {}
    for episode, of in worlds.items():
        await world.reset(of, episode)
        with open_desk(world.configurable(of, episode)[TENANT]) as desk:
            orders[episode] = {*desk.books().orders}
    only = {"a": min(orders["a"] - orders["b"]), "b": min(orders["b"] - orders["a"])}
    async with parcel_tools() as [tool]:
        asked = [(episode, order) for episode in worlds for order in only.values()] * 10
        told = await asyncio.gather(
            *(
                use(
                    tool, {"configurable": dict(world.configurable(worlds[episode], episode))}, order_id=order
                )
                for episode, order in asked
            )
        )
    for (episode, order), message in zip(asked, told, strict=True):
        unknown = f"no order {order}" in message.content[0]["text"]
        assert unknown == (order != only[episode])
    for episode in worlds:
        await world.close(episode)
