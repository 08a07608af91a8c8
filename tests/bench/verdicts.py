"""Does a checker say of a dreamt episode what it says of the real one? Desk colleagues work in the dream.

Closed loop: what a colleague does next hangs on what the dream answered, so a wrong answer leads elsewhere,
and the checker sees it. The real verdict is that of the same colleague at the real desk. An episode in which
the dream abstains has no verdict. That the checker can differ is seen in the naive dreams beside it, and in
`verdict_pass`, the share of decided episodes whose real verdict is success: if it were 1, agreeing
would be no art.
"""

from collections.abc import Callable, Mapping, Sequence
from typing import Protocol

from desk_recordings import COLLEAGUES, READS, WRITES, colleague

from dreamgym_kit.dream.state.dreaming import Knowledge, consider, follow
from dreamgym_kit.dream.state.history import HistoryStep, RecordedEpisode
from dreamgym_kit.dream.state.observed import answer_of, failed
from dreamgym_kit.dream.state.values import spell
from dreamgym_kit.dream.state.worlds import start
from dreamgym_kit.recipes.desk.cases import DeskCase, make_case
from dreamgym_kit.recipes.desk.checkers import differences, goal, would_be_books
from dreamgym_kit.recipes.desk.policy import ScriptCall, ScriptReply, run_script
from dreamgym_kit.serialization import JsonValue
from dreamgym_kit.types import Answer, Call, Effect, Environment, Transition


class Abstained(Exception):
    """The dream could not tell."""


class Desk(Protocol):
    """What answers one episode's calls; raises Abstained where it cannot tell."""

    def __call__(self, tool: str, args: Mapping[str, JsonValue]) -> JsonValue: ...


class DreamtDesk:
    """One episode in the dream, free-running."""

    def __init__(self, known: Knowledge, world: str, threshold: float) -> None:
        self._known, self._world, self._threshold = known, world, threshold
        self._state = start(known.pool, known.models, world)

    def __call__(self, tool: str, args: Mapping[str, JsonValue]) -> JsonValue:
        """Answer, and keep it."""
        options, names = consider(self._known, self._state, self._world, tool, args)
        if not options or options[0].support < self._threshold:
            raise Abstained
        told = options[0]
        step = HistoryStep(tool, args, spell(dict(args)), told.seen, tool in WRITES, failed(told.seen))
        self._state = follow(self._known, self._state, step, names, told.support)
        return told.seen


class StatelessDesk:
    """A naive dream: each call by itself."""

    def __init__(
        self, answer: Callable[[RecordedEpisode], Sequence[JsonValue]], world: str, none: object
    ) -> None:
        self._answer, self._world, self._none = answer, world, none

    def __call__(self, tool: str, args: Mapping[str, JsonValue]) -> JsonValue:
        """Answer."""
        step = HistoryStep(tool, args, spell(dict(args)), None, tool in WRITES, failed=False)
        told = self._answer(RecordedEpisode("now", self._world, (step,)))[0]
        if told is self._none:
            raise Abstained
        return told


def verdict_figures(
    seeds: Sequence[int], open_desk: Callable[[int], Desk], suffix: str
) -> list[tuple[str, float, str]]:
    """Agreement among the decided episodes, how many were decided, and how many of those really pass."""
    decided = agreed = passed = asked = 0
    for seed in seeds:
        case = make_case(seed)
        for place, habits in enumerate(COLLEAGUES):
            asked += 1
            real = _passes(case, list(colleague(seed, habits, f"v{place}-{seed}").transitions))
            try:
                dreamt = _passes(case, _worked(case, place, open_desk(seed)))
            except Abstained:
                continue
            decided, passed, agreed = decided + 1, passed + real, agreed + (dreamt == real)
    return [
        (f"verdict_agreement{suffix}", agreed / decided if decided else 0.0, "share"),
        (f"verdict_decided{suffix}", decided / asked, "share"),
        (f"verdict_pass{suffix}", passed / decided if decided else 0.0, "share"),
    ]


def _worked(case: DeskCase, place: int, desk: Desk) -> list[Transition]:
    rows: list[Transition] = []

    def answer(use: ScriptCall) -> ScriptReply:
        if use.tool not in READS and use.tool not in WRITES:
            return ScriptReply({"share": "full", "quote": "10.00"})  # as the recorded colleagues were told
        said = answer_of(desk(use.tool, use.args), Answer())
        effect = Effect.WRITE if use.tool in WRITES else Effect.READ
        rows.append(
            Transition(Call(use.tool, dict(use.args)), said, effect, "now", len(rows) + 1, Environment())
        )
        return ScriptReply(said.content, said.error)

    run_script(case.text, COLLEAGUES[place], answer)
    return rows


def _passes(case: DeskCase, rows: list[Transition]) -> bool:
    books = would_be_books(case, [entry for entry in rows if _took_effect(entry)])
    return not differences(goal(case.seed, case.text), books, case.customer_id)


def _took_effect(entry: Transition) -> bool:
    """What failed did nothing, unless the failure is the gateway's, which acts all the same."""
    error = entry.answer.error
    return entry.effect.changes_environment and (error is None or "TimeoutError" in error)
