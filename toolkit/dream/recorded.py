"""Experience model that only repeats what was seen: no guesses.

A recording answers a call when tool, arguments, world and seed are the same *and* the same
world-changing calls came before it, in the same order. So a read after a write is never answered from
a recording made before that write. What the body of a call called answers only where the agent itself was
never told, and only if that call reads. A call recorded several times in that very state is answered in the
order seen, and the last answer repeats (a poll that ended "done" stays "done"). Where episodes were told
different things in one state (a world that nobody reset), a read abstains.

A tool that asked a person before it answered asks again, and its answer is looked up by the replies. A reply
that was not recorded is an abstention, and so is any other call of such a tool: no other source may guess
past the question.
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
_Told = dict[str, list[Transition]]  # by recorded episode: what it was told in one state, in order


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
        self._environments: dict[tuple[Environment, str], _Known] = {}
        self._lock = threading.Lock()

    async def answer(self, call: Call, situation: Situation) -> Answer:
        """See `ExperienceModel.answer`."""
        if not is_exact([*call.args.values(), *map(_REPLY, call.replies)]):
            return abstention(
                f"an argument of {call.tool} has no JSON form by which a recording could be found"
            )
        place = situation.environment, situation.tenant
        known = self._environments.get(place) or self._read(*place)
        question = _question(call, situation, known) if call.tool in known.asking else None
        if question is not None:
            return question
        told = known.told.get((call.key, situation.after))
        chosen = _choose(told, known.told, situation) if told else None
        if chosen is None and (below := known.below.get((call.key, situation.after))):
            chosen = _choose(below, known.below, situation)
        if chosen is None and self.match.ignore:
            chosen = self._alike(call, situation, known)
        if chosen is None and known.some_secret:
            chosen = self._by_some_secret(call, situation, known)
        if chosen is None:
            return self._abstain(call, situation, known)
        if not chosen:
            return abstention(
                "recordings of this call disagree; was the environment reset before each episode?"
            )
        answer = chosen[0].answer
        often = situation.seen >= max(map(len, told.values())) if told else False
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

    def _alike(self, call: Call, situation: Situation, known: "_Known") -> list[Transition] | None:
        """As `_choose`, of recordings that differ only in ignored arguments; None where there are none."""
        key, after = self.match.key(call), self.match.after(situation.history)
        told = known.compared.get((key, after))
        if not told:
            return None
        met = zip(situation.history, self.match.afters(situation.history), strict=True)
        seen = sum(self.match.key(one.call) == key and state == after for one, state in met)
        return _choose(told, known.compared, replace(situation, after=after, seen=seen))

    def _by_some_secret(self, call: Call, situation: Situation, known: "_Known") -> list[Transition] | None:
        """As `_choose`, of recordings from before marks kept identity: `<masked>` may be any secret."""
        call = _of_some_secret(call)
        history = tuple(replace(one, call=_of_some_secret(one.call)) for one in situation.history)
        situation = replace(situation, history=history, after=EXACTLY.after(history))
        told = known.told.get((call.key, situation.after))
        if told:
            return _choose(told, known.told, situation)
        return self._alike(call, situation, known) if self.match.ignore else None

    def _abstain(self, call: Call, situation: Situation, known: "_Known") -> Answer:
        found = nearest(call, situation, known.placed, self.match)
        if call.replies and (found is None or found.differs or not found.elsewhere):
            why = f"{call.tool} was never recorded with the reply {repr(call.replies[-1].reply)[:_LONG]}"
        elif found is None:
            place = (
                "" if situation.environment == Environment() else f" in environment {situation.environment}"
            )
            why = f"{call.tool} was never recorded{place}"
        elif found.differs:
            why = only_differs(found)
        else:
            why = "recorded only after other writes"
        return replace(abstention(why), nearest=found, final=call.tool in known.asking)

    def _read(self, environment: Environment, tenant: str) -> "_Known":
        with self._lock:
            known = self._environments.get((environment, tenant))
            if known is None:
                known = _Known(self._recordings(environment, tenant), self.match)
                self._environments[environment, tenant] = known
        return known


class _Known:
    """The recordings of one world.

    Attributes:
        told: by state, what each episode was told.
        below: the same of calls that the bodies of reads made.
        compared: the same without the arguments that `[match]` ignores; empty where it ignores none.
        asking: tools that asked a person.
        asked: of these, by the key of the call without replies; `asked_anywhere`: in whatever state.
        placed: all, with the states that they met.
        some_secret: whether marks of secrets stand in it that keep no identity.
    """

    def __init__(self, recorded: Iterable[Transition], match: Match) -> None:
        everything = list(recorded)
        made = [entry for entry in everything if entry.answer.source is Source.REAL]
        real = [entry for entry in made if not entry.within]
        after = _afters(everything, match) if match.ignore else {}
        self.told = _by_state(real, attrgetter("key"), {})
        self.below = _by_state(_below_reads(made), attrgetter("key"), {}) if len(real) < len(made) else {}
        self.compared = _by_state(real, match.key, after) if match.ignore else {}
        self.some_secret = any(MASK in secret_arguments(entry.call.args).values() for entry in real)
        unreplied = [entry for entry in everything if entry.answer.unanswered and not entry.within]
        self.asking = frozenset(entry.call.tool for entry in (*real, *unreplied) if entry.call.replies)
        asked = [entry for entry in (*real, *unreplied) if entry.call.tool in self.asking]
        self.asked = _by_state(asked, _bare_key, {})
        # a call that stops at its question is recorded with the reply, in the state of then, or without any
        self.asked_anywhere: dict[str, _Told] = {}
        for (bare, _), told in self.asked.items():
            for episode, entries in told.items():
                self.asked_anywhere.setdefault(bare, {}).setdefault(episode, []).extend(entries)
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
    """The states that recorded calls met, by their ids, as `match` compares them."""
    episodes: dict[str, list[Transition]] = defaultdict(list)
    for entry in recorded:
        episodes[entry.episode].append(entry)
    found: dict[str, str] = {}
    for entries in episodes.values():
        entries.sort(key=lambda entry: entry.step)
        found.update(zip((entry.id for entry in entries), match.afters(entries), strict=True))
    return found


def _by_state(
    entries: Iterable[Transition], key: Callable[[Call], str], after: Mapping[str, str]
) -> dict[_State, _Told]:
    groups: dict[_State, _Told] = defaultdict(lambda: defaultdict(list))
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


def _question(call: Call, situation: Situation, known: "_Known") -> Answer | None:
    """What the tool asked a person next, the replies so far being the same; None where it answered.

    Where some episodes were asked and others were not, those of the situation's own task decide; else the
    person is asked.
    """
    bare = _bare_key(call)
    told = known.asked.get((bare, situation.after)) or known.asked_anywhere.get(bare, {})
    before = sum(
        one.call.tool == call.tool and one.after == situation.after and _bare_key(one.call) == bare
        for one in situation.history
    )
    given = _replies(call)
    current = [entry for entry in (_at(told, before) if told else []) if _begins(entry.call, given)]
    anywhere = [entry for entries in told.values() for entry in entries if _begins(entry.call, given)]
    current = current or anywhere
    current = [entry for entry in current if entry.task == situation.task] or current
    asked = [entry for entry in current if len(entry.call.replies) > len(given)]
    if not asked:
        return None
    question = asked[0].call.replies[len(given)].asked
    return Answer(source=Source.RECORDED, cites=(asked[0].id,), asks=(question,))


def _replies(call: Call) -> list[str]:
    return [canonical(reply.reply) for reply in call.replies]


def _begins(call: Call, given: list[str]) -> bool:
    return _replies(call)[: len(given)] == given


def _choose(told: _Told, known: dict[_State, _Told], situation: Situation) -> list[Transition]:
    """The recordings that agree on the answer, best first; none where they disagree.

    Where episodes were told different things, this dream goes on with those that it was answered from
    so far, else with those of its own task. What still differs then cannot be known for a read; of a
    write any one will do, since what it makes up (an id) is new each time, unless only some went well.
    """
    current = _at(told, situation.seen)
    if _agree(current):
        return current
    current = _followed(current, known, situation) or current
    if not _agree(current):
        current = [entry for entry in current if entry.task == situation.task] or current
    if _agree(current):
        return current
    went_well = len({failed(observation(entry.answer)) for entry in current}) == 1
    return current[:1] if current[0].effect.changes_environment and went_well else []


def _at(told: _Told, seen: int) -> list[Transition]:
    """What each episode was told the next time; where none asked so often, the last answer repeats."""
    most = max(map(len, told.values()))
    turn = min(seen, most - 1)
    return [entries[turn] for entries in told.values() if len(entries) > turn]


def _agree(entries: list[Transition]) -> bool:
    first = entries[0].answer
    for entry in entries[1:]:
        other = entry.answer
        if (other.content, other.error, other.update) != (first.content, first.error, first.update):
            return False
    return True


def _followed(
    entries: list[Transition], known: dict[_State, _Told], situation: Situation
) -> list[Transition]:
    """Those of the episodes that answered this dream most often so far."""
    cited = {cite for earlier in situation.history for cite in earlier.answer.cites}
    if not cited:
        return []
    answered: Counter[str] = Counter()
    for told in known.values():
        for episode, recorded in told.items():
            answered[episode] += sum(entry.id in cited for entry in recorded)
    most = max(answered[entry.episode] for entry in entries)
    return [entry for entry in entries if most and answered[entry.episode] == most]


def abstention(why: str) -> Answer:
    """The answer of a model that cannot tell; says why."""
    return Answer(source=Source.UNANSWERED, confidence=0.0, why=why)
