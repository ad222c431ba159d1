"""Stands between Triton's interpreter and memory: counts every load and store, and refuses those out of bounds.

The interpreter computes real addresses and dereferences them, so a forgotten mask reads whatever lies behind a tensor
and may kill the process. Here each launch has a Memory (memory.py), whose addresses are checked before they are real.

This file, arithmetic.py and promises.py hook into private parts of Triton's interpreter (tested with 3.6 to 3.9):
`guard` checks that they are there, and traffic.self_test that counts are right. Private parts of its compiler are in
compiled.py, and of the compiler's front end, which is asked before each launch, in frontend.py.
"""

from __future__ import annotations

import ast
import dataclasses
import functools
import inspect
import operator
import os
import re
import sys
import sysconfig
import threading
import traceback
import types
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np

from helpers.engine import arithmetic, frontend, promises, rewriting
from helpers.engine.memory import LaunchTraffic, Memory, Order, OutOfBounds, Programs, in_order
from helpers.engine.races import Sync
from helpers.engine.runtime import INTERPRETED, moved

_MOST_PROGRAMS = (2**31 - 1, 65535, 65535)


class KernelError(RuntimeError):
    """A kernel failed in the interpreter. The message says in which line, and what the interpreter found wrong there.

    `cause` is the type of the error that this one stands for, and `original` begins its chain of causes.
    """

    cause: type[BaseException] = RuntimeError
    original: BaseException | None = None

    def _render_traceback_(self) -> list[str]:
        return [f"KernelError: {self}"]


class NotCompilable(KernelError):
    """Triton's compiler refuses the kernel: `original` is what its front end raised."""

    kernel: object = None


class _InAnother(BaseException):
    """A program has failed while the one that runs was waiting, whose own handlers are not to see it."""


class GridTooLarge(ValueError):
    """A grid has more programs along an axis than CUDA launches."""


class _Launch(threading.local):
    """The launch in progress in this thread: what it replaced in triton.language, and its memory if it is watched."""

    replaced: list | None = None
    memory: Memory | None = None
    run: Callable[..., object] | None = None
    """Runs the program whose index the interpreter has."""


_launch = _Launch()
_one_at_a_time = threading.RLock()
"""The interpreter keeps the number of the program, and what it replaces in triton.language, for all threads."""
os.register_at_fork(after_in_child=lambda: globals().update(_one_at_a_time=threading.RLock()))

_instead: Callable[[object, tuple, object, dict], None] | None = None
_receivers: list[Callable[[LaunchTraffic], None]] = []
_lookers: list[Callable[[object, tuple, object, dict], None]] = []
_keep_addresses = False
_order: Order | None = None
_choose: Callable[[tuple[int, ...]], Programs] | None = None
_is_unwritten: Callable[[np.ndarray], bool] | None = None
_after_access: Callable[[Memory], None] | None = None
_within_tensors = False
_compilable = False


def in_launch() -> bool:
    """True while a kernel runs: tensor operations seen then are the interpreter's own."""
    return _launch.memory is not None


@contextmanager
def watching(
    receive: Callable[[LaunchTraffic], None], addresses: bool = False, order: Order | None = None
) -> Iterator[None]:
    """Calls `receive` with the traffic of every interpreted launch in the block, after the launch.

    With `addresses`, the traffic also has the addresses, and the race between programs if there is one. The programs
    run from the first to the last, or in `order`.
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
def before_each_interpreted(look: Callable[[object, tuple, object, dict], None]) -> Iterator[None]:
    """Calls look(kernel, args, grid, kwargs) in the block before each launch of an interpreted kernel."""
    _lookers.append(look)
    try:
        yield
    finally:
        _lookers.remove(look)


@contextmanager
def running_only(
    choose: Callable[[tuple[int, ...]], Programs], is_unwritten: Callable[[np.ndarray], bool] | None = None
) -> Iterator[None]:
    """In each launch of the block, runs only the programs that choose(grid) returns. They still see the whole grid.

    A program is `unfounded` in the LaunchTraffic if it loads values of which `is_unwritten` says that nobody stored
    them, as happens when the program that would have stored them is left out.
    """
    global _choose, _is_unwritten
    before = _choose, _is_unwritten
    _choose, _is_unwritten = choose, is_unwritten
    try:
        yield
    finally:
        _choose, _is_unwritten = before


@contextmanager
def after_each_access(look: Callable[[Memory], None]) -> Iterator[None]:
    """Calls look(memory) in the block after each load, store and update of a kernel. `look` may raise Enough."""
    global _after_access
    before, _after_access = _after_access, look
    try:
        yield
    finally:
        _after_access = before


@contextmanager
def instead(launch: Callable[[object, tuple, object, dict], None] | None) -> Iterator[None]:
    """Calls launch(kernel, args, grid, kwargs) in the block in place of each launch; None lets kernels be launched."""
    global _instead
    before, _instead = _instead, launch
    try:
        yield
    finally:
        _instead = before


@contextmanager
def within_tensors(compilable: bool = False) -> Iterator[None]:
    """Within the block, accesses outside the kernel's tensor arguments raise OutOfBounds.

    Without it, a kernel may follow a pointer that it loaded from a table, wherever in the process the pointer leads.
    Kernels that are known to be `compilable` are not shown to the compiler.
    """
    global _within_tensors, _compilable
    before = _within_tensors, _compilable
    _within_tensors, _compilable = True, compilable
    try:
        yield
    finally:
        _within_tensors, _compilable = before


def tensors_of(arguments: dict[str, object]) -> Iterator[tuple[str, Any]]:
    """The tensors that a kernel is given, each with its parameter's name; a descriptor gives the tensor behind it."""
    for name, value in arguments.items():
        for leaf in value if isinstance(value, tuple) else (value,):
            if hasattr(leaf, "data_ptr") or hasattr(leaf, "base"):
                yield name, getattr(leaf, "base", leaf)


def guard() -> None:
    """Hooks the interpreter, once. Raises RuntimeError if this version of Triton has moved a hooked name."""
    from triton import knobs
    from triton.runtime import autotuner
    from triton.runtime import interpreter as tri

    if getattr(tri, "_guarded", False):
        return
    builder = getattr(tri, "interpreter_builder", None)
    hooked = ("create_masked_load", "create_masked_store", "create_atomic_rmw", "create_atomic_cas")
    hooked += ("cast_impl", "binary_op", "unary_op", "create_dot", "set_grid_idx", "set_grid_dim", "options")
    hooked += ("create_fma", "create_print", "create_barrier")
    missing = [name for name in hooked if not hasattr(builder, name)]
    private = ("_implicit_cvt", "_patch_lang_tensor", "_unwrap_tensor", "FunctionRewriter", "TensorHandle")
    private += ("InterpretedFunction", "InterpreterError", "_patch_lang", "_LangPatchScope", "_get_np_dtype")
    private += ("interpreter_semantic",)
    missing += [name for name in private if not hasattr(tri, name)]
    parts = ((autotuner, "Autotuner.do_bench"), (tri, "ReduceOps.generic_reduce"), (tri, "ScanOps.generic_scan"))
    parts += ((tri, "ReduceOps.apply_impl"), (tri, "ScanOps.apply_impl"), (tri, "ReduceOps.min_max"))
    parts += ((tri, "TensorHandle.set_attr"), (tri, "tl.standard._sum_combine"), (tri, "tl.standard._prod_combine"))
    parts += ((tri, "ScanOps.cumsum"),)
    missing += [name for owner, name in parts if not _has(owner, name)]
    missing += [] if "interpret" in vars(type(knobs.runtime)) else ["knobs.runtime.interpret"]
    if missing:
        raise moved(missing, "its interpreter", "loads and stores cannot be watched")
    if INTERPRETED:
        _hook_mode(type(knobs.runtime))
    _put_back(tri)
    _hook_arguments(tri)
    _hook_loop_bounds(tri)
    _hook_text(tri)
    _hook_language(tri)
    _hook_wasted_work(tri, builder)
    arithmetic.hook_arithmetic(tri, builder)
    promises.hook_promises(tri.TensorHandle, in_launch)
    _hook_memory(tri, builder)
    _hook_launch(tri)
    _hook_autotuner(autotuner.Autotuner)
    tri._guarded = True


def _hook_mode(runtime: type) -> None:
    """Keeps the mode that was chosen when the course was imported, whatever a cell sets afterwards.

    `@triton.jit` asks for the mode whenever it decorates a function. After TRITON_INTERPRET=0 it would make a kernel
    for a GPU that is not there, and the parts of Triton that are imported later would not fit those imported before.
    """
    knob = vars(runtime)["interpret"]

    class Kept(type(knob)):
        def __get__(self, obj: object, owner: type | None = None) -> bool:
            return True

        def __set__(self, obj: object, value: object) -> None:
            pass

    kept = Kept(knob.key)
    kept.__set_name__(runtime, "interpret")
    runtime.interpret = kept


def _has(owner: object, name: str) -> bool:
    return functools.reduce(lambda part, name: getattr(part, name, None), name.split("."), owner) is not None


def _put_back(tri: object) -> None:
    """Restores what earlier launches left changed in triton.language.core: the interpreter forgets to."""
    import triton.language as tl

    for name, value in list(vars(tl.core).items()):
        while "member" in (getattr(value, "__kwdefaults__", None) or {}):
            value = value.__kwdefaults__["member"]
        if getattr(value, "__module__", None) == tri.__name__ or getattr(value, "func", None) is not None:
            value = getattr(tl, name, value)
        setattr(tl.core, name, value)


def _hook_arguments(tri: object) -> None:
    import triton.language as tl

    convert = tri._implicit_cvt

    def implicit_cvt(arg: object) -> object:
        converted = convert(arg)
        if _launch.memory is None:
            return converted
        if hasattr(arg, "data_ptr"):
            converted.handle.data = np.array([_launch.memory.add(tri._unwrap_tensor(arg))], dtype=np.uint64)
        elif isinstance(arg, float):
            converted = tl.tensor(tri.TensorHandle(np.array([arg], dtype=np.float32), tl.float32), tl.float32)
        return converted

    tri._implicit_cvt = implicit_cvt


def _hook_loop_bounds(tri: object) -> None:
    """Triton 3.6 turns loop bounds into ints in a way that numpy 2.4 refuses."""
    patch = tri._patch_lang_tensor

    def patch_lang_tensor(tensor: type, scope: object) -> None:
        patch(tensor, scope)
        scope.set_attr(tensor, "__index__", lambda self: int(self.handle.data.item()))

    tri._patch_lang_tensor = patch_lang_tensor


def _hook_text(tri: object) -> None:
    """A learner's kernels mean what the compiler reads in them; other kernels mean what the interpreter makes of them.

    For other kernels the interpreter copies all its own names, np, math and __file__ among them, to the module that
    defines the kernel. In a notebook that would hide forgotten imports, and make child processes take Triton's file for
    the main program.
    """
    import triton.language as tl

    compile_and_exec, transform = tri.FunctionRewriter._compile_and_exec, tri.FunctionRewriter._transform_ast
    meaning = rewriting.Meaning(tl, tri.interpreter_semantic)

    def transform_unless_rewritten(self: object, source: str) -> ast.Module:
        if not _is_learners(self.fn):
            return transform(self, source)
        return ast.increment_lineno(ast.parse(source), self.def_file_lineno - 1)

    def compile_in_clean_namespace(self: object, tree: ast.Module) -> Callable:
        if _is_learners(self.fn):
            return rewriting.rewritten(self.fn, tree, self.filename, meaning)
        names = self.fn.__globals__
        before = set(names)
        try:
            return compile_and_exec(self, tree)
        finally:
            for name in set(names) - before - {"interpreter_semantic"}:
                del names[name]

    tri.FunctionRewriter._transform_ast = transform_unless_rewritten
    tri.FunctionRewriter._compile_and_exec = compile_in_clean_namespace


def _hook_language(tri: object) -> None:
    """A launch replaces the functions of triton.language once, under every name that a kernel uses, and restores them.

    The interpreter itself replaces them again for every tl.max and tl.sum, and does not restore the functions of
    triton.language.core.
    """
    import triton.language as tl

    patch_lang = tri._patch_lang
    ranged = rewriting.Meaning(tl, tri.interpreter_semantic).range

    @functools.cache
    def replacements() -> list[tuple[object, str, object]]:
        scope = patch_lang(types.SimpleNamespace(__globals__={"tl": tl, "core": tl.core}))
        made = [(owner, name, getattr(owner, name)) for owner, name, _ in scope._changes]
        scope.restore()
        # x.exp() and its like, which the interpreter leaves as the compiler has them
        for name, member in inspect.getmembers(tl.tensor, inspect.isfunction):
            if "_semantic" in inspect.signature(member).parameters and not tl.core.is_builtin(member):
                called = functools.partialmethod(member, _semantic=tri.interpreter_semantic)
                made.append((tl.tensor, name, called))
        return made

    def patch_once(fn: Callable) -> object:
        if _launch.replaced is None:
            return patch_lang(fn)
        if not _launch.replaced:
            scope = tri._LangPatchScope()
            _launch.replaced.append(scope)
            for owner, name, value in replacements():
                scope.set_attr(owner, name, value)
            if _launch.memory is not None:
                scope.set_attr(tl, "range", ranged)
        return tri._LangPatchScope()

    tri._patch_lang = patch_once


def _hook_wasted_work(tri: object, builder: object) -> None:
    """Skips work that takes half of the time of an interpreted softmax and changes nothing.

    The interpreter makes a new table of dtypes for every value, and checks every sum of integers for overflow, only to
    drop what the check found.
    """
    builder.options = dataclasses.replace(builder.options, sanitize_overflow=False)
    of_number = functools.cache(tri._get_np_dtype)

    def get_np_dtype(dtype: object) -> np.dtype:
        return np.dtype(np.uint64) if dtype.scalar.is_ptr() else of_number(dtype.scalar)

    tri._get_np_dtype = get_np_dtype


def _hook_memory(tri: object, builder: object) -> None:
    import triton.language as tl

    def sync(args: list[object], kwargs: dict[str, object], action: str) -> Sync | None:
        """A load's last argument says whether it is volatile, an update's last two what it orders and for whom."""
        if action != "update":
            volatile = kwargs.get("is_volatile", args[-1])
            return Sync() if action == "load" and volatile is True else None
        order, among = args[-2].name, args[-1].name
        return Sync(*("ACQUIRE" in order, "RELEASE" in order) if among != "CTA" else ())

    def watch(name: str, action: str, mask_at: int | None, reads: bool, writes: bool) -> None:
        access = getattr(builder, name)
        pointers_at = 1 if name == "create_atomic_rmw" else 0

        def watched(*arguments: object, **kwargs: object) -> object:
            memory = _launch.memory
            args = list(arguments)
            if mask_at is not None and isinstance(args[mask_at], np.ndarray):  # from a block pointer or a descriptor
                args[mask_at] = tri.TensorHandle(args[mask_at], tl.int1)
            if memory is None:
                return access(*args, **kwargs)
            pointers = args[pointers_at]
            mask = np.ones(pointers.data.shape, dtype=bool)
            if mask_at is not None:
                # A mask made with a number, as (row < M) & (cols < N) is, arrives as integers.
                mask = np.broadcast_to(args[mask_at].data.astype(bool), mask.shape)
                args[mask_at] = dataclasses.replace(args[mask_at], data=np.ascontiguousarray(mask), dtype=tl.int1)
            width = max(1, pointers.get_element_ty().primitive_bitwidth // 8)
            # An address below all tensors was loaded from a table of pointers and is real, unless it is null.
            of_table = (pointers.data < np.uint64(1 << 48)) & (pointers.data >= np.uint64(1 << 16))
            own = mask if _within_tensors else mask & ~of_table
            values = args[1].data if action == "store" else None
            orders = sync(args, kwargs, action)
            if action == "load" and orders and (other := memory.another(pointers.data[mask])):
                run_meanwhile(other, memory)
            real = memory.translate(pointers.data, own, action, width, orders, values)
            args[pointers_at] = dataclasses.replace(pointers, data=real)
            lanes = int(np.count_nonzero(mask))
            launch = memory.launch
            launch.loads += lanes * reads
            launch.stores += lanes * writes
            launch.bytes_loaded += lanes * width * reads
            launch.bytes_stored += lanes * width * writes
            launch.tile = max(launch.tile, mask.size)
            if reads and writes and lanes == mask.size == 1:
                launch.tickets += real.ravel().tolist()
            launch.loads_of[memory.now.turn] += lanes * reads
            if _keep_addresses:
                for kept in [launch.loaded] * reads + [launch.stored] * writes:
                    kept.append(real[mask])
                launch.loaders += [memory.now.turn] * reads
                launch.storers += [memory.now.turn] * writes
            if _after_access is not None:
                _after_access(memory)
            result = access(*args, **kwargs)
            if reads and _is_unwritten is not None and _is_unwritten(result.data[mask]):
                launch.unfounded.add(memory.now.turn)
            return result

        setattr(builder, name, watched)

    watch("create_masked_load", "load", mask_at=1, reads=True, writes=False)
    watch("create_masked_store", "store", mask_at=2, reads=False, writes=True)
    watch("create_atomic_rmw", "update", mask_at=3, reads=True, writes=True)
    watch("create_atomic_cas", "update", mask_at=None, reads=True, writes=True)

    create_barrier = builder.create_barrier

    def watched_barrier() -> object:
        if _launch.memory is not None:
            _launch.memory.now.phase += 1
        return create_barrier()

    builder.create_barrier = watched_barrier

    set_grid_idx = builder.set_grid_idx

    def watched_grid_idx(*index: int) -> None:
        set_grid_idx(*(index if _launch.memory is None else _launch.memory.in_turn(index)))

    builder.set_grid_idx = watched_grid_idx

    def run_meanwhile(program: tuple[int, ...], memory: Memory) -> None:
        """Runs a program to its end while another one waits, which then goes on."""
        waiting = builder.grid_idx
        set_grid_idx(*program)
        memory.begin(program)
        try:
            _launch.run()
        except Exception as error:
            raise _InAnother from error
        memory.end()
        builder.grid_idx = waiting

    set_grid_dim = builder.set_grid_dim

    def watched_grid_dim(*sizes: int) -> None:
        set_grid_dim(*(sizes if _launch.memory is None else (*_launch.memory.launch.grid, 1, 1)[:3]))

    builder.set_grid_dim = watched_grid_dim


def _hook_launch(tri: object) -> None:
    run = tri.InterpretedFunction.run
    call = tri.InterpretedFunction.__call__
    rewrite = tri.InterpretedFunction.rewrite

    def watched_rewrite(self: object) -> Callable:
        """A kernel as Triton calls it for each program: one that has begun while another waited does not run again."""
        fn = rewrite(self)
        memory = _launch.memory
        if memory is None or _launch.run is not None:
            return fn

        @functools.wraps(fn)
        def program(**arguments: object) -> None:
            _launch.run = functools.partial(fn, **arguments)
            index = tri.interpreter_builder.grid_idx
            if not memory.has_begun(index):
                memory.begin(index)
                fn(**arguments)
                memory.end()

        program.__signature__ = inspect.signature(fn)
        _launch.run = fn
        return program

    tri.InterpretedFunction.rewrite = watched_rewrite

    def watched_call(self: object, *args: object, **kwargs: object) -> object:
        if _launch.replaced is None and (_is_learners(self.fn) or self.fn.__module__.startswith("triton.")):
            name = self.fn.__name__
            raise TypeError(f"{name} is a kernel; launch it with a grid in brackets, as in {name}[(M,)](…).")
        return call(self, *args, **kwargs)

    tri.InterpretedFunction.__call__ = watched_call

    def watched_run(self: object, *args: object, grid: object, warmup: bool, **kwargs: object) -> object:
        if _instead is not None:
            return _instead(self, args, grid, kwargs)
        if not _receivers and not _is_learners(self.fn):
            with _launching(None):
                return run(self, *args, grid=grid, warmup=warmup, **kwargs)
        arguments = bind(self, args, kwargs)
        for look in _lookers:
            look(self, args, grid, kwargs)
        launch = LaunchTraffic(self.fn.__name__, resolve_grid(grid, arguments))
        names = [name for name, _ in tensors_of(arguments)]
        memory = Memory(launch, names, _turns(launch.grid), _order is not None, _keep_addresses)
        run_grid = launch.grid if memory.turns is None else (len(memory.turns),)
        # A GPU computes inf − inf, and the maximum of NaNs, without a word; numpy would warn on stderr.
        with _launching(memory), np.errstate(all="ignore"):
            if not _compilable:
                require_compilable(self, args, kwargs)
            _refuse_libdevice(self.fn)
            with warnings.catch_warnings():
                warnings.simplefilter("ignore", RuntimeWarning)
                try:
                    result = run(self, *args, grid=run_grid, warmup=warmup, **kwargs)
                except (tri.InterpreterError, _InAnother) as error:
                    raise _explained(error, self.fn) from None
            launch.race, launch.not_looked_at = memory.race()
            launch.race_of_lanes = memory.race_of_lanes()
        for receive in _receivers:
            receive(launch)
        return result

    tri.InterpretedFunction.run = watched_run


def _hook_autotuner(autotuner: type) -> None:
    """Runs an autotuner's first configuration, once: without a GPU nothing can be timed, and Triton fails."""
    do_bench = autotuner.do_bench.func

    def first_is_best(self: object) -> Callable:
        return (lambda *args, **kwargs: [0.0, 0.0, 0.0]) if self._do_bench is None else do_bench(self)

    autotuner.do_bench = property(first_is_best)


@contextmanager
def _launching(memory: Memory | None) -> Iterator[None]:
    """Runs one launch after the other, from whatever thread, and restores what a launch replaces in triton.language.

    A signal's handler, or a finaliser, may launch within a launch. The outer launch then goes on with its own program.
    """
    with _one_at_a_time:
        outer = _launch.replaced, _launch.memory, _launch.run
        builder = sys.modules["triton.runtime.interpreter"].interpreter_builder
        place = {name: value for name, value in vars(builder).items() if name in ("grid_idx", "grid_dim")}
        _launch.replaced, _launch.memory, _launch.run = [], memory, None
        try:
            yield
        finally:
            for scope in reversed(_launch.replaced):
                scope.restore()
            _launch.replaced, _launch.memory, _launch.run = outer
            vars(builder).update(place)


def _turns(grid: tuple[int, ...]) -> Programs | None:
    """The programs that run, in their order, where that is not all of them from the first to the last."""
    if _choose is not None:
        return _choose(grid)
    return None if _order is None else in_order(_order, grid)


def require_compilable(kernel: object, args: tuple, kwargs: dict[str, object]) -> None:
    """Raises NotCompilable, with the words of Triton's compiler, for a launch that the compiler would refuse."""
    found = frontend.objection(kernel, args, kwargs)
    if found is not None:
        where = f", in the line `{found.line}`" if found.line else ""
        error = NotCompilable(f"{kernel.fn.__name__}{where}: Triton's compiler refuses it: {found.sentence}")
        error.cause, error.original, error.kernel = found.cause, found.error, kernel
        raise error


@functools.cache
def _is_learners(fn: Callable) -> bool:
    """False for a function of an installed package: what such a function does in plain Triton, it may do here."""
    file = Path(getattr(getattr(fn, "__code__", None), "co_filename", "")).resolve()
    installed = {Path(sysconfig.get_path(name)).resolve() for name in ("purelib", "platlib", "stdlib")}
    return (fn.__module__ or "").split(".")[0] == __name__.split(".")[0] or not installed & set(file.parents)


def _explained(error: BaseException, fn: Callable) -> Exception:
    """The error to show for one that the interpreter wrapped: an OutOfBounds as it is, other errors with their line."""
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
    found.cause, found.original = type(cause), error
    return found


_LIBDEVICE = "triton.language.extra.libdevice"
"""Its functions are empty: only the compiler puts others in their place. In the interpreter they return None."""


@functools.cache
def _libdevice_in(fn: Callable) -> str:
    """The first line of a kernel that names libdevice or a function of it; empty if there is none."""
    known = {**fn.__globals__, **inspect.getclosurevars(fn).nonlocals}
    used = {name for name in (*fn.__code__.co_names, *fn.__code__.co_freevars) if _is_of_libdevice(known.get(name))}
    if not used and "libdevice" not in fn.__code__.co_names:
        return ""
    named = re.compile(rf"\b(?:{'|'.join(map(re.escape, sorted(used or {'libdevice'})))})\b")
    return next((line.strip() for line in inspect.getsource(fn).splitlines() if named.search(line)), "libdevice")


def _is_of_libdevice(value: object) -> bool:
    return _LIBDEVICE in (getattr(value, "__name__", ""), getattr(value, "__module__", ""))


def _refuse_libdevice(fn: Callable) -> None:
    if line := _libdevice_in(fn):
        raise KernelError(
            f"{fn.__name__}, in the line `{line}`: the interpreter lacks the functions of libdevice; triton.language "
            "has some, such as tl.exp."
        )


def bind(kernel: object, args: tuple, kwargs: dict[str, object]) -> dict[str, object]:
    """Returns a launch's arguments by name, defaults included, without launch options such as num_warps."""
    own = {name: value for name, value in kwargs.items() if name in kernel.arg_names}
    try:
        bound = inspect.signature(kernel.fn).bind_partial(*args, **own)
    except TypeError as error:
        raise TypeError(f"{error}: {kernel.fn.__name__} takes {', '.join(kernel.arg_names)}") from None
    bound.apply_defaults()
    return dict(bound.arguments)


def resolve_grid(grid: tuple[int, ...] | Callable[[dict], tuple[int, ...]], arguments: dict) -> tuple[int, ...]:
    """Returns the grid of a launch as a tuple; if it is a function, calls it with the kernel's arguments.

    Raises TypeError for a bare number, as in `kernel[(M)]`, which lacks the comma of `kernel[(M,)]`, and for anything
    but whole numbers in the grid; ValueError for a grid that no GPU launches.
    """
    grid = grid(arguments) if callable(grid) else grid
    if not isinstance(grid, tuple | list):
        raise TypeError(f"the grid is {grid!r}; it must be a tuple of one to three numbers, such as ({grid},).")
    if not 1 <= len(grid) <= 3:
        raise ValueError(f"the grid is {grid!r}; it must hold one to three numbers.")
    try:
        sizes = tuple(map(operator.index, grid))
    except TypeError:
        raise TypeError(
            f"the grid is {grid!r}; it must hold whole numbers. Is a / meant to be //, or triton.cdiv?"
        ) from None
    if any(size > most for size, most in zip(sizes, _MOST_PROGRAMS, strict=False)):
        raise GridTooLarge(f"the grid is {sizes}; CUDA launches at most {_MOST_PROGRAMS} programs along its axes.")
    return sizes
