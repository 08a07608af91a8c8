"""X3: 100 texts that would move a cursor, write a clipboard or hide themselves, in every field of a run.

Every screen of `report`, and the notes that come with the page, hold no control byte but newline and tab,
and nothing outside ASCII.
"""

import itertools
import json
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from pages.runs import hostile, run_directory

from dreamgym_kit.report import sanitize, terminal
from dreamgym_kit.report.summary import summarize

_SIGNS = (
    "\x1b[31m",
    "\x1b[2J\x1b[H",
    "\x1b]8;;http://x\x07link\x1b]8;;\x07",
    "\x1b]52;c;aGk=\x07",
    "\x1b]0;title\x1b\\",
    "\x1bP+q\x1b\\",
    "\x9b2J",
    "\x9d8;;x\x9c",
    "\x07\x08\x7f",
    "\r\nforged: ",
    "\u202eolleh",
    "\u2066a\u2069",
    "z\u200bw\u200d\ufeff",
    "\U000e0041\U000e0042",
    "\u2028\u2029",
    "\x00",
    "[link=http://x]x[/link]",
    "\x1b[",
    "\x1b]8;;",
    "\x85\xa0\xad",
)
_AROUND = ("{}", "a{}b", "{0}{0}", "{}\t\n{}", "\x1b{}")
TEXTS = tuple(
    around.replace("{0}", "{}").replace("{}", sign) for around, sign in itertools.product(_AROUND, _SIGNS)
)
SCREENS = (
    (),
    ("--tools",),
    ("--list",),
    ("--only", "anomaly"),
    ("--json",),
)


def control_characters(text: str) -> set[str]:
    return {ascii(char) for char in text if char not in "\n\t" and not " " <= char <= "~"}


def report(directory: Path, *arguments: str) -> str:
    command = [sys.executable, "-m", "dreamgym_kit.cli.main", "report", str(directory), *arguments]
    done = subprocess.run(command, capture_output=True, check=False)
    assert done.returncode == 0, done.stderr
    return (done.stdout + done.stderr).decode("utf-8")


def screens(directory: Path) -> Iterator[tuple[str, str]]:
    for arguments in SCREENS:
        yield " ".join(arguments), report(directory, *arguments)
    listed = json.loads(report(directory, "--json"))["list"]
    for line in listed[::20]:
        yield line["id"], report(directory, f"--episode={line['id']}")


@pytest.mark.slow
def test_x3_no_screen_holds_a_control_byte(tmp_path: Path) -> None:
    texts = [text for text in TEXTS if "\x00" not in text]  # an argument of a program cannot hold it
    found = {
        name: control_characters(text) for name, text in screens(run_directory(tmp_path, hostile(texts)))
    }
    print(f"x3: {len(TEXTS)} texts, {len(found)} screens, {sum(map(len, found.values()))} control characters")
    assert len(set(TEXTS)) == 100
    assert {name: bad for name, bad in found.items() if bad} == {}


@pytest.mark.slow
def test_x3_a_comparison_holds_no_control_byte(tmp_path: Path) -> None:
    runs = [str(run_directory(tmp_path / name, hostile(TEXTS))) for name in ("one", "two")]
    for arguments in (("--limit", "200"), ("--json",), ("-o", str(tmp_path / "x.html"))):
        command = [sys.executable, "-m", "dreamgym_kit.cli.main", "compare", *runs, *arguments]
        done = subprocess.run(command, capture_output=True, check=False)
        assert done.returncode == 0, done.stderr
        assert control_characters((done.stdout + done.stderr).decode("utf-8")) == set(), arguments


def test_x3_the_whole_run_with_every_text(tmp_path: Path) -> None:
    summary = summarize(hostile(TEXTS), {"matters": {"mode": "dream", "graph": TEXTS[0]}})
    drawn = terminal.render_run(summary) + terminal.finding_list(summary) + terminal.tool_table(summary)
    assert control_characters(drawn + terminal.episode_list(summary)) == set()


def test_x3_a_screen_that_does_not_clean_is_found_out(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(terminal, "one_line", lambda text: text)
    monkeypatch.setattr(sanitize, "one_line", lambda text: text)
    summary = summarize(hostile(TEXTS), {"matters": {"mode": "dream"}})
    assert "'\\x1b'" in control_characters(terminal.episode_list(summary))
