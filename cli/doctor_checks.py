"""Checks of `doctor` that need no graph: packages, recordings, models, workers, servers."""

import os
import platform
from collections.abc import Callable, Iterator
from contextlib import ExitStack, closing
from functools import partial
from typing import TYPE_CHECKING, NamedTuple

from dreamgym_kit.errors import EndpointError, StoreError, UserError, has_extra
from dreamgym_kit.report.percent import format_count, format_some

if TYPE_CHECKING:
    from collections.abc import Sequence

    from dreamgym_kit.adapters.langgraph.analysis.inspection import GraphInspection
    from dreamgym_kit.adapters.models.vllm.looking import OpenRoute
    from dreamgym_kit.interfaces import TransitionStore
    from dreamgym_kit.settings.schema import Settings
    from dreamgym_kit.types import Environment

_EXTRAS = {"demo": "demo", "ray": 'workers.backend = "ray"'}
_CAN = {
    "tells": "tells what it does",
    "works": "works for anybody",
    "changes": "lets anybody change weights or caches",
}
MAX_NAMED = 6
_REMEDY = "serve it by dreamgym-kit serve, or put a proxy with an allow-list before it"
Step = tuple[str, str, str]  # word, command to paste, what it does


class Check(NamedTuple):
    """One line: how it stands, with what, and what to do."""

    level: str  # ok, fix, stop, -
    name: str
    text: str
    remedy: str = ""
    step: Step | None = None  # what to type about it


def caught(name: str, check: "Callable[[], Check]") -> Check:
    """Make a check; what a person can mend stops a dry run."""
    try:
        return check()
    except (EndpointError, StoreError, UserError) as error:
        return Check("stop", name, str(error))


def versions() -> Check:
    """Which packages there are."""
    from importlib.metadata import PackageNotFoundError, version

    packages = [f"Python {platform.python_version()}"]
    for package in ("dreamgym-kit", "langgraph", "langchain-core"):
        try:
            packages.append(f"{package} {version(package)}")
        except PackageNotFoundError:
            return Check("stop", "packages", f"{package} is not installed", f"pip install {package}")
    return Check("ok", "packages", ", ".join(packages))


def recordings(settings: "Settings", command: str, facts: "GraphInspection | None") -> Check:
    """Whether the buffer opens; none at all is an error where no rule and no model could answer instead."""
    from dreamgym_kit.adapters.stores.factory import open_store
    from dreamgym_kit.dream.programs.rules_files import read_rules
    from dreamgym_kit.settings.buffer_url import buffer_of, is_missing
    from dreamgym_kit.settings.load import rules_folder

    place = buffer_of(settings)
    rules = read_rules(rules_folder(settings))
    if not is_missing(place):
        with closing(open_store(place, settings)) as store:
            count, missing = store.count(), _not_recorded(store, settings)
        text = f"{format_count(count, 'call')} in {place}"
        if count and not missing:
            return Check("ok", "recordings", text)
        if count:
            environments = ", ".join(map(str, missing[:MAX_NAMED]))
            text += (
                f"; tasks use environment {environments}, which has no recordings (tenant {settings.tenant})"
            )
            return Check("fix", "recordings", text, command)
    step = ("Record", command, "real calls for dreams to answer from; it asks before")
    asks = facts is None or any(not spec.effect.runs_in_dream for spec in facts.tools)
    if not asks or rules or settings.experience.urls or settings.experience.dir is not None:
        return Check("fix", "recordings", f"none yet ({place})", command, step)
    reason = f"none yet ({place}); no tool call would be answered: simulate would be INCONCLUSIVE"
    return Check("stop", "recordings", reason, command, step)


def buffer_server(settings: "Settings") -> Iterator[Check]:
    """Check that a run can use the buffer's server: write, read and remove one row."""
    from dreamgym_kit.adapters.stores.factory import open_store
    from dreamgym_kit.settings.buffer_url import Address, buffer_of

    place = buffer_of(settings)
    if not isinstance(place, Address) or place.scheme == "weaviate+embedded":
        return
    try:
        open_store(place, settings).close()  # makes nothing
    except StoreError:
        return  # the check "recordings" covers these
    from dreamgym_kit.adapters.stores.weaviate_check import check_server

    try:
        with closing(open_store(place, settings, read_only=False)) as store:
            yield Check("ok", "buffer server", check_server(store))
    except StoreError as error:
        yield Check("fix", "buffer server", f"record could not write there: {error}")


def masking(settings: "Settings", facts: "GraphInspection | None") -> Iterator[Check]:
    """Check secrets: list masked variables and tool arguments, and count recordings stored unmasked."""
    from dreamgym_kit.adapters.stores.factory import MOST_CHECKED, open_store, salt_of, to_mask
    from dreamgym_kit.replay.masking import process_masker, secret_variables
    from dreamgym_kit.settings.buffer_url import buffer_of, is_missing
    from dreamgym_kit.settings.secrets import NAMED, OWN, names_secret

    variables = sorted(secret_variables(os.environ, NAMED))
    arguments = [
        f"{spec.name}.{name}"
        for spec in (facts.tools if facts is not None else ())
        for name in dict(spec.args_schema).get("properties", spec.args_schema) or ()
        if isinstance(name, str) and (names_secret(name) or name in OWN[-1].fields)
    ]
    listed = [format_some(names, MAX_NAMED) or "none" for names in (variables, arguments)]
    text = f"variables {listed[0]}; arguments {listed[1]}"
    yield Check("ok", "secrets", f"masked: {text} ([secrets] adds more)")
    place = buffer_of(settings)
    if is_missing(place):
        return
    with closing(open_store(place, settings)) as store:
        if store.count() > MOST_CHECKED:
            return
        masker = process_masker(settings.experience.key_env, salt=salt_of(store, settings))
        count = len(to_mask(store, masker))
    if count:
        text = f"{format_count(count, 'recording')} in {place}: today's rules would mask something in them"
        yield Check("fix", "secrets", text, "dreamgym-kit buffer scrub")


def _not_recorded(store: "TransitionStore", settings: "Settings") -> "list[Environment]":
    """The worlds of tasks in which nothing was recorded."""
    from dreamgym_kit.rollout.tasks import read_tasks

    try:
        tasks = read_tasks(settings.resolve(settings.tasks)) if settings.tasks is not None else []
    except UserError:  # another line says so
        return []
    environments = dict.fromkeys(task.environment for task in tasks)
    return [
        environment
        for environment in environments
        if next(iter(store.scan(tenant=settings.tenant, environment=environment)), None) is None
    ]


def experience_models(settings: "Settings") -> Iterator[Check]:
    """Whether the models that settings name for the dream answer, and their files can be used."""
    from dreamgym_kit.adapters.models.named_models import learned_directory

    experience, learned = settings.experience, learned_directory(settings)
    if experience.named and (learned is None or experience.model is not None):
        yield caught("experience", partial(_endpoint, settings))
    if learned is not None:
        yield caught("experience", partial(_learned, settings))


def _endpoint(settings: "Settings") -> Check:
    import asyncio

    from dreamgym_kit.adapters.langgraph.run.experiences import experience_endpoint
    from dreamgym_kit.adapters.models.named_models import gate_of_settings
    from dreamgym_kit.rollout.budgets import RunBudget

    async def ask() -> None:
        async with experience_endpoint(settings, RunBudget(None, None), dreams=True):
            pass

    asyncio.run(ask())
    tried = gate_of_settings(settings) is not None
    where = ", ".join(settings.experience.urls) or "this process"
    text = f"{settings.experience.model or settings.experience.dir} answers ({where})"
    return Check("ok", "experience", text + ("" if tried else "; not tried on held-out recordings"))


def _learned(settings: "Settings") -> Check:
    from dreamgym_kit.adapters.langgraph.run.experiences import chained_experience, with_decisions
    from dreamgym_kit.adapters.stores.factory import open_store
    from dreamgym_kit.settings.buffer_url import buffer_of, is_missing

    place = buffer_of(settings)
    with ExitStack() as stack:
        store = None if is_missing(place) else stack.enter_context(closing(open_store(place, settings)))
        stack.enter_context(with_decisions(chained_experience(store, settings), settings))
        return Check("ok", "experience", f"{settings.experience.dir} can be used")


def run_folder(settings: "Settings") -> Iterator[Check]:
    """A word where no run directory can be made in the folder that settings name."""
    import tempfile

    folder = settings.resolve(settings.runs)
    there = next(parent for parent in (folder, *folder.parents) if parent.exists())
    if not there.is_dir():
        yield Check("stop", "runs", f"{there} is a file; a run makes its directory in this folder")
        return
    try:
        with tempfile.TemporaryDirectory(prefix=".dreamgym-look-", dir=there):
            pass
    except OSError as error:
        text = f"no directory can be made in {there}, and a run makes one there: {error.strerror or error}"
        yield Check("stop", "runs", text)


def sandbox(settings: "Settings") -> Check:
    """Which kernel sandbox a dream gets here, and what would give a stronger one."""
    from dreamgym_kit.sandbox.confining import NAMESPACES, available, check, stands_for

    wanted = settings.guard.sandbox
    if wanted in ("off", "external"):
        return Check("-", "sandbox", f'{stands_for(wanted)} (guard.sandbox = "{wanted}")')
    best = available()
    check(wanted, best=best, where=settings.where("guard", "sandbox"))
    if best.kind == NAMESPACES:
        return Check("ok", "sandbox", str(best))
    return Check("-", "sandbox", str(best), f"for more: {best.more}" if best.more else "")


def engine(settings: "Settings") -> Check:
    """Whether what settings want of workers can be had; nothing is started or joined."""
    from dreamgym_kit.adapters.engines.ray_cluster import usable
    from dreamgym_kit.adapters.langgraph.run.workers import check_engine

    check_engine(settings.workers)
    if settings.workers.backend == "ray":
        return Check("ok", "ray", usable(settings.workers.address))
    return Check("ok", "engine", f"{settings.workers.count} workers")


def extras() -> Iterator[Check]:
    """A word on each extra that is not installed."""
    for extra, needed_for in _EXTRAS.items():
        if not has_extra(extra):
            text = f"extra not installed; only needed for: {needed_for}"
            yield Check("-", extra, text, f"pip install 'dreamgym-kit[{extra}]'")


def look_at_server(url: str, *, timeout_s: float = 5.0) -> list[Check]:
    """Walk one server's routes; `timeout_s` for each of them.

    Raises:
        UserError: it is no URL that is asked.
    """
    from dreamgym_kit.adapters.models.addresses import Resolver, read_address
    from dreamgym_kit.adapters.models.vllm.launch import is_loopback
    from dreamgym_kit.adapters.models.vllm.looking import open_routes

    address = read_address(url, source="--server")
    host = f"[{address.host}]" if ":" in address.host else address.host
    base = f"{address.scheme}://{host}:{address.port}"
    try:
        Resolver().resolve(address.host, address.port)  # a metadata service is not asked
        ways = list(open_routes(base, timeout_s=timeout_s))
    except (EndpointError, ConnectionError) as error:
        return [Check("fix", "server", str(error))]
    return _open_routes(base, ways, here=is_loopback(address.host))


def _open_routes(base: str, ways: "Sequence[OpenRoute]", *, here: bool) -> list[Check]:
    checks = []
    for kind, can in _CAN.items():
        if paths := [way.path for way in ways if way.kind == kind]:
            level = "stop" if kind == "changes" and not here else "fix"
            text = f"{base} {can} without a key: {', '.join(paths)}"
            checks.append(Check(level, "server", text, _REMEDY))
    if not checks:
        paths = [way.path for way in ways]
        checks.append(Check("ok", "server", f"{base}: without a key only {', '.join(paths) or 'nothing'}"))
    return checks
