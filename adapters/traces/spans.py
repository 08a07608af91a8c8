"""Spans to calls: which convention a span follows, and what the model spans know of the tool spans.

A model span gives the argument's name to a tool span that lost it, and ends a turn. A call that a model asked
for and that no tool span of its trace shows was not answered there: it is told.
"""

from collections import defaultdict
from collections.abc import Iterable, Iterator
from dataclasses import replace

from dreamgym_kit.adapters.traces import openinference, otel_genai, own_spans
from dreamgym_kit.adapters.traces.otlp import Span, read_span
from dreamgym_kit.adapters.traces.seen import Item, Passed, Record, SeenCall, SeenTurn, Unread


def read_record(record: Record) -> Iterator[Item]:
    """Give what one span says."""
    span = read_span(record)
    if not span.trace:
        yield Unread(record.line, f"span {span.id}: without a trace id")
    elif own_spans.is_own(span.attributes):
        yield _own(span)
    elif openinference.is_tool_span(span):
        yield openinference.read_call(span)
    elif openinference.is_model_span(span):
        yield SeenTurn(record.line, span.trace, span.end_s, openinference.asked_in(span))
    elif otel_genai.is_tool_span(span):
        yield otel_genai.read_call(span)
    elif otel_genai.is_model_span(span):
        yield SeenTurn(record.line, span.trace, span.end_s, otel_genai.asked_in(span))
    elif openinference.is_logged(span) and (logged := openinference.read_logged(span)):
        yield from logged
    else:
        yield Passed("span")


def _own(span: Span) -> Item:
    """What the kit wrote: calls as they were; what the model asked for is not looked at again."""
    if otel_genai.is_tool_span(span):
        return own_spans.read_attributes(span.line, f"span {span.id}", span.attributes)
    return Passed("model span" if otel_genai.is_model_span(span) else "span")


def completed(calls: list[SeenCall], turns: Iterable[SeenTurn]) -> tuple[list[SeenCall], list[Unread]]:
    """Give back argument names that tool spans lost, and tell of calls that no tool span shows."""
    found = list(calls)
    open_places: dict[tuple[str, str], list[int]] = defaultdict(list)
    for place, call in enumerate(found):
        open_places[call.episode, call.tool].append(place)
    missing: list[Unread] = []
    for turn in sorted(turns, key=lambda one: one.end_s):
        for index, (call_id, tool, args) in enumerate(turn.asked):
            places = open_places[turn.episode, tool]
            at = _place(found, places, call_id, args)
            if at is None:
                named = f"{tool} ({call_id})" if call_id else tool
                why = f"call of {named}: asked for, but no tool span shows it"
                missing.append(Unread(turn.line, why, unanswered=True))
                continue
            places.remove(at)
            call = found[at]
            known = args if call.bare else call.args
            found[at] = replace(call, args=known, bare=False, call_id=call.call_id or call_id, index=index)
    return found, missing


def _place(found: list[SeenCall], places: list[int], call_id: str | None, args: object) -> int | None:
    """The tool span of a call: by id; else one without an id and with the same arguments."""
    for place in places:
        if call_id is not None and found[place].call_id == call_id:
            return place
    for place in places:
        call = found[place]
        if (call.call_id is None or call_id is None) and (call.bare or call.args == args):
            return place
    return None
