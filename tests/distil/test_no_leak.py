"""Nothing of what measures reaches what is taught: no prompt, example, form, rule or reason of it."""

import asyncio
import json
from collections.abc import Sequence
from contextlib import closing
from dataclasses import replace
from pathlib import Path

import pytest
from distil.shop_recordings import SPECS, shop

from dreamgym_kit.adapters.distilling.material import begin, material
from dreamgym_kit.adapters.distilling.training import lessons
from dreamgym_kit.adapters.stores.sqlite import SqliteStore
from dreamgym_kit.chat import ChatReply, ChatRequest
from dreamgym_kit.settings.schema import Settings
from dreamgym_kit.training.annotation import ANNOTATIONS, Annotator, KeptAnnotations, annotate
from dreamgym_kit.training.annotators import MinedRules, TeachingModel
from dreamgym_kit.types import Environment, Split, Transition


class TeacherDouble:
    """Says that each step goes well, and keeps what it was shown."""

    def __init__(self) -> None:
        self.shown: list[str] = []

    async def chat(self, request: ChatRequest) -> ChatReply:
        self.shown += [message.content for message in request.messages]
        steps = request.schema["properties"]["state_transitions"]["minItems"]
        plans = [{"step_id": step, "transition_plan": "It goes well."} for step in range(1, steps + 1)]
        tutorial = dict.fromkeys(("overall_plan", "success_mode", "failure_mode"), "So.")
        return ChatReply(json.dumps({"task_tutorial": tutorial, "state_transitions": plans}))


def marked(rows: Sequence[Transition], by: str) -> list[Transition]:
    """Each recording bears a word of the group that it is to be told apart by, in all its answers."""
    found = []
    for row in rows:
        seed, number = row.environment.variant, int(row.episode.partition("-")[2])
        if by == "task":  # tasks cross worlds
            row = replace(row, task=f"t{(seed + number) % 4}")
        if by == "entity":  # all in one world: what tells recordings apart are the orders
            row = replace(row, environment=Environment("shop", 0), episode=f"{row.episode}-{seed}")
        told_apart = {"task": row.task, "environment": seed}.get(by, row.call.args["order_id"])
        word = f"canary-{told_apart}-"
        answer = row.answer
        if answer.error is not None:
            answer = replace(answer, error=f"{answer.error} {word}")
        else:
            answer = replace(answer, content={**answer.content, "note": word})
        held_out = by == "environment" and seed == 2
        found.append(replace(row, answer=answer, split=Split.HELD_OUT if held_out else Split.TRAIN))
    return found


def words(rows: Sequence[Transition]) -> set[str]:
    told = [row.answer.error.split()[-1] if row.answer.error else row.answer.content["note"] for row in rows]
    return set(map(str, told))


@pytest.mark.parametrize("by", ["environment", "task", "entity"])
@pytest.mark.parametrize("teacher", [False, True])
def test_no_word_of_a_held_out_recording_is_in_anything_that_is_taught(
    tmp_path: Path, by: str, teacher: bool
) -> None:
    rows = marked(shop(8, 4 if by == "task" else 2), by)
    with closing(SqliteStore(tmp_path / "shop.db")) as store:
        store.put(rows)
        settings, out = Settings(buffer=str(tmp_path / "shop.db")), tmp_path / "out"
        begun = begin(out, store, settings, list(SPECS.values()), by=(by,), share=0.3, seed=0)
        known = material(begun, store, settings)
        asked = TeacherDouble()
        who: Annotator = TeachingModel(asked, name="m") if teacher else MinedRules(known.sides.taught)
        asyncio.run(annotate(who, known.sides.taught, KeptAnnotations(out)))
        made, _ = lessons(out, known)
    taught = words([row for one in known.sides.taught for row in one.steps])
    measured = words([row for one in known.sides.measured for row in one.steps])
    assert measured
    assert taught
    assert not measured & taught
    if by == "environment":
        assert "canary-2-" in measured  # what a person held out
    shown = [(out / ANNOTATIONS).read_text(), *asked.shown]
    shown += [text for one in made for text in (one.answer, *(told.content for told in one.messages))]
    whole = "\n".join(shown)
    assert any(word in whole for word in taught)  # the test can see
    assert [word for word in measured if word in whole] == []
