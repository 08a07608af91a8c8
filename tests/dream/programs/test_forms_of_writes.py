"""Common kinds of writes: the dream answers each for things that no recording names."""

from collections.abc import Callable
from datetime import datetime
from typing import Any

import pytest

from dreamgym_kit.dream.programs.dreaming import ProgramEpisode
from dreamgym_kit.dream.programs.experience import Programs, learn
from dreamgym_kit.dream.programs.forms import Const, Later
from dreamgym_kit.dream.programs.scope import Scope
from dreamgym_kit.dream.programs.values import UNKNOWN, SeenStep
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
        self.people = [{"person": f"p-{n}q", "phone": f"+4930{n:04}", "name": f"Name {n}"} for n in numbers]

    def find_files(self, name: str) -> Any:
        return [file for file in self.files.values() if name in file["name"]]

    def find_meetings(self, query: str) -> Any:
        return [one for one in self.meetings.values() if query in one["title"] or query in one["room"]]

    def find_people(self, phone: str) -> Any:
        return [person for person in self.people if person["phone"] == phone]

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

    def do_move(self, meeting_id: str, start: str) -> Any:
        meeting = self.meetings[meeting_id]
        lasts = datetime.fromisoformat(meeting["end"]) - datetime.fromisoformat(meeting["start"])
        meeting["start"] = f"{start.replace(' ', 'T')}:00"
        meeting["end"] = (datetime.fromisoformat(meeting["start"]) + lasts).isoformat()
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

    def do_edit(self, trip: str, **changes: str) -> Any:
        return "done" if changes else {"error": "nothing to edit"}


def played(*calls: tuple[str, dict[str, Any]]) -> list[tuple[str, dict[str, Any], Any]]:
    """What a new office answers to these calls."""
    office = Office()
    return [(tool, args, _copy(getattr(office, tool)(**args))) for tool, args in calls]


def _copy(value: Any) -> Any:
    if isinstance(value, dict):
        return {name: _copy(item) for name, item in value.items()}
    return [_copy(item) for item in value] if isinstance(value, list) else value


WORDS = ["Call the vendor", "Ask Jo about it", "Print this", "Buy six chairs", "Send it to Ann and Bo"]
DO: dict[str, Callable[[int], list[tuple[str, dict[str, Any]]]]] = {
    "share": lambda n: [
        ("do_share", {"file_id": str(n), "mail": f"m{n}@x.org", "right": "rw" if n % 3 else "r"})
    ],
    "append": lambda n: [("do_append", {"file_id": str(n), "text": f"{WORDS[n % 5]} {n}"})],
    "move": lambda n: [("do_move", {"meeting_id": str(n), "start": f"2026-06-{n:02} {8 + n % 5:02}:00"})],
    "pack": lambda n: [("do_pack", {"trip": f"T{n}x", "bags": n % 4 + (0, 1, 3)[n % 3]})],
    "fill": lambda n: [("do_fill", {"trip": f"T{n}x", "litres": n + 0.5})],
    "call": lambda n: [("do_call", {"number": f"+4930{n:04}"})],
    "find": lambda n: [("find_meetings", {"query": f"lk {n}" if n % 2 else f"om {n % 4}"})],
    "edit": lambda n: [("do_edit", {"trip": f"T{n}x", ("seat" if n % 2 else "meal"): WORDS[n % 5]})],
}


def looked_up(n: int) -> list[tuple[str, dict[str, Any]]]:
    return [
        ("find_files", {"name": f"f{n}.txt"}), ("find_meetings", {"query": f"Talk {n}"}),
        ("get_trip", {"trip": f"T{n}x"}), ("find_people", {"phone": f"+4930{n:04}"}),
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
