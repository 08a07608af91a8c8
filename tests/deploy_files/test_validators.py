"""The files of recipes/deploy before the validators that others wrote; and what those let through is said.

Offline: Compose's schema is bundled with check-jsonschema, those of Kubernetes with kubernetes-validate. They
know no RayJob; `test_kubernetes` holds what can be held without its schema.
"""

import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from deploy_files.reading import COMPOSE, DEPLOY, KUBERNETES, planted

pytestmark = pytest.mark.slow
STYLE = "{extends: relaxed, rules: {line-length: {max: 160}}}"
COMPOSE_SCHEMA = ("check-jsonschema", "--builtin-schema", "vendor.compose-spec")
KUBERNETES_SCHEMA = ("kubernetes-validate", "--strict", "-k", "1.37.0")
YAML_STYLE = ("yamllint", "--strict", "-d", STYLE)


def judged(command: tuple[str, ...], *paths: Path) -> tuple[int, str]:
    """The exit code of a validator, and what it said."""
    beside = str(Path(sys.executable).parent)
    program = shutil.which(command[0], path=beside) or shutil.which(command[0])
    if program is None:
        pytest.skip(f"{command[0]} is not installed (the dependency group `deploy`)")
    done = subprocess.run(
        [program, *command[1:], *map(str, paths)], capture_output=True, text=True, check=False
    )
    return done.returncode, done.stdout + done.stderr


def test_compose_files_follow_the_schema_of_compose(tmp_path: Path) -> None:
    assert judged(COMPOSE_SCHEMA, *COMPOSE)[0] == 0
    (faulty := tmp_path / "a.yml").write_text(
        planted(DEPLOY / "compose" / "vllm.yml", "shm_size:", "shmsize:")
    )
    code, said = judged(COMPOSE_SCHEMA, faulty)
    assert (code, "shmsize" in said) == (1, True)


def test_manifests_follow_the_schemas_of_kubernetes(tmp_path: Path) -> None:
    code, said = judged(KUBERNETES_SCHEMA, *KUBERNETES)
    assert (code, said.count("WARN"), "RayJob" in said) == (0, 1, True)
    shards = DEPLOY / "kubernetes" / "simulate-shards.yml"
    (faulty := tmp_path / "a.yml").write_text(planted(shards, "restartPolicy", "restartPolcy"))
    code, said = judged(KUBERNETES_SCHEMA, faulty)
    assert (code, "restartPolcy" in said) == (1, True)


def test_all_of_them_are_tidy_yaml(tmp_path: Path) -> None:
    assert judged(YAML_STYLE, *COMPOSE, *KUBERNETES) == (0, "")
    (faulty := tmp_path / "a.yml").write_text("a: 1\na: 2\n")
    assert judged(YAML_STYLE, faulty)[0] == 1
