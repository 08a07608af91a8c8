"""Experience model that only repeats what was seen: no guesses.

A recording answers a call when tool, arguments, world and seed are the same *and* the same
world-changing calls came before it, in the same order. So a read after a write is never answered from
a recording made before that write. A call that another call's body made answers only if the agent itself
never made it in this state, and only if the outer call reads. A call recorded several times in one state is
answered in the recorded order, and the last answer repeats (a poll that ended "done" stays "done"). If
episodes disagree in one state (a world that nobody reset), a read abstains.

A tool that asks a person before it answers asks again, and its answer is looked up by the replies. For a
reply that was not recorded the model abstains, and for any other call of such a tool: no other source may
guess past the question.
"""

import threading
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from operator import attrgetter
from typing import cast

from dreamgym_kit.canonical import canonical
from dreamgym_kit.dream.matching import Match, Placed, nearest, only_differs
from dreamgym_kit.dream.observed import failed, observation
from dreamgym_kit.dream.programs.values import CLOCK
from dreamgym_kit.interfaces import Situation
from dreamgym_kit.serialization import JsonValue, is_exact
from dreamgym_kit.settings.secrets import MASK, secret_arguments, some_secret
from dreamgym_kit.types import Answer, Call, Environment, Source, Transition

Recordings = Callable[[Environment, str], Iterable[Transition]]
"""Gives the transitions recorded in one world for one tenant, in the order recorded."""

_State = tuple[str, str]  # call key, history digest
_ByEpisode = dict[str, list[Transition]]  # by recorded episode: its calls in one state, in order


MAX_CITED = 8
_REPLY = attrgetter("reply")
_LONG = 300  # characters of a reply that nobody recorded


EXACTLY = Match()


class RecordedExperience:
    """Implements `interfaces.ExperienceModel` over recorded transitions; reads a world once, when first met.

    Args:
        recordings: gives them.
        match: which arguments need not equal the recording.
    """

    waits = False

    def __init__(self, recordings: Recordings, match: Match = EXACTLY) -> None:
        self._recordings, self.match = recordings, match
        self._environments: dict[tuple[Environment, str], _WorldRecordings] = {}
        self._lock = threading.Lock()

    async def answer(self, call: Call, situation: Situation) -> Answer:
        """See `ExperienceModel.answer`."""
        if not is_exact([*call.args.values(), *map(_REPLY, call.replies)]):
            return abstention(
                f"an argument of {call.tool} has no JSON form by which a recording could be found"
            )
        place = situation.environment, situation.tenant
        world = self._environments.get(place) or self._read(*place)
        question = _question(call, situation, world) if call.tool in world.asking else None
        if question is not None:
            return question
        by_episode = world.answers.get((call.key, situation.after))
        chosen = _choose(by_episode, world.answers, situation) if by_episode else None
        if chosen is None and (below := world.below.get((call.key, situation.after))):
            chosen = _choose(below, world.below, situation)
        if chosen is None and self.match.ignore:
            chosen = self._alike(call, situation, world)
        if chosen is None and world.some_secret:
            chosen = self._by_some_secret(call, situation, world)
        if chosen is None:
            return self._abstain(call, situation, world)
        if not chosen:
            return abstention(
                "recordings of this call disagree; was the environment reset before each episode?"
            )
        answer = chosen[0].answer
        often = situation.seen >= max(map(len, by_episode.values())) if by_episode else False
        if often and isinstance(answer.content, str) and CLOCK.fullmatch(answer.content):
            return abstention("no recording asked for the time so often in one episode")
        if self.match.ignore:
            answer = self.match.refilled(answer, chosen[0].call, call)
        return Answer(
            content=answer.content,
            artifact=answer.artifact,
            error=answer.error,
            error_type=answer.error_type,
            update=answer.update,
            source=Source.RECORDED,
            confidence=1.0,
            cites=tuple(entry.id for entry in chosen[:MAX_CITED]),
        )

    def _alike(self, call: Call, situation: Situation, world: "_WorldRecordings") -> list[Transition] | None:
        """Choose among recordings that differ only in ignored arguments; None if there are none."""
        key, after = self.match.key(call), self.match.after(situation.history)
        by_episode = world.compared.get((key, after))
        if not by_episode:
            return None
        met = zip(situation.history, self.match.afters(situation.history), strict=True)
        seen = sum(self.match.key(entry.call) == key and state == after for entry, state in met)
        return _choose(by_episode, world.compared, replace(situation, after=after, seen=seen))

    def _by_some_secret(
        self, call: Call, situation: Situation, world: "_WorldRecordings"
    ) -> list[Transition] | None:
        """Choose among recordings whose marks keep no identity: `<masked>` may be any secret."""
        call = _of_some_secret(call)
        history = tuple(replace(entry, call=_of_some_secret(entry.call)) for entry in situation.history)
        situation = replace(situation, history=history, after=EXACTLY.after(history))
        by_episode = world.answers.get((call.key, situation.after))
        if by_episode:
            return _choose(by_episode, world.answers, situation)
        return self._alike(call, situation, world) if self.match.ignore else None

    def _abstain(self, call: Call, situation: Situation, world: "_WorldRecordings") -> Answer:
        recording = nearest(call, situation, world.placed, self.match)
        if call.replies and (recording is None or recording.differs or not recording.elsewhere):
            why = f"{call.tool} was never recorded with the reply {repr(call.replies[-1].reply)[:_LONG]}"
        elif recording is None:
            place = (
                "" if situation.environment == Environment() else f" in environment {situation.environment}"
            )
            why = f"{call.tool} was never recorded{place}"
        elif recording.differs:
            why = only_differs(recording)
        else:
            why = "recorded only after other writes"
        return replace(abstention(why), nearest=recording, final=call.tool in world.asking)

    def _read(self, environment: Environment, tenant: str) -> "_WorldRecordings":
        with self._lock:
            world = self._environments.get((environment, tenant))
            if world is None:
                world = _WorldRecordings(self._recordings(environment, tenant), self.match)
                self._environments[environment, tenant] = world
        return world


class _WorldRecordings:
    """The recordings of one world.

    Attributes:
        answers: by state and episode, the recorded calls in order.
        below: the same for calls that the bodies of reads made.
        compared: `answers` without the arguments that `[match]` ignores; empty if it ignores none.
        asking: tools that ask a person.
        questions: calls of these tools by state and episode; the key leaves out the replies.
        questions_anywhere: the same calls by key alone, whatever the state.
        placed: all recordings, with the states that they met.
        some_secret: whether an argument holds a mark of a secret that keeps no identity.
    """

    def __init__(self, recorded: Iterable[Transition], match: Match) -> None:
        everything = list(recorded)
        made = [entry for entry in everything if entry.answer.source is Source.REAL]
        real = [entry for entry in made if not entry.within]
        after = _afters(everything, match) if match.ignore else {}
        self.answers = _by_state(real, attrgetter("key"), {})
        self.below = _by_state(_below_reads(made), attrgetter("key"), {}) if len(real) < len(made) else {}
        self.compared = _by_state(real, match.key, after) if match.ignore else {}
        self.some_secret = any(MASK in secret_arguments(entry.call.args).values() for entry in real)
        unreplied = [entry for entry in everything if entry.answer.unanswered and not entry.within]
        self.asking = frozenset(entry.call.tool for entry in (*real, *unreplied) if entry.call.replies)
        asking_entries = [entry for entry in (*real, *unreplied) if entry.call.tool in self.asking]
        self.questions = _by_state(asking_entries, _bare_key, {})
        # a call that stops at its question is recorded with the reply, in the state of then, or without any
        self.questions_anywhere: dict[str, _ByEpisode] = {}
        for (bare, _), by_episode in self.questions.items():
            for episode, entries in by_episode.items():
                self.questions_anywhere.setdefault(bare, {}).setdefault(episode, []).extend(entries)
        self.placed = tuple(Placed(entry, _met(entry, after)) for entry in real)


def _below_reads(made: Sequence[Transition]) -> Iterator[Transition]:
    """Calls that other calls made, none of which changes what the agent's later calls meet."""
    by_step = {(entry.episode, entry.step): entry for entry in made}
    for entry in made:
        around: Transition | None = entry
        while around is not None and around.within:
            around = by_step.get((entry.episode, around.within))
            if around is None or around.effect.changes_environment:
                break
        else:
            if entry.within:
                yield entry


def _afters(recorded: Iterable[Transition], match: Match) -> dict[str, str]:
    """Return the state before each recorded call, by the call's id, as `match` compares states."""
    episodes: dict[str, list[Transition]] = defaultdict(list)
    for entry in recorded:
        episodes[entry.episode].append(entry)
    states: dict[str, str] = {}
    for entries in episodes.values():
        entries.sort(key=lambda entry: entry.step)
        states.update(zip((entry.id for entry in entries), match.afters(entries), strict=True))
    return states


def _by_state(
    entries: Iterable[Transition], key: Callable[[Call], str], after: Mapping[str, str]
) -> dict[_State, _ByEpisode]:
    groups: dict[_State, _ByEpisode] = defaultdict(lambda: defaultdict(list))
    for entry in entries:
        groups[key(entry.call), _met(entry, after)][entry.episode].append(entry)
    return {state: dict(group) for state, group in groups.items()}


def _met(entry: Transition, after: Mapping[str, str]) -> str:
    """The state that a call met. An id is made of the whole row: it is asked for only where it is needed."""
    return after.get(entry.id, entry.after) if after else entry.after


def _of_some_secret(call: Call) -> Call:
    return replace(call, args=cast("dict[str, JsonValue]", some_secret(dict(call.args))))


def _bare_key(call: Call) -> str:
    return replace(call, replies=()).key


def _question(call: Call, situation: Situation, world: "_WorldRecordings") -> Answer | None:
    """Return the question that the tool asks a person next, after these replies; None if it answers.

    If only some episodes have a question, those of the situation's own task decide; without any, the tool
    asks.
    """
    bare = _bare_key(call)
    by_episode = world.questions.get((bare, situation.after)) or world.questions_anywhere.get(bare, {})
    before = sum(
        entry.call.tool == call.tool and entry.after == situation.after and _bare_key(entry.call) == bare
        for entry in situation.history
    )
    given = _replies(call)
    current = [
        entry for entry in (_at(by_episode, before) if by_episode else []) if _begins(entry.call, given)
    ]
    anywhere = [entry for entries in by_episode.values() for entry in entries if _begins(entry.call, given)]
    current = current or anywhere
    current = [entry for entry in current if entry.task == situation.task] or current
    asking = [entry for entry in current if len(entry.call.replies) > len(given)]
    if not asking:
        return None
    question = asking[0].call.replies[len(given)].asked
    return Answer(source=Source.RECORDED, cites=(asking[0].id,), asks=(question,))


def _replies(call: Call) -> list[str]:
    return [canonical(reply.reply) for reply in call.replies]


def _begins(call: Call, given: list[str]) -> bool:
    return _replies(call)[: len(given)] == given


def _choose(
    by_episode: _ByEpisode, by_state: dict[_State, _ByEpisode], situation: Situation
) -> list[Transition]:
    """Return the recordings that agree on the answer, best first; an empty list if they disagree.

    If episodes disagree, the dream uses those that answered it so far, else those of its own task. If these
    disagree, too, a read has no answer; a write takes the first, since what it makes up (an id) is new each
    time, unless only some succeeded.
    """
    current = _at(by_episode, situation.seen)
    if _agree(current):
        return current
    current = _followed(current, by_state, situation) or current
    if not _agree(current):
        current = [entry for entry in current if entry.task == situation.task] or current
    if _agree(current):
        return current
    went_well = len({failed(observation(entry.answer)) for entry in current}) == 1
    return current[:1] if current[0].effect.changes_environment and went_well else []


def _at(by_episode: _ByEpisode, seen: int) -> list[Transition]:
    """Return each episode's next call in this state; if none called so often, the last call repeats."""
    most = max(map(len, by_episode.values()))
    turn = min(seen, most - 1)
    return [entries[turn] for entries in by_episode.values() if len(entries) > turn]


def _agree(entries: list[Transition]) -> bool:
    first = entries[0].answer
    for entry in entries[1:]:
        other = entry.answer
        if (other.content, other.error, other.update) != (first.content, first.error, first.update):
            return False
    return True


def _followed(
    entries: list[Transition], by_state: dict[_State, _ByEpisode], situation: Situation
) -> list[Transition]:
    """Return the entries of the episodes that answered this dream most often so far."""
    cited = {cite for earlier in situation.history for cite in earlier.answer.cites}
    if not cited:
        return []
    answered: Counter[str] = Counter()
    for by_episode in by_state.values():
        for episode, recorded in by_episode.items():
            answered[episode] += sum(entry.id in cited for entry in recorded)
    most = max(answered[entry.episode] for entry in entries)
    return [entry for entry in entries if most and answered[entry.episode] == most]


def abstention(why: str) -> Answer:
    """The answer of a model that cannot tell; says why."""
    return Answer(source=Source.UNANSWERED, confidence=0.0, why=why)
