"""The learned experience model in a run: opened, and put between recordings and what reasons."""

from collections.abc import Iterator
from contextlib import closing, contextmanager
from dataclasses import replace
from pathlib import Path

from dreamgym_kit.dream.chain import ChainedExperience
from dreamgym_kit.dream.learned.experience import LearnedExperience
from dreamgym_kit.dream.learned.kept import read_learned
from dreamgym_kit.dream.learned.layered import LayeredExperience
from dreamgym_kit.dream.without import without
from dreamgym_kit.errors import UserError
from dreamgym_kit.gate import egress
from dreamgym_kit.ports import ChatEndpoint, ExperienceModel
from dreamgym_kit.settings.schema import PolicySettings, Settings


@contextmanager
def with_decisions(first: ExperienceModel | None, settings: Settings) -> Iterator[ExperienceModel | None]:
    """`first`, and behind it the learned model that settings name, open for the block.

    Without recordings there is nothing that its decisions could be written from, and it is left out; so it is
    where the state that it decides in is. Where reasoning is, the one decides that was taught without it.

    Raises:
        MissingExtra: the packages of the extra `train` are not installed, and it is to run in this process.
        UserError: the directory is none of a learned model, or the server is named wrongly; nothing was run.
    """
    said = settings.learned
    if said.model is None:
        if said.urls:
            raise UserError(
                f"{settings.where('learned', 'urls')}: learned.model is missing: the directory of the model "
                "that is served, whose words lie in it"
            )
        yield first
        return
    parts = settings.simulate.disable
    named = said.plain if "reasoning" in parts else said.model
    if named is None or "state" in parts:
        yield first
        return
    folder = settings.resolve(named)
    with egress.exempt():  # the kit's own files
        learned = read_learned(folder)
    if not isinstance(first, ChainedExperience):
        yield first
        return
    here = settings if named == said.model else replace(settings, learned=replace(said, urls=()))
    with _opened(folder, here) as endpoint:
        decides = LearnedExperience(
            endpoint, learned, following=first.following, threshold=settings.simulate.min_confidence
        )
        yield LayeredExperience(without(first, parts), decides)


@contextmanager
def _opened(folder: Path, settings: Settings) -> Iterator[ChatEndpoint]:
    said = settings.learned
    if said.urls:
        from dreamgym_kit.adapters.models.remote import open_remote

        asked = PolicySettings(
            model=said.served or str(folder), urls=said.urls, key_env=said.key_env, key_file=said.key_file
        )
        with closing(open_remote(asked, source=settings.where("learned"))) as remote:
            yield remote
        return
    from dreamgym_kit.adapters.models.local import open_local

    with egress.exempt():  # loads torch and the weights
        local = open_local(folder)
    with closing(local):
        yield local
