"""Small APIs of different style, with what was recorded of each: what `probes` asks about.

`Library`: records by key, refusals are answers with "error". `Clinic`: lists of rows with whole numbers for
ids, refusals are raised. `Bank`: every answer is a sentence. `Invoices`: failed writes may have been done.
`Kennel`: many worlds, dogs by name, refusals that only other worlds lift, scales that contradict themselves.
Each method without an underscore is a tool.
"""

import copy
import inspect
import random
from collections.abc import Iterator
from typing import Any

Calls = list[tuple[str, dict[str, Any]]]


class Refused(Exception):
    """What a tool raises."""


class Library:
    """Records by key."""

    def __init__(self) -> None:
        drawn = random.Random(11)
        self._members = {
            f"m-{n:02}": {
                "member_id": f"m-{n:02}", "name": f"Reader{n}", "email": f"r{n}@lib.org",
                "branch": drawn.choice(["north", "south"]), "active": n % 5 != 4, "loans": 0,
            }
            for n in range(24)
        }  # fmt: skip
        self._books = {
            f"bk-{n:03}": {
                "book_id": f"bk-{n:03}", "title": f"Title {n}", "author": f"Author{n % 7}",
                "branch": drawn.choice(["north", "south", "east"]),
                "status": drawn.choice(["in", "in", "lost"]),
            }
            for n in range(30)
        }  # fmt: skip
        self._loans: dict[str, dict[str, Any]] = {}

    def get_member(self, member_id: str) -> Any:
        """Get a member."""
        return self._members.get(member_id, {"error": f"no member {member_id}"})

    def get_book(self, book_id: str) -> Any:
        """Get a book."""
        return self._books.get(book_id, {"error": f"no book {book_id}"})

    def get_loan(self, loan_id: str) -> Any:
        """Get a loan."""
        return self._loans.get(loan_id, {"error": f"no loan {loan_id}"})

    def list_books(self, branch: str = "", author: str = "", page: int = 1, sort: str = "key") -> Any:
        """List books, five on a page."""
        rows = [
            {"book_id": one["book_id"], "status": one["status"]}
            for one in self._books.values()
            if branch in ("", one["branch"]) and author in ("", one["author"])
        ]
        rows = rows[::-1] if sort != "key" else rows
        return {"page": page, "items": rows[5 * page - 5 : 5 * page], "total": len(rows)}

    def find_member(self, name: str, email: str) -> Any:
        """Find the id of a member."""
        hits = [m["member_id"] for m in self._members.values() if (m["name"], m["email"]) == (name, email)]
        return hits[0] if hits else {"error": "no such member"}

    def count_books(self, branch: str) -> Any:
        """Count the books of a branch."""
        return {"branch": branch, "count": sum(one["branch"] == branch for one in self._books.values())}

    def borrow_book(self, member_id: str, book_id: str) -> Any:
        """Lend a book to a member."""
        member, book = self._members.get(member_id), self._books.get(book_id)
        if member is None or book is None:
            return {"error": "no such member or book"}
        if not member["active"]:
            return {"error": f"member {member_id} is not active"}
        if book["status"] != "in":
            return {"error": f"book {book_id} is {book['status']}"}
        book["status"], key = "out", f"ln-{len(self._loans) + 1:03}"
        member["loans"] += 1
        self._loans[key] = {"loan_id": key, "member_id": member_id, "book_id": book_id, "renewed": 0}
        return self._loans[key]

    def renew_loan(self, loan_id: str, member_id: str) -> Any:
        """Renew a loan of one's own, twice at most."""
        loan = self._loans.get(loan_id)
        if loan is None or loan["member_id"] != member_id:
            return {"error": f"loan {loan_id} is not yours"}
        if loan["renewed"] == 2:
            return {"error": "renewed twice already"}
        loan["renewed"] += 1
        return {"loan_id": loan_id, "renewed": loan["renewed"]}

    def update_member(self, member_id: str, email: str, branch: str = "") -> Any:
        """Change a member's address, and branch."""
        if member_id not in self._members:
            return {"error": f"no member {member_id}"}
        self._members[member_id] |= {"email": email} | ({"branch": branch} if branch else {})
        return "updated"

    def delete_book(self, book_id: str) -> Any:
        """Delete a book."""
        return "deleted" if self._books.pop(book_id, None) else {"error": f"no book {book_id}"}

    @staticmethod
    def _recorded() -> Iterator[Calls]:
        for n in range(20):
            key, book, branch = f"m-{n:02}", f"bk-{n:03}", ("north", "south")[n % 2]
            this, look = {"member_id": key}, ("get_book", {"book_id": book})
            new = {**this, "email": f"new{n}@lib.org"}
            yield [("get_member", this), ("update_member", new), ("get_member", this)]
            yield [
                ("get_member", this), look, ("borrow_book", {**this, "book_id": book}), look,
                ("get_loan", {"loan_id": "ln-001"}), ("get_member", this),
            ]  # fmt: skip
            yield (
                [look, ("delete_book", {"book_id": book}), look]
                if n < 8
                else [("list_books", {"branch": branch})]
            )
            yield [("find_member", {"name": f"Reader{n}", "email": f"r{n}@lib.org"}), ("get_member", this)]
            yield [("count_books", {"branch": branch}), ("list_books", {"author": f"Author{n % 7}"})]
            if n % 5 != 4 and Library()._books[book]["status"] == "in":
                renew = ("renew_loan", {"loan_id": "ln-001", **this})
                yield [("get_member", this), look, ("borrow_book", {**this, "book_id": book}), renew]


class Clinic:
    """Lists of rows; refusals are raised."""

    def __init__(self) -> None:
        drawn = random.Random(12)
        self._patients = [
            {
                "id": 100 + n,
                "name": f"Patient {n}",
                "age": drawn.choice([20, 35, 35, 50]),
                "doctor": f"dr{n % 3}",
            }
            for n in range(18)
        ]
        self._visits = [
            {"id": 500 + n, "patient_id": 100 + n, "day": f"2026-03-{1 + n % 6:02}", "status": "booked"}
            for n in range(12)
        ]
        self._clock = 0

    def _row(self, rows: list[dict[str, Any]], key: int) -> dict[str, Any]:
        for row in rows:
            if row["id"] == key:
                return row
        raise Refused(f"nothing with id {key}")

    def get_patient(self, patient_id: int) -> Any:
        """Get a patient."""
        return self._row(self._patients, patient_id)

    def list_patients(self, doctor: str = "", limit: int = 0, offset: int = 0, archived: bool = False) -> Any:
        """List the patients."""
        rows = [] if archived else [one for one in self._patients if doctor in ("", one["doctor"])]
        return rows[offset:][: limit or None]

    def list_visits(self, patient_id: int = 0, day: str = "", status: str = "") -> Any:
        """List visits."""
        return [
            one
            for one in self._visits
            if patient_id in (0, one["patient_id"])
            and day in ("", one["day"])
            and status in ("", one["status"])
        ]

    def list_longest_waits(self, top: int = 3) -> Any:
        """List the oldest patients; equal ages as they were entered."""
        return sorted(self._patients, key=lambda one: -one["age"])[:top]

    def count_visits(self, day: str = "") -> Any:
        """Count the visits."""
        return len([one for one in self._visits if day in ("", one["day"])])

    def get_time(self) -> Any:
        """Get the time."""
        self._clock += 7
        return f"2026-03-01T{9 + self._clock // 60:02}:{self._clock % 60:02}:00"

    def book_visit(self, patient_id: int, day: str) -> Any:
        """Book a visit; one a day."""
        self._row(self._patients, patient_id)
        if any((one["patient_id"], one["day"]) == (patient_id, day) for one in self._visits):
            raise Refused("this patient has a visit on that day")
        self._visits.append(
            {"id": 500 + len(self._visits), "patient_id": patient_id, "day": day, "status": "booked"}
        )
        return self._visits[-1]

    def cancel_visit(self, visit_id: int, code: str) -> Any:
        """Cancel a visit; the code is the patient's."""
        visit = self._row(self._visits, visit_id)
        if code != f"C{visit['patient_id']}":
            raise Refused("wrong code")
        if visit["status"] != "booked":
            raise Refused(f"visit {visit_id} is {visit['status']}")
        visit["status"] = "cancelled"
        return visit

    def remove_patient(self, patient_id: int, force: bool = False) -> Any:
        """Remove a patient without visits."""
        patient = self._row(self._patients, patient_id)
        if any(one["patient_id"] == patient_id for one in self._visits) and not force:
            raise Refused("this patient has visits")
        self._patients.remove(patient)
        return True

    @staticmethod
    def _recorded() -> Iterator[Calls]:
        for n in range(18):
            key, doctor, day = 100 + n, f"dr{n % 3}", f"2026-03-{1 + n % 6:02}"
            this = ("get_patient", {"patient_id": key})
            yield [this, ("list_patients", {"doctor": doctor}), ("list_longest_waits", {}), ("get_time", {})]
            yield [("list_visits", {}), ("list_visits", {"day": day}), ("list_visits", {"status": "booked"})]
            yield [
                this, ("book_visit", {"patient_id": key, "day": f"2026-04-{n + 1:02}"}),
                ("list_visits", {"patient_id": key}),
            ]  # fmt: skip
            if n < 9:
                one = {"patient_id": key}
                cancel = ("cancel_visit", {"visit_id": 500 + n, "code": f"C{key}"})
                yield [("list_visits", one), cancel, ("list_visits", one), ("get_patient", one)]
            if n >= 12:
                yield [this, ("remove_patient", {"patient_id": key}), this]
            yield [("list_patients", {}), ("count_visits", {"day": day}), ("count_visits", {})]


class Bank:
    """Every answer is a sentence."""

    def __init__(self) -> None:
        self._owners = {f"acc-{n:02}": f"Owner{n % 9}" for n in range(20)}
        self._money = {key: 100 + 10 * n for n, key in enumerate(self._owners)}
        self._frozen = {"acc-07", "acc-11"}
        self._moves: dict[str, list[str]] = {key: [f"opened {n}" for n in range(3)] for key in self._owners}

    def _known(self, account: str) -> str:
        if account not in self._money:
            raise Refused(f"Account {account} is unknown.")
        return account

    def get_balance(self, account: str) -> str:
        """Get the balance of an account."""
        state = "frozen" if self._known(account) in self._frozen else "open"
        return f"Account {account} is {state} and holds {self._money[account]} EUR."

    def get_owner(self, account: str) -> str:
        """Get the owner of an account."""
        return self._owners[self._known(account)]

    def get_statement(self, account: str, page: int = 1) -> str:
        """Get a page of an account's statement."""
        lines = self._moves[self._known(account)][2 * page - 2 : 2 * page]
        return "; ".join(lines) or "No entries."

    def get_rate(self, currency: str) -> str:
        """Get an exchange rate."""
        rates = {"USD": 1.08, "CHF": 0.95, "GBP": 0.86}
        if currency not in rates:
            raise Refused(f"No rate for {currency}.")
        return f"1 EUR is {rates[currency]} {currency}."

    def verify_login(self, user: str, secret_word: str) -> str:
        """Check a user's secret word."""
        return f"Welcome {user}." if secret_word == f"word-{user[5:]}" else "Wrong user or word."

    def transfer_money(self, source: str, target: str, amount: int) -> str:
        """Transfer money."""
        if self._known(source) in self._frozen:
            raise Refused(f"Account {source} is frozen.")
        if amount > 150:
            raise Refused("Transfers are limited to 150 EUR.")
        if amount > self._money[source]:
            raise Refused("Insufficient funds.")
        self._money[source] -= amount
        self._money[self._known(target)] += amount
        self._moves[source].append(f"out {amount}")
        return f"Transferred {amount} EUR from {source} to {target}."

    def freeze_account(self, account: str, approver: str) -> str:
        """Freeze an account; some may approve it."""
        if approver not in ("mia", "leo"):
            raise Refused(f"{approver} may not approve.")
        self._frozen.add(self._known(account))
        return f"Account {account} is frozen now."

    def close_account(self, account: str, user: str) -> str:
        """Close an account of one's own."""
        if self._owners[self._known(account)] != user:
            raise Refused("Not your account.")
        del self._money[account]
        return f"Account {account} is closed."

    @staticmethod
    def _recorded() -> Iterator[Calls]:
        for n in range(16):
            key, other, owner = f"acc-{n:02}", f"acc-{(n + 3) % 16:02}", f"Owner{n % 9}"
            look = ("get_balance", {"account": key})
            move = {"source": key, "target": other, "amount": 5 + 5 * (n % 4)}
            yield [look, ("get_balance", {"account": other}), ("transfer_money", move), look]
            yield [("get_owner", {"account": key}), ("get_statement", {"account": key})]
            yield [("verify_login", {"user": owner, "secret_word": f"word-{n % 9}"})]
            if key not in ("acc-07", "acc-11"):
                yield [look, ("freeze_account", {"account": key, "approver": ("mia", "leo")[n % 2]}), look]
            yield [("get_owner", {"account": key}), ("close_account", {"account": key, "user": owner}), look]
            yield [("get_rate", {"currency": ("USD", "CHF")[n % 2]})]


class Invoices:
    """Payments, some made although the call fails."""

    def __init__(self) -> None:
        self._payments = [self._payment(n, f"inv-{n:03}") for n in range(12)]
        self._states = {f"inv-{n:03}": "open" for n in range(24)}

    def _payment(self, number: int, invoice_id: str, state: str = "settled") -> dict[str, Any]:
        return {"payment_id": f"pay-{number:03}", "invoice_id": invoice_id, "state": state}

    def get_invoice(self, invoice_id: str) -> Any:
        """Get an invoice."""
        return {"invoice_id": invoice_id, "state": self._states[invoice_id]}

    def get_payment(self, payment_id: str) -> Any:
        """Get a payment."""
        hits = [one for one in self._payments if one["payment_id"] == payment_id]
        return hits[0] if hits else {"error": f"no payment {payment_id}"}

    def list_payments(self, invoice_id: str) -> Any:
        """List the payments of an invoice."""
        return [one for one in self._payments if one["invoice_id"] == invoice_id]

    def count_payments(self) -> Any:
        """Count all payments."""
        return len(self._payments)

    def pay_invoice(self, invoice_id: str, card: str = "good") -> Any:
        """Pay an invoice by card."""
        made = self._payment(len(self._payments), invoice_id, "declined" if card == "void" else "settled")
        self._payments.append(made)
        if card != "good":
            raise Refused("card declined" if card == "void" else "502 Bad Gateway")
        self._states[invoice_id] = "paid"
        return made

    @staticmethod
    def _recorded() -> Iterator[Calls]:
        for n in range(18):
            this = {"invoice_id": f"inv-{n:03}"}
            look, invoice = ("list_payments", this), ("get_invoice", this)
            yield [invoice, look, ("count_payments", {})]
            yield [("get_payment", {"payment_id": f"pay-{n:03}"})]
            yield [
                invoice,
                ("pay_invoice", this),
                invoice,
                ("get_invoice", {"invoice_id": f"inv-{n + 1:03}"}),
            ]
            yield [look, invoice, look]
            if n % 3 == 0:
                yield [look, ("pay_invoice", {**this, "card": "void"}), look]


class Kennel:
    """Dogs by name; a key and a chip reader that work in no recorded world."""

    WORLDS = 8

    def __init__(self, world: int = 0, episode: int = -1) -> None:
        self._world, self._episode = world, episode
        self._dogs = [f"Rex{'abcdefghij'[world]}{letter}" for letter in "klmnopqr"]

    def get_dog(self, dog: str) -> Any:
        """Get a dog."""
        return {"dog": dog, "cage": f"{self._world}-{dog[-1]}"} if dog in self._dogs else self._none(dog)

    def _none(self, dog: str) -> Any:
        return {"error": f"no dog called {dog}"}

    def get_weight(self, dog: str) -> Any:
        """Get a dog's weight."""
        return {"dog": dog, "weight": 32 if self._episode < 0 else 30 + (self._episode % 4 == 0)}

    def read_chip(self, dog: str) -> Any:
        """Read a dog's chip."""
        return {"error": "not permitted"} if self._world < self.WORLDS else f"chip of {dog}"

    def open_gate(self, key: int) -> Any:
        """Open the gate."""
        return {"error": "wrong key"} if self._world < self.WORLDS else "open"

    def walk_dog(self, dog: str, minutes: int) -> Any:
        """Walk a dog."""
        return "walked" if dog in self._dogs else self._none(dog)

    @staticmethod
    def _recorded(world: int) -> Iterator[Calls]:
        for place, dog in enumerate(Kennel(world)._dogs[:6]):
            look = [("get_dog", {"dog": dog})]
            yield [*(look if place % 2 else []), ("walk_dog", {"dog": dog, "minutes": 10 + place})]
            yield [("get_weight", {"dog": Kennel(world)._dogs[0]}), ("read_chip", {"dog": dog})]
            yield [("open_gate", {"key": 700 + 10 * world + place})]


APIS: dict[str, Any] = {
    "library": Library, "clinic": Clinic, "bank": Bank, "invoices": Invoices, "kennel": Kennel,
}  # fmt: skip


def outcome(api: Any, tool: str, args: dict[str, Any]) -> tuple[str, Any]:
    """What the real tool says: ("ok", value) or ("error", text)."""
    try:
        return "ok", copy.deepcopy(getattr(api, tool)(**args))
    except Refused as refused:
        return "error", str(refused)


def tools(name: str) -> list[dict[str, Any]]:
    """The tools of an API, as its authors would list them."""
    kinds = {str: "string", int: "integer", bool: "boolean"}
    found = []
    for tool, method in inspect.getmembers(APIS[name], inspect.isfunction):
        if tool.startswith("_"):
            continue
        args: dict[str, Any] = {}
        for arg in list(inspect.signature(method).parameters.values())[1:]:
            args[arg.name] = {"type": kinds[arg.annotation]}
            if arg.default is not arg.empty:
                args[arg.name]["default"] = arg.default
        required = [name for name, one in args.items() if "default" not in one]
        schema = {"type": "object", "properties": args, "required": required}
        found.append({"name": tool, "description": method.__doc__, "args": schema})
    return found


def recorded(name: str) -> list[dict[str, Any]]:
    """The recorded episodes of an API, each in its first state."""
    episodes = []
    made = APIS[name]
    worlds = [(world,) for world in range(made.WORLDS)] if hasattr(made, "WORLDS") else [()]
    told = [(world, calls) for world in worlds for calls in made._recorded(*world)]
    for number, (world, calls) in enumerate(told):
        api, kept = made(*world, *[number] * len(world)), []
        for tool, args in calls:
            kind, value = outcome(api, tool, args)
            kept.append({"tool": tool, "args": args, "answer" if kind == "ok" else "error": value})
        episodes.append(
            {
                "id": f"{name}-{number}",
                "world": f"{name}-{sum(world)}",
                "task": f"{name}-{number}",
                "calls": kept,
            }
        )
    return episodes
