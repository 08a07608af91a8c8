"""The tokenizer of a nano experience model: a token for each of its words, bytes for the rest.

Records and decisions are lines of closed words (`dream.learned.vocabulary`), each after a space, so one
word is one token and a call costs some thirty of them. Any other text still goes there and back unharmed.
"""

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from dreamgym_kit.recipes.nano.tokens import END, START, byte_level_tokenizer

if TYPE_CHECKING:
    from transformers import PreTrainedTokenizerFast

CONTEXT = 512
TEMPLATE_FILE = Path(__file__).parent / "chat_template.jinja"


def build_word_tokenizer(words: Sequence[str]) -> "PreTrainedTokenizerFast":
    """Build the tokenizer of these words with its chat template; equal for equal words."""
    plain = ("user\n", "assistant\n", *(f" {word}" for word in words))
    return byte_level_tokenizer(plain, template=TEMPLATE_FILE, context=CONTEXT)


def asked_text(record: Sequence[str]) -> str:
    """What a model reads, up to where it begins to decide; as the chat template renders a record."""
    return f"{START}user\n {' '.join(record)}{END}\n{START}assistant\n"


def decided_text(words: Sequence[str]) -> str:
    """What a model says, without its end."""
    return f" {' '.join(words)}"
