"""Causal language models of the transformers library as the engine runs them: any that attend.

The library's own modules do the arithmetic; keys and values go to `CacheRows`, each row at its own
positions, and the mask says what each token sees. Models that keep something else than keys and values of
every token (state spaces, linear attention) are refused, here or where the engine's passes are compared
with the plain one.
"""

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor
from transformers import Cache, PreTrainedModel
from transformers.cache_utils import CacheLayerMixin

from dreamgym_kit.adapters.models.folders import load_model
from dreamgym_kit.adapters.models.kv_cache import CacheRows, Places, RowShape
from dreamgym_kit.deployment.model_files import ModelFiles, one_line
from dreamgym_kit.errors import EndpointError, UserError

_OFF = 1e-3  # logits: far above float32's own noise, far below what a wrong position or mask does
_PIECE = 512  # tokens of one pass of `score`: bounds the logits in memory


class Network:
    """Any `AutoModelForCausalLM` whose layers attend to keys and values. Runs in inference mode.

    Raises:
        ValueError: it keeps something else, or different amounts in different layers.
    """

    def __init__(self, model: PreTrainedModel) -> None:
        self.model = model.eval()
        config = model.config.get_text_config(decoder=True)
        self.device, self.dtype = model.device, model.dtype
        self._kinds = _attention_kinds(config)
        # how far back sliding layers see
        self.window = getattr(config, "sliding_window", None) if "sliding_attention" in self._kinds else None
        # tokens, prompt and answer together
        self.context = int(getattr(config, "max_position_embeddings", 0) or 2**31)
        self.shape = self._probed()

    def read(self, tokens: Tensor, at: Places, rows: CacheRows) -> None:
        """Read `tokens` [rows, n] into `rows`."""
        self.model.base_model(**self._inputs(tokens, at, rows))

    def logits(self, tokens: Tensor, at: Places, rows: CacheRows) -> Tensor:
        """Read [rows, n]; float32 logits [rows, n, vocabulary] of what follows each."""
        logits: Tensor = self.model(**self._inputs(tokens, at, rows)).logits
        return logits.float()

    def _inputs(self, tokens: Tensor, at: Places, rows: CacheRows) -> dict[str, Any]:
        layers = [_RowsLayer(rows, layer, at) for layer in range(self.shape.layers)]
        masks = {kind: at.mask(sliding=kind == "sliding_attention") for kind in self._kinds}
        return {
            "input_ids": tokens,
            "attention_mask": masks if len(masks) > 1 else next(iter(masks.values())),
            "position_ids": at.positions,
            "past_key_values": Cache(layers=layers),
            "use_cache": True,
        }

    def _probed(self) -> RowShape:
        """Shapes as the model's own cache has them after two tokens."""
        with torch.inference_mode():
            output = self.model(torch.zeros(1, 2, dtype=torch.long, device=self.device), use_cache=True)
        layers = getattr(output.past_key_values, "layers", [])
        sizes = {(tuple(layer.keys.shape), tuple(layer.values.shape)) for layer in layers if _is_plain(layer)}
        if len(sizes) != 1 or not all(map(_is_plain, layers)):
            raise ValueError("its layers keep something else than keys and values of one shape")
        keys, values = sizes.pop()
        if len(keys) != 4 or keys[2] != 2:
            raise ValueError("its layers do not keep one key and value for each token")
        return RowShape(len(layers), keys[1], keys[3], values[3])


class _RowsLayer(CacheLayerMixin):  # type: ignore[misc]  # the library's types are not read
    """One layer of `CacheRows` in the form that the library's attention modules ask for."""

    def __init__(self, rows: CacheRows, layer: int, at: Places) -> None:
        super().__init__()
        self.is_initialized = True
        self._rows, self._layer, self._at = rows, layer, at

    def lazy_initialization(self, key_states: Tensor, value_states: Tensor) -> None:
        """Nothing to do: the room is there."""

    def update(
        self, key_states: Tensor, value_states: Tensor, *_: object, **__: object
    ) -> tuple[Tensor, Tensor]:
        return self._rows.write(self._layer, self._at, key_states, value_states)

    def get_mask_sizes(self, query_length: int) -> tuple[int, int]:  # noqa: ARG002  the library's signature
        return self._at.end, 0

    def get_seq_length(self) -> int:
        return self._at.end - int(self._at.positions.shape[1])

    def get_max_length(self) -> int:
        return -1


def _attention_kinds(config: Any) -> list[str]:
    kinds = list(dict.fromkeys(getattr(config, "layer_types", None) or ()))
    if not kinds:
        sliding = getattr(config, "sliding_window", None) and getattr(config, "use_sliding_window", True)
        kinds = ["sliding_attention" if sliding else "full_attention"]
    odd = [kind for kind in kinds if kind not in ("full_attention", "sliding_attention")]
    if odd:
        raise ValueError(f"it has layers of {', '.join(odd)}")
    return kinds


def _is_plain(layer: Any) -> bool:
    return isinstance(getattr(layer, "keys", None), Tensor) and isinstance(
        getattr(layer, "values", None), Tensor
    )


def load_network(files: ModelFiles, *, device: str = "cpu") -> Network:
    """The directory's model, ready to be asked.

    Raises:
        UserError: the weights are not those of the architecture, or the engine cannot run it.
    """
    model = load_model(files.folder).to(device).eval().requires_grad_(requires_grad=False)
    try:
        network = Network(model)
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
        got = network.logits(tokens.gather(1, last), Places(last, 9, window=network.window), rows)[:, -1]
    want = torch.stack([plain[0, 8], plain[1, 4]])
    if not torch.isfinite(got).all():
        raise UserError(f"{model.config.name_or_path}: the weights give NaN; they are broken.")
    if float((got - want).abs().max()) > _OFF * max(1.0, float(want.abs().max())):
        raise ValueError("its layers keep more than keys and values at positions")


def score(network: Network, ids: Sequence[Sequence[int]]) -> list[list[float]]:
    """Natural log-prob of each id after the first, at temperature 1, by the same pass that samples.

    Raises:
        EndpointError: a row is longer than the model's context.
    """
    return [_score_row(network, row) for row in ids]


def _score_row(network: Network, ids: Sequence[int]) -> list[float]:
    if len(ids) > network.context:
        raise EndpointError("rejected", f"{len(ids)} tokens; the policy's context is {network.context}")
    rows = CacheRows(network.shape, 1, len(ids), device=network.device, dtype=network.dtype)
    scores: list[float] = []
    for start in range(0, len(ids) - 1, _PIECE):
        end = min(start + _PIECE, len(ids) - 1)
        positions = torch.arange(start, end, device=network.device)[None]
        tokens = torch.tensor([list(ids[start:end])], device=network.device)
        logits = network.logits(tokens, Places(positions, end, window=network.window), rows)
        next_ids = torch.tensor([list(ids[start + 1 : end + 1])], device=network.device)
        scores += torch.log_softmax(logits, -1).gather(-1, next_ids[..., None])[0, :, 0].tolist()
    return scores
