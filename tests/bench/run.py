"""Runs the benches, writes figures.md and docs/benchmarks.md.

`run.py [NAME...] [--list] [--seed N] [--quick] [--write] [--page]`

Prints `name value unit`, a line for each figure; on stderr, which bench runs and which figures miss their
goal. Without names all benches run and the table is written; with names only where `--write` says so, and
the rows of the others stay as they are. `--page` runs none and writes the page anew. `--quick` measures in
small, where a bench has a small form, and writes nothing. Ends with code 1 when a figure misses its goal; the
goal stays in the table as it is.
"""

import argparse
import importlib
import operator
import os
import platform
import re
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from importlib.metadata import PackageNotFoundError, version
from math import isnan, nan
from pathlib import Path

TABLE = Path(__file__).with_name("figures.md")
PAGE = Path(__file__).parents[2] / "docs" / "benchmarks.md"
PACKAGES = (
    "langgraph",
    "langgraph-prebuilt",
    "langchain",
    "langchain-core",
    "langchain-openai",
    "openai",
    "typer",
)

GPU_PACKAGES = ("torch", "transformers", "trl", "peft")

BENCHES: Mapping[str, str] = {
    "leaks": "Calls tools in every shape in a dream and counts tool bodies that ran.",
    "mcp_majors": "The same for MCP SDK 1.x and 2.x: in process, over stdio and HTTP.",
    "attack": "Generated agents that try to reach a bank's refund: does one run in a dream, unnoticed?",
    "sandbox": "Attempts to leave the kernel sandbox, how many are reported, and what it costs.",
    "crosstalk": "64 dreams next to a real agent in one process: does a call reach another session?",
    "masking": "Secrets: found by masking, taken by mistake; does a wrong password stay wrong in a dream?",
    "transparent": "Messages of the same graph with recording and without, byte by byte.",
    "overhead": "Time of a tool call simulated, recorded and idle, as a multiple of the bare call.",
    "call_path": "Functions and files of the kit that one recorded call runs through.",
    "orchestration": "64 episodes at once: throughput as a share of the bare graph and of the ideal.",
    "soak": "10,000 episodes in one dream: growth after the first 1,000.",
    "acks": "A recording process killed 200 times: are acknowledged recordings there?",
    "truth": "Dream answers of the desk compared with the real desk's, with environments recorded.",
    "beds": "Six public tool suites: calls answered, answers exact, whole episodes.",
    "replays": "Random graphs, calls nested, parallel, repeated and interrupted: does a recording replay?",
    "agents": "Public agents, unchanged, under a scripted model: do record and simulate agree?",
    "day_one": "Foreign agents with nothing recorded and a consistent model: answered, and at what cost.",
    "probes": "Questions that tempt the dream of three planted APIs into confident lies, and honest twins.",
    "effects": "Effects guessed from names and descriptions, next to what the tools' authors say.",
    "experience": "The nano experience model on held-out environments, next to recordings and programs.",
    "mining": "Seconds to mine 10,000 recordings, to load kept programs, to answer.",
    "weaviate_buffer": "The buffer on Weaviate's double: same hits as a file, rows lost by kills, requests.",
    "store": "SQLite buffer with 100,000 recordings: search, exact lookup, appends.",
    "million": "1,000,000 recordings: time to open and to search, memory.",
    "findings_foreign": "Recorded experts of public tool suites, and faults planted in them.",
    "advice": "Each suggested dreamgym.toml line, added: does it have the promised effect?",
    "endpoint_faults": "1,000 episodes with an endpoint that fails one request in five.",
    "pairs": "Recorded answers of a language model: are right ones accepted, wrong ones refused?",
    "contradictions": "A model that lies on purpose over three foreign APIs: what is accepted?",
    "learns": "Real held-out success: start, after training in the dream, after training on real tools.",
    "algorithms": "Real held-out success after GRPO, PPO, DPO and SFT on equally many simulated episodes.",
    "faults": "Real held-out success under faults, trained with faults and without.",
    "ablations": "The dream without each part: fidelity, and real success after training in it.",
    "curriculum": "Real held-out success with chosen tasks and in turn; impossible tasks, wrong judge.",
    "s2r": "S2R on 6% of the real calls, next to real training on all of them and on as few.",
    "divergence": "A real tool changed after recording: calls until it is noticed, writes afterwards.",
    "approval": "Twelve ways to get a real write past its approval, many times.",
    "gpu_step": "A step of GRPO with LoRA on one GPU: a policy of 1.4 billion parameters, in this process.",
    "page": "The report page in Chromium: 1,000 and 10,000 episodes, 100 hostile texts in each field.",
    "vllm_share": "Throughput of a simulation with a real vLLM on CPU, as a share of a bare load.",
    "dos": "Hostile schemas and texts: seconds of the slowest check.",
    "findings": "500 episodes with planted errors, and correct ones: errors found, false alarms.",
    "surface": "Options of simulate, lines of a new dreamgym.toml, seconds of --help and of a start.",
    "resume": "A run killed 20 times and resumed, compared with an uninterrupted one.",
    "update_exact": "Weights after two updates compared with plain PyTorch.",
    "first_minutes": "The README's two commands in new environments; packages of a base install.",
    "verdict_words": "Planted runs by command, Python and pytest: are verdicts and exit codes right?",
}
_COMPARE: Mapping[str, Callable[[float, float], bool]] = {
    "=": operator.eq,
    "<=": operator.le,
    "<": operator.lt,
    ">=": operator.ge,
    ">": operator.gt,
}


@dataclass(frozen=True, slots=True)
class Goal:
    """What a figure has to be; one without a goal is there to be seen."""

    sign: str = ""
    number: float = 0.0

    def met(self, value: float) -> bool | None:
        """Whether `value` is as it has to be; None without a goal."""
        return _COMPARE[self.sign](value, self.number) if self.sign else None

    def __str__(self) -> str:
        return f"{self.sign} {self.number:g}" if self.sign else ""


GOALS: Mapping[tuple[str, str], Goal] = {
    ("leaks", "leaks"): Goal("=", 0),
    ("leaks", "calls"): Goal(">=", 10_000),
    ("mcp_majors", "leaks"): Goal("=", 0),
    ("mcp_majors", "calls"): Goal(">=", 200),
    ("attack", "tries"): Goal(">=", 120),
    ("attack", "crossed"): Goal(">=", 60),
    ("attack", "ran"): Goal("=", 0),
    ("attack", "ran_silent"): Goal("=", 0),
    ("attack", "twins_right"): Goal(">=", 0.95),
    ("sandbox", "tries"): Goal(">=", 40),
    ("sandbox", "escapes"): Goal("=", 0),
    ("sandbox", "reported_share"): Goal(">=", 0.8),
    ("sandbox", "share"): Goal(">=", 0.95),
    ("crosstalk", "wrong"): Goal("=", 0),
    ("pairs", "right_accepted"): Goal(">=", 0.98),
    ("pairs", "wrong_refused"): Goal(">=", 0.9),
    ("pairs", "classes_missed"): Goal("=", 0),
    ("pairs", "paid_repairs"): Goal("=", 0),
    ("contradictions", "accepted"): Goal("=", 0),
    ("contradictions", "calls"): Goal(">=", 500),
    ("contradictions", "honest_accepted"): Goal(">=", 0.95),
    ("masking", "missed_known"): Goal("=", 0),
    ("masking", "missed_share"): Goal("<=", 0.1),
    ("masking", "false_share"): Goal("<=", 0.002),
    ("masking", "false_in_beds"): Goal("=", 0),
    ("masking", "wrong_password_reused"): Goal("=", 0),
    ("masking", "wrong_passwords"): Goal(">=", 200),
    ("masking", "same_password_exact"): Goal(">=", 0.99),
    ("replays", "graphs"): Goal(">=", 200),
    ("replays", "hard_share"): Goal(">=", 0.5),
    ("replays", "different"): Goal("=", 0),
    ("agents", "subjects"): Goal(">=", 15),
    ("agents", "right_share"): Goal(">=", 0.9),
    ("agents", "leaks"): Goal("=", 0),
    ("agents", "false_alarms"): Goal("=", 0),
    ("agents", "settings_lines"): Goal("<=", 1),
    ("advice", "lines"): Goal(">=", 40),
    ("advice", "wrong"): Goal("=", 0),
    ("crosstalk", "real_calls"): Goal("=", 0),
    ("crosstalk", "false_refusals"): Goal("=", 0),
    ("crosstalk", "calls"): Goal(">=", 20_000),
    ("transparent", "different"): Goal("=", 0),
    ("overhead", "simulated_ratio"): Goal("<=", 1.25),
    ("overhead", "recorded_ratio"): Goal("<=", 1.2),
    ("overhead", "idle_ratio"): Goal("<=", 1.05),
    ("overhead", "start_ms"): Goal("<=", 300),
    ("overhead", "p99_ms"): Goal("<", 5),
    ("overhead", "growth"): Goal("<", 1.5),
    ("overhead", "writes_p99_ms"): Goal("<", 5),
    ("overhead", "writes_growth"): Goal("<", 1.5),
    ("call_path", "calls"): Goal("<=", 90),
    ("call_path", "files"): Goal("<=", 8),
    ("orchestration", "share"): Goal(">=", 0.95),
    ("orchestration", "share_sync"): Goal(">=", 0.95),
    ("orchestration", "ideal_share_1s"): Goal(">=", 0.95),
    ("soak", "growth_mb"): Goal("<", 50),
    ("soak", "growth_files"): Goal("<=", 0),
    ("soak", "growth_threads"): Goal("<=", 0),
    ("acks", "lost"): Goal("=", 0),
    ("acks", "kills"): Goal(">=", 200),
    ("acks", "seconds"): Goal("<", 90),
    ("weaviate_buffer", "faults_wrong"): Goal("=", 0),
    ("weaviate_buffer", "double_differs"): Goal("=", 0),
    ("weaviate_buffer", "overlap_hybrid"): Goal(">=", 0.98),
    ("weaviate_buffer", "overlap_words"): Goal(">=", 0.98),
    ("weaviate_buffer", "rows_unfindable"): Goal("=", 0),
    ("weaviate_buffer", "rows_unfindable_repaired"): Goal("=", 0),
    ("weaviate_buffer", "requests_per_exact"): Goal("<=", 1),
    ("weaviate_buffer", "requests_per_hybrid"): Goal("<=", 2),
    ("weaviate_buffer", "rows_read_per_hybrid"): Goal("<=", 16),
    ("weaviate_buffer", "pages_per_row"): Goal("<=", 1.1),
    ("weaviate_buffer", "fds_ratio"): Goal("<=", 1.2),
    ("truth", "exact_worst_split"): Goal(">=", 0.95),
    **{
        ("beds", f"{bed}_crawl_{figure}"): Goal(">=", goal)
        for bed, goals in {
            "workbench": (0.75, 0.97, 0.40, 0.60),
            "retail": (0.80, 0.97, 0.35, 0.60),
            "bfcl": (0.70, 0.97, 0.20, 0.60),
        }.items()
        for figure, goal in zip(("coverage", "exact", "whole", "new_writes"), goals, strict=True)
    },
    **{
        ("beds", f"{bed}_other_{figure}"): Goal(">=", goal)
        for bed in ("workbench", "retail", "bfcl")
        for figure, goal in (("coverage", 0.80), ("exact", 0.97))
    },
    ("beds", "wrong_at_80"): Goal("<=", 0.005),
    ("day_one", "answered"): Goal(">=", 0.95),
    ("day_one", "whole"): Goal(">=", 0.90),
    ("day_one", "questions_per_decision"): Goal("<=", 1.05),
    ("day_one", "tokens_per_call"): Goal("<=", 900),
    ("day_one", "cached_share"): Goal(">=", 0.75),
    ("probes", "asked"): Goal(">=", 36),
    ("probes", "wrong"): Goal("=", 0),
    ("probes", "twins_answered"): Goal(">=", 0.8),
    ("beds", "sure_share"): Goal(">=", 0.6),
    ("truth", "coverage"): Goal(">=", 0.9),
    ("truth", "verdict_agreement"): Goal(">=", 0.98),
    ("experience", "exact_nano_writes"): Goal(">=", 0.9),
    ("experience", "exact_layered"): Goal(">=", 0.95),
    ("experience", "ece"): Goal("<=", 0.05),
    ("experience", "shop_exact_layered_writes"): Goal(">=", 0.95),
    ("mining", "seconds_per_10k"): Goal("<=", 20),
    ("mining", "seconds_per_10k_one_world"): Goal("<=", 20),
    ("mining", "times_50k"): Goal("<=", 6),
    ("mining", "reload_s"): Goal("<", 1),
    ("mining", "answer_us"): Goal("<", 1000),
    ("store", "hybrid_p50_ms"): Goal("<=", 2),
    ("store", "hybrid_p99_ms"): Goal("<=", 10),
    ("store", "exact_ms"): Goal("<=", 0.1),
    ("store", "appends_per_s"): Goal(">=", 5000),
    ("million", "open_ms"): Goal("<", 1000),
    ("million", "exact_p99_ms"): Goal("<", 5),
    ("million", "hybrid_p99_ms"): Goal("<", 100),
    ("million", "rss_mb"): Goal("<", 2048),
    ("million", "second_half"): Goal(">", 0.5),
    ("effects", "tools"): Goal(">=", 300),
    ("effects", "unsafe"): Goal("=", 0),
    ("effects", "overcautious"): Goal("<=", 0.1),
    ("effects", "overcautious_lists"): Goal("<=", 0.1),
    ("effects", "questions_per_agent"): Goal("<=", 3),
    ("findings_foreign", "found"): Goal(">=", 0.9),
    ("findings_foreign", "false_alarms"): Goal("<=", 0.01),
    ("findings_foreign", "subjects"): Goal(">=", 5),
    ("endpoint_faults", "hung"): Goal("=", 0),
    ("endpoint_faults", "lost"): Goal("=", 0),
    ("learns", "gain_points"): Goal(">=", 15),
    ("learns", "gain_low"): Goal(">", 0),
    ("learns", "gain_ratio"): Goal(">=", 0.9),
    ("learns", "real_calls_in_dream"): Goal("=", 0),
    ("learns", "shuffled_gain"): Goal("<=", 2),  # five times 360 episodes waver by about that
    ("curriculum", "impossible_share"): Goal("<=", 0.02),
    ("curriculum", "episodes_ratio"): Goal("=", 1),
    ("curriculum", "real_calls"): Goal("=", 0),
    ("s2r", "ratio_at_6_percent"): Goal(">=", 1),
    ("s2r", "ratio_at_equal_calls"): Goal(">=", 1.15),
    ("s2r", "real_calls"): Goal("<=", 0.06),
    ("divergence", "caught_after"): Goal("<=", 20),
    ("divergence", "writes_after"): Goal("=", 0),
    ("divergence", "false_stops"): Goal("=", 0),
    ("approval", "unapproved"): Goal("=", 0),
    ("gpu_step", "real_calls"): Goal("=", 0),
    ("gpu_step", "adapter_gap"): Goal("<=", 1e-3),
    ("page", "open_1000_s"): Goal("<", 1),
    ("page", "filter_1000_ms"): Goal("<", 100),
    ("page", "open_10000_s"): Goal("<", 4),
    ("page", "size_ratio"): Goal("<=", 1.5),
    ("page", "xss"): Goal("=", 0),
    ("page", "requests"): Goal("=", 0),
    ("vllm_share", "share"): Goal(">=", 0.95),
    ("dos", "worst_s"): Goal("<=", 2),
    ("dos", "checks"): Goal(">=", 300),
    ("findings", "found"): Goal(">=", 0.95),
    ("findings", "false_alarms"): Goal("<=", 0.02),
    ("findings", "planted"): Goal(">=", 500),
    ("surface", "simulate_options"): Goal("<=", 14),
    ("surface", "toml_lines"): Goal("<=", 25),
    ("surface", "help_s"): Goal("<=", 0.3),
    ("surface", "start_over_import_s"): Goal("<=", 0.5),
    ("resume", "different"): Goal("=", 0),
    ("update_exact", "max_abs_diff"): Goal("<=", 1e-7),
    ("first_minutes", "demo_s"): Goal("<", 60),
    ("first_minutes", "packages"): Goal("<=", 60),
    ("verdict_words", "runs"): Goal(">=", 80),
    ("verdict_words", "wrong"): Goal("=", 0),
}


@dataclass(frozen=True, slots=True)
class Row:
    """One figure, as measured once."""

    bench: str
    name: str
    value: float
    unit: str
    seed: int
    measured: str  # day
    where: str  # number of the machine and versions that it was measured with

    @property
    def goal(self) -> Goal:
        """What it has to be."""
        return GOALS.get((self.bench, self.name), Goal())


def main(arguments: Sequence[str] | None = None) -> int:
    """Run, print, write; give the exit code."""
    asked = _arguments(arguments)
    if asked.list:
        for name, about in BENCHES.items():
            print(f"{name:<14} {about}")
        return 0
    if asked.page:
        PAGE.write_text(summary(TABLE.read_text("utf-8")), "utf-8")
        return 0
    unknown = [name for name in asked.names if name not in BENCHES]
    if unknown:
        print(f"error: no bench named {', '.join(unknown)}; known: {', '.join(BENCHES)}", file=sys.stderr)
        return 2
    missed = failed = 0
    fresh: list[Row] = []
    tables: dict[str, str] = {}
    for bench in asked.names or BENCHES:
        try:
            rows, table = _run(bench, asked.seed, quick=asked.quick)
        except Exception as error:  # the others are still to be run
            if getattr(error, "skips", False):  # what it measures on is not here, and need not be
                print(f"skipped: {bench}: {error}", file=sys.stderr)
                continue
            print(f"error: {bench}: {type(error).__name__}: {error}", file=sys.stderr)
            failed += 1
            continue
        fresh += rows
        if table:
            tables[bench] = table
        missed += sum(row.goal.met(row.value) is False for row in rows)
        if not asked.quick and (asked.write or not asked.names):  # after each: an hour's figures are not lost
            TABLE.parent.mkdir(exist_ok=True)
            before = TABLE.read_text("utf-8") if TABLE.exists() else ""
            TABLE.write_text(rendered(before, fresh, tables), "utf-8")
            PAGE.write_text(summary(TABLE.read_text("utf-8")), "utf-8")
    return 1 if missed or failed else 0


def _arguments(arguments: Sequence[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0] if __doc__ else None)
    parser.add_argument("names", nargs="*", metavar="NAME", help="benches to run; all without")
    parser.add_argument("--list", action="store_true", help="name all benches")
    parser.add_argument("--seed", type=int, default=0, help="of what is drawn by chance (0)")
    parser.add_argument("--quick", action="store_true", help="measure in small; write nothing")
    parser.add_argument(
        "--page", action="store_true", help="write docs/benchmarks.md from the figures; run none"
    )
    parser.add_argument("--write", action="store_true", help="write the figures also for some benches")
    return parser.parse_args(arguments)


def _run(bench: str, seed: int, *, quick: bool) -> tuple[list[Row], str]:
    """Measure one bench, printing its figures; gives them and its own table, if it has one."""
    print(f"== {bench}", file=sys.stderr, flush=True)
    module = importlib.import_module(bench)  # beside this file, which is run as a program
    measure = getattr(module, "quick", module.measure) if quick else module.measure
    today = datetime.now(UTC).date().isoformat()
    rows = []
    figures = list(measure(seed))
    here = _here()  # after it: a bench that computes on a GPU has loaded torch by now
    for name, value, unit in figures:
        row = Row(bench, name, float(value), unit, seed, today, here)
        rows.append(row)
        print(f"{name} {shown(row.value)} {unit}", flush=True)
        if row.goal.met(row.value) is False:
            print(f"missed: {bench} {name} is {shown(row.value)}, its goal {row.goal}", file=sys.stderr)
    table: Callable[[], str] | None = None if quick else getattr(module, "table", None)
    return rows, table() if table is not None else ""


def shown(value: float) -> str:
    """A figure as people read it: whole, or to six significant digits; "-": of nothing."""
    if isnan(value):
        return "-"
    if value == int(value):
        return str(int(value))
    return f"{value:.6g}"


def _here() -> str:
    """The machine and the versions, on one line; a GPU, and what computes on it, where torch was loaded."""
    memory = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") / 2**30
    machine = f"{_processor()}, {os.cpu_count()} cores, {memory:.0f} GB, {platform.system()}"
    versions = [f"Python {platform.python_version()}"]
    torch = sys.modules.get("torch")
    on_gpu = torch is not None and torch.cuda.is_available()
    if on_gpu:
        machine = f"1 x {torch.cuda.get_device_name()}, {machine}"
    for package in (*PACKAGES, *(GPU_PACKAGES if on_gpu else ())):
        try:
            versions.append(f"{package} {version(package)}")
        except PackageNotFoundError:
            continue
    return f"{machine}; {', '.join(versions)}"


def _processor() -> str:
    try:
        found = re.search(r"^model name\s*: *(.+)$", Path("/proc/cpuinfo").read_text("utf-8"), re.MULTILINE)
    except OSError:
        found = None
    return found[1].strip() if found else platform.machine()


HEAD = """# Figures

Written by `python tests/bench/run.py` (see `--list`). Missed goals stay. `docs/benchmarks.md` is a summary.

| bench | figure | value | unit | goal | met | seed | day | where |
| --- | --- | --- | --- | --- | --- | --- | --- | --- |
"""
_ROW = re.compile(
    r"^\| (?P<bench>\w+) \| (?P<name>\w+) \| (?P<value>[-+\d.e]+) \| (?P<unit>[^|]*) \| [^|]* \| [^|]* "
    r"\| (?P<seed>-?\d+) \| (?P<day>[-\d]+) \| (?P<where>\w+) \|$",
    re.MULTILINE,
)
_PLACE = re.compile(r"^- (?P<key>[A-Z]+): (?P<text>.+)$", re.MULTILINE)
_SECTION = re.compile(r"^## (?P<bench>\w+)\n\n(?P<table>.*?)(?=^## |\Z)", re.MULTILINE | re.DOTALL)


def rendered(before: str, fresh: Sequence[Row], tables: Mapping[str, str]) -> str:
    """The page: fresh figures, and those of the page before that were not measured again."""
    again = {row.bench for row in fresh}
    rows = [row for row in _rows_of(before) if row.bench not in again] + list(fresh)
    rows.sort(key=lambda row: _order(row.bench))
    places = list(dict.fromkeys(row.where for row in rows))
    keys = {place: _letters(number) for number, place in enumerate(places)}
    lines = "".join(_line(row, keys[row.where]) for row in rows)
    legend = "".join(f"- {keys[place]}: {place}\n" for place in places)
    kept = {found["bench"]: found["table"].strip() for found in _SECTION.finditer(before)}
    kept = {bench: table for bench, table in kept.items() if bench not in again} | dict(tables)
    sections = "".join(f"\n## {bench}\n\n{kept[bench].strip()}\n" for bench in sorted(kept, key=_order))
    return f"{HEAD}{lines}\n{legend}{sections}"


def summary(table: str) -> str:
    """The page of the documentation, from the table of all figures."""
    from benchmark_page import Figure, rendered_page  # beside this file: see `find_neighbours`

    figures: dict[str, list[Figure]] = {}
    places = {found["key"]: found["text"] for found in _PLACE.finditer(table)}
    keys = {text: key for key, text in places.items()}
    apart: dict[str, str] = {}  # benches that another machine than the first measured
    for row in _rows_of(table):
        if keys.get(row.where, "A") != "A":
            apart[row.bench] = f"Machine {keys[row.where]}, {row.measured}"
        goal, missed = str(row.goal), row.goal.met(row.value) is False
        figures.setdefault(row.bench, []).append(Figure(row.name, shown(row.value), row.unit, goal, missed))
    return rendered_page(figures, BENCHES, places, apart)


def _rows_of(page: str) -> Iterator[Row]:
    places = {found["key"]: found["text"] for found in _PLACE.finditer(page)}
    for one in _ROW.finditer(page):
        where = places.get(one["where"], one["where"])
        value = nan if one["value"] == "-" else float(one["value"])
        yield Row(one["bench"], one["name"], value, one["unit"], int(one["seed"]), one["day"], where)


def _line(row: Row, key: str) -> str:
    met = {None: "", True: "yes", False: "**no**"}[row.goal.met(row.value)]
    cells = (row.bench, row.name, shown(row.value), row.unit, row.goal, met, row.seed, row.measured, key)
    return f"| {' | '.join(str(cell) for cell in cells)} |\n"


def _order(bench: str) -> int:
    return list(BENCHES).index(bench) if bench in BENCHES else len(BENCHES)


def _letters(number: int) -> str:
    return chr(ord("A") + number % 26) * (1 + number // 26)


def find_neighbours() -> None:
    """Let benches import each other, by name and from `bench`, in processes of their own too.

    Whoever starts us may have told Python not to look beside a script.
    """
    os.environ.pop("PYTHONSAFEPATH", None)
    folder = Path(__file__).resolve().parent
    sys.path[:0] = [str(folder), str(folder.parent)]


if __name__ == "__main__":
    find_neighbours()
    sys.exit(main())
