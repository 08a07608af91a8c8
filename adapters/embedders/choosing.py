"""Which embedder `[replay]` names (hashed, an endpoint, a model folder), and which one a buffer is used with.

The vectors of two embedders are never mixed. Names are compared when a buffer is opened, numbers of a vector
when they are needed: telling them can mean to load a model, and who only records has no use for it.
"""

from collections.abc import Callable
from pathlib import Path

from dreamgym_kit.errors import StoreError, UserError
from dreamgym_kit.interfaces import Embedder
from dreamgym_kit.settings.schema import Settings

HASHED = "hashed"
Named = tuple[str, int]  # name and dimension


def embedder_of(settings: Settings) -> Embedder | None:
    """The embedder that settings name; None where they name none, which leaves it to the buffer.

    Raises:
        UserError: what it needs is missing; names the line.
        MissingExtra: a folder is named and sentence-transformers is not installed.
    """
    named = settings.replay.embedder
    if named is None:
        return None
    if named == HASHED:
        from dreamgym_kit.adapters.embedders.models import HashedEmbedder

        return HashedEmbedder()
    if named.startswith(("http://", "https://")):
        return _endpoint(named, settings)
    folder = settings.resolve(named)
    if not folder.is_dir():
        raise UserError(
            f"{settings.where('replay', 'embedder')}: replay.embedder '{named}' is no embedder; write "
            '"hashed", the URL of an endpoint ("http://localhost:8000/v1") or the folder of a '
            "sentence-transformers model."
        )
    from dreamgym_kit.adapters.embedders.models import SentenceEmbedder

    return SentenceEmbedder(folder)


def _endpoint(url: str, settings: Settings) -> Embedder:
    from dreamgym_kit.adapters.embedders.models import EndpointEmbedder
    from dreamgym_kit.adapters.models.addresses import read_key

    replay = settings.replay
    if replay.embedder_model is None or replay.embedder_dimension is None:
        missing = "embedder_model" if replay.embedder_model is None else "embedder_dimension"
        raise UserError(
            f"{settings.where('replay', 'embedder')}: replay.embedder is an endpoint, but there is no "
            f"replay.{missing}."
        )
    named = "embedder_key_env" if replay.embedder_key_env is not None else "embedder_key_file"
    key = read_key(
        replay.embedder_key_env, file=replay.embedder_key_file, source=settings.where("replay", named)
    )
    return EndpointEmbedder(url, replay.embedder_model, dimension=replay.embedder_dimension, api_key=key)


class FileEmbedder:
    """The embedder of one open file.

    Args:
        path: the file (or the address of another kind of buffer), for messages.
        given: the embedder that the caller wants; None leaves it to the file.
        saved: reads whose vectors the file keeps; None: nobody's yet.
        instead: what to do for those of another embedder.
    """

    def __init__(
        self,
        path: Path | str,
        given: Embedder | None,
        saved: Callable[[], Named | None],
        *,
        instead: str = "export it and import the rows into a new buffer",
    ) -> None:
        self._path = path
        self._instead = instead
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
            from dreamgym_kit.adapters.embedders.models import HashedEmbedder

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
            f"it with that one (setting replay.embedder), or {self._instead}"
        )
