"""Which embedder `[replay]` names: hashed, an endpoint by its URL, or a model folder."""

from dreamgym_kit.errors import UserError
from dreamgym_kit.interfaces import Embedder
from dreamgym_kit.settings.schema import Settings

HASHED = "hashed"


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
        from dreamgym_kit.adapters.embedders.hashed import HashedEmbedder

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
    from dreamgym_kit.adapters.embedders.sentences import SentenceEmbedder

    return SentenceEmbedder(folder)


def _endpoint(url: str, settings: Settings) -> Embedder:
    from dreamgym_kit.adapters.embedders.endpoint import EndpointEmbedder
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
