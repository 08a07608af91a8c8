"""The commands in the manifests: the kit takes them, and the shell around a shard does what it says."""

import os
import re
import signal
import subprocess
from collections.abc import Iterator
from contextlib import suppress
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest
from deploy_files.kubernetes_checks import pods_of
from deploy_files.reading import DEPLOY, KUBERNETES, documents
from docblocks.running import kit_commands
from each_row import each_row
from typer.main import get_command
from waiting import wait_until

from dreamgym_kit.adapters.models.vllm.launch import DOOR, Role, role_flags
from dreamgym_kit.cli.main import app
from dreamgym_kit.settings.load import environment_names

SHARDS = DEPLOY / "kubernetes" / "simulate-shards.yml"
DOUBLE = """#!/bin/sh
trap 'echo ended >> "$SAID"; exit 143' TERM
echo "$@" >> "$SAID"
[ -z "$HANGS" ] || while :; do sleep 0.05; done
exit "$CODE"
"""


def scripts() -> list[Any]:
    """What containers and entry points run, with where it stands."""
    found = []
    for path in KUBERNETES:
        for one in documents(path.read_text("utf-8")):
            texts = [one["spec"]["entrypoint"]] if one["kind"] == "RayJob" else []
            for pod in pods_of(one):
                texts += [" ".join(box.get("args", ())) for box in pod["spec"]["containers"]]
            found += [pytest.param(text, id=path.name) for text in texts if "dreamgym-kit" in text]
    return found


def parse(script: str) -> list[str]:
    """The sub-commands that a script calls; raises where the kit does not take one."""
    plain = re.sub(r"\$\(\(JOB_COMPLETION_INDEX \+ 1\)\)", "1", script.replace("\\\n", " "))
    plain = re.sub(r"\$\{begun:\+(.*?)\}", r"\1", plain).replace("exec ", "")
    names = []
    for line in plain.splitlines():
        for words in kit_commands(line) if line.strip().startswith("dreamgym-kit") else ():
            command, rest = get_command(app), [word for word in words if word != "&"]
            while hasattr(command, "commands"):
                command, rest = command.commands[rest[0]], rest[1:]
            command.make_context("dreamgym-kit", list(rest))
            names.append(str(command.name))
    return names


@pytest.mark.parametrize("script", scripts())
def test_the_kit_takes_what_a_manifest_calls(script: str) -> None:
    assert parse(script) in (["simulate"], ["merge"], ["migrate"])


def test_a_call_that_the_kit_does_not_take_is_found_in_a_manifest() -> None:
    with pytest.raises(Exception, match="No such option"):
        parse("exec dreamgym-kit simulate --workrs 8")


def test_every_setting_in_a_manifest_is_one() -> None:
    told = set(re.findall(r"name: (DREAMGYM_\w+)", "".join(path.read_text("utf-8") for path in KUBERNETES)))
    assert len(told) >= 3
    assert told <= set(environment_names())


def flags(role: Role) -> set[str]:
    """The flags of a role, but the door: that is of the kit, and the image holds vLLM alone."""
    said = role_flags(role)
    pairs = [f"{flag}={value}" for flag, value in pairwise(said) if value[:2] != "--"]
    alone = [flag for flag, after in zip(said, [*said[1:], "--"], strict=True) if after[:2] == "--"]
    return {one for one in (*pairs, *alone) if one.startswith("--")} - {f"--middleware={DOOR}"}


def served(path: Path, name: str) -> set[str]:
    """What a file starts vLLM with, for the model of that name."""
    documented = documents(path.read_text("utf-8"))
    lines = [one.get("command", ()) for one in documented[0].get("services", {}).values()]
    for one in documented if "services" not in documented[0] else ():
        lines += [box.get("args", ()) for pod in pods_of(one) for box in pod["spec"]["containers"]]
    return next(set(line) for line in lines if f"--served-model-name={name}" in line)


@each_row("path", [DEPLOY / "compose" / "vllm.yml", DEPLOY / "kubernetes" / "vllm.yml"], ids=str)
@each_row("role", [Role.POLICY, Role.EXPERIENCE])
def test_vllm_is_started_in_a_container_as_serve_starts_it(path: Path, role: Role) -> None:
    assert len(flags(role)) >= 5
    assert flags(role) - served(path, str(role)) == set()
    assert flags(Role.POLICY) - served(path, "experience") != set()


class Pod:
    """Runs the shell of a shard with a double of the kit, in folders of its own."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.started: list[subprocess.Popen[bytes]] = []
        self.said = folder / "said"
        (folder / "bin").mkdir()
        (folder / "bin" / "dreamgym-kit").write_text(DOUBLE)
        (folder / "bin" / "dreamgym-kit").chmod(0o755)
        (job,) = documents(SHARDS.read_text("utf-8"))
        (box,) = job["spec"]["template"]["spec"]["containers"]
        self.script = box["args"][0].replace("/runs/", f"{folder}/runs/")
        self.shell = box["command"]

    def start(self, code: int, **more: str) -> subprocess.Popen[bytes]:
        path = f"{self.folder / 'bin'}:{os.environ['PATH']}"
        said = {"PATH": path, "SAID": str(self.said), "CODE": str(code), "JOB_COMPLETION_INDEX": "2", **more}
        self.started.append(subprocess.Popen([*self.shell, self.script], env=said, start_new_session=True))
        return self.started[-1]


@pytest.fixture
def pod(tmp_path: Path) -> Iterator[Pod]:
    """One of which nothing is left at the end of the test."""
    pod = Pod(tmp_path)
    yield pod
    for started in pod.started:
        with suppress(ProcessLookupError):
            os.killpg(started.pid, signal.SIGKILL)
        started.wait()


@pytest.mark.parametrize(("code", "ends"), [(0, 0), (1, 0), (2, 2), (3, 0), (4, 4), (130, 130)])
def test_a_shard_ends_with_its_code_but_leaves_the_gate_to_the_merge(pod: Pod, code: int, ends: int) -> None:
    assert pod.start(code).wait(100) == ends
    assert "shard=3/4" in pod.said.read_text()
    assert "--resume" not in pod.said.read_text()


def test_a_shard_that_was_begun_goes_on(pod: Pod) -> None:
    begun = pod.folder / "runs" / "simulate" / "2" / "2026-11-22-agent-7f3a"
    begun.mkdir(parents=True)
    assert pod.start(0).wait(100) == 0
    assert f"--resume {begun}" in pod.said.read_text()


def test_a_shard_that_is_asked_to_end_does_so_in_order(pod: Pod) -> None:
    running = pod.start(0, HANGS="1")
    wait_until(pod.said.exists, "the kit")
    running.send_signal(signal.SIGTERM)
    assert running.wait(100) == 143
    assert "ended" in pod.said.read_text()


def test_a_shard_whose_shell_has_not_noted_it_yet_ends_in_order_too(pod: Pod) -> None:
    noted = "&\nshard=$!"
    assert noted in pod.script
    asked = 'while [ ! -e "$SAID" ]; do sleep 0.02; done; kill -TERM $$'
    pod.script = pod.script.replace(noted, noted.replace("\n", f"\n{asked}\n"))
    assert pod.start(0, HANGS="1").wait(100) == 143
    assert "ended" in pod.said.read_text()


def test_a_shard_that_is_asked_to_end_before_it_began_does_not_begin(pod: Pod) -> None:
    pod.script = pod.script.replace("dreamgym-kit simulate", "kill -TERM $$\ndreamgym-kit simulate")
    assert pod.start(0, HANGS="1").wait(100) == 143
    assert not pod.said.exists()
