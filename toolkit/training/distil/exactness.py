"""Held-out calls put to each way of answering: how often the answer is the recorded one, tool by tool.

    recorded  only repeats this very call in this very state
    composed  state and rules: recorded, composed, analogous, as a dream without a model
    model     the model alone, as code settles what it decides
    layered   code where it is sure enough, else the model where it is

Exact means equal in all that the agent sees, up to ids that the tool makes up. What is not answered is not
exact. The support that decides in `layered` is learned from the other half of the model's own trials.
"""

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from dreamgym_kit.dream.reasoned_support import ReasonedSupport, ReasonedTrial, learn_support
from dreamgym_kit.plain import JsonValue

WAYS = ("recorded", "composed", "model", "layered")
_STEPS = 10  # of the calibration error


@dataclass(frozen=True, slots=True)
class HeldOutCall:
    """What became of one held-out call."""

    tool: str
    failed: bool  # as recorded
    recorded: bool | None = None  # exact? None: no answer
    composed: bool | None = None
    model: bool | None = None
    model_failed: bool = False  # the model said that the tool fails
    form: str = "whole"  # of the model's decision, and its own confidence
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
    open: int  # calls that code leaves to the model, and that it answers surely enough
    open_right: int
    refused: int  # of all calls, as recorded
    taken_for_done: int  # of those, where the model says that it was done


@dataclass(frozen=True, slots=True)
class Exactness:
    """All figures."""

    tools: tuple[ToolExactness, ...]
    calibration: float | None  # expected error of its support on calls left to it; None: it answered none
    trials: tuple[ReasonedTrial, ...]  # of calls that code leaves open
    prompt_tokens: int
    completion_tokens: int

    @property
    def calls(self) -> int:
        """Held-out calls."""
        return sum(tool.calls for tool in self.tools)

    def share(self, way: str) -> float:
        """0..1 of all calls that this way answers exactly."""
        return sum(tool.exact[way] for tool in self.tools) / max(1, self.calls)

    def to_json(self) -> dict[str, JsonValue]:
        """For the report and the gate's file."""
        return {
            "calls": self.calls,
            **{f"exact_{way}": round(self.share(way), 4) for way in WAYS},
            "calibration_error": None if self.calibration is None else round(self.calibration, 4),
            "tokens_a_call": round((self.prompt_tokens + self.completion_tokens) / max(1, self.calls), 1),
            "tools": {
                tool.tool: {
                    "calls": tool.calls,
                    "exact": dict(tool.exact),
                    "answered": dict(tool.answered),
                    "open": tool.open,
                    "open_right": tool.open_right,
                    "refused": tool.refused,
                    "taken_for_done": tool.taken_for_done,
                }
                for tool in self.tools
            },
        }


def exactness(calls: Sequence[HeldOutCall], *, threshold: float) -> Exactness:
    """Put figures together.

    Args:
        calls: in the order asked.
        threshold: support from which a model's answer is taken.
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
        found = {
            "recorded": call.recorded,
            "composed": call.composed,
            "model": call.model,
            "layered": layered,
        }
        for way, outcome in found.items():
            exact[way] += outcome is True
            answered[way] += outcome is not None
        if call.composed is None and sure:
            opened, right = opened + 1, right + (call.model is True)
    failed = [call for call, _ in calls if call.failed]
    done = sum(call.model is not None and not call.model_failed for call in failed)
    return ToolExactness(tool, len(calls), exact, answered, opened, right, len(failed), done)


def _trials(calls: Iterable[HeldOutCall]) -> list[ReasonedTrial]:
    """Of the calls that code leaves open: others are never put to the model."""
    return [
        ReasonedTrial(call.form, call.confidence, call.model)
        for call in calls
        if call.model is not None and call.composed is None
    ]


def _supports(calls: Sequence[HeldOutCall]) -> list[float]:
    """Each call's support, learned from the other half of the trials."""
    trials = _trials(calls)
    halves: list[ReasonedSupport] = [learn_support(trials[half::2]) for half in (1, 0)]
    found, place = [], 0
    for call in calls:
        answered = call.model is not None
        found.append(halves[place % 2].support(call.form, call.confidence) if answered else 0.0)
        place += answered and call.composed is None
    return found


def _calibration(answers: Iterable[tuple[float, bool | None]]) -> float | None:
    """Expected calibration error in ten equal steps (Naeini et al., AAAI 2015)."""
    bins: dict[int, list[tuple[float, bool]]] = defaultdict(list)
    for support, right in answers:
        if right is not None:
            bins[min(_STEPS - 1, int(support * _STEPS))].append((support, right))
    total = sum(map(len, bins.values()))
    if not total:
        return None
    return (
        sum(
            abs(sum(support for support, _ in ones) - sum(right for _, right in ones))
            for ones in bins.values()
        )
        / total
    )
