"""What `doctor` says of a server: which of its routes answer who has no key."""

from collections.abc import Sequence
from typing import TYPE_CHECKING, NamedTuple

from dreamgym_kit.errors import EndpointError

if TYPE_CHECKING:
    from dreamgym_kit.adapters.models.vllm.looking import OpenRoute

_CAN = {
    "tells": "tells what it does",
    "works": "works for anybody",
    "changes": "lets anybody change weights or caches",
}
_REMEDY = "serve it by dreamgym-kit serve, or put a proxy with an allow-list before it"


class Told(NamedTuple):
    """One line of the check."""

    level: str
    text: str
    remedy: str = ""


def look_at_server(url: str, *, timeout_s: float = 5.0) -> list[Told]:
    """Walk one server's routes; `timeout_s` for each of them.

    Raises:
        UserError: it is no URL that is asked.
    """
    from dreamgym_kit.adapters.models.addresses import Resolver, read_address
    from dreamgym_kit.adapters.models.vllm.launch import is_loopback
    from dreamgym_kit.adapters.models.vllm.looking import open_routes

    address = read_address(url, source="--server")
    host = f"[{address.host}]" if ":" in address.host else address.host
    base = f"{address.scheme}://{host}:{address.port}"
    try:
        Resolver().resolve(address.host, address.port)  # a metadata service is not asked
        ways = list(open_routes(base, timeout_s=timeout_s))
    except (EndpointError, ConnectionError) as error:
        return [Told("fix", str(error))]
    return _findings(base, ways, here=is_loopback(address.host))


def _findings(base: str, ways: "Sequence[OpenRoute]", *, here: bool) -> list[Told]:
    more = [way for way in ways if way.kind != "lives"]
    if not more:
        return [Told("ok", f"{base}: without a key only {', '.join(way.path for way in ways) or 'nothing'}")]
    findings = []
    for kind, can in _CAN.items():
        paths = [way.path for way in more if way.kind == kind]
        if paths:
            level = "stop" if kind == "changes" and not here else "fix"
            findings.append(Told(level, f"{base} {can} without a key: {', '.join(paths)}", _REMEDY))
    return findings
