"""A causal language model of the transformers library as the engine runs it: any architecture with attention.

The library's own modules do the arithmetic; keys and values go to `Rows`, each row at its own positions, and
the mask says what each token sees. Models that keep something else than keys and values of every token (state
spaces, linear attention) are refused, here or where the engine's passes are compared with the plain one.
"""

from typing import Any, Protocol

import torch
from torch import Tensor
from transformers import Cache, PreTrainedModel
from transformers.cache_utils import CacheLayerMixin

from dreamgym_kit.adapters.models.local_rows import Places, Rows, RowShape


class Network(Protocol):
    """What the engine asks of a model. Runs on the engine's thread, in inference mode."""

    shape: RowShape
    window: int | None  # how far back sliding layers see
    context: int  # tokens, prompt and answer together
    device: torch.device
    dtype: torch.dtype

    def read(self, tokens: Tensor, at: Places, rows: Rows) -> None:
        """Read `tokens` [rows, n] into `rows`."""
        ...

    def next_logits(self, tokens: Tensor, at: Places, rows: Rows) -> Tensor:
        """Read one token a row, [rows, 1]; float32 logits [rows, vocabulary] of what follows."""
        ...

    def all_logits(self, tokens: Tensor, at: Places, rows: Rows) -> Tensor:
        """Read [rows, n]; float32 logits [rows, n, vocabulary] of what follows each."""
        ...


class TransformersNetwork:
    """Any `AutoModelForCausalLM` whose layers attend to keys and values.

    Raises:
        ValueError: it keeps something else, or different amounts in different layers.
    """

    def __init__(self, model: PreTrainedModel) -> None:
        self.model = model.eval()
        config = model.config.get_text_config(decoder=True)
        self.device, self.dtype = model.device, model.dtype
        self._kinds = _attention_kinds(config)
        self.window = getattr(config, "sliding_window", None) if "sliding_attention" in self._kinds else None
        self.context = int(getattr(config, "max_position_embeddings", 0) or 2**31)
        self.shape = self._probed()

    def read(self, tokens: Tensor, at: Places, rows: Rows) -> None:
        """See `Network.read`."""
        self.model.base_model(**self._asked(tokens, at, rows))

    def next_logits(self, tokens: Tensor, at: Places, rows: Rows) -> Tensor:
        """See `Network.next_logits`."""
        logits: Tensor = self.model(**self._asked(tokens, at, rows)).logits
        return logits[:, -1].float()

    def all_logits(self, tokens: Tensor, at: Places, rows: Rows) -> Tensor:
        """See `Network.all_logits`."""
        logits: Tensor = self.model(**self._asked(tokens, at, rows)).logits
        return logits.float()

    def _asked(self, tokens: Tensor, at: Places, rows: Rows) -> dict[str, Any]:
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
            kept = self.model(torch.zeros(1, 2, dtype=torch.long, device=self.device), use_cache=True)
        layers = getattr(kept.past_key_values, "layers", [])
        found = {(tuple(one.keys.shape), tuple(one.values.shape)) for one in layers if _is_plain(one)}
        if len(found) != 1 or not all(map(_is_plain, layers)):
            raise ValueError("its layers keep something else than keys and values of one shape")
        keys, values = found.pop()
        if len(keys) != 4 or keys[2] != 2:
            raise ValueError("its layers do not keep one key and value for each token")
        return RowShape(len(layers), keys[1], keys[3], values[3])


class _RowsLayer(CacheLayerMixin):  # type: ignore[misc]  # the library's types are not read
    """One layer of `Rows` in the form that the library's attention modules ask for."""

    def __init__(self, rows: Rows, layer: int, at: Places) -> None:
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
