"""The closed words that calls, facts and decisions are told in: fixed when a model is taught, kept beside it.

    order_id<args.order_id>.status packed => ok

is a decision: why, and what became of the call. One line of words, so that a model whose
tokens are these words says it in ten tokens, and any other model can say it as well.

A fact is worth a word where its values are few and recur in several worlds; a number goes into the steps
between the cuts that tell its tool's outcomes apart. What is open (ids, names, amounts) has no word, and is
said only by what code compares it with. A value that was never seen is "other".
"""

import re
from bisect import bisect_right
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path

import msgspec

from dreamgym_kit.bounded_json import read_json
from dreamgym_kit.dream.calibration import Calibrator
from dreamgym_kit.dream.json_values import as_number
from dreamgym_kit.errors import NotSerializable, UserError
from dreamgym_kit.serialization import JsonValue

OK = "ok"
"""The outcome of a call that went well; failures are "refused_1", "refused_2" ... of their tool."""
OTHER = "other"
ARROW, UNKNOWN = "=>", "unknown"
MARKS = (ARROW, UNKNOWN, OTHER)
MAX_WHY = 3
LEARNED_FILE = "learned.json"
FORM = 2  # 1: decisions on facts of an older form, with changes
_MAX_BYTES = 4_000_000
_GAP = re.compile(r"\s+")


@dataclass(frozen=True, slots=True)
class FactWords:
    """How one fact of one tool is told: one of a few values, or a step between cuts."""

    values: tuple[str, ...] = ()
    cuts: tuple[float, ...] = ()  # ascending

    def word(self, value: JsonValue) -> str:
        """The word for a value."""
        if self.cuts:
            number = as_number(value)
            return OTHER if number is None else step_word(self.cuts, bisect_right(self.cuts, number))
        text = value_word(value)
        return text if text in self.values else OTHER

    def words(self) -> Iterator[str]:
        """All that it can say."""
        yield from self.values
        if self.cuts:
            yield from (step_word(self.cuts, place) for place in range(len(self.cuts) + 1))
        yield OTHER


@dataclass(frozen=True, slots=True)
class ToolWords:
    """What can be said of one tool's calls.

    Attributes:
        facts: by name, in the order in which they are told.
        refusals: the forms of its failures (`facts.form_of_failure`), the commonest first.
    """

    facts: Mapping[str, FactWords] = field(default_factory=dict)
    refusals: tuple[str, ...] = ()

    def outcome(self, form: str | None) -> str | None:
        """The word for an outcome: `form` of a failure, None of a success; None for one that has no word."""
        if form is None:
            return OK
        return f"refused_{self.refusals.index(form) + 1}" if form in self.refusals else None

    def form(self, outcome: str) -> str | None:
        """The form of the failure that a word means.

        Raises:
            KeyError: no such word.
        """
        if outcome == OK:
            return None
        forms = {f"refused_{place}": form for place, form in enumerate(self.refusals, 1)}
        return forms[outcome]


@dataclass(frozen=True, slots=True)
class Vocabulary:
    """The words of all tools."""

    tools: Mapping[str, ToolWords] = field(default_factory=dict)

    def record(self, tool: str, facts: Mapping[str, JsonValue]) -> tuple[str, ...]:
        """A call as it is told: the tool, then each fact that has words, as name and value.

        Raises:
            KeyError: nothing was learned of the tool.
        """
        parts = [tool]
        for name, words in self.tools[tool].facts.items():
            if name in facts:
                parts += [name, words.word(facts[name])]
        return tuple(parts)

    def words(self) -> tuple[str, ...]:
        """Every word that stands in a record or a decision, each once, always in the same order."""
        return tuple(dict.fromkeys([*MARKS, *self._spoken()]))

    def _spoken(self) -> Iterator[str]:
        for tool, tool_words in sorted(self.tools.items()):
            yield tool
            for name, words in tool_words.facts.items():
                yield from (name, *words.words())
            yield from (OK, *(f"refused_{place}" for place in range(1, len(tool_words.refusals) + 1)))


class UnreadableDecision(ValueError):
    """What a model said is no decision."""


@dataclass(frozen=True, slots=True)
class CallDecision:
    """A decision as it is said: pairs of names and words."""

    why: tuple[tuple[str, str], ...]
    outcome: str

    def words(self) -> tuple[str, ...]:
        """As it is said."""
        return (*(word for pair in self.why for word in pair), ARROW, self.outcome)


def read_decision(text: str) -> CallDecision:
    """Read a model's words.

    Raises:
        UnreadableDecision: they are no decision; says where they leave the form.
    """
    words = text.split()
    if words.count(ARROW) != 1:
        raise UnreadableDecision(f"a decision has '{ARROW}' once, not {words.count(ARROW)} times")
    place = words.index(ARROW)
    before, after = words[:place], words[place + 1 :]
    if len(before) % 2 or len(before) > 2 * MAX_WHY:
        raise UnreadableDecision(f"before '{ARROW}' stand at most {MAX_WHY} pairs, not {len(before)} words")
    if len(after) != 1:
        raise UnreadableDecision(f"after '{ARROW}' stands one outcome, not {len(after)} words")
    return CallDecision(tuple(zip(before[::2], before[1::2], strict=True)), after[0])


@dataclass(frozen=True, slots=True)
class _CalibrationRecord:
    tools: list[tuple[str, str, float, float]]
    edges: tuple[float, ...]
    shares: tuple[float, ...]


@dataclass(frozen=True, slots=True)
class LearnedCheckpoint:
    """What a model learned to speak of, and how far it was right on worlds that it had not seen."""

    vocabulary: Vocabulary
    calibration: Calibrator = field(default_factory=Calibrator)
    facts: Mapping[str, JsonValue] = field(default_factory=dict)  # how it was made, for people


def value_word(value: JsonValue) -> str:
    """A value as one word."""
    if isinstance(value, bool):
        return "true" if value else "false"
    return _GAP.sub("_", "null" if value is None else str(value)) or "empty"


def step_word(cuts: tuple[float, ...], place: int) -> str:
    """A step between cuts as one word: "<15", ">=15"; each names the cut below it."""
    return f"<{cuts[0]:g}" if place == 0 else f">={cuts[place - 1]:g}"


def learned_to_json(learned: LearnedCheckpoint) -> dict[str, JsonValue]:
    """Convert a checkpoint to the JSON that `read_learned` reads."""
    calibration = learned.calibration
    return {
        "form": FORM,
        **learned.facts,
        "calibration": {
            "tools": [[tool, basis, *counts] for (tool, basis), counts in sorted(calibration.tools.items())],
            "edges": calibration.edges,
            "shares": calibration.shares,
        },
        "vocabulary": msgspec.to_builtins(learned.vocabulary.tools),
    }


def read_learned(folder: Path) -> LearnedCheckpoint:
    """Read what lies beside a model's weights.

    Raises:
        UserError: it is not there, or not what the kit wrote; says what to do.
    """
    file = folder / LEARNED_FILE
    try:
        data = read_json(file.read_text("utf-8"), max_bytes=_MAX_BYTES)
    except OSError as error:
        raise UserError(
            f"{file}: cannot be read ({error.strerror}); an experience model's directory has this file "
            "beside its weights"
        ) from None
    except (NotSerializable, UnicodeDecodeError) as error:
        raise UserError(f"{file}: is no JSON ({error}); take the directory as it was written") from None
    if not isinstance(data, dict) or data.get("form") != FORM:
        form = data.get("form") if isinstance(data, dict) else None
        if form == 1:
            raise UserError(
                f"{file}: this model was trained on facts of an older form, which nothing tells it any more; "
                "distil it again: python -m dreamgym_kit.recipes.nano experience OUT"
            )
        raise UserError(f"{file}: form {form!r} is not {FORM}, which this version reads; teach it anew")
    try:
        record = msgspec.convert(data["calibration"], _CalibrationRecord)
        calibration = Calibrator(
            {(tool, basis): (right, tried) for tool, basis, right, tried in record.tools},
            record.edges,
            record.shares,
        )
        vocabulary = Vocabulary(msgspec.convert(data["vocabulary"], dict[str, ToolWords]))
    except (KeyError, msgspec.ValidationError) as error:
        raise UserError(
            f"{file}: is not as the kit writes it ({type(error).__name__}: {error}); teach it anew"
        ) from None
    rest = {name: value for name, value in data.items() if name not in ("form", "vocabulary", "calibration")}
    return LearnedCheckpoint(vocabulary, calibration, rest)
