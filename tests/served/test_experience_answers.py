"""What a real vLLM answers as the dream's model, held against the same weights in this process."""

import json
from collections.abc import Iterator

import pytest
from jsonschema import Draft202012Validator
from served.starter import ENVIRON, EXPERIENCE, endpoint, remote

from dreamgym_kit.adapters.models.local import LocalPolicy, open_local
from dreamgym_kit.adapters.models.vllm.launch import VllmServer
from dreamgym_kit.chat import ChatMessage, ChatRequest
from dreamgym_kit.dream.learned.experience import LearnedExperience
from dreamgym_kit.dream.learned.vocabulary import read_learned
from dreamgym_kit.dream.programs.experience import ProgramTracker

pytestmark = pytest.mark.vllm

SCHEMA = {
    "type": "object",
    "properties": {
        "why": {"type": "string", "maxLength": 12},
        "outcome": {"enum": ["ok", "error", "unknown"]},
        "sure": {"type": "number", "minimum": 0, "maximum": 1},
    },
    "required": ["why", "outcome", "sure"],
    "additionalProperties": False,
}
QUESTIONS = (
    "reship_order order_id@get_order<args.order_id>? true order_id@get_order<args.order_id>.status shipped",
    "cancel_order order_id@get_order<args.order_id>.status packed",
    "refund_payment heard.args.payment_id false",
)


@pytest.fixture(scope="module")
def local() -> Iterator[LocalPolicy]:
    policy = open_local(EXPERIENCE)
    yield policy
    policy.close()


@pytest.mark.parametrize("question", QUESTIONS)
async def test_a_real_server_decides_as_the_same_weights_do_in_process(
    experience_server: VllmServer, local: LocalPolicy, question: str
) -> None:
    learned, programs = read_learned(EXPERIENCE), ProgramTracker(lambda _: (), {})
    with remote(experience_server) as served:
        there = await LearnedExperience(served, learned, programs=programs).words(question)
    here = await LearnedExperience(local, learned, programs=programs).words(question)
    assert there[0] == here[0]
    assert there[1] == pytest.approx(here[1], abs=1e-3)


@pytest.mark.parametrize("question", QUESTIONS)
async def test_a_real_server_fills_a_schema_with_the_words_of_the_same_weights_in_process(
    experience_server: VllmServer, local: LocalPolicy, question: str
) -> None:
    request = ChatRequest(
        [ChatMessage("user", question)],
        schema=SCHEMA,
        schema_name="decision",
        temperature=0.0,
        max_tokens=160,
    )
    with endpoint(experience_server) as served:
        there = await served.chat(request)
    here = await local.chat(request)
    Draft202012Validator(SCHEMA).validate(json.loads(there.content))
    assert there.content == here.content


async def test_a_real_servers_cached_tokens_are_counted(experience_server: VllmServer) -> None:
    request = ChatRequest([ChatMessage("user", "order.status shipped " * 40)], temperature=0.0, max_tokens=4)
    with endpoint(experience_server) as served:
        for _ in range(2):
            reply = await served.chat(request)
        counts = served.counts
    assert reply.cached_tokens >= 0.5 * reply.prompt_tokens
    assert counts.cached_tokens >= reply.cached_tokens
    assert ENVIRON["VLLM_API_KEY"] not in repr(served)
