"""Which functions act on the world by themselves, read from their code."""

import smtplib
import urllib.parse
import urllib.request
from typing import Any
from urllib.parse import quote

import httpx
import pytest

from dreamgym_kit.adapters.langgraph.acting import read


def quotes(state: Any) -> str:
    return quote(state) + urllib.parse.quote_plus(state)


def imports_to_quote(state: Any) -> str:
    from urllib.parse import urlsplit

    return str(urlsplit(state))


def catches(state: Any) -> Any:
    try:
        return state
    except (httpx.HTTPError, smtplib.SMTPException):
        return None


def opens(state: Any) -> Any:
    return urllib.request.urlopen(state)


def gets(state: Any) -> Any:
    return httpx.get(state)


def hands_on(state: Any) -> Any:
    return gets(state)


@pytest.mark.parametrize("function", [quotes, imports_to_quote, catches, hands_on])
def test_what_only_computes_or_catches_does_not_act(function: Any) -> None:
    assert read(function).acts is None


@pytest.mark.parametrize(("function", "module"), [(opens, "urllib"), (gets, "httpx")])
def test_what_names_a_client_acts(function: Any, module: str) -> None:
    assert read(function).acts == module


def test_what_a_function_hands_on_to_is_reached() -> None:
    assert [one.function for one in read(hands_on).reached] == [gets]  # type: ignore[arg-type]
