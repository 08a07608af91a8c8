"""The word index is put together before it is asked: puts leave it in parts, a question looks into all.

A put is quicker when SQLite merges seldom (`MERGE_LATER`), a question when there is little to look into.
So who opens a search of a file that it may write merges what others left; parts of like size go together,
so what was merged once is not written again for a few rows more. Whoever cannot, asks the parts as they are.
"""

import sqlite3
from collections.abc import Callable, Sequence
from typing import Any

_PARTS = 4  # with so many nothing is merged: one of each size is what merging leaves
_PAGES = 500  # of some 4 KB, written at once: others wait for a put's time, not for the whole

_COUNT = "select count(*) from (select distinct segid from words_idx)"
_ALL_SIZES = "insert into words (words, rank) values ('usermerge', 2)"  # two of a size are merged already
_MERGE = f"insert into words (words, rank) values ('merge', {_PAGES})"  # noqa: S608  # our own number


def scattered(select: Callable[[str, Sequence[object]], list[tuple[Any, ...]]]) -> bool:
    """Whether the index lies in more parts than merging would leave."""
    return int(select(_COUNT, ())[0][0]) > _PARTS


def merge_some(writer: sqlite3.Connection) -> bool:
    """Merge some pages' worth; False where nothing was left to merge."""
    writer.execute(_ALL_SIZES)
    before = writer.total_changes
    writer.execute(_MERGE)
    return writer.total_changes - before > 1  # SQLite counts one for the command itself
