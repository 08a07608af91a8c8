"""Runs a page from top to bottom, in one folder, as a reader would."""

import ast
import os
import pty
import re
import shlex
import subprocess
import sys
from pathlib import Path

from docblocks.reading import SHELLS, Block, Unrun, unrun

BIN = Path(sys.executable).parent


class Reader:
    """Does what a page says; its shell stays in the folder that the page went to."""

    def __init__(self, folder: Path, rows: list[Unrun]) -> None:
        self.folder = folder
        self.rows = rows
        self.said: dict[int, str] = {}  # by the block's line

    def follow(self, block: Block) -> None:
        """Save, change, run; what is only read (TOML, YAML, JSON) is held by tests of its own."""
        if unrun(block, block.language, self.rows) is not None:
            return
        if block.file is not None:
            file = self.folder / block.file
            file.parent.mkdir(parents=True, exist_ok=True)
            file.write_text(block.text)
        elif block.function_in is not None:
            put_function(self.folder / block.function_in, block.text)
        elif block.language == "python":
            self.said[block.line] = self._run([sys.executable, "-c", block.text], block)
        elif block.language in SHELLS:
            self._shell(block)

    def _shell(self, block: Block) -> None:
        commands = [line for line in block.commands() if unrun(block, line, self.rows) is None]
        if not commands:
            return
        where = self.folder / ".where"
        *before, last = commands
        script = "\n".join(
            ["set -e", *before, "set +e", last, "code=$?", f"pwd > {shlex.quote(str(where))}", "exit $code"]
        )
        self.said[block.line] = self._run(["bash", "-c", script], block)
        self.folder = Path(where.read_text().strip())
        where.unlink()

    def _run(self, command: list[str], block: Block) -> str:
        done = run(command, self.folder)
        assert done.returncode == block.exit, (
            f"{block.place}: ended with {done.returncode}, the page says {block.exit}\n"
            f"{block.text}\n{done.stdout}\n{done.stderr}"
        )
        return done.stdout


def run(command: list[str], folder: Path) -> subprocess.CompletedProcess[str]:
    """One process at a terminal, with our commands first on its path; questions are answered with yes."""
    person, terminal = pty.openpty()
    os.write(person, b"y\n" * 4)
    try:
        return subprocess.run(
            command,
            cwd=folder,
            env={
                **os.environ,
                "PATH": f"{BIN}{os.pathsep}{os.environ['PATH']}",
                "COLUMNS": "100",
                "BROWSER": "true",
                "CI": "",  # there nobody is asked
            },
            capture_output=True,
            text=True,
            stdin=terminal,
        )
    finally:
        os.close(terminal)
        os.close(person)


def shell(command: str, folder: Path) -> str:
    """One command that has to work."""
    done = run(["bash", "-c", command], folder)
    assert done.returncode == 0, f"{command}\n{done.stdout}\n{done.stderr}"
    return done.stdout


def put_function(file: Path, new: str) -> None:
    """Put a function in place of the one of its name."""
    (wanted,) = [node.name for node in ast.parse(new).body if isinstance(node, ast.FunctionDef)]
    source = file.read_text()
    (old,) = [
        node for node in ast.parse(source).body if isinstance(node, ast.FunctionDef) and node.name == wanted
    ]
    lines = source.splitlines(keepends=True)
    file.write_text("".join([*lines[: old.lineno - 1], new, *lines[old.end_lineno :]]))


def kit_commands(text: str) -> list[list[str]]:
    """The calls of `dreamgym-kit` in a shell command, as arguments."""
    found = []
    for part in re.split(r"&&|\|\||;|\|", text):
        words = shlex.split(part, comments=True)
        if words and Path(words[0]).name == "dreamgym-kit":
            cut = next((place for place, word in enumerate(words) if word.startswith(">")), len(words))
            found.append(words[1:cut])
    return found
