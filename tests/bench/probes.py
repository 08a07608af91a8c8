"""Questions that tempt a dream into a confident lie, each beside one that the same recordings answer.

Small APIs (probed_apis.py), most recorded in one world, are asked as `simulate` asks, at default
settings. A probe plays some calls and then asks one whose answer no recording shows: page 2 where only page 1
was recorded, a user nobody has heard of, a read after the episode's own write. Its twin is a question of the
same kind that the recordings answer.

`asked`: probes. `wrong`: those answered otherwise than the real API answers; silence is not wrong, and a true
answer is not either. `twins_answered`: twins answered and exact.
"""

from contextlib import closing
from typing import Any, NamedTuple

from beds import Simulated
from probed_apis import APIS, outcome, recorded, tools

Call = tuple[str, dict[str, Any]]


class Probe(NamedTuple):
    """A question after some calls, and its twin."""

    kind: str
    api: str
    calls: tuple[Call, ...]
    twin: tuple[Call, ...]
    world: int = 0  # that both are asked in


def _c(tool: str, **args: Any) -> Call:
    return tool, args


BORROW = _c("borrow_book", member_id="m-01", book_id="bk-001")
LOOK = _c("get_balance", account="acc-02")
MOVE = _c("transfer_money", source="acc-02", target="acc-05", amount=15)
VISIT = _c("book_visit", patient_id=103, day="2026-04-20")
CANCEL = _c("cancel_visit", visit_id=503, code="C103")


def _probe(kind: str, api: str, *calls: Call, twin: Call | tuple[Call, ...], world: int = 0) -> Probe:
    twins = (twin,) if isinstance(twin[0], str) else twin
    return Probe(kind, api, calls, twins, world)  # type: ignore[arg-type]


def _in(*books: int) -> list[str]:
    """Keys of the books in the house, of those with these numbers."""
    shelf = APIS["library"]()._books
    return [key for number in books if shelf[key := f"bk-{number:03}"]["status"] == "in"]


IN, LOST = _in(*range(20)), [f"bk-{n:03}" for n in range(20) if f"bk-{n:03}" not in _in(*range(20))]
AN_IN, ANOTHER_IN = (
    _c("borrow_book", member_id="m-02", book_id=IN[0]),
    _c("borrow_book", member_id="m-03", book_id=IN[1]),
)
ALL_OF_NORTH = _c("list_books", branch="north")
LATE, PAID = _c("pay_invoice", invoice_id="inv-013", card="slow"), _c("list_payments", invoice_id="inv-013")
NEXT_INVOICE = _c("get_invoice", invoice_id="inv-014")
WALK = (_c("get_dog", dog="Rexjq"), _c("walk_dog", dog="Rexjq", minutes=12))

# fmt: off
PROBES: tuple[Probe, ...] = (
    # pages
    _probe("page 2 is page 1", "library", _c("list_books", branch="north", page=2), twin=ALL_OF_NORTH),
    _probe("past the last page", "library", _c("list_books", author="Author1", page=9),
           twin=_c("list_books", author="Author1")),
    _probe("page 2 of a sentence", "bank", _c("get_statement", account="acc-03", page=2),
           twin=_c("get_statement", account="acc-03")),
    _probe("a page of no size", "clinic", _c("list_patients", limit=2), twin=_c("list_patients")),
    _probe("an offset", "clinic", _c("list_patients", offset=3), twin=_c("list_patients", doctor="dr1")),
    # filters, orders, modes that nobody used
    _probe("an order never used", "library", _c("list_books", branch="north", sort="newest"),
           twin=ALL_OF_NORTH),
    _probe("a filter's value never used", "library", _c("list_books", branch="east"),
           twin=_c("list_books", branch="south")),
    _probe("filters together", "library", _c("list_books", branch="north", author="Author2"),
           twin=_c("list_books", author="Author2")),
    _probe("a mode never used", "clinic", _c("list_patients", archived=True), twin=_c("list_patients")),
    _probe("more than the default", "clinic", _c("list_longest_waits", top=6),
           twin=_c("list_longest_waits")),
    _probe("fewer, with ties", "clinic", _c("list_longest_waits", top=1), twin=_c("list_longest_waits",
           top=3)),
    _probe("count of a branch never counted", "library", _c("count_books", branch="east"),
           twin=_c("count_books", branch="south")),
    _probe("a rate never asked", "bank", _c("get_rate", currency="JPY"), twin=_c("get_rate",
           currency="USD")),
    _probe("a rate that there is", "bank", _c("get_rate", currency="GBP"), twin=_c("get_rate",
           currency="CHF")),
    # who asks
    _probe("wrong e-mail", "library", _c("find_member", name="Reader3", email="r4@lib.org"),
           twin=_c("find_member", name="Reader3", email="r3@lib.org")),
    _probe("unknown member", "library", _c("get_member", member_id="m-77"), twin=_c("get_member",
           member_id="m-07")),
    _probe("member that is there, unread", "library", _c("get_member", member_id="m-22"),
           twin=_c("get_member", member_id="m-12")),
    _probe("wrong word", "bank", _c("verify_login", user="Owner3", secret_word="word-4"),
           twin=_c("verify_login", user="Owner3", secret_word="word-3")),
    _probe("unknown user", "bank", _c("verify_login", user="Owner99", secret_word="x"),
           twin=_c("verify_login", user="Owner5", secret_word="word-5")),
    _probe("unknown approver", "bank", _c("freeze_account", account="acc-04", approver="eve"),
           twin=_c("freeze_account", account="acc-04", approver="mia")),
    _probe("another's code", "clinic", _c("list_visits", patient_id=102), _c("cancel_visit", visit_id=502,
           code="C104"), twin=(_c("list_visits", patient_id=102), _c("cancel_visit", visit_id=502,
           code="C102"))),
    _probe("another's account", "bank", _c("get_owner", account="acc-03"), _c("close_account",
           account="acc-03", user="Owner4"), twin=(_c("get_owner", account="acc-03"), _c("close_account",
           account="acc-03", user="Owner3"))),
    _probe("another's loan", "library", AN_IN, _c("renew_loan", loan_id="ln-001", member_id="m-05"),
           twin=(AN_IN, _c("renew_loan", loan_id="ln-001", member_id="m-02"))),
    _probe("money to nobody", "bank", LOOK, _c("transfer_money", source="acc-02", target="acc-99",
           amount=10), twin=(LOOK, MOVE)),
    # refusals
    _probe("a book that is lost", "library", _c("get_member", member_id="m-01"), _c("get_book",
           book_id=LOST[0]), _c("borrow_book", member_id="m-01", book_id=LOST[0]), twin=(_c("get_member",
           member_id="m-01"), _c("get_book", book_id=IN[0]), _c("borrow_book", member_id="m-01",
           book_id=IN[0]))),
    _probe("a member not active", "library", _c("get_member", member_id="m-04"), _c("borrow_book",
           member_id="m-04", book_id=IN[0]), twin=(_c("get_member", member_id="m-06"), _c("borrow_book",
           member_id="m-06", book_id=IN[0]))),
    _probe("over the limit", "bank", _c("get_balance", account="acc-14"), _c("transfer_money",
           source="acc-14", target="acc-02", amount=200), twin=(_c("get_balance", account="acc-14"),
           _c("transfer_money", source="acc-14", target="acc-02", amount=20))),
    _probe("more than there is", "bank", LOOK, _c("transfer_money", source="acc-02", target="acc-05",
           amount=140), twin=(LOOK, _c("transfer_money", source="acc-02", target="acc-05", amount=10))),
    _probe("from a frozen account", "bank", _c("get_balance", account="acc-03"), _c("freeze_account",
           account="acc-03", approver="leo"), _c("transfer_money", source="acc-03", target="acc-05",
           amount=10), twin=(_c("get_balance", account="acc-03"), _c("transfer_money", source="acc-03",
           target="acc-05", amount=10))),
    _probe("a patient with visits", "clinic", _c("list_visits", patient_id=104), _c("remove_patient",
           patient_id=104), twin=(_c("get_patient", patient_id=114), _c("remove_patient",
           patient_id=114))),
    _probe("a negative amount", "bank", LOOK, _c("transfer_money", source="acc-02", target="acc-05",
           amount=-20), twin=(LOOK, MOVE)),
    _probe("an option never set", "clinic", _c("remove_patient", patient_id=105, force=True),
           twin=(_c("get_patient", patient_id=115), _c("remove_patient", patient_id=115))),
    # the same again, in one turn or later
    _probe("cancelled twice", "clinic", CANCEL, CANCEL, twin=(_c("list_visits", patient_id=103), CANCEL)),
    _probe("lent twice", "library", AN_IN, AN_IN, twin=(AN_IN, ANOTHER_IN)),
    _probe("deleted twice", "library", _c("delete_book", book_id="bk-003"), _c("delete_book",
           book_id="bk-003"), twin=(_c("get_book", book_id="bk-003"), _c("delete_book",
           book_id="bk-003"))),
    _probe("booked twice", "clinic", VISIT, VISIT, twin=(_c("get_patient", patient_id=103), VISIT)),
    _probe("renewed a third time", "library", AN_IN, *[_c("renew_loan", loan_id="ln-001",
           member_id="m-02")] * 3, twin=(AN_IN, _c("renew_loan", loan_id="ln-001", member_id="m-02"))),
    _probe("closed twice", "bank", *[_c("close_account", account="acc-05", user="Owner5")] * 2,
           twin=(_c("get_owner", account="acc-05"), _c("close_account", account="acc-05",
           user="Owner5"))),
    # reads against what the episode itself wrote
    _probe("a balance after two transfers", "bank", LOOK, MOVE, MOVE, LOOK, twin=(LOOK, MOVE)),
    _probe("the target's balance", "bank", _c("get_balance", account="acc-05"), MOVE, _c("get_balance",
           account="acc-05"), twin=_c("get_balance", account="acc-05")),
    _probe("a statement after a transfer", "bank", *[MOVE] * 2, _c("get_statement", account="acc-02",
           page=2), twin=_c("get_statement", account="acc-02")),
    _probe("a count after an insert", "clinic", VISIT, _c("count_visits"), twin=_c("count_visits")),
    _probe("a count of that day", "clinic", _c("book_visit", patient_id=104, day="2026-03-02"),
           _c("count_visits", day="2026-03-02"), twin=_c("count_visits", day="2026-03-02")),
    _probe("a count after a delete", "library", _c("get_book", book_id="bk-003"), _c("delete_book",
           book_id="bk-003"), _c("count_books", branch="north"), twin=_c("count_books", branch="north")),
    _probe("a list after a delete", "library", _c("delete_book", book_id="bk-001"), _c("list_books",
           author="Author1"), twin=_c("list_books", author="Author1")),
    _probe("a list after a change", "clinic", CANCEL, _c("list_visits", status="booked"),
           twin=_c("list_visits", status="booked")),
    _probe("a login by the old e-mail", "library", _c("update_member", member_id="m-06",
           email="x6@lib.org"), _c("find_member", name="Reader6", email="r6@lib.org"),
           twin=_c("find_member", name="Reader6", email="r6@lib.org")),
    _probe("the branch that moved", "library", _c("update_member", member_id="m-06", email="x6@lib.org",
           branch="east"), _c("get_member", member_id="m-06"), twin=(_c("get_member", member_id="m-06"),
           _c("update_member", member_id="m-06", email="x6@lib.org"), _c("get_member",
           member_id="m-06"))),
    _probe("an owner after closing", "bank", _c("close_account", account="acc-06", user="Owner6"),
           _c("get_balance", account="acc-06"), twin=_c("get_balance", account="acc-06")),
    _probe("who is oldest after one left", "clinic", _c("remove_patient", patient_id=112),
           _c("list_longest_waits"), twin=_c("list_longest_waits")),
    # a write that reported a failure and took effect
    _probe("a list after a time-out", "invoices", LATE, PAID, twin=(LATE, NEXT_INVOICE)),
    _probe("a count after a time-out", "invoices", LATE, _c("count_payments"), twin=_c("count_payments")),
    _probe("there is none, after a time-out", "invoices", LATE, _c("get_payment", payment_id="pay-012"),
           twin=_c("get_payment", payment_id="pay-011")),
    _probe("its own record, after a time-out", "invoices", LATE, _c("get_invoice", invoice_id="inv-013"),
           twin=(LATE, NEXT_INVOICE)),
    _probe("a list after a refusal", "invoices", _c("pay_invoice", invoice_id="inv-013", card="void"), PAID,
           twin=PAID),
    # other worlds, things that nobody knows, recordings that contradict each other
    _probe("a key that other worlds refuse", "kennel", _c("open_gate", key=790), twin=WALK, world=9),
    _probe("what other worlds do not permit", "kennel", _c("get_dog", dog="Rexjk"),
           _c("read_chip", dog="Rexjk"), twin=WALK, world=9),
    _probe("a dog that nobody named", "kennel", _c("walk_dog", dog="Bobby", minutes=12), twin=WALK, world=9),
    _probe("a dog that there is not", "kennel", _c("get_dog", dog="Bobby"),
           _c("walk_dog", dog="Bobby", minutes=12), twin=(_c("get_dog", dog="Rexdq"),
           _c("walk_dog", dog="Rexdq", minutes=12)), world=3),
    _probe("scales that contradict themselves", "kennel", _c("get_weight", dog="Rexdk"),
           twin=_c("get_dog", dog="Rexdl"), world=3),
    # the clock
    _probe("the time moved on", "clinic", _c("get_time"), _c("get_time"), twin=_c("get_time")),
)
# fmt: on


def measure(seed: int) -> list[tuple[str, float, str]]:
    """Figures for the bench runner; nothing is drawn."""
    found = [one for name in APIS for one in played(name)]
    return [
        ("asked", len(PROBES), "probes"),
        ("wrong", sum(answered and not exact for _, twin, answered, exact in found if not twin), "of them"),
        ("twins_answered", sum(exact for _, twin, _, exact in found if twin) / len(PROBES), "of twins"),
    ]


quick = measure


def played(name: str) -> list[tuple[Probe, bool, bool, bool]]:
    """Of each probe of an API and of each twin: the probe, whether it is the twin, answered, exact."""
    found: list[tuple[Probe, bool, bool, bool]] = []
    if all(probe.api != name for probe in PROBES):
        return found
    with closing(Simulated()) as dream:
        dream.learn(tools(name), recorded(name), [])
        for probe in PROBES:
            if probe.api != name:
                continue
            for twin, calls in ((False, probe.calls), (True, probe.twin)):
                api = APIS[name](probe.world) if probe.world else APIS[name]()
                found.append((probe, twin, *_last(dream, api, f"{name}-{probe.world}", calls)))
    return found


def _last(dream: Simulated, api: Any, world: str, calls: tuple[Call, ...]) -> tuple[bool, bool]:
    """Play the calls, earlier refusals as the real ones; whether the last was answered, and exactly."""
    dream.start(world, "probe")
    answered = exact = False
    for tool, args in calls:
        real = outcome(api, tool, args)
        if real[0] == "error" and (tool, args) != calls[-1]:
            dream.happened(tool, args, real)
            continue
        told = dream.answer(tool, args)
        answered = told is not None
        exact = told == real
        if told is None:
            dream.told(tool, args, real)
    return answered, exact
