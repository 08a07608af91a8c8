"""`serve`: vLLM is started closed, with what is deployed; a double of it writes down how."""

import json
import sys
from pathlib import Path

import pytest
from deployment.evaluated_runs import model_double
from ports import own_port

from dreamgym_kit.adapters.langgraph.deploy import deploy
from dreamgym_kit.settings.schema import Settings

DOUBLE = """#!{python}
import json, os, sys
json.dump([sys.argv[1:], dict(os.environ)], open("started.json", "w"))
sys.exit(7)
"""


def with_double(project: Path) -> None:
    (project / "vllm-double").write_text(DOUBLE.format(python=sys.executable))
    (project / "vllm-double").chmod(0o755)


@pytest.mark.slow
def test_a_role_is_served_as_its_settings_and_assignments_say(run, refusal, project: Path) -> None:
    with_double(project)
    (project / "dreamgym.toml").write_text("[serve]\ndev = true\nlora_rank = 8\ntool_parser = 'granite'\n")
    typed = ("serve", "policy", "--model", "Qwen/Q", "--vllm", "./vllm-double", "--log", "log", "--port")
    asked = (*typed, str(own_port()), "--set", "serve.lora_rank=16", "--set", "serve.scale_out=true")
    assert "vLLM ended" in refusal(*asked, "--", "--seed", "3")
    line, environment = json.loads((project / "started.json").read_text())
    assert line[line.index("--max-lora-rank") + 1] == "16"
    assert line[line.index("--tool-call-parser") + 1] == "granite"
    assert "--enable-scale-out" in line
    assert line[-2:] == ["--seed", "3"]  # behind -- nothing is an option of the kit's
    assert environment["VLLM_SERVER_DEV_MODE"] == "1"
    (project / "started.json").unlink()
    open_to_all = run(*asked, "--host", "0.0.0.0", VLLM_API_KEY="x")
    assert (open_to_all.returncode, open_to_all.stdout) == (2, "")
    assert (
        "serve: serve.dev on 0.0.0.0: routes that load weights and run code are never" in open_to_all.stderr
    )
    assert not (project / "started.json").exists()


@pytest.mark.slow
def test_a_role_that_is_not_ready_within_its_seconds_is_stopped(refusal, project: Path) -> None:
    (project / "vllm-double").write_text("#!/bin/sh\nexec sleep 600\n")
    (project / "vllm-double").chmod(0o755)
    typed = ("serve", "policy", "--model", "Qwen/Q", "--vllm", "./vllm-double", "--log", "log", "--port")
    assert "not ready within 1 s" in refusal(*typed, str(own_port()), "--set", "serve.ready_within_s=1")


@pytest.mark.slow
def test_what_is_deployed_is_served_closed(run, project: Path) -> None:
    with_double(project)
    (project / "dreamgym.toml").write_text(
        "[serve]\ndev = true\nlora_rank = 8\nscale_out = true\ntool_parser = 'granite'\n"
    )
    model = model_double(project / "model", "weights")
    deploy(model, force="the first", into=project / "deployed", name="desk", settings=Settings(), tasks=None)
    asked = ("serve", "--vllm", "./vllm-double", "--port", str(own_port()))
    refused = run(*asked)
    assert (refused.returncode, refused.stdout) == (2, "")
    assert refused.stderr.startswith("error: serve: VLLM_API_KEY is not set; set it to a secret of your own")
    of_a_role = run(*asked, "--set", "serve.dev=true", VLLM_API_KEY="s3cret-of-mine")
    assert of_a_role.stderr.startswith("error: serve: --set serve.dev is of a role: dreamgym-kit serve")
    assert not (project / "started.json").exists()
    done = run(*asked, VLLM_API_KEY="s3cret-of-mine", VLLM_SERVER_DEV_MODE="1")
    assert done.returncode == 7
    line, environment = json.loads((project / "started.json").read_text())
    merged = project / "deployed" / "versions" / "v001" / "merged"
    assert line[:6] == ["serve", str(merged), "--served-model-name", "desk", "--host", "127.0.0.1"]
    assert line[line.index("--tool-call-parser") + 1] == "granite"
    assert not {"--enable-scale-out", "--enable-lora"} & {*line}
    assert environment["VLLM_API_KEY"] == "s3cret-of-mine"
    assert "VLLM_SERVER_DEV_MODE" not in environment
    assert "s3cret-of-mine" not in done.stderr + done.stdout
    (merged / "model.safetensors").write_text("evil")
    assert "not what was deployed as v001" in run(*asked, VLLM_API_KEY="x").stderr


@pytest.mark.slow
@pytest.mark.parametrize("log", [".", "words.key"])
def test_a_log_that_is_no_file_or_the_keys_own_is_refused(refusal, project: Path, log: str) -> None:
    assert f"--log {log}: name a file for vLLM's words; its key is kept beside it" in refusal(
        "serve", "policy", "--model", "Qwen/Q", "--log", log
    )
    assert not (project / "words.key").exists()
