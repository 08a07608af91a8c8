"""Money as the desk writes it: text with two decimals ("19.90"), counted in cents."""

import re

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
