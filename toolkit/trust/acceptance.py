"""The acceptance check of an experience model: per tool, its agreement with recorded outcomes and a bound.

Each way of answering is asked the held-out calls; how often is its answer the recorded one?

    recorded  only repeats the same call in the same state
    composed  state and rules: recorded, derived, analogous, like a dream without a model
    model     the model alone, whose decisions code completes
    layered   code if it is confident, else the model if it is

Exact means equal in all that the agent sees, except IDs that the tool generates. Unanswered is not exact. The
confidence used in `layered` is learned from the other half of the model's trials. From the calls that code
leaves to the model, each tool gets a verdict:

    trust    at or above the bound on enough calls: answers in dry runs and training
    watch    too few calls, or below the bound by chance at most: answers only in dry runs
    never    below the bound, or accepts refused calls: is never asked

The file has the digest of the tested weights. Other weights have passed nothing.
"""

import json
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Final, Literal

from dreamgym_kit.bounded_json import read_json
from dreamgym_kit.codec import Codec
from dreamgym_kit.dream.calibration import ReasonedSupport, ReasonedTrial, learn_support
from dreamgym_kit.errors import NotSerializable, UserError
from dreamgym_kit.rollout.atomic_files import read_whole, write_atomically
from dreamgym_kit.serialization import JsonValue
from dreamgym_kit.trust.outcomes import wilson

FILE = "acceptance.json"
TRUST: Final = "trust"
WATCH: Final = "watch"
NEVER: Final = "never"
_ENOUGH = 20  # calls
_FEW_REFUSED = 5  # minimum refused calls for judging false acceptances
WAYS = ("recorded", "composed", "model", "layered")
_STEPS = 10  # bins of the calibration error


@dataclass(frozen=True, slots=True)
class HeldOutCall:
    """The results of one held-out call."""

    tool: str
    failed: bool  # as recorded
    recorded: bool | None = None  # whether exact; None: no answer
    composed: bool | None = None
    model: bool | None = None
    model_failed: bool = False  # the model predicted a failure
    form: str = "whole"  # form of the model's decision; `confidence`: its own
    confidence: float = 0.0
    prompt_tokens: int = 0
    completion_tokens: int = 0


@dataclass(frozen=True, slots=True)
class ToolExactness:
    """One tool's figures; those of `layered` and `open` are at the threshold."""

    tool: str
    calls: int
    exact: Mapping[str, int]  # by way
    answered: Mapping[str, int]
    open: int  # calls that code leaves to the model, with enough confidence
    open_right: int
    refused: int  # of all calls, as recorded
    taken_for_done: int  # of these, calls that the model accepts


@dataclass(frozen=True, slots=True)
class Exactness:
    """All figures."""

    tools: tuple[ToolExactness, ...]
    calibration: float | None  # expected calibration error on calls left to it; None: it answered none
    trials: tuple[ReasonedTrial, ...]  # of calls that code leaves to the model
    prompt_tokens: int
    completion_tokens: int

    @property
    def calls(self) -> int:
        """Held-out calls."""
        return sum(tool.calls for tool in self.tools)

    def share(self, way: str) -> float:
        """Return the share (0..1) of all calls that this way answers exactly."""
        return sum(tool.exact[way] for tool in self.tools) / max(1, self.calls)

    def to_json(self) -> dict[str, JsonValue]:
        """Return the figures for the report and the acceptance file."""
        return {
            "calls": self.calls,
            **{f"exact_{way}": round(self.share(way), 4) for way in WAYS},
            "calibration_error": None if self.calibration is None else round(self.calibration, 4),
            "tokens_a_call": round((self.prompt_tokens + self.completion_tokens) / max(1, self.calls), 1),
            "tools": {
                tool.tool: {name: value for name, value in asdict(tool).items() if name != "tool"}
                for tool in self.tools
            },
        }


def exactness(calls: Sequence[HeldOutCall], *, threshold: float) -> Exactness:
    """Compute the figures.

    `calls`: in the order asked. `threshold`: minimum confidence of a model's answer.
    """
    supports = _supports(calls)
    by_tool: dict[str, list[int]] = defaultdict(list)
    for place, call in enumerate(calls):
        by_tool[call.tool].append(place)
    tools = tuple(
        _of_tool(tool, [(calls[place], supports[place]) for place in places], threshold)
        for tool, places in sorted(by_tool.items())
    )
    return Exactness(
        tools=tools,
        calibration=_calibration(
            (s, c.model) for c, s in zip(calls, supports, strict=True) if c.composed is None
        ),
        trials=tuple(_trials(calls)),
        prompt_tokens=sum(call.prompt_tokens for call in calls),
        completion_tokens=sum(call.completion_tokens for call in calls),
    )


def _of_tool(tool: str, calls: Sequence[tuple[HeldOutCall, float]], threshold: float) -> ToolExactness:
    exact, answered = dict.fromkeys(WAYS, 0), dict.fromkeys(WAYS, 0)
    opened = right = 0
    for call, support in calls:
        sure = call.model is not None and support >= threshold
        layered = call.composed if call.composed is not None else call.model if sure else None
        for way, outcome in zip(WAYS, (call.recorded, call.composed, call.model, layered), strict=True):
            exact[way] += outcome is True
            answered[way] += outcome is not None
        if call.composed is None and sure:
            opened, right = opened + 1, right + (call.model is True)
    failed = [call for call, _ in calls if call.failed]
    done = sum(call.model is not None and not call.model_failed for call in failed)
    return ToolExactness(tool, len(calls), exact, answered, opened, right, len(failed), done)


def _trials(calls: Iterable[HeldOutCall]) -> list[ReasonedTrial]:
    """Return the trials of calls that code leaves to the model: it is asked no others."""
    return [
        ReasonedTrial(call.form, call.confidence, call.model)
        for call in calls
        if call.model is not None and call.composed is None
    ]


def _supports(calls: Sequence[HeldOutCall]) -> list[float]:
    """Return each call's confidence, learned from the other half of the trials."""
    trials = _trials(calls)
    halves: list[ReasonedSupport] = [learn_support(trials[half::2]) for half in (1, 0)]
    supports, place = [], 0
    for call in calls:
        answered = call.model is not None
        supports.append(halves[place % 2].support(call.form, call.confidence) if answered else 0.0)
        place += answered and call.composed is None
    return supports


def _calibration(answers: Iterable[tuple[float, bool | None]]) -> float | None:
    """Return the expected calibration error in ten equal bins (Naeini et al., AAAI 2015)."""
    bins: dict[int, list[tuple[float, bool]]] = defaultdict(list)
    for support, right in answers:
        if right is not None:
            bins[min(_STEPS - 1, int(support * _STEPS))].append((support, right))
    total = sum(map(len, bins.values()))
    if not total:
        return None
    missed = (abs(sum(support - right for support, right in answered)) for answered in bins.values())
    return sum(missed) / total


@dataclass(frozen=True, slots=True)
class ToolGate:
    """One tool's verdict."""

    verdict: Literal["trust", "watch", "never"]
    right: int
    tried: int
    why: str


@dataclass(frozen=True, slots=True)
class Gate:
    """The result of a model's acceptance check."""

    weights: str  # digest; "" if a server's weights cannot be read
    bound: float
    tools: Mapping[str, ToolGate]
    trials: tuple[ReasonedTrial, ...] = ()

    def may_answer(self, tool: str, *, training: bool) -> bool:
        """Return whether the model may answer calls of a tool."""
        measured = self.tools.get(tool)
        verdict = measured.verdict if measured is not None else WATCH
        return verdict == TRUST or (verdict == WATCH and not training)

    def why_not(self, tool: str) -> str:
        """Return the reason as a sentence."""
        measured = self.tools.get(tool)
        return measured.why if measured is not None else "it was never tried on this tool"


@dataclass(frozen=True, slots=True, kw_only=True)
class _File:
    """The file of an acceptance check, with its figures."""

    gate: int = 1
    weights: str
    bound: float
    tools: Mapping[str, ToolGate]
    trials: tuple[tuple[str, float, bool], ...]
    figures: Mapping[str, JsonValue] = field(default_factory=dict)


_FILES = Codec(_File)


def gate_of(measured: Exactness, *, weights: str, bound: float = 0.9) -> Gate:
    """Judge each tool by the calls that code leaves to the model, with enough confidence."""
    return Gate(weights, bound, {tool.tool: _judged(tool, bound) for tool in measured.tools}, measured.trials)


def _judged(tool: ToolExactness, bound: float) -> ToolGate:
    right, tried = tool.open_right, tool.open
    if not tried:
        return ToolGate(WATCH, right, tried, "no held-out call was left to it that it was sure of")
    _, high = wilson(right, tried)
    why = f"{right} of {tried} held-out answers were right, the bound is {bound:g}"
    if tool.refused >= _FEW_REFUSED and tool.taken_for_done > (1 - bound) * tool.refused:
        wrong = f"it takes {tool.taken_for_done} of {tool.refused} refused calls for done"
        return ToolGate(NEVER, right, tried, wrong)
    if right / tried >= bound and tried >= _ENOUGH:
        return ToolGate(TRUST, right, tried, why)
    if high < bound:
        return ToolGate(NEVER, right, tried, why)
    few = f"{why}; at least {_ENOUGH} are asked for" if tried < _ENOUGH else why
    return ToolGate(WATCH, right, tried, few)


def write_gate(path: Path, gate: Gate, figures: Mapping[str, JsonValue]) -> None:
    """Write the acceptance file with its figures.

    Raises:
        RunDirectoryError: it cannot be written.
    """
    trials = tuple((trial.form, trial.confidence, trial.exact) for trial in gate.trials)
    tools = dict(sorted(gate.tools.items()))
    file = _File(weights=gate.weights, bound=gate.bound, tools=tools, trials=trials, figures=figures)
    write_atomically(path, json.dumps(_FILES.write(file), indent=1, allow_nan=False).encode("ascii") + b"\n")


def read_gate(path: Path, *, weights: str | None = None) -> Gate:
    """Read the acceptance file; `weights`: digest of the current weights, None if unknown.

    Raises:
        UserError: the file is missing, not valid, or of other weights.
    """
    again = "try the model again: dreamgym-kit experience eval"
    try:
        file = _FILES.read(read_json(read_whole(path)))
    except FileNotFoundError:
        raise UserError(f"{path}: there is no such gate; {again}.") from None
    except NotSerializable as error:
        raise UserError(f"{path}: is no gate ({error}); {again}.") from None
    if weights is not None and file.weights != weights:
        raise UserError(f"{path}: is of other weights than those that lie beside it; {again}.")
    return Gate(file.weights, file.bound, file.tools, tuple(ReasonedTrial(*trial) for trial in file.trials))
