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
