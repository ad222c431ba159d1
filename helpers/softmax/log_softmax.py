"""log_softmax: a drop-in for torch's, with one read and one write where rows are contiguous.

Letters as in `helpers.softmax`.
"""

from __future__ import annotations

from functools import lru_cache
from typing import Any

import torch
import triton
import triton.language as tl

from helpers.kernels import DTYPES
from helpers.softmax.function import tile_gradient_launcher, tile_launcher
from helpers.softmax.kernels.rows import NO_POLICY, edge, whole_vectors
from helpers.softmax.kernels.shared import (
    LOOKS,
    fetch,
    help_row,
    in_float32,
    lines_ahead,
    load_slice,
    merge_pairs,
    pair_of_columns,
    pairs_of_row,
    part_row_and_split,
    places_of_words,
    publish_pair,
    take_turns,
)
from helpers.softmax.launches.launch import Launch, fetches_ahead, keep_launcher, on_stream
from helpers.softmax.launches.losses import loss_plan
from helpers.softmax.plans.layout import vectors
from helpers.softmax.plans.rows import MOST_WORDS, PAUSE_OF_ROWS, pace_of, plan_gradient, plan_rows, policy_of
from helpers.softmax.torch_side import (
    LAST,
    are_for_gradient,
    by_torchs_names,
    functional_log_softmax,
    is_plain,
    records_gradient,
    torch_log_softmax,
)


def log_softmax(
    input: torch.Tensor | None = None,
    dim: int = LAST,
    dtype: torch.dtype | None = None,
    *,
    out: torch.Tensor | None = None,
    x: torch.Tensor | None = None,
    axis: int | None = None,
    _stacklevel: int = 3,
) -> torch.Tensor:
    """The logarithm of the softmax over `dim`: a drop-in for `torch.nn.functional.log_softmax`, gradients included;
    its third argument is `dtype`, as that of `torch.log_softmax`. Without `dim` it is the last one, where torch warns
    and chooses by the number of dimensions.

    It is x − m − log(l), from one read, in float32; `log(softmax(x))` would lose the digits of all small probabilities.
    The result has the dtype `dtype` where that is given, without a conversion of the input. Contiguous float32,
    bfloat16 and float16, over a last `dim` of at most 2²³ columns, are for our kernel; everything else, and all of it
    under autocast, and `out`, is for torch. As in torch, `x` and `axis` are other names for `input` and `dim`, and
    torch's modules pass `_stacklevel`. Raises what torch raises, and TypeError for anything but a tensor.
    """
    if dim is LAST or axis is not None or x is not None:
        input, dim = by_torchs_names("log_softmax", input, dim, x, axis)
    if not isinstance(input, torch.Tensor) and not hasattr(input, "__torch_function__"):
        raise TypeError(f"log_softmax takes a torch.Tensor; it is a {type(input).__name__}.")
    if out is not None:
        return torch_log_softmax(input, dim, dtype, out=out)
    if torch.compiler.is_compiling() or not _is_ours(input, dim, dtype):
        return functional_log_softmax(input, dim, _stacklevel + 1, dtype)
    if input.requires_grad and records_gradient(input):
        return _differentiable(input, dtype or input.dtype)
    return _log_softmax(input, dtype or input.dtype)


def _is_ours(x: torch.Tensor, dim: Any, dtype: Any) -> bool:
    """Whether our kernel takes x; everything else is for torch."""
    return (
        is_plain(x)
        and type(dim) is int
        and x.dim() > 0
        and dim in (-1, x.dim() - 1)
        and x.is_contiguous()
        and 0 < x.numel()
        and x.shape[-1] <= MOST_WORDS * 4096
        and (dtype is None or dtype in DTYPES.values())
        and not torch.is_autocast_enabled(x.device.type)
    )


@triton.jit
def _write_logs(y_ptr, start, part, N, m, l, x, x_edge, V: tl.constexpr, EDGES: tl.constexpr, BLOCK: tl.constexpr):
    """x − m − log(l) of a slice. The rows of y lie as x's, without gaps."""
    first, n = whole_vectors(start, N, V)
    cols = part * BLOCK + tl.arange(0, BLOCK)
    log_l = tl.log(l)
    tl.store(y_ptr + first + cols, in_float32(x) - m - log_l, mask=cols // V < n // V)
    if EDGES:
        at, exists = edge(start, N, first, n, V)
        tl.store(y_ptr + at, x_edge - m - log_l, mask=exists & (part == 0))


@triton.jit(noinline=True)
def _write_logs_again(
    y_ptr, x_ptr, word_ptr, N, V: tl.constexpr, EDGES: tl.constexpr, PARTS: tl.constexpr, BLOCK: tl.constexpr
):
    """Loads the program's own slice again and writes it, now that all pairs are there."""
    part, row, SPLIT = part_row_and_split()
    x, x_edge = load_slice(x_ptr, row * N, part, N, V, EDGES, BLOCK)
    m, l = merge_pairs(tl.load(places_of_words(word_ptr + row * SPLIT, SPLIT, PARTS), volatile=True), SPLIT, PARTS)
    _write_logs(y_ptr, row * N, part, N, m, l, x, x_edge, V, EDGES, BLOCK)


@triton.jit(do_not_specialize=["looks"])
def log_softmax_kernel(
    y_ptr, x_ptr, word_ptr, M, N, looks,
    WHOLE: tl.constexpr, V: tl.constexpr, EDGES: tl.constexpr, PARTS: tl.constexpr, BLOCK: tl.constexpr,
    POLICY: tl.constexpr = NO_POLICY, TURNS: tl.constexpr = 0, PAUSE: tl.constexpr = 0, AHEAD: tl.constexpr = 0,
):  # fmt: skip
    """Programs write the logarithm of the softmax of M contiguous rows of N columns, each a slice of BLOCK columns.

    As `shared_kernel`, also POLICY, TURNS, PAUSE and AHEAD; where a slice is the WHOLE row, no words are needed.
    """
    part, row, SPLIT = part_row_and_split()
    take_turns(x_ptr, BLOCK, TURNS)
    if row < M:
        word_row = word_ptr + row * SPLIT
        if not WHOLE:
            fetch(word_row + part)
        x, x_edge = load_slice(x_ptr, row * N, part, N, V, EDGES, BLOCK, POLICY=POLICY)
        m, l = pair_of_columns(x, x_edge, EDGES)
        if WHOLE:
            _write_logs(y_ptr, row * N, part, N, m, l, x, x_edge, V, EDGES, BLOCK)
        else:
            publish_pair(word_row + part, m, l)
            if AHEAD > 0:
                fetch(lines_ahead(x_ptr, part, row, N, M, N, BLOCK, AHEAD), POLICY)
            words, complete = pairs_of_row(word_row, SPLIT, looks, PARTS, PAUSE)
            if complete:
                m, l = merge_pairs(words, SPLIT, PARTS)
                _write_logs(y_ptr, row * N, part, N, m, l, x, x_edge, V, EDGES, BLOCK)
            else:
                help_row(x_ptr, word_ptr, N, N, V, EDGES, BLOCK)
                tl.debug_barrier()  # what one thread has published, all threads read
                _write_logs_again(y_ptr, x_ptr, word_ptr, N, V, EDGES, PARTS, BLOCK)


@triton.jit
def log_softmax_backward_kernel(dx_ptr, dy_ptr, y_ptr, N, WHOLE: tl.constexpr, BLOCK: tl.constexpr):
    """Each program writes dx = dy − exp(y) · Σ dy for a row of N columns; one that is not WHOLE is streamed twice."""
    row = tl.program_id(0).to(tl.int64) * N
    total = 0.0
    for begin in range(0, N, BLOCK):
        cols = begin + tl.arange(0, BLOCK)
        dy = tl.load(dy_ptr + row + cols, mask=cols < N, other=0.0).to(tl.float32)
        total += tl.sum(dy, axis=0)
        if WHOLE:
            y = tl.load(y_ptr + row + cols, mask=cols < N).to(tl.float32)
            tl.store(dx_ptr + row + cols, dy - tl.exp(y) * total, mask=cols < N)
    if not WHOLE:
        for begin in range(0, N, BLOCK):
            cols = begin + tl.arange(0, BLOCK)
            dy = tl.load(dy_ptr + row + cols, mask=cols < N).to(tl.float32)
            y = tl.load(y_ptr + row + cols, mask=cols < N).to(tl.float32)
            tl.store(dx_ptr + row + cols, dy - tl.exp(y) * total, mask=cols < N)


_launchers: dict[tuple, Launch] = {}


def _launcher_of(x: torch.Tensor, dtype: torch.dtype) -> Launch:
    """The launcher for x and a result of `dtype`. It is made once and remembered."""
    M, N = x.numel() // x.shape[-1], x.shape[-1]
    key = M, N, x.dtype, dtype, x.device, x.data_ptr() % 16
    launcher = _launchers.get(key)
    if launcher is None:
        how = x.element_size(), x.data_ptr() % 16 == 0, fetches_ahead(x.get_device())
        launcher = keep_launcher(_launchers, key, log_softmax_launcher(M, N, *how))
    return launcher


def log_softmax_launcher(
    M: int, N: int, itemsize: int, aligned: bool, ahead: bool = False, looks: int = LOOKS
) -> Launch:
    """The launcher for M contiguous rows of N columns, by a GPU on which fetching `ahead` pays; `aligned` says whether
    the first row begins at a multiple of 16 bytes. Of the shortest rows a program has several."""
    V, EDGES = vectors(N, 16 // itemsize, aligned)
    policy = policy_of(M * N * itemsize)
    short = plan_rows(M, N, itemsize, V, EDGES, together=False)
    if short.ROWS > 1:
        return tile_launcher(M, N, N, V, EDGES, short, policy, log=True)
    chosen = loss_plan(M, N, itemsize, "none")
    layers = triton.cdiv(M, 65535)
    PARTS = max(triton.next_power_of_2(chosen.SPLIT), 32 * chosen.num_warps)
    pace = pace_of(M, chosen, ahead, PAUSE_OF_ROWS)
    return Launch(
        log_softmax_kernel,
        (chosen.SPLIT, triton.cdiv(M, layers), layers),
        warps=chosen.num_warps,
        registers=chosen.maxnreg,
        words=M * chosen.SPLIT,
        M=M,
        N=N,
        looks=looks,
        WHOLE=chosen.SPLIT == 1,
        V=V,
        EDGES=EDGES,
        PARTS=PARTS,
        BLOCK=chosen.BLOCK,
        POLICY=policy,
        **pace._asdict(),
    )


def _log_softmax(x: torch.Tensor, dtype: torch.dtype) -> torch.Tensor:
    y = torch.empty_like(x, dtype=dtype, memory_format=torch.contiguous_format)
    on_stream(x, _launcher_of(x, dtype), (y, x))
    return y


def log_gradient_launcher_of(dx: torch.Tensor, dy: torch.Tensor, y: torch.Tensor) -> Launch:
    """The launcher for contiguous dx, dy and y of these dtypes and alignments. It is made once and remembered."""
    N, addresses = y.shape[-1], tuple(tensor.data_ptr() % 16 for tensor in (dx, dy, y))
    return _gradient_launcher(y.numel() // N, N, y.dtype, dx.dtype, addresses, y.get_device())


@lru_cache(maxsize=1024)
def _gradient_launcher(
    M: int, N: int, dtype: torch.dtype, _dtype_of_dx: torch.dtype, addresses: tuple[int, int, int], device: int
) -> Launch:
    """The launcher for M rows of N columns, at these addresses modulo 16: a kernel is compiled for all three."""
    V, EDGES = vectors(N, 16 // dtype.itemsize, addresses == (0, 0, 0))
    short = plan_gradient(N, dtype.itemsize, V, EDGES, aligned=False)  # never flat
    if short.kernel == "tile":
        return tile_gradient_launcher(M, N, V, EDGES, short, policy_of(M * N * dtype.itemsize), log=True)
    BLOCK = triton.next_power_of_2(N) if N <= 16384 else 4096
    warps = max(1, min(16, BLOCK // 1024))
    return Launch(
        log_softmax_backward_kernel, (M, 1, 1), warps=warps, registers=128, N=N, WHOLE=BLOCK >= N, BLOCK=BLOCK
    )


class _LogSoftmax(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: torch.Tensor, dtype: torch.dtype) -> torch.Tensor:
        y = _log_softmax(x, dtype)
        ctx.dtype = x.dtype
        ctx.set_materialize_grads(False)
        ctx.save_for_backward(y)
        return y

    @staticmethod
    def backward(ctx: Any, dy: torch.Tensor | None) -> tuple[torch.Tensor | None, None]:
        if dy is None:
            return None, None
        (y,) = ctx.saved_tensors
        if not are_for_gradient(dy, y):  # torch's can be differentiated again, batched and watched
            return torch.ops.aten._log_softmax_backward_data(dy, y, -1, y.dtype).to(ctx.dtype), None
        dy, y = dy.contiguous(), y.contiguous()
        dx = torch.empty_like(y, dtype=ctx.dtype)
        on_stream(y, log_gradient_launcher_of(dx, dy, y), (dx, dy, y))
        return dx, None


_differentiable = super(torch.autograd.Function, _LogSoftmax).apply
"""Without questions about torch.func, as softmax's own."""
