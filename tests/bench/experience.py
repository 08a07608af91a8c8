"""Does the shipped nano experience model say what becomes of a call? On held-out desk worlds, call by call.

Programs are mined of 60 recorded train worlds, as a buffer would hold; asked are the calls of colleagues and
probes in 40 held-out worlds, each in the state that the true answers before it led to: with a read crawl of
its world known beforehand, and (`_unseen`) with nothing recorded of it. `exact_*` are shares of all calls, so
an abstention is not exact; `right_*` of those that were answered. `composed` is the chain without a model,
`nano` decides whatever no recording shows, `layered` is the chain with it. Which payments the gateway times
out for nothing tells beforehand: about a third of first refunds nobody gets right.

`shop_*`: the same for a shop that is not the desk, whose tools refuse by thresholds and links that no answer
spells out; its model is taught here, from recordings alone.
"""

import asyncio
import random
import tempfile
from collections.abc import Mapping, Sequence
from contextlib import closing
from pathlib import Path
from typing import Any

from strict_shop_double import READS, probed, recordings_of

from dreamgym_kit.adapters.models.local import open_local
from dreamgym_kit.dream.learned.experience import LearnedExperience, Tried, calibrated, tried
from dreamgym_kit.dream.learned.training_data import met, taught
from dreamgym_kit.dream.learned.vocabulary import LearnedCheckpoint, read_learned
from dreamgym_kit.dream.programs.experience import Programs, ProgramTracker, learn, seen_calls
from dreamgym_kit.dream.recorded_episodes import recordings
from dreamgym_kit.recipes.desk.cases import HELD_OUT_SEEDS, TRAIN_SEEDS
from dreamgym_kit.recipes.nano.build import Schedule
from dreamgym_kit.recipes.nano.experience.build import WEIGHTS, mined
from dreamgym_kit.recipes.nano.experience.environments import (
    ask_held_out,
    expected_error,
    figures_of,
    recording,
)

BUFFER, WORLDS = 60, 40
SHOP_WORLDS, SHOP_TRIED, SHOP_HELD_OUT, SHOP_STEPS = 60, 15, 30, 300
ARMS = ("composed", "nano", "layered")

Shares = Mapping[str, Mapping[str, Any]]  # by arm and kind: calls, share exact, share exact of the answered
_SHARES: dict[str, Shares] = {}


def measure(seed: int) -> list[tuple[str, float, str]]:
    """The desk with the shipped model, then the shop."""
    return [*desk(seed, buffer=BUFFER, worlds=WORLDS), *shop(seed)]


def quick(seed: int) -> list[tuple[str, float, str]]:
    """The desk in small."""
    return desk(seed, buffer=8, worlds=3)


def desk(seed: int, *, buffer: int, worlds: int) -> list[tuple[str, float, str]]:
    """Figures of the shipped model."""
    drawn = random.Random(f"bench experience {seed}")
    train, held_out = drawn.sample(TRAIN_SEEDS, buffer), drawn.sample(HELD_OUT_SEEDS, worlds)
    programs = mined(train, held_out)
    figures: list[tuple[str, float, str]] = []
    every: list[Tried] = []
    with closing(open_local(WEIGHTS)) as endpoint:
        model = LearnedExperience(endpoint, read_learned(WEIGHTS), programs=ProgramTracker(lambda _: (), {}))
        for suffix, unseen in (("", False), ("_unseen", True)):
            found = ask_held_out(model, programs, held_out, unseen=unseen)
            every += found
            _SHARES[f"desk{suffix}"] = figures_of(found, model.support)
            figures += _figures(_SHARES[f"desk{suffix}"], suffix)
    return [
        *figures,
        ("ece", expected_error(every, model.support), "share"),
        ("tokens_per_question", model.tokens / model.requests, "tokens"),
        ("tokens_per_call", model.tokens / model.questions, "tokens"),
    ]


def shop(seed: int) -> list[tuple[str, float, str]]:
    """Figures of a model of another system, taught here."""
    first = 100_000 * seed
    known = range(first, first + SHOP_WORLDS)
    apart = range(known.stop, known.stop + SHOP_TRIED)
    held_out = range(apart.stop, apart.stop + SHOP_HELD_OUT)
    episodes = recordings(recordings_of(known))
    crawls = [
        recording([row for row in probed(world, 9, writes=0) if row.call.tool in READS])
        for world in (*apart, *held_out)
    ]
    programs = learn([*episodes, *crawls], {})
    calls = [seen_calls(episode, programs.model.parameters) for episode in episodes]
    lessons = taught(list(met(programs.model, calls)))
    with tempfile.TemporaryDirectory() as scratch:
        folder = Path(scratch) / "model"
        teach_shop(lessons.lessons, lessons.vocabulary.words(), folder, seed)
        with closing(open_local(folder)) as endpoint:
            model = LearnedExperience(
                endpoint, LearnedCheckpoint(lessons.vocabulary), programs=ProgramTracker(lambda _: (), {})
            )
            calibration = calibrated(_asked_in_shop(model, programs, apart))
            learned = LearnedCheckpoint(lessons.vocabulary, calibration)
            model = LearnedExperience(endpoint, learned, programs=ProgramTracker(lambda _: (), {}))
            found = _asked_in_shop(model, programs, held_out)
    _SHARES["shop"] = figures_of(found, model.support)
    return [(f"shop_{name}", value, unit) for name, value, unit in _figures(_SHARES["shop"], "")] + [
        ("shop_ece", expected_error(found, model.support), "share")
    ]


def teach_shop(lessons: Sequence[object], words: Sequence[str], folder: Path, seed: int) -> None:
    """A nano model from nothing."""
    from dreamgym_kit.adapters.models.folders import threads
    from dreamgym_kit.recipes.nano.learn import build_word_tokenizer, teach
    from dreamgym_kit.recipes.nano.start import new_model, save_model

    tokenizer = build_word_tokenizer(words)
    with threads(1):
        model = new_model(tokenizer, seed=seed)
        teach(model, tokenizer, lessons, course=Schedule(steps=SHOP_STEPS), seed=seed)  # type: ignore[arg-type]
    save_model(model, tokenizer, folder)


def _asked_in_shop(model: LearnedExperience, programs: Programs, worlds: Sequence[int]) -> list[Tried]:
    episodes = (recording(probed(world, number)) for world in worlds for number in (0, 1))
    calls = [seen_calls(episode, programs.model.parameters) for episode in episodes]
    return asyncio.run(tried(model, programs, calls))


def _figures(shares: Shares, suffix: str) -> list[tuple[str, float, str]]:
    figures = []
    for arm in ARMS:
        figures.append((f"exact_{arm}{suffix}", shares[arm]["all"][1], "of calls"))
        figures.append((f"exact_{arm}_writes{suffix}", shares[arm]["writes"][1], "of writes"))
        figures.append((f"right_{arm}{suffix}", shares[arm]["all"][2], "of answered calls"))
    return figures


def table() -> str:
    """Tool by tool: exactly answered of all calls, in brackets of the answered ones."""
    parts = []
    for name, shares in _SHARES.items():
        head = f"{name}:\n\n| calls | {' | '.join(ARMS)} |\n| --- |{' --- |' * len(ARMS)}\n"
        kinds = ["all", "reads", "writes", "refused"]
        kinds += sorted(kind for kind in shares["nano"] if kind not in kinds)
        parts.append(head + "".join(_line(kind, shares) for kind in kinds))
    return "\n".join(parts)


def _line(kind: str, shares: Shares) -> str:
    cells = [shares[arm].get(kind, [0, 0.0, 1.0]) for arm in ARMS]
    shown = " | ".join(f"{share:.3f} ({right:.3f})" for _, share, right in cells)
    return f"| {kind} ({cells[0][0]}) | {shown} |\n"
