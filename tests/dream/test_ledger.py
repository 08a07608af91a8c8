"""The call log names states and counts repeats by what the model asked, never by which thread was faster."""

import itertools

from hypothesis import given
from hypothesis import strategies as st

from dreamgym_kit.dream.call_log import CallLog, CallPosition, WriteLog
from dreamgym_kit.types import Answer, Call, Effect, Environment, Source, history_digest

SAID = Answer("ok", Source.SCRIPTED)


def a_ledger() -> CallLog:
    return CallLog(episode="e", task="t", environment=Environment(), tenant="default")


def told(ledger: CallLog, call: Call, effect: Effect = Effect.READ, answer: Answer = SAID) -> str:
    """Ask and commit one call; gives the state that it met."""
    place = ledger.place(call)
    after = ledger.after(place)
    ledger.commit(place, call, answer, effect, after=after, elapsed_s=0.0, at=0.0)
    return after


def test_a_read_after_a_write_meets_another_state() -> None:
    ledger = a_ledger()
    read, write = Call("get", {"id": 1}), Call("set", {"id": 1})
    assert told(ledger, read) == ""
    told(ledger, write, Effect.WRITE)
    assert told(ledger, read) == history_digest([write.key])


def test_a_read_changes_no_state() -> None:
    ledger = a_ledger()
    told(ledger, Call("get", {"id": 1}))
    assert told(ledger, Call("get", {"id": 2})) == ""


def test_parallel_calls_meet_the_same_state_in_every_order_of_arrival() -> None:
    calls = [Call("set", {"id": n}, call_id=f"c{n}") for n in range(3)]
    seen = set()
    for order in itertools.permutations(calls):
        ledger = a_ledger()
        ledger.announce(["c0", "c1", "c2"])
        states = {call.call_id: told(ledger, call, Effect.WRITE) for call in order}
        assert set(states.values()) == {""}
        seen.add((told(ledger, Call("get", {})), tuple(t.call.call_id for t in ledger.transitions())))
    assert len(seen) == 1


def test_equal_parallel_calls_are_told_apart_by_their_order_in_the_turn() -> None:
    first, second = Call("poll", {}, call_id="a"), Call("poll", {}, call_id="b")
    for order in ((first, second), (second, first)):
        ledger = a_ledger()
        ledger.announce(["a", "b"], ["poll{}", "poll{}"])
        counted = {}
        for call in order:
            place = ledger.place(call)
            counted[call.call_id] = ledger.seen(call, "", place)
            ledger.commit(place, call, SAID, Effect.READ, after="", elapsed_s=0.0, at=0.0)
        assert counted == {"a": 0, "b": 1}
        later = Call("poll", {}, call_id="c")
        ledger.announce(["c"], ["poll{}"])
        assert ledger.seen(later, "", ledger.place(later)) == 2


def test_parallel_calls_do_not_see_each_other_in_their_history() -> None:
    ledger = a_ledger()
    told(ledger, Call("get", {}))
    ledger.announce(["a", "b"])
    one, two = (ledger.place(Call("get", {"id": name}, call_id=name)) for name in "ab")
    ledger.commit(one, Call("get", {"id": "a"}), SAID, Effect.READ, after="", elapsed_s=0.0, at=0.0)
    assert [entry.call.args for entry in ledger.history(two, Call("get", {"id": "b"}))] == [{}]


def test_an_echo_of_the_same_turn_is_no_second_turn() -> None:
    ledger = a_ledger()
    assert ledger.announce(["a", "b"])
    assert not ledger.announce(["a", "b"])
    ledger.place(Call("get", {}, call_id="a"))
    assert ledger.announce(["a", "b"]), "asked again after it was answered: another turn"


def test_steps_follow_places_and_begin_at_one() -> None:
    ledger = a_ledger()
    ledger.announce(["a", "b"])
    for name in "ba":
        told(ledger, Call("get", {"id": name}, call_id=name))
    told(ledger, Call("get", {"id": "c"}))
    assert [(entry.step, entry.call.args["id"]) for entry in ledger.transitions()] == [
        (1, "a"), (2, "b"), (3, "c"),
    ]  # fmt: skip


def test_a_request_is_remembered_but_its_failure_is_not() -> None:
    ledger = a_ledger()
    ledger.remember(("ns|1", "key"), SAID)
    ledger.remember(("ns|2", "key"), Answer(error="no", source=Source.SCRIPTED))
    assert ledger.remembered(("ns|1", "key")) == SAID
    assert ledger.remembered(("ns|2", "key")) is None
    assert ledger.remembered(("ns|1", "other")) is None


late_writes = st.lists(
    st.tuples(st.integers(1, 6), st.integers(0, 3), st.sampled_from(["a", "b", "c"])), max_size=12
)


def _places(found: list[tuple[int, int, str]]) -> list[tuple[CallPosition, str]]:
    return [(CallPosition(turn, index, arrival), key) for arrival, (turn, index, key) in enumerate(found)]


@given(late_writes, st.integers(0, 7))
def test_the_running_hash_says_what_the_whole_history_digest_says(
    found: list[tuple[int, int, str]], turn: int
) -> None:
    log = WriteLog()
    for place, key in _places(found):
        log.add(place, key)
        log.before(place.turn)  # asked in between, as an episode does
    ordered = [key for place, key in sorted(_places(found)) if place.turn < turn]
    assert log.before(turn) == history_digest(ordered)
