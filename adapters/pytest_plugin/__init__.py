"""Dreams in pytest: the `dream` fixture, its assertions and its cassettes. `plugin` is what pytest loads.

For type hints and for `order`: `from dreamgym_kit.adapters.pytest_plugin import Dream, DreamedEpisode, call`.
"""

from importlib import import_module
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from dreamgym_kit.adapters.pytest_plugin.dream import Dream as Dream
    from dreamgym_kit.adapters.pytest_plugin.episode import DreamedEpisode as DreamedEpisode
    from dreamgym_kit.adapters.pytest_plugin.episode import Step as Step
    from dreamgym_kit.adapters.pytest_plugin.episode import call as call
    from dreamgym_kit.adapters.pytest_plugin.fixture_scope import DreamWarning as DreamWarning

_PUBLIC = {
    "Dream": "dream",
    "DreamWarning": "fixture_scope",
    "DreamedEpisode": "episode",
    "Step": "episode",
    "call": "episode",
}
__all__ = sorted(_PUBLIC)


def __getattr__(name: str) -> object:
    """Import a public name on first use: pytest loads this package in every session."""
    if name not in _PUBLIC:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(f"{__name__}.{_PUBLIC[name]}"), name)
