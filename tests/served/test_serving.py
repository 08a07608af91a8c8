"""`dreamgym-kit serve experience` from start to stop, with requests under way; and what stands open."""

import asyncio
import json
import signal
import socket
import subprocess
from collections.abc import Callable, Iterator

import psutil
import pytest
from served.command import Served, commands, held, under_way
from served.patience import look
from served.starter import EXPERIENCE, KEY
from waiting import gone, wait_until, wait_until_async

from dreamgym_kit.adapters.models.vllm.launch import VllmServer
from dreamgym_kit.adapters.models.vllm.looking import open_routes

pytestmark = [pytest.mark.vllm, pytest.mark.nightly]
ASKED = {"model": "nano", "prompt": "order", "max_tokens": 64, "ignore_eos": True, "temperature": 1.0}


@pytest.fixture(scope="module")
def running(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Callable[[], Served]]:
    folder = tmp_path_factory.mktemp("serve")
    with commands("experience", EXPERIENCE, folder, VLLM_SERVER_DEV_MODE="1") as running:
        yield running


@pytest.fixture
def served(running: Callable[[], Served]) -> Served:
    """`serve experience` without any key set: it draws one."""
    return running()


def test_what_is_served_is_told_to_be_copied_and_logged_to_a_file(served: Served) -> None:
    told = (served.folder / "told").read_text()
    assert f"ready: 'nano' at {served.url}/v1" in told
    assert f'[experience]\nmodel = "{EXPERIENCE}"\nurls = ["{served.url}/v1"]\nserved = "nano"' in told
    assert "export VLLM_API_KEY=$(cat " in told
    (log,) = (served.folder / "dreamgym-kit").glob("*.log")
    assert "Application startup complete" in log.read_text()


def test_no_key_stands_in_a_list_of_processes_or_in_the_log(served: Served) -> None:
    key = served.key
    lines = subprocess.run(["ps", "-ww", "-eo", "args"], capture_output=True, text=True, check=True).stdout
    assert str(served.port) in lines
    assert key not in lines
    assert KEY not in lines
    words = "".join(path.read_text() for path in (served.folder / "dreamgym-kit").glob("*.log"))
    assert key not in words + (served.folder / "told").read_text()


def test_only_health_answers_without_a_key(served: Served, policy_server: VllmServer) -> None:
    """V2, on a server as it is served, and on one with every route that there is."""
    for url in (served.url, policy_server.launch.url):
        assert [one.path for one in open_routes(url, timeout_s=120)] == ["/health"]
    launch = policy_server.launch
    table = json.loads(look(launch.url, "/openapi.json", key=launch.key).text)["paths"]
    assert {"/collective_rpc", "/reset_prefix_cache", "/v1/load_lora_adapter", "/tokenize"} <= set(table)
    for path, methods in table.items():
        for method in methods:
            status = look(launch.url, path, method=method.upper(), body=b"{}").status
            assert status == (200 if path == "/health" else 401), path
    closed = look(served.url, "/collective_rpc", key=served.key, method="POST", body=b"{}")
    assert closed.status == 404  # nor is it there, although this environment asked for it


def test_it_listens_on_this_machine_alone(served: Served) -> None:
    others = [
        one.address
        for addresses in psutil.net_if_addrs().values()
        for one in addresses
        if one.family == socket.AF_INET and not one.address.startswith("127.")
    ]
    for address in others:
        with pytest.raises(OSError), socket.create_connection((address, served.port), timeout=60):
            pass
    assert look(served.url, "/health").status == 200


def test_pages_of_other_sites_and_rebound_names_are_turned_away(served: Served) -> None:
    import http.client

    key = f"Bearer {served.key}"
    for headers in ({"Origin": "http://evil.example"}, {"Host": "evil.example"}):
        asked = http.client.HTTPConnection("127.0.0.1", served.port, timeout=120)
        asked.request("POST", "/v1/completions", b"{}", {"Authorization": key, **headers})
        answer = asked.getresponse()
        assert answer.status == 403
        assert answer.getheader("access-control-allow-origin") is None
        asked.close()


async def test_a_stop_waits_for_what_is_under_way_and_lets_nothing_new_in(served: Served) -> None:
    key, group = served.key, served.group
    body = json.dumps(ASKED).encode()

    def ask() -> dict:
        seen = look(served.url, "/v1/completions", key=key, method="POST", body=body)
        assert seen.status == 200, seen.text
        return json.loads(seen.text)

    with held(served):
        asked = [asyncio.create_task(asyncio.to_thread(ask)) for _ in range(4)]
        await asyncio.to_thread(wait_until, lambda: under_way(served) == 4, "four requests")
        served.process.send_signal(signal.SIGINT)
        await wait_until_async(lambda: "nothing new is let in" in served.told, "the stop")
        late = await asyncio.to_thread(look, served.url, "/v1/completions", key=key, method="POST", body=body)
        assert (late.status, "being stopped" in late.text) == (503, True)
        await asyncio.sleep(2)  # sleeps: its own page says meanwhile that nothing runs
        assert served.process.poll() is None
    done = await asyncio.gather(*asked)
    assert [one["usage"]["completion_tokens"] for one in done] == [64] * 4
    assert await asyncio.to_thread(served.process.wait, 120) == 130
    assert gone(group)
    assert served.told.endswith("stopped\n")
