"""Dry-run, record, evaluate and train LangGraph agents in dreams. No real tool runs in a dream."""

from importlib import import_module
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from dreamgym_kit.adapters.langgraph.deploy import deploy as deploy
    from dreamgym_kit.adapters.langgraph.deploy import deployed as deployed
    from dreamgym_kit.adapters.langgraph.run.api import arecord as arecord
    from dreamgym_kit.adapters.langgraph.run.api import asimulate as asimulate
    from dreamgym_kit.adapters.langgraph.run.api import dreaming as dreaming
    from dreamgym_kit.adapters.langgraph.run.api import record as record
    from dreamgym_kit.adapters.langgraph.run.api import recording as recording
    from dreamgym_kit.adapters.langgraph.run.api import simulate as simulate
    from dreamgym_kit.adapters.langgraph.run.evaluation import aevaluate as aevaluate
    from dreamgym_kit.adapters.langgraph.run.evaluation import evaluate as evaluate
    from dreamgym_kit.adapters.langgraph.s2r.s2r_run import s2r as s2r
    from dreamgym_kit.adapters.langgraph.s2r.supervisor import supervised as supervised
    from dreamgym_kit.adapters.langgraph.training.train import train as train
    from dreamgym_kit.routing.effects import effect as effect
    from dreamgym_kit.types import Answer as Answer
    from dreamgym_kit.types import Effect as Effect
    from dreamgym_kit.types import Environment as Environment
    from dreamgym_kit.types import Episode as Episode
    from dreamgym_kit.types import Task as Task
    from dreamgym_kit.types import Verdict as Verdict

_MODULES = {
    "adapters.langgraph.deploy": "deploy deployed",
    "adapters.langgraph.run.api": "arecord asimulate dreaming record recording simulate",
    "adapters.langgraph.run.evaluation": "aevaluate evaluate",
    "adapters.langgraph.s2r.s2r_run": "s2r",
    "adapters.langgraph.s2r.supervisor": "supervised",
    "adapters.langgraph.training.train": "train",
    "routing.effects": "effect",
    "types": "Answer Effect Environment Episode Task Verdict",
}
_PUBLIC = {name: f"{__name__}.{module}" for module, names in _MODULES.items() for name in names.split()}
__all__ = sorted(_PUBLIC)


def __getattr__(name: str) -> object:
    """Import a public name on first use, so that `import dreamgym_kit` stays cheap."""
    if name not in _PUBLIC:
        raise import_module("dreamgym_kit.errors").unknown_name(__name__, name)
    return getattr(import_module(_PUBLIC[name]), name)


def __dir__() -> list[str]:
    return __all__
