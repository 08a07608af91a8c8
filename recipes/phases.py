"""Work in phases that a killed process goes on with: what is done is written down, what was half done is not.

A phase is done when its facts stand in `phases.json`. One that was broken off is begun anew, from the same
seeds, after what it left was cleared; one that can go on by itself (a training) finds its folder as it was.
"""

import json
import shutil
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

from dreamgym_kit.errors import NotJson, UserError
from dreamgym_kit.jsonread import read_json
from dreamgym_kit.plain import JsonValue
from dreamgym_kit.rollout.files import read_whole, write_atomically

FILE = "phases.json"
Facts = Mapping[str, JsonValue]


class Phases:
    """The phases of one piece of work, in one folder.

    Args:
        out: the folder; made where there is none.
        plan: what must be the same for going on.

    Raises:
        UserError: something else is at `out`, or work by another plan.
    """

    def __init__(self, out: Path, plan: Facts) -> None:
        self.out, self._plan = out, json.loads(json.dumps(plan))
        self._done = self._read()
        if not self._done:
            out.mkdir(parents=True, exist_ok=True)
            self._write()

    @property
    def seconds(self) -> dict[str, float]:
        """Wall time of each phase that is done, of its last leg."""
        return {name: float(str(facts.get("seconds", 0.0))) for name, facts in self._done.items()}

    def facts(self, name: str) -> Facts | None:
        """What a phase that is done wrote down; None where it is not done."""
        return self._done.get(name)

    def run(self, name: str, work: Callable[[], Facts], *, clears: Sequence[str] = ()) -> tuple[Facts, bool]:
        """Do a phase, or give what it wrote down: its facts, and whether it was done before.

        Args:
            name: of the phase.
            work: does it; what it gives is kept as JSON.
            clears: names in the folder that a broken-off leg may have left, as patterns; removed before.
        """
        known = self._done.get(name)
        if known is not None:
            return known, True
        for pattern in clears:
            for path in self.out.glob(pattern):
                shutil.rmtree(path) if path.is_dir() and not path.is_symlink() else path.unlink()
        began = time.monotonic()
        facts = {**work(), "seconds": round(time.monotonic() - began, 1)}
        self._done[name] = json.loads(json.dumps(facts))
        self._write()
        return self._done[name], False

    def _write(self) -> None:
        told = {"plan": self._plan, "done": self._done}
        write_atomically(self.out / FILE, (json.dumps(told, indent=1) + "\n").encode("ascii"))

    def _read(self) -> dict[str, dict[str, JsonValue]]:
        path = self.out / FILE
        try:
            told = read_json(read_whole(path))
        except FileNotFoundError:
            if self.out.exists() and (not self.out.is_dir() or any(self.out.iterdir())):
                raise UserError(
                    f"{self.out}: is there already; name another folder, or delete it first"
                ) from None
            return {}
        except NotJson as error:
            raise UserError(f"{path}: is damaged ({error}); begin anew in another folder") from error
        if not isinstance(told, dict) or told.get("plan") != self._plan:
            raise UserError(f"{path}: was begun by another plan; go on with that one, or name another folder")
        done = told.get("done")
        return {name: dict(facts) for name, facts in done.items()} if isinstance(done, dict) else {}
