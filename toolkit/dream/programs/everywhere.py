"""Find reads that answer the same in every environment (distances, rates, catalogs), and share their answers.

A read qualifies if calls with equal arguments agree in several environments, and before and after writes.
The share of agreeing calls is reported; held-out recordings measure its confidence.
"""

from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping
from typing import NamedTuple

from dreamgym_kit.dream.programs.collections import RecordedCalls
from dreamgym_kit.dream.programs.values import ValueKey, value_key
from dreamgym_kit.serialization import JsonValue

_MIN_SHARED = 3  # minimum number of calls made in several worlds
_AGREEING = 0.9
_Answer = tuple[bool, JsonValue]


class Everywhere(NamedTuple):
    """A read's answers that hold in all worlds.

    Attributes:
        answers: by arguments.
        agreed, shared: calls made in several worlds: those with equal answers, and all.
    """

    answers: Mapping[ValueKey, _Answer]
    agreed: int
    shared: int


def constant_answers(episodes: Iterable[RecordedCalls], writes: frozenset[str]) -> dict[str, Everywhere]:
    """Return the answers of each tool that recordings show to be such a read."""
    answers_by_call: dict[tuple[str, ValueKey], dict[ValueKey, tuple[_Answer, set[str]]]] = defaultdict(dict)
    for episode in episodes:
        for step in episode.steps:
            if step.tool not in writes and step.args:  # a read without arguments describes its own world
                answers = answers_by_call[step.tool, value_key(step.args)]
                answers.setdefault(value_key([step.ok, step.out]), ((step.ok, step.out), set()))[1].add(
                    episode.world
                )
    agreed: Counter[str] = Counter()
    shared: Counter[str] = Counter()
    different: dict[str, set[ValueKey]] = defaultdict(set)
    shared_answers: dict[str, dict[ValueKey, _Answer]] = defaultdict(dict)
    for (tool, args), answers in answers_by_call.items():
        if len(set().union(*(worlds for _, worlds in answers.values()))) > 1:
            shared[tool] += 1
            agreed[tool] += len(answers) == 1
        if len(answers) == 1:
            ((answer_key, (answer, _)),) = answers.items()
            shared_answers[tool][args] = answer
            different[tool] |= {answer_key} if answer[0] else set()  # refusals alone are no shared knowledge
    return {
        tool: Everywhere(shared_answers[tool], agreed[tool], count)
        for tool, count in shared.items()
        if count >= _MIN_SHARED and agreed[tool] >= _AGREEING * count and len(different[tool]) > 1
    }
