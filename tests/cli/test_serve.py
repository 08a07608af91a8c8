"""`serve`: vLLM is started closed, with what is deployed; a double of it writes down how."""

import json
import sys
from pathlib import Path

import pytest
from deployment.evaluated_runs import model_double
from ports import own_port

from dreamgym_kit.adapters.langgraph.deploy.promotion import deploy
from dreamgym_kit.settings.schema import Settings

DOUBLE = """#!{python}
import json, os, sys
json.dump([sys.argv[1:], dict(os.environ)], open("started.json", "w"))
sys.exit(7)
"""


@pytest.mark.slow
def test_what_is_deployed_is_served_closed(run, project: Path) -> None:
    (project / "vllm-double").write_text(DOUBLE.format(python=sys.executable))
    (project / "vllm-double").chmod(0o755)
    model = model_double(project / "model", "weights")
    deploy(model, force="the first", into=project / "deployed", name="desk", settings=Settings(), tasks=None)
    asked = ("serve", "--vllm", "./vllm-double", "--port", str(own_port()))
    refused = run(*asked)
    assert (refused.returncode, refused.stdout) == (2, "")
    assert refused.stderr.startswith("error: serve: VLLM_API_KEY is not set; set it to a secret of your own")
    assert not (project / "started.json").exists()
    done = run(*asked, VLLM_API_KEY="s3cret-of-mine", VLLM_SERVER_DEV_MODE="1")
    assert done.returncode == 7
    line, environment = json.loads((project / "started.json").read_text())
    merged = project / "deployed" / "versions" / "v001" / "merged"
    assert line[:6] == ["serve", str(merged), "--served-model-name", "desk", "--host", "127.0.0.1"]
    assert environment["VLLM_API_KEY"] == "s3cret-of-mine"
    assert "VLLM_SERVER_DEV_MODE" not in environment
    assert "s3cret-of-mine" not in done.stderr + done.stdout
    (merged / "model.safetensors").write_text("evil")
    assert "not what was deployed as v001" in run(*asked, VLLM_API_KEY="x").stderr


@pytest.mark.slow
@pytest.mark.parametrize("log", [".", "words.key"])
def test_a_log_that_is_no_file_or_the_keys_own_is_refused(run, project: Path, log: str) -> None:
    refused = run("serve", "policy", "--model", "Qwen/Q", "--log", log)
    assert (refused.returncode, refused.stdout) == (2, "")
    assert f"--log {log}: name a file for vLLM's words; its key is kept beside it" in refused.stderr
    assert not (project / "words.key").exists()
