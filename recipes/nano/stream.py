"""Episodes as the stream of tokens that a model learns: what the chat template gives, and who said what.

The words here and chat_template.jinja say the same in two ways; a test holds them equal, token by token.
Each piece is tokenised by itself, which is exact because pieces meet at tokens that nothing can cross.
"""

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from dreamgym_kit.adapters.models.hermes import read_said
from dreamgym_kit.plain import JsonValue
from dreamgym_kit.recipes.desk.policy import Turn
from dreamgym_kit.recipes.nano.direct import TOOL_ARGS, Told
from dreamgym_kit.recipes.nano.episodes import Worked
from dreamgym_kit.recipes.nano.tokens import ANSWER, ANSWER_END, CALL, CALL_END, END, START, ids_and_names

if TYPE_CHECKING:
    from transformers import PreTrainedTokenizerBase


@dataclass(frozen=True, slots=True)
class Row:
    """One episode as tokens."""

    ids: tuple[int, ...]
    said: tuple[bool, ...]  # which tokens the agent said; the same shape


@dataclass(frozen=True, slots=True)
class Said:
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

    def row(self, worked: Worked) -> Row:
        """The whole episode, up to the end of the agent's last word."""
        ids: list[int] = []
        said: list[bool] = []
        for text, mine in _pieces(worked):
            piece = self.encode(text)
            ids += piece
            said += [mine] * len(piece)
        return Row(tuple(ids), tuple(said))

    def request(self, text: str) -> list[int]:
        """What a model reads first."""
        return self.encode(request_text(text))

    def told(self, answers: Sequence[Told]) -> list[int]:
        """What a model reads after its calls, from behind its own end token."""
        return self.encode(told_text(answers))

    def encode(self, text: str) -> list[int]:
        """Tokenise one piece, as it stands."""
        ids: list[int] = self.tokenizer.encode(text, add_special_tokens=False)
        return ids

    def read(self, ids: Sequence[int]) -> Said:
        """Read what a model said; `ids` may end with the end token."""
        shown = ids[:-1] if ids and ids[-1] == self.end else ids
        found = read_said(self.tokenizer.decode(shown, skip_special_tokens=False), "")
        return Said(tuple((call.name, json.loads(call.args)) for call in found.calls), found.content)


def request_text(text: str) -> str:
    """The request of a customer, up to where the agent begins to speak."""
    return f"{START}user\n{text}{END}\n{START}assistant\n"


def told_text(answers: Sequence[Told]) -> str:
    """Answers to the calls of one turn, up to where the agent speaks again."""
    told = "\n".join(f"{ANSWER}\n{answer.text}\n{ANSWER_END}" for answer in answers)
    return f"\n{START}user\n{told}{END}\n{START}assistant\n"


def said_text(turn: Turn) -> str:
    """A turn with calls, with its end."""
    calls = (
        json.dumps({"name": use.tool, "arguments": dict(use.args)}, ensure_ascii=False) for use in turn.uses
    )
    said = [turn.text] if turn.text else []
    return "\n".join([*said, *(f"{CALL}\n{call}\n{CALL_END}" for call in calls)]) + END


def _pieces(worked: Worked) -> Iterator[tuple[str, bool]]:
    yield request_text(worked.request), False
    for exchange in worked.exchanges:
        yield said_text(exchange.turn), True
        yield told_text(exchange.told), False
    yield worked.last_word + END, True
