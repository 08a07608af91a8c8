"""Which tasks a run takes: those that `-k` names, or a shard's part.

Names go as pytest's: "books or (refund and not big)", where a word stands for every task whose id has it in
it, upper and lower case alike. Shard i of n takes every n-th task, with all its siblings, and is a run of its
own, for machines that share nothing, such as a Kubernetes Indexed Job or a Slurm array. Which tasks it has
follows from their order alone; `report.merging` puts the shards together again.
"""

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from dreamgym_kit.errors import NoTaskSelected, UserError
from dreamgym_kit.serialization import JsonValue
from dreamgym_kit.types import Task

_PIECES = re.compile(r"[()]|[^\s()]+")
_OPERATORS = ("and", "or", "not", "(", ")")
_Holds = Callable[[str], bool]


def select_tasks(tasks: Sequence[Task], expression: str) -> list[Task]:
    """The tasks that an expression names, in their order.

    Raises:
        UserError: it cannot be read.
        NoTaskSelected: it names none.
    """
    holds = _Expression(expression).read()
    selected = [task for task in tasks if holds(task.id.casefold())]
    if not selected:
        some = ", ".join(task.id for task in tasks[:3])
        raise NoTaskSelected(f"-k {expression!r} selects none of {len(tasks)} tasks ({some}, ...).")
    return selected


def selectable(name: str) -> bool:
    """Whether a task's id can stand in an expression."""
    return _PIECES.fullmatch(name) is not None and name.casefold() not in _OPERATORS


class _Expression:
    """or := and ("or" and)*; and := not ("and" not)*; not := "not" not | "(" or ")" | word."""

    def __init__(self, text: str) -> None:
        self._text, self._left = text, _PIECES.findall(text)

    def read(self) -> _Holds:
        holds = self._any()
        if self._left:
            raise self._wrong(f"{self._left[0]!r} stands where 'and' or 'or' is expected")
        return holds

    def _any(self) -> _Holds:
        parts = [self._all()]
        while self._took("or"):
            parts.append(self._all())
        return lambda name: any(part(name) for part in parts)

    def _all(self) -> _Holds:
        parts = [self._operand()]
        while self._took("and"):
            parts.append(self._operand())
        return lambda name: all(part(name) for part in parts)

    def _operand(self) -> _Holds:
        if self._took("not"):
            held = self._operand()
            return lambda name: not held(name)
        if self._took("("):
            inner = self._any()
            if not self._took(")"):
                raise self._wrong("a '(' is not closed")
            return inner
        if not self._left or self._left[0].casefold() in _OPERATORS:
            token = repr(self._left[0]) if self._left else "its end"
            raise self._wrong(f"{token} stands where a word is expected")
        word = self._left.pop(0).casefold()
        return lambda name: word in name

    def _took(self, piece: str) -> bool:
        if self._left and self._left[0].casefold() == piece:
            del self._left[0]
            return True
        return False

    def _wrong(self, why: str) -> UserError:
        return UserError(f"-k {self._text!r}: {why}; write words, and, or, not, ( ). Nothing was run.")


_FORM = re.compile(r"([0-9]{1,6})/([0-9]{1,6})")


@dataclass(frozen=True, slots=True)
class Shard:
    """One part of a run."""

    number: int  # from 1
    of: int

    def __str__(self) -> str:
        return f"{self.number}/{self.of}"

    def part(self, tasks: Sequence[Task]) -> list[Task]:
        """Its tasks among all tasks, in their order.

        Raises:
            UserError: there is none for it.
        """
        part = list(tasks[self.number - 1 :: self.of])
        if not part:
            raise UserError(
                f"shard {self}: there are {len(tasks)} tasks, so at most as many shards. Nothing was run."
            )
        return part

    def to_record(self) -> dict[str, JsonValue]:
        """What a run's manifest says of it."""
        return {"number": self.number, "of": self.of}


def shard_from(text: str) -> Shard:
    """Read "2/8".

    Raises:
        UserError: it is something else.
    """
    form = _FORM.fullmatch(text)
    if form is None or not 1 <= int(form[1]) <= int(form[2]):
        raise UserError(f"shard {text}: write I/N, I from 1 to N, as 2/8. Nothing was run.")
    return Shard(int(form[1]), int(form[2]))
