"""The desk's system of record: one SQLite database, and what can be asked of it and done to it.

Decides what the real tools do. Like many real systems it trusts its callers: it cancels a shipped order
and refunds a payment a second time when it is told to. The payment gateway is slow for some payments:
their first refund takes effect, but the caller only sees a time-out. Money is text with two decimals
("19.90"), counted in cents.
"""

import inspect
import re
import sqlite3
from collections.abc import Iterator, Mapping, Sequence
from contextlib import closing, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from dreamgym_kit.serialization import JsonValue

_FULL_UNTIL = 14  # days since the order
_HALF_UNTIL = 30

_MONEY = re.compile(r"[0-9]{1,7}\.[0-9]{2}")
_DAYS = re.compile(r"[0-9]{1,5}")


def cents(amount: str) -> int:
    """Read "19.90" as 1990.

    Raises:
        ValueError: it is no amount of that form.
    """
    if not _MONEY.fullmatch(amount):
        raise ValueError(f"'{amount}' is not an amount such as 19.90")
    return int(amount.replace(".", ""))


def money(amount_cents: int) -> str:
    """Write 1990 as "19.90"."""
    return f"{amount_cents // 100}.{amount_cents % 100:02d}"


def refund_share(amount: str, days: str) -> dict[str, str]:
    """Say how much of a broken item's price goes back: all of it, half, or nothing, by its age.

    Raises:
        ValueError: `amount` is no amount, or `days` no whole number.
    """
    if not _DAYS.fullmatch(days):
        raise ValueError(f"'{days}' is not a number of days")
    age, whole = int(days), cents(amount)
    if age <= _FULL_UNTIL:
        return {"share": "full", "quote": money(whole)}
    if age <= _HALF_UNTIL:
        return {"share": "half", "quote": money(whole // 2)}
    return {"share": "none", "quote": money(0)}


Rows = Mapping[str, Sequence[tuple[str, ...]]]
"""What a desk is set up with: for each of the tables in `COLUMNS`, its rows."""

COLUMNS = {
    "customers": ("id", "name", "city", "tier"),
    "orders": ("id", "customer_id", "item", "status", "days", "total"),
    "payments": ("id", "order_id", "amount", "status", "gateway"),
    "parcels": ("order_id", "carrier", "state"),
}
_SCHEMA = """
create table customers (id text primary key, name text, city text, tier text);
create table orders (id text primary key, customer_id text, item text, status text, days text, total text);
create table payments (
  id text primary key, order_id text, amount text, status text, gateway text,
  refunded_cents integer not null default 0, refunds integer not null default 0);
create table parcels (order_id text primary key, carrier text, state text);
create table reships (number integer primary key, order_id text);
create table tickets (number integer primary key, customer_id text, topic text);
create table escalations (number integer primary key, target_id text, reason text);
create table mails (number integer primary key, customer_id text, body text);
"""


class DeskError(Exception):
    """The desk's own word on why it did not do as asked."""


class GatewayTimeout(DeskError):
    """The payment gateway did not answer; whether it acted, nobody knows yet."""

    def __init__(self) -> None:
        super().__init__("TimeoutError: no answer from the payment gateway after 30 s")


@dataclass(frozen=True, slots=True)
class Refund:
    """Where a payment stands."""

    amount_cents: int
    refunded_cents: int
    times: int


@dataclass(frozen=True, slots=True)
class Books:
    """The state of a desk as far as a judge looks at it."""

    cities: Mapping[str, str]  # by customer
    orders: Mapping[str, str]  # status by order
    payments: Mapping[str, Refund]
    reships: Mapping[str, int]  # parcels sent anew, by order
    escalated: frozenset[str]
    ticketed: frozenset[str] = field(default_factory=frozenset)  # customers
    mailed: frozenset[str] = field(default_factory=frozenset)  # customers


class Desk:
    """One tenant's desk over an open connection; a method is what one tool does."""

    def __init__(self, connection: sqlite3.Connection) -> None:
        self._db = connection

    def call(self, tool: str, args: Mapping[str, JsonValue]) -> JsonValue:
        """Do what the tool of that name does.

        Raises:
            DeskError: the desk refuses, or there is no such operation or argument.
        """
        names = OPERATIONS.get(tool)
        if names is None:
            raise DeskError(f"the desk has no operation {tool}")
        missing = [name for name in names if name not in args]
        if missing:
            raise DeskError(f"{tool} needs {missing[0]}")
        done: JsonValue = getattr(self, tool)(*(str(args[name]) for name in names))
        return done

    def find_customer(self, name: str) -> dict[str, str]:
        """Find a customer by first name."""
        query = "select id as customer_id, name, city, tier from customers where name = ?"
        return self._first(query, name, missing=f"no customer is called {name}")

    def list_orders(self, customer_id: str) -> list[dict[str, str]]:
        """List a customer's orders, oldest entry first."""
        self._customer(customer_id)
        query = "select id as order_id, item, status from orders where customer_id = ? order by rowid"
        return self._all(query, customer_id)

    def get_order(self, order_id: str) -> dict[str, str]:
        """Look an order up."""
        query = "select id as order_id, customer_id, item, status, days, total from orders where id = ?"
        return self._first(query, order_id, missing=f"no order {order_id}")

    def list_payments(self, order_id: str) -> list[dict[str, str]]:
        """List the payments of an order, oldest first."""
        self.get_order(order_id)
        query = (
            "select id as payment_id, amount, status, refunded_cents as refunded from payments "
            "where order_id = ? order by rowid"
        )
        return [{**row, "refunded": money(row["refunded"])} for row in self._all(query, order_id)]

    def track_parcel(self, order_id: str) -> dict[str, str]:
        """Ask the carrier where an order's parcel is."""
        self.get_order(order_id)
        query = "select order_id, carrier, state from parcels where order_id = ?"
        return self._first(query, order_id, missing=f"no parcel was sent for {order_id} yet")

    def update_address(self, customer_id: str, city: str) -> dict[str, str]:
        """Move a customer to another city."""
        self._customer(customer_id)
        self._change("update customers set city = ? where id = ?", city, customer_id)
        return {"customer_id": customer_id, "city": city}

    def cancel_order(self, order_id: str) -> dict[str, str]:
        """Cancel an order, whatever its status."""
        if self.get_order(order_id)["status"] == "cancelled":
            raise DeskError(f"{order_id} is already cancelled")
        self._change("update orders set status = 'cancelled' where id = ?", order_id)
        return {"order_id": order_id, "status": "cancelled"}

    def reship_order(self, order_id: str) -> dict[str, str]:
        """Send an order's parcel anew."""
        self.get_order(order_id)
        self._change("insert into reships (order_id) values (?)", order_id)
        return {"order_id": order_id, "reshipped": "yes"}

    def create_ticket(self, customer_id: str, topic: str) -> dict[str, str]:
        """Open a ticket that a colleague will work on."""
        self._customer(customer_id)
        number = self._change("insert into tickets (customer_id, topic) values (?, ?)", customer_id, topic)
        return {"ticket_id": f"T{number}", "customer_id": customer_id, "topic": topic}

    def escalate(self, target_id: str, reason: str) -> dict[str, str]:
        """Hand an order or a customer to a person, now."""
        query = "select id from orders where id = ? union select id from customers where id = ?"
        self._first(query, target_id, target_id, missing=f"no order or customer {target_id}")
        self._change("insert into escalations (target_id, reason) values (?, ?)", target_id, reason)
        return {"target_id": target_id, "escalated": "yes"}

    def refund_payment(self, payment_id: str, amount: str) -> dict[str, str]:
        """Pay money back. The gateway looks at this one refund only, not at earlier ones."""
        try:
            wanted = cents(amount)
        except ValueError as error:
            raise DeskError(str(error)) from None
        with self._transaction():
            payment = self._refundable(payment_id, wanted)
            back = payment["refunded_cents"] + wanted
            change = "status = 'refunded', refunded_cents = ?, refunds = refunds + 1"
            self._db.execute(f"update payments set {change} where id = ?", (back, payment_id))  # noqa: S608
        if payment["gateway"] == "slow" and payment["refunds"] == 0:
            raise GatewayTimeout  # it took effect: the transaction above is committed
        refunded = {"amount": payment["amount"], "status": "refunded", "refunded": money(back)}
        return {"payment_id": payment_id, **refunded}

    def send_mail(self, customer_id: str, body: str) -> dict[str, str]:
        """Put a mail into the outbox; the outbox has no way back."""
        self._customer(customer_id)
        self._change("insert into mails (customer_id, body) values (?, ?)", customer_id, body)
        return {"customer_id": customer_id, "mail": "sent"}

    def delete_customer(self, customer_id: str) -> dict[str, str]:
        """Delete a person's data; their orders stay for the books."""
        self._customer(customer_id)
        self._change("delete from customers where id = ?", customer_id)
        return {"customer_id": customer_id, "deleted": "yes"}

    def books(self) -> Books:
        """Read everything that a judge compares."""

        def by_id(table: str, value: str) -> dict[str, Any]:
            rows = self._all(f"select id, {value} as value from {table} order by rowid")  # noqa: S608  our own
            return {row["id"]: row["value"] for row in rows}

        payments = self._all("select id, amount, refunded_cents, refunds from payments order by rowid")
        reships = self._all("select order_id, count(*) as sent from reships group by order_id")
        return Books(
            cities=by_id("customers", "city"),
            orders=by_id("orders", "status"),
            payments={
                row["id"]: Refund(cents(row["amount"]), row["refunded_cents"], row["refunds"])
                for row in payments
            },
            reships={row["order_id"]: row["sent"] for row in reships},
            escalated=frozenset(row["target_id"] for row in self._all("select target_id from escalations")),
            ticketed=frozenset(row["customer_id"] for row in self._all("select customer_id from tickets")),
            mailed=frozenset(row["customer_id"] for row in self._all("select customer_id from mails")),
        )

    def _customer(self, customer_id: str) -> None:
        query = "select id from customers where id = ?"
        self._first(query, customer_id, missing=f"no customer {customer_id}")

    def _refundable(self, payment_id: str, wanted: int) -> dict[str, Any]:
        query = "select amount, gateway, refunds, refunded_cents, status from payments where id = ?"
        payment = self._first(query, payment_id, missing=f"no payment {payment_id}")
        if payment["status"] == "failed":
            raise DeskError(f"{payment_id} failed, there is nothing to refund")
        if not 0 < wanted <= cents(payment["amount"]):
            most = payment["amount"]
            raise DeskError(f"a refund of {payment_id} is 0.01 to {most}, not {money(wanted)}")
        return payment

    @contextmanager
    def _transaction(self) -> Iterator[None]:
        """Read and write as one: two refunds at the same moment must both be counted."""
        self._db.execute("begin immediate")
        try:
            yield
        except BaseException:
            self._db.execute("rollback")
            raise
        self._db.execute("commit")

    def _change(self, statement: str, *values: str) -> int:
        return self._db.execute(statement, values).lastrowid or 0

    def _first(self, query: str, *values: str, missing: str) -> dict[str, Any]:
        """Return the first row; raise DeskError if there is none."""
        rows = self._all(query, *values)
        if not rows:
            raise DeskError(missing)
        return rows[0]

    def _all(self, query: str, *values: str) -> list[dict[str, Any]]:
        cursor = self._db.execute(query, values)
        names = [column[0] for column in cursor.description]
        return [dict(zip(names, row, strict=True)) for row in cursor]


OPERATIONS: Mapping[str, tuple[str, ...]] = {
    name: tuple(inspect.signature(method).parameters)[1:]
    for name, method in vars(Desk).items()
    if not name.startswith("_") and name not in ("call", "books")
}
"""What the desk can do, by tool, with the names of the arguments in the order of the method."""


def create_desk(path: Path, rows: Rows) -> None:
    """Set up a new desk in a file of its own.

    Raises:
        FileExistsError: there is a file already; a desk never starts from an old one.
    """
    path.touch(exist_ok=False)
    with closing(sqlite3.connect(path)) as connection:
        _fill(connection, rows)


@contextmanager
def desk_file(path: Path) -> Iterator[Desk]:
    """Open an existing desk for one operation; several may be open at once."""
    with closing(
        sqlite3.connect(f"{path.absolute().as_uri()}?mode=rw", uri=True, isolation_level=None)
    ) as db:
        db.execute("pragma synchronous = off")  # a desk lives as long as its episode, not through a power cut
        yield Desk(db)


@contextmanager
def scratch_desk(rows: Rows) -> Iterator[Desk]:
    """Set up a desk in memory: for judging what would have been, touching nothing."""
    with closing(sqlite3.connect(":memory:", isolation_level=None)) as db:
        _fill(db, rows)
        yield Desk(db)


def _fill(connection: sqlite3.Connection, rows: Rows) -> None:
    connection.executescript(f"pragma synchronous = off; begin; {_SCHEMA} commit;")
    connection.execute("begin")
    for table, columns in COLUMNS.items():
        marks = ", ".join("?" for _ in columns)
        # table and column names are this module's own
        connection.executemany(f"insert into {table} ({', '.join(columns)}) values ({marks})", rows[table])  # noqa: S608
    connection.execute("commit")
