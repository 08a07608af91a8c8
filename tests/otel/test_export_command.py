"""`export -o otel:` as a person runs it."""

import itertools
import os
import re
import subprocess
import sys
from collections.abc import Callable, Iterable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from each_row import each_row
from warm import run_command

from dreamgym_kit.adapters.stores.memory import MemoryStore
from dreamgym_kit.adapters.traces.importing import import_traces
from dreamgym_kit.cli.export import targets_of
from dreamgym_kit.errors import UserError
from dreamgym_kit.rollout.rundir import RunDirectory
from dreamgym_kit.types import Episode

Write = Callable[[Iterable[Episode]], Path]
WITHOUT_THE_EXTRA = """\
import sys
sys.modules["opentelemetry.exporter.otlp.proto.http"] = None
"""


KNOWN = {"NO_PROXY": "127.0.0.1", "OTEL_EXPORTER_OTLP_TIMEOUT": "60"}


def kit(*arguments: object, **variables: str) -> subprocess.CompletedProcess[str]:
    return run_command(*arguments, **KNOWN, **variables)


def kit_apart(*arguments: object, **variables: str) -> subprocess.CompletedProcess[str]:
    """In a process that has imported nothing yet, whose output is a pipe."""
    command = [str(Path(sys.executable).with_name("dreamgym-kit")), *map(str, arguments)]
    return subprocess.run(command, capture_output=True, text=True, env={**os.environ, **KNOWN, **variables})


def test_a_run_goes_to_a_file_that_can_be_imported_again(
    write_run: Write, episode: Episode, tmp_path: Path
) -> None:
    directory, file = write_run([episode]), tmp_path / "spans.jsonl"
    done = kit("export", directory, "-o", f"otel:{file}")
    assert (done.returncode, done.stdout, done.stderr) == (0, f" {file}  1 trace, 6 spans\n", "")
    back = kit("buffer", "import", file, "--buffer", tmp_path / "dreams.db")
    assert (back.returncode, back.stdout.splitlines()[0]) == (
        0,
        f"2 transitions were added to {tmp_path}/dreams.db; 0 were there already.",
    )


def test_a_missing_extra_is_said_with_what_to_install(
    write_run: Write, episode: Episode, tmp_path: Path
) -> None:
    (tmp_path / "sitecustomize.py").write_text(WITHOUT_THE_EXTRA)
    directory = write_run([episode])
    done = kit_apart("export", directory, "-o", "otel:spans.jsonl", PYTHONPATH=str(tmp_path))
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr == "error: export -o otel: needs an extra: pip install 'dreamgym-kit[otel]'\n"
    assert kit_apart("report", directory, PYTHONPATH=str(tmp_path)).returncode == 0


@each_row(
    ("arguments", "why"),
    [
        (("otel:nowhere/spans.jsonl",), "-o otel:nowhere/spans.jsonl: give a file in an existing folder"),
        (("otel:ftp://host/x",), "-o otel:ftp://host/x: give a file in an existing folder, or an http"),
        (("otel:.",), "-o otel:.: give a file"),
        (("otel:x.jsonl", "--otel-headers", "KEYS"), "a file has no headers"),
        (("x.md", "--otel-headers", "KEYS"), "--otel-headers goes with -o otel:URL"),
        (("otel:http://u:p4ssw0rd@host",), "remove user, key and query from the URL"),
        ((f"otel:{'x' * 300}",), "File name too long"),
        ((f"html:{'x' * 300}",), "File name too long"),
    ],
)
def test_wrong_use_is_said_in_one_line_and_ends_with_2(
    run_dir: Path, arguments: tuple[str, ...], why: str
) -> None:
    done = kit("export", run_dir, "-o", *arguments)
    assert (done.returncode, done.stdout, done.stderr.count("\n")) == (2, "", 1)
    assert why in done.stderr
    assert "p4ssw0rd" not in done.stderr


@pytest.mark.slow
def test_what_is_no_file_is_never_replaced_by_one(write_run: Write, episode: Episode, tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe")
    (tmp_path / "stdout").symlink_to("/proc/self/fd/1")
    run = write_run([episode])
    for form, name in itertools.product(("otel", "html"), ("pipe", "stdout")):
        done = kit_apart("export", run, "-o", f"{form}:{tmp_path / name}")
        assert (done.returncode, done.stdout) == (2, ""), form
        assert "is not a plain file and is not replaced; choose another path." in done.stderr
    assert (tmp_path / "pipe").is_fifo()
    assert (tmp_path / "stdout").is_symlink()
    assert not list(tmp_path.glob(".*.new"))


def test_secrets_of_the_process_are_in_no_export(
    write_run: Write, episode: Episode, tmp_path: Path, collector: Any
) -> None:
    key = "sk-live-4242424242424242"
    step = episode.transitions[0]
    told = replace(
        step,
        call=replace(step.call, args={"note": f"use {key}", "password": "hunter2-hunter2"}),
        answer=replace(step.answer, content={"key": key}, why=f"said {key}"),
    )
    leaky = replace(
        episode,
        transitions=(told,),
        messages=({"role": "user", "content": f"my key is {key}"},),
        reason=f"it told {key}",
        violations=(key,),
    )
    directory, file = write_run([leaky]), tmp_path / "spans.jsonl"
    for target in (file, collector.url):
        assert kit("export", directory, "-o", f"otel:{target}", SHOP_API_KEY=key).returncode == 0
    texts = (file.read_text(), "".join(map(str, collector.requests)))
    for text in texts:
        assert key not in text
        assert "hunter2" not in text
        assert "<masked>" in text


@pytest.mark.slow
def test_what_the_desk_dreamt_comes_back_from_its_export(tmp_path: Path) -> None:
    assert kit("demo", "--keep", tmp_path / "demo").returncode == 0
    (run,) = (tmp_path / "demo" / "runs").iterdir()
    assert kit("export", run, "-o", f"otel:{tmp_path / 'spans.jsonl'}").returncode == 0
    store = MemoryStore()  # a buffer on disk would keep as many dreamt answers as real ones and no more
    report = import_traces(tmp_path / "spans.jsonl", store)
    dreamt = {step.id: step for one in RunDirectory.open(run).episodes() for step in one.transitions}
    assert (report.read, report.unread, report.unanswered) == (len(dreamt), 0, 0)
    assert len(dreamt) > 300
    assert {step.id: step for step in store.scan()} == dreamt


@each_row("target", ["otel:http://localhost:4318", "png:curves"])
def test_a_command_that_runs_first_refuses_what_only_export_writes(target: str) -> None:
    with pytest.raises(UserError, match="dreamgym-kit export RUN -o"):
        targets_of([target], reports=True)
    assert targets_of([target])


@each_row(
    ("text", "now"),
    [("junit=report.xml", "report.xml"), ("html=old/x.html", "old/x.html"), ("md=$SUMMARY", r"md:\$SUMMARY")],
)
def test_a_form_before_an_equals_sign_is_no_folder(text: str, now: str) -> None:
    with pytest.raises(UserError, match=f"write -o {now}; a file of that name is -o ./{re.escape(text)}. "):
        targets_of([text])
    assert [target.place for target in targets_of([f"./{text}.md"])] == [f"./{text}.md"]
