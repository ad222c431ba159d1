"""Variant answers and right ones for every exercise, as learners write them.

Each wrong one holds one mistake: replacements made in the solution, or code that takes its place, and the id of the
mistake that the check is to name. The edits by which a check knows a mistake are among them; what is listed here are
other mistakes, and other wordings. The right ones are written differently from the solution.
"""

from dataclasses import replace

import wrong_attention
import wrong_decode
import wrong_logits
import wrong_losses
import wrong_operators
import wrong_picks
import wrong_ranks
from helpers.check import EXERCISES
from helpers.check.mistakes.edited import Edited
from natural import NATURAL
from newcomers import NEWCOMERS
from stopping import STOPPING, TOLD_APART
from variants import Variant
from variants import coded as _code
from variants import swapped as _swap

_LOAD = 'x = tl.load(x_row + cols.to(tl.int64) * x_col_stride, mask=cols < N, other=-float("inf")).to(tl.float32)'
_MAXIMUM_LOOP = f"{_LOAD}\n        m = tl.maximum(m, tl.max(x, axis=0))"
_SUM_LOOP = f"{_LOAD}\n        l += tl.sum"
_IN_TURN = """m, l = -float("inf"), 0.0
    for i in range(tl.num_programs(1)):
        pair = pair_ptr + 2 * (row * tl.num_programs(1) + i)
        m_new = tl.maximum(m, tl.load(pair))
        l = l * tl.exp(m - m_new) + tl.load(pair + 1) * tl.exp(tl.load(pair) - m_new)
        m = m_new"""
_LOOKS = """    looks = 1
    while missing < parts:
        if looks >= 100:
            m, l = pair_of(slice_of(x_row, x_col_stride, missing, N, BLOCK))
            publish(words + missing, m, l)
        m_parts, l_parts, missing = collect(words, parts, PARTS)
        looks += 1
"""
_IN_TWO_LOOPS = """    looks = 0
    while (missing < parts) & (looks < 100):
        m_parts, l_parts, missing = collect(words, parts, PARTS)
        looks += 1
    while missing < parts:
        m, l = pair_of(slice_of(x_row, x_col_stride, missing, N, BLOCK))
        publish(words + missing, m, l)
        m_parts, l_parts, missing = collect(words, parts, PARTS)
"""
_IN_TURN_OF_SLICES = """    for _ in range(50):
        if missing < parts:
            m_parts, l_parts, missing = collect(words, parts, PARTS)
    for other in range(missing, parts):
        m, l = pair_of(slice_of(x_row, x_col_stride, other, N, BLOCK))
        publish(words + other, m, l)
    m_parts, l_parts, missing = collect(words, parts, PARTS)
"""
_NO_HELP = "        if looks >= 100:", "        if looks < 0:"

_TURNS = """    for _ in range(30):
        for name, fn in (("mine", mine), ("theirs", theirs)):
"""
_NO_TURNS = """    for name, fn in (("mine", mine), ("theirs", theirs)):
        for _ in range(30):
"""


def _host(elapsed: str) -> Variant:
    return _swap("host_clock", "start = gpu.record()", "start = gpu.now()", "(start, gpu.record())", elapsed,
                 "start.elapsed_time(end) for start, end in", "ms for ms in")  # fmt: skip


def _compare(is_wrong: str) -> Variant:
    return _swap("skipped_work_timed", "not torch.allclose(mine(x).double(), expected, rtol=1e-4, atol=1e-9)", is_wrong)


_MAXIMUM_OF_ROWS = """
@triton.jit
def maxima_kernel(m_ptr, x_ptr, x_stride, x_col_stride, N, BLOCK: tl.constexpr):
    row = tl.program_id(0).to(tl.int64)
    m = -float("inf")
    for start in range(0, N, BLOCK):
        cols = start + tl.arange(0, BLOCK).to(tl.int64)
        x = tl.load(x_ptr + row * x_stride + cols * x_col_stride, mask=cols < N, other=-float("inf")).to(tl.float32)
        m = tl.maximum(m, tl.max(x, axis=0))
    tl.store(m_ptr + row, m)
"""
_PREPARED = """
@triton.jit
def kernel(y_ptr, m_ptr, x_ptr, y_stride, x_stride, x_col_stride, M, N, BLOCK: tl.constexpr, PREPARED: tl.constexpr):
    row = tl.program_id(0).to(tl.int64)
    if not PREPARED:
        if row == 0:
            for i in range(0, M):
                top = -float("inf")
                for start in range(0, N, BLOCK):
                    cols = start + tl.arange(0, BLOCK).to(tl.int64)
                    x_row = x_ptr + tl.cast(i, tl.int64) * x_stride
                    x = tl.load(x_row + cols * x_col_stride, mask=cols < N, other=-float("inf")).to(tl.float32)
                    top = tl.maximum(top, tl.max(x, axis=0))
                tl.store(m_ptr + i, top)
    m = tl.load(m_ptr + row)
    l = 0.0
    for start in range(0, N, BLOCK):
        cols = start + tl.arange(0, BLOCK).to(tl.int64)
        x = tl.load(x_ptr + row * x_stride + cols * x_col_stride, mask=cols < N, other=-float("inf")).to(tl.float32)
        l += tl.sum(tl.exp(x - m), axis=0)
    for start in range(0, N, BLOCK):
        cols = start + tl.arange(0, BLOCK).to(tl.int64)
        x = tl.load(x_ptr + row * x_stride + cols * x_col_stride, mask=cols < N, other=-float("inf")).to(tl.float32)
        tl.store(y_ptr + row * y_stride + cols, tl.exp(x - m) / l, mask=cols < N)


def my_softmax(x):
    M, N = x.shape
    y, m = torch.empty(M, N, dtype=x.dtype, device=x.device), torch.empty(M, device=x.device)
    BLOCK = min(512, triton.next_power_of_2(N))
    {first}
    kernel[(M,)](y, m, x, y.stride(0), *x.stride(), M, N, BLOCK=BLOCK, PREPARED={prepared})
    return y
"""


def _prepared(by_a_launch: bool, named: str = "") -> Variant:
    """The maxima of all rows, found by a launch of their own, or by program 0 of the launch that needs them."""
    first = "maxima_kernel[(M,)](m, x, *x.stride(), N, BLOCK=BLOCK)" if by_a_launch else "pass"
    return _code(named, _MAXIMUM_OF_ROWS + _PREPARED.format(first=first, prepared=by_a_launch))


_ONE_LAUNCH = """
@triton.jit
def kernel(y_ptr, pair_ptr, done_ptr, x_ptr, y_stride, x_stride, x_col_stride, N, BLOCK: tl.constexpr):
    row, part, parts = tl.program_id(0).to(tl.int64), tl.program_id(1), tl.num_programs(1)
    cols = part * BLOCK + tl.arange(0, BLOCK).to(tl.int64)
    x = tl.load(x_ptr + row * x_stride + cols * x_col_stride, mask=cols < N, other=-float("inf")).to(tl.float32)
    m = tl.max(x, axis=0)
    l = tl.sum(tl.exp(x - tl.where(m == -float("inf"), 0.0, m)), axis=0)
    {stored}
    if {last}:
        m, l = -float("inf"), 0.0
        for i in range(0, parts):
            m_i, l_i = {loaded}
            m_new = tl.maximum(m, m_i)
            shift = tl.where(m_new == -float("inf"), 0.0, m_new)
            l = l * tl.exp(m - shift) + l_i * tl.exp(m_i - shift)
            m = m_new
        for i in range(0, parts):
            cols = i * BLOCK + tl.arange(0, BLOCK).to(tl.int64)
            x = tl.load(x_ptr + row * x_stride + cols * x_col_stride, mask=cols < N, other=-float("inf")).to(tl.float32)
            tl.store(y_ptr + row * y_stride + cols, tl.exp(x - m) / l, mask=cols < N)


def my_softmax(x):
    M, N = x.shape
    BLOCK = min(512, triton.next_power_of_2(N))
    grid = M, triton.cdiv(N, BLOCK)
    y, pairs = torch.empty(M, N, dtype=x.dtype, device=x.device), torch.zeros(*grid, 2, device=x.device)
    done = torch.zeros(M, dtype=torch.int32, device=x.device)
    kernel[grid](y, pairs, done, x, y.stride(0), *x.stride(), N, BLOCK=BLOCK)
    return y
"""
_PAIR = "pair_ptr + 2 * (row * parts + {})"
_STORED = f"tl.store({_PAIR.format('part')}, m)\n    tl.store({_PAIR.format('part')} + 1, l)\n    tl.debug_barrier()"
_LOADED = f"tl.load({_PAIR.format('i')}), tl.load({_PAIR.format('i')} + 1)"


def _one_launch(last: str, named: str = "", stored: str = _STORED, loaded: str = _LOADED) -> Variant:
    """A row's slices in one launch, of which one program writes the row: the one of which `last` is true."""
    return _code(named, _ONE_LAUNCH.format(last=last, stored=stored, loaded=loaded))


_ONE_PAIR = (
    "def pairs_kernel(pair_ptr, ",
    "def pairs_kernel(pair_ptr, lock_ptr, ",
    "pairs_kernel[grid](pairs, ",
    "pairs_kernel[grid](pairs, locks, ",
    "pair = pair_ptr + 2 * (row * tl.num_programs(1) + part)\n    tl.store(pair, m)\n    tl.store(pair + 1, l)",
    """pair, lock = pair_ptr + 2 * row, lock_ptr + row
    {taken}
    m_old, l_old = tl.load(pair), tl.load(pair + 1)
    m_new = tl.maximum(m, m_old)
    shift = tl.where(m_new == -float("inf"), 0.0, m_new)
    tl.store(pair + 1, l_old * tl.exp(m_old - shift) + l * tl.exp(m - shift))
    tl.store(pair, m_new)
    {given_back}""",
    "pairs = torch.empty(*grid, 2, device=x.device)",
    "pairs = torch.tensor([[float('-inf'), 0.0]] * M, device=x.device)\n"
    "    locks = torch.zeros(M, dtype=torch.int32, device=x.device)",
    "pairs = pair_ptr + 2 * (row * tl.num_programs(1) + parts)\n    exists = parts < tl.num_programs(1)",
    "pairs = pair_ptr + 2 * row + 2 * parts\n    exists = parts < 1",
)


def _one_pair(taken: str, given_back: str, named: str = "") -> Variant:
    """A pair for each row, into which its slices merge theirs."""
    return _swap(named, *(text.replace("{taken}", taken).replace("{given_back}", given_back) for text in _ONE_PAIR))


WRONG = {
    "eager": {
        "float32 whatever x is": _swap("wrong_dtype", "    m = x.max", "    x = x.float()\n    m = x.max"),
        "no maximum": _swap("no_maximum", "x - m", "x"),
        "maximum subtracted after exp": _swap("no_maximum", "torch.exp(x - m)", "torch.exp(x) - 0 * m"),
        "one maximum for all": _swap("one_maximum", "x.max(dim=1, keepdim=True).values", "x.max()"),
        "maximum down the columns": _swap(
            "maximum_of_columns", "x.max(dim=1, keepdim=True)", "x.max(dim=0, keepdim=True)"
        ),
        "sum down the columns": _swap("sum_of_columns", "e.sum(dim=1", "e.sum(dim=0"),
        "both down the columns": _swap("softmax_of_columns", "dim=1", "dim=0"),
        "one sum for all": _swap("one_sum", "e.sum(dim=1, keepdim=True)", "e.sum()"),
        "no division": _swap("no_division", "e / e.sum(dim=1, keepdim=True)", "e"),
        "divided by the maximum": _swap("no_division", "e.sum(dim=1, keepdim=True)", "e.max(dim=1, keepdim=True).values"),
        "maximum added": _swap("other_than_maximum", "x - m", "x + m"),
        "place of the maximum subtracted": _swap("other_than_maximum", ".values", ".indices"),
        "exponent the other way": _swap("exponent_reversed", "x - m", "m - x"),
        "maximum in the numerator alone": _swap("shift_in_one_place", "e / e.sum(", "e / torch.exp(x).sum("),
        "divided by the mean": _swap("mean_of_terms", "e / e.sum(", "e / e.mean("),
        "mean subtracted": _swap("other_than_maximum", "x.max(dim=1, keepdim=True).values", "x.mean(dim=1, keepdim=True)"),
        "minimum subtracted": _swap("other_than_maximum", "x.max(", "x.min("),
        "largest size subtracted": _swap("other_than_maximum", "x.max(", "x.abs().max("),
        "scores cut off": _swap("cut_off", "x - m", "x.clamp(max=88.0)"),
        "logarithm returned": _swap("logarithm_returned", "return e /", "return x - m - torch.log("
                                    "e.sum(dim=1, keepdim=True)) + 0 * e /"),
        "powers of 2": _swap("powers_of_2", "torch.exp(", "torch.exp2("),
        "through float16": _swap("fewer_digits", "return e / e.sum(dim=1, keepdim=True)",
                                 "return (e / e.sum(dim=1, keepdim=True)).half().float()"),
        "float16 comes back": _swap("wrong_dtype", "torch.exp(x - m)", "torch.exp(x - m).half()"),
        "transposed": _swap("wrong_shape", "keepdim=True)\n", "keepdim=True)\n", "return e / e.sum(dim=1, keepdim=True)",
                            "return (e / e.sum(dim=1, keepdim=True)).t()"),
        "input overwritten": _swap("input_overwritten", "e = torch.exp(x - m)", "x -= m\n    e = torch.exp(x)"),
        "result in the input": _swap("input_overwritten", "return e / e.sum(dim=1, keepdim=True)",
                                     "return x.copy_(e / e.sum(dim=1, keepdim=True))"),
        "nothing returned": _swap("nothing_returned", "return e /", "y = e /"),
        "dimension lost": _swap("shapes", "keepdim=True).values", "keepdim=False).values"),
        "maximum cut off": _swap("only_large", ".values", ".values.clamp(max=100.0)"),
        "endless": _swap("endless", "    m = x.max", "    while True:\n        pass\n    m = x.max"),
        "exit": _swap("ends_its_process", "    m = x.max", "    import os\n    os._exit(0)\n    m = x.max"),
        "sys.exit": _swap("ends_its_process", "    m = x.max", "    raise SystemExit\n    m = x.max"),
        "kill": _swap("ends_its_process", "    m = x.max", "    import os\n    os.kill(os.getpid(), 9)\n    m = x.max"),
        "asks for input": _swap("asks_for_input", "    m = x.max", "    input('which? ')\n    m = x.max"),
        "prints without end": _swap("prints_without_end", "    m = x.max", "    while True:\n        print('here')\n    m = x.max"),
        "memory": _swap("too_much_memory", "    m = x.max", "    torch.ones(2**33)\n    m = x.max"),
    },
    "single_tile": {
        "no maximum": _swap("no_maximum", "x - m", "x"),
        "program_id of the wrong axis": _swap("stores_row_0", "program_id(0)", "program_id(1)"),
        "loads row 0": _swap("loads_row_0", "load(x_ptr + row * stride", "load(x_ptr"),
        "no division": _swap("no_division", "e / l", "e"),
        "row begins one late": _swap("out_of_bounds", "row * stride + cols)", "row * stride + cols + 1)"),
        "half of the grid": _swap("small_grid", "[(M,)]", "[((M + 1) // 2,)]"),
        "one program": _swap("small_grid", "[(M,)]", "[(1,)]"),
        "a tile of part of the row": _swap("end_never_stored", "BLOCK=N)", "BLOCK=max(1, N // 8))"),
        "through float16": _swap("fewer_digits", "e / l)", "(e / l).to(tl.float16))"),
        "each row into the next one first": _swap(
            "race", "    tl.store(y_ptr + row", "    tl.store(y_ptr + (row + 1) * stride + cols, e / l, mask=(cols >= 0) & "
            "(row + 1 < tl.num_programs(0)))\n    tl.store(y_ptr + row"),
        "output overwrites x": _swap("input_overwritten", "torch.empty_like(x)", "x"),
        "input returned": _swap("input_returned", "return y", "return x"),
        "no kernel": _swap("no_kernel", "return y", "return x.softmax(1)", "softmax_kernel[(M,)]", "False and softmax_kernel[(M,)]"),
        "wrong shape": _swap("wrong_shape", "return y", "return y[0]"),
        "float64 comes back": _swap("wrong_dtype", "return y", "return y.double()"),
        "endless": _swap("endless", "    M, N = x.shape", "    while True:\n        pass\n    M, N = x.shape"),
    },
    "masked": {
        "one y for all calls": _swap("memory_used_again", "y = torch.empty(M, N,", "y = vars(my_softmax).setdefault(str(x.shape), torch.empty(M, N,",
                                     "device=x.device)", "device=x.device))"),
        "y kept by x's address": _swap("result_used_again", "    return y", "    return vars(my_softmax).setdefault(str(x.data_ptr()), y)"),
        "made without x's device": _swap("wrong_device", "dtype=x.dtype, device=x.device", "dtype=x.dtype"),
        "no mask on the load": _swap("load_unmasked", ', mask=mask, other=-float("inf"))', ")"),
        "no mask on the store": _swap("store_unmasked", "e / l, mask=mask", "e / l"),
        "no other": _swap("idle_lanes_hold_0", ', other=-float("inf")', ""),
        "one lane too many": _swap("one_lane_too_many", "cols < N", "cols <= N"),
        "one lane too few": _swap("end_never_stored", "cols < N", "cols < N - 1"),
        "x's stride for y": _swap("stride_of_x_for_y", "row * y_stride", "row * x_stride"),
        "result like x": _swap("strides_of_x", "torch.empty(M, N, dtype=x.dtype, device=x.device)", "torch.empty_like(x)"),
        "32-bit offsets": _swap("offsets_overflow", "tl.program_id(0).to(tl.int64)", "tl.program_id(0)"),
        "guarded maximum": _swap("empty_row_gives_numbers", "e = tl.exp(x - m)", 'e = tl.exp(x - tl.where(m == -float("inf"), 0.0, m))',
                                 "e / l", "e / tl.where(l == 0.0, 1.0, l)"),
        "NaN left out": _swap("nan_lost", "x = x.to(tl.float32)", 'x = x.to(tl.float32)\n    x = tl.where(x == x, x, -float("inf"))'),
        "padding in the sum": _swap("idle_lanes_in_sum", '-float("inf"))', "0.0)", "tl.max(x, axis=0)", 'tl.max(tl.where(mask, x, -float("inf")), axis=0)'),
        "padding in the maximum": _swap("idle_lanes_in_maximum", '-float("inf"))', "0.0)", "tl.exp(x - m)", "tl.where(mask, tl.exp(x - m), 0.0)"),
        "BLOCK too small": _swap("end_never_stored", "BLOCK=BLOCK)", "BLOCK=max(1, BLOCK // 2))"),
        "program_id of the wrong axis": _swap("stores_row_0", "program_id(0)", "program_id(1)"),
        "one program too few": _swap("small_grid", "[(M,)]", "[(max(1, M - 1),)]"),
        "one lane too many, which the next row repairs": _swap(
            "race", "e / l, mask=mask)", "e / l, mask=mask | ((cols == N) & (row < tl.num_programs(0) - 1)))"),
        "float32 comes back": _swap("wrong_dtype", "dtype=x.dtype", "dtype=torch.float32"),
        "padding 1": _swap("only_not_power_of_2", '-float("inf")', "1.0"),
        "strides multiplied": _swap("only_strided", "row * x_stride", "row * x_stride * x_col_stride"),
        "infinity replaced": _swap("only_nan", "x = x.to(tl.float32)",
                                   'x = x.to(tl.float32)\n    x = tl.where(x == float("inf"), 1e30, x)'),
        "copied, then torch": _code("torch_at_work", "from helpers.kernels import copy\n\n\ndef my_softmax(x):\n"
                                    "    return torch.softmax(copy(x), dim=1)"),
        "a copy before": _code("over_budget", "from helpers.kernels import single_tile_softmax\n\n\ndef my_softmax(x):\n"
                               "    return single_tile_softmax(x.clone())"),
        "a name misspelt": _swap("undefined_name", "tl.exp(x - m)", "tl.exp(x - mm)"),
        "a dict": _swap("does_not_compile", "e = tl.exp(x - m)", 'e = {"x": tl.exp(x - m)}["x"]'),
        "a return in a loop": _swap("does_not_compile", "e = tl.exp(x - m)",
                                    "for i in range(N, N):\n        return\n    e = tl.exp(x - m)"),
    },
    "two_pass": {
        "l begins as an integer": _swap("does_not_compile", "l = 0.0", "l = 0"),
        "leaves the loop": _swap("does_not_compile", f"{_SUM_LOOP}(tl.exp(x - m), axis=0)",
                                 f"{_SUM_LOOP}(tl.exp(x - m), axis=0)\n        if start + BLOCK >= N:\n            break"),
        "tiles in a list": _swap(
            "does_not_compile", "l = 0.0", "l = 0.0\n    es = []\n    i = 0", f"{_SUM_LOOP}(tl.exp(x - m), axis=0)",
            f"{_SUM_LOOP}(tl.exp(x - m), axis=0)\n        es.append(tl.exp(x - m))", "tl.exp(x - m) / l, mask=cols < N)",
            "es[i] / l, mask=cols < N)\n        i += 1"),
        "l begins at 1": _swap("l_start", "l = 0.0", "l = 1.0"),
        "padding 0 in the maximum": _swap("idle_lanes_in_maximum", _MAXIMUM_LOOP, _MAXIMUM_LOOP.replace('-float("inf")', "0.0")),
        "padding 0 in the sum": _swap("idle_lanes_in_sum", _SUM_LOOP, _SUM_LOOP.replace('-float("inf")', "0.0")),
        "full tiles only": _swap("end_never_stored", "range(0, N, BLOCK)", "range(0, N // BLOCK * BLOCK, BLOCK)"),
        "written too early": _swap("divided_too_early", f"axis=0)\n    for start in range(0, N, BLOCK):\n        cols = start + "
                                   f"tl.arange(0, BLOCK)\n        {_LOAD}\n        tl.store", "axis=0)\n        tl.store"),
        "columns of the first tile": _swap("same_columns", "l = 0.0\n    for start in range(0, N, BLOCK):\n"
                                           "        cols = start +", "l = 0.0\n    for start in range(0, N, BLOCK):\n        cols ="),
        "no mask on the store": _swap("store_unmasked", "/ l, mask=cols < N", "/ l"),
        "no mask on a load": _swap("load_unmasked", _SUM_LOOP, _SUM_LOOP.replace(', mask=cols < N, other=-float("inf")', "")),
        "exp of 16 bits": _swap("not_float32", "tl.exp(x - m)", "tl.exp((x - m).to(x_ptr.dtype.element_ty))"),
        "32-bit offsets": _swap("offsets_overflow", ".to(tl.int64)", ""),
        "l in 16 bits": _swap("only_16_bit", "l += tl.sum(tl.exp(x - m), axis=0)",
                              "l = (l + tl.sum(tl.exp(x - m), axis=0)).to(y_ptr.dtype.element_ty).to(tl.float32)"),
        "result in x": _swap("input_overwritten", "torch.empty(M, N, dtype=x.dtype, device=x.device)", "x"),
        "program 0 prepares what all read": _prepared(by_a_launch=False, named="race"),
        "never ends": _swap("endless", "    M, N = x.shape", "    while len(x) > 0:\n        M = 0\n    M, N = x.shape"),
        "padding 1": _swap("only_not_multiple_of_block", '-float("inf")).to', "1.0).to"),
        "−inf replaced": _swap("only_minus_inf", "tl.exp(x - m)",
                               'tl.exp(tl.where((x == -float("inf")) & (cols < N), m - 5.0, x) - m)'),
        "a single tile": _code("another_exercise", "from helpers.kernels import single_tile_softmax as my_softmax"),
        "loads four times": _swap("over_budget", "    l = 0.0\n", "    l = 0.0\n    for start in range(0, N, BLOCK):\n"
                                  "        cols = start + tl.arange(0, BLOCK)\n"
                                  f"        {_LOAD}\n        m = tl.maximum(m, tl.max(x, axis=0))\n"),
        "exponentials stored": _swap("over_budget", "l += tl.sum(tl.exp(x - m), axis=0)", "l += tl.sum(tl.exp(x - m), axis=0)\n"
                                     "        tl.store(y_row + cols, tl.exp(x - m), mask=cols < N)"),
    },
    "online": {
        "empty tiles left out": _swap(
            "does_not_compile", "        m_new = tl.maximum(m, tl.max(x, axis=0))",
            '        if tl.max(x, axis=0) == -float("inf"):\n            continue\n'
            "        m_new = tl.maximum(m, tl.max(x, axis=0))"),
        "l begins as an integer": _swap("does_not_compile", '-float("inf"), 0.0, 0.0', '-float("inf"), 0.0, 0'),
        "shift never set": _swap(
            "shift_never_set", '        shift = tl.where(m_new == -float("inf"), 0.0, m_new)\n', "",
            "tl.exp(m - shift) + tl.sum(tl.exp(x - shift), axis=0)", "tl.exp(m - m_new) + tl.sum(tl.exp(x - m_new), axis=0)"),
        "no maximum": _swap("no_maximum", "m_new = tl.maximum(m, tl.max(x, axis=0))", "m_new = 0.0 * tl.maximum(m, 0.0)"),
        "padding 0": _swap("idle_lanes_hold_0", 'N, other=-float("inf")).to(tl.float32)\n        m_new', "N, other=0.0).to(tl.float32)\n        m_new"),
        "divided before the last rescale": _swap(
            "divided_too_early", "tl.store(y_row + cols, tl.exp(x - shift) / l, mask=cols < N)", "pass",
            "m = m_new", "m = m_new\n        tl.store(y_row + cols, tl.exp(x - shift) / l, mask=cols < N)"),
        "empty rows as zeros": _swap("empty_row_gives_numbers", "tl.exp(x - shift) / l,", "tl.exp(x - shift) / tl.where(l == 0.0, 1.0, l),"),
        "NaN left out": _swap("nan_lost", ".to(tl.float32)\n        m_new", ".to(tl.float32)\n        x = tl.where(x == x, x, "
                              '-float("inf"))\n        m_new', ".to(tl.float32)\n        tl.store", ".to(tl.float32)\n        "
                              'x = tl.where(x == x, x, -float("inf"))\n        tl.store'),
        "m replaced too early": _swap("never_rescaled", "        l = l * tl.exp(m - shift)", "        m = m_new\n        l = l * tl.exp("
                                      'tl.where(m == -float("inf"), 0.0, m) - shift)'),
        "no mask on the load": _swap("load_unmasked", ', mask=cols < N, other=-float("inf")).to(tl.float32)\n        m_new',
                                     ").to(tl.float32)\n        m_new"),
        "columns of the first tile": _swap("same_columns", f"{_LOAD}\n        m_new", "cols = tl.arange(0, BLOCK)\n"
                                           f"        {_LOAD}\n        m_new"),
        "zeros into the next row first": _swap(
            "race", "    m, shift, l = ", "    for start in range(0, N, BLOCK):\n        cols = start + tl.arange(0, BLOCK)\n"
            "        tl.store(y_row + y_stride + cols, 0.0 * cols, mask=(cols < N) & (row < tl.num_programs(0) - 1))\n"
            "    m, shift, l = "),
        "old sum halved": _swap("only_longer_than_block", "l * tl.exp(m - shift)", "l * 0.5 * tl.exp(m - shift)"),
        "three loads": _code("over_budget", "from helpers.kernels import two_pass_softmax\n\n\ndef my_softmax(x):\n"
                             "    return two_pass_softmax(x, BLOCK=512)"),
    },
    "split_row": {
        "pairs made without x's device": _swap("wrong_device", "torch.empty(*grid, 2, device=x.device)", "torch.empty(*grid, 2)"),
        "sums added": _swap("sums_as_they_are", "l_parts * tl.exp(m_parts - shift)", "l_parts"),
        "rescaled the wrong way": _swap("rescaled_wrong_way", "tl.exp(m_parts - shift)", "tl.exp(shift - m_parts)"),
        "rescaled the wrong way, empty slices guarded": _swap(
            "rescaled_wrong_way", "l_parts * tl.exp(m_parts - shift)", "tl.where(l_parts == 0.0, 0.0, l_parts * tl.exp(shift - m_parts))"),
        "its own sum rescaled": _swap("own_sum_rescaled", "tl.sum(l_parts * tl.exp(m_parts - shift), axis=0)",
                                      "tl.sum(l_parts, axis=0) * tl.exp(tl.load(pair_ptr + 2 * (row * tl.num_programs(1) + part)) - shift)"),
        "a softmax of each slice": _swap("softmax_of_slice", "exists = parts < tl.num_programs(1)", "exists = parts == part"),
        "sum of the own slice": _swap("sum_of_one_slice", "tl.sum(l_parts * tl.exp(m_parts - shift), axis=0)",
                                      "tl.sum(tl.where(parts == part, l_parts, 0.0), axis=0)"),
        "sum of the own slice, rescaled": _swap("sum_of_one_slice", "l_parts * tl.exp(m_parts - shift)",
                                                "tl.where(parts == part, l_parts * tl.exp(m_parts - shift), 0.0)"),
        "maximum of the own slice": _swap("maximum_of_own_slice", "tl.sum(l_parts * tl.exp(m_parts - shift), axis=0)",
                                          "tl.sum(l_parts * tl.exp(m_parts - shift), axis=0)\n    shift = tl.load("
                                          "pair_ptr + 2 * (row * tl.num_programs(1) + part))"),
        "maximum of the first slice": _swap("maximum_of_another_slice", "m = tl.max(m_parts, axis=0)",
                                            "m = tl.load(pair_ptr + 2 * row * tl.num_programs(1))"),
        "everything relative to the own slice": _swap("maximum_of_another_slice", "m = tl.max(m_parts, axis=0)",
                                                      "m = tl.load(pair_ptr + 2 * (row * tl.num_programs(1) + part))"),
        "minimum": _swap("maximum_of_another_slice", "m = tl.max(m_parts, axis=0)",
                         'm = tl.min(tl.where(exists, m_parts, float("inf")), axis=0)'),
        "last slice missing": _swap("slice_left_out", "exists = parts < tl.num_programs(1)", "exists = parts < tl.num_programs(1) - 1"),
        "first slice missing": _swap("slice_left_out", "exists = parts < tl.num_programs(1)",
                                     "exists = (parts > 0) & (parts < tl.num_programs(1))"),
        "a power of two too small": _swap("slice_left_out", "PARTS = triton.next_power_of_2(grid[1])",
                                          "PARTS = 1 << (grid[1].bit_length() - 1)"),
        "pairs of row 0": _swap("pairs_of_row_0", "2 * (row * tl.num_programs(1) + parts)", "2 * parts"),
        "PARTS pairs a row": _swap("pairs_out_of_bounds", "2 * (row * tl.num_programs(1) + parts)", "2 * (row * PARTS + parts)"),
        "one number a pair": _swap("pairs_of_another_row", "2 * (row * tl.num_programs(1) + parts)", "row * tl.num_programs(1) + parts"),
        "rows next to each other": _swap("pairs_of_another_row", "2 * (row * tl.num_programs(1) + parts)", "2 * (row + parts * tl.num_programs(0))"),
        "rows of one number a pair": _swap("pairs_of_another_row", "2 * (row * tl.num_programs(1) + parts)", "row * tl.num_programs(1) + 2 * parts"),
        "m and l changed": _swap("m_and_l_swapped", 'tl.load(pairs, mask=exists, other=-float("inf"))',
                                 'tl.load(pairs + 1, mask=exists, other=-float("inf"))', "tl.load(pairs + 1, mask=exists, other=0.0)",
                                 "tl.load(pairs, mask=exists, other=0.0)"),
        "m for l": _swap("m_in_place_of_l", "tl.load(pairs + 1, mask", "tl.load(pairs, mask"),
        "0 subtracted in the end": _swap("shift_left_at_0", "l = tl.sum(l_parts * tl.exp(m_parts - shift), axis=0)",
                                         "l = tl.sum(l_parts * tl.exp(m_parts - shift), axis=0)\n    shift = 0.0"),
        "m of no slice 0": _swap("slices_that_do_not_exist", 'mask=exists, other=-float("inf")', "mask=exists"),
        "pairs not masked": _swap("pairs_out_of_bounds", ', mask=exists, other=-float("inf")', "", ", mask=exists, other=0.0", ""),
        "one pair too many": _swap("pairs_out_of_bounds", "parts < tl.num_programs(1)", "parts <= tl.num_programs(1)",
                                   "PARTS = triton.next_power_of_2(grid[1])", "PARTS = 2 * triton.next_power_of_2(grid[1])"),
        "exp of the maxima": _swap("maximum_out_of_exponent", "tl.sum(l_parts * tl.exp(m_parts - shift), axis=0)",
                                   "tl.sum(l_parts * tl.exp(m_parts), axis=0) / tl.exp(shift)"),
        "merged in turn, not guarded": _swap("empty_slice", "l = tl.sum(l_parts * tl.exp(m_parts - shift), axis=0)", _IN_TURN),
        "no maximum": _swap("no_maximum", 'shift = tl.where(m == -float("inf"), 0.0, m)', "shift = 0.0"),
        "powers of 2": _swap("powers_of_2", "tl.exp(x - shift)", "tl.exp2(x - shift)", "tl.exp(x - tl", "tl.exp2(x - tl", "tl.exp(m_parts", "tl.exp2(m_parts"),
        "no division": _swap("no_division", "tl.exp(x - shift) / l", "tl.exp(x - shift)"),
        "the last slice writes the row": _one_launch("part == parts - 1", "race"),
        "the last slice reads by atomics": _one_launch(
            "part == parts - 1", "race", _STORED.replace("tl.store", "tl.atomic_add"),
            _LOADED.replace("tl.load(", "tl.atomic_add(").replace(" i)), ", " i), 0.0), ").replace(" + 1)", " + 1, 0.0)")),
        "the last slice does not ask whether it is the last to end": _one_launch(
            "(tl.atomic_add(done_ptr + row, 1) >= 0) & (part == parts - 1)", "race"),
        "slices merge into one pair": _one_pair("pass", "pass", "race"),
        "empty rows as zeros": _swap("empty_row_gives_numbers", "tl.exp(x - shift) / l", "tl.exp(x - shift) / tl.where(l == 0.0, 1.0, l)"),
        "the last sum counts twice": _swap("only_several_slices", "l_parts * tl.exp(m_parts - shift)",
                                           "l_parts * tl.exp(m_parts - shift) * tl.where((parts > 0) & (parts == tl.num_programs(1) - 1), 2.0, 1.0)"),
        "the row read again": _code("over_budget", "from helpers.kernels import two_pass_softmax\n\n\ndef my_softmax(x):\n"
                                    "    return two_pass_softmax(x, BLOCK=512)"),
        "loops for ever": _swap("endless", "    M, N = x.shape", "    while True:\n        pass\n    M, N = x.shape"),
    },
    "merge": {
        "left maximum kept": _swap("one_maximum_kept", "max(m_a, m_b)", "m_a"),
        "smaller maximum": _swap("one_maximum_kept", "max(m_a, m_b)", "min(m_a, m_b)"),
        "two empty parts": _swap("two_empty_parts", "if m == -INF", "if False"),
        "only the maximum": _swap("no_pair", "return m, l_a *", "return m + 0 * l_a *"),
        "exp of the sum": _swap("exponential_overflows", "math.exp(m_a - m)", "math.exp(m_a + abs(m))"),
        "endless": _swap("endless", "    m = max", "    while True:\n        pass\n    m = max"),
    },
    "occupancy": {
        "no portions, no end of programs": _swap("no_portions",
                                                 "-(-32 * registers // 256) * 256", "32 * registers",
                                                 "min(32, warps // num_warps)", "warps // num_warps"),
        "parts of a program": _swap("part_of_a_program", "warps // num_warps", "warps / num_warps"),
        "parts of everything": _swap("part_of_a_program", "16384 // warp_registers", "16384 / (32 * registers)",
                                     "warps // num_warps", "warps / num_warps"),
        "a division by zero": _swap("error", "16384 // warp_registers", "16384 // (warp_registers - 1280)"),
        "exit": _swap("ends_its_process", "    warps = 4", "    import os\n    os._exit(3)\n    warps = 4"),
    },
    "predict_time": {
        "bytes and instructions added": _swap(
            "always_sum", "max(memory, instructions, turns * (ALONE + load + compute))", "memory + instructions"),
        "144 SMs": _swap("too_long", "SMS, LAUNCH, ALONE = 132", "SMS, LAUNCH, ALONE = 144"),
        "all of the datasheet's bandwidth": _swap("too_short", "BYTES, RATE = 4.2e6", "BYTES, RATE = 4.8e6"),
        "milliseconds": _swap("other_unit", "return LAUNCH + max", "return 1e-3 * LAUNCH + 1e-3 * max"),
        "a sum for the program's maximum": _swap("too_short", "turns * (ALONE + load + compute)", "turns * max(ALONE, load, compute)"),
        "the input loaded twice": _swap("too_long", "2 * n_rows * row_bytes", "3 * n_rows * row_bytes"),
        "no return": _swap("nothing_returned", "return LAUNCH", "LAUNCH"),
        "a division by zero": _swap("error", "num_warps / 16)", "0 * num_warps)"),
    },
    "my_pick": {
        "by chance": _code("unsteady", "import random\nfrom helpers.choosing import candidates\n\n\n"
                           "def my_pick(n_cols, n_rows, dtype):\n    return random.choice(list(candidates(n_cols)))"),
        "a tuple of two": _swap("no_launch", 'return Launch("online", 8192, 16)', 'return "online", 8192'),
        "tile of n_cols": _swap("no_candidate", "BLOCK = tile(n_cols)", "BLOCK = n_cols"),
        "3 warps": _swap("no_candidate", 'Launch("online", 8192, 16)', 'Launch("online", 8192, 3)'),
        "textbook": _code("textbook", "from helpers.choosing.rules import textbook\n\n\n"
                          "def my_pick(n_cols, n_rows, dtype):\n    return textbook(n_cols)"),
        "few rows": _swap("few_rows_not_split", "if n_rows <= 64 and n_cols > 8192", "if False"),
        "split, however many": _swap("split_in_vain", "n_rows <= 64 and n_cols > 8192", "n_cols > 4096"),
        "short rows": _swap("short_rows_alone", "if n_rows > 64 and n_cols <= 512", "if False"),
        "32 warps": _swap("too_many_threads", "min(32, max(1, BLOCK // 512))", "32"),
        "2 warps": _swap("too_few_warps", "min(32, max(1, BLOCK // 512))", "max(2, BLOCK // 8192)"),
        "streamed from 8192 on": _swap("streamed_in_vain", "if n_cols <= 32768", "if n_cols <= 8192"),
        "streamed in two passes": _swap("streamed_in_vain", "if n_cols <= 32768", "if n_cols <= 8192",
                                        'Launch("online", 8192, 16)', 'Launch("two-pass", 8192, 16)'),
        "a tile as long as it goes": _swap("tile_too_long", "if n_cols <= 32768", "if n_cols <= 131072"),
        "pick": _code("looked_up", "from helpers.choosing.rules import pick\n\n\n"
                      "def my_pick(n_cols, n_rows, dtype):\n    return pick(n_cols, n_rows, dtype).launch"),
        "the record": _code("looked_up", "def my_pick(n_cols, n_rows, dtype):\n"
                            "    return recorded.nearest(n_cols, n_rows, dtype).best"),
        "a choice": _code("no_launch", "from helpers.choosing.rules import pick\n\n\n"
                          "def my_pick(n_cols, n_rows, dtype):\n    return pick(n_cols, n_rows, dtype)"),
        "an error": _swap("error", "BLOCK = tile(n_cols)", "BLOCK = tile(n_rows / n_cols)"),
        "no return": _swap("nothing_returned", 'return Launch("online", 8192, 16)', 'Launch("online", 8192, 16)'),
    },
    "recurrence": {
        "l of the last block": _swap("l_of_last_block", "l * math.exp(m - m_new) +", ""),
        "something added": _swap("exponential_overflows", "math.exp(x - m_new)", "math.exp(x + 800)"),
        "only m": _code("l_never_updated", "def statistics(blocks):\n    m, l = -INF, 0.0\n    for block in blocks:\n        m = max(m, max(block))\n    return m, l"),
        "divided": _swap("divided_by_factor", "l * math.exp(m - m_new)", "l / math.exp(m - m_new)"),
        "max of the blocks": _swap("maximum_of_blocks", "max(block)", "max(blocks)"),
        "max of the blocks alone": _swap("maximum_of_blocks", "max(m, max(block))", "max(blocks)"),
        "block sorted": _swap("blocks_changed", "    for block in blocks:\n", "    for block in blocks:\n        block.sort()\n"),
        "blocks emptied": _swap("blocks_changed", "    for block in blocks:\n", "    while blocks:\n        block = blocks.pop(0)\n"),
        "exit": _swap("ends_its_process", "    m, l = -INF, 0.0", "    import os\n    os._exit(3)\n    m, l = -INF, 0.0"),
    },
    "one_trip": {
        "not published": _swap("not_published", "    publish(words + part, m, l)\n", "", *_NO_HELP),
        "published by who helps": _swap("own_slice_again", "    publish(words + part, m, l)\n", ""),
        "loaded again for the store": _swap("own_slice_again", "tl.exp(x - m) / l", "tl.exp(slice_of(x_row, x_col_stride, part, N, BLOCK) - m) / l"),
        "no help": _swap("waits_forever", *_NO_HELP),
        "looks not counted": _swap("waits_forever", "        looks += 1\n", ""),
        "own pair for the missing one": _swap("help_goes_wrong", "            m, l = pair_of(slice_of(x_row, x_col_stride, missing, N, BLOCK))\n", ""),
        "gives up": _swap("help_goes_wrong", "while missing < parts:", "while (missing < parts) & (looks < 100):"),
        "no look": _swap("helps_at_once", "        if looks >= 100:\n            m, l", "        if True:\n            m, l"),
        "the second look too late": _swap("helps_at_once", "looks >= 100", "looks >= 1"),
        "merged at once": _swap("merged_too_early", "while missing < parts:", "while missing < 0:"),
        "waits for its own word only": _swap("merged_too_early", "while missing < parts:", "while missing == part:"),
        "l, m": _swap("halves_swapped", "publish(words + part, m, l)", "publish(words + part, l, m)", "publish(words + missing, m, l)", "publish(words + missing, l, m)"),
        "collected as l, m": _swap("halves_swapped", "m_parts, l_parts, missing = collect", "l_parts, m_parts, missing = collect"),
        "every pair into the first word": _swap("another_slice", "publish(words + part", "publish(words"),
        "words of row 0": _swap("words_of_row_0", "word_ptr + row * parts", "word_ptr"),
        "sums as they are": _swap("sums_as_they_are", "l_parts * tl.exp(m_parts - m)", "l_parts"),
        "rescaled the wrong way": _swap("rescaled_wrong_way", "tl.exp(m_parts - m)", "tl.exp(m - m_parts)"),
        "its own pair": _swap("softmax_of_slice", "    m = tl.max(m_parts, axis=0)\n    l = tl.sum(l_parts * tl.exp(m_parts - m), axis=0)\n", ""),
        "its own sum": _swap("sum_of_one_slice", "    l = tl.sum(l_parts * tl.exp(m_parts - m), axis=0)\n", ""),
        "an empty slice not guarded": _swap("empty_slice", "tl.maximum(tl.max(x, axis=0), LOWEST)", "tl.max(x, axis=0)"),
        "no division": _swap("no_division", "tl.exp(x - m) / l", "tl.exp(x - m)"),
        "no mask on the store": _swap("store_unmasked", "/ l, mask=cols < N)", "/ l)"),
        "the result of row 0": _swap("stores_to_row_0", "y_ptr + row * y_stride", "y_ptr"),
    },
    "benchmark": {
        "checked, then zeros": _swap("easy_data", "    theirs(x)\n", "    x = torch.zeros_like(x)\n    mine(x), theirs(x)\n"),
        "0.1 * randn": _swap("easy_data", "torch.randn(gpu.shape, device=gpu.device)\n    expected = torch.softmax",
                             "0.1 * torch.randn(gpu.shape, device=gpu.device)\n    expected = torch.softmax"),
        "zeros": _swap("skipped_work_timed", "torch.randn(gpu.shape", "torch.zeros(gpu.shape"),
        "no flush": _swap("warm_cache", "gpu.flush()", "pass"),
        "flushed once": _swap("warm_cache", "            gpu.flush()\n", "", "    theirs(x)\n", "    theirs(x)\n    gpu.flush()\n"),
        "mean": _swap("slow_run", "statistics.median", "statistics.mean"),
        "one run": _swap("slow_run", "range(30)", "range(1)"),
        "the worst": _swap("slow_run", "statistics.median", "max"),
        "mine, then theirs": _swap("not_in_turns", _TURNS, _NO_TURNS),
        "a copy under the clock": _swap("more_than_the_kernel", "            fn(x)\n", "            torch.empty_like(x).copy_(fn(x))\n"),
        "the data made under the clock": _swap("more_than_the_kernel", "            fn(x)\n", "            fn(torch.randn_like(x))\n"),
        "host time": _host("gpu.now() - start"),
        "host time, waited for": replace(_host("(gpu.synchronize(), gpu.now())[1] - start"), named="flush_timed"),
        "a new shape in every run": _swap("first_call_timed", "in range(30)", "in range(30, 0, -1)", "for _ in", "for rows in",
                                          "            fn(x)\n", "            fn(x[:, rows:])\n"),
        "no warm-up, and the mean": _swap("first_call_timed", "    theirs(x)\n", "", "statistics.median", "statistics.mean"),
        "no warm-up, the mean, warm": _swap("first_call_timed", "    theirs(x)\n", "", "statistics.median", "statistics.mean",
                                            "gpu.flush()", "pass"),
        "compared with theirs": _swap("skipped_work_timed", "torch.softmax(x.double(), dim=1)", "theirs(x).double()"),
        "assert": _swap("assertion_raised", "    if not torch.allclose(mine(x).double(), expected, rtol=1e-4, atol=1e-9):\n"
                        '        raise ValueError("mine is wrong")', "    assert torch.allclose(mine(x).double(), expected, rtol=1e-4, atol=1e-9)"),
        "never compared": _swap("skipped_work_timed", "if not torch.allclose", "if False and torch.allclose"),
        "compared with itself": _swap("skipped_work_timed", "mine(x).double(), expected", "mine(x), mine(x)"),
        "largest difference below 0.02": _compare("(mine(x) - expected).abs().max() > 0.02"),
        "NaN lets through": _compare("(mine(x) - expected).norm() > 1e-3 * expected.norm()"),
        "two rows compared": _compare("not torch.allclose(mine(x)[:2].double(), expected[:2])"),
        "sums of the rows": _compare("not torch.allclose(mine(x).nansum(dim=1), torch.ones(len(x)), atol=0.9)"),
        "equal to the last bit": _swap("right_kernel_refused", "torch.allclose(mine(x).double(), expected, rtol=1e-4, atol=1e-9)",
                                       "torch.equal(mine(x), theirs(x))"),
        "theirs first": _swap("times_swapped", "for name in marks)", "for name in reversed(marks))"),
        "seconds": _swap("not_milliseconds", "statistics.median(", "1e-3 * statistics.median("),
        "microseconds": _swap("not_milliseconds", "statistics.median(", "1e3 * statistics.median("),
        "only the ratio": _swap("no_times", "return tuple", "a, b = tuple", "in marks)\n", "in marks)\n    return b / a\n"),
        "synchronized before the second mark": _swap("host_clock", "            marks[name]", "            gpu.synchronize()\n            marks[name]"),
        "not synchronized": _swap("error", "    gpu.synchronize()\n", ""),
        "as many as fit into 50 ms": _swap("all_together", "x = torch.randn", "began = gpu.now()\n    x = torch.randn",
                                          "for _ in range(30):", "for n in range(500):\n        if n and gpu.now() - began > 50:\n"
                                          "            break"),
        "endless": _swap("endless", "for _ in range(30)", "while True"),
        "exit": _swap("ends_its_process", "    gpu.synchronize()\n", "    raise SystemExit\n"),
    },
} | wrong_losses.WRONG | wrong_attention.WRONG | wrong_decode.WRONG | wrong_ranks.WRONG | wrong_picks.WRONG | wrong_logits.WRONG | wrong_operators.WRONG  # fmt: skip

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
for _more in (STOPPING, TOLD_APART, NATURAL, NEWCOMERS):
    for _name, _faults in _more.items():
        WRONG[_name] |= _faults
NOT_TOLD_APART = {
    ("online", "idle_lanes_in_sum, 0"): "idle_lanes_hold_0",
    ("grouped", "lanes_without_part, 3"): "maximum_of_one_part",
    ("grouped", "weights_without_maximum, 0"): "maximum_missing",
}
"""Edits that return what another mistake returns, by exercise and name: the id of that one, which comes first."""
for _name, _faults in WRONG.items():
    for _one in (one for one in EXERCISES[_name].known if isinstance(one, Edited)):
        for _key, _edit in ((f"{_one.id}, {n}", edit) for n, edit in enumerate(_one.edits)):
            _faults[_key] = _swap(NOT_TOLD_APART.get((_name, _key), _one.id), *_edit)


RIGHT = {
    "eager": {
        "torch's own": _code("", "def my_softmax(x):\n    return torch.softmax(x, dim=1)"),
        "logsumexp": _code("", "def my_softmax(x):\n    return torch.exp(x - torch.logsumexp(x, dim=1, keepdim=True))"),
        "amax, and the last dimension": _swap("", "x.max(dim=1, keepdim=True).values", "x.amax(-1, keepdim=True)"),
    },
    "single_tile": {
        "by the log-sum-exp": _swap("", "e / l", "tl.exp(x - (m + tl.log(l)))"),
        "exp2": _swap("", "tl.exp(x - m)", "tl.exp2((x - m) * 1.4426950408889634)"),
        "one reciprocal": _swap("", "e / l", "e * (1.0 / l)"),
        "8 warps": _swap("", "BLOCK=N)", "BLOCK=N, num_warps=8)"),
        "the last row first": _swap("", "row = tl.program_id(0)", "row = tl.num_programs(0) - 1 - tl.program_id(0)"),
        "m and l in one line each": _swap("", "e / l", "tl.exp(x - tl.max(x, axis=0)) / tl.sum(e, axis=0)"),
    },
    "masked": {
        "by the log-sum-exp": _swap("", "e / l", "tl.exp(x - (m + tl.log(l)))"),
        "a persistent loop": _kernel(_PERSISTENT, grid="(min(M, 2),)", warps=2),
        "a 2-D tile of four rows": _kernel(_SEVERAL_ROWS, grid="(triton.cdiv(M, 4),)"),
        "masked afterwards": _swap("", 'other=-float("inf"))', "other=0.0)", "x = x.to(tl.float32)",
                                   'x = tl.where(mask, x, -float("inf")).to(tl.float32)'),
        "float32 by tl.max alone": _swap("", "x = x.to(tl.float32)", "pass"),
        "a tile twice as long": _swap("", "BLOCK=BLOCK)", "BLOCK=2 * BLOCK)"),
        "the course's persistent kernel": _ours("kernels.persistent_softmax(x)"),
    },
    "two_pass": {
        "by the log-sum-exp": _swap("", "tl.exp(x - m) / l", "tl.exp(x - (m + tl.log(l)))"),
        "BLOCK 128": _swap("", "BLOCK=512", "BLOCK=128"),
        "BLOCK 1024, 8 warps": _swap("", "BLOCK=512, num_warps=4", "BLOCK=1024, num_warps=8"),
        "a launch of its own prepares what all read": _prepared(by_a_launch=True),
        "exp2": _swap("", "tl.exp(x - m)", "tl.exp2((x - m) * 1.4426950408889634)"),
        "float32 by tl.max alone": _swap("", ".to(tl.float32)", ""),
        "l begins as a float": _swap("", "l = 0.0", "l = tl.full((), 0.0, tl.float32)"),
        "a while loop": _swap("", f"    for start in range(0, N, BLOCK):\n        cols = start + tl.arange(0, BLOCK)\n        {_SUM_LOOP}(tl.exp(x - m), axis=0)",
                              f"    start = 0\n    while start < N:\n        cols = start + tl.arange(0, BLOCK)\n        {_SUM_LOOP}(tl.exp(x - m), axis=0)\n        start += BLOCK"),
        "an early return": _swap("", "    l = 0.0", "    if N < 1:\n        return\n    l = 0.0"),
    },
    "online": {
        "by the log-sum-exp": _swap("", "tl.exp(x - shift) / l", "tl.exp(x - (shift + tl.log(l)))"),
        "m and l in a tuple": _swap("", "m, shift, l = -float(\"inf\"), 0.0, 0.0",
                                    "begin = (-float(\"inf\"), 0.0, 0.0)\n    m, shift, l = begin"),
        "tl.range": _swap("", "range(0, N, BLOCK)", "tl.range(0, N, BLOCK)"),
        "BLOCK 2048, 8 warps": _swap("", "BLOCK=512, num_warps=4", "BLOCK=2048, num_warps=8"),
        "statistics per lane": _kernel(_PER_LANE, _CEIL_DIV),
        "backwards, guarded otherwise": _kernel(_BACKWARDS, _CEIL_DIV),
        "exp2": _swap("", "tl.exp(m - shift)", "tl.exp2((m - shift) * 1.4426950408889634)",
                      "tl.exp(x - shift)", "tl.exp2((x - shift) * 1.4426950408889634)"),
        "l begins at 1, which the first rescale removes": _swap("", '-float("inf"), 0.0, 0.0', '-float("inf"), 0.0, 1.0'),
    },
    "split_row": {
        "by the log-sum-exp": _swap("", "tl.exp(x - shift) / l", "tl.exp(x - (shift + tl.log(l)))"),
        "BLOCK 1024, 8 warps": _swap("", "BLOCK=512, num_warps=4", "BLOCK=1024, num_warps=8"),
        "exp2": _swap("", "tl.exp(m_parts - shift)", "tl.exp2((m_parts - shift) * 1.4426950408889634)"),
        "merged in turn": _swap("", "l = tl.sum(l_parts * tl.exp(m_parts - shift), axis=0)",
                                _IN_TURN.replace("tl.exp(m - m_new)", "tl.exp(m - shift)").replace(
                                    "m_new = tl.maximum(m, tl.load(pair))", "m_new = shift").replace("m, l = ", "m, l = shift, 0.0  # ")),
        "the slice that ends last writes the row": _one_launch("tl.atomic_add(done_ptr + row, 1) == parts - 1"),
        "slices take turns at one pair": _one_pair(
            "while tl.atomic_cas(lock, 0, 1) == 1:\n        pass", "tl.debug_barrier()\n    tl.atomic_xchg(lock, 0)"),
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
    "predict_time": {
        "by the SM": _swap("", "load = row_bytes / (BYTES / SMS)", "load = SMS * row_bytes / BYTES",
                           "max(memory, instructions, turns", "max(max(memory, instructions), turns"),
        "a launch of the empty kernel's time": _swap("", "LAUNCH + max", "4.1 + max"),
    },
    "recurrence": {
        "as a tree": _code("", "def statistics(blocks):\n    pairs = [(max(b), sum(math.exp(x - max(b)) for x in b)) for b in blocks]\n"
                               "    while len(pairs) > 1:\n        merged = [merge(a, b) for a, b in zip(pairs[::2], pairs[1::2])]\n"
                               "        pairs = merged + pairs[len(pairs) // 2 * 2 :]\n    return pairs[0]"
                               "\n\n\ndef merge(a, b):\n    m = max(a[0], b[0])\n    return m, a[1] * math.exp(a[0] - m) + b[1] * math.exp(b[0] - m)"),
        "from the last block on": _swap("", "in blocks:", "in blocks[::-1]:"),
        "element by element": _code("", "def statistics(blocks):\n    m, l = -INF, 0.0\n    for x in sum(blocks, []):\n"
                                    "        m, l = max(m, x), l * math.exp(m - max(m, x)) + math.exp(x - max(m, x))\n"
                                    "    return m, l"),
    },
    "one_trip": {
        "by the log-sum-exp": _swap("", "tl.exp(x - m) / l", "tl.exp(x - (m + tl.log(l)))"),
        "looks, then helps": _swap("", _LOOKS, _IN_TWO_LOOPS),
        "1,000 looks": _swap("", "looks >= 100", "looks >= 1000"),
        "three looks": _swap("", "looks >= 100", "looks >= 3"),
        "helps for all that is missing": _swap("", _LOOKS, _IN_TURN_OF_SLICES),
        "exp2 and a reciprocal": _swap("", "tl.exp(x - m) / l", "tl.exp2(x * 1.4426950408889634 - m * 1.4426950408889634) * (1.0 / l)"),
        "slices of 1024": _swap("", "BLOCK=512, num_warps=4):\n    M, N = x.shape\n    BLOCK = min(BLOCK, triton.next_power_of_2(N))\n    parts",
                                "BLOCK=1024, num_warps=4):\n    M, N = x.shape\n    BLOCK = min(BLOCK, triton.next_power_of_2(N))\n    parts"),
        "relative to its own slice": _swap("", "    m = tl.max(m_parts, axis=0)\n", ""),
        "two launches' merge, guarded": _swap("", "tl.exp(m_parts - m)", "tl.where(l_parts == 0.0, 0.0, tl.exp(m_parts - m))"),
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
        "an error that NaN does not pass": _swap("", "not torch.allclose(mine(x).double(), expected, rtol=1e-4, atol=1e-9)",
                                                 "not ((mine(x) - expected).norm() < 1e-4 * expected.norm())"),
        "torch's median": _swap("", "statistics.median(start.elapsed_time(end) for start, end in marks[name])",
                                "torch.tensor([start.elapsed_time(end) for start, end in marks[name]]).median().item()"),
        "7 runs": _swap("", "range(30)", "range(7)"),
        "300 runs": _swap("", "range(30)", "range(300)"),
        "there and back": _swap("", '(("mine", mine), ("theirs", theirs)):',
                                '(("mine", mine), ("theirs", theirs), ("theirs", theirs), ("mine", mine)):'),
        "scores as a model's": _swap("", "torch.randn(gpu.shape", "3 * torch.randn(gpu.shape"),
        "the course's": _code("", "benchmark = lies.benchmark"),
    },
} | wrong_losses.RIGHT | wrong_attention.RIGHT | wrong_decode.RIGHT | wrong_ranks.RIGHT | wrong_picks.RIGHT | wrong_logits.RIGHT | wrong_operators.RIGHT  # fmt: skip
