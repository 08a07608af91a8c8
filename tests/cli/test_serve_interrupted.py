"""`serve experience` interrupted while it starts or drains, once and often: all of it goes."""

import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import suppress
from http.client import HTTPConnection
from pathlib import Path

import psutil
import pytest
from gone import gone
from models import vllm_program_double
from ports import own_port
from served.patience import look

from dreamgym_kit.adapters.models.vllm.metrics import read_under_way
from dreamgym_kit.adapters.models.vllm.server import UNDER_WAY

KEY = "sk-interrupted-canary"


class Watched:
    """The command over the double of vLLM."""

    def __init__(self, folder: Path, model: str) -> None:
        program = folder / "vllm"
        program.write_text(f'#!/bin/sh\nexec {sys.executable} {vllm_program_double.__file__} "$@"\n')
        program.chmod(0o700)
        self.port, self.words, self.log = own_port(), folder / "told", folder / "log"
        line = [sys.executable, "-m", "dreamgym_kit.cli.main", "serve", "experience", "--vllm", str(program)]
        line += ["--model", f"test/{model}", "--port", str(self.port), "--log", str(self.log)]
        with self.words.open("w") as told:
            self.process = subprocess.Popen(
                line, stdout=told, stderr=told, env={**os.environ, "VLLM_API_KEY": KEY}
            )

    @property
    def told(self) -> str:
        return self.words.read_text()

    def until(self, words: str) -> list[psutil.Process]:
        """The server's processes once it has said that."""
        while words not in self.told:
            assert self.process.poll() is None, self.told
            time.sleep(0.02)
        return psutil.Process(self.process.pid).children(recursive=True)

    def storm(self) -> None:
        """Ctrl-C by somebody who has had enough."""
        with suppress(ProcessLookupError):
            for _ in range(200):
                self.process.send_signal(signal.SIGINT)
                if self.process.poll() is not None:
                    return
                time.sleep(0.001)


@pytest.fixture
def start(tmp_path: Path) -> Iterator[type]:
    started: list[Watched] = []

    def begin(model: str) -> Watched:
        started.append(Watched(tmp_path, model))
        return started[-1]

    yield begin  # type: ignore[misc]
    for one in started:
        left = psutil.Process(one.process.pid).children(recursive=True) if one.process.poll() is None else []
        for process in [*left, one.process]:
            process.kill()
        one.process.wait()


def test_interrupted_often_while_it_starts_it_goes_without_a_word_of_python(start) -> None:
    watched = start("sleeps")
    watched.until("starting vLLM")
    while "engine" not in watched.log.read_text():
        time.sleep(0.02)
    group = watched.until("starting vLLM")
    watched.storm()
    assert watched.process.wait(100) == 130
    assert "Traceback" not in watched.told
    assert len(group) == 2
    assert gone(group)


def test_interrupted_often_while_it_drains_it_ends_at_once(start) -> None:
    watched = start("serves")
    group = watched.until("ready:")
    asked = HTTPConnection("127.0.0.1", watched.port, timeout=60)
    asked.request("POST", "/", b"", {"x-seconds": "600"})
    while not read_under_way(look(f"http://127.0.0.1:{watched.port}", UNDER_WAY).text):
        time.sleep(0.02)
    watched.process.send_signal(signal.SIGINT)
    watched.until("once more ends it at once")
    watched.storm()
    assert watched.process.wait(100) == 130  # a drain would take longer
    asked.close()
    assert watched.told.endswith("ended at once\n")
    assert "Traceback" not in watched.told
    assert gone(group)
