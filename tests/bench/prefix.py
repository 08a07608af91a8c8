"""How much of the dream's prompts comes from the prefix cache? Eight siblings of ten tasks, a real vLLM.

`cached_share` is what every report says: of all prompt tokens that the experience model was asked with, those
that the server had. `metrics_share` is what the server itself counted meanwhile, the question before the run
and all. Most of a prompt are rules that all share; then comes what siblings share; what differs stands last.
"""

from real_server import experience_server, simulated


def measure(seed: int) -> list[tuple[str, float, str]]:
    """Figures for the bench runner."""
    return _figures(seed, tasks=10)


def quick(seed: int) -> list[tuple[str, float, str]]:
    """Two tasks."""
    return _figures(seed, tasks=2)


def _figures(seed: int, *, tasks: int) -> list[tuple[str, float, str]]:
    with experience_server() as server:
        before = server.metrics()
        done = simulated(server, tasks=tasks, n=8, seed=seed)
        after = server.metrics()
    assert before is not None
    assert after is not None
    spend = done.summary.dream_spend["experience"]
    counted = after.since(before).cached_share
    return [
        ("cached_share", spend.cached_share or 0.0, "of prompt tokens"),
        ("metrics_share", counted or 0.0, "of prompt tokens"),
        ("questions", spend.calls, "answers"),
        ("tokens_a_question", spend.prompt_tokens / spend.calls, "tokens"),
        ("episodes", done.totals.total, "episodes"),
    ]
