"""Against a real desk: the truth is never refused for what was told before, a lie about it is."""

import asyncio
import json
from collections import Counter, defaultdict
from collections.abc import Callable

import pytest
from bench.desk_recordings import held_out_half, recorded_half, rows

from dreamgym_kit.chat import ChatReply, ChatRequest
from dreamgym_kit.dream.answer_schema import schema_for
from dreamgym_kit.dream.chain import ChainedExperience
from dreamgym_kit.dream.llm_experience import ReasonedExperience
from dreamgym_kit.dream.recorded import RecordedExperience
from dreamgym_kit.interfaces import Situation
from dreamgym_kit.types import Answer, ToolSpec, Transition

pytestmark = pytest.mark.slow
Spoil = Callable[[Transition, set[str]], Answer | None]


class WitnessDouble:
    """Says what the desk said, or what it is given instead."""

    answer: Answer

    async def chat(self, request: ChatRequest) -> ChatReply:
        said = {"reasoning": "", "outcome": "ok", "like": None, "leaves": [], "answer": None, "error": ""}
        if self.answer.error is not None:
            said |= {"outcome": "error", "error": self.answer.error}
        else:
            content = self.answer.content
            said["answer"] = content if isinstance(content, str) else json.dumps(content)
        return ChatReply(json.dumps({**said, "set": [], "confidence": 1.0}))


def asked(spoil: Spoil) -> Counter[str]:
    """How many answers of held-out episodes stood as said, were refused, or were put right."""
    seen, apart = list(rows(recorded_half(0, 12))), list(rows(held_out_half(0, 6)))
    by_tool = defaultdict(list)
    for row in seen:
        by_tool[row.call.tool].append(row)
    chain = ChainedExperience(RecordedExperience(lambda world, tenant: []), lambda tenant: seen)
    model = WitnessDouble()
    dream = ReasonedExperience(
        model,
        retrieve=lambda call, at: by_tool[call.tool][-6:],
        schemas=lambda call, at: schema_for(at.tool, [row.answer for row in by_tool[call.tool]]),
        programs=chain.programs,
    )
    episodes = defaultdict(list)
    for row in apart:
        episodes[row.episode].append(row)
    found: Counter[str] = Counter()
    for steps in episodes.values():
        for place, row in enumerate(steps):
            said = spoil(row, {json.dumps(one.answer.content) for one in steps[:place]})
            if said is None:
                continue
            model.answer = said
            tool = ToolSpec(row.call.tool, row.effect)
            where = Situation(row.environment, row.task, row.episode, steps[:place], row.after, tool)
            decided = asyncio.run(dream.decide(row.call, where))
            if decided.answer.unanswered:
                found["refused"] += 1
            else:
                same = (decided.answer.content, decided.answer.error) == (said.content, said.error)
                known = chain.programs.consider(row.call, where)
                held = known is not None and "|" not in known.kind  # a record or an answer, and no outcome
                found[("stood" if held else "stood unheld") if same else "put right"] += 1
    return found


def test_the_truth_is_never_refused() -> None:
    found = asked(lambda row, told: row.answer)
    assert found["stood"] + found["stood unheld"] > 200
    assert (found["refused"], found["put right"]) == (0, 0)


def test_a_read_told_before_cannot_say_another_status() -> None:
    """Reads that said exactly this before in their episode, with one field of it changed.

    A lie stands only where a write came between of which nobody knows whether it leaves the read alone: the
    state holds the read no longer.
    """

    def lie(row: Transition, told: set[str]) -> Answer | None:
        content = row.answer.content
        if row.effect.changes_environment or json.dumps(content) not in told:
            return None
        record = content[0] if isinstance(content, list) and content else content
        if not isinstance(record, dict) or "status" not in record:
            return None
        changed = {**record, "status": "returned"}
        return Answer([changed, *content[1:]] if isinstance(content, list) else changed)

    found = asked(lie)
    print(found)
    assert found["stood"] == found["put right"] == 0
    assert found["refused"] > 5 * found["stood unheld"]
    assert found["refused"] > 5
