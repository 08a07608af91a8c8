"""`serve policy --dev --lora-rank N` as a command: what it opens, what it takes, an end that cannot wait."""

import asyncio
import json
import signal
from collections.abc import Iterator
from pathlib import Path

import pytest

pytest.importorskip("torch", reason="the extra train is not installed")

from gone import gone
from models.adapted import adapted
from served.command import Served, command, held, under_way
from served.patience import look
from served.starter import POLICY

from dreamgym_kit.adapters.models.remote import open_remote
from dreamgym_kit.adapters.models.vllm.routes import open_routes
from dreamgym_kit.chat import ChatMessage, ChatRequest
from dreamgym_kit.settings.load import parse_settings

pytestmark = [pytest.mark.vllm, pytest.mark.timeout(1800)]


@pytest.fixture(scope="module")
def served(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    folder = tmp_path_factory.mktemp("serve")
    with command("policy", POLICY, folder, "--dev", "--lora-rank", "8", "--scale-out") as served:
        yield served


async def test_its_printed_settings_reach_a_policy_that_takes_adapters(
    served: Served, tmp_path: Path
) -> None:
    printed = served.told[served.told.index("[policy]") :].partition("export ")[0]
    said = parse_settings(printed).policy
    policy = open_remote(said, source="printed", environ={"VLLM_API_KEY": served.key}, timeout_s=120.0)
    try:
        await asyncio.to_thread(policy.check, adapters=True)
        (found,) = policy.found
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
    """Has to stand last in this file: there is no server afterwards."""
    key, group = served.key, served.group
    body = json.dumps({"model": "nano", "prompt": "order", "max_tokens": 4}).encode()

    def ask() -> int:
        return look(served.url, "/v1/completions", key=key, method="POST", body=body).status

    with held(served):
        asked = [asyncio.create_task(asyncio.to_thread(ask)) for _ in range(4)]
        await under_way(served, 4)
        served.process.send_signal(signal.SIGINT)
        while "once more ends it at once" not in served.told:
            await asyncio.sleep(0.02)
        served.process.send_signal(signal.SIGINT)
        assert await asyncio.to_thread(served.process.wait, 100) == 130  # a drain would take longer
    assert served.told.endswith("ended at once\n")
    assert "Traceback" not in served.told
    assert gone(group)
    assert [await one for one in asked] == [0] * 4  # cut off, and told by a closed connection
