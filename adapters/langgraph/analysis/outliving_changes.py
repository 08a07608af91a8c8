"""Does code change what outlives its call? Read from its bytecode; nothing is called.

A list that the code made itself, or was handed, may grow: that is computing. What it has from a global name,
an attribute, a closure or a call may be somebody else's. Only straight stretches of code are followed; after
each jump, and after each instruction that is not known here, nothing is taken for the code's own.
"""

import builtins
import collections
import copy
import dis
import functools
import types
from collections.abc import Mapping
from typing import Any

_CHANGES = frozenset(
    {
        "append", "extend", "insert", "add", "update", "setdefault", "pop", "popitem", "remove",
        "discard", "clear",
    }
)  # fmt: skip
_CONTAINER = {"STORE_SUBSCR": 2, "DELETE_SUBSCR": 2, "STORE_ATTR": 1, "DELETE_ATTR": 1, "STORE_SLICE": 3}
"""Instructions that change something, and how deep in the stack it lies."""
_MAKERS = (
    list, dict, set, tuple, sorted, str, int, float, bool, len, repr, bytes, bytearray,
    collections.defaultdict, collections.Counter, collections.deque, collections.OrderedDict, copy.deepcopy,
)  # fmt: skip
_MAKES = frozenset(
    {
        "BUILD_LIST", "BUILD_MAP", "BUILD_SET", "BUILD_TUPLE", "BUILD_CONST_KEY_MAP", "BUILD_STRING",
        "FORMAT_VALUE", "FORMAT_SIMPLE", "FORMAT_WITH_SPEC", "LOAD_CONST", "LOAD_SMALL_INT",
    }
)  # fmt: skip
_DROPS = frozenset(
    {
        "POP_TOP", "STORE_DEREF", "STORE_GLOBAL", "STORE_NAME",
        # into a literal that is being built
        "LIST_EXTEND", "LIST_APPEND", "SET_UPDATE", "SET_ADD", "DICT_UPDATE", "DICT_MERGE", "MAP_ADD",
    }
)  # fmt: skip
_ATTRIBUTE = ("LOAD_ATTR", "LOAD_METHOD")
_GIVES = frozenset({"LOAD_DEREF", "LOAD_NAME", "LOAD_CLOSURE", "PUSH_NULL"})
_COMBINES = frozenset({"BINARY_OP", "BINARY_SUBSCR", "COMPARE_OP", "IS_OP", "CONTAINS_OP"})
_IDLE = frozenset(
    {"NOP", "CACHE", "PRECALL", "KW_NAMES", "RESUME", "COPY_FREE_VARS", "MAKE_CELL", "NOT_TAKEN"}
)
_JUMPS = frozenset(dis.hasjrel) | frozenset(dis.hasjabs)


@functools.lru_cache(maxsize=512)
def instructions_of(code: types.CodeType) -> tuple[dis.Instruction, ...]:
    """The instructions of a code object; each is read several times in the start of a dream."""
    return tuple(dis.get_instructions(code))


@functools.lru_cache(maxsize=4096)
def _may_change(code: types.CodeType) -> bool:
    """Whether any instruction changes something: most functions have none."""
    return any(_is_change(instruction) for instruction in instructions_of(code))


def _is_change(instruction: dis.Instruction) -> bool:
    return instruction.opname in _CONTAINER or (
        instruction.opname in _ATTRIBUTE and instruction.argval in _CHANGES
    )


class _Made:
    """Made by the code itself, or immutable."""


class _Maker:
    """A callable that gives something new."""


_Label = str | type[_Made] | type[_Maker] | None  # a local's name; None: it may be somebody else's


def changes_others(code: types.CodeType, names: Mapping[str, Any], *, handed: bool) -> bool:
    """Whether code may change what it neither made nor was handed.

    Args:
        code: of one function, without those inside it.
        names: the global names of its module.
        handed: its arguments are its caller's matter; else, as a lambda's inside it, they may be anybody's.
    """
    count = code.co_argcount + code.co_kwonlyargcount
    return _Stretches(names, () if handed else code.co_varnames[:count]).changes(code)


class _Stretches:
    """One reading of one code object."""

    def __init__(self, names: Mapping[str, Any], others: tuple[str, ...]) -> None:
        self._names = names
        self._stack: list[_Label] = []
        self._came_of: dict[str, list[_Label]] = {
            other: [None] for other in others
        }  # what was stored in each
        self._changed: list[_Label] = []

    def changes(self, code: types.CodeType) -> bool:
        """See `changes_others`."""
        if not _may_change(code):
            return False
        for instruction in instructions_of(code):
            if instruction.is_jump_target:
                self._stack.clear()
            self._step(instruction)
        return not all(self._own(label, set()) for label in self._changed)

    def _own(self, label: _Label, seen: set[str]) -> bool:
        if not isinstance(label, str):
            return label is _Made
        if label in seen:
            return True
        seen.add(label)
        return all(self._own(source, seen) for source in self._came_of.get(label, ()))

    def _step(self, instruction: dis.Instruction) -> None:
        name = instruction.opname
        if name in _IDLE:
            return
        self._note(instruction)
        if name.startswith(("LOAD_FAST", "STORE_FAST")):
            self._local(instruction)
        elif name == "CALL":
            self._call(int(instruction.arg or 0))
        elif name in ("SWAP", "COPY"):
            self._move(name, int(instruction.arg or 0))
        elif (moved := self._moved(instruction)) is not None:
            self._pop(moved[0])
            self._stack.extend(moved[1])
        else:  # a jump, or what is not known here
            self._stack.clear()
        if instruction.opcode in _JUMPS:
            self._stack.clear()

    def _note(self, instruction: dis.Instruction) -> None:
        """Keep what this instruction changes."""
        if instruction.opname in _CONTAINER:
            self._changed.append(self._at(_CONTAINER[instruction.opname]))
        elif instruction.opname in _ATTRIBUTE and instruction.argval in _CHANGES:
            self._changed.append(self._at(1))

    def _moved(self, instruction: dis.Instruction) -> tuple[int, list[_Label]] | None:
        """How many an instruction takes off the stack, and what it puts there."""
        name, effect = instruction.opname, dis.stack_effect(instruction.opcode, instruction.arg, jump=False)
        if name in _MAKES:
            return 1 - effect, [_Made]
        if name in _DROPS or name in _CONTAINER:
            return -effect, []
        if name in _GIVES:
            return 0, [None]
        if name == "LOAD_GLOBAL":
            return 0, [self._global(str(instruction.argval))] * effect
        if name in _ATTRIBUTE:
            return 1, [None] * (1 + effect)
        return (2, [None]) if name in _COMBINES else None

    def _local(self, instruction: dis.Instruction) -> None:
        """Locals are loaded and stored one at a time, or, in later Pythons, in pairs."""
        if "AND_CLEAR" in instruction.opname:
            self._stack.append(None)
            return
        locals_ = instruction.argval if isinstance(instruction.argval, tuple) else (instruction.argval,)
        steps = [step for step in instruction.opname.split("_") if step in ("LOAD", "STORE")]
        for step, local in zip(steps, locals_, strict=True):
            if step == "LOAD":
                self._stack.append(str(local))
            else:
                self._came_of.setdefault(str(local), []).append(self._pop(1))

    def _global(self, name: str) -> _Label:
        value = self._names.get(name, vars(builtins).get(name))
        return _Maker if any(value is maker for maker in _MAKERS) else None

    def _call(self, count: int) -> None:
        self._pop(count)
        called = (self._pop(1), self._pop(1))  # a callable and an empty place, in either order
        self._stack.append(_Made if _Maker in called else None)

    def _move(self, name: str, depth: int) -> None:
        stack = self._stack
        if name == "COPY":
            stack.append(self._at(depth))
        elif depth > len(stack):
            stack.clear()
        else:
            stack[-1], stack[-depth] = stack[-depth], stack[-1]

    def _at(self, depth: int) -> _Label:
        return self._stack[-depth] if depth <= len(self._stack) else None

    def _pop(self, count: int) -> _Label:
        """Take so many; gives the last one taken."""
        label: _Label = None
        for _ in range(count):
            label = self._stack.pop() if self._stack else None
        return label
