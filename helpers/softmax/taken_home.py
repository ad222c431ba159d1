"""What lesson 16 arrives at, letter for letter: an operator of PyTorch, and a test that tells kernels apart.

It imports torch and triton alone.
"""

from __future__ import annotations

import torch
import triton
import triton.language as tl


@triton.jit
def softmax_kernel(y_ptr, x_ptr, x_stride, x_col, N, BLOCK: tl.constexpr):
    """Each program stores the softmax of one row, held in one tile of BLOCK lanes, N ≤ BLOCK."""
    row = tl.program_id(0).to(tl.int64)
    cols = tl.arange(0, BLOCK).to(tl.int64)
    x = tl.load(x_ptr + row * x_stride + cols * x_col, mask=cols < N, other=-float("inf")).to(tl.float32)
    e = tl.exp(x - tl.max(x, axis=0))
    tl.store(y_ptr + row * N + cols, e / tl.sum(e, axis=0), mask=cols < N)


def rows_softmax(x):
    """The softmax of the rows of x (M, N): one program a row."""
    M, N = x.shape
    y = torch.empty(M, N, dtype=x.dtype, device=x.device)
    if y.numel():
        softmax_kernel[(M,)](y, x, *x.stride(), N, BLOCK=triton.next_power_of_2(N))
    return y


@triton.jit
def gradient_kernel(dx_ptr, y_ptr, dy_ptr, dy_stride, dy_col, N, BLOCK: tl.constexpr):
    """Each program stores the gradient of one row, y · (dy − Σ dy · y), held in BLOCK lanes, N ≤ BLOCK."""
    row = tl.program_id(0).to(tl.int64)
    cols = tl.arange(0, BLOCK).to(tl.int64)
    mask = cols < N
    y = tl.load(y_ptr + row * N + cols, mask=mask, other=0.0).to(tl.float32)
    dy = tl.load(dy_ptr + row * dy_stride + cols * dy_col, mask=mask, other=0.0).to(tl.float32)
    tl.store(dx_ptr + row * N + cols, y * (dy - tl.sum(dy * y, axis=0)), mask=mask)


def rows_gradient(y, dy):
    """The gradient of rows whose softmax is y (M, N), if that of y is dy, at any strides."""
    M, N = y.shape
    dx = torch.empty(M, N, dtype=y.dtype, device=y.device)
    if dx.numel():
        gradient_kernel[(M,)](dx, y, dy, *dy.stride(), N, BLOCK=triton.next_power_of_2(N))
    return dx


class RowSoftmax(torch.autograd.Function):
    """The softmax of the rows of x (M, N), with its gradient."""

    @staticmethod
    def forward(ctx, x):
        y = rows_softmax(x)
        ctx.save_for_backward(y)
        return y

    @staticmethod
    def backward(ctx, dy):
        (y,) = ctx.saved_tensors
        return rows_gradient(y, dy)


def softmax(x, dim=-1):
    """The softmax of x along `dim`, in x's dtype: float32, bfloat16 or float16."""
    rows = x.movedim(dim, -1)
    y = RowSoftmax.apply(rows.reshape(rows.shape[:-1].numel(), rows.shape[-1]))
    return y.reshape(rows.shape).movedim(-1, dim)


def trained(x, dy, dim):
    """y = softmax(x) along `dim`, an integer or a tensor of one, and the gradient of x if that of y is dy.

    Between the two another softmax is asked for, without a gradient.
    """
    leaf = x.detach().requires_grad_()
    y = softmax(leaf, int(dim))
    if y is None:
        return None
    with torch.no_grad():
        softmax(dy, int(dim))
    (dx,) = torch.autograd.grad(y, leaf, dy)
    return y.detach(), dx


def looks_right(fn):
    """Whether fn(x) is the softmax of the rows of x (M, N), in float32, bfloat16 and float16, at any strides."""
    short, long, hidden = torch.randn(5, 101), 3 * torch.randn(3, 5000), torch.randn(4, 3000)
    hidden[1, :2500] = hidden[2, 1::2] = hidden[3] = -float("inf")
    values = [short, -short, short + 1000, long, torch.zeros(3, 5000), hidden]
    strided = [short.t(), torch.randn(6, 100)[:, :70], torch.randn(9, 200)[::2, ::3]]
    within = {torch.float32: 1e-5, torch.bfloat16: 1e-2, torch.float16: 2e-3}
    for x in [x.to(dtype) for x in values for dtype in within] + strided:
        y, want = fn(x), torch.softmax(x.double(), dim=1)
        if y.shape != x.shape or y.dtype != x.dtype:
            return False
        if not torch.allclose(y.double(), want, within[x.dtype], 1e-7, equal_nan=True):
            return False
    return True
