"""The phases of `train_then_deploy`, one after the other, each gone on with after a kill.

    record -> distil -> start -> before -> dream -> dreamed -> real (S2R) -> after -> deploy

What a phase comes to is written down when it is done (`phases`); later phases read files, not memory, so a
process that was killed anywhere and started again comes to the same weights and the same decision.
"""

import shutil
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from dreamgym_kit.adapters.langgraph.deploying import deploy
from dreamgym_kit.adapters.langgraph.evaluating import evaluation_between
from dreamgym_kit.deployment.pointing import Pointing
from dreamgym_kit.deployment.records import Deed, Event
from dreamgym_kit.deployment.shelf import Shelf
from dreamgym_kit.plain import JsonValue
from dreamgym_kit.recipes import train_then_deploy as steps
from dreamgym_kit.recipes.desk.tasks import drawn_tasks
from dreamgym_kit.recipes.desk.world import times_opened
from dreamgym_kit.recipes.phases import Facts, Phases
from dreamgym_kit.report.evaluation import Evaluation
from dreamgym_kit.rollout.rundir import half_made
from dreamgym_kit.s2r.audit import AUDIT, entries_of
from dreamgym_kit.settings.schema import Settings
from dreamgym_kit.vocabulary import Split

RECORDINGS, SHELF = "recordings.db", "deployed"
_SERVED = "desk"  # how a server calls the model


@dataclass(frozen=True, slots=True)
class Outcome:
    """What came of the whole way."""

    before: Evaluation  # the start
    dreamed: Evaluation  # what learned in the dream, against the start
    after: Evaluation  # the candidate, against the start
    event: Event  # what came of the last comparison
    pointing: Pointing
    card: Path
    facts: Mapping[str, Facts]  # of each phase
    seconds: Mapping[str, float]

    @property
    def promoted(self) -> bool:
        """Whether the candidate is in use."""
        return self.event.deed is Deed.PROMOTED


class WholeWay:
    """Goes the whole way in one folder.

    Args:
        out: the folder.
        plan: how much of everything.
        tell: hears a line for each phase.
    """

    def __init__(self, out: Path, plan: "steps.Plan", tell: "steps.Tell") -> None:
        self.out, self.plan, self._tell = out, plan, tell
        self.phases = Phases(out, asdict(plan))
        self.settings = steps.settings_for(out, plan)
        tasks = drawn_tasks(plan.worlds, seed=plan.seed)
        self.learned_from, self.gate_tasks = tasks[: -plan.gate], tasks[-plan.gate :]
        self.recorded = tasks
        self.held_out = drawn_tasks(plan.held_out, split=Split.HELD_OUT, seed=plan.seed)

    def go(self) -> Outcome:
        """Every phase in turn."""
        self._phase("record", self._record, clears=(f"{RECORDINGS}*", "runs"))
        self.settings = self._with_decisions(
            self._phase("distil", self._distil, clears=("experience",)).get("model")
        )
        start = Path(str(self._phase("start", self._start, clears=("start",))["model"]))
        self._phase("before", lambda: self._try("before", start), clears=("before",))
        dreamed = Path(str(self._phase("dream", lambda: self._dream(start))["weights"]))
        self._phase("dreamed", lambda: self._try("dreamed", dreamed), clears=("dreamed",))
        candidate = Path(str(self._phase("real", lambda: self._real(dreamed))["weights"]))
        self._phase("after", lambda: self._try("after", candidate), clears=("after",))
        self._phase("deploy", lambda: self._deploy(start, candidate), clears=(SHELF,))
        return self._outcome()

    def _phase(self, name: str, work: Callable[[], Facts], *, clears: Sequence[str] = ()) -> Facts:
        facts, known = self.phases.run(name, work, clears=clears)
        for line in _lines(facts):
            self._tell(f"{line}  (done before)" if known else line)
        return facts

    def _record(self) -> Facts:
        from dreamgym_kit.adapters.stores.sqlite import SqliteStore

        told: list[str] = []
        before = times_opened()
        store = SqliteStore(self.out / RECORDINGS)
        try:
            steps.record_work(self.recorded, self.settings, store, self.plan, told.append)
            rows = store.count()
        finally:
            store.close()
        return {"told": list(told), "recordings": rows, "real_calls": times_opened() - before}

    def _distil(self) -> Facts:
        """A model that decides what rules leave open: the package's own, or taught here from nothing."""
        from dreamgym_kit.recipes.nano.experience import build

        if self.plan.shipped:
            there = (build.WEIGHTS / "model.safetensors").is_file()
            what = f"the package's own, {build.WEIGHTS.name}" if there else "none: the package has none"
            return {"told": [f"2 distil     {what}"], "model": str(build.WEIGHTS) if there else ""}
        began = time.process_time()
        facts = build.build(
            self.out / "experience",
            build.Plan(seed=self.plan.seed, worlds=120, tried=24, held_out=8, buffer=40),
        )
        told = (
            f"2 distil     a model of {facts['parameters']:,} parameters that decides what rules leave open, "
            f"taught from nothing by {facts['lessons']:,} recorded calls, "
            f"{time.process_time() - began:.0f} CPU s"
        )
        return {"told": [told], "model": str(self.out / "experience")}

    def _with_decisions(self, model: JsonValue) -> Settings:
        return self.settings.with_overrides({"learned.model": str(model) if model else None})

    def _start(self) -> Facts:
        told: list[str] = []
        model = steps.taught(self.out, self.plan, told.append)
        return {"told": list(told), "model": str(model)}

    def _try(self, name: str, model: Path) -> Facts:
        told: list[str] = []
        before = self.out / "before" if name != "before" else None
        steps.tried(
            model,
            self.held_out,
            self.settings,
            self.plan,
            before,
            told.append,
            directory=self.out / name,
            line=_NUMBERS[name],
        )
        return {"told": list(told)}

    def _dream(self, start: Path) -> Facts:
        from dreamgym_kit.adapters.stores.sqlite import SqliteStore

        told: list[str] = []
        settings = self.settings.with_overrides({"curriculum.enabled": self.plan.curriculum})
        store = SqliteStore(self.out / RECORDINGS, read_only=True)
        try:
            learned = steps.learn(start, self.learned_from, settings, store, self.out, told.append)
        finally:
            store.close()
        return {
            "told": list(told),
            "weights": str(learned.weights),
            "run": str(learned.directory),
            "real_calls": learned.real,
            "dreamed_calls": learned.dreamed,
            "alarm": learned.alarm,
            "steps": learned.steps,
        }

    def _real(self, dreamed: Path) -> Facts:
        """Go on on the real tools: the gate first, then a budget of real calls."""
        from dreamgym_kit.adapters.langgraph.s2r_api import sim_to_real

        place = self.out / "s2r"
        if half_made(place):
            shutil.rmtree(place)
        done = sim_to_real(
            steps.GRAPH,
            self.learned_from,
            policy=dreamed,
            approve=sandbox_says_yes,
            held_out=self.gate_tasks,
            settings=self._real_settings(),
            store=self.out / RECORDINGS,
            directory=place,
            resume=(place / "manifest.json").exists(),
        )
        weights = done.weights or dreamed
        stopped = done.stopped.text if done.stopped is not None else ""
        what = f"{done.real_calls:,} of {done.budget:,} real calls"
        gate = done.gate.text if done.dream is not None else _gate_before(place)
        told = f"7 s2r        {what}; {gate}"
        return {
            "told": [told, *([f"             stopped: {stopped}"] if stopped else [])],
            "weights": str(weights),
            "run": str(done.training.directory) if done.training is not None else "",
            "real_calls": done.real_calls,
            "gate": gate,
            "stopped": stopped,
            "head": done.head,
        }

    def _real_settings(self) -> Settings:
        plan = self.plan
        return self.settings.with_overrides(
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
        return {"told": [f"9 deploy     {done.sentence}"], "promoted": done.done}

    def _outcome(self) -> Outcome:
        before = self.out / "before"
        with Shelf(self.out / SHELF) as shelf:
            event, card = shelf.events[-1], shelf.merged / "README.md"
            pointing = Pointing(shelf.merged, _SERVED, str(self.out / RECORDINGS), str(self.out / SHELF))
        return Outcome(
            before=evaluation_between(before, None, self.held_out),
            dreamed=evaluation_between(self.out / "dreamed", before, self.held_out),
            after=evaluation_between(self.out / "after", before, self.held_out),
            event=event,
            pointing=pointing,
            card=card,
            facts={name: self.phases.facts(name) or {} for name in self.phases.seconds},
            seconds=self.phases.seconds,
        )


_NUMBERS = {"before": "4 evaluate", "dreamed": "6 evaluate", "after": "8 evaluate"}


def sandbox_says_yes(held: object) -> bool:
    """Say yes to every held call: the desk is a sandbox whose worlds are put back. Nobody's money moves."""
    del held
    return True


def _gate_before(place: Path) -> str:
    """What the gate said in an earlier leg, as the log has it."""
    told = [entry.facts.get("text") for entry in entries_of(place / AUDIT) if entry.kind == "open"]
    return str(told[-1]) if told else "its gate was passed before"


def _lines(facts: Facts) -> list[str]:
    told: JsonValue = facts.get("told")
    return [str(line) for line in told] if isinstance(told, list) else []
