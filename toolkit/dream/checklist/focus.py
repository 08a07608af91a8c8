"""Which things a request is about, in which role each: what it names, what belongs to that, its owner.

Roles are paths from what the text says: `customer:name` is named by its name, `order<customer:name` belongs
to it, `order*<customer:name` is one of those that has a value which the text mentions,
`customer>order:order` is the owner of an order named by its id. Equal roles mean equal parts in equal
requests, in whatever world.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from dreamgym_kit.dream.checklist.things import Things
from dreamgym_kit.dream.checklist.wording import Reading

_DEEP = 2  # steps down from what is named
MARK = "*"
"""Stands behind the kind of a thing that the text singles out among its siblings."""


@dataclass(frozen=True, slots=True)
class Focus:
    """The things of a request by role; a thing may have several, its own is the first."""

    roles: Mapping[str, tuple[str, ...]]
    own: Mapping[str, str]  # by id, its role

    def only(self, role: str) -> str | None:
        """The thing of a role, where there is just one."""
        ids = self.roles.get(role, ())
        return ids[0] if len(ids) == 1 else None


def focus_of(things: Things, reading: Reading) -> Focus:
    """Find what a request is about."""
    roles: dict[str, list[str]] = {}
    for role, one in _named(things, reading):
        roles.setdefault(role, []).append(one)
    named = [(role, one) for role, ids in roles.items() for one in ids]
    marks = reading.values
    for role, one in named:
        _descend(things, one, role, marks, roles, _DEEP)
    for role, one in named:
        for kind, owner in things.owners.get(one, {}).items():
            roles.setdefault(f"{kind}>{role}", []).append(owner)
    own: dict[str, str] = {}
    for role in sorted(roles, key=_far):  # what is named is that first, and then somebody's
        for one in roles[role]:
            own.setdefault(one, role)
    return Focus({role: tuple(dict.fromkeys(ids)) for role, ids in roles.items()}, own)


def is_single(role: str, ids: tuple[str, ...]) -> bool:
    """Whether a role is that of one thing: named, singled out, or the owner of one; not one of a list."""
    kind, _, rest = role.partition("<")
    return len(ids) == 1 and (not rest or kind.endswith(MARK))


def owner_kind(role: str) -> str:
    """The kind of thing that things of a role belong to; "" where the role says nothing of it."""
    rest = role.partition("<")[2]
    return rest.partition("<")[0].partition(":")[0].removesuffix(MARK)


def _far(role: str) -> int:
    return role.count("<") + role.count(">")


def _named(things: Things, reading: Reading) -> Iterator[tuple[str, str]]:
    kinds = set(things.kinds.values())
    for kind, values in reading.mentions.items():
        for value in values:
            if value in things.kinds:
                yield f"{things.kinds[value]}:{kind}", value
            elif value in things.keyed:
                for one in things.keyed[value]:
                    yield f"{things.kinds[one]}:{kind}", one
            elif kind in kinds:  # it is said to be there, and nothing is known of it
                yield f"{kind}:{kind}", value


def _descend(
    things: Things, owner: str, role: str, marks: frozenset[str], roles: dict[str, list[str]], depth: int
) -> None:
    if depth == 0:
        return
    for one in things.children(owner):
        said = (one, *things.fields.get(one, {}).values())
        marked = any(isinstance(value, str) and value in marks for value in said)
        mine = f"{things.kinds[one]}{MARK if marked else ''}<{role}"
        if one not in roles.setdefault(mine, []):
            roles[mine].append(one)
            _descend(things, one, mine, marks, roles, depth - 1)
