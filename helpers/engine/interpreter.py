"""Stands between Triton's interpreter and memory: counts every load and store, and refuses those out of bounds.

The interpreter computes real addresses and dereferences them, so a forgotten mask reads whatever lies behind a tensor
and may kill the process. Here each launch has a Memory (memory.py), whose addresses are checked before they are real.

This is the one file that hooks into private parts of Triton's interpreter (tested with 3.6 to 3.9): `guard` checks that
they are there, and traffic.self_test that what is counted is right. Those of its compiler are in compiled.py.
"""

from __future__ import annotations

import dataclasses
import dis
import functools
import inspect
import traceback
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager

import numpy as np
import torch

from helpers.engine.memory import LaunchTraffic, Memory, Order, OutOfBounds
from helpers.engine.races import Sync
from helpers.engine.runtime import moved


class KernelError(RuntimeError):
    """A kernel failed in the interpreter: says in which line, and what the interpreter found wrong there.

    `cause` is the type of the error that it stands for.
    """

    cause: type[BaseException] = RuntimeError

    def _render_traceback_(self) -> list[str]:
        return [f"KernelError: {self}"]


_memory: Memory | None = None
_instead: Callable[[object, tuple, object, dict], None] | None = None
_receivers: list[Callable[[LaunchTraffic], None]] = []
_keep_addresses = False
_order: Order | None = None


def in_launch() -> bool:
    """True while a kernel runs: tensor operations seen then are the interpreter's own."""
    return _memory is not None


@contextmanager
def watching(
    receive: Callable[[LaunchTraffic], None], addresses: bool = False, order: Order | None = None
) -> Iterator[None]:
    """Calls `receive` after every interpreted launch in the block, with its traffic.

    `addresses` puts them in too, and a race between programs. These run from the first to the last, or in `order`.
    """
    global _keep_addresses, _order
    before = _keep_addresses, _order
    _keep_addresses, _order = _keep_addresses or addresses, order or _order
    _receivers.append(receive)
    try:
        yield
    finally:
        _receivers.remove(receive)
        _keep_addresses, _order = before


@contextmanager
def instead(launch: Callable[[object, tuple, object, dict], None]) -> Iterator[None]:
    """Calls launch(kernel, args, grid, kwargs) in the block where a kernel would be launched."""
    global _instead
    before, _instead = _instead, launch
    try:
        yield
    finally:
        _instead = before


def _tensor_names(arguments: dict[str, object]) -> list[str]:
    names = []
    for name, value in arguments.items():
        for leaf in value if isinstance(value, tuple) else (value,):
            if hasattr(leaf, "data_ptr") or hasattr(leaf, "base"):
                names.append(name)
    return names


def guard() -> None:
    """Hooks the interpreter, once. Raises RuntimeError where this version of Triton has moved what is hooked."""
    from triton.runtime import interpreter as tri

    if getattr(tri, "_guarded", False):
        return
    builder = getattr(tri, "interpreter_builder", None)
    hooked = ("create_masked_load", "create_masked_store", "create_atomic_rmw", "create_atomic_cas")
    hooked += ("cast_impl", "set_grid_idx", "options")
    missing = [name for name in hooked if not hasattr(builder, name)]
    private = ("_implicit_cvt", "_patch_lang_tensor", "_unwrap_tensor", "FunctionRewriter", "TensorHandle")
    private += ("InterpretedFunction", "InterpreterError", "_patch_lang", "_LangPatchScope", "_get_np_dtype")
    missing += [name for name in private if not hasattr(tri, name)]
    if missing:
        raise moved(missing, "its interpreter", "loads and stores cannot be watched")
    _hook_arguments(tri)
    _hook_loop_bounds(tri)
    _hook_namespace(tri)
    _hook_wasted_work(tri, builder)
    _hook_rounding(tri, builder)
    _hook_memory(builder)
    _hook_launch(tri)
    tri._guarded = True


def _hook_arguments(tri: object) -> None:
    convert = tri._implicit_cvt

    def implicit_cvt(arg: object) -> object:
        converted = convert(arg)
        if _memory is not None and hasattr(arg, "data_ptr"):
            converted.handle.data = np.array([_memory.add(tri._unwrap_tensor(arg))], dtype=np.uint64)
        return converted

    tri._implicit_cvt = implicit_cvt


def _hook_loop_bounds(tri: object) -> None:
    """Triton 3.6 turns loop bounds into ints in a way that numpy 2.4 refuses."""
    patch = tri._patch_lang_tensor

    def patch_lang_tensor(tensor: type, scope: object) -> None:
        patch(tensor, scope)
        scope.set_attr(tensor, "__index__", lambda self: int(self.handle.data.item()))

    tri._patch_lang_tensor = patch_lang_tensor


def _hook_namespace(tri: object) -> None:
    """The interpreter copies all its own names, np, math and __file__ among them, to where a kernel is defined.

    In a notebook that hides forgotten imports, and makes child processes take Triton's file for the main program.
    """
    compile_and_exec = tri.FunctionRewriter._compile_and_exec

    def compile_in_clean_namespace(self: object, transformed: object) -> object:
        names = self.fn.__globals__
        before = set(names)
        try:
            return compile_and_exec(self, transformed)
        finally:
            for name in set(names) - before - {"interpreter_semantic"}:
                del names[name]

    tri.FunctionRewriter._compile_and_exec = compile_in_clean_namespace


def _hook_wasted_work(tri: object, builder: object) -> None:
    """Leaves out what takes half of the time of an interpreted softmax and changes nothing.

    Every tl.max and tl.sum in a kernel patches all of triton.language again, where once a launch is enough; a table of
    dtypes is made anew for every value; and every sum of integers is checked for overflow by code that then drops what
    it found.
    """
    builder.options = dataclasses.replace(builder.options, sanitize_overflow=False)
    patch_lang = tri._patch_lang

    def patch_lang_once(fn: Callable) -> object:
        if _memory is None:
            return patch_lang(fn)
        modules = frozenset(name for name, value in fn.__globals__.items() if inspect.ismodule(value))
        if modules in _memory.patched:
            return tri._LangPatchScope()
        _memory.patched.add(modules)
        return patch_lang(fn)

    tri._patch_lang = patch_lang_once
    of_number = functools.cache(tri._get_np_dtype)

    def get_np_dtype(dtype: object) -> np.dtype:
        return np.dtype(np.uint64) if dtype.scalar.is_ptr() else of_number(dtype.scalar)

    tri._get_np_dtype = get_np_dtype


def _hook_rounding(tri: object, builder: object) -> None:
    """A GPU rounds float32 to the nearest bfloat16, ties to even; the interpreter cuts the last bits off."""
    import triton.language as tl

    cast_impl = builder.cast_impl

    def rounding_cast(source: object, target: object) -> object:
        if (source.dtype.scalar, target.scalar) != (tl.float32, tl.bfloat16):
            return cast_impl(source, target)
        rounded = torch.from_numpy(np.ascontiguousarray(source.data)).to(torch.bfloat16).view(torch.int16)
        return tri.TensorHandle(rounded.numpy().view(np.uint16), target.scalar)

    builder.cast_impl = rounding_cast

    def get_bf16(value: float) -> object:
        """A bfloat16 constant, as in tl.where(mask, x, -float("inf")), which the interpreter lacks."""
        bits = torch.tensor([value], dtype=torch.bfloat16).view(torch.int16)
        return tri.TensorHandle(bits.numpy().view(np.uint16), tl.bfloat16)

    builder.get_bf16 = get_bf16


def _hook_memory(builder: object) -> None:
    import triton.language as tl

    def sync(args: list[object], kwargs: dict[str, object], action: str) -> Sync | None:
        """A load's last argument says whether it is volatile, an update's last two what it orders and for whom."""
        if action != "update":
            volatile = kwargs.get("is_volatile", len(args) > 5 and args[5])
            return Sync() if action == "load" and volatile else None
        order, among = args[-2].name, args[-1].name
        return Sync(*("ACQUIRE" in order, "RELEASE" in order) if among != "CTA" else ())

    def watch(name: str, action: str, mask_at: int | None, reads: bool, writes: bool) -> None:
        access = getattr(builder, name)
        pointers_at = 1 if name == "create_atomic_rmw" else 0

        def watched(*arguments: object, **kwargs: object) -> object:
            args = list(arguments)
            pointers = args[pointers_at]
            mask = np.ones(pointers.data.shape, dtype=bool)
            if mask_at is not None:
                # A mask made with a number, as (row < M) & (cols < N) is, arrives as integers.
                mask = np.broadcast_to(args[mask_at].data.astype(bool), mask.shape)
                args[mask_at] = dataclasses.replace(args[mask_at], data=np.ascontiguousarray(mask), dtype=tl.int1)
            width = max(1, pointers.get_element_ty().primitive_bitwidth // 8)
            values = args[1].data if action == "store" else None
            real = _memory.translate(pointers.data, mask, action, width, sync(args, kwargs, action), values)
            args[pointers_at] = dataclasses.replace(pointers, data=real)
            lanes = int(np.count_nonzero(mask))
            launch = _memory.launch
            launch.loads += lanes * reads
            launch.stores += lanes * writes
            launch.bytes_loaded += lanes * width * reads
            launch.bytes_stored += lanes * width * writes
            launch.tile = max(launch.tile, mask.size)
            if _keep_addresses:
                for kept in [launch.loaded] * reads + [launch.stored] * writes:
                    kept.append(real[mask])
            return access(*args, **kwargs)

        setattr(builder, name, watched)

    watch("create_masked_load", "load", mask_at=1, reads=True, writes=False)
    watch("create_masked_store", "store", mask_at=2, reads=False, writes=True)
    watch("create_atomic_rmw", "update", mask_at=3, reads=True, writes=True)
    watch("create_atomic_cas", "update", mask_at=None, reads=True, writes=True)

    set_grid_idx = builder.set_grid_idx

    def watched_grid_idx(*index: int) -> None:
        set_grid_idx(*_memory.begin(index))

    builder.set_grid_idx = watched_grid_idx


def _hook_launch(tri: object) -> None:
    run = tri.InterpretedFunction.run
    call = tri.InterpretedFunction.__call__

    def watched_call(self: object, *args: object, **kwargs: object) -> object:
        if _memory is None:
            name = self.fn.__name__
            raise TypeError(f"{name} is a kernel; launch it with a grid in brackets, as in {name}[(M,)](…).")
        return call(self, *args, **kwargs)

    tri.InterpretedFunction.__call__ = watched_call

    def watched_run(self: object, *args: object, grid: object, warmup: bool, **kwargs: object) -> object:
        global _memory
        if _instead is not None:
            return _instead(self, args, grid, kwargs)
        refuse_globals(self.fn)
        arguments = bind(self, args, kwargs)
        launch = LaunchTraffic(self.fn.__name__, resolve_grid(grid, arguments))
        outer, _memory = _memory, Memory(launch, _tensor_names(arguments), _order, _keep_addresses)
        try:
            # A GPU computes inf − inf, and the maximum of NaNs, without a word; numpy would warn on stderr.
            with np.errstate(all="ignore"), warnings.catch_warnings():
                warnings.simplefilter("ignore", RuntimeWarning)
                result = run(self, *args, grid=launch.grid, warmup=warmup, **kwargs)
            launch.race = _memory.race()
        except tri.InterpreterError as error:
            raise _explained(error, self.fn) from None
        finally:
            _memory = outer
        for receive in _receivers:
            receive(launch)
        return result

    tri.InterpretedFunction.run = watched_run


def _explained(error: Exception, fn: Callable) -> Exception:
    """Returns the error to show for one wrapped by the interpreter: an OutOfBounds as it is, others with their line."""
    cause: BaseException = error
    line = ""
    while cause.__cause__ is not None:
        cause = cause.__cause__
        for frame in traceback.extract_tb(cause.__traceback__):
            if frame.filename == fn.__code__.co_filename:
                line = frame.line or line
    if isinstance(cause, OutOfBounds):
        return cause
    where = f", in the line `{line}`" if line else ""
    found = KernelError(f"{fn.__name__}{where}: {type(cause).__name__}: {cause}")
    found.cause = type(cause)
    return found


@functools.cache
def refuse_globals(fn: Callable) -> None:
    """Raises NameError for a kernel that reads a global number, as a GPU's compiler would and the interpreter not."""
    for instruction in dis.get_instructions(fn):
        name = instruction.argval
        if instruction.opname == "LOAD_GLOBAL" and isinstance(fn.__globals__.get(name), int | float | torch.Tensor):
            raise NameError(
                f"{fn.__name__} reads the global {name}, which Triton's compiler refuses. Write the value out, such as "
                f'-float("inf"), pass it as an argument, or define {name} = tl.constexpr(…).'
            )


def bind(kernel: object, args: tuple, kwargs: dict[str, object]) -> dict[str, object]:
    """Returns a launch's arguments by name, defaults included, without launch options such as num_warps."""
    own = {name: value for name, value in kwargs.items() if name in kernel.arg_names}
    bound = inspect.signature(kernel.fn).bind_partial(*args, **own)
    bound.apply_defaults()
    return dict(bound.arguments)


def resolve_grid(grid: tuple[int, ...] | Callable[[dict], tuple[int, ...]], arguments: dict) -> tuple[int, ...]:
    """Returns the grid of a launch as a tuple, calling it with the kernel's arguments where it is a function.

    Raises TypeError for a bare number: `kernel[(M)]` lacks the comma of `kernel[(M,)]`.
    """
    grid = grid(arguments) if callable(grid) else grid
    if not isinstance(grid, tuple | list):
        raise TypeError(f"the grid is {grid!r}; it must be a tuple of one to three numbers, such as ({grid},).")
    return tuple(int(size) for size in grid)
