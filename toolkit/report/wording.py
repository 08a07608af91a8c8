"""A tool's name as a person would say what it did: `refund_payment` -> "refunded a payment".

Only for names that begin with a verb that is known here; any other name is told as it is ("called
payment_v2"). A wrong verb would be a wrong report.
"""

import re

_VOWEL = re.compile(r"[aeio]|u(?!ser|nit|sage|rl|ri|uid|nion|ni[qv])")  # as it is spoken: a user, an update
_PAST = {
    "buy": "bought",
    "cancel": "cancelled",
    "drop": "dropped",
    "pay": "paid",
    "put": "put",
    "reset": "reset",
    "send": "sent",
    "set": "set",
    "ship": "shipped",
    "stop": "stopped",
    "submit": "submitted",
    "write": "wrote",
}
_REGULAR = frozenset(
    re.findall(
        r"[a-z]+",
        """
    add apply approve archive assign authorize book capture change charge close confirm create credit
    debit delete deploy disable email enable erase escalate file invite invoice issue mail merge modify
    move notify open order place post publish purge refund register reject release remove rename reopen
    replace reschedule reserve revoke save schedule subscribe terminate transfer unsubscribe update
    upload
    """,
    )
)


def past(tool: str) -> str:
    """Say that a tool was used once: "refunded a payment", or "called payment_v2"."""
    verb, object_ = _parts(tool)
    if not verb:
        return f"called {tool}"
    if not object_:
        return verb
    if object_.endswith("s"):
        return f"{verb} {object_}"
    return f"{verb} {'an' if _VOWEL.match(object_) else 'a'} {object_}"


def past_times(tool: str, times: int) -> str:
    """Say how often a tool was used: "refunded a payment 52 times"."""
    return past(tool) if times == 1 else f"{past(tool)} {times} times"


def _parts(tool: str) -> tuple[str, str]:
    words = [word.lower() for word in re.findall(r"[A-Z]?[a-z0-9]+|[A-Z]+(?![a-z])", tool)]
    if not words or "".join(words) != re.sub(r"[_\-. ]", "", tool).lower():
        return "", ""
    verb = _verb(words[0])
    return (verb, " ".join(words[1:])) if verb else ("", "")


def _verb(word: str) -> str:
    if word in _PAST:
        return _PAST[word]
    if word not in _REGULAR:
        return ""
    if word.endswith("e"):
        return f"{word}d"
    if word.endswith("y"):
        return f"{word[:-1]}ied"
    if word.endswith("fer"):
        return f"{word}red"
    return f"{word}ed"
