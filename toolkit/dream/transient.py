"""Failures that pass: the way to a system was shut for a moment, and nothing was told about the system.

Of an agent's own episode they are part, and are recorded. For a crawl, which asks what there is, they are no
answer: what met one is asked again.
"""

import re

from dreamgym_kit.types import Answer

_TYPES = re.compile(
    r"timeout|timedout|connect(ion)?(error|reset|refused|aborted)|(read|write|network|protocol|transport)error"
    r"|ratelimit|throttl|serviceunavailable|temporar|toomanyrequests",
    re.IGNORECASE,
)
_WORDS = re.compile(
    r"\b(408|425|429|502|503|504)\b|too many requests|rate.?limit|timed? ?out|temporar(y|ily)"
    r"|connection (was )?(reset|refused|aborted|closed)|service unavailable|bad gateway",
    re.IGNORECASE,
)


def is_transient(answer: Answer) -> bool:
    """Whether an answer is such a failure, by the name of its type or by what it says."""
    if answer.error is None:
        return False
    return bool(_TYPES.search(answer.error_type or "") or _WORDS.search(answer.error))
