"""Which kernel takes a shape, and how it is launched: pure functions, `plan_rows` for rows.

Its numbers come from sweeps of tiles, slices, warps and registers on one H200, of columns that are read twice also on
an H100. For rows, `helpers.measure.sweep` repeats the sweep: it times the planned launch, its alternatives and a copy,
and `python -m helpers.measure.record --only plan` writes the times to `helpers/recorded/GPU/plan.json`. A test compares
the plan with that record. The same sweep on an H100, once the numbers were fixed: of 104 layouts the planned launch
took 0.4 % more time than the best one swept, in the geometric mean, and 3.6 % at most. For other dimensions and for
gradients no command repeats it: `--only gradients` times what is planned.
"""

from __future__ import annotations

import math
from functools import lru_cache
from typing import NamedTuple

from triton import next_power_of_2

from helpers.gpu.occupancy import resident

FEW_PROGRAMS = 256
"""With fewer programs than this, some of the 132 SMs of an H200 hold no more than one: a row is shared by more."""

MOST_WORDS = 2048
"""The most slices of a row whose words one program merges: more would spill, and a longer row takes two launches."""

_TILE_BYTES = 6144
"""The longest row that is held by one program."""

_ABOVE_TWO_SLICES = range(8193, 10241)
"""Bytes of longer aligned rows that one program holds: of a third slice of 4 kB they would use no more than half."""

_BYTES_TO_LOAD = 1300
"""Bytes that each program must load to keep up with a copy: the GPU starts 1.65 programs per nanosecond."""

_MOST_ROWS, _MOST_UNALIGNED_ROWS = 128, 16
"""The most rows of a program: the addresses of more rows would spill, and edges have addresses of their own."""

_SHORT_COLUMNS = 16384
"""The longest row that is shared in slices of half the size."""

_SLICE_BYTES = 8192
"""The slice that one warp holds. Longer rows than _WARP_SLICES of them are shared by programs of four warps."""

_WARP_SLICES = 32

_MOST_SLICES = 128
"""The most slices of a row that four warps hold; in a longer row slices are longer, or their words would spill."""

_FEW_ROWS_BLOCK = 2048
"""Columns of the least slice of long rows that more programs share where there are few of them."""

_SHORT_FEW_ROWS, _FEW_ELEMENTS = 65536, 2**22
"""The longest few rows that are cut into slices of half the size or less; and the most elements of rows that are few,
half of that where rows are so short."""

_FEW_ROWS, _FEW_BYTES = range(256, 8193), 2**24
"""Rows, and bytes of all of them, that are held by one program each although several could share one."""

_FEW_WARPS = 2048
"""Programs of one warp that leave an H200 half empty: 16-bit rows are shared by more."""

SMS = 132
"""Of an H200, as of an H100."""

_LEAST_WAVES, _AHEAD = 1.5, 0.6
"""Of the programs that the GPU holds at once, how many must be launched for them to pause or fetch ahead, and how far
ahead. On an H200 0.4 to 0.6 served best; whole slices fetched at 1.0 took a quarter more time than none."""

_LEAST_L2, _LEAST_GBPS = 2**25, 4000
"""For fetching ahead: bytes of an L2 cache with room for half of what the programs hold, up to 13 MB, and for what they
write (smaller ones were not measured); and what the memory gives at most, by its clock and width. With it an H200
(4917 GB/s) took 0.2 to 1.9 % less time for rows and losses, an H100 (3352) between 0.2 % less and 5.5 % more:
`pace.json` of both. Only these two were measured, and the speed of their memory, which tells them apart, need not be
the cause."""

_LEAST_KEPT = 2**26
"""Bytes of an input from which on its lines outlive written ones in the L2 cache: more than an H200's holds (63 MB).
Launches on other tensors, one behind another, took 0.9 to 2.6 % less time so on an H200, 0.6 to 4 % on an H100:
`policy.json` of both; on the H100 ncu counted the same bytes. Smaller inputs gain too, but would stay whole where
nobody loads them again and the result could wait for its reader: with a copy of the result behind each launch, 16 MB
took up to 1 % more time on the H200 (in no record). A loss alone, which writes nothing, gained nothing. Lines of a
result are not kept: columns then seemed to take 1 to 7 % less time on the H100 in one launch behind a flush, and took
up to 3 % more one behind another (in no record). In the H200's records one launch takes 3 % more time than before,
bfloat16 over dimension 1 of 64 × 1024 × 1024; no other more than 0.9 %."""

EIGHT_WARPS, SEVEN_WARPS, SIX_WARPS, FIVE_WARPS, FOUR_WARPS, THREE_WARPS = 64, 72, 80, 96, 128, 168
"""Registers of a thread with which 8, 7, 6, 5, 4 and 3 warps fit on each quarter of an SM: it has 16384 registers."""


class Plan(NamedTuple):
    """`tile`: ROWS rows a program, BLOCK + REST lanes each; `tiles`: one such tile after another; `flat`: ROWS rows in
    BLOCK lanes all together; `shared`: SPLIT programs a row, of BLOCK lanes; `two launches`: as in lesson 09. A thread
    gets maxnreg registers at most."""

    kernel: str
    BLOCK: int
    num_warps: int
    maxnreg: int
    ROWS: int = 1
    REST: int = 0
    SPLIT: int = 1


_FLAT = {4: (20, 1024), 2: (32, 2048)}
_FLAT_GRADIENT = {4: (16, 1024, 2), 2: (64, 4096, 4)}
"""By bytes of an element: rows shorter than this, one behind another, are moved flat unless they fill vectors; the
lanes that move them; and the warps for the gradient. On an H200 softmax of 9 columns ran at 0.35 of a copy by elements
and at 1.00 so in float32, at 0.33 and some 0.7 in bfloat16."""

_ONE_BY_ONE = 256
"""The longest row whose elements are moved one by one for which a program has several rows."""


def plan_rows(n_rows: int, n_cols: int, itemsize: int, V: int, EDGES: bool, together: bool) -> Plan:
    """The launch for rows that are moved in vectors of V, with EDGES or without, or one by one (V = 1).

    `together` says that the rows lie one behind another, the first of them at a multiple of 16 bytes.
    """
    most, RUN = _FLAT[itemsize]
    if together and n_cols < most and n_cols * itemsize % 16:
        return flat_plan(n_cols, itemsize, RUN, 2)
    if V == 1 and n_cols <= _ONE_BY_ONE:
        ROWS = min(64, _last_power_of_2(1023 // n_cols))
        return Plan("tile", next_power_of_2(n_cols), 4, FIVE_WARPS, ROWS)
    return plan_launch(n_rows, n_cols, itemsize, not EDGES)


def flat_plan(n_cols: int, itemsize: int, RUN: int, num_warps: int, maxnreg: int = FIVE_WARPS) -> Plan:
    """The launch in which a program moves the short rows that fit into RUN lanes, a multiple of a vector's elements."""
    V = 16 // itemsize
    return Plan("flat", RUN, num_warps, maxnreg, ROWS=RUN // n_cols // V * V)


def _last_power_of_2(n: int) -> int:
    return 1 << (n.bit_length() - 1)


@lru_cache(maxsize=4096)
def plan_launch(n_rows: int, n_cols: int, itemsize: int, aligned: bool = True) -> Plan:
    """The launch for rows of contiguous elements of `itemsize` bytes that are moved in whole vectors.

    `aligned` says whether every row begins and ends at a multiple of 16 bytes; if not, the tile skips up to 15 bytes at
    either end. A row is shared where its tile would leave too few programs on an SM or in the whole GPU: among as few
    programs as possible, but by one warp each where 32 of them suffice.
    """
    vector = 1 if aligned else 16 // itemsize
    n_cols = max(1, n_cols // vector * vector)
    launch = _many_rows(n_cols, itemsize, aligned)
    few = n_rows < _FEW_ROWS[0] and n_cols > 2 * _FEW_ROWS_BLOCK
    if few and (shared := _few_rows(n_rows, n_cols, itemsize, launch)):
        return shared
    if aligned and n_rows in _FEW_ROWS and n_rows * n_cols * itemsize <= _FEW_BYTES:
        whole = next_power_of_2(n_cols)
        if _SLICE_BYTES // 2 <= whole * itemsize <= 2 * _SLICE_BYTES and whole <= 1.25 * n_cols:
            return Plan("tile", whole, 4, FIVE_WARPS)
    if itemsize == 2 and launch.SPLIT > 1 and launch.num_warps == 1 and n_rows * launch.SPLIT <= _FEW_WARPS:
        return shared_plan(n_cols, _FEW_ROWS_BLOCK, 1, EIGHT_WARPS)
    return launch


def _few_rows(n_rows: int, n_cols: int, itemsize: int, many: Plan) -> Plan | None:
    """A launch by more programs than that for `many` rows, where that one would leave the GPU half empty."""
    elements = n_rows * n_cols
    if n_cols <= _SHORT_FEW_ROWS:
        if elements <= _FEW_ELEMENTS // 2:
            return shared_plan(n_cols, 2048 // itemsize if n_cols <= _SHORT_COLUMNS else 1024, 1, EIGHT_WARPS)
        return None
    # More than 128 slices are more words than four warps have threads, and 16 kB are what they hold with 64 registers.
    least = max(_FEW_ROWS_BLOCK, next_power_of_2(-(-n_cols // 128)))
    if least == _FEW_ROWS_BLOCK and elements <= _FEW_ELEMENTS:
        return shared_plan(n_cols, least, 4 if itemsize == 4 and elements <= _FEW_ELEMENTS // 2 else 2, EIGHT_WARPS)
    if n_rows * many.SPLIT < FEW_PROGRAMS and least * itemsize <= 16384:
        return shared_plan(n_cols, least, 4, EIGHT_WARPS)
    return None


def shared_plan(n_cols: int, BLOCK: int, num_warps: int, maxnreg: int) -> Plan:
    """A row of n_cols in slices of BLOCK columns, a program for each."""
    return Plan("shared", BLOCK, num_warps, maxnreg, SPLIT=-(-n_cols // BLOCK))


def _many_rows(n_cols: int, itemsize: int, aligned: bool) -> Plan:
    nbytes = n_cols * itemsize
    if nbytes <= _TILE_BYTES or (aligned and nbytes in _ABOVE_TWO_SLICES):
        return _tile(n_cols, itemsize, aligned)
    BLOCK = _SLICE_BYTES // itemsize
    if n_cols <= _SHORT_COLUMNS:
        return shared_plan(n_cols, BLOCK // 2, 1, EIGHT_WARPS)
    if n_cols <= _WARP_SLICES * BLOCK:
        # 16-bit rows with edges spill with 80 registers.
        return shared_plan(n_cols, BLOCK, 1, SIX_WARPS if aligned or itemsize == 4 else 88)
    launch = shared_plan(n_cols, 4 * BLOCK, 4, SIX_WARPS if aligned else FIVE_WARPS)
    if launch.SPLIT <= _MOST_SLICES:
        return launch
    launch = shared_plan(n_cols, 8 * BLOCK, 8, 128)
    return launch if launch.SPLIT <= MOST_WORDS else launch._replace(kernel="two launches")


def _tile(n_cols: int, itemsize: int, aligned: bool) -> Plan:
    lanes = next_power_of_2(n_cols)
    if not aligned and lanes * itemsize <= 256:  # the edges need registers, and more warps share these
        num_warps = min(4, max(1, lanes // 16 if itemsize == 4 else next_power_of_2(n_cols // 16)))
        return Plan("tile", lanes, num_warps, FIVE_WARPS, _MOST_UNALIGNED_ROWS)
    ROWS = min(next_power_of_2(-(-_BYTES_TO_LOAD // (n_cols * itemsize))), _MOST_ROWS)
    # Just above a power of two, a second, smaller tile for the rest of the row leaves fewer lanes idle.
    for REST in (lanes // 8, lanes // 4):
        if n_cols <= lanes // 2 + REST:
            registers = THREE_WARPS if lanes >= 4096 else SIX_WARPS
            return Plan("tile", lanes // 2, max(1, lanes // 4096), registers, ROWS, REST)
    return Plan("tile", lanes, max(1, lanes // 2048), FIVE_WARPS, ROWS)


class Pause(NamedTuple):
    """Cycles that programs let pass before they look for words, if they share a row in `least_slices` or more."""

    least_slices: int
    cycles: int


NO_PAUSE, PAUSE_OF_ROWS = Pause(0, 0), Pause(33, 6000)
PAUSE_OF_GRADIENTS = {4: Pause(33, 7000), 2: Pause(33, 5000)}
"""Of gradients by bytes of an element. On an H200 rows of 1,000,003 took 6 % less time so, their logarithms 6 to 8 %,
gradients of 1,048,576 columns 9 to 10 %. Losses do not pause: without the rows' pairs some took 1 to 2 % less time so,
with them a register spilled."""


class Pace(NamedTuple):
    """How programs that wait for each other keep memory busy: the first TURNS programs of an SM begin one after the
    other, a program lets PAUSE cycles pass before it looks for others' words, and while it waits, half the tile AHEAD
    rows or groups further comes to the L2 cache."""

    TURNS: int = 0
    PAUSE: int = 0
    AHEAD: int = 0


def fetching_pays(l2_bytes: int, memory_khz: int, bus_bits: int) -> bool:
    """Whether a GPU with such a cache, and a memory of such a clock and width, fetches ahead."""
    gbps = 2 * memory_khz * bus_bits / 8 / 1e6  # twice in each cycle
    return l2_bytes >= _LEAST_L2 and gbps >= _LEAST_GBPS


def programs_at_once(num_warps: int, maxnreg: int) -> int:
    """How many programs the GPU holds, of num_warps warps whose threads have maxnreg registers each."""
    return SMS * resident("sm_90", num_warps, maxnreg, 0).programs


def pace_of(shared: int, chosen: Plan | ColumnsPlan, ahead: bool = False, pause: Pause = NO_PAUSE) -> Pace:
    """The pace of programs that share `shared` rows, or groups of columns; none where each has one program.

    Unless the GPU holds nearly all programs at once, they fetch, if `ahead`, and `pause`.
    """
    if chosen.SPLIT == 1:
        return Pace()
    held = programs_at_once(chosen.num_warps, chosen.maxnreg)
    of_an_sm = held // SMS
    if shared * chosen.SPLIT <= _LEAST_WAVES * held:
        return Pace(of_an_sm)
    return Pace(
        of_an_sm,
        pause.cycles if chosen.SPLIT >= pause.least_slices else 0,
        round(_AHEAD * held / chosen.SPLIT) if ahead else 0,
    )


def policy_of(nbytes: int) -> str:
    """POLICY for an input whose shape has `nbytes`, where each element is loaded once: "evict_last" or ""."""
    return "evict_last" if nbytes >= _LEAST_KEPT else ""


# The gradient


_GRADIENT_COLUMNS = 2048
"""Columns of the longest row whose y and dy one program holds."""

_GRADIENT_SLICE_BYTES = 4096
"""The slice of each that one warp holds."""


@lru_cache(maxsize=4096)
def plan_gradient(n_cols: int, itemsize: int, V: int, EDGES: bool, aligned: bool = True) -> Plan:
    """The launch for the gradient of rows, moved in vectors of V, with EDGES or without.

    `aligned` says that all tensors begin at a multiple of 16 bytes.
    """
    most, RUN, num_warps = _FLAT_GRADIENT[itemsize]
    if aligned and n_cols < most and n_cols * itemsize % 16:
        return flat_plan(n_cols, itemsize, RUN, num_warps)
    lanes = max(1, n_cols // V * V)
    BLOCK = next_power_of_2(lanes)
    if lanes <= _GRADIENT_COLUMNS:
        most_rows = _MOST_UNALIGNED_ROWS if EDGES else _MOST_ROWS
        ROWS = min(next_power_of_2(-(-_BYTES_TO_LOAD // (2 * lanes * itemsize))), most_rows)
        if BLOCK <= 32 and (V == 1 or (EDGES and itemsize == 2)):  # four elements a thread
            return Plan("tile", BLOCK, max(1, min(8, ROWS * BLOCK // 128)), FIVE_WARPS, ROWS)
        if BLOCK <= 128 and (EDGES or V == 1):  # twice the rows, by four times the warps
            ROWS = min(most_rows, 2 * ROWS)
            return Plan("tile", BLOCK, max(1, min(8, ROWS * BLOCK // 256)), SIX_WARPS, ROWS)
        return Plan("tile", BLOCK, max(1, ROWS * BLOCK // 1024), FIVE_WARPS, ROWS)
    if V == 1:  # every element has an address of its own, in registers
        one, four = shared_plan(lanes, 1024, 1, THREE_WARPS), shared_plan(lanes, 4096, 4, THREE_WARPS)
        return one if one.SPLIT <= _WARP_SLICES else four if four.SPLIT <= 256 else shared_plan(lanes, 8192, 8, 128)
    BLOCK = _GRADIENT_SLICE_BYTES // itemsize
    if lanes <= _WARP_SLICES * BLOCK:
        return shared_plan(lanes, BLOCK, 1, FIVE_WARPS)
    registers = SIX_WARPS if itemsize == 4 else FIVE_WARPS  # 16-bit elements spill with 80
    four, more = shared_plan(lanes, 4 * BLOCK, 4, registers), shared_plan(lanes, 8 * BLOCK, 4, THREE_WARPS)
    # On an H200 bfloat16 of 1,000,003 columns took 7 % less time in 62 slices than in 123.
    if four.SPLIT <= (_MOST_SLICES if itemsize == 4 else _MOST_SLICES // 2):
        return four
    return more if more.SPLIT <= 2 * _MOST_SLICES else more._replace(num_warps=8, maxnreg=128)


# Other dimensions


class ColumnsPlan(NamedTuple):
    """How WIDTH neighbours are taken together, in tiles of BLOCK columns, and of REST more.

    `columns`: they are a group, which SPLIT programs share, in TEAMs; `three launches`: the pairs of SPLIT parts, their
    merge, and the result; `streamed`: one program reads them twice. FOLD columns are taken for one, so that vectors
    can move their neighbours, in whole lines.
    """

    kernel: str
    WIDTH: int
    BLOCK: int
    num_warps: int
    maxnreg: int = 128
    SPLIT: int = 1
    TEAM: int = 1
    REST: int = 0
    FOLD: int = 1


_FEW_COLUMNS = 32
"""The most columns that a warp holds with 256 bytes of neighbours."""

_LEAST_ELEMENTS, _MOST_ELEMENTS = 2048, 16384
"""Elements of a tile: enough to be worth a program; the most that one program holds of whole columns."""

_LINES = {4: ((256, 16384), (128, 16384)), 2: ((128, 16384),)}
_GRADIENT_LINES = {4: ((128, 8192),), 2: ((128, 8192),)}
"""By bytes of an element: bytes of neighbours side by side, and the most elements of a tile that is so wide. A copy in
tiles 64 bytes wide took 1.4 times as long as one in tiles of 256 bytes on an H200, and 1.1 times in tiles of 128.

Of 4096 × 16384 in bfloat16 an H100 and an H200 make a copy in the plan's tiles, 128 bytes wide, at 0.90 and 0.88 of a
plain copy, and in tiles of 256 bytes at 0.94 and 0.93; softmax ran at 0.85 and 0.78, on the H100 at no more than 0.75
in tiles so wide. Slower as well: tiles that others load once more from the L2 cache when all pairs of a group are
known, 0.74 and 0.52 at most, and on the H100 programs that fetch tiles into shared memory while they wait, 0.64. In
tiles of half the size, or by twice the warps, it ran on the H100 at 0.79 and less; with a second tile loaded once more
from the L1 cache at 0.77; in Gluon, with tiles in shared memory, at 0.85, with them 256 bytes wide, half of them in
registers, or the next ones on their way meanwhile at 0.84, 0.84 and 0.80. In the plan's, maxima of neighbours alone let
the H100 and the H200 copy at 0.91 and 0.88, with words exchanged at 0.88 and 0.83. In CUDA C++, whose clusters
exchange pairs through shared memory, it ran on the H100 at 0.80 at most, and at 0.91 where no pairs were exchanged,
with wrong results. With the programs of 2, 4 or 8 neighbouring groups side by side in the grid, the H100 took between
1 % less and 3 % more time for this and for 64 × 1024 × 1024; of 8192 × 8200 in bfloat16 4 % less with 2 or 4, and 28 %
more with 8; of 16384 × 4096 up to 53 times as much with 8. On the H200 64 × 1024 × 1024 ran at 0.83, and at 0.89 with
one instruction for x · log2(e) − m · log2(e), which overflows where x does not; the H100 gained 0.01 at most (in no
record)."""

_MOST_NARROW_COLUMNS = 256
"""The most 16-bit columns, and the most of a gradient, in a tile narrower than 128 bytes although there are neighbours
to fill it; 512 in float32, or where elements are moved one by one, and 1024 in a gradient that is moved so. Longer ones
are shared, by wider tiles."""

_WIDE_COLUMNS = 16384
"""The most float32 columns for which lines of 256 bytes are worth the words that their neighbours exchange."""

_MOST_GROUP_BYTES = 2**23
"""A group that all programs of the GPU hold several times, so that some load while others wait. Held once and a half,
in tiles of 32 × 512 and teams of 16, 131,072 rows of 512 ran on an H100 at 0.68 (float32) and 0.63 of a copy, against
0.64 and 0.60 in three launches; on an H200, in the best of such tiles, at 0.60 and 0.55, against 0.63 and 0.56 (in no
record)."""

_ALONE = 512
"""The most words of a group that each program merges by itself; of more, teams of parts merge theirs first."""

_MOST_FOLDED, _LEAST_FOLDED = 256, 4096
"""The most neighbours, and the fewest elements, for which several columns are taken for one where vectors do not fit a
single one. On an H200 6272 elements were moved faster so, 864 slower: to put together what lanes know costs time."""

_FOUND = {4: (8192, 4, 128, 4), 2: (16384, 4, THREE_WARPS, 1)}
_FOUND_ONE_BY_ONE = (2048, 2, 128, 4)
"""Elements, warps and registers of the tiles in which pairs of longer columns are found, and how many tiles are a part,
for which one program finds the pairs."""

_MOST_PARTS, _FOUND_WIDTH, _MOST_FOUND = 1024, 64, 1024
"""The most parts of longer columns; the neighbours of a tile, and the most that it has where columns are taken for one:
if vectors fit them, up to _MOST_FOLDED neighbours, so that lines are whole. On an H100 300,000 rows of 49 in bfloat16
ran at 0.73 of a copy so, and their gradient at 0.49, against 0.51 and 0.21; 400,000 rows of 100 in float32 at 0.65
against 0.59 (in no record)."""

MERGED = ColumnsPlan("columns", 4, 512, 8, FIVE_WARPS)
"""How pairs of parts are merged: of WIDTH neighbours BLOCK parts at a time. In rounds of 64 parts, 131,072 rows of 512
took up to 5 % more time on an H100 (in no record)."""

_WRITTEN, _WRITTEN_ONE_BY_ONE = 4096, 2048
"""Elements of a tile of longer columns that is written, with 256 bytes of neighbours."""

_STREAMED = 4096


def plan_columns(inner: int, n_cols: int, itemsize: int, vectors: bool = True, together: int = 1) -> ColumnsPlan:
    """The launch for a softmax over n_cols columns that have `inner` neighbours each.

    `vectors` is False where the neighbours do not lie side by side, or begin anywhere; `together` is how many columns
    fill whole vectors, 0 where they do not lie one behind another.
    """
    if n_cols <= _FEW_COLUMNS:
        return _few_columns(inner, n_cols, itemsize)
    if together > 1 and inner <= _MOST_FOLDED and _LEAST_FOLDED <= n_cols * inner <= _MOST_GROUP_BYTES // itemsize:
        return _folded(inner, n_cols, together, _folded_tile(n_cols * inner, itemsize))
    neighbours, whole = next_power_of_2(inner), next_power_of_2(n_cols)
    one_by_one = inner * itemsize % 16 != 0
    in_pairs = itemsize == 2 and vectors and not one_by_one  # two to a register
    lines = _LINES if in_pairs or itemsize == 4 else _GRADIENT_LINES
    WIDTH = _width(inner, n_cols, itemsize, lines[itemsize])
    narrow = WIDTH < min(neighbours, 128 // itemsize)
    split_early = (narrow and whole > _MOST_NARROW_COLUMNS * (1 if in_pairs else 2)) or (
        one_by_one and itemsize == 4 and WIDTH < min(64, neighbours)
    )
    if WIDTH * whole <= _MOST_ELEMENTS and not split_early:
        num_warps = max(1, min(4 if in_pairs else 8, WIDTH * whole * itemsize // 4096))
        return ColumnsPlan("columns", WIDTH, whole, num_warps, _registers(WIDTH * whole, num_warps, itemsize))
    tile = _tile_of_a_group(n_cols, neighbours, itemsize, one_by_one or not (in_pairs or itemsize == 4))
    return _plan_of_groups(inner, n_cols, itemsize, tile, 1, one_by_one or not vectors, together)


class _GroupTile(NamedTuple):
    """The tile that a program holds of a group: of WIDTH neighbours at most."""

    WIDTH: int
    elements: int
    maxnreg: int
    num_warps: int = 4


def _folded_tile(elements: int, itemsize: int) -> _GroupTile:
    """As wide as its threads move at a time, so that each sees few neighbours; one tile for all, if it can be."""
    if itemsize == 2:
        return _GroupTile(2048, 32768, 128, 8)
    if 8192 < elements <= 16384:
        return _GroupTile(1024, 16384, 128, 8)
    return _GroupTile(512, 8192, 128 if elements <= 8192 else FIVE_WARPS)


def _folded_gradient_tile(elements: int, itemsize: int) -> _GroupTile:
    if itemsize == 2:
        return _GroupTile(2048, 16384, 128, 8) if elements <= 16384 else _GroupTile(1024, 8192, FIVE_WARPS)
    return _GroupTile(1024, 16384, FIVE_WARPS, 16) if 8192 < elements <= 16384 else _GroupTile(512, 8192, THREE_WARPS)


def _folded(inner: int, n_cols: int, together: int, tile: _GroupTile) -> ColumnsPlan:
    """The launch in which columns, a multiple of `together`, are taken for one until they fill the tile."""
    smaller = max(1, min(tile.num_warps, tile.elements // next_power_of_2(n_cols * inner)))
    tile = _GroupTile(tile.WIDTH // smaller, tile.elements // smaller, tile.maxnreg, tile.num_warps // smaller)
    FOLD = _folds_up_to(tile.WIDTH, inner, n_cols, together)
    WIDTH, columns = next_power_of_2(FOLD * inner), n_cols // FOLD
    BLOCK = min(next_power_of_2(columns), max(1, tile.elements // WIDTH))
    SPLIT = -(-columns // BLOCK)
    TEAM = _team(SPLIT, next_power_of_2(inner))
    return ColumnsPlan("columns", WIDTH, BLOCK, tile.num_warps, tile.maxnreg, SPLIT, TEAM, FOLD=FOLD)


def _tile_of_a_group(n_cols: int, neighbours: int, itemsize: int, one_by_one: bool) -> _GroupTile:
    if one_by_one:
        return _GroupTile(64, 8192, 128)
    if itemsize == 4:
        return _GroupTile(64 if n_cols <= _WIDE_COLUMNS else 32, 16384, THREE_WARPS)
    if n_cols <= 512:
        WIDTH = min(128, neighbours)
        return _GroupTile(WIDTH, 256 * WIDTH, THREE_WARPS)
    # Tiles of 512 columns, unless they would leave many lanes idle.
    return _GroupTile(64, 32768, THREE_WARPS) if -n_cols % 512 <= n_cols // 4 else _GroupTile(64, 16384, 128)


def _plan_of_groups(
    inner: int, n_cols: int, itemsize: int, tile: _GroupTile, inputs: int, one_by_one: bool, together: int
) -> ColumnsPlan:
    """The launch by several programs a group, as `tile` says, or, of larger groups, in three launches.

    `inputs` is how many elements are loaded for one of the result, `one_by_one` whether no vectors fit; `together`
    columns fill whole vectors, or 0 where they do not lie one behind another.
    """
    WIDTH = min(tile.WIDTH, next_power_of_2(inner))
    if n_cols * WIDTH * itemsize * inputs <= _MOST_GROUP_BYTES:
        BLOCK = min(tile.elements // WIDTH, next_power_of_2(n_cols) // 2)
        SPLIT = -(-n_cols // BLOCK)
        return ColumnsPlan("columns", WIDTH, BLOCK, tile.num_warps, tile.maxnreg, SPLIT, _team(SPLIT, WIDTH))
    WIDTH, FOLD = min(_FOUND_WIDTH, next_power_of_2(inner)), 1
    whole_vectors = together > 0 and together * inner * itemsize % 16 == 0
    if whole_vectors and inner <= _MOST_FOLDED and inner * together <= _MOST_FOUND:
        FOLD, one_by_one = _folds_up_to(_MOST_FOUND, inner, n_cols, together), False
        WIDTH = next_power_of_2(FOLD * inner)
    elements, num_warps, maxnreg, tiles = _FOUND_ONE_BY_ONE if one_by_one else _FOUND[itemsize]
    BLOCK = elements // WIDTH
    SPLIT = min(_MOST_PARTS, -(-n_cols // (FOLD * BLOCK * tiles)))
    return ColumnsPlan("three launches", WIDTH, BLOCK, num_warps, maxnreg, SPLIT, FOLD=FOLD)


def _folds_up_to(lanes: int, inner: int, n_cols: int, together: int) -> int:
    """How many columns, a multiple of `together`, are taken for one, so that their neighbours fill `lanes` at most."""
    FOLD = together
    while 2 * FOLD * inner <= lanes and n_cols % (2 * FOLD) == 0:
        FOLD *= 2
    return FOLD


def plan_of_writing(inner: int, n_cols: int, itemsize: int, vectors: bool) -> ColumnsPlan:
    """The third of three launches, for columns that have `inner` neighbours each, moved in `vectors` or one by one."""
    WIDTH = min(256 // itemsize, next_power_of_2(inner))
    BLOCK = (_WRITTEN if vectors else _WRITTEN_ONE_BY_ONE) // WIDTH
    return ColumnsPlan("columns", WIDTH, min(BLOCK, next_power_of_2(n_cols)), 4, FIVE_WARPS)


def _team(SPLIT: int, WORDS: int) -> int:
    """How many of SPLIT programs are a team, whose last one merges WORDS for each of them."""
    return 1 if SPLIT * WORDS <= _ALONE else 8 if SPLIT <= 256 else 32


def _few_columns(inner: int, n_cols: int, itemsize: int) -> ColumnsPlan:
    """256 bytes of neighbours in one warp. Just above a power of two, a smaller tile leaves fewer lanes idle."""
    whole = next_power_of_2(n_cols)
    WIDTH = min(next_power_of_2(inner), max(256 // itemsize, _LEAST_ELEMENTS // whole))
    for REST in (whole // 8, whole // 4):
        if REST >= 4 and n_cols <= whole // 2 + REST:
            return ColumnsPlan("columns", WIDTH, whole // 2, 1, 128, REST=REST)
    num_warps = 2 if itemsize == 4 and WIDTH * whole == _LEAST_ELEMENTS else 1
    return ColumnsPlan("columns", WIDTH, whole, num_warps, THREE_WARPS)


def _registers(elements: int, num_warps: int, itemsize: int) -> int:
    if num_warps > 4 or (itemsize == 2 and elements == _MOST_ELEMENTS):
        return 128
    return FIVE_WARPS if itemsize == 2 and num_warps > 1 else THREE_WARPS


def plan_columns_gradient(inner: int, n_cols: int, itemsize: int, together: int = 1) -> ColumnsPlan:
    """The launch for the gradient of a softmax over n_cols columns that have `inner` neighbours each (`together` as
    above)."""
    if together > 1 and inner <= _MOST_FOLDED and _LEAST_FOLDED <= n_cols * inner <= _MOST_GROUP_BYTES // itemsize:
        return _folded(inner, n_cols, together, _folded_gradient_tile(n_cols * inner, itemsize))
    WIDTH, whole = _width(inner, n_cols, itemsize, _GRADIENT_LINES[itemsize]), next_power_of_2(n_cols)
    one_by_one = inner * itemsize % 16 != 0
    one_tile = whole <= _MOST_NARROW_COLUMNS * (4 if one_by_one else 1) or WIDTH == next_power_of_2(inner)
    if WIDTH * whole <= _MOST_ELEMENTS and one_tile:
        num_warps = max(1, min(16, WIDTH * whole * itemsize // 2048))
        return ColumnsPlan("columns", WIDTH, whole, num_warps, THREE_WARPS if num_warps <= 4 else 128)
    tile = _GroupTile(128 // itemsize, 32768 // itemsize, THREE_WARPS)
    if one_by_one:  # an address for each element
        tile = _GroupTile(32, 2048, 128, 2)
    return _plan_of_groups(inner, n_cols, itemsize, tile, 2, one_by_one, together)


def _width(inner: int, n_cols: int, itemsize: int, lines: tuple[tuple[int, int], ...]) -> int:
    """How many neighbours share a tile: the bytes that `lines` allow, more of few columns, 64 or 32 bytes of many."""
    whole = next_power_of_2(n_cols)
    WIDTH = 0
    for nbytes, most in (*lines, (64, _MOST_ELEMENTS), (32, math.inf)):
        WIDTH = min(next_power_of_2(inner), max(nbytes // itemsize, _LEAST_ELEMENTS // whole))
        if WIDTH * whole <= most:
            break
    return WIDTH


def plan_streamed(inner: int, n_cols: int) -> ColumnsPlan:
    """The launch that reads the columns twice, however many they are."""
    WIDTH = min(64, next_power_of_2(inner))
    return ColumnsPlan("streamed", WIDTH, min(_STREAMED // WIDTH, next_power_of_2(n_cols)), 4)
