"""Whether a text looks like a key, token or password: settings are shown, stored and shared.

Decides by the forms that providers publish, a URL with a password in it, and, as a last resort, long
text that looks drawn by chance. A refusal costs a person one line; a leaked key costs more.
"""

import re
from collections import Counter
from math import log2

KEY_FORMS = (  # where one has a group `secret`, only that is the key
    r"\b(?:sk|pk|rk)-[A-Za-z0-9_-]{16,}|\b(?:sk|pk|rk)_(?:live|test)_[A-Za-z0-9_-]{8,}",
    r"\b(?:AKIA|ASIA)[0-9A-Z]{16}\b",
    r"\bgh[pousr]_[A-Za-z0-9]{20,}|\bgithub_pat_\w{20,}|\bglpat-[\w-]{16,}|\bhf_[A-Za-z0-9]{20,}",
    r"\bxox[abeoprs]-[A-Za-z0-9-]{10,}|\blsv[12]_\w{20,}",
    r"\bAIza[0-9A-Za-z_-]{30,}",
    r"(?<![\w-])eyJ[\w-]{5,}\.[\w-]{5,}\.[\w-]*",
    r"(?i:\bbearer)\s+(?P<secret>[A-Za-z0-9._~+/=-]{12,})",
    r"-----BEGIN [A-Z ]*PRIVATE KEY[\s\S]*?(?:-----END [A-Z ]*PRIVATE KEY-----|\Z)",
    r"://[^/\s:@]*:(?P<secret>[^/\s@]+)@",
)
LOOSE_KEY = r"\b(?:sk|pk|rk)_[A-Za-z0-9_-]{16,}"  # in texts; in settings it may be the name of a tool
# Too common in texts of tools to be taken for keys there.
_MORE = r"\bls_\w{20,}|-eyJ[\w-]{8,200}\.[\w-]{8,}\.|\b[Bb]earer +[A-Za-z0-9._~+/-]{8,}"
_FORMS = re.compile("|".join((*KEY_FORMS, _MORE)).replace("?P<secret>", "?:"))
_SECRET_NAME = re.compile(
    r"(^|[_-])(api[_-]?key|apikey|token|secret|password|passwd|credentials?)s?$", re.IGNORECASE
)
_WORD = re.compile(r"[A-Za-z0-9+/=]{32,}")
_CHANCE_BITS = 4.2  # per character; English words and dotted paths stay below, base64 is near 5


def looks_secret(text: str) -> bool:
    """Say whether `text` holds what looks like a credential."""
    return _FORMS.search(text) is not None or any(_by_chance(word) for word in _WORD.findall(text))


def names_secret(key: str) -> bool:
    """Say whether a key's name asks for a credential ("api_key", "OPENAI_TOKEN")."""
    return _SECRET_NAME.search(key) is not None


def _by_chance(word: str) -> bool:
    kinds = (str.islower, str.isupper, str.isdigit)
    if not all(any(kind(character) for character in word) for kind in kinds):
        return False
    shares = [count / len(word) for count in Counter(word).values()]
    return -sum(share * log2(share) for share in shares) > _CHANCE_BITS
