"""State against a dict of dicts: what rules make of writes is what a real store would have said."""

from functools import cache

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule

from dreamgym_kit.dream.state.dreaming import Knowledge, consider, follow
from dreamgym_kit.dream.state.history import HistoryStep, Pool, RecordedEpisode
from dreamgym_kit.dream.state.mining import mine
from dreamgym_kit.dream.state.observed import failed
from dreamgym_kit.dream.state.values import spell
from dreamgym_kit.dream.state.views import State

CARDS = ("A1", "B2", "C3")
LIMITS = (10, 20, 35)
WRITES = ("set_limit", "freeze")


class Store:
    """The real thing: cards by id."""

    def __init__(self, limits):
        self.cards = {
            card: {"card_id": card, "limit": limit, "status": "active"}
            for card, limit in zip(CARDS, limits, strict=True)
        }

    def call(self, tool, args):
        card = self.cards[args["card_id"]]
        if tool == "get_card":
            return dict(card)
        if tool == "freeze":
            card["status"] = "frozen"
            return {"card_id": card["card_id"], "status": "frozen"}
        card["limit"] = args["limit"]
        return {"card_id": card["card_id"], "limit": args["limit"]}


def step(store, tool, **args):
    seen = store.call(tool, args)
    return HistoryStep(tool, args, spell(args), seen, tool in WRITES, failed(seen))


@cache
def models():
    """Mined from eight worlds in which each write was followed by reads of two cards."""
    episodes = []
    for number in range(8):
        store = Store((number, number + 50, 7 * number + 3))
        card, other = CARDS[number % 3], CARDS[(number + 1) % 3]
        steps = [step(store, "get_card", card_id=one) for one in (card, other)]
        for write in (("set_limit", {"limit": 100 + number}), ("freeze", {})):
            steps.append(step(store, write[0], card_id=card, **write[1]))
            steps += [step(store, "get_card", card_id=one) for one in (card, other)]
        episodes.append(RecordedEpisode(f"e{number}", f"w{number}", tuple(steps)))
    return mine(episodes)


class StateIsTheStore(RuleBasedStateMachine):
    """Read-your-writes, equal reads equal, other entities left alone, replay gives the same state."""

    @initialize()
    def begin(self):
        self.store = Store((1, 2, 3))
        self.knowledge = Knowledge(models(), Pool(models().advances))
        self.state, self.events = State({}), []
        for card in CARDS:
            self._do("get_card", card_id=card)

    @rule(card=st.sampled_from(CARDS), limit=st.sampled_from(LIMITS))
    def set_limit(self, card, limit):
        self._do("set_limit", card_id=card, limit=limit)

    @rule(card=st.sampled_from(CARDS))
    def freeze(self, card):
        self._do("freeze", card_id=card)

    @rule(card=st.sampled_from(CARDS))
    def read(self, card):
        before = self._known(card)
        self._do("get_card", card_id=card)
        assert self._known(card) == before

    @invariant()
    def every_card_reads_as_it_was_written(self):
        for card in CARDS:
            assert self._known(card) == self.store.cards[card]

    @invariant()
    def replaying_the_events_gives_the_state(self):
        state = State({})
        for event in self.events:
            state = follow(self.knowledge, state, event)
        assert {key: view.observation for key, view in state.views.items()} == {
            key: view.observation for key, view in self.state.views.items()
        }

    def _do(self, tool, **args):
        self.events.append(step(self.store, tool, **args))
        self.state = follow(self.knowledge, self.state, self.events[-1])

    def _known(self, card):
        told, _ = consider(self.knowledge, self.state, "new", "get_card", {"card_id": card})
        return told[0].seen


TestStateIsTheStore = StateIsTheStore.TestCase
TestStateIsTheStore.settings = settings(
    max_examples=25, stateful_step_count=8, deadline=None, derandomize=True
)
