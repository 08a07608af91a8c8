"""A clinic in a few lines, and its receptionists: recorded work of a world that is no support desk.

Somebody asks to give up their visit. A visit that is booked is cancelled; where it is within two days a late
fee is charged as well, half of the visit's price; a visit that is over is left alone. Hasty receptionists do
not look.
"""

import random
from collections.abc import Mapping
from typing import Any

from dreamgym_kit.dream.checklist.labels import Work
from dreamgym_kit.vocabulary import Answer, Call, Effect, Transition, World

PEOPLE = ["Ada", "Bob", "Cyd", "Dov", "Eli", "Fay", "Gus", "Hal", "Ida", "Jon", "Kai", "Lea"]
TOWNS = [
    "Aachen",
    "Basel",
    "Cork",
    "Delft",
    "Essen",
    "Fulda",
    "Ghent",
    "Haifa",
    "Izmir",
    "Jena",
    "Kiel",
    "Linz",
]
EFFECTS = {
    "find_patient": Effect.READ,
    "list_visits": Effect.READ,
    "get_visit": Effect.READ,
    "cancel_visit": Effect.WRITE,
    "charge_fee": Effect.WRITE,
}
LATE = 3  # days before a visit from which on giving it up is free


class Clinic:
    """One world: a patient and their visits; `call` is the real tool."""

    def __init__(self, seed: int) -> None:
        pick = random.Random(f"clinic {seed}")
        self.world = World("clinic", seed)
        self.name, self.patient = pick.choice(PEOPLE), f"pat-{pick.randrange(100, 999)}"
        self.town = pick.choice(TOWNS)
        self.visits = {
            f"vis-{number}": {
                "doctor": doctor,
                "state": pick.choice(["booked", "booked", "over"]),
                "days": pick.randrange(0, 14),
                "price": pick.choice(["20.00", "30.00", "50.00", "80.00"]),
            }
            for number, doctor in zip(
                pick.sample(range(1000, 9999), 2),
                pick.sample(
                    [
                        "Abel",
                        "Bloch",
                        "Curie",
                        "Darwin",
                        "Euler",
                        "Fermi",
                        "Gauss",
                        "Hertz",
                        "Joule",
                        "Kepler",
                        "Lenz",
                    ],
                    2,
                ),
                strict=True,
            )
        }
        self.wanted = pick.choice(list(self.visits))
        self.text = f"{self.name} speaking. I cannot come to Dr {self.visits[self.wanted]['doctor']}."

    def call(self, tool: str, args: Mapping[str, Any]) -> Any:
        if tool == "find_patient":
            return {"patient_id": self.patient, "name": self.name, "town": self.town}
        if tool == "list_visits":
            return [
                {"visit_id": key, "doctor": visit["doctor"], "state": visit["state"]}
                for key, visit in self.visits.items()
            ]
        if tool == "get_visit":
            return {"visit_id": args["visit_id"], "patient_id": self.patient, **self.visits[args["visit_id"]]}
        return {"done": True}

    def right(self) -> list[tuple[str, dict[str, Any]]]:
        """What a good receptionist writes."""
        visit = self.visits[self.wanted]
        if visit["state"] == "over":
            return []
        writes: list[tuple[str, dict[str, Any]]] = [("cancel_visit", {"visit_id": self.wanted})]
        if visit["days"] < LATE:
            half = f"{float(visit['price']) / 2:.2f}"
            writes.append(
                ("charge_fee", {"visit_id": self.wanted, "amount": half, "note": "a late one, sorry"})
            )
        return writes

    def worked(self, number: int, *, hasty: bool) -> Work:
        """One recorded episode."""
        reads = [("find_patient", {"name": self.name}), ("list_visits", {"patient_id": self.patient})]
        if not hasty:
            reads.append(("get_visit", {"visit_id": self.wanted}))
        writes = [("cancel_visit", {"visit_id": self.wanted})] if hasty else self.right()
        rows = self.rows(f"visit-{self.world.seed}.{number}", [*reads, *writes])
        return Work(f"visit-{self.world.seed}", self.text, str(self.world), rows, writes == self.right())

    def rows(self, episode: str, calls: list[tuple[str, Any]]) -> tuple[Transition, ...]:
        """Calls as they are recorded."""
        return tuple(
            Transition(
                Call(tool, args), Answer(self.call(tool, args)), EFFECTS[tool], episode, step, self.world
            )
            for step, (tool, args) in enumerate(calls, start=1)
        )

    def crawled(self) -> tuple[Transition, ...]:
        """Every read there is."""
        calls: list[tuple[str, Any]] = [("find_patient", {"name": self.name})]
        calls.append(("list_visits", {"patient_id": self.patient}))
        calls += [("get_visit", {"visit_id": visit}) for visit in self.visits]
        return self.rows(f"crawl:{self.world}", calls)
