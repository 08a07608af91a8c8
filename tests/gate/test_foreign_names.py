"""What the gate is put into is looked at before anything runs: a name that is gone refuses to start."""

import subprocess
import sys
from importlib import metadata
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
from each_row import each_row
from langchain_core.language_models.chat_models import BaseChatModel
from langchain_core.tools import BaseTool
from langgraph.pregel import Pregel

from dreamgym_kit.adapters.langgraph.intercept import install as installing
from dreamgym_kit.adapters.langgraph.intercept.foreign_names import (
    FOREIGN,
    KNOWN,
    NEEDED,
    PAIRS,
    Foreign,
    check_foreign_names,
    entry,
    loaded,
    methods_of,
    missing,
)
from dreamgym_kit.adapters.langgraph.intercept.install import (
    hook_tool_functions,
    install,
    installed,
    uninstall,
)
from dreamgym_kit.adapters.langgraph.run.api import dreaming
from dreamgym_kit.errors import UserError

OURS = ("langchain-core", "langgraph", "langgraph-checkpoint", "python")  # loaded with the kit itself
HERE = [one for one in FOREIGN if one.package in OURS and one.need == NEEDED]


def removed(monkeypatch: pytest.MonkeyPatch, one: Foreign) -> None:
    """Take a name out of the very class or module that has it."""
    owner: Any = sys.modules.get(one.module) or __import__(one.module, fromlist=["_"])
    *path, last = one.name.split(".")
    for part in path:
        owner = vars(owner)[part]
    monkeypatch.delattr(owner, last)


def version_of(package: str) -> str:
    return sys.version.split()[0] if package == "python" else metadata.version(package)


@each_row("one", HERE, ids=str)
def test_each_needed_name_that_is_missing_refuses_to_start(
    one: Foreign, monkeypatch: pytest.MonkeyPatch
) -> None:
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


@each_row("package", [name for name in KNOWN if name != "langchain"])
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


def test_whatever_the_gate_replaces_in_a_class_of_the_framework_stands_in_the_list() -> None:
    install()
    try:
        roots = {root.__name__: root for root in (BaseTool, BaseChatModel, Pregel)}
        done = [(one(), name) for one, name, _, _ in installing._PATCHES._done]  # type: ignore[union-attr]
        for owner, name in done:
            if owner in roots.values() and name != "__init_subclass__":
                assert name in methods_of(owner.__name__), f"{owner.__name__}.{name} is patched, not listed"
        replaced = {(owner, name) for owner, name in done}
        for one in FOREIGN:
            if one.need == NEEDED and one.name.startswith(
                ("Pregel.", "BaseStore.", "BaseCheckpoint", "BaseCache.")
            ):
                assert getattr(entry(one), "__dreamgym__", False), f"{one} is listed, not patched"
        assert (Pregel, "stream") in replaced
    finally:
        uninstall()


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
