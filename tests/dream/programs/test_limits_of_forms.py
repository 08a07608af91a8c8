"""Where a form of calls has no proof in recordings, nothing is answered; where it has one, it is used."""

from collections.abc import Callable, Sequence
from typing import Any

import pytest

from dreamgym_kit.dream.observed import failed
from dreamgym_kit.dream.programs.dreaming import ProgramEpisode
from dreamgym_kit.dream.programs.experience import Programs, learn
from dreamgym_kit.dream.programs.values import SeenStep
from dreamgym_kit.dream.recorded_episodes import HistoryStep, RecordedEpisode

CARS = [{"car_id": f"CAR{n}", "seats": n % 4 + 2} for n in range(10, 40)]
TASKS = [{"task_id": f"T{n}", "title": f"Title {n}", "priority": n % 5 + 1} for n in range(10, 60)]
EVENTS = [{"event_id": f"EV{n}", "day": f"2024-05-{n % 28 + 1:02}"} for n in range(10, 40)]
SIZES = [2, 4, 7, 9, 12, 15, 3, 5, 11, 8] * 2
Step = tuple[str, dict[str, Any], Any]


def first(limit: int, offset: int = 0) -> Any:
    return CARS[offset : offset + limit]


def last(limit: int, offset: int = 0) -> Any:
    return CARS[max(0, len(CARS) - offset - limit) : len(CARS) - offset]


def at_most_ten(limit: int) -> Any:
    return CARS[: min(limit, 10)]


def after(day: str) -> Any:
    return [event for event in EVENTS if event["day"] >= day]


def programs(*episodes: Sequence[Step], measured: bool = False, worlds: int = 1) -> Programs:
    """What is learned from episodes; a tool whose name begins with `do_` writes."""
    recorded = [
        RecordedEpisode(
            f"e{number}",
            f"w{number % worlds}",
            tuple(
                HistoryStep(*step[:2], "", step[2], step[0][:3] == "do_", failed(step[2])) for step in steps
            ),
        )
        for number, steps in enumerate(episodes)
    ]
    return learn(recorded, {}, measured=measured)


def answer(learned: Programs, *calls: tuple[str, dict[str, Any]]) -> Any:
    """What the dream proposes for the last of these calls."""
    episode, proposed = ProgramEpisode(learned.model, "w0", learned.trust), None
    for tool, args in calls:
        proposed = episode.consider(tool, args)
        if proposed is not None:
            step = SeenStep(
                tool, args, proposed.ok, proposed.out, tool in learned.model.writes, proposed.wrap
            )
            episode.observe(step, proposed.confidence)
    return proposed


def listed(form: Callable[..., Any], recorded: list[dict[str, Any]]) -> Programs:
    crawl: list[Step] = [("get_car", {"car_id": car["car_id"]}, car) for car in CARS]
    return programs(crawl, *[[("cars", args, form(**args))] for args in recorded])


LIMITS = [{"limit": size} for size in SIZES]
PAGES = [{"limit": size, "offset": size * (at % 3)} for at, size in enumerate(SIZES)]
WHOLE = [{"limit": 40}, {"limit": 50}]


@pytest.mark.parametrize(
    ("form", "recorded", "args", "wanted"),
    [
        (first, LIMITS, {"limit": 6}, first(6)),
        (last, LIMITS, {"limit": 6}, last(6)),
        (first, PAGES, {"limit": 6, "offset": 6}, first(6, 6)),
        (first, LIMITS + WHOLE, {"limit": 33}, CARS),
        (first, LIMITS, {"limit": 33}, None),
        (first, LIMITS, {"limit": 0}, None),
        (first, LIMITS, {"limit": "3"}, None),
        (first, LIMITS, {}, None),
        (first, LIMITS, {"limit": 6, "offset": 6}, None),
        (
            first,
            [*LIMITS, {"limit": 3, "offset": 3}],
            {"limit": 6, "offset": 6},
            None,
        ),  # one may be by chance
        (first, LIMITS, {"limit": 6, "start": 6}, None),
        (first, LIMITS, {"limit": 6, "page": 2}, None),
        (last, LIMITS, {"limit": 6, "offset": 6}, None),
        (at_most_ten, LIMITS, {"limit": 14}, None),
    ],
)
def test_a_list_is_cut_only_as_recorded_ones_were(
    form: Callable[..., Any], recorded: list[dict[str, Any]], args: dict[str, Any], wanted: Any
) -> None:
    dreamed = answer(listed(form, recorded), ("cars", args))
    assert (dreamed and dreamed.out) == wanted


def test_an_argument_named_like_a_cut_may_be_a_filter() -> None:
    crawl: list[Step] = [("get_event", {"event_id": event["event_id"]}, event) for event in EVENTS]
    days = [f"2024-05-{day:02}" for day in range(3, 27, 2)]
    learned = programs(crawl, *[[("events", {"start": day}, after(day))] for day in days])
    assert answer(learned, ("events", {"start": "2024-05-22"})).out == after("2024-05-22")


PURGE: Step = ("do_purge", {}, {"purged": 1})


@pytest.mark.parametrize("between", [[PURGE], []], ids=["after another write", "at once"])
def test_one_look_up_that_failed_makes_no_update_a_deletion(between: list[Step]) -> None:
    episodes: list[list[Step]] = []
    for at, task in enumerate(TASKS):
        key, miss = {"task_id": task["task_id"]}, {"error": f"no task {task['task_id']}"}
        finish: list[Step] = [("do_finish", key, {**task, "priority": 0})]
        missed: list[Step] = [*between, ("get_task", key, miss)]
        remove: list[Step] = [("do_remove", key, task), ("get_task", key, miss)]
        done = finish + missed * (at == 5) if at % 2 else remove
        episodes.append([("get_task", key, task), *done])
    learned, key = programs(*episodes), {"task_id": "T13"}
    assert answer(learned, ("do_finish", key), ("get_task", key)).out["priority"] == 0
    assert not answer(learned, ("do_remove", key), ("get_task", key)).ok


def tasks_set(*, by_default: bool) -> Programs:
    """Tasks are set; without a priority a task keeps its own, or gets the default, which each had before."""
    episodes: list[list[Step]] = [[("get_task", {"task_id": task["task_id"]}, task) for task in TASKS]]
    for at, task in enumerate(TASKS[:30]):
        key = {"task_id": task["task_id"]}
        args = {**key, "title": "Groceries" if at == 7 else f"New {at}", "priority": (at * 3) % 5 + 1}
        if task["priority"] == 1 or (not by_default and at % 3 == 0):
            del args["priority"]
        reads: list[Step] = [("get_task", key, task), ("do_set", args, "ok")]
        episodes.append([*reads, ("get_task", key, {**task, **args})])
    return programs(*episodes, measured=True)


def test_an_argument_left_out_keeps_the_old_value_only_where_several_values_were_kept() -> None:
    calls = ("do_set", {"task_id": "T43", "title": "Old and new"}), ("get_task", {"task_id": "T43"})
    assert answer(tasks_set(by_default=True), *calls) is None
    assert answer(tasks_set(by_default=False), *calls).out["priority"] == 4


def test_a_text_of_one_word_is_no_thing_that_answers_must_have_shown() -> None:
    call = "do_set", {"task_id": "T43", "title": "Laundry", "priority": 2}
    assert answer(tasks_set(by_default=True), call).confidence > 0.8


@pytest.mark.parametrize(
    ("values", "other", "is_choice"),
    [(("720p", "1080p"), "9999p", True), (("2024-05-01", "2024-06-02"), "2024-07-03", False)],
)
def test_values_with_digits_are_a_choice_unless_they_are_keys_amounts_or_times(
    values: tuple[str, str], other: str, is_choice: bool
) -> None:
    episodes: list[list[Step]] = []
    for at, car in enumerate(CARS):
        args = {"car_id": car["car_id"], "as": values[at // 2 % 2]}
        film: Step = ("do_film", args, f"{car['car_id']} films as {args['as']}")
        episodes.append([("get_car", {"car_id": car["car_id"]}, car), film])
    learned = programs(*episodes, measured=True, worlds=len(episodes))
    assert (answer(learned, ("do_film", {"car_id": "CAR10", "as": other})) is None) == is_choice
    assert answer(learned, ("do_film", {"car_id": "CAR10", "as": values[1]})).confidence > 0.8


def test_values_of_failed_calls_alone_name_nothing() -> None:
    tried: Step = ("do_ride", {"mode": "slow"}, {"error": "no mode slow"})
    learned = programs(*[[tried]] * 6, *[[("do_ride", {"to": f"Hall {at}"}, "ok")] for at in range(6)])
    assert learned.model.tools["do_ride"].names == frozenset()


@pytest.mark.parametrize(("task", "wanted"), [("T10", {"noted": True}), ("T13", None)])
def test_calls_on_one_record_prove_nothing_of_another_nor_that_it_must_stay_as_it_is(
    task: str, wanted: Any
) -> None:
    crawl: list[Step] = [("get_task", {"task_id": task["task_id"]}, task) for task in TASKS]
    notes: list[list[Step]] = [
        [("do_note", {"task_id": "T10", "text": f"note {at}"}, {"noted": True})] for at in range(12)
    ]
    learned, now = programs(crawl, *notes, measured=True), {**TASKS[0], "priority": 9}
    episode = ProgramEpisode(learned.model, "w0", learned.trust)
    episode.observe(SeenStep("get_task", {"task_id": "T10"}, True, now, False, str))
    dreamed = episode.consider("do_note", {"task_id": task, "text": "more"})
    assert (dreamed.out if dreamed and dreamed.confidence >= 0.5 else None) == wanted


@pytest.mark.parametrize(("text", "is_made_up"), [("REF{}{}", True), ("seat {} in row {} is yours", False)])
def test_a_reference_is_made_up_but_no_sentence(text: str, is_made_up: bool) -> None:
    book: list[list[Step]] = []
    for at in range(30):
        made = text.format(at * 7 % 97 + 10, at * 5 % 31)
        book.append([("do_book", {"name": f"N{at}"}, {"ref": made, "name": f"N{at}", "state": "ok"})])
    dreamed = answer(programs(*book), ("do_book", {"name": "N77"}))
    assert (dreamed is not None) is is_made_up


def test_a_record_that_an_answer_showed_and_nobody_found_again_makes_no_update_a_deletion() -> None:
    episodes: list[list[Step]] = []
    for at, task in enumerate(TASKS):
        key, finished = {"task_id": task["task_id"]}, {**task, "priority": 0}
        found: list[Step] = [("do_finish", key, {"done": True}), ("get_task", key, finished)]
        missed: list[Step] = [("do_finish", key, finished), ("get_task", key, {"error": "no such task"})]
        episodes.append([("get_task", key, task), *(found if at % 5 else missed)])
    key = {"task_id": "T13"}
    assert answer(programs(*episodes), ("do_finish", key), ("get_task", key)).out["priority"] == 0


@pytest.mark.parametrize("other", [0, 9], ids=["of one keeper", "of two keepers"])
def test_a_new_id_is_made_up_and_its_owner_is_the_owner_of_all_that_is_known(other: int) -> None:
    episodes: list[list[Step]] = []
    for at in range(19):
        world, pins = at % 17, at % 2
        note = {"text": f"text {at}", "pinned": 1 if pins else at}
        made = {**note, "id": 7 * world + 3, "keeper": f"keeper {world}"}
        pin: list[Step] = [("do_pin", {"place": "door"}, {"ok": True})] * pins
        animals = [{"animal_id": f"A{at}{n}", "keeper": f"keeper {world or n * other}"} for n in range(2)]
        seen: list[Step] = [("get_animal", {"animal_id": animal["animal_id"]}, animal) for animal in animals]
        episodes.append([*seen, *pin, ("do_note", note, made)] if world else seen)
    learned, note = programs(*episodes, worlds=17), {"text": "fed", "pinned": 8}
    dreamed = answer(learned, ("do_pin", {"place": "door"}), ("do_note", note))
    assert (dreamed is None) is bool(other)
    assert dreamed is None or (dreamed.out["keeper"] == "keeper 0" and type(dreamed.out["id"]) is int)
