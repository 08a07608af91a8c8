"""Common kinds of writes: the dream answers each for things that no recording names."""

from collections.abc import Callable
from copy import deepcopy
from datetime import datetime
from typing import Any

import pytest

from dreamgym_kit.dream.programs.dreaming import ProgramEpisode
from dreamgym_kit.dream.programs.experience import Programs, learn
from dreamgym_kit.dream.programs.forms import Const, Later
from dreamgym_kit.dream.programs.scope import Scope
from dreamgym_kit.dream.programs.synthesis import partly
from dreamgym_kit.dream.programs.values import UNKNOWN, SeenStep, shape_of
from dreamgym_kit.dream.recorded_episodes import HistoryStep, RecordedEpisode

MANY = 24


class Office:
    """Its files and its meetings count from 1, each."""

    def __init__(self) -> None:
        numbers = range(1, MANY + 1)
        self.files = {
            str(n): {
                "id_": str(n),
                "name": f"f{n}.txt",
                "text": f"Text {n}.",
                "size": len(f"Text {n}."),
                "who": {},
            }
            for n in numbers
        }
        self.meetings = {
            str(n): {"id_": str(n), "title": f"Talk {n}", "start": f"2026-05-{n:02}T10:00:00",
                     "end": f"2026-05-{n:02}T1{n % 3 + 1}:30:00", "room": f"Room {n % 4}"}
            for n in numbers
        }  # fmt: skip
        self.trips = {f"T{n}x": {"trip": f"T{n}x", "bags": n % 4, "paid": []} for n in numbers}
        self.people = [{"person_id": f"p{n}q", "phone": f"+4930{n:04}", "name": f"Name {n}"} for n in numbers]

    def find_files(self, name: str) -> Any:
        return [file for file in self.files.values() if name in file["name"]]

    def find_meetings(self, query: str) -> Any:
        return [one for one in self.meetings.values() if query in one["title"] or query in one["room"]]

    def find_people(self, name: str) -> Any:
        return [person for person in self.people if person["name"] == name]

    def get_trip(self, trip: str) -> Any:
        return self.trips[trip]

    def do_share(self, file_id: str, mail: str, right: str) -> Any:
        file = self.files[file_id]
        file["who"] = {**file["who"], mail: right}
        return file

    def do_append(self, file_id: str, text: str) -> Any:
        file = self.files[file_id]
        file["text"] += "\n- " + text
        file["size"] = len(file["text"])
        return file

    def do_move(self, meeting_id: str, start: str, **given: str) -> Any:
        meeting = self.meetings[meeting_id]
        lasts = datetime.fromisoformat(meeting["end"]) - datetime.fromisoformat(meeting["start"])
        meeting["start"] = f"{start.replace(' ', 'T')}:00"
        meeting["end"] = (datetime.fromisoformat(meeting["start"]) + lasts).isoformat()
        if given:
            meeting["end"] = f"{given['end'].replace(' ', 'T')}:00"
        return meeting

    def do_pack(self, trip: str, bags: int) -> Any:
        booked = self.trips[trip]
        if bags > booked["bags"]:
            booked["paid"] = [*booked["paid"], {"fee": 40 * (bags - booked["bags"])}]
        booked["bags"] = bags
        return booked

    def do_fill(self, trip: str, litres: float) -> Any:
        cost = litres * 1.5
        return {"note": f"Filled {litres} l for {trip}, ${cost:.2f}", "cost": cost}

    def do_call(self, number: str) -> Any:
        person = next(person for person in self.people if person["phone"] == number)
        return f"Calling {person['name']}"

    def do_note(self, trip: str, text: str) -> Any:
        return {"noted": text, "trip": trip}

    def do_edit(self, trip: str, **changes: str) -> Any:
        return "done" if changes else {"error": "nothing to edit"}


def played(*calls: tuple[str, dict[str, Any]]) -> list[tuple[str, dict[str, Any], Any]]:
    """What a new office answers to these calls."""
    office = Office()
    return [(tool, args, deepcopy(getattr(office, tool)(**args))) for tool, args in calls]


WORDS = ["Call the vendor", "Ask Jo about it", "Print this", "Buy six chairs", "Send it to Ann and Bo"]
NOTES = ["Nobody is at home now", "The door was open", "I will come back later"]
DO: dict[str, Callable[[int], list[tuple[str, dict[str, Any]]]]] = {
    "share": lambda n: [("do_share", {"file_id": str(n), "mail": f"m{n}@x.org", "right": "rwr"[n % 3]})],
    "append": lambda n: [("do_append", {"file_id": str(n), "text": f"{WORDS[n % 5]} {n}"})],
    "move": lambda n: [
        (
            "do_move",
            {"meeting_id": str(n), "start": f"2026-06-{n:02} {8 + n % 5:02}:00"}
            | ({"end": f"2026-06-{n:02} {14 + n % 4}:15"} if n % 2 else {}),
        )
    ],
    "note": lambda n: [("do_note", {"trip": f"T{n}x", "text": NOTES[n % 3] if n < 17 else f"{NOTES[0]}{n}"})],
    "pack": lambda n: [("do_pack", {"trip": f"T{n}x", "bags": n % 4 + (0, 1, 3)[n % 3]})],
    "fill": lambda n: [("do_fill", {"trip": f"T{n}x", "litres": n + 0.5})],
    "call": lambda n: [("do_call", {"number": f"+4930{n:04}"})],
    "find": lambda n: [("find_meetings", {"query": f"lk {n}" if n % 2 else f"om {n % 4}"})],
    "edit": lambda n: [("do_edit", {"trip": f"T{n}x", ("seat" if n % 2 else "meal"): WORDS[n % 5]})],
}


def looked_up(n: int) -> list[tuple[str, dict[str, Any]]]:
    return [
        ("find_files", {"name": f"f{n}.txt"}), ("find_meetings", {"query": f"Talk {n}"}),
        ("get_trip", {"trip": f"T{n}x"}), ("find_people", {"name": f"Name {n}"}),
    ]  # fmt: skip


def learned(kind: str) -> Programs:
    """From one episode for each of the first sixteen, and all looked up."""
    episodes = [played(*looked_up(n), *DO[kind](n)) for n in range(1, 17)]
    crawl = [played(*looked_up(n)) for n in range(1, MANY + 1)]
    recorded = []
    for at, steps in enumerate([*crawl, *episodes]):
        rows = [
            HistoryStep(*step[:2], "", step[2], step[0].startswith("do_"), failed=False) for step in steps
        ]
        recorded.append(RecordedEpisode(f"e{at}", "w", tuple(rows)))
    return learn(recorded, {}, measured=False)


@pytest.mark.parametrize("kind", DO)
def test_a_write_on_another_thing_is_answered_exactly(kind: str) -> None:
    programs = learned(kind)
    for n in (17, 18, 19, 21):
        steps = played(*looked_up(n), *DO[kind](n))
        dream = ProgramEpisode(programs.model, "w", None)
        for tool, args, out in steps[:-1]:
            dream.observe(SeenStep(tool, args, True, out, False, str))
        tool, args, out = steps[-1]
        told = dream.consider(tool, args)
        assert (told and told.out) == out
    if kind == "edit":  # every recorded call changed something
        assert dream.consider("do_edit", {"trip": "T21x"}) is None


@pytest.mark.parametrize("minutes", [10**9, 10.0**300, float("nan"), float("inf")])
def test_a_time_that_no_calendar_has_is_unknown(minutes: float) -> None:
    assert Later(Const("9999-12-31"), Const(minutes), "%Y-%m-%d")(Scope()) is UNKNOWN


def test_an_argument_is_no_part_of_a_word_or_a_number() -> None:
    assert shape_of("order no does not cost 905", ["no", 0, "order"]) == "@ @ does not cost #"


def test_what_a_field_becomes_may_be_known_for_some_calls_alone() -> None:
    kinds, open_values = ["card", "gift"] * 6, [7, 31, 12, 5, 44, 18]
    rows = [Scope({"args.kind": kind, "old": 10 * at}) for at, kind in enumerate(kinds)]
    outs = [10 * at if kind == "card" else open_values[at // 2] for at, kind in enumerate(kinds)]
    form = partly(list(zip(rows, outs, strict=True)), "amount", 3)
    assert [form and form(Scope({"args.kind": kind, "old": 9})) for kind in kinds[:2]] == [9, UNKNOWN]


def test_tables_that_count_from_one_are_kept_apart() -> None:
    lists = learned("share").model.collections.lists
    assert lists["find_files"][0].collection != lists["find_meetings"][0].collection


def test_what_an_episode_made_is_not_made_again() -> None:
    ticket = {"ticket_id": "HAT", "of": "desk", "state": "new", "by": "Ann"}
    others = [{**ticket, "ticket_id": f"K{n}"} for n in range(3)]
    looked = HistoryStep("find_tickets", {"of": "desk"}, "", others, False, failed=False)
    steps = [HistoryStep("do_open", {"why": WORDS[n]}, "", ticket, True, failed=False) for n in range(5)]
    recorded = [RecordedEpisode(f"e{at}", "w", (looked, step)) for at, step in enumerate(steps)]
    dream = ProgramEpisode(learn(recorded, {}, measured=False).model, "w", None)
    dream.observe(SeenStep("do_open", {"why": WORDS[0]}, True, ticket, True, str))
    assert dream.consider("do_open", {"why": WORDS[1]}) is None
