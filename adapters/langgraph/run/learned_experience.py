"""The learned experience model in a run: opened, and put between recordings and what reasons."""

from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path

from dreamgym_kit.adapters.models.named_models import learned_directory
from dreamgym_kit.dream.ablation import without
from dreamgym_kit.dream.chain import ChainedExperience
from dreamgym_kit.dream.fallback import FallbackChain
from dreamgym_kit.guard import egress
from dreamgym_kit.interfaces import ChatEndpoint, ExperienceModel
from dreamgym_kit.settings.schema import PolicySettings, Settings


@contextmanager
def with_decisions(first: ExperienceModel | None, settings: Settings) -> Iterator[ExperienceModel | None]:
    """`first`, and behind it the learned model that settings name, open for the block.

    Without recordings there is nothing that its decisions could be written from, and it is left out; so it is
    where the state that it decides in is. Where reasoning is, the one decides that was taught without it.

    Raises:
        MissingExtra: the packages of the extra `train` are not installed, and it is to run in this process.
        UserError: the directory cannot be read, or the server is named wrongly; nothing was run.
    """
    conf, folder = settings.experience, learned_directory(settings)
    if folder is None:
        yield first
        return
    parts = settings.simulate.disable
    if "reasoning" in parts:
        folder = settings.resolve(conf.no_reasoning_model) if conf.no_reasoning_model is not None else None
    if folder is None or "state" in parts:
        yield first
        return
    from dreamgym_kit.dream.learned.checkpoint import read_learned
    from dreamgym_kit.dream.learned.experience import LearnedExperience

    with egress.exempt():  # the kit's own files
        learned = read_learned(folder)
    if not isinstance(first, ChainedExperience):
        yield first
        return
    served = bool(conf.urls) and "reasoning" not in parts and (conf.served_name or conf.model is None)
    with _opened(folder, settings, served=bool(served)) as endpoint:
        decides = LearnedExperience(
            endpoint, learned, following=first.following, threshold=settings.simulate.min_confidence
        )
        yield FallbackChain(without(first, parts), decides, second_opinion=True)


@contextmanager
def _opened(folder: Path, settings: Settings, *, served: bool) -> Iterator[ChatEndpoint]:
    experience = settings.experience
    if served:
        from dreamgym_kit.adapters.models.remote import open_remote

        policy = PolicySettings(
            model=experience.served_name or str(folder),
            urls=experience.urls,
            key_env=experience.key_env,
            key_file=experience.key_file,
        )
        with closing(open_remote(policy, source=settings.where("experience"))) as remote:
            yield remote
        return
    from dreamgym_kit.adapters.models.local import open_local

    with egress.exempt():  # loads torch and the weights
        local = open_local(folder)
    with closing(local):
        yield local
