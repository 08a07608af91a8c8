"""Lists what makes a test depend on the machine's speed. usage: python tests/wall_time.py [FILE...]

Two kinds: an `assert` with an upper bound on a measured time, and a wait that gives up in less than 30 s. A
comment on the line allows it: `# tenfold: USUAL` where the bound is ten times the usual seconds or more,
`# expires: REASON` where the end of the wait is what the test is about. The last line is `ok`, or how many
are left; the code is 1 then. Times are followed through assignments, calls and imports, by name.
"""

import ast
import re
import sys
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path

TESTS = Path(__file__).resolve().parent
CLOCKS = {"monotonic", "monotonic_ns", "perf_counter", "perf_counter_ns", "process_time", "thread_time"}
WAITS = {"join": 0, "wait": 0, "wait_for": 1, "result": 0, "get": None, "communicate": None, "run": None}
WAITS |= {"Barrier": None, "create_connection": None, "wait_until": None, "wait_until_async": None}
LEAST_WAIT_S, MARGIN = 30, 10
ALLOWED = re.compile(r"#.*\b(?:tenfold: (?P<usual>[\d.]+)|expires: \w)")


@dataclass
class Module:
    """One file, its functions, and which of them return a measured time."""

    path: Path
    tree: ast.Module = field(init=False)
    lines: list[str] = field(init=False)
    reads_clock: bool = field(init=False)
    timed: set[str] = field(default_factory=set)

    def __post_init__(self) -> None:
        text = self.path.read_text("utf-8")
        self.tree, self.lines = ast.parse(text), text.splitlines()
        self.reads_clock = any(is_clock(node) for node in ast.walk(self.tree))

    def functions(self) -> Iterator[ast.FunctionDef | ast.AsyncFunctionDef]:
        for node in ast.walk(self.tree):
            if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
                yield node

    def imports(self) -> Iterator[tuple[str, str]]:
        """The names that come from other files: (last part of the module, name)."""
        for node in ast.walk(self.tree):
            if isinstance(node, ast.ImportFrom) and node.module:
                yield from ((node.module.rpartition(".")[2], name.name) for name in node.names)


def is_clock(node: ast.AST) -> bool:
    if not isinstance(node, ast.Call) or not isinstance(node.func, ast.Attribute | ast.Name):
        return False
    if isinstance(node.func, ast.Name):
        return node.func.id in CLOCKS
    of_time = isinstance(node.func.value, ast.Name) and node.func.value.id in ("time", "loop")
    return node.func.attr in CLOCKS or (of_time and node.func.attr == "time")


def measured(node: ast.AST, names: set[str]) -> bool:
    """Whether a measured time is in this expression; what is in a nested function is not."""
    return any(is_clock(part) or (isinstance(part, ast.Name) and part.id in names) for part in ast.walk(node))


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
            known = {
                name for stem, name in module.imports() if stem in by_name and name in by_name[stem].timed
            }
            if not (module.reads_clock or known):
                continue
            for function in module.functions():
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


def bounded(compare: ast.Compare, names: set[str]) -> bool:
    """Whether it sets an upper bound on a measured time: `took < 5`, `5 > took`, `late / early < 2`."""
    sides = [compare.left, *compare.comparators]
    for left, operator, right in zip(sides, compare.ops, sides[1:], strict=False):
        lower = left if isinstance(operator, ast.Lt | ast.LtE) else right
        if isinstance(operator, ast.Lt | ast.LtE | ast.Gt | ast.GtE) and measured(lower, names):
            return True
    return False


def allowed(line: str, bound: ast.AST | None) -> bool:
    said = ALLOWED.search(line)
    if said is None or said["usual"] is None or bound is None:
        return said is not None
    numbers = [node.value for node in ast.walk(bound) if isinstance(node, ast.Constant)]
    return any(
        isinstance(number, int | float) and number >= MARGIN * float(said["usual"]) for number in numbers
    )


def short_wait(node: ast.Call) -> bool:
    name = node.func.attr if isinstance(node.func, ast.Attribute) else getattr(node.func, "id", "")
    if name not in WAITS:
        return False
    place = WAITS[name]
    given = [
        keyword.value for keyword in node.keywords if keyword.arg in ("timeout", "within_s", "timeout_s")
    ]
    given += [] if place is None else node.args[place : place + 1]
    return any(
        isinstance(value, ast.Constant)
        and isinstance(value.value, int | float)
        and not isinstance(value.value, bool)
        and 0 < value.value < LEAST_WAIT_S
        for value in given
    )


def findings(module: Module) -> Iterator[str]:
    reads = module.reads_clock or module.timed
    names_of = {function: timed_names(function, module.timed) for function in module.functions() if reads}
    seen: set[int] = set()
    for function, names in names_of.items():
        for node in ast.walk(function):
            if isinstance(node, ast.Assert):
                for compare in (part for part in ast.walk(node.test) if isinstance(part, ast.Compare)):
                    line = compare.lineno
                    if (
                        line in seen
                        or not bounded(compare, names)
                        or allowed(module.lines[line - 1], compare)
                    ):
                        continue
                    seen.add(line)
                    text = module.lines[line - 1].strip()
                    yield f"{module.path}:{line}: {function.name} asserts a time: {text}"
    for node in ast.walk(module.tree):
        if isinstance(node, ast.Call) and short_wait(node):
            text = "\n".join(module.lines[node.lineno - 1 : node.end_lineno])
            if not allowed(text, None):
                yield f"{module.path}:{node.lineno}: waits less than {LEAST_WAIT_S} s: {text.strip()}"


def main(argv: Sequence[str]) -> int:
    modules = [Module(path) for path in sorted(TESTS.rglob("*.py")) if "old_runs" not in path.parts]
    find_timed(modules)
    wanted = {Path(path).resolve() for path in argv}
    lines = [line for module in modules if not wanted or module.path in wanted for line in findings(module)]
    print(*lines, f"{len(lines)} left" if lines else "ok", sep="\n")
    return 1 if lines else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
