"""Which detectors look at an episode, and what becomes of one that fails: it is named, nothing is lost.

Built in, from installed packages (entry points of the group `dreamgym_kit.findings`) and from settings
(`[findings] detectors`). `[findings] off` leaves some out, by name or for some tools; `on` takes in optional
ones.
"""

import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from fnmatch import fnmatchcase
from functools import lru_cache
from importlib.metadata import EntryPoint, entry_points
from itertools import islice
from pathlib import Path

from dreamgym_kit.errors import UnknownName, UserError
from dreamgym_kit.findings.case import Case, Detector
from dreamgym_kit.findings.dialog import (
    contradicting_answer,
    swallowed_error,
    unasked_destructive,
    write_after_refusal,
)
from dreamgym_kit.findings.writes import (
    destructive_by_argument,
    loop,
    made_up_argument,
    repeated_write,
    write_before_read,
)
from dreamgym_kit.interfaces import RunHook
from dreamgym_kit.replay.masking import masked
from dreamgym_kit.settings.schema import Settings
from dreamgym_kit.types import Finding

ENTRY_POINTS = "dreamgym_kit.findings"
FAILED = "detector_failed"
SEVERITIES = ("warning", "critical")
_MOST = 100  # findings of one detector in one episode
_LONGEST = 400  # characters of a sentence

BUILT_IN: Mapping[str, Detector] = {
    detector.__name__: detector
    for detector in (
        repeated_write,
        write_after_refusal,
        destructive_by_argument,
        loop,
        made_up_argument,
        write_before_read,
        unasked_destructive,
        swallowed_error,
        contradicting_answer,
    )
}
OPTIONAL = frozenset(
    {
        "made_up_argument",  # 11 alarms on 504 expert episodes of public suites (bench findings_foreign)
        "write_before_read",  # 91 such episodes could have told
        "unasked_destructive",  # these rest on English words, and none of the episodes has a last word
        "swallowed_error",
        "contradicting_answer",
    }
)
"""Off unless settings name them: not right, or not measured, on agents that were not written here."""

Loader = Callable[[str, str], Detector]
"""Loads what a reference of the settings names; the second argument is where it stands."""


@dataclass(frozen=True, slots=True)
class Detectors(RunHook):
    """The detectors of a run, by name: a hook that looks at each ended episode."""

    known: Mapping[str, Detector]
    silent: Mapping[str, Sequence[str]] = field(default_factory=dict)  # by detector: patterns of tools

    def episode_done(self, case: Case) -> tuple[Finding, ...]:
        """Everything that they find in an episode, in its order; one that fails is a finding too."""
        tools = {step.step: step.call.tool for step in case.steps}
        hits = [
            finding
            for name, detector in self.known.items()
            for finding in _run(name, detector, case)
            if not self._is_silent(name, [tools[step] for step in finding.steps if step in tools])
        ]
        return tuple(sorted(hits, key=lambda finding: (finding.steps or (0,))[-1]))

    def _is_silent(self, detector: str, tools: Sequence[str]) -> bool:
        patterns = self.silent.get(detector, ())
        return bool(tools) and all(any(fnmatchcase(tool, each) for each in patterns) for tool in tools)


DEFAULT = Detectors({name: detector for name, detector in BUILT_IN.items() if name not in OPTIONAL})


def detectors_of(settings: Settings, load: Loader) -> Detectors:
    """Collect the detectors that hold for a run.

    Raises:
        UserError: a detector of the settings or of a package cannot be loaded, or `off` names none.
    """
    known = dict(BUILT_IN)
    for point in _points(tuple((folder, _changed(folder)) for folder in sys.path)):
        try:
            known[point.name] = _callable(point.load(), f"entry point {point.name}")
        except UserError:
            raise
        except Exception as error:
            raise UserError(
                f"detector '{point.name}' of an installed package cannot be loaded: {type(error).__name__}: "
                f"{error}; turn it off or mend the package."
            ) from error
    where = settings.where("findings", "detectors")
    for reference in settings.findings.detectors:
        detector = _callable(load(reference, where), f"{where}: detector '{reference}'")
        known[reference.rpartition(":")[2]] = detector
    switches = {"on": settings.findings.on, "off": settings.findings.off}
    silent: dict[str, list[str]] = {}
    for switch, names in switches.items():
        for entry in names:
            name, of_a_tool, pattern = entry.partition(":")
            if name not in known or (of_a_tool and switch == "on"):
                source = settings.where("findings", switch)
                raise UnknownName("detector", entry, known=known, source=source, where="the detectors")
            if of_a_tool:
                silent.setdefault(name, []).append(pattern)
    off = (OPTIONAL - {*settings.findings.on}) | {*settings.findings.off}
    return Detectors({name: check for name, check in known.items() if name not in off}, silent)


@lru_cache(maxsize=1)
def _points(_: tuple[tuple[str, int], ...]) -> tuple[EntryPoint, ...]:
    """The entry points of installed packages, which lie in these folders: reading all of them takes long."""
    return tuple(entry_points(group=ENTRY_POINTS))


def _changed(folder: str) -> int:
    """When something was last put into a folder, or taken out of it."""
    try:
        return Path(folder).stat().st_mtime_ns
    except OSError:
        return 0


def _callable(value: object, where: str) -> Detector:
    if not callable(value):
        raise UserError(f"{where} is of type {type(value).__name__}, not a function")
    return value


def _run(name: str, detector: Detector, case: Case) -> Iterator[Finding]:
    """The boundary: a detector is anybody's code."""
    findings: list[Finding] = []
    try:
        for finding in islice(detector(case) or (), _MOST + 1):
            findings.append(_checked(finding, case))
    except (Exception, SystemExit) as error:  # noqa: BLE001  named below; the others still look
        message = " ".join(str(error).split())[:200]
        yield Finding(FAILED, f"the detector {name} failed: {type(error).__name__}: {masked(message)}")
    if len(findings) > _MOST:
        findings.pop()
        yield Finding(FAILED, f"the detector {name} found more than {_MOST} things; the rest is left out")
    yield from findings


def _checked(finding: object, case: Case) -> Finding:
    if not isinstance(finding, Finding):
        raise TypeError(f"it gave {type(finding).__name__} instead of a Finding")
    if not str(finding.kind).strip() or not str(finding.text).strip() or finding.severity not in SEVERITIES:
        raise ValueError(f"a finding wants a kind, a text and a severity of {' or '.join(SEVERITIES)}")
    steps = tuple(finding.steps)
    known = {step.step for step in case.steps}
    if not all(type(step) is int and step in known for step in steps):
        raise ValueError(f"the steps {list(steps)!a:.60} are none of this episode's")
    return replace(finding, text=masked(str(finding.text))[:_LONGEST], steps=steps)
