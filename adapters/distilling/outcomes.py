"""What runs say of recorded episodes: what the agent was asked, and whether it was a success."""

from collections.abc import Iterable
from pathlib import Path
from typing import Any

from dreamgym_kit.rollout.journal import JournalReader
from dreamgym_kit.rollout.rundir import RunDirectory
from dreamgym_kit.vocabulary import Episode, Verdict

_MOST = 2_000  # characters of what was asked


def outcomes_of(runs: Iterable[Path]) -> tuple[dict[str, str], dict[str, bool]]:
    """By recorded episode: what was asked, and whether it succeeded; inconclusive ones are left out.

    Raises:
        RunDirectoryError: one of them is no run directory.
    """
    texts: dict[str, str] = {}
    successes: dict[str, bool] = {}
    for path in runs:
        directory = RunDirectory.open(path)
        for episode in JournalReader(directory.path / "episodes.jsonl"):
            name = f"{directory.manifest.run}:{episode.id}"
            texts[name] = _asked(episode)
            if episode.verdict.conclusive:
                successes[name] = episode.verdict is Verdict.PASSED
    return texts, successes


def _asked(episode: Episode) -> str:
    for message in episode.messages:
        said: Any = message.get("content")
        if message.get("role") in ("user", "human") and isinstance(said, str):
            return said[:_MOST]
    return ""
