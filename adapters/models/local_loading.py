"""From checked files to a model in memory: tokenizer, chat template and float weights, all or nothing."""

import torch
from transformers import PreTrainedModel, PreTrainedTokenizerBase

from dreamgym_kit.adapters.models import folders
from dreamgym_kit.adapters.models.kv_cache import CacheRows, Places
from dreamgym_kit.adapters.models.local_network import Network, Qwen3Network, TransformersNetwork, fits_qwen3
from dreamgym_kit.deployment.model_files import ModelFiles, one_line
from dreamgym_kit.errors import UserError

_TOKENIZERS = ("tokenizer.json", "tokenizer.model", "vocab.json", "vocab.txt")
_OFF = 1e-3  # logits: far above float32's own noise, far below what a wrong position or mask does


def load_tokenizer(files: ModelFiles) -> PreTrainedTokenizerBase:
    """The directory's tokenizer.

    Raises:
        UserError: there is none, it does not fit the model's vocabulary, or it has no chat template.
    """
    folder = files.folder
    if not any((folder / name).is_file() for name in _TOKENIZERS):
        raise UserError(f"{folder}: has no tokenizer.json; put the model's tokenizer files there.")
    tokenizer: PreTrainedTokenizerBase = folders.load_tokenizer(folder)
    most = max(tokenizer.get_vocab().values(), default=-1)
    vocabulary = files.vocabulary
    if most >= vocabulary:
        raise UserError(
            f"{folder / 'tokenizer.json'}: has the token id {most}, but the model's vocabulary ends at "
            f"{vocabulary - 1}; it is another model's tokenizer."
        )
    if not tokenizer.chat_template:
        raise UserError(f"{folder}: has no chat template; put the model's chat_template.jinja there.")
    return tokenizer


def load_network(files: ModelFiles, *, device: str = "cpu", plain: bool = True) -> Network:
    """The directory's model, ready to be asked; `plain`: written out where it can be, for speed.

    Raises:
        UserError: the weights are not those of the architecture, or the engine cannot run it.
    """
    model = folders.load_model(files.folder).to(device).eval().requires_grad_(requires_grad=False)
    try:
        network: Network = Qwen3Network(model) if plain and fits_qwen3(model) else TransformersNetwork(model)
        _check(network, model)
    except (ValueError, TypeError, RuntimeError, AttributeError, IndexError) as error:
        raise UserError(
            f"{files.folder}: {type(model).__name__} cannot be served in process ({one_line(error)}); "
            "serve it with vLLM and name its URL."
        ) from None
    return network


def _check(network: Network, model: PreTrainedModel) -> None:
    """Read two rows of unequal length in pieces, and compare with the library's plain pass."""
    top = min(int(model.config.get_text_config(decoder=True).vocab_size), 1000)
    tokens = torch.arange(22, device=network.device).reshape(2, 11) * 7919 % top
    with torch.inference_mode():
        plain = model(tokens, use_cache=False).logits.float()
        rows = CacheRows(network.shape, 2, 11, device=network.device, dtype=network.dtype)
        start = torch.tensor([[0], [0]], device=network.device)
        at = Places(start + torch.arange(9, device=network.device), 9, window=network.window)
        network.read(tokens[:, :9], at, rows)
        last = torch.tensor([[8], [4]], device=network.device)  # the second row goes back and reads again
        got = network.next_logits(tokens.gather(1, last), Places(last, 9, window=network.window), rows)
    want = torch.stack([plain[0, 8], plain[1, 4]])
    if not torch.isfinite(got).all():
        raise UserError(f"{model.config.name_or_path}: the weights give NaN; they are broken.")
    if float((got - want).abs().max()) > _OFF * max(1.0, float(want.abs().max())):
        raise ValueError("its layers keep more than keys and values at positions")
