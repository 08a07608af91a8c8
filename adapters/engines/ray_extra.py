"""Whether Ray can be used here, and which cluster: said before anything is started."""

import os
import socket
from importlib.metadata import version
from importlib.util import find_spec

from dreamgym_kit.errors import MissingExtra, UserError

_NEEDED = ("ray", "psutil")
_REACH_S = 5.0


def require_extra(needed_by: str) -> None:
    """Raise MissingExtra where one of the packages is not installed. Imports none of them."""
    if any(find_spec(package) is None for package in _NEEDED):
        raise MissingExtra("ray", needed_by=needed_by)


def checked_address(address: str | None) -> str | None:
    """The cluster to join, or None for one of this machine's own.

    Raises:
        UserError: it is one that cannot be used; or none was named where RAY_ADDRESS names one, which Ray
            would silently join.
    """
    if address is None:
        if there := os.environ.get("RAY_ADDRESS"):
            raise UserError(
                f'RAY_ADDRESS is set ({there}): set workers.address = "auto" to join that cluster, or unset '
                "it to start one of this machine's own. Nothing was run."
            )
        return None
    if "://" in address:
        raise UserError(
            f"workers.address {address}: the client protocol is not supported, since it drops every call "
            'when its connection drops. Run the command on a machine of it, workers.address = "auto" '
            "(from outside: ray job submit -- dreamgym-kit ...). Nothing was run."
        )
    host, _, port = address.rpartition(":")
    if address != "auto" and not (host and port.isdecimal() and 0 < int(port) < 65536):
        raise UserError(f"workers.address {address}: write HOST:PORT, or auto. Nothing was run.")
    return address


def check_reached(address: str) -> None:
    """Raise where nobody listens at HOST:PORT: Ray itself needs most of a minute to say so."""
    if address == "auto":
        return
    host, _, port = address.rpartition(":")
    try:
        socket.create_connection((host.strip("[]"), int(port)), timeout=_REACH_S).close()
    except OSError as error:
        why = f"no Ray cluster answers there ({error})"
        raise UserError(f"workers.address {address}: {why}. Nothing was run.") from None


def usable(address: str | None) -> str:
    """Which Ray there is, and what a run would do with it; nothing is started or joined.

    Raises:
        MissingExtra: it is not installed.
        UserError: the address cannot be used, or nobody listens there.
    """
    require_extra('workers.backend = "ray"')
    there = checked_address(address)
    if there is None:
        return f"{version('ray')}; a run starts a cluster of its own on this machine"
    check_reached(there)
    return f"{version('ray')}; a run joins the cluster at {there}"
