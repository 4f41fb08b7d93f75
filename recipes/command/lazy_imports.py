"""Imports that wait until a module is used, so that `--help` and a mistake in a config do not wait for TensorFlow."""

from __future__ import annotations

import contextlib
import sys
import threading
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from importlib.abc import Loader, MetaPathFinder
from importlib.machinery import ModuleSpec
from types import ModuleType
from typing import Any


class LazyImports(MetaPathFinder):
    """A finder after which `import NAME` runs the code of some modules when the first attribute of theirs is read.

    Those that have been imported before stay as they are. `from NAME import attribute` reads one, so it does not wait.

    Args:
        *names: The modules, dotted.
        apart: Parts of packages among them, with what is in them, that are imported without running their package.

    Example:

    >>> sys.meta_path.insert(0, LazyImports("keras"))
    >>> import keras
    >>> "keras.src" in sys.modules
    False

    Reference:
        https://docs.python.org/3/library/importlib.html#implementing-lazy-imports
    """

    def __init__(self, *names: str, apart: Sequence[str] = ()) -> None:
        self._names, self._apart = frozenset(names), tuple(f"{name}." for name in apart)
        _OPEN.update(name.rpartition(".")[0] for name in apart)

    def find_spec(
        self, fullname: str, path: Sequence[str] | None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        """Returns where one of the modules is, as the other finders say it, with a loader that waits."""
        package = fullname.rpartition(".")[0]
        if package in _OPEN and not f"{fullname}.".startswith(self._apart):
            vars(sys.modules[package])  # runs it
        if target is None and fullname in sys.modules:
            # a package that waited has just run, and imported this module
            module = sys.modules[fullname]
            spec = ModuleSpec(fullname, _Loaded(module))
            # Python takes that of the module itself, if it was not there before this was asked
            module.__spec__ = spec
            return spec
        if fullname not in self._names:
            return None
        others = (finder.find_spec(fullname, path, target) for finder in sys.meta_path if finder is not self)
        spec = next((found for found in others if found is not None), None)
        if spec is not None and spec.loader is not None:
            spec.loader = _Waiting(spec.loader)
        return spec


class _Waiting(Loader):
    def __init__(self, loader: Loader) -> None:
        self._loader = loader

    def create_module(self, spec: ModuleSpec) -> ModuleType | None:
        return self._loader.create_module(spec)

    def exec_module(self, module: ModuleType) -> None:
        module.__spec__.loader = module.__loader__ = self._loader
        module.__class__ = _LazyModule


class _Loaded(Loader):
    """Gives the module that there is: a second one would have the same classes again."""

    def __init__(self, module: ModuleType) -> None:
        self._module, self._spec = module, module.__spec__

    def create_module(self, spec: ModuleSpec) -> ModuleType:
        return self._module

    def exec_module(self, module: ModuleType) -> None:
        module.__spec__ = self._spec


class _LazyModule(ModuleType):
    """A module whose code runs at the first look at what it holds.

    `importlib.util.LazyLoader` runs it even when Python looks at `__spec__`, as it does at every further import and as
    TensorFlow does with Keras in the middle of its own, and for `isinstance`, which looks at `__class__`.
    """

    def __getattribute__(self, name: str) -> Any:
        if name in ("__spec__", "__class__"):
            return ModuleType.__getattribute__(self, name)
        spec = ModuleType.__getattribute__(self, "__spec__")
        if name == "__path__" and spec.name in _OPEN:
            return ModuleType.__getattribute__(self, name)
        # other threads wait until all of it is there; this one comes here again from within its code
        with _LOCK:
            if spec.name not in _RUNNING and ModuleType.__getattribute__(self, "__class__") is _LazyModule:
                _RUNNING.add(spec.name)
                try:
                    with around_imports():
                        spec.loader.exec_module(self)
                    self.__class__ = ModuleType
                finally:
                    _RUNNING.discard(spec.name)
        return ModuleType.__getattribute__(self, name)


# the context in which modules that have waited are run
around_imports: Callable[[], AbstractContextManager[None]] = contextlib.nullcontext
_LOCK = threading.RLock()
# names of modules whose code is being run
_RUNNING: set[str] = set()
# names of packages with parts that are imported without running them
_OPEN: set[str] = set()
