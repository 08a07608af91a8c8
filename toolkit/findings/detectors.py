"""Collect a run's detectors and run them on episodes; a failed detector becomes a finding.

Detectors are built in, from installed packages (entry points of the group `dreamgym_kit.findings`) and from
settings (`[findings] detectors`). `[findings] off` disables some, by name or for some tools; `on` enables
optional ones.
"""

import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from fnmatch import fnmatchcase
from functools import lru_cache
from importlib.metadata import EntryPoint, distributions
from itertools import chain, islice
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
_MOST = 100  # maximum findings of one detector in one episode
_LONGEST = 400  # maximum characters of a finding

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
        "made_up_argument",  # 11 false alarms in 504 expert episodes (bench findings_foreign)
        "write_before_read",  # only 91 of these episodes test it
        "unasked_destructive",  # these need English text, and none of these episodes has a last message
        "swallowed_error",
        "contradicting_answer",
    }
)
"""Off by default: imprecise, or not measured, on agents of other authors."""

Loader = Callable[[str, str], Detector]
"""Loads the object of a reference; the second argument is the reference's place in the settings."""


@dataclass(frozen=True, slots=True)
class Detectors(RunHook):
    """The detectors of a run, by name: a hook that checks each ended episode."""

    by_name: Mapping[str, Detector]
    silent: Mapping[str, Sequence[str]] = field(default_factory=dict)  # patterns of tools, by detector

    def episode_done(self, case: Case) -> tuple[Finding, ...]:
        """Return all findings of an episode, in order; a failed detector is a finding, too."""
        tools = {step.step: step.call.tool for step in case.steps}
        hits = [
            finding
            for name, detector in self.by_name.items()
            for finding in _run(name, detector, case)
            if not self._is_silent(name, [tools[step] for step in finding.steps if step in tools])
        ]
        return tuple(sorted(hits, key=lambda finding: (finding.steps or (0,))[-1]))

    def _is_silent(self, detector: str, tools: Sequence[str]) -> bool:
        patterns = self.silent.get(detector, ())
        return bool(tools) and all(any(fnmatchcase(tool, each) for each in patterns) for tool in tools)


def detectors_of(settings: Settings, load: Loader) -> Detectors:
    """Collect the detectors of a run.

    Raises:
        UserError: a detector of the settings or of a package cannot be loaded, or `off` has an unknown name.
    """
    detectors = dict(BUILT_IN)
    on_path = reversed(sys.path)  # of one name, the first on the path holds
    for point in chain.from_iterable(_points(folder, _changed(folder)) for folder in on_path):
        try:
            detectors[point.name] = _callable(point.load(), f"entry point {point.name}")
        except UserError:
            raise
        except Exception as error:
            raise UserError(
                f"detector '{point.name}' of an installed package cannot be loaded: {type(error).__name__}: "
                f"{error}; turn it off or fix the package."
            ) from error
    where = settings.where("findings", "detectors")
    for reference in settings.findings.detectors:
        detector = _callable(load(reference, where), f"{where}: detector '{reference}'")
        detectors[reference.rpartition(":")[2]] = detector
    switches = {"on": settings.findings.on, "off": settings.findings.off}
    silent: dict[str, list[str]] = {}
    for switch, names in switches.items():
        for entry in names:
            name, of_a_tool, pattern = entry.partition(":")
            if name not in detectors or (of_a_tool and switch == "on"):
                source = settings.where("findings", switch)
                raise UnknownName("detector", entry, known=detectors, source=source, where="the detectors")
            if of_a_tool:
                silent.setdefault(name, []).append(pattern)
    off = (OPTIONAL - {*settings.findings.on}) | {*settings.findings.off}
    return Detectors({name: check for name, check in detectors.items() if name not in off}, silent)


@lru_cache
def _points(folder: str, _changed: int) -> tuple[EntryPoint, ...]:
    """Return the entry points of a folder's packages; cached, because reading them is slow."""
    return tuple(
        point
        for package in distributions(path=[folder])
        for point in package.entry_points.select(group=ENTRY_POINTS)
    )


def _changed(folder: str) -> int:
    """Return the modification time of a folder."""
    try:
        return Path(folder).stat().st_mtime_ns
    except OSError:
        return 0


def _callable(value: object, where: str) -> Detector:
    if not callable(value):
        raise UserError(f"{where} is of type {type(value).__name__}, not a function")
    return value


def _run(name: str, detector: Detector, case: Case) -> Iterator[Finding]:
    """Run a detector, which may be user code, and turn its errors into findings."""
    findings: list[Finding] = []
    try:
        for finding in islice(detector(case) or (), _MOST + 1):
            findings.append(_checked(finding, case))
    except (Exception, SystemExit) as error:  # noqa: BLE001  named below; the others still look
        message = " ".join(str(error).split())[:200]
        yield Finding(FAILED, f"the detector {name} failed: {type(error).__name__}: {masked(message)}")
    if len(findings) > _MOST:
        findings.pop()
        yield Finding(FAILED, f"the detector {name} found more than {_MOST} findings; the rest is left out")
    yield from findings


def _checked(finding: object, case: Case) -> Finding:
    if not isinstance(finding, Finding):
        raise TypeError(f"it gave {type(finding).__name__} instead of a Finding")
    if not str(finding.kind).strip() or not str(finding.text).strip() or finding.severity not in SEVERITIES:
        raise ValueError(f"a finding needs a kind, a text and a severity of {' or '.join(SEVERITIES)}")
    steps = tuple(finding.steps)
    numbers = {step.step for step in case.steps}
    if not all(type(step) is int and step in numbers for step in steps):
        raise ValueError(f"the steps {list(steps)!a:.60} are not in this episode")
    return replace(finding, text=masked(str(finding.text))[:_LONGEST], steps=steps)
