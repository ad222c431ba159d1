"""Triton's compiler: launches that are seen, the types of arguments, and a Triton that has moved what they need."""

import inspect
import re
from types import SimpleNamespace

import pytest
import torch
import triton
import triton.language as tl
from triton.runtime.jit import JITFunction

from helpers.engine import child, compiled
from small_kernels import copy_kernel

MOVED = f"Triton {triton.__version__} has moved "
KNOWN = "`make install` brings the course's version; Triton 3.6 to 3.9 are known to work."


@pytest.fixture
def launches(monkeypatch):
    """What the compiler's own launch is called with, in place of a GPU."""
    seen = []

    def run(self, *args, grid, warmup, **kwargs):
        seen.append((self, args, grid, warmup, kwargs))
        return "launched"

    monkeypatch.setattr(JITFunction, "run", run)
    return seen


# What a launch needs


def test_what_a_launch_needs_is_asked_of_the_kernel_that_it_would_launch():
    class Compiled:
        metadata = SimpleNamespace(shared=64)

        def _init_handles(self):
            self.n_regs = 40

    asked = []
    kernel = SimpleNamespace(warmup=lambda *args, **options: asked.append((args, options)) or Compiled())
    assert compiled.needs(kernel, (1, 2), {"BLOCK": 8, "num_warps": 4}) == (40, 64)
    assert asked == [((1, 2), {"BLOCK": 8, "num_warps": 4, "grid": (1,)})]


def test_a_triton_that_has_moved_what_a_launch_needs_is_named():
    kernel = SimpleNamespace(warmup=lambda *args, **options: SimpleNamespace(metadata=None))
    with pytest.raises(RuntimeError, match=re.escape(MOVED) + ".*_init_handles"):
        compiled.needs(kernel, (), {})


# Launches


def test_a_launch_is_seen_before_it_is_made(launches):
    seen = []

    def look(*launch):
        assert launches == []
        seen.append(launch)

    with compiled.before_each_launch(look):
        assert JITFunction.run(copy_kernel, 1, 2, grid=(3,), warmup=False, num_warps=4) == "launched"
    assert seen == [(copy_kernel, (1, 2), (3,), {"num_warps": 4})]
    assert launches == [(copy_kernel, (1, 2), (3,), False, {"num_warps": 4})]


def test_a_launch_that_only_compiles_is_not_seen(launches):
    seen = []
    with compiled.before_each_launch(lambda *launch: seen.append(launch)):
        JITFunction.run(copy_kernel, 1, grid=(3,), warmup=True)
    assert (seen, len(launches)) == ([], 1)


def test_a_launch_that_is_refused_when_it_is_seen_is_not_made(launches):
    def refuse(*launch):
        raise ValueError("not this one")

    with compiled.before_each_launch(refuse), pytest.raises(ValueError, match="not this one"):
        JITFunction.run(copy_kernel, 1, grid=(3,), warmup=False)
    assert launches == []


def test_after_the_block_launches_are_not_seen(launches):
    before = JITFunction.run
    with pytest.raises(ValueError), compiled.before_each_launch(print):
        raise ValueError
    assert JITFunction.run is before


# The types of arguments


@triton.jit
def typed_kernel(y_ptr, count: tl.int64, flag, BLOCK: tl.constexpr):
    tl.store(y_ptr, count)


@pytest.mark.parametrize(
    ("name", "value", "given"),
    [
        ("y_ptr", torch.empty(8), ("*fp32", True)),
        ("y_ptr", torch.empty(8)[1:], ("*fp32", False)),
        ("count", 16, ("i64", True)),
        ("count", 17, ("i64", False)),
        ("flag", 2**40, ("i64", True)),
        ("flag", 1, ("constexpr", False)),
        ("flag", 0.5, ("fp32", False)),
        ("BLOCK", 16, ("constexpr", False)),
    ],
    ids=["tensor", "off by an element", "annotated", "odd", "wide", "one", "float", "constant"],
)
def test_an_argument_has_the_type_that_a_launch_gives_it(name, value, given):
    parameters = inspect.signature(typed_kernel.fn).parameters
    assert compiled.argument_type(typed_kernel, list(parameters).index(name), parameters[name], value) == given


def test_a_value_that_no_launch_can_pass_is_refused():
    (parameter, *_) = inspect.signature(typed_kernel.fn).parameters.values()
    with pytest.raises(TypeError):
        compiled.argument_type(typed_kernel, 0, parameter, [1])


# Compiled without a launch


def ptx(num_warps):
    """In a process that compiles: PTX for an A100."""
    signature = {"y_ptr": "*fp32", "x_ptr": "*fp32", "N": "i32", "BLOCK": "constexpr"}
    made = compiled.compile_without_launch(
        copy_kernel, signature, {"BLOCK": 64}, (0, 1), "sm_80", {"num_warps": num_warps}
    )
    return made.asm["ptx"]


def test_a_kernel_is_compiled_for_the_target_and_the_warps_asked_for():
    text = child.call(ptx, 2, interpret=False)
    assert ".target sm_80" in text and re.search(r"\.reqntid 64\b", text)


def test_a_compiled_kernel_is_launched_with_its_handle_its_metadata_and_no_hooks():
    kernel = SimpleNamespace(run=print, function=7, packed_metadata=(1, 2))
    assert compiled.direct_launch(kernel) == (print, (7, (1, 2), None, None, None))


class Launcher:
    """As Triton 3.6 has one: it adds what it knows of the kernel, and calls a compiled function."""

    global_scratch_size = profile_scratch_size = 0

    def __init__(self):
        self.launched = []
        self.launch = lambda *arguments: self.launched.append(arguments)

    def __call__(self, x, y, z, stream, function, *arguments):
        self.launch(x, y, z, stream, function, "cooperative", None, *arguments)


class TupleLauncher(Launcher):
    """As Triton 3.7 has one: a kernel's own arguments come as one tuple."""

    def __call__(self, x, y, z, stream, function, metadata, data, enter, exit, *own):
        self.launch(x, y, z, stream, function, metadata, data, enter, exit, None, own)


class AllocatingLauncher(Launcher):
    global_scratch_size = 128


def test_a_direct_launch_goes_round_a_launcher_that_only_passes_arguments_on():
    launcher = Launcher()
    run, known = compiled.direct_launch(SimpleNamespace(run=launcher, function=7, packed_metadata=(1, 2)))
    assert run is launcher.launch and not launcher.launched
    launcher(4, 5, 6, "stream", 7, (1, 2), None, None, None, "x", "N")
    run(4, 5, 6, "stream", *known, "x", "N")
    assert launcher.launched[0] == launcher.launched[1]


@pytest.mark.parametrize("kind", [TupleLauncher, AllocatingLauncher], ids=lambda kind: kind.__name__)
def test_a_direct_launch_leaves_no_other_launcher_out(kind):
    launcher = kind()
    run, known = compiled.direct_launch(SimpleNamespace(run=launcher, function=7, packed_metadata=(1, 2)))
    assert run is launcher and known == (7, (1, 2), None, None, None) and not launcher.launched


# A Triton that has moved what is needed


@pytest.fixture
def nothing_known():
    """What was found of Triton is looked for again, in the test and after it."""
    compiled._specialization.cache_clear()
    yield
    compiled._specialization.cache_clear()


@pytest.mark.parametrize(
    ("where", "name"),
    [
        ("triton.runtime.jit", "KernelParam"),
        ("triton.backends.nvidia.compiler", "CUDABackend"),
        ("triton._C.libtriton", "native_specialize_impl"),
    ],
)
def test_a_part_that_argument_types_need_is_named_where_it_is_missing(nothing_known, monkeypatch, where, name):
    monkeypatch.delattr(f"{where}.{name}")
    parameter = inspect.Parameter("N", inspect.Parameter.POSITIONAL_ONLY)
    sentence = f"{MOVED}{name} in {where}, so the types of arguments cannot be known. {KNOWN}"
    with pytest.raises(RuntimeError, match=re.escape(sentence)):
        compiled.argument_type(copy_kernel, 2, parameter, 5)


@pytest.mark.parametrize("answer", [lambda *asked: ("i32", "16"), lambda asked: None], ids=["answers", "asked"])
def test_types_that_are_given_in_another_way_are_noticed(nothing_known, monkeypatch, answer):
    monkeypatch.setattr("triton._C.libtriton.native_specialize_impl", answer)
    with pytest.raises(RuntimeError, match=f"{MOVED}native_specialize_impl"):
        compiled._specialization()


def test_parameters_that_are_described_in_another_way_are_noticed(nothing_known, monkeypatch):
    monkeypatch.setattr("triton.runtime.jit.KernelParam", lambda parameter: None)
    with pytest.raises(RuntimeError, match=f"{MOVED}KernelParam in triton.runtime.jit"):
        compiled._specialization()


@pytest.mark.parametrize("name", ["ASTSource", "GPUTarget"])
def test_a_part_that_compiling_needs_is_named_where_it_is_missing(monkeypatch, name):
    where = {"ASTSource": "triton.compiler", "GPUTarget": "triton.backends.compiler"}[name]
    monkeypatch.delattr(f"{where}.{name}")
    with pytest.raises(RuntimeError, match=f"{MOVED}{name} in {where}, so kernels cannot be compiled without a launch"):
        ptx(4)


def test_launches_that_are_made_in_another_way_are_noticed(monkeypatch):
    monkeypatch.setattr(JITFunction, "run", lambda self, *args: None)
    with pytest.raises(RuntimeError, match=f"{MOVED}JITFunction.run in triton.runtime.jit, so launches cannot be seen"):
        with compiled.before_each_launch(print):
            pass


@pytest.mark.parametrize("missing", ["run", "function", "packed_metadata"])
def test_a_part_that_a_direct_launch_needs_is_named_where_it_is_missing(missing):
    parts = {name: None for name in ("run", "function", "packed_metadata") if name != missing}
    with pytest.raises(RuntimeError, match=f"{MOVED}{missing} in CompiledKernel, so kernels cannot be launched"):
        compiled.direct_launch(SimpleNamespace(**parts))
