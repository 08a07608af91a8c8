"""Where a buffer lies: a file, or the address of a server that holds it.

An address is `scheme://host:port/path?name=value`; a scheme that needs no host (`weaviate+embedded:`) is
followed by a path, or by nothing. It says where, never who: a key in it is refused without being repeated,
since addresses are shown, stored and shared. What a scheme makes of its parts is its adapter's affair.
"""

import re
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from urllib.parse import parse_qsl, quote, urlencode, urlsplit

from dreamgym_kit.canonical import digest
from dreamgym_kit.errors import UnknownName, UserError
from dreamgym_kit.settings.schema import Settings
from dreamgym_kit.settings.secrets import looks_secret, names_secret

COLLECTION = "DreamgymTransitions"
TENANT = "default"
_SCHEME = re.compile(r"([A-Za-z][A-Za-z0-9+.-]+):")  # of two letters at least: "C:" is a drive


@dataclass(frozen=True, slots=True, kw_only=True)
class Scheme:
    """A kind of buffer server.

    Attributes:
        opens: module and function of its adapter. The function takes the arguments of `factory.open_store`
            and connects before it returns. It raises `StoreUnavailable` if no server answers in time, another
            `StoreError` or a `UserError` if retrying cannot help, such as a wrong key or a missing tenant.
        extra: of the packages that it needs.
        port: where an address names none; None: it has no host, and is followed by a path, or by nothing.
        how: options that say how a buffer is asked, not which one it is.
    """

    opens: tuple[str, str]
    extra: str
    port: int | None
    how: tuple[str, ...] = ()


_WEAVIATE = Scheme(
    opens=("dreamgym_kit.adapters.stores.weaviate", "open_weaviate"),
    extra="weaviate",
    port=8080,
    how=("binary", "consistency", "grpc", "index", "proxy", "replicas", "timeout"),
)
SCHEMES = {
    "weaviate": _WEAVIATE,
    "weaviates": replace(_WEAVIATE, port=443),
    "weaviate+embedded": replace(_WEAVIATE, port=None),
}


@dataclass(frozen=True, slots=True)
class Address:
    """A server that holds a buffer."""

    scheme: str
    host: str = ""  # lower case; "" where the scheme needs none
    port: int | None = None
    path: str = ""
    options: Mapping[str, str] = field(default_factory=dict)  # "?tenant=shop", decoded

    def __str__(self) -> str:
        """The address as it is typed; equal addresses are spelled alike."""
        host = f"[{self.host}]" if ":" in self.host else self.host
        port = "" if self.port is None else f":{self.port}"
        start = f"{self.scheme}:" if self.kind.port is None else f"{self.scheme}://{host}{port}"
        options = urlencode(sorted(self.options.items()))
        return f"{start}{quote(self.path)}{'?' if options else ''}{options}"

    @property
    def kind(self) -> Scheme:
        """What its scheme stands for."""
        return SCHEMES[self.scheme]

    @property
    def name(self) -> str:
        """What files that belong to this address are called: the host, and what tells it from others."""
        host = re.sub(r"[^A-Za-z0-9.-]", "_", self.host)[:60] or "here"
        options = {name: option for name, option in self.options.items() if name not in self.kind.how}
        if options.get("tenant") == TENANT:
            del options["tenant"]
        port = None if self.port == self.kind.port else self.port
        path = "" if self.host and self.path.strip("/") == COLLECTION else self.path
        same = replace(self, port=port, path=path, options=options)
        return f"{self.scheme.replace('+', '-')}-{host}-{digest(str(same))[:12]}"


Place = Path | Address


def buffer_of(settings: Settings) -> Place:
    """Where the settings' buffer lies; relative paths start at the settings' folder.

    Raises:
        UserError: an address that cannot be one, or that bears a key.
    """
    return place_of(str(settings.buffer), settings.folder, source=settings.where("buffer"))


def place_of(text: str, folder: Path, *, source: str = "--buffer") -> Place:
    """Read a place; `source` is where the text stands, for messages.

    Raises:
        UserError: see `buffer_of`.
    """
    match = _SCHEME.match(text)
    scheme = match[1].lower() if match else ""
    if scheme not in SCHEMES and not (match and text.startswith("//", match.end())):
        return folder / text
    if scheme not in SCHEMES:
        raise UnknownName("kind of buffer", scheme, known=SCHEMES, source=source, where="those there are")
    address = _address(scheme, text, source)
    return replace(address, path=str(folder / address.path)) if address.path and not address.host else address


def is_missing(place: Place) -> bool:
    """Whether there is no such file yet; of a server only opening it tells."""
    return not isinstance(place, Address) and not place.exists()


def _address(scheme: str, text: str, source: str) -> Address:
    try:
        parts = urlsplit(text)
        host, port = parts.hostname or "", parts.port
        options = dict(parse_qsl(parts.query, keep_blank_values=True, strict_parsing=bool(parts.query)))
    except ValueError:
        raise UserError(f"{source}: is no address; expected {_form(scheme)}") from None
    if parts.username is not None or parts.password is not None or "@" in parts.netloc:
        raise _bears_key(source, "a user or password before its host")
    for name, value in options.items():
        if names_secret(name) or looks_secret(value):
            raise _bears_key(source, f"a key in its option {name!r}")
        if "@" in value.partition("/")[0]:  # behind a slash it is a file's name
            raise _bears_key(source, f"a user or password in its option {name!r}")
    if looks_secret(f"{host} {parts.path}") or looks_secret(parts.fragment):
        raise _bears_key(source, "what looks like a key")
    if bool(host) is (SCHEMES[scheme].port is None) or parts.fragment or not text.isprintable():
        raise UserError(f"{source}: is no address; expected {_form(scheme)}")
    path = parts.path if SCHEMES[scheme].port is None else parts.path.rstrip("/")
    return Address(scheme, host, port, path, options)


def _form(scheme: str) -> str:
    return f"{scheme}:[FOLDER]" if SCHEMES[scheme].port is None else f"{scheme}://HOST[:PORT][?tenant=NAME]"


def _bears_key(source: str, part: str) -> UserError:
    return UserError(
        f"{source}: the address bears {part}; addresses are shown and stored, so take it out and put the "
        "key into an environment variable (docs/recordings.md)"
    )
