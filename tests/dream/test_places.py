"""Places order calls by what the model said, and name states as `history_digest` does."""

from hypothesis import given
from hypothesis import strategies as st

from dreamgym_kit.dream.call_log import CallPosition, WriteLog
from dreamgym_kit.types import history_digest

writes = st.lists(
    st.tuples(st.integers(1, 6), st.integers(0, 3), st.sampled_from(["a", "b", "c"])), max_size=12
)


def _places(found: list[tuple[int, int, str]]) -> list[tuple[CallPosition, str]]:
    return [(CallPosition(turn, index, arrival), key) for arrival, (turn, index, key) in enumerate(found)]


@given(writes, st.integers(0, 7))
def test_the_running_hash_says_what_the_whole_history_digest_says(
    found: list[tuple[int, int, str]], turn: int
) -> None:
    log = WriteLog()
    for place, key in _places(found):
        log.add(place, key)
        log.before(place.turn)  # asked in between, as an episode does
    ordered = [key for place, key in sorted(_places(found)) if place.turn < turn]
    assert log.before(turn) == history_digest(ordered)


def test_a_write_that_comes_late_changes_the_states_after_it_only() -> None:
    log = WriteLog()
    log.add(CallPosition(1, 0, 1), "a")
    log.add(CallPosition(3, 0, 2), "c")
    first, last = log.before(2), log.before(4)
    log.add(CallPosition(2, 0, 3), "b")
    assert log.before(2) == first == history_digest(["a"])
    assert log.before(4) == history_digest(["a", "b", "c"]) != last


def test_before_the_first_write_the_state_has_no_name() -> None:
    assert WriteLog().before(9) == ""
