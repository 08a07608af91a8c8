"""A model directory small enough for tests: two layers, 32 wide, words for tokens."""

from pathlib import Path

WORDS = [f"w{number}" for number in range(40)]
VOCABULARY = 48


def write_tiny_model(folder: Path, *, seed: int = 0, scale: float = 4.0, tied: bool = False) -> Path:
    """Write one; weights drawn from `seed`, times `scale` where they are matrices."""
    import torch
    from tokenizers import Tokenizer
    from tokenizers.models import WordLevel
    from tokenizers.pre_tokenizers import Whitespace
    from transformers import PreTrainedTokenizerFast, Qwen3Config, Qwen3ForCausalLM
    from transformers.utils import logging

    specials = ["<pad>", "<eos>", "<unk>"]
    words = Tokenizer(
        WordLevel({word: number for number, word in enumerate(specials + WORDS)}, unk_token="<unk>")
    )
    words.pre_tokenizer = Whitespace()
    tokenizer = PreTrainedTokenizerFast(
        tokenizer_object=words, eos_token="<eos>", pad_token="<pad>", unk_token="<unk>"
    )
    tokenizer.chat_template = "{% for message in messages %}{{ message.content }} <eos> {% endfor %}"
    logging.disable_progress_bar()
    torch.manual_seed(seed)
    model = Qwen3ForCausalLM(
        Qwen3Config(
            vocab_size=VOCABULARY,
            hidden_size=32,
            intermediate_size=64,
            num_hidden_layers=2,
            num_attention_heads=2,
            num_key_value_heads=1,
            head_dim=16,
            max_position_embeddings=512,
            tie_word_embeddings=tied,
            bos_token_id=None,
            eos_token_id=1,
            pad_token_id=0,
        )
    )
    with torch.no_grad():
        for parameter in model.parameters():
            if parameter.dim() == 2:
                parameter.mul_(scale)
    model.save_pretrained(folder)
    tokenizer.save_pretrained(folder)
    return folder
