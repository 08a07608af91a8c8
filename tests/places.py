"""Where the tests with these marks are: nothing else is imported for them; elsewhere one is refused."""

PLACES = {
    "browser": ("tests/pages", "tests/bars/test_x2_stored_xss.py", "tests/bench/test_benches.py"),
    "ray": (
        "tests/contracts/test_engine.py",
        "tests/engines",
        "tests/training/test_in_a_cluster.py",
        "tests/cli/test_ray.py",
        "tests/bench/test_benches.py",
    ),
    "upstream": ("tests/upstream",),
    "vllm": ("tests/served", "tests/contracts/test_policy_server.py", "tests/bars/test_v3_killed_server.py"),
}
