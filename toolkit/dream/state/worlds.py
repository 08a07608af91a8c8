"""What recordings say about one world: the state that an episode starts with, and what a node tells."""

from collections import Counter

from dreamgym_kit.dream.state.effects import shared_things
from dreamgym_kit.dream.state.history import OFF_RECORD, HistoryStep, Pool
from dreamgym_kit.dream.state.models import ToolModels
from dreamgym_kit.dream.state.observed import failed
from dreamgym_kit.dream.state.views import State, View, ViewKey, args_of
from dreamgym_kit.serialization import JsonValue

_AT_START = 0.99  # recorded before any write
_UNTOUCHED = 0.93  # recorded after writes that are known to leave it alone


def reads_at(pool: Pool, models: ToolModels, node: int, without: str | None) -> dict[ViewKey, JsonValue]:
    """The reads and pseudo-reads that were recorded at a node."""
    told: dict[ViewKey, JsonValue] = {}
    for (tool, spelled), seen in pool.told(node, without).items():
        writes = tool in models.writes
        if not writes:
            told[tool, spelled] = seen
        step = HistoryStep(tool, args_of(spelled), spelled, seen, writes=writes, failed=failed(seen))
        told.update({(name, "{}"): value for name, value in models.pseudo_reads(step).items()})
    return told


def start(pool: Pool, models: ToolModels, world: str, without: str | None = None) -> State:
    """The state of a world before an episode.

    `without` names an episode that must not explain itself; what only it has seen is left out.
    """
    views: dict[ViewKey, View] = {}
    for episode in pool.episodes.get(world, ()) if models.rules else ():
        if episode.id != without:
            _carry_back(views, models, episode.steps)
    node = pool.root(world)
    if node != OFF_RECORD:
        for key, seen in reads_at(pool, models, node, without).items():
            views[key] = View(*key, seen, confidence=_AT_START, source="recorded")
    breadth = Counter(tool for (tool, _), view in views.items() if ":" not in tool and not view.failed)
    return State(views, node, breadth=breadth)


def _carry_back(views: dict[ViewKey, View], models: ToolModels, steps: tuple[HistoryStep, ...]) -> None:
    """Reads after writes that do not touch them were true before those writes as well."""
    written: list[tuple[HistoryStep, str]] = []
    for step in steps:
        if models.advances(step):
            written.append((step, models.form(step)))
        elif not step.writes and written and (step.tool, step.spelled) not in views:
            view = View(step.tool, step.spelled, step.seen, confidence=_UNTOUCHED, source="recorded")
            if all(_leaves(models, *write, view) for write in written):
                views[step.tool, step.spelled] = view


def _leaves(models: ToolModels, write: HistoryStep, form: str, read: View) -> bool:
    rule = models.rules.get((write.tool, form), {}).get(read.tool)
    if rule is None or not rule.keeps or rule.same < 2 or rule.other != rule.other_same:
        return False
    return rule.witnessed(shared_things(write.args, read))
