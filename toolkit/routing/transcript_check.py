"""After an episode: compare the transcript with the intercepted calls.

A tool message with status success without an intercepted call is an alarm: a middleware answered by itself
(its code ran for real), or something ran outside of interception.
"""

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass

from dreamgym_kit.routing.session import Session
from dreamgym_kit.serialization import JsonValue
from dreamgym_kit.types import Executed

_HANDED_BACK = "transfer_back_to_"  # prefix of a supervisor's messages, not of tools
PAST_THE_GATE = "it answered without passing the gate: a middleware or node ran something by itself"

_BAD_ARGUMENTS = "Error invoking tool"  # prefix of LangGraph's tool node


@dataclass(frozen=True, slots=True)
class Reconciliation:
    """The differences between transcript and log."""

    executed: tuple[Executed, ...]  # answers without an intercepted call: their code ran
    violations: tuple[str, ...]  # calls neither intercepted nor answered: their code may have run
    errors: tuple[str, ...]  # other reasons why the episode cannot be trusted
    bad_arguments: int = 0  # calls that the framework rejected for their arguments


def reconcile(
    messages: Sequence[Mapping[str, JsonValue]],
    session: Session,
    *,
    known_tools: Collection[str],
    structured: Collection[str],
) -> Reconciliation:
    """Compare a transcript with the session's log.

    Args:
        messages: the episode's transcript, from the update stream.
        session: the episode's session with the log.
        known_tools: names of tools and hooked functions.
        structured: names of structured outputs.
    """
    requested = _asked_calls(messages)
    names = {call_id: name for call_id, (name, _) in requested.items()}
    executed = []
    held_call_ids = session.held_call_ids | session.excused
    without_id = dict(session.held_without_id)
    failed: set[str] = set()
    bad_arguments = 0
    for message in messages:
        if message.get("role") != "tool" or "status" not in message:
            continue  # from the task's history, not from this episode
        call_id = str(message.get("tool_call_id"))
        if message.get("status") == "error":
            failed.add(call_id)
            bad_arguments += str(message.get("content")).startswith(_BAD_ARGUMENTS)
            continue
        name = str(message.get("name") or names.get(call_id) or "")
        if call_id in held_call_ids or name in structured or name.startswith(_HANDED_BACK):
            continue
        if name in session.unknown_names:
            continue  # an agent's node reports an unknown tool
        if without_id.get(name):
            without_id[name] -= 1
            continue
        executed.append(Executed(name or "a tool", requested.get(call_id, ("", {}))[1], PAST_THE_GATE))
    dropped = _unanswered(messages, session.passed_over, held_call_ids, without_id)
    violations = tuple(
        f"{name} was asked for, the gate never saw it, and the model went on: a node may have run it"
        for name in dict.fromkeys(dropped)
    )
    wanted = [name for name in session.asked_tools if name not in structured and name in known_tools]
    answered_badly = sum(1 for call_id in failed if names.get(call_id) in known_tools)
    if wanted and not len(session.ledger) and answered_badly == 0 and not (executed or violations):
        missed = f"the model asked for {len(wanted)} tool call(s) ({wanted[0]}, ...) and the gate saw none"
        return Reconciliation((), (), (missed,), bad_arguments)
    return Reconciliation(tuple(executed), violations, (), bad_arguments)


def _unanswered(
    messages: Sequence[Mapping[str, JsonValue]],
    passed_over: Mapping[str, str],
    held_call_ids: Collection[str],
    without_id: dict[str, int],
) -> list[str]:
    """Return calls without interception or answer although their conversation continued."""
    answered = {str(message.get("tool_call_id")) for message in messages if message.get("role") == "tool"}
    unseen = []
    for call_id, name in passed_over.items():
        if call_id in held_call_ids or call_id in answered:
            continue
        if without_id.get(name):
            without_id[name] -= 1
        else:
            unseen.append(call_id)
    return unseen


def _asked_calls(
    messages: Sequence[Mapping[str, JsonValue]],
) -> dict[str, tuple[str, Mapping[str, JsonValue]]]:
    """Return tool and arguments of requested calls, by call ID."""
    calls: dict[str, tuple[str, Mapping[str, JsonValue]]] = {}
    for message in messages:
        for call in message.get("tool_calls") or ():
            args = call.get("args")
            calls[str(call.get("id"))] = str(call.get("name")), args if isinstance(args, Mapping) else {}
    return calls
