"""What was said in an episode, collected from the graph's update stream.

Updates, not the final state: middleware removes and rewrites messages, subgraphs hand back only their
last one. Messages are kept once each, in the order they first appeared, as plain records. What ran side by
side has no order of its own: answers of tools stand as the model asked for them, messages of nodes as the
state has them, so that the same episode gives the same transcript whichever thread was the quicker.
"""

import itertools
import threading
from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from langchain_core.messages import AIMessage, BaseMessage, RemoveMessage, ToolMessage

from dreamgym_kit.serialization import to_json
from dreamgym_kit.types import Task

_ROLES = {
    "human": "user",
    "ai": "assistant",
    "AIMessageChunk": "assistant",  # chunks that a node joined and put into the state as they are
    "tool": "tool",
    "system": "system",
}


_SHORT_ROLES = {**_ROLES, "user": "user", "assistant": "assistant"}
_Plain = tuple[str, Mapping[str, Any]]  # role, message


class Transcript:
    """Message records of one episode."""

    def __init__(self) -> None:
        self.records: list[dict[str, Any]] = []
        self._seen: dict[int, BaseMessage] = {}  # by id(); kept, so that no other gets that id
        self._lock = threading.Lock()  # graphs inside tools may run in threads
        self._numbers = itertools.count()
        self._inside = ""
        self._plain: set[str] = set()  # tool calls that were answered in short form
        self._places: dict[str, int] = {}  # places of tool calls, by id, in the order asked for
        self._step: list[tuple[dict[str, Any], BaseMessage]] = []  # kept since the last step ended

    def start(self, task: Task) -> None:
        """Begin with what the task asks."""
        messages = task.input.get("messages")
        if isinstance(messages, list):
            for message in messages:
                if isinstance(message, Mapping):
                    self.records.append(
                        {"role": str(message.get("role", "user")), "content": message.get("content")}
                    )

    def take(self, update: Any, within: str = "") -> None:
        """Collect the messages of one update; one that was met before, in whatever graph, is passed over.

        `within`: the tool whose real body runs the graph, which no dream of it does.
        """
        with self._lock:
            self._inside = within
            for message in _messages_in(update):
                if isinstance(message, BaseMessage):
                    self._take(message)
                else:
                    self._take_plain(*message)

    def end_step(self, state: Any) -> None:
        """All nodes of a step have ended, and `state` is what they made."""
        with self._lock:
            step, self._step = self._step, []
            if len(step) < 2:
                return
            places = {
                message.id: place
                for place, message in enumerate(_messages_in(state))
                if isinstance(message, BaseMessage) and message.id is not None
            }
            ours = [(places[message.id], record) for record, message in step if message.id in places]
            moved = {id(record) for _, record in ours}
            slots = [place for place, record in enumerate(self.records) if id(record) in moved]
            for slot, (_, record) in zip(slots, sorted(ours, key=lambda placed: placed[0]), strict=True):
                self.records[slot] = record

    def _keep(self, record: dict[str, Any]) -> None:
        """Put a record at the end; a tool's answer before those that were asked for after it."""
        for call in record.get("tool_calls") or ():
            self._places[call["id"]] = next(self._numbers)
        if self._inside:
            record["within"] = self._inside
        place, end = self._places.get(record.get("tool_call_id") or ""), len(self.records)
        while place is not None and end and self._place(self.records[end - 1]) > place:
            end -= 1
        self.records.insert(end, record)

    def _place(self, record: Mapping[str, Any]) -> int:
        return self._places.get(record.get("tool_call_id") or "", -1)

    def _take(self, message: BaseMessage) -> None:
        if id(message) in self._seen or isinstance(message, RemoveMessage):
            return
        # a state gives ids to messages that came without: ask those met before for the id that they have now
        met = message.id is not None and any(seen.id == message.id for seen in self._seen.values())
        self._seen[id(message)] = message
        if met or (isinstance(message, ToolMessage) and message.tool_call_id in self._plain):
            return  # a graph inside gave that answer in short form, and its parent gives it as a message
        if message.type != "human" or not any(
            earlier["role"] == "user" and earlier["content"] == message.content for earlier in self.records
        ):
            record = message_record(message)
            self._keep(record)
            self._step.append((record, message))

    def _take_plain(self, role: str, message: Mapping[str, Any]) -> None:
        """Take a message in short form, once: raw-client loops return all of them each time."""
        call_id = message.get("tool_call_id")
        record: dict[str, Any] = {"role": role, "content": to_json(message.get("content"))}
        if message.get("name"):
            record["name"] = str(message["name"])
        if role == "tool":
            answers = (earlier for earlier in self.records if earlier["role"] == "tool")
            if any(answer.get("tool_call_id") == call_id for answer in answers):
                return
            self._plain.add(str(call_id))
            record |= {"tool_call_id": call_id, "status": str(message.get("status", "success"))}
        if record not in self.records:
            self._keep(record)


def message_record(message: BaseMessage) -> dict[str, Any]:
    """One message as plain data; its random id is left out, its tool call ids are kept."""
    record: dict[str, Any] = {
        "role": _ROLES.get(message.type, message.type),
        "content": to_json(message.content),
    }
    if message.name:
        record["name"] = message.name
    if isinstance(message, AIMessage) and message.tool_calls:
        record["tool_calls"] = [
            {"id": call["id"], "name": call["name"], "args": to_json(call["args"])}
            for call in message.tool_calls
        ]
    if isinstance(message, ToolMessage):
        record["tool_call_id"] = message.tool_call_id
        record["status"] = message.status
    return record


def _messages_in(update: Any, depth: int = 0) -> Iterator[BaseMessage | _Plain]:
    """Messages anywhere in an update: by node, in lists of updates, under any state key."""
    if isinstance(update, BaseMessage):
        yield update
    elif (plain := _plain(update)) is not None:
        yield plain
    elif isinstance(update, (dict, Mapping)) and depth < 5:
        for value in update.values():
            yield from _messages_in(value, depth + 1)
    elif isinstance(update, (list, tuple)) and depth < 5:
        for value in update:
            yield from _messages_in(value, depth + 1)
    elif hasattr(update, "value") and type(update).__name__ == "Overwrite":
        yield from _messages_in(update.value, depth + 1)


def _plain(update: Any) -> _Plain | None:
    """A message in short form: {"role": ..., "content": ...} or ("ai", "text")."""
    if isinstance(update, dict) and "content" in update and isinstance(update.get("role"), str):
        role = _SHORT_ROLES.get(update["role"])
        return (role, update) if role else None
    if isinstance(update, tuple) and len(update) == 2 and all(isinstance(part, str) for part in update):
        role = _SHORT_ROLES.get(update[0])
        return (role, {"content": update[1]}) if role else None
    return None


def final_state(values: Any, *, leave_out: Iterable[str] = ("messages",)) -> Any:
    """The graph's last state as plain data, without its messages (they are the transcript)."""
    if not isinstance(values, Mapping):
        return to_json(values)
    return {str(key): to_json(value) for key, value in values.items() if key not in leave_out}
