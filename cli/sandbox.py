"""`dreamgym-kit sandbox`: any command in a sandbox that the kernel holds; and how runs enter one."""

import os
import shutil
from collections.abc import Iterable, Sequence
from contextlib import suppress
from dataclasses import fields, is_dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, NoReturn
from urllib.parse import urlsplit

from dreamgym_kit.cli import options
from dreamgym_kit.cli.output import tell
from dreamgym_kit.errors import UserError

if TYPE_CHECKING:
    from dreamgym_kit.sandbox.confining import Plan
    from dreamgym_kit.settings.schema import Settings

EXAMPLES = (
    "dreamgym-kit sandbox -- pytest",
    "dreamgym-kit sandbox --allow api.openai.com --write build -- python my_script.py",
    "dreamgym-kit sandbox --set guard.sandbox=require -- bash",
)
CODES = "Exit codes: as the command's; 2 no sandbox that is strong enough, or the command cannot be started."

Command = Annotated[list[str], options.argument("COMMAND", "What to run, after --.")]
Allow = Annotated[list[str] | None, options.option("--allow", "One more host: name, name:port.", "HOST")]
Write = Annotated[
    list[Path] | None, options.option("--write", "One more file or folder that may be written.", "PATH")
]
_CACHES = {
    "HF_HOME": "huggingface",
    "TORCH_HOME": "torch",
    "TRITON_CACHE_DIR": "triton",
    "VLLM_CACHE_ROOT": "vllm",
}
_OTLP = ("OTEL_EXPORTER_OTLP_ENDPOINT", "OTEL_EXPORTER_OTLP_TRACES_ENDPOINT")


def command(
    command: Command,
    allow: Allow = None,
    write: Write = None,
    assigned: options.Set = None,
) -> NoReturn:
    """Run any command in a kernel sandbox, without root.

    It writes only runs, buffer and what [guard] allows, and reaches only the hosts that settings name. What
    the kernel stops is told on stderr.
    """
    from dreamgym_kit.sandbox.confining import NONE, enter

    settings = options.Given(assigned=assigned or ()).settings()
    program = shutil.which(command[0])
    if program is None:
        raise UserError(f"sandbox: {command[0]}: there is no such program. Nothing was run.")
    plan = plan_of(settings)
    plan = replace(
        plan,
        hosts=(*plan.hosts, *(allow or ())),
        writable=(*plan.writable, *(path.absolute() for path in write or ())),
        temporary=True,  # all other folders for such files are read-only
    )
    stands = enter(
        plan, wanted=settings.guard.sandbox, where=settings.where("guard", "sandbox"), on_stderr=True
    )
    tell(f"sandbox: {stands}" + (f"\nsandbox: for more: {stands.more}" if stands.more else ""))
    if stands.kind == NONE:
        tell("sandbox: the command runs without one")
    try:
        os.execv(program, command)  # noqa: S606  what was typed
    except OSError as error:
        raise UserError(f"sandbox: {command[0]}: cannot be started ({error.strerror}).") from None


def confine(settings: "Settings", *, targets: Sequence[str] = (), resume: Path | None = None) -> None:
    """Put this process into the sandbox that settings ask for, before it loads the agent.

    Args:
        settings: of the run.
        targets: files, and addresses, that the command writes when the run is done.
        resume: the run directory that goes on.

    Raises:
        UserError: the sandbox that settings require cannot be had.
    """
    from dreamgym_kit.sandbox.confining import enter

    wanted, where = settings.guard.sandbox, settings.where("guard", "sandbox")
    if settings.workers.backend == "ray":
        if wanted == "require":
            raise UserError(
                f'{where}: guard.sandbox = "require", and a Ray cluster runs outside of it. Nothing was run. '
                'Use workers.backend = "local", or put the cluster into containers without network and '
                'set sandbox = "external".'
            )
        wanted = wanted if wanted == "external" else "off"
    plan = plan_of(settings, targets)
    if resume is not None:
        plan = replace(plan, writable=(*plan.writable, resume.absolute()))
    enter(plan, wanted=wanted, where=where)


def plan_of(settings: "Settings", targets: Sequence[str] = ()) -> "Plan":
    """What a run with these settings needs, without a line of the user's, and what [guard] allows."""
    from dreamgym_kit.adapters.stores.factory import program_file, salt_at, salt_file
    from dreamgym_kit.rollout.environment_files import environments_folder
    from dreamgym_kit.rollout.tool_lock import LOCK_FILE
    from dreamgym_kit.sandbox.confining import Plan
    from dreamgym_kit.settings.buffer_url import Address, buffer_of

    place = buffer_of(settings)
    runs = settings.resolve(settings.runs)
    embedded = Path(place.path or ".") if isinstance(place, Address) and not place.host else runs
    fresh = [folder for folder in dict.fromkeys((runs, embedded)) if not folder.exists()]
    with suppress(OSError):  # the run says what is wrong
        for folder in (runs, embedded):
            folder.mkdir(parents=True, exist_ok=True)
    hosts = [*settings.guard.allow_hosts, *map(_host_of, _addresses(settings, targets))]
    writable = [runs, embedded, *map(settings.resolve, settings.guard.allow_paths), *_caches()]
    delivered = [settings.folder / LOCK_FILE, *(Path(target) for target in targets if "://" not in target)]
    buffer = None
    if settings.simulate.imagine or any(tool.imagine for tool in settings.tools.values()):
        folder = environments_folder(settings)
        folder.mkdir(parents=True, exist_ok=True)
        writable.append(folder)
    if isinstance(place, Address) and place.host:
        port = place.port or place.kind.port
        grpc = place.options.get("grpc", "443" if port == 443 else "50051")
        hosts += [f"{place.host}:{port}", grpc if ":" in grpc else f"{place.host}:{grpc}"]
    elif isinstance(place, Path) and place.is_file():
        buffer = place
        salt = salt_file(place, settings)
        salt_at(salt)  # no file can be made beside the buffer from inside
        delivered += [place.parent / LOCK_FILE, salt, program_file(place, settings)]
    return Plan(
        tuple(dict.fromkeys(hosts)), tuple(dict.fromkeys(writable)), tuple(delivered), buffer, fresh=fresh
    )


def _addresses(settings: "Settings", targets: Iterable[str]) -> list[str]:
    """Every URL that settings, outputs or OpenTelemetry's variables name."""
    addresses = [target for target in targets if "://" in target]
    addresses += [os.environ[name] for name in _OTLP if os.environ.get(name)]
    for section in (getattr(settings, field.name) for field in fields(settings)):
        if is_dataclass(section):
            for field in fields(section):
                value = getattr(section, field.name)
                for text in value if isinstance(value, tuple) else (value,):
                    if isinstance(text, str) and text.startswith(("http://", "https://")):
                        addresses.append(text)
    return addresses


def _host_of(url: str) -> str:
    try:
        parts = urlsplit(url if "://" in url else f"//{url}")  # OTLP over gRPC: host:port
        port = parts.port or (443 if parts.scheme == "https" else 80)
    except ValueError:
        raise UserError(f"'{url.rpartition('@')[2]}': is no address of a host and a port.") from None
    host = parts.hostname or ""
    return f"[{host}]:{port}" if ":" in host else f"{host}:{port}"


def _caches() -> list[Path]:
    """Folders into which libraries put models that they fetched or compiled."""
    base = Path(os.environ.get("XDG_CACHE_HOME") or "~/.cache").expanduser()
    named = (Path(os.environ.get(name) or base / folder) for name, folder in _CACHES.items())
    return [path for path in named if path.is_dir()]
