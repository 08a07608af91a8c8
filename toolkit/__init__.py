"""Dry-run, record, evaluate and train LangGraph agents in dreams. No real tool runs in a dream."""

from importlib import import_module
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from dreamgym_kit.adapters.langgraph.api import arecord as arecord
    from dreamgym_kit.adapters.langgraph.api import asimulate as asimulate
    from dreamgym_kit.adapters.langgraph.api import dreaming as dreaming
    from dreamgym_kit.adapters.langgraph.api import record as record
    from dreamgym_kit.adapters.langgraph.api import recording as recording
    from dreamgym_kit.adapters.langgraph.api import simulate as simulate
    from dreamgym_kit.adapters.langgraph.deploying import deploy as deploy
    from dreamgym_kit.adapters.langgraph.evaluating import aevaluate as aevaluate
    from dreamgym_kit.adapters.langgraph.evaluating import evaluate as evaluate
    from dreamgym_kit.adapters.langgraph.in_use import deployed as deployed
    from dreamgym_kit.adapters.langgraph.s2r_api import sim_to_real as sim_to_real
    from dreamgym_kit.adapters.langgraph.staging import staging as staging
    from dreamgym_kit.adapters.langgraph.training_api import train as train
    from dreamgym_kit.gate.effects import effect as effect
    from dreamgym_kit.vocabulary import Answer as Answer
    from dreamgym_kit.vocabulary import Effect as Effect
    from dreamgym_kit.vocabulary import Episode as Episode
    from dreamgym_kit.vocabulary import Task as Task
    from dreamgym_kit.vocabulary import Verdict as Verdict
    from dreamgym_kit.vocabulary import World as World

_PUBLIC = {
    "Answer": "dreamgym_kit.vocabulary",
    "Effect": "dreamgym_kit.vocabulary",
    "Episode": "dreamgym_kit.vocabulary",
    "Task": "dreamgym_kit.vocabulary",
    "Verdict": "dreamgym_kit.vocabulary",
    "World": "dreamgym_kit.vocabulary",
    "aevaluate": "dreamgym_kit.adapters.langgraph.evaluating",
    "arecord": "dreamgym_kit.adapters.langgraph.api",
    "asimulate": "dreamgym_kit.adapters.langgraph.api",
    "deploy": "dreamgym_kit.adapters.langgraph.deploying",
    "deployed": "dreamgym_kit.adapters.langgraph.in_use",
    "dreaming": "dreamgym_kit.adapters.langgraph.api",
    "effect": "dreamgym_kit.gate.effects",
    "evaluate": "dreamgym_kit.adapters.langgraph.evaluating",
    "record": "dreamgym_kit.adapters.langgraph.api",
    "recording": "dreamgym_kit.adapters.langgraph.api",
    "sim_to_real": "dreamgym_kit.adapters.langgraph.s2r_api",
    "simulate": "dreamgym_kit.adapters.langgraph.api",
    "staging": "dreamgym_kit.adapters.langgraph.staging",
    "train": "dreamgym_kit.adapters.langgraph.training_api",
}
__all__ = sorted(_PUBLIC)


def __getattr__(name: str) -> object:
    """Import a public name on first use, so that `import dreamgym_kit` stays cheap."""
    if name not in _PUBLIC:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(_PUBLIC[name]), name)


def __dir__() -> list[str]:
    return __all__
