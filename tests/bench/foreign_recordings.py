"""Worlds of tool APIs that nobody here wrote: the stateful classes of BFCL's multi-turn suite, where it lies.

Nothing of the suite is in this repository. `DREAMGYM_BFCL` names a checkout's folder
`berkeley-function-call-leaderboard`; else the installed package `bfcl_eval` is taken. A world is one
initial state of one class, its task the suite's own list of calls. Recorded is what anybody could record:
that task, noisy runs of it, random walks, and a crawl of reads. Which tools write is found by looking at the
object before and after all calls, as `init` and a person would declare it.
"""

import ast
import importlib
import inspect
import json
import os
import random
import sys
from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from copy import deepcopy
from dataclasses import dataclass, field
from importlib.util import find_spec
from pathlib import Path

from dreamgym_kit.canonical import digest
from dreamgym_kit.serialization import JsonValue
from dreamgym_kit.types import Answer, Call, Effect, Environment, Transition

CLASSES = {
    "GorillaFileSystem": "gorilla_file_system",
    "MessageAPI": "message_api",
    "TicketAPI": "ticket_api",
    "TradingBot": "trading_bot",
    "TravelAPI": "travel_booking",
    "TwitterAPI": "posting_api",
    "VehicleControlAPI": "vehicle_control",
}
WHERE = "DREAMGYM_BFCL"
_SUITE = "bfcl_eval"
_CODE = "eval_checker.multi_turn_eval.func_source_code"
_TASKS = "BFCL_v4_multi_turn_base.json"
_EDGES: Mapping[type, Sequence[JsonValue]] = {
    str: ("", "zz"),
    int: (0, -1, 99999),
    float: (0.0, -1.0, 1e6),
    bool: (True, False),
    list: ([],),
}

Said = tuple[str, dict[str, JsonValue]]  # tool, arguments


class Absent(Exception):
    """The suite is not on this machine; the text says where it was looked for. See `run`."""

    skips = True


@dataclass(frozen=True)
class Place:
    """One world: the state that a class starts with, and its task."""

    api: str
    number: int
    config: Mapping[str, JsonValue]
    task: tuple[Said, ...]


@dataclass(frozen=True)
class Api:
    """One class of the suite."""

    name: str
    make: Callable[[], object]
    tools: Mapping[str, Mapping[str, object]]  # by tool, its arguments' defaults (REQUIRED for none)
    places: tuple[Place, ...]


REQUIRED = object()


@dataclass
class Worked:
    """One recorded episode, before it is known which of its tools write."""

    id: str
    place: Place
    calls: list[tuple[str, dict[str, JsonValue], Answer, bool]] = field(default_factory=list)


def apis() -> list[Api]:
    """The suite's stateful classes.

    Raises:
        Absent: it is not on this machine.
    """
    folder = _folder()
    asked = _lines(folder / "data" / _TASKS)
    solved = {one["id"]: one["ground_truth"] for one in _lines(folder / "data" / "possible_answer" / _TASKS)}
    return [_api(name, module, asked, solved) for name, module in CLASSES.items()]


def _folder() -> Path:
    named = os.environ.get(WHERE)
    if named:
        folder = Path(named) / _SUITE
        if not (folder / "data" / _TASKS).is_file():
            raise Absent(f"{WHERE}={named} holds no {_SUITE}/data/{_TASKS}")
        sys.path.insert(0, named)
        return folder
    spec = find_spec(_SUITE)
    if spec is None or not spec.submodule_search_locations:
        raise Absent(f"{WHERE} names no checkout of BFCL, and the package {_SUITE} is not installed")
    return Path(next(iter(spec.submodule_search_locations)))


def _lines(path: Path) -> list[dict[str, JsonValue]]:
    return [json.loads(line) for line in path.read_text("utf-8").splitlines() if line.strip()]


def _api(
    name: str,
    module: str,
    asked: Sequence[Mapping[str, JsonValue]],
    solved: Mapping[str, Sequence[Sequence[str]]],
) -> Api:
    make = getattr(importlib.import_module(f"{_SUITE}.{_CODE}.{module}"), name)
    tools = {
        tool: {
            key: REQUIRED if one.default is inspect.Parameter.empty else deepcopy(one.default)
            for key, one in inspect.signature(method).parameters.items()
            if key != "self"
        }
        for tool, method in inspect.getmembers(make, inspect.isfunction)
        if not tool.startswith("_")
    }
    places: dict[str, Place] = {}
    for one in asked:
        config = one["initial_config"].get(name)
        if name not in one["involved_classes"] or config is None:
            continue
        task = tuple(
            said for turn in solved[one["id"]] for text in turn if (said := _parsed(text, tools)) is not None
        )
        key = digest(config)
        if task and (key not in places or len(task) > len(places[key].task)):
            places[key] = Place(name, len(places), config, task)
    return Api(name, make, tools, tuple(places.values()))


def _parsed(text: str, tools: Mapping[str, Mapping[str, object]]) -> Said | None:
    call = ast.parse(text, mode="eval").body
    if not isinstance(call, ast.Call) or not isinstance(call.func, ast.Name) or call.func.id not in tools:
        return None
    names = list(tools[call.func.id])
    args = {names[place]: ast.literal_eval(value) for place, value in enumerate(call.args)}
    args.update({str(one.arg): ast.literal_eval(one.value) for one in call.keywords})
    return call.func.id, args


class Recorder:
    """Works one world and writes down what it said, with whether the object was another afterwards."""

    def __init__(self, api: Api, place: Place, episode: str) -> None:
        self._api, self.worked = api, Worked(episode, place)
        self._object = api.make()
        self._object._load_scenario(deepcopy(dict(place.config)))  # type: ignore[attr-defined]

    def do(self, tool: str, args: Mapping[str, JsonValue]) -> Answer:
        """Call a tool; what is not given gets its default, said aloud and never shared."""
        given = {key: deepcopy(one) for key, one in self._api.tools[tool].items() if one is not REQUIRED}
        given.update(deepcopy(dict(args)))
        before = _state(self._object)
        try:
            answer = Answer(content=_plain(getattr(self._object, tool)(**deepcopy(given))))
        except Exception as error:  # the tool is a stranger's: whatever it throws is its answer
            answer = Answer(error=str(error), error_type=type(error).__name__)
        self.worked.calls.append((tool, given, answer, before != _state(self._object)))
        return answer


def _state(value: object) -> str:
    kept = {key: one for key, one in vars(value).items() if key not in ("_random", "_api_description")}
    return json.dumps(kept, default=_parts)


def _parts(value: object) -> object:
    known = getattr(value, "__dict__", None)
    # a file knows its directory: going up again would never end
    return {key: one for key, one in known.items() if key != "parent"} if known is not None else str(value)


def _plain(value: object) -> JsonValue:
    plain: JsonValue = json.loads(json.dumps(value, default=str))
    return plain


class Values:
    """What a caller may give: values by argument name from this world, foreign ones, and edges."""

    def __init__(self, api: Api, place: Place, *, own_task: bool) -> None:
        self._own: dict[str, list[JsonValue]] = defaultdict(list)
        self._foreign: dict[str, list[JsonValue]] = defaultdict(list)
        for other in api.places:
            mine = other.number == place.number
            if mine and not own_task:
                continue
            for _, args in other.task:
                for key, value in args.items():
                    (self._own if mine else self._foreign)[key].append(value)
        self.seen: list[JsonValue] = [
            one for one in _scalars(place.config) if isinstance(one, (str, int)) and len(str(one)) < 40
        ]

    def pick(self, drawn: random.Random, name: str, default: object) -> JsonValue:
        """A value for an argument."""
        kind = {type(one) for one in [*self._own[name], *self._foreign[name]]}
        if default is not REQUIRED and drawn.random() < 0.5:
            return deepcopy(default)
        chance = drawn.random()
        fitting = [one for one in self.seen if type(one) in kind] or self.seen
        if self._own[name] and chance < 0.4:
            return deepcopy(drawn.choice(self._own[name]))
        if fitting and chance < 0.7:
            return drawn.choice(fitting)
        if self._foreign[name] and chance < 0.9:
            return deepcopy(drawn.choice(self._foreign[name]))
        return deepcopy(drawn.choice(_EDGES.get(next(iter(kind), str), _EDGES[str])))


def _scalars(value: object) -> Iterator[JsonValue]:
    if isinstance(value, Mapping):
        for key, item in value.items():
            yield str(key)
            yield from _scalars(item)
    elif isinstance(value, (list, tuple)):
        for item in value:
            yield from _scalars(item)
    else:
        yield value


def solution(api: Api, place: Place) -> Worked:
    """The task as the suite solves it."""
    recorder = Recorder(api, place, f"{place.api}-{place.number}-solution")
    for tool, args in place.task:
        recorder.do(tool, args)
    return recorder.worked


def noisy(api: Api, place: Place, number: int) -> Worked:
    """The task with calls left out, repeated, given a wrong value, and others put between."""
    recorder = Recorder(api, place, f"{place.api}-{place.number}-noisy-{number}")
    drawn = random.Random(f"noisy {place.api} {place.number} {number}")
    values = Values(api, place, own_task=True)
    for tool, args in place.task:
        chance = drawn.random()
        if chance < 0.1:
            continue
        if chance < 0.3:
            _random_call(recorder, api, values, drawn)
        if chance > 0.85 and args:
            name = drawn.choice(list(args))
            recorder.do(tool, {**args, name: values.pick(drawn, name, REQUIRED)})
        recorder.do(tool, args)
        if 0.6 < chance < 0.7:
            recorder.do(tool, args)
    return recorder.worked


def walk(api: Api, place: Place, number: int) -> Worked:
    """8 to 16 random calls; never the task's own arguments."""
    recorder = Recorder(api, place, f"{place.api}-{place.number}-walk-{number}")
    drawn = random.Random(f"walk {place.api} {place.number} {number}")
    values = Values(api, place, own_task=False)
    for _ in range(drawn.randint(8, 16)):
        _random_call(recorder, api, values, drawn)
    return recorder.worked


def crawl(api: Api, place: Place, writes: frozenset[str], most: int = 60) -> Worked:
    """Reads only: those without arguments, then those of one argument with what was found."""
    recorder = Recorder(api, place, f"{place.api}-{place.number}-crawl")
    found: list[JsonValue] = []
    reads = [tool for tool in api.tools if tool not in writes]
    for tool in reads:
        if all(default is not REQUIRED for default in api.tools[tool].values()):
            found += [one for one in _scalars(recorder.do(tool, {}).content) if isinstance(one, (str, int))]
    for tool in reads:
        needed = [name for name, default in api.tools[tool].items() if default is REQUIRED]
        if len(needed) == 1:
            for value in list(dict.fromkeys(found))[:12]:
                if len(recorder.worked.calls) < most:
                    recorder.do(tool, {needed[0]: value})
    return recorder.worked


def _random_call(recorder: Recorder, api: Api, values: Values, drawn: random.Random) -> None:
    tool = drawn.choice(sorted(api.tools))
    args = {name: values.pick(drawn, name, default) for name, default in api.tools[tool].items()}
    answer = recorder.do(tool, args)
    values.seen += [one for one in _scalars(answer.content) if isinstance(one, int) and one > 9]


def writing(worked: Sequence[Worked]) -> frozenset[str]:
    """The tools that ever left their object another than it was."""
    return frozenset(tool for one in worked for tool, _, _, changed in one.calls if changed)


def rows(worked: Sequence[Worked], writes: frozenset[str]) -> list[Transition]:
    """The episodes as they are stored."""
    return [
        Transition(
            Call(tool, args),
            answer,
            Effect.WRITE if tool in writes else Effect.READ,
            one.id,
            step,
            Environment(one.place.api, one.place.number),
        )
        for one in worked
        for step, (tool, args, answer, _) in enumerate(one.calls, 1)
    ]
