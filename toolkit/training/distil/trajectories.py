"""Recordings as trajectories: what real tools answered, episode by episode, whole or not at all."""

from collections import defaultdict
from collections.abc import Iterable, Mapping

from dreamgym_kit.training.annotation import Trajectory
from dreamgym_kit.vocabulary import Provenance, Split, Transition


def trajectories(
    rows: Iterable[Transition],
    *,
    texts: Mapping[str, str] | None = None,
    outcomes: Mapping[str, bool] | None = None,
) -> list[Trajectory]:
    """Real answers of dreamable tools by episode, in the order recorded.

    Args:
        rows: recordings, of any tenant and split.
        texts: what the agent was asked, by episode.
        outcomes: whether an episode was a success, where somebody judged it.
    """
    told: dict[tuple[str, str, str], list[Transition]] = defaultdict(list)
    for row in rows:
        if row.answer.provenance is Provenance.REAL and not row.effect.runs_in_dream:
            told[row.tenant, str(row.world), row.episode].append(row)
    return [
        Trajectory(
            tenant=tenant,
            world=steps[0].world,
            task=steps[0].task,
            episode=episode,
            steps=tuple(sorted(steps, key=lambda row: row.step)),
            text=(texts or {}).get(episode, ""),
            success=(outcomes or {}).get(episode),
        )
        for (tenant, _, episode), steps in told.items()
    ]


def is_held_out(trajectory: Trajectory) -> bool:
    """Whether a person put it apart: none of its rows is ever learned from."""
    return any(step.split is Split.HELD_OUT for step in trajectory.steps)
