"""Kernels of (y_ptr, x_ptr, N, BLOCK) in a few lines, and what the compiler makes of them."""

import torch
import triton
import triton.language as tl
from triton.language import exp as tl_exp
from triton.language import max as tl_max

from helpers import xray

HALF = tl.constexpr(0.5)


@triton.jit
def halve(x):
    return x * HALF


@triton.jit
def quarter(x):
    return halve(halve(x))


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
def exp_kernel(y_ptr, x_ptr, N, BLOCK: tl.constexpr):
    cols = tl.arange(0, BLOCK)
    tl.store(y_ptr + cols, tl_exp(tl.load(x_ptr + cols, mask=cols < N)), mask=cols < N)


@triton.jit
def max_kernel(y_ptr, x_ptr, N, BLOCK: tl.constexpr):
    cols = tl.arange(0, BLOCK)
    tl.store(y_ptr + cols, tl_max(tl.load(x_ptr + cols, mask=cols < N), axis=0), mask=cols < N)


ROW = torch.empty(16)
SAME = {"kernel": copy_kernel, "y_ptr": ROW, "x_ptr": ROW, "N": 5, "BLOCK": 8, "target": "sm_90"}
"""The arguments of a report that is asked for twice."""


def compiled(kernel, **options):
    """The report on a kernel for a row of 5 columns."""
    row = torch.empty(8)
    return xray.report(kernel, row, row, 5, BLOCK=8, **options)


def never(request):
    """A compiler that must not be asked."""
    raise AssertionError("the compiler was asked")
