"""Why an answer stopped with an error: the learner's line, and what in it is wrong where that is a known mistake.

A crash is recognised by the type of its error, by the line as a syntax tree, and by the values of the names in it. What
Triton, torch and Python say of it is for the reader.
"""

from __future__ import annotations

import ast
import builtins
import inspect
import linecache
import os
import re
import sysconfig
import textwrap
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from types import FrameType, FunctionType, ModuleType, TracebackType
from typing import Any

import numpy as np
import torch
import triton.language as tl

from helpers.check.trial.starter import plain_function
from helpers.engine import frontend, interpreter

_HELPERS = str(Path(__file__).resolve().parents[2]) + os.sep
_INSTALLED = tuple(
    os.path.join(os.path.realpath(sysconfig.get_path(name)), "") for name in ("stdlib", "purelib", "platlib")
)
_HOST_MODULES = ("torch", "numpy", "np", "math")
_REDUCTIONS = ("max", "min", "sum", "argmax", "argmin", "reduce")
_LONGEST_LINE = 160


@dataclass(frozen=True)
class Stop:
    """Where an answer stopped: the text of the learner's line, its number and file, and the id of the known cause."""

    line: str = ""
    number: int = 0
    file: str = ""
    cause: str = ""


@dataclass(frozen=True)
class _Spot:
    """The statement that failed, the function around it, and what its names stand for."""

    error: BaseException
    statement: ast.AST
    function: ast.AST | None = None
    names: Mapping[str, Any] = field(default_factory=dict)
    local: Mapping[str, Any] = field(default_factory=dict)
    compiled: bool = False
    """Whether Triton's compiler has refused the line."""

    def value(self, node: ast.AST) -> Any:
        """What a name in the line stands for; None for anything else."""
        return self.local.get(node.id, self.names.get(node.id)) if isinstance(node, ast.Name) else None

    def parts(self, *kinds: type) -> Iterator[Any]:
        """The nodes of these kinds in the statement. Of a loop or another block only its first line is looked at."""
        for node in ast.walk(_head(self.statement)):
            if isinstance(node, kinds):
                yield node

    def used(self) -> list[Any]:
        """The values of the names in the statement."""
        return [self.value(node) for node in self.parts(ast.Name)]

    def in_kernel(self) -> bool:
        """Whether the function around the line is a kernel: refused by the compiler, or decorated with jit."""
        if self.compiled:
            return True
        decorators = getattr(self.function, "decorator_list", ())
        return any("jit" in (getattr(n, "attr", ""), getattr(n, "id", "")) for d in decorators for n in ast.walk(d))


def stop_of(error: BaseException, fn: Callable | None = None) -> Stop:
    """Where `error`, raised by a call of fn, came from, and why. Nothing is known of an error from elsewhere."""
    try:
        return _stop_of(error, fn)
    except Exception:  # an error of the learner's own making may be anything, and is reported without its line
        return Stop()


def _stop_of(error: BaseException, fn: Callable | None) -> Stop:
    names = getattr(plain_function(fn), "__globals__", {})
    chain = list(chain_of(error))
    frames = [frame for cause in chain for frame in _own_frames(cause.__traceback__)]
    compiling = [one for one in chain if _is_of_the_compiler(one)]
    if compiling:
        told = compiling[-1]
        function = ast.parse(textwrap.dedent(told.src)).body[0]
        statement = _statement(function, getattr(told.node, "lineno", 0))
        spot = _Spot(_met(error, chain[-1]), statement, function, names, compiled=True)
        line = told.src.splitlines()[statement.lineno - 1]
        return Stop(_shortened(line), statement.lineno, "", _cause(spot))
    if not frames:
        return Stop()
    frame, number = frames[-1]
    file = frame.f_code.co_filename
    tree = ast.parse("".join(linecache.getlines(file)) or "pass")
    statement = _statement(tree, number)
    spot = _Spot(chain[-1], statement, _around(tree, statement), {**names, **frame.f_globals}, frame.f_locals)
    return Stop(_shortened(linecache.getline(file, number)), number, file, _cause(spot))


def _is_of_the_compiler(error: BaseException) -> bool:
    """Whether Triton's compiler has raised it about a line of the learner's."""
    source = getattr(error, "src", None)
    is_about_a_line = isinstance(source, str) and isinstance(getattr(error, "node", None), ast.AST)
    return is_about_a_line and not frontend.is_of_triton(source)


def _met(error: BaseException, last: BaseException) -> BaseException:
    """The error that the compiler's front end met: it keeps the type alone where that is one of Python's."""
    kind = getattr(error, "cause", None)
    return kind() if isinstance(error, interpreter.NotCompilable) and kind in _ERRORS else last


def chain_of(error: BaseException) -> Iterator[BaseException]:
    """An error, then the errors behind it, the first cause last."""
    seen: list[BaseException] = []
    while isinstance(error, BaseException) and not any(error is one for one in seen):
        seen.append(error)
        yield error
        error = getattr(error, "original", None) or error.__cause__


def _own_frames(traceback: TracebackType | None) -> Iterator[tuple[FrameType, int]]:
    """The frames of a traceback that belong neither to this course nor to an installed package."""
    while traceback is not None:
        file = traceback.tb_frame.f_code.co_filename
        if not os.path.realpath(file).startswith((_HELPERS, *_INSTALLED)) and not file.startswith("<frozen"):
            yield traceback.tb_frame, traceback.tb_lineno
        traceback = traceback.tb_next


def place_of(stop: Stop) -> str:
    """Where the line stands, such as "line 3 of the cell" and "line 3 of answer.py"."""
    is_cell = stop.file.startswith("<") or "ipykernel" in stop.file or not os.path.exists(stop.file)
    return f"line {stop.number} of {'the cell' if is_cell else os.path.basename(stop.file)}"


def _shortened(line: str) -> str:
    line = line.strip()
    return line if len(line) <= _LONGEST_LINE else f"{line[: _LONGEST_LINE - 1]}…"


# The statement


def _head(statement: ast.AST) -> ast.AST:
    """A statement without the statements in it."""
    if not hasattr(statement, "body"):
        return statement
    parts = [value for name, value in ast.iter_fields(statement) if name not in ("body", "orelse", "finalbody")]
    kept = [part for value in parts for part in (value if isinstance(value, list) else [value])]
    return ast.Tuple([part for part in kept if isinstance(part, ast.expr)], ast.Load())


def _statement(tree: ast.AST, number: int) -> ast.AST:
    """The innermost statement on a line."""
    on_line = [n for n in ast.walk(tree) if isinstance(n, ast.stmt) and n.lineno <= number <= (n.end_lineno or 0)]
    return max(on_line, key=lambda node: (node.lineno, -(node.end_lineno or 0)), default=tree)


def _around(tree: ast.AST, statement: ast.AST) -> ast.AST | None:
    """The innermost function that holds a statement."""
    holding = [n for n in ast.walk(tree) if isinstance(n, ast.FunctionDef) and statement in ast.walk(n)]
    return max(holding, key=lambda node: node.lineno, default=None)


def _called(call: ast.Call) -> str:
    """The last part of the name of the called function."""
    return getattr(call.func, "attr", getattr(call.func, "id", ""))


def _names(node: ast.AST) -> set[str]:
    return {part.id for part in ast.walk(node) if isinstance(part, ast.Name)}


def _argument(call: ast.Call, position: int, name: str) -> ast.AST | None:
    named = {keyword.arg: keyword.value for keyword in call.keywords}
    return call.args[position] if len(call.args) > position else named.get(name)


# In a kernel


def _module_of(spot: _Spot, node: ast.AST) -> str:
    """The name of the module that is not Triton's and of which a part is used in `node`, or nothing."""
    if not isinstance(node, ast.Attribute) or not isinstance(node.value, ast.Name):
        return ""
    value = spot.value(node.value)
    name = value.__name__ if isinstance(value, ModuleType) else node.value.id if value is None else ""
    return name if name.split(".")[0] in _HOST_MODULES else ""


def _dtype_of_torch(spot: _Spot) -> bool:
    used = (node for node in spot.parts(ast.Attribute) if _module_of(spot, node).startswith("torch"))
    return any(isinstance(getattr(torch, node.attr, None), torch.dtype) for node in used)


def _host_function(spot: _Spot) -> bool:
    """A function of another module, or one without its module that tl has; Python's max, min or sum of a single tile,
    which only goes over lists; or a name of a module that is not there.
    """
    called = [call for call in spot.parts(ast.Call) if isinstance(call.func, ast.Name)]
    unknown = _unknown(spot)
    return (
        any(len(call.args) == 1 and call.func.id in {"max", "min", "sum"} - {*spot.names} for call in called)
        or any(call.func.id in unknown and hasattr(tl, call.func.id) for call in called)
        or any(_module_of(spot, call.func) for call in spot.parts(ast.Call))
        or any(_module_of(spot, node) in unknown for node in spot.parts(ast.Attribute))
    )


def _pointers(spot: _Spot) -> set[str]:
    """The names in a kernel that hold pointers: arguments called so, whatever else is loaded from or stored to as a
    bare sum, and everything computed from these."""
    arguments = {argument.arg for argument in spot.function.args.args}
    found = {name for name in arguments if "ptr" in name.lower() or "pointer" in name.lower()}
    for node in ast.walk(spot.function):
        if isinstance(node, ast.Assign) and _names(node.value) & found and not _calls(node.value, "load"):
            targets, values = node.targets[0], node.value
            pairs = (
                zip(targets.elts, values.elts, strict=False) if isinstance(values, ast.Tuple) else [(targets, values)]
            )
            found |= {name for target, value in pairs if _names(value) & found for name in _names(target)}
    return found


def _calls(node: ast.AST, *names: str) -> bool:
    return any(isinstance(part, ast.Call) and _called(part) in names for part in ast.walk(node))


def _pointer_indexed(spot: _Spot) -> bool:
    pointers = _pointers(spot)
    return any(isinstance(node.value, ast.Name) and node.value.id in pointers for node in spot.parts(ast.Subscript))


def _store_swapped(spot: _Spot) -> bool:
    pointers = _pointers(spot)
    stores = (call for call in spot.parts(ast.Call) if _called(call) == "store" and len(call.args) >= 2)
    return any(not _names(call.args[0]) & pointers and _names(call.args[1]) & pointers for call in stores)


def _other_without_mask(spot: _Spot) -> bool:
    loads = (call for call in spot.parts(ast.Call) if _called(call) == "load")
    return any(_argument(call, 2, "other") and not _argument(call, 1, "mask") for call in loads)


def _offsets_as_mask(spot: _Spot) -> bool:
    """Offsets come after a comma where an address is to be added to them: they are taken for a mask, or for values."""
    tiles = _tiles(spot)
    for call in spot.parts(ast.Call):
        arguments = {"load": 2, "store": 3}.get(_called(call))
        if arguments and len(call.args) >= arguments:
            address, offsets = call.args[:2]
            return not _is_tile(address, tiles) and _is_tile(offsets, tiles) and not _is_mask(spot, offsets)
    return False


def _is_mask(spot: _Spot, node: ast.AST) -> bool:
    """Whether something is compared in an expression, or where its names get their values."""
    assigned = (one for one in ast.walk(spot.function) if isinstance(one, ast.Assign))
    sources = [one.value for one in assigned if any(_names(target) & _names(node) for target in one.targets)]
    return any(isinstance(part, ast.Compare) for source in [node, *sources] for part in ast.walk(source))


def _maximum_of_two(spot: _Spot) -> bool:
    """A reduction of one tile is given a second number, or a second tile, where its axis belongs."""
    for call in spot.parts(ast.Call):
        if isinstance(call.func, ast.Attribute) and _called(call) in ("max", "min") and len(call.args) >= 2:
            second = call.args[1]
            return isinstance(spot.value(call.func.value), ModuleType) and not isinstance(
                second, ast.Constant | ast.UnaryOp
            )
    return False


def _axis_beyond(spot: _Spot) -> bool:
    for call in spot.parts(ast.Call):
        if isinstance(call.func, ast.Attribute) and _called(call) in _REDUCTIONS:
            axis = _argument(call, 1 if isinstance(spot.value(call.func.value), ModuleType) else 0, "axis")
            number = ast.unparse(axis) if axis is not None else ""
            if number.lstrip("-").isdigit() and int(number) not in (0, -1):
                return True
    return False


def _no_columns(spot: _Spot) -> bool:
    """The reduced value, or the address of a store, was made without a tile of columns."""
    tiles = _tiles(spot)
    for call in spot.parts(ast.Call):
        if _called(call) in _REDUCTIONS and call.args and isinstance(call.args[0], ast.Name):
            return call.args[0].id not in tiles and call.args[0].id in _loaded(spot)
        if _called(call) == "store" and len(call.args) >= 2:
            return not _is_tile(call.args[0], tiles) and _is_tile(call.args[1], tiles)
    return False


def _loaded(spot: _Spot) -> set[str]:
    assigned = (node for node in ast.walk(spot.function) if isinstance(node, ast.Assign) and _calls(node.value, "load"))
    return {name for node in assigned for target in node.targets for name in _names(target)}


def _is_tile(node: ast.AST, tiles: set[str]) -> bool:
    if isinstance(node, ast.Call) and _called(node) in _REDUCTIONS:
        return False
    if isinstance(node, ast.Call) and _called(node) == "arange" or isinstance(node, ast.Name) and node.id in tiles:
        return True
    return any(_is_tile(part, tiles) for part in ast.iter_child_nodes(node))


def _tiles(spot: _Spot) -> set[str]:
    """The names in a kernel that are made of tl.arange."""
    found: set[str] = set()
    for node in ast.walk(spot.function):
        if isinstance(node, ast.Assign) and _is_tile(node.value, found):
            found |= {name for target in node.targets for name in _names(target)}
    return found


def _no_start_value(spot: _Spot) -> bool:
    """A name is used that only this line, or a later one, gives a value."""
    if not isinstance(spot.error, NameError):
        return False
    return bool(_unknown(spot) & _assigned(spot.function))


def _unknown(spot: _Spot) -> set[str]:
    """Names in the line that have no value yet."""
    read = {node.id for node in spot.parts(ast.Name) if isinstance(node.ctx, ast.Load)}
    if isinstance(spot.statement, ast.AugAssign):
        read |= _names(spot.statement.target)
    known = {*spot.local, *spot.names, *vars(builtins)}
    if not spot.local:  # the compiler, which does not run the line, knows no values
        known |= _assigned(spot.function, until=spot.statement.lineno)
        known |= {argument.arg for argument in spot.function.args.args}
    return read - known


def _assigned(function: ast.AST | None, until: int | None = None) -> set[str]:
    nodes = ast.walk(function) if function is not None else ()
    stored = (node for node in nodes if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store))
    return {node.id for node in stored if until is None or node.lineno < until}


def _left_in_loop(spot: _Spot) -> bool:
    """A name is used after the loop that alone gave it a value. Triton's compiler forgets it there; Python does not."""
    if not isinstance(spot.error, NameError) or spot.function is None:
        return False
    before = [
        loop
        for loop in ast.walk(spot.function)
        if isinstance(loop, ast.For | ast.While)
        and (loop.end_lineno or 0) < spot.statement.lineno
        and not _calls(getattr(loop, "iter", loop.body[0]), "static_range")
    ]
    inside = {id(node) for loop in before for node in ast.walk(loop)}
    stored = [
        node for node in ast.walk(spot.function) if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store)
    ]
    earlier = [node for node in stored if node.lineno < spot.statement.lineno]
    kept = {node.id for node in earlier if id(node) not in inside}
    lost = {node.id for node in earlier if id(node) in inside} - kept
    read = {node.id for node in spot.parts(ast.Name) if isinstance(node.ctx, ast.Load)}
    return bool(read & lost)


def _global_read(spot: _Spot) -> bool:
    """A name that has a value outside the kernel is unknown in it."""
    read = {node.id for node in spot.parts(ast.Name)}
    return isinstance(spot.error, NameError) and not _unknown(spot) and bool(read & set(spot.names))


def _undefined_name(spot: _Spot) -> bool:
    return isinstance(spot.error, NameError) and not isinstance(spot.error, UnboundLocalError)


def _no_such_function(spot: _Spot) -> bool:
    for node in spot.parts(ast.Attribute):
        module = spot.value(node.value)
        if isinstance(module, ModuleType) and not hasattr(module, node.attr):
            return True
    return False


# In a driver, and in any Python function


def _is_kernel(value: Any) -> bool:
    return hasattr(value, "fn") and hasattr(value, "run")


def _not_decorated(spot: _Spot) -> bool:
    return isinstance(spot.error, TypeError) and any(
        isinstance(spot.value(node.value), FunctionType) for node in spot.parts(ast.Subscript)
    )


def _no_grid(spot: _Spot) -> bool:
    return any(_is_kernel(spot.value(call.func)) for call in spot.parts(ast.Call))


def _launched(spot: _Spot) -> Iterator[tuple[Any, ast.Subscript, ast.Call | None]]:
    """The kernels that the line launches, with the brackets of the grid and the call."""
    calls = {id(call.func): call for call in spot.parts(ast.Call)}
    for node in spot.parts(ast.Subscript):
        if _is_kernel(spot.value(node.value)):
            yield spot.value(node.value), node, calls.get(id(node))


def _grid_without_comma(spot: _Spot) -> bool:
    if not isinstance(spot.error, TypeError):
        return False
    numbers = (ast.Constant, ast.BinOp, ast.Call, ast.Attribute, ast.Subscript)
    return any(
        isinstance(node.slice, numbers) or isinstance(spot.value(node.slice), int) for _, node, _ in _launched(spot)
    )


def _launch_arguments(spot: _Spot) -> bool:
    for kernel, _, call in _launched(spot) if isinstance(spot.error, TypeError) else ():
        if call is None or any(isinstance(one, ast.Starred) for one in call.args):
            continue
        parameters = inspect.signature(kernel.fn).parameters
        own = {keyword.arg: None for keyword in call.keywords if keyword.arg in parameters}
        try:
            inspect.signature(kernel.fn).bind(*call.args, **own)
        except TypeError:
            return True
    return False


def _global_in_kernel(spot: _Spot) -> bool:
    """The line launches a kernel, and all names of its own have a value."""
    return isinstance(spot.error, NameError) and not _unknown(spot) and any(True for _ in _launched(spot))


def _values_missing(spot: _Spot) -> bool:
    """max or min along a dimension gives two tensors, of which none was taken."""
    if not isinstance(spot.error, TypeError | AttributeError):
        return False
    if any(type(value).__module__ == "torch.return_types" for value in spot.used()):
        return True
    taken = {id(node.value) for node in spot.parts(ast.Attribute, ast.Subscript)}
    along = (call for call in spot.parts(ast.Call) if _called(call) in ("max", "min") and id(call) not in taken)
    return any(call.keywords or any(isinstance(one, ast.Constant) for one in call.args) for call in along) and any(
        isinstance(value, torch.Tensor) for value in spot.used()
    )


def _uses(spot: _Spot, *modules: str) -> bool:
    return any(_module_of(spot, call.func).split(".")[0] in modules for call in spot.parts(ast.Call))


def _number_function(spot: _Spot) -> bool:
    """A function of math, or of numpy, is given a tensor."""
    converts = isinstance(spot.error, TypeError) or re.search("(?i)scalar|numpy", str(spot.error)) is not None
    return converts and _uses(spot, "math", "numpy") and any(isinstance(one, torch.Tensor) for one in spot.used())


def _tensor_function(spot: _Spot) -> bool:
    """A function of torch is given a number, or a list."""
    return (
        isinstance(spot.error, TypeError)
        and _uses(spot, "torch")
        and not any(isinstance(value, torch.Tensor) for value in spot.used())
    )


def _real_gpu(spot: _Spot) -> bool:
    """torch.cuda or Triton's driver stands in the line, or something that was made by torch.cuda: torch makes events
    without a GPU, too."""
    named = any(
        (node.attr == "cuda" and spot.value(node.value) is torch)
        or (node.attr == "active" and "driver" in (getattr(node.value, "id", ""), getattr(node.value, "attr", "")))
        for node in spot.parts(ast.Attribute)
    )
    return named or any(type(value).__module__.startswith("torch.cuda") for value in spot.used())


def _list_as_tensor(spot: _Spot) -> bool:
    return isinstance(spot.error, AttributeError | TypeError) and any(isinstance(value, list) for value in spot.used())


def _builtin_of_tensor(spot: _Spot) -> bool:
    """Python's max or min is given a tensor, whose rows it compares."""
    calls = [
        call for call in spot.parts(ast.Call) if isinstance(call.func, ast.Name) and call.func.id in ("max", "min")
    ]
    of_tensors = any(isinstance(spot.value(one), torch.Tensor) for call in calls for one in call.args)
    return of_tensors and all(call.func.id not in spot.names for call in calls)


def _shapes(spot: _Spot) -> bool:
    """Tensors in the line have shapes that do not go together."""
    if not isinstance(spot.error, RuntimeError):
        return False
    shapes = [value.shape for value in spot.used() if isinstance(value, torch.Tensor)]
    try:
        np.broadcast_shapes(*shapes)  # torch's own imports sympy, which takes a second
    except ValueError:
        return True
    return False


_Shows = Callable[[_Spot], bool]

IN_KERNEL: dict[str, _Shows] = {
    "dtype_of_torch": _dtype_of_torch,
    "host_function": _host_function,
    "pointer_indexed": _pointer_indexed,
    "store_swapped": _store_swapped,
    "other_without_mask": _other_without_mask,
    "offsets_as_mask": _offsets_as_mask,
    "maximum_of_two": _maximum_of_two,
    "no_start_value": _no_start_value,
    "left_in_loop": _left_in_loop,
    "global_in_kernel": _global_read,
    "undefined_name": _undefined_name,
    "no_such_function": _no_such_function,
    "axis_beyond": _axis_beyond,
    "no_columns": _no_columns,
}
"""By the id of its mistake: the test for a cause in a line of a kernel, the certain ones first."""

IN_PYTHON: dict[str, _Shows] = {
    "not_decorated": _not_decorated,
    "no_grid": _no_grid,
    "global_in_kernel": _global_in_kernel,
    "grid_without_comma": _grid_without_comma,
    "launch_arguments": _launch_arguments,
    "no_start_value": _no_start_value,
    "undefined_name": _undefined_name,
    "no_such_function": _no_such_function,
    "real_gpu": _real_gpu,
    "values_missing": _values_missing,
    "number_function": _number_function,
    "tensor_function": _tensor_function,
    "list_as_tensor": _list_as_tensor,
    "builtin_of_tensor": _builtin_of_tensor,
    "shapes": _shapes,
}
"""The same for a line of any other function."""

_ERRORS = (NameError, TypeError, AttributeError, ValueError, RuntimeError, IndexError)


def _cause(spot: _Spot) -> str:
    is_known = spot.compiled or isinstance(spot.error, _ERRORS)
    if not is_known or isinstance(spot.statement, ast.Raise):
        return ""
    causes = IN_KERNEL if spot.in_kernel() else IN_PYTHON
    return next((name for name, shows in causes.items() if shows(spot)), "")
