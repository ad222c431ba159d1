"""The host side of softmax: what it takes, how a layout becomes rows, the launch, and the operator that torch knows."""

from __future__ import annotations

import math
from collections.abc import Callable
from contextlib import nullcontext
from typing import Any, NamedTuple

import torch
import triton

from helpers.engine.compiled import direct_launch, launches_are_seen
from helpers.engine.runtime import INTERPRETED
from helpers.kernels import split_row_softmax
from helpers.softmax import mailbox
from helpers.softmax.dispatch import is_compilable, is_plain
from helpers.softmax.plan import Plan, plan_launch
from helpers.softmax.rows import tile_kernel
from helpers.softmax.shared import LOOKS, shared_kernel
from helpers.softmax.strided import backward_kernel, strided_kernel

_TILE = 4096
"""Elements of a tile of the strided and the backward kernel."""

_MOST_COLUMNS = 65535 * 16384
"""Longer rows are torch's: two launches would need more slices than a grid's second dimension has."""


def softmax(input: torch.Tensor, dim: int = -1, dtype: torch.dtype | None = None) -> torch.Tensor:
    """Softmax over dimension `dim` of a tensor of any shape and strides: a drop-in for `torch.softmax`.

    Ordinary tensors of float32, bfloat16 and float16 on the GPU (or on the CPU where kernels run interpreted) are for
    our kernels: arithmetic is in float32, entries of −inf give 0, a row of only −inf, or with NaN or +inf, gives NaN,
    and the bits are the same from run to run. The result is contiguous. It can be differentiated (twice), captured in
    CUDA graphs once it has run, and compiled by torch.compile, which takes it as one operator.

    Everything else is torch.softmax's: another dtype or device, `dtype`, autocast of 16 bits, subclasses, sparse and
    nested tensors, torch.func, forward-mode gradients, modes that watch operations.

    Raises what torch.softmax raises, in a clearer sentence: TypeError for anything but a tensor, NotImplementedError
    for integers, IndexError for a dimension that the tensor lacks.
    """
    ours = is_compilable if torch.compiler.is_compiling() else is_plain
    if not ours(input) or type(dim) is not int or dtype not in (None, input.dtype):
        return _torchs(input, dim, dtype)
    _require_dimension(input, dim)
    if torch.compiler.is_compiling():
        return _softmax(input, dim)
    if input.requires_grad and torch.is_grad_enabled():
        return _Differentiable.apply(input, dim)
    return _forward(input, dim)


def _require_dimension(x: torch.Tensor, dim: int) -> None:
    most = max(x.dim(), 1)
    if not -most <= dim < most:
        raise IndexError(
            f"dim must be between {-most} and {most - 1} for a tensor of {x.dim()} dimensions; it is {dim}."
        )


def _torchs(input: Any, dim: Any, dtype: torch.dtype | None) -> torch.Tensor:
    if not isinstance(input, torch.Tensor) and not hasattr(input, "__torch_function__"):
        raise TypeError(f"softmax takes a torch.Tensor; it is a {type(input).__name__}.")
    if isinstance(input, torch.Tensor) and dtype is None and not (input.is_floating_point() or input.is_complex()):
        raise NotImplementedError(f"softmax of {input.dtype} is not a number of that dtype. Use dtype=torch.float32.")
    return torch.softmax(input, dim, dtype=dtype)


Words = Callable[[int, torch.device, int], tuple[torch.Tensor, int]]
"""Gives zeros for a launch: `mailbox.zeros` or `mailbox.fresh`."""

Launcher = Callable[[torch.Tensor, torch.Tensor, int, Words], None]
"""Writes the softmax of x to y on a CUDA stream: `launcher(y, x, stream, words)`."""

_launchers: dict[tuple, Launcher] = {}
_MOST_LAUNCHERS = 4096


def launcher_of(x: torch.Tensor, dim: int) -> Launcher:
    """The launcher for tensors of x's layout, alignment, dtype and device. It is made once and remembered.

    Raises IndexError for a dimension that x lacks.
    """
    key = (x.shape, x.stride(), x.dtype, dim, x.device, x.data_ptr() % 16)
    launch = _launchers.get(key)
    if launch is None:
        _require_dimension(x, dim)
        if len(_launchers) == _MOST_LAUNCHERS:
            _launchers.clear()
        launch = _launchers[key] = _launcher(x, dim)
    return launch


def _forward(x: torch.Tensor, dim: int, words: Words = mailbox.zeros) -> torch.Tensor:
    launch = launcher_of(x, dim)
    y = x.new_empty(x.shape)
    if INTERPRETED:
        launch(y, x, 0, words)
        return y
    index = x.get_device()
    stream = triton.runtime.driver.active.get_current_stream(index)
    if index == torch.cuda.current_device():
        launch(y, x, stream, words)
    else:
        with torch.cuda.device(index):
            launch(y, x, stream, words)
    return y


def _launcher(x: torch.Tensor, dim: int) -> Launcher:
    if not x.numel():
        return lambda y, x, stream, words: None
    if x.dim() and x.shape[dim] > _MOST_COLUMNS:
        return lambda y, x, stream, words: y.copy_(torch.softmax(x, dim))
    axes = _axes(x, dim)
    if axes is None:
        launch = _launcher(x.contiguous(), dim)
        return lambda y, x, stream, words: launch(y, x.contiguous(), stream, words)
    outer, inner, columns = axes
    if columns.x_stride == 1 and inner.size == 1:
        return rows_launcher(x, outer.size, columns.size, outer.x_stride)
    if inner.size == 1:
        outer, inner = inner, outer
    side_by_side = columns.size == 1 or inner.x_stride < columns.x_stride
    ROWS, BLOCK = _tile_of(inner.size if side_by_side else 1, columns.size)
    grid = (outer.size * triton.cdiv(inner.size, ROWS), 1, 1)
    strides = [axis.x_stride for axis in (outer, inner, columns)] + [axis.y_stride for axis in (outer, inner, columns)]
    return PreparedLauncher(strided_kernel, grid, (*strides, inner.size, columns.size, ROWS, BLOCK), num_warps=4)


class _Axis(NamedTuple):
    """Neighbouring dimensions that one stride runs through, in x and in the contiguous y."""

    size: int
    x_stride: int
    y_stride: int


def _axes(x: torch.Tensor, dim: int) -> tuple[_Axis, _Axis, _Axis] | None:
    """The dimensions before `dim`, the dimensions after it, and `dim`, each as one; None where one has two strides."""
    shape, strides = list(x.shape) or [1], list(x.stride()) or [1]
    dim %= len(shape)
    y_strides = [math.prod(shape[i + 1 :]) for i in range(len(shape))]
    axes = [_Axis(*axis) for axis in zip(shape, strides, y_strides, strict=True)]
    before, after = _merged(axes[:dim]), _merged(axes[dim + 1 :])
    columns = axes[dim] if shape[dim] > 1 else _Axis(1, 1, 1)
    return None if before is None or after is None else (before, after, columns)


def _merged(axes: list[_Axis]) -> _Axis | None:
    """All axes as one, if a single stride runs through them."""
    merged = _Axis(1, 0, 0)
    for axis in reversed(axes):
        if merged.size == 1:
            merged = axis
        elif axis.size > 1:
            if axis.x_stride != merged.size * merged.x_stride:
                return None
            merged = merged._replace(size=merged.size * axis.size)
    return merged


def rows_launcher(x: torch.Tensor, M: int, N: int, stride: int, chosen: Plan | None = None) -> Launcher:
    """The launcher for M rows of N contiguous columns, a row every `stride` elements from x's first one on.

    It launches as `plan_launch` says, or as `chosen` where another plan is to be tried.
    """
    V = 16 // x.element_size()
    EDGES = N % V != 0
    # Vectors of x and y start at the same columns only if both rows are equally far from a multiple of 16 bytes. And in
    # a row of only a few vectors, the edges would be most of the row.
    if x.data_ptr() % 16 or (stride - N) % V or (EDGES and N < 4 * V):
        V, EDGES = 1, False
    chosen = chosen or plan_launch(M, N, x.element_size(), not EDGES)
    if chosen.kernel == "tile":
        grid = (triton.cdiv(M, chosen.ROWS), 1, 1)
        LANES = min(max(4, 32 * chosen.num_warps // chosen.ROWS) * V, chosen.REST or chosen.BLOCK)
        arguments = (N, stride, M, N, V, EDGES, chosen.ROWS, LANES, chosen.BLOCK, chosen.REST)
        return PreparedLauncher(tile_kernel, grid, arguments, chosen.num_warps, chosen.maxnreg)
    if chosen.kernel == "two launches":
        return lambda y, x, stream, words=None: y.copy_(
            split_row_softmax(x.as_strided((M, N), (stride, 1)), BLOCK=16384).view(y.shape)
        )
    return shared_launcher(M, N, stride, V, EDGES, chosen)


def shared_launcher(
    M: int, N: int, stride: int, V: int, EDGES: bool, chosen: Plan, looks: int = LOOKS
) -> PreparedLauncher:
    """The launcher of `shared_kernel` for M rows of N columns, a row every `stride` elements."""
    layers = triton.cdiv(M, 65535)  # CUDA allows 65535 programs in the second dimension of a grid
    grid = (chosen.SPLIT, triton.cdiv(M, layers), layers)
    PARTS = max(triton.next_power_of_2(chosen.SPLIT), 32 * chosen.num_warps)
    arguments = (N, stride, M, N, looks, V, EDGES, PARTS, chosen.BLOCK)
    return PreparedLauncher(shared_kernel, grid, arguments, chosen.num_warps, chosen.maxnreg, words=M * chosen.SPLIT)


class PreparedLauncher:
    """A kernel with its grid and arguments. The first call compiles the kernel; later calls launch it without Triton's
    search for it, unless a profiler's hook, or traffic.count, is to see them."""

    def __init__(
        self,
        kernel: Any,
        grid: tuple[int, int, int],
        arguments: tuple,
        num_warps: int,
        maxnreg: int = 96,
        words: int = 0,
    ) -> None:
        self.kernel, self.grid, self.arguments, self.words = kernel, grid, arguments, words
        self.options = {"num_warps": num_warps, "maxnreg": maxnreg}
        self.compiled: tuple[Callable, tuple] | None = None

    def __call__(self, y: torch.Tensor, x: torch.Tensor, stream: int, words: Words = mailbox.zeros) -> None:
        if self.compiled is None or launches_are_seen():
            self._through_triton(y, x, stream, words)
            return
        # Triton's launcher asks the driver where a tensor lies; an address it takes as it is.
        addresses = y.data_ptr(), x.data_ptr()
        if self.words:
            buffer, start = words(self.words, x.device, stream)
            addresses += (buffer.data_ptr() + 8 * start,)
        run, known = self.compiled
        run(*self.grid, stream, *known, *addresses, *self.arguments)

    def _through_triton(self, y: torch.Tensor, x: torch.Tensor, stream: int, words: Words) -> None:
        tensors = y, x
        if self.words:
            buffer, start = words(self.words, x.device, stream)
            tensors += (buffer[start : start + self.words],)
        compiled = self.kernel[self.grid](*tensors, *self.arguments, **self.options)
        if not INTERPRETED:
            self.compiled = direct_launch(compiled)


def _tile_of(rows: int, columns: int) -> tuple[int, int]:
    """Rows and columns of a tile of at most _TILE elements, with up to 64 of the rows that lie beside each other."""
    ROWS = min(64, triton.next_power_of_2(rows))
    BLOCK = min(_TILE // ROWS, triton.next_power_of_2(columns))
    return ROWS, BLOCK


def _backward(dy: torch.Tensor, y: torch.Tensor, dim: int) -> torch.Tensor:
    dy, y = dy.contiguous(), y.contiguous()
    dx = torch.empty_like(y)
    if not y.numel():
        return dx
    dim %= max(y.dim(), 1)
    N = y.shape[dim] if y.dim() else 1
    inner = math.prod(y.shape[dim + 1 :])
    ROWS, BLOCK = _tile_of(inner, N)
    if inner == 1 and N <= 16384:  # the whole row in one tile: it is loaded once
        BLOCK = triton.next_power_of_2(N)
    grid = (y.numel() // (N * inner) * triton.cdiv(inner, ROWS),)
    with nullcontext() if INTERPRETED else torch.cuda.device(y.device):
        backward_kernel[grid](
            dx,
            dy,
            y,
            inner,
            N,
            WHOLE=BLOCK >= N,
            ROWS=ROWS,
            BLOCK=BLOCK,
            num_warps=max(1, min(16, ROWS * BLOCK // 1024)),
        )
    return dx


class _Differentiable(torch.autograd.Function):
    """softmax with its gradient, as autograd sees it outside torch.compile: the operators below cost it more time."""

    @staticmethod
    def forward(ctx: Any, x: torch.Tensor, dim: int) -> torch.Tensor:
        y = _forward(x, dim)
        ctx.dim = dim
        ctx.save_for_backward(y)
        return y

    @staticmethod
    def backward(ctx: Any, dy: torch.Tensor) -> tuple[torch.Tensor, None]:
        (y,) = ctx.saved_tensors
        if is_plain(dy) and is_plain(y) and not torch.is_grad_enabled():
            return _backward(dy, y, ctx.dim), None
        return _torchs_backward(dy, y, ctx.dim), None


def _torchs_backward(dy: torch.Tensor, y: torch.Tensor, dim: int) -> torch.Tensor:
    """The gradient as torch computes it: it can be differentiated again, batched and watched."""
    return torch.ops.aten._softmax_backward_data(dy, y, dim, y.dtype)


@torch.library.custom_op("softmax_in_triton::softmax", mutates_args=())
def _softmax(x: torch.Tensor, dim: int) -> torch.Tensor:
    return _forward(x, dim, mailbox.fresh)


@torch.library.custom_op("softmax_in_triton::softmax_backward", mutates_args=())
def _softmax_backward(dy: torch.Tensor, y: torch.Tensor, dim: int) -> torch.Tensor:
    return _backward(dy, y, dim)


@_softmax.register_fake
def _(x: torch.Tensor, dim: int) -> torch.Tensor:
    return torch.empty(x.shape, dtype=x.dtype, device=x.device)


@_softmax_backward.register_fake
def _(dy: torch.Tensor, y: torch.Tensor, dim: int) -> torch.Tensor:
    return torch.empty(y.shape, dtype=y.dtype, device=y.device)


def _keep(ctx: Any, inputs: tuple, output: torch.Tensor) -> None:
    ctx.dim = inputs[1]
    ctx.save_for_backward(output)


def _differentiate(ctx: Any, dy: torch.Tensor) -> tuple[torch.Tensor, None]:
    (y,) = ctx.saved_tensors
    backward = _torchs_backward if torch.is_grad_enabled() else _softmax_backward
    return backward(dy, y, ctx.dim), None


_softmax.register_autograd(_differentiate, setup_context=_keep)
