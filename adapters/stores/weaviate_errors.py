"""What the Weaviate client raises, as one line: whether another try can help, and what to do.

The client drops the status of most answers and keeps their text (it hangs on as the error's context), and
the server gives many faults no status at all. So both are looked at. What cannot be told is no reason to
lose rows: only what names a cause that stays is a plain `StoreError`.
"""

from dreamgym_kit.errors import StoreError, StoreUnavailable

TOO_LARGE = "GRPC_MAX_MESSAGE_SIZE"  # is in an error that fewer rows at once may not meet
_NOT_NOW_CODES = (
    "UNAVAILABLE",
    "DEADLINE_EXCEEDED",
    "RESOURCE_EXHAUSTED",
    "ABORTED",
    "CANCELLED",
    "INTERNAL",
)
_NOT_NOW_STATUS = (408, 425, 429)
_NOT_NOW_KINDS = (  # by name, so that telling costs no import
    "WeaviateConnectionError",
    "WeaviateTimeoutError",
    "WeaviateRetryError",
    "WeaviateGRPCUnavailableError",
    "WeaviateClosedClientError",
    "TransportError",
    "OSError",
    "TimeoutError",
)
_NOT_NOW = (
    "cannot achieve consistency level",  # up to 1.36
    "cannot reach enough replicas",  # newer servers; the next four are theirs for a node that leaves
    "connect: post",
    "request not found",
    "resolve node name",
    "the client connection is closing",
    "not allowed during this time",  # the server's own modes: read-only, write-only, scale-out
    "read-only",
    "not enough memory",
    "no space left",
    "deadline exceeded",
    "context canceled",
    "connection refused",
    "connection reset",
    "connection error",
    "leader not found",
    "leadership",
    "shutting down",
    "shard not ready",
    "not ready",
    "too many requests",
    "unavailable",
    "timeout",
    "timed out",
)
_REFUSALS = (
    (
        ("unauthenticated", "unauthorized", "invalid api key", "anonymous access not enabled"),
        "the server takes no such key; {key} has to hold the right one",
    ),
    (
        ("forbidden", "permission"),
        "the key of {key} has no right to do that; give its user rights on the collection and its tenants",
    ),
    (("tenant not active",), "its tenant is not active; activate it on the server"),
    (
        ("tenant not found", "tenant", "is not supported for multi-tenancy"),
        "its tenant is gone, or was never made; name another, or open it to write, which makes it",
    ),
    (
        ("could not find class", "could not find collection", "class not found", "no such class"),
        "its collection is gone; open it to write, which makes one",
    ),
    (
        ("larger than max", "message size"),
        "a row is more than the server takes in one message; raise " + TOO_LARGE + " there",
    ),
    (
        ("minimum replication factor", "not enough replicas: found"),
        "the server wants another number of copies of each row; say it in the address: replicas=3",
    ),
    (("is not supported. please use",), "the server is too old; use Weaviate 1.29 or newer"),
)


def store_error(place: str, doing: str, error: BaseException, *, key: str) -> StoreError:
    """Say what went wrong; `StoreUnavailable` where the same may go well later.

    Args:
        place: the buffer, as a person named it.
        doing: what was being done, "while rows were put".
        error: what the client raised.
        key: the environment variable or the file that holds the key, for messages.
    """
    text, status = _short(error), _status(error)
    low = f"{text} {status}".lower()
    if status in (401, 403) or not _is_not_now(error, status, low):
        words = _refusal(low, status)
        reason = words.format(key=key) if words else "the server refused it"
        return StoreError(f"{place}: {doing}: {reason} ({text})")
    return StoreUnavailable(f"{place}: {doing}: the server cannot do it now; try again later ({text})")


def row_error(text: str) -> type[StoreError]:
    """The kind of error for a row that the server did not take, by what it said of it."""
    return StoreUnavailable if any(sign in text.lower() for sign in _NOT_NOW) else StoreError


def _is_not_now(error: BaseException, status: int | str | None, low: str) -> bool:
    if "larger than max" in low or "is not supported. please use" in low:
        return False
    if isinstance(status, int):
        return status >= 500 or status in _NOT_NOW_STATUS
    if status in _NOT_NOW_CODES:
        return True
    kinds = {kind.__name__ for each in _chain(error) for kind in type(each).__mro__}
    return bool(kinds.intersection(_NOT_NOW_KINDS)) or any(sign in low for sign in _NOT_NOW)


def _refusal(low: str, status: int | str | None) -> str | None:
    if status == 401:
        return _REFUSALS[0][1]
    if status in (403, "PERMISSION_DENIED"):
        return _REFUSALS[1][1]
    for signs, words in _REFUSALS:
        if any(sign in low for sign in signs):
            return words
    return None


def _status(error: BaseException) -> int | str | None:
    for each in _chain(error):
        status = getattr(each, "status_code", None)
        if isinstance(status, int) and status > 99:
            return status
        code = getattr(each, "code", None)
        name = getattr(code(), "name", None) if callable(code) else None
        if isinstance(name, str):
            return name
    return None


def _chain(error: BaseException) -> list[BaseException]:
    errors: list[BaseException] = []
    each: BaseException | None = error
    while each is not None and each not in errors:
        errors.append(each)
        each = each.__cause__ or each.__context__
    return errors


def _short(error: BaseException) -> str:
    text: object = getattr(error, "message", "") or error
    for each in _chain(error):  # gRPC's own text is as long as a page; the server's words are in it
        details = getattr(each, "details", None)
        if callable(details):
            text = details() or text
    return (" ".join(str(text).split()) or type(error).__name__)[:300]
