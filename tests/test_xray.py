"""Kernels outside their own process: their source, the children that run or compile it, and what a compiler reports."""

import ast
import json
import os
import signal
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace

import pytest
import torch
import triton
import triton.language as tl
from triton.language import exp as tl_exp
from triton.language import max as tl_max

from helpers import DEVICE, child, portable, xray
from helpers.kernels import single_tile_kernel

ROOT = Path(__file__).resolve().parent.parent
FACTOR = 3.0
HALF = tl.constexpr(0.5)
MINUS_INF = tl.constexpr(-float("inf"))
TABLE = [1.0, 2.0]


@triton.jit
def halve(x):
    return x * HALF


@triton.jit
def quarter(x):
    return halve(halve(x))


in_quarters = quarter


@triton.jit
def copy_kernel(y_ptr, x_ptr, N, BLOCK: tl.constexpr):
    cols = tl.arange(0, BLOCK)
    tl.store(y_ptr + cols, tl.load(x_ptr + cols, mask=cols < N), mask=cols < N)


@triton.jit
def documented_kernel(y_ptr, x_ptr, N, BLOCK: tl.constexpr, SHIFT: tl.constexpr = 1.5):
    """Adds a default."""
    cols = tl.arange(0, BLOCK)
    mask = cols < N  # a comment
    tl.store(y_ptr + cols, tl.load(x_ptr + cols, mask=mask) + SHIFT, mask=mask)


@triton.jit
def calling_kernel(y_ptr, x_ptr, N, BLOCK: tl.constexpr):
    cols = tl.arange(0, BLOCK)
    tl.store(y_ptr + cols, quarter(tl.load(x_ptr + cols, mask=cols < N)), mask=cols < N)


@triton.jit
def constexpr_kernel(y_ptr, x_ptr, N, BLOCK: tl.constexpr):
    cols = tl.arange(0, BLOCK)
    tl.store(y_ptr + cols, tl.load(x_ptr + cols, mask=cols < N) * HALF, mask=cols < N)


@triton.jit
def constant_kernel(y_ptr, x_ptr, N, BLOCK: tl.constexpr):
    cols = tl.arange(0, BLOCK)
    tl.store(y_ptr + cols, tl.load(x_ptr + cols, mask=cols < N) * FACTOR, mask=cols < N)


@triton.jit
def infinite_kernel(y_ptr, x_ptr, N, BLOCK: tl.constexpr):
    cols = tl.arange(0, BLOCK)
    tl.store(y_ptr + cols, tl.maximum(tl.load(x_ptr + cols, mask=cols < N), MINUS_INF), mask=cols < N)


@triton.jit
def alias_kernel(y_ptr, x_ptr, N, BLOCK: tl.constexpr):
    cols = tl.arange(0, BLOCK)
    tl.store(y_ptr + cols, in_quarters(tl.load(x_ptr + cols, mask=cols < N)), mask=cols < N)


@triton.jit
def list_kernel(y_ptr, x_ptr, N, BLOCK: tl.constexpr):
    cols = tl.arange(0, BLOCK)
    tl.store(y_ptr + cols, tl.load(x_ptr + cols, mask=cols < N) * TABLE, mask=cols < N)


@triton.jit
def exp_kernel(y_ptr, x_ptr, N, BLOCK: tl.constexpr):
    cols = tl.arange(0, BLOCK)
    tl.store(y_ptr + cols, tl_exp(tl.load(x_ptr + cols, mask=cols < N)), mask=cols < N)


@triton.jit
def max_kernel(y_ptr, x_ptr, N, BLOCK: tl.constexpr):
    cols = tl.arange(0, BLOCK)
    tl.store(y_ptr + cols, tl_max(tl.load(x_ptr + cols, mask=cols < N), axis=0), mask=cols < N)


def output(kernel):
    """What a kernel of (y_ptr, x_ptr, N, BLOCK) makes of a short row."""
    x = torch.linspace(-1, 1, 5, device=DEVICE)
    y = torch.zeros(5, device=DEVICE)
    kernel[(1,)](y, x, 5, BLOCK=8)
    return y


def remade(kernel):
    return portable.load(portable.source(kernel), kernel.fn.__name__)


def compiled(kernel, **options):
    row = torch.empty(8)
    return xray.resources(kernel, row, row, 5, BLOCK=8, **options)


def single_tile(BLOCK, num_warps, **options):
    row = torch.empty(16)
    return xray.resources(
        single_tile_kernel, row, row, BLOCK, BLOCK, 1, BLOCK, BLOCK=BLOCK, num_warps=num_warps, **options
    )


# Source and back


@pytest.mark.parametrize(
    "kernel",
    [
        pytest.param(copy_kernel, id="on its own"),
        pytest.param(documented_kernel, id="with a docstring, a comment and a default"),
        pytest.param(calling_kernel, id="that calls kernels that call kernels"),
        pytest.param(constexpr_kernel, id="that names a tl.constexpr"),
        pytest.param(infinite_kernel, id="that names an infinite tl.constexpr"),
        pytest.param(alias_kernel, id="that calls a kernel by another name"),
        pytest.param(max_kernel, id="that names a kernel of Triton"),
    ],
)
def test_a_kernel_made_anew_from_its_source_gives_the_same_result(kernel):
    assert torch.equal(output(remade(kernel)), output(kernel))


def test_a_kernel_made_anew_has_a_source_itself():
    assert portable.source(remade(calling_kernel)) == portable.source(calling_kernel)


def test_the_source_holds_what_the_kernel_names_and_nothing_else():
    module = ast.parse(portable.source(calling_kernel))
    imported = {name.asname or name.name for node in module.body if isinstance(node, ast.Import) for name in node.names}
    assigned = {node.targets[0].id for node in module.body if isinstance(node, ast.Assign)}
    defined = {node.name for node in module.body if isinstance(node, ast.FunctionDef)}
    assert (imported, assigned, defined) == ({"triton", "tl"}, {"HALF"}, {"halve", "quarter", "calling_kernel"})


def test_the_source_imports_a_function_of_triton_from_where_it_comes():
    assert "from triton.language.math import exp as tl_exp" in portable.source(exp_kernel)


def test_the_source_imports_a_kernel_of_triton_from_where_it_comes():
    assert "from triton.language.standard import max as tl_max" in portable.source(max_kernel)


@pytest.mark.parametrize("value", [1.5, -0.0, float("inf"), -float("inf"), float("nan"), 3, True, "a", None], ids=repr)
def test_the_text_of_a_constant_gives_the_constant_again(value):
    again = eval(portable._literal(value))
    assert type(again) is type(value) and repr(again) == repr(value)


def test_a_definition_has_no_decorators():
    assert portable.definition(copy_kernel).startswith("def copy_kernel(")


def test_a_kernel_whose_source_is_lost_is_refused_with_what_to_do():
    exec("def lost(x_ptr): pass", scope := {})
    with pytest.raises(ValueError, match="the source of lost cannot be found; define it in a cell or a file"):
        portable.source(SimpleNamespace(fn=scope["lost"]))


def test_a_global_that_cannot_be_written_down_is_refused_by_its_name():
    with pytest.raises(ValueError, match="the kernel uses the global TABLE, a list; pass it as an argument instead"):
        portable.source(list_kernel)


# Child processes


def test_a_child_is_another_process_and_stays_for_the_next_call():
    first, second = (child.call(os.getpid, interpret=False) for _ in range(2))
    assert first == second != os.getpid()


def test_a_child_that_compiles_is_told_so_and_the_parent_keeps_its_own_setting():
    before = dict(os.environ)
    assert child.call(os.getenv, "TRITON_INTERPRET", interpret=False) == "0"
    assert dict(os.environ) == before


def test_what_a_function_raises_in_a_child_is_raised_here():
    with pytest.raises(ValueError, match="invalid literal for int.* 'many'"):
        child.call(int, "many", interpret=False)


def test_a_child_that_dies_is_an_error_and_the_next_call_gets_a_new_one():
    with pytest.raises(RuntimeError, match="the child process that ran this kernel died"):
        child.call(os._exit, 3, interpret=False)
    assert child.call(os.getpid, interpret=False) != os.getpid()


PARENT = """
import json, os, sys
from helpers import child
names = "TRITON_INTERPRET", "CUDA_VISIBLE_DEVICES"
pid, *settings = [child.call(os.getpid, interpret=True), *(child.call(os.getenv, n, interpret=True) for n in names)]
print(json.dumps([pid, settings]), flush=True)
sys.stdin.read()
"""


@pytest.fixture(scope="module")
def orphan():
    """A parent that is killed once it has a child that interprets: the child's settings, and whether it ended too."""
    command = [sys.executable, "-c", PARENT]
    parent = subprocess.Popen(command, cwd=ROOT, text=True, stdin=subprocess.PIPE, stdout=subprocess.PIPE)
    pid, settings = json.loads(parent.stdout.readline())
    parent.kill()
    try:
        parent.communicate(timeout=30)  # the child has the pipe too, so this ends when both have
        ended = True
    except subprocess.TimeoutExpired:
        os.kill(pid, signal.SIGKILL)
        parent.communicate()
        ended = False
    return SimpleNamespace(settings=settings, ended=ended)


def test_a_child_that_interprets_is_told_so_and_sees_no_gpu(orphan):
    assert orphan.settings == ["1", ""]


def test_a_child_ends_with_its_parent_even_when_that_is_killed(orphan):
    assert orphan.ended


# What the compiler reports


def test_resources_say_what_was_asked_for():
    seen = compiled(copy_kernel, target="sm_80", num_warps=2)
    assert (seen.target, seen.num_warps) == ("sm_80", 2)
    assert 0 < seen.registers <= 255
    assert (seen.spill_bytes, seen.shared_bytes) == (0, 0)


def test_the_default_is_four_warps_on_sm_90():
    assert compiled(copy_kernel) == compiled(copy_kernel, target="sm_90", num_warps=4)


@pytest.mark.parametrize("kernel", [calling_kernel, constexpr_kernel, documented_kernel, exp_kernel])
def test_a_kernel_compiles_with_all_that_it_names(kernel):
    assert compiled(kernel).registers > 0


def test_a_kernel_compiles_with_a_kernel_of_triton_imported_by_name():
    assert compiled(max_kernel).registers > 0


def test_a_tile_of_65536_spills_with_32_warps():
    assert single_tile(65536, num_warps=32).spill_bytes > 0


def test_a_tile_of_8192_does_not_spill_with_16_warps():
    assert single_tile(8192, num_warps=16).spill_bytes == 0


def test_more_warps_leave_fewer_registers_to_each_thread():
    assert single_tile(8192, num_warps=16).registers < single_tile(8192, num_warps=4).registers


def test_one_warp_needs_no_shared_memory_and_several_share_some():
    assert single_tile(1024, num_warps=1).shared_bytes == 0
    assert single_tile(1024, num_warps=4).shared_bytes > 0


def test_nothing_runs_when_resources_are_asked_for():
    x, y = torch.ones(8), torch.zeros(8)
    xray.resources(copy_kernel, y, x, 8, BLOCK=8)
    assert torch.equal(y, torch.zeros(8))


def test_the_same_question_is_compiled_once():
    assert compiled(copy_kernel) is compiled(copy_kernel)


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float16, torch.float64, torch.int32])
def test_a_tensor_gives_its_dtype(dtype):
    row = torch.empty(8, dtype=dtype)
    assert xray.resources(copy_kernel, row, row, 8, BLOCK=8).registers > 0


@pytest.mark.parametrize("target", ["", "90", "sm90", "sm_9", "sm_90a", "cuda:90", "SM_90", "sm_90\n", "sm_99"])
def test_a_target_that_is_not_one_of_those_is_refused(target):
    with pytest.raises(ValueError, match="target must be one of sm_75, .*, sm_121; it is"):
        compiled(copy_kernel, target=target)


def test_a_plain_global_number_is_refused_by_its_name():
    with pytest.raises(ValueError, match="Cannot access global variable FACTOR"):
        compiled(constant_kernel)


def test_a_name_that_is_nowhere_is_refused():
    misspelt = portable.load(
        "import triton\nimport triton.language as tl\n@triton.jit\n"
        "def misspelt(y_ptr, BLOCK: tl.constexpr):\n    tl.store(y_ptr + tl.arange(0, BLOCK), nowhere)\n",
        "misspelt",
    )
    with pytest.raises(ValueError, match="nowhere is not defined"):
        xray.resources(misspelt, torch.empty(8), BLOCK=8)


def test_an_argument_left_out_is_refused_by_its_name():
    with pytest.raises(
        TypeError, match="copy_kernel: missing a required argument: 'N'; its parameters are y_ptr, x_ptr"
    ):
        xray.resources(copy_kernel, torch.empty(8), torch.empty(8), BLOCK=8)


def test_an_argument_that_the_kernel_does_not_take_is_refused_by_its_name():
    with pytest.raises(TypeError, match="copy_kernel: got an unexpected keyword argument 'BLOK'"):
        compiled(copy_kernel, BLOK=8)


def test_what_is_no_kernel_is_refused():
    with pytest.raises(TypeError, match="takes a kernel, made with @triton.jit; got a function"):
        xray.resources(output, torch.empty(8))


@pytest.mark.parametrize("num_warps", [0, 3, 64, -4, "4"])
def test_a_number_of_warps_that_no_launch_has_is_refused(num_warps):
    with pytest.raises(ValueError, match=f"num_warps must be 1, 2, 4, 8, 16 or 32; it is {num_warps!r}"):
        compiled(copy_kernel, num_warps=num_warps)


def test_a_kernel_that_does_not_compile_is_refused_in_one_line_without_the_childs_traceback():
    with pytest.raises(ValueError, match="must be a power of 2 .in `cols = tl.arange.0, BLOCK.`.$") as refusal:
        xray.resources(copy_kernel, torch.empty(8), torch.empty(8), 5, BLOCK=7)
    assert str(refusal.value).startswith("copy_kernel does not compile for sm_90: ")
    assert len(str(refusal.value).splitlines()) == 1
    assert refusal.value.__cause__ is None and refusal.value.__suppress_context__


@pytest.mark.parametrize("target", xray.TARGETS)
def test_every_target_compiles(target):
    assert single_tile(1024, num_warps=4, target=target).registers > 0
