"""Desks recorded and desks to be dreamed: the data of the benches `truth`, `calibration` and `mining`.

Worlds are split in halves. In each, colleagues work the world's own task (right ways and wrong ones), and
random walks call tools with ids of that world, foreign ids, repeated calls and odd amounts. A crawl is all
reads that the ids found so far allow; it writes nothing.
"""

import random
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from dreamgym_kit.recipes.desk.cases import (
    CITIES,
    CUSTOMER_IDS,
    NAMES,
    ORDER_IDS,
    PAYMENT_IDS,
    TRAIN_SEEDS,
    make_case,
)
from dreamgym_kit.recipes.desk.database import Desk, DeskError, scratch_desk
from dreamgym_kit.recipes.desk.policy import Habits, ScriptCall, ScriptReply, run_script
from dreamgym_kit.serialization import JsonValue
from dreamgym_kit.types import Answer, Call, Effect, Environment, Transition, history_digest

READS = {
    "find_customer": "name",
    "list_orders": "customer_id",
    "get_order": "order_id",
    "list_payments": "order_id",
    "track_parcel": "order_id",
}
WRITES = {
    "update_address": ("customer_id", "city"),
    "cancel_order": ("order_id",),
    "reship_order": ("order_id",),
    "create_ticket": ("customer_id", "topic"),
    "escalate": ("target_id", "reason"),
    "refund_payment": ("payment_id", "amount"),
    "send_mail": ("customer_id", "body"),
    "delete_customer": ("customer_id",),
}
COLLEAGUES = (
    Habits("senior", looks_first=False),
    Habits("senior"),
    Habits("junior"),
    Habits("slip", seed="1"),
)
_WORDS = {
    "city": CITIES,
    "topic": ("return", "repair", "refund", "complaint"),
    "reason": ("address", "missing", "complaint"),
    "body": ("We have sent your order again.", "Your refund is on its way."),
    "amount": ("10.00", "21.80", "24.60", "38.20", "88.00", "0.00", "900.00"),
}
_FOREIGN = {"customer_id": CUSTOMER_IDS, "order_id": ORDER_IDS, "payment_id": PAYMENT_IDS, "name": NAMES}


@dataclass(frozen=True)
class Worked:
    """One recorded episode."""

    id: str
    seed: int
    transitions: tuple[Transition, ...]


class Recorder:
    """Works one desk in memory and writes down what it said."""

    def __init__(self, desk: Desk, seed: int, episode: str) -> None:
        self._desk, self._world, self._episode = desk, Environment("desk", seed), episode
        self._writes: list[str] = []
        self.rows: list[Transition] = []

    def do(self, tool: str, args: Mapping[str, JsonValue]) -> ScriptReply:
        """Call a tool."""
        call = Call(tool, dict(args))
        try:
            value, error = self._desk.call(tool, args), None
        except DeskError as refused:
            value, error = None, str(refused)
        answer = Answer(content=value, error=error, error_type="ToolException" if error else None)
        effect = Effect.WRITE if tool in WRITES else Effect.READ
        after = history_digest(self._writes)
        place = len(self.rows) + 1
        self.rows.append(Transition(call, answer, effect, self._episode, place, self._world, after=after))
        if effect.changes_environment:
            self._writes.append(call.key)
        return ScriptReply(value, error)


def colleague(seed: int, habits: Habits, name: str) -> Worked:
    """The world's own task, worked by somebody with habits."""
    case = make_case(seed)
    with scratch_desk(case.rows) as desk:
        recorder = Recorder(desk, seed, name)

        def answer(use: ScriptCall) -> ScriptReply:
            known = use.tool in READS or use.tool in WRITES
            return (
                recorder.do(use.tool, use.args) if known else ScriptReply({"share": "full", "quote": "10.00"})
            )

        run_script(case.text, habits, answer)
        return Worked(name, seed, tuple(recorder.rows))


def walk(seed: int, number: int, calls: int = 14) -> Worked:
    """Random calls: mostly ids of this world, some foreign ones, some repeated; reads after writes."""
    case, drawn = make_case(seed), random.Random(f"{seed} {number}")
    ids = {
        "customer_id": [row[0] for row in case.rows["customers"]],
        "name": [row[1] for row in case.rows["customers"]],
        "order_id": [row[0] for row in case.rows["orders"]],
        "payment_id": [row[0] for row in case.rows["payments"]],
    }
    recent: list[str] = []
    related = {
        row[0]: [row[1]] for row in (*case.rows["payments"], *case.rows["orders"], *case.rows["customers"])
    }
    ids["target_id"] = [*ids["order_id"], *ids["customer_id"]]
    with scratch_desk(case.rows) as desk:
        recorder = Recorder(desk, seed, f"walk-{seed}-{number}")

        def pick(argument: str) -> str:
            if argument in ids:
                if recent and drawn.random() < 0.65:  # people stay with one thing for a while
                    near = [one for one in recent[-4:] if one in ids[argument]]
                    if near:
                        return near[-1]
                foreign = _FOREIGN.get(argument, ORDER_IDS)
                chosen = drawn.choice(ids[argument]) if drawn.random() < 0.9 else drawn.choice(foreign)
                recent.extend([chosen, *related.get(chosen, ())])
                return chosen
            if argument == "amount" and drawn.random() < 0.6:
                return drawn.choice([row[2] for row in case.rows["payments"]])
            return drawn.choice(_WORDS[argument])

        while len(recorder.rows) < calls:
            if recorder.rows and drawn.random() < 0.1:
                before = drawn.choice(recorder.rows)
                recorder.do(before.call.tool, before.call.args)
            elif drawn.random() < 0.5:
                tool = drawn.choice(tuple(READS))
                recorder.do(tool, {READS[tool]: pick(READS[tool])})
            else:
                tool = drawn.choice(tuple(WRITES))
                recorder.do(tool, {name: pick(name) for name in WRITES[tool]})
        return Worked(f"walk-{seed}-{number}", seed, tuple(recorder.rows))


def crawl(seed: int) -> Worked:
    """Every read with every id that is found, starting from the names."""
    case = make_case(seed)
    with scratch_desk(case.rows) as desk:
        recorder = Recorder(desk, seed, f"crawl-{seed}")
        for row in case.rows["customers"]:
            recorder.do("find_customer", {"name": row[1]})
            orders = recorder.do("list_orders", {"customer_id": row[0]}).value or []
            for order in orders:
                for read in ("get_order", "list_payments", "track_parcel"):
                    recorder.do(read, {"order_id": order["order_id"]})
        return Worked(f"crawl-{seed}", seed, tuple(recorder.rows))


def recorded_half(seed: int, worlds: int, walks: int = 4) -> list[Worked]:
    """Everything that is recorded of the first half of the worlds."""
    done: list[Worked] = []
    for number in range(worlds):
        world = TRAIN_SEEDS.start + 1_000 * seed + number
        done += [colleague(world, habits, f"c{place}-{world}") for place, habits in enumerate(COLLEAGUES)]
        done += [walk(world, place) for place in range(walks)]
        done.append(crawl(world))
    return done


def held_out_half(seed: int, worlds: int, walks: int = 2) -> list[Worked]:
    """What is dreamed: other worlds, other tasks."""
    done: list[Worked] = []
    for number in range(worlds):
        world = TRAIN_SEEDS.start + 1_000 * seed + 500 + number
        done += [colleague(world, habits, f"c{place}-{world}") for place, habits in enumerate(COLLEAGUES)]
        done += [walk(world, 100 + place) for place in range(walks)]
    return done


def rows(worked: Sequence[Worked]) -> list[Transition]:
    """All transitions, episode by episode."""
    return [entry for one in worked for entry in one.transitions]
