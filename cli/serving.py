"""A server that a terminal watches: said when it is ready, drained at Ctrl-C, ended at a second one."""

import json
import shlex
import signal
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

from dreamgym_kit.cli.output import say, tell
from dreamgym_kit.errors import UserError
from dreamgym_kit.report.sanitize import one_line

if TYPE_CHECKING:
    from types import FrameType

    from dreamgym_kit.adapters.models.vllm.launch import Launch
    from dreamgym_kit.adapters.models.vllm.server import VllmServer

_EVERY_S = 10.0  # between words on a server that starts
_LOOK_S = 0.5


class _Asked(BaseException):
    """Somebody wants the server to go."""

    def __init__(self, number: int) -> None:
        self.number = number


def watch(launch: "Launch", log: Path, key: Path | None, *, within_s: float) -> int:
    """Start it, wait until it ends or somebody ends it; the exit code.

    Raises:
        UserError: it did not get ready, or ended by itself.
    """
    from dreamgym_kit.adapters.models.vllm.server import VllmServer

    with _signals() as ears:
        server = VllmServer(launch, log)
        ready = False
        try:
            ears.open()
            tell(f"starting vLLM (process {server.process.pid}); its words: {log}")
            server.wait_ready(within_s=within_s, tell=_Progress())
            ready = True
            say(_format_settings(launch, key))
            while not server.process.wait(_LOOK_S):
                pass
            raise UserError(server.failure(f"vLLM ended by itself with code {server.process.code}"))
        except _Asked as signalled:
            return _stopped(server, signalled, ears, drain=ready)
        finally:
            ears.shut()
            server.kill()


def _stopped(server: "VllmServer", signalled: _Asked, ears: "_Ears", *, drain: bool) -> int:
    if drain:
        server.close_door()
        tell("stopping: nothing new is let in; waiting for what is under way; once more ends it at once")
        try:
            ears.open()
            stopped = server.stop()
        except _Asked as again:
            tell("ended at once")
            return 128 + again.number
        left = "" if stopped.drained else f"; {stopped.left} requests were cut off"
        tell(f"stopped{left}")
    return 128 + signalled.number


class _Progress:
    """Now and then, what the server says while it starts."""

    def __init__(self) -> None:
        self._next = 0.0

    def __call__(self, seconds: float, word: str) -> None:
        from dreamgym_kit.replay.masking import masked_text

        if seconds >= self._next:
            self._next = seconds + _EVERY_S
            tell(f"{seconds:4.0f} s  {one_line(masked_text(word))[:90]}")


def _format_settings(launch: "Launch", key: Path | None) -> str:
    """What goes into dreamgym.toml, and where the key is."""
    from dreamgym_kit.deployment.card import KEY

    lines = [
        f"ready: '{launch.name}' at {launch.url}/v1",
        "",
        f"[{'policy' if launch.role == 'policy' else 'experience'}]",
    ]
    decides = (Path(launch.model) / "learned.json").is_file()  # brings its words along
    lines += [f"dir = {_quoted(launch.model)}"] if decides else []
    name = "served_name" if decides else "model"
    lines += [f'urls = ["{launch.url}/v1"]', f"{name} = {_quoted(launch.name)}"]
    lines += [f'key_env = "{KEY}"'] if launch.key else []
    if key is not None:
        lines += ["", f"export {KEY}=$(cat {shlex.quote(str(key))})"]
    return "\n".join([*lines, ""])


def _quoted(text: str) -> str:

    return json.dumps(text, ensure_ascii=False)


class _Ears:
    """Hears the next signal only when opened for it: none breaks into a start or an end.

    What comes while they are shut is heard when they are opened.
    """

    def __init__(self) -> None:
        self._open, self._heard, self.stopping = False, 0, False

    def open(self) -> None:
        """Raise `_Asked` at the next signal, or at once."""
        self._open = True
        if self._heard:
            self.heard(self._heard)

    def shut(self) -> None:
        """Only remember."""
        self._open = False

    def heard(self, number: int, frame: "FrameType | None" = None) -> None:  # noqa: ARG002
        """A signal came."""
        self._heard, self.stopping = number, True
        if self._open:
            self._open, self._heard = False, 0
            raise _Asked(number)


@contextmanager
def _signals() -> Iterator[_Ears]:
    """Ctrl-C, a terminal that closes and a polite kill all ask for the same.

    Once asked, this process ends: what comes then is not heard any more, or it would end it in mid-word.
    """
    ears = _Ears()
    kinds = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
    heard = [kind for kind in kinds if signal.getsignal(kind) is not signal.SIG_IGN]  # `nohup`: as was asked
    before = {number: signal.signal(number, ears.heard) for number in heard}
    try:
        yield ears
    finally:
        for number, handler in before.items():
            signal.signal(number, signal.SIG_IGN if ears.stopping else handler)
