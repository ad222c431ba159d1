"""What a kernel promises the compiler is checked where the kernel is interpreted."""

import pytest
import torch
import triton
import triton.language as tl

import needs
from helpers import DEVICE
from helpers.engine.interpreter import KernelError

pytestmark = needs.interpreter


@triton.jit
def multiples_kernel(y_ptr, x_ptr, start, OF: tl.constexpr):
    cols = tl.multiple_of(start + tl.arange(0, 32), OF)
    tl.store(y_ptr + cols, tl.load(x_ptr + cols))


@triton.jit
def aligned_kernel(y_ptr, x_ptr, start, OF: tl.constexpr):
    cols = tl.arange(0, 32)
    tl.store(y_ptr + cols, tl.load(tl.multiple_of(x_ptr + start + cols, OF)))


@triton.jit
def adjacent_kernel(y_ptr, x_ptr, stride, OF: tl.constexpr):
    cols = tl.arange(0, 32)
    tl.store(y_ptr + cols, tl.load(tl.max_contiguous(x_ptr + cols * stride, OF)))


@triton.jit
def constant_kernel(y_ptr, x_ptr, N, OF: tl.constexpr):
    cols = tl.arange(0, 32)
    tl.store(y_ptr + cols, tl.load(x_ptr + cols, mask=tl.max_constancy(cols < N, OF)), mask=cols < N)


@triton.jit
def rows_kernel(y_ptr, x_ptr, stride, OF: tl.constexpr):
    offsets = tl.arange(0, 4)[:, None] * stride + tl.arange(0, 8)[None, :]
    tl.store(y_ptr + offsets, tl.load(x_ptr + tl.max_contiguous(offsets, (1, OF))))


KEPT = [
    (multiples_kernel, 32, 16), (multiples_kernel, 16, 16), (aligned_kernel, 4, 16), (adjacent_kernel, 1, 16),
    (constant_kernel, 16, 16), (constant_kernel, 31, 1), (adjacent_kernel, 1, 12), (rows_kernel, 11, 8),
]  # fmt: skip
BROKEN = [
    (multiples_kernel, 20, 16), (aligned_kernel, 3, 16), (adjacent_kernel, 2, 16), (constant_kernel, 17, 16),
]  # fmt: skip


def launch(kernel, number, of):
    kernel[(1,)](torch.zeros(128, device=DEVICE), torch.zeros(128, device=DEVICE), number, of)


@pytest.mark.parametrize(("kernel", "number", "of"), KEPT)
def test_a_kept_promise_changes_nothing(kernel, number, of):
    launch(kernel, number, of)


@pytest.mark.parametrize(("kernel", "number", "of"), BROKEN)
def test_a_broken_promise_is_an_error_that_names_its_line(kernel, number, of):
    with pytest.raises(
        KernelError, match=r"in the line `.*`: BrokenPromise: tl\.\w+\(…, 16\) promises something untrue"
    ):
        launch(kernel, number, of)
