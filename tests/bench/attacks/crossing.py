"""Cases made by crossing: a seeded sample in which every two traits that go together meet."""

import itertools
import random
from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from attacks.dispatched import ANSWERS, DISPATCHED
from attacks.held import HELD
from attacks.nodes import NODES, SYNC_ONLY
from attacks.project import HEAD, Case

TRAITS: Mapping[str, tuple[str, ...]] = {
    "held": tuple(HELD),
    "dispatched": tuple(DISPATCHED),
    "node": tuple(NODES),
    "manner": ("sync", "async"),
    "told": ("the thing itself", "a schema"),
    "answer": tuple(ANSWERS),
    "kept": ("all messages", "the last message"),
    "beside": ("alone", "beside a pure tool"),
    "declared": ("undeclared", "declared destructive"),
    "sink": ("kept", "fresh", "kept", "fresh", "file", "program"),
    "entry": ("cli", "python"),
}
DRAWN = 60  # combinations to choose each next case from


@dataclass(frozen=True, slots=True)
class Traits:
    """One combination."""

    held: str
    dispatched: str
    node: str
    manner: str
    told: str
    answer: str
    kept: str
    beside: str
    declared: str
    sink: str
    entry: str

    @property
    def possible(self) -> bool:
        """Whether there is such an agent."""
        held, dispatched = HELD[self.held], DISPATCHED[self.dispatched]
        lacks = (
            dispatched.tools and not held.is_tool,
            dispatched.node and not held.node_takes_it,
            dispatched.owner and not held.owner,
            held.of_bank and self.sink not in ("kept", "fresh"),
            self.node in SYNC_ONLY and self.manner == "async",
            self.told == "a schema" and (not self._named or not held.reference or dispatched.node),
            self.told == "the thing itself" and held.told == "SCHEMA" and self._named,
            self.answer == "a human message" and not self._replies,
            self.declared == "declared destructive" and not (held.reference or held.is_tool),
        )
        return not any(lacks)

    @property
    def _named(self) -> bool:
        return DISPATCHED[self.dispatched].by_name

    @property
    def _replies(self) -> bool:
        return self._named and self.dispatched != "ToolNode"

    @property
    def _unseen_answer(self) -> bool:
        """Whether the model was told of its answer form before the kit was there: a person has to say so."""
        return self.dispatched == "a structured answer" and self.entry == "python"

    def pairs(self) -> Iterator[tuple[object, object]]:
        """Every two traits of it."""
        named = [(trait, getattr(self, trait)) for trait in TRAITS]
        return itertools.combinations(named, 2)

    def case(self, number: int) -> Case:
        """The agent."""
        held, dispatched = HELD[self.held], DISPATCHED[self.dispatched]
        words = _words(self)
        twin = {"declares": held.declares, "mark_closure": 'effect("pure")($name)'}
        text = "\n".join((HEAD, held.source, "$declares", dispatched.source, NODES[self.node]))
        return Case(
            f"x{number:03}",
            {"agent.py": text, **held.files},
            about=", ".join(getattr(self, trait) for trait in TRAITS),
            settings=self._settings(),
            twin_settings=self._twin_settings(),
            crossed=True,
            sink=self.sink,
            entry=self.entry,
            is_async=self.manner == "async",
            structured=("Action",) if self._unseen_answer else (),
            words=words,
            twin_words=twin,
        )

    def _settings(self) -> str:
        held = HELD[self.held]
        if self.declared == "undeclared":
            return ""
        if held.is_tool:
            return '[tools.$name]\neffect = "destructive"\n'
        return _function(held.reference, "destructive")

    def _twin_settings(self) -> str:
        """What a person says of a harmless function that the model names: that it is pure."""
        held = HELD[self.held]
        reference = held.twin_reference or held.reference
        if not self._named or not reference or held.is_tool:
            return ""
        tool = '[tools.$name]\neffect = "pure"\n' if DISPATCHED[self.dispatched].node else ""
        return _function(reference, "pure") + tool  # a ToolNode makes a tool of it


def _function(reference: str, effect: str) -> str:
    return f'[functions."{reference}"]\neffect = "{effect}"\nname = "$name"\n'


def _words(traits: Traits) -> dict[str, str]:
    held, is_async = HELD[traits.held], traits.manner == "async"
    async_body = is_async and not held.always_sync and not DISPATCHED[traits.dispatched].plain_body
    waits = "await " if is_async else ""
    some = "{0}" if traits.kept == "all messages" else "({0})[-1:]"
    new, of_messages = (f"{waits}turn({given})" for given in ('state["messages"]', "messages"))
    schema = traits.told == "a schema" or held.told == "SCHEMA"
    return {
        "get": held.get,
        "plain": held.plain or held.get,
        "owner": held.owner,
        "hdef": "async def" if async_body else "def",
        "hawait": "await " if async_body else "",
        "by": "coroutine=" if async_body else "func=",
        "by_turn": "coroutine=" if is_async else "func=",
        "bound": "model.bind(tools=[SCHEMA])" if schema else f"model.bind_tools([{held.told}])",
        "answer": ANSWERS[traits.answer],
        "beside": f'{waits}add.$invoke({{"a": 1, "b": 2}})' if traits.beside != "alone" else "pass",
        "in_thread": (
            "await asyncio.to_thread(*ran)" if is_async else "ThreadPoolExecutor(1).submit(*ran).result()"
        ),
        "new": some.format(new),
        "new_of_messages": some.format(of_messages),
        "await_task": "await work(asked)" if is_async else "work(asked).result()",
        "runnable": "RunnableLambda(work)",
        "before_model": "abefore_model" if is_async else "before_model",
        "declares": "",
        "mark_closure": "pass",
    }


def crossed(seed: int, count: int) -> list[Case]:
    """So many cases, each chosen for the pairs of traits that no case before it has."""
    chance = random.Random(seed)
    seen: set[tuple[object, object]] = set()
    chosen: list[Traits] = []
    while len(chosen) < count:
        best = max(_drawn(chance), key=lambda traits: len(set(traits.pairs()) - seen))
        seen.update(best.pairs())
        chosen.append(best)
    return [traits.case(number) for number, traits in enumerate(chosen, 1)]


def _drawn(chance: random.Random) -> list[Traits]:
    drawn: list[Traits] = []
    while len(drawn) < DRAWN:
        traits = Traits(**{trait: chance.choice(values) for trait, values in TRAITS.items()})
        if traits.possible:
            drawn.append(traits)
    return drawn
