"""One column of each row, drawn with probability exp((x − m) / T) / l: which tile, and then which column of it.

Two parts of a row merge as their triples (m, l, pick) do: with both sums as of the common maximum, the pick is that of
the second part with the probability of its share of l. The pick of a part that loses is of no use to anybody, so each
tile leaves its pair (m, l) alone; a tile is picked by the shares of all of them, and a column in that tile only. This
asks for two random numbers a row, whatever its length.

Tiles are cut by the columns alone, and a row has random numbers of its own. So a row's column depends neither on
the other rows nor on how many there are. Letters as in `helpers.softmax`.
"""

import triton
import triton.language as tl

from helpers.softmax.kernels.shared import COMPILED, LOG2E, LOWEST, in_float32


@triton.jit
def _scale_of(temperature_ptr, temperature, row, OF_ROWS: tl.constexpr):
    """log2(e) / T of a row, +inf for T = 0, and NaN if T is below 0 or NaN."""
    T = tl.load(temperature_ptr + row) if OF_ROWS else temperature
    return tl.where(T > 0, LOG2E / tl.where(T > 0, T, 1.0), tl.where(T == 0, float("inf"), float("nan")))


@triton.jit
def _weight(x, m, scale):
    """exp((x − m) / T). Its limit for T = 0 is 1 at the maximum, and 0 elsewhere."""
    return tl.where(x == m, 1.0, tl.exp2((x - m) * scale))


@triton.jit
def _columns(x_ptr, row, first, lanes, row_stride, col_stride, N):
    """The columns from the `first` one on. Lanes past the end of the row hold −inf, whose weight is 0."""
    at = row * row_stride + first * col_stride + lanes.to(tl.int64) * col_stride
    return tl.load(x_ptr + at, mask=lanes < N - first, other=-float("inf"))


@triton.jit
def _pick(w, u, LANES: tl.constexpr):
    """The lane in which u · Σ w lies, for u in [0, 1), if the weights are laid end to end; and Σ w.

    A lane of weight 0 is never picked: not for u = 0, and not if rounding puts u · Σ w behind the last one, or makes
    the sums grow where a weight is 0.
    """
    lanes, total = tl.arange(0, LANES), tl.sum(w, axis=0)
    last = tl.max(tl.where(w > 0, lanes, 0), axis=0)
    return tl.min(tl.where((tl.cumsum(w, axis=0) > u * total) & (w > 0), lanes, last), axis=0), total


@triton.jit(do_not_specialize_on_alignment=["temperature_ptr"])
def pairs_kernel(
    pair_ptr, x_ptr, temperature_ptr, row_stride, col_stride, N, temperature,
    OF_ROWS: tl.constexpr, TILES: tl.constexpr, BLOCK: tl.constexpr, EARLY: tl.constexpr = False
):  # fmt: skip
    """Each program stores the pairs (m, l) of TILES tiles of BLOCK columns. EARLY says that the launch may begin before
    the one ahead of it has ended."""
    if EARLY and COMPILED:
        tl.extra.cuda.gdc_wait()  # the logits may come from it
    program, parts = tl.program_id(0).to(tl.int64), tl.cdiv(N, TILES * BLOCK)
    row, part = program // parts, program % parts
    scale = _scale_of(temperature_ptr, temperature, row, OF_ROWS)
    tiles, tiles_of_row = part * TILES + tl.arange(0, TILES), tl.cdiv(N, BLOCK)
    lanes = tl.arange(0, TILES)[:, None] * BLOCK + tl.arange(0, BLOCK)[None, :]
    x = _columns(x_ptr, row, part * TILES * BLOCK, lanes, row_stride, col_stride, N)
    m = tl.maximum(tl.max(x.to(tl.float32), axis=1), LOWEST)
    l = tl.sum(_weight(in_float32(x), m[:, None], scale), axis=1)
    at = pair_ptr + 2 * (row * tiles_of_row + tiles)
    tl.store(at, m, mask=tiles < tiles_of_row)
    tl.store(at + 1, l, mask=tiles < tiles_of_row)


@triton.jit(do_not_specialize_on_alignment=["temperature_ptr", "seed_ptr"])
def pick_kernel(
    pick_ptr, pair_ptr, x_ptr, temperature_ptr, seed_ptr, row_stride, col_stride, N, temperature,
    OF_ROWS: tl.constexpr, PARTS: tl.constexpr, BLOCK: tl.constexpr, EARLY: tl.constexpr = False,
):  # fmt: skip
    """Each program picks a tile of its row by the pairs of all tiles, in PARTS lanes, and then a column of the tile.

    If PARTS is 1, the row is one tile, and there are no pairs. For T = 0 the random numbers are 0: of equal maxima the
    first is picked. A row whose l is 0 or NaN gets −1. EARLY as in `pairs_kernel`.
    """
    row = tl.program_id(0).to(tl.int64)
    scale = _scale_of(temperature_ptr, temperature, row, OF_ROWS)
    u_tile, u_column, _, _ = tl.rand4x(tl.load(seed_ptr), row)
    if scale == float("inf"):
        u_tile, u_column = 0.0, 0.0
    # The tile.
    tile, l = 0, 1.0
    if PARTS > 1:
        if EARLY and COMPILED:
            tl.extra.cuda.gdc_wait()  # its programs are in place when the pairs come
        tiles, parts = tl.cdiv(N, BLOCK), tl.arange(0, PARTS)
        at = pair_ptr + 2 * (row * tiles + parts)
        m_tiles = tl.load(at, mask=parts < tiles, other=LOWEST)
        l_tiles = tl.load(at + 1, mask=parts < tiles, other=0.0)
        tile, l = _pick(l_tiles * _weight(m_tiles, tl.max(m_tiles, axis=0), scale), u_tile, PARTS)
    # The column.
    first = tl.cast(tile, tl.int64) * BLOCK
    x = _columns(x_ptr, row, first, tl.arange(0, BLOCK), row_stride, col_stride, N).to(tl.float32)
    m = tl.maximum(tl.max(x, axis=0), LOWEST)
    lane, l_tile = _pick(_weight(x, m, scale), u_column, BLOCK)
    tl.store(pick_ptr + row, tl.where((l > 0) & (l_tile > 0) & (scale >= 0), first + lane, -1))
