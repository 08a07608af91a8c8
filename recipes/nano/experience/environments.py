"""What is recorded of the desk's worlds, and how well a model does in worlds that nothing was learned from.

Recorded are colleagues at work, probes, and a read crawl. A probe stays with one customer and writes at
random, each write followed by a look at what it may have changed: that gives pairs of before and after,
refusals, and what is rare in good work. All of it runs for real on desks in memory.

To measure, each recorded call is asked in the state that the true answers before it led to: once with a read
crawl of its world known beforehand, once without any recording of it. `answers_of` says who answers when, at
one threshold, beside programs.
"""

import asyncio
import random
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence

from dreamgym_kit.dream.chain import SURE
from dreamgym_kit.dream.learned.experience import LearnedDecision, LearnedExperience, Tried, tried
from dreamgym_kit.dream.programs.experience import CRAWL, Programs, seen_calls
from dreamgym_kit.dream.recorded_episodes import RecordedEpisode, step_of
from dreamgym_kit.recipes.desk.cases import (
    CITIES,
    CUSTOMER_IDS,
    NAMES,
    ORDER_IDS,
    PAYMENT_IDS,
    DeskCase,
    make_case,
    split_of,
)
from dreamgym_kit.recipes.desk.database import OPERATIONS, Desk, scratch_desk
from dreamgym_kit.recipes.desk.policy import Habits, ScriptCall, ScriptReply, answer, run_script
from dreamgym_kit.serialization import JsonValue
from dreamgym_kit.types import Answer, Call, Effect, Environment, Transition, history_digest

READS = frozenset({"find_customer", "list_orders", "get_order", "list_payments", "track_parcel"})
DESTRUCTIVE = frozenset({"refund_payment", "send_mail", "delete_customer"})
COLLEAGUES = (Habits("senior"), Habits("junior"), Habits("slip", seed="1"))
PROBES = 4  # in a world

_FOREIGN = 0.12  # share of writes to what this world does not have
_AGAIN = 0.2  # share of writes that repeat an earlier one
_TOPICS = ("return", "repair", "refund", "identity", "complaint", "delete")
_REASONS = ("address", "missing", "complaint")
_BODIES = ("We have sent your order again.", "Your broken item was refunded.")
_ODD_AMOUNTS = ("0.00", "10.00", "24.60", "900.00", "-5.00", "all of it")


class Notes:
    """Works one desk in memory and writes down what it said, as the gate would."""

    def __init__(self, desk: Desk, seed: int, episode: str) -> None:
        self._desk, self._world, self._episode = desk, Environment("desk", seed), episode
        self._split = split_of(seed)
        self._writes: list[str] = []
        self.rows: list[Transition] = []

    def do(self, tool: str, args: Mapping[str, str]) -> ScriptReply:
        """Make one call, for real on this desk; what is only computed is not recorded."""
        call, reply = Call(tool, dict(args)), answer(self._desk.call, ScriptCall(tool, args))
        if tool not in OPERATIONS:
            return reply
        effect = Effect.READ if tool in READS else Effect.DESTRUCTIVE if tool in DESTRUCTIVE else Effect.WRITE
        self.rows.append(
            Transition(
                call,
                Answer(
                    content=reply.value,
                    error=reply.error,
                    error_type="ToolException" if reply.error else None,
                ),
                effect,
                self._episode,
                len(self.rows) + 1,
                self._world,
                after=history_digest(self._writes),
                split=self._split,
            )
        )
        if effect.changes_environment:
            self._writes.append(call.key)
        return reply


def recorded(environments: Sequence[int]) -> Iterator[tuple[Transition, ...]]:
    """Everything that is recorded of these worlds, episode by episode."""
    for environment in environments:
        yield from worked(environment)
        yield crawl(environment)


def worked(environment: int) -> Iterator[tuple[Transition, ...]]:
    """What colleagues and probes do in a world."""
    for place, habits in enumerate(COLLEAGUES):
        rows = colleague(environment, habits, f"colleague-{place}-{environment}")
        if rows:
            yield rows
    for number in range(PROBES):
        yield probe(environment, number)


def colleague(seed: int, habits: Habits, episode: str) -> tuple[Transition, ...]:
    """The world's own request, worked by somebody with habits."""
    case = make_case(seed)
    with scratch_desk(case.rows) as desk:
        notes = Notes(desk, seed, episode)
        run_script(case.text, habits, lambda use: notes.do(use.tool, use.args))
        return tuple(notes.rows)


def crawl(seed: int) -> tuple[Transition, ...]:
    """Every read with every id that is found, starting from the names; it writes nothing."""
    case = make_case(seed)
    with scratch_desk(case.rows) as desk:
        notes = Notes(desk, seed, f"{CRAWL}{seed}")
        for customer in case.rows["customers"]:
            notes.do("find_customer", {"name": customer[1]})
            for order in notes.do("list_orders", {"customer_id": customer[0]}).value or []:
                for read in ("get_order", "list_payments", "track_parcel"):
                    notes.do(read, {"order_id": order["order_id"]})
        return tuple(notes.rows)


def probe(seed: int, number: int) -> tuple[Transition, ...]:
    """Random writes to the things of one customer, each followed by a look."""
    case = make_case(seed)
    with scratch_desk(case.rows) as desk:
        prober = _Prober(case, Notes(desk, seed, f"probe-{number}-{seed}"), number)
        prober.work()
        return tuple(prober.notes.rows)


class _Prober:
    """Somebody who tries things out on one customer."""

    def __init__(self, case: DeskCase, notes: Notes, number: int) -> None:
        self.notes = notes
        self._case = case
        self._chance = random.Random(f"probe {case.seed} {number}")  # noqa: S311  reproducible, not secret
        self._customer, self._name = self._chance.choice(case.rows["customers"])[:2]
        self._orders = [row[0] for row in case.rows["orders"] if row[1] == self._customer]
        self._looks = self._chance.random() < 0.8  # at everything before the first write

    def work(self) -> None:
        """Look, then write and look, five times."""
        if self._looks:
            self._look_around()
        done: list[tuple[str, dict[str, str]]] = []
        for _ in range(5):
            if done and self._chance.random() < _AGAIN:
                tool, args = self._chance.choice(done)
            else:
                tool, args = self._drawn()
            done.append((tool, args))
            self.notes.do(tool, args)
            self._look_at(args)

    def _look_around(self) -> None:
        self.notes.do("find_customer", {"name": self._name})
        self.notes.do("list_orders", {"customer_id": self._customer})
        for order in self._orders:
            self.notes.do("get_order", {"order_id": order})
            self.notes.do("list_payments", {"order_id": order})

    def _drawn(self) -> tuple[str, dict[str, str]]:
        pick, foreign = self._chance, self._chance.random() < _FOREIGN
        order = pick.choice(ORDER_IDS if foreign else self._orders)
        customer = pick.choice(CUSTOMER_IDS) if foreign else self._customer
        match pick.randrange(9):
            case 0 | 1:
                return "cancel_order", {"order_id": order}
            case 2 | 3 | 4:
                return "refund_payment", self._refund(order, foreign=foreign)
            case 5:
                return "update_address", {"customer_id": customer, "city": pick.choice(CITIES)}
            case 6:
                return "reship_order", {"order_id": order}
            case number:
                more = ("send_mail", "delete_customer") if number == 7 else ()
                tool = pick.choice(("create_ticket", *more, "escalate"))
                return tool, self._about(tool, customer, order)

    def _refund(self, order: str, *, foreign: bool) -> dict[str, str]:
        mine = [row for row in self._case.rows["payments"] if row[1] == order]
        if foreign or not mine:
            return {"payment_id": self._chance.choice(PAYMENT_IDS), "amount": "21.80"}
        payment = self._chance.choice(mine)
        amount = payment[2] if self._chance.random() < 0.6 else self._chance.choice(_ODD_AMOUNTS)
        return {"payment_id": payment[0], "amount": amount}

    def _about(self, tool: str, customer: str, order: str) -> dict[str, str]:
        pick = self._chance
        if tool == "create_ticket":
            return {"customer_id": customer, "topic": pick.choice(_TOPICS)}
        if tool == "send_mail":
            return {"customer_id": customer, "body": pick.choice(_BODIES)}
        if tool == "escalate":
            return {"target_id": pick.choice((customer, order)), "reason": pick.choice(_REASONS)}
        return {"customer_id": customer}

    def _look_at(self, args: Mapping[str, str]) -> None:
        """At what a write may have changed, and now and then at something else."""
        payment = args.get("payment_id")
        order = args.get("order_id") or next(
            (row[1] for row in self._case.rows["payments"] if row[0] == payment), None
        )
        if payment is not None and order is not None:
            self.notes.do("list_payments", {"order_id": order})
        elif order is not None:
            read = self._chance.choice(("get_order", "get_order", "track_parcel", "list_payments"))
            self.notes.do(read, {"order_id": order})
        else:
            self.notes.do("find_customer", {"name": self._name})
            self.notes.do("list_orders", {"customer_id": args.get("customer_id", self._customer)})
        if self._chance.random() < 0.15:
            self.notes.do("find_customer", {"name": self._chance.choice(NAMES)})


THRESHOLD = 0.5
_BINS = 10  # of the calibration error

Support = Callable[[str, LearnedDecision], float]


def answers_of(call: Tried, support: Support) -> Mapping[str, tuple[bool, bool]]:
    """Return, by answer source, whether it answers a call and whether the answer is exact."""
    mined = call.mined
    rules = (mined.confidence if mined is not None else 0.0, call.mined_exact)
    model = (support(call.step.tool, call.made) if call.made is not None else 0.0, call.made_exact)
    # rows and views, and no outcome of recorded calls
    from_rows = mined is not None and "|" not in mined.kind
    uncertain = rules[0] < THRESHOLD or (call.step.writes and rules[0] < SURE)
    answers = {
        "composed": rules,
        "nano": rules if from_rows and not call.step.writes else model,
        "layered": max(rules, model, key=lambda pair: pair[0]) if uncertain else rules,
    }
    return {arm: (sure >= THRESHOLD, exact) for arm, (sure, exact) in answers.items()}


def ask_held_out(
    model: LearnedExperience, programs: Programs, environments: Sequence[int], *, unseen: bool
) -> list[Tried]:
    """Ask every call that colleagues and probes make in these worlds.

    `programs` are mined of other worlds, and know these by a crawl; `unseen`: as if by nothing.
    """
    episodes = (recording(rows) for environment in environments for rows in worked(environment))
    calls = [seen_calls(episode, programs.model.parameters) for episode in episodes]
    return asyncio.run(tried(model, programs, calls, unseen=unseen))


def recording(rows: Sequence[Transition]) -> RecordedEpisode:
    """An episode as programs see it, of whatever split: to be measured, never to be learned from."""
    return RecordedEpisode(
        rows[0].episode, f"{rows[0].tenant}/{rows[0].environment}", tuple(map(step_of, rows))
    )


def figures_of(tries: Iterable[Tried], support: Support) -> dict[str, JsonValue]:
    """What is kept beside the weights, by arm and by kind ("all", "reads", "writes", "refused", each tool).

    Calls, the share of them that was answered exactly, and that share of the answered ones (1 without any).
    """
    by_arm: dict[str, dict[str, list[tuple[bool, bool]]]] = defaultdict(lambda: defaultdict(list))
    for trial in tries:
        kinds = ["all", trial.step.tool, "writes" if trial.step.writes else "reads"]
        kinds += ["refused"] if not trial.step.ok and trial.step.writes else []
        for arm, pair in answers_of(trial, support).items():
            for kind in kinds:
                by_arm[arm][kind].append(pair)
    return {arm: {kind: _shares(pairs) for kind, pairs in kinds.items()} for arm, kinds in by_arm.items()}


def _shares(pairs: Sequence[tuple[bool, bool]]) -> list[JsonValue]:
    answered = sum(given for given, _ in pairs)
    exact = sum(given and right for given, right in pairs)
    return [len(pairs), round(exact / len(pairs), 4), round(exact / answered, 4) if answered else 1.0]


def expected_error(tries: Iterable[Tried], support: Support) -> float:
    """Expected calibration error of what the model decided: mean distance of support and exactness."""
    points = [
        (support(trial.step.tool, trial.made), trial.made_exact) for trial in tries if trial.made is not None
    ]
    total = 0.0
    for number in range(_BINS):
        inside = [point for point in points if number == min(int(point[0] * _BINS), _BINS - 1)]
        total += abs(sum(pair[0] for pair in inside) - sum(pair[1] for pair in inside))
    return total / len(points) if points else 0.0
