"""What of the course a learner's process has: nothing that an answer could be made of but what its exercise lends it.

A reference that a process does not hold cannot be called there under any name, found in memory or read from a file. So
the process that sandboxes are forked from holds BASE alone, the walls show the files of these modules alone, and each
other module of `helpers` is an AbsentModule: it can be imported, and its names stand for nothing. While cells run, an
absent name lets itself be called and shown, because lessons compare and draw much that grading does not need; when an
answer is called, it is an error that names what the answer has asked for.
"""

from __future__ import annotations

import ast
import importlib
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cache
from importlib.machinery import ModuleSpec
from importlib.util import spec_from_file_location
from pathlib import Path
from types import ModuleType
from typing import Any

from helpers.instructor import REPOSITORY

BASE = frozenset(
    """
    helpers helpers.table helpers.traffic
    helpers.engine helpers.engine.* helpers.engine.compiler.*
    helpers.check.trial helpers.check.trial.*
    helpers.check.problems helpers.check.problems.problem helpers.check.problems.misled
    helpers.ranks helpers.ranks.*
    helpers.gpu helpers.gpu.architectures helpers.gpu.misleading
    helpers.xray.ask helpers.xray.compile helpers.xray.figures helpers.xray.sass
    helpers.instructor helpers.instructor.publish helpers.instructor.publish.notebooks
    helpers.instructor.sandbox helpers.instructor.sandbox.*
    """.split()
)
"""The modules that every sandbox has, `.*` for a package's: they run and record answers, and hold none."""


class NotYours(RuntimeError):
    """An answer has asked for something of the course that its exercise does not lend."""


@cache
def module_files() -> dict[str, Path]:
    """Every module of helpers, by name, with its file."""
    found = {}
    for path in sorted((REPOSITORY / "helpers").rglob("*.py")):
        *package, name = path.relative_to(REPOSITORY).with_suffix("").parts
        found[".".join(package if name == "__init__" else (*package, name))] = path
    return found


def _is_in_base(module: str) -> bool:
    return module in BASE or f"{module.rpartition('.')[0]}.*" in BASE


@dataclass(frozen=True)
class Lent:
    """What an exercise lends besides BASE: by the name of each thing, where it is; and the modules that this takes."""

    names: Mapping[str, str]
    modules: Sequence[str]

    def files(self) -> list[Path]:
        """The files of helpers that a sandbox with these modules sees."""
        return [path for name, path in module_files().items() if _is_in_base(name) or name in self.modules]


NOTHING = Lent({}, ())


@cache
def lent(names: tuple[str, ...] = ()) -> Lent:
    """What it takes to call `names`: modules of helpers, or a name in one, as in "helpers.choosing.Launch".

    To be asked where all of helpers can be imported. Raises ValueError for a name that helpers does not have.
    """
    homes = {name: _home(name) for name in names}
    found: set[str] = set()
    waiting = list(homes.values())
    while waiting:
        module = waiting.pop()
        if module not in found and not _is_in_base(module):
            found.add(module)
            waiting += _imported_by(module)
    return Lent(homes, sorted(found))


def _home(name: str) -> str:
    """The module in which something of helpers is defined."""
    module, _, attribute = name.rpartition(".")
    if name in module_files():
        return name
    if module not in module_files() or not hasattr(importlib.import_module(module), attribute):
        raise ValueError(f"helpers has no {name}.")
    home = getattr(getattr(importlib.import_module(module), attribute), "__module__", module)
    return home if home in module_files() else module


def _imported_by(module: str) -> list[str]:
    """The modules of helpers that a module imports, at its top or later."""
    found = []
    for node in ast.walk(ast.parse(module_files()[module].read_text(encoding="utf-8"))):
        if isinstance(node, ast.ImportFrom) and node.module in module_files():
            inner = [f"{node.module}.{alias.name}" for alias in node.names]
            found += [name if name in module_files() else node.module for name in inner]
    return found


class Absent:
    """Something of the course that is not lent. While cells run it takes part in what they do, and stays nothing."""

    def __init__(self, name: str) -> None:
        self.__dict__["_name"] = name

    def __repr__(self) -> str:
        return f"<{self._name}, which is the course's own>"

    def __format__(self, spec: str) -> str:
        return repr(self)

    def __getattr__(self, name: str) -> Absent:
        if name.startswith(("__", "_repr_", "_ipython_")) or name in ("_name", "_mime_"):
            raise AttributeError(name)
        return self._used()

    def __setattr__(self, name: str, value: Any) -> None:
        self._used()

    def _used(self, *_: Any, **__: Any) -> Absent:
        if _shelf.answering:
            raise NotYours(f"{self._name} is the course's own, and this exercise does not lend it: write your own.")
        return self

    def _refused(self, *_: Any) -> Any:
        raise NotYours(f"{self._name} is the course's own, and is not there when answers are graded.")

    def __iter__(self) -> Iterator[Any]:
        return iter(() if self._used() else ())

    def __bool__(self) -> bool:
        return bool(repr(self._used()))

    def __hash__(self) -> int:
        return hash(self._name)

    def __exit__(self, *error: Any) -> None:
        self._used()

    @classmethod
    def __torch_function__(cls, func: Callable, types: Any, args: tuple = (), kwargs: dict | None = None) -> Any:
        given = [*args, *(kwargs or {}).values()]
        return next((one for one in given if isinstance(one, cls)), cls("helpers"))._used()

    __call__ = __getitem__ = __enter__ = __round__ = __abs__ = __neg__ = __invert__ = _used
    __eq__ = __ne__ = __lt__ = __le__ = __gt__ = __ge__ = _used
    __add__ = __radd__ = __sub__ = __rsub__ = __mul__ = __rmul__ = __truediv__ = __rtruediv__ = _used
    __floordiv__ = __rfloordiv__ = __mod__ = __rmod__ = __pow__ = __rpow__ = __matmul__ = __rmatmul__ = _used
    __and__ = __rand__ = __or__ = __ror__ = __setitem__ = _used
    __int__ = __float__ = __index__ = __complex__ = _refused


class AbsentModule(ModuleType):
    """A module not lent as a whole: the lent names are there, all others Absent. If it is lent later, it is filled."""

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(f"module {self.__name__!r} has no attribute {name!r}")
        inner = f"{self.__name__}.{name}"
        if inner in module_files():
            return importlib.import_module(inner)
        if _shelf.has(self.__name__):
            _fill(self)
            return getattr(self, name)
        home = _shelf.names.get(inner, "")
        return getattr(importlib.import_module(home), name) if home else Absent(inner)

    def __call__(self, *_: Any, **__: Any) -> Absent:
        """Where neither is lent, a module is also the function of its name, as in helpers.softmax.cross_entropy."""
        return Absent(self.__name__)._used()


def _fill(module: AbsentModule) -> None:
    """Runs the module's own text in it."""
    module.__class__ = ModuleType
    spec = spec_from_file_location(module.__name__, module_files()[module.__name__])
    spec.loader.exec_module(module)


class _Shelf:
    """A finder of modules, asked before any other, which makes an AbsentModule of each that is not lent."""

    def __init__(self) -> None:
        self.names: dict[str, str] = {}
        self.modules: set[str] = set()
        self.everything = False
        self.answering = False

    def has(self, module: str) -> bool:
        return self.everything or _is_in_base(module) or module in self.modules

    def find_spec(self, name: str, path: Any = None, target: Any = None) -> ModuleSpec | None:
        if name not in module_files() or self.has(name):
            return None
        file = module_files()[name]
        spec = ModuleSpec(name, self, is_package=file.name == "__init__.py")
        if spec.submodule_search_locations is not None:
            spec.submodule_search_locations = [str(file.parent)]
        return spec

    def create_module(self, spec: ModuleSpec) -> AbsentModule:
        return AbsentModule(spec.name)

    def exec_module(self, module: ModuleType) -> None:
        """Nothing: it stays empty."""


_shelf = _Shelf()


def withhold() -> None:
    """From here on this process imports BASE of helpers, and of everything else the names. The first thing to do."""
    module_files()
    sys.meta_path.insert(0, _shelf)


def lend(what: Lent) -> None:
    """Gives this process what an exercise lends."""
    _shelf.names.update(what.names)
    _shelf.modules.update(what.modules)


def lend_everything() -> None:
    """Gives this process the whole course: for one in which no learner's code runs."""
    _shelf.everything = True


@contextmanager
def answering() -> Iterator[None]:
    """A call of an answer: whatever is absent is an error there."""
    before, _shelf.answering = _shelf.answering, True
    try:
        yield
    finally:
        _shelf.answering = before
