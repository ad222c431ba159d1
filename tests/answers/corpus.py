"""Variant answers and right ones for every exercise, as learners write them.

Each wrong one holds one mistake: replacements made in the solution, or code that takes its place, and the name that the
check is to give to it. The right ones are written differently from the solution.
"""

from dataclasses import dataclass


@dataclass(frozen=True)
class Variant:
    """An answer: text replaced in the solution (old, new, old, new, …), or `code` run after it; and the name of its mistake."""

    named: str
    replaced: tuple[str, ...] = ()
    code: str = ""


def _swap(named: str, *replaced: str) -> Variant:
    return Variant(named, replaced)


def _code(named: str, code: str) -> Variant:
    return Variant(named, (), code)


NAIVE = "The maximum is not subtracted."
UNDIVIDED = "Nothing is divided by the sum."
SHAPE = "The result has the wrong shape."
DTYPE = "The result has the wrong dtype."
OVERWRITTEN = "The input is overwritten."
ITSELF = "What comes back is the input itself."
FEWER_DIGITS = "The result passes through a dtype with fewer digits."
POWERS_OF_2 = "Powers of 2 are taken instead of powers of e."
OTHER_THAN_MAXIMUM = "Something other than the maximum is subtracted."
ENDLESS = "The code does not come to an end."
ENDED = "The code ends its own process."
PRINTS = "The code prints without end."
MEMORY = "The code asks for more memory than it may have."
ERROR = "The code stops with an error."
NO_RETURN = "Nothing is returned."
NO_KERNEL = "No kernel is launched."
NOT_FLOAT32 = "The arithmetic is not done in float32."
SMALL_GRID = "The grid has fewer programs than x has rows."
STORES_ROW_0 = "Every program takes row 0."
LOADS_ROW_0 = "Every program loads row 0."
TAIL = "The end of the row is never stored."
BEYOND = "A program reaches beyond its tensor."
ONE_TOO_MANY = "The mask lets one lane too many through."
LOAD_UNMASKED = "A load has no mask."
STORE_UNMASKED = "The store has no mask."
INT32 = "Offsets overflow in 32 bits."
X_STRIDE_FOR_Y = "The input's stride is used for the output."
STRIDES_OF_X = "The result has the strides of x, and the kernel assumes others."
N_AS_STRIDE = "N is taken for the row stride of x."
COLUMN_STRIDE = "The column stride of x is ignored."
CONTIGUOUS = "x is read as if it were contiguous."
EMPTY_ROWS = "A row of only −inf gives numbers."
NAN_LOST = "NaN turns into a number."
PADDED_0 = "Lanes past the end of the row hold 0."
PADDED_LOW = "Lanes past the end hold a large negative number, not −inf."
IN_MAXIMUM = "Lanes past the end take part in the maximum."
IN_SUM = "Lanes past the end take part in the sum."
M_START = "m does not begin at −inf."
L_START = "l does not begin at 0."
M_LAST = "m is the maximum of the last tile."
M_FIRST = "m is the maximum of the first tile."
L_ONE_TILE = "l is the sum of one tile."
TOO_EARLY = "Every tile is divided by the sum so far."
SAME_COLUMNS = "The same columns are taken again and again."
ONE_PASS_ONLY = "The maximum is subtracted in one pass only."
NEVER_RESCALED = "The sum is never rescaled."
WRONG_WAY = "The sum is rescaled the wrong way."
AFTER_ADDING = "The sum is rescaled after the new terms are added."
OLD_MAXIMUM = "The new terms are made with the old maximum."
NEW_RESCALED = "The new terms are rescaled instead of the old ones."
EMPTY_TILE = "A tile of only −inf spoils the row."
M_NOT_KEPT = "m is never kept."
ONLY_16_BIT = "Only 16-bit inputs are wrong."
SKIPS_WORK = "A kernel that skips work gets a time."
RIGHT_REFUSED = "A right kernel is refused."
HOST_TIME = "The host's clock is read, not the GPU's."
FIRST_CALL = "The first call is among those that are timed."
SLOW_RUN = "One slow run moves the result."
MORE_TIMED = "More than the kernel is timed."
WARM_L2 = "The input is still in the L2 cache."
EASY_DATA = "The data are easier than real ones."
NOT_IN_TURNS = "One kernel is timed after the other."
TOGETHER = "All that misleads, together, still does."
SWAPPED = "The two times are swapped."
UNITS = "The times are not in milliseconds."
NO_TIMES = "Something other than two times comes back."
OVERFLOWS = "An exponential overflows."
LARGE = "Only large values are wrong."
ONLY_NAN = "Only rows with NaN or +inf are wrong."
ONLY_STRIDED = "Only tensors with gaps, or transposed ones, are wrong."
ONLY_IDLE = "Only lengths that are no power of two are wrong."
ONLY_REST = "Only lengths that are no multiple of BLOCK are wrong."
ONLY_LONG = "Only rows longer than BLOCK are wrong."
ONLY_MINUS_INF = "Only rows with −inf are wrong."
ONLY_SLICES = "Only rows of several slices are wrong."
SUMS_AS_THEY_ARE = "The sums are added as they are."
OWN_RESCALE = "Every program rescales its own sum alone."
OWN_SOFTMAX = "Every slice is a softmax of its own."
SUM_OF_SLICE = "The row's m stands beside the sum of one slice."
M_OF_SLICE = "The maximum of the program's own slice is subtracted."
OTHER_MAXIMUM = "A maximum other than the row's is subtracted."
LEFT_OUT = "A slice is left out of the merge."
PAIRS_OF_ROW_0 = "Every row takes the pairs of row 0."
OTHER_PAIRS = "The pairs of a row are looked for among those of another."
CHANGED_PLACES = "m and l change places."
NO_SUCH_SLICES = "Slices that the row does not have take part."
NO_SUCH_PAIRS = "Pairs are loaded that the buffer does not have."
EXP_APART = "A maximum is taken out of the exponent."
EMPTY_SLICE = "A slice of only −inf spoils the row."
TORCH = "PyTorch does a part of the kernel's work."
OVER_BUDGET = "The result is right, and the trips to memory are too many."

_LOAD = 'x = tl.load(x_row + cols * x_col_stride, mask=cols < N, other=-float("inf")).to(tl.float32)'
_MAXIMUM_LOOP = f"{_LOAD}\n        m = tl.maximum(m, tl.max(x, axis=0))"
_SUM_LOOP = f"{_LOAD}\n        l += tl.sum"
_IN_TURN = """m, l = -float("inf"), 0.0
    for i in range(tl.num_programs(1)):
        pair = pair_ptr + 2 * (row * tl.num_programs(1) + i)
        m_new = tl.maximum(m, tl.load(pair))
        l = l * tl.exp(m - m_new) + tl.load(pair + 1) * tl.exp(tl.load(pair) - m_new)
        m = m_new"""
_NOWHERE = "\n    while True:\n        pass"

_TURNS = """    for _ in range(30):
        for name, fn in (("mine", mine), ("theirs", theirs)):
"""
_NO_TURNS = """    for name, fn in (("mine", mine), ("theirs", theirs)):
        for _ in range(30):
"""


def _host(elapsed: str) -> Variant:
    return _swap(HOST_TIME, "start = gpu.record()", "start = gpu.now()", "(start, gpu.record())", elapsed,
                 "start.elapsed_time(end) for start, end in", "ms for ms in")  # fmt: skip


def _compare(is_wrong: str) -> Variant:
    return _swap(SKIPS_WORK, "not torch.allclose(mine(x).double(), expected, rtol=1e-4, atol=1e-9)", is_wrong)


WRONG = {
    "eager": {
        "no maximum": _swap(NAIVE, "x - m", "x"),
        "maximum subtracted after exp": _swap(NAIVE, "torch.exp(x - m)", "torch.exp(x) - 0 * m"),
        "one maximum for all": _swap("One maximum is taken for all rows.", "x.max(dim=1, keepdim=True).values", "x.max()"),
        "maximum down the columns": _swap(
            "The maximum is taken down the columns.", "x.max(dim=1, keepdim=True)", "x.max(dim=0, keepdim=True)"
        ),
        "sum down the columns": _swap("The sum is taken down the columns.", "e.sum(dim=1", "e.sum(dim=0"),
        "one sum for all": _swap("One sum is taken for all rows.", "e.sum(dim=1, keepdim=True)", "e.sum()"),
        "no division": _swap(UNDIVIDED, "e / e.sum(dim=1, keepdim=True)", "e"),
        "divided by the maximum": _swap(UNDIVIDED, "e.sum(dim=1, keepdim=True)", "e.max(dim=1, keepdim=True).values"),
        "mean subtracted": _swap(OTHER_THAN_MAXIMUM, "x.max(dim=1, keepdim=True).values", "x.mean(dim=1, keepdim=True)"),
        "minimum subtracted": _swap(OTHER_THAN_MAXIMUM, "x.max(", "x.min("),
        "largest size subtracted": _swap(OTHER_THAN_MAXIMUM, "x.max(", "x.abs().max("),
        "scores cut off": _swap("The scores are cut off instead of shifted.", "x - m", "x.clamp(max=88.0)"),
        "logarithm returned": _swap("The logarithm of the softmax is returned.", "return e /", "return x - m - torch.log("
                                    "e.sum(dim=1, keepdim=True)) + 0 * e /"),
        "powers of 2": _swap(POWERS_OF_2, "torch.exp(", "torch.exp2("),
        "through float16": _swap(FEWER_DIGITS, "return e / e.sum(dim=1, keepdim=True)",
                                 "return (e / e.sum(dim=1, keepdim=True)).half().float()"),
        "float16 comes back": _swap(DTYPE, "torch.exp(x - m)", "torch.exp(x - m).half()"),
        "transposed": _swap(SHAPE, "keepdim=True)\n", "keepdim=True)\n", "return e / e.sum(dim=1, keepdim=True)",
                            "return (e / e.sum(dim=1, keepdim=True)).t()"),
        "input overwritten": _swap(OVERWRITTEN, "e = torch.exp(x - m)", "x -= m\n    e = torch.exp(x)"),
        "result in the input": _swap(OVERWRITTEN, "return e / e.sum(dim=1, keepdim=True)",
                                     "return x.copy_(e / e.sum(dim=1, keepdim=True))"),
        "nothing returned": _swap(NO_RETURN, "return e /", "y = e /"),
        "dimension lost": _swap(SHAPE, "keepdim=True).values", "keepdim=False).values"),
        "maximum cut off": _swap(LARGE, ".values", ".values.clamp(max=100.0)"),
        "endless": _swap(ENDLESS, "    m = x.max", "    while True:\n        pass\n    m = x.max"),
        "exit": _swap(ENDED, "    m = x.max", "    import os\n    os._exit(0)\n    m = x.max"),
        "sys.exit": _swap(ENDED, "    m = x.max", "    raise SystemExit\n    m = x.max"),
        "kill": _swap(ENDED, "    m = x.max", "    import os\n    os.kill(os.getpid(), 9)\n    m = x.max"),
        "prints without end": _swap(PRINTS, "    m = x.max", "    while True:\n        print('here')\n    m = x.max"),
        "memory": _swap(MEMORY, "    m = x.max", "    torch.zeros(2**33)\n    m = x.max"),
    },
    "single_tile": {
        "no maximum": _swap(NAIVE, "x - m", "x"),
        "program_id of the wrong axis": _swap(STORES_ROW_0, "program_id(0)", "program_id(1)"),
        "loads row 0": _swap(LOADS_ROW_0, "load(x_ptr + row * stride", "load(x_ptr"),
        "no division": _swap(UNDIVIDED, "e / l", "e"),
        "row begins one late": _swap(BEYOND, "row * stride + cols)", "row * stride + cols + 1)"),
        "half of the grid": _swap(SMALL_GRID, "[(M,)]", "[((M + 1) // 2,)]"),
        "one program": _swap(SMALL_GRID, "[(M,)]", "[(1,)]"),
        "a tile of part of the row": _swap(TAIL, "BLOCK=N)", "BLOCK=max(1, N // 8))"),
        "through float16": _swap(FEWER_DIGITS, "e / l)", "(e / l).to(tl.float16))"),
        "output overwrites x": _swap(OVERWRITTEN, "torch.empty_like(x)", "x"),
        "input returned": _swap(ITSELF, "return y", "return x"),
        "no kernel": _swap(NO_KERNEL, "return y", "return x.softmax(1)", "softmax_kernel[(M,)]", "False and softmax_kernel[(M,)]"),
        "wrong shape": _swap(SHAPE, "return y", "return y[0]"),
        "float64 comes back": _swap(DTYPE, "return y", "return y.double()"),
        "endless": _swap(ENDLESS, "    M, N = x.shape", "    while True:\n        pass\n    M, N = x.shape"),
    },
    "masked": {
        "no mask on the load": _swap(LOAD_UNMASKED, ', mask=mask, other=-float("inf"))', ")"),
        "no mask on the store": _swap(STORE_UNMASKED, "e / l, mask=mask", "e / l"),
        "no other": _swap(PADDED_0, ', other=-float("inf")', ""),
        "other=0": _swap(PADDED_0, '-float("inf")', "0.0"),
        "other=-1000": _swap(PADDED_LOW, '-float("inf")', "-1000.0"),
        "other=-1e9": _swap(PADDED_LOW, '-float("inf")', "-1e9"),
        "one lane too many": _swap(ONE_TOO_MANY, "cols < N", "cols <= N"),
        "one lane too few": _swap(TAIL, "cols < N", "cols < N - 1"),
        "N as row stride": _swap(N_AS_STRIDE, "row * x_stride", "row * N"),
        "column stride ignored": _swap(COLUMN_STRIDE, "cols * x_col_stride", "cols"),
        "read as contiguous": _swap(CONTIGUOUS, "row * x_stride + cols * x_col_stride", "row * N + cols"),
        "x's stride for y": _swap(X_STRIDE_FOR_Y, "row * y_stride", "row * x_stride"),
        "result like x": _swap(STRIDES_OF_X, "torch.empty(M, N, dtype=x.dtype, device=x.device)", "torch.empty_like(x)"),
        "32-bit offsets": _swap(INT32, "tl.program_id(0).to(tl.int64)", "tl.program_id(0)"),
        "empty rows as zeros": _swap(EMPTY_ROWS, "e / l,", "tl.where(l == l, e / l, 0.0) if False else "
                                     'tl.where(m == -float("inf"), 0.0, e / l),'),
        "guarded maximum": _swap(EMPTY_ROWS, "e = tl.exp(x - m)", 'e = tl.exp(x - tl.where(m == -float("inf"), 0.0, m))',
                                 "e / l", "e / tl.where(l == 0.0, 1.0, l)"),
        "NaN left out": _swap(NAN_LOST, "x = x.to(tl.float32)", 'x = x.to(tl.float32)\n    x = tl.where(x == x, x, -float("inf"))'),
        "padding in the sum": _swap(IN_SUM, '-float("inf"))', "0.0)", "tl.max(x, axis=0)", 'tl.max(tl.where(mask, x, -float("inf")), axis=0)'),
        "padding in the maximum": _swap(IN_MAXIMUM, '-float("inf"))', "0.0)", "tl.exp(x - m)", "tl.where(mask, tl.exp(x - m), 0.0)"),
        "BLOCK too small": _swap(TAIL, "BLOCK=BLOCK)", "BLOCK=max(1, BLOCK // 2))"),
        "program_id of the wrong axis": _swap(STORES_ROW_0, "program_id(0)", "program_id(1)"),
        "one program too few": _swap(SMALL_GRID, "[(M,)]", "[(max(1, M - 1),)]"),
        "float32 comes back": _swap(DTYPE, "dtype=x.dtype", "dtype=torch.float32"),
        "padding 1": _swap(ONLY_IDLE, '-float("inf")', "1.0"),
        "strides multiplied": _swap(ONLY_STRIDED, "row * x_stride", "row * x_stride * x_col_stride"),
        "infinity replaced": _swap(ONLY_NAN, "x = x.to(tl.float32)",
                                   'x = x.to(tl.float32)\n    x = tl.where(x == float("inf"), 1e30, x)'),
        "copied, then torch": _code(TORCH, "from helpers.kernels import copy\n\n\ndef my_softmax(x):\n"
                                    "    return torch.softmax(copy(x), dim=1)"),
        "a copy before": _code(OVER_BUDGET, "from helpers.kernels import single_tile_softmax\n\n\ndef my_softmax(x):\n"
                               "    return single_tile_softmax(x.clone())"),
        "a name misspelt": _swap(ERROR, "tl.exp(x - m)", "tl.exp(x - mm)"),
        "no maximum": _swap(NAIVE, "x - m", "x"),
    },
    "two_pass": {
        "m begins at 0": _swap(M_START, 'm = -float("inf")', "m = 0.0"),
        "m begins at -1000": _swap(M_START, 'm = -float("inf")', "m = -1000.0"),
        "l begins at 1": _swap(L_START, "l = 0.0", "l = 1.0"),
        "maximum of the last tile": _swap(M_LAST, "tl.maximum(m, tl.max(x, axis=0))", "tl.max(x, axis=0)"),
        "maximum of the first tile": _swap(M_FIRST, "m = tl.maximum(m, tl.max(x, axis=0))",
                                           "m = tl.where(start == 0, tl.max(x, axis=0), m)"),
        "sum of the last tile": _swap(L_ONE_TILE, "l += tl.sum", "l = tl.sum"),
        "padding 0 in the maximum": _swap(IN_MAXIMUM, _MAXIMUM_LOOP, _MAXIMUM_LOOP.replace('-float("inf")', "0.0")),
        "padding 0 in the sum": _swap(IN_SUM, _SUM_LOOP, _SUM_LOOP.replace('-float("inf")', "0.0")),
        "padding 0": _swap(PADDED_0, 'N, other=-float("inf")', "N, other=0.0"),
        "full tiles only": _swap(TAIL, "range(0, N, BLOCK)", "range(0, N // BLOCK * BLOCK, BLOCK)"),
        "written too early": _swap(TOO_EARLY, f"axis=0)\n    for start in range(0, N, BLOCK):\n        cols = start + "
                                   f"tl.arange(0, BLOCK).to(tl.int64)\n        {_LOAD}\n        tl.store", "axis=0)\n        tl.store"),
        "no maximum": _swap(NAIVE, "tl.exp(x - m)", "tl.exp(x)"),
        "no maximum in the sum": _swap(ONE_PASS_ONLY, "l += tl.sum(tl.exp(x - m)", "l += tl.sum(tl.exp(x)"),
        "no maximum in the result": _swap(ONE_PASS_ONLY, "tl.exp(x - m) / l", "tl.exp(x) / l"),
        "columns of the first tile": _swap(SAME_COLUMNS, "l = 0.0\n    for start in range(0, N, BLOCK):\n"
                                           "        cols = start +", "l = 0.0\n    for start in range(0, N, BLOCK):\n        cols ="),
        "no mask on the store": _swap(STORE_UNMASKED, "/ l, mask=cols < N", "/ l"),
        "no mask on a load": _swap(LOAD_UNMASKED, _SUM_LOOP, _SUM_LOOP.replace(', mask=cols < N, other=-float("inf")', "")),
        "exp of 16 bits": _swap(NOT_FLOAT32, "tl.exp(x - m)", "tl.exp((x - m).to(x_ptr.dtype.element_ty))"),
        "32-bit offsets": _swap(INT32, ".to(tl.int64)", ""),
        "l in 16 bits": _swap(ONLY_16_BIT, "l += tl.sum(tl.exp(x - m), axis=0)",
                              "l = (l + tl.sum(tl.exp(x - m), axis=0)).to(y_ptr.dtype.element_ty).to(tl.float32)"),
        "result in x": _swap(OVERWRITTEN, "torch.empty(M, N, dtype=x.dtype, device=x.device)", "x"),
        "never ends": _swap(ENDLESS, "    M, N = x.shape", "    while len(x) > 0:\n        M = 0\n    M, N = x.shape"),
        "padding 1": _swap(ONLY_REST, '-float("inf")).to', "1.0).to"),
        "−inf replaced": _swap(ONLY_MINUS_INF, "tl.exp(x - m)",
                               'tl.exp(tl.where((x == -float("inf")) & (cols < N), m - 5.0, x) - m)'),
        "loads four times": _swap(OVER_BUDGET, "    l = 0.0\n", "    l = 0.0\n    for start in range(0, N, BLOCK):\n"
                                  "        cols = start + tl.arange(0, BLOCK).to(tl.int64)\n"
                                  f"        {_LOAD}\n        m = tl.maximum(m, tl.max(x, axis=0))\n"),
        "exponentials stored": _swap(OVER_BUDGET, "l += tl.sum(tl.exp(x - m), axis=0)", "l += tl.sum(tl.exp(x - m), axis=0)\n"
                                     "        tl.store(y_row + cols, tl.exp(x - m), mask=cols < N)"),
    },
    "online": {
        "no maximum": _swap(NAIVE, "m_new = tl.maximum(m, tl.max(x, axis=0))", "m_new = 0.0 * tl.maximum(m, 0.0)"),
        "m begins at 0": _swap(M_START, 'm, shift, l = -float("inf"), 0.0, 0.0', "m, shift, l = 0.0, 0.0, 0.0"),
        "padding 0": _swap(PADDED_0, 'N, other=-float("inf")).to(tl.float32)\n        m_new', "N, other=0.0).to(tl.float32)\n        m_new"),
        "maximum of the first tile": _swap(M_FIRST, "m_new = tl.maximum(m, tl.max(x, axis=0))",
                                           "m_new = tl.where(start == 0, tl.max(x, axis=0), m)"),
        "never rescaled": _swap(NEVER_RESCALED, "l * tl.exp(m - shift) +", "l +"),
        "row stride ignored": _swap(N_AS_STRIDE, "row * x_stride", "row * N"),
        "through float16": _swap(FEWER_DIGITS, "tl.exp(x - shift) / l,", "(tl.exp(x - shift) / l).to(tl.float16),"),
        "maximum of the last tile": _swap(M_LAST, "tl.maximum(m, tl.max(x, axis=0))", "tl.max(x, axis=0)"),
        "rescaled the wrong way": _swap(WRONG_WAY, "tl.exp(m - shift)", "tl.exp(shift - m)"),
        "rescaled after adding": _swap(AFTER_ADDING, "l * tl.exp(m - shift) + tl.sum(tl.exp(x - shift), axis=0)",
                                       "(l + tl.sum(tl.exp(x - shift), axis=0)) * tl.exp(m - shift)"),
        "terms with the old maximum": _swap(OLD_MAXIMUM, "tl.sum(tl.exp(x - shift)", "tl.sum(tl.exp(x - m)"),
        "powers of 2": _swap(POWERS_OF_2, "tl.exp(", "tl.exp2("),
        "powers of 2 in the sum": _swap(POWERS_OF_2, "tl.sum(tl.exp(x - shift)", "tl.sum(tl.exp2(x - shift)"),
        "textbook": _swap(EMPTY_TILE, 'tl.where(m_new == -float("inf"), 0.0, m_new)', "m_new"),
        "divided before the last rescale": _swap(
            TOO_EARLY, "tl.store(y_row + cols, tl.exp(x - shift) / l, mask=cols < N)", "pass",
            "m = m_new", "m = m_new\n        tl.store(y_row + cols, tl.exp(x - shift) / l, mask=cols < N)"),
        "empty rows as zeros": _swap(EMPTY_ROWS, "tl.exp(x - shift) / l,", "tl.exp(x - shift) / tl.where(l == 0.0, 1.0, l),"),
        "NaN left out": _swap(NAN_LOST, ".to(tl.float32)\n        m_new", ".to(tl.float32)\n        x = tl.where(x == x, x, "
                              '-float("inf"))\n        m_new', ".to(tl.float32)\n        tl.store", ".to(tl.float32)\n        "
                              'x = tl.where(x == x, x, -float("inf"))\n        tl.store'),
        "new terms rescaled": _swap(NEW_RESCALED, "l * tl.exp(m - shift) + tl.sum(tl.exp(x - shift), axis=0)",
                                    "l + tl.sum(tl.exp(x - shift), axis=0) * tl.exp(m - shift)"),
        "m replaced too early": _swap(NEVER_RESCALED, "        l = l * tl.exp(m - shift)", "        m = m_new\n        l = l * tl.exp("
                                      'tl.where(m == -float("inf"), 0.0, m) - shift)'),
        "m never kept": _swap(M_NOT_KEPT, "m = m_new", "pass"),
        "l is that of the last tile": _swap(L_ONE_TILE, "l = l * tl.exp(m - shift) + tl.sum", "l = tl.sum"),
        "no mask on the load": _swap(LOAD_UNMASKED, ', mask=cols < N, other=-float("inf")).to(tl.float32)\n        m_new',
                                     ").to(tl.float32)\n        m_new"),
        "columns of the first tile": _swap(SAME_COLUMNS, f"{_LOAD}\n        m_new", "cols = tl.arange(0, BLOCK).to(tl.int64)\n"
                                           f"        {_LOAD}\n        m_new"),
        "no division": _swap(UNDIVIDED, "tl.exp(x - shift) / l", "tl.exp(x - shift)"),
        "old sum halved": _swap(ONLY_LONG, "l * tl.exp(m - shift)", "l * 0.5 * tl.exp(m - shift)"),
        "three loads": _code(OVER_BUDGET, "from helpers.kernels import two_pass_softmax\n\n\ndef my_softmax(x):\n"
                             "    return two_pass_softmax(x, BLOCK=512)"),
    },
    "split_row": {
        "sums added": _swap(SUMS_AS_THEY_ARE, "l_parts * tl.exp(m_parts - shift)", "l_parts"),
        "rescaled the wrong way": _swap(WRONG_WAY, "tl.exp(m_parts - shift)", "tl.exp(shift - m_parts)"),
        "rescaled the wrong way, empty slices guarded": _swap(
            WRONG_WAY, "l_parts * tl.exp(m_parts - shift)", "tl.where(l_parts == 0.0, 0.0, l_parts * tl.exp(shift - m_parts))"),
        "its own sum rescaled": _swap(OWN_RESCALE, "tl.sum(l_parts * tl.exp(m_parts - shift), axis=0)",
                                      "tl.sum(l_parts, axis=0) * tl.exp(tl.load(pair_ptr + 2 * (row * tl.num_programs(1) + part)) - shift)"),
        "a softmax of each slice": _swap(OWN_SOFTMAX, "exists = parts < tl.num_programs(1)", "exists = parts == part"),
        "sum of the own slice": _swap(SUM_OF_SLICE, "tl.sum(l_parts * tl.exp(m_parts - shift), axis=0)",
                                      "tl.sum(tl.where(parts == part, l_parts, 0.0), axis=0)"),
        "sum of the own slice, rescaled": _swap(SUM_OF_SLICE, "l_parts * tl.exp(m_parts - shift)",
                                                "tl.where(parts == part, l_parts * tl.exp(m_parts - shift), 0.0)"),
        "maximum of the own slice": _swap(M_OF_SLICE, "tl.sum(l_parts * tl.exp(m_parts - shift), axis=0)",
                                          "tl.sum(l_parts * tl.exp(m_parts - shift), axis=0)\n    shift = tl.load("
                                          "pair_ptr + 2 * (row * tl.num_programs(1) + part))"),
        "maximum of the first slice": _swap(OTHER_MAXIMUM, "m = tl.max(m_parts, axis=0)",
                                            "m = tl.load(pair_ptr + 2 * row * tl.num_programs(1))"),
        "everything relative to the own slice": _swap(OTHER_MAXIMUM, "m = tl.max(m_parts, axis=0)",
                                                      "m = tl.load(pair_ptr + 2 * (row * tl.num_programs(1) + part))"),
        "minimum": _swap(OTHER_MAXIMUM, "m = tl.max(m_parts, axis=0)",
                         'm = tl.min(tl.where(exists, m_parts, float("inf")), axis=0)'),
        "last slice missing": _swap(LEFT_OUT, "exists = parts < tl.num_programs(1)", "exists = parts < tl.num_programs(1) - 1"),
        "first slice missing": _swap(LEFT_OUT, "exists = parts < tl.num_programs(1)",
                                     "exists = (parts > 0) & (parts < tl.num_programs(1))"),
        "a power of two too small": _swap(LEFT_OUT, "PARTS = triton.next_power_of_2(grid[1])",
                                          "PARTS = 1 << (grid[1].bit_length() - 1)"),
        "pairs of row 0": _swap(PAIRS_OF_ROW_0, "2 * (row * tl.num_programs(1) + parts)", "2 * parts"),
        "PARTS pairs a row": _swap(NO_SUCH_PAIRS, "2 * (row * tl.num_programs(1) + parts)", "2 * (row * PARTS + parts)"),
        "one number a pair": _swap(OTHER_PAIRS, "2 * (row * tl.num_programs(1) + parts)", "row * tl.num_programs(1) + parts"),
        "rows next to each other": _swap(OTHER_PAIRS, "2 * (row * tl.num_programs(1) + parts)", "2 * (row + parts * tl.num_programs(0))"),
        "rows of one number a pair": _swap(OTHER_PAIRS, "2 * (row * tl.num_programs(1) + parts)", "row * tl.num_programs(1) + 2 * parts"),
        "m and l changed": _swap(CHANGED_PLACES, 'tl.load(pairs, mask=exists, other=-float("inf"))',
                                 'tl.load(pairs + 1, mask=exists, other=-float("inf"))', "tl.load(pairs + 1, mask=exists, other=0.0)",
                                 "tl.load(pairs, mask=exists, other=0.0)"),
        "m of no slice 0": _swap(NO_SUCH_SLICES, 'mask=exists, other=-float("inf")', "mask=exists"),
        "pairs not masked": _swap(NO_SUCH_PAIRS, ', mask=exists, other=-float("inf")', "", ", mask=exists, other=0.0", ""),
        "one pair too many": _swap(NO_SUCH_PAIRS, "parts < tl.num_programs(1)", "parts <= tl.num_programs(1)",
                                   "PARTS = triton.next_power_of_2(grid[1])", "PARTS = 2 * triton.next_power_of_2(grid[1])"),
        "exp of the maxima": _swap(EXP_APART, "tl.sum(l_parts * tl.exp(m_parts - shift), axis=0)",
                                   "tl.sum(l_parts * tl.exp(m_parts), axis=0) / tl.exp(shift)"),
        "merged in turn, not guarded": _swap(EMPTY_SLICE, "l = tl.sum(l_parts * tl.exp(m_parts - shift), axis=0)", _IN_TURN),
        "no maximum": _swap(NAIVE, 'shift = tl.where(m == -float("inf"), 0.0, m)', "shift = 0.0"),
        "powers of 2": _swap(POWERS_OF_2, "tl.exp(x - shift)", "tl.exp2(x - shift)", "tl.exp(x - tl", "tl.exp2(x - tl", "tl.exp(m_parts", "tl.exp2(m_parts"),
        "no division": _swap(UNDIVIDED, "tl.exp(x - shift) / l", "tl.exp(x - shift)"),
        "empty rows as zeros": _swap(EMPTY_ROWS, "tl.exp(x - shift) / l", "tl.exp(x - shift) / tl.where(l == 0.0, 1.0, l)"),
        "the last sum counts twice": _swap(ONLY_SLICES, "l_parts * tl.exp(m_parts - shift)",
                                           "l_parts * tl.exp(m_parts - shift) * tl.where((parts > 0) & (parts == tl.num_programs(1) - 1), 2.0, 1.0)"),
        "the row read again": _code(OVER_BUDGET, "from helpers.kernels import two_pass_softmax\n\n\ndef my_softmax(x):\n"
                                    "    return two_pass_softmax(x, BLOCK=512)"),
        "loops for ever": _swap(ENDLESS, "    M, N = x.shape", "    while True:\n        pass\n    M, N = x.shape"),
    },
    "merge": {
        "sums added": _swap("The sums are added as they are.",
                            "l_a * math.exp(m_a - m) + l_b * math.exp(m_b - m)", "l_a + l_b"),
        "left maximum kept": _swap("One of the two maxima is kept, larger or not.", "max(m_a, m_b)", "m_a"),
        "smaller maximum": _swap("One of the two maxima is kept, larger or not.", "max(m_a, m_b)", "min(m_a, m_b)"),
        "left only rescaled": _swap("Only one of the sums is rescaled.", "l_b * math.exp(m_b - m)", "l_b"),
        "right only rescaled": _swap("Only one of the sums is rescaled.", "l_a * math.exp(m_a - m)", "l_a"),
        "wrong way": _swap("The sums are rescaled the wrong way.", "math.exp(m_a - m)", "math.exp(m - m_a)",
                           "math.exp(m_b - m)", "math.exp(m - m_b)"),
        "wrong way, without an error": _swap("The sums are rescaled the wrong way.", "math.exp(m_a - m)",
                                             "math.exp(min(m - m_a, 700))", "math.exp(m_b - m)", "math.exp(min(m - m_b, 700))"),
        "factors swapped": _swap("Each sum takes the factor of the other.", "l_a * math.exp(m_a - m) + l_b",
                                 "l_b * math.exp(m_a - m) + l_a"),
        "two empty parts": _swap("Two empty parts give NaN.", "if m == -INF", "if False"),
        "only the maximum": _swap("Something other than a pair (m, l) comes back.", "return m, l_a *", "return m + 0 * l_a *"),
        "exp of the sum": _swap(OVERFLOWS, "math.exp(m_a - m)", "math.exp(m_a + abs(m))"),
        "endless": _swap(ENDLESS, "    m = max", "    while True:\n        pass\n    m = max"),
    },
    "occupancy": {
        "no portions": _swap("A warp's registers are not rounded up to whole portions.", "-(-32 * registers // 256) * 256", "32 * registers"),
        "one piece": _swap("The SM is taken as one piece.", "4 * min(16, 16384 // warp_registers)", "min(64, 65536 // warp_registers)"),
        "one thread": _swap("A warp's registers come out far too few.", "-32 * registers", "-registers"),
        "portions counted": _swap("A warp's registers come out far too few.", "// 256) * 256", "// 256)"),
        "occupancy": _swap("The occupancy is returned instead of the programs.", "min(32, warps // num_warps)", "warps / 64"),
        "occupancy of whole programs": _swap("The occupancy is returned instead of the programs.",
                                             "min(32, warps // num_warps)", "min(32, warps // num_warps) * num_warps / 64"),
        "no portions, no end of programs": _swap("A warp's registers are not rounded up to whole portions.",
                                                 "-(-32 * registers // 256) * 256", "32 * registers",
                                                 "min(32, warps // num_warps)", "warps // num_warps"),
        "one thread, no portions": _swap("A warp's registers come out far too few.",
                                         "-(-32 * registers // 256) * 256", "registers"),
        "no end of warps": _swap("More warps than an SM has places for.", "min(16, 16384 // warp_registers)", "(16384 // warp_registers)"),
        "no end of programs": _swap("More programs than an SM takes.", "min(32, warps // num_warps)", "warps // num_warps"),
        "parts of a program": _swap("A part of a program is counted.", "warps // num_warps", "warps / num_warps"),
        "warps": _swap("Warps are returned instead of programs.", "min(32, warps // num_warps)", "warps"),
        "warps of whole programs": _swap("Warps are returned instead of programs.", "min(32, warps // num_warps)",
                                         "min(32, warps // num_warps) * num_warps"),
        "a division by zero": _swap(ERROR, "16384 // warp_registers", "16384 // (warp_registers - 1280)"),
        "exit": _swap(ENDED, "    warps = 4", "    import os\n    os._exit(3)\n    warps = 4"),
    },
    "my_pick": {
        "a tuple of two": _swap("Something other than a Launch comes back.", 'return Launch("online", 8192, 16)', 'return "online", 8192'),
        "tile of n_cols": _swap("The launch is none of the candidates.", "BLOCK = tile(n_cols)", "BLOCK = n_cols"),
        "3 warps": _swap("The launch is none of the candidates.", 'Launch("online", 8192, 16)', 'Launch("online", 8192, 3)'),
        "textbook": _code("This is the textbook's rule.", "from helpers.choosing.rules import textbook\n\n\n"
                          "def my_pick(n_cols, n_rows, dtype):\n    return textbook(n_cols)"),
        "few rows": _swap("Few long rows are left to one program each.", "if n_rows <= 64 and n_cols > 8192", "if False"),
        "split, however many": _swap("Rows are split though there are enough of them, or too short.", "n_rows <= 64 and n_cols > 8192", "n_cols > 4096"),
        "short rows": _swap("Short rows have a program each.", "if n_rows > 64 and n_cols <= 512", "if False"),
        "32 warps": _swap("Threads have too little to do.", "min(32, max(1, BLOCK // 512))", "32"),
        "2 warps": _swap("Tiles are held by too few warps.", "min(32, max(1, BLOCK // 512))", "max(2, BLOCK // 8192)"),
        "streamed from 8192 on": _swap("Rows are streamed that fit into a tile.", "if n_cols <= 32768", "if n_cols <= 8192"),
        "streamed in two passes": _swap("Rows are streamed that fit into a tile.", "if n_cols <= 32768", "if n_cols <= 8192",
                                        'Launch("online", 8192, 16)', 'Launch("two-pass", 8192, 16)'),
        "a tile as long as it goes": _swap("Tiles are longer than the registers.", "if n_cols <= 32768", "if n_cols <= 131072"),
        "pick": _code("The launches are looked up in the record.", "from helpers.choosing.rules import pick\n\n\n"
                      "def my_pick(n_cols, n_rows, dtype):\n    return pick(n_cols, n_rows, dtype).launch"),
        "the record": _code("The launches are looked up in the record.", "def my_pick(n_cols, n_rows, dtype):\n"
                            "    return recorded.nearest(n_cols, n_rows, dtype).best"),
        "a choice": _code("Something other than a Launch comes back.", "from helpers.choosing.rules import pick\n\n\n"
                          "def my_pick(n_cols, n_rows, dtype):\n    return pick(n_cols, n_rows, dtype)"),
        "an error": _swap(ERROR, "BLOCK = tile(n_cols)", "BLOCK = tile(n_rows / n_cols)"),
        "no return": _swap(NO_RETURN, 'return Launch("online", 8192, 16)', 'Launch("online", 8192, 16)'),
    },
    "recurrence": {
        "never rescaled": _swap(NEVER_RESCALED, "l * math.exp(m - m_new) +", "l +"),
        "maximum of the block": _swap(M_LAST.replace("tile", "block"), "max(m, max(block))", "max(block)"),
        "m never kept": _swap(M_NOT_KEPT, "m = m_new", "pass"),
        "l of the last block": _swap("l is the sum of the last block.", "l * math.exp(m - m_new) +", ""),
        "after adding": _swap(AFTER_ADDING, "l * math.exp(m - m_new) + sum(math.exp(x - m_new) for x in block)",
                              "(l + sum(math.exp(x - m_new) for x in block)) * math.exp(m - m_new)"),
        "wrong way": _swap(WRONG_WAY, "math.exp(m - m_new)", "(math.exp(m_new - m) if m > -INF else 0.0)"),
        "no maximum": _swap(NAIVE, "math.exp(x - m_new)", "math.exp(x)"),
        "something added": _swap(OVERFLOWS, "math.exp(x - m_new)", "math.exp(x + 800)"),
        "exit": _swap(ENDED, "    m, l = -INF, 0.0", "    import os\n    os._exit(3)\n    m, l = -INF, 0.0"),
    },
    "benchmark": {
        "checked, then zeros": _swap(EASY_DATA, "    theirs(x)\n", "    x = torch.zeros_like(x)\n    mine(x), theirs(x)\n"),
        "0.1 * randn": _swap(EASY_DATA, "torch.randn(gpu.shape, device=gpu.device)\n    expected = torch.softmax",
                             "0.1 * torch.randn(gpu.shape, device=gpu.device)\n    expected = torch.softmax"),
        "zeros": _swap(SKIPS_WORK, "torch.randn(gpu.shape", "torch.zeros(gpu.shape"),
        "no flush": _swap(WARM_L2, "gpu.flush()", "pass"),
        "flushed once": _swap(WARM_L2, "            gpu.flush()\n", "", "    theirs(x)\n", "    theirs(x)\n    gpu.flush()\n"),
        "mean": _swap(SLOW_RUN, "statistics.median", "statistics.mean"),
        "one run": _swap(SLOW_RUN, "range(30)", "range(1)"),
        "the worst": _swap(SLOW_RUN, "statistics.median", "max"),
        "mine, then theirs": _swap(NOT_IN_TURNS, _TURNS, _NO_TURNS),
        "a copy under the clock": _swap(MORE_TIMED, "            fn(x)\n", "            torch.empty_like(x).copy_(fn(x))\n"),
        "the data made under the clock": _swap(MORE_TIMED, "            fn(x)\n", "            fn(torch.randn_like(x))\n"),
        "host time": _host("gpu.now() - start"),
        "host time, waited for": _host("(gpu.synchronize(), gpu.now())[1] - start"),
        "a new shape in every run": _swap(FIRST_CALL, "in range(30)", "in range(30, 0, -1)", "for _ in", "for rows in",
                                          "            fn(x)\n", "            fn(x[:, rows:])\n"),
        "no warm-up, and the mean": _swap(FIRST_CALL, "    theirs(x)\n", "", "statistics.median", "statistics.mean"),
        "no warm-up, the mean, warm": _swap(FIRST_CALL, "    theirs(x)\n", "", "statistics.median", "statistics.mean",
                                            "gpu.flush()", "pass"),
        "never compared": _swap(SKIPS_WORK, "if not torch.allclose", "if False and torch.allclose"),
        "compared with itself": _swap(SKIPS_WORK, "mine(x).double(), expected", "mine(x), mine(x)"),
        "largest difference below 0.02": _compare("(mine(x) - expected).abs().max() > 0.02"),
        "NaN lets through": _compare("(mine(x) - expected).norm() > 1e-3 * expected.norm()"),
        "two rows compared": _compare("not torch.allclose(mine(x)[:2].double(), expected[:2])"),
        "sums of the rows": _compare("not torch.allclose(mine(x).nansum(dim=1), torch.ones(len(x)), atol=0.9)"),
        "equal to the last bit": _swap(RIGHT_REFUSED, "torch.allclose(mine(x).double(), expected, rtol=1e-4, atol=1e-9)",
                                       "torch.equal(mine(x), theirs(x))"),
        "theirs first": _swap(SWAPPED, "for name in marks)", "for name in reversed(marks))"),
        "seconds": _swap(UNITS, "statistics.median(", "1e-3 * statistics.median("),
        "microseconds": _swap(UNITS, "statistics.median(", "1e3 * statistics.median("),
        "only the ratio": _swap(NO_TIMES, "return tuple", "a, b = tuple", "in marks)\n", "in marks)\n    return b / a\n"),
        "synchronized before the second mark": _swap(HOST_TIME, "            marks[name]", "            gpu.synchronize()\n            marks[name]"),
        "not synchronized": _swap(ERROR, "    gpu.synchronize()\n", ""),
        "as many as fit into 50 ms": _swap(TOGETHER, "x = torch.randn", "began = gpu.now()\n    x = torch.randn",
                                          "for _ in range(30):", "for n in range(500):\n        if n and gpu.now() - began > 50:\n"
                                          "            break"),
        "endless": _swap(ENDLESS, "for _ in range(30)", "while True"),
        "exit": _swap(ENDED, "    gpu.synchronize()\n", "    raise SystemExit\n"),
    },
}  # fmt: skip

_KERNEL = """
@triton.jit
def kernel(y_ptr, x_ptr, y_stride, x_stride, x_col_stride, M, N, BLOCK: tl.constexpr, ROWS: tl.constexpr):
"""
_DRIVER = """

def my_softmax(x):
    M, N = x.shape
    y = torch.empty(M, N, dtype=x.dtype, device=x.device)
    BLOCK = {block}
    kernel[{grid}](y, x, y.stride(0), x.stride(0), x.stride(1), M, N, BLOCK=BLOCK, ROWS=4, num_warps={warps})
    return y
"""


def _kernel(body: str, block: str = "triton.next_power_of_2(N)", grid: str = "(M,)", warps: int = 4) -> Variant:
    lines = "".join(f"    {line}\n" for line in body.strip("\n").splitlines())
    return _code("", _KERNEL + lines + _DRIVER.format(block=block, grid=grid, warps=warps))


def _ours(call: str) -> Variant:
    return _code(
        "", f"from helpers.kernels import *\nfrom helpers import kernels\n\n\ndef my_softmax(x):\n    return {call}"
    )


_SEVERAL_ROWS = """
rows = (tl.program_id(0) * ROWS + tl.arange(0, ROWS)).to(tl.int64)
cols = tl.arange(0, BLOCK).to(tl.int64)
mask = (rows < M)[:, None] & (cols < N)[None, :]
x = tl.load(x_ptr + rows[:, None] * x_stride + cols[None, :] * x_col_stride, mask=mask, other=-float("inf")).to(tl.float32)
e = tl.exp(x - tl.max(x, axis=1)[:, None])
tl.store(y_ptr + rows[:, None] * y_stride + cols[None, :], e / tl.sum(e, axis=1)[:, None], mask=mask)
"""
_PERSISTENT = """
cols = tl.arange(0, BLOCK).to(tl.int64)
for row in range(tl.program_id(0), M, tl.num_programs(0)):
    row = tl.cast(row, tl.int64)
    x = tl.load(x_ptr + row * x_stride + cols * x_col_stride, mask=cols < N, other=-float("inf")).to(tl.float32)
    e = tl.exp(x - tl.max(x, axis=0))
    tl.store(y_ptr + row * y_stride + cols, e / tl.sum(e, axis=0), mask=cols < N)
"""
_PER_LANE = """
row = tl.program_id(0).to(tl.int64)
lanes = tl.arange(0, BLOCK).to(tl.int64)
m = tl.full((BLOCK,), -float("inf"), tl.float32)
l = tl.zeros((BLOCK,), tl.float32)
for start in range(0, N, BLOCK):
    x = tl.load(x_ptr + row * x_stride + (start + lanes) * x_col_stride, mask=start + lanes < N, other=-float("inf"))
    x = x.to(tl.float32)
    m_new = tl.where(x > m, x, m)
    m_new = tl.where(x == x, m_new, x)
    shift = tl.where(m_new == -float("inf"), 0.0, m_new)
    l = l * tl.exp(m - shift) + tl.exp(x - shift)
    m = m_new
top = tl.max(m, axis=0)
l = tl.sum(l * tl.exp(m - tl.where(top == -float("inf"), 0.0, top)), axis=0)
for start in range(0, N, BLOCK):
    x = tl.load(x_ptr + row * x_stride + (start + lanes) * x_col_stride, mask=start + lanes < N).to(tl.float32)
    tl.store(y_ptr + row * y_stride + start + lanes, tl.exp(x - top) / l, mask=start + lanes < N)
"""
_BACKWARDS = """
row = tl.program_id(0).to(tl.int64)
lanes = tl.arange(0, BLOCK).to(tl.int64)
m, l = -float("inf"), 0.0
for step in range(0, tl.cdiv(N, BLOCK)):
    cols = (tl.cdiv(N, BLOCK) - 1 - step) * BLOCK + lanes
    x = tl.load(x_ptr + row * x_stride + cols * x_col_stride, mask=cols < N, other=-float("inf")).to(tl.float32)
    m_new = tl.maximum(m, tl.max(x, axis=0))
    rescale = tl.where(m_new == m, 1.0, tl.exp(m - m_new))
    l = l * rescale + tl.sum(tl.where(x == -float("inf"), 0.0, tl.exp(x - m_new)), axis=0)
    m = m_new
for start in range(0, N, BLOCK):
    cols = start + lanes
    x = tl.load(x_ptr + row * x_stride + cols * x_col_stride, mask=cols < N, other=-float("inf")).to(tl.float32)
    tl.store(y_ptr + row * y_stride + cols, tl.exp(x - m) / l, mask=cols < N)
"""
_CEIL_DIV = "min(512, triton.next_power_of_2(N))"

RIGHT = {
    "eager": {
        "torch's own": _code("", "def my_softmax(x):\n    return torch.softmax(x, dim=1)"),
        "logsumexp": _code("", "def my_softmax(x):\n    return torch.exp(x - torch.logsumexp(x, dim=1, keepdim=True))"),
        "amax, and the last dimension": _swap("", "x.max(dim=1, keepdim=True).values", "x.amax(-1, keepdim=True)"),
    },
    "single_tile": {
        "exp2": _swap("", "tl.exp(x - m)", "tl.exp2((x - m) * 1.4426950408889634)"),
        "one reciprocal": _swap("", "e / l", "e * (1.0 / l)"),
        "8 warps": _swap("", "BLOCK=N)", "BLOCK=N, num_warps=8)"),
        "m and l in one line each": _swap("", "e / l", "tl.exp(x - tl.max(x, axis=0)) / tl.sum(e, axis=0)"),
    },
    "masked": {
        "a 2-D tile of four rows": _kernel(_SEVERAL_ROWS, grid="(triton.cdiv(M, 4),)"),
        "a persistent loop": _kernel(_PERSISTENT, grid="(min(M, 2),)", warps=2),
        "masked afterwards": _swap("", 'other=-float("inf"))', "other=0.0)", "x = x.to(tl.float32)",
                                   'x = tl.where(mask, x, -float("inf")).to(tl.float32)'),
        "float32 by tl.max alone": _swap("", "x = x.to(tl.float32)", "pass"),
        "a tile twice as long": _swap("", "BLOCK=BLOCK)", "BLOCK=2 * BLOCK)"),
        "the course's persistent kernel": _ours("kernels.persistent_softmax(x)"),
    },
    "two_pass": {
        "BLOCK 128": _swap("", "BLOCK=512", "BLOCK=128"),
        "BLOCK 1024, 8 warps": _swap("", "BLOCK=512, num_warps=4", "BLOCK=1024, num_warps=8"),
        "the online recurrence": _ours("kernels.online_softmax(x, BLOCK=512)"),
        "a single tile": _ours("kernels.single_tile_softmax(x)"),
        "statistics per lane": _kernel(_PER_LANE, _CEIL_DIV),
        "exp2": _swap("", "tl.exp(x - m)", "tl.exp2((x - m) * 1.4426950408889634)"),
        "float32 by tl.max alone": _swap("", ".to(tl.float32)", ""),
    },
    "online": {
        "BLOCK 2048, 8 warps": _swap("", "BLOCK=512, num_warps=4", "BLOCK=2048, num_warps=8"),
        "statistics per lane": _kernel(_PER_LANE, _CEIL_DIV),
        "backwards, guarded otherwise": _kernel(_BACKWARDS, _CEIL_DIV),
        "exp2": _swap("", "tl.exp(m - shift)", "tl.exp2((m - shift) * 1.4426950408889634)",
                      "tl.exp(x - shift)", "tl.exp2((x - shift) * 1.4426950408889634)"),
        "l begins at 1, which the first rescale removes": _swap("", '-float("inf"), 0.0, 0.0', '-float("inf"), 0.0, 1.0'),
        "a single tile": _ours("kernels.single_tile_softmax(x)"),
    },
    "split_row": {
        "BLOCK 1024, 8 warps": _swap("", "BLOCK=512, num_warps=4", "BLOCK=1024, num_warps=8"),
        "exp2": _swap("", "tl.exp(m_parts - shift)", "tl.exp2((m_parts - shift) * 1.4426950408889634)"),
        "merged in turn": _swap("", "l = tl.sum(l_parts * tl.exp(m_parts - shift), axis=0)",
                                _IN_TURN.replace("tl.exp(m - m_new)", "tl.exp(m - shift)").replace(
                                    "m_new = tl.maximum(m, tl.load(pair))", "m_new = shift").replace("m, l = ", "m, l = shift, 0.0  # ")),
        "a maximum not guarded": _swap("", 'shift = tl.where(m == -float("inf"), 0.0, m)', "shift = m"),
        "lanes past the last masked afterwards": _swap(
            "", 'mask=exists, other=-float("inf"))', 'mask=exists)\n    m_parts = tl.where(exists, m_parts, -float("inf"))'),
        "PARTS twice as large": _swap("", "PARTS = triton.next_power_of_2(grid[1])", "PARTS = 2 * triton.next_power_of_2(grid[1])"),
        "the course's": _ours("kernels.split_row_softmax(x, BLOCK=512)"),
    },
    "merge": {
        "the larger one first": _code("", "def merge(a, b):\n    (m, l), (m_b, l_b) = sorted((a, b), reverse=True)\n"
                                      "    return (m, l) if m_b == -INF else (m, l + l_b * math.exp(m_b - m))"),
        "a list": _swap("", "return m, l_a", "return [m, l_a", "math.exp(m_b - m)", "math.exp(m_b - m)]"),
    },
    "recurrence": {
        "element by element": _code("", "def statistics(blocks):\n    m, l = -INF, 0.0\n    for x in sum(blocks, []):\n"
                                    "        m, l = max(m, x), l * math.exp(m - max(m, x)) + math.exp(x - max(m, x))\n"
                                    "    return m, l"),
    },
    "benchmark": {
        "many matrices in turn": _swap("", "            gpu.flush()\n", "            x = xs[sum(map(len, marks.values())) % 10]\n",
                                       "    theirs(x)\n", "    theirs(x)\n    xs = [torch.randn_like(x) for _ in range(10)]\n"),
        "a flush of one's own": _swap("", "    theirs(x)\n", "    theirs(x)\n    cache = torch.empty(2**28, dtype=torch.int8, device=gpu.device)\n",
                                      "gpu.flush()", "cache.zero_()"),
        "synchronized after every run": _swap("", "(start, gpu.record()))\n", "(start, gpu.record()))\n            gpu.synchronize()\n"),
        "assert_close": _swap("", "    if not torch.allclose(mine(x).double(), expected, rtol=1e-4, atol=1e-9):\n"
                              '        raise ValueError("mine is wrong")',
                              "    torch.testing.assert_close(mine(x).double(), expected, rtol=1e-4, atol=1e-9)"),
        "compared with theirs": _swap("", "torch.softmax(x.double(), dim=1)", "theirs(x).double()"),
        "an error that NaN does not pass": _swap("", "not torch.allclose(mine(x).double(), expected, rtol=1e-4, atol=1e-9)",
                                                 "not ((mine(x) - expected).norm() < 1e-4 * expected.norm())"),
        "the fastest": _swap("", "statistics.median", "min"),
        "torch's median": _swap("", "statistics.median(start.elapsed_time(end) for start, end in marks[name])",
                                "torch.tensor([start.elapsed_time(end) for start, end in marks[name]]).median().item()"),
        "7 runs": _swap("", "range(30)", "range(7)"),
        "300 runs": _swap("", "range(30)", "range(300)"),
        "there and back": _swap("", '(("mine", mine), ("theirs", theirs)):',
                                '(("mine", mine), ("theirs", theirs), ("theirs", theirs), ("mine", mine)):'),
        "scores as a model's": _swap("", "torch.randn(gpu.shape", "3 * torch.randn(gpu.shape"),
        "the course's": _code("", "benchmark = lies.benchmark"),
    },
}  # fmt: skip
