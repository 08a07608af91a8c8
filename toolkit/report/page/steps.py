"""One episode as the page tells it: what was said, each call with its answer, findings, the verdict.

Calls keep the step numbers that they have in the terminal and in JSON. Long texts are cut here, with the
length that they had; the whole text is in the run's journal.
"""

import json
from collections.abc import Iterator, Mapping, Set

from dreamgym_kit.dream.faults import fault_kind
from dreamgym_kit.plain import JsonValue
from dreamgym_kit.report.episode import text_of
from dreamgym_kit.report.page.changes import Told, as_told
from dreamgym_kit.report.telling import Said, telling
from dreamgym_kit.vocabulary import Episode, Finding, Transition, UserTurn

_TEXT = 4096  # characters of an answer or a message
_ARGUMENT = 600
_CITES = 8
_TOLD_BY = {"assistant": "agent", "user": "user", "system": "system"}


def steps_of(episode: Episode) -> dict[str, JsonValue]:
    """Give `{"id", "tokens", "model_calls", "stop", "attempt", "steps": [...]}`."""
    return {
        "id": episode.id,
        "tokens": episode.tokens,
        "model_calls": episode.model_calls,
        "stop": episode.stop,
        "attempt": episode.attempt,
        "steps": [*_body(episode), _verdict(episode)],
    }


def _body(episode: Episode) -> Iterator[dict[str, JsonValue]]:
    """In the order in which it happened: what the agent said stands before the calls that it asked for."""
    told = Told()
    held = {step.call.call_id for step in episode.transitions if step.call.call_id is not None}
    for one in telling(episode):
        if isinstance(one, Transition):
            yield call_step(one, episode, told)
        elif isinstance(one, UserTurn):
            yield _interrupt(one)
        else:
            yield from _said(one, held)


def _said(said: Said, held: Set[str]) -> Iterator[dict[str, JsonValue]]:
    """A message as a step; an answer to a call is told with its call, unless no call passed the gate."""
    message = said.message
    role = str(message.get("role"))
    if role == "tool" and message.get("tool_call_id") in held:
        return
    text = text_of(message.get("content")).strip()
    if text or role == "tool":
        step: dict[str, JsonValue] = {"kind": "said", "by": _TOLD_BY.get(role, role)} | _cut(text)
        if role == "tool":
            step |= {"tool": str(message.get("name") or "")}
        if said.turn is not None:
            step |= {"played": said.turn.by}
        yield step


def _interrupt(turn: UserTurn) -> dict[str, JsonValue]:
    """Where the graph stopped and waited; no reply where nobody answered."""
    step: dict[str, JsonValue] = {"kind": "interrupt", "by": turn.by} | _cut(text_of(turn.asked))
    return step if turn.by == "nobody" else step | {"reply": _cut(text_of(turn.answer))}


def call_step(step: Transition, episode: Episode, told: Told) -> dict[str, JsonValue]:
    """Give one call with its answer."""
    answer = step.answer
    body: dict[str, JsonValue] = {
        "kind": "call",
        "step": step.step,
        "tool": step.call.tool,
        "effect": str(step.effect),
        "args": short_arguments(step.call.args),
        "at_s": _seconds(max(0.0, step.recorded_at - episode.started_at)) if step.recorded_at else None,
        "dur_s": _seconds(step.elapsed_s),
        "provenance": str(answer.provenance),
        "support": round(answer.support, 4),
        **_answer(step),
    }
    kind = fault_kind(answer)
    body |= {"fault": str(kind)} if kind is not None else {}
    body |= {"node": step.call.node} if step.call.node not in (None, "", "tools") else {}  # the usual one
    body |= {"why": answer.why[:_TEXT]} if answer.why and kind is None else {}
    if answer.cites:
        body |= {"cites": list(answer.cites[:_CITES]), "cited": len(answer.cites)}
    changes = told.changes(step)
    body |= {"changes": changes} if changes else {}
    findings = [finding_form(found) for found in episode.findings if found.steps[-1:] == (step.step,)]
    body |= {"findings": list(findings)} if findings else {}
    return {name: value for name, value in body.items() if value is not None}


def _answer(step: Transition) -> dict[str, JsonValue]:
    answer = step.answer
    if answer.error is not None:
        return {**_cut(answer.error), "error": answer.error_type or "error"}
    if answer.abstained:
        return {"text": ""}
    if answer.content is None and answer.update is not None:
        return {**_cut(json.dumps(dict(answer.update))), "update": True}
    return _cut(text_of(answer.content))


def _verdict(episode: Episode) -> dict[str, JsonValue]:
    """How it ended, with the findings that no single call shows."""
    body: dict[str, JsonValue] = {
        "kind": "verdict",
        "verdict": str(episode.verdict),
        "text": episode.reason[:_TEXT],
    }
    loose = [finding_form(found) for found in episode.findings if not found.steps]
    body |= {"findings": list(loose)} if loose else {}
    body |= {"executed": [str(call)[:_TEXT] for call in episode.executed]} if episode.executed else {}
    body |= {"traceback": [line[:_TEXT] for line in episode.traceback]} if episode.traceback else {}
    body |= {"violations": [text[:_TEXT] for text in episode.violations]} if episode.violations else {}
    return body


def finding_form(found: Finding) -> dict[str, JsonValue]:
    """Give a finding as the page holds it."""
    return {
        "kind": found.kind,
        "text": found.text[:_TEXT],
        "steps": list(found.steps[:50]),
        "critical": found.severity == "critical",
    }


def short_arguments(args: Mapping[str, JsonValue]) -> dict[str, JsonValue]:
    """Give arguments with long values cut; those, and what the page's script would change, as text."""
    short: dict[str, JsonValue] = {}
    for name, value in args.items():
        spelled = value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)
        if len(spelled) > _ARGUMENT:
            short[name] = f"{spelled[:_ARGUMENT]}\u2026 ({len(spelled):,} characters)"
        else:
            short[name] = as_told(value)
    return short


def _cut(text: str) -> dict[str, JsonValue]:
    return {"text": text} if len(text) <= _TEXT else {"text": text[:_TEXT], "length": len(text)}


def _seconds(seconds: float) -> float:
    return round(seconds, 4)
