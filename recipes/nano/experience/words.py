"""The tokenizer of a nano experience model: a token for each of its words, bytes for the rest.

Records and decisions are lines of closed words (`dream.learned.vocabulary`), each after a space, so one
word is one token and a call costs some thirty of them. Any other text still goes there and back unharmed.
"""

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from dreamgym_kit.recipes.nano.tokens import END, END_OF_TEXT, START

if TYPE_CHECKING:
    from transformers import PreTrainedTokenizerFast

CONTEXT = 512
TEMPLATE_FILE = Path(__file__).parent / "chat_template.jinja"


def build_word_tokenizer(words: Sequence[str]) -> "PreTrainedTokenizerFast":
    """Build the tokenizer of these words with its chat template; equal for equal words."""
    from tokenizers import AddedToken, Tokenizer, decoders, models, pre_tokenizers
    from transformers import PreTrainedTokenizerFast

    alphabet = sorted(pre_tokenizers.ByteLevel.alphabet())
    core = Tokenizer(models.BPE(vocab={each: place for place, each in enumerate(alphabet)}, merges=[]))
    core.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)
    core.decoder = decoders.ByteLevel()
    core.add_special_tokens([AddedToken(each, normalized=False) for each in (END_OF_TEXT, START, END)])
    plain = ("user\n", "assistant\n", *(f" {word}" for word in words))
    core.add_tokens([AddedToken(each, normalized=False) for each in plain])
    tokenizer = PreTrainedTokenizerFast(
        tokenizer_object=core,
        eos_token=END,
        pad_token=END_OF_TEXT,
        model_max_length=CONTEXT,
        clean_up_tokenization_spaces=False,
    )
    tokenizer.chat_template = TEMPLATE_FILE.read_text(encoding="utf-8").rstrip("\n")
    return tokenizer


def asked_text(record: Sequence[str]) -> str:
    """What a model reads, up to where it begins to decide; as the chat template renders a record."""
    return f"{START}user\n {' '.join(record)}{END}\n{START}assistant\n"


def decided_text(words: Sequence[str]) -> str:
    """What a model says, without its end."""
    return f" {' '.join(words)}"
