"""`dreamgym-kit serve`: vLLM, closed by default: for the dream, for training, or with what is deployed."""

import os
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from dreamgym_kit.cli import options
from dreamgym_kit.cli.output import tell
from dreamgym_kit.errors import UserError

if TYPE_CHECKING:
    from dreamgym_kit.adapters.models.vllm.launch import Launch

EXAMPLES = (
    "dreamgym-kit serve experience --model models/experience --vllm vllm-env/bin/vllm",
    "dreamgym-kit serve policy --model Qwen/Qwen3-8B --set serve.dev=true -- --tensor-parallel-size 2",
    "dreamgym-kit serve",
    "dreamgym-kit serve --from deployed --port 8001",
)
CODES = (
    "Exit codes: 2 cannot run, or it ended by itself; 130 or 143 stopped, once what was under way had ended. "
    "Without a role: those of vLLM, which takes this command's place."
)
ROLES = ("experience", "policy")
_OF_A_ROLE = ("serve.dev", "serve.scale_out", "serve.lora_rank", "serve.ready_within_s")

What = Annotated[
    str | None,
    options.argument(
        "[experience|policy|DIR]", "Which role of the kit, or a model directory; else what is deployed."
    ),
]
More = Annotated[list[str] | None, options.argument("[-- FLAG...]", "Flags for vLLM.")]
Model = Annotated[str | None, options.option("--model", "What a role is served by.", "DIR|NAME")]
Shelf = Annotated[Path, typer.Option("--from", metavar="DIR", help="The folder of versions.")]
Name = Annotated[str | None, options.option("--name", "How it is called in requests.")]
Host = Annotated[str, typer.Option("--host", help="Beyond 127.0.0.1 only with a key.")]
Port = Annotated[int, typer.Option("--port", min=1, max=65535, help="Where it listens.")]
Program = Annotated[str, typer.Option("--vllm", metavar="PATH", help="The program that serves it.")]
Log = Annotated[Path | None, options.option("--log", "Where vLLM's words go.", "FILE")]


def command(
    what: What = None,
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

    On this machine alone, asking every caller for a key, without development routes. Other options are
    settings: [serve], or --set serve.lora_rank=16.

    A role of the kit is watched, drained before it stops, and logged to a file. What is deployed is first
    held against its digest.
    """
    from dreamgym_kit.adapters.models.vllm.launch import Launch, Role, find_program, read_serving_key
    from dreamgym_kit.settings.schema import ServeSettings

    flags = tuple(more or ())
    if flags and not flags[0].startswith("-"):
        raise UserError(f"serve: '{flags[0]}' is no flag of vLLM; those stand behind --.")
    given = options.Given(assigned=assigned or ())
    wanted, role = given.settings().serve, Role(what) if what in ROLES else Role.DEPLOYED
    if role is Role.DEPLOYED:
        _no_roles_options(model, log, given)
        wanted = ServeSettings(tool_parser=wanted.tool_parser)
        served, called = _what(None if what is None else Path(what), shelf)
    else:
        served, called = _named(model, str(what))
    words = _words(role, port, log)
    if role is not Role.DEPLOYED and (words.is_dir() or words.suffix == ".key"):
        raise UserError(
            f"serve: --log {words}: name a file for vLLM's words; its key is kept beside it, in NAME.key."
        )
    path = find_program(program)  # before a key is drawn for it
    key = read_serving_key(None if role is Role.DEPLOYED else words.with_suffix(".key"), host=host)
    launch = Launch(path, served, name or called, role, host, port, wanted, flags, key.text)
    if role is Role.DEPLOYED:
        _become(launch)
        return
    from dreamgym_kit.cli.serving import watch

    raise typer.Exit(watch(launch, words, key.file, within_s=wanted.ready_within_s))


def _become(launch: "Launch") -> None:
    """Let vLLM take this process's place."""
    tell(f"serving {launch.model} as '{launch.name}' on {launch.host}:{launch.port}")
    os.execve(launch.program, launch.line(), launch.environment(os.environ))  # noqa: S606  a person named it


def _words(role: str, port: int, log: Path | None) -> Path:
    """Where vLLM's words go; a key that is drawn lies beside them."""
    if log is not None:
        return log
    state = os.environ.get("XDG_STATE_HOME") or Path.home() / ".local" / "state"
    return Path(state) / "dreamgym-kit" / f"serve-{role}-{port}.log"


def _named(model: str | None, role: str) -> tuple[str, str]:
    """The model of a role, and how it is called."""
    from dreamgym_kit.deployment.digests import model_files

    if model is None:
        raise UserError(
            f"serve: which model is the {role}? --model DIR, or the name of one that vLLM fetches."
        )
    folder = Path(model)
    if folder.is_dir():
        model_files(folder)
        return str(folder.absolute()), folder.absolute().name
    if folder.is_absolute() or model.startswith(".") or model.count("/") != 1:
        raise UserError(f"{model}: no model directory, and no name of one (Qwen/Qwen3-8B).")
    return model, model


def _no_roles_options(model: str | None, log: Path | None, given: options.Given) -> None:

    wrong = [f"--set {key}" for key in _OF_A_ROLE if given.assigns(key)]
    wrong += ["--model"] * (model is not None) + ["--log"] * (log is not None)
    if wrong:
        raise UserError(f"serve: {wrong[0]} is of a role: dreamgym-kit serve experience, or serve policy.")


def _what(model: Path | None, shelf: Path) -> tuple[str, str]:
    """The model directory, and how it is called."""
    from dreamgym_kit.deployment.digests import model_files
    from dreamgym_kit.deployment.model_registry import ModelRegistry as Versions
    from dreamgym_kit.deployment.model_registry import read_use

    if model is not None:
        model_files(model)
        return str(model.absolute()), model.absolute().name
    with Versions(shelf) as versions:
        current = versions.current
        if current is None:
            raise UserError(f"{shelf}: nothing is deployed there.")
        return str(versions.whole(current)), read_use(versions.folder).name or "agent"
