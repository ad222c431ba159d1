"""The softmax kernels that the lessons arrive at, in lesson order, each with the host function that launches it.

Every host function takes one (M, N) tensor of float32, bfloat16 or float16 with any strides, and returns a new
contiguous (M, N) tensor of the same dtype, softmax taken over each row (the two losses of lesson 10 take targets too,
and return what they say). Arithmetic is in float32. An entry of −inf
gives 0, a row of only −inf gives NaN, and NaN and +inf make their row NaN, as in torch. Arguments that make no sense
raise TypeError or ValueError before anything is launched.

The letters are the formula's: x a row, m its maximum, l its sum of exp(x − m), M rows, N columns, BLOCK the tile. A
kernel takes pointers to the first elements of x and y, and their strides in elements: from row to row, and for x also
from column to column, since y is contiguous. Rows and columns are int64 before they are multiplied by a stride, because
an offset may exceed 32 bits. Lanes past the end of a row hold −inf, which is never the maximum and adds 0 to l.
"""

from __future__ import annotations

from collections.abc import Callable, Collection

import torch
import triton
import triton.language as tl

from helpers.engine import compiled
from helpers.engine.runtime import DEVICE, ON_GPU, refuse_where_nothing_runs
from helpers.gpu import occupancy

Softmax = Callable[[torch.Tensor], torch.Tensor]
"""A function of one (M, N) tensor."""

DTYPES = {"fp32": torch.float32, "bf16": torch.bfloat16, "fp16": torch.float16}
"""The dtypes that every kernel of the course takes, by the names that records and lessons use."""
_TAKEN = tuple(DTYPES.values())

MAX_TILE = 131072
"""The longest row that is held in one tile. From 65536 elements on even 32 warps spill."""

MOST_PARTS = 65535
"""The most programs that CUDA allows in the second dimension of a grid."""


def eager_softmax(x: torch.Tensor, *, stable: bool = True) -> torch.Tensor:
    """Softmax of each row as a chain of PyTorch operations: 5 loads and 3 stores per element.

    Without `stable` the maximum is not subtracted: 3 loads and 2 stores, and overflow from exp(88.8) on in float32.
    This is the textbook chain (`max`, subtract, `exp`, `sum`, divide) and keeps the input's dtype throughout.
    """
    _validate(x, (*_TAKEN, torch.float64))
    if stable:
        x = x - x.max(dim=1, keepdim=True).values if x.shape[1] else x
    e = torch.exp(x)
    return e / e.sum(dim=1, keepdim=True)


@triton.jit
def copy_kernel(y_ptr, x_ptr, y_stride, x_stride, x_col_stride, N, BLOCK: tl.constexpr):
    """Each program copies one row in one tile of BLOCK lanes, N ≤ BLOCK."""
    row = tl.program_id(0).to(tl.int64)
    cols = tl.arange(0, BLOCK)
    mask = cols < N
    x = tl.load(x_ptr + row * x_stride + cols.to(tl.int64) * x_col_stride, mask=mask)
    tl.store(y_ptr + row * y_stride + cols, x, mask=mask)


def copy(x: torch.Tensor, *, num_warps: int | None = None) -> torch.Tensor:
    """A contiguous copy of x, one program per row: 1 load and 1 store per element, the least that there can be."""
    return _launch_per_row(copy_kernel, x, _tile(x, "copy"), num_warps)


@triton.jit
def single_tile_kernel(y_ptr, x_ptr, y_stride, x_stride, x_col_stride, N, BLOCK: tl.constexpr):
    """Each program writes the softmax of one row, held in one tile of BLOCK lanes, N ≤ BLOCK."""
    row = tl.program_id(0).to(tl.int64)
    cols = tl.arange(0, BLOCK).to(tl.int64)
    mask = cols < N
    x = tl.load(x_ptr + row * x_stride + cols * x_col_stride, mask=mask, other=-float("inf"))
    x = x.to(tl.float32)
    m = tl.max(x, axis=0)
    e = tl.exp(x - m)
    l = tl.sum(e, axis=0)
    tl.store(y_ptr + row * y_stride + cols, e / l, mask=mask)


def single_tile_softmax(x: torch.Tensor, *, num_warps: int | None = None) -> torch.Tensor:
    """Softmax with one program per row, the whole row in one tile: 1 load and 1 store per element.

    The tile is N rounded up to a power of two; rows longer than MAX_TILE raise ValueError. After the fused softmax of
    Triton's tutorials.
    """
    return _launch_per_row(single_tile_kernel, x, _tile(x, "single_tile_softmax"), num_warps)


@triton.jit(do_not_specialize=["M"])  # the same binary for any number of rows, 1 and multiples of 16 included
def several_rows_kernel(y_ptr, x_ptr, y_stride, x_stride, x_col_stride, M, N, ROWS: tl.constexpr, BLOCK: tl.constexpr):
    """Each program writes the softmax of ROWS rows, held in one tile of ROWS × BLOCK lanes, N ≤ BLOCK."""
    rows = tl.program_id(0).to(tl.int64) * ROWS + tl.arange(0, ROWS)
    cols = tl.arange(0, BLOCK)
    mask = (rows < M)[:, None] & (cols < N)[None, :]
    x_tile = x_ptr + rows[:, None] * x_stride + cols.to(tl.int64)[None, :] * x_col_stride
    x = tl.load(x_tile, mask=mask, other=-float("inf")).to(tl.float32)
    e = tl.exp(x - tl.max(x, axis=1)[:, None])
    l = tl.sum(e, axis=1)
    tl.store(y_ptr + rows[:, None] * y_stride + cols[None, :], e / l[:, None], mask=mask)


def several_rows_softmax(x: torch.Tensor, *, rows: int | None = None, num_warps: int = 4) -> torch.Tensor:
    """Single-tile softmax with a tile of several rows per program, for short rows: 1 load and 1 store per element.

    `rows` is a power of two; by default the tile has 2048 elements. The rows share the program's warps, so that no warp
    idles where a row is shorter than the load of a warp.
    """
    BLOCK = _tile(x, "several_rows_softmax")
    y = _empty_result(x)
    M, N = x.shape
    rows = _rows(rows, BLOCK)
    if y.numel():
        several_rows_kernel[(triton.cdiv(M, rows),)](
            y, x, y.stride(0), *x.stride(), M, N, ROWS=rows, BLOCK=BLOCK, num_warps=_warps(num_warps, BLOCK)
        )
    return y


@triton.jit(do_not_specialize=["M"])
def persistent_kernel(y_ptr, x_ptr, y_stride, x_stride, x_col_stride, M, N, BLOCK: tl.constexpr, STAGES: tl.constexpr):
    """Each program writes the softmax of every P-th row, P programs in all, one tile of BLOCK lanes each, N ≤ BLOCK.

    STAGES − 1 rows of a program are in shared memory at a time: they load while the present one is computed.
    """
    cols = tl.arange(0, BLOCK)
    mask = cols < N
    for row in tl.range(tl.program_id(0), M, tl.num_programs(0), num_stages=STAGES):
        row = tl.cast(row, tl.int64)
        x = tl.load(x_ptr + row * x_stride + cols.to(tl.int64) * x_col_stride, mask=mask, other=-float("inf"))
        x = x.to(tl.float32)
        e = tl.exp(x - tl.max(x, axis=0))
        l = tl.sum(e, axis=0)
        tl.store(y_ptr + row * y_stride + cols, e / l, mask=mask)


def persistent_softmax(
    x: torch.Tensor, *, num_stages: int | None = None, num_warps: int | None = None, programs: int | None = None
) -> torch.Tensor:
    """Single-tile softmax in which a fixed number of programs stride over the rows: 1 load and 1 store per element.

    With `num_stages` > 1 the compiler keeps num_stages − 1 rows of the program in shared memory: they load while the
    present one is computed. The default is 2 where one row fits. `programs` defaults to the number of programs that the
    GPU holds at a time: their warps, registers and shared memory decide. Raises ValueError for more stages
    than fit.
    """
    BLOCK = _tile(x, "persistent_softmax")
    y = _empty_result(x)
    M, N = x.shape
    if y.numel():
        num_warps = _warps(num_warps, BLOCK)
        num_stages = _stages(num_stages, BLOCK * x.element_size())
        args = y, x, y.stride(0), *x.stride(), M, N
        options = {"BLOCK": BLOCK, "STAGES": num_stages, "num_warps": num_warps}
        programs = programs or _resident_programs(persistent_kernel, args, options)
        persistent_kernel[(min(M, programs),)](*args, **options)
    return y


@triton.jit
def two_pass_kernel(y_ptr, x_ptr, y_stride, x_stride, x_col_stride, N, BLOCK: tl.constexpr):
    """Each program writes the softmax of one row, streamed three times in tiles of BLOCK lanes: m, then l, then y."""
    row = tl.program_id(0).to(tl.int64)
    x_row, y_row = x_ptr + row * x_stride, y_ptr + row * y_stride
    m = -float("inf")
    for start in range(0, N, BLOCK):
        cols = start + tl.arange(0, BLOCK)
        x = tl.load(x_row + cols.to(tl.int64) * x_col_stride, mask=cols < N, other=-float("inf")).to(tl.float32)
        m = tl.maximum(m, tl.max(x, axis=0))
    l = 0.0
    for start in range(0, N, BLOCK):
        cols = start + tl.arange(0, BLOCK)
        x = tl.load(x_row + cols.to(tl.int64) * x_col_stride, mask=cols < N, other=-float("inf")).to(tl.float32)
        l += tl.sum(tl.exp(x - m), axis=0)
    for start in range(0, N, BLOCK):
        cols = start + tl.arange(0, BLOCK)
        x = tl.load(x_row + cols.to(tl.int64) * x_col_stride, mask=cols < N, other=-float("inf")).to(tl.float32)
        tl.store(y_row + cols, tl.exp(x - m) / l, mask=cols < N)


def two_pass_softmax(x: torch.Tensor, *, BLOCK: int = 8192, num_warps: int | None = None) -> torch.Tensor:
    """Softmax of rows of any length in tiles of BLOCK: one pass for m, one for l, then the write. 3 loads, 1 store."""
    return _launch_per_row(two_pass_kernel, x, _block(x, BLOCK), num_warps)


@triton.jit
def online_kernel(y_ptr, x_ptr, y_stride, x_stride, x_col_stride, N, BLOCK: tl.constexpr):
    """Each program writes the softmax of one row, streamed twice in tiles of BLOCK lanes: m and l together, then y.

    Where a tile raises m to m_new, all terms summed so far shrink by exp(m − m_new), so l is multiplied by it.
    """
    row = tl.program_id(0).to(tl.int64)
    x_row, y_row = x_ptr + row * x_stride, y_ptr + row * y_stride
    m, shift, l = -float("inf"), 0.0, 0.0
    for start in range(0, N, BLOCK):
        cols = start + tl.arange(0, BLOCK)
        x = tl.load(x_row + cols.to(tl.int64) * x_col_stride, mask=cols < N, other=-float("inf")).to(tl.float32)
        m_new = tl.maximum(m, tl.max(x, axis=0))
        # While all entries so far are −inf, subtracting 0 instead of m avoids −inf − (−inf), which is NaN.
        shift = tl.where(m_new == -float("inf"), 0.0, m_new)
        l = l * tl.exp(m - shift) + tl.sum(tl.exp(x - shift), axis=0)
        m = m_new
    for start in range(0, N, BLOCK):
        cols = start + tl.arange(0, BLOCK)
        x = tl.load(x_row + cols.to(tl.int64) * x_col_stride, mask=cols < N, other=-float("inf")).to(tl.float32)
        tl.store(y_row + cols, tl.exp(x - shift) / l, mask=cols < N)


def online_softmax(x: torch.Tensor, *, BLOCK: int = 8192, num_warps: int | None = None) -> torch.Tensor:
    """Softmax of rows of any length in tiles of BLOCK, m and l found in one pass: 2 loads and 1 store per element.

    The recurrence is Milakov and Gimelshein's (arXiv 1805.02867), with a guard for tiles of only −inf.
    """
    return _launch_per_row(online_kernel, x, _block(x, BLOCK), num_warps)


@triton.jit
def split_statistics_kernel(pair_ptr, x_ptr, x_stride, x_col_stride, N, BLOCK: tl.constexpr):
    """Program (row, part) stores the pair (m, l) of its slice of BLOCK columns in pairs (M, parts, 2) of float32.

    A slice of only −inf has the pair (−inf, 0).
    """
    row, part = tl.program_id(0).to(tl.int64), tl.program_id(1)
    cols = part * BLOCK + tl.arange(0, BLOCK).to(tl.int64)
    x = tl.load(x_ptr + row * x_stride + cols * x_col_stride, mask=cols < N, other=-float("inf")).to(tl.float32)
    m = tl.max(x, axis=0)
    l = tl.sum(tl.exp(x - tl.where(m == -float("inf"), 0.0, m)), axis=0)
    pair = pair_ptr + 2 * (row * tl.num_programs(1) + part)
    tl.store(pair, m)
    tl.store(pair + 1, l)


@triton.jit
def split_write_kernel(
    y_ptr, pair_ptr, x_ptr, y_stride, x_stride, x_col_stride, N, BLOCK: tl.constexpr, PARTS: tl.constexpr
):
    """Program (row, part) merges the pairs of its row and writes its slice of BLOCK columns.

    PARTS is the number of slices, the grid's second dimension, rounded up to a power of two.
    """
    row, part = tl.program_id(0).to(tl.int64), tl.program_id(1)
    parts = tl.arange(0, PARTS)
    pairs = pair_ptr + 2 * (row * tl.num_programs(1) + parts)
    exists = parts < tl.num_programs(1)
    m_parts = tl.load(pairs, mask=exists, other=-float("inf"))
    l_parts = tl.load(pairs + 1, mask=exists, other=0.0)
    m = tl.max(m_parts, axis=0)
    shift = tl.where(m == -float("inf"), 0.0, m)
    l = tl.sum(l_parts * tl.exp(m_parts - shift), axis=0)
    cols = part * BLOCK + tl.arange(0, BLOCK).to(tl.int64)
    x = tl.load(x_ptr + row * x_stride + cols * x_col_stride, mask=cols < N, other=-float("inf")).to(tl.float32)
    tl.store(y_ptr + row * y_stride + cols, tl.exp(x - shift) / l, mask=cols < N)


def split_row_softmax(x: torch.Tensor, *, BLOCK: int = 8192, num_warps: int | None = None) -> torch.Tensor:
    """Softmax with a program for every BLOCK columns of a row, for rows too few to fill the GPU: 2 loads, 1 store.

    Two launches: the first writes the pair (m, l) of each slice, the second merges the pairs of the row and writes the
    result. The merge is Milakov and Gimelshein's (arXiv 1805.02867).
    """
    BLOCK = _block(x, BLOCK)
    y = _empty_result(x)
    M, N = x.shape
    parts = triton.cdiv(N, BLOCK)
    if parts > MOST_PARTS:
        raise ValueError(
            f"BLOCK={BLOCK} cuts a row of {N} into {parts} slices, more than {MOST_PARTS}; use a larger BLOCK."
        )
    if y.numel():
        num_warps = _warps(num_warps, BLOCK)
        pairs = torch.empty((M, parts, 2), dtype=torch.float32, device=x.device)
        split_statistics_kernel[(M, parts)](pairs, x, *x.stride(), N, BLOCK=BLOCK, num_warps=num_warps)
        split_write_kernel[(M, parts)](
            y,
            pairs,
            x,
            y.stride(0),
            *x.stride(),
            N,
            BLOCK=BLOCK,
            PARTS=triton.next_power_of_2(parts),
            num_warps=num_warps,
        )
    return y


@triton.jit
def losses_kernel(loss_ptr, x_ptr, target_ptr, x_stride, N, BLOCK: tl.constexpr):
    """Each program stores the cross-entropy of one row, held in one tile of BLOCK lanes, N ≤ BLOCK: 0 if ignored."""
    row = tl.program_id(0).to(tl.int64)
    cols = tl.arange(0, BLOCK)
    x = tl.load(x_ptr + row * x_stride + cols, mask=cols < N, other=-float("inf")).to(tl.float32)
    target = tl.load(target_ptr + row)
    is_class = (target >= 0) & (target < N)
    x_target = tl.load(x_ptr + row * x_stride + target, mask=is_class, other=float("nan")).to(tl.float32)
    m = tl.max(x, axis=0)
    l = tl.sum(tl.exp(x - m), axis=0)
    # m − x_target comes first: added to a large m, a small log(l) would be rounded away.
    loss = tl.where(target >= 0, m - x_target + tl.log(l), 0.0)
    tl.store(loss_ptr + row, loss)


def row_losses(x: torch.Tensor, target: torch.Tensor) -> torch.Tensor:
    """The cross-entropy of each row of x, (M, V) logits, as float32: 1 load per element, and no store.

    `target` has the class of each row as int64; a row whose target is negative is ignored, and its loss is 0. A target
    of V or more makes loss and gradient of its row NaN, as in `helpers.softmax.cross_entropy`. The rows of x are
    contiguous, one tile each.
    """
    BLOCK = _tile_of_logits(x, target)
    losses = torch.empty(len(x), device=x.device)
    if x.numel():
        losses_kernel[(len(x),)](
            losses, x, target, x.stride(0), x.shape[1], BLOCK=BLOCK, num_warps=default_num_warps(BLOCK)
        )
    return losses


@triton.jit
def losses_and_gradient_kernel(loss_ptr, grad_ptr, x_ptr, target_ptr, grad_stride, x_stride, N, BLOCK: tl.constexpr):
    """As `losses_kernel`, in BLOCK lanes; and the gradient: softmax(x), less 1 at the target, or 0 if ignored."""
    row = tl.program_id(0).to(tl.int64)
    cols = tl.arange(0, BLOCK)
    x = tl.load(x_ptr + row * x_stride + cols, mask=cols < N, other=-float("inf")).to(tl.float32)
    target = tl.load(target_ptr + row)
    is_class = (target >= 0) & (target < N)
    x_target = tl.load(x_ptr + row * x_stride + target, mask=is_class, other=float("nan")).to(tl.float32)
    m = tl.max(x, axis=0)
    e = tl.exp(x - m)
    l = tl.sum(e, axis=0)
    # m − x_target comes first: added to a large m, a small log(l) would be rounded away.
    loss = tl.where(target >= 0, m - x_target + tl.log(l), 0.0)
    onehot = tl.where(is_class, (cols == target).to(tl.float32), float("nan"))
    grad = tl.where(target >= 0, e / l - onehot, 0.0)
    tl.store(loss_ptr + row, loss)
    tl.store(grad_ptr + row * grad_stride + cols, grad, mask=cols < N)


def losses_and_gradient(x: torch.Tensor, target: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    """`row_losses`, and the gradient of their sum, (M, V) in x's dtype, in the same launch: 1 load and 1 store."""
    BLOCK = _tile_of_logits(x, target)
    losses, gradient = torch.empty(len(x), device=x.device), _empty_result(x)
    if x.numel():
        losses_and_gradient_kernel[(len(x),)](
            losses,
            gradient,
            x,
            target,
            gradient.stride(0),
            x.stride(0),
            x.shape[1],
            BLOCK=BLOCK,
            num_warps=default_num_warps(BLOCK),
        )
    return losses, gradient


def _tile_of_logits(x: torch.Tensor, target: torch.Tensor) -> int:
    if target.dtype != torch.int64 or target.shape != x.shape[:1]:
        raise ValueError(
            f"target must hold a class for each of {len(x)} rows as int64; it is {target.dtype} {tuple(target.shape)}."
        )
    if x.shape[1] > 1 and x.stride(1) != 1:
        raise ValueError("the rows of x must be contiguous. Use x.contiguous().")
    return _tile(x, "a loss")


def default_num_warps(BLOCK: int) -> int:
    """Warps per program for a tile of BLOCK elements: 16 elements a thread, between 1 and 32 warps."""
    return min(32, max(1, BLOCK // 512))


def _launch_per_row(kernel: triton.JITFunction, x: torch.Tensor, BLOCK: int, num_warps: int | None) -> torch.Tensor:
    y = _empty_result(x)
    M, N = x.shape
    if y.numel():
        kernel[(M,)](y, x, y.stride(0), *x.stride(), N, BLOCK=BLOCK, num_warps=_warps(num_warps, BLOCK))
    return y


def _empty_result(x: torch.Tensor) -> torch.Tensor:
    return torch.empty(x.shape, dtype=x.dtype, device=x.device)


def _warps(num_warps: int | None, BLOCK: int) -> int:
    if num_warps is None:
        return default_num_warps(BLOCK)
    if num_warps not in (1, 2, 4, 8, 16, 32):
        raise ValueError(f"num_warps must be a power of two between 1 and 32; it is {num_warps!r}.")
    return num_warps


def _rows(rows: int | None, BLOCK: int) -> int:
    if rows is None:
        return max(1, 2048 // BLOCK)
    if not isinstance(rows, int) or rows < 1 or rows & (rows - 1) or rows * BLOCK > MAX_TILE:
        raise ValueError(
            f"rows must be a power of two, at most {MAX_TILE // BLOCK} of {BLOCK} elements each; it is {rows!r}."
        )
    return rows


def default_num_stages(row_bytes: int) -> int:
    """Stages of the persistent kernel: 2 where a program's shared memory on the GPU here holds a row, else 1."""
    return 2 if ON_GPU and row_bytes < _shared_memory_bytes() else 1


def _shared_memory_bytes() -> int:
    """The most shared memory of one program on the GPU here."""
    return torch.cuda.get_device_properties(DEVICE).shared_memory_per_block_optin


def _stages(num_stages: int | None, row_bytes: int) -> int:
    if num_stages is None:
        return default_num_stages(row_bytes)
    if ON_GPU and (num_stages - 1) * row_bytes >= (room := _shared_memory_bytes()):
        raise ValueError(
            f"{num_stages} stages keep {num_stages - 1} rows of {row_bytes} bytes, which do not fit into {room} bytes "
            f"of shared memory. Use num_stages={1 + (room - 1) // row_bytes}."
        )
    return num_stages


def _resident_programs(kernel: triton.JITFunction, args: tuple, options: dict[str, int]) -> int:
    """The programs of a launch that the GPU here holds at a time; without one, a few."""
    if not ON_GPU:
        return 4
    registers, shared_bytes = compiled.needs(kernel, args, options)
    target = "sm_{}{}".format(*torch.cuda.get_device_capability(DEVICE))
    held = occupancy.resident(target, options["num_warps"], registers, shared_bytes)
    return torch.cuda.get_device_properties(DEVICE).multi_processor_count * max(1, held.programs)


def _tile(x: torch.Tensor, name: str) -> int:
    _validate(x)
    tile = triton.next_power_of_2(max(1, x.shape[1]))
    if tile > MAX_TILE:
        raise ValueError(
            f"{name} holds a whole row in one tile of at most {MAX_TILE} elements; x has {x.shape[1]} columns. "
            "Use online_softmax, which streams the row."
        )
    return tile


def _block(x: torch.Tensor, BLOCK: int) -> int:
    _validate(x)
    if not isinstance(BLOCK, int) or BLOCK < 1 or BLOCK & (BLOCK - 1) or BLOCK > MAX_TILE:
        raise ValueError(f"BLOCK must be a power of two between 1 and {MAX_TILE}; it is {BLOCK!r}.")
    return min(BLOCK, triton.next_power_of_2(max(1, x.shape[1])))


def _validate(x: torch.Tensor, dtypes: Collection[torch.dtype] = _TAKEN) -> None:
    validate_tensor(x, dtypes)
    if x.dim() != 2:
        raise ValueError(f"x must have two dimensions, (M, N); its shape is {tuple(x.shape)}. Use x.reshape(-1, N).")
    if x.requires_grad and torch.is_grad_enabled():
        raise ValueError("x requires a gradient, and these kernels have no backward pass. Use x.detach().")


def validate_tensor(x: object, dtypes: Collection[torch.dtype] = _TAKEN) -> None:
    """Raises TypeError for anything but a tensor of `dtypes`, ValueError for one on which kernels cannot run here."""
    if not isinstance(x, torch.Tensor):
        raise TypeError(f"x must be a torch.Tensor; it is a {type(x).__name__}.")
    if x.dtype not in dtypes:
        raise TypeError(f"x must be float32, bfloat16 or float16; it is {x.dtype}. Use x.float().")
    refuse_where_nothing_runs()
    if x.device.type != DEVICE.type:
        raise ValueError(f"x is on {x.device}, and kernels run on {DEVICE} here. Use x.to(DEVICE).")
