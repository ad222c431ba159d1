"""The launches of a loss: its own, with its gradient or without, and that of backward."""

from __future__ import annotations

from functools import lru_cache
from typing import Any

import torch
import triton

from helpers.engine.runtime import INTERPRETED
from helpers.softmax.kernels.add_up import (
    COUNTERS,
    MOST_IN_A_GROUP,
    PROGRAMS_IN_A_GROUP,
    counts_its_own,
    words_to_add_up,
)
from helpers.softmax.kernels.loss_backward import backward_kernel
from helpers.softmax.kernels.loss_flat import cross_entropy_flat_kernel
from helpers.softmax.kernels.loss_rows import cross_entropy_kernel
from helpers.softmax.kernels.loss_tiles import cross_entropy_tile_kernel
from helpers.softmax.kernels.shared import LOOKS
from helpers.softmax.launches import mailbox
from helpers.softmax.launches.launch import Launch, Words, can_start_early, fetches_ahead, keep_launcher, on_stream
from helpers.softmax.launches.loss_columns import LossColumnsPlan, columns_backward_launcher, loss_columns_launcher
from helpers.softmax.plans.layout import vectors
from helpers.softmax.plans.losses import How
from helpers.softmax.plans.rows import (
    EIGHT_WARPS,
    FIVE_WARPS,
    FOUR_WARPS,
    SEVEN_WARPS,
    SMS,
    Plan,
    flat_plan,
    pace_of,
    policy_of,
    programs_at_once,
    shared_plan,
)

_LEAST_ROWS, _ONE_BY_ONE = 16 * SMS, 128
"""The fewest rows that programs share in tiles, of which a mean takes at most as long as with a program each; and the
longest whose elements are moved one by one. On an H100 65,536 rows of 1000 in bfloat16 took 82 µs with a program each
and 61 in tiles, and with their gradient 127 and 105 (in no record)."""

_SIXTEEN_EACH = (8, 16)
"""Columns of a tile of which a thread has 16 elements if they are moved one by one, and else 8: rows of 21 spilled."""

_FLAT = {False: {4: range(2, 64), 2: range(2, 128)}, True: {4: range(2, 48), 2: range(2, 64)}}
"""By whether there is a gradient, and by bytes of an element: the rows that are moved flat unless they fill vectors. On
an H100 1,904,005 rows of 21 in bfloat16 took 196 µs by elements and 56 flat, with their gradient 391 and 111; a copy of
them took 60 (in no record)."""

_SHORT, _SHORT_BYTES = 512, 1024
"""The longest row of which one warp holds a tile; and bytes of the longest that lies in one if nobody adds the losses
up. Then a program for each longer row, 65,536 of 1000 in bfloat16, took 56 µs, and with the gradient 92 (in no record).
"""

_LONG_BYTES, _SHORT_GROUP = 16384, 256
"""The longest row whose loss is added up in small groups. Where all add to one word, 16,384 rows of 8192 in bfloat16
took an H100 105 µs, and in groups of 256 they took 103. For 2,048 rows of 32,000 one group is better by 1 µs of 59 (in
no record)."""

_WHOLE_BYTES = 6144
"""The longest row that one program holds."""

_LEAST_LANES = 64
"""Two for each thread of a warp: elements of 16 bits are packed in twos."""

_SLICE_BYTES = 8192
"""The slice that one warp holds."""

_WARP_WORDS, _MOST_SLICES = 80, 256
"""The most words of a row that one warp merges, and the most slices of 16 kB; a longer row has larger ones."""

_TWO_WARP_SLICES = range(32, 81)
"""How many such slices a row of 16 bits has that is shared in slices of twice the size, held by two warps."""

_FEW_SLICES, _FEW_ROWS_BLOCK = 1024, 2048
"""With fewer slices than this, a program takes one of 2048 columns: too few programs would load at a time."""

_SMALL_BYTES, _MOST_SMALL_SLICES = 2**27, 128
"""Bytes of logits whose loss alone is found in slices of 4 kB, and the most of them that a row has. On an H100 it took
0.2 to 4.7 % less time so than in slices of 16 kB, of 16 to 134 MB, and of 157 to 268 MB up to 0.4 % more; on an H200
1.2 % less of 2,048 rows of 32,000 in bfloat16 (in no record). With smoothing, edges of 16-bit rows would spill."""

_MOST_FEW_SLICES = 10 * SMS
"""Of more such slices than 8 for each SM, which the GPU holds, some begin after others have ended: from 10 on they are
twice as long. With a gradient, an H100 took 15 to 24 % less time so for 30 rows of 128,256 and for 60 and 78 of 50,257,
and between 13 % less and 5 % more for 15 and 16 of 151,936, 1125 and 1200 slices (in no record)."""

_IN_BACKWARD, _OVER_THE_GRADIENT = 64 * SMS, 2 * SMS
"""Programs of a launch in backward, for 132 SMs. Over a gradient that stays where 1 arrives they are few and large:
there they have nothing to do, and on an H100 16 for each SM took 1 µs longer for it than 2."""


def plan_of_rows_together(
    n_rows: int, n_cols: int, itemsize: int, V: int, reduction: str = "mean", flat: bool = False, grad: bool = True
) -> Plan | None:
    """The launch in which programs share tiles of short rows, moved in vectors of V elements, or, if they may be, flat:
    then they lie one behind another. None for few rows, or longer ones. Found by sweeps on one H100 (in no record)."""
    if flat and V == 1 and n_rows >= _LEAST_ROWS and n_cols in _FLAT[grad][itemsize]:
        return _plan_of_flat_rows(n_cols, itemsize, grad)
    nbytes = _SHORT_BYTES if reduction == "none" else _WHOLE_BYTES
    longest = min(_ONE_BY_ONE if V == 1 else nbytes, nbytes // itemsize)
    if n_rows < _LEAST_ROWS or n_cols > longest:
        return None
    BLOCK = triton.next_power_of_2(n_cols)
    if V == 1:
        elements, maxnreg = (512, FIVE_WARPS) if BLOCK in _SIXTEEN_EACH else (256, EIGHT_WARPS)
        return Plan("tiles", BLOCK, 1, maxnreg, elements // BLOCK)
    if BLOCK <= _SHORT:
        return Plan("tiles", BLOCK, 1, FIVE_WARPS, 1024 // BLOCK)
    return Plan("tiles", BLOCK, *((2, FOUR_WARPS) if itemsize == 2 else (4, FIVE_WARPS)), 4096 // BLOCK)


def _plan_of_flat_rows(n_cols: int, itemsize: int, grad: bool) -> Plan:
    """A program moves 4 kB at a time; of the gradient of longer rows of 16 bits, which would spill most, 16 rows. Four
    warps hold the other gradients of 16 bits or of longer rows, and the shortest rows; else two are faster.

    Compiled for sm_90 by Triton 3.6, the shortest rows spill up to 64 bytes a thread, 136 with smoothing; losses of 67
    to 85 columns of 16 bits up to 40, and 80 with it.
    """
    RUN, longer = 4096 // itemsize, n_cols > 32
    if grad and itemsize == 2 and longer:
        return flat_plan(n_cols, itemsize, RUN // 2, 2)._replace(ROWS=16)
    if grad and (itemsize == 2 or longer):
        return flat_plan(n_cols, itemsize, RUN, 4)
    if n_cols <= 16:
        return flat_plan(n_cols, itemsize, RUN, 4, EIGHT_WARPS)
    return flat_plan(n_cols, itemsize, RUN, 2)


def loss_plan(
    n_rows: int, n_cols: int, itemsize: int, reduction: str = "mean", smoothing: bool = False, grad: bool = True
) -> Plan:
    """The launch for rows of contiguous logits of `itemsize` bytes.

    A short row has one program. A longer one is shared in slices of 8 kB, each held by one warp, or, of 16 bits and for
    a mean, in slices of 16 kB held by two: without the mean's count the compiler spills there. The longest rows are
    shared in slices of 16 or 32 kB held by four; where there are few rows, in slices of 2048 columns held by four. With
    `smoothing`, elements of 16 bits need more registers, and so more warps. Without a gradient no program keeps its
    slice: four warps then hold 16 kB, with which an H100 took 0.2 to 1.3 % less time than in the slices of a gradient,
    or, of a small tensor, one warp 4 kB. In 16 bits, of rows with edges, two warps hold 8 kB: an H200 took up to 1.9 %
    less time, an H100 0.2 to 0.7 % more. Found by sweeps of slices, warps and registers on one H200 and, of the longest
    rows and of losses alone, one H100 (in no record).
    """
    if n_cols * itemsize <= _WHOLE_BYTES:
        lanes = max(_LEAST_LANES, triton.next_power_of_2(n_cols))
        return Plan("tile", lanes, max(1, lanes // 2048), FIVE_WARPS)
    BLOCK = _SLICE_BYTES // itemsize
    if n_cols <= 2 * BLOCK:
        return shared_plan(n_cols, BLOCK // 2, 2 if smoothing and itemsize == 2 else 1, EIGHT_WARPS)
    slices = -(-n_cols // _FEW_ROWS_BLOCK)
    if n_rows * -(-n_cols // BLOCK) < _FEW_SLICES and slices <= 256:
        BLOCK = _FEW_ROWS_BLOCK if n_rows * slices <= _MOST_FEW_SLICES else 2 * _FEW_ROWS_BLOCK
        return shared_plan(n_cols, BLOCK, 4, EIGHT_WARPS)
    if n_cols > 2 * _MOST_SLICES * BLOCK:
        return shared_plan(n_cols, 4 * BLOCK, 4, FIVE_WARPS)
    small = shared_plan(n_cols, BLOCK // 2, 1, EIGHT_WARPS)
    if not (grad or smoothing) and n_rows * n_cols * itemsize <= _SMALL_BYTES and small.SPLIT <= _MOST_SMALL_SLICES:
        return small
    if smoothing and itemsize == 2:  # one warp or two would spill hundreds of bytes
        return shared_plan(n_cols, 2 * BLOCK, 4, SEVEN_WARPS)
    if not grad:
        halves = shared_plan(n_cols, BLOCK, 2, EIGHT_WARPS)
        has_edges = n_cols * itemsize % 16 > 0
        if itemsize == 2 and has_edges and halves.SPLIT <= _WARP_WORDS:
            return halves
        return shared_plan(n_cols, 2 * BLOCK, 4, EIGHT_WARPS)
    launch = shared_plan(n_cols, BLOCK, 1, FIVE_WARPS)
    if itemsize == 2 and reduction == "mean" and launch.SPLIT in _TWO_WARP_SLICES:
        return shared_plan(n_cols, 2 * BLOCK, 2, FIVE_WARPS)
    if launch.SPLIT * (2 if smoothing else 1) <= _WARP_WORDS:
        return launch
    if itemsize == 4:
        return shared_plan(n_cols, 4 * BLOCK, 4, FIVE_WARPS)
    return shared_plan(n_cols, 2 * BLOCK, 4, EIGHT_WARPS)


_launchers: dict[tuple, Launch] = {}


def loss_launcher_of(
    x: torch.Tensor, target: torch.Tensor, how: How, gradient: torch.Tensor | None, pairs: bool
) -> Launch:
    """The launcher for logits of x's layout, and targets and a gradient as aligned as these. It is made once and
    remembered."""
    # The kernel could be compiled for targets that lie anywhere: 16-bit rows then took up to 5 % more time.
    addresses = x.data_ptr() % 16, target.data_ptr() % 16, None if gradient is None else gradient.data_ptr() % 16
    y_strides = None if gradient is None else gradient.stride()
    key = (x.shape, x.stride(), x.dtype, x.get_device(), addresses, y_strides, how, pairs)
    launcher = _launchers.get(key)
    if launcher is None:
        if x.dim() == 3:
            launcher = loss_columns_launcher(x, how, y_strides, pairs)
        else:
            launcher = loss_launcher(x, how, gradient is not None, pairs)
        keep_launcher(_launchers, key, launcher)
    return launcher


def loss_launcher(
    x: torch.Tensor, how: How, grad: bool, pairs: bool = False, chosen: Plan | None = None, looks: int = LOOKS
) -> Launch:
    """The launcher of a loss, with its gradient or without, for (M, V) logits with contiguous rows.

    It launches as `plan_of_rows_together` or `loss_plan` say, or as `chosen` where another plan is to be tried.

    The tensors it takes are the gradient, the losses or their sum or mean, the logits, the targets, and a word for the
    pair of each row and one for their number, which with `pairs` it fills: of flat rows only the last.
    """
    (M, N), stride = x.shape, x.stride(0) if x.shape[0] > 1 else x.shape[1]
    V = 16 // x.element_size()
    together = V if x.data_ptr() % 16 == 0 and stride % V == 0 and N % V == 0 else 1
    flat = x.data_ptr() % 16 == 0 and stride == N
    chosen = chosen or plan_of_rows_together(M, N, x.element_size(), together, how.reduction, flat, grad)
    if chosen and chosen.kernel == "flat":
        return _launcher_of_flat_rows(x, how, grad, pairs, chosen, looks)
    if chosen and chosen.kernel == "tiles":
        return _launcher_of_rows_together(x, stride, how, grad, pairs, chosen, together, looks)
    V, EDGES = vectors(N, V, x.data_ptr() % 16 == 0 and (stride - N) % V == 0)
    chosen = chosen or loss_plan(M, N, x.element_size(), how.reduction, how.label_smoothing > 0, grad)
    whole = chosen.SPLIT == 1
    row_words = 0 if whole else chosen.SPLIT * (2 if how.label_smoothing else 1)
    layers = triton.cdiv(M, 65535)  # CUDA allows 65535 programs in the second dimension of a grid
    PARTS = max(triton.next_power_of_2(max(1, row_words)), 32 * chosen.num_warps)
    THREADS = 1 if INTERPRETED else 32 * chosen.num_warps  # threads that load one word together load it once
    GROUP = _SHORT_GROUP if N * x.element_size() <= _LONG_BYTES else MOST_IN_A_GROUP
    to_add_up = 0 if how.reduction == "none" else words_to_add_up(M, GROUP)
    # Without a gradient one program of a row waits for words: fetching ahead took up to 2 % more time on an H200.
    pace = pace_of(M, chosen, grad and fetches_ahead(x.get_device()))
    policy = policy_of(x.numel() * x.element_size()) if grad else ""  # a loss alone gained nothing
    return Launch(
        cross_entropy_kernel,
        (chosen.SPLIT, triton.cdiv(M, layers), layers),
        warps=chosen.num_warps,
        registers=chosen.maxnreg,
        words=COUNTERS + M * row_words + to_add_up,
        stride=stride,
        M=M,
        N=N,
        ignore_index=how.ignore_index,
        looks=looks,
        GRAD=grad,
        PAIRS=pairs,
        REDUCTION=how.reduction,
        SMOOTHING=how.label_smoothing,
        WHOLE=whole,
        V=V,
        EDGES=EDGES,
        PARTS=PARTS,
        THREADS=THREADS,
        BLOCK=chosen.BLOCK,
        GROUP=GROUP,
        POLICY=policy,
        TURNS=pace.TURNS,
        AHEAD=pace.AHEAD,
    )


def _launcher_of_rows_together(
    x: torch.Tensor, stride: int, how: How, grad: bool, pairs: bool, chosen: Plan, V: int, looks: int
) -> Launch:
    """The launcher of `cross_entropy_tile_kernel`, as `loss_launcher`."""
    tile = {"V": V, "ROWS": chosen.ROWS, "BLOCK": chosen.BLOCK}
    return _launcher_of_tiles(cross_entropy_tile_kernel, x, how, grad, pairs, chosen, looks, stride=stride, **tile)


def _launcher_of_flat_rows(x: torch.Tensor, how: How, grad: bool, pairs: bool, chosen: Plan, looks: int) -> Launch:
    """The launcher of `cross_entropy_flat_kernel`, as `loss_launcher`, for rows one behind another."""
    ROWS, BLOCK = triton.next_power_of_2(chosen.ROWS), triton.next_power_of_2(x.shape[1])
    tile = {"V": 16 // x.element_size(), "USED": chosen.ROWS, "ROWS": ROWS, "BLOCK": BLOCK, "RUN": chosen.BLOCK}
    return _launcher_of_tiles(cross_entropy_flat_kernel, x, how, grad, pairs, chosen, looks, **tile)


def _launcher_of_tiles(
    kernel: Any, x: torch.Tensor, how: How, grad: bool, pairs: bool, chosen: Plan, looks: int, **tile: int
) -> Launch:
    """The launcher of a kernel whose programs, all that the GPU holds, take one `tile` of rows after another.

    Flat rows need at most 16 kB of shared memory: registers run out first.
    """
    programs = min(triton.cdiv(x.shape[0], chosen.ROWS), programs_at_once(chosen.num_warps, chosen.maxnreg))
    return Launch(
        kernel,
        (programs, 1, 1),
        warps=chosen.num_warps,
        registers=chosen.maxnreg,
        words=COUNTERS + (0 if how.reduction == "none" else words_to_add_up(programs, PROGRAMS_IN_A_GROUP)),
        M=x.shape[0],
        N=x.shape[1],
        ignore_index=how.ignore_index,
        looks=looks,
        GRAD=grad,
        OWN=counts_its_own(how, grad, x.shape[0]),
        PAIRS=pairs,
        REDUCTION=how.reduction,
        SMOOTHING=how.label_smoothing,
        THREADS=1 if INTERPRETED else 32 * chosen.num_warps,
        GROUP=PROGRAMS_IN_A_GROUP,
        POLICY=policy_of(x.numel() * x.element_size()) if grad else "",
        **tile,
    )


def loss_of(
    x: torch.Tensor,
    target: torch.Tensor,
    how: How,
    gradient: torch.Tensor | None = None,
    pairs: torch.Tensor | None = None,
    words: Words = mailbox.zeros,
    shape: tuple[int, ...] | None = None,
) -> torch.Tensor:
    """The loss of (M, V) logits, or of (OUTER, V, INNER) ones with M = OUTER · INNER targets. Where they are given,
    `gradient`, which may be x, and the `pairs` are filled.

    Losses that nobody reduces have the `shape`, or (M,).
    """
    shape = () if how.reduction != "none" else target.shape if shape is None else shape
    loss = torch.empty(shape, dtype=how.loss_dtype, device=x.device)
    target = target.contiguous()
    tensors = x if gradient is None else gradient, loss, x, target, loss if pairs is None else pairs
    on_stream(x, loss_launcher_of(x, target, how, gradient, pairs is not None), tensors, words)
    return loss


def gradient_like(x: torch.Tensor) -> torch.Tensor:
    """Memory for the gradient. Rows lie as x's do: then whole vectors start at the same columns."""
    if x.dim() == 3:
        return torch.empty(x.shape, dtype=x.dtype, device=x.device)
    M, V = x.shape
    step = V if x.stride(0) == V or M == 1 else x.stride(0)  # M may depend on data: it is asked last
    return torch.empty_strided((M, V), (step, 1), dtype=x.dtype, device=x.device)


def pairs_like(x: torch.Tensor) -> torch.Tensor:
    """Memory for the pair (m, l) of each row, and for the number of rows that count; of columns for this alone.

    Of many short rows, unless they lie far apart, backward reads the number alone, too.
    """
    return torch.empty(x.shape[0] + 1 if x.dim() == 2 else 1, dtype=torch.int64, device=x.device)


def scaled(y: torch.Tensor, gradient: torch.Tensor, target: torch.Tensor, arrived: torch.Tensor, how: How) -> None:
    """Fills y, which may be `gradient`, with it times `arrived`: one number or one for each of the M targets."""
    launcher = _launcher_in_backward(y, gradient, arrived, how, y is gradient, again=False)
    on_stream(gradient, launcher, (y, gradient, arrived, target.contiguous(), arrived))


def gradient_again(
    y: torch.Tensor,
    x: torch.Tensor,
    target: torch.Tensor,
    pairs: torch.Tensor,
    arrived: torch.Tensor,
    how: How,
    over: bool = False,
) -> None:
    """Fills y with the gradient of x times `arrived`; with `over`, y holds the gradient for 1 already."""
    launcher = _launcher_in_backward(y, x, arrived, how, over, again=True)
    words = pairs if launcher.kernel is backward_kernel else pairs[-1:]  # columns need the number of targets alone
    on_stream(x, launcher, (y, x, arrived, target.contiguous(), words))


def _launcher_in_backward(
    y: torch.Tensor, x: torch.Tensor, arrived: torch.Tensor, how: How, over: bool, again: bool
) -> Launch:
    """By what a launch depends on: dtypes, sizes, strides, two addresses modulo 16, the device, and what to do."""
    by_stride = arrived.stride(0) if arrived.dim() else 0
    dtypes, addresses = (x.dtype, arrived.dtype), (x.data_ptr() % 16, y.data_ptr() % 16)
    if x.dim() == 3:
        layouts = tuple(x.shape), y.stride(), x.stride()
        return columns_backward_launcher(dtypes, *layouts, by_stride, addresses, x.get_device(), how, over, again)
    return _backward_launcher(dtypes, *x.shape, y.stride(0), by_stride, addresses, x.get_device(), how, over, again)


@lru_cache(maxsize=1024)
def _backward_launcher(
    dtypes: tuple[torch.dtype, torch.dtype],
    M: int,
    N: int,
    stride: int,
    by_stride: int,
    addresses: tuple[int, int],
    device: int,
    how: How,
    over: bool,
    again: bool,
) -> Launch:
    """The launcher of `backward_kernel`, which makes the gradient of logits `again`, or multiplies a gradient; of many
    short rows that of `columns_backward_kernel`: a column for each, whose classes lie one behind another, and whose
    places in a tile are 32-bit numbers."""
    tiles = plan_of_rows_together(M, N, dtypes[0].itemsize, 1)
    if tiles and tiles.ROWS * stride < 2**31:
        programs = programs_at_once(tiles.num_warps, tiles.maxnreg)
        chosen = LossColumnsPlan(tiles.ROWS, tiles.BLOCK, tiles.num_warps, tiles.maxnreg, programs)
        layouts = (1, N, M), (0, 1, stride), (0, 1, stride)
        return columns_backward_launcher(dtypes, *layouts, by_stride, addresses, device, how, over, again, chosen)
    V = 16 // dtypes[0].itemsize
    V, EDGES = vectors(N, V, addresses == (0, 0) and (stride - N) % V == 0)
    # Elements that are moved one by one need an address each: 4096 of them would spill.
    BLOCK, num_warps = (1024, 4) if V == 1 else (16384, 8) if over else (4096, 4)
    whole = triton.next_power_of_2(N)
    if whole < BLOCK:
        BLOCK, num_warps = whole, max(1, num_warps * whole // BLOCK)
    early = can_start_early(device)
    programs = _OVER_THE_GRADIENT * min(8, 16384 // BLOCK) if over else _IN_BACKWARD
    programs = min(programs, M * triton.cdiv(N, BLOCK))
    return Launch(
        backward_kernel,
        (programs, 1, 1),
        warps=num_warps,
        early=early,
        stride=stride,
        by_stride=by_stride,
        M=M,
        N=N,
        ignore_index=how.ignore_index,
        AGAIN=again,
        REDUCTION=how.reduction,
        SMOOTHING=how.label_smoothing,
        OF_ROWS=by_stride != 0,
        OVER=over,
        EARLY=early,
        V=V,
        EDGES=EDGES,
        BLOCK=BLOCK,
    )
