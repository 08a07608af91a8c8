"""Answers that have to have a form, of a policy with random weights: only the grammar makes them fit."""

import asyncio
import json
from collections.abc import AsyncIterator
from pathlib import Path

import jsonschema
import pytest
from each_row import each_row

pytest.importorskip("torch", reason="the extra train is not installed")

from nano_double import write_double

from dreamgym_kit.adapters.models.local import LocalPolicy, open_local
from dreamgym_kit.chat import ChatMessage, ChatReply, ChatRequest
from dreamgym_kit.errors import EndpointError

ARGS = {
    "type": "object",
    "properties": {"order": {"type": "string", "maxLength": 6}, "express": {"type": "boolean"}},
    "required": ["order", "express"],
    "additionalProperties": False,
}


def tool(name: str, *, strict: bool = False) -> dict:
    return {"type": "function", "function": {"name": name, "parameters": ARGS, "strict": strict}}


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_double(tmp_path_factory.mktemp("model"), sharp=1.0)


@pytest.fixture
async def policy(folder: Path) -> AsyncIterator[LocalPolicy]:
    policy = open_local(folder)
    yield policy
    policy.close()


async def asked(policy: LocalPolicy, count: int = 6, **more) -> list[ChatReply]:
    options = {"temperature": 1.0, "max_tokens": 120, "exact": True} | more
    requests = [ChatRequest([ChatMessage("user", "go")], seed=seed, **options) for seed in range(count)]
    return await asyncio.gather(*map(policy.chat, requests))


async def test_an_answer_follows_its_schema(policy) -> None:
    for reply in await asked(policy, schema=ARGS):
        jsonschema.validate(json.loads(reply.content), ARGS)
        assert (reply.finish_reason, reply.tokens.constrained) == ("stop", True)


@each_row("choice", ["required", "reship"])
async def test_a_call_that_is_asked_for_is_made_and_its_arguments_fit(policy, choice: str) -> None:
    tools = [tool("get_order"), tool("reship")]
    for reply in await asked(policy, tools=tools, tool_choice=choice, parallel_calls=False):
        (call,) = reply.tool_calls
        assert call.name in (["reship"] if choice == "reship" else ["get_order", "reship"])
        jsonschema.validate(json.loads(call.args), ARGS)
        assert (reply.content, reply.finish_reason, reply.tokens.constrained) == ("", "tool_calls", True)


async def test_a_constrained_row_keeps_the_logprobs_of_the_free_softmax(policy) -> None:
    reply = (await asked(policy, 1, schema=ARGS))[0].tokens
    scored = (await policy.score([[*reply.prompt_ids, *reply.ids]]))[0]
    assert scored[len(reply.prompt_ids) - 1 :] == pytest.approx(list(reply.logprobs), abs=1e-4)


async def test_a_strict_tool_leaves_text_free_and_calls_bound(policy) -> None:
    replies = await asked(policy, 3, tools=[tool("get_order", strict=True)], max_tokens=30)
    assert all(reply.tokens.constrained for reply in replies)
    assert [one.tokens.constrained for one in await asked(policy, 1, tools=[tool("get_order")])] == [False]


async def test_strict_and_free_rows_share_a_batch(policy) -> None:
    free, bound = await asyncio.gather(asked(policy, 2), asked(policy, 2, schema=ARGS))
    assert [one.tokens.constrained for one in (*free, *bound)] == [False, False, True, True]
    assert [one.tokens.ids for one in free] == [one.tokens.ids for one in await asked(policy, 2)]


@each_row(
    ("more", "said"),
    [
        ({"schema": {"type": "wrong"}}, "no grammar can be made of the schema"),
        ({"tools": [tool("a")], "tool_choice": "b"}, "tool_choice names 'b'"),
    ],
)
async def test_what_no_grammar_can_be_made_of_is_refused(policy, more: dict, said: str) -> None:
    with pytest.raises(EndpointError, match=said):
        await asked(policy, 1, **more)


def test_after_the_mark_of_a_call_only_an_offered_tool_may_follow(folder: Path) -> None:
    from nano_double import tokenizer_double

    from dreamgym_kit.adapters.models.local_grammar import Grammars

    tokenizer = tokenizer_double()
    grammars = Grammars(tokenizer, vocabulary=288, ends=frozenset({258}))
    request = ChatRequest([], tools=[tool("get_order", strict=True), tool("get", strict=True)])
    grammar = grammars.of(request)
    assert not grammar.forbidden()[tokenizer.encode("h")[0]]
    for token in tokenizer.encode('hm<tool_call>\n{"name": "get'):
        assert grammar.took(token)
    allowed = (~grammar.forbidden()).nonzero()[:, 0].tolist()
    assert {tokenizer.decode([one])[0] for one in allowed} == {"_", '"'}
    for token in tokenizer.encode('", "arguments": {"order": "7", "express": true}}\n</tool_call>'):
        assert grammar.took(token)
    assert not grammar.forbidden()[258]
