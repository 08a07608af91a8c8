"""The dream on public tool suites that nobody here wrote, asked as `simulate` asks it, at default settings.

Beds: WorkBench, tau2 retail, BFCL multi-turn, AgentDojo's office, tau2 airline and tau2 telecom; each as
recorded episodes of its own tools (tests/data/beds/README.md). Splits: `other` (recorded things in other
sequences), `unseen` (things that nobody recorded), `crawl` (the same, and the world was crawled).

`BED_SPLIT_coverage`: answered calls; `_exact`: exact ones of those; `_whole`: episodes answered to the end
and exact. `BED_crawl_new_writes`: calls that write on a thing never recorded, those answered and exact.
Over all splits of the first three: `wrong_at_80`, wrong answers of those with a confidence of .8 or more;
`sure_share`, how many of all answers have that. A bed's own scorer judges; it knows nothing of us.
"""

import importlib.util
import os
import sys
import tarfile
import tempfile
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import closing
from dataclasses import replace
from pathlib import Path
from typing import Any

from langchain_core.tools import StructuredTool
from langgraph.graph import START, MessagesState, StateGraph
from langgraph.prebuilt import ToolNode
from parts import kept, part

from dreamgym_kit.adapters.langgraph.analysis.inspection import inspect_compiled
from dreamgym_kit.adapters.langgraph.intercept.install import install
from dreamgym_kit.adapters.langgraph.run.experiences import chained_experience
from dreamgym_kit.adapters.langgraph.run.setup import Recorder
from dreamgym_kit.adapters.stores.sqlite import SqliteStore
from dreamgym_kit.routing.router import CallRouter, Mode
from dreamgym_kit.routing.session import Session
from dreamgym_kit.settings.schema import Settings
from dreamgym_kit.types import Answer, Call, Environment, Source, ToolSpec

SMALL = Path(__file__).resolve().parents[1] / "data" / "beds"
BESIDE = Path(__file__).resolve().parents[3] / "shared" / "data"
BEDS = ("workbench", "retail", "bfcl")
MORE = ("agentdojo", "airline", "telecom")  # packed in this repository; not part of the figures over all beds
SURE = 0.8
Outcome = tuple[str, Any]  # ("ok", value) or ("error", text)
Figure = tuple[str, float, str]


def measure(seed: int) -> list[Figure]:
    """Figures for the bench runner, with 100 recorded episodes. Nothing is drawn by chance."""
    folder = Path(os.environ.get("SHARED_DATA_FOLDER", BESIDE)) / "beds"
    if not folder.is_dir():
        raise NotHere(f"the beds are not in {folder} (SHARED_DATA_FOLDER names another folder)")
    rows = figures(folder, BEDS, train=100, splits=("other", "unseen"))
    with tempfile.TemporaryDirectory() as scratch:
        with tarfile.open(SMALL / "more.tar.xz") as packed:
            packed.extractall(scratch, filter="data")
        return rows + figures(Path(scratch), MORE, train=100, splits=("other", "unseen"))[:-2]


def quick(seed: int) -> list[Figure]:
    """The part of the beds that is in this repository, with 30 recorded episodes."""
    return figures(SMALL, ("workbench", "retail"), train=30, splits=("unseen",))


class NotHere(Exception):
    """The beds are not on this machine."""

    skips = True


def figures(folder: Path, beds: Sequence[str], *, train: int, splits: Sequence[str]) -> list[Figure]:
    """Score the dream on some beds, without a crawl and with one."""
    rows: list[Figure] = []
    answers: list[tuple[float, bool]] = []  # confidence, and whether it was exact
    for bed in beds:
        with kept("beds", folder / "score.py", folder / bed) as home:
            for crawl, asked in ((False, list(splits)), (True, ["unseen"])):
                name = f"{bed}-{train}-{'-'.join(asked)}{'-crawl' * crawl}"
                scored = part(home, name, lambda: _scored(folder, bed, train, crawl, asked))  # noqa: B023
                for split, figures in scored["splits"].items():
                    rows += _rows(bed, "crawl" if crawl else split, figures, new_writes=crawl)
                answers += [(confidence, exact) for confidence, exact in scored["answers"]]
                rows.append((f"{bed}{'_crawl' * crawl}_cpu_s", scored["cpu_s"], "s"))
    sure = [exact for confidence, exact in answers if confidence >= SURE]
    rows.append(("wrong_at_80", sure.count(False) / max(1, len(sure)), "of answers at .8 or more"))
    rows.append(("sure_share", len(sure) / max(1, len(answers)), "of all answers"))
    return rows


def _scored(folder: Path, bed: str, train: int, crawl: bool, splits: Sequence[str]) -> dict[str, Any]:
    """What the bed's scorer says, and of each answer its confidence and whether it was exact."""
    with closing(Simulated()) as dream:
        scored = _scorer(folder / "score.py").run(folder / bed, Given(dream), train, crawl, splits)
    wrong = {why for found in scored["splits"].values() for _, _, given, why in found.pop("log") if given}
    answers = [(confidence, str(number) not in wrong) for number, confidence in dream.answers.items()]
    return {"splits": scored["splits"], "answers": answers, "cpu_s": scored["cpu_s"]}


def _rows(bed: str, split: str, found: Mapping[str, Any], *, new_writes: bool) -> Iterator[Figure]:
    calls, whole = found["kinds"]["all"], found["whole"]
    yield f"{bed}_{split}_coverage", calls["coverage"], "of calls"
    yield f"{bed}_{split}_exact", calls["exact_of_answered"], "of answers"
    yield f"{bed}_{split}_whole", whole["exact"] / whole["episodes"], "of episodes"
    if new_writes:
        writes = found["kinds"]["write"]
        yield f"{bed}_{split}_new_writes", writes["exact"] / max(1, writes["calls"]), "of writes"


class Given:
    """Makes an answerer, as the scorer asks for one: the one that it was given."""

    __name__ = "simulate"

    def __init__(self, dream: "Simulated") -> None:
        self._dream = dream

    def __call__(self) -> "Simulated":
        """The answerer."""
        return self._dream


class Simulated:
    """An answerer for score.py: records what it is given as `record` does, and asks what `simulate` asks.

    It takes of a tool only name, description and arguments; effects are those that `init` guesses.
    """

    def __init__(self) -> None:
        self.settings = Settings()
        self.answers: dict[int, float] = {}  # confidence of each answer, by its number
        self.why = ""  # the number of the last answer, which the scorer keeps beside what was wrong
        self._folder = tempfile.TemporaryDirectory()
        self._episodes = 0

    def learn(
        self, tools: Sequence[Mapping[str, Any]], episodes: Sequence[Any], crawl: Sequence[Any]
    ) -> None:
        """Record all episodes, and make the dream that `simulate` would make of them."""
        self._specs = guessed(tools, self.settings)
        store = self._store = SqliteStore(Path(self._folder.name) / "dreamgym.db")
        for episode in [*crawl, *episodes]:
            session = self._session(Mode.RECORD, episode["id"], episode, hooks=[Recorder(store)])
            for call in episode["calls"]:
                given = ("error", call["error"]) if "error" in call else ("ok", call["answer"])
                _keep_real(session, Call(call["tool"], call["args"]), given, call.get("error_type"))
            session.close()
        self._dream = chained_experience(store, self.settings, self._specs)

    def close(self) -> None:
        """Let the buffer go."""
        self._store.close()
        self._folder.cleanup()

    def start(self, world: str, task: str) -> None:
        """An episode begins."""
        self._episodes += 1
        episode = {"world": world, "task": task}
        self._open = self._session(Mode.DREAM, f"t{self._episodes}.1", episode, experience=self._dream)
        self._open.hear([task])

    def answer(self, tool: str, args: Mapping[str, Any]) -> Outcome | None:
        """What `simulate` would answer; None where the call is unanswered."""
        session, started = self._open, time.time()
        call = session.masked(Call(tool, args))
        _, place = session.admit(call)
        after = session.ledger.after(place)
        answer = session.dreamt_now(call, session.situation(call, place, after))
        if answer.unanswered:
            self._waiting = call, place, after
            return None
        self.answers[len(self.answers)] = answer.confidence
        self.why = str(len(self.answers) - 1)
        entry = session.keep(call, answer, place, after=after, started=started)
        given = entry.answer
        return ("error", given.error) if given.error is not None else ("ok", given.content)

    def happened(self, tool: str, args: Mapping[str, Any], outcome: Outcome) -> None:
        """A call that the real tool answered, whatever the dream would have."""
        call = self._open.masked(Call(tool, args))
        _, place = self._open.admit(call)
        self._waiting = call, place, self._open.ledger.after(place)
        self.told(tool, args, outcome)

    def told(self, tool: str, args: Mapping[str, Any], outcome: Outcome) -> None:
        """What the real tool said where the dream could not tell; the episode goes on from there."""
        call, place, after = self._waiting
        self._open.keep(call, _answer(outcome, None), place, after=after, started=time.time())

    def _session(self, mode: Mode, episode: str, what: Mapping[str, Any], **parts: Any) -> Session:
        name, _, number = what["world"].rpartition("-")
        environment = Environment(name, int(number)) if number.isdigit() else Environment(what["world"])
        router = CallRouter(mode, self._specs)
        return Session(router, episode=episode, task=episode, environment=environment, **parts)


def _keep_real(session: Session, call: Call, given: Outcome, error_type: str | None) -> None:
    call, started = session.masked(call), time.time()
    _, place = session.admit(call)
    after = session.ledger.after(place)
    session.keep_real(call, _answer(given, error_type), place, after=after, started=started)


def _answer(outcome: Outcome, error_type: str | None) -> Answer:
    kind, value = outcome
    if kind == "ok":
        return Answer(value, Source.REAL)
    return Answer(None, Source.REAL, error=value, error_type=error_type or "ToolException")


def guessed(tools: Sequence[Mapping[str, Any]], settings: Settings) -> dict[str, ToolSpec]:
    """The tools as `init` writes them down: read from a graph, each effect as it was guessed."""

    def never(**_: Any) -> None:
        raise RuntimeError("a bed has no tools that run")

    made = [
        StructuredTool(
            name=tool["name"],
            description=tool["description"],
            args_schema={"title": "args", "description": tool["description"], **tool["args"]},
            func=never,
        )
        for tool in tools
    ]
    install()
    graph = StateGraph(MessagesState).add_node("tools", ToolNode(made)).add_edge(START, "tools").compile()
    specs = inspect_compiled(graph, settings).specs()
    return {tool["name"]: replace(specs[tool["name"]], source="declared") for tool in tools}


def _scorer(file: Path) -> Any:
    spec = importlib.util.spec_from_file_location("bed_score", file)
    if spec is None or spec.loader is None:
        raise NotHere(f"{file} cannot be loaded")
    module = importlib.util.module_from_spec(spec)
    sys.modules["bed_score"] = module
    spec.loader.exec_module(module)
    return module
