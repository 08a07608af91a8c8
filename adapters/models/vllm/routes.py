"""Which routes of a server answer who has no key? A fixed table, walked with GET alone.

A route that only takes POST says 405 to a GET before anything is done: that is an answer, and one that does
no harm. What asks for a key says 401 or 403.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from enum import StrEnum

from dreamgym_kit.adapters.models.vllm.looking import look

_REFUSED = (401, 403)


class Kind(StrEnum):
    """What somebody without a key could do there."""

    LIVES = "lives"  # learn that it is there
    TELLS = "tells"  # learn what it does
    WORKS = "works"  # have it work for them
    CHANGES = "changes"  # change weights, caches or what it serves


ROUTES: dict[Kind, tuple[str, ...]] = {
    Kind.LIVES: ("/health", "/ping", "/version"),
    Kind.TELLS: (
        *("/metrics", "/load", "/server_info", "/v1/models", "/is_paused", "/is_sleeping", "/weight_info"),
        *("/openapi.json", "/docs", "/redoc", "/tokenizer_info"),
    ),
    Kind.WORKS: (
        *("/v1/chat/completions", "/v1/completions", "/v1/responses", "/v1/messages", "/v1/embeddings"),
        *("/v1/chat/completions/render", "/v1/completions/render", "/inference/v1/generate"),
        *("/tokenize", "/detokenize", "/invocations", "/pooling", "/classify", "/score", "/rerank"),
    ),
    Kind.CHANGES: (
        *("/v1/load_lora_adapter", "/v1/unload_lora_adapter", "/collective_rpc", "/reset_prefix_cache"),
        *("/reset_mm_cache", "/pause", "/resume", "/sleep", "/wake_up", "/abort_requests", "/update_weights"),
        *("/start_weight_update", "/finish_weight_update", "/update_weight_version", "/weight_checker"),
        *("/init_weight_transfer_engine", "/scale_elastic_ep", "/start_profile", "/stop_profile"),
    ),
}


@dataclass(frozen=True, slots=True)
class OpenRoute:
    """A route that answered without a key."""

    path: str
    kind: Kind
    status: int


def open_routes(url: str, *, timeout_s: float = 5.0) -> Iterator[OpenRoute]:
    """Walk the table at `url` (http://host:port), without a key.

    Raises:
        ConnectionError: nobody answers there.
    """
    for kind, paths in ROUTES.items():
        for path in paths:
            status = look(url, path, timeout_s=timeout_s).status
            if status == 0:
                raise ConnectionError(f"nothing answers at {url}")
            if status not in _REFUSED and status != 404:
                yield OpenRoute(path, kind, status)
