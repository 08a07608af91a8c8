"""`deploy`: promote a model if it beats the current one on the real tools; `deployed`: run it.

    from dreamgym_kit import deploy
    deploy("runs/2026-11-21-train-desk-7f3a", evaluated="runs/...-b", against="runs/...-a", into="deployed")

`force` promotes without that. Reads earlier runs, copies files and writes a model card; no tool runs.
"""

import re
import shutil
import time
import uuid
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from dreamgym_kit.adapters.langgraph.run.api import recording, settings_of
from dreamgym_kit.adapters.langgraph.run.directory import run_label
from dreamgym_kit.adapters.langgraph.run.evaluation import evaluation_between
from dreamgym_kit.adapters.langgraph.run.request import Tasks, tasks_of
from dreamgym_kit.deployment.card import CardFacts, DeployCandidate, candidate_of, gaps, rendered, untested
from dreamgym_kit.deployment.model_files import ADAPTER, CARD, model_files
from dreamgym_kit.deployment.model_registry import (
    EVENTS,
    MERGED,
    ModelRegistry,
    ModelUse,
    Pointing,
    RegistryAction,
    RegistryEvent,
    Version,
    read_use,
    version_in_use,
)
from dreamgym_kit.errors import UserError
from dreamgym_kit.replay.masking import process_masker
from dreamgym_kit.report.evaluation import Evaluation, beating_to_json
from dreamgym_kit.serialization import JsonValue
from dreamgym_kit.settings.schema import Settings
from dreamgym_kit.trust.comparison import Promotion, promotion
from dreamgym_kit.types import Environment, Task

SHELF = "deployed"  # default directory of the registry
_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._/-]{0,99}")
_ODD = re.compile(r"[^A-Za-z0-9._/-]|^[^A-Za-z0-9]")
_AGENT = "agent"  # model name if the graph has none


@dataclass(frozen=True, slots=True)
class Deployed:
    """Result of a deployment."""

    event: RegistryEvent
    pointing: Pointing
    promotion: Promotion | None  # None: no usable comparison
    card: Path | None = None  # of the current version; None if nothing changed
    already: bool = False  # these weights were already current

    @property
    def done(self) -> bool:
        """Whether the requested weights are current."""
        return self.event.deed.changes

    @property
    def sentence(self) -> str:
        """The result as a sentence."""
        event = self.event
        if self.already:
            return f"These weights are already current, as {event.version}. Nothing was changed."
        if event.deed is RegistryAction.ROLLED_BACK:
            return f"Rolled back: {event.version} is current again and replaces {event.before}."
        place = f"replaces {event.before}" if event.before else "the first version here"
        if event.deed is RegistryAction.PROMOTED:
            return f"Promoted: {event.version} is current ({place}). {event.sentence}"
        if event.deed is RegistryAction.FORCED:
            return f"Forced: {event.version} is current ({place}). Its card says so and lists the objections."
        stays = f"{event.before} stays current" if event.before else "no version is current"
        return f"Not promoted: {stays}. {' '.join(event.reasons)}"

    def to_json(self) -> dict[str, JsonValue]:
        """The result as JSON."""
        decision = self.promotion
        return {
            "done": self.done,
            "already": self.already,
            "sentence": self.sentence,
            "event": EVENTS.write(self.event),
            "comparison": beating_to_json(decision.whole if decision is not None else None),
            "families": {
                family.name: beating_to_json(family.paired)
                for family in (decision.families if decision is not None else ())
            },
            "model": str(self.pointing.merged),
            "lines": list(self.pointing.lines),
            "card": None if self.card is None else str(self.card),
        }


def deploy(
    weights: str | Path,
    *,
    evaluated: Evaluation | str | Path | None = None,
    against: str | Path | None = None,
    tasks: Tasks | None = None,
    into: str | Path = SHELF,
    force: str | None = None,
    name: str | None = None,
    record: str | Path | None = None,
    settings: Settings | None = None,
) -> Deployed:
    """Promote weights if the paired comparison on the real tools shows that they are better.

    Args:
        weights: the run directory of a training, or a model directory.
        evaluated: the run that tried these weights (B), or the evaluation itself.
        against: the run that tried what is in use, or, at first, what they are to replace (A).
        tasks: the tasks of both runs; default: those of the settings.
        into: the folder of versions; made where there is none.
        force: why a person puts them in use whatever the comparison says; written into the card.
        name: how the server calls the model; default: as before, at first after the graph.
        record: a buffer that calls are kept in while it is in use; "" ends that; None: as before.
        settings: default: the nearest dreamgym.toml, if there is one.

    Raises:
        UserError: the weights or the comparison cannot be used for this, and nobody forced it; or the
            folder is something else. Nothing was changed.
    """
    effective_settings = settings_of(settings, None)
    candidate = candidate_of(Path(weights).absolute())
    chosen = _tasks(tasks, effective_settings, needed=evaluated is not None)
    measured = _evaluation(evaluated, against, chosen)
    if force is not None and not force.strip():
        raise UserError("force: give a reason; it goes on the model card. Nothing was changed.")
    if name is not None and not _NAME.fullmatch(name):
        raise UserError(f"name: {name!r:.60} is not a model name. Use only letters, digits and . _ / - .")
    with ModelRegistry(Path(into), make=True) as shelf:
        use = _use(shelf, name, record, effective_settings)
        pointing = shelf.pointing(into, use)
        current = shelf.current
        if current is not None and current.weights == candidate.weights:
            shelf.use = use
            last = next(event for event in reversed(shelf.events) if event.deed.changes)
            return Deployed(last, pointing, None, already=True)
        missing = gaps(measured, candidate, current.weights if current is not None else "", chosen)
        if missing and force is None:
            listed = "\n  ".join(missing)
            raise UserError(
                "nothing was changed: no comparison shows that these weights are better.\n  "
                f"{listed}\n  To promote them anyway, give a reason: --force 'why'."
            )
        weighed = None if missing or measured is None or measured.a is None else _weighed(shelf, measured)
        reasons = missing if weighed is None else weighed.reasons
        event = _event(shelf, candidate, measured, weighed, reasons, force)
        if event.deed is RegistryAction.REFUSED:
            shelf.note(event)
            return Deployed(event, pointing, weighed)
        version = Version(
            name=event.version,
            weights=candidate.weights,
            source=str(candidate.model),
            made_at=event.at,
            adapter=candidate.adapter is not None,
        )
        facts = CardFacts(
            name=use.name,
            version=version,
            event=event,
            story=candidate.story,
            evaluation=measured,
            promotion=weighed,
            untested=untested(measured, chosen),
            pointing=pointing,
        )
        shelf.put(version, lambda folder: _fill(folder, candidate, facts))
        shelf.verified_folder(version)  # the copied files are the evaluated ones
        shelf.use = use
        shelf.note(event)
        return Deployed(event, pointing, weighed, shelf.place(version.name) / MERGED / CARD)


def roll_back(into: str | Path = SHELF, *, to: str | None = None, why: str = "") -> Deployed:
    """Make the previous version, or the named one, current again; checks its files' digest first.

    Raises:
        UserError: there is none, or its files are not what was deployed. Nothing was changed.
    """
    with ModelRegistry(Path(into)) as shelf:
        current = shelf.current
        name = to or shelf.before
        if current is None or not name:
            raise UserError(f"{into}: there is no previous version. Nothing was changed.")
        if name == current.name:
            raise UserError(f"{into}: {name} is already current. Nothing was changed.")
        version = shelf.version(name)
        shelf.verified_folder(version)
        event = RegistryEvent(
            at=time.time(),
            deed=RegistryAction.ROLLED_BACK,
            version=name,
            before=current.name,
            weights=version.weights,
            why=process_masker().text(why),
        )
        shelf.note(event)
        return Deployed(event, shelf.pointing(into, shelf.use), None, shelf.place(name) / MERGED / CARD)


@contextmanager
def deployed(
    folder: str | Path = "deployed",
    *,
    environment: Environment | None = None,
    settings: Settings | None = None,
) -> Iterator[str]:
    """Run the agent on the real tools with the current version; gives the version's name.

    While `dreamgym-kit deploy promote --record BUFFER` is in force each tool call of the block is kept
    there, as an episode that is called after the version: the next training begins with it. Otherwise
    nothing is kept, and nothing is hooked. The tools run for real either way.

    Args:
        folder: the folder of versions.
        environment: what the tools act on, for later dreams.
        settings: default: the nearest dreamgym.toml, if there is one.

    Raises:
        UserError: nothing is deployed there.
    """
    place = Path(folder)
    version, use = version_in_use(place), read_use(place)
    if not use.record:
        yield version
        return
    episode = f"{use.name}-{version}-{uuid.uuid4().hex[:12]}"
    with recording(use.record, environment=environment, episode=episode, settings=settings):
        yield version


def _tasks(tasks: Tasks | None, settings: Settings, *, needed: bool) -> list[Task]:
    if tasks is not None:
        return tasks_of(tasks)
    if settings.tasks is not None:
        return tasks_of(settings.resolve(settings.tasks))
    if needed:
        raise UserError("no tasks: name the tasks file of the evaluation (--tasks tasks.jsonl).")
    return []


def _evaluation(
    evaluated: Evaluation | str | Path | None, against: str | Path | None, tasks: Sequence[Task]
) -> Evaluation | None:
    if evaluated is None:
        if against is not None:
            raise UserError("deploy: --baseline needs --evaluation RUN, the run of these weights.")
        return None
    if isinstance(evaluated, Evaluation):
        return evaluated
    return evaluation_between(Path(evaluated), Path(against) if against is not None else None, tasks)


def _use(shelf: ModelRegistry, name: str | None, record: str | Path | None, settings: Settings) -> ModelUse:
    before = shelf.use
    graph = _ODD.sub("-", run_label(settings.graph)) if settings.graph else _AGENT
    place = before.record if record is None else str(record)
    return ModelUse(name=name or before.name or graph, record=place)


def _weighed(shelf: ModelRegistry, evaluation: Evaluation) -> Promotion:
    """Give the comparison, corrected for earlier looks at the current version; a repeat adds none."""
    assert evaluation.a is not None  # a gap otherwise
    looks, runs = list(shelf.looks), _runs(evaluation)
    look = looks.index(runs) + 1 if runs in looks else len(looks) + 1
    return promotion(evaluation.a.outcomes, evaluation.b.outcomes, look=look)


def _runs(evaluation: Evaluation | None) -> tuple[str, str]:
    """Give the ids of the weights' run and of the baseline run."""
    sides = (evaluation.b, evaluation.a) if evaluation is not None else (None, None)
    facts = [side.summary.fact("run") if side is not None else "" for side in sides]
    tried, replaced = (fact if isinstance(fact, str) else "" for fact in facts)
    return tried, replaced


def _event(
    shelf: ModelRegistry,
    candidate: DeployCandidate,
    evaluation: Evaluation | None,
    weighed: Promotion | None,
    reasons: Sequence[str],
    force: str | None,
) -> RegistryEvent:
    current = shelf.current
    deed = RegistryAction.PROMOTED if weighed is not None and not reasons else RegistryAction.REFUSED
    if deed is RegistryAction.REFUSED and force is not None:
        deed = RegistryAction.FORCED
    tried, replaced = _runs(evaluation)
    return RegistryEvent(
        at=time.time(),
        deed=deed,
        version=shelf.next_name() if deed.changes else "",
        before=current.name if current is not None else "",
        weights=candidate.weights,
        evaluated=tried,
        against=replaced,
        look=weighed.look if weighed is not None else 0,
        sentence=weighed.whole.phrase("what it replaces", "it") if weighed is not None else "",
        reasons=tuple(reasons),
        why=process_masker().text(force) if deed is RegistryAction.FORCED and force is not None else "",
    )


def _fill(folder: Path, candidate: DeployCandidate, facts: CardFacts) -> None:
    """Write a version's files: the evaluated weights, the adapter, and a model card for each."""
    merged = folder / MERGED
    merged.mkdir()
    for path in model_files(candidate.model):
        shutil.copyfile(path, merged / path.name)
    (merged / CARD).write_text(rendered(facts), "utf-8")
    if candidate.adapter is not None:
        candidate.write_adapter(folder / ADAPTER)
        (folder / ADAPTER / CARD).write_text(rendered(facts, merged=False), "utf-8")
