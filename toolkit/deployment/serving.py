"""The server process of a model directory: vLLM, for this machine alone, with a key, closed to the rest."""

from collections.abc import Mapping
from pathlib import Path

from dreamgym_kit.deployment.pointing import HOST, KEY
from dreamgym_kit.errors import UserError

# What opens routes that load weights, run code on the server or take requests apart.
_NEVER = ("VLLM_SERVER_DEV_MODE", "VLLM_ALLOW_RUNTIME_LORA_UPDATING", "VLLM_ALLOW_INSECURE_SERIALIZATION")


def serving_command(program: str, model: Path, *, name: str, port: int) -> list[str]:
    """The command line that serves it."""
    return [
        *(program, "serve", str(model), "--served-model-name", name),
        *("--host", HOST, "--port", str(port)),
        *("--enable-auto-tool-choice", "--tool-call-parser", "hermes"),
    ]


def serving_environment(environ: Mapping[str, str]) -> dict[str, str]:
    """The environment of the server: as it is, without what would open development routes.

    Raises:
        UserError: no key is set; a server without one answers whoever finds it.
    """
    if not environ.get(KEY, "").strip():
        raise UserError(
            f"serve: {KEY} is not set; set it to a secret of your own, here and where the agent runs: the "
            "server asks every caller for it."
        )
    return {name: value for name, value in environ.items() if name not in _NEVER}
