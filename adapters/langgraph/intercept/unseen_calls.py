"""After every turn of a model: did the calls that it asked for before pass the gate?

A conversation that goes on shows what became of its calls. One that has its answer, though the gate saw no
such call, was run by somebody's own code: the episode ends there, before the next call. One that has none is
only suspected, since what runs side by side may still be on its way; the end of the episode settles it.
"""

from collections import Counter
from collections.abc import Sequence
from typing import Any

from langchain_core.messages import AIMessage, ToolMessage

from dreamgym_kit.adapters.langgraph.analysis.dynamic_dispatch import loose_function
from dreamgym_kit.adapters.langgraph.intercept.bound_names import HOLDINGS
from dreamgym_kit.adapters.langgraph.intercept.functions import hooked_names
from dreamgym_kit.routing.session import Session
from dreamgym_kit.routing.transcript_check import PAST_THE_GATE
from dreamgym_kit.serialization import to_json
from dreamgym_kit.types import Executed


def check_answered(session: Session, messages: Any) -> None:
    """Look at the conversation that a model is about to go on with.

    Raises:
        RealCallExecuted: a call of it was answered past the gate.
    """
    if session.mode.bare or not session.asked_ids or not isinstance(messages, Sequence):
        return
    given = {message.tool_call_id: message.status for message in messages if isinstance(message, ToolMessage)}
    missing = past_the_gate(session, messages)
    session.passed_over.update({str(call["id"]): call["name"] for call in missing if call["id"] not in given})
    ran = [call for call in missing if given.get(call["id"]) == "success"]
    if ran:
        raise session.ran([Executed(call["name"], to_json(call["args"]), PAST_THE_GATE) for call in ran])


def past_the_gate(session: Session, messages: Sequence[Any]) -> list[Any]:
    """Calls of this episode in a conversation that the gate did not see, under an id or without one."""
    known, structured = HOLDINGS.names | hooked_names(), HOLDINGS.structured | session.policy.structured
    asked = [
        call
        for message in messages
        if isinstance(message, AIMessage)
        for call in message.tool_calls
        if call["id"] in session.asked_ids and call["id"] not in session.held_call_ids
    ]
    left = Counter(session.held_without_id)
    names = set(session.asked_ids.values())
    spare = sum(times for name, times in left.items() if name not in names)  # under the name of what acted
    missing = []
    for call in asked:
        name = call["name"]
        if name not in known or name in structured | session.unknown_names or call["id"] in session.excused:
            continue
        if left[name] > 0:
            left[name] -= 1
        elif spare > 0:
            spare -= 1
        else:
            missing.append(call)
    return missing


def excuse(session: Session, asked: object) -> None:
    """An interrupt asks a person about calls: their answer may be the agent's own ("the user declined")."""
    told = str(asked)
    for call_id, name in session.asked_ids.items():
        about = name in told or call_id in told
        if about and call_id not in session.held_call_ids and loose_function(session, name) is None:
            session.excused.add(call_id)
