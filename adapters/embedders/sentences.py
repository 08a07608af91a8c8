"""Vectors from a sentence-transformers model on this machine; needs the extra `embeddings`.

Decides that nothing is downloaded: the model is a folder that a person named.
"""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dreamgym_kit.errors import MissingExtra, UserError


class SentenceEmbedder:
    """Implements `ports.Embedder` over a model folder; named after the folder and its dimension.

    Args:
        folder: what `SentenceTransformer.save` wrote.
        device: where it computes ("cpu", "cuda").

    Raises:
        UserError: there is no such folder, or no model in it.
        MissingExtra: sentence-transformers is not installed.
    """

    local = False  # 30 ms a text and more: a put must not wait for it

    def __init__(self, folder: Path | str, *, device: str = "cpu") -> None:
        path = Path(folder)
        if not path.is_dir():
            raise UserError(f"{path}: is no folder with a sentence-transformers model; nothing is downloaded")
        try:
            from sentence_transformers import SentenceTransformer  # type: ignore[import-not-found, unused-ignore]
        except ImportError:
            raise MissingExtra("embeddings", needed_by=f"the embedding model in {path}") from None
        try:
            self._model: Any = SentenceTransformer(str(path), device=device, local_files_only=True)
        except (OSError, ValueError) as error:
            raise UserError(
                f"{path}: holds no sentence-transformers model ({type(error).__name__})"
            ) from error
        self.dimension = int(self._model.get_sentence_embedding_dimension())
        self.name = f"sentences:{path.resolve().name}"

    def embed(self, texts: Sequence[str]) -> NDArray[np.float32]:
        """See `Embedder.embed`."""
        vectors = np.zeros((len(texts), self.dimension), dtype=np.float32)
        said = [place for place, text in enumerate(texts) if text.strip()]
        if said:
            vectors[said] = self._model.encode([texts[place] for place in said], normalize_embeddings=True)
        return vectors
