"""How often a dream says what the real tool said: recorded calls put to it, each where it really stood.

Held out is every fourth recorded episode, crawls never: their worlds are known by the others. Equal is what
the agent sees, up to ids that a tool makes up.
"""

from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass

from dreamgym_kit.dream.chain import ChainedExperience
from dreamgym_kit.dream.llm_audit import as_seen, drawn_calls, situations_of
from dreamgym_kit.dream.recorded import RecordedExperience
from dreamgym_kit.interfaces import ExperienceModel
from dreamgym_kit.types import Source, ToolSpec, Transition

_HELD_OUT = 4  # one episode of so many

Finish = Callable[[ChainedExperience, Sequence[Transition]], ExperienceModel]
"""Makes the whole dream of the chain over the recordings that it may see."""


@dataclass(frozen=True, slots=True)
class Fidelity:
    """What a dream said of recorded calls."""

    calls: int
    answered: int
    exact: int
    by_tool: Mapping[str, tuple[int, int, int]]  # tool -> calls, answered, exact

    @property
    def share(self) -> float | None:
        """Share of all calls that came out exactly; what was not answered did not."""
        return self.exact / self.calls if self.calls else None


def held_out_episodes(rows: Iterable[Transition]) -> tuple[list[Transition], list[Transition]]:
    """Real recordings as (seen, held out), episode by episode within each world."""
    real = [row for row in rows if row.answer.source is Source.REAL and not row.effect.runs_in_dream]
    environments: dict[str, set[str]] = defaultdict(set)
    for row in real:
        if row.effect.changes_environment:
            environments[str(row.environment)].add(row.episode)
    apart = {episode for episodes in environments.values() for episode in sorted(episodes)[::_HELD_OUT]}
    return [row for row in real if row.episode not in apart], [row for row in real if row.episode in apart]


async def fidelity(
    rows: Iterable[Transition],
    finish: Finish,
    specs: Mapping[str, ToolSpec],
    *,
    threshold: float,
    most: int = 400,
    seed: int = 0,
) -> Fidelity:
    """Put at most `most` held-out calls to a dream of the others, as many of each tool as can be."""
    seen, apart = held_out_episodes(rows)
    repeated = RecordedExperience(
        lambda environment, tenant: [
            row for row in seen if row.environment == environment and row.tenant == tenant
        ]
    )
    chain = ChainedExperience(
        repeated, lambda tenant: [row for row in seen if row.tenant == tenant], threshold=threshold
    )
    dream = finish(chain, seen)
    calls, answered, exact = Counter[str](), Counter[str](), Counter[str]()
    for row, situation in drawn_calls(list(situations_of(apart, specs, None)), most, seed):
        tool = row.call.tool
        fresh = chain.following.knowledge(row.tenant).models
        told = await dream.answer(row.call, situation)
        calls[tool] += 1
        answered[tool] += not told.unanswered
        exact[tool] += not told.unanswered and as_seen(told, tool, fresh) == as_seen(row.answer, tool, fresh)
    by_tool = {tool: (calls[tool], answered[tool], exact[tool]) for tool in sorted(calls)}
    return Fidelity(calls.total(), answered.total(), exact.total(), by_tool)
