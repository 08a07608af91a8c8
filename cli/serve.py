"""`dreamgym-kit serve`: vLLM, closed by default: for the dream, for training, or with what is deployed."""

import json
import os
import shlex
import signal
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from dreamgym_kit.cli import options
from dreamgym_kit.cli.output import say, tell
from dreamgym_kit.errors import UserError
from dreamgym_kit.report.sanitize import one_line

if TYPE_CHECKING:
    from dreamgym_kit.adapters.models.vllm.launch import Launch
    from dreamgym_kit.rollout.stop import StopSwitch

EXAMPLES = (
    "dreamgym-kit serve experience --model models/experience --vllm vllm-env/bin/vllm",
    "dreamgym-kit serve policy --model Qwen/Qwen3-8B --set serve.dev=true -- --tensor-parallel-size 2",
    "dreamgym-kit serve",
    "dreamgym-kit serve --from deployed --port 8001",
)
CODES = (
    "Exit codes: 2 cannot run, or the server ended by itself; 130 or 143 stopped, after open requests ended. "
    "Without a role: the exit codes of vLLM, which replaces this process."
)
ROLES = ("experience", "policy")
_OF_A_ROLE = ("serve.dev", "serve.scale_out", "serve.lora_rank", "serve.ready_within_s")

Target = Annotated[
    str | None,
    options.argument(
        "[experience|policy|DIR]", "Role to serve, or a model directory (default: the deployed model)."
    ),
]
More = Annotated[list[str] | None, options.argument("[-- FLAG...]", "Flags to pass to vLLM.")]
Model = Annotated[str | None, options.option("--model", "Model to serve for the role.", "DIR|NAME")]
Shelf = Annotated[Path, typer.Option("--from", metavar="DIR", help="Model registry.")]
Name = Annotated[str | None, options.option("--name", "Model name in requests.")]
Host = Annotated[str, typer.Option("--host", help="Address; beyond 127.0.0.1 only with a key.")]
Port = Annotated[int, typer.Option("--port", min=1, max=65535, help="Port to listen on.")]
Program = Annotated[str, typer.Option("--vllm", metavar="PATH", help="The vLLM program.")]
Log = Annotated[Path | None, options.option("--log", "File for vLLM's output.", "FILE")]


def command(
    target: Target = None,
    more: More = None,
    model: Model = None,
    shelf: Shelf = Path("deployed"),
    name: Name = None,
    host: Host = "127.0.0.1",
    port: Port = 8000,
    program: Program = "vllm",
    log: Log = None,
    assigned: options.Set = None,
) -> None:
    """Serve a model with vLLM.

    Listens on this machine only, requires a key from every caller, and disables development routes. Other
    options are settings: [serve], or --set serve.lora_rank=16.

    The server of a role is monitored, finishes open requests before it stops, and logs to a file. A deployed
    model is checked against its digest first.
    """
    from dreamgym_kit.adapters.models.vllm.launch import Launch, Role, find_program, read_serving_key
    from dreamgym_kit.settings.schema import ServeSettings

    flags = tuple(more or ())
    if flags and not flags[0].startswith("-"):
        raise UserError(f"serve: '{flags[0]}' is no flag of vLLM; those stand behind --.")
    given = options.Given(assigned=assigned or ())
    wanted, role = given.settings().serve, Role(target) if target in ROLES else Role.DEPLOYED
    if role is Role.DEPLOYED:
        _refuse_role_options(model, log, given)
        wanted = ServeSettings(tool_parser=wanted.tool_parser)
        served, called = _deployed_model(target, shelf)
    else:
        served, called = _role_model(model, str(target))
    words = _words(role, port, log)
    if role is not Role.DEPLOYED and (words.is_dir() or words.suffix == ".key"):
        raise UserError(
            f"serve: --log {words}: name a file for vLLM's words; its key is kept beside it, in NAME.key."
        )
    path = find_program(program)  # before a key is drawn for it
    key = read_serving_key(None if role is Role.DEPLOYED else words.with_suffix(".key"), host=host)
    launch = Launch(path, served, name or called, role, host, port, wanted, flags, key.text)
    if role is Role.DEPLOYED:
        tell(f"serving {launch.model} as '{launch.name}' on {launch.host}:{launch.port}")
        os.execve(launch.program, launch.line(), launch.environment(os.environ))  # noqa: S606  a person named it
    raise typer.Exit(watch(launch, words, key.file, within_s=wanted.ready_within_s))


def _words(role: str, port: int, log: Path | None) -> Path:
    """Where vLLM's words go; a key that is drawn lies beside them."""
    if log is not None:
        return log
    state = os.environ.get("XDG_STATE_HOME") or Path.home() / ".local" / "state"
    return Path(state) / "dreamgym-kit" / f"serve-{role}-{port}.log"


def _role_model(model: str | None, role: str) -> tuple[str, str]:
    """The model of a role, and how it is called."""
    if model is None:
        raise UserError(
            f"serve: which model is the {role}? --model DIR, or the name of one that vLLM fetches."
        )
    folder = Path(model)
    if folder.is_dir():
        return _directory(folder)
    if folder.is_absolute() or model.startswith(".") or model.count("/") != 1:
        raise UserError(f"{model}: no model directory, and no name of one (Qwen/Qwen3-8B).")
    return model, model


def _deployed_model(model: str | None, shelf: Path) -> tuple[str, str]:
    """The model directory that is named or deployed, and how it is called."""
    from dreamgym_kit.deployment.model_registry import ModelRegistry

    if model is not None:
        return _directory(Path(model))
    with ModelRegistry(shelf) as versions:
        current = versions.current
        if current is None:
            raise UserError(f"{shelf}: nothing is deployed there.")
        return str(versions.verified_folder(current)), versions.use.name or "agent"


def _directory(folder: Path) -> tuple[str, str]:
    from dreamgym_kit.deployment.model_files import model_files

    model_files(folder)
    return str(folder.absolute()), folder.absolute().name


def _refuse_role_options(model: str | None, log: Path | None, given: options.Given) -> None:
    wrong = [f"--set {key}" for key in _OF_A_ROLE if given.assigns(key)]
    wrong += ["--model"] * (model is not None) + ["--log"] * (log is not None)
    if wrong:
        raise UserError(f"serve: {wrong[0]} is of a role: dreamgym-kit serve experience, or serve policy.")


_EVERY_S = 10.0  # between words on a server that starts
_LOOK_S = 0.1


def watch(launch: "Launch", log: Path, key: Path | None, *, within_s: float) -> int:
    """Start it, wait until it ends or somebody ends it; the exit code.

    Raises:
        UserError: it did not get ready, or ended by itself.
    """
    from dreamgym_kit.adapters.models.vllm.launch import VllmServer
    from dreamgym_kit.rollout.stop import StopSwitch

    stop, ready = StopSwitch(), False

    def end_at_once() -> None:
        """Called by the signal: whoever waits for the server's next answer need not wait."""
        if stop.cancelled or not ready:
            server.process.kill_group()

    with _signals(stop):
        server = VllmServer(launch, log)
        try:
            stop.listen(end_at_once)
            if stop.requested:  # while it was being started
                end_at_once()
            tell(f"starting vLLM (process {server.process.pid}); its words: {log}")
            try:
                server.wait_ready(within_s=within_s, tell=_Progress())
            except UserError:
                if not stop.requested:
                    raise
                return stop.exit_code or 0
            ready = True
            say(_format_settings(launch, key))
            while not stop.requested:
                if server.process.wait(_LOOK_S) and not stop.requested:
                    raise UserError(server.failure(f"vLLM ended by itself with code {server.process.code}"))
            server.close_door()
            tell("stopping: nothing new is let in; waiting for what is under way; once more ends it at once")
            left = server.stop().left
            cut_off = f"; {left} requests were cut off" if left else ""
            tell("ended at once" if stop.cancelled else f"stopped{cut_off}")
            return stop.exit_code or 0
        finally:
            server.kill()


class _Progress:
    """Now and then, what the server says while it starts."""

    def __init__(self) -> None:
        self._next = 0.0

    def __call__(self, seconds: float, word: str) -> None:
        from dreamgym_kit.replay.masking import masked

        if seconds >= self._next:
            self._next = seconds + _EVERY_S
            tell(f"{seconds:4.0f} s  {one_line(masked(word))[:90]}")


def _format_settings(launch: "Launch", key: Path | None) -> str:
    """What goes into dreamgym.toml, and where the key is."""
    from dreamgym_kit.deployment.model_registry import KEY

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


@contextmanager
def _signals(stop: "StopSwitch") -> Iterator[None]:
    """Ctrl-C, a terminal that closes and a polite kill all press `stop`.

    Once pressed, this process ends: what comes behind the block is not heard any more, or it would end it in
    mid-word.
    """
    kinds = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
    handled = [kind for kind in kinds if signal.getsignal(kind) is not signal.SIG_IGN]  # `nohup` as asked
    before = {number: signal.signal(number, lambda number, _: stop.press(number)) for number in handled}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, signal.SIG_IGN if stop.requested else handler)
