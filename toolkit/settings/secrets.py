"""Whether a text looks like a key, token or password: settings are shown, stored and shared.

Decides by the forms that providers publish, a URL with a password in it, and, as a last resort, long
text that looks drawn by chance. A refusal costs a person one line; a leaked key costs more.
"""

import re
from collections import Counter
from math import log2

_FORMS = re.compile(
    r"""
    \b(sk|rk|pk)-[A-Za-z0-9_-]{16,}        # OpenAI, Anthropic, OpenRouter
    | \b(sk|rk|pk)_(live|test)_[A-Za-z0-9]{8,}   # Stripe
    | \bgh[pousr]_[A-Za-z0-9]{20,} | \bgithub_pat_[A-Za-z0-9_]{20,}
    | \bglpat-[A-Za-z0-9_-]{16,}
    | \bhf_[A-Za-z0-9]{20,}
    | \bxox[abeoprs]-[A-Za-z0-9-]{10,}
    | \bA(KIA|SIA)[A-Z0-9]{16}\b
    | \bAIza[A-Za-z0-9_-]{30,}
    | \b(lsv2|lsv1|ls)_[A-Za-z0-9_]{20,}
    | \beyJ[A-Za-z0-9_-]{8,}\.[A-Za-z0-9_-]{8,}\.
    | -----BEGIN\ [A-Z ]*PRIVATE\ KEY
    | \b[Bb]earer\ +[A-Za-z0-9._~+/-]{8,}
    | ://[^/\s:@]+:[^/\s@]+@               # user:password@host
    """,
    re.VERBOSE,
)
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
