"""Vectors from a sentence-transformers model on this machine; needs the extra `embeddings`.

Decides that nothing is downloaded: the model is a folder that a person named.
"""

from collections.abc import Sequence
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dreamgym_kit.errors import UserError, require_extra


class SentenceEmbedder:
    """Implements `interfaces.Embedder` over a model folder, which names it; loads it when first asked.

    Args:
        folder: what `SentenceTransformer.save` wrote.
        device: where it computes ("cpu", "cuda").

    Raises:
        UserError: there is no such folder; when first asked: there is no model in it.
        MissingExtra: sentence-transformers is not installed.
    """

    local = False  # 30 ms a text and more: a put must not wait for it

    def __init__(self, folder: Path | str, *, device: str = "cpu") -> None:
        self._folder = Path(folder)
        self._device = device
        if not self._folder.is_dir():
            raise UserError(
                f"{self._folder}: is no folder with a sentence-transformers model; nothing is downloaded"
            )
        require_extra("embeddings", needed_by=f"the embedding model in {self._folder}")
        self.name = f"sentences:{self._folder.resolve().name}"

    @cached_property
    def dimension(self) -> int:
        """See `Embedder.dimension`; loads the model."""
        return int(self._model.get_sentence_embedding_dimension())

    def embed(self, texts: Sequence[str]) -> NDArray[np.float32]:
        """See `Embedder.embed`."""
        vectors = np.zeros((len(texts), self.dimension), dtype=np.float32)
        full = [place for place, text in enumerate(texts) if text.strip()]
        if full:
            vectors[full] = self._model.encode([texts[place] for place in full], normalize_embeddings=True)
        return vectors

    @cached_property
    def _model(self) -> Any:
        """Half a minute to load, and a command that only records never asks it anything."""
        from sentence_transformers import SentenceTransformer  # type: ignore[import-not-found, unused-ignore]

        try:
            return SentenceTransformer(str(self._folder), device=self._device, local_files_only=True)
        except (OSError, ValueError) as error:
            raise UserError(
                f"{self._folder}: holds no sentence-transformers model ({type(error).__name__})"
            ) from error
