"""The nano models' tokenizer, and episodes as the stream of its tokens that a model learns.

A byte-level BPE without merges, so that any text goes there and back unharmed, plus an added token for
every id, name, amount, tool, field and word that the desk uses. Every id is one token, and every token
means one thing, which is what lets so small a model copy them.

Traps that shaped the sets: added tokens match anywhere, the longest from the left first. So a field's
token ends with the quotes before its value (`order_id": "`), equal in calls and in answers; a word with a
space before it may not be the beginning of a name with a space before it; ids all have one width.

The words here and chat_template.jinja say the same in two ways; a test holds them equal, token by token.
Each piece is tokenised by itself, which is exact because pieces meet at tokens that nothing can cross.
"""

import json
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING

from dreamgym_kit.adapters.models.local import parse_answer
from dreamgym_kit.errors import UserError
from dreamgym_kit.recipes.desk.cases import (
    AMOUNTS,
    CARRIERS,
    CITIES,
    CUSTOMER_IDS,
    DAYS,
    ITEMS,
    NAMES,
    ORDER_IDS,
    PAYMENT_IDS,
    STATUSES,
    TIERS,
    TRAIN_SEEDS,
)
from dreamgym_kit.recipes.desk.database import GatewayTimeout, cents, money
from dreamgym_kit.recipes.desk.policy import Habits, ScriptTurn
from dreamgym_kit.recipes.nano.episodes import TOOL_ARGS, CallResult, Worked, work
from dreamgym_kit.serialization import JsonValue

if TYPE_CHECKING:
    from transformers import PreTrainedTokenizerBase, PreTrainedTokenizerFast

END_OF_TEXT, START, END = "<|endoftext|>", "<|im_start|>", "<|im_end|>"
CALL, CALL_END, ANSWER, ANSWER_END = "<tool_call>", "</tool_call>", "<tool_response>", "</tool_response>"
CONTEXT = 2048  # tokens that a model of this kind can see
TEMPLATE_FILE = Path(__file__).parent / "chat_template.jinja"

_ROLES = ("user\n", "assistant\n", "system\n")
_GLUE = (
    '\n{"name": "',
    '", "arguments": {"',
    '", "arguments": {}}\n',
    '"}}\n',
    '\n{"',
    '"}\n',
    '\n[{"',
    '"}]\n',
    '"}, {"',
    '", "',
    "\n[]\n",
)
_ANSWER_FIELDS = (
    *("tier", "item", "status", "days", "total", "refunded", "carrier", "state", "share", "quote", "calls"),
    *("failed", "escalated", "reshipped", "ticket_id", "mail", "deleted"),
)
_VALUES = (
    *(*TIERS, *STATUSES, *CARRIERS, "captured", "failed", "refunded", "moving", "lost", "yes", "sent"),
    *("full", "half", "none"),
    *("return", "repair", "refund", "identity", "complaint", "delete", "address", "missing"),
)
_REFUSALS = (
    "no customer is called",
    "no order or customer",
    "no payment",
    "no parcel was sent for yet",
    "is already cancelled",
    "failed, there is nothing to refund",
    "a refund of is to, not",
    str(GatewayTimeout()),
)
_WORLDS_READ = 360  # for the words that requests and colleagues use


def ids_and_names() -> tuple[str, ...]:
    """What has to be copied, never guessed."""
    return (*CUSTOMER_IDS, *ORDER_IDS, *PAYMENT_IDS, *NAMES, *CITIES, *ITEMS, *_amounts())


@cache
def added_tokens() -> tuple[str, ...]:
    """Every token but the bytes and the special ones, in the order of their ids."""
    fields = dict.fromkeys((*(name for names in TOOL_ARGS.values() for name in names), *_ANSWER_FIELDS))
    closed = (*ids_and_names(), *DAYS, *(f"T{number}" for number in range(1, 10)))
    tokens = (*_ROLES, *_GLUE, *TOOL_ARGS, *(f'{field}": "' for field in fields), *closed, *_VALUES)
    return tuple(dict.fromkeys((*tokens, *_words(closed))))


def build_tokenizer() -> "PreTrainedTokenizerFast":
    """Build the tokenizer with its chat template; equal on every machine."""
    plain = (CALL, CALL_END, ANSWER, ANSWER_END, *added_tokens())
    return byte_level_tokenizer(plain, template=TEMPLATE_FILE, context=CONTEXT)


def byte_level_tokenizer(plain: Iterable[str], *, template: Path, context: int) -> "PreTrainedTokenizerFast":
    """A byte-level BPE without merges: the bytes, three special tokens, then a token for each of `plain`.

    Args:
        plain: texts that are one token each, in the order of their ids.
        template: the file of its chat template.
        context: tokens that a model of it can see.
    """
    from tokenizers import AddedToken, Tokenizer, decoders, models, pre_tokenizers
    from transformers import PreTrainedTokenizerFast

    alphabet = sorted(pre_tokenizers.ByteLevel.alphabet())
    core = Tokenizer(models.BPE(vocab={each: place for place, each in enumerate(alphabet)}, merges=[]))
    core.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)
    core.decoder = decoders.ByteLevel()
    core.add_special_tokens([AddedToken(each, normalized=False) for each in (END_OF_TEXT, START, END)])
    core.add_tokens([AddedToken(each, normalized=False) for each in plain])
    tokenizer = PreTrainedTokenizerFast(
        tokenizer_object=core,
        eos_token=END,
        pad_token=END_OF_TEXT,
        model_max_length=context,
        clean_up_tokenization_spaces=False,
    )
    tokenizer.chat_template = template.read_text(encoding="utf-8").rstrip("\n")
    return tokenizer


def _amounts() -> Iterator[str]:
    """Prices, their halves, what paying one back twice adds up to, and nothing."""
    whole = [cents(amount) for amount in AMOUNTS]
    sums = (0, *whole, *(each // 2 for each in whole), *(2 * each for each in whole))
    return map(money, dict.fromkeys(sums))


def _words(closed: Iterable[str]) -> Iterator[str]:
    """The words of requests, colleagues and refusals, each as it stands: after a space, or first.

    Raises:
        UserError: a word would eat the beginning of a name or id.
    """
    names = set(closed)
    for text in dict.fromkeys((*_texts(), *_REFUSALS)):
        for match in re.finditer(r" ?[A-Za-z]+", text):
            word = match.group()
            if word.strip() in names or len(word.strip()) == 1:
                continue
            eaten = next((name for name in names if f" {name}".startswith(word)), None)
            if eaten is not None:
                raise UserError(f"the desk's word '{word.strip()}' is the beginning of its name '{eaten}'")
            yield word


def _texts() -> Iterator[str]:
    step = 7  # no multiple of a family count: every family comes up
    for environment in TRAIN_SEEDS[: step * _WORLDS_READ : step]:
        for kind in ("senior", "junior", "slip"):
            worked = work(environment, Habits(kind, looks_first=kind == "senior", seed=str(environment)))
            yield worked.request
            yield worked.last_word
            for exchange in worked.exchanges:
                yield exchange.turn.text
                yield from (use.args["body"] for use in exchange.turn.uses if "body" in use.args)


@dataclass(frozen=True, slots=True)
class TokenRow:
    """One episode as tokens."""

    ids: tuple[int, ...]
    sampled: tuple[bool, ...]  # which tokens the agent said; the same shape


@dataclass(frozen=True, slots=True)
class NanoTurn:
    """What a model said in one turn: calls to be made, or its last word."""

    calls: tuple[tuple[str, Mapping[str, JsonValue]], ...]
    text: str


class Stream:
    """Turns episodes into tokens and back, with one tokenizer."""

    def __init__(self, tokenizer: "PreTrainedTokenizerBase") -> None:
        self.tokenizer = tokenizer
        self.end: int = tokenizer.eos_token_id
        self.pad: int = tokenizer.pad_token_id
        self.copied = frozenset(tokenizer.convert_tokens_to_ids(list(ids_and_names())))
        self.tools = frozenset(tokenizer.convert_tokens_to_ids(list(TOOL_ARGS)))

    def row(self, worked: Worked) -> TokenRow:
        """The whole episode, up to the end of the agent's last word."""
        ids: list[int] = []
        sampled: list[bool] = []
        for text, mine in _pieces(worked):
            piece = self.encode(text)
            ids += piece
            sampled += [mine] * len(piece)
        return TokenRow(tuple(ids), tuple(sampled))

    def encode(self, text: str) -> list[int]:
        """Tokenise one piece, as it stands."""
        ids: list[int] = self.tokenizer.encode(text, add_special_tokens=False)
        return ids

    def read(self, ids: Sequence[int]) -> NanoTurn:
        """Read what a model said; `ids` may end with the end token."""
        shown = ids[:-1] if ids and ids[-1] == self.end else ids
        reply = parse_answer(self.tokenizer.decode(shown, skip_special_tokens=False), "")
        return NanoTurn(tuple((call.name, json.loads(call.args)) for call in reply.calls), reply.content)


def request_text(text: str) -> str:
    """The request of a customer, up to where the agent begins to speak."""
    return f"{START}user\n{text}{END}\n{START}assistant\n"


def told_text(answers: Sequence[CallResult]) -> str:
    """Answers to the calls of one turn, up to where the agent speaks again."""
    text = "\n".join(f"{ANSWER}\n{answer.text}\n{ANSWER_END}" for answer in answers)
    return f"\n{START}user\n{text}{END}\n{START}assistant\n"


def said_text(turn: ScriptTurn) -> str:
    """A turn with calls, with its end."""
    calls = (
        json.dumps({"name": use.tool, "arguments": dict(use.args)}, ensure_ascii=False) for use in turn.uses
    )
    parts = [turn.text] if turn.text else []
    return "\n".join([*parts, *(f"{CALL}\n{call}\n{CALL_END}" for call in calls)]) + END


def _pieces(worked: Worked) -> Iterator[tuple[str, bool]]:
    yield request_text(worked.request), False
    for exchange in worked.exchanges:
        yield said_text(exchange.turn), True
        yield told_text(exchange.answers), False
    yield worked.last_word + END, True
