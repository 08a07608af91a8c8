"""Builds tiny model directories for tests: Qwen3 from scratch with random weights, a byte tokenizer that can
spell anything, and a chat template in the form of Hermes. Doubles of a trained policy, not one."""

from pathlib import Path

TEMPLATE = """{%- if tools %}<|im_start|>system
Tools:{% for tool in tools %}
{{ tool | tojson }}{% endfor %}<|im_end|>
{% endif -%}
{%- for message in messages -%}
<|im_start|>{{ 'user' if message.role == 'tool' else message.role }}
{% if message.role == 'tool' %}<tool_response>
{{ message.content }}
</tool_response>{% else %}{{ message.content }}{% endif -%}
{%- if message.tool_calls -%}
{%- for call in message.tool_calls -%}
{% if not loop.first or message.content %}
{% endif %}<tool_call>
{"name": "{{ call.function.name }}", "arguments": {{ call.function.arguments | tojson }}}
</tool_call>
{%- endfor -%}
{%- endif -%}<|im_end|>
{% endfor -%}
{%- if add_generation_prompt -%}<|im_start|>assistant
{% endif -%}"""
WORDS = ("<|endoftext|>", "<|im_start|>", "<|im_end|>")
PIECES = (
    "<tool_call>",
    "</tool_call>",
    '{"name": "',
    '", "arguments": {',
    '"}}\n',
    " the",
    " order",
    "get_order",
)


def tokenizer_double(pieces: tuple[str, ...] = PIECES):
    """256 bytes, some special tokens and some longer pieces."""
    from tokenizers import AddedToken, Tokenizer, decoders, models, pre_tokenizers
    from transformers import PreTrainedTokenizerFast

    letters = sorted(pre_tokenizers.ByteLevel.alphabet())
    core = Tokenizer(models.BPE(vocab={one: at for at, one in enumerate(letters)}, merges=[]))
    core.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)
    core.decoder = decoders.ByteLevel()
    core.add_special_tokens([AddedToken(one, special=True, normalized=False) for one in WORDS])
    core.add_tokens([AddedToken(one, special=False, normalized=False) for one in pieces])
    return PreTrainedTokenizerFast(
        tokenizer_object=core, eos_token="<|im_end|>", pad_token="<|endoftext|>", chat_template=TEMPLATE
    )


def model_double(
    seed: int = 0,
    *,
    vocab: int = 288,
    tied: bool = False,
    context: int = 2048,
    sharp: float = 4.0,
    head: int = 16,
):
    """Qwen3 of 2 layers, its weights blown up so that its choices are as uneven as a trained model's.

    `head`: numbers of one attention head; a real vLLM serves 32 on a CPU, and not 16.
    """
    import torch
    from transformers import Qwen3Config, Qwen3ForCausalLM

    config = Qwen3Config(
        vocab_size=vocab,
        hidden_size=48,
        intermediate_size=96,
        num_hidden_layers=2,
        num_attention_heads=4,
        num_key_value_heads=2,
        head_dim=head,
        max_position_embeddings=context,
        tie_word_embeddings=tied,
        rope_parameters={"rope_type": "default", "rope_theta": 1e6},
        eos_token_id=258,
    )
    with torch.random.fork_rng():
        torch.manual_seed(seed)
        model = Qwen3ForCausalLM(config).eval()
    with torch.no_grad():
        for weight in model.parameters():
            if weight.dim() == 2:
                weight.mul_(sharp)
    return model


def write_double(folder: Path, seed: int = 0, **options) -> Path:
    """A directory as save_pretrained writes it, with tokenizer and template."""
    model_double(seed, **options).save_pretrained(folder)
    tokenizer_double().save_pretrained(folder)
    return folder


def save_untrained(folder: Path, *, seed: int = 0) -> None:
    """Write an untrained nano policy: it loads, decodes and copies, but knows nothing of the desk."""
    from dreamgym_kit.recipes.nano.start import new_model, save_model
    from dreamgym_kit.recipes.nano.tokens import build_tokenizer

    tokenizer = build_tokenizer()
    save_model(new_model(tokenizer, seed=seed), tokenizer, folder)
