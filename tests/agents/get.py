"""Fetches the public agents of agents.lock: `get.py FOLDER [--mirror DIR]`, for DREAMGYM_AGENTS=FOLDER.

Each repository is checked out at its pinned commit as FOLDER/OWNER+NAME, and compared with its digest.
Packages that agents import go to FOLDER/site. `--mirror`: where there is no way to github.com, a folder of
git directories DIR/OWNER+NAME/repo. Nothing of a repository is run.
"""

import argparse
import hashlib
import subprocess
import sys
import tomllib
from pathlib import Path
from typing import Any

LOCK = Path(__file__).with_name("agents.lock")


def agents() -> list[dict[str, Any]]:
    """The entries of agents.lock."""
    return list(tomllib.loads(LOCK.read_text(encoding="utf-8"))["agent"])


def folder_of(agent: dict[str, Any], folder: Path) -> Path:
    """Where an agent's repository is checked out."""
    return folder / str(agent["repository"]).replace("/", "+")


def main() -> None:
    """Check out what is not there yet."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("folder", type=Path)
    parser.add_argument("--mirror", type=Path)
    asked = parser.parse_args()
    for agent in agents():
        place = folder_of(agent, asked.folder)
        if not (place / ".git").exists():
            source = f"https://github.com/{agent['repository']}"
            if asked.mirror is not None:
                source = str(asked.mirror / place.name / "repo")
            subprocess.run(["git", "clone", "--quiet", "--no-checkout", source, str(place)], check=True)
        subprocess.run(["git", "-C", str(place), "checkout", "--quiet", agent["commit"]], check=True)
        listed = ["git", "-C", str(place), "ls-tree", "-r", agent["commit"], "--", agent["folder"]]
        tree = subprocess.run(listed, check=True, capture_output=True).stdout
        if hashlib.sha256(tree).hexdigest() != agent["sha256"]:
            raise SystemExit(f"{agent['name']}: {place} is not what agents.lock names")
        print(f"{agent['name']}: {place} at {agent['commit'][:12]}")
    packages = tomllib.loads(LOCK.read_text(encoding="utf-8"))["packages"]
    pip = [sys.executable, "-m", "pip", "install", "--quiet", "--no-deps", "--target"]
    if not (asked.folder / "site").exists():
        subprocess.run([*pip, str(asked.folder / "site"), *packages], check=True)


if __name__ == "__main__":
    main()
