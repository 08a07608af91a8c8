"""The parts of a tool's answer that matter, so that pages and long objects can be recorded and dreamed.

The DreamGym paper (arXiv 2511.03773) trains on abstract text states and not on raw pages. A view is that for
any tool: the agent sees it of real, recorded and dreamed answers alike. It keeps the answer's own structure,
so a view of a view is the same again, and an answer of another form (a sentence that says what failed) stays
whole.
"""

import json
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import lru_cache
from html import unescape
from typing import Any, TypeVar, cast

from dreamgym_kit.interfaces import TransitionStore
from dreamgym_kit.serialization import JsonValue
from dreamgym_kit.settings.schema import ToolSettings
from dreamgym_kit.types import Answer, Transition

_STEP = re.compile(r"\[(?::(\d{1,6}))?\]|(\*)|([^.\[\]*()\s][^.\[\]*()]*)")
_TEXT = "text()"
_TAG = re.compile(r"<(?=[A-Za-z/!?])")
_WHOLE_TAG = re.compile(r"""<(?:[^>"']|"[^"]*"|'[^']*')*>""")
_LONGEST_TAG = 2_000  # characters in which the end of a tag is looked for with regard to quotes
_TAG_NAME = re.compile(r"<(/?)([A-Za-z][^\s/>]*)")
_SHOWN = re.compile(r"""\s(value|placeholder|alt)=("[^"]*"|'[^']*'|[^\s"'>]+)""", re.IGNORECASE)
_NOT_SHOWN = re.compile(r"""\stype=["']?(?:hidden|password)\b""", re.IGNORECASE)
_HIDDEN = {
    name: re.compile(rf"</{name}\b", re.IGNORECASE) for name in ("script", "style", "template", "noscript")
}
_INLINE = frozenset(
    {"a", "abbr", "b", "bdi", "button", "cite", "code", "em", "i", "kbd", "label", "mark", "q", "s", "small"}
    | {"span", "strong", "sub", "sup", "time", "u", "var"}
)


@dataclass(slots=True)
class _Selection:
    """The parts of one value that a view shows; all of it if none is named."""

    keys: "dict[str, _Selection]" = field(default_factory=dict)  # "*": of every other key
    items: "_Selection | None" = None
    first: int | None = None  # how many items; None: all
    whole: bool = False
    text: bool = False


@lru_cache(maxsize=256)
def _parsed(paths: tuple[str, ...]) -> _Selection:
    root = _Selection()
    for path in paths:
        _add(root, path)
    return root


def check_view(paths: Sequence[str]) -> None:
    """Refuse paths that cannot be read.

    Raises:
        ValueError: one is no path; the message names it and shows the form.
    """
    _parsed(tuple(paths))


def _add(node: _Selection, path: str) -> None:
    rest, text = (path[: -len(_TEXT)].removesuffix("."), True) if path.endswith(_TEXT) else (path, False)
    place = 0
    while place < len(rest):
        match = _STEP.match(rest, place)
        if match is None:
            break
        limit, _, key = match.groups()
        if match[0].startswith("["):
            if node.items is None:
                node.items, node.first = _Selection(), int(limit) if limit else None
            elif node.first is not None:
                node.first = max(node.first, int(limit)) if limit else None
            node = node.items
        else:
            node = node.keys.setdefault(key or "*", _Selection())
        place = match.end()
        if rest[place : place + 1] == "." and place + 1 < len(rest):
            place += 1
    if place < len(rest) or not path:
        raise ValueError(f"'{path}' is not a path; write items[].name, items[:5], user.*.id or text()")
    node.whole, node.text = True, node.text or text


def viewed(answer: Answer, paths: tuple[str, ...]) -> Answer:
    """Return the answer with the named parts of its content; the same object where the view keeps all.

    Failures, state updates and artifacts stay: they are for the agent's code. Content that is JSON in a text
    stays a text; of a message and of content blocks the texts are viewed.
    """
    if not paths or answer.content is None or answer.error is not None:
        return answer
    content = _content(answer.content, _parsed(paths))
    return answer if content == answer.content else replace(answer, content=content)


def _content(content: JsonValue, selection: _Selection) -> JsonValue:
    if isinstance(content, dict) and set(content) == {"$message"}:
        message = content["$message"]
        if isinstance(message, dict):
            return {"$message": {**message, "content": _content(message.get("content"), selection)}}
    if isinstance(content, list) and any(map(_is_text_block, content)):
        return [
            {**block, "text": _content(block["text"], selection)} if _is_text_block(block) else block
            for block in content
        ]
    if isinstance(content, str) and not selection.text and content.lstrip()[:1] in ("{", "["):
        try:
            value = json.loads(content)
        except (ValueError, RecursionError):
            return content
        view = _of_whole(value, selection)
        return content if view == value else json.dumps(view, ensure_ascii=False)
    return cast("JsonValue", _of_whole(content, selection))


def _of_whole(value: Any, selection: _Selection) -> Any:
    view = _of(value, selection)
    return value if view == {} else view  # an object with none of the parts stays whole


def _is_text_block(block: Any) -> bool:
    return isinstance(block, Mapping) and block.get("type") == "text" and isinstance(block.get("text"), str)


def _of(value: Any, selection: _Selection) -> Any:
    if isinstance(value, str):
        return _visible(value) if selection.text else value
    if selection.whole:
        return value
    if isinstance(value, dict) and selection.keys:
        every = selection.keys.get("*")
        return {
            key: _of(item, node) for key, item in value.items() if (node := selection.keys.get(key, every))
        }
    if isinstance(value, list) and selection.items is not None:
        return [_of(item, selection.items) for item in value[: selection.first]]
    return value


def _visible(text: str) -> str:
    """The visible text of HTML or XML, a line for each block; a text without tags stays as it is.

    Takes time in proportion to the text, whatever it holds: what is never closed is text.
    """
    if not _TAG.search(text):
        return text
    lines = (" ".join(line.split()) for line in "".join(_pieces(text)).splitlines())
    return _TAG.sub("&lt;", "\n".join(line for line in lines if line))  # text that shows a tag is no tag


def _pieces(text: str) -> Iterator[str]:
    place = 0
    while match := _TAG.search(text, place):
        start = match.start()
        yield unescape(text[place:start])
        if text.startswith("<!--", start):
            end = text.find("-->", start) + 3
            if end < 3:
                return
            place = end
            continue
        whole = _WHOLE_TAG.match(text, start, start + _LONGEST_TAG)
        end = whole.end() if whole else text.find(">", start) + 1
        if not end:
            yield unescape(text[start:])
            return
        tag, place = text[start:end], end
        name = _TAG_NAME.match(tag)
        word = name[2].lower() if name else ""
        if word not in _INLINE:
            yield "\n"
        if word in ("input", "img") and not _NOT_SHOWN.search(tag):
            shown = {key.lower(): value.strip("\"'") for key, value in _SHOWN.findall(tag)}
            yield unescape(
                next((shown[key] for key in ("value", "placeholder", "alt") if shown.get(key)), "")
            )
        if word in _HIDDEN and name and not name[1]:
            closing = _HIDDEN[word].search(text, end)
            if closing is None:
                return
            place = closing.start()
    yield unescape(text[place:])


_Store = TypeVar("_Store", bound=TransitionStore | None)


def seen_through(
    store: _Store, tools: Mapping[str, ToolSettings], masked: Callable[[Answer], Answer]
) -> _Store:
    """Return the buffer as the views of `[tools]` show it; the buffer itself where there are none.

    `masked` masks secrets that a view brings to light, such as one that was written with entities.
    """
    views = {name: tool.view for name, tool in tools.items() if tool.view}
    return cast("_Store", _ViewedStore(store, views, masked)) if store is not None and views else store


class _ViewedStore:
    """A buffer whose recordings are seen through the tools' views; some were made before the view was set.

    For reading; row IDs are those of the rows seen, so nothing is removed by them.
    """

    def __init__(
        self,
        store: TransitionStore,
        views: Mapping[str, tuple[str, ...]],
        masked: Callable[[Answer], Answer],
    ) -> None:
        self._store, self._views, self._masked = store, views, masked

    def __getattr__(self, name: str) -> Any:
        return getattr(self._store, name)

    def _seen(self, row: Transition) -> Transition:
        answer = viewed(row.answer, self._views.get(row.call.tool, ()))
        return row if answer is row.answer else replace(row, answer=self._masked(answer))

    def exact(self, *args: Any, **kwargs: Any) -> list[Transition]:
        """See `TransitionStore.exact`."""
        return [self._seen(row) for row in self._store.exact(*args, **kwargs)]

    def scan(self, **of: Any) -> Any:
        """See `TransitionStore.scan`."""
        return map(self._seen, self._store.scan(**of))

    def search(self, query: Any) -> list[Any]:
        """See `TransitionStore.search`."""
        return [replace(hit, transition=self._seen(hit.transition)) for hit in self._store.search(query)]
