"""What tasks and settings name: loaded and held against the graph before anything runs."""

import inspect
from collections.abc import Iterable, Mapping, Sequence
from fnmatch import fnmatchcase
from typing import Any

from dreamgym_kit.adapters.langgraph.analysis.import_errors import own_frames
from dreamgym_kit.adapters.langgraph.analysis.inspection import GraphInspection
from dreamgym_kit.adapters.langgraph.analysis.loading import load_named
from dreamgym_kit.adapters.langgraph.run.request import RunRequest
from dreamgym_kit.errors import UnknownName, UserError
from dreamgym_kit.findings.detectors import Detectors, detectors_of
from dreamgym_kit.interfaces import Checker, EnvironmentProvider, config_values
from dreamgym_kit.routing.router import writes_are_real
from dreamgym_kit.settings.schema import Settings
from dreamgym_kit.types import Task, error_line

_OF_EPISODE = ("environment", "episode")
_METHODS = {"reset": _OF_EPISODE, "close": ("episode",), "configurable": _OF_EPISODE}
_OPTIONAL = "configurable"
_DEFINE_PROVIDER = (
    "Define async reset(environment, episode) and async close(episode); if the graph needs config values, "
    "also configurable(environment, episode)."
)


def detectors_named(settings: Settings) -> Detectors:
    """The detectors that hold for a run, those of the settings loaded."""

    def load(reference: str, where: str) -> Any:
        return load_named(reference, kind="detector", where=where, folder=settings.folder)

    return detectors_of(settings, load)


def environment_providers(settings: Settings, names: Iterable[str]) -> Mapping[str, EnvironmentProvider]:
    """The worlds of these names that settings describe; others are left as they are.

    Raises:
        UserError: not importable, cannot be made, lacks a method, or has one that takes other arguments.
    """
    environments: dict[str, EnvironmentProvider] = {}
    for name in sorted(set(names) & set(settings.environments)):
        reference, place = settings.environments[name], settings.where("environments", name, "ref")
        kind = load_named(reference, kind="environment provider", where=place, folder=settings.folder)
        where = f"{place}: '{reference}'"
        lacks = [
            f"{method}()"
            for method in _METHODS
            if method != _OPTIONAL and not callable(_attribute(kind, method, place))
        ]
        if lacks and not hasattr(kind, "__getattr__"):  # found now, and not in the first episode
            raise UserError(f"{where} has no {' and no '.join(lacks)}. {_DEFINE_PROVIDER}")
        try:
            environments[name] = kind() if isinstance(kind, type) else kind
        except KeyboardInterrupt:
            raise
        except BaseException as error:  # sys.exit() too: nothing has run, and the command must not end with 0
            frames = "".join(f"\n  {line}" for line in own_frames(error))
            raise UserError(
                f"{where} raised {type(error).__name__} when it was made: {error}{frames}"
            ) from error
        _check_provider(environments[name], where)
    return environments


def _check_provider(environment: EnvironmentProvider, where: str) -> None:
    """Refuse what would fail in every episode: its methods are called with these arguments."""
    for name, given in _METHODS.items():
        if (name != _OPTIONAL or hasattr(environment, name)) and not _takes(
            _attribute(environment, name, where), given
        ):
            raise UserError(
                f"{where}: {name}() cannot be called with ({', '.join(given)}). {_DEFINE_PROVIDER}"
            )
    if inspect.iscoroutinefunction(getattr(environment, _OPTIONAL, None)):
        raise UserError(f"{where}: configurable() is async. {_DEFINE_PROVIDER}")
    isolated = _attribute(environment, "isolated", where)
    if not isinstance(isolated, bool | None):
        raise UserError(f"{where}: `isolated` is {isolated!r:.80}, not True or False")


def configured(environment: EnvironmentProvider, task: Task) -> None:
    """Ask an environment what it configures a dream of a task with.

    Raises:
        UserError: it raises, or gives no mapping.
    """
    try:
        config_values(environment, task.environment, "doctor")
    except KeyboardInterrupt:
        raise
    except BaseException as error:  # also what the guard refuses
        reason = error_line(error)
        raise UserError(f'environment "{task.environment.name}" could not be set up: {reason}') from error


def _attribute(owner: Any, name: str, where: str) -> Any:
    """An attribute or None; what raises anything else than an AttributeError is named.

    Raises:
        UserError: it did.
    """
    try:
        return getattr(owner, name, None)
    except Exception as error:
        raise UserError(f"{where}: reading `{name}` raised {error_line(error)}") from error


def _takes(function: Any, given: Sequence[str]) -> bool:
    """Whether a function can be called with these arguments by place; unknown signatures take all."""
    try:
        inspect.signature(function).bind(*given)
    except TypeError:
        return False
    except ValueError:  # a builtin that tells no signature
        return True
    return True


def checkers_of(settings: Settings, tasks: Sequence[Task]) -> Mapping[str, Checker]:
    """Load every checker that a task names, before anything runs."""
    checkers: dict[str, Checker] = {}
    for task in tasks:
        if not task.checker or task.checker in checkers:
            continue
        name = task.checker
        reference = settings.checkers.get(name, name)
        if ":" not in reference:
            raise UnknownName(
                "checker",
                name,
                known=sorted(settings.checkers),
                source=f"task {task.id!a}",
                where='[checkers] of dreamgym.toml, and no "module:function"',
            )
        declared = name in settings.checkers
        where = settings.where("checkers", name) if declared else f"task {task.id!a}"
        checker: Any = load_named(reference, kind="checker", where=where, folder=settings.folder)
        if not callable(checker):
            type_name = type(checker).__name__
            raise UserError(f"{where}: checker '{reference}' is of type {type_name}, not a function")
        if isinstance(checker, type):
            raise UserError(f"{where}: checker '{reference}' is a class; name an object of it, or a function")
        if not _takes(checker, ("outcome",)):
            raise UserError(f"{where}: checker '{reference}' cannot be called with (outcome)")
        checkers[name] = checker
    return checkers


def check_tasks(
    tasks: Sequence[Task], facts: GraphInspection, settings: Settings, *, must_reset: bool = False
) -> None:
    """Refuse tasks that cannot be run on a graph as they are.

    An expectation about a tool that the graph lacks would fail, or hold, whatever happens. LangGraph drops
    unknown fields of an input silently.

    Raises:
        UserError: an expectation or an input names what the graph does not have; or, with
            `must_reset`, a tool changes an environment that no setting resets.
    """
    specs = facts.specs()
    for task in tasks:
        for tool in (*(task.expect.get("calls") or ()), *(task.expect.get("max") or ())):
            if tool not in specs:
                source = f"task {task.id!a}, expect"
                raise UnknownName("tool", str(tool), known=specs, source=source, where="the graph")
    for task in tasks:
        if facts.state and task.input and not any(name in facts.state for name in task.input):
            source = f"task {task.id!a}, input"
            raise UnknownName(
                "field", next(iter(task.input)), known=facts.state, source=source, where="the graph's state"
            )
    if must_reset:
        _check_resets(tasks, facts, settings)


def check_effects(facts: GraphInspection, settings: Settings) -> None:
    """Refuse real calls of tools with an unconfirmed effect, and setting keys that name no tool.

    Raises:
        UserError: an effect is a guess; or settings limit or auto-approve a tool that the graph does not
            have: a limit for a misspelled name would have no effect.
    """
    tool_names = sorted(facts.specs())
    for key, limits in (("most", settings.s2r.max_calls_per_tool), ("rates", settings.s2r.rate_per_tool)):
        for pattern in limits:
            if not any(fnmatchcase(name, pattern) for name in tool_names):
                where = settings.where("s2r", key, pattern)
                raise UnknownName("tool", pattern, known=tool_names, source=where, where="the graph")
    for name in settings.s2r.auto_approve:
        if name not in tool_names:
            where = settings.where("s2r", "auto_approve")
            raise UnknownName("tool", name, known=tool_names, source=where, where="the graph")
    guessed = sorted(
        spec.name for spec in facts.tools if spec.source == "guessed" and not spec.effect.runs_in_dream
    )
    if guessed:
        raise UserError(
            f"{settings.where('tools')}: what {', '.join(guessed)} can do is a guess, and real calls are let "
            'through by it. Confirm each in dreamgym.toml ([tools.NAME] effect = "read"). Nothing was run.'
        )


def episodes_at_once(
    request: RunRequest, environments: Mapping[str, EnvironmentProvider], names: Iterable[str]
) -> int:
    """How many episodes a run may have at once: where they write to a real system that they share, one.

    Args:
        request: how it runs.
        environments: the providers that settings name, by the name of the environment.
        names: of the environments of all the tasks.

    Raises:
        UserError: the caller asked for several at once, and they share a real system.
    """
    wanted = request.settings.simulate.concurrency
    shared = [name for name in sorted(set(names)) if not getattr(environments.get(name), "isolated", False)]
    if not writes_are_real(request.mode, request.stage) or not shared or wanted == 1:
        return wanted
    if request.overlap:
        raise UserError(
            f"simulate.concurrency or workers.count: the episodes share the environment {shared[0]!a}, and "
            "one would change it under another. Leave it out, or set `isolated = True` in the class of "
            f"[environments.{shared[0]}] if it gives each episode a system of its own. Nothing was run."
        )
    return 1


def _check_resets(tasks: Sequence[Task], facts: GraphInspection, settings: Settings) -> None:
    """Refuse real episodes in worlds that nobody puts back: each would begin where another one ended.

    Raises:
        UserError: a tool of the graph changes the world, and a task's world is not among the settings'.
    """
    changing = sorted(spec.name for spec in facts.tools if spec.effect.changes_environment)
    unset = sorted({task.environment.name for task in tasks} - set(settings.environments))
    if not changing or not unset:
        return
    where = settings.where()
    raise UserError(
        f"{where}: nothing resets the environment {unset[0]!a} between episodes, and {changing[0]!a} changes "
        "it: the next episode would start from what one episode did. Name what resets it "
        f'([environments.{unset[0]}] ref = "module:Class"), or evaluate in the dream. Nothing was run.'
    )
