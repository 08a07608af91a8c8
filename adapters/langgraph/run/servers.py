"""Which of the servers that settings name a run asks, and so looks at while it goes on."""

from contextlib import AbstractAsyncContextManager

from dreamgym_kit.adapters.langgraph.run.llm_experience import is_vllm
from dreamgym_kit.adapters.models.named_models import learned_of
from dreamgym_kit.adapters.models.vllm.watching import ServerWatch, watched
from dreamgym_kit.interfaces import ChatEndpoint
from dreamgym_kit.routing.router import Mode
from dreamgym_kit.settings.schema import Settings


def servers_watched(
    settings: Settings, mode: Mode, *, chat: ChatEndpoint | None, policy: bool
) -> AbstractAsyncContextManager[ServerWatch]:
    """`watched`, of the servers that are vLLM's and that a run asks; nobody else is looked at.

    Args:
        settings: name them.
        mode: of the run; only a dream asks a learned experience model.
        chat: the dream's own model, where it has one.
        policy: whether a policy of the settings acts.
    """
    learned = mode is Mode.DREAM and learned_of(settings) is not None
    sections = ["experience"] if learned or is_vllm(chat) else []
    sections += ["policy"] if policy else []
    return watched(settings, sections)
