"""Writing the rows of one tenant: sent in parts whose answers are counted, deleted by id.

The client's streaming batches lose rows without a word, so rows go by `insert_many`, and what its answer
does not name was not taken. A row's vector may come later: a recording is worth more than its vector.
"""

import time
from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import Any
from uuid import UUID

import numpy as np
from numpy.typing import NDArray

from dreamgym_kit.adapters.stores.weaviate_errors import TOO_LARGE, row_error
from dreamgym_kit.adapters.stores.weaviate_reading import Tenant, known_ids, newest, without_vectors
from dreamgym_kit.adapters.stores.weaviate_rows import VECTOR, Row, chunks, search_text_of
from dreamgym_kit.adapters.stores.weaviate_schema import Schema
from dreamgym_kit.errors import StoreError, StoreUnavailable, UserError
from dreamgym_kit.interfaces import Embedder

_PART = 200  # rows of one message
_PART_SIZE = 4 * 2**20  # characters of payload in one message
_DELETED = 500  # rows of one deletion; the server takes 10,000 at most
_RECHECK_S = 60.0  # another process may have put rows without vectors


class Writer:
    """Writes to one buffer; its owner lets it do one thing at a time."""

    def __init__(self, at: Tenant, schema: Schema) -> None:
        self._at = at
        self._schema = schema
        self._clock: int | None = None  # the last place in the order recorded that was given out
        self._look_at = 0.0  # monotonic seconds: when to look for rows without vectors again

    def put(self, rows: Sequence[Row], embedder: Embedder | None) -> int:
        """Write those that are not there yet; gives their number.

        Raises:
            StoreUnavailable: the server went away; rows may be there in part.
            StoreError: it refused one. Others stay: somebody else may have been told by now that they are
                there, and what was acknowledged is not taken back.
        """
        new: list[str] = []
        try:
            for part in chunks(rows, most=_PART, most_size=_PART_SIZE):
                known = known_ids(self._at, [row.id for row in part])
                fresh = [row for row in part if row.id not in known]
                new += [row.id for row in fresh]
                self._insert(fresh, embedder)
        except StoreUnavailable:
            raise
        except StoreError as error:
            raise StoreError(
                f"{error}; others of the same put may be there, and it does no harm to put them again"
            ) from error
        return len(new)

    def embed_missing(self, embedder: Embedder) -> None:
        """Give vectors to rows that were put without one."""
        while time.monotonic() >= self._look_at:
            rows = without_vectors(self._at)
            if rows:
                vectors = embedder.embed([search_text_of(row) for _, row in rows])
                self._schema.claim(embedder.name, embedder.dimension)
                objects = [
                    _object(str(item.uuid), {**item.properties, "embedded": True}, vector)
                    for (item, _), vector in zip(rows, vectors, strict=True)
                ]
                self._send(objects)
            else:
                self._look_at = time.monotonic() + _RECHECK_S

    def delete(self, names: Sequence[str]) -> int:
        """Delete rows by their ids; gives how many there were."""
        from weaviate.classes.query import Filter

        gone = 0
        for first in range(0, len(names), _DELETED):
            ids = list(names[first : first + _DELETED])
            these = Filter.by_id().contains_any(ids)
            answer = self._at.server.ask("deleting rows", self._deletion(these))
            gone += int(answer.successful)
            if answer.failed:
                raise StoreUnavailable(
                    f"{self._at.server.place}: {answer.failed} of {len(ids)} rows were not deleted; repeat"
                )
        return gone

    def _deletion(self, these: Any) -> Callable[[Any], Awaitable[Any]]:
        return lambda client: self._at.of(client).data.delete_many(these)

    def _insert(self, rows: Sequence[Row], embedder: Embedder | None) -> None:
        if not rows:
            return
        vectors = self._vectors(rows, embedder)
        places = self._places(len(rows))
        objects = []
        for row, place in zip(rows, places, strict=True):
            whole = row.id in vectors or not row.text
            properties = {**row.properties, "order": place, "embedded": whole}
            objects.append(_object(row.id, properties, vectors.get(row.id)))
        self._send(objects)

    def _vectors(self, rows: Sequence[Row], embedder: Embedder | None) -> dict[str, NDArray[np.float32]]:
        """Vectors by id; none where they cannot be made now."""
        worded = [row for row in rows if row.text]
        if embedder is None or not worded:
            return {}
        try:
            vectors = embedder.embed([row.text for row in worded])
            dimension = embedder.dimension
        except UserError:
            self._look_at = 0.0
            return {}
        self._schema.claim(embedder.name, dimension)
        return {row.id: vector for row, vector in zip(worded, vectors, strict=True)}

    def _places(self, rows: int) -> range:
        """Places in the order recorded: microseconds, after those of this writer and those there were."""
        if self._clock is None:
            self._clock = newest(self._at) or 0
        first = max(self._clock + 1, time.time_ns() // 1_000)
        self._clock = first + rows - 1
        return range(first, first + rows)

    def _send(self, objects: Sequence[Any]) -> None:
        """Send objects, those that are not taken once more."""
        refused: dict[int, str] = {}
        left = list(objects)
        for _ in range(2):
            refused = self._sent_in_parts(left)
            left = [left[place] for place in refused]
            if not refused:
                return
        text = " ".join(next(iter(refused.values())).split())[:300]
        raise row_error(text)(
            f"{self._at.server.place}: {len(refused)} of {len(objects)} rows were not taken: {text}"
        )

    def _sent_in_parts(self, objects: Sequence[Any]) -> dict[int, str]:
        """As `_sent`, in two halves where one message cannot hold them all."""
        try:
            return self._sent(objects)
        except StoreError as error:
            if TOO_LARGE not in str(error) or len(objects) == 1:
                raise
        half = len(objects) // 2
        first, second = self._sent_in_parts(objects[:half]), self._sent_in_parts(objects[half:])
        return {**first, **{half + place: text for place, text in second.items()}}

    def _sent(self, objects: Sequence[Any]) -> dict[int, str]:
        """What the server said of those that it did not take, by their place."""

        async def insert(client: Any) -> dict[int, str]:
            from weaviate.exceptions import WeaviateInsertManyAllFailedError

            try:
                answer = await self._at.of(client).data.insert_many(list(objects))
            except WeaviateInsertManyAllFailedError as error:
                return dict.fromkeys(range(len(objects)), error.message)
            failed = {place: error.message for place, error in answer.errors.items()}
            silent = [place for place in range(len(objects)) if place not in answer.uuids]
            return {**dict.fromkeys(silent, "no answer came for it"), **failed}

        return self._at.server.ask("putting rows", insert)


def _object(name: str, properties: Mapping[str, object], vector: NDArray[np.float32] | None) -> Any:
    from weaviate.classes.data import DataObject

    return DataObject(
        properties={key: value for key, value in properties.items() if value is not None},
        uuid=UUID(name),
        vector=None if vector is None else {VECTOR: vector.astype(np.float32).tolist()},
    )
