"""Mistakes that newcomers made, and that once had no name or a false one: for corpus.py, which says how."""

from variants import coded, swapped

_LOAD = 'x = tl.load(x_row + cols.to(tl.int64) * x_col_stride, mask=cols < N, other=-float("inf")).to(tl.float32)'
_IN_STEPS, _ONE_BY_ONE = (
    f"for start in {steps}:\n        cols = start + tl.arange(0, BLOCK)\n        {_LOAD}\n        "
    for steps in ("range(0, N, BLOCK)", "range(0, N)")
)
_TARGET = 'x_ptr + row * x_stride + target, mask=is_class, other=float("nan")'
_PAIRS = "pairs = pair_ptr + 2 * (row * tl.num_programs(1) + parts)"
_SCALARS = """
@triton.jit
def softmax_kernel(y_ptr, x_ptr, stride, BLOCK: tl.constexpr):
    row = tl.program_id(0)
    m, l = -float("inf"), 0.0
    for c in range(BLOCK):
        m = tl.maximum(m, tl.load(x_ptr + row * stride + c).to(tl.float32))
    for c in range(BLOCK):
        l += tl.exp(tl.load(x_ptr + row * stride + c).to(tl.float32) - m)
    for c in range(BLOCK):
        tl.store(y_ptr + row * stride + c, tl.exp(tl.load(x_ptr + row * stride + c).to(tl.float32) - m) / l)
"""
_FOUR_ROWS = """
@triton.jit
def softmax_kernel(y_ptr, x_ptr, stride, BLOCK: tl.constexpr):
    cols = tl.arange(0, BLOCK)
    for row in range(0, 4):
        x = tl.load(x_ptr + row * stride + cols).to(tl.float32)
        e = tl.exp(x - tl.max(x, axis=0))
        tl.store(y_ptr + row * stride + cols, e / tl.sum(e, axis=0))
"""
_TILE_OF_ROWS = """
@triton.jit
def tile_kernel(y_ptr, x_ptr, y_stride, x_stride, x_col_stride, M, N, ROWS: tl.constexpr, BLOCK: tl.constexpr):
    rows = tl.program_id(0).to(tl.int64) * ROWS + tl.arange(0, ROWS)
    cols = tl.arange(0, BLOCK).to(tl.int64)
    mask = (rows < M)[:, None] & (cols < N)[None, :]
    places = x_ptr + rows[:, None] * x_stride + cols[None, :] * x_col_stride
    x = tl.load(places, mask=mask, other={other}).to(tl.float32)
    e = tl.exp(x - tl.max(x, axis=1, keep_dims=True))
    l = {sum}
    tl.store(y_ptr + rows[:, None] * y_stride + cols[None, :], e / l, mask=mask)


def my_softmax(x):
    M, N = x.shape
    y = torch.empty(M, N, dtype=x.dtype, device=x.device)
    BLOCK = triton.next_power_of_2(N)
    tile_kernel[(triton.cdiv(M, 4),)](y, x, y.stride(0), *x.stride(), M, N, ROWS=4, BLOCK=BLOCK)
    return y
"""
_PERSISTENT = """
@triton.jit
def softmax_kernel(y_ptr, x_ptr, stride, M, BLOCK: tl.constexpr):
    cols = tl.arange(0, BLOCK)
    for row in range(tl.program_id(0), M, tl.num_programs(0)):
        x = tl.load(x_ptr + row * stride + cols).to(tl.float32)
        e = tl.exp(x - tl.max(x, axis=0))
        tl.store(y_ptr + row * stride + cols, e / tl.sum(e, axis=0))


def my_softmax(x):
    M, N = x.shape
    y = torch.empty_like(x)
    softmax_kernel[(M // 2,)](y, x, x.stride(0), M, BLOCK=N)
    return y
"""
_LAUNCHED = "    softmax_kernel[(M,)](y, x, x.stride(0), BLOCK=N)\n"


def _rows(named, other='-float("inf")', sum="tl.sum(e, axis=1, keep_dims=True)"):
    """A kernel whose programs take four rows each, in one tile."""
    return coded(named, _TILE_OF_ROWS.replace("{other}", other).replace("{sum}", sum))


NEWCOMERS = {
    "eager": {
        "exp, then its maximum subtracted": swapped(
            "maximum_after_exp", "torch.exp(x - m)", "torch.exp(x)\n    e = e - e.max(dim=1, keepdim=True).values"
        ),
        "x divided by the maximum": swapped("divided_by_maximum", "torch.exp(x - m)", "torch.exp(x / m)"),
        "NaN of the result replaced": swapped(
            "nan_replaced", "x - m", "x", "return e / e.sum(dim=1, keepdim=True)",
            "return torch.nan_to_num(e / e.sum(dim=1, keepdim=True))",
        ),
        "inf of exp replaced": swapped("nan_replaced", "torch.exp(x - m)", "torch.nan_to_num(torch.exp(x))"),
        "logarithm of the result": swapped(
            "logarithm_returned",
            "return e / e.sum(dim=1, keepdim=True)",
            "return torch.log(e / e.sum(dim=1, keepdim=True))",
        ),
        "exp alone": swapped("no_division", "x - m", "x", "return e / e.sum(dim=1, keepdim=True)", "return e"),
        "x comes back": swapped("scores_stored", "return e / e.sum(dim=1, keepdim=True)", "return x.clone()"),
    },
    "single_tile": {
        "a number at a time": coded("number_at_a_time", _SCALARS),
        "rows 0 to 3": coded("same_rows", _FOUR_ROWS),
        "the launch returned": swapped(
            "launch_returned", _LAUNCHED, _LAUNCHED.replace("softmax_kernel", "y = softmax_kernel")
        ),
        "x stored": swapped("scores_stored", "e / l)", "x)"),
        "a difference stored": swapped("logarithm_returned", "e / l)", "x - m - l)"),
        "the logarithm stored": swapped("logarithm_returned", "e / l)", "x - m - tl.log(l))"),
        "divided by the maximum": swapped("mean_of_terms", "e / l)", "e / m)"),
        "maximum added": swapped("maximum_added", "x - m", "x + m"),
        "divided by BLOCK": swapped("divided_by_count", "e / l)", "e / BLOCK)"),
        "a grid of M // 2": swapped("small_grid", "[(M,)]", "[(M // 2,)]"),
        "a grid of at most 65,535": swapped("small_grid", "[(M,)]", "[(min(M, 65535),)]"),
        "rows along axis 1": swapped("grid_axis", "[(M,)]", "[(1, M)]", "program_id(0)", "program_id(1)"),
        "print": swapped("does_not_compile", "    m = tl.max", "    print(x)\n    m = tl.max"),
        "keepdim": swapped("does_not_compile", "tl.max(x, axis=0)", "tl.max(x, axis=0, keepdim=True)"),
        "a persistent grid of M // 2": coded("empty_grid", _PERSISTENT),
        "tl = None": coded("does_not_compile", "tl = None"),
    },
    "masked": {
        "four rows a tile, other=0": _rows("idle_lanes_hold_0", other="0.0"),
        "four rows a tile, one sum": _rows("one_sum_for_a_tile", sum="tl.sum(e)"),
        "other before mask": swapped(
            "does_not_compile", 'mask=mask, other=-float("inf"))', '-float("inf"), mask)'
        ),
        "x in float16": swapped("fewer_digits", "x.to(tl.float32)", "x.to(tl.float16)"),
        "entries of −inf not stored": swapped(
            "entries_never_stored", "e / l, mask=mask", 'e / l, mask=mask & (x > -float("inf"))'
        ),
        "rows along axis 1": swapped("grid_axis", "[(M,)]", "[(1, M)]", "program_id(0)", "program_id(1)"),
        "a grid of at most 65,535": swapped("small_grid", "[(M,)]", "[(min(M, 65535),)]"),
        "a float32 result": swapped("wrong_dtype", "dtype=x.dtype", "dtype=torch.float32"),
    },
    "two_pass": {
        "no step in any loop": swapped("columns_counted_again", "range(0, N, BLOCK)", "range(0, N)"),
        "no step in the later loops": swapped(
            "columns_counted_again", _IN_STEPS + "l +=", _ONE_BY_ONE + "l +=",
            _IN_STEPS + "tl.store", _ONE_BY_ONE + "tl.store",
        ),
        "a number added to every lane": swapped(
            "sum_of_all_lanes", "l = 0.0", "l = tl.zeros([BLOCK], tl.float32)", "x - m) / l", "x - m) / tl.sum(l, 0)"
        ),
    },
    "online": {
        "l not yet": swapped(
            "l_stays_0", "        l = l * tl.exp(m - shift) + tl.sum(tl.exp(x - shift), axis=0)\n", ""
        ),
        "l and the shift not yet": swapped(
            "l_stays_0", "        l = l * tl.exp(m - shift) + tl.sum(tl.exp(x - shift), axis=0)\n", "",
            '        shift = tl.where(m_new == -float("inf"), 0.0, m_new)\n', "",
        ),
    },
    "split_row": {
        "all m, then all l": swapped(
            "pairs_apart", _PAIRS, "pairs = pair_ptr + 2 * row * tl.num_programs(1) + parts",
            "tl.load(pairs + 1,", "tl.load(pairs + tl.num_programs(1),",
        ),
        "sum of the maxima": swapped("maximum_of_another_slice", "m = tl.max(m_parts", "m = tl.sum(m_parts"),
        "sum of the maxima that exist": swapped(
            "maximum_of_another_slice", "m = tl.max(m_parts", "m = tl.sum(tl.where(exists, m_parts, 0.0)"
        ),
        "rows strided by PARTS": swapped(
            "pairs_of_another_row", _PAIRS, "pairs = pair_ptr + 2 * (row * PARTS + parts)",
            "torch.empty(*grid, 2,", "torch.empty(M, 2 * grid[1], 2,",
        ),
        "a buffer of 1,024 pairs": swapped("out_of_bounds", "torch.empty(*grid, 2,", "torch.empty(1024, 2,"),
    },
    "row_loss": {
        "x[target]": swapped("does_not_compile", f"tl.load({_TARGET}).to(tl.float32)", "x[target]"),
        "target > 0": swapped("column_0_ignored", "target >= 0", "target > 0"),
    },
    "occupancy": {
        "programs of a part": swapped(
            "programs_in_a_part", "4 * min(16, ", "min(16, ", "warps // num_warps", "warps // -(-num_warps // 4)"
        ),
        "programs of each part": swapped(
            "programs_in_a_part", "4 * min(16, ", "min(16, ", "warps // num_warps", "4 * (warps // num_warps)"
        ),
        "portions rounded down": swapped(
            "portions_rounded_down", "-(-32 * registers // 256)", "(32 * registers // 256)"
        ),
    },
    "benchmark": {
        "the least": swapped("fast_run", "statistics.median", "min"),
        "sorted": swapped("times_sorted", "return tuple(", "return sorted("),
    },
}  # fmt: skip
