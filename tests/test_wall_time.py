"""`tests/wall_time.py` finds what made tests here fail on a busy machine, and nothing else."""

import subprocess
import sys
from pathlib import Path

import pytest

SCRIPT = Path(__file__).with_name("wall_time.py")
HEAD = "import asyncio, time, pytest\nfrom bench import acks, orchestration\n\n\n"
FOUND = {
    "an upper bound": "    began = time.monotonic()\n    assert time.monotonic() - began < 40\n",
    "of CPU time": "    took = time.process_time() - began\n    assert 60 > took\n",
    "a ratio": "    late = early = time.perf_counter()\n    assert late / early < 1.5\n",
    "a speed": "    took = time.perf_counter()\n    assert 100 / took > 500\n",
    "in a list": "    spent = []\n    spent.append(time.thread_time())\n    assert max(spent) < 5\n",
    "a figure": "    figures = dict(orchestration.figures())\n    assert figures['share_sync'] / 1 > 0.8\n",
    "two figures": "    had = dict(orchestration.quick(0))\n    assert had['share_sync'] < had['share']\n",
    "by hand": "    took = time.monotonic()\n    if took > 3:\n        pytest.fail('slow')\n",
    "no tenfold margin": "    took = time.monotonic()\n    assert took < 40  # tenfold: 5\n",
    "a short join": "    thread.join(5)\n",
    "a short timeout": "    subprocess.run(['x'], timeout=10)\n",
    "a short block": "    with asyncio.timeout(3):\n        pass\n",
    "a sleep": "    time.sleep(0.5)\n",
    "no more": "    took = time.monotonic()\n    assert not took > 3\n",
    "a deadline": "    until = time.monotonic() + 3\n",
}
PASSES = {
    "a lower bound": "    began = time.monotonic()\n    assert time.monotonic() - began >= 0.25\n",
    "a tenfold margin": "    took = time.monotonic()\n    assert took < 50  # tenfold: 5\n",
    "a long join": "    thread.join(60)\n",
    "the end of a wait": "    process.wait(2)  # expires: nothing ends it\n",
    "a poll": "    while not done():\n        time.sleep(0.01)\n",
    "a count": "    figures = dict(acks.measure(0))\n    assert figures['lost'] < 1\n",
}


def listed(folder: Path, bodies: dict[str, str]) -> list[str]:
    """The functions of a file with these bodies that the script names, and its last line."""
    tests = "\n\n".join(f"def test_it():  # {name}\n{body}" for name, body in bodies.items())
    (path := folder / "test_it.py").write_text(HEAD + tests)
    done = subprocess.run([sys.executable, SCRIPT, path], capture_output=True, text=True, check=False)
    *lines, last = done.stdout.splitlines()
    above = path.read_text().splitlines()
    numbers = [int(line.removeprefix(f"{path}:").partition(":")[0]) for line in lines]
    names = [
        next(text for text in reversed(above[:number]) if "  # " in text and "def " in text)
        for number in numbers
    ]
    return [*(name.partition("  # ")[2] for name in names), last]


@pytest.mark.slow
def test_each_way_to_depend_on_the_machine_is_listed(tmp_path: Path) -> None:
    assert listed(tmp_path, FOUND) == [*FOUND, f"{len(FOUND)} left"]


@pytest.mark.slow
@pytest.mark.nightly
def test_what_holds_at_any_speed_is_not_listed(tmp_path: Path) -> None:
    assert listed(tmp_path, PASSES) == ["ok"]
