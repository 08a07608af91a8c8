"""The phases of `train_then_deploy`, one after the other, each gone on with after a kill.

    record -> distil -> start -> before -> dream -> dreamed -> real (S2R) -> after -> deploy

A phase is done when its facts stand in `phases.json`; later phases read files, not memory, so a process that
was killed anywhere and started again comes to the same weights and the same decision. A phase that was broken
off is begun anew, from the same seeds, after what it left was cleared; one that can go on by itself (a
training) finds its folder as it was.
"""

import json
import shutil
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import closing
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from dreamgym_kit.adapters.langgraph.deploy import deploy
from dreamgym_kit.adapters.langgraph.run.evaluation import evaluation_between
from dreamgym_kit.adapters.stores.sqlite import SqliteStore
from dreamgym_kit.bounded_json import read_json
from dreamgym_kit.deployment.model_registry import ModelRegistry, Pointing, RegistryAction, RegistryEvent
from dreamgym_kit.errors import NotSerializable, UserError
from dreamgym_kit.recipes import train_then_deploy as steps
from dreamgym_kit.recipes.desk.environment import times_opened
from dreamgym_kit.recipes.desk.tasks import drawn_tasks
from dreamgym_kit.report.evaluation import Evaluation
from dreamgym_kit.rollout.atomic_files import read_whole, write_atomically
from dreamgym_kit.rollout.rundir import to_resume
from dreamgym_kit.supervision.audit import AUDIT, entries_of
from dreamgym_kit.types import Split

RECORDINGS, SHELF = "recordings.db", "deployed"
FILE = "phases.json"
Facts = Mapping[str, Any]  # as JSON has them
_SERVED = "desk"  # how a server calls the model


@dataclass(frozen=True, slots=True)
class WholeWayOutcome:
    """What came of the whole way."""

    before: Evaluation  # the start
    dreamed: Evaluation  # what learned in the dream, against the start
    after: Evaluation  # the candidate, against the start
    event: RegistryEvent  # what came of the last comparison
    pointing: Pointing
    card: Path
    facts: Mapping[str, Facts]  # of each phase
    seconds: Mapping[str, float]

    @property
    def promoted(self) -> bool:
        """Whether the candidate is in use."""
        return self.event.deed is RegistryAction.PROMOTED

    @property
    def sentence(self) -> str:
        """Whether it is in use, and whether it got better."""
        assert self.after.beating is not None  # it was held against the start
        in_use = "It is in use." if self.promoted else "It is not in use: the start stays."
        return f"{in_use} {self.after.beating.phrase('the start', 'the trained model')}"


class WholeWay:
    """Goes the whole way in one folder.

    Args:
        out: the folder.
        plan: how much of everything.
        tell: hears a line for each phase.
    """

    def __init__(self, out: Path, plan: "steps.WholeWayPlan", tell: "steps.Tell") -> None:
        self.out, self.plan, self._tell = out, plan, tell
        self.phases = Phases(out, asdict(plan))
        self._phase_lines: list[str] = []  # what the phase that is on says of itself
        self.settings = steps.settings_for(out, plan)
        tasks = drawn_tasks(plan.environments, seed=plan.seed)
        self.learned_from, self.gate_tasks = tasks[: -plan.gate], tasks[-plan.gate :]
        self.recorded = tasks
        self.held_out = drawn_tasks(plan.held_out, split=Split.HELD_OUT, seed=plan.seed)

    def go(self) -> WholeWayOutcome:
        """Every phase in turn."""
        self._phase("record", self._record, clears=(f"{RECORDINGS}*", "runs"))
        decides = self._phase("distil", self._distil, clears=("experience",)).get("model")
        self.settings = self.settings.with_overrides({"experience.dir": decides or None})
        start = Path(self._phase("start", self._start, clears=("start",))["model"])
        self._phase("before", lambda: self._try("before", start, "4 evaluate"), clears=("before",))
        dreamed = Path(self._phase("dream", lambda: self._dream(start))["weights"])
        self._phase("dreamed", lambda: self._try("dreamed", dreamed, "6 evaluate"), clears=("dreamed",))
        candidate = Path(self._phase("real", lambda: self._real(dreamed))["weights"])
        self._phase("after", lambda: self._try("after", candidate, "8 evaluate"), clears=("after",))
        self._phase("deploy", lambda: self._deploy(start, candidate), clears=(SHELF,))
        return self._outcome()

    def _phase(self, name: str, work: Callable[[], Facts], *, clears: Sequence[str] = ()) -> Facts:
        self._phase_lines = []
        facts, done_before = self.phases.run(
            name, lambda: {"told": self._phase_lines, **work()}, clears=clears
        )
        for line in facts.get("told", ()):
            self._tell(f"{line}  (done before)" if done_before else line)
        return facts

    def _say(self, line: str) -> None:
        """Tell a line, also when the phase was done before."""
        self._phase_lines.append(line)

    def _record(self) -> Facts:
        before = times_opened()
        with closing(SqliteStore(self.out / RECORDINGS)) as store:
            steps.record_work(self.recorded, self.settings, store, self.plan, self._say)
            rows = store.count()
        return {"recordings": rows, "real_calls": times_opened() - before}

    def _distil(self) -> Facts:
        """A model that decides what rules leave open: the package's own, or taught here from nothing."""
        from dreamgym_kit.recipes.nano.experience import build

        if self.plan.shipped:
            there = (build.WEIGHTS / "model.safetensors").is_file()
            source = f"the package's own, {build.WEIGHTS.name}" if there else "none: the package has none"
            self._say(f"2 distil     {source}")
            return {"model": str(build.WEIGHTS) if there else ""}
        began = time.process_time()
        facts = build.build(
            self.out / "experience",
            build.ExperiencePlan(seed=self.plan.seed, environments=120, tried=24, held_out=8, buffer=40),
        )
        self._say(
            f"2 distil     a model of {facts['parameters']:,} parameters that decides what rules leave open, "
            f"taught from nothing by {facts['lessons']:,} recorded calls, "
            f"{time.process_time() - began:.0f} CPU s"
        )
        return {"model": str(self.out / "experience")}

    def _start(self) -> Facts:
        return {"model": str(steps.taught(self.out, self.plan, self._say))}

    def _try(self, name: str, model: Path, line: str) -> Facts:
        against, place = None if name == "before" else self.out / "before", self.out / name
        tasks, settings, plan = self.held_out, self.settings, self.plan
        steps.tried(model, tasks, settings, plan, against, self._say, directory=place, line=line)
        return {}

    def _dream(self, start: Path) -> Facts:
        settings = self.settings.with_overrides({"curriculum.enabled": self.plan.curriculum})
        with closing(SqliteStore(self.out / RECORDINGS, read_only=True)) as store:
            learned = steps.learn(start, self.learned_from, settings, store, self.out, self._say)
        return {
            "weights": str(learned.weights),
            "run": str(learned.directory),
            "real_calls": learned.real,
            "dreamed_calls": learned.dreamed,
            "alarm": learned.alarm,
            "steps": learned.steps,
        }

    def _real(self, dreamed: Path) -> Facts:
        """Go on on the real tools: the gate first, then a budget of real calls."""
        from dreamgym_kit.adapters.langgraph.s2r.s2r_run import s2r

        plan, place = self.plan, self.out / "s2r"
        settings = self.settings.with_overrides(
            {
                "s2r.stage": "live",
                "s2r.max_calls": plan.real_calls,
                "s2r.rate": 0.0,
                "s2r.preflight_pass_rate_low": plan.gate_low,
                "s2r.preflight_coverage": plan.gate_coverage,
                "s2r.canaries": plan.canaries,
                "s2r.preflight_repeats": plan.tries,
                "train.steps": plan.real_steps,
                "train.save_every": 1,
                "train.warmup": 1,
            }
        )
        done = s2r(
            steps.GRAPH,
            self.learned_from,
            policy=dreamed,
            approve=sandbox_says_yes,
            held_out=self.gate_tasks,
            settings=settings,
            buffer=self.out / RECORDINGS,
            run_dir=place,
            resume=to_resume(place),
        )
        weights = done.weights or dreamed
        stopped = done.stopped.text if done.stopped is not None else ""
        calls = f"{done.real_calls:,} of {done.budget:,} real calls"
        gate = done.gate.text if done.dream is not None else _gate_before(place)
        self._say(f"7 s2r        {calls}; {gate}")
        if stopped:
            self._say(f"             stopped: {stopped}")
        return {
            "weights": str(weights),
            "run": str(done.training.directory) if done.training is not None else "",
            "real_calls": done.real_calls,
            "gate": gate,
            "stopped": stopped,
            "head": done.head,
        }

    def _deploy(self, start: Path, candidate: Path) -> Facts:
        """The start stands first, without a comparison; the candidate takes its place only if it beat it."""
        shared: dict[str, Any] = {
            "into": self.out / SHELF,
            "tasks": [*self.learned_from, *self.held_out],
            "settings": self.settings,
            "name": _SERVED,
            "record": self.out / RECORDINGS,
        }
        deploy(start, force="the start, which nothing was deployed before", **shared)
        done = deploy(candidate, evaluated=self.out / "after", against=self.out / "before", **shared)
        self._say(f"9 deploy     {done.sentence}")
        return {"promoted": done.done}

    def _outcome(self) -> WholeWayOutcome:
        before = self.out / "before"
        with ModelRegistry(self.out / SHELF) as shelf:
            event, card = shelf.events[-1], shelf.merged / "README.md"
            pointing = Pointing(shelf.merged, _SERVED, str(self.out / RECORDINGS), str(self.out / SHELF))
        return WholeWayOutcome(
            before=evaluation_between(before, None, self.held_out),
            dreamed=evaluation_between(self.out / "dreamed", before, self.held_out),
            after=evaluation_between(self.out / "after", before, self.held_out),
            event=event,
            pointing=pointing,
            card=card,
            facts={name: self.phases.facts(name) or {} for name in self.phases.seconds},
            seconds=self.phases.seconds,
        )


def sandbox_says_yes(held_call: object) -> bool:
    """Say yes to every held call: the desk is a sandbox whose worlds are put back. Nobody's money moves."""
    del held_call
    return True


def _gate_before(place: Path) -> str:
    """What the gate said in an earlier leg, as the log has it."""
    texts = [entry.facts.get("text") for entry in entries_of(place / AUDIT) if entry.kind == "open"]
    return str(texts[-1]) if texts else "its gate was passed before"


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
        return {name: facts.get("seconds", 0.0) for name, facts in self._done.items()}

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
        facts_before = self._done.get(name)
        if facts_before is not None:
            return facts_before, True
        for pattern in clears:
            for path in self.out.glob(pattern):
                shutil.rmtree(path) if path.is_dir() and not path.is_symlink() else path.unlink()
        began = time.monotonic()
        facts = {**work(), "seconds": round(time.monotonic() - began, 1)}
        self._done[name] = json.loads(json.dumps(facts))
        self._write()
        return self._done[name], False

    def _write(self) -> None:
        record = {"plan": self._plan, "done": self._done}
        write_atomically(self.out / FILE, (json.dumps(record, indent=1) + "\n").encode("ascii"))

    def _read(self) -> dict[str, Facts]:
        path = self.out / FILE
        try:
            record = read_json(read_whole(path))
        except FileNotFoundError:
            if self.out.exists() and (not self.out.is_dir() or any(self.out.iterdir())):
                raise UserError(
                    f"{self.out}: is there already; name another folder, or delete it first"
                ) from None
            return {}
        except NotSerializable as error:
            raise UserError(f"{path}: is damaged ({error}); begin anew in another folder") from error
        if not isinstance(record, dict) or record.get("plan") != self._plan:
            raise UserError(f"{path}: was begun by another plan; go on with that one, or name another folder")
        done = record.get("done")
        return dict(done) if isinstance(done, dict) else {}
