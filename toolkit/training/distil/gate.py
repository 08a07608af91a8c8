"""Which tools a model may stand in for: its agreement with recorded outcomes, tool by tool, against a bound.

    trust    at or above the bound on enough calls: answers in dry runs and in training
    watch    too few calls, or below the bound by no more than chance: answers in dry runs only
    never    below it, or takes refusals for success: is never asked

The file bears the digest of the weights that were tried. Other weights have passed nothing.
"""

import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from dreamgym_kit.dream.reasoned_support import ReasonedTrial
from dreamgym_kit.errors import NotJson, UserError
from dreamgym_kit.jsonread import read_json
from dreamgym_kit.plain import JsonValue
from dreamgym_kit.rollout.files import read_whole, write_atomically
from dreamgym_kit.training.distil.exactness import Exactness, ToolExactness
from dreamgym_kit.trust.interval import wilson

FILE = "gate.json"
TRUST, WATCH, NEVER = "trust", "watch", "never"
_ENOUGH = 20  # calls
_FEW_REFUSED = 5  # refused calls from which on it counts how often they are taken for success


@dataclass(frozen=True, slots=True)
class ToolGate:
    """One tool's verdict."""

    verdict: str
    right: int
    tried: int
    why: str


@dataclass(frozen=True, slots=True)
class Gate:
    """What a model has passed."""

    weights: str  # digest; "" where a server's weights cannot be read
    bound: float
    tools: Mapping[str, ToolGate]
    trials: tuple[ReasonedTrial, ...] = ()

    def may_answer(self, tool: str, *, training: bool) -> bool:
        """Whether calls of a tool may be put to the model."""
        known = self.tools.get(tool)
        verdict = known.verdict if known is not None else WATCH
        return verdict == TRUST or (verdict == WATCH and not training)

    def why_not(self, tool: str) -> str:
        """In a plain sentence."""
        known = self.tools.get(tool)
        return known.why if known is not None else "it was never tried on this tool"


def gate_of(found: Exactness, *, weights: str, bound: float = 0.9) -> Gate:
    """Judge each tool by the calls that code leaves to the model and that it is sure enough of."""
    return Gate(weights, bound, {tool.tool: _judged(tool, bound) for tool in found.tools}, found.trials)


def _judged(tool: ToolExactness, bound: float) -> ToolGate:
    right, tried = tool.open_right, tool.open
    if not tried:
        return ToolGate(WATCH, right, tried, "no held-out call was left to it that it was sure of")
    _, high = wilson(right, tried)
    told = f"{right} of {tried} held-out answers were right, the bound is {bound:g}"
    if tool.refused >= _FEW_REFUSED and tool.taken_for_done > (1 - bound) * tool.refused:
        wrong = f"it takes {tool.taken_for_done} of {tool.refused} refused calls for done"
        return ToolGate(NEVER, right, tried, wrong)
    if right / tried >= bound and tried >= _ENOUGH:
        return ToolGate(TRUST, right, tried, told)
    if high < bound:
        return ToolGate(NEVER, right, tried, told)
    few = f"{told}; at least {_ENOUGH} are asked for" if tried < _ENOUGH else told
    return ToolGate(WATCH, right, tried, few)


def write_gate(path: Path, gate: Gate, figures: Mapping[str, JsonValue]) -> None:
    """Write it, with the figures that it rests on.

    Raises:
        RunDirectoryError: the disk refuses.
    """
    told = {
        "gate": 1,
        "weights": gate.weights,
        "bound": gate.bound,
        "tools": {
            name: {"verdict": one.verdict, "right": one.right, "tried": one.tried, "why": one.why}
            for name, one in sorted(gate.tools.items())
        },
        "trials": [[one.form, one.confidence, one.exact] for one in gate.trials],
        "figures": dict(figures),
    }
    write_atomically(path, json.dumps(told, indent=1, allow_nan=False).encode("ascii") + b"\n")


def read_gate(path: Path, *, weights: str | None = None) -> Gate:
    """Read it; `weights`: the digest of those that are to answer now, None where nobody can tell.

    Raises:
        UserError: there is none, it is none, or it is of other weights.
    """
    again = "try the model again: dreamgym-kit experience eval"
    try:
        said: dict[str, Any] = read_json(read_whole(path))
        tools = {
            str(name): ToolGate(
                _verdict(one["verdict"]), int(one["right"]), int(one["tried"]), str(one["why"])
            )
            for name, one in said["tools"].items()
        }
        trials = tuple(
            ReasonedTrial(str(form), float(sure), bool(exact)) for form, sure, exact in said["trials"]
        )
        gate = Gate(str(said["weights"]), float(said["bound"]), tools, trials)
    except FileNotFoundError:
        raise UserError(f"{path}: there is no such gate; {again}.") from None
    except (NotJson, KeyError, TypeError, ValueError, AttributeError) as error:
        raise UserError(f"{path}: is no gate ({error}); {again}.") from None
    if weights is not None and gate.weights != weights:
        raise UserError(f"{path}: is of other weights than those that lie beside it; {again}.")
    return gate


def _verdict(said: object) -> str:
    if said not in (TRUST, WATCH, NEVER):
        raise ValueError(f"there is no verdict {said!r}")
    return str(said)
