"""Everything around a call that its outcome may hang on, by name, before any of it is put into words.

`args.topic` is an argument that names no thing; `order.status` what is known of a thing; `order.there`
whether it is there; `order.after.cancel_order` that this was done to it, `order.failed.refund_payment` that
this failed and acted all the same; `amount~payment.amount` how an argument compares; `done` whether this
very call went well before. What is not known has no name: open world.
"""

from collections.abc import Iterable, Mapping

from dreamgym_kit.dream.learned.things import Thing, references, things_of
from dreamgym_kit.dream.state.entities import mentioned
from dreamgym_kit.dream.state.models import LAST, ToolModels
from dreamgym_kit.dream.state.observed import failed
from dreamgym_kit.dream.state.values import as_number, is_scalar, spell
from dreamgym_kit.dream.state.views import State, args_of
from dreamgym_kit.serialization import JsonValue

Facts = Mapping[str, JsonValue]


def facts_of(models: ToolModels, state: State, tool: str, args: Mapping[str, JsonValue]) -> Facts:
    """The facts around a call, in a fixed order."""
    things = things_of(state, models.usual, tool, args)
    naming = {name for name, _ in references(models.usual, tool, args)}
    given = {name: value for name, value in args.items() if name not in naming and is_scalar(value)}
    facts: dict[str, JsonValue] = {f"args.{name}": value for name, value in given.items()}
    for name, value in given.items():
        number = as_number(value)
        facts[f"{name}~0"] = "no_number" if number is None else _sign(number)
    for thing in things:
        if thing.named:
            facts[f"{thing.role}.there"] = thing.there
        facts.update({f"{thing.role}.{name}": value for name, value in thing.fields.items()})
        if thing.named:
            facts.update(_done_to(state, thing))
    facts.update(_compared(given, things))
    facts["done"] = "yes" if (tool, spell(dict(args))) in state.done else "no"
    return facts


def _sign(number: float) -> str:
    return "zero" if number == 0 else "below" if number < 0 else "above"


def _done_to(state: State, thing: Thing) -> Iterable[tuple[str, JsonValue]]:
    for tool, spelled in sorted(state.done):
        if thing.entity in mentioned(dict(args_of(spelled))):
            yield f"{thing.role}.after.{tool}", "yes"
    for (name, _), view in state.views.items():
        if name.startswith(LAST):
            last = view.observation
            if failed(last["answer"]) and thing.entity in mentioned(last["args"]):
                yield f"{thing.role}.failed.{name.removeprefix(LAST)}", "yes"


def _compared(given: Facts, things: Iterable[Thing]) -> Iterable[tuple[str, JsonValue]]:
    for name, value in given.items():
        number = as_number(value)
        for thing in things:
            for of, known in thing.fields.items():
                other = as_number(known)
                if number is not None and other is not None:
                    same = "equal" if number == other else "less" if number < other else "more"
                    yield f"{name}~{thing.role}.{of}", same
                elif isinstance(value, str) and isinstance(known, str) and number is None and other is None:
                    yield f"{name}~{thing.role}.{of}", "same" if value == known else "other"
