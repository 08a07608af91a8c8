"""Does a checker say of a dreamt episode what it says of the real one? Desk colleagues work in the dream.

Closed loop: what a colleague does next hangs on what the dream answered, so a wrong answer leads elsewhere,
and the checker sees it. The real verdict is that of the same colleague at the real desk. An episode in which
the dream abstains has no verdict. `verdict_pass` is the share of decided episodes whose real verdict is
success: if it were 1, agreeing would be no art.
"""

from collections.abc import Callable, Mapping, Sequence
from typing import Protocol

from desk_recordings import COLLEAGUES, READS, WRITES, colleague

from dreamgym_kit.dream.observed import answer_of
from dreamgym_kit.dream.programs.dreaming import ProgramEpisode
from dreamgym_kit.dream.programs.experience import Programs
from dreamgym_kit.dream.programs.values import SeenStep
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

    def __init__(self, programs: Programs, world: str, threshold: float) -> None:
        self._dream = ProgramEpisode(programs.model, world, programs.trust)
        self._threshold = threshold

    def __call__(self, tool: str, args: Mapping[str, JsonValue]) -> JsonValue:
        """Answer, and keep it."""
        told = self._dream.consider(tool, args)
        if told is None or told.confidence < self._threshold:
            raise Abstained
        step = SeenStep(tool, dict(args), told.ok, told.out, tool in WRITES, told.wrap)
        self._dream.observe(step, told.confidence)
        return told.wrap(told.out)


def verdict_figures(seeds: Sequence[int], open_desk: Callable[[int], Desk]) -> list[tuple[str, float, str]]:
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
        ("verdict_agreement", agreed / decided if decided else 0.0, "share"),
        ("verdict_decided", decided / asked, "share"),
        ("verdict_pass", passed / decided if decided else 0.0, "share"),
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
