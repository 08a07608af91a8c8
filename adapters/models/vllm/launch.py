"""How a server is started: its command line and its environment, for every role, and what is refused.

The key goes by the environment, where no list of processes shows it. Routes that load weights or run code
are opened only where this machine alone can reach them, and only to who has the key.
"""

import os
import shutil
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from ipaddress import ip_address
from pathlib import Path

from dreamgym_kit.adapters.models.vllm.keyfile import kept_key
from dreamgym_kit.adapters.models.vllm.roles import PLAIN, Role, Wanted, flags_of
from dreamgym_kit.deployment.pointing import HOST, KEY, PORT
from dreamgym_kit.errors import UserError
from dreamgym_kit.settings.keys import hold

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


@dataclass(frozen=True, slots=True)
class Launch:
    """One server to be started."""

    program: str  # of vLLM, in an environment of its own
    model: str  # a directory, or a name that vLLM knows how to fetch
    name: str  # as requests call it
    role: Role
    host: str = HOST
    port: int = PORT
    dev: bool = False  # open the routes that change weights
    wanted: Wanted = PLAIN
    more: Sequence[str] = ()  # further flags of vLLM, as they are
    key: str = field(default="", repr=False)  # asked of every caller; "": of nobody

    def __post_init__(self) -> None:
        """Refuse what would be open to others.

        Raises:
            UserError: says what, and what to do.
        """
        if self.dev and not is_loopback(self.host):
            raise UserError(
                f"serve: --dev on {self.host}: routes that load weights and run code are never opened beyond "
                "this machine; leave --dev out, or --host."
            )
        if not self.key and (self.dev or not is_loopback(self.host)):
            what = "--dev" if self.dev else f"--host {self.host}"
            raise UserError(
                f"serve: {what} needs a key; set {KEY} to a secret of your own, here and where it is asked."
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
            *flags_of(self.role, self.wanted),
            *self.more,
        ]

    def environment(self, environ: Mapping[str, str], *, draining: Path | None = None) -> dict[str, str]:
        """The environment of the server, out of this process's own."""
        closed = {*_DEV, *_NEVER, *_OURS, KEY}
        said = {name: value for name, value in environ.items() if name not in closed}
        path = [str(_DOOR), *filter(None, [said.get("PYTHONPATH")])]
        said |= {"PYTHONPATH": os.pathsep.join(path), "VLLM_NO_USAGE_STATS": "1"}
        if Path(self.model).is_dir():  # nothing is to be fetched
            said.setdefault("HF_HUB_OFFLINE", "1")
        if self.key:
            said[KEY] = self.key
        if is_loopback(self.host):
            said[_HERE_ONLY] = "1"
        if draining is not None:
            said[DRAINING] = str(draining)
        return said | (_DEV if self.dev else {})


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


def found_program(program: str) -> str:
    """The program's path.

    Raises:
        UserError: it is not there; says what to install.
    """
    found = shutil.which(program)
    if found is None:
        raise UserError(
            f"serve: there is no program '{program}'; vLLM has an environment of its own: "
            "python -m venv vllm-env, vllm-env/bin/pip install vllm, then --vllm vllm-env/bin/vllm."
        )
    return str(Path(found).absolute())


@dataclass(frozen=True, slots=True)
class ServingKey:
    """A server's key, and the file that keeps it where it was drawn here."""

    text: str = field(repr=False)
    kept: Path | None = None


def read_serving_key(file: Path | None, *, host: str, environ: Mapping[str, str] | None = None) -> ServingKey:
    """The key that callers are asked for: a person's own, or one that is drawn for this machine alone.

    Args:
        file: where a drawn one is kept; None: a person has to give one.
        host: where the server listens.
        environ: instead of the process's own.

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
    drawn = kept_key(file)
    hold(drawn)
    return ServingKey(drawn, file)
