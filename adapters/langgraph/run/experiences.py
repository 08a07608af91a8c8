"""What a dream answers from: the experience models over a store, with what settings state of tools."""

from dreamgym_kit.dream.chain import ChainedExperience
from dreamgym_kit.dream.matching import Match
from dreamgym_kit.dream.recorded import RecordedExperience
from dreamgym_kit.dream.state.stated import stated_models
from dreamgym_kit.guard import egress
from dreamgym_kit.interfaces import ExperienceModel, TransitionStore
from dreamgym_kit.settings.schema import Settings
from dreamgym_kit.types import Environment, Transition


def recorded_experience(store: TransitionStore | None, settings: Settings) -> RecordedExperience:
    """The dream that repeats what a store holds."""

    def recordings(environment: Environment, tenant: str) -> list[Transition]:
        if store is None:
            return []
        with egress.exempt():  # the buffer is the kit's own file
            return list(store.scan(environment=environment, tenant=tenant))

    return RecordedExperience(recordings, match_of(settings))


def match_of(settings: Settings) -> Match:
    """How settings have calls compared with recordings."""
    return Match({pattern: rule.ignore for pattern, rule in settings.match.items()})


def chained_experience(store: TransitionStore | None, settings: Settings) -> ExperienceModel | None:
    """The dream that repeats what a store holds; else it goes by what was declared, mined and drafted.

    None where there is nothing to go by.

    Raises:
        UserError: the drafts beside the buffer cannot be read.
    """
    stated = stated_models(settings)
    if store is None and not stated:
        return None

    def all_recordings(tenant: str) -> list[Transition]:
        if store is None:
            return []
        with egress.exempt():  # the buffer is the kit's own file
            return list(store.scan(tenant=tenant))

    threshold = settings.simulate.min_confidence
    return ChainedExperience(
        recorded_experience(store, settings), all_recordings, threshold=threshold, stated=stated
    )
