"""A server from start to stop: its command line and environment for every role, ready, drained, gone.

The key goes by the environment, where no list of processes shows it. Routes that load weights or run code
are opened only where this machine alone can reach them, and only to who has the key. A key that nobody gave
is drawn once and kept in a file that only its owner reads.

In all roles usage tells how much of a prompt came from the prefix cache, no page of another site may read an
answer, and `dreamgym_door` stands before every route. Where the kit itself asks, sampling parameters come
from the request and never from the model's `generation_config.json`, and a block of the prefix cache is 32
tokens, the least that processors and GPUs both take (the default is larger: short prompts are never found).

Ready is `/health` answering 200, which takes minutes with a large model. A server that is asked to go while
it answers leaves its clients hanging, so nothing new is let in first, what runs is waited for, then it is
asked to go, then its whole group is made to.
"""

import json
import os
import re
import secrets
import shutil
import signal
import stat
import subprocess
import tempfile
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from enum import StrEnum
from ipaddress import ip_address
from pathlib import Path

from dreamgym_kit.adapters.models.vllm.looking import (
    ServerMetrics,
    listens,
    look,
    read_metrics,
    read_under_way,
)
from dreamgym_kit.deployment.model_registry import HOST, KEY, PORT
from dreamgym_kit.errors import UserError
from dreamgym_kit.replay.masking import masked
from dreamgym_kit.settings.schema import ServeSettings
from dreamgym_kit.settings.secrets import hold

LOOPBACK = ("localhost", "127.0.0.1", "::1")
DRAINING = "DREAMGYM_DRAINING"  # names a file; while it is there, the door lets nothing new in
_HERE_ONLY = "DREAMGYM_HERE_ONLY"
_DOOR = Path(__file__).parent / "door"
_DEV = {"VLLM_SERVER_DEV_MODE": "1", "VLLM_ALLOW_RUNTIME_LORA_UPDATING": "True"}
_NEVER = (
    "VLLM_ALLOW_INSECURE_SERIALIZATION",  # code that a request brings
    "VLLM_USE_RUST_FRONTEND",  # answers without the door
)
_OURS = {"PYTHONHOME", "PYTHONSTARTUP", "VIRTUAL_ENV", DRAINING, _HERE_ONLY}  # not the server's
_SET_ELSEWHERE = {
    "--api-key": f"lists of processes show it: set {KEY}",
    "--host": "say it to this command: --host",
    "--port": "say it to this command: --port",
    "--served-model-name": "say it to this command: --name",
    "--model": "say it to this command: --model",
    "--middleware": "the door stands there",
    "--allowed-origins": "the kit opens it to no other site",
    "--uds": "the kit watches a port",
    "--config": "its flags could open what is closed; say them here, one by one",
    "--grpc": "no door stands before that port",
    "--grpc-port": "no door stands before that port",
}
_KEY_BYTES = 32
_DRAWN = re.compile(r"[\w-]{43}", re.ASCII)  # so many bytes, as `token_urlsafe` spells them
DOOR = "dreamgym_door.Door"
BLOCK = 32  # tokens of a block of the prefix cache
# Whitespace without end fits any JSON schema; only the server can forbid it, and only where its backend is
# named. Answers: guidance, for xgrammar lets raw control characters into strings. Tools: xgrammar, for
# guidance refuses the grammar of a forced call.
_ANSWERS, _CALLS = (
    json.dumps({"backend": backend, "disable_any_whitespace": True}) for backend in ("guidance", "xgrammar")
)


class Role(StrEnum):
    """What the kit asks a server for."""

    EXPERIENCE = "experience"  # JSON decisions of the dream's model
    POLICY = "policy"  # the model being trained: exact tokens, tools
    DEPLOYED = "deployed"  # what agents use in production


PLAIN = ServeSettings()


def role_flags(role: Role, wanted: ServeSettings = PLAIN) -> list[str]:
    """The flags of a role."""
    flags = ["--enable-prompt-tokens-details", "--allowed-origins", "[]", "--middleware", DOOR]
    if role is not Role.DEPLOYED:  # whose users may count on the model's own sampling
        flags += ["--generation-config", "vllm", "--block-size", str(BLOCK)]
        form = _ANSWERS if role is Role.EXPERIENCE else _CALLS
        flags += ["--structured-outputs-config", form]
    if role is not Role.EXPERIENCE:
        flags += ["--enable-auto-tool-choice", "--tool-call-parser", wanted.tool_parser]
    if role is Role.POLICY:
        flags += ["--logprobs-mode", "processed_logprobs"]  # of the distribution that was sampled from
    if wanted.scale_out:
        flags += ["--enable-scale-out"]
    if wanted.lora_rank:
        flags += ["--enable-lora", "--max-lora-rank", str(wanted.lora_rank), "--max-loras", "2"]
    return flags


@dataclass(frozen=True, slots=True)
class Launch:
    """One server to be started."""

    program: str  # of vLLM, in an environment of its own
    model: str  # a directory, or a name that vLLM knows how to fetch
    name: str  # as requests call it
    role: Role
    host: str = HOST
    port: int = PORT
    wanted: ServeSettings = PLAIN
    more: Sequence[str] = ()  # further flags of vLLM, as they are
    key: str = field(default="", repr=False)  # asked of every caller; "": of nobody

    def __post_init__(self) -> None:
        """Refuse what would be open to others.

        Raises:
            UserError: says what, and what to do.
        """
        dev = self.wanted.dev
        if dev and not is_loopback(self.host):
            raise UserError(
                f"serve: serve.dev on {self.host}: routes that load weights and run code are never opened "
                "beyond this machine; leave serve.dev out, or --host."
            )
        if not self.key and (dev or not is_loopback(self.host)):
            flag = "serve.dev" if dev else f"--host {self.host}"
            raise UserError(
                f"serve: {flag} needs a key; set {KEY} to a secret of your own, here and where it is asked."
            )
        for word in self.more:
            why = _why_not(word.partition("=")[0].replace("_", "-"))
            if why is not None:
                raise UserError(f"serve: {word.partition('=')[0]} is not passed on: {why}.")

    @property
    def url(self) -> str:
        """Where it is asked, without /v1."""
        host = HOST if self.host in ("0.0.0.0", "::") else self.host  # noqa: S104  compared, not bound
        return f"http://{f'[{host}]' if ':' in host else host}:{self.port}"

    def line(self) -> list[str]:
        """The command line."""
        return [
            *(self.program, "serve", self.model, "--served-model-name", self.name),
            *("--host", self.host, "--port", str(self.port)),
            *role_flags(self.role, self.wanted),
            *self.more,
        ]

    def environment(self, environ: Mapping[str, str], *, draining: Path | None = None) -> dict[str, str]:
        """The environment of the server, out of this process's own."""
        closed = {*_DEV, *_NEVER, *_OURS, KEY}
        variables = {name: value for name, value in environ.items() if name not in closed}
        path = [str(_DOOR), *filter(None, [variables.get("PYTHONPATH")])]
        variables |= {"PYTHONPATH": os.pathsep.join(path), "VLLM_NO_USAGE_STATS": "1"}
        if Path(self.model).is_dir():  # nothing is to be fetched
            variables.setdefault("HF_HUB_OFFLINE", "1")
        if self.key:
            variables[KEY] = self.key
        if is_loopback(self.host):
            variables[_HERE_ONLY] = "1"
        if draining is not None:
            variables[DRAINING] = str(draining)
        return variables | (_DEV if self.wanted.dev else {})


def _why_not(flag: str) -> str | None:
    """Return why a flag is not passed to vLLM; its parser accepts abbreviations (--hos: --host)."""
    if not flag.startswith("--") or flag == "--":
        return None
    return next((why for whole, why in _SET_ELSEWHERE.items() if whole.startswith(flag)), None)


def is_loopback(host: str) -> bool:
    """Whether only this machine reaches it."""
    try:
        return host in LOOPBACK or ip_address(host).is_loopback
    except ValueError:
        return False


def find_program(program: str) -> str:
    """The program's path.

    Raises:
        UserError: it is not there; says what to install.
    """
    path = shutil.which(program)
    if path is None:
        raise UserError(
            f"serve: there is no program '{program}'; vLLM has an environment of its own: "
            "python -m venv vllm-env, vllm-env/bin/pip install vllm, then --vllm vllm-env/bin/vllm."
        )
    return str(Path(path).absolute())


@dataclass(frozen=True, slots=True)
class ServingKey:
    """A server's key, and the file that keeps it where it was drawn here."""

    text: str = field(repr=False)
    file: Path | None = None


def read_serving_key(file: Path | None, *, host: str, environ: Mapping[str, str] | None = None) -> ServingKey:
    """The key that callers are asked for: a person's own, or one that is drawn for this machine alone.

    `file`: where a drawn one is kept; None: a person has to give one. `host`: where the server listens.

    Raises:
        UserError: none is set where it has to be, or no header can carry it.
    """
    key = (os.environ if environ is None else environ).get(KEY, "").strip()
    if key and (not key.isascii() or not key.isprintable() or " " in key):
        raise UserError(f"serve: {KEY} holds no key: a key is one word.")
    if key:
        hold(key)
        return ServingKey(key)
    if file is None or not is_loopback(host):
        raise UserError(
            f"serve: {KEY} is not set; set it to a secret of your own, here and where the agent runs: the "
            "server asks every caller for it."
        )
    drawn = _read_or_draw_key(file)
    hold(drawn)
    return ServingKey(drawn, file)


def _read_or_draw_key(path: Path) -> str:
    """The key in that file, which is made where it is not there.

    Raises:
        UserError: others can read or write it, or it cannot be made.
    """
    try:
        path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
        descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
    except FileExistsError:
        return _read_key(path)
    except OSError as error:
        raise UserError(f"{path}: a key cannot be kept there ({error.strerror}); set VLLM_API_KEY.") from None
    key = secrets.token_urlsafe(_KEY_BYTES)
    with os.fdopen(descriptor, "w", encoding="ascii") as file:
        file.write(key)
    return key


def _read_key(path: Path) -> str:
    try:
        status = path.lstat()
        key = path.read_text("ascii").strip()
    except (OSError, UnicodeDecodeError):
        raise UserError(f"{path}: holds no key that can be read; delete it, or set VLLM_API_KEY.") from None
    others = stat.S_IMODE(status.st_mode) & 0o077
    if not stat.S_ISREG(status.st_mode) or others or status.st_uid != os.getuid() or not key:
        raise UserError(
            f"{path}: a key that others could have written or read; delete it, a new one is drawn."
        )
    if not _DRAWN.fullmatch(key):
        raise UserError(
            f"{path}: no key that was drawn here; name another file with --log, or set VLLM_API_KEY."
        )
    return key


READY_S = 1800.0
DRAIN_S = 120.0
GRACE_S = 15.0
_POLL_S = 0.25
_END_POLL_S = 0.1
_LAST_LINES = 20
UNDER_WAY = "/dreamgym/under-way"  # answered by the door
_QUIET = 2  # looks in a row that find nothing under way

Tell = Callable[[float, str], None]
"""Called with the seconds since the start and the server's last log line."""


class ServerProcess:
    """A started server: processes that are logged and ended as one, by `end`.

    A signal to this process's own group does not reach them.

    `log`: where their words go; appended to, readable by its owner only.
    """

    def __init__(self, line: Sequence[str], environment: Mapping[str, str], log: Path) -> None:
        self.log = log
        try:
            log.parent.mkdir(parents=True, exist_ok=True)
            descriptor = os.open(log, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
        except OSError as error:
            raise UserError(
                f"{log}: cannot be written ({error.strerror}); name another with --log."
            ) from None
        self._from = os.fstat(descriptor).st_size
        try:
            self._started = subprocess.Popen(  # noqa: S603  the program that a person named
                line,
                env=dict(environment),
                stdin=subprocess.DEVNULL,
                stdout=descriptor,
                stderr=descriptor,
                start_new_session=True,
            )
        except OSError as error:
            raise UserError(f"{line[0]}: cannot be run ({error.strerror}).") from None
        finally:
            os.close(descriptor)

    @property
    def pid(self) -> int:
        """Of the first process, which is the group's name too."""
        return self._started.pid

    @property
    def code(self) -> int | None:
        """How it ended; None while it runs."""
        return self._started.poll()

    def last_lines(self, most: int = _LAST_LINES) -> list[str]:
        """The last lines of its log, since this start."""
        with suppress(OSError), self.log.open("rb") as log:
            size = log.seek(0, os.SEEK_END)
            log.seek(max(self._from, size - 200 * most))
            lines = log.read().decode("utf-8", "replace").splitlines()
            return [line.rstrip() for line in lines if line.strip()][-most:]
        return []

    def wait(self, within_s: float) -> bool:
        """Whether it ends within that time."""
        until = time.monotonic() + within_s
        while self.code is None and time.monotonic() < until:
            time.sleep(_END_POLL_S)
        return self.code is not None

    def end(self, grace_s: float) -> bool:
        """Ask it to go, then make the whole group go; whether asking was enough (0 s: it is not asked)."""
        if grace_s > 0 and self.code is None:
            self._started.terminate()
        gone = self.wait(grace_s)
        self.kill_group()
        self._started.wait()
        return gone

    def kill_group(self) -> None:
        """Make all of it go, also what the first process left behind; returns at once."""
        with suppress(ProcessLookupError, PermissionError):
            os.killpg(self.pid, signal.SIGKILL)


@dataclass(frozen=True, slots=True)
class ServerStop:
    """How a stop went."""

    left: int  # requests that were cut off
    gracefully: bool  # it went when it was asked to


class VllmServer:
    """One running server."""

    def __init__(self, launch: Launch, log: Path, *, environ: Mapping[str, str] | None = None) -> None:
        self.launch = launch
        if listens(launch.url):  # its words would be taken for the new server's
            raise UserError(
                f"serve: something answers at {launch.url} already; stop it, or name another --port."
            )
        self._folder = tempfile.TemporaryDirectory(prefix="dreamgym-serve-")
        self._draining = Path(self._folder.name) / "draining"
        environment = launch.environment(os.environ if environ is None else environ, draining=self._draining)
        self._started = time.monotonic()
        self.process = ServerProcess(launch.line(), environment, log)

    def wait_ready(self, *, within_s: float = READY_S, tell: Tell = lambda *_: None) -> None:
        """Wait until it answers.

        Raises:
            UserError: it ended before, or did not get ready in time; with the last lines of its log.
        """
        while True:
            if self.process.code is not None:
                raise UserError(self.failure(f"vLLM ended with code {self.process.code} before it was ready"))
            if look(self.launch.url, "/health").status == 200:
                return
            seconds = time.monotonic() - self._started
            if seconds > within_s:
                raise UserError(self.failure(f"vLLM was not ready within {within_s:g} s"))
            tell(seconds, next(iter(self.process.last_lines(1)), ""))
            time.sleep(_POLL_S)

    def metrics(self) -> ServerMetrics | None:
        """What it counts; None where it does not say."""
        seen = look(self.launch.url, "/metrics", key=self.launch.key)
        return read_metrics(seen.text) if seen.status == 200 else None

    def under_way(self) -> int | None:
        """How many requests it has let in and not answered; None where it does not say.

        The door counts what it let into its own process, the page what all engines have taken up.
        """
        seen = look(self.launch.url, UNDER_WAY, key=self.launch.key)
        counted, page = read_under_way(seen.text) if seen.status == 200 else None, self.metrics()
        if counted is None or page is None:
            return None
        return max(counted, page.running + page.waiting)

    def close_door(self) -> None:
        """Let nothing new in from here on."""
        self._draining.touch()

    def drain(self, within_s: float = DRAIN_S) -> int:
        """Let nothing new in and wait for what runs; how many requests were left when time was up."""
        self.close_door()
        until, quiet, left = time.monotonic() + within_s, 0, 0
        while self.process.code is None:
            now = self.under_way()
            if now is not None:
                left = now
                quiet = 0 if left else quiet + 1
            if quiet >= _QUIET:
                return 0
            if time.monotonic() >= until:
                return left
            time.sleep(_POLL_S)
        return 0

    def stop(self, *, drain_s: float = DRAIN_S, grace_s: float = GRACE_S) -> ServerStop:
        """Drain, then end the whole group; interrupted, it is ended at once. Twice does no harm."""
        try:
            left = self.drain(drain_s) if self.process.code is None else 0
            gracefully = self.process.end(grace_s)
        finally:
            self.kill()
        return ServerStop(left, gracefully)

    def kill(self) -> None:
        """End the whole group at once."""
        self.process.end(0.0)
        with suppress(OSError):
            self._folder.cleanup()

    def failure(self, problem: str) -> str:
        """What went wrong, with the last lines of the log."""
        lines = "\n".join(f"  {masked(line)}" for line in self.process.last_lines())
        ending = f"; the end of {self.process.log}:\n{lines}" if lines else f"; {self.process.log} is empty"
        return f"serve: {problem}{ending}"
