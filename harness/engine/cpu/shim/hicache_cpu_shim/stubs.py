"""Stand-ins for packages that SGLang imports at module level and does not call on CPU."""

from __future__ import annotations

import importlib
import importlib.abc
import importlib.machinery
import importlib.util
import sys
from collections.abc import Iterable, Sequence
from types import ModuleType
from typing import Any


def install(packages: Iterable[str]) -> None:
    """Offer a stand-in for each package that is absent; a real one always wins."""
    absent = frozenset(name for name in packages if importlib.util.find_spec(name) is None)
    sys.meta_path.append(_Finder(absent))


class _Constants(type):
    """Lets a class be read like an enum at import time, e.g. `InterpolationMode.BICUBIC`."""

    def __getattr__(cls, name: str) -> str:
        _refuse_dunder(name)
        return f"{cls.__name__}.{name}"


class _Anything(metaclass=_Constants):
    """Has every attribute, takes every call; as a decorator it returns the function unchanged."""

    def __init__(self, *_args: object, **_kwargs: object) -> None: ...

    def __init_subclass__(cls, **_kwargs: object) -> None: ...

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        decorates = len(args) == 1 and not kwargs and callable(args[0])
        return args[0] if decorates else _Anything()

    def __getattr__(self, name: str) -> _Anything:
        _refuse_dunder(name)
        return _Anything()


class _StubModule(ModuleType):
    __version__ = "0.0.0"

    def __getattr__(self, name: str) -> Any:
        _refuse_dunder(name)
        full = f"{self.__name__}.{name}"
        if full == "triton.runtime.driver":
            # What the real Triton says without a GPU; SGLang takes it for "CPU only".
            raise RuntimeError("0 active drivers ([]). There should only be one.")
        if full == "triton.runtime":
            return importlib.import_module(full)
        if full in sys.modules:
            return sys.modules[full]
        is_class = name[:1].isupper()
        value = type(name, (_Anything,), {"__module__": self.__name__}) if is_class else _Anything()
        setattr(self, name, value)
        return value


class _Finder(importlib.abc.MetaPathFinder, importlib.abc.Loader):
    def __init__(self, packages: frozenset[str]) -> None:
        self._packages = packages

    def find_spec(
        self, fullname: str, path: Sequence[str] | None, target: ModuleType | None = None
    ) -> importlib.machinery.ModuleSpec | None:
        if fullname.partition(".")[0] not in self._packages:
            return None
        return importlib.machinery.ModuleSpec(fullname, self, is_package=True)

    def create_module(self, spec: importlib.machinery.ModuleSpec) -> ModuleType:
        return _StubModule(spec.name)

    def exec_module(self, module: ModuleType) -> None:
        module.__path__ = []


def _refuse_dunder(name: str) -> None:
    # Python probes objects for special methods; saying yes to all of them breaks copy, pickle and inspect.
    if name.startswith("__") and name.endswith("__"):
        raise AttributeError(name)
