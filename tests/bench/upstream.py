"""Do other projects' own tests end otherwise with the gate in place? See tests/upstream/run.py."""

import re
import subprocess
import sys
from pathlib import Path

RUN = Path(__file__).parents[1] / "upstream" / "run.py"


def measure(seed: int) -> list[tuple[str, float, str]]:
    """Run every suite without the gate, with it idle, and recording; count the tests that differ."""
    done = subprocess.run(
        [sys.executable, RUN, "--seed", str(seed)], stdout=subprocess.PIPE, text=True, check=False
    )
    found = re.search(r"^different (\d+) tests$", done.stdout, re.MULTILINE)
    if found is None:
        raise RuntimeError(f"tests/upstream/run.py ended with code {done.returncode} and without a figure")
    return [("different", float(found[1]), "tests")]
