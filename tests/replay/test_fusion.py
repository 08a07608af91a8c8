"""Rank fusion: what stands higher in a list never stands lower for it."""

from hypothesis import given
from hypothesis import strategies as st

from dreamgym_kit.replay.retrieval import fuse

rankings = st.permutations(range(8)).flatmap(lambda rows: st.integers(0, 8).map(lambda n: list(rows)[:n]))


def place(fused: list[int], row: int) -> int:
    return fused.index(row)


@given(rankings, rankings, st.data())
def test_a_row_that_rises_in_one_list_never_falls_in_the_whole(
    words: list[int], vectors: list[int], data: st.DataObject
) -> None:
    if len(words) < 2:
        return
    at = data.draw(st.integers(1, len(words) - 1))
    risen = words.copy()
    risen[at - 1], risen[at] = risen[at], risen[at - 1]
    before = [one.row for one in fuse({"words": words, "vectors": vectors})]
    after = [one.row for one in fuse({"words": risen, "vectors": vectors})]
    assert place(after, words[at]) <= place(before, words[at])


@given(rankings, rankings)
def test_the_order_of_the_lists_is_free_and_each_row_comes_once(words: list[int], vectors: list[int]) -> None:
    one = fuse({"words": words, "vectors": vectors})
    assert one == fuse({"vectors": vectors, "words": words})
    assert sorted(fused.row for fused in one) == sorted({*words, *vectors})


@given(rankings)
def test_one_list_alone_keeps_its_order(words: list[int]) -> None:
    assert [one.row for one in fuse({"words": words})] == words


def test_a_row_of_both_lists_is_before_the_first_of_one() -> None:
    assert [one.row for one in fuse({"words": [1, 9], "vectors": [2, 9]})] == [9, 1, 2]
