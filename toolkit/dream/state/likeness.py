"""How arguments of calls that went well look: a call unlike all of them is not presumed to go well.

Kinds of values, the range of numbers, and whether the value had been heard of in its world, and where.
Recordings of calls that went well say little about one with an amount a thousand times as high, a word where
numbers were, an id that nothing names (no recording, no read, nobody who spoke), or the name of an item where
ids of orders were. Whether an argument's value has to
be there is told by calls that went well: of a reference nearly all values had been named before, of a
free text, or of a thing that the call makes, they had not.
"""

from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field

from dreamgym_kit.dream.state.absences import denied_by
from dreamgym_kit.dream.state.entities import is_id_name
from dreamgym_kit.dream.state.history import HistoryStep, RecordedEpisode
from dreamgym_kit.dream.state.values import as_number, is_key
from dreamgym_kit.dream.state.views import State, View
from dreamgym_kit.serialization import JsonValue

_LEAST = 8  # calls that went well
_MIN_WORLDS = 3
_MIN_HEARD = 2  # calls that went well, of values that their world had named
_MIN_UNHEARD = 2  # of values that a well-known world had not named: enough to need no thing
_MIN_PLACED = 5  # calls that went well, of values that something there had shown
_MIN_DENIED = 2  # calls that were told that there is no such thing
_OFTEN = 0.2  # share of them, above which an unheard value is not presumed to be there
_KNOWN_WORLD = 5  # answers of a world, from which on it says something that a value is not among them
_ONCE = 0.03  # share of unheard values that a reference may have had


@dataclass(slots=True)
class Usual:
    """One argument over the calls that went well."""

    calls: int = 0
    worlds: set[str] = field(default_factory=set)
    kinds: set[str] = field(default_factory=set)
    low: float = float("inf")
    high: float = float("-inf")
    heard: int = 0  # of values in well-known worlds, those that something there named
    unheard: int = 0
    heard_small: int = 0  # the same in worlds of which little is known, where silence says less
    unheard_small: int = 0
    denied: int = 0  # calls of values that nothing had named, and that were told that there is no such thing
    twins: set[str] = field(default_factory=set)  # other arguments that had the same value in some call
    placed: int = 0  # calls of values that something there showed
    places: set[str] = field(default_factory=set)  # the roles in which it showed them, and roles like these

    def see(self, value: JsonValue, world: str) -> None:
        """Take one value."""
        self.calls += 1
        self.worlds.add(world)
        self.kinds.add(type(value).__name__)
        number = as_number(value)
        if number is not None:
            self.low, self.high = min(self.low, number), max(self.high, number)

    @property
    def is_reference(self) -> bool:
        """Whether its values name things of the world."""
        return self.heard >= _LEAST and self._seldom_unheard

    @property
    def needs_no_thing(self) -> bool:
        """Whether calls went well with values that nothing in well-known worlds had named."""
        return self.unheard >= _MIN_UNHEARD and not self._seldom_unheard

    def needs_its_thing(self, name: str, value: JsonValue) -> bool:
        """Whether it is likely a reference: by its name, or as few values of calls that went well tell.

        Small numbers are named everywhere by chance, so those need more of them.
        """
        if self._often_denied:
            return True
        if self.needs_no_thing:
            return False
        if is_id_name(name):
            return True
        heard, unheard = self.heard + self.heard_small, self.unheard + self.unheard_small
        least = _MIN_HEARD if isinstance(value, str) else _LEAST
        return heard >= least and unheard <= _ONCE * (heard + unheard)

    @property
    def _often_denied(self) -> bool:
        """Whether values that nothing had named were not there too often to go by those that were."""
        went_well = self.unheard + self.unheard_small
        return self.denied >= _MIN_DENIED and self.denied > _OFTEN * (self.denied + went_well)

    @property
    def _seldom_unheard(self) -> bool:
        return self.unheard <= _ONCE * (self.heard + self.unheard)

    def like(self, value: JsonValue) -> bool:
        """Whether a value is of a kind and size that went well; True where too little is known."""
        if self.calls < _LEAST or len(self.worlds) < _MIN_WORLDS:
            return True
        if type(value).__name__ not in self.kinds:
            return False
        number = as_number(value)
        return number is None or self.low > self.high or self.low <= number <= self.high


Usuals = Mapping[tuple[str, str], Usual]
"""By (tool, argument)."""


def usual_values(episodes: Iterable[RecordedEpisode]) -> dict[tuple[str, str], Usual]:
    """Look at all calls that went well."""
    found: dict[tuple[str, str], Usual] = defaultdict(Usual)
    for episode in episodes:
        for step in episode.steps:
            if not step.failed:
                for name, value in step.args.items():
                    found[step.tool, name].see(value, episode.world)
                    found[step.tool, name].twins.update(_twins(step.args, name))
    return dict(found)


def _twins(args: Mapping[str, JsonValue], name: str) -> Iterator[str]:
    """The other arguments of a call that name the same thing."""
    if is_key(args[name]):
        yield from (other for other, value in args.items() if other != name and value == args[name])


@dataclass(slots=True)
class Heard:
    """What worlds had said of the values of calls, when these were made.

    Attributes:
        calls: by tool, argument, whether something had named it, whether the world is well known, and whether
            the call was told that there is no such thing (else it went well).
        placed: by tool and argument, the calls that went well with a value which something had shown.
        places: these tools and arguments, with each role in which it had.
        alike: roles that one value was met in at once, as a call that went well shows ("dog", "released").
    """

    calls: Counter[tuple[str, str, bool, bool, bool]] = field(default_factory=Counter)
    placed: Counter[tuple[str, str]] = field(default_factory=Counter)
    places: set[tuple[str, str, str]] = field(default_factory=set)
    alike: set[frozenset[str]] = field(default_factory=set)

    def update(self, other: "Heard") -> None:
        """Add what other worlds had said."""
        self.calls.update(other.calls)
        self.placed.update(other.placed)
        self.places |= other.places
        self.alike |= other.alike

    def see_roles(self, step: HistoryStep, name: str, known: frozenset[str]) -> None:
        """Take a call that went well: the roles in which its world had shown a value, and where it does."""
        said = View(step.tool, step.spelled, step.seen, confidence=1.0, source="told")
        self.alike.add(known | said.places_of(str(step.args[name])))
        if known:
            self.placed[step.tool, name] += 1
            self.places.update((step.tool, name, place) for place in known)


def hear(heard: Heard, step: HistoryStep, state: State) -> None:
    """Count whether the values of a call had been heard of in its world, if it went well or denies them."""
    denied = denied_by(step)
    for name, value in step.args.items():
        if not is_key(value) or (step.failed and str(value) not in denied):
            continue
        known = state.has_seen(str(value))
        heard.calls[step.tool, name, known, well_known(state), step.failed] += 1
        if not step.failed:
            heard.see_roles(step, name, state.places_of(str(value)))


def count_heard(usuals: Usuals, heard: Heard) -> None:
    """Put the counts to the arguments."""
    _count_places(usuals, heard)
    for (tool, name, known, wide, denied), count in heard.calls.items():
        usual = usuals.get((tool, name))
        if usual is None:  # no call of it ever went well
            continue
        if denied:
            usual.denied += count * (not known)
        elif wide:
            usual.heard, usual.unheard = usual.heard + count * known, usual.unheard + count * (not known)
        else:
            usual.heard_small += count * known
            usual.unheard_small += count * (not known)


def _count_places(usuals: Usuals, heard: Heard) -> None:
    for (tool, name), count in heard.placed.items():
        if (tool, name) in usuals:
            usuals[tool, name].placed += count
    for tool, name, place in heard.places:
        if (tool, name) in usuals:
            usuals[tool, name].places.add(place)
    for usual in usuals.values():
        usual.places |= {
            place for roles in heard.alike if not usual.places.isdisjoint(roles) for place in roles
        }


def well_known(state: State) -> bool:
    """Whether enough was recorded of a world that silence about a value says something."""
    return sum(state.breadth.values()) >= _KNOWN_WORLD


def unlike(usuals: Usuals, tool: str, args: Mapping[str, JsonValue], state: State) -> Iterator[str]:
    """The arguments for which no call that went well speaks."""
    for name, value in args.items():
        usual = usuals.get((tool, name))
        if usual is not None and _is_one_thing_twice(usual, name, args):
            yield name
            continue
        if usual is None:
            continue
        if is_key(value) and state.has_seen(str(value)):
            if _is_misplaced(usual, name, value, state):
                yield name
            continue
        if (is_key(value) and _unvouched(usual, name, value, state)) or not usual.like(value):
            yield name


def _is_one_thing_twice(usual: Usual, name: str, args: Mapping[str, JsonValue]) -> bool:
    """Whether a thing stands in two roles ("from" and "to") in which no call that went well had the same."""
    return usual.needs_its_thing(name, args[name]) and any(
        other not in usual.twins for other in _twins(args, name)
    )


def _is_misplaced(usual: Usual, name: str, value: JsonValue, state: State) -> bool:
    """Whether a reference is to what is there, but only in roles that no call which went well referred to."""
    return (
        usual.placed >= _MIN_PLACED
        and usual.needs_its_thing(name, value)
        and usual.places.isdisjoint(state.places_of(str(value)))
    )


def _unvouched(usual: Usual, name: str, value: JsonValue, state: State) -> bool:
    """Whether a call needs a thing of this value to be there, and nothing says that it is."""
    if well_known(state) and usual.is_reference:
        return True
    if state.is_named(str(value)) and not state.denies(str(value)):
        return False
    return usual.needs_its_thing(name, value)
