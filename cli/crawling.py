"""`dreamgym-kit crawl` reads environments from end to end; `environments` shows or deletes imagined ones."""

import shlex
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from dreamgym_kit.cli import options
from dreamgym_kit.cli.approving import confirm
from dreamgym_kit.cli.output import say, say_json, say_steps, tell
from dreamgym_kit.cli.running import end, inspected
from dreamgym_kit.errors import UnknownName, UserError
from dreamgym_kit.report.colors import fold
from dreamgym_kit.report.percent import format_count, format_some
from dreamgym_kit.report.sanitize import one_line

if TYPE_CHECKING:
    from dreamgym_kit.adapters.langgraph.run.crawling import Crawled, CrawlPlan, CrawlResult
    from dreamgym_kit.dream.environment_facts import Book
    from dreamgym_kit.settings.buffer_url import Place
    from dreamgym_kit.settings.schema import Settings
    from dreamgym_kit.types import Environment

_MOST = 1_000  # calls, where settings say nothing
_MAX_IDS = 2**20  # bytes of --ids
_NAMED = 8  # environments

EXAMPLES = (
    "dreamgym-kit crawl --max-calls 300 --rate 2",
    "dreamgym-kit crawl --environment shop:3 --ids customers.txt",
)
CODES = (
    "Exit codes: 0 done; 1 a tool marked read wrote; 2 cannot run, or not confirmed; "
    "130 or 143 stopped, can be resumed."
)
Environments = Annotated[
    list[str] | None,
    options.option(
        "--environment", "Use this environment instead of the tasks'; may be repeated.", "NAME[:VARIANT]"
    ),
]
Ids = Annotated[Path | None, options.option("--ids", "IDs or names to start from, one per line.", "FILE")]
Rate = Annotated[float, typer.Option("--rate", min=0, help="Calls per second; 0 for no limit.")]
AllowGuessed = Annotated[
    bool, options.option("--allow-guessed", "Also call tools whose effect `read` is a guess.")
]


@options.keyed("buffer", "budget.max_calls")
def command(
    given: options.Given,
    environment: Environments = None,
    ids: Ids = None,
    rate: Rate = 5.0,
    allow_guessed: AllowGuessed = False,
    yes: options.Yes = False,
    as_json: options.AsJson = False,
) -> None:
    """Record all reads of an environment. Writes nothing.

    Every tool that reads is called with every id that is found. Says before what it will call, and asks.
    """
    settings = given.settings()
    from dreamgym_kit.adapters.langgraph.run.crawling import CrawlRequest, crawl, plan_crawl
    from dreamgym_kit.adapters.stores.factory import opened_to_add
    from dreamgym_kit.rollout.event_loop import run_to_end
    from dreamgym_kit.rollout.stop import StopSwitch, stop_on_signals
    from dreamgym_kit.settings.buffer_url import buffer_of

    spec = options.graph_of(settings, "crawl")
    environments = _environments(settings, environment or [], _ids(ids))
    most = _MOST if settings.budget.max_calls is None else settings.budget.max_calls
    plan = plan_crawl(inspected(spec, settings), trust_guesses=allow_guessed)
    _agree(plan, environments, most, rate, yes=yes)
    path, stop = buffer_of(settings), StopSwitch()
    with opened_to_add(path, settings, tell=tell) as store, stop_on_signals(stop, leave_after_s=0.5):
        request = CrawlRequest(
            graph=spec,
            environments=environments,
            settings=settings,
            store=store,
            most=most,
            per_second=rate,
            trust_guesses=allow_guessed,
        )
        result = run_to_end(crawl(request, events=_Progress(), stop=stop), stop)
    _show(result, path, environments, as_json=as_json)
    end(stop.exit_code if stop.exit_code is not None else int(bool(result.refused)), dreamt=False)


def _environments(settings: "Settings", named: list[str], ids: tuple[str, ...]) -> "list[Crawled]":
    """Return the environments to crawl: the named ones, else those of the tasks, else the default one."""
    from dreamgym_kit.adapters.langgraph.run.crawling import Crawled, crawl_targets
    from dreamgym_kit.cli.importing import environment_of
    from dreamgym_kit.rollout.tasks import read_tasks
    from dreamgym_kit.types import Environment

    tasks = read_tasks(settings.resolve(settings.tasks)) if settings.tasks is not None else []
    if named:
        requested = [environment_of(text) for text in named]
        targets = {world.environment: world for world in crawl_targets(tasks)}
        names = {*settings.environments, *(environment.name for environment in targets)}
        for environment in requested:  # where settings name them all, another name is a slip
            if settings.environments and environment.name not in names:
                place = "[environments] and the tasks"
                raise UnknownName(
                    "environment",
                    environment.name,
                    known=sorted(names),
                    source="--environment",
                    where=place,
                )
        environments = [targets.get(environment, Crawled(environment)) for environment in requested]
    else:
        environments = crawl_targets(tasks) or [Crawled(Environment())]
    return [Crawled(crawled.environment, (*ids, *crawled.words), crawled.split) for crawled in environments]


def _ids(file: Path | None) -> tuple[str, ...]:
    if file is None:
        return ()
    try:
        raw = file.read_bytes()
        if len(raw) > _MAX_IDS:
            raise UserError(f"{file}: {len(raw)} bytes are more than ids can be (limit {_MAX_IDS}).")
        return tuple(line.strip() for line in raw.decode("utf-8-sig").splitlines() if line.strip())
    except OSError as error:
        raise UserError(f"{file}: cannot be read: {error.strerror}; nothing was run.") from None
    except UnicodeDecodeError:
        raise UserError(f"{file}: not UTF-8; nothing was run.") from None


def _agree(plan: "CrawlPlan", environments: "list[Crawled]", most: int, rate: float, *, yes: bool) -> None:
    """Say which reads will be called, where and how often, and go on only if a person agrees."""
    from dreamgym_kit.adapters.langgraph.run.crawling import nothing_to_read

    if not plan.reads:
        raise UserError(nothing_to_read(plan))
    pace = f"{rate:g} a second" if rate else "as fast as they answer"
    named = format_some([str(environment.environment) for environment in environments], _NAMED)
    tell(f"These REAL tools will be called, at most {most} times, {pace}; nothing else will run:")
    reads = (spec.name + ("?" if spec.source == "guessed" else "") for spec in plan.reads)
    tell(fold(f"  read   {one_line(', '.join(reads))}", indent=9))
    tell(fold(f"  environment  {one_line(named)}", indent=9))
    for name, why in plan.left_out:
        tell(fold(f"  left out: {one_line(name)}: {one_line(why)}", indent=4))
    if any(spec.source == "guessed" for spec in plan.reads):
        tell("  (? is a guess: such a tool may write)")
    confirm("Call them?", "a crawl calls real tools", yes=yes)


class _Progress:
    """Counts calls on stderr, now and then."""

    def __init__(self) -> None:
        self._calls = 0

    def emit(self, kind: str, /, **facts: object) -> None:
        self._calls += kind == "call"
        if kind == "call" and self._calls % 100 == 0:
            tell(f"{self._calls} calls, last {facts.get('tool')}")


def _show(result: "CrawlResult", path: "Place", environments: "list[Crawled]", *, as_json: bool) -> None:
    if as_json:
        say_json(
            {
                "calls": result.calls.total(),
                "by_tool": dict(sorted(result.calls.items())),
                "failures": result.failures,
                "passing": result.passing,
                "before": result.before,
                "environments": result.environments,
                "of_environments": len(environments),
                "stopped": result.stopped,
                "refused": list(result.refused),
            }
        )
        return
    for why in result.refused:
        tell(f"refused: {one_line(why)}")
    calls = ", ".join(f"{one_line(tool)} {count}" for tool, count in sorted(result.calls.items()))
    earlier = f", {result.before} were there from before" if result.before else ""
    say(f" {result.calls.total()} calls{f': {calls}' if calls else ''}")
    say(f" {result.failures} of them the tools refused{earlier}; all are in {path}")
    if result.passing:
        say(
            f" {result.passing} met a time-out, a rate limit or a lost connection: not kept, to be made again"
        )
    say(f" {result.environments} of {len(environments)} environments were read to their end")
    steps = [
        ("Look", "dreamgym-kit buffer stats", "what is known now"),
        ("Dream", "dreamgym-kit simulate", "the tasks, no real tool runs"),
    ]
    if result.stopped:
        say(f" Stopped early: {one_line(result.stopped)}")
    if result.stopped or result.passing:
        again = shlex.join(["dreamgym-kit", *sys.argv[1:]])
        steps.insert(0, ("Go on", again, "makes the calls that are left"))
    say_steps(*steps)


ImaginedName = Annotated[str | None, options.argument("NAME", "NAME or NAME:VARIANT (default: list all).")]
Imagined = Annotated[str, options.argument("NAME", "NAME or NAME:VARIANT.")]
imagined_app = options.group(
    "Show or reset imagined environments.",
    (
        "dreamgym-kit environments show",
        "dreamgym-kit environments show shop:3 --json",
        "dreamgym-kit environments reset shop:3",
    ),
)


@imagined_app.command("show")
def show_imagined(
    name: ImaginedName = None,
    buffer: options.Buffer = None,
    tenant: options.Tenant = None,
    as_json: options.AsJson = False,
) -> None:
    """List imagined environments, or show every imagined answer of one."""
    from dreamgym_kit.dream.environment_facts import book_to_json, read_book

    folder, paths = _imagined_environments(buffer, tenant)
    if name is not None:
        environment, path = _named(name, paths)
        paths = {environment: path}
    books = {environment: read_book(path.read_bytes()) for environment, path in paths.items()}
    if as_json:
        say_json({str(environment): book_to_json(book) for environment, book in books.items()})
        return
    if not books:
        say(f"No imagined environments in {folder}.")
    for environment, book in books.items():
        _show_book(environment, book, facts=name is not None)


@imagined_app.command("reset")
def reset_imagined(
    name: Imagined,
    buffer: options.Buffer = None,
    tenant: options.Tenant = None,
    as_json: options.AsJson = False,
) -> None:
    """Delete the imagined answers of an environment. Recordings stay."""
    from dreamgym_kit.rollout.environment_files import EnvironmentFile

    _, paths = _imagined_environments(buffer, tenant)
    environment, path = _named(name, paths)
    if not EnvironmentFile(path).remove():
        raise UserError(f"a run uses {environment}. Reset it after the run ends. Nothing was changed.")
    if as_json:
        say_json({"reset": str(environment), "file": str(path)})
    else:
        say(f"Deleted all imagined answers of {one_line(str(environment))}.")


def _imagined_environments(buffer: str | None, tenant: str | None) -> "tuple[Path, dict[Environment, Path]]":
    from dreamgym_kit.rollout.environment_files import environments_folder, environments_in

    folder = environments_folder(options.settings_for(buffer=buffer, tenant=tenant))
    return folder, dict(environments_in(folder))


def _named(name: str, paths: "dict[Environment, Path]") -> "tuple[Environment, Path]":
    for environment, path in paths.items():
        if name in (str(environment), environment.name if environment.variant == 0 else ""):
            return environment, path
    names = [str(environment) for environment in paths]
    raise UnknownName("environment", name, known=names, source="NAME", where="imagined environments")


def _show_book(environment: "Environment", book: "Book", *, facts: bool) -> None:
    models = sorted({fact.model for fact in book.facts.values() if fact.model})
    say(
        f"{one_line(str(environment))}  {format_count(len(book.facts), 'imagined answer')}, "
        f"{format_count(len(book.seeded), 'task')} seeded, by {one_line(', '.join(models)) or 'no model'}"
    )
    for row in book.replaced:
        say(f"  replaced by a recording: {one_line(row.call)}: {one_line(row.why)}")
    for fact in book.facts.values() if facts else ():
        after = "after writes: " if fact.after else ""
        say(f"  {after}{one_line(str(fact))}  [{fact.origin}, {fact.date}]")
