"""What the compiler makes of a kernel, and the kernels that it refuses."""

import pytest
import torch
import triton
import triton.language as tl

from helpers import xray
from helpers.engine import kernel_text
from helpers.kernels import persistent_kernel
from small_kernels import (
    calling_kernel,
    compiled,
    constexpr_kernel,
    copy_kernel,
    documented_kernel,
    exp_kernel,
    max_kernel,
)

# What the compiler reports


def test_a_report_says_what_was_asked_for():
    seen = compiled(copy_kernel, target="sm_80", num_warps=2)
    assert (seen.target, seen.num_warps, seen.threads) == ("sm_80", 2, 64)


def test_a_copy_of_eight_elements_is_a_load_and_a_store_without_a_barrier():
    seen = compiled(copy_kernel)
    assert (seen.loads, seen.stores, seen.barriers) == ({32: 1}, {32: 1}, 0)
    assert (seen.spill_bytes, seen.shared_bytes, seen.missing) == (0, 0, "")
    assert 0 < seen.registers <= 32


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float16, torch.float64, torch.int32])
def test_a_tensor_gives_its_dtype(dtype):
    row = torch.empty(8, dtype=dtype)
    assert xray.report(copy_kernel, row, row, 8, BLOCK=8).loads == {8 * dtype.itemsize: 1}


@triton.jit
def product_kernel(y_ptr, x_ptr, K):
    rows = tl.arange(0, 16)[:, None]
    cols = tl.arange(0, 16)[None, :]
    total = tl.zeros((16, 16), tl.float32)
    for k in range(0, K, 16):
        a = tl.load(x_ptr + rows * K + cols + k)
        total += tl.dot(a, tl.load(x_ptr + (rows + k) * 16 + cols))
    tl.store(y_ptr + rows * 16 + cols, total)


def test_num_stages_is_a_launch_option():
    row = torch.empty(16, dtype=torch.float16)
    one, four = (xray.report(product_kernel, row, row, 1024, target="sm_80", num_stages=n) for n in (1, 4))
    assert four.shared_bytes > one.shared_bytes


@pytest.mark.parametrize("kernel", [calling_kernel, constexpr_kernel, documented_kernel, exp_kernel])
def test_a_kernel_compiles_with_all_that_it_names(kernel):
    assert compiled(kernel).registers > 0


def test_a_kernel_compiles_with_a_kernel_of_triton_imported_by_name():
    assert compiled(max_kernel).registers > 0


def test_nothing_runs_when_a_report_is_asked_for():
    x, y = torch.ones(8), torch.zeros(8)
    xray.report(copy_kernel, y, x, 8, BLOCK=8)
    assert torch.equal(y, torch.zeros(8))


# What is refused


FACTOR = 3.0


@triton.jit
def constant_kernel(y_ptr, x_ptr, N, BLOCK: tl.constexpr):
    cols = tl.arange(0, BLOCK)
    tl.store(y_ptr + cols, tl.load(x_ptr + cols, mask=cols < N) * FACTOR, mask=cols < N)


def test_a_plain_global_number_is_refused_by_its_name():
    with pytest.raises(ValueError, match="Cannot access global variable FACTOR"):
        compiled(constant_kernel)


def test_a_name_that_is_nowhere_is_refused():
    misspelt = kernel_text.load(
        "import triton\nimport triton.language as tl\n@triton.jit\n"
        "def misspelt(y_ptr, BLOCK: tl.constexpr):\n    tl.store(y_ptr + tl.arange(0, BLOCK), nowhere)\n",
        "misspelt",
    )
    with pytest.raises(ValueError, match="nowhere is not defined"):
        xray.report(misspelt, torch.empty(8), BLOCK=8)


def test_a_kernel_that_does_not_compile_is_refused_in_one_line_without_the_childs_traceback():
    with pytest.raises(ValueError, match="must be a power of 2 .in `cols = tl.arange.0, BLOCK.`.$") as refusal:
        xray.report(copy_kernel, torch.empty(8), torch.empty(8), 5, BLOCK=7, target="sm_90")
    assert str(refusal.value).startswith("copy_kernel does not compile for sm_90: ")
    assert len(str(refusal.value).splitlines()) == 1
    assert refusal.value.__cause__ is None and refusal.value.__suppress_context__


@triton.jit
def assembly_kernel(y_ptr):
    tl.store(y_ptr, tl.inline_asm_elementwise("nonsense $0;", "=r", [], dtype=tl.int32, is_pure=True, pack=1))


def test_a_kernel_that_the_assembler_refuses_is_refused_in_its_words():
    with pytest.raises(ValueError, match="ptxas says: Not a name of any known instruction: 'nonsense'$"):
        xray.report(assembly_kernel, torch.empty(8, dtype=torch.int32))


def test_a_kernel_that_needs_more_shared_memory_than_there_is_is_refused_with_what_to_do():
    row = torch.empty(32), torch.empty(32), 16384, 16384, 1, 1, 16384
    with pytest.raises(
        ValueError, match="a program needs .* bytes of shared memory and can have 101,376. Use a smaller"
    ):
        xray.report(persistent_kernel, *row, BLOCK=16384, STAGES=4, num_warps=32, target="sm_120")
