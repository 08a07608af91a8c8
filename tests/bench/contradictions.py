"""A model that lies on purpose, over three APIs that nobody recorded: is a contradiction ever accepted?

Each API is a small world of owners and their things, with reads, lists, makes, changes and removals; they
differ in names, IDs and form of answer. Episodes of one environment share its base state. An adversarial
double answers each call as the world does, or tells one of `LIES`, each with a chance of 20 %, and may lie
again when it is corrected. What is accepted becomes the episode's history. A scorer that shares no code with
the check counts contradictions in what was told; `lies_scored` says how much it sees when nothing is refused.
`real_accepted`: recorded answers of public tool suites, held against their own episodes.
"""

import asyncio
import json
import random
from collections.abc import Callable, Iterator, Mapping
from copy import deepcopy
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from dreamgym_kit.chat import ChatReply, ChatRequest
from dreamgym_kit.dream.contradictions import Fact, contradictions
from dreamgym_kit.dream.environment_facts import FactIndex
from dreamgym_kit.dream.llm_experience import ReasonedExperience
from dreamgym_kit.interfaces import Situation
from dreamgym_kit.types import Answer, Call, Effect, Environment, ToolSpec, Transition

CHANCE = 0.2
BEDS = Path(__file__).resolve().parents[1] / "data" / "beds"
NAMES = ("Ada", "Bo", "Cleo", "Dov", "Eva", "Finn", "Gus", "Hana", "Ivo", "Jo", "Kim", "Lou")
STATES = ("new", "active", "paused", "late", "closed")
Row = dict[str, Any]


@dataclass(frozen=True)
class Api:
    """How an API names what it has."""

    owner: str
    owner_id: str
    thing: str
    thing_id: str
    field: str  # of a thing: what `change` sets
    count: str  # of an owner: how many things it has
    tools: Mapping[str, str]  # search, owner, list, get, make, change, remove
    wrapped: bool  # lists stand in an object
    typed: bool  # answers are declared


APIS = (
    Api(
        *("employee", "employee_id", "licence", "licence_id", "status", "licences_held"),
        {
            "search": "search_employees",
            "owner": "get_employee",
            "list": "list_licences",
            "get": "get_licence",
            "make": "assign_licence",
            "change": "update_licence",
            "remove": "revoke_licence",
        },
        wrapped=False,
        typed=True,
    ),
    Api(
        *("guest", "guestId", "booking", "bookingId", "state", "openBookings"),
        {
            "search": "findGuests",
            "owner": "getGuest",
            "list": "listBookings",
            "get": "getBooking",
            "make": "createBooking",
            "change": "setBookingState",
            "remove": "deleteBooking",
        },
        wrapped=True,
        typed=False,
    ),
    Api(
        *("warehouse", "warehouse_code", "parcel", "id", "stage", "parcel_count"),
        {
            "search": "query_warehouses",
            "owner": "warehouse_details",
            "list": "parcels_by_warehouse",
            "get": "get_parcel",
            "make": "register_parcel",
            "change": "change_parcel",
            "remove": "delete_parcel",
        },
        wrapped=True,
        typed=True,
    ),
)


class World:
    """An environment of an API, as its real tools would have it."""

    def __init__(self, api: Api, seed: int) -> None:
        chance = random.Random(f"{api.owner} {seed}")
        self.api, self.next = api, 900
        names = chance.sample(NAMES, 4)
        self.owners = {f"W{seed}{n}": name for n, name in enumerate(names, start=10)}
        self.rows: dict[str, Row] = {}
        for owner in self.owners:
            for _ in range(chance.randint(1, 3)):
                key = f"K{seed}{len(self.rows)}{chance.randint(100, 999)}"
                self.rows[key] = {
                    api.thing_id: key,
                    api.owner_id: owner,
                    "title": f"{chance.choice(NAMES)} {chance.randint(10, 99)}",
                    api.field: chance.choice(STATES[:3]),
                }

    def spec(self, role: str) -> ToolSpec:
        """A tool, as its API declares it."""
        effect = {"make": Effect.WRITE, "change": Effect.WRITE, "remove": Effect.DESTRUCTIVE}
        schema: dict[str, Any] = {"type": "object"}
        if role in ("list", "search"):
            rows = {"type": "array", "items": {"type": "object", "properties": {"title": {"type": "string"}}}}
            name = f"{self.api.thing if role == 'list' else self.api.owner}s"
            wrapped = {"type": "object", "properties": {name: rows}, "required": [name]}
            schema = wrapped if self.api.wrapped else rows
        elif role == "owner":
            schema = {"type": "object", "properties": {self.api.count: {"type": "integer"}}}
        return ToolSpec(
            self.api.tools[role],
            effect.get(role, Effect.READ),
            f"The {role} of the API.",
            answer_schema=schema if self.api.typed else {},
        )

    def told_owner(self, owner: str) -> Row:
        """What the API tells of an owner."""
        held = sum(row[self.api.owner_id] == owner for row in self.rows.values())
        return {self.api.owner_id: owner, "name": self.owners[owner], self.api.count: held}

    def do(self, role: str, **args: str) -> tuple[Call, Any, str | None, list[Row]]:
        """A call, its answer or error, and what a write changed elsewhere."""
        api, call = self.api, Call(self.api.tools[role], args)
        key = args.get(api.thing_id, "")
        if role in ("get", "change", "remove") and key not in self.rows:
            return call, None, f"{api.thing} {key} not found", []
        if role == "search":
            found = [
                {api.owner_id: owner, "name": name}
                for owner, name in self.owners.items()
                if name == args["name"]
            ]
            return call, {f"{api.owner}s": found} if api.wrapped else found, None, []
        if role == "owner":
            return call, self.told_owner(args[api.owner_id]), None, []
        if role == "list":
            found = [deepcopy(row) for row in self.rows.values() if row[api.owner_id] == args[api.owner_id]]
            return call, {f"{api.thing}s": found} if api.wrapped else found, None, []
        if role == "get":
            return call, deepcopy(self.rows[key]), None, []
        if role == "change":
            self.rows[key][api.field] = args[api.field]
            return call, deepcopy(self.rows[key]), None, []
        if role == "remove":
            owner = self.rows.pop(key)[api.owner_id]
            return call, {api.thing_id: key, "removed": True}, None, [self._count(owner)]
        self.next += 1
        row = {api.thing_id: f"N{self.next}", **args, api.field: "new"}
        self.rows[row[api.thing_id]] = row
        return call, deepcopy(row), None, [self._count(args[api.owner_id])]

    def _count(self, owner: str) -> Row:
        return {"entity": owner, "field": self.api.count, "value": self.told_owner(owner)[self.api.count]}


@dataclass
class Turn:
    """A call, the world's answer, and what was told before it."""

    role: str
    call: Call
    answer: Any
    error: str | None
    changes: list[Row]
    api: Api
    told: dict[str, Row]  # by ID, what was told last and still holds
    old: dict[str, Row]  # by ID, what held before a change
    gone: dict[str, Row]
    made: list[str]


def _rows(answer: Any) -> list[Row]:
    inner = next(iter(answer.values())) if isinstance(answer, dict) else answer
    return inner if isinstance(inner, list) else []


def _key(row: Row, api: Api) -> str:
    return str(row[api.thing_id] if api.thing_id in row else row[api.owner_id])


def _other_value(turn: Turn) -> Any:
    answer = deepcopy(turn.answer)
    rows = [row for row in (_rows(answer) or [answer]) if isinstance(row, dict)]
    for row in rows:
        if turn.role in ("owner", "get", "list", "search") and _key(row, turn.api) in turn.told:
            for name in ("title", "name", turn.api.field):
                if name in row and turn.told[_key(row, turn.api)].get(name) == row[name]:
                    row[name] = f"not {row[name]}"
                    return answer
    return None


def _same_id(turn: Turn) -> Any:
    if turn.role != "search" or not _rows(turn.answer):
        return None
    taken = [key for key, row in turn.told.items() if "name" in row and row["name"] != turn.call.args["name"]]
    answer = deepcopy(turn.answer)
    _rows(answer)[0][turn.api.owner_id] = taken[0] if taken else ""
    return answer if taken else None


def _stale(turn: Turn) -> Any:
    if turn.role == "get" and turn.call.args[turn.api.thing_id] in turn.old:
        return turn.old[turn.call.args[turn.api.thing_id]]
    return None


def _without(turn: Turn, lost: Callable[[str], bool]) -> Any:
    if turn.role != "list" or not any(lost(_key(row, turn.api)) for row in _rows(turn.answer)):
        return None
    answer = deepcopy(turn.answer)
    rows = _rows(answer)
    rows[:] = [row for row in rows if not lost(_key(row, turn.api))]
    return answer


def _undead(turn: Turn) -> Any:
    if turn.role == "get" and turn.error is not None:
        return turn.gone.get(turn.call.args[turn.api.thing_id])
    mine = [
        row for row in turn.gone.values() if row[turn.api.owner_id] == turn.call.args.get(turn.api.owner_id)
    ]
    if turn.role != "list" or not mine:
        return None
    answer = deepcopy(turn.answer)
    _rows(answer).extend(mine)
    return answer


def _renamed(turn: Turn) -> Any:
    answer = deepcopy(turn.answer)
    for row in _rows(answer) if turn.role == "list" else []:
        if _key(row, turn.api) in turn.made:
            row[turn.api.thing_id] += "7"
            return answer
    return None


def _nowhere(turn: Turn) -> Any:
    rows = _rows(turn.answer) if turn.role == "list" else []
    if not rows or _key(rows[0], turn.api) not in turn.told:
        return None
    answer = deepcopy(turn.answer)
    _rows(answer).append({**rows[0], turn.api.thing_id: "K0007", "title": "Zed 1"})
    return answer


def _of_another(turn: Turn) -> Any:
    other = [key for key in turn.told if key != turn.call.args.get(turn.api.thing_id) and key[0] in "KN"]
    return turn.told[other[0]] if turn.role == "get" and turn.error is None and other else None


def _taken(turn: Turn) -> Any:
    kept = [key for key in turn.told if key[0] in "KN"]
    return {**turn.answer, turn.api.thing_id: kept[0]} if turn.role == "make" and kept else None


def _wrapped(turn: Turn) -> Any:
    return {"result": turn.answer} if turn.role == "list" and turn.api.typed else None


def _as_text(turn: Turn) -> Any:
    if turn.role != "owner" or not turn.api.typed:
        return None
    return {**turn.answer, turn.api.count: str(turn.answer[turn.api.count])}


def _denied(turn: Turn) -> Any:
    known = turn.role == "get" and turn.error is None and turn.call.args[turn.api.thing_id] in turn.told
    return {"outcome": "error", "error": f"{turn.api.thing} not found", "answer": None} if known else None


def _copied(turn: Turn) -> Any:
    return {"like": 1, "answer": None} if turn.role in ("search", "list") and turn.answer else None


def _twice(turn: Turn) -> Any:
    if turn.role != "change":
        return None
    return {"like": 1, "answer": json.dumps({**turn.answer, turn.api.field: "refused"})}


def _elsewhere(turn: Turn) -> Any:
    far = [key for key in turn.told if key[0] in "KN" and key not in str(turn.call.args)]
    mine = [
        key for key in far if turn.told[key].get(turn.api.owner_id) != turn.call.args.get(turn.api.owner_id)
    ]
    if turn.role != "make" or not mine:
        return None
    return {"set": [{"entity": mine[0], "field": turn.api.field, "value": "paid"}]}


LIES: Mapping[str, tuple[Callable[[Turn], Any], bool]] = {
    # by class: what is told instead (None: not to be told here), and whether it is part of a decision
    "another value for a known field": (_other_value, False),
    "one id, two things": (_same_id, False),
    "stale field": (_stale, False),
    "missing made row": (lambda turn: _without(turn, lambda key: key in turn.made), False),
    "lost row": (lambda turn: _without(turn, lambda key: key in turn.told and key not in turn.made), False),
    "removed row": (_undead, False),
    "another id for what was made": (_renamed, False),
    "row from nowhere": (_nowhere, False),
    "another thing than asked": (_of_another, False),
    "taken id": (_taken, False),
    "another form": (_wrapped, False),
    "another type": (_as_text, False),
    "denial": (_denied, True),
    "copied example": (_copied, True),
    "contradicts itself": (_twice, True),
    "invented change": (_elsewhere, True),
}


@dataclass
class LyingModelDouble:
    """Answers as the world does, or with a lie; keeps what it told."""

    chance: random.Random
    turn: Turn | None = None
    lie: str = ""  # the class of its last answer; "": honest
    honest: int = 0
    told: dict[str, int] = field(default_factory=dict)  # lies by class

    async def chat(self, request: ChatRequest) -> ChatReply:
        """One decision."""
        turn, said = self.turn, None
        assert turn is not None
        decision = {
            "reasoning": "so",
            "outcome": "ok" if turn.error is None else "error",
            "like": None,
            "leaves": [],
            "answer": None if turn.error is not None else json.dumps(turn.answer),
            "error": turn.error or "",
            "set": turn.changes,
            "confidence": 1.0,
        }
        self.lie = ""
        for name, (tell, whole) in LIES.items():
            if self.chance.random() < CHANCE and (said := tell(turn)) is not None:
                self.lie = name
                lied = said if whole else {"outcome": "ok", "error": "", "answer": json.dumps(said)}
                decision |= lied
                if decision["outcome"] == "error":
                    decision["set"] = []
                break
        self.told[self.lie] = self.told.get(self.lie, 0) + 1
        return ChatReply(json.dumps(decision))


@dataclass
class Transcript:
    """What an episode's calls were told: call, role, answer or error."""

    environment: str
    api: Api
    rows: list[tuple[str, Call, Any, str | None, str]] = field(default_factory=list)


@dataclass
class Tally:
    """What became of the double's answers."""

    calls: int = 0
    honest: int = 0
    honest_accepted: int = 0
    lies: dict[str, int] = field(default_factory=dict)
    accepted: dict[str, int] = field(default_factory=dict)
    transcripts: list[Transcript] = field(default_factory=list)


def measure(seed: int) -> list[tuple[str, float, str]]:
    """Figures for the bench runner."""
    return figures(seed, episodes=16)


def quick(seed: int) -> list[tuple[str, float, str]]:
    """The same with a quarter of the episodes."""
    return figures(seed, episodes=4)


def figures(seed: int, episodes: int) -> list[tuple[str, float, str]]:
    """Run the episodes twice: checked, and with everything accepted, which tells what the scorer sees."""
    tally = asyncio.run(_run(seed, episodes, checked=True))
    loose = asyncio.run(_run(seed, episodes, checked=False))
    seen = {row[-1] for script in loose.transcripts for row in scored(script, loose.transcripts)}
    scored_here = [row for script in tally.transcripts for row in scored(script, tally.transcripts)]
    real, kept = real_answers()
    return [
        (
            "accepted",
            sum(tally.accepted.values()) + len(scored_here),
            "lies, or contradictions by the scorer",
        ),
        ("calls", tally.calls, "tool calls of three APIs"),
        ("honest_accepted", tally.honest_accepted / tally.honest, f"of {tally.honest} honest answers"),
        ("lies", sum(tally.lies.values()), "answers that contradict"),
        ("classes_told", len(tally.lies), f"of {len(LIES)} classes of lies"),
        ("classes_scored", len(seen - {""}), "classes that the scorer sees when nothing is refused"),
        ("real_accepted", kept / real, f"of {real} recorded answers of public tool suites"),
    ]


async def _run(seed: int, episodes: int, *, checked: bool) -> Tally:
    tally = Tally()
    for number, api in enumerate(APIS):
        facts: dict[str, dict[str, Fact]] = {}
        for episode in range(episodes):
            environment = Environment(api.owner, episode % 3)
            known = facts.setdefault(str(environment), {})
            chance = random.Random(f"{seed} {number} {episode}")
            await _episode(World(api, episode % 3), environment, chance, known, tally, checked=checked)
    return tally


async def _episode(
    world: World,
    environment: Environment,
    chance: random.Random,
    facts: dict[str, Fact],
    tally: Tally,
    *,
    checked: bool,
) -> None:
    double = LyingModelDouble(chance)
    script = Transcript(str(environment), world.api)
    history: list[Transition] = []
    state = Told.at(world.api, facts.values())
    experience = ReasonedExperience(
        double, retrieve=lambda call, _: _examples(world.api, call), facts=lambda _: FactIndex(facts.values())
    )
    for role, args in _plan(world, chance):
        spec = world.spec(role)
        call, answer, error, changes = world.do(role, **args)
        double.turn = Turn(role, call, answer, error, changes, world.api, **state.shown())
        before = dict(double.told)
        situation = Situation(environment, "t", "t.1", list(history), _after(history), spec)
        if checked:
            given = await experience.answer(call, situation)
        else:
            decided = json.loads((await double.chat(ChatRequest(()))).content)
            given = Answer(_content(decided, call, world.api), error=decided["error"] or None)
        for lie, count in double.told.items():
            new = count - before.get(lie, 0)
            if lie and new:
                tally.lies[lie] = tally.lies.get(lie, 0) + new
            elif new:
                tally.honest += new
        tally.calls += 1
        accepted = not given.unanswered and double.told != before
        lied = double.lie if accepted else ""
        if accepted and lied:
            tally.accepted[lied] = tally.accepted.get(lied, 0) + 1
        tally.honest_accepted += accepted and not lied
        script.rows.append(
            (role, call, given.content, given.error, lied) if accepted else (role, call, answer, error, "")
        )
        truth = Answer(answer, error=error, changes=tuple(changes))
        history.append(Transition(call, truth, spec.effect, "t.1", len(history) + 1, environment))
        state.learn(role, call, answer, error)
        if not any(entry.effect.changes_environment for entry in history) and error is None:
            facts.setdefault(call.key, {"tool": call.tool, "args": dict(call.args), "answer": answer})
    tally.transcripts.append(script)


def _after(history: list[Transition]) -> str:
    return " ".join(entry.call.key for entry in history if entry.effect.changes_environment)


def _content(decided: Row, call: Call, api: Api) -> Any:
    if decided["like"] is not None:
        return _examples(api, call)[0].answer.content
    return None if decided["answer"] is None else json.loads(decided["answer"])


def _examples(api: Api, call: Call) -> list[Transition]:
    """The same tool in another environment."""
    other = World(api, 7)
    owner = next(iter(other.owners))
    key = next(iter(other.rows))
    role = next(role for role, name in api.tools.items() if name == call.tool)
    args = {
        "search": {"name": other.owners[owner]},
        "owner": {api.owner_id: owner},
        "list": {api.owner_id: owner},
        "make": {api.owner_id: owner, "title": "Any 1"},
        "change": {api.thing_id: key, api.field: "late"},
    }.get(role, {api.thing_id: key})
    asked, answer, error, _ = other.do(role, **args)
    return [Transition(asked, Answer(answer, error=error), Effect.READ, "x", 1, Environment("other", 7))]


def _plan(world: World, chance: random.Random) -> Iterator[tuple[str, dict[str, str]]]:
    """An agent's work on two owners; what it names it was told."""
    api = world.api
    for owner in chance.sample(sorted(world.owners), 2):
        mine: Callable[[], list[str]] = lambda owner=owner: [  # noqa: E731
            key for key, row in world.rows.items() if row[api.owner_id] == owner
        ]
        yield "search", {"name": world.owners[owner]}
        yield "owner", {api.owner_id: owner}
        yield "list", {api.owner_id: owner}
        first = mine()[0]
        yield "get", {api.thing_id: first}
        yield "make", {api.owner_id: owner, "title": f"{chance.choice(NAMES)} {chance.randint(10, 99)}"}
        yield "list", {api.owner_id: owner}
        made = mine()[-1]
        yield "change", {api.thing_id: made, api.field: chance.choice(STATES[3:])}
        yield "get", {api.thing_id: made}
        yield "remove", {api.thing_id: first}
        yield "list", {api.owner_id: owner}
        yield "get", {api.thing_id: first}
        yield "owner", {api.owner_id: owner}


@dataclass
class Told:
    """What an episode was truly told so far: from it the double makes its lies."""

    api: Api
    told: dict[str, Row] = field(default_factory=dict)
    old: dict[str, Row] = field(default_factory=dict)
    gone: dict[str, Row] = field(default_factory=dict)
    made: list[str] = field(default_factory=list)

    @classmethod
    def at(cls, api: Api, facts: Any) -> "Told":
        """From the environment's facts."""
        told = cls(api)
        for fact in facts:
            role = next(role for role, name in api.tools.items() if name == fact["tool"])
            told.learn(role, Call(fact["tool"], fact["args"]), fact["answer"], None)
        return told

    def shown(self) -> dict[str, Any]:
        """As `Turn` has it."""
        return {name: deepcopy(getattr(self, name)) for name in ("told", "old", "gone", "made")}

    def learn(self, role: str, call: Call, answer: Any, error: str | None) -> None:
        """Take what the world said."""
        if error is not None:
            return
        key = call.args.get(self.api.thing_id, "")
        if role == "remove":
            self.gone[key] = self.told.pop(key, {})
            self.old.pop(key, None)
            return
        if role == "change":
            self.old[key] = self.told.get(key, {**answer, self.api.field: "new"})
        for row in _rows(answer) or (
            [answer] if not isinstance(answer, list) and "name" not in call.args else []
        ):
            if self.api.thing_id in row or self.api.owner_id in row:
                self.told[_key(row, self.api)] = {**self.told.get(_key(row, self.api), {}), **row}
        if role == "make":
            self.made.append(answer[self.api.thing_id])


def scored(script: Transcript, others: list[Transcript]) -> list[tuple[str, str]]:
    """Contradictions in what an episode was told, each with the class that the double told.

    It shares no code with the check: every ID has one set of fields, a write frees those of what it names, a
    list holds what was made and lacks what was removed, and base states of one environment agree.
    """
    api, wrong = script.api, []
    base = _base(script, others)
    fields, rows_by_owner, made, gone = deepcopy(base), {}, {}, set()
    for role, call, answer, error, lie in script.rows:
        key, owner = str(call.args.get(api.thing_id, "")), str(call.args.get(api.owner_id, ""))
        if error is not None:
            if role == "get" and key in fields and key not in gone:
                wrong.append((f"{key} denied", lie))
            continue
        records = [row for row in (_rows(answer) or [answer]) if isinstance(row, dict)]
        if role in ("make", "change", "remove"):
            for row in records:
                if role == "make" and str(row.get(api.thing_id)) in fields:
                    wrong.append((f"{row.get(api.thing_id)} made twice", lie))
                fields[str(row.get(api.thing_id))] = dict(row)
            fields.get(owner, {}).pop(api.count, None)
            for row in fields.values():
                row.pop(api.count, None)
            if role == "make":
                made[str(answer.get(api.thing_id))] = owner
            if role == "remove":
                gone.add(key)
            continue
        now = {str(row.get(api.thing_id)) for row in records if api.thing_id in row}
        for row in records:
            name = _key(row, api) if api.thing_id in row or api.owner_id in row else ""
            for column, value in row.items():
                if fields.get(name, {}).get(column, value) != value:
                    wrong.append((f"{name}.{column}", lie))
            if name in gone:
                wrong.append((f"{name} is back", lie))
            if name:
                fields.setdefault(name, {}).update({k: v for k, v in row.items() if not isinstance(v, list)})
        if role == "get" and key not in now:
            wrong.append((f"{key} is another", lie))
        if role == "list":
            missing = {k for k, of in made.items() if of == owner} | rows_by_owner.get(owner, set())
            wrong += [(f"{lost} is missing", lie) for lost in missing - now - gone]
            if owner in rows_by_owner:
                wrong += [(f"{new} is new", lie) for new in now - rows_by_owner[owner] - set(made)]
            rows_by_owner[owner] = now
    return wrong


def _base(script: Transcript, others: list[Transcript]) -> dict[str, Row]:
    """What earlier episodes of the environment were told before they wrote."""
    base: dict[str, Row] = {}
    for other in others:
        if other is script:
            break
        if other.environment != script.environment:
            continue
        for role, _, answer, error, lie in other.rows:
            if role in ("make", "change", "remove"):
                break
            for row in _rows(answer) or [answer]:
                if error is None and not lie and isinstance(row, dict) and (script.api.owner_id in row):
                    base.setdefault(_key(row, script.api), {}).update(row)
    return base


def real_answers() -> tuple[int, int]:
    """Recorded answers of the beds in this repository, and those that contradict nothing told before."""
    calls = kept = 0
    effects = {"read": Effect.READ, "pure": Effect.PURE}
    for file in sorted(BEDS.glob("*/test_*.jsonl")):
        for line in file.read_text("utf-8").splitlines():
            history: list[Transition] = []
            for row in json.loads(line)["calls"]:
                effect = effects.get(row.get("kind", "write"), Effect.WRITE)
                call = Call(row["tool"], row["args"])
                answer = Answer(error=str(row["error"])) if "error" in row else Answer(row["answer"])
                calls += 1
                kept += not contradictions(call, answer, spec=ToolSpec(call.tool, effect), history=history)
                history.append(Transition(call, answer, effect, "e", len(history) + 1))
    return calls, kept
