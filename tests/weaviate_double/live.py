"""What a live Weaviate 1.39.0 answered to the calls that the adapter makes (live.jsonl), asked of the double.

The calls are those of the adapter, by the client itself, in the order in which the live server met them; for
each the file has the live answer, or the class, status and words of its error.
"""

import json
import logging
import warnings
from collections.abc import Callable, Iterator
from contextlib import closing
from pathlib import Path
from typing import Any
from uuid import UUID

from weaviate_double import WeaviateDouble

ANSWERS = Path(__file__).with_name("live.jsonl")
_NAME = "DoubleProbe"
_ROWS = {  # number: place in the order recorded, words, vector
    1: (10, "", None),
    2: (20, "LAMP Lamp, lamp.", [1.0, 1.0]),
    3: (30, "lamp lamp blue", [0.0, 1.0]),
    4: (40, "blue lamp desk chair", [0.6, 0.8]),
    5: (50, "lamp", [1.0, 0.0]),
}
Answered = Iterator[tuple[str, Callable[[], Any]]]


def differing() -> tuple[int, list[tuple[str, object, object]]]:
    """How many calls were made; of those answered otherwise than live: name, live answer, the double's."""
    live = {line["call"]: line["live"] for line in map(json.loads, ANSWERS.read_text().splitlines())}
    answers: dict[str, object] = {}
    logging.getLogger("weaviate-client").setLevel(logging.CRITICAL)  # it prints what was refused
    with (
        WeaviateDouble(version="1.39.0", deletes_expired=False) as double,
        closing(_client(double)) as client,
    ):
        for name, call in _calls(client):
            answers[name] = _answer(call)
    with WeaviateDouble(key="right") as double:
        for name, key in (("key wrong: connect", "wrong"), ("key None: connect", None)):
            answers[name] = _answer(lambda key=key: _client(double, key).close())  # type: ignore[misc]
    assert answers.keys() == live.keys()
    return len(live), [
        (name, live[name], answer) for name, answer in answers.items() if not _same(answer, live[name])
    ]


def _same(answer: object, live: object) -> bool:
    """An error's words as far as the file has them; it has blanks for line ends."""
    if isinstance(live, str) and live.startswith("RAISED"):
        return live in " ".join(str(answer).split())
    return answer == live


def _client(double: WeaviateDouble, key: str | None = None) -> Any:
    import weaviate
    from weaviate.classes.init import Auth
    from weaviate.connect import ConnectionParams

    http, grpc = double._ports
    at = {"http_host": "127.0.0.1", "http_port": http, "http_secure": False}
    at |= {"grpc_host": "127.0.0.1", "grpc_port": grpc, "grpc_secure": False}
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        client = weaviate.WeaviateClient(
            ConnectionParams.from_params(**at),  # type: ignore[arg-type]
            auth_client_secret=Auth.api_key(key) if key else None,
            skip_init_checks=True,
        )
        try:
            client.connect()
        except BaseException:
            client.close()
            raise
    return client


def _answer(call: Callable[[], Any]) -> object:
    try:
        return call()
    except Exception as error:
        status = getattr(error, "status_code", "")
        text = str(getattr(error, "message", "") or error)
        return f"RAISED {type(error).__name__} {status or ''}: {text}"


def _calls(client: Any) -> Answered:
    from weaviate.classes.query import Filter, MetadataQuery, Sort
    from weaviate.collections.classes.data import DataObject

    from dreamgym_kit.adapters.stores.weaviate_rows import collection_of

    def made(name: str, replicas: int = 1) -> Any:
        return client.collections.create_from_dict(
            collection_of(name, replicas=replicas, flat=False, lifetimes=False)
        ).name

    def inserted(where: Any, *rows: tuple[int, int, str, list[float] | None]) -> Any:
        done = where.data.insert_many(
            [
                DataObject(
                    properties={"order": order, "terms": terms, "split": "train", "tool": '"get"'},
                    uuid=UUID(int=number),
                    vector=None if vector is None else {"text": vector},
                )
                for number, order, terms, vector in rows
            ]
        )
        uuids = {str(place): str(name) for place, name in done.uuids.items()}
        return {"uuids": uuids, "errors": {str(at): error.message for at, error in done.errors.items()}}

    def listed(answer: Any) -> list[dict[str, Any]]:
        rows = []
        for item in answer.objects:
            row: dict[str, Any] = {"n": item.uuid.int, "p": item.properties}
            for name in ("score", "distance"):
                if (value := getattr(item.metadata, name, None)) is not None:
                    row[name] = round(value, 4)
            rows.append(row)
        return rows

    def deleted(where: Any, these: Any) -> Any:
        done = where.data.delete_many(these, verbose=True)
        objects = [[str(item.uuid), item.successful, item.error or None] for item in done.objects or []]
        counts = {"failed": done.failed, "matches": done.matches, "successful": done.successful}
        return {**counts, "objects": objects}

    def tenant(name: str, collection: str = _NAME) -> Any:
        return client.collections.use(collection).with_tenant(name)

    yield "create", lambda: made(_NAME)
    yield "create twice", lambda: made(_NAME)
    yield "create, name in other case", lambda: made("DOUBLEPROBE")
    yield "create 9 replicas", lambda: made("DoubleProbe9", 9)
    yield "create bad name", lambda: made("Bad-Name")
    yield "delete missing collection", lambda: client.collections.delete("Nope")
    whole, rows, order = client.collections.use(_NAME), tenant("t1"), ["order"]
    yield "TTL on", lambda: _lifetimes_on(whole)
    how: dict[str, Any] = {"return_properties": order}
    yield "read, no such tenant", lambda: listed(rows.query.fetch_objects(**how))
    yield "tenant bad name", lambda: whole.tenants.create("a b")
    whole.tenants.create(["t1", "t2"])
    yield (
        "tenants get",
        lambda: {
            name: [found.name, found.activity_status.name]
            for name, found in sorted(whole.tenants.get().items())
        },
    )
    yield "read without tenant", lambda: listed(whole.query.fetch_objects(**how))
    inserted(rows, *((number, *row) for number, row in _ROWS.items()))
    inserted(rows, (6, 61, "lamp", [1.0, 0.0]))
    inserted(rows, (6, 62, "lamp", [1.0, 0.0]))  # the same words once more
    yield (
        "insert wrong dimension + good",
        lambda: inserted(rows, (7, 70, "lamp", [1.0, 0.0, 0.0]), (8, 80, "lamp", [1.0, 0.0])),
    )
    more = [11, 12, 18]
    inserted(rows, *((number, number * 10, "lamp", None) for number in more))
    rows.data.delete_many(Filter.by_id().contains_any([UUID(int=number) for number in (8, *more)]))
    gone = tenant("t1", "GoneProbe")
    yield "vanished collection insert", lambda: inserted(gone, (1, 10, "", [1.0, 0.0]))
    yield "vanished collection count", lambda: gone.aggregate.over_all(total_count=True).total_count
    any_row = Filter.by_property("split").equal("train")
    yield "vanished collection delete", lambda: deleted(gone, any_row)
    yield "limit 10001", lambda: listed(rows.query.fetch_objects(limit=10_001, **how))
    yield "after", lambda: listed(rows.query.fetch_objects(after=UUID(int=2), limit=3, **how))
    yield (
        "after + filter",
        lambda: listed(rows.query.fetch_objects(after=UUID(int=2), limit=3, filters=any_row, **how)),
    )
    yield (
        "after + sort",
        lambda: listed(
            rows.query.fetch_objects(after=UUID(int=2), limit=3, sort=Sort.by_property("order"), **how)
        ),
    )
    yield (
        "filter by what is not indexed",
        lambda: listed(rows.query.fetch_objects(filters=Filter.by_property("payload").equal("x"), **how)),
    )
    scored = {**how, "return_metadata": MetadataQuery(score=True, distance=True)}

    def by_words(text: str, **more: Any) -> list[dict[str, Any]]:
        return listed(rows.query.bm25(text, query_properties=["terms"], **scored, **more))

    for text in ("lamp", "LAMP", "blue", "lamp blue", "lamp lamp", "lamp, blue", "lamp. Lamp,"):
        yield f"bm25 '{text}'", lambda text=text: by_words(text)  # type: ignore[misc]
    yield "bm25 limit 1", lambda: by_words("lamp", limit=1)
    yield "bm25 filter", lambda: by_words("lamp", filters=Filter.by_property("order").equal(30))

    def near(vector: list[float], **more: Any) -> list[dict[str, Any]]:
        return listed(rows.query.near_vector(vector, target_vector="text", **scored, **more))

    yield "near", lambda: near([1.0, 0.0])
    yield "near limit", lambda: near([1.0, 0.0], limit=2)
    yield "near filter", lambda: near([1.0, 0.0], filters=Filter.by_property("order").not_equal(20))
    first = Filter.by_id().contains_any([UUID(int=2)])
    yield "delete verbose", lambda: deleted(rows, first)
    yield "delete missing tenant", lambda: deleted(tenant("zz"), first)
    yield "iterator", lambda: [item.uuid.int for item in rows.iterator()]
    yield (
        "REST get by id",
        lambda: (
            client._connection.get(f"/objects/{_NAME}/{UUID(int=5)}", params={"tenant": "t1"}).json()
            and UUID(int=5).int
        ),
    )
    yield "REST delete by id", lambda: rows.data.delete_by_id(UUID(int=5))
    whole.tenants.remove(["t2"])
    yield "read removed", lambda: listed(tenant("t2").query.fetch_objects(**how))
    yield "list_all", lambda: _NAME in client.collections.list_all()
    client.collections.delete(_NAME)
    yield "tenants get after collection gone", lambda: sorted(whole.tenants.get())
    yield "tenant create after collection gone", lambda: whole.tenants.create("t3")


def _lifetimes_on(collection: Any) -> None:
    from weaviate.classes.config import Reconfigure

    collection.config.update(
        object_ttl_config=Reconfigure.ObjectTTL.delete_by_date_property(property_name="expires", ttl_offset=0)
    )
