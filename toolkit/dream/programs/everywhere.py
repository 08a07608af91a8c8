"""Find reads that answer the same in every environment (distances, rates, catalogs), and share their answers.

A read qualifies if calls with equal arguments agree in several environments, and before and after writes.
The share of agreeing calls is reported; held-out recordings measure its confidence.
"""

from collections import defaultdict
from collections.abc import Iterable, Mapping
from typing import NamedTuple

from dreamgym_kit.dream.programs.collections import RecordedCalls
from dreamgym_kit.dream.programs.values import ValueKey, value_key
from dreamgym_kit.serialization import JsonValue

_ENOUGH = 3  # questions asked in several worlds, or worlds that answered one alike
_AGREEING = 0.9
_Answer = tuple[bool, JsonValue]
_Answers = dict[ValueKey, tuple[_Answer, set[str]]]  # to one question, with the worlds that gave each


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
    asked: dict[str, dict[ValueKey, _Answers]] = defaultdict(lambda: defaultdict(dict))
    for episode in episodes:
        for step in episode.steps:
            if step.tool not in writes and step.args:  # a read without arguments describes its own world
                answers = asked[step.tool][value_key(step.args)]
                key = value_key([step.ok, step.out])
                answers.setdefault(key, ((step.ok, step.out), set()))[1].add(episode.world)
    return {tool: same for tool, questions in asked.items() if (same := _shared(questions)) is not None}


def _shared(questions: Mapping[ValueKey, _Answers]) -> Everywhere | None:
    """The answers of one tool that hold in all worlds; None where they differ, or nothing shows it.

    Where too few questions show it of the tool, what several worlds answered alike holds for that question.
    """
    of_worlds = [(given, set().union(*(at for _, at in given.values()))) for given in questions.values()]
    several = [given for given, worlds in of_worlds if len(worlds) > 1]
    agreed = sum(len(given) == 1 for given in several)
    if not several or agreed < _AGREEING * len(several):
        return None
    alike = {args: next(iter(given.values())) for args, given in questions.items() if len(given) == 1}
    different = {value_key(answer[1]) for answer, _ in alike.values() if answer[0]}  # refusals alone: nothing
    if len(several) >= _ENOUGH and len(different) > 1:
        return Everywhere({args: answer for args, (answer, _) in alike.items()}, agreed, len(several))
    known = {args: answer for args, (answer, worlds) in alike.items() if len(worlds) >= _ENOUGH}
    often = {args: answer for args, answer in known.items() if all(answer)}  # neither refused nor empty
    pairs = min((len(alike[args][1]) - 1 for args in often), default=0)
    return Everywhere(often, pairs, pairs) if often else None
