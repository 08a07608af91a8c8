"""What looks like a key, token or password; and the keys that settings name, which this process masks.

Settings are shown, stored and shared, so they hold no key: they say in which variable or file one is. Whether
a text looks like one is decided by the forms that providers publish, a URL with a password in it, and, as a
last resort, long text that looks drawn by chance. A refusal costs a person one line; a leaked key costs more.
What was read as a key is masked in whatever the process writes from then on (`replay.masking` asks here).
"""

import os
import re
import stat
from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, fields, is_dataclass, replace
from functools import lru_cache
from math import log2
from pathlib import Path

from dreamgym_kit.errors import UserError
from dreamgym_kit.serialization import JsonValue
from dreamgym_kit.settings.schema import Settings

# What every key of a form holds, and the form: texts without the first are spared the second. Where a form
# has a group `secret`, only that is the key.
KEY_FORMS = {
    "[spr]k[-_]": r"\b(?:sk|pk|rk)-[A-Za-z0-9_-]{16,}|\b(?:sk|pk|rk)_(?:live|test)_[A-Za-z0-9_-]{8,}",
    "A(?:KIA|SIA|BIA|CCA|3T)": r"\b(?:AKIA|ASIA|ABIA|ACCA|A3T[0-9A-Z])[0-9A-Z]{16}\b",
    r"AKC|-us\d": r"\bAKC[0-9A-Za-z]{10,}|\b[0-9a-f]{32}-us[0-9]{1,2}\b",
    "gh[a-z]_|github_pat_|hf_": r"\bgh[pousr]_[A-Za-z0-9]{20,}|\bgithub_pat_\w{20,}|\bhf_[A-Za-z0-9]{20,}",
    "xox|lsv": r"\bxox[abeoprs]-[A-Za-z0-9-]{10,}|\blsv[12]_\w{20,}",
    "AIza": r"\bAIza[0-9A-Za-z_-]{30,}",
    "eyJ": r"(?<![\w-])eyJ[\w-]{5,}\.(?:eyJ[\w-]{16,}\b|[\w-]{5,}\.[\w-]*)",
    "gl[a-z]{2,5}-": r"\bgl(?:pat|cbt|ptt|dt|rt|ft|imt|agent|oas|soat)-[\w-]{16,}",
    "dckr_pat|pypi-|odt|tvly|sgp|sq0": r"\b(?:dckr_pat|pypi-AgE|odt|tvly|sgp|sq0[a-z]{3})[_-][\w-]{16,}",
    "pypi-AgE": r"\bpypi-AgE[\w-]{40,}",
    r"dp\.": r"\bdp\.(?:ct|pt|st|sa|scim|audit)\.(?:[\w-]{1,35}\.)?[A-Za-z0-9]{40,44}\b",
    "AA|live_|00D": r"\b[0-9]{8,10}:AA[\w-]{32,33}|\blive_[0-9]{6,12}_\w{24,}|\b00D\w{12}![\w.]{60,}",
    "NRA": r"\bNRAK-[A-Z0-9]{25,}|\b\w{34,36}NRAL\b",
    r"\.[\w-]{6}\.|AZDO": r"\b[MNOA][\w-]{23,27}\.[\w-]{6}\.[\w-]{27,40}|\b[0-9A-Za-z]{76}AZDO[0-9A-Za-z]{4}",
    "/webhook/": r"\bhttps://[\w.-]{1,60}/webhook/[\w@/-]{60,}",
    # Hashes of passwords.
    r"\$(?:\d|krb|argon|y\$)": r"\$(?:1|2[abxy]?|5|6|8|9|y|krb5\w+|argon2\w+)\$[^\s\"'<>]{20,}",
    "earer": r"(?i:\bbearer)\s+(?P<secret>[A-Za-z0-9._~+/=-]{12,})",
    "PRIVATE KEY": r"-----BEGIN [A-Z ]*PRIVATE KEY[\s\S]*?(?:-----END [A-Z ]*PRIVATE KEY-----|\Z)",
    r"gAAAAA|SG\.": r"\bgAAAAA[\w-]{40,}={0,2}|\bSG\.[\w-]{16,}\.[\w-]{16,}",
    "(?:AC|SK)[0-9a-f]{8}|key-": r"\b(?:AC|SK)[0-9a-f]{32}\b|\bkey-[0-9a-zA-Z]{32,}",
    "://": r"://[^/\s:@]*:(?P<secret>[^/\s@]+)@",
}
LOOSE_KEY = r"\b(?:sk|pk|rk)_[A-Za-z0-9_-]{16,}"  # in texts; in settings it may be the name of a tool
# Too common in texts of tools to be taken for keys there.
_MORE = r"\bls_\w{20,}|-eyJ[\w-]{8,200}\.[\w-]{8,}\.|\b[Bb]earer +[A-Za-z0-9._~+/-]{8,}"
_FORMS = re.compile("|".join((*KEY_FORMS.values(), _MORE)).replace("?P<secret>", "?:"))
# Names of credentials, as words joined by "_"; what stands behind one of the second kind is a secret only
# where it looks drawn by chance.
_PARTS = re.compile(r"[A-Z]+(?=[A-Z][a-z])|[A-Z]?[a-z]+|[A-Z]+|[0-9]+")
_SECRET_NAME = re.compile(
    r"(^|_)("
    r"\w*pass_?words?|\w*passwds?|pass_?phrases?|pass_?codes?|pwd|creds|credentials?|\w*secrets?|authorization|jwt|bearer"
    r"|cookies?|dsn|pin|otp|cvv|cvc|(card|security)_(code|verification_\w+)|card_number|webhook_url|connection_?string"
    r"|(access|api|app|auth|bearer|client|id|refresh|session|user)_?tokens"
    r"|(app|db|database|smtp|imap|mail|ftp|ssh|ldap|redis|mysql|root|admin|user|login|proxy|basic|auth)_pass|^pass"
    r"|(api|access|secret|private|encryption|signing|master|account|auth|ssh|hmac|storage|shared)_?keys?"
    r")$|._pat$"
)
_TOKEN_NAME = re.compile(r"token$")
_SYMBOL = re.compile(r"[A-Z]{1,5}")  # of a coin: what is called a token may be one
_NUMBER_NAME = re.compile(r"(^|_)(pin|cvv|cvc)$")  # a pin may be one of a map, too
_PLAIN_TOKEN = re.compile(
    r"(^|_)(page|next|prev|previous|cursor|continuation|sync|pagination|start|end|stop|eos|bos|pad|unk|mask|special"
    r"|first|last|resume|public)_token$"
)
_SPELLINGS = frozenset({"b64", "b", "base", "value", "hex", "encoded", "raw"})  # of the secret before
_MAYBE_NAME = re.compile(r"(^|_)(key|sig|signature|sid|session|pass|auth)$")
_PLAIN_KEY = re.compile(
    r"(^|_)(public|primary|foreign|partition|sort|cache|idempotency|dedupe|object|bucket)_key$"
)
_WORD = re.compile(r"[A-Za-z0-9+/=]{32,}")
_CHANCE_BITS = 4.2  # per character; English words and dotted paths stay below, base64 is near 5
_KEY_BITS = 3.5  # under a name that may be a key's; gitleaks asks as much
_WORD_BY_CHANCE = re.compile(r"[A-Za-z0-9+=_.~-]+")
_HEX = re.compile(r"[0-9a-fA-F-]+")


def looks_secret(text: str) -> bool:
    """Say whether `text` holds what looks like a credential."""
    return _FORMS.search(text) is not None or any(_by_chance(word) for word in _WORD.findall(text))


@lru_cache(maxsize=4096)
def names_secret(name: str) -> bool:
    """Say whether a name asks for a credential ("api_key", "dbPassword", "X-Auth-Token")."""
    joined = _joined(name)
    if _TOKEN_NAME.search(joined):
        return _PLAIN_TOKEN.search(joined) is None
    return _SECRET_NAME.search(joined) is not None


def named_secret(name: str, value: str) -> bool:
    """Say whether `value`, which stands under `name`, is a credential by that name."""
    if names_secret(name):
        joined = _joined(name)
        if _NUMBER_NAME.search(joined):
            return any(map(str.isdigit, value))
        symbol = _TOKEN_NAME.search(joined) and _SYMBOL.fullmatch(value)
        return bool(value) and not symbol
    return may_name_secret(name) and drawn_by_chance(value)


@lru_cache(maxsize=4096)
def may_name_secret(name: str) -> bool:
    """Say whether a name asks for a credential, or may do so: "password"; "service_key" of a chance value."""
    joined = _joined(name)
    if names_secret(name):
        return True
    return _MAYBE_NAME.search(joined) is not None and _PLAIN_KEY.search(joined) is None


def _joined(name: str) -> str:
    words = _PARTS.findall(name[-200:])
    while len(words) > 1 and (words[-1].isdigit() or words[-1].lower() in _SPELLINGS):
        words.pop()
    return "_".join(words).lower()


def drawn_by_chance(text: str) -> bool:
    """Say whether a text is one long mixed word, and neither UUID, hash, date, path nor address."""
    if not 16 <= len(text) <= 4096 or _WORD_BY_CHANCE.fullmatch(text) is None or _HEX.fullmatch(text):
        return False
    return any(map(str.isdigit, text)) and any(map(str.isalpha, text)) and entropy(text) > _KEY_BITS


def entropy(text: str) -> float:
    """Bits per character, by how often each stands in the text (Shannon)."""
    shares = [count / len(text) for count in Counter(text).values()]
    return -sum(share * log2(share) for share in shares)


def _by_chance(word: str) -> bool:
    kinds = (str.islower, str.isupper, str.isdigit)
    if not all(any(kind(character) for character in word) for kind in kinds):
        return False
    return entropy(word) > _CHANCE_BITS


MASK = "<masked>"
MARK = re.compile(r"<masked(?::[0-9a-f]{12})?>")
"""What stands for a secret where it was; with digits, for this one in one buffer (see `replay.masking`)."""
MARKED = re.compile(rf"(?:(?:bearer|basic|token|digest)\s+)?{MARK.pattern}", re.IGNORECASE)


def some_secret(value: JsonValue) -> JsonValue:
    """The same data with marks that keep no identity, as they were before there were others."""
    if isinstance(value, str):
        return MARK.sub(MASK, value) if "<masked:" in value else value
    if isinstance(value, (list, tuple)):
        return [some_secret(item) for item in value]
    if isinstance(value, (dict, Mapping)):
        return {name: some_secret(item) for name, item in value.items()}
    return value


def secret_arguments(args: Mapping[str, JsonValue]) -> dict[str, str]:
    """Each argument, or field within one, that is a secret and nothing else: its path, its mark."""
    marks: dict[str, str] = {}
    left: list[tuple[str, JsonValue]] = list(args.items())
    while left:
        path, value = left.pop()
        if isinstance(value, str):
            if "<masked" in value and MARKED.fullmatch(value):
                marks[path] = value
        elif isinstance(value, (dict, Mapping)):
            left += [(f"{path}.{name}", item) for name, item in value.items()]
        elif isinstance(value, (list, tuple)):
            left += [(f"{path}[{place}]", item) for place, item in enumerate(value)]
    return marks


_ENV, _FILE = "key_env", "key_file"
_MAX_BYTES = 4096
HELD: set[str] = set()
"""What was read as a key."""
NAMED: set[str] = set()
"""Variables that hold keys, whatever their names."""


@dataclass(frozen=True, slots=True)
class KeyPlace:
    """Where one key is said to be."""

    key: tuple[str, str]  # of the settings, the one that names it
    variable: str | None
    file: str | None


def key_places(settings: Settings) -> Iterator[KeyPlace]:
    """All that settings name."""
    for section in fields(settings):
        values = getattr(settings, section.name)
        for each in fields(values) if is_dataclass(values) else ():
            if not each.name.endswith(_ENV):
                continue
            filed = each.name.removesuffix(_ENV) + _FILE
            variable, file = getattr(values, each.name), getattr(values, filed, None)
            if variable is not None or file is not None:
                name = each.name if variable is not None else filed
                yield KeyPlace((section.name, name), variable, file)


def with_whole_paths(settings: Settings, folder: Path) -> Settings:
    """The same settings; files of keys that were named from `folder` are named from the root."""
    for place in key_places(settings):
        section, name = place.key[0], place.key[1].removesuffix(_ENV).removesuffix(_FILE) + _FILE
        if place.file is not None:
            whole = replace(getattr(settings, section), **{name: str(folder / Path(place.file).expanduser())})
            settings = replace(settings, **{section: whole})
    return settings


@dataclass(frozen=True, slots=True)
class Own:
    """What `[secrets]` adds: forms of secrets, and names of fields."""

    patterns: tuple[str, ...] = ()
    fields: frozenset[str] = frozenset()


OWN = [Own()]
"""The last is what holds in this process."""


def keep_secret(settings: Settings) -> None:
    """Have what settings name as keys and secrets masked from now on; a key that is missing is told later.

    Raises:
        UserError: a pattern is none, or matches a text without a character.
    """
    own = settings.secrets
    for pattern in own.patterns:
        try:
            empty = re.compile(pattern).search("") is not None
        except re.error as error:
            raise UserError(f"{settings.where('secrets')}: patterns: '{pattern}': {error}.") from None
        if empty:
            raise UserError(
                f"{settings.where('secrets')}: patterns: '{pattern}' matches an empty text; "
                "have it match at least one character."
            )
    NAMED.update(own.variables)
    made = Own(own.patterns, frozenset(own.fields))
    if made != OWN[-1]:
        OWN[:] = [made]
    for place in key_places(settings):
        if place.variable is not None:
            NAMED.add(place.variable)
        if place.file is not None:
            try:
                read_key_file(Path(place.file), source="")
            except UserError:
                continue


def hold(secret: str) -> None:
    """Have this text masked from now on."""
    HELD.add(secret)


def read_key_file(path: Path, *, source: str) -> str:
    """The key that lies in a file: all of it but the line's end. What was read is masked from now on.

    Raises:
        UserError: it is no regular file, cannot be read, or holds no key. Its content is not repeated.
    """
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_NONBLOCK)  # a pipe without a writer would wait for one
        with os.fdopen(descriptor, "rb") as file:
            if not stat.S_ISREG(os.fstat(descriptor).st_mode):
                raise UserError(f"{source}: {path} is no regular file; write the key into one.")
            raw = file.read(_MAX_BYTES + 1)
    except OSError as error:
        why = error.strerror or type(error).__name__
        raise UserError(f"{source}: the key's file {path} cannot be read: {why}.") from None
    except ValueError:
        raise UserError(f"{source}: the name of the key's file holds a NUL character.") from None
    if len(raw) > _MAX_BYTES:
        raise UserError(f"{source}: {path} is longer than a key ({_MAX_BYTES} bytes); it holds one, alone.")
    text = raw.decode("ascii", "replace").strip()
    if text:
        hold(text)
    if not text.isascii() or not text.isprintable() or not text or " " in text:
        raise UserError(f"{source}: {path} holds no key: a key is one word on one line.")
    return text


def open_to_all(path: Path) -> bool:
    """Whether everybody on this machine may read a file."""
    try:
        return bool(path.stat().st_mode & stat.S_IROTH)
    except (OSError, ValueError):
        return False


def open_key_files(settings: Settings) -> list[str]:
    """One line for each key's file that everybody may read."""
    files = {place.file: place.key for place in key_places(settings) if place.file is not None}
    return [
        f"{'.'.join(key)}: everybody on this machine may read {file}; chmod 600 {file}"
        for file, key in files.items()
        if open_to_all(Path(file))
    ]
