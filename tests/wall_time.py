"""Lists what makes a test depend on the machine's speed. usage: python tests/wall_time.py [FILE...]

Three kinds: a test that fails if a measured time is too long (or a measured speed too low), a wait that gives
up in less than 30 s, and a sleep outside of a loop that polls. A comment on the line allows it:
`# tenfold: USUAL` where the bound is ten times the usual seconds or more, `# expires: REASON` where the end
of the wait is what the test is about, `# sleeps: REASON`. The last line is `ok`, or how many are left; the
code is 1 then. Times are followed through assignments, calls and imports, by name; the figures of benches are
known by their units.
"""

import ast
import re
import sys
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path

TESTS = Path(__file__).resolve().parent
CLOCKS = {"monotonic", "monotonic_ns", "perf_counter", "perf_counter_ns", "process_time", "thread_time"}
# where the limit stands
WAITS = {"join": 0, "wait": 0, "wait_for": 1, "result": 0, "timeout": 0, "settimeout": 0, "wait_until": 2}
LIMITS = ("timeout", "timeout_s", "patience_s", "within_s")
LEAST_WAIT_S, MARGIN = 30, 10
PAUSE_S = 60  # a sleep of a minute or more stands for what never ends
TIME_UNIT = re.compile(
    r"^(s|ms|us)$|\bper s\b|/s$|/CPU s$|^x (bare|generate|a young)|^of (bare|ideal|a bare)"
)
ALLOWED = re.compile(r"#.*\b(?:tenfold: (?P<usual>[\d.]+)|expires: \w|sleeps: \w)")
SIGNS = ast.Lt | ast.LtE | ast.Gt | ast.GtE


@dataclass
class Module:
    """One file, its functions, and which of them return a measured time."""

    path: Path
    tree: ast.Module = field(init=False)
    lines: list[str] = field(init=False)
    reads_clock: bool = field(init=False)
    functions: list[ast.FunctionDef | ast.AsyncFunctionDef] = field(init=False)
    imports: list[tuple[str, str]] = field(init=False)  # from other files: (module's last part, name)
    timed: set[str] = field(default_factory=set)

    def __post_init__(self) -> None:
        text = self.path.read_text("utf-8")
        self.tree, self.lines = ast.parse(text), text.splitlines()
        nodes = list(ast.walk(self.tree))
        self.reads_clock = any(map(is_clock, nodes))
        self.functions = [node for node in nodes if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)]
        froms = [node for node in nodes if isinstance(node, ast.ImportFrom) and node.module]
        self.imports = [(one.module.rpartition(".")[2], name.name) for one in froms for name in one.names]


def is_clock(node: ast.AST) -> bool:
    if not isinstance(node, ast.Call) or not isinstance(node.func, ast.Attribute | ast.Name):
        return False
    if isinstance(node.func, ast.Name):
        return node.func.id in CLOCKS
    owner = node.func.value
    of_time = isinstance(owner, ast.Name) and owner.id in ("time", "loop")
    of_loop = isinstance(owner, ast.Call) and getattr(owner.func, "attr", "") == "get_running_loop"
    return node.func.attr in CLOCKS or (node.func.attr == "time" and (of_time or of_loop))


@cache
def figures() -> re.Pattern[str]:
    """The names of the benches' figures whose unit is one of time or speed."""
    names, others = ["elapsed_s"], []
    for path in (TESTS / "bench").glob("*.py"):
        for node in ast.walk(ast.parse(path.read_text("utf-8"))):
            if isinstance(node, ast.Tuple) and len(node.elts) == 3 and isinstance(node.elts[2], ast.Constant):
                name, unit = node.elts[0], node.elts[2].value
                timed = isinstance(unit, str) and TIME_UNIT.search(unit) is not None
                if isinstance(name, ast.Constant):
                    (names if timed else others).append(re.escape(str(name.value)))
                elif isinstance(name, ast.JoinedStr) and timed:
                    names.append(spelled(name))
    return re.compile(f"^(?!({'|'.join(others)})$)({'|'.join(names)})$")


def spelled(name: ast.JoinedStr) -> str:
    return "".join(
        re.escape(str(part.value)) if isinstance(part, ast.Constant) else r"\w+" for part in name.values
    )


def measured(node: ast.AST, names: set[str]) -> bool:
    """Whether a measured time is in this expression."""
    return any(
        is_clock(part)
        or (isinstance(part, ast.Name) and part.id in names)
        or (isinstance(part, ast.Attribute) and figures().search(part.attr) is not None)
        or (
            isinstance(part, ast.Subscript)
            and isinstance(part.slice, ast.Constant)
            and isinstance(part.slice.value, str)
            and figures().search(part.slice.value) is not None
        )
        for part in ast.walk(node)
    )


def timed_names(function: ast.AST, known: set[str]) -> set[str]:
    """The names in a function that hold a measured time, and the functions in `known` that return one."""
    names, before = set(known), -1
    while len(names) != before:
        before = len(names)
        for node in ast.walk(function):
            targets: Sequence[ast.AST] = ()
            if isinstance(node, ast.Assign) and measured(node.value, names):
                targets = node.targets
            elif isinstance(node, ast.AugAssign | ast.NamedExpr | ast.AnnAssign) and node.value is not None:
                targets = [node.target] if measured(node.value, names) else ()
            elif isinstance(node, ast.comprehension | ast.For) and measured(node.iter, names):
                targets = [node.target]
            elif isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute):
                kept = node.func.attr in ("append", "extend", "add")
                targets = [node.func.value] if kept and any(measured(arg, names) for arg in node.args) else ()
            for target in targets:
                names |= {part.id for part in ast.walk(target) if isinstance(part, ast.Name)}
    return names


def find_timed(modules: Sequence[Module]) -> None:
    """Mark the functions that return a measured time, until no more are found."""
    by_name = {module.path.stem: module for module in modules}
    changed = True
    while changed:
        changed = False
        for module in modules:
            known = {name for stem, name in module.imports if stem in by_name and name in by_name[stem].timed}
            if not (module.reads_clock or known):
                continue
            for function in module.functions:
                names = timed_names(function, module.timed | known)
                given = [
                    node.value for node in ast.walk(function) if isinstance(node, ast.Return | ast.Yield)
                ]
                timed = any(value is not None and measured(value, names) for value in given)
                if timed and function.name not in module.timed:
                    module.timed.add(function.name)
                    changed = True
            changed = changed or bool(known - module.timed)
            module.timed |= known


def bound(compare: ast.Compare, names: set[str], *, refuted: bool) -> ast.AST | None:
    """What a measured time must stay below, or a measured speed above; None if it is no such comparison.

    `took >= 5` is none: that a wait was not cut short is true at any speed of the machine. `refuted`: the
    test fails where it holds.
    """
    sides = [compare.left, *compare.comparators]
    for left, sign, right in zip(sides, compare.ops, sides[1:], strict=False):
        if not isinstance(sign, SIGNS):
            continue
        lower, upper = (left, right) if isinstance(sign, ast.Lt | ast.LtE) != refuted else (right, left)
        if measured(lower, names):
            return upper
        if measured(upper, names) and any(isinstance(part, ast.Div) for part in ast.walk(upper)):
            return lower  # rows / took > 500
    return None


def allowed(line: str, limit: ast.AST | None = None) -> bool:
    said = ALLOWED.search(line)
    if said is None or said["usual"] is None:
        return said is not None
    is_number = isinstance(limit, ast.Constant) and isinstance(limit.value, int | float)
    return is_number and limit.value >= MARGIN * float(said["usual"])


def failing(function: ast.AST) -> Iterator[tuple[ast.AST, bool]]:
    """What decides whether a test fails: asserts, and an `if` that raises (True: it fails where it holds)."""
    for node in ast.walk(function):
        if isinstance(node, ast.Assert):
            yield node.test, isinstance(node.test, ast.UnaryOp) and isinstance(node.test.op, ast.Not)
        elif isinstance(node, ast.If) and not polls(node.test):
            ends = [part for line in node.body for part in ast.walk(line)]
            fails = any(isinstance(part, ast.Attribute) and part.attr == "fail" for part in ends)
            if fails or any(isinstance(part, ast.Raise) for part in ends):
                yield node.test, True


def polls(test: ast.AST) -> bool:
    """Whether it is `time.monotonic() > deadline`: the deadline itself is looked at where the loop waits."""
    sides = [test.left, *test.comparators] if isinstance(test, ast.Compare) else []
    return any(map(is_clock, sides)) and any(isinstance(side, ast.Name) for side in sides)


def number(node: ast.AST | None, low: float, high: float) -> bool:
    """Whether it is a number that was written down, between these two."""
    value = node.value if isinstance(node, ast.Constant) else None
    return isinstance(value, int | float) and not isinstance(value, bool) and low < value < high


def waits(node: ast.AST) -> bool:
    """Whether it is a call that gives up soon, or `time.monotonic() + 3`."""
    if isinstance(node, ast.BinOp) and isinstance(node.op, ast.Add) and is_clock(node.left):
        return number(node.right, 0, LEAST_WAIT_S)
    if not isinstance(node, ast.Call):
        return False
    name = node.func.attr if isinstance(node.func, ast.Attribute) else getattr(node.func, "id", "")
    given = [keyword.value for keyword in node.keywords if keyword.arg in LIMITS]
    if name in WAITS:
        given += node.args[WAITS[name] : WAITS[name] + 1]
    return any(number(value, 0, LEAST_WAIT_S) for value in given)


def sleeps(tree: ast.AST) -> Iterator[ast.Call]:
    """The sleeps that stand in no `while`: what should have happened meanwhile may not have."""
    polled = {id(part) for node in ast.walk(tree) if isinstance(node, ast.While) for part in ast.walk(node)}
    for node in ast.walk(tree):
        called = getattr(node, "func", None)
        is_sleep = getattr(called, "attr", getattr(called, "id", "")) == "sleep" and node.args
        if is_sleep and id(node) not in polled and number(node.args[0], 0, PAUSE_S):
            yield node


def findings(module: Module) -> Iterator[str]:
    found: dict[int, str] = {}
    for function in module.functions:
        names = timed_names(function, module.timed)
        for test, refuted in failing(function):
            for compare in (part for part in ast.walk(test) if isinstance(part, ast.Compare)):
                limit = bound(compare, names, refuted=refuted)
                if limit is not None and not allowed(module.lines[compare.lineno - 1], limit):
                    found[compare.lineno] = "asserts a time"
    for node in ast.walk(module.tree):
        text = "\n".join(module.lines[node.lineno - 1 : node.end_lineno]) if waits(node) else ""
        if text and not allowed(text):
            found.setdefault(node.lineno, f"waits less than {LEAST_WAIT_S} s")
    if module.path.name.startswith("test_"):
        for node in sleeps(module.tree):
            if not allowed(module.lines[node.lineno - 1]):
                found.setdefault(node.lineno, "sleeps")
    for line, what in sorted(found.items()):
        yield f"{module.path}:{line}: {what}: {module.lines[line - 1].strip()}"


def main(argv: Sequence[str]) -> int:
    modules = [Module(path) for path in sorted(TESTS.rglob("*.py")) if "old_runs" not in path.parts]
    modules += [Module(Path(path)) for path in argv if Path(path).resolve() not in {m.path for m in modules}]
    find_timed(modules)
    wanted = {Path(path).resolve() for path in argv}
    lines = [
        line
        for module in modules
        if not wanted or module.path.resolve() in wanted
        for line in findings(module)
    ]
    print(*lines, f"{len(lines)} left" if lines else "ok", sep="\n")
    return 1 if lines else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
