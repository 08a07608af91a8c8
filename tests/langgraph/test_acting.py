"""Which functions act on the world by themselves, read from their code."""

import smtplib
import urllib.parse
import urllib.request
from collections.abc import Callable
from typing import Any
from urllib.parse import quote

import httpx
import pytest

from dreamgym_kit.adapters.langgraph.acting import acts_by_itself


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


@pytest.mark.parametrize("function", [quotes, imports_to_quote, catches])
def test_what_only_computes_or_catches_does_not_act(function: Callable[..., Any]) -> None:
    assert acts_by_itself(function) is None  # type: ignore[arg-type]


@pytest.mark.parametrize(("function", "module"), [(opens, "urllib"), (gets, "httpx"), (hands_on, "httpx")])
def test_what_names_a_client_acts(function: Callable[..., Any], module: str) -> None:
    assert acts_by_itself(function) == module  # type: ignore[arg-type]
