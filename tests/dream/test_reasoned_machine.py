"""A model that often contradicts itself, against a dict of what was told: the dream never does."""

import asyncio
import json
import random

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, rule

from dreamgym_kit.chat import ChatReply, ChatRequest
from dreamgym_kit.dream.chain import ChainedExperience, FallbackChain
from dreamgym_kit.dream.llm_experience import ReasonedExperience
from dreamgym_kit.dream.recorded import RecordedExperience
from dreamgym_kit.dream.things import opened
from dreamgym_kit.interfaces import Situation
from dreamgym_kit.types import Call, Effect, Environment, ToolSpec, Transition, history_digest

CARDS = ("A1", "B2", "C3")
VALUES = {"limit": (10, 20, 30), "status": ("active", "frozen", "lost")}
SPECS = {
    "get_card": ToolSpec("get_card", Effect.READ),
    "list_cards": ToolSpec("list_cards", Effect.READ),
    "set_limit": ToolSpec("set_limit", Effect.WRITE),
    "freeze": ToolSpec("freeze", Effect.WRITE),
}


class WaveringModelDouble:
    """Says something well-formed about the cards that is right as often as chance has it."""

    def __init__(self, seed: int) -> None:
        self._drawn = random.Random(seed)

    async def chat(self, request: ChatRequest) -> ChatReply:
        call = json.loads(request.messages[1].content.rpartition(" call\n")[2].split("\n")[0])
        said = {"reasoning": "", "outcome": "ok", "like": None, "leaves": [], "error": "", "set": []}
        args = call["args"]
        match call["tool"]:
            case "get_card":
                answer: object = self._card(args["card_id"])
                if self._drawn.random() < 0.2:
                    said |= {"outcome": "error", "error": f"no card {args['card_id']}"}
            case "list_cards":
                answer = {"cards": [self._card(card) for card in CARDS]}
            case "set_limit":
                answer = "done"
                said["set"] = self._claims(args["card_id"], "limit", args["limit"])
            case _:
                answer = {"card_id": args["card_id"], "status": "frozen"}
        text = answer if isinstance(answer, str) else json.dumps(answer)
        return ChatReply(json.dumps({**said, "answer": text, "confidence": self._drawn.choice((0.3, 1.0))}))

    def _card(self, card: str) -> dict:
        return {"card_id": card, **{name: self._drawn.choice(of) for name, of in VALUES.items()}}

    def _claims(self, card: str, field: str, value: object) -> list[dict]:
        return [{"entity": card, "field": field, "value": value}] if self._drawn.random() < 0.8 else []


class TheDreamKeepsItsWord(RuleBasedStateMachine):
    """Read-your-writes, equal reads equal, and two reads of one card agree, whatever the model says."""

    @initialize(seed=st.integers(0, 10_000))
    def begin(self, seed: int) -> None:
        chain = ChainedExperience(RecordedExperience(lambda world, tenant: []), lambda tenant: [])
        model = WaveringModelDouble(seed)
        self.experience = FallbackChain(chain, ReasonedExperience(model, programs=chain.programs))
        self.history: list[Transition] = []
        self.said: dict[tuple[str, str], object] = {}
        self.reads: dict[str, object] = {}
        self.there: set[str] = set()

    @rule(card=st.sampled_from(CARDS))
    def read(self, card: str) -> None:
        self._read("get_card", card_id=card)

    @rule()
    def read_all(self) -> None:
        self._read("list_cards")

    @rule(card=st.sampled_from(CARDS), limit=st.sampled_from(VALUES["limit"]))
    def set_limit(self, card: str, limit: int) -> None:
        self._write("set_limit", card_id=card, limit=limit)

    @rule(card=st.sampled_from(CARDS))
    def freeze(self, card: str) -> None:
        answer = self._write("freeze", card_id=card)
        if not answer.unanswered:
            self.said[card, "status"] = "frozen"

    def _read(self, tool: str, **args: object) -> None:
        answer = self._ask(tool, args)
        if answer.unanswered:
            return
        key = Call(tool, args).key
        new = key not in self.reads
        assert self.reads.setdefault(key, (answer.content, answer.error)) == (answer.content, answer.error)
        if answer.error is not None:
            assert not (new and args["card_id"] in self.there)
            return
        told = opened(answer.content)
        for card in told.get("cards", [told]):
            self.there.add(card["card_id"])
            for name in VALUES:
                assert self.said.setdefault((card["card_id"], name), card[name]) == card[name]

    def _write(self, tool: str, **args: object):
        answer = self._ask(tool, args)
        self.reads.clear()
        self.there.discard(args["card_id"])
        if answer.unanswered:
            self.said.clear()
        elif not answer.changes:  # nobody says what it did to the card
            self.said = {key: value for key, value in self.said.items() if key[0] != args["card_id"]}
        for change in answer.changes:
            self.said[change["entity"], change["field"]] = change["value"]
        return answer

    def _ask(self, tool: str, args: dict):
        call, effect = Call(tool, args), SPECS[tool].effect
        after = history_digest([one.call.key for one in self.history if one.effect is Effect.WRITE])
        situation = Situation(Environment(), "t", "t.1", list(self.history), after, SPECS[tool])
        answer = asyncio.run(self.experience.answer(call, situation))
        step = len(self.history) + 1
        self.history.append(Transition(call, answer, effect, "t.1", step, after=after))
        return answer


TestTheDreamKeepsItsWord = TheDreamKeepsItsWord.TestCase
TestTheDreamKeepsItsWord.settings = settings(
    max_examples=25, stateful_step_count=10, deadline=None, derandomize=True
)


def test_what_was_told_with_little_support_is_kept_through_a_write_to_another_field() -> None:
    """Sure or not, the agent has heard it; 40 models, of which a tenth would say something else."""
    for seed in range(40):
        machine = TheDreamKeepsItsWord()
        machine.begin(seed)
        machine.read("A1")
        machine.freeze("A1")
        machine.read("A1")
