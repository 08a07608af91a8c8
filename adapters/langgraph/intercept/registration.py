"""Puts the gate into what settings name: plain functions and nodes that act on the world."""

import types
from collections.abc import Container, Sequence
from typing import Any

from langgraph.pregel import Pregel

from dreamgym_kit.adapters.langgraph.analysis.gc_objects import Living
from dreamgym_kit.adapters.langgraph.analysis.inventory import InventoryEntry
from dreamgym_kit.adapters.langgraph.analysis.loading import load_named
from dreamgym_kit.adapters.langgraph.analysis.nodes import functions_of, nodes_of
from dreamgym_kit.adapters.langgraph.intercept.functions import NotHookable, hook, hook_twins
from dreamgym_kit.errors import UserError
from dreamgym_kit.settings.schema import Settings


def register_functions(settings: Settings) -> Living:
    """Hook every function that `[functions]` names; gives what is alive after that.

    Raises:
        UserError: not importable, no such name, or nothing that can be hooked.
    """
    for reference, entry in settings.functions.items():
        where = settings.where("functions", reference)
        target = _body(load_named(reference, kind="function", where=where, folder=settings.folder))
        name = entry.name or str(getattr(target, "__name__", reference.rpartition(":")[2]))
        try:
            hook(target, name).reference = reference
        except NotHookable as reason:
            raise UserError(f"{where}: '{reference}' cannot be hooked: {reason}") from None
    living = Living()  # not before: a function's module may have been imported for it
    if settings.functions:
        hook_twins(living)
    return living


def check_confirmed(
    listed: Sequence[InventoryEntry], settings: Settings, confirmed: Container[str] = ()
) -> None:
    """Refuse real calls of functions whose effect nobody has confirmed, neither in settings nor in the lock.

    `confirmed` are the names that the lock has.

    Raises:
        UserError: it says the lines to add.
    """
    guessed = [one for one in listed if not one.confirmed and one.name not in confirmed]
    if guessed:
        lines = "\n".join(f"  {one.line()}  # {one.reached}: {one.why}" for one in guessed)
        raise UserError(
            f"{settings.where('functions')}: functions beside the tools may act on the world, and would run "
            f"for real. Correct these lines and add them to dreamgym.toml:\n{lines}\nIf all guesses in "
            "dreamgym.lock are right: dreamgym-kit init --confirm\nNothing was run."
        )


def register_nodes(graph: Pregel[Any], settings: Settings) -> None:
    """Hook the functions of nodes whose effect is more than pure or control."""
    for path, bound in nodes_of(graph):
        name = path.rpartition("/")[2]
        entry = settings.nodes.get(name)
        if entry is None or entry.effect.runs_in_dream:
            continue
        functions = functions_of(bound)
        if not functions:
            where = settings.where("nodes", name)
            raise UserError(
                f"{where}: node '{name}' is no plain function; register the functions that it calls"
            )
        for function in functions:
            hook(function, name)


def _body(target: Any) -> Any:
    """The plain function under a `@task`, a tool or a method."""
    for attribute in ("func", "coroutine"):
        inner = getattr(target, "__dict__", {}).get(attribute)
        if isinstance(inner, types.FunctionType):
            return inner
    return target
