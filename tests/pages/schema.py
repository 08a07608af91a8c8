"""What both blocks of data in a page may hold, strictly: a field more or another type is an error."""

import base64
import gzip
import json
import re
from collections.abc import Sequence
from typing import Annotated, Any, Literal

from pydantic import BaseModel, ConfigDict, Field, TypeAdapter

Share = Annotated[float, Field(ge=0, le=1)]
Count = Annotated[int, Field(ge=0)]
Code = Literal["R", "r", "c", "a", "m", "i", "s", "f", "x"]
VerdictName = Literal["passed", "failed", "inconclusive", "error"]
EffectName = Literal["pure", "control", "read", "write", "destructive"]
SourceName = Literal[
    "real", "recorded", "derived", "analogous", "model", "imagined", "scripted", "fault", "unanswered"
]
Place = tuple[Count, int | None]


class Strict(BaseModel):
    model_config = ConfigDict(extra="forbid", strict=False)


class Run(Strict):
    name: str
    title: str
    notes: list[str]


class Rule(Strict):
    key: str
    passed: bool | None
    verdict: VerdictName | None
    measured: str
    limit: str
    why: str


class NextStep(Strict):
    text: str
    ref: tuple[str, int | None] | None = None
    command: str | None = None


class VerdictBlock(Strict):
    verdict: VerdictName
    word: str
    counted: str
    rate: Share | None
    low: Share | None
    high: Share | None
    counts: dict[VerdictName, Count]
    facts: list[tuple[str, str]]
    rules: list[Rule]
    next: list[NextStep]


class FindingGroup(Strict):
    kind: str
    title: str
    text: str
    critical: bool
    count: Count
    at: list[Place]
    tool: str | None = None


class Change(Strict):
    entity: str
    field: str
    before: Any = None
    after: Any = None


class FoundAt(Strict):
    kind: str
    text: str
    steps: list[int]
    critical: bool


class SampleCall(Strict):
    episode: Count
    step: Count
    args: dict[str, Any]
    changes: list[Change] = []
    findings: list[FoundAt] = []
    error: str | None = None


class Effect(Strict):
    tool: str
    effect: EffectName
    calls: Count
    episodes: Count
    wrong: Count
    sample: list[SampleCall]


class Support(Strict):
    bins: Annotated[list[Count], Field(min_length=10, max_length=10)]
    median: Share
    least: Share


class Tool(Strict):
    name: str
    effect: EffectName
    calls: Count
    episodes: Count
    errors: Count
    dreamt: Count
    grounded: Count
    sources: dict[Code, Count]
    confidence: Support | None = None


class Trust(Strict):
    text: str
    order: list[Count]
    sources: dict[Code, Count]
    curve: list[tuple[Share, Share, Share | None]] = []


class Task(Strict):
    id: str
    text: Annotated[str, Field(max_length=301)]
    environment: str


class EpisodeLine(Strict):
    id: str
    task: Count
    verdict: VerdictName
    reason: Annotated[str, Field(max_length=300)]
    path: Annotated[str, Field(pattern=r"^(\d+[RrcamisfxX]!?( \d+[Rrcamisfx]!?)*)?$")]
    s: float
    bad: Literal[1] | None = None
    kinds: list[str] = []
    stop: str | None = None
    reward: float | None = None
    confidence: Share | None = None
    usd: float | None = None


class FaultKind(Strict):
    kind: str
    calls: Count
    tools: list[tuple[Count, Count]]


class Split(Strict):
    name: str
    episodes: Count
    passed: Count
    failed: Count
    error: Count
    inconclusive: Count


class Faults(Strict):
    calls: Count
    kinds: list[FaultKind]
    split: list[Split]


class Stat(Strict):
    value: str
    label: str


class Spread(Strict):
    title: str
    bins: list[Count]
    median: str
    p95: str
    most: str


class Cost(Strict):
    stats: list[Stat]
    spread: list[Spread]


class Report(Strict):
    schema_: Annotated[Literal[2], Field(alias="schema")]
    kind: Literal["simulate", "record"]
    run: Run
    verdict: VerdictBlock
    findings: list[FindingGroup]
    executed: list[tuple[Count, str, str]] | None = None
    violations: list[tuple[Count, str]]
    effects: list[Effect]
    tools: list[Tool]
    trust: Trust
    tasks: list[Task]
    episodes: list[EpisodeLine]
    faults: Faults | None = None
    cost: Cost
    manifest: list[tuple[str, str]]


class Said(Strict):
    kind: Literal["said"]
    by: str
    text: str
    length: int | None = None
    tool: str | None = None
    played: str | None = None


class Reply(Strict):
    text: str
    length: int | None = None


class InterruptStep(Strict):
    kind: Literal["interrupt"]
    by: str
    text: Annotated[str, Field(max_length=4096)]
    length: int | None = None
    reply: Reply | None = None


class CallStep(Strict):
    kind: Literal["call"]
    step: Count
    tool: str
    effect: EffectName
    args: dict[str, Any]
    at_s: float | None = None
    dur_s: float
    source: SourceName
    confidence: Share
    text: Annotated[str, Field(max_length=4096)]
    length: int | None = None
    error: str | None = None
    update: bool | None = None
    fault: str | None = None
    node: str | None = None
    why: str | None = None
    cites: list[str] = []
    cited: Count = 0
    changes: list[Change] = []
    findings: list[FoundAt] = []


class VerdictStep(Strict):
    kind: Literal["verdict"]
    verdict: VerdictName
    text: str
    findings: list[FoundAt] = []
    executed: list[str] = []
    traceback: list[str] = []
    violations: list[str] = []


class Detail(Strict):
    id: str
    tokens: Count
    model_calls: Count
    stop: str
    attempt: Count
    steps: list[Annotated[Said | CallStep | InterruptStep | VerdictStep, Field(discriminator="kind")]]


class Packed(Strict):
    encoding: Literal["json+gzip+base64"]
    per_chunk: Count
    chunks: list[str]


def blocks(html: str) -> tuple[Any, Any]:
    """The two blocks of data of a page, as plain JSON."""
    found = re.findall(r'<script type="application/json" id="([\w-]+)">(.*?)</script>', html, re.DOTALL)
    assert [name for name, _ in found] == ["data-report", "data-episodes"]
    return json.loads(found[0][1]), json.loads(found[1][1])


def unpacked(html: str) -> Sequence[Any]:
    """Every episode's steps, in the order of the page."""
    packed = Packed.model_validate(blocks(html)[1])
    details: list[Any] = []
    for chunk in packed.chunks:
        details += json.loads(gzip.decompress(base64.b64decode(chunk, validate=True)))
    return details


DETAILS = TypeAdapter(list[Detail | None])
