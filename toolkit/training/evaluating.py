"""How the policy does on tasks that it never learns from: the result of a training, in counts.

The episodes' seeds are the same whatever the step, so that two evaluations differ by the weights alone.
"""

import time
from collections.abc import Sequence

from dreamgym_kit.canonical import digest
from dreamgym_kit.ports import Collector
from dreamgym_kit.training.records import EvaluationRecord
from dreamgym_kit.vocabulary import Task, Verdict

_ORDER = (Verdict.PASSED, Verdict.FAILED, Verdict.INCONCLUSIVE)  # of a record's counts; errors with the last


async def evaluated(
    examiner: Collector, tasks: Sequence[Task], *, n: int, step: int, seed: int, real: bool
) -> EvaluationRecord:
    """Run n episodes of each task and count; inconclusive and error are neither success nor failure.

    Args:
        examiner: runs the episodes, with the weights that are served now.
        tasks: the held-out ones.
        n: episodes of each.
        step: optimiser steps made so far.
        seed: of the run.
        real: whether the examiner's tools are the real ones.
    """
    began = time.monotonic()
    own = int(digest(["evaluation", seed])[:12], 16)
    groups = await examiner.collect(tasks, n, step=step, seed=own)
    outcomes: dict[str, list[int]] = {}
    for group in groups:
        counts = outcomes.setdefault(group.task, [0] * len(_ORDER))
        for rollout in group.rollouts:
            verdict = rollout.episode.verdict
            counts[_ORDER.index(verdict if verdict.conclusive else Verdict.INCONCLUSIVE)] += 1
    return EvaluationRecord(step=step, real=real, outcomes=outcomes, seconds=time.monotonic() - began)
