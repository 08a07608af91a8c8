"""How an existing graph is pointed at what is deployed: one line that serves it, one that names it."""

import shlex
from dataclasses import dataclass
from pathlib import Path

HOST, PORT = "127.0.0.1", 8000
KEY = "VLLM_API_KEY"  # vLLM asks every caller for what it holds, where it is set


@dataclass(frozen=True, slots=True)
class Pointing:
    """The lines for one shelf; they stay the same whichever version is in use."""

    merged: Path
    name: str  # as the server names the model
    record: str = ""  # the buffer that calls are kept in while it is in use; "": none
    shelf: str = "deployed"

    @property
    def serve(self) -> str:
        """The command that serves it: on this machine alone, behind a key, nothing for development."""
        return f"dreamgym-kit serve --from {shlex.quote(self.shelf)}"

    @property
    def model(self) -> str:
        """The line of code that takes the place of the agent's model."""
        return (
            f'init_chat_model("openai:{self.name}", base_url="http://{HOST}:{PORT}/v1", '
            f'api_key=os.environ["{KEY}"])'
        )

    @property
    def keep(self) -> str:
        """The line around the agent's call that keeps what its tools say, for the next training; or ""."""
        return f"with dreamgym_kit.deployed({self.shelf!r}):" if self.record else ""

    @property
    def lines(self) -> tuple[str, ...]:
        """All of them, in order."""
        return tuple(line for line in (self.serve, self.model, self.keep) if line)
