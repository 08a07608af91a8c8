"""What the servers of a run count meanwhile stands in its report: read from their own `/metrics`."""

import json
import threading
from collections.abc import Iterator
from contextlib import closing, contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import pytest
from bench.faulty_endpoint_double import completion
from ports import kept
from waiting import wait_until_async

from dreamgym_kit.adapters.langgraph.run.request import RunRequest
from dreamgym_kit.adapters.langgraph.run.run import RunResult, run
from dreamgym_kit.adapters.models.vllm import looking
from dreamgym_kit.adapters.models.vllm.looking import watched
from dreamgym_kit.report.summary import facts_of
from dreamgym_kit.report.terminal import render_run
from dreamgym_kit.rollout.events import NoEvents
from dreamgym_kit.rollout.rundir import RunDirectory
from dreamgym_kit.settings.load import parse_settings
from dreamgym_kit.types import Task

KEY = "sk-watched-canary-77"
TASK = Task("t", {"messages": [{"role": "user", "content": "cancel o1"}]})
SAID = {"reasoning": "", "outcome": "ok", "like": None, "leaves": [], "answer": "open", "error": ""}
DECISION = json.dumps({**SAID, "set": [], "confidence": 1.0})


def page(read: int, cached: int, running: int, waiting: int) -> str:
    """As vLLM writes it."""
    said = {
        "prompt_tokens_total": read,
        "generation_tokens_total": read // 10,
        "prefix_cache_queries_total": read,
        "prefix_cache_hits_total": cached,
        "num_requests_running": running,
        "num_requests_waiting": waiting,
    }
    return "".join(f'vllm:{name}{{engine="0"}} {value}\n' for name, value in said.items())


class CountingServerDouble(ThreadingHTTPServer):
    """Gives the next of its pages at each look, then the last one; each chat gets the same decision."""

    daemon_threads = True

    def __init__(self, *pages: str, status: int = 200, vllm: bool = True) -> None:
        super().__init__(("127.0.0.1", 0), _Handler)
        self.pages, self.status, self.vllm = pages, status, vllm
        self.looks: list[tuple[str, str | None]] = []

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.server_address[1]}/v1"


class _Handler(BaseHTTPRequestHandler):
    server: CountingServerDouble

    def do_GET(self) -> None:
        self.server.looks.append((self.path, self.headers.get("Authorization")))
        at = min(len(self.server.looks), len(self.server.pages)) - 1
        self._send(self.server.status, self.server.pages[at])

    def do_POST(self) -> None:
        self.rfile.read(int(self.headers["Content-Length"]))
        said = completion(DECISION) | ({"kv_transfer_params": None} if self.server.vllm else {})
        self._send(200, json.dumps(said))

    def _send(self, status: int, text: str) -> None:
        self.send_response(status)
        self.send_header("Content-Length", str(len(text)))
        self.end_headers()
        self.wfile.write(text.encode())

    def log_message(self, *_: object) -> None:
        pass


@contextmanager
def serving(double: CountingServerDouble) -> Iterator[CountingServerDouble]:
    thread = threading.Thread(target=double.serve_forever, kwargs={"poll_interval": 0.01})
    thread.start()
    try:
        yield double
    finally:
        double.shutdown()
        thread.join()
        double.server_close()


async def dry_run(spec: str, url: str) -> RunResult:
    settings = parse_settings(
        '[tools.get_order]\neffect = "read"\n[tools.cancel_order]\neffect = "write"\n'
        f'[experience]\nurls = ["{url}"]\nmodel = "m"\nkey_env = "WATCHED_KEY"\njudge = false\n'
    )
    return await run(RunRequest(graph=spec, tasks=[TASK], settings=settings), events=NoEvents())


@pytest.fixture(autouse=True)
def key(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("WATCHED_KEY", KEY)
    monkeypatch.setattr(looking, "_LOOK_S", 100.0)  # a busy machine answers late


async def test_tokens_cache_and_queue_of_the_run_stand_in_its_report(project) -> None:
    pages = page(1000, 100, 0, 0), page(3000, 1600, 31, 4)
    with serving(CountingServerDouble(*pages)) as server:
        result = await dry_run(project.write(), server.url)
    (row,) = result.summary.to_json()["manifest"]["servers"]
    assert row == {
        "server": server.url,
        "prompt_tokens": 2000,  # what it had read before is not the run's
        "generated_tokens": 200,
        "cached_share": 0.75,
        "most_running": 31,
        "most_waiting": 4,
    }
    told = " ".join(render_run(result.summary).split())
    assert f"{server.url} read 2,000 tokens (75% cached), wrote 200;" in told
    assert "at most 31 requests ran and 4 waited" in told
    assert set(server.looks) == {("/metrics", f"Bearer {KEY}")}
    assert facts_of(RunDirectory.open(result.directory))["servers"] == [row]  # `report` has it later


async def test_who_is_no_vllm_is_not_looked_at(project) -> None:
    with serving(CountingServerDouble(page(1, 1, 1, 1), vllm=False)) as server:
        result = await dry_run(project.write(), server.url)
    assert server.looks == []
    assert "servers" not in result.summary.manifest


async def test_a_router_without_counters_is_looked_at_once_and_not_told_of(project) -> None:
    with serving(CountingServerDouble("nothing here", status=404)) as server:
        result = await dry_run(project.write(), server.url)
    assert len(server.looks) == 1
    assert "servers" not in result.summary.manifest


async def test_what_came_in_between_counts_also_over_a_restart(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(looking, "_EVERY_S", 0.01)
    pages = page(1000, 0, 1, 0), page(1500, 100, 9, 7), page(200, 50, 2, 0)  # it was started anew
    with serving(CountingServerDouble(*pages)) as server:
        settings = parse_settings(f'[policy]\nmodel = "m"\nurls = ["{server.url}"]\nkey_env = "WATCHED_KEY"')
        async with watched(settings, ["policy"]) as watch:
            await wait_until_async(lambda: len(server.looks) >= 3, "the third look")
            (row,) = await watch.table()
    assert isinstance(row, dict)
    assert (row["prompt_tokens"], row["most_running"], row["most_waiting"]) == (700, 9, 7)
    assert row["cached_share"] == round(150 / 700, 4)


async def test_counters_that_are_no_numbers_lose_no_report(project) -> None:
    said = page(1, 1, 1, 1)
    with serving(CountingServerDouble(said.replace(" 1\n", " NaN\n"))) as server:
        result = await dry_run(project.write(), server.url)
    assert result.totals.finished == 1


async def test_a_server_that_is_gone_holds_up_nothing() -> None:
    with closing(kept()) as nobody:
        url = f"http://127.0.0.1:{nobody.getsockname()[1]}/v1"
        settings = parse_settings(f'[policy]\nmodel = "m"\nurls = ["{url}"]\nkey_env = "WATCHED_KEY"')
        async with watched(settings, ["policy"]) as watch:
            assert await watch.table() == []
