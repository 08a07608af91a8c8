"""The system prompts that an agent's models are given: the policy that its calls are held against.

Most ways of building an agent put the prompt before the model and not into the graph's messages, so the
transcript lacks it. Kept for the episode only, never written down.
"""

import threading

from langchain_core.messages import BaseMessage

_MOST = 64_000  # characters


class SystemPrompts:
    """The system messages of one episode, each text once."""

    def __init__(self) -> None:
        self._texts: dict[str, None] = {}  # in the order heard
        self._room = _MOST
        self._lock = threading.Lock()

    @property
    def text(self) -> str:
        """All that was heard, one below the other."""
        return "\n".join(self._texts)

    def take(self, messages: list[list[BaseMessage]]) -> None:
        """Take in what a model is about to read."""
        for message in (message for batch in messages for message in batch):
            if message.type != "system":
                continue
            text = str(message.text)[: self._room]
            with self._lock:
                if text and text not in self._texts:
                    self._texts[text] = None
                    self._room -= len(text)
