"""The Compose files of recipes/deploy hold together; each check is shown a fault that it has to find."""

from pathlib import Path

from deploy_files.compose_checks import compose_faults
from deploy_files.reading import COMPOSE, DEPLOY, documented, documents, planted
from each_row import each_row

VLLM, WEAVIATE = DEPLOY / "compose" / "vllm.yml", DEPLOY / "compose" / "weaviate.yml"


def test_there_are_compose_files() -> None:
    assert {VLLM, WEAVIATE} <= set(COMPOSE)


@each_row("path", COMPOSE, ids=lambda path: path.name)
def test_a_compose_file_holds_together(path: Path) -> None:
    assert compose_faults(path.read_text("utf-8"), documented()) == []


FAULTS = [
    (VLLM, "policy-1: {condition: service_healthy}", "policy-9: {condition: service_healthy}", "no service"),
    (VLLM, '"127.0.0.1:8001:8000"', '"0.0.0.0:8001:8000"', "not on 127.0.0.1"),
    (VLLM, '"127.0.0.1:8002:8000"', '"127.0.0.1:8001:8000"', "published twice"),
    (VLLM, "vllm-openai:v0.33.0", "vllm-openai:latest", "no tag that stays"),
    (VLLM, "interval: 10s", "interval: ten", "no duration"),
    (VLLM, "${POLICY_0_GPU:-0}", "${FIRST_GPU:-0}", "the page does not tell"),
    (VLLM, "${VLLM_API_KEY:?", "${VLLM_API_KEY:-", "a secret needs"),
    (WEAVIATE, "${WEAVIATE_API_KEY:?set WEAVIATE_API_KEY to a key of your own}", "letmein", "written out"),
    (
        WEAVIATE,
        "AUTHENTICATION_APIKEY_USERS: dreamgym",
        "NOTE: sk-proj-abcdefghijklmnop1234",
        "looks like a key",
    ),
    (WEAVIATE, "weaviate-1:/var/lib", "weaviate-7:/var/lib", "no volume"),
]


@each_row(("path", "old", "new", "fault"), FAULTS)
def test_a_planted_fault_of_a_compose_file_is_found(path: Path, old: str, new: str, fault: str) -> None:
    found = compose_faults(planted(path, old, new), documented())
    assert any(fault in one for one in found), found


def cluster(text: str) -> list[str]:
    """What would keep the three nodes from being one cluster, as far as the file tells."""
    nodes = documents(text)[0]["services"]
    found = []
    for name, node in nodes.items():
        said = node["environment"]
        others = {f"{other}:{said['CLUSTER_GOSSIP_BIND_PORT']}" for other in nodes if other != name}
        if said["CLUSTER_HOSTNAME"] != name:
            found.append(f"{name}: is called {said['CLUSTER_HOSTNAME']}")
        if set(said["CLUSTER_JOIN"].split(",")) != others:
            found.append(f"{name}: does not join the others")
        if said["RAFT_JOIN"].split(",") != list(nodes) or said["RAFT_BOOTSTRAP_EXPECT"] != str(len(nodes)):
            found.append(f"{name}: waits for others than there are")
        if said["REPLICATION_MINIMUM_FACTOR"] != str(len(nodes)):
            found.append(f"{name}: not every node holds every row")
        if said["AUTHENTICATION_ANONYMOUS_ACCESS_ENABLED"] != "false":
            found.append(f"{name}: lets anybody in")
        if node.get("depends_on"):
            found.append(f"{name}: would wait for a node that waits for it")
    return found


def test_three_nodes_of_weaviate_make_one_cluster() -> None:
    assert cluster(WEAVIATE.read_text("utf-8")) == []


@each_row(
    ("old", "new", "fault"),
    [
        ("CLUSTER_HOSTNAME: weaviate-1", "CLUSTER_HOSTNAME: weaviate-0", "is called"),
        ('"weaviate-1:7946,weaviate-2:7946"', '"weaviate-1:7946"', "does not join"),
        ('RAFT_BOOTSTRAP_EXPECT: "3"', 'RAFT_BOOTSTRAP_EXPECT: "1"', "waits for others"),
        ("RAFT_JOIN: weaviate-0,weaviate-1,", "RAFT_JOIN: weaviate-0,", "waits for others"),
        ('MINIMUM_FACTOR: "3"', 'MINIMUM_FACTOR: "1"', "not every node"),
        ('ACCESS_ENABLED: "false"', 'ACCESS_ENABLED: "true"', "lets anybody in"),
        (
            "  weaviate-1:\n    <<: *node",
            "  weaviate-1:\n    <<: *node\n    depends_on: [weaviate-0]",
            "would wait",
        ),
    ],
)
def test_three_nodes_that_are_no_cluster_are_found(old: str, new: str, fault: str) -> None:
    assert any(fault in one for one in cluster(planted(WEAVIATE, old, new)))
