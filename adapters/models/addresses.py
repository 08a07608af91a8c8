"""Where an endpoint's URL may lead to (hosts that a person put in settings, never metadata), and its key.

A cloud's metadata service hands out credentials to whoever asks from inside; its addresses are refused
as they are written, as names resolve to them, and wrapped in IPv6. A name is looked up once for a
connection, and what was looked at is what is connected to. A name that first led to public addresses may
not later lead to private ones (DNS rebinding). A key is named by its variable or its file, sent in one
header, and masked everywhere else.
"""

import os
import socket
from collections.abc import Mapping
from dataclasses import dataclass
from ipaddress import IPv4Address, IPv4Network, IPv6Address, IPv6Network, ip_address, ip_network
from pathlib import Path
from urllib.parse import urlsplit

from dreamgym_kit.errors import EndpointError, UserError
from dreamgym_kit.guard.egress import exempt
from dreamgym_kit.replay.masking import forms_of
from dreamgym_kit.settings.secrets import hold, read_key_file

_MASK = "***"
_METADATA_NAMES = frozenset(
    {"metadata", "metadata.google.internal", "metadata.goog", "instance-data", "instance-data.ec2.internal"}
)
_METADATA: tuple[IPv4Network | IPv6Network, ...] = tuple(
    map(
        ip_network,
        (
            "169.254.0.0/16",  # link-local: AWS, Google, Azure, OpenStack, ECS
            "fe80::/10",
            "fd00:ec2::/32",  # AWS over IPv6
            "fd20:ce::/32",  # Google over IPv6
            "100.100.100.200/32",  # Alibaba
            "168.63.129.16/32",  # Azure's wire server
            "192.0.0.192/32",  # Oracle
            "0.0.0.0/8",  # "this host", and ::
            "::/128",
        ),
    )
)
_NAT64 = IPv6Network("64:ff9b::/96")


@dataclass(frozen=True, slots=True)
class EndpointAddress:
    """An endpoint's base URL, taken apart."""

    scheme: str
    host: str
    port: int
    path: str  # without a slash at its end

    @property
    def origin(self) -> str:
        """The URL without its path."""
        host = f"[{self.host}]" if ":" in self.host else self.host
        return f"{self.scheme}://{host}:{self.port}"

    def __str__(self) -> str:
        return self.origin + self.path


def read_address(url: str, *, source: str) -> EndpointAddress:
    """Take a base URL apart.

    Raises:
        UserError: it is no http(s) URL, holds a user or key, or names a metadata service. The message
            never repeats what stands before an @.
    """
    try:
        parts = urlsplit(url.strip())
        host, port = parts.hostname, parts.port
    except ValueError:  # its text may hold a part of the URL that is a key
        raise UserError(f"{source}: not a URL that we read; write http://host:port/v1.") from None
    if parts.scheme not in ("http", "https") or not host:
        raise UserError(f"{source}: an endpoint is an http or https URL; write https://host/v1.")
    if "@" in parts.netloc:
        raise UserError(f"{source}: a URL with a user or key in it; name the key's variable in key_env.")
    if parts.query or parts.fragment:
        raise UserError(f"{source}: an endpoint's URL ends before '?' and '#'; write https://host/v1.")
    host = read_host(host, source=source, form="https://host/v1")
    if not parts.path.isascii() or not parts.path.isprintable():
        raise UserError(f"{source}: the path of an endpoint's URL is ASCII; write https://host/v1.")
    return EndpointAddress(
        parts.scheme, host, port or (443 if parts.scheme == "https" else 80), parts.path.rstrip("/")
    )


def read_host(host: str, *, source: str, form: str) -> str:
    """A host as it is looked up; full-width digits and the like become what they stand for.

    Raises:
        UserError: it is none, or a metadata service's; `form` says what to write instead.
    """
    host = host.rstrip(".").lower()
    try:
        ascii_host = host if ":" in host else host.encode("idna").decode("ascii").lower()
    except UnicodeError:
        raise UserError(f"{source}: the URL's host is no name; write {form}.") from None
    if not ascii_host or not all(char.isalnum() or char in "-._:%" for char in ascii_host):
        raise UserError(f"{source}: the URL's host is no name; write {form}.")
    if ascii_host in _METADATA_NAMES or is_metadata(ascii_host):
        raise UserError(f"{source}: {ascii_host} is a cloud's metadata service, which is never asked.")
    return ascii_host


def literal(host: str) -> IPv4Address | IPv6Address | None:
    """The address that a text spells, any spelling that the system's resolver takes; None for a name."""
    try:
        return ip_address(host.partition("%")[0])
    except ValueError:
        pass
    try:
        return IPv4Address(socket.inet_aton(host))  # "2852039166", "0xa9fea9fe", "0251.0376.0251.0376"
    except OSError:
        return None


def is_metadata(host: str) -> bool:
    """Whether an address is a metadata service's, also when it is wrapped in IPv6."""
    ip = literal(host)
    return ip is not None and any(
        candidate in network
        for candidate in (ip, *_inside(ip))
        for network in _METADATA
        if candidate.version == network.version
    )


class Resolver:
    """Looks names up, refuses metadata addresses and names that turn private."""

    def __init__(self) -> None:
        self._public: set[str] = set()

    def resolve(self, host: str, port: int) -> list[str]:
        """The addresses of a host, in the resolver's order. Blocks.

        Raises:
            EndpointError: unknown, a metadata service, or private where it was public before.
        """
        try:
            with exempt():  # the person named this host; the agent's own code stays guarded
                entries = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)
        except OSError as error:
            why = error.strerror or type(error).__name__
            raise EndpointError("connection", f"{host} has no address ({why})", retryable=True) from None
        addresses = list(dict.fromkeys(str(entry[4][0]) for entry in entries))
        if any(is_metadata(address) for address in addresses):
            raise EndpointError(
                "refused_address", f"{host} leads to a cloud's metadata service; it was not asked"
            )
        public = all(_is_public(address) for address in addresses)
        if not public and host in self._public:
            raise EndpointError(
                "refused_address",
                f"{host} led to a public address and now to a private one; it was not asked",
            )
        if public:
            self._public.add(host)
        return addresses


def _inside(address: IPv4Address | IPv6Address) -> list[IPv4Address]:
    """The IPv4 addresses that an IPv6 address carries."""
    if isinstance(address, IPv4Address):
        return []
    carried = [address.ipv4_mapped, address.sixtofour, *(address.teredo or ())]
    if address in _NAT64 or 0xFFFF < int(address) < 2**32:  # ::a.b.c.d, the old compatible form
        carried.append(IPv4Address(int(address) & 0xFFFFFFFF))
    return [ip for ip in carried if ip is not None]


def _is_public(address: str) -> bool:
    ip = literal(address)
    return ip is not None and all(part.is_global for part in (ip, *_inside(ip)))


class ApiKey:
    """Holds a key without showing it: no repr, no str, no pickle of it has the text."""

    __slots__ = ("_forms", "_text")

    def __init__(self, text: str) -> None:
        self._text = text
        self._forms = forms_of(text)

    def headers(self) -> dict[str, str]:
        """The header that carries the key; none for no key."""
        return {"authorization": f"Bearer {self._text}"} if self._text else {}

    def mask(self, text: str) -> str:
        """`text` without the key, however it is spelled in it (plain, URL, base64, JSON)."""
        for form in self._forms:
            text = text.replace(form, _MASK)
        return text

    def __repr__(self) -> str:
        return f"ApiKey({_MASK})"

    def __reduce__(self) -> str:
        raise TypeError("a key is not pickled")


def read_key(
    variable: str | None,
    *,
    source: str,
    environ: Mapping[str, str] | None = None,
    file: str | None = None,
) -> ApiKey:
    """Read the key that an environment variable or a file holds; neither, no key. It is masked from now on.

    Raises:
        UserError: both are named, or the one holds nothing that a header can carry.
    """
    if variable is not None and file is not None:
        raise UserError(f"{source}: the key is to come from {variable} and from {file}; name one of them.")
    if file is not None:
        return ApiKey(read_key_file(Path(file), source=source))
    if variable is None:
        return ApiKey("")
    text = (os.environ if environ is None else environ).get(variable, "").strip()
    if not text:
        raise UserError(f"{source}: the environment variable {variable} is not set; it has to hold the key.")
    if not text.isascii() or not text.isprintable() or " " in text:
        raise UserError(f"{source}: the environment variable {variable} holds no key: a key is one word.")
    hold(text)
    return ApiKey(text)
