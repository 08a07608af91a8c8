"""The desk's system of record: one SQLite database, and what can be asked of it and done to it.

Decides what the real tools do. Like many real systems it trusts its callers: it cancels a shipped order
and refunds a payment a second time when it is told to. The payment gateway is slow for some payments:
their first refund takes effect, but the caller only sees a time-out. Money is text with two decimals
("19.90"), counted in cents.
"""

import re
import sqlite3
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import closing, contextmanager
from dataclasses import dataclass, field
from pathlib import Path

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
        known = OPERATIONS.get(tool)
        if known is None:
            raise DeskError(f"the desk has no operation {tool}")
        operation, names = known
        missing = [name for name in names if name not in args]
        if missing:
            raise DeskError(f"{tool} needs {missing[0]}")
        return operation(self, *(str(args[name]) for name in names))

    def find_customer(self, name: str) -> dict[str, str]:
        """Find a customer by first name."""
        row = self._fetch("select id, name, city, tier from customers where name = ?", name)
        if row is None:
            raise DeskError(f"no customer is called {name}")
        return dict(zip(("customer_id", "name", "city", "tier"), row, strict=True))

    def list_orders(self, customer_id: str) -> list[dict[str, str]]:
        """List a customer's orders, oldest entry first."""
        self._customer(customer_id)
        rows = self._all(
            "select id, item, status from orders where customer_id = ? order by rowid", customer_id
        )
        return [dict(zip(("order_id", "item", "status"), row, strict=True)) for row in rows]

    def get_order(self, order_id: str) -> dict[str, str]:
        """Look an order up."""
        columns = ("order_id", *COLUMNS["orders"][1:])
        return dict(zip(columns, self._order(order_id), strict=True))

    def list_payments(self, order_id: str) -> list[dict[str, str]]:
        """List the payments of an order, oldest first."""
        self._order(order_id)
        rows = self._all(
            "select id, amount, status, refunded_cents from payments where order_id = ? order by rowid",
            order_id,
        )
        return [
            {"payment_id": key, "amount": amount, "status": status, "refunded": money(back)}
            for key, amount, status, back in rows
        ]

    def track_parcel(self, order_id: str) -> dict[str, str]:
        """Ask the carrier where an order's parcel is."""
        self._order(order_id)
        row = self._fetch("select order_id, carrier, state from parcels where order_id = ?", order_id)
        if row is None:
            raise DeskError(f"no parcel was sent for {order_id} yet")
        return dict(zip(COLUMNS["parcels"], row, strict=True))

    def update_address(self, customer_id: str, city: str) -> dict[str, str]:
        """Move a customer to another city."""
        self._customer(customer_id)
        self._change("update customers set city = ? where id = ?", city, customer_id)
        return {"customer_id": customer_id, "city": city}

    def cancel_order(self, order_id: str) -> dict[str, str]:
        """Cancel an order, whatever its status."""
        if self._order(order_id)[3] == "cancelled":
            raise DeskError(f"{order_id} is already cancelled")
        self._change("update orders set status = 'cancelled' where id = ?", order_id)
        return {"order_id": order_id, "status": "cancelled"}

    def reship_order(self, order_id: str) -> dict[str, str]:
        """Send an order's parcel anew."""
        self._order(order_id)
        self._change("insert into reships (order_id) values (?)", order_id)
        return {"order_id": order_id, "reshipped": "yes"}

    def create_ticket(self, customer_id: str, topic: str) -> dict[str, str]:
        """Open a ticket that a colleague will work on."""
        self._customer(customer_id)
        number = self._change("insert into tickets (customer_id, topic) values (?, ?)", customer_id, topic)
        return {"ticket_id": f"T{number}", "customer_id": customer_id, "topic": topic}

    def escalate(self, target_id: str, reason: str) -> dict[str, str]:
        """Hand an order or a customer to a person, now."""
        known = "select id from orders where id = ? union select id from customers where id = ?"
        if self._fetch(known, target_id, target_id) is None:
            raise DeskError(f"no order or customer {target_id}")
        self._change("insert into escalations (target_id, reason) values (?, ?)", target_id, reason)
        return {"target_id": target_id, "escalated": "yes"}

    def refund_payment(self, payment_id: str, amount: str) -> dict[str, str]:
        """Pay money back. The gateway looks at this one refund only, not at earlier ones."""
        try:
            wanted = cents(amount)
        except ValueError as error:
            raise DeskError(str(error)) from None
        with self._transaction():
            paid, gateway, earlier, back = self._refundable(payment_id, wanted)
            back += wanted
            self._db.execute(
                "update payments set status = 'refunded', refunded_cents = ?, refunds = ? where id = ?",
                (back, earlier + 1, payment_id),
            )
        if gateway == "slow" and earlier == 0:
            raise GatewayTimeout  # it took effect: the transaction above is committed
        return {"payment_id": payment_id, "amount": paid, "status": "refunded", "refunded": money(back)}

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
        payments = self._all("select id, amount, refunded_cents, refunds from payments order by rowid")
        return Books(
            cities=dict(self._all("select id, city from customers order by rowid")),
            orders=dict(self._all("select id, status from orders order by rowid")),
            payments={key: Refund(cents(amount), back, times) for key, amount, back, times in payments},
            reships=dict(self._all("select order_id, count(*) from reships group by order_id")),
            escalated=self._set("select target_id from escalations"),
            ticketed=self._set("select customer_id from tickets"),
            mailed=self._set("select customer_id from mails"),
        )

    def _customer(self, customer_id: str) -> None:
        if self._fetch("select id from customers where id = ?", customer_id) is None:
            raise DeskError(f"no customer {customer_id}")

    def _order(self, order_id: str) -> tuple[str, ...]:
        row = self._fetch(
            "select id, customer_id, item, status, days, total from orders where id = ?", order_id
        )
        if row is None:
            raise DeskError(f"no order {order_id}")
        return row

    def _refundable(self, payment_id: str, wanted: int) -> tuple[str, str, int, int]:
        row = self._fetch(
            "select amount, gateway, refunds, refunded_cents, status from payments where id = ?", payment_id
        )
        if row is None:
            raise DeskError(f"no payment {payment_id}")
        paid, gateway, earlier, back, status = row
        if status == "failed":
            raise DeskError(f"{payment_id} failed, there is nothing to refund")
        if not 0 < wanted <= cents(paid):
            raise DeskError(f"a refund of {payment_id} is 0.01 to {paid}, not {money(wanted)}")
        return paid, gateway, earlier, back

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

    def _fetch(self, query: str, *values: str) -> tuple[JsonValue, ...] | None:
        row: tuple[JsonValue, ...] | None = self._db.execute(query, values).fetchone()
        return row

    def _all(self, query: str, *values: str) -> list[tuple[JsonValue, ...]]:
        return self._db.execute(query, values).fetchall()

    def _set(self, query: str) -> frozenset[str]:
        return frozenset(row[0] for row in self._all(query))


OPERATIONS: Mapping[str, tuple[Callable[..., JsonValue], tuple[str, ...]]] = {
    "find_customer": (Desk.find_customer, ("name",)),
    "list_orders": (Desk.list_orders, ("customer_id",)),
    "get_order": (Desk.get_order, ("order_id",)),
    "list_payments": (Desk.list_payments, ("order_id",)),
    "track_parcel": (Desk.track_parcel, ("order_id",)),
    "update_address": (Desk.update_address, ("customer_id", "city")),
    "cancel_order": (Desk.cancel_order, ("order_id",)),
    "reship_order": (Desk.reship_order, ("order_id",)),
    "create_ticket": (Desk.create_ticket, ("customer_id", "topic")),
    "escalate": (Desk.escalate, ("target_id", "reason")),
    "refund_payment": (Desk.refund_payment, ("payment_id", "amount")),
    "send_mail": (Desk.send_mail, ("customer_id", "body")),
    "delete_customer": (Desk.delete_customer, ("customer_id",)),
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
