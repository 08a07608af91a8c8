"""Ids that a tool makes up: found in recordings, written as symbols, made up anew in the recorded form.

The k-th such value of a tool's field in an episode is the symbol `§tool.field#k`, wherever it occurs later.
Two episodes that differ only in made-up ids are then the same, and "the next new id" is a plain template.
"""

import random
import re
from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from itertools import takewhile

from dreamgym_kit.dream.state.history import HistoryStep, RecordedEpisode
from dreamgym_kit.dream.state.values import field_path, is_scalar, spell, walk
from dreamgym_kit.serialization import JsonValue

Fresh = Mapping[str, Mapping[str, tuple[str | int, ...]]]
"""By tool and field path: some recorded values."""

SIGN = "\u00a7"
SYMBOL = re.compile(f"{SIGN}[^{SIGN}#]+#\\d+")
_ID_NAME = re.compile(r"(id|no|number|token|key|ref|timestamp|_at|uuid|code)\d*$", re.IGNORECASE)
_NUMBERED = re.compile(r"(\D*)(\d+)")
_LEAST = 5
_SAMPLES = 40


def fresh_fields(episodes: Iterable[RecordedEpisode]) -> dict[str, dict[str, tuple[str | int, ...]]]:
    """The fields of write answers whose values nothing explains: never seen before, not from an argument."""
    counts: dict[tuple[str, str], list[int]] = defaultdict(lambda: [0, 0])
    samples: dict[tuple[str, str], list[str | int]] = defaultdict(list)
    for episode in episodes:
        seen: set[str] = set()
        for step in episode.steps:
            given = {spell(value) for value in step.args.values()}
            for name, value in _new_values(step) if step.writes and not step.failed else ():
                count = counts[step.tool, name]
                count[0] += 1
                count[1] += spell(value) not in seen and spell(value) not in given
                samples[step.tool, name].append(value)
            seen.update(given)
            seen.update(spell(value) for _, value in walk(step.seen) if is_scalar(value))
    found: dict[str, dict[str, tuple[str | int, ...]]] = defaultdict(dict)
    for (tool, name), (total, new) in counts.items():
        varied = len(set(samples[tool, name])) > 1 or total == new
        if total >= _LEAST and new >= 0.95 * total and varied and _ID_NAME.search(name):
            found[tool][name] = tuple(samples[tool, name][:_SAMPLES])
    return dict(found)


def declared(samples: Mapping[str, tuple[str, ...]]) -> dict[str, tuple[str | int, ...]]:
    """Made-up ids as a person declares them: texts, of which those that are plain numbers mean numbers."""
    return {
        name: tuple(int(text) if text.isdigit() and text[0] != "0" else text for text in texts)
        for name, texts in samples.items()
    }


def _new_values(step: HistoryStep) -> Iterable[tuple[str, str | int]]:
    for path, value in walk(step.seen):
        inside_list = any(isinstance(part, int) for part in path)
        if inside_list or isinstance(value, (bool, float)) or not isinstance(value, (str, int)):
            continue
        if isinstance(value, str) and (" " in value or len(value) > 80):
            continue
        yield field_path(path), value


@dataclass(slots=True)
class Renaming:
    """The made-up ids of one episode: values to symbols as calls pass, and symbols back to values."""

    fresh: Fresh
    made: Counter[str] = field(default_factory=Counter)
    symbols: dict[str, str] = field(default_factory=dict)  # value as text -> symbol
    values: dict[str, JsonValue] = field(default_factory=dict)  # symbol -> value

    def step(self, step: HistoryStep) -> HistoryStep:
        """The call with symbols for the ids made up so far and by it."""
        if not self.fresh:
            return step
        args = self.symbolic(dict(step.args))
        if step.writes and not step.failed and step.tool in self.fresh:
            self.made[step.tool] += 1
            names = self.fresh[step.tool]
            for path, value in walk(step.seen):
                name = field_path(path)
                if name in names and is_scalar(value):
                    symbol = symbol_of(step.tool, name, self.made[step.tool])
                    self.symbols[str(value)] = symbol
                    self.values[symbol] = value
        if not self.symbols:
            return step
        return step._replace(args=args, spelled=spell(args), seen=self.symbolic(step.seen))

    def symbolic(self, value: JsonValue) -> JsonValue:
        """A value with symbols in place of made-up ids, also as keys and inside longer texts."""
        return _replaced(value, self.symbols) if self.symbols else value

    def concrete(self, value: JsonValue, seed: str) -> JsonValue:
        """A value with ids in place of symbols; new ones are made up from the seed, in the recorded form."""
        for _, item in walk(value, depth=12):
            for text in [item] if isinstance(item, str) else list(item) if isinstance(item, dict) else []:
                for symbol in SYMBOL.findall(text):
                    if symbol not in self.values:
                        self.values[symbol] = mint(symbol, self.fresh, seed)
        if not self.values:
            return value
        return _valued(value, self.values)


def symbol_of(tool: str, name: str, count: int) -> str:
    """The symbol of the count-th id that a tool made up in an episode."""
    return f"{SIGN}{tool}.{name}#{count}"


def mint(symbol: str, fresh: Fresh, seed: str) -> JsonValue:
    """Make up an id: the next number where ids are numbered, else random signs of the recorded kinds."""
    place, _, count = symbol[len(SIGN) :].rpartition("#")
    recorded: tuple[str | int, ...] = next(
        (
            values
            for tool, names in fresh.items()
            for name, values in names.items()
            if f"{tool}.{name}" == place
        ),
        (),
    )
    if not recorded:
        return symbol
    samples, is_number = [str(value) for value in recorded], isinstance(recorded[0], int)
    parts = [_NUMBERED.fullmatch(text) for text in samples]
    prefixes = {part[1] for part in parts if part is not None}
    if all(parts) and len(prefixes) == 1:
        numbers = sorted({int(part[2]) for part in parts if part is not None})
        if numbers[-1] - numbers[0] <= 2 * len(samples):  # a counter
            number = str(numbers[0] + int(count) - 1)
            return int(number) if is_number else next(iter(prefixes)) + number
    drawn = random.Random(f"{seed} {symbol}")  # noqa: S311  the same dream tells the same id
    like = drawn.choice(samples)
    same = sum(1 for _ in takewhile(lambda signs: len(set(signs)) == 1, zip(*samples, strict=False)))
    same = same if len(set(samples)) > 1 else 0  # one sample alone tells no prefix
    text = like[:same] + "".join(_similar(sign, drawn) for sign in like[same:])
    return int(text) if is_number else text


def _similar(sign: str, drawn: random.Random) -> str:
    if sign.isdigit():
        return drawn.choice("123456789")
    if sign in "abcdef":
        return drawn.choice("abcdef")
    return drawn.choice("ghjkmnpqrstvwxyz") if sign.islower() and sign.isascii() else sign


def _replaced(value: JsonValue, symbols: Mapping[str, str]) -> JsonValue:
    if isinstance(value, dict):
        return {symbols.get(key, key): _replaced(item, symbols) for key, item in value.items()}
    if isinstance(value, list):
        return [_replaced(item, symbols) for item in value]
    if isinstance(value, bool) or value is None or isinstance(value, float):
        return value
    symbol = symbols.get(str(value))
    if symbol is not None:
        return symbol
    if isinstance(value, str) and len(value) > 5:
        for text, other in symbols.items():
            if len(text) > 3 and text in value:
                value = value.replace(text, other)
    return value


def _valued(value: JsonValue, values: Mapping[str, JsonValue]) -> JsonValue:
    if isinstance(value, dict):
        return {str(_valued(key, values)): _valued(item, values) for key, item in value.items()}
    if isinstance(value, list):
        return [_valued(item, values) for item in value]
    if not isinstance(value, str) or SIGN not in value:
        return value
    if value in values:
        return values[value]
    for symbol, known in values.items():
        value = value.replace(symbol, str(known))
    return value
