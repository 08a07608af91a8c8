"""Whose vectors a file keeps, and which embedder is used with it: vectors of two are never mixed.

Names are compared when a file is opened, numbers of a vector when they are needed: telling them can mean to
load a model, and who only records has no use for it.
"""

from collections.abc import Callable
from pathlib import Path

from dreamgym_kit.errors import StoreError
from dreamgym_kit.interfaces import Embedder

Named = tuple[str, int]  # name and dimension


class FileEmbedder:
    """The embedder of one open file.

    Args:
        path: the file (or the address of another kind of buffer), for messages.
        given: the embedder that the caller wants; None leaves it to the file.
        kept: reads whose vectors the file keeps; None: nobody's yet.
    """

    def __init__(self, path: Path | str, given: Embedder | None, saved: Callable[[], Named | None]) -> None:
        self._path = path
        self._given = given
        self._saved = saved
        self._chosen = given

    def check(self) -> None:
        """Compare the names.

        Raises:
            StoreError: the file keeps vectors of another embedder than the one given.
        """
        saved = self._saved() if self._given is not None else None
        if saved is not None and self._given is not None and saved[0] != self._given.name:
            raise self._another(saved, f"'{self._given.name}'")

    def chosen(self) -> Embedder | None:
        """The one that was given, or the hashed one where the file is free for it or already its own."""
        if self._chosen is None:
            from dreamgym_kit.adapters.embedders.hashed import HashedEmbedder

            hashed = HashedEmbedder()
            if self._saved() in (None, (hashed.name, hashed.dimension)):
                self._chosen = hashed
        return self._chosen

    def to_search(self, *, words_only: bool) -> Embedder | None:
        """The one to ask for vectors; None where the question goes by words only and there is none.

        Raises:
            StoreError: the file's vectors are not its own.
        """
        embedder, saved = self.chosen(), self._saved()
        if embedder is not None and saved is not None and saved != (embedder.name, embedder.dimension):
            raise self._another(saved, f"'{embedder.name}' ({embedder.dimension})")
        if embedder is None and saved is not None and not words_only:
            raise StoreError(
                f"{self._path}: its vectors are of embedder '{saved[0]}' ({saved[1]} numbers), which was not "
                "given; open it with that one (setting replay.embedder), or search by words only"
            )
        return embedder

    @property
    def foreign(self) -> str | None:
        """Names the embedder of the file's vectors where it was not given."""
        saved = self._saved()
        return None if saved is None or self.chosen() is not None else saved[0]

    def _another(self, saved: Named, given: str) -> StoreError:
        return StoreError(
            f"{self._path}: its vectors are of embedder '{saved[0]}' ({saved[1]} numbers), not {given}; open "
            "it with that one (setting replay.embedder), or export it and import the rows into a new buffer"
        )
