"""What of the course an answer calls. In a notebook it can; where it is graded it has only what its exercise lists."""

from __future__ import annotations

import dis
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from types import CodeType, FunctionType, ModuleType
from typing import Any

_ATTRIBUTES = {"LOAD_ATTR", "LOAD_METHOD"}


def borrows(answer: Callable, may_call: Sequence[str]) -> str:
    """The first name of helpers that an answer, or a function of the notebook that it calls, uses beyond `may_call`.

    "" where there is none, or none that its instructions tell.
    """
    waiting, seen = [answer], set()
    while waiting:
        found = waiting.pop(0)
        if isinstance(found, partial):
            waiting.append(found.func)
            continue
        if name := _name_in_course(found):
            if not _is_among(name, may_call):
                return name
        elif isinstance(found, FunctionType) and id(found) not in seen:
            seen.add(id(found))
            for name, value in _used(found.__code__, found.__globals__):
                if name and not _is_among(name, may_call) and not _is_among(_name_in_course(value), may_call):
                    return name
                waiting.append(value)
            waiting += [cell.cell_contents for cell in found.__closure__ or () if _is_filled(cell)]
    return ""


def _is_among(name: str, names: Sequence[str]) -> bool:
    return any(name == one or name.startswith(f"{one}.") for one in names)


def _name_in_course(value: Any) -> str:
    """Where helpers defines a function, a kernel or a class; "" for anything else."""
    defined = getattr(value, "fn", value)
    module, name = getattr(defined, "__module__", None), getattr(defined, "__qualname__", None)
    return f"{module}.{name}" if name and isinstance(module, str) and _is_of_course(module) else ""


def _used(code: CodeType, names: dict[str, Any]) -> Iterator[tuple[str, Any]]:
    """What the instructions load from the notebook's names: of something in a module of helpers its dotted name too."""
    module, path, imported = None, "", ""
    for step in dis.get_instructions(code):
        if module is not None and step.opname in _ATTRIBUTES:
            path, value = f"{path}.{step.argval}", getattr(module, step.argval, None)
            module = value if isinstance(value, ModuleType) else None
            if module is None:
                yield path, value
            continue
        module = None
        if step.opname == "LOAD_GLOBAL":
            value = names.get(step.argval)
            if isinstance(value, ModuleType) and _is_of_course(value.__name__):
                module, path = value, value.__name__
            else:
                yield "", value
        elif step.opname == "IMPORT_NAME":
            imported = step.argval
        elif step.opname == "IMPORT_FROM" and _is_of_course(imported):
            yield f"{imported}.{step.argval}", None
    for inner in code.co_consts:
        if isinstance(inner, CodeType):
            yield from _used(inner, names)


def _is_of_course(module: str) -> bool:
    return module.partition(".")[0] == "helpers"


def _is_filled(cell: Any) -> bool:
    try:
        return cell.cell_contents is not None
    except ValueError:
        return False
