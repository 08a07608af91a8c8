"""`dreamgym-kit serve`: a server of what is deployed, or of any model directory; vLLM, closed by default."""

from pathlib import Path
from typing import Annotated

import typer

from dreamgym_kit.cli.output import tell

EXAMPLES = (
    "dreamgym-kit serve",
    "dreamgym-kit serve --from deployed --port 8001",
    "dreamgym-kit serve models/experience --name experience --vllm vllm-env/bin/vllm",
)
CODES = "Exit codes: 2 cannot run; else those of vLLM, which takes this command's place."

Model = Annotated[
    Path | None,
    typer.Argument(metavar="MODEL", help="A model directory; else what is deployed.", show_default=False),
]
Shelf = Annotated[Path, typer.Option("--from", metavar="DIR", help="The folder of versions.")]
Name = Annotated[str | None, typer.Option("--name", help="How it is called in requests.", show_default=False)]
Port = Annotated[int, typer.Option("--port", min=1, max=65535, help="On this machine alone.")]
Program = Annotated[str, typer.Option("--vllm", metavar="PATH", help="The program that serves it.")]


def command(
    model: Model = None,
    shelf: Shelf = Path("deployed"),
    name: Name = None,
    port: Port = 8000,
    program: Program = "vllm",
) -> None:
    """Serve what is deployed, after its files were held against their digest.

    It listens on 127.0.0.1, asks every caller for the key in VLLM_API_KEY and has no development routes.
    """
    import os
    import shutil

    from dreamgym_kit.deployment.serving import serving_command, serving_environment
    from dreamgym_kit.errors import UserError

    folder, called = _what(model, shelf)
    environment = serving_environment(os.environ)
    found = shutil.which(program)
    if found is None:
        raise UserError(
            f"serve: there is no program '{program}'; vLLM has an environment of its own: "
            "python -m venv vllm-env, vllm-env/bin/pip install vllm, then --vllm vllm-env/bin/vllm."
        )
    line = serving_command(found, folder, name=name or called, port=port)
    tell(f"serving {folder} as '{name or called}' on 127.0.0.1:{port}")
    os.execve(found, line, environment)  # noqa: S606  the program that a person named


def _what(model: Path | None, shelf: Path) -> tuple[Path, str]:
    """The model directory, and how it is called."""
    from dreamgym_kit.deployment.digests import model_files
    from dreamgym_kit.deployment.shelf import Shelf as Versions
    from dreamgym_kit.deployment.use import read_use
    from dreamgym_kit.errors import UserError

    if model is not None:
        model_files(model)
        return model.absolute(), model.absolute().name
    with Versions(shelf) as versions:
        current = versions.current
        if current is None:
            raise UserError(f"{shelf}: nothing is deployed there.")
        return versions.whole(current), read_use(versions.folder).name or "agent"
