"""The manifests of recipes/deploy hold together; each check is shown a fault that it has to find."""

import re
from pathlib import Path
from typing import Any

from deploy_files.kubernetes_checks import kubernetes_faults, pods_of
from deploy_files.reading import DEPLOY, IMAGES, KUBERNETES, documented, documents, loose_tag, planted
from each_row import each_row

FOLDER = DEPLOY / "kubernetes"
VLLM, WEAVIATE = FOLDER / "vllm.yml", FOLDER / "weaviate.yml"
FILL, RAY = FOLDER / "fill-buffer.yml", FOLDER / "simulate-ray.yml"
SHARDS, MERGE = FOLDER / "simulate-shards.yml", FOLDER / "merge-shards.yml"


def everything(changed: Path | None = None, text: str = "") -> list[Any]:
    """All objects of all files; of one of them, what a text says in its place."""
    return [
        one for path in KUBERNETES for one in documents(text if path == changed else path.read_text("utf-8"))
    ]


def test_the_manifests_hold_together() -> None:
    assert {VLLM, WEAVIATE, FILL, SHARDS, MERGE, RAY} == set(KUBERNETES)
    assert len(everything()) >= 15
    assert kubernetes_faults(everything(), documented()) == []


FAULTS = [  # one for each of the checks
    (VLLM, "selector: {matchLabels: {app: policy}}", "selector: {matchLabels: {app: polcy}}", "its own pods"),
    (VLLM, "selector: {app: experience}", "selector: {app: experiences}", "no pod has the labels"),
    (VLLM, "port: 8000, targetPort: http", "port: 8000, targetPort: https", "have no port 'https'"),
    (VLLM, "image: vllm/vllm-openai:v0.33.0", "image: vllm/vllm-openai:latest", "no tag that stays"),
    (VLLM, "serviceName: policy", "serviceName: polices", "no headless service"),
    (VLLM, "type: ClusterIP", "type: LoadBalancer", "reached from outside"),
    (VLLM, "allowPrivilegeEscalation: false", "privileged: true", "opens the machine"),
    (VLLM, "configMap: {name: policy-door}", "configMap: {name: door}", "no ConfigMap"),
    (VLLM, "{name: shm, mountPath", "{name: sham, mountPath", "no volume 'sham'"),
    (VLLM, "claimName: models", "claimName: model-files", "tell of the claim"),
    (VLLM, "limits: {memory: 32Gi, ", "limits: {", "no limit of memory"),
    (VLLM, "kind: ConfigMap", "kind: Secret", "does not lie in a file"),
    (WEAVIATE, "key: WEAVIATE_API_KEY", "key: OTHER_KEY", "the page does not tell"),
    (
        WEAVIATE,
        "AUTHENTICATION_APIKEY_USERS, value: dreamgym",
        "NOTE, value: sk-proj-abcdefghijklmnop1234",
        "key",
    ),
    (SHARDS, "weaviate://weaviate:8080", "weaviate://weaviate:8000", "nothing here is called weaviate:8000"),
]


@each_row(("path", "old", "new", "fault"), FAULTS)
def test_a_planted_fault_of_a_manifest_is_found(path: Path, old: str, new: str, fault: str) -> None:
    found = kubernetes_faults(everything(path, planted(path, old, new)), documented())
    assert any(fault in one for one in found), found


def uneven(shards: str, merge: str) -> list[str]:
    """Where the number of shards is not the same everywhere."""
    (job,) = documents(shards)
    wanted = job["spec"]["completions"]
    parts = re.findall(r'"shard=\$\(\(JOB_COMPLETION_INDEX \+ 1\)\)/(\d+)"', shards)
    found = [] if parts == [str(wanted)] else [f"shard= names {parts}, the Job has {wanted}"]
    merged = re.findall(r"runs merge /runs/simulate/\[0-(\d)\]/\*/ ", merge)
    return found if merged == [str(wanted - 1)] else [*found, f"merges up to {merged}"]


def test_as_many_shards_are_played_as_are_merged() -> None:
    shards, merge = SHARDS.read_text("utf-8"), MERGE.read_text("utf-8")
    assert uneven(shards, merge) == []
    assert uneven(planted(SHARDS, "completions: 4", "completions: 5"), merge) != []
    assert uneven(shards, planted(MERGE, "[0-3]", "[0-2]")) != []


def one_ray(ray: str, image: str) -> list[str]:
    """Where versions would differ, or a key would go by a runtime environment."""
    job = next(one for one in documents(ray) if one["kind"] == "RayJob")
    images = {container["image"] for pod in pods_of(job) for container in pod["spec"]["containers"]}
    said = job["spec"]["rayClusterSpec"]
    found = [] if len(images) == 1 else [f"several images: {sorted(images)}"]
    if f'ray[default]=={said["rayVersion"]}"' not in image:
        found.append(f"the image has another ray than {said['rayVersion']}")
    if said.get("authOptions", {}).get("mode") != "token":
        found.append("whoever reaches it may run code")
    return [*found, *(["keys in a runtime environment"] if "runtimeEnvYAML" in job["spec"] else [])]


def test_the_ray_cluster_is_of_one_version_and_asks_for_a_token() -> None:
    image = (DEPLOY / "images" / "agent.Dockerfile").read_text("utf-8")
    assert one_ray(RAY.read_text("utf-8"), image) == []
    for old, new in (
        ("rayVersion: 2.60.0", "rayVersion: 2.59.0"),
        ("mode: token", "mode: disabled"),
        ("  submissionMode:", "  runtimeEnvYAML: ''\n  submissionMode:"),
    ):
        assert one_ray(planted(RAY, old, new), image) != []


def loose_images(dockerfile: str) -> list[str]:
    """What an image is made of that may be another one tomorrow."""
    bases = re.findall(r"(?m)^FROM (\S+)", dockerfile)
    packages = re.findall(r"(?m)^RUN pip install --no-cache-dir (?!-r)(.+)$", dockerfile)
    loose = [word for line in packages for word in line.split() if not re.search(r"==\d", word)]
    return [*(base for base in bases if loose_tag(base)), *loose]


@each_row("path", IMAGES, ids=lambda path: path.name)
def test_an_image_is_made_of_fixed_versions_and_runs_as_nobody(path: Path) -> None:
    text = path.read_text("utf-8")
    assert loose_images(text) == []
    assert re.search(r"(?m)^USER 65532:65532$", text)
    assert not re.search(r"(?mi)^(ENV|ARG)\s.*(key|token|secret|password)", text)
    assert loose_images("FROM python\nRUN pip install --no-cache-dir ray\n") == ["python", "ray"]
