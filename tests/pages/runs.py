"""Runs for the page's tests and bench: invented desk episodes, and ones whose every text is hostile."""

import random
from collections.abc import Iterable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from dreamgym_kit.rollout.rundir import Manifest, RunDirectory
from dreamgym_kit.types import (
    Answer,
    Call,
    Effect,
    Environment,
    Episode,
    Finding,
    Source,
    Spend,
    Transition,
    UserTurn,
    Verdict,
)

BEGUN = 1_795_271_485.0
WORDS = (
    *("order", "chair", "kettle", "refund", "arrived", "broken", "twice", "please", "cancel", "address"),
    *("ticket", "gold", "parcel", "phone"),
)
MATTERS: dict[str, Any] = {"mode": "dream", "graph": "desk", "n": 4, "seed": 0}


CURVE = {
    "trust": {"curve": [{"threshold": n / 10, "answered": 1 - n / 12, "exact": n / 10} for n in range(10)]}
}


def run_directory(
    root: Path, episodes: Iterable[Episode], report: dict[str, Any] | None = None, **matters: Any
) -> Path:
    """Write a finished run below `root` and give its directory."""
    manifest = Manifest("7f3a", BEGUN, {**MATTERS, **matters}, {"python": "3.11.11", "tasks": 2})
    with RunDirectory.create(root, "a-run", manifest) as directory:
        with directory.journal() as journal:
            for episode in episodes:
                journal.append(episode)
        if report is not None:
            directory.write_report(report)
        return directory.path


def call(
    step: int,
    tool: str,
    args: dict[str, Any],
    content: Any = "ok",
    *,
    effect: Effect = Effect.READ,
    source: Source = Source.RECORDED,
    **answer: Any,
) -> Transition:
    told = Answer(content, source, **{"confidence": 0.9} | answer)
    asked = Call(tool, args, call_id=f"c{step}", node="tools")
    return Transition(asked, told, effect, "e", step, elapsed_s=0.001, recorded_at=BEGUN + step)


def episode(
    task: str,
    repeat: int = 1,
    verdict: Verdict = Verdict.PASSED,
    *,
    said: str = "Please help.",
    **more: Any,
) -> Episode:
    """An episode in which each call was asked for in a message of its own."""
    transitions: Sequence[Transition] = more.get("transitions", ())
    messages: list[dict[str, Any]] = [{"role": "user", "content": said}]
    for step in transitions:
        asked = {"id": step.call.call_id, "name": step.call.tool, "args": dict(step.call.args)}
        messages.append({"role": "assistant", "content": "", "tool_calls": [asked]})
    messages.append({"role": "assistant", "content": "Done."})
    facts = {
        "reason": "the desk is as it should be",
        "environment": Environment("desk", 7),
        "messages": tuple(messages),
    }
    facts |= {"started_at": BEGUN, "elapsed_s": 12.5, "model_calls": 4, "tokens": 1200}
    return Episode(id=f"{task}.{repeat}", task=task, repeat=repeat, verdict=verdict, **facts | more)


def double_refund(task: str = "refund-1", repeat: int = 1) -> Episode:
    """A payment refunded a second time after a time-out."""
    paid = {"payment_id": "P1", "amount": "88.00", "status": "captured", "refunded": "0.00"}
    again = {**paid, "status": "refunded", "refunded": "176.00"}
    asked = {"payment_id": "P1", "amount": "88.00"}
    refund, fault = Effect.DESTRUCTIVE, Source.FAULT
    steps = (
        call(1, "get_payment", {"payment_id": "P1"}, paid),
        call(
            2,
            "refund_payment",
            asked,
            None,
            effect=refund,
            source=fault,
            error="timed out",
            error_type="TimeoutError",
            why="fault plan: timeout_applied",
        ),
        call(3, "refund_payment", asked, again, effect=refund, cites=("t-1", "t-2")),
    )
    found = Finding("repeated_write", "refund_payment P1 called twice, after a time-out", (2, 3), "critical")
    return episode(
        task,
        repeat,
        Verdict.FAILED,
        transitions=steps,
        findings=(found,),
        reason="refunded P1 twice: 176.00 of 88.00",
        said="My mat arrived broken.",
    )


def small_run() -> list[Episode]:
    """Two tasks: one refunds twice in one of two siblings, one ends inconclusive in both."""
    order = call(1, "get_order", {"order_id": "O1"}, {"order_id": "O1", "status": "sent"})
    unknown = call(
        1,
        "track_parcel",
        {"order_id": "O1"},
        None,
        source=Source.UNANSWERED,
        confidence=0.0,
        why="no recording of track_parcel answers this",
    )
    ended: dict[str, Any] = {"transitions": (order, unknown), "reason": "abstained", "stop": "abstained"}
    return [
        double_refund(),
        episode("refund-1", 2, transitions=(call(1, "get_payment", {"payment_id": "P1"}, "captured"),)),
        *(episode("where-2", repeat, Verdict.INCONCLUSIVE, **ended) for repeat in (1, 2)),
    ]


def judged_run() -> list[Episode]:
    """A run whose dream asked models: reasoned answers, a judge beside the checker, what that cost."""
    reasoned = call(1, "find", {}, "x", source=Source.MODEL, confidence=0.4)
    spends = {"experience": Spend(3, 900, 60, 10, 0.004), "judge": Spend(1, 200, 20)}
    counts = {"judges_agree": 1, "judges_disagree": 1}
    return [
        episode(
            "a", 1, Verdict.FAILED, transitions=(reasoned,), dream_spend=spends, counts=counts, cost_usd=0.01
        )
    ]


def many(count: int, *, seed: int = 0, repeats: int = 4) -> Iterable[Episode]:
    """Desk-shaped episodes of some 3 kB each; one in fifty refunds twice."""
    chance = random.Random(seed)
    for number in range(count):
        task, repeat = f"task-{number // repeats + 1:04}", number % repeats + 1
        if number % 50 == 7:
            yield double_refund(task, repeat)
            continue
        verdict = chance.choices(list(Verdict), [8, 2, 1, 1])[0]
        steps = tuple(_desk_call(chance, step) for step in range(1, chance.randint(4, 11)))
        yield episode(
            task,
            repeat,
            verdict,
            transitions=steps,
            said=_text(chance, 14),
            reason=_text(chance, 6),
            elapsed_s=chance.uniform(1, 60),
        )


def _desk_call(chance: random.Random, step: int) -> Transition:
    tools = [
        ("get_order", Effect.READ),
        ("list_payments", Effect.READ),
        ("find_customer", Effect.READ),
        ("create_ticket", Effect.WRITE),
        ("send_mail", Effect.DESTRUCTIVE),
    ]
    tool, effect = chance.choice(tools)
    number = chance.randint(1, 9999)
    content = {
        "order_id": f"O{number}",
        "customer_id": f"C{chance.randint(1, 999)}",
        "note": _text(chance, 12),
        "total": f"{chance.uniform(1, 300):.2f}",
        "days": chance.randint(0, 40),
    }
    source = chance.choice([Source.RECORDED, Source.DERIVED, Source.ANALOGOUS])
    return call(
        step,
        tool,
        {"order_id": f"O{number}", "why": _text(chance, 5)},
        content,
        effect=effect,
        source=source,
        confidence=round(chance.random(), 2),
        cites=(f"{chance.getrandbits(128):032x}",),
    )


def _text(chance: random.Random, words: int) -> str:
    return " ".join(chance.choices(WORDS, k=words))


def hostile(texts: Sequence[str]) -> Iterable[Episode]:
    """One episode a text, which stands in each of its text fields."""
    for number, text in enumerate(texts):
        effect = list(Effect)[number % len(Effect)]
        source = list(Source)[number % len(Source)]
        why = "fault plan: error" if source is Source.FAULT else text
        steps = (
            call(
                1,
                f"{text}{number}",
                {text: text, "deep": {text: [text]}},
                {f"{text}_id": text, "id": text, text: text},
                effect=effect,
                source=source,
                why=why,
                cites=(text,),
            ),
            call(
                2, f"{text}{number}", {text: 1}, text, effect=Effect.DESTRUCTIVE, error=text, error_type=text
            ),
            call(
                3,
                f"{text}{number}",
                {"x": text},
                {"id": text, text: "other"},
                effect=Effect.WRITE,
                changes=({"entity": text, "field": text, "value": text},),
            ),
            call(4, f"{text}{number}", {}, None, update={text: text}),
        )
        found = (Finding(text, text, (1, 2), "critical"), Finding(f"{text}2", text, (), "warning"))
        made = episode(
            f"{text}{number}",
            1,
            list(Verdict)[number % 3],
            transitions=steps,
            said=text,
            reason=text,
            findings=found,
            violations=(text,) if number % 5 == 0 else (),
            environment=Environment(text, number),
            counts={text: 1},
            stop=text if number % 2 else "finished",
            final={text: text},
        )
        others = (
            {"role": text, "content": text},
            {"role": "tool", "name": text, "content": text, "tool_call_id": text},
            {"role": "system", "content": [{"type": "text", "text": text}]},
        )
        turns = (
            UserTurn("interrupt", text, 1, 1, {text: [text]}, text),
            UserTurn("interrupt", "nobody", 2, 1, text),
            UserTurn("reply", text, len(made.messages) + 3, 4),
        )
        said = (*made.messages, *others, {"role": "user", "content": text})
        yield replace(made, messages=said, user_turns=turns)
