"""A server's process from start to stop, with a double of vLLM's program; a real one: tests/served."""

import sys
import threading
import time
from collections.abc import Iterator
from contextlib import closing
from http.client import HTTPConnection
from pathlib import Path
from types import SimpleNamespace

import psutil
import pytest
from models import vllm_program_double
from ports import own_port
from served import patience
from waiting import gone, wait_until

from dreamgym_kit.adapters.models.vllm import launch as servers
from dreamgym_kit.adapters.models.vllm.launch import Launch, Role, VllmServer
from dreamgym_kit.adapters.models.vllm.looking import read_metrics
from dreamgym_kit.errors import UserError

PAGE = """# HELP vllm:prompt_tokens_total Number of prefill tokens processed.
vllm:num_requests_running{engine="0",model_name="a"} 3.0
vllm:num_requests_running{engine="1",model_name="a"} 1.0
vllm:num_requests_waiting{engine="0",model_name="a"} 2.0
vllm:prompt_tokens_total{engine="0",model_name="a"} 1.2e+06
vllm:generation_tokens_total{engine="0"} 12.0
vllm:prefix_cache_queries_total{engine="0"} 1000.0
vllm:prefix_cache_hits_total{engine="0"} 820.0
vllm:odd{x="}"} nan and more
http_requests_total{method="GET"} 7.0
"""


@pytest.fixture(autouse=True)
def patient(monkeypatch: pytest.MonkeyPatch) -> None:
    """No answer is missed because the machine is busy."""
    monkeypatch.setattr(servers, "look", patience.look)


@pytest.fixture
def program(tmp_path: Path) -> str:
    script = tmp_path / "vllm-double"
    script.write_text(f"#!{sys.executable}\n{Path(vllm_program_double.__file__).read_text()}")
    script.chmod(0o755)
    return str(script)


@pytest.fixture
def start(program: str, tmp_path: Path) -> Iterator[object]:
    started: list[VllmServer] = []

    def start(model: str) -> VllmServer:
        launch = Launch(program, model, "m", Role.POLICY, port=own_port(), key="k")
        started.append(VllmServer(launch, tmp_path / "logs" / "server.log"))
        return started[-1]

    yield start
    for server in started:
        server.kill()


def group_of(server: VllmServer) -> list[psutil.Process]:
    found = psutil.Process(server.process.pid)
    return [found, *found.children(recursive=True)]


def test_a_server_that_dies_early_is_told_with_its_last_lines(start) -> None:
    with pytest.raises(UserError) as told:
        start("dies").wait_ready()
    first, *lines = str(told.value).split("\n")
    assert first.startswith("serve: vLLM ended with code 3 before it was ready; the end of ")
    assert lines[-1] == "  ValueError: no common block size for 16"


@pytest.mark.slow
def test_a_server_that_never_gets_ready_is_told_while_it_starts_and_ended(
    start, monkeypatch: pytest.MonkeyPatch
) -> None:
    words: list[str] = [""]

    def now() -> float:
        """The time is up once its first word was told."""
        return 2.0 if words[-1].startswith("engine ") else 0.0

    monkeypatch.setattr(servers, "time", SimpleNamespace(monotonic=now, sleep=time.sleep))
    server = start("sleeps")
    with pytest.raises(UserError, match="not ready within 1 s"):
        server.wait_ready(within_s=1.0, tell=lambda _, word: words.append(word))  # expires: by a driven clock
    assert words[-1].startswith("engine ")
    group = group_of(server)
    assert len(group) == 2
    server.kill()
    assert gone(group)


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["well", "late"])
def test_a_stop_waits_for_what_runs_and_takes_the_whole_group_along(start, kind: str) -> None:
    """Also while the engine's page does not know it yet: it lasts for twice the looks of a quiet stop."""
    server, answers = start(kind), []
    server.wait_ready()
    group = group_of(server)

    def ask() -> None:
        with closing(HTTPConnection("127.0.0.1", server.launch.port)) as asked:
            asked.request("POST", "/", headers={"x-looks": "8"})
            answers.append(asked.getresponse().read())

    asking = threading.Thread(target=ask, daemon=True)
    asking.start()
    wait_until(server.under_way, "the request to be under way")
    stopped = server.stop(grace_s=60)
    asking.join(60)
    assert answers == [b'{"whole": true}']
    assert (stopped.gracefully, stopped.left) == (True, 0)
    assert gone(group)
    assert server.process.log.stat().st_mode & 0o077 == 0


def test_a_server_that_does_not_go_is_made_to_and_what_was_cut_off_is_counted(start) -> None:
    server = start("deaf")
    server.wait_ready()
    group = group_of(server)

    def ask() -> None:
        with closing(HTTPConnection("127.0.0.1", server.launch.port)) as asked, pytest.raises(OSError):
            asked.request("POST", "/", headers={"x-looks": "1000000"})
            asked.getresponse()

    asking = threading.Thread(target=ask, daemon=True)
    asking.start()
    wait_until(lambda: server.metrics().running, "the request to run")
    stopped = server.stop(drain_s=0.2, grace_s=0.2)
    asking.join(60)
    assert (stopped.gracefully, stopped.left) == (False, 1)
    assert gone(group)


def test_a_port_that_somebody_has_is_not_taken_for_the_new_server(start, tmp_path: Path) -> None:
    first = start("well")
    first.wait_ready()
    with pytest.raises(UserError, match="something answers at http"):
        VllmServer(first.launch, tmp_path / "other.log")


def test_metrics_of_several_engines_are_added_and_strange_lines_passed_over() -> None:
    found = read_metrics(PAGE)
    assert found is not None
    assert (found.running, found.waiting, found.prompt_tokens) == (4, 2, 1_200_000)
    assert (found.cached_share, found.generated_tokens) == (0.82, 12)
    assert found.since(found).cached_share is None
    assert read_metrics("<html>") is None
    assert read_metrics("http_requests_total 1\n") is None
