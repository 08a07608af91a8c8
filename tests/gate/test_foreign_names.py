"""What the gate is put into is looked at before anything runs: a name that is gone refuses to start."""

import ast
import os
import subprocess
import sys
from collections.abc import Iterator
from importlib import metadata
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any

import pytest
from each_row import each_row
from langgraph.pregel import Pregel

from dreamgym_kit.adapters.langgraph.intercept import install as installing
from dreamgym_kit.adapters.langgraph.intercept.foreign_names import (
    FOREIGN,
    NEEDED,
    PAIRS,
    TESTED_SERIES,
    Foreign,
    check_foreign_names,
    entry,
    loaded,
    missing,
)
from dreamgym_kit.adapters.langgraph.intercept.functions import of_library
from dreamgym_kit.adapters.langgraph.intercept.install import (
    hook_tool_functions,
    install,
    installed,
    uninstall,
)
from dreamgym_kit.adapters.langgraph.run.api import dreaming
from dreamgym_kit.errors import UserError
from dreamgym_kit.guard import egress

OURS = ("langchain-core", "langgraph", "langgraph-checkpoint", "python")  # loaded with the kit itself
HERE = [one for one in FOREIGN if one.package in OURS and one.need == NEEDED]


def removed(monkeypatch: pytest.MonkeyPatch, one: Foreign) -> None:
    """Take a name out of the very class or module that has it."""
    owner: Any = sys.modules.get(one.module) or __import__(one.module, fromlist=["_"])
    *path, last = one.name.split(".")
    if one.package == "python":  # some classes cannot be changed, and others are in use by the test itself
        stripped = ModuleType(one.module)
        vars(stripped).update({name: part for name, part in vars(owner).items() if name != last})
        for name in path:
            kept = {key: part for key, part in vars(vars(owner)[name]).items() if key != last}
            setattr(stripped, name, SimpleNamespace(**kept))
        monkeypatch.setitem(sys.modules, one.module, stripped)
        return
    for part in path:
        owner = vars(owner)[part]
    fields = vars(owner).get("__pydantic_fields__", {})
    if last in fields:
        monkeypatch.delitem(fields, last)
    else:
        monkeypatch.delattr(owner, last)


def version_of(package: str) -> str:
    return sys.version.split()[0] if package == "python" else metadata.version(package)


@each_row("one", HERE, ids=str)
def test_each_needed_name_that_is_missing_refuses_to_start(
    one: Foreign, monkeypatch: pytest.MonkeyPatch
) -> None:
    uninstall()  # another test may have left the gate in
    check_foreign_names()
    removed(monkeypatch, one)
    with pytest.raises(UserError) as refused:
        install()
    assert not installed()
    said = str(refused.value)
    assert said.startswith(f"{one.package} {version_of(one.package)} has no {one}, ")
    assert "or a newer dreamgym-kit" in said or said.endswith("newer dreamgym-kit. Nothing was run.")


class Environment:
    """Packages of the list as modules without anything else in them."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, **series: str) -> None:
        self._set, self._versions = monkeypatch, {name.replace("_", "-"): one for name, one in series.items()}
        for name in [name for name in sys.modules if name.partition(".")[0] in ("mcp", "fastmcp")]:
            monkeypatch.delitem(sys.modules, name)
        monkeypatch.delitem(sys.modules, "langchain_mcp_adapters", raising=False)
        known = metadata.version
        monkeypatch.setattr(
            metadata,
            "version",
            lambda name: f"{self._versions[name]}.9" if name in self._versions else known(name),
        )
        for package in set(self._versions) - set(OURS):
            self._add(package.replace("-", "_"))
        for one in self.names():
            owner: Any = self._add(one.module)
            *path, last = one.name.split(".")
            for part in path:
                owner.__dict__.setdefault(part, type(part, (), {}))
                owner = vars(owner)[part]
            setattr(owner, last, lambda: None)

    def names(self) -> list[Foreign]:
        return [
            one
            for one in FOREIGN
            if one.package in self._versions
            and one.package not in OURS
            and (not one.series or self._versions[one.package] in one.series)
        ]

    def _add(self, name: str) -> ModuleType:
        made = sys.modules.get(name)
        if made is None or made.__spec__ is not None:
            made = ModuleType(name)
            self._set.setitem(sys.modules, name, made)
        return made


SERIES = [("mcp", "1"), ("mcp", "2"), ("fastmcp", "3"), ("fastmcp", "4")]


@each_row(("package", "series"), SERIES)
def test_so_does_each_of_every_series_of_a_package_that_is_not_installed(
    package: str, series: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    names = Environment(monkeypatch, **{package: series}).names()
    check_foreign_names()
    assert names
    for one in names:
        with monkeypatch.context() as within:
            removed(within, one)
            if one.need == NEEDED:
                with pytest.raises(UserError, match=rf"^{package} {series}\.9 has no {one}, "):
                    check_foreign_names()
            else:
                check_foreign_names()
                assert one in missing(loaded())
    check_foreign_names()


@each_row("package", [name for name in TESTED_SERIES if name != "langchain"])
def test_an_unknown_series_of_a_package_in_use_refuses_to_start(
    package: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    Environment(monkeypatch, **{package.replace("-", "_"): "97"})
    with pytest.raises(UserError, match=rf"^{package} 97\.9 is not known to this kit"):
        check_foreign_names()


@each_row("pair", PAIRS, ids=str)
def test_a_pair_that_was_tried_starts_and_one_that_was_not_is_refused_by_name(
    pair: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    with monkeypatch.context() as within:
        Environment(within, mcp=pair.sdk, **{pair.package.replace("-", "_"): pair.series})
        check_foreign_names()
    other = {"1": "2", "2": "1"}[pair.sdk]
    Environment(monkeypatch, mcp=other, **{pair.package.replace("-", "_"): pair.series})
    with pytest.raises(UserError) as refused:
        check_foreign_names()
    assert str(refused.value).startswith(f"mcp {other}.9 with {pair.package} {pair.series}.9 was never tried")
    assert str(pair) in str(refused.value)


def test_what_the_graph_brought_is_looked_at_before_the_first_episode(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    install()
    try:
        Environment(monkeypatch, mcp="3")
        with pytest.raises(UserError, match=r"mcp 3\.9 is not known"):
            hook_tool_functions()
        with pytest.raises(UserError, match=r"mcp 3\.9 is not known"), dreaming():
            pass
    finally:
        uninstall()


def _replaced() -> Iterator[tuple[Any, str]]:
    """Where gate and guard have put something of their own."""
    for one, name, _, _ in installing._PATCHES._done:  # type: ignore[union-attr]
        owner: Any = one()
        module = owner if isinstance(owner, ModuleType) else sys.modules.get(owner.__module__)
        if module is None:  # made by another test, and gone
            continue
        ours = not of_library(getattr(module, "__file__", None) or "<built in>")  # other tests' own classes
        if name != "__init_subclass__" and not ours:
            yield owner, name
    yield from ((owner, name) for owner, name, _ in egress._doors.replaced)


def test_whatever_the_gate_or_the_guard_replaces_stands_in_the_list(tmp_path: Path) -> None:
    install()
    egress.arm(egress.Allowance(paths=(tmp_path,)), lambda trip: None, lambda: None)
    try:
        listed = {(id(owner_of(one)), one.method) for one in FOREIGN if one.module in sys.modules}
        for owner, name in _replaced():
            bases = owner.__mro__ if isinstance(owner, type) else (owner,)
            assert any((id(base), name) in listed for base in bases), f"{owner}.{name}: patched, not listed"
        for one in FOREIGN:
            if one.need == NEEDED and one.name.startswith(
                ("Pregel.", "BaseStore.", "BaseCheckpoint", "BaseCache.")
            ):
                assert getattr(entry(one), "__dreamgym__", False), f"{one} is listed, not patched"
        assert {(Pregel, "stream"), (os, "_exit")} <= set(_replaced())
    finally:
        egress.disarm()
        uninstall()


def owner_of(one: Foreign) -> Any:
    owner: Any = sys.modules[one.module]
    for part in one.name.split(".")[:-1]:
        owner = getattr(owner, part, None)
    return owner


def test_no_other_code_changes_what_is_not_ours() -> None:
    ways = {
        ("patches.py", "PatchSet.undo"), ("patches.py", "plain_wrapper"),  # and `replace`, by `_setter`
        ("egress.py", "_Doors._replace"), ("egress.py", "_Doors.reopen"),
        ("install.py", "_isolated"),  # tempfile.tempdir, which is there to be set
    }  # fmt: skip
    found = set()
    for file in [*GATE.rglob("*.py"), *GUARD.rglob("*.py")]:
        tree = ast.parse(file.read_text("utf-8"))
        foreign = {
            (one.asname or one.name).partition(".")[0]
            for node in ast.walk(tree)
            if isinstance(node, (ast.Import, ast.ImportFrom))
            if not (getattr(node, "module", None) or "").startswith("dreamgym_kit")
            for one in node.names
        }
        for name, function in _functions(tree):
            if any(_changes(node, foreign) for node in ast.walk(function)):
                found.add((file.name, name))
    assert {("patches.py", "PatchSet.undo"), ("egress.py", "_Doors._replace")} <= found
    assert found <= ways, f"changes foreign names past PatchSet: {found - ways}"


GATE = Path(installing.__file__).parents[1]
GUARD = Path(egress.__file__).parent


def _functions(tree: ast.AST, outer: str = "") -> Iterator[tuple[str, ast.AST]]:
    for node in ast.iter_child_nodes(tree):
        if isinstance(node, ast.ClassDef):
            yield from _functions(node, f"{node.name}.")
        elif isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef)):
            yield f"{outer}{node.name}", node


def _changes(node: ast.AST, foreign: set[str]) -> bool:
    """Whether a step sets an attribute of something imported, or by `setattr` of anything but itself."""
    if isinstance(node, ast.Call):
        called, first = ast.unparse(node.func), ast.unparse(node.args[0]) if node.args else ""
        return called.endswith(("setattr", "delattr", "__setattr__", "__delattr__")) and first != "self"
    if isinstance(node, ast.Attribute) and isinstance(node.ctx, (ast.Store, ast.Del)):
        return ast.unparse(node).partition(".")[0] in foreign
    return False


LATE = """
import sys
from dreamgym_kit.adapters.langgraph.intercept.install import install
from dreamgym_kit.errors import UserError
install()
assert "mcp" not in sys.modules
try:
    import mcp
except UserError as error:
    print(error)
else:
    print(mcp.ClientSession.send_request.__code__.co_filename)
"""


def fake(folder: Path, version: str) -> None:
    """A package `mcp` of a version, in which `send_request` has moved away."""
    (folder / "mcp" / "shared").mkdir(parents=True)
    (folder / "mcp" / "__init__.py").write_text("import mcp.shared.session\n")
    (folder / "mcp" / "shared" / "__init__.py").write_text("")
    (folder / "mcp" / "shared" / "session.py").write_text("class BaseSession: ...\n")
    info = folder / f"mcp-{version}.dist-info"
    info.mkdir()
    (info / "METADATA").write_text(f"Metadata-Version: 2.1\nName: mcp\nVersion: {version}\n")


@pytest.fixture(params=["", "1.99.0", "3.0.0"])
def imported_late(request: pytest.FixtureRequest, tmp_path: Path) -> tuple[str, str]:
    if request.param:
        fake(tmp_path, request.param)
    before = f"import sys; sys.path.insert(0, {str(tmp_path)!r})\n"
    done = subprocess.run(
        [sys.executable, "-c", before + LATE], capture_output=True, text=True, check=False, cwd=tmp_path
    )
    return request.param, done.stdout.strip() or done.stderr


def test_what_is_imported_after_the_gate_is_held_or_refused(imported_late: tuple[str, str]) -> None:
    version, said = imported_late
    expected = {
        "": "<gate in mcp.shared.session.BaseSession.send_request>",
        "1.99.0": "mcp 1.99.0 has no mcp.shared.session.BaseSession.send_request, by which",
        "3.0.0": "mcp 3.0.0 is not known to this kit",
    }
    assert said.startswith(expected[version])
