"""A folder of a distillation, and what it is made from: a buffer, a graph's tools, a split that stays.

    distil.json        what it was begun with: tenant, split, the tools as the graph described them
    annotations.jsonl  why the tools answered as they did
    checkpoints/       of a training that has not come to its end
    model/             what was trained, with the gate that it passed

What a folder was begun with holds for all that is done in it: held-out recordings never become lessons
because a later command was given other words.
"""

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from dreamgym_kit.adapters.langgraph.run.experiences import RecordedAnswers
from dreamgym_kit.bounded_json import read_json
from dreamgym_kit.dream.state.stated import stated_models
from dreamgym_kit.dream.state_tracker import StateTracker
from dreamgym_kit.errors import NotSerializable, UserError
from dreamgym_kit.interfaces import TransitionStore
from dreamgym_kit.rollout.atomic_files import read_whole, write_atomically
from dreamgym_kit.rollout.journal import JournalReader
from dreamgym_kit.rollout.rundir import RunDirectory
from dreamgym_kit.settings.schema import Settings
from dreamgym_kit.training.annotation import Trajectory
from dreamgym_kit.training.distil.lessons import Sight
from dreamgym_kit.training.distil.splitting import Sides, split, trajectories
from dreamgym_kit.types import Effect, Episode, ToolSpec, Transition, Verdict

BEGUN, MODEL, CHECKPOINTS = "distil.json", "model", "checkpoints"
_MOST = 2_000  # characters of what was asked


@dataclass(frozen=True, slots=True)
class Begun:
    """What a distillation was begun with."""

    tenant: str
    by: tuple[str, ...]  # what the sides do not share
    share: float
    seed: int
    tools: Mapping[str, ToolSpec]


@dataclass(frozen=True, slots=True)
class Material:
    """Recordings on two sides, and how they are seen."""

    begun: Begun
    sides: Sides
    store: TransitionStore
    settings: Settings

    def sight(self, seen: Sequence[Trajectory]) -> Sight:
        """What may be shown where only `seen` is known."""
        rows = steps_of(seen)
        recorded = RecordedAnswers(self.store, frozenset(row.id for row in rows))

        def of_tenant(tenant: str) -> list[Transition]:
            return [row for row in rows if row.tenant == tenant]

        following = StateTracker(of_tenant, stated=stated_models(self.settings), calibrated=False)
        following.keep_known()
        return Sight(recorded.examples, recorded.schema, following)


def steps_of(seen: Sequence[Trajectory]) -> list[Transition]:
    """All their transitions."""
    return [step for trajectory in seen for step in trajectory.steps]


def begin(
    folder: Path,
    store: TransitionStore,
    settings: Settings,
    tools: Sequence[ToolSpec],
    *,
    by: tuple[str, ...],
    share: float,
    seed: int,
) -> Begun:
    """Begin a distillation, or go on with it.

    `tools`: as the graph has them; empty: as far as recordings tell. `by`: what the sides must not share.

    Raises:
        UserError: it was begun otherwise.
    """
    known = {tool.name: tool for tool in tools if not tool.effect.runs_in_dream} or _recorded_tools(
        store, settings
    )
    wanted = Begun(settings.tenant, by, share, seed, known)
    if (folder / BEGUN).exists():
        begun = read_begun(folder)
        for name in ("tenant", "by", "share", "seed"):
            before, now = getattr(begun, name), getattr(wanted, name)
            if before != now:
                raise UserError(
                    f"{folder / BEGUN}: was begun with {name} {_shown(before)}, not {_shown(now)}: its "
                    "held-out recordings must stay held out; set it back, or distil into another folder."
                )
        if not tools:
            return begun
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise UserError(f"{folder}: cannot be made ({error.strerror}); name another folder.") from None
    content = {
        "distil": 1,
        "tenant": wanted.tenant,
        "split": list(by),
        "share": share,
        "seed": seed,
        "tools": [asdict(tool) for _, tool in sorted(known.items())],
    }
    write_atomically(folder / BEGUN, json.dumps(content, indent=1).encode("ascii") + b"\n")
    return wanted


def read_begun(folder: Path) -> Begun:
    """What a distillation was begun with.

    Raises:
        UserError: the folder holds none.
    """
    path = folder / BEGUN
    try:
        content: dict[str, Any] = read_json(read_whole(path))
        tools = {
            str(tool["name"]): ToolSpec(**{**tool, "effect": Effect(tool["effect"])})
            for tool in content["tools"]
        }
        return Begun(
            str(content["tenant"]),
            tuple("environment" if way == "world" else str(way) for way in content["split"]),
            float(content["share"]),
            int(content["seed"]),
            tools,
        )
    except FileNotFoundError:
        raise UserError(
            f"{folder}: no distillation was begun there; begin one: dreamgym-kit experience annotate {folder}"
        ) from None
    except (NotSerializable, KeyError, TypeError, ValueError) as error:
        raise UserError(f"{path}: cannot be read ({error}); begin again in another folder.") from None


def material(
    begun: Begun,
    store: TransitionStore,
    settings: Settings,
    *,
    texts: Mapping[str, str] | None = None,
    outcomes: Mapping[str, bool] | None = None,
) -> Material:
    """The recordings as they are now, on the sides that were chosen at the beginning.

    Raises:
        UserError: there are none, or one side has none.
    """
    seen = trajectories(store.scan(tenant=begun.tenant), texts=texts, outcomes=outcomes)
    if not seen:
        raise UserError(
            f"the buffer holds no real answers of tenant '{begun.tenant}'; record some: dreamgym-kit record"
        )
    return Material(begun, split(seen, begun.by, share=begun.share, seed=begun.seed), store, settings)


def _recorded_tools(store: TransitionStore, settings: Settings) -> dict[str, ToolSpec]:
    """What recordings tell of tools where no graph is named."""
    tools: dict[str, ToolSpec] = {}
    for row in store.scan(tenant=settings.tenant):
        if not row.effect.runs_in_dream:
            tools.setdefault(row.call.tool, ToolSpec(row.call.tool, row.effect, source="recorded"))
    return tools


def _shown(value: object) -> str:
    return ", ".join(map(str, value)) if isinstance(value, tuple) else str(value)


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
            texts[name] = _request_text(episode)
            if episode.verdict.conclusive:
                successes[name] = episode.verdict is Verdict.PASSED
    return texts, successes


def _request_text(episode: Episode) -> str:
    for message in episode.messages:
        content: Any = message.get("content")
        if message.get("role") in ("user", "human") and isinstance(content, str):
            return content[:_MOST]
    return ""
