"""An episode as one JSON object, and back: what the journal keeps and a report reads.

Every field of the vocabulary is written, none may be unknown or missing (but one that came later: a run of
an earlier version is read without it), and the episode's digest is
written beside them and compared on reading: a record that was edited or mixed up is named.
"""

from collections.abc import Mapping
from dataclasses import fields as fields_of
from dataclasses import replace
from typing import Any

from dreamgym_kit.canonical import canonical
from dreamgym_kit.errors import NotJson
from dreamgym_kit.plain import JsonValue
from dreamgym_kit.replay.fields import (
    Fields,
    anything,
    items,
    mapping,
    name_of,
    number,
    number_or_none,
    shown,
    text,
    texts,
    whole,
)
from dreamgym_kit.replay.records import transition_from_record, transition_to_record
from dreamgym_kit.rollout.jobs import ERRORS
from dreamgym_kit.vocabulary import (
    SCHEMA_VERSION,
    Episode,
    Executed,
    Finding,
    Spend,
    Transition,
    UserTurn,
    Verdict,
    World,
)

_WORLD = ("name", "seed")
_FINDING = ("kind", "text", "steps", "severity")
_SPEND = ("calls", "prompt_tokens", "completion_tokens", "cached_tokens", "cost_usd", "cache_told")
_EPISODE = (
    *("schema", "digest", "id", "task", "sibling", "world", "verdict", "reason", "transitions", "messages"),
    *("reward", "stop", "violations", "findings", "model_calls", "tokens", "cost_usd", "attempt"),
    *("started_at", "elapsed_s", "counts", "final", "dream_spend", "user_turns", "executed", "traceback"),
)
_EXECUTED = ("tool", "args", "how")
_TURN = ("kind", "by", "said", "after", "asked", "answer")


def episode_to_record(episode: Episode) -> dict[str, JsonValue]:
    """Give an episode as a JSON object with every field and its digest.

    Raises:
        NotJson: a value in it has no JSON form.
    """
    canonical(episode.final)  # the digest leaves it out: what cannot be written is refused here
    return {
        "schema": SCHEMA_VERSION,
        "digest": episode.digest,
        "id": episode.id,
        "task": episode.task,
        "sibling": episode.sibling,
        "world": {"name": episode.world.name, "seed": episode.world.seed},
        "verdict": episode.verdict.on_disk,
        "reason": episode.reason,
        "transitions": [transition_to_record(transition) for transition in episode.transitions],
        "messages": [dict(message) for message in episode.messages],
        "reward": episode.reward,
        "stop": episode.stop,
        "violations": list(episode.violations),
        "findings": [_finding_to_record(finding) for finding in episode.findings],
        "model_calls": episode.model_calls,
        "tokens": episode.tokens,
        "cost_usd": episode.cost_usd,
        "attempt": episode.attempt,
        "started_at": episode.started_at,
        "elapsed_s": episode.elapsed_s,
        "counts": dict(episode.counts),
        "final": episode.final,
        "dream_spend": {part: spend_to_record(spend) for part, spend in episode.dream_spend.items()},
        "user_turns": [{name: getattr(turn, name) for name in _TURN} for turn in episode.user_turns],
        "executed": [
            {"tool": call.tool, "args": dict(call.args), "how": call.how} for call in episode.executed
        ],
        "traceback": list(episode.traceback),
    }


def episode_from_record(record: object) -> Episode:
    """Read what `episode_to_record` wrote.

    Raises:
        NotJson: names the missing, wrong or unknown field, another schema, or a digest that the
            content does not have.
    """
    fields = Fields(record, "", _EPISODE)
    schema = fields.take("schema", whole)
    if schema != SCHEMA_VERSION:
        raise NotJson(f"schema: {shown(schema)} is not {SCHEMA_VERSION}, the one that this version reads")
    fields.refuse_unknown()
    episode = _episode(fields)
    written = fields.take("digest", text)
    if written != episode.digest:
        raise NotJson(f"digest: {shown(written)} is not that of this content ({episode.digest})")
    if episode.verdict is Verdict.INCONCLUSIVE and episode.stop in ERRORS:  # an earlier version had no errors
        return replace(episode, verdict=Verdict.ERROR)
    return episode


def _episode(fields: Fields) -> Episode:
    return Episode(
        id=fields.take("id", text),
        task=fields.take("task", text),
        sibling=fields.take("sibling", whole),
        world=fields.take("world", _world),
        verdict=fields.take("verdict", name_of(Verdict)),
        reason=fields.take("reason", text),
        transitions=fields.take("transitions", _transitions),
        messages=fields.take("messages", _messages),
        reward=fields.take("reward", number_or_none),
        stop=fields.take("stop", text),
        violations=fields.take("violations", texts),
        findings=fields.take("findings", _findings),
        model_calls=fields.take("model_calls", whole),
        tokens=fields.take("tokens", whole),
        cost_usd=fields.take("cost_usd", number),
        attempt=fields.take("attempt", whole),
        started_at=fields.take("started_at", number),
        elapsed_s=fields.take("elapsed_s", number),
        counts=fields.take("counts", _counts),
        final=fields.take("final", anything),
        dream_spend=fields.take("dream_spend", _spends),
        user_turns=fields.take("user_turns", _turns, ()),
        executed=fields.take("executed", _executed, ()),
        traceback=fields.take("traceback", texts, ()),
    )


def _executed(value: object, where: str) -> tuple[Executed, ...]:
    found = []
    for place, item in enumerate(items(value, where)):
        fields = Fields(item, f"{where}[{place}]", _EXECUTED)
        fields.refuse_unknown()
        found.append(
            Executed(fields.take("tool", text), fields.take("args", mapping), fields.take("how", text))
        )
    return tuple(found)


def _turns(value: object, where: str) -> tuple[UserTurn, ...]:
    return tuple(_turn(item, f"{where}[{place}]") for place, item in enumerate(items(value, where)))


def _turn(value: object, where: str) -> UserTurn:
    fields = Fields(value, where, _TURN)
    fields.refuse_unknown()
    return UserTurn(
        kind=fields.take("kind", text),
        by=fields.take("by", text),
        said=fields.take("said", whole),
        after=fields.take("after", whole),
        asked=fields.take("asked", anything),
        answer=fields.take("answer", anything),
    )


def _world(value: object, where: str) -> World:
    fields = Fields(value, where, _WORLD)
    fields.refuse_unknown()
    return World(fields.take("name", text), fields.take("seed", whole))


def _transitions(value: object, where: str) -> tuple[Transition, ...]:
    found = []
    for place, item in enumerate(items(value, where)):
        try:
            found.append(transition_from_record(item))
        except NotJson as error:
            raise NotJson(f"{where}[{place}]: {error}") from None
    return tuple(found)


def _messages(value: object, where: str) -> tuple[Mapping[str, JsonValue], ...]:
    return tuple(mapping(item, f"{where}[{place}]") for place, item in enumerate(items(value, where)))


def _findings(value: object, where: str) -> tuple[Finding, ...]:
    return tuple(_finding(item, f"{where}[{place}]") for place, item in enumerate(items(value, where)))


def _finding(value: object, where: str) -> Finding:
    fields = Fields(value, where, _FINDING)
    fields.refuse_unknown()
    return Finding(
        kind=fields.take("kind", text),
        text=fields.take("text", text),
        steps=fields.take("steps", _steps),
        severity=fields.take("severity", text),
    )


def _finding_to_record(finding: Finding) -> dict[str, JsonValue]:
    return {
        "kind": finding.kind,
        "text": finding.text,
        "steps": list(finding.steps),
        "severity": finding.severity,
    }


def spend_to_record(spend: Spend) -> dict[str, JsonValue]:
    """Give a spend as a JSON object."""
    return {name: getattr(spend, name) for name in _SPEND}


def _spends(value: object, where: str) -> Mapping[str, Spend]:
    return {part: spend_from_record(item, f"{where}.{part}") for part, item in mapping(value, where).items()}


def spend_from_record(value: object, where: str) -> Spend:
    """Read what `spend_to_record` wrote."""
    fields = Fields(value, where, _SPEND)
    fields.refuse_unknown()
    return Spend(
        calls=fields.take("calls", whole),
        prompt_tokens=fields.take("prompt_tokens", whole),
        completion_tokens=fields.take("completion_tokens", whole),
        cached_tokens=fields.take("cached_tokens", whole),
        cost_usd=fields.take("cost_usd", number),
        cache_told=fields.take("cache_told", whole, 0),  # journals of 0.1 do not have it
    )


def _steps(value: object, where: str) -> tuple[int, ...]:
    return tuple(whole(item, f"{where}[{place}]") for place, item in enumerate(items(value, where)))


def _counts(value: object, where: str) -> Mapping[str, int]:
    return {name: whole(item, f"{where}.{name}") for name, item in mapping(value, where).items()}


RENAMED_FIELDS = {"undetermined": "inconclusive"}
"""Fields of records that earlier versions wrote, by what each is called now."""


def known_fields(record: type, told: Mapping[str, Any]) -> dict[str, Any]:
    """What this version knows of; a later one may have written more."""
    names = {one.name for one in fields_of(record)}
    named = {RENAMED_FIELDS.get(name, name): value for name, value in told.items()}
    return {name: value for name, value in named.items() if name in names}
