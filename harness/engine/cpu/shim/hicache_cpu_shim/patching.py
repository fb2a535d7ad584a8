"""Change a module right after its import, before anybody can copy names out of it."""

from __future__ import annotations

import importlib
import importlib.abc
import importlib.machinery
import sys
from collections.abc import Mapping, Sequence
from types import ModuleType
from typing import Any


def install(patches: Mapping[str, str]) -> None:
    """Run `package.module:function` on each named module once it is imported."""
    sys.meta_path.insert(0, _Finder(patches))


class _Finder(importlib.abc.MetaPathFinder):
    def __init__(self, patches: Mapping[str, str]) -> None:
        self._patches = patches

    def find_spec(
        self, fullname: str, path: Sequence[str] | None, target: ModuleType | None = None
    ) -> importlib.machinery.ModuleSpec | None:
        if fullname not in self._patches:
            return None
        spec = importlib.machinery.PathFinder.find_spec(fullname, path, target)
        if spec is not None and spec.loader is not None:
            spec.loader = _ThenPatch(spec.loader, self._patches[fullname])
        return spec


class _ThenPatch(importlib.abc.Loader):
    """The module's own loader, then the patch."""

    def __init__(self, loader: importlib.abc.Loader, patch: str) -> None:
        self._loader = loader
        self._patch = patch

    def create_module(self, spec: importlib.machinery.ModuleSpec) -> ModuleType | None:
        return self._loader.create_module(spec)

    def exec_module(self, module: ModuleType) -> None:
        self._loader.exec_module(module)
        # Imported only now: the patches need torch, which most processes that get the shim never load.
        where, function = self._patch.split(":")
        getattr(importlib.import_module(where), function)(module)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._loader, name)
