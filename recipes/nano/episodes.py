"""Recordings to learn from: the scripted colleagues at work on train worlds, for real, without LangGraph.

Decides who works what. Seniors are right; juniors have habits that skip checks; slips are moments of
inattention. What a model learns from all of them is neither good nor bad, and that is wanted: the right
way is in it, and training in the dream has something to find.

The desk's tools are called directly, so that thousands of episodes can be worked in seconds: the text of each
answer is given as it stands in the agent's conversation. A call that no tool takes is answered in the words
of LangGraph's tool node, shortened: a graph also quotes the validator there.
"""

import json
import random
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from dreamgym_kit.bounded_json import read_json
from dreamgym_kit.recipes.desk.cases import TRAIN_SEEDS, make_case
from dreamgym_kit.recipes.desk.checkers import differences, goal
from dreamgym_kit.recipes.desk.database import OPERATIONS, Desk, DeskError, refund_share, scratch_desk
from dreamgym_kit.recipes.desk.policy import Habits, ScriptReply, ScriptTurn, next_turn
from dreamgym_kit.serialization import JsonValue

TOOL_ARGS: Mapping[str, tuple[str, ...]] = {
    **OPERATIONS,
    "refund_quote": ("amount", "days"),
    "summarise_case": (),
}
"""All tools of the desk's agent, with the names of their arguments in order."""


@dataclass(frozen=True, slots=True)
class CallResult:
    """What the agent is told about one call."""

    text: str
    failed: bool = False


class DirectTools:
    """The tools over one open desk, for one episode."""

    def __init__(self, desk: Desk) -> None:
        self.calls = 0
        self._desk = desk
        self._failed = 0
        self._escalated: list[str] = []
        self._seen = (0, 0)  # calls and failures that the conversation held when this turn began

    def begin_turn(self) -> None:
        """The calls that follow are made at once: none of them sees another's answer."""
        self._seen = (self.calls, self._failed)

    def call(self, tool: str, args: Mapping[str, JsonValue]) -> CallResult:
        """Make one call, for real on this desk."""
        answer = self._answer(tool, args)
        self.calls += 1
        self._failed += answer.failed
        return answer

    def _answer(self, tool: str, args: Mapping[str, JsonValue]) -> CallResult:
        names = TOOL_ARGS.get(tool)
        if names is None:
            return CallResult(
                f"Error: {tool} is not a valid tool, try one of [{', '.join(TOOL_ARGS)}].", failed=True
            )
        texts = {name: value for name in names if isinstance(value := args.get(name), str)}
        if len(texts) < len(names):
            wanted = next(name for name in names if name not in texts)
            return CallResult(
                f"Error invoking tool '{tool}' with kwargs {dict(args)} with error:\n {wanted}: "
                "Input should be a valid string\n Please fix the error and try again.",
                failed=True,
            )
        try:
            return CallResult(json.dumps(self._do(tool, texts), ensure_ascii=False))
        except (DeskError, ValueError) as refusal:
            return CallResult(str(refusal), failed=True)

    def _do(self, tool: str, args: Mapping[str, str]) -> JsonValue:
        if tool == "refund_quote":
            return dict(refund_share(**args))
        if tool == "summarise_case":
            calls, failed = self._seen
            return {"calls": str(calls), "failed": str(failed), "escalated": " ".join(self._escalated)}
        done = self._desk.call(tool, args)
        if tool == "escalate":
            self._escalated.append(args["target_id"])
        return done


@dataclass(frozen=True, slots=True)
class Mix:
    """Whose work is recorded, as shares; the rest are slips."""

    senior: float = 0.35
    junior: float = 0.50
    bold: float = 0.35  # of juniors and slips: those who refund again after a time-out without looking


@dataclass(frozen=True, slots=True)
class Exchange:
    """One turn of the agent with calls, and what it was told."""

    turn: ScriptTurn
    answers: tuple[CallResult, ...]


@dataclass(frozen=True, slots=True)
class Worked:
    """One episode from the request to the last word."""

    seed: int
    family: str
    request: str
    habits: Habits
    exchanges: tuple[Exchange, ...]
    last_word: str
    solved: bool


def record(count: int, *, seed: int = 0, mix: Mix | None = None) -> Iterator[Worked]:
    """Record `count` episodes on train worlds; the same seed gives the same episodes, always.

    The worlds are drawn without repetition while there are enough of them, families in equal shares.
    """
    chance = random.Random(f"record {seed}")  # noqa: S311  reproducible, not secret
    environments = chance.sample(TRAIN_SEEDS, count)
    for environment in environments:
        yield work(environment, draw_habits(mix or Mix(), chance, environment))


def draw_habits(mix: Mix, chance: random.Random, environment: int) -> Habits:
    """Who works this one."""
    drawn, bold = chance.random(), chance.random() < mix.bold
    if drawn < mix.senior:
        return Habits("senior", seed=str(environment))
    kind = "junior" if drawn < mix.senior + mix.junior else "slip"
    return Habits(kind, looks_first=not bold, seed=str(environment))


def work(seed: int, habits: Habits) -> Worked:
    """Let somebody with these habits work the request of a seed on its own desk."""
    case = make_case(seed)
    exchanges: list[Exchange] = []
    with scratch_desk(case.rows) as desk:
        tools = DirectTools(desk)
        while True:
            turn = next_turn(case.text, [_replies(exchange.answers) for exchange in exchanges], habits)
            if isinstance(turn, str):
                break
            tools.begin_turn()
            answers = tuple(tools.call(use.tool, dict(use.args)) for use in turn.uses)
            exchanges.append(Exchange(turn, answers))
        solved = not differences(goal(seed, case.text), desk.books(), case.customer_id)
    return Worked(seed, case.family, case.text, habits, tuple(exchanges), turn, solved)


def _replies(answers: Sequence[CallResult]) -> list[ScriptReply]:
    return [
        ScriptReply(error=each.text) if each.failed else ScriptReply(read_json(each.text)) for each in answers
    ]
