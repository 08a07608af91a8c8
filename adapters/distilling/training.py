"""From annotations to a model directory, and what that is worth on held-out calls.

Lessons fold by fold, tokens, fine-tuning, a card; then calls put to recordings, to rules, to the model and to
all of them together.
"""

import asyncio
import json
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from importlib.metadata import version
from pathlib import Path

from dreamgym_kit.adapters.distilling.material import CHECKPOINTS, MODEL, Material, steps_of
from dreamgym_kit.adapters.langgraph.run.experiences import reasoned_over
from dreamgym_kit.adapters.trainers.sft import SftOptions, SftRow, SftStep, train_sft
from dreamgym_kit.bounded_json import read_json
from dreamgym_kit.dream.chain import ChainedExperience, chain_over
from dreamgym_kit.dream.held_out import RecordedCall, as_seen, drawn_calls, situation_of
from dreamgym_kit.dream.llm_experience import ReasonedExperience
from dreamgym_kit.dream.observed import failed, observation
from dreamgym_kit.errors import NotSerializable, UserError
from dreamgym_kit.interfaces import ChatEndpoint, Situation
from dreamgym_kit.rollout.atomic_files import read_whole
from dreamgym_kit.rollout.budgets import RunAccount
from dreamgym_kit.serialization import JsonValue
from dreamgym_kit.training.annotation import KeptAnnotations
from dreamgym_kit.training.lessons import USUALLY, CallLesson, Counts, Leaving, balanced, lessons_of
from dreamgym_kit.trust.acceptance import HeldOutCall
from dreamgym_kit.types import Answer, Transition

ABOUT = "experience.json"
_FOLDS = 4
_AT_ONCE = 8  # questions


@dataclass(frozen=True, slots=True)
class LessonRows:
    """What is learned from, and what was too long for it."""

    rows: list[SftRow]
    too_long: int
    tokens: int  # of all rows
    longest: int


@dataclass(frozen=True, slots=True)
class TrainedExperience:
    """What was trained, and from what."""

    folder: Path
    counts: Counts
    rows: LessonRows
    steps: list[SftStep]


def lessons(
    folder: Path, material: Material, *, leaving: Leaving = USUALLY, seed: int = 0
) -> tuple[list[CallLesson], Counts]:
    """All lessons of the annotated trajectories; each is taught as if its world had never been recorded.

    Raises:
        UserError: nothing is annotated.
    """
    annotations, counts = KeptAnnotations(folder), Counts()
    learned: list[CallLesson] = []
    taught = material.sides.taught
    for fold in material.sides.folds(_FOLDS):
        mine = {trajectory.key for trajectory in fold}
        sight = material.sight([trajectory for trajectory in taught if trajectory.key not in mine])
        for trajectory in fold:
            annotation = annotations.of(trajectory)
            if annotation is None:
                counts.unannotated += 1
                continue
            learned += lessons_of(
                trajectory, annotation, sight, material.begun.tools, counts, leaving=leaving, seed=seed
            )
    if not learned:
        raise UserError(
            f"{folder}: there is nothing to learn from {len(taught)} recorded episodes "
            f"({counts.unannotated} are not annotated, {counts.unsayable.total()} answers cannot be said); "
            f"annotate them: dreamgym-kit experience annotate {folder}"
        )
    return learned, counts


def train(
    folder: Path,
    material: Material,
    base: Path,
    options: SftOptions,
    *,
    leaving: Leaving = USUALLY,
    most_tokens: int | None = None,
    tell: Callable[[SftStep], None] = lambda _: None,
) -> TrainedExperience:
    """Fine-tune `base` and write it to `folder/model`; what stood there is replaced, its gate with it.

    One that was broken off goes on from its last checkpoint.

    Raises:
        MissingExtra: the packages of the extra `train` are not installed.
        TrainingStopped: the loss or a gradient is no finite number.
        UserError: there is nothing to learn, or the model cannot be used.
    """
    made, counts = lessons(folder, material, leaving=leaving, seed=options.seed)
    rows = rows_of(balanced(made), base, most=most_tokens)
    if not rows.rows:
        raise UserError(
            f"{base}: all {rows.too_long} lessons are longer than it reads, or than distill.max_tokens; "
            "choose a larger model."
        )
    about = _about(material, base, options, leaving, counts, rows)
    texts = {ABOUT: json.dumps(about, indent=1) + "\n", "README.md": _card(about)}
    steps = train_sft(
        base, rows.rows, folder / MODEL, options, checkpoints=folder / CHECKPOINTS, tell=tell, texts=texts
    )
    return TrainedExperience(folder / MODEL, counts, rows, steps)


def _about(
    material: Material, base: Path, options: SftOptions, leaving: Leaving, counts: Counts, rows: LessonRows
) -> dict[str, JsonValue]:
    begun = material.begun
    return {
        "experience": 1,
        "kit": version("dreamgym-kit"),
        "base": base.name,
        "seed": options.seed,
        "steps": options.steps,
        "lora": None if options.lora is None else options.lora.rank,
        "split": list(begun.by),
        "taught": sorted(trajectory.key for trajectory in material.sides.taught),
        "taught_episodes": len(material.sides.taught),
        "held_out_episodes": len(material.sides.measured),
        "lessons": dict(sorted(counts.lessons.items())),
        "unsayable": dict(sorted(counts.unsayable.items())),
        "too_long": rows.too_long,
        "left_out": asdict(leaving),
    }


def _card(about: Mapping[str, JsonValue]) -> str:
    return "\n".join(
        [
            *("---", "library_name: transformers", "tags: [dreamgym-kit, experience-model]", "---", ""),
            "# An experience model",
            "",
            "It decides what recorded tools would answer; code makes the answers of its decisions.",
            "It is no agent and no tool. What it may answer is in `acceptance.json`, once it was tried on",
            "held-out recordings (`dreamgym-kit experience eval`); without that it has passed nothing.",
            "",
            "```json",
            json.dumps({name: value for name, value in about.items() if name != "taught"}, indent=1),
            "```",
            "",
        ]
    )


def taught_to(model: Path) -> frozenset[str]:
    """The trajectories that a model directory was made of; none where it was not made here.

    Raises:
        UserError: what lies in it cannot be read.
    """
    try:
        about = read_json(read_whole(model / ABOUT))
        return frozenset(map(str, about["taught"]))
    except FileNotFoundError:
        return frozenset()
    except (NotSerializable, KeyError, TypeError) as error:
        raise UserError(f"{model / ABOUT}: cannot be read ({error}); train the model again.") from None


def rows_of(lessons: Iterable[CallLesson], folder: Path, *, most: int | None = None) -> LessonRows:
    """The prompt by the model's own chat template, given; then the answer with its end, learned.

    `most`: tokens of a row; longer ones are left out. None: as many as the model reads.

    Raises:
        UserError: the directory is none, or its tokenizer cannot say where in a text its tokens stand.
    """
    from dreamgym_kit.adapters.models.folders import load_served_tokenizer
    from dreamgym_kit.adapters.models.local_prompts import Prompts, whole_characters
    from dreamgym_kit.deployment.model_files import read_files

    files = read_files(folder)
    tokenizer = load_served_tokenizer(files)
    if not tokenizer.is_fast:
        raise UserError(f"{folder}: its tokenizer is not a fast one (tokenizer.json); convert it.")
    end = tokenizer.eos_token_id
    ends = files.ends or ({end} if isinstance(end, int) else set())
    if not ends:
        raise UserError(f"{folder}: names no end token (eos_token_id); a model of it would never stop.")
    last = end if end in ends else min(ends)
    inner = files.config.get("text_config")
    context = files.config.get("max_position_embeddings") or (inner or {}).get("max_position_embeddings")
    most = min(limit for limit in (most, context, 2**31) if isinstance(limit, int))
    prompts = Prompts(tokenizer)
    rows, too_long = [], 0
    for lesson in lessons:
        prompt = prompts.encode(prompts.render(lesson.messages, ()))
        text = whole_characters(lesson.answer)
        answer = tokenizer(text, add_special_tokens=False, return_offsets_mapping=True)
        weights = _weights(answer["offset_mapping"], lesson.unlearned)
        if len(prompt) + len(weights) + 1 > most:
            too_long += 1
            continue
        rows.append(SftRow([*prompt, *answer["input_ids"], last], [*[0.0] * len(prompt), *weights, 1.0]))
    sizes = [len(row.ids) for row in rows]
    return LessonRows(rows, too_long, sum(sizes), max(sizes, default=0))


def _weights(offsets: Sequence[tuple[int, int]], unlearned: Sequence[tuple[int, int]]) -> list[float]:
    return [
        0.0 if any(start < last and end > first for first, last in unlearned) else 1.0
        for start, end in offsets
    ]


async def held_out_calls(
    material: Material,
    chat: ChatEndpoint | None,
    *,
    without: frozenset[str] = frozenset(),
    most: int = 0,
    seed: int = 0,
    tell: Callable[[int, int], None] = lambda *_: None,
) -> list[HeldOutCall]:
    """Ask held-out calls; nothing of their groups is known to any way of answering.

    Of `material`, the taught side answers and the measured side is asked. `chat`: the model; None: only code.
    `without`: trajectories that the model was taught: it is not measured with them, whatever side they are on
    now. `most`: calls, as many of each tool as can be, drawn by the seed; 0: all.
    """
    seen = steps_of(material.sides.taught)

    settings = material.settings
    chain = chain_over(seen, threshold=settings.simulate.min_confidence, specs=material.begun.tools)
    model = None
    if chat is not None:
        shown = frozenset(row.id for row in seen)
        model = reasoned_over(
            material.store, chat, settings, only=shown, programs=chain.programs, specs=material.begun.tools
        )
    calls = _situations(material, without)
    put = drawn_calls(calls, most or len(calls), seed)
    gate, done = asyncio.Semaphore(_AT_ONCE), 0

    async def ask(row: Transition, situation: Situation) -> HeldOutCall:
        nonlocal done
        async with gate:
            call = await _measured(row, situation, chain, model)
        done += 1
        tell(done, len(put))
        return call

    return list(await asyncio.gather(*(ask(*entry) for entry in put)))


async def _measured(
    row: Transition,
    situation: Situation,
    chain: ChainedExperience,
    model: ReasonedExperience | None,
) -> HeldOutCall:
    model_of_tools = chain.programs.programs(row.tenant).model
    wanted = as_seen(row.answer, row.call.tool, model_of_tools)

    def exact(answer: Answer) -> bool | None:
        return None if answer.unanswered else as_seen(answer, row.call.tool, model_of_tools) == wanted

    call = HeldOutCall(
        tool=row.call.tool,
        failed=failed(observation(row.answer)),
        recorded=exact(await chain.recorded.answer(row.call, situation)),
        composed=exact(await chain.answer(row.call, situation)),
    )
    if model is None:
        return call
    account = RunAccount()
    decided = await model.decide(row.call, replace(situation, account=account))
    spend = account.spend
    if decided is None:
        return call
    return replace(
        call,
        model=exact(decided.answer),
        model_failed=not decided.answer.unanswered and failed(observation(decided.answer)),
        form=decided.form,
        confidence=decided.confidence,
        prompt_tokens=spend.prompt_tokens,
        completion_tokens=spend.completion_tokens,
    )


def _situations(material: Material, without: frozenset[str]) -> list[RecordedCall]:
    tools = material.begun.tools
    return [
        (row, situation_of(row, trajectory.steps[:place], tools[row.call.tool]))
        for trajectory in material.sides.measured
        if trajectory.key not in without
        for place, row in enumerate(trajectory.steps)
        if row.call.tool in tools
    ]
