"""How a server is started: its command line and its environment, for every role, and what is refused.

The key goes by the environment, where no list of processes shows it. Routes that load weights or run code
are opened only where this machine alone can reach them, and only to who has the key. A key that nobody gave
is drawn once and kept in a file that only its owner reads.

In all roles usage tells how much of a prompt came from the prefix cache, no page of another site may read an
answer, and `dreamgym_door` stands before every route. Where the kit itself asks, sampling parameters come
from the request and never from the model's `generation_config.json`, and a block of the prefix cache is 32
tokens, the least that processors and GPUs both take (the default is larger: short prompts are never found).
"""

import json
import os
import re
import secrets
import shutil
import stat
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from ipaddress import ip_address
from pathlib import Path

from dreamgym_kit.deployment.model_registry import HOST, KEY, PORT
from dreamgym_kit.errors import UserError
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
_SAID_ELSEWHERE = {
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
    """Why vLLM does not get a flag; its parser takes the beginning of one for all of it (--hos: --host)."""
    if not flag.startswith("--") or flag == "--":
        return None
    return next((why for whole, why in _SAID_ELSEWHERE.items() if whole.startswith(flag)), None)


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
