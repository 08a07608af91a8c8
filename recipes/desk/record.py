"""Makes the shipped recordings by running the desk for real, under the gate in record mode.

    python -m dreamgym_kit.recipes.desk.record OUT.jsonl

The scripted model works every shipped task several times: with the planted bug, without it, as a junior
and with slips, so that the recordings hold right ways and wrong ones. Nothing in the file is written by
hand; only clock times differ when it is made again.
"""

import sys
import tempfile
from collections.abc import Mapping
from pathlib import Path

from dreamgym_kit.errors import UserError, require_extra
from dreamgym_kit.recipes.desk.graph import graph

RECORDINGS_FILE = Path(__file__).parent / "data" / "recordings.jsonl"
SETTINGS_FILE = Path(__file__).parent / "dreamgym.toml"
COLLEAGUES = ("scripted", "scripted:fixed", "scripted:junior", "scripted:slip")


def record_desk(out: Path, *, overwrite: bool = False) -> Mapping[str, float]:
    """Record every task with every colleague; gives how many tasks each solved, as a share.

    Raises:
        UserError: the extra is missing, or the file is there or cannot be written; then nothing was run.
    """
    require_extra("demo", needed_by="the support desk")
    from dreamgym_kit.adapters.langgraph.run.api import record
    from dreamgym_kit.adapters.stores.memory import MemoryStore
    from dreamgym_kit.replay.transfer import export_jsonl
    from dreamgym_kit.settings.load import load_settings

    if out.exists() and not overwrite:
        raise UserError(f"{out}: is there already; name another file, or delete it first")
    one_at_a_time = {
        "simulate.concurrency": 1,
        "simulate.repeats": 1,
    }  # the order of the rows is then the same
    settings = load_settings(file=SETTINGS_FILE, environ={}).with_overrides(one_at_a_time)
    store = MemoryStore()
    solved = {}
    with tempfile.TemporaryDirectory() as scratch:
        for name in COLLEAGUES:
            label = name.replace(":", "-")
            done = record(
                graph(name),
                settings.resolve(settings.tasks or ""),
                settings=settings,
                buffer=store,
                label=label,
                run_dir=Path(scratch) / label,
            )
            solved[name] = done.totals.passed / done.totals.total
        export_jsonl(store, out, overwrite=overwrite)
    return solved


if __name__ == "__main__":
    if len(sys.argv) != 2:
        sys.exit("usage: python -m dreamgym_kit.recipes.desk.record OUT.jsonl")
    try:
        shares = record_desk(Path(sys.argv[1]))
    except UserError as refused:
        sys.exit(f"error: {refused}")
    for colleague, share in shares.items():
        sys.stdout.write(f"{colleague} solved {share:.0%} of the tasks\n")
