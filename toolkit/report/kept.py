"""What a run directory keeps beside its episodes, for whoever counts them again."""

from dreamgym_kit.plain import JsonValue
from dreamgym_kit.report.figures import TrustPoint
from dreamgym_kit.report.jsonform import curve_from_json
from dreamgym_kit.rollout.manifest import MANIFESTS
from dreamgym_kit.rollout.rundir import EVENTS, RunDirectory
from dreamgym_kit.rollout.unaccounted import unaccounted

_AT_THE_END = (
    *(
        "evaluates",
        "gate",
        "not_run",
        "reached",
        "spent",
        "stopped",
        "strays",
        "unaccounted",
        "unaccounted_calls",
        "unmatched",
    ),
    *("reasoned_support", "servers"),
)


def facts_of(directory: RunDirectory) -> dict[str, JsonValue]:
    """The manifest, with what only the end of the run knew: its gate, what was not run, what was refused."""
    facts = MANIFESTS.write(directory.manifest)
    ended = (directory.read_report() or {}).get("manifest")
    if isinstance(ended, dict):
        facts |= {name: ended[name] for name in _AT_THE_END if name in ended}
    elif directory.manifest.matters.get("mode") == "record":  # killed: its log knows what was done or begun
        lost = unaccounted(directory.path / EVENTS, directory.episodes())
        facts |= {"unaccounted": lost.writes, "unaccounted_calls": lost.calls}
    return facts


def curve_of(directory: RunDirectory) -> list[TrustPoint]:
    """What support was worth on held-out recordings, as measured when the run was made."""
    return list(curve_from_json(directory.read_report() or {}))
