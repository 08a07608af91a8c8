"""What the house may not grow beyond; run by CI and by hand: `python tests/limits.py`.

Reads the sources and imports none of them. The last line is `ok`, or what is over. A ceiling is raised by the
issue that its row names, and by nothing else; it goes down whenever there is less.
"""

import ast
import re
import sys
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
FOLDERS = ("toolkit", "adapters", "recipes", "cli")
CEILINGS = {
    # what: (ceiling, which issue may raise it)
    # over House II's: programs of tools (4,900), imagined runs (2,300), the kernel sandbox (1,500), the
    # LangGraph runtime (1,300), secrets by maintained rules (1,100), fields of the environment (650),
    # effects by argument (500), what LangGraph calls beside nodes and other attacks on the gate (250),
    # views (230), drafted programs and OpenAPI documents (640), proofs of look-ups (220), kept mining and
    # next steps (330), failed writes (150)
    "lines": (91_500, "The dream speaks, Day one; House II ends at 66,000"),
    "files": (369, "The dream speaks; House II ends at 380"),
    "setting_declarations": (0, "none"),
    "single_importer_modules": (43, "House II ends at 45"),
    "circles": (0, "none"),
    "longest_function": (90, "none"),
    "shared_class_names": (0, "none"),
    "mechanisms": (1, "none"),
    "docs_words": (27_200, "Day one, 900"),
    "tests": (2_810, "none; House III ends at 2,600"),
    "test_lines": (87_100, "The dream speaks, Day one; House III ends at 37,000"),
}
# What marks an implementation of each job, and where another one is meant to be. `mechanisms` is the largest
# number of modules that one mark is found in.
MECHANISMS = {
    "append-only log": (r"os\.O_CREAT \| os\.O_APPEND\)", ""),
    "lock": (r"fcntl\.flock\(|\bFileLock\(", ""),
    "masking": (r"^class \w*Masker\b", ""),
    "retry": (r"\.retry_after_s or\b", ""),
    "request to a model": (r"\bAsyncOpenAI\(", ""),
    "calibration": (r"^class \w*Calibrator\b", ""),
    "worker": (r"framed\(REQUEST", ""),
    "words of a search": (r"\bbm25\(\w*\)|_bm25\b|def \w*bm25", "adapters/stores/weaviate"),
}


def measured() -> dict[str, int]:
    """Give each figure of `CEILINGS`."""
    pages = [*_files("*.py"), *_files("*.js"), *_files("*.css"), *_files("*.html")]
    trees = {file: ast.parse(file.read_text("utf-8")) for file in _files("*.py")}
    imports = _imports(trees)
    importers = Counter(name for names in imports.values() for name in names)
    return {
        "lines": sum(file.read_bytes().count(b"\n") for file in pages),
        "files": len(pages),
        "setting_declarations": _declarations(),
        "single_importer_modules": sum(count == 1 for count in importers.values()),
        "circles": sum(len(circle) > 1 for circle in _circles(_imports(trees, at_top=True))),
        "longest_function": max(_lengths(trees.values())),
        "shared_class_names": sum(count > 1 for count in _public_classes(trees.values()).values()),
        "mechanisms": max(_implementations(trees).values()),
        "docs_words": sum(len(file.read_text("utf-8").split()) for file in (ROOT / "docs").rglob("*.md")),
        "tests": sum(_tests(ast.parse(file.read_bytes())) for file in _test_files() if _is_collected(file)),
        "test_lines": sum(file.read_bytes().count(b"\n") for file in _test_files()),
    }


def _files(pattern: str) -> list[Path]:
    return sorted(
        file
        for folder in FOLDERS
        for file in (ROOT / folder).rglob(pattern)
        if "__pycache__" not in file.parts and "node_modules" not in file.parts
    )


def _test_files() -> list[Path]:
    return sorted(file for file in (ROOT / "tests").rglob("*.py") if "__pycache__" not in file.parts)


def _is_collected(file: Path) -> bool:
    return file.name.startswith("test_")


def _tests(tree: ast.Module) -> int:
    """Functions that pytest collects; the rows of a table count once."""
    inside = [part for node in tree.body if isinstance(node, ast.ClassDef) for part in node.body]
    kinds = ast.FunctionDef | ast.AsyncFunctionDef
    return sum(isinstance(node, kinds) and node.name.startswith("test_") for node in (*tree.body, *inside))


def _module(file: Path) -> str:
    """The name that a file is imported by: what is in toolkit/ stands at the top."""
    parts = file.relative_to(ROOT).with_suffix("").parts
    parts = parts[1:] if parts[0] == "toolkit" else parts
    return ".".join(("dreamgym_kit", *(part for part in parts if part != "__init__")))


def _imports(trees: dict[Path, ast.Module], *, at_top: bool = False) -> dict[str, set[str]]:
    """What each module imports of ours; `at_top`: as it is loaded, not within functions or for types."""
    known = {_module(file) for file in trees}
    found: dict[str, set[str]] = {}
    for file, tree in trees.items():
        nodes = _loaded(tree.body) if at_top else ast.walk(tree)
        names = {name for node in nodes for name in _named(node, known)}
        found[_module(file)] = names - {_module(file)}
    return found


def _loaded(body: Iterable[ast.stmt]) -> Iterator[ast.AST]:
    for node in body:
        if isinstance(node, ast.If) and "TYPE_CHECKING" not in ast.dump(node.test):
            yield from _loaded([*node.body, *node.orelse])
        elif isinstance(node, ast.Try):
            yield from _loaded([*node.body, *node.orelse, *node.finalbody])
        else:
            yield node


def _named(node: ast.AST, known: set[str]) -> Iterator[str]:
    if isinstance(node, ast.Import):
        yield from (alias.name for alias in node.names if alias.name in known)
    if isinstance(node, ast.ImportFrom) and node.module:
        for alias in node.names:
            inner = f"{node.module}.{alias.name}"
            if inner in known:
                yield inner
            elif node.module in known:
                yield node.module


def _circles(imports: dict[str, set[str]]) -> Iterator[list[str]]:
    """The strongly connected parts (Tarjan 1972), without recursion's bound being met here."""
    sys.setrecursionlimit(10_000)
    order: dict[str, int] = {}
    low: dict[str, int] = {}
    stack: list[str] = []
    found: list[list[str]] = []

    def visit(name: str) -> None:
        order[name] = low[name] = len(order)
        stack.append(name)
        for other in sorted(imports.get(name, ())):
            if other not in order:
                visit(other)
                low[name] = min(low[name], low[other])
            elif other in stack:
                low[name] = min(low[name], order[other])
        if low[name] == order[name]:
            place = stack.index(name)
            found.append(stack[place:])
            del stack[place:]

    for name in sorted(imports):
        if name not in order:
            visit(name)
    yield from found


def _declarations() -> int:
    """Places that state a setting's default, words, type or bound beside the field that declares it."""
    keys: dict[str, set[str]] = defaultdict(set)
    model = ast.parse((ROOT / "toolkit/settings/schema.py").read_text("utf-8"))
    classes = {node.name: node for node in model.body if isinstance(node, ast.ClassDef)}
    for field in (node for node in classes["Settings"].body if isinstance(node, ast.AnnAssign)):
        section = classes.get(getattr(field.annotation, "id", ""))
        if section is not None and isinstance(field.target, ast.Name):
            names = [node.target for node in section.body if isinstance(node, ast.AnnAssign)]
            keys[field.target.id] = {name.id for name in names if isinstance(name, ast.Name)}
    texts = "\n".join(file.read_text("utf-8") for file in _files("*.py") if _states_settings(file))
    tuples = re.findall(r'\("(\w+)", "(\w+)"\):', texts)
    dotted = re.findall(r'"(\w+)\.(\w+)":', texts)
    return sum(key in keys.get(section, ()) for section, key in (*tuples, *dotted))


def _states_settings(file: Path) -> bool:
    return file.is_relative_to(ROOT / "cli") or file.is_relative_to(ROOT / "toolkit/settings")


def _public_classes(trees: Iterable[ast.Module]) -> Counter[str]:
    nodes = (node for tree in trees for node in ast.walk(tree) if isinstance(node, ast.ClassDef))
    return Counter(node.name for node in nodes if not node.name.startswith("_"))


def _implementations(files: Iterable[Path]) -> dict[str, int]:
    """In how many modules each job of `MECHANISMS` is done."""
    texts = {str(file.relative_to(ROOT)): file.read_text("utf-8") for file in files}
    return {
        job: sum(
            bool(re.search(mark, text, re.MULTILINE))
            for name, text in texts.items()
            if not (elsewhere and name.startswith(elsewhere))
        )
        for job, (mark, elsewhere) in MECHANISMS.items()
    }


def _lengths(trees: Iterable[ast.Module]) -> Iterator[int]:
    for tree in trees:
        for node in ast.walk(tree):
            if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
                yield (node.end_lineno or node.lineno) - node.lineno + 1


def main(figures: Mapping[str, int] | None = None) -> int:
    """Print each figure beside its ceiling; the last line says whether all hold."""
    figures = measured() if figures is None else figures
    over = []
    for what, (ceiling, raised_by) in CEILINGS.items():
        print(f"{what:<24} {figures[what]:>7,}  ceiling {ceiling:>7,}  ({raised_by})")
        if figures[what] > ceiling:
            over.append(f"{what} {figures[what]:,} > {ceiling:,}")
    print("; ".join(over) or "ok")
    return 1 if over else 0


if __name__ == "__main__":
    sys.exit(main())
