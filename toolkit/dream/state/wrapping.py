"""What a tool puts around its answer: JSON as text, a block of content. Statements are about the inside."""

from collections.abc import Callable, Iterable

from dreamgym_kit.serialization import JsonValue

Wrap = Callable[[JsonValue], JsonValue]


def unwrapped(seen: JsonValue) -> JsonValue:
    """An observation without what the tool puts around it."""
    inner, _ = opened(seen)
    return inner


def opened(seen: JsonValue) -> tuple[JsonValue, Wrap]:
    """What is inside of an observation, and what puts another inside back into the same wrapping."""
    if isinstance(seen, dict) and set(seen) == {"$json", "$spelling"}:
        return seen["$json"], lambda inner: {**seen, "$json": inner}
    if isinstance(seen, dict) and len(seen) == 1 and isinstance(parts := seen.get("$answer"), dict):
        if parts.get("content") is None or parts.get("error") is not None:
            return seen, _as_it_is
        inner, put = opened(parts["content"])
        return inner, lambda other: {"$answer": {**parts, "content": put(other)}}
    if isinstance(seen, list) and len(seen) == 1 and _is_text_block(block := seen[0]):
        inner, put = opened(block.get("text"))
        return inner, lambda other: [{**block, "text": put(other)}]
    return seen, _as_it_is


def usual_wrap(answers: Iterable[JsonValue]) -> Wrap:
    """How a tool wraps its answers, by the first of these that shows it."""
    for seen in answers:
        inner, put = opened(seen)
        if inner is not seen:
            return put
    return _as_it_is


def is_raw(seen: object) -> bool:
    """Whether a statement says the wrapping itself."""
    return isinstance(seen, dict) and ("$answer" in seen or "$json" in seen)


def _is_text_block(block: JsonValue) -> bool:
    return isinstance(block, dict) and block.get("type") == "text" and set(block) <= {"type", "text", "id"}


def _as_it_is(inner: JsonValue) -> JsonValue:
    return inner
