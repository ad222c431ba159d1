"""A kernel means in the interpreter what it means to the compiler: more than the snippets of test_frontend.py show."""

import pytest
import torch
import triton
import triton.language as tl

import needs
from helpers import DEVICE
from helpers.engine import interpreter

pytestmark = needs.interpreter


def scaling(factor):
    """A kernel that captures a constexpr."""
    scale = tl.constexpr(factor)

    @triton.jit
    def kernel(y_ptr, BLOCK: tl.constexpr = 8):
        cols = tl.arange(0, BLOCK)
        tl.store(y_ptr + cols, cols * scale)

    return kernel


@triton.jit
def both_loaded_kernel(y_ptr, x_ptr, N):
    if N > 3 and tl.load(x_ptr) > 0:
        tl.store(y_ptr, 1.0)


@triton.jit
def typed_kernel(y_ptr, N):
    for i in range(N - 1, N):
        tl.store(y_ptr, i * 2)


@triton.jit
def failing_kernel(y_ptr, N):
    twice = N
    twice += N

    tl.assume(N == 3)
    tl.store(y_ptr, twice)


@triton.jit
def keeping_kernel(y_ptr, N):
    for max in range(0, N):
        tl.store(y_ptr + max, max)


def test_what_a_kernel_captures_and_its_defaults_are_kept():
    y = torch.zeros(8, device=DEVICE)
    scaling(2)[(1,)](y)
    assert torch.equal(y, 2.0 * torch.arange(8, device=DEVICE))


def test_two_kernels_of_one_text_keep_what_each_captures():
    kernels = [scaling(2), scaling(3)]
    results = []
    for kernel in kernels:
        results.append(torch.zeros(8, device=DEVICE))
        kernel[(1,)](results[-1])
    assert torch.equal(3 * results[0], 2 * results[1])


def test_and_loads_both_sides_as_a_gpu_does():
    launches = []
    with interpreter.watching(launches.append):
        both_loaded_kernel[(1,)](torch.zeros(1, device=DEVICE), torch.ones(1, device=DEVICE), 2)
    assert launches[0].loads == 1


@pytest.mark.parametrize(("N", "twice"), [(2**30 + 1, -(2**31)), (2**40 + 1, 2**41)], ids=["int32", "int64"])
def test_the_variable_of_a_loop_has_the_type_of_its_bounds_and_overflows_with_it(N, twice):
    y = torch.zeros(1, dtype=torch.int64, device=DEVICE)
    typed_kernel[(1,)](y, N)
    assert y.item() == twice


def test_a_name_of_the_kernels_own_hides_the_function_of_python():
    y = torch.zeros(4, device=DEVICE)
    keeping_kernel[(1,)](y, 4)
    assert y.tolist() == [0, 1, 2, 3]


def test_an_error_while_the_kernel_runs_has_its_line():
    with pytest.raises(interpreter.KernelError) as error:
        failing_kernel[(1,)](torch.zeros(1, device=DEVICE), 4)
    assert "in the line `tl.assume(N == 3)`: AssertionError" in str(error.value)


def test_a_kernels_file_is_left_as_it_was():
    before = set(globals())
    keeping_kernel[(1,)](torch.zeros(4, device=DEVICE), 4)
    assert set(globals()) == before
