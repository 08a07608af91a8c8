"""156 requests of the dream and a language model's raw answers: is right taken, and wrong refused?

Each answer is put behind an endpoint again and read by the code that reads it in a run: decisions by the
experience model, the others by the simulated user, the judge, the teacher and the variations.
pair_labels.json says of each, by its `n` and with the reason, whether it is right, wrong (with its class), or
not decidable from the prompt. It was written before the reader. A label's `given` names pairs whose answers
are facts of the same environment. Claimed confidence counts nowhere.
"""

import asyncio
import json
import os
import re
import sys
from collections import defaultdict
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from dreamgym_kit.chat import ChatReply, ChatRequest
from dreamgym_kit.curriculum.makers import ModelMaker
from dreamgym_kit.dream.contradictions import Fact
from dreamgym_kit.dream.environment_facts import FactIndex
from dreamgym_kit.dream.judge import ModelJudge
from dreamgym_kit.dream.llm_experience import ReasonedExperience
from dreamgym_kit.dream.user import PersonaUser
from dreamgym_kit.errors import NotSerializable
from dreamgym_kit.interfaces import Outcome, Pattern, Situation
from dreamgym_kit.training.annotation import Trajectory
from dreamgym_kit.training.annotators import TeachingModel
from dreamgym_kit.types import Answer, Call, Effect, Environment, Task, ToolSpec, Transition, Verdict

LABELS = Path(__file__).with_name("pair_labels.json")
BESIDE = Path(__file__).resolve().parents[3] / "shared" / "data"
_FENCED = re.compile(r"<<([0-9a-f]{16}) ([\w ]+)\n(.*?)\n\1>>", re.DOTALL)
_NUMBERED = re.compile(r"^\d+\. (.*)$", re.MULTILINE)
_ASKED = "How many?"
WRITES = frozenset(
    {"assign_licence", "revoke_licence", "request_approval", "update_address", "cancel_order", "reship_order"}
    | {"create_ticket", "escalate", "refund_payment", "send_mail", "delete_customer"}
)
HERE = Environment("here")


class NotHere(Exception):
    """The pairs are not on this machine."""

    skips = True


def measure(seed: int) -> list[tuple[str, float, str]]:
    """Figures for the bench runner. Nothing is drawn by chance."""
    file = Path(os.environ.get("SHARED_DATA_FOLDER", BESIDE)) / "model" / "pairs.jsonl"
    if not file.is_file():
        raise NotHere(f"no {file} (SHARED_DATA_FOLDER names another folder)")
    pairs = {pair["n"]: pair for pair in map(json.loads, file.read_text("utf-8").splitlines())}
    return figures(pairs, json.loads(LABELS.read_text("utf-8")))


def figures(
    pairs: Mapping[int, Mapping[str, Any]], labels: Mapping[str, Mapping[str, Any]]
) -> list[tuple[str, float, str]]:
    """What became of the labelled pairs."""
    right, wrong, paid = [], defaultdict(list), 0
    for n, pair in pairs.items():
        label = labels[str(n)]
        if label["label"] == "undecidable" or pair["kind"] == "tool_model":  # drafts have another form now
            continue
        facts = [fact_of(pairs[given]) for given in label.get("given", ())]
        accepted, requests = asyncio.run(read(pair, facts))
        if label["label"] == "right":
            right.append(accepted)
            paid += "packaging" in label and requests > 1
        else:
            wrong[label["class"]].append(not accepted)
        if accepted != (label["label"] == "right"):
            became = "accepted" if accepted else "refused"
            print(f"{n}: {became}, but {label['label']}: {label['reason']}", file=sys.stderr)
    refused = [each for row in wrong.values() for each in row]
    return [
        ("right_accepted", sum(right) / len(right), f"of {len(right)} right answers"),
        ("wrong_refused", sum(refused) / len(refused), f"of {len(refused)} wrong answers"),
        ("classes_missed", sum(not any(row) for row in wrong.values()), f"of {len(wrong)} wrong classes"),
        ("paid_repairs", paid, "second calls for packaging alone"),
        ("pairs", len(pairs), "requests and answers of a language model"),
    ]


class RecordedChatDouble:
    """Gives the recorded answer, again and again; after it, where given, the `then` of the next question."""

    def __init__(self, answer: str, *, first: str | None = None, then: str | None = None) -> None:
        self._answer, self._first, self._then = answer, first, then
        self.requests = 0

    async def chat(self, request: ChatRequest) -> ChatReply:
        """The recorded answer."""
        self.requests += 1
        if self._first is not None and request.schema_name == "variations":
            return ChatReply(self._first)
        if self._then is not None and request.schema_name == "selection":
            return ChatReply(self._then)
        return ChatReply(self._answer)


async def read(pair: Mapping[str, Any], facts: list[Fact]) -> tuple[bool, int]:
    """Whether the recorded answer is taken at once, and how many requests were made."""
    endpoint = RecordedChatDouble(pair["answer"])
    part = parts_of(pair)
    match pair["kind"]:
        case "decision":
            call, situation, examples = decision_of(pair)
            experience = ReasonedExperience(
                endpoint, retrieve=lambda *_: examples, facts=lambda _: FactIndex(facts), threshold=0.0
            )
            good = not (await experience.answer(call, situation)).unanswered
        case "user":
            user, conversation = json.loads(part["user"]), json.loads(part["conversation"])
            reply = await PersonaUser(endpoint, user).reply(conversation)
            good = reply is None or reply == json.loads(_object(pair["answer"]))["text"]
        case "verdict":
            outcome = Outcome(Task("t", {}), [], [], {}, real=False)
            good = (await ModelJudge(endpoint).judge(outcome)).verdict is not Verdict.INCONCLUSIVE
        case "annotation":
            good = await _annotated(endpoint, part)
        case "variations":
            endpoint = RecordedChatDouble(pair["answer"], then='{"reasoning": "", "selection": 1}')
            good = bool(await ModelMaker(endpoint).like(Pattern(_task()), 4, seed=0))
            return good and endpoint.requests == 2, endpoint.requests - 1
        case "selection":
            four = json.dumps({"variations": ["a", "b", "c", "d"]})
            endpoint = RecordedChatDouble(pair["answer"], first=four)
            good = bool(await ModelMaker(endpoint).like(Pattern(_task()), 4, seed=0))
            return good and endpoint.requests == 2, endpoint.requests - 1
        case _:
            raise ValueError(f"a pair of kind {pair['kind']}")
    return good and endpoint.requests == 1, endpoint.requests


def decision_of(pair: Mapping[str, Any]) -> tuple[Call, Situation, list[Transition]]:
    """Call, situation and examples of an old prompt; the state it shows is what its last write changed."""
    part = parts_of(pair)
    said = json.loads(part["tool"])
    spec = ToolSpec(
        said["name"],
        Effect(said["effect"]),
        said["description"],
        said["args"],
        answer_schema=said.get("answers") or {},
    )
    history = [_entry(row, "e", HERE, n) for n, row in enumerate(_rows(part["history"]), start=1)]
    _with_changes(history, json.loads(part["state"]) if part["state"].startswith("{") else {})
    examples = [
        _entry(row, f"x{n}", Environment("other", n), 1) for n, row in enumerate(_rows(part["examples"]))
    ]
    asked = json.loads(part["call"])
    return Call(asked["tool"], asked["args"]), Situation(HERE, "t", "e", history, "", spec), examples


def fact_of(pair: Mapping[str, Any]) -> Fact:
    """What a pair's answer told of its environment."""
    said = json.loads(_object(pair["answer"]))
    call = json.loads(parts_of(pair)["call"])
    return {"tool": call["tool"], "args": call["args"], "answer": json.loads(said["answer"])}


def parts_of(pair: Mapping[str, Any]) -> dict[str, str]:
    """The fenced parts of a recorded prompt."""
    text = pair["request"]["messages"][-1 if len(pair["request"]["messages"]) == 1 else 1]["content"]
    return {name: data for _, name, data in _FENCED.findall(text)}


def _with_changes(history: list[Transition], state: Mapping[str, Any]) -> None:
    at = next((n for n in reversed(range(len(history))) if history[n].effect.changes_environment), None)
    if at is None:
        return
    told = "\n".join(json.dumps(entry.answer.content, sort_keys=True) for entry in history)
    changes = [
        {"entity": entity, "field": field, "value": value}
        for entity, fields in state.items()
        for field, value in fields.items()
        if f'"{field}": {json.dumps(value)}' not in told
    ]
    entry = history[at]
    answer = Answer(entry.answer.content, error=entry.answer.error, changes=tuple(changes))
    history[at] = Transition(entry.call, answer, entry.effect, entry.episode, entry.step, entry.environment)


def _entry(row: Mapping[str, Any], episode: str, place: Environment, step: int) -> Transition:
    answer = Answer(error=row["error"]) if "error" in row else Answer(row["answer"])
    tool = row["tool"]
    effect = Effect.WRITE if tool in WRITES else Effect.PURE if tool == "refund_quote" else Effect.READ
    return Transition(Call(tool, row["args"]), answer, effect, episode, step, place)


def _rows(text: str) -> list[dict[str, Any]]:
    return [json.loads(row) for row in _NUMBERED.findall(text)]


def _object(text: str) -> str:
    return text[text.find("{") : text.rfind("}") + 1]


async def _annotated(endpoint: RecordedChatDouble, part: Mapping[str, str]) -> bool:
    rows = [json.loads(text) for name, text in part.items() if name.startswith("step ")]
    steps = [_entry(row, "e", HERE, row["step_id"]) for row in rows]
    trajectory = Trajectory("default", HERE, "e", "t", tuple(steps))
    try:
        await TeachingModel(endpoint, name="m").annotate(trajectory)
    except NotSerializable:
        return False
    return True


def _task() -> Task:
    return Task("t", {"messages": [{"role": "user", "content": _ASKED}]})
