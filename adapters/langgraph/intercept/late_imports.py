"""Modules of the foreign list that are imported after the gate was put in are met as they are loaded."""

import sys
from collections.abc import Callable, Sequence
from importlib.abc import MetaPathFinder
from importlib.machinery import ModuleSpec
from types import ModuleType
from typing import Any

from dreamgym_kit.adapters.langgraph.intercept.foreign_names import FOREIGN, KNOWN


class LateImports(MetaPathFinder):
    """Calls `then` with the name of a module or package of the list once that has been loaded."""

    def __init__(self, then: Callable[[str], None]) -> None:
        packages = {package.replace("-", "_") for package in KNOWN}
        self._names = packages | {one.module for one in FOREIGN}
        self._then = then

    def find_spec(
        self, fullname: str, path: Sequence[str] | None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        """As the other finders find it, with a loader that tells when it is done."""
        if fullname not in self._names:
            return None
        others = (finder for finder in list(sys.meta_path) if finder is not self)
        found = (finder.find_spec(fullname, path, target) for finder in others)
        spec = next((one for one in found if one is not None), None)
        if spec is not None and spec.loader is not None:
            self._tell_after(spec.loader)
        return spec

    def _tell_after(self, loader: Any) -> None:
        execute = loader.exec_module

        def exec_module(module: ModuleType) -> None:
            execute(module)
            self._then(module.__name__)

        loader.exec_module = exec_module
