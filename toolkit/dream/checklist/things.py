"""The things of a world as clean reads tell them: kinds, fields, whom they belong to, in which order.

A read counts for every thing that no write of its episode has touched before it, also where it stands after
the first write: cutting there would lose all that is looked up late. What was touched is left out, record
by record, so what is gathered is the world as it was before anybody acted.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence

from dreamgym_kit.dream.state.entities import Record, is_id_name, records
from dreamgym_kit.dream.state.history import Step
from dreamgym_kit.dream.state.values import is_key, is_scalar
from dreamgym_kit.plain import JsonValue

Advances = Callable[[Step], bool]
"""Whether the world may be another after a call (`models.ToolModels.advances`)."""

_ID_ENDINGS = ("_id", "_no", "_number", "_key", "_ref", "_code", "_uuid", "Id", "ID", "No", "Ref", "Key")


def kind_of(named: str) -> str:
    """The kind of thing that an id of this name names: "order" for "order_id"."""
    for ending in _ID_ENDINGS:
        if named.endswith(ending) and len(named) > len(ending):
            return named.removesuffix(ending)
    return named


class Things:
    """What is known of one world's things.

    Attributes:
        kinds: by id, the kind.
        fields: by id, field and value; ids of other things are no fields but `owners`.
        owners: by id, the things that it belongs to: kind and id.
        rows: by (read, id of the owner), what the read lists, in its order.
        keyed: by the text of an argument that is no id, the things that a read of it told of.
        asked: the reads that are known, as (tool, id or text); those that fail are in `failing` as well.
    """

    __slots__ = ("asked", "failing", "fields", "keyed", "kinds", "owners", "rows")

    def __init__(self) -> None:
        self.kinds: dict[str, str] = {}
        self.fields: dict[str, dict[str, JsonValue]] = {}
        self.owners: dict[str, dict[str, str]] = {}
        self.rows: dict[tuple[str, str], tuple[str, ...]] = {}
        self.keyed: dict[str, tuple[str, ...]] = {}
        self.asked: set[tuple[str, str]] = set()
        self.failing: set[tuple[str, str]] = set()

    def copy(self) -> "Things":
        """Things that can be added to without changing these."""
        made = Things()
        made.kinds, made.rows, made.keyed = dict(self.kinds), dict(self.rows), dict(self.keyed)
        made.fields = {one: dict(fields) for one, fields in self.fields.items()}
        made.owners = {one: dict(owners) for one, owners in self.owners.items()}
        made.asked, made.failing = set(self.asked), set(self.failing)
        return made

    def hear(self, step: Step, touched: frozenset[str] | set[str] = frozenset()) -> None:
        """Take a read's answer, but nothing of what was touched; what was heard first stays."""
        keys = {name: str(value) for name, value in step.args.items() if is_key(value)}
        if not touched.isdisjoint(keys.values()) and step.failed:
            return
        for key in keys.values():
            self.asked.add((step.tool, key))
        if step.failed:
            self.failing.update((step.tool, key) for key in keys.values())
            return
        found = [one for one in records(step.seen, step.args) if one.named]
        for record in found:
            self._take(record, step, touched)
        for name, key in keys.items():
            ids = tuple(dict.fromkeys(record.entity for record in found if record.entity != key))
            if is_id_name(name):
                if isinstance(_opened(step.seen), list):
                    self.rows.setdefault((step.tool, key), ids)
            elif ids:
                self.keyed.setdefault(key, ids)

    def children(self, owner: str) -> Iterator[str]:
        """The things that belong to one, listed ones first and in their order."""
        kind = self.kinds.get(owner, "")
        listed = [one for (_, of), ids in self.rows.items() if of == owner for one in ids]
        linked = [one for one, owners in self.owners.items() if owners.get(kind) == owner]
        return iter(dict.fromkeys((*listed, *linked)))

    def _take(self, record: Record, step: Step, touched: frozenset[str] | set[str]) -> None:
        one = record.entity
        kind = kind_of(record.named) if record.kind_is_known else step.tool
        self.kinds.setdefault(one, kind)
        fields, owners = self.fields.setdefault(one, {}), self.owners.setdefault(one, {})
        for name, value in step.args.items():
            if is_id_name(name) and is_key(value) and str(value) != one:
                owners.setdefault(kind_of(name), str(value))
        if one in touched:
            return
        for name, value in record.fields.items():
            if name == record.named or not is_scalar(value):
                continue
            if is_id_name(name):
                owners.setdefault(kind_of(name), str(value))
            else:
                fields.setdefault(name, value)


def gather(episodes: Iterable[Sequence[Step]], advances: Advances, things: Things | None = None) -> Things:
    """The things of one world, from the reads of its episodes."""
    known = things if things is not None else Things()
    for steps in episodes:
        touched: set[str] = set()
        for step in steps:
            if not step.writes:
                known.hear(step, touched)
            elif advances(step):
                touched.update(touched_by(step.args))
    return known


def touched_by(args: Mapping[str, JsonValue]) -> Iterator[str]:
    """What a write may have changed: the things that its arguments name."""
    return (str(value) for value in args.values() if is_key(value))


def _opened(seen: JsonValue) -> JsonValue:
    """An answer without what `observed` puts around it."""
    while isinstance(seen, dict):
        if "$json" in seen:
            seen = seen["$json"]
        elif "$answer" in seen and isinstance(seen["$answer"], dict) and "content" in seen["$answer"]:
            seen = seen["$answer"]["content"]
        else:
            break
    return seen
