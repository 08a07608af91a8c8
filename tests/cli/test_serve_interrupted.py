"""`serve experience` interrupted while it starts or drains, once and often: all of it goes."""

import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import closing, suppress
from http.client import HTTPConnection
from pathlib import Path

import psutil
import pytest
from models import vllm_program_double
from ports import own_port
from served.patience import look
from training.real_parts import hears_ctrl_c
from waiting import gone, wait_until

from dreamgym_kit.adapters.models.vllm.launch import UNDER_WAY
from dreamgym_kit.adapters.models.vllm.looking import read_under_way

KEY = "sk-interrupted-canary"


class Watched:
    """The command over the double of vLLM."""

    def __init__(self, folder: Path, model: str) -> None:
        program = folder / "vllm"
        program.write_text(f'#!/bin/sh\nexec {sys.executable} {vllm_program_double.__file__} "$@"\n')
        program.chmod(0o700)
        self.port, self.words, self.log = own_port(), folder / "told", folder / "log"
        self._group: list[psutil.Process] = []
        line = [sys.executable, "-m", "dreamgym_kit.cli.main", "serve", "experience", "--vllm", str(program)]
        line += ["--model", f"test/{model}", "--port", str(self.port), "--log", str(self.log)]
        with self.words.open("w") as told:
            self.process = subprocess.Popen(
                line,
                stdout=told,
                stderr=told,
                env={**os.environ, "VLLM_API_KEY": KEY},
                preexec_fn=hears_ctrl_c,
            )

    @property
    def told(self) -> str:
        return self.words.read_text()

    @property
    def group(self) -> list[psutil.Process]:
        """The server's processes, also when the command has ended without them."""
        if self.process.poll() is None:
            self._group = psutil.Process(self.process.pid).children(recursive=True)
        return self._group

    def until(self, words: str) -> None:
        """Wait until it has said that."""
        wait_until(lambda: words in self.told or self.process.poll() is not None, words)
        assert words in self.told, self.told

    def storm(self) -> None:
        """Ctrl-C by somebody who has had enough."""
        with suppress(ProcessLookupError):
            for _ in range(200):
                self.process.send_signal(signal.SIGINT)
                if self.process.poll() is not None:
                    return
                time.sleep(0.001)  # sleeps: a person presses again and again


@pytest.fixture
def start(tmp_path: Path) -> Iterator[type]:
    started: list[Watched] = []

    def begin(model: str) -> Watched:
        started.append(Watched(tmp_path, model))
        return started[-1]

    yield begin  # type: ignore[misc]
    for one in started:
        for process in [*one.group, one.process]:
            with suppress(psutil.NoSuchProcess):
                process.kill()
        one.process.wait()


def test_interrupted_often_while_it_starts_it_goes_without_a_word_of_python(start) -> None:
    watched = start("sleeps")
    watched.until("starting vLLM")
    wait_until(lambda: "engine" in watched.log.read_text(), "the engine")
    group = watched.group
    watched.storm()
    assert watched.process.wait(100) == 130
    assert "Traceback" not in watched.told
    assert len(group) == 2
    assert gone(group)


def test_interrupted_often_while_it_drains_it_ends_at_once(start) -> None:
    watched = start("serves")
    watched.until("ready:")
    group = watched.group
    with closing(HTTPConnection("127.0.0.1", watched.port, timeout=60)) as asked:
        asked.request("POST", "/", b"", {"x-looks": "1000000"})
        url = f"http://127.0.0.1:{watched.port}"
        wait_until(lambda: read_under_way(look(url, UNDER_WAY).text), "the request to be under way")
        watched.process.send_signal(signal.SIGINT)
        watched.until("once more ends it at once")
        watched.storm()
        assert watched.process.wait(100) == 130  # a drain would take longer
    assert watched.told.endswith("ended at once\n")
    assert "Traceback" not in watched.told
    assert gone(group)
