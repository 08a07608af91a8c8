"""What is known of a world: views, i.e. the last known answer of each read, with who said so and when.

A state is a value: a call makes a new one from it and leaves the old one alone, so siblings share what they
have in common. Open world: a read that nobody told is unknown, not absent.
"""

import itertools
import json
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from functools import cached_property, lru_cache

from dreamgym_kit.dream.state.observed import failed
from dreamgym_kit.dream.state.values import fields, is_key, is_scalar, walk
from dreamgym_kit.serialization import JsonValue

ViewKey = tuple[str, str]
"""A read tool and its spelled arguments; pseudo-reads have names like "probe:tool"."""

_MAX_RECORDS = 400
_VOUCHES = 0.5  # confidence of an answer from which on it shows that a thing is there
_JOINS = r"[\w]|[-.@/](?=\w)"  # what goes on a word: "O-1" does not name "O", nor "O-12" "O-1"


def stands_in(text: str, said: str) -> bool:
    """Whether a value stands in a text as a word of its own, in whatever case."""
    word = re.escape(text.casefold())
    return re.search(rf"(?<!\w)(?<!\w[-.@/]){word}(?!{_JOINS})", said.casefold()) is not None


@lru_cache(maxsize=200_000)
def args_of(spelled: str) -> Mapping[str, JsonValue]:
    """Arguments from their spelling; do not change them."""
    args: Mapping[str, JsonValue] = json.loads(spelled)
    return args


class View:
    """One read and what it says.

    Attributes:
        tool: the read, or a pseudo-read.
        spelled: its arguments (`values.spell`).
        observation: what it answers; shared, never changed.
        confidence: 0..1, that it would still answer so.
        source: "recorded" (in this world, before the episode), "told" (the agent saw it) or "rule".
        step: how many writes the episode had seen when it was said.
        through: the rules that it went through; one is right or wrong as a whole, so its doubt counts once.
        spared: 0..1, the part of `State.sure` that does not concern it: doubts about writes that leave it
            alone whatever became of them, or that were there when it was told.
    """

    def __init__(
        self,
        tool: str,
        spelled: str,
        observation: JsonValue,
        *,
        confidence: float,
        source: str,
        step: int = 0,
        through: frozenset[str] = frozenset(),
        spared: float = 1.0,
        like: "View | None" = None,
    ) -> None:
        self.tool, self.spelled, self.observation = tool, spelled, observation
        self.confidence, self.source, self.step, self.through = confidence, source, step, through
        self.spared = spared
        if like is not None:  # the same words: what was found in them is found again
            for name in ("failed", "index", "named"):
                if name in like.__dict__:
                    self.__dict__[name] = like.__dict__[name]

    @property
    def args(self) -> Mapping[str, JsonValue]:
        """The read's arguments."""
        return args_of(self.spelled)

    def believed(self, support: float, rule: str) -> "View":
        """The same view after one more rule of this support."""
        if rule in self.through:
            return self
        return View(
            self.tool,
            self.spelled,
            self.observation,
            confidence=self.confidence * support,
            source=self.source,
            step=self.step,
            through=self.through | {rule},
            spared=self.spared,
            like=self,
        )

    def sparing(self, sure: float) -> "View":
        """The same view after a write of which nobody is sure, and which leaves it alone in any case."""
        return View(
            self.tool,
            self.spelled,
            self.observation,
            confidence=self.confidence,
            source=self.source,
            step=self.step,
            through=self.through,
            spared=self.spared * sure,
            like=self,
        )

    def saying(self, observation: JsonValue) -> "View":
        """The same view with another answer, which a rule made."""
        return View(
            self.tool,
            self.spelled,
            observation,
            confidence=self.confidence,
            source="rule",
            step=self.step,
            through=self.through,
            spared=self.spared,
        )

    @cached_property
    def failed(self) -> bool:
        """Whether the read says that it did not work."""
        return failed(self.observation)

    @cached_property
    def index(self) -> "_Index":
        """By text of a value, each record that has it, as (pattern, field, record).

        The read's own arguments are there as (argument, None, None).
        """
        found: _Index = {}
        for name, value in self.args.items():
            if is_key(value):
                found.setdefault(str(value), []).append((name, None, None))
        if not self.failed:
            for path, item in itertools.islice(walk(self.observation, depth=6), _MAX_RECORDS):
                pattern = ".".join("[]" if isinstance(part, int) else part for part in path)
                if isinstance(item, dict):
                    _index_record(found, pattern, item)
                elif isinstance(item, list):
                    for value in filter(is_key, item):
                        found.setdefault(str(value), []).append((pattern, "[]", value))
        return found

    def places_of(self, text: str) -> frozenset[str]:
        """In what roles a value occurs in it: fields, lists, the read's own arguments."""
        found = self.index.get(text)
        if not found:
            return frozenset()
        return frozenset(_place(self.tool, pattern, name) for pattern, name, _ in found)

    @cached_property
    def named(self) -> dict[str, JsonValue]:
        """Its fields by name, for reads without arguments (see `names`)."""
        if self.failed:
            return {f"view.{self.tool}.failed": True}
        named: dict[str, JsonValue] = {}
        for path, value in fields(self.observation).items():
            named[f"view.{self.tool}.{path}"] = value
            if isinstance(value, list) and value and isinstance(value[0], dict):
                for name in list(value[0])[:6]:
                    column = [row.get(name) for row in value if isinstance(row, dict)]
                    if all(is_scalar(cell) for cell in column):
                        named[f"view.{self.tool}.{path}[].{name}"] = column
        return named


_Index = dict[str, list[tuple[str, str | None, JsonValue]]]


def _index_record(found: _Index, pattern: str, record: Mapping[str, JsonValue]) -> None:
    for name, value in record.items():
        if is_key(value):
            found.setdefault(str(value), []).append((pattern, name, record))
        elif isinstance(value, (dict, list)):
            found.setdefault(name, []).append((pattern, "{}", value))


def _place(tool: str, pattern: str, name: str | None) -> str:
    """The role of a value in a view's index: its field, the list that it is in, or the read's argument."""
    if name is None:
        return f"{tool}({pattern})"
    return f"{pattern}{name}" if name in ("[]", "{}") else name


@dataclass(frozen=True, slots=True)
class State:
    """What is known after some calls.

    Attributes:
        views: by read and arguments.
        line: the node of the recorded writes that led here (see `lineage`); -1 when no recording did so.
        sure: 0..1, that the writes so far went as the dream says.
        writes: how many writes there were.
        done: the writes that succeeded, as (tool, spelled arguments).
        minted: by write tool, how often it has succeeded.
        breadth: by read, how many views of it were known before the episode: how well the world is known.
            A read that failed told nothing.
        forgotten: views that no longer hold. What they named is there all the same, or was.
        unanswered: writes that were done and that nobody could answer: tool and arguments, without an
            answer. What they named may be there from then on, and nobody knows that it is.
        refused: values of which a write that failed said that there is no such thing.
        spoken: what the people of the episode have said: a thing that they name is presumed to be there.
    """

    views: Mapping[ViewKey, View]
    line: int = -1
    sure: float = 1.0
    writes: int = 0
    done: frozenset[ViewKey] = frozenset()
    minted: Mapping[str, int] = field(default_factory=dict)
    breadth: Mapping[str, int] = field(default_factory=dict)
    forgotten: tuple[View, ...] = ()
    unanswered: tuple[View, ...] = ()
    refused: frozenset[str] = frozenset()
    spoken: tuple[str, ...] = ()

    def told(self, view: View) -> "State":
        """The state after a read said this."""
        return replace(self, views={**self.views, (view.tool, view.spelled): view})

    def get(self, tool: str, spelled: str) -> View | None:
        """What a read is known to answer."""
        return self.views.get((tool, spelled))

    def without_args(self) -> Iterator[View]:
        """The views of reads that take no arguments, pseudo-reads among them."""
        return (view for (_, spelled), view in self.views.items() if spelled == "{}")

    def has_seen(self, text: str) -> bool:
        """Whether a value occurs in anything that was ever known of this world.

        Failed reads tell nothing, and neither does what was told although it was likelier wrong than right.
        """
        return any(
            text in view.index
            for view in (*self.views.values(), *self.forgotten)
            if not view.failed and (view.source != "told" or view.confidence >= _VOUCHES)
        )

    def has_heard(self, text: str) -> bool:
        """Whether a value occurs in anything recorded or told of this world, however sure it was.

        What the agent was told has to hold; whether it shows that a thing is there is another question.
        """
        return any(text in view.index for view in (*self.views.values(), *self.forgotten) if not view.failed)

    def may_have(self, text: str) -> bool:
        """Whether a value was ever known here, or named by a write that nobody could answer."""
        return self.has_seen(text) or any(text in write.index for write in self.unanswered)

    def denies(self, text: str) -> bool:
        """Whether a read of this value, which nothing else here knows, is known to fail, or a write did."""
        return not self.may_have(text) and (
            text in self.refused or any(view.failed and text in view.index for view in self.views.values())
        )

    def is_named(self, text: str) -> bool:
        """Whether somebody has spoken of a value, by itself and not as a part of a longer word."""
        return any(stands_in(text, said) for said in self.spoken)

    def shown_by(self, text: str) -> frozenset[str]:
        """The reads whose answers have a value, not just their arguments."""
        return frozenset(
            view.tool
            for view in (*self.views.values(), *self.forgotten)
            if any(name is not None for _, name, _ in view.index.get(text, ()))
        )

    def places_of(self, text: str) -> frozenset[str]:
        """In what roles a value occurs in what shows that it is there: fields, lists, arguments of reads."""
        return frozenset(
            f"{view.tool}({pattern})"
            if name is None
            else name
            if name not in ("[]", "{}")
            else pattern + name
            for view in (*self.views.values(), *self.forgotten)
            if not view.failed and (view.source != "told" or view.confidence >= _VOUCHES)
            for pattern, name, _ in view.index.get(text, ())
        )

    def find(self, text: str) -> Iterator[tuple[View, str, str | None, JsonValue]]:
        """Where a value occurs: view, pattern, field and record; field is None for a read's own argument."""
        for view in self.views.values():
            for pattern, name, record in view.index.get(text, ()):
                yield view, pattern, name, record
