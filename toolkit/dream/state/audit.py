"""From recordings to knowledge: mine, then hold worlds out to learn how far support can be believed."""

import itertools
from collections.abc import Mapping, Sequence

from dreamgym_kit.dream.calibration import Calibrator, Trial, calibrate
from dreamgym_kit.dream.state.dreaming import Knowledge, replay, trials
from dreamgym_kit.dream.state.history import RecordedEpisode
from dreamgym_kit.dream.state.mining import Miner, pooled, renamed
from dreamgym_kit.dream.state.models import ToolModels
from dreamgym_kit.dream.state.stated import StatedModel
from dreamgym_kit.dream.state.worlds import start

_HELD_OUT = 4  # one world of so many
_MIN_WORLDS = 4
_TURNS = 3  # one episode of so many is known when the others are replayed, each in its turn
_MAX_TRANSITIONS = 4_000  # that the held-out models are mined from: they are thrown away
_MAX_TRIED = 3_000  # calls of held-out worlds that are replayed


def learn(
    episodes: Sequence[RecordedEpisode],
    *,
    stated: Mapping[str, StatedModel] | None = None,
    calibrated: bool = True,
) -> Knowledge:
    """Mine tool models from recordings, pool their worlds, and calibrate the support.

    `stated` is what a person declared or a model drafted of tools; see `stated`.
    """
    return Learner(stated).learn(episodes, calibrated=calibrated)


class Learner:
    """Learns, and learns again when there are more recordings: what did not change is not mined again."""

    def __init__(self, stated: Mapping[str, StatedModel] | None = None) -> None:
        self._all, self._others = Miner(stated), Miner(stated)

    def learn(self, episodes: Sequence[RecordedEpisode], *, calibrated: bool = True) -> Knowledge:
        """What is known by these recordings; as if they were met for the first time."""
        models = self._all.mine(episodes)
        pool = pooled([renamed(episode, models) for episode in episodes], models)
        tried = self._tried(episodes) if calibrated else []
        calibration = calibrate([trial for one in tried for trial in one]) if tried else Calibrator()
        return Knowledge(models, pool, calibration)

    def _tried(self, episodes: Sequence[RecordedEpisode]) -> list[Sequence[Trial]]:
        """Replay episodes of worlds that the models were not mined from.

        What only read there, as a crawl does, is known beforehand, and a third of the rest; the others are
        replayed, once from there and once as in a world that nobody has seen.
        """
        worlds = list(dict.fromkeys(episode.world for episode in episodes))  # more of them move none
        if len(worlds) < _MIN_WORLDS:
            return []
        held = set(worlds[::_HELD_OUT])
        models = self._others.mine(
            _some([episode for episode in episodes if episode.world not in held], _MAX_TRANSITIONS)
        )
        tried = _some([episode for episode in episodes if episode.world in held], _MAX_TRIED)
        return _tried(models, tried)


def _tried(models: ToolModels, episodes: Sequence[RecordedEpisode]) -> list[Sequence[Trial]]:
    in_symbols = [renamed(episode, models) for episode in episodes]
    nothing = Knowledge(models, pooled([], models))
    found: list[Sequence[Trial]] = []
    for turn, third in itertools.product(range(_TURNS), (True, False)):
        known = [
            symbol for number, symbol in enumerate(in_symbols) if _is_known(number, symbol, turn, third=third)
        ]
        knowledge = Knowledge(models, pooled(known, models))
        for number, episode in enumerate(in_symbols):
            if not _is_known(number, episode, turn, third=third):
                for source in (knowledge, nothing) if third and not turn else (knowledge,):
                    state = start(source.pool, models, episode.world)
                    found.append(trials(episode, replay(source, state, episode, guesses=False)))
    return found


def _is_known(number: int, episode: RecordedEpisode, turn: int, *, third: bool) -> bool:
    """Whether it is known beforehand: a third of the episodes, or all but a third, and what only read."""
    return (number % _TURNS == turn) == third or not any(step.writes for step in episode.steps)


def _some(episodes: Sequence[RecordedEpisode], most: int) -> list[RecordedEpisode]:
    kept, count = [], 0
    for episode in episodes:
        if count > most:
            break
        kept.append(episode)
        count += len(episode.steps)
    return kept
