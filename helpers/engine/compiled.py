"""The one file that uses private parts of what compiles and launches for Triton (tested with 3.6 to 3.9).

It watches launches on a GPU, finds the type that a launch gives to an argument, compiles a kernel without launching it,
finds what the kernel needs, and launches a compiled kernel without Triton's search for it. Other modules call Triton's
public API themselves. The compiler's front end is in frontend.py, and the interpreter in interpreter.py.
"""

from __future__ import annotations

import inspect
import os
import tempfile
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from copy import copy
from functools import cache
from importlib import import_module
from pathlib import Path
from typing import Any

import triton

from helpers.engine.runtime import moved


@contextmanager
def before_each_launch(look: Callable[[Any, tuple, Any, dict[str, Any]], None]) -> Iterator[None]:
    """Calls look(kernel, args, grid, kwargs) in the block before each launch of a compiled kernel.

    Raises RuntimeError if this version of Triton launches in another way.
    """
    JITFunction = _part("triton.runtime.jit", "JITFunction", "launches cannot be seen")
    run = getattr(JITFunction, "run", None)
    if run is None or not {"grid", "warmup"} <= set(inspect.signature(run).parameters):
        raise moved(["JITFunction.run"], "triton.runtime.jit", "launches cannot be seen")

    def watched_run(self: Any, *args: Any, grid: Any, warmup: bool, **kwargs: Any) -> Any:
        if not warmup:
            look(self, args, grid, kwargs)
        return run(self, *args, grid=grid, warmup=warmup, **kwargs)

    JITFunction.run = watched_run
    _looking.append(look)
    try:
        yield
    finally:
        JITFunction.run = run
        _looking.remove(look)


_looking: list[Callable] = []
_runtime = triton.knobs.runtime


def launches_are_seen() -> bool:
    """True if before_each_launch, or a profiler's hook, sees launches: it would miss a launch that bypasses Triton."""
    hook = _runtime.launch_enter_hook
    return bool(_looking or getattr(hook, "calls", hook))


ConstexprFunction = getattr(triton.runtime.jit, "ConstexprFunction", ())
"""What triton.constexpr_function makes, if this version of Triton has it."""


ArgumentType = str | tuple["ArgumentType", ...]
"""Such as "*fp32", "i32" and "constexpr"; of a tuple, its parts' types."""
Divisible = bool | tuple["Divisible", ...]


def argument_type(kernel: Any, index: int, parameter: inspect.Parameter, value: Any) -> tuple[ArgumentType, Divisible]:
    """The type that a launch gives to an argument, and whether the argument is known to be a multiple of 16.

    The type is "constexpr" for a value that is compiled in. Raises TypeError for a value that no launch can pass, and
    RuntimeError if this version of Triton has moved the function that a launch calls.
    """
    backend, specialize, KernelParam = _specialization()
    options = decorated_with(kernel)
    own = {parameter.name, index}
    fixed, unaligned = (
        not own.isdisjoint(options.get(name) or ()) for name in ("do_not_specialize", "do_not_specialize_on_alignment")
    )
    known = KernelParam(index, parameter, fixed, unaligned)
    if known.is_constexpr:
        return "constexpr", False
    if known.annotation_type[:2] in ("u1", "fp", "bf"):
        return known.annotation_type, False
    kind, attribute = specialize(backend, value, known.is_const, not fixed, not unaligned)
    if not isinstance(kind, str | tuple):
        raise TypeError(f"a launch cannot pass a {type(value).__name__}")
    return known.annotation_type or kind, _is_divisible(attribute)


def binaries(kernel: Any, **values: Iterable[int]) -> int:
    """How many binaries launches of a kernel need that differ in one integer alone: binaries(kernel, M=(1, 16, 17)).

    Triton's own specialisation says so, without a GPU. Raises ValueError for a name that is no parameter of the kernel.
    """
    ((name, numbers),) = values.items()
    parameters = inspect.signature(kernel.fn).parameters
    if name not in parameters:
        raise ValueError(f"{kernel.fn.__name__} has no parameter {name}; it has {', '.join(parameters)}.")
    place = list(parameters).index(name)
    kinds = [(argument_type(kernel, place, parameters[name], number), number) for number in numbers]
    return len({(kind, number if kind[0] == "constexpr" else None) for kind, number in kinds})


def _is_divisible(attribute: Any) -> Divisible:
    return tuple(map(_is_divisible, attribute)) if isinstance(attribute, tuple) else attribute == "D"


def decorated_with(kernel: Any) -> Mapping[str, Any]:
    """The options of the kernel's decorator, such as noinline: an interpreted kernel keeps them in a dict."""
    return getattr(kernel, "kwargs", None) or vars(kernel)


@cache
def _specialization() -> tuple[Any, Callable, Any]:
    """What the function asks that Triton's JITFunction makes of a signature (triton/runtime/jit.py), tried on 16."""
    consequence = "the types of arguments cannot be known"
    backend = _part("triton.backends.nvidia.compiler", "CUDABackend", consequence)
    specialize = _part("triton._C.libtriton", "native_specialize_impl", consequence)
    KernelParam = _part("triton.runtime.jit", "KernelParam", consequence)
    try:
        KernelParam(0, inspect.Parameter("N", inspect.Parameter.POSITIONAL_ONLY), False, False)
    except TypeError:
        raise moved(["KernelParam"], "triton.runtime.jit", consequence) from None
    try:
        answer = tuple(specialize(backend, 16, False, True, True))
    except TypeError:
        answer = ()
    if answer != ("i32", "D"):
        raise moved(["native_specialize_impl"], "triton._C.libtriton", consequence)
    return backend, specialize, KernelParam


def compile_without_launch(
    kernel: Any,
    signature: Mapping[str, ArgumentType],
    constants: Mapping[Any, Any],
    divisible: Iterable[int | tuple[int, ...]],
    target: str,
    options: Mapping[str, Any],
) -> Any:
    """Triton's CompiledKernel for a target such as "sm_90": its `asm` and `metadata` are filled, nothing is loaded.

    `signature` gives each parameter its type, `constants` the values of each "constexpr"; `divisible` has the positions
    of arguments that are multiples of 16. Within an argument that is a tuple, a constant and a position are paths, such
    as (2, 0). Raises the compiler's errors, and RuntimeError if this version of Triton has moved the entry of its
    compiler.
    """
    consequence = "kernels cannot be compiled without a launch"
    ASTSource = _part("triton.compiler", "ASTSource", consequence)
    GPUTarget = _part("triton.backends.compiler", "GPUTarget", consequence)
    paths = [(place,) if isinstance(place, int) else place for place in divisible]
    attributes = {path: [["tt.divisibility", 16]] for path in paths}
    source = ASTSource(kernel, dict(signature), constexprs=dict(constants), attrs=attributes)
    gpu = GPUTarget("cuda", int(target.removeprefix("sm_")), 32)
    with _writable_cache():
        return triton.compile(source, target=gpu, options=dict(options))


@contextmanager
def _writable_cache() -> Iterator[None]:
    """Gives Triton a temporary cache if its own folder cannot be written: Triton compiles only into a cache."""
    folder = Path(triton.knobs.cache.dir)
    with ExitStack() as temporary:
        try:
            folder.mkdir(parents=True, exist_ok=True)
            tempfile.TemporaryFile(dir=folder).close()
        except OSError:
            temporary.enter_context(triton.knobs.cache.scope())
            triton.knobs.cache.dir = temporary.enter_context(tempfile.TemporaryDirectory())
        yield


def direct_launch(kernel: Any) -> tuple[Callable, tuple]:
    """The function that launches a CompiledKernel, and the arguments that come after grid and stream.

    The kernel's own arguments follow these. Profilers' hooks are left out. Raises RuntimeError if this version of
    Triton has moved the arguments of its launcher.
    """
    names = "run", "function", "packed_metadata"
    if missing := [name for name in names if not hasattr(kernel, name)]:
        raise moved(missing, "CompiledKernel", "kernels cannot be launched directly")
    no_hooks = None, None, None
    known = kernel.function, kernel.packed_metadata, *no_hooks
    return _inner_launch(kernel.run, known) or (kernel.run, known)


def _inner_launch(run: Any, known: tuple) -> tuple[Callable, tuple] | None:
    """The compiled function that Triton's launcher calls, which saves 0.8 µs a launch, and what comes after the stream.

    A copy of the launcher is asked what it would pass on. None where it allocates memory for each launch, or passes the
    kernel's own arguments in another way, as Triton 3.7 does.
    """
    if getattr(run, "global_scratch_size", True) or getattr(run, "profile_scratch_size", True):
        return None
    passed: list[tuple] = []
    asked, stream, own = copy(run), object(), (object(), object())
    asked.launch = lambda *arguments: passed.append(arguments)
    asked(1, 1, 1, stream, *known, *own)
    if not passed or passed[0][:4] != (1, 1, 1, stream) or passed[0][-2:] != own:
        return None
    return run.launch, passed[0][4:-2]


def needs(kernel: Any, args: tuple, options: Mapping[str, Any]) -> tuple[int, int]:
    """Registers of a thread and bytes of shared memory of a program of kernel[grid](*args, **options), not launched.

    The kernel is compiled for the GPU here, as a launch would compile it, and Triton keeps it. Raises RuntimeError if
    this version of Triton has moved these figures.
    """
    found = kernel.warmup(*args, grid=(1,), **options)
    if missing := [name for name in ("_init_handles", "metadata") if not hasattr(found, name)]:
        raise moved(missing, "CompiledKernel", "what a launch needs of a GPU cannot be known")
    found._init_handles()
    return found.n_regs, found.metadata.shared


def assemblers() -> list[tuple[str | None, int]]:
    """The ptxas programs that would be used, told apart by size: to ask one for its version would mean to start it."""
    found = []
    for tool in ("ptxas", "ptxas-blackwell"):
        chosen = os.environ.get(f"TRITON_{tool.upper().replace('-', '_')}_PATH")
        path = Path(chosen or Path(triton.__file__).parent / "backends" / "nvidia" / "bin" / tool)
        found.append((chosen, path.stat().st_size if path.exists() else 0))
    return found


def _part(where: str, name: str, consequence: str) -> Any:
    """A part of Triton by its module and its name."""
    try:
        return getattr(import_module(where), name)
    except (ImportError, AttributeError):
        raise moved([name], where, consequence) from None
