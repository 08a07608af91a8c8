"""A decision in words, both ways: why, what became of the call, and what it changed.

    order.status packed => ok set order.status cancelled

One line of words, so that a model whose tokens are these words says it in ten tokens, and any other model
can say it as well.
"""

from dataclasses import dataclass

from dreamgym_kit.dream.learned.vocabulary import ARROW, SET

MAX_WHY, MAX_CHANGES = 3, 2


class Unreadable(ValueError):
    """What a model said is no decision."""


@dataclass(frozen=True, slots=True)
class Said:
    """A decision as it is said: pairs of names and words."""

    why: tuple[tuple[str, str], ...]
    outcome: str
    changes: tuple[tuple[str, str], ...] | None = ()  # None: nobody looked what it changed

    def words(self) -> tuple[str, ...]:
        """As it is said; what nobody knows of its changes is left out."""
        words = [word for pair in self.why for word in pair]
        words += [ARROW, self.outcome]
        for name, value in self.changes or ():
            words += [SET, name, value]
        return tuple(words)


def read_decision(text: str) -> Said:
    """Read a model's words.

    Raises:
        Unreadable: they are no decision; says where they leave the form.
    """
    words = text.split()
    if words.count(ARROW) != 1:
        raise Unreadable(f"a decision has '{ARROW}' once, not {words.count(ARROW)} times")
    place = words.index(ARROW)
    before, after = words[:place], words[place + 1 :]
    if len(before) % 2 or len(before) > 2 * MAX_WHY:
        raise Unreadable(f"before '{ARROW}' stand at most {MAX_WHY} pairs, not {len(before)} words")
    if not after or len(after) % 3 != 1:
        raise Unreadable(f"after '{ARROW}' stand an outcome and '{SET}' with name and value, or no '{SET}'")
    changes = [after[at : at + 3] for at in range(1, len(after), 3)]
    wrong = next((change[0] for change in changes if change[0] != SET), None)
    if wrong is not None:
        raise Unreadable(f"'{wrong}' stands where '{SET}' should")
    if len(changes) > MAX_CHANGES:
        raise Unreadable(f"a call changes at most {MAX_CHANGES} facts, not {len(changes)}")
    why = tuple((before[at], before[at + 1]) for at in range(0, len(before), 2))
    return Said(why, after[0], tuple((name, value) for _, name, value in changes))
