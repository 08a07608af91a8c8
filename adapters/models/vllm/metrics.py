"""What a server counts about itself, read from its `/metrics` page (Prometheus text).

Counts are since the server started; the difference of two readings is what happened in between. Unknown
lines are passed over: each version of vLLM has others. Several engines behind one page are added up.
"""

import json
import re
from collections import defaultdict
from dataclasses import dataclass

_LINE = re.compile(r"^(?P<name>vllm:\w+)(?:\{[^}]*\})? (?P<value>\S+)$", re.MULTILINE)


@dataclass(frozen=True, slots=True)
class ServerMetrics:
    """One reading."""

    prompt_tokens: int
    generated_tokens: int
    looked_up_tokens: int  # of prompts, in the prefix cache
    cached_tokens: int  # found there
    running: int  # requests
    waiting: int  # requests in the queue

    @property
    def cached_share(self) -> float | None:
        """Of the prompts' tokens, how many came from the cache; None before the first."""
        return self.cached_tokens / self.looked_up_tokens if self.looked_up_tokens else None

    def since(self, earlier: "ServerMetrics") -> "ServerMetrics":
        """What happened after an earlier reading; running and waiting are as they are now."""
        return ServerMetrics(
            self.prompt_tokens - earlier.prompt_tokens,
            self.generated_tokens - earlier.generated_tokens,
            self.looked_up_tokens - earlier.looked_up_tokens,
            self.cached_tokens - earlier.cached_tokens,
            self.running,
            self.waiting,
        )


def read_metrics(page: str) -> ServerMetrics | None:
    """Read a page; None where it is none of vLLM's."""
    sums: dict[str, float] = defaultdict(float)
    for line in _LINE.finditer(page):
        try:
            sums[line["name"].removeprefix("vllm:")] += float(line["value"])
        except ValueError:
            continue
    if "num_requests_running" not in sums:
        return None
    return ServerMetrics(
        prompt_tokens=int(sums["prompt_tokens_total"]),
        generated_tokens=int(sums["generation_tokens_total"]),
        looked_up_tokens=int(sums["prefix_cache_queries_total"]),
        cached_tokens=int(sums["prefix_cache_hits_total"]),
        running=int(sums["num_requests_running"]),
        waiting=int(sums["num_requests_waiting"]),
    )


def read_under_way(page: str) -> int | None:
    """How many requests the door counts (`{"under_way": 3}`); None where it is no such page."""
    try:
        counted = json.loads(page)["under_way"]
    except (ValueError, KeyError, TypeError):
        return None
    return counted if type(counted) is int else None
