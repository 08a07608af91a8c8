"""`serve policy` with `serve.dev` and adapters: what it opens, what it takes, an end that cannot wait."""

import asyncio
import json
import signal
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

pytest.importorskip("torch", reason="the extra train is not installed")

from models.adapted import adapted
from served.command import Served, commands, held, under_way
from served.patience import look
from served.starter import POLICY
from waiting import gone, wait_until, wait_until_async

from dreamgym_kit.adapters.models.remote import open_remote
from dreamgym_kit.adapters.models.vllm.looking import open_routes
from dreamgym_kit.chat import ChatMessage, ChatRequest
from dreamgym_kit.settings.load import parse_settings

pytestmark = [pytest.mark.vllm, pytest.mark.nightly]


@pytest.fixture(scope="module")
def running(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Callable[[], Served]]:
    folder = tmp_path_factory.mktemp("serve")
    told = ("serve.dev=true", "serve.lora_rank=8", "serve.scale_out=true")
    with commands("policy", POLICY, folder, *(f"--set={one}" for one in told)) as running:
        yield running


@pytest.fixture
def served(running: Callable[[], Served]) -> Served:
    return running()


async def test_its_printed_settings_reach_a_policy_that_takes_adapters(
    served: Served, tmp_path: Path
) -> None:
    printed = served.told[served.told.index("[policy]") :].partition("export ")[0]
    said = parse_settings(printed).policy
    policy = open_remote(said, source="printed", environ={"VLLM_API_KEY": served.key}, timeout_s=120.0)
    try:
        await asyncio.to_thread(policy.check, adapters=True)
        (found,) = policy.features
        assert (found.token_ids, found.tools, found.generate, found.lora, found.dev) == (True,) * 5
        await policy.load(adapted(POLICY, tmp_path, seed=1), "step-000001")
        asked = ChatRequest([ChatMessage("user", "hello")], max_tokens=4, seed=1, temperature=1.0, exact=True)
        reply = await policy.chat(asked)
        assert (reply.tokens.version, reply.model.startswith("nano.step-000001.")) == ("step-000001", True)
    finally:
        policy.close()


def test_its_routes_that_change_weights_ask_for_the_key(served: Served) -> None:
    assert [one.path for one in open_routes(served.url, timeout_s=120)] == ["/health"]
    assert look(served.url, "/is_paused", key=served.key).status == 200


async def test_a_second_ctrl_c_ends_it_at_once(served: Served) -> None:
    key, group = served.key, served.group
    body = json.dumps({"model": "nano", "prompt": "order", "max_tokens": 4}).encode()

    def ask() -> int:
        return look(served.url, "/v1/completions", key=key, method="POST", body=body).status

    with held(served):
        asked = [asyncio.create_task(asyncio.to_thread(ask)) for _ in range(4)]
        await asyncio.to_thread(wait_until, lambda: under_way(served) == 4, "four requests")
        served.process.send_signal(signal.SIGINT)
        await wait_until_async(lambda: "once more ends it at once" in served.told, "the stop")
        served.process.send_signal(signal.SIGINT)
        assert await asyncio.to_thread(served.process.wait, 100) == 130  # a drain would take longer
    assert served.told.endswith("ended at once\n")
    assert "Traceback" not in served.told
    assert gone(group)
    assert [await one for one in asked] == [0] * 4  # cut off, and told by a closed connection
