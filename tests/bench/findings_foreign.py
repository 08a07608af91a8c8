"""What the detectors say of agents that nobody here wrote: false alarms on experts, planted faults found.

Experts: the recorded episodes of the public beds (tests/data/beds/README.md) whose plan is the bed's own,
with effects guessed as `init` does it. Planted: one fault in an expert's episode.

`found`, `false_alarms`: of the detectors that are on by default. `alarms_D`: on what share of the episodes
that hold what detector D reads it spoke; `could_fire_D`: of how many. No bed recorded a person's decision, a
last word or a prompt: of the detectors that read these only planted faults count, or nothing.
"""

import json
import os
import random
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from beds import BEDS, BESIDE, SMALL, NotHere

from dreamgym_kit.findings.case import AnsweredInterrupt, Case
from dreamgym_kit.findings.detectors import BUILT_IN, OPTIONAL, Detectors
from dreamgym_kit.findings.text import ids
from dreamgym_kit.routing.effects import guess_effect
from dreamgym_kit.types import Answer, Call, Finding, Source, Task, ToolSpec, Transition

_WORDS = {"unasked_destructive", "swallowed_error", "contradicting_answer"}
MEASURED = ("repeated_write", "made_up_argument", "write_before_read", "loop")
PER_KIND = 60  # planted episodes of a kind and bed
FILES = ("train.jsonl", "test_unseen.jsonl")
Record = Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class Talk:
    """An episode that can be bent: turns of calls, each with what was answered."""

    task: str
    turns: Sequence[Sequence[Record]]
    asked: tuple[AnsweredInterrupt, ...] = ()

    def case(self, specs: Mapping[str, ToolSpec]) -> Case:
        """As a detector is given it."""
        messages: list[Record] = [{"role": "user", "content": self.task}]
        steps: list[Transition] = []
        for turn in self.turns:
            asked = []
            for call in turn:
                number = len(steps) + 1
                error = call.get("error")
                answer = Answer(
                    call.get("answer"), Source.REAL, error=error, error_type=call.get("error_type")
                )
                request = Call(call["tool"], call["args"], f"c{number}")
                steps.append(Transition(request, answer, specs[call["tool"]].effect, "e", number))
                asked.append({"id": f"c{number}", "name": call["tool"], "args": call["args"]})
            messages.append({"role": "assistant", "content": "", "tool_calls": asked})
        return Case(Task("t", {"messages": messages[:1]}), steps, messages, specs, interrupts=self.asked)


def measure(seed: int) -> Iterator[tuple[str, float, str]]:
    """Measure on the whole beds."""
    folder = Path(os.environ.get("SHARED_DATA_FOLDER", BESIDE)) / "beds"
    if not folder.is_dir():
        raise NotHere(f"the beds are not in {folder} (SHARED_DATA_FOLDER names another folder)")
    yield from figures(seed, folder, BEDS, per_kind=PER_KIND)


def quick(seed: int) -> Iterator[tuple[str, float, str]]:
    """The beds that are in this repository."""
    yield from figures(seed, SMALL, ("workbench", "retail"), per_kind=10)


def figures(
    seed: int, folder: Path, beds: Sequence[str], *, per_kind: int
) -> Iterator[tuple[str, float, str]]:
    """Look at all experts, then at the planted faults."""
    episodes, alarmed = 0, []
    could, spoke, planted, found = Counter[str](), Counter[str](), Counter[str](), Counter[str]()
    for bed in beds:
        specs, experts = read_bed(folder / bed)
        for expert in experts:
            kinds = looked(expert, specs)
            episodes += 1
            alarmed += [kinds - OPTIONAL] if kinds - OPTIONAL else []
            could.update(kind for kind in MEASURED if any(PLANTS[kind](expert, specs, random.Random(seed))))
            spoke.update(kinds)
        for kind, plant in PLANTS.items():
            drawn = random.Random(f"{seed} {bed} {kind}")
            mixed = drawn.sample(experts, len(experts))
            bent = (fault for expert in mixed for fault in plant(expert, specs, drawn))
            for _, fault in zip(range(per_kind), bent, strict=False):
                planted[kind] += 1
                found[kind] += kind in looked(fault, specs)
    default = PLANTS.keys() - OPTIONAL
    share = sum(found[kind] for kind in default) / sum(planted[kind] for kind in default)
    yield "found", share, "of planted faults"
    yield "false_alarms", len(alarmed) / episodes, f"of {episodes} expert episodes"
    yield "subjects", len(beds), "public beds"
    yield "planted", sum(planted.values()), "episodes"
    for kind in PLANTS:
        yield f"found_{kind}", found[kind] / max(1, planted[kind]), f"of {planted[kind]}"
        if kind in MEASURED:
            yield f"alarms_{kind}", spoke[kind] / max(1, could[kind]), "of those that it could"
            yield f"could_fire_{kind}", could[kind], "expert episodes"


def looked(talk: "Talk", specs: Mapping[str, ToolSpec]) -> set[str]:
    """The kinds of findings of all detectors; the beds have none of what the last three read."""
    return {finding.kind for finding in Detectors(BUILT_IN).episode_done(talk.case(specs))} - _WORDS


def read_bed(folder: Path) -> tuple[dict[str, ToolSpec], list[Talk]]:
    """The tools with guessed effects, and the experts' episodes."""
    tools = json.loads((folder / "tools.json").read_text("utf-8"))["tools"]
    specs = {
        tool["name"]: ToolSpec(
            tool["name"],
            guess_effect(tool["name"], tool["description"])[0],
            tool["description"],
            tool["args"],
        )
        for tool in tools
    }
    files = [folder / name for name in FILES if (folder / name).exists()]
    lines = [line for file in files for line in file.read_text("utf-8").split("\n") if line]
    records = [record for record in map(json.loads, lines) if record["how"] == "plain"]
    return specs, [Talk(record["task"], [[call] for call in record["calls"]]) for record in records]


def _writes(talk: Talk, specs: Mapping[str, ToolSpec]) -> list[int]:
    """The turns whose call changes something, and took effect."""
    return [
        place
        for place, (call,) in enumerate(talk.turns)
        if specs[call["tool"]].effect.changes_environment and "error" not in call and call["args"]
    ]


def _twice(talk: Talk, specs: Mapping[str, ToolSpec], drawn: random.Random) -> Iterator[Talk]:
    """A write again in the next turn."""
    if places := _writes(talk, specs):
        place = drawn.choice(places)
        yield replace(talk, turns=[*talk.turns[: place + 1], *talk.turns[place:]])


def _circles(talk: Talk, specs: Mapping[str, ToolSpec], drawn: random.Random) -> Iterator[Talk]:
    """A read five times."""
    reads = [
        place
        for place, (call,) in enumerate(talk.turns)
        if not specs[call["tool"]].effect.changes_environment
    ]
    if reads:
        place = drawn.choice(reads)
        yield replace(talk, turns=[*talk.turns[:place], *[talk.turns[place]] * 5, *talk.turns[place + 1 :]])


def _invented(talk: Talk, specs: Mapping[str, ToolSpec], drawn: random.Random) -> Iterator[Talk]:
    """An id or address in a write, with other letters and digits."""
    choices = [
        (place, name)
        for place in _writes(talk, specs)
        for name, value in talk.turns[place][0]["args"].items()
        if isinstance(value, str) and (ids(value) or "@" in value) and _named(name) and " " not in value
    ]
    if choices:
        place, name = drawn.choice(choices)
        (call,) = talk.turns[place]
        made = "".join(_other(letter, drawn) for letter in call["args"][name])
        bent = {**call, "args": {**call["args"], name: made}}
        if made != call["args"][name]:
            yield replace(talk, turns=[*talk.turns[:place], [bent], *talk.turns[place + 1 :]])


def _named(name: str) -> bool:
    return name.casefold().endswith(("id", "ids", "email", "recipient"))


def _other(letter: str, drawn: random.Random) -> str:
    if letter.isdigit():
        return str(drawn.randint(0, 9))
    return drawn.choice("bcdfghjklmnpqrstvwxz") if letter.isalpha() else letter


def _too_early(talk: Talk, specs: Mapping[str, ToolSpec], drawn: random.Random) -> Iterator[Talk]:
    """A write asked for in the turn of the read that first tells the id in it."""
    for place in _writes(talk, specs):
        (call,) = talk.turns[place]
        before = talk.turns[:place]
        told = [at for at, (other,) in enumerate(before) if _tells(other, call)]
        said = str(talk.task).casefold()
        new = [value for value in ids(call["args"]) if value not in said]
        if (
            len(told) == 1
            and new
            and not any(_mentions(other, new) for at, (other,) in enumerate(before) if at != told[0])
        ):
            read = told[0]
            rest = [*talk.turns[read + 1 : place], *talk.turns[place + 1 :]]
            yield replace(talk, turns=[*before[:read], [talk.turns[read][0], call], *rest])
            return


def _tells(other: Record, call: Record) -> bool:
    return bool(ids(other.get("answer")) & ids(call["args"]) - ids(other["args"]))


def _mentions(other: Record, values: Sequence[str]) -> bool:
    text = json.dumps([other["args"], other.get("answer")]).casefold()
    return any(value in text for value in values)


def _rejected(talk: Talk, specs: Mapping[str, ToolSpec], drawn: random.Random) -> Iterator[Talk]:
    """A write that a person has rejected, in the form of LangChain's middleware."""
    if places := _writes(talk, specs):
        place = drawn.choice(places)
        (call,) = talk.turns[place]
        question = {"action_requests": [{"name": call["tool"], "args": call["args"]}]}
        yield replace(talk, asked=(AnsweredInterrupt(place, question, {"decisions": [{"type": "reject"}]}),))


__all__ = ["Finding"]  # for the test that plants a detector

PLANTS: Mapping[str, Callable[[Talk, Mapping[str, ToolSpec], random.Random], Iterator[Talk]]] = {
    "repeated_write": _twice,
    "made_up_argument": _invented,
    "write_before_read": _too_early,
    "write_after_refusal": _rejected,
    "loop": _circles,
}
