"""Builds a nano experience model of the desk from nothing: records, mines, teaches, calibrates, measures.

One seed decides everything. Beside the weights stands `learned.json`: the words, the calibration on train
worlds that no lesson came from, and the figures on held-out worlds. It is written last. The model card says
the same in words.
"""

import random
import time
from collections.abc import Mapping, Sequence
from contextlib import closing
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any

from dreamgym_kit.adapters.models.folders import threads
from dreamgym_kit.dream.learned.experience import LearnedExperience, Tried, calibrated
from dreamgym_kit.dream.learned.training_data import Taught, met, taught
from dreamgym_kit.dream.learned.vocabulary import LEARNED_FILE, LearnedCheckpoint, learned_to_json
from dreamgym_kit.dream.programs.experience import Programs, ProgramTracker, learn, seen_calls
from dreamgym_kit.dream.recorded_episodes import RecordedEpisode, recordings
from dreamgym_kit.recipes.desk.cases import HELD_OUT_SEEDS, TRAIN_SEEDS
from dreamgym_kit.recipes.nano.build import (
    Schedule,
    Shape,
    Tell,
    check_can_build,
    made_with,
    reported,
    write_manifest,
)
from dreamgym_kit.recipes.nano.experience.environments import (
    THRESHOLD,
    ask_held_out,
    crawl,
    expected_error,
    figures_of,
    recorded,
    recording,
)

WEIGHTS = Path(__file__).parent.parent / "weights" / "experience"
"""The model directory that is shipped: a nano experience model of the desk."""


@dataclass(frozen=True, slots=True)
class ExperiencePlan:
    """What to build."""

    seed: int = 0
    environments: int = 240  # that lessons come from
    tried: int = 40  # train worlds beside them that the calibration comes from
    held_out: int = 40  # worlds that are measured on
    buffer: int = 60  # worlds whose recordings programs are mined of, where it is tried and measured
    shape: Shape = field(default_factory=Shape)
    course: Schedule = field(default_factory=Schedule)
    reasons: bool = True  # whether it says why before it decides; False: to see what that is worth


QUICK = ExperiencePlan(environments=12, tried=4, held_out=2, buffer=12, course=Schedule(steps=60))
"""A token effort, to see that it runs."""


def build(out: Path, plan: ExperiencePlan | None = None, *, tell: Tell | None = None) -> dict[str, Any]:
    """Build a model into `out`; gives what is kept beside its weights.

    Raises:
        MissingExtra: the packages of the extra `train` are not installed.
        UserError: there is something at `out` already; then nothing was done.
    """
    check_can_build(out, "a nano experience model")
    from dreamgym_kit.recipes.nano.learn import build_word_tokenizer, teach
    from dreamgym_kit.recipes.nano.start import new_model, save_model

    plan, say = plan or ExperiencePlan(), tell or (lambda _: None)
    chance = random.Random(f"experience {plan.seed}")  # noqa: S311  reproducible, not secret
    drawn = chance.sample(TRAIN_SEEDS, plan.environments + plan.tried)
    with threads(1):
        began = time.process_time()
        lessons = lessons_of(drawn[: plan.environments], reasons=plan.reasons)
        mined_s = time.process_time() - began
        say(f"{len(lessons.lessons)} lessons in {plan.environments} worlds, {mined_s:.0f} CPU s")
        tokenizer = build_word_tokenizer(lessons.vocabulary.words())
        model = new_model(tokenizer, seed=plan.seed, shape=plan.shape)
        report = reported(say, every=100)
        teach(model, tokenizer, lessons.lessons, course=plan.course, seed=plan.seed, tell=report)
        save_model(model, tokenizer, out)
        taught_s = time.process_time() - began - mined_s
        learned, facts = _tried(out, lessons, drawn, plan, say)
    facts |= {
        "seed": plan.seed,
        "parameters": model.num_parameters(),
        "lessons": len(lessons.lessons),
        "reasons": plan.reasons,
        "worlds": plan.environments,
        "refusals": sum(len(tool.refusals) for tool in lessons.vocabulary.tools.values()),
        "cpu_s": {"mined": round(mined_s, 1), "taught": round(taught_s, 1)},
        "course": asdict(plan.course),
        "shape": asdict(plan.shape),
        **made_with(out),
    }
    write_manifest(out, card(facts), LEARNED_FILE, learned_to_json(replace(learned, facts=facts)))
    return facts


def lessons_of(environments: Sequence[int], *, reasons: bool = True) -> Taught:
    """Record these worlds, mine them, and tell every call as a lesson, with its reason or without."""
    episodes = recordings(row for episode in recorded(environments) for row in episode)
    model = learn(episodes, {}, measured=False).model
    lessons = taught(list(met(model, [seen_calls(episode, model.parameters) for episode in episodes])))
    if reasons:
        return lessons
    bare = (replace(lesson, label=replace(lesson.label, why=())) for lesson in lessons.lessons)
    return replace(lessons, lessons=tuple(bare))


def mined(environments: Sequence[int], crawled: Sequence[int] = ()) -> Programs:
    """The programs of these worlds, recorded; the others are known by a crawl."""
    episodes = recordings(row for episode in recorded(environments) for row in episode)
    crawls: list[RecordedEpisode] = [recording(crawl(environment)) for environment in crawled]
    return learn([*episodes, *crawls], {})


def _tried(
    out: Path, lessons: Taught, drawn: Sequence[int], plan: ExperiencePlan, say: Tell
) -> tuple[LearnedCheckpoint, dict[str, Any]]:
    """Calibrate on train worlds that no lesson came from, then measure on held-out ones.

    Programs are mined of as many worlds as a buffer may hold, not of all that lessons came from.
    """
    from dreamgym_kit.adapters.models.local import open_local

    learned, environments = LearnedCheckpoint(lessons.vocabulary), drawn[plan.environments :]
    chosen = random.Random(f"held out {plan.seed}").sample(HELD_OUT_SEEDS, plan.held_out)  # noqa: S311
    programs = mined(drawn[: plan.buffer], [*environments, *chosen])
    with closing(open_local(out)) as endpoint:
        model = LearnedExperience(endpoint, learned, programs=ProgramTracker(lambda _: (), {}))
        tries = [
            trial
            for unseen in (False, True)
            for trial in ask_held_out(model, programs, environments, unseen=unseen)
        ]
        learned = replace(learned, calibration=calibrated(tries))
        model = LearnedExperience(endpoint, learned, programs=ProgramTracker(lambda _: (), {}))
        facts: dict[str, Any] = {"held_out": plan.held_out, "threshold": THRESHOLD}
        every: list[Tried] = []
        for name, unseen in (("crawled", False), ("unseen", True)):
            trials = ask_held_out(model, programs, chosen, unseen=unseen)
            facts[name] = figures_of(trials, model.support)
            every += trials
            say(f"{name}: {facts[name]['nano']['writes'][1]:.1%} of writes exact in held-out worlds")
        facts["ece"] = round(expected_error(every, model.support), 4)
        facts["tokens"] = round(model.tokens / model.requests, 1)
        facts["asked"] = [model.requests, model.questions]
    return learned, facts


_HEAD = """\
---
license: apache-2.0
library_name: transformers
tags: [dreamgym-kit, experience-model, from-scratch]
---

# A nano experience model of the support desk

{parameters:,} parameters, a Qwen3 architecture, trained from nothing on {lessons:,} recorded calls in
{worlds} train worlds of dreamgym-kit's support desk (seed {seed}). It says what becomes of a tool call: why,
and with which outcome, in about ten tokens. Code tells it what is known, without ids, and writes the answer
of what it decides, and what that changes. It knows the desk's thirteen tools and their {refusals} kinds of
refusal, and nothing else.

## How it does

In {held_out} held-out worlds, call by call, at a support of {threshold:g}. `composed` repeats
recordings and asks mined programs, `nano` decides all that no recording shows, `layered` lets it decide where
`composed` abstains or is less sure about a write. Share of all calls answered exactly; in brackets, of those
that were answered.

"""

_USE = """
Which payments the desk's gateway times out for nothing tells beforehand, so no model can be right about every
refund. {tokens:.0f} tokens a question; equal questions are asked once. Expected calibration error {ece:.3f}.

## Use

    [experience]
    dir = "this directory"

`learned.json` holds its words, its calibration and these figures. The same directory is served by vLLM.

## How it was made

    python -m dreamgym_kit.recipes.nano experience OUT --seed {seed}{how}
"""

_KINDS = ("all", "reads", "writes", "refused")


def card(facts: Mapping[str, Any]) -> str:
    """Write the card of a model with these facts."""
    return (
        _HEAD.format(**facts)
        + _table("Worlds that were crawled beforehand", facts["crawled"])
        + _table("Worlds that nothing was recorded of", facts["unseen"])
        + _USE.format(**facts, how="" if facts.get("reasons", True) else " --no-reasoning")
    )


def _table(title: str, arms: Mapping[str, Mapping[str, Any]]) -> str:
    tools = sorted(kind for kind in arms["nano"] if kind not in _KINDS)
    lines = [f"{title}:\n\n| calls | {' | '.join(arms)} |\n| --- |{' --- |' * len(arms)}\n"]
    for kind in (*_KINDS, *tools):
        cells = [arms[arm].get(kind, (0, 0.0, 1.0)) for arm in arms]
        shown = " | ".join(f"{share:.3f} ({right:.3f})" for _, share, right in cells)
        lines.append(f"| {kind} ({cells[0][0]}) | {shown} |\n")
    return "".join(lines) + "\n"
