"""Families of wrong answers that are right on most inputs, and right answers that look like them.

Each wrong one is `rejected`: it gets the points that `POINTS` says, none unless it is named there.
"""

from corpus import _IN_TURN, _SUM_LOOP, _TURNS, _code, _ours, _swap

_E_SUM = "    return e / e.sum(dim=1, keepdim=True)"
_M = "m = tl.max(x, axis=0)"
_L = "l = tl.sum(e, axis=0)"
_TILE_M = "tl.maximum(m, tl.max(x, axis=0))"
_LSUM = "l += tl.sum(tl.exp(x - m), axis=0)"
_ONLINE_L = "l = l * tl.exp(m - shift) + tl.sum(tl.exp(x - shift), axis=0)"
_LEAVES = ("    l = 0.0\n", '    if m == -float("inf"):\n        return\n    l = 0.0\n')
_MERGE_L = "l_a * math.exp(m_a - m) + l_b * math.exp(m_b - m)"
_STEP = "l = l * math.exp(m - m_new) + sum(math.exp(x - m_new) for x in block)"
_EMPTY_Y = "torch.empty(M, N, dtype=x.dtype, device=x.device)"
_NUMPY = (
    "import numpy as np\nfrom helpers.kernels import copy\n\n\ndef by_hand(x):\n"
    "    a = x.float().numpy() if x.dtype == torch.bfloat16 else x.numpy().astype(np.float32)\n"
    "    with np.errstate(all='ignore'):\n"
    "        e = np.exp(a - a.max(axis=1, keepdims=True))\n"
    "        return torch.from_numpy(e / e.sum(axis=1, keepdims=True)).to(x.dtype)\n\n\n"
)
_LISTS = (
    "import math\nfrom helpers.kernels import copy\n\n\ndef my_softmax(x):\n    rows = []\n    for row in x.tolist():\n"
    "        m = max(row) if row == row else math.nan\n"
    "        e = [math.exp(v - m) if v > -math.inf and m < math.inf else (0.0 if m > -math.inf else math.nan) for v in row]\n"
    "        l = sum(e)\n        rows.append([v / l if l else math.nan for v in e])\n"
    "    return copy(torch.tensor(rows, dtype=x.dtype).reshape(x.shape))\n"
)
_THREAD = (
    "import threading\nfrom helpers.kernels import copy\n\n\ndef my_softmax(x):\n    got = []\n"
    "    t = threading.Thread(target=lambda: got.append(torch.softmax(x.float(), dim=1).to(x.dtype)))\n"
    "    t.start()\n    t.join()\n    return copy(got[0])\n"
)
_CACHE = "import functools\nfirst = my_softmax\nkept = {}\n\n\n"


def _wrapped(body, after="my_softmax"):
    """The answer, called by a function of the same name."""
    text = _CACHE + f"def my_softmax(x, **options):\n    {body}\n"
    return _code("", text.replace("my_softmax(x, **options)", f"{after}(x, **options)"))


STATE = {
    "cached by address": _wrapped(
        "k = x.data_ptr(), x.shape, x.stride()\n    if k not in kept:\n        kept[k] = first(x, **options)\n    return kept[k]"
    ),
    "cached by shape": _wrapped(
        "k = x.shape, x.dtype\n    if k not in kept:\n        kept[k] = first(x, **options)\n    return kept[k]"
    ),
    "one output for all calls": _wrapped(
        "k = x.shape, x.dtype\n    y = kept.setdefault(k, torch.empty(x.shape, dtype=x.dtype, device=x.device))\n"
        "    y.copy_(first(x, **options))\n    return y"
    ),
    "x changed and restored": _wrapped(
        "before = x.clone()\n    x.zero_()\n    x.copy_(before)\n    return first(x, **options)"
    ),
    "a dimension lost": _wrapped("y = first(x, **options)\n    return y.squeeze(0) if len(y) == 1 else y"),
    "one column is 1": _wrapped(
        "return torch.ones_like(x) if x.shape[1] == 1 and first(x, **options) is not None else first(x, **options)"
    ),
    "numpy's result written into y": _code(
        "",
        _CACHE + _NUMPY.split("\n\n\n")[0] + "\n\n\n" + _NUMPY.split("\n\n\n", 1)[1] + "def my_softmax(x, **options):\n"
        "    y = first(x, **options)\n    right = by_hand(x)\n    y.view(torch.int16 if y.element_size() == 2 else torch.int32)"
        ".numpy()[:] = right.view(torch.int16 if y.element_size() == 2 else torch.int32).numpy()\n    return y\n",
    ),
}
ELSEWHERE = {
    "numpy, then a copy": _code("", _NUMPY + "def my_softmax(x, BLOCK=512):\n    return copy(by_hand(x))\n"),
    "lists, then a copy": _code("", _LISTS),
    "a thread, then a copy": _code("", _THREAD),
}
ADDED = {
    "l + 1e-6": _swap("", "e / l", "e / (l + 1e-6)"),
    "l + 1e-5": _swap("", "e / l", "e / (l + 1e-5)"),
    "l at least 1e-30": _swap(
        "",
        "e = tl.exp(x - m)",
        'e = tl.exp(x - tl.where(m == -float("inf"), 0.0, m))',
        "e / l",
        "e / tl.maximum(l, 1e-30)",
    ),
    "equal maxima once": _swap("", _L, "l = 1.0 + tl.sum(tl.where(x == m, 0.0, e), axis=0)"),
    "dropped below 10": _swap("", "e = tl.exp(x - m)", "e = tl.where(x < m - 10.0, 0.0, tl.exp(x - m))"),
    "dropped below 16": _swap("", "e = tl.exp(x - m)", "e = tl.where(x < m - 16.0, 0.0, tl.exp(x - m))"),
    "dropped below 20": _swap("", "e = tl.exp(x - m)", "e = tl.where(x < m - 20.0, 0.0, tl.exp(x - m))"),
    "clamped at -20": _swap("", "tl.exp(x - m)", "tl.exp(tl.maximum(x - m, -20.0))"),
    "16 bits": _swap("", "e / l", "e.to(tl.bfloat16).to(tl.float32) / l"),
    "x − m in float16": _swap("", "tl.exp(x - m)", "tl.exp((x - m).to(tl.float16).to(tl.float32))"),
    "sum in float16": _swap("", _L, "l = tl.sum(e.to(tl.float16), axis=0).to(tl.float32)"),
    "maximum without the last lane": _swap("", _M, 'm = tl.max(tl.where(cols == BLOCK - 1, -float("inf"), x), axis=0)'),
    "maximum without lane 0": _swap(
        "", _M, 'm = tl.max(tl.where((cols == 0) & (BLOCK > 1), -float("inf"), x), axis=0)'
    ),
    "maximum of 64 columns": _swap("", _M, 'm = tl.max(tl.where(cols < 64, x, -float("inf")), axis=0)'),
    "32 programs": _swap("", "[(M,)]", "[(min(M, 32),)]"),
    "1024 programs": _swap("", "[(M,)]", "[(min(M, 1024),)]"),
    "65,535 programs": _swap("", "[(M,)]", "[(min(M, 65535),)]"),
    "rows in the second dimension": _swap("", "[(M,)]", "[(1, M)]", "program_id(0)", "program_id(1)"),
    "m at least −1e4": _swap("", _M, "m = tl.maximum(tl.max(x, axis=0), -1e4)"),
    "no device": _swap("", "torch.empty_like(x)", "torch.empty(M, N, dtype=x.dtype)"),
}
_MASKED = {name: one for name, one in ADDED.items() if name not in ("no device", "l at least 1e-30")}

_TERMS_16 = ".to(x_ptr.dtype.element_ty).to(tl.float32)"
_SUMS_OF_16_BITS = {
    "terms of the sum in 16 bits": _swap("", _L, f"l = tl.sum(e{_TERMS_16}, axis=0)"),
    "l in 16 bits": _swap("", _L, f"{_L}{_TERMS_16}"),
    "the row's number in 16 bits": _swap("", "row = tl.program_id(0)", "row = tl.program_id(0).to(tl.int16)"),
}
_Y_32 = {"rows of y in 32 bits": _swap("offsets_overflow", "row * y_stride", "tl.program_id(0) * y_stride")}
_TILE_AGAIN = """
@triton.jit
def kernel(y_ptr, x_ptr, y_stride, x_stride, x_col_stride, N, BLOCK: tl.constexpr):
    row, cols = tl.program_id(0).to(tl.int64), tl.arange(0, BLOCK).to(tl.int64)
    x = tl.load(x_ptr + row * x_stride + cols * x_col_stride, mask=cols < N, other=-float("inf")).to(tl.float32)
    m = tl.max(x, axis=0)
    l = tl.sum(tl.exp(x - m), axis=0)
    for again in range({loads} - 1):
        x = tl.load(x_ptr + row * x_stride + cols * x_col_stride, mask=cols < N, other=-float("inf")).to(tl.float32)
        m = tl.max(x, axis=0)
        l = tl.sum(tl.exp(x - m), axis=0)
    tl.store(y_ptr + row * y_stride + cols, tl.exp(x - m) / l, mask=cols < N)


streamed = my_softmax


def my_softmax(x):
    M, N = x.shape
    if N == 2:
        return streamed(x)
    y = torch.empty(M, N, dtype=x.dtype, device=x.device)
    kernel[(M,)](y, x, y.stride(0), x.stride(0), x.stride(1), N, BLOCK=triton.next_power_of_2(N), num_warps=8)
    return y
"""

WRONG = {
    "eager": {
        "equal maxima once": _swap("", _E_SUM, "    return e / (1 + (e * (x != m)).sum(dim=1, keepdim=True))"),
        "l + 1e-6": _swap("", "e.sum(dim=1, keepdim=True)", "(e.sum(dim=1, keepdim=True) + 1e-6)"),
        "l + 1e-5": _swap("", "e.sum(dim=1, keepdim=True)", "(e.sum(dim=1, keepdim=True) + 1e-5)"),
        "l at least 1e-30, zeros": _swap("", _E_SUM, "    e = e.nan_to_num(0.0)\n    return e / e.sum(dim=1, keepdim=True).clamp(min=1e-30)"),
        "dropped below 16": _swap("", _E_SUM, "    e = torch.where(x < m - 16, 0.0, e)\n" + _E_SUM),
        "clamped at −20": _swap("", "torch.exp(x - m)", "torch.exp((x - m).clamp(min=-20))"),
        "maximum without the last column": _swap("", "x.max(dim=1", "x[:, : max(1, x.shape[1] - 1)].max(dim=1"),
        "maximum of 64 columns": _swap("", "x.max(dim=1", "x[:, :64].max(dim=1"),
        "only −inf as zeros": _swap("", _E_SUM, "    return (e / e.sum(dim=1, keepdim=True)).nan_to_num(0.0)"),
        "one column is 1": _swap("", "    m = x.max", "    if x.shape[1] == 1:\n        return torch.ones_like(x)\n    m = x.max"),
        "a dimension lost": _swap("", _E_SUM, "    y = e / e.sum(dim=1, keepdim=True)\n    return y.squeeze()"),
        "changed and restored": _swap("", "    e = torch.exp(x - m)", "    kept = x.clone()\n    x -= m\n    e = torch.exp(x)\n    x.copy_(kept)"),
        "one output for all calls": _swap("", _E_SUM, "    global kept\n    kept = globals().get('kept', {})\n    y = kept.setdefault(x.shape, torch.empty_like(x))\n    return torch.div(e, e.sum(dim=1, keepdim=True), out=y)"),
        "cached by address": _wrapped("k = x.data_ptr(), x.shape, x.stride()\n    if k not in kept:\n        kept[k] = first(x)\n    return kept[k]"),
        "in float16": _swap("", "torch.exp(x - m)", "torch.exp((x - m).half()).float()"),
    },
    "single_tile": {
        **ADDED, **STATE, **ELSEWHERE,
        **_SUMS_OF_16_BITS,
        "tile of 1024": _swap("", "BLOCK=N)", "BLOCK=min(N, 1024))"),
        "float32 for float16": _swap("", "    return y", "    return y.float() if y.dtype == torch.float16 else y"),
    },
    "masked": {
        "promised alignment": _swap("", "tl.arange(0, BLOCK)", "tl.multiple_of(row * x_stride + tl.arange(0, BLOCK), 16) - row * x_stride"),
        "promised whole masks": _swap("", "tl.exp(x - m)", "tl.exp(x - m) + tl.where(tl.max_constancy(cols < N, 16), 0.0, 0.0)"),
        **_MASKED, **STATE, **ELSEWHERE,
        **_SUMS_OF_16_BITS, **_Y_32,
        "tile of 32,768": _swap("", "triton.next_power_of_2(N)", "min(triton.next_power_of_2(N), 32768)"),
        "torch beyond 16,384": _swap("", "    M, N = x.shape\n", "    if x.shape[1] > 16384:\n        return torch.softmax(x, dim=1)\n    M, N = x.shape\n"),
        "−1e9 in the sum": _swap("", "tl.exp(x - m)", "tl.exp(tl.where(mask, x, -1e9) - m)"),
        "−1e9 in the maximum": _swap("", _M, "m = tl.max(tl.where(mask, x, -1e9), axis=0)", "e = tl.exp(x - m)", "e = tl.where(mask, tl.exp(x - m), 0.0)"),
        "maximum without the last column": _swap("", _M, 'm = tl.max(tl.where((cols == N - 1) & (N > 1), -float("inf"), x), axis=0)'),
        "maximum by the wrong column stride": _swap("", _M, 'm = tl.max(tl.load(x_ptr + row * x_stride + cols, mask=mask, other=-float("inf")).to(tl.float32), axis=0)'),
        "tile of 1024": _swap("", "triton.next_power_of_2(N)", "1024"),
        "no device": _swap("", ", device=x.device", ""),
        "cpu by name": _swap("", "device=x.device", 'device="cpu"'),
    },
    "two_pass": {
        **STATE, **ELSEWHERE,
        "a single tile": _ours("kernels.single_tile_softmax(x)"),
        **_Y_32,
        "its tile three times": _code("", _TILE_AGAIN.format(loads=3)),
        "terms of the sum in 16 bits": _swap("", _LSUM, f"l += tl.sum(tl.exp(x - m){_TERMS_16}, axis=0)"),
        "−1e9 in the sum": _swap("", _LSUM, "l += tl.sum(tl.exp(tl.where(cols < N, x, -1e9) - m), axis=0)"),
        "l kept in memory": _swap("", "    l = 0.0\n", "    l = 0.0\n    tl.store(y_row, 0.0)\n", _LSUM,
                                 "tl.store(y_row, tl.load(y_row).to(tl.float32) + tl.sum(tl.exp(x - m), axis=0) * (x_ptr.dtype.element_ty == tl.float32))\n        " + _LSUM),
        "lesson 05's kernel": _ours("kernels.online_softmax(x, BLOCK=512)"),
        "rows of −inf left as they are": _swap("", *_LEAVES),
        "tiles 15 below m left out": _swap("", _LSUM, f"{_LSUM} * tl.where(tl.max(x, axis=0) - m > -15.0, 1.0, 0.0)"),
        "l + 1e-6": _swap("", "tl.exp(x - m) / l", "tl.exp(x - m) / (l + 1e-6)"),
        "equal maxima once": _swap("", "l = 0.0", "l = 1.0", _LSUM, "l += tl.sum(tl.where(x == m, 0.0, tl.exp(x - m)), axis=0)"),
        "maximum without the last tile": _swap("", _TILE_M, "tl.where((start + BLOCK >= N) & (start > 0), m, tl.maximum(m, tl.max(x, axis=0)))"),
        "maximum without the last column": _swap("", _TILE_M, 'tl.maximum(m, tl.max(tl.where((cols == N - 1) & (N > 1), -float("inf"), x), axis=0))'),
        "maximum without the first tile": _swap("", _TILE_M, "tl.where((start == 0) & (N > BLOCK), m, tl.maximum(m, tl.max(x, axis=0)))"),
        "dropped below 16": _swap("", "tl.exp(x - m)", "tl.where(x < m - 16.0, 0.0, tl.exp(x - m))"),
        "clamped at -20": _swap("", "tl.exp(x - m)", "tl.exp(tl.maximum(x - m, -20.0))"),
        "32 tiles": _swap("", "range(0, N, BLOCK)", "range(0, 32 * BLOCK, BLOCK)"),
        "17 tiles": _swap("", "range(0, N, BLOCK)", "range(0, 17 * BLOCK, BLOCK)"),
        "sum of the last tile, BLOCK=16384": _swap("", "BLOCK=512", "BLOCK=16384", "l += tl.sum", "l = tl.sum"),
        "maximum of the last tile, a driver without BLOCK": _swap("", "x, BLOCK=512, num_warps=4)", "x)", "    BLOCK = min(BLOCK,", "    num_warps = 4\n    BLOCK = min(16384,", _TILE_M, "tl.max(x, axis=0)"),
        "sum of the last tile, a driver without BLOCK": _swap("", "x, BLOCK=512, num_warps=4)", "x)", "    BLOCK = min(BLOCK,", "    num_warps = 4\n    BLOCK = min(32768,", "l += tl.sum", "l = tl.sum"),
        "1024 programs": _swap("", "[(M,)]", "[(min(M, 1024),)]"),
        "65,535 programs": _swap("", "[(M,)]", "[(min(M, 65535),)]"),
        "m begins at −1e6": _swap("", 'm = -float("inf")', "m = -1e6"),
        "no device": _swap("", ", device=x.device", ""),
    },
    "online": {
        **STATE, **ELSEWHERE,
        "a single tile": _ours("kernels.single_tile_softmax(x)"),
        **_Y_32,
        "its tile twice": _code("", _TILE_AGAIN.format(loads=2)),
        "terms of the sum in 16 bits": _swap("", "tl.sum(tl.exp(x - shift)", f"tl.sum(tl.exp(x - shift){_TERMS_16}"),
        "lesson 03's kernel for long rows, lesson 04's for others": _ours("single_tile_softmax(x) if x.shape[1] > 8000 else two_pass_softmax(x, BLOCK=512)"),
        "one tile, whatever BLOCK is": _swap("", "min(BLOCK, triton.next_power_of_2(N))", "triton.next_power_of_2(N)"),
        "NaN among −inf forgotten": _swap("", _ONLINE_L, f'{_ONLINE_L}\n        l = tl.where(m_new == -float("inf"), 0.0, l)'),
        "l + 1e-6": _swap("", "tl.exp(x - shift) / l", "tl.exp(x - shift) / (l + 1e-6)"),
        "a tile left out whose maximum is that so far": _swap("", _ONLINE_L, "l = tl.where(tl.max(x, axis=0) == m, l, l * tl.exp(m - shift) + tl.sum(tl.exp(x - shift), axis=0))"),
        "equal maxima in a tile once": _swap("", "tl.sum(tl.exp(x - shift), axis=0)", "tl.sum(tl.where(x == tl.max(x, axis=0), 0.0, tl.exp(x - shift)), axis=0) + tl.exp(tl.max(x, axis=0) - shift)"),
        "never rescaled, BLOCK=16384": _swap("", "BLOCK=512", "BLOCK=16384", "l * tl.exp(m - shift)", "l"),
        "never rescaled, a driver without BLOCK": _swap("", "x, BLOCK=512, num_warps=4)", "x)", "    BLOCK = min(BLOCK,", "    num_warps = 4\n    BLOCK = min(16384,", "l * tl.exp(m - shift)", "l"),
        "l of the last tile, BLOCK=65536": _swap("", "BLOCK=512", "BLOCK=65536", "l = l * tl.exp(m - shift) + tl.sum", "l = tl.sum"),
        "32 tiles": _swap("", "range(0, N, BLOCK)", "range(0, 32 * BLOCK, BLOCK)"),
        "five tiles": _swap("", "range(0, N, BLOCK)", "range(0, 5 * BLOCK, BLOCK)"),
        "dropped below 16": _swap("", "tl.exp(x - shift)", "tl.where(x < shift - 16.0, 0.0, tl.exp(x - shift))"),
        "1024 programs": _swap("", "[(M,)]", "[(min(M, 1024),)]"),
        "65,535 programs": _swap("", "[(M,)]", "[(min(M, 65535),)]"),
        "m begins at −1e4": _swap("", 'm, shift, l = -float("inf")', "m, shift, l = -1e4"),
        "m begins at −1e9": _swap("", 'm, shift, l = -float("inf")', "m, shift, l = -1e9"),
    },
    "split_row": {
        **STATE, **ELSEWHERE,
        "a single tile": _ours("kernels.single_tile_softmax(x)"),
        "lesson 05's kernel": _ours("kernels.online_softmax(x, BLOCK=512)"),
        **_Y_32,
        "lesson 05's kernel, and programs that do nothing": _code("", "from helpers.kernels import online_kernel\n\n\n@triton.jit\ndef kernel(y_ptr, x_ptr, y_stride, x_stride, x_col_stride, N, BLOCK: tl.constexpr):\n    if tl.program_id(1) == 0:\n        online_kernel(y_ptr, x_ptr, y_stride, x_stride, x_col_stride, N, BLOCK)\n\n\ndef my_softmax(x):\n    M, N = x.shape\n    y = torch.empty(M, N, dtype=x.dtype, device=x.device)\n    kernel[(M, 2)](y, x, y.stride(0), *x.stride(), N, BLOCK=min(512, triton.next_power_of_2(N)))\n    return y\n"),
        "PARTS is at most 64": _swap("", "PARTS = triton.next_power_of_2(grid[1])", "PARTS = 64"),
        "pairs in x's dtype": _swap("", "torch.empty(*grid, 2, device=x.device)", "torch.empty(*grid, 2, dtype=x.dtype, device=x.device)"),
        "PARTS is 32": _swap("", "PARTS = triton.next_power_of_2(grid[1])", "PARTS = 32"),
        "PARTS is 16": _swap("", "PARTS = triton.next_power_of_2(grid[1])", "PARTS = 16"),
        "equal slices once": _swap("", "l = tl.sum(l_parts * tl.exp(m_parts - shift), axis=0)",
                                   "l = tl.sum(tl.where(m_parts == m, 0.0, l_parts * tl.exp(m_parts - shift)), axis=0) + tl.max(tl.where(m_parts == m, l_parts, 0.0), axis=0)"),
        "the own pair only, BLOCK=16384": _swap("", "BLOCK=512", "BLOCK=16384", "exists = parts < tl.num_programs(1)", "exists = parts == part"),
        "sums added, BLOCK=65536": _swap("", "BLOCK=512", "BLOCK=65536", "l_parts * tl.exp(m_parts - shift)", "l_parts"),
        "l + 1e-6": _swap("", "tl.exp(x - shift) / l", "tl.exp(x - shift) / (l + 1e-6)"),
        "at most 17 slices": _swap("", "exists = parts < tl.num_programs(1)", "exists = (parts < tl.num_programs(1)) & (parts < 17)"),
        "four rows": _swap("", "grid = M, triton", "grid = min(M, 4), triton"),
        "1024 rows": _swap("", "grid = M, triton", "grid = min(M, 1024), triton"),
        "m at least −1e4": _swap("", "m = tl.max(m_parts, axis=0)", "m = tl.maximum(tl.max(m_parts, axis=0), -1e4)"),
        "pairs kept by shape": _swap("", "    pairs = torch.empty(*grid, 2, device=x.device)", "    known = globals().setdefault('kept', {})\n    new = (M, N, BLOCK) not in known\n    pairs = known.setdefault((M, N, BLOCK), torch.empty(*grid, 2, device=x.device))",
                                     "    pairs_kernel[grid]", "    if new:\n        pairs_kernel[grid]"),
    },
    "merge": {
        "m begins at −1000": _swap("", "max(m_a, m_b)", "max(m_a, m_b, -1000.0)"),
        "m at least 0": _swap("", "max(m_a, m_b)", "max(m_a, m_b, 0.0)"),
        "m other −1e4": _swap("", "max(m_a, m_b)", "max(m_a, m_b, -1e4)"),
        "m begins at −1e30": _swap("", "max(m_a, m_b)", "max(m_a, m_b, -1e30)"),
        "no guard": _swap("", "    if m == -INF:\n        return m, 0.0\n", ""),
        "equal maxima once": _swap("", "return m, " + _MERGE_L, "return m, (l_a if m_a == m_b else " + _MERGE_L + ")"),
        "the larger sum of equal maxima": _swap("", "return m, " + _MERGE_L, "return m, (max(l_a, l_b) if m_a == m_b else " + _MERGE_L + ")"),
        "float32": _swap("", "return m, " + _MERGE_L, "return m, float(torch.tensor(" + _MERGE_L + ", dtype=torch.float32))"),
        "float32 inside": _code("", "import numpy as np\n\n\ndef merge(a, b):\n    m = max(a[0], b[0])\n    if m == -INF:\n        return m, 0.0\n"
                                "    return m, float(np.float32(a[1]) * np.exp(np.float32(a[0] - m)) + np.float32(b[1]) * np.exp(np.float32(b[0] - m)))"),
        "dropped below 20": _swap("", "return m, " + _MERGE_L, "return m, (l_a if m_a - m_b > 20 else l_b if m_b - m_a > 20 else " + _MERGE_L + ")"),
        "clamped at −20": _swap("", "math.exp(m_a - m)", "math.exp(max(m_a - m, -20))", "math.exp(m_b - m)", "math.exp(max(m_b - m, -20))"),
        "l + 1e-9": _swap("", "return m, l_a", "return m, 1e-9 + l_a"),
        "known by its maxima": _swap("", "return m, " + _MERGE_L, "return m, globals().setdefault('known', {}).setdefault((m_a, m_b), " + _MERGE_L + ")"),
        "nearly equal maxima": _swap("", "return m, " + _MERGE_L, "return m, (l_a + l_b if math.isclose(m_a, m_b) else " + _MERGE_L + ")"),
        "l at least 1": _swap("", "return m, " + _MERGE_L, "return m, max(1.0, " + _MERGE_L + ") + (0.5 if m < -20 else 0)"),
        "nothing where one is empty": _swap("", "    if m == -INF:", "    if min(m_a, m_b) == -INF:"),
    },
    "recurrence": {
        "m begins at 0": _swap("", "m, l = -INF, 0.0", "m, l = 0.0, 0.0"),
        "m begins at −1000": _swap("", "m, l = -INF, 0.0", "m, l = -1000.0, 0.0"),
        "m begins at −1e9": _swap("", "m, l = -INF, 0.0", "m, l = -1e9, 0.0"),
        "all at once": _code("", "def statistics(blocks):\n    row = [x for block in blocks for x in block]\n    m = max(row)\n    return m, sum(math.exp(x - m) for x in row)"),
        "all at once, in two passes": _code("", "def statistics(blocks):\n    m = max(max(b) for b in blocks)\n    return m, sum(sum(math.exp(x - m) for x in b) for b in blocks)"),
        "fsum": _code("", "def statistics(blocks):\n    row = sum(blocks, [])\n    m = max(row)\n    return m, math.fsum(math.exp(x - m) for x in row)"),
        "torch": _code("", "def statistics(blocks):\n    row = torch.tensor(sum(blocks, []), dtype=torch.float64)\n    m = row.max()\n    return m.item(), (row - m).exp().sum().item()"),
        "logsumexp": _code("", "def statistics(blocks):\n    row = torch.tensor(sum(blocks, []), dtype=torch.float64)\n    m = row.max()\n    return m.item(), (row - m).logsumexp(0).exp().item()"),
        "numpy": _code("", "import numpy as np\n\n\ndef statistics(blocks):\n    row = np.concatenate(blocks)\n    return row.max(), np.exp(row - row.max()).sum()"),
        "five blocks": _swap("", "in blocks:", "in blocks[:5]:"),
        "eight blocks": _swap("", "in blocks:", "in blocks[:8]:"),
        "blocks changed": _swap("", _STEP, "for i, x in enumerate(block):\n            block[i] = math.exp(x - m_new)\n        l = l * math.exp(m - m_new) + sum(block)"),
        "blocks emptied": _swap("", "        m = m_new", "        m = m_new\n        block.clear()"),
        "the list emptied": _swap("", "    return m, l", "    blocks.clear()\n    return m, l"),
        "left out where equal": _swap("", _STEP, "if max(block) != m:\n            " + _STEP),
        "equal maxima once": _swap("", "sum(math.exp(x - m_new) for x in block)", "sum(math.exp(x - m_new) for x in block if x < m_new) + (m_new in block)"),
        "dropped below 20": _swap("", "for x in block)", "for x in block if x > m_new - 20)"),
        "float32": _swap("", "        m = m_new", "        m, l = m_new, float(torch.tensor(l, dtype=torch.float32))"),
        "four of a block": _swap("", "for x in block)", "for x in block[:4])", "max(block)", "max(block[:4])"),
        "two numbers of a block": _swap("", "for x in block)", "for x in (block[0], block[-1])[: len(block)])"),
    },
}  # fmt: skip

_LOSS = "m - x_target + tl.log(l)"
WRONG["row_loss"] = {
    "−1e9 in the sum": _swap("", "tl.exp(x - m)", "tl.exp(tl.where(cols < N, x, -1e9) - m)"),
    "−1e9 in the maximum": _swap("", "m = tl.max(x, axis=0)", "m = tl.max(tl.where(cols < N, x, -1e9), axis=0)"),
    "at least 1e-6": _swap("", _LOSS, f"tl.maximum({_LOSS}, 1e-6)"),
    "targets of 16 bits": _swap("", "(losses, x, target,", "(losses, x, target.to(torch.int16),"),
    "the row's number in 16 bits": _swap("", "tl.program_id(0).to(tl.int64)", "tl.program_id(0).to(tl.int16)"),
}
WRONG["loss_and_gradient"] = {
    "targets of 16 bits": _swap("", "(losses, gradient, x, target,", "(losses, gradient, x, target.to(torch.int16),"),
    "65,535 programs": _swap("", "both_kernel[(M,)]", "both_kernel[(min(M, 65535),)]"),
}
WRONG["occupancy"] = {
    "at least 1": _swap("", "return min(32, warps // num_warps)", "return max(1, min(32, warps // num_warps))"),
    "1 for 32 warps": _swap("", "    warps = 4", "    if num_warps == 32:\n        return 1\n    warps = 4"),
    "None where nothing fits": _swap(
        "", "return min(32, warps // num_warps)", "return min(32, warps // num_warps) or None"
    ),
}
WRONG["predict_time"] = {
    "few rows take no time": _swap(
        "", "    turns = math.ceil", "    if n_rows < SMS:\n        return LAUNCH + 1\n    turns = math.ceil"
    ),
    "bytes wherever several programs fit": _swap(
        "", "    return LAUNCH", "    if programs > 1:\n        return LAUNCH + memory\n    return LAUNCH"
    ),
    "None for one program": _swap(
        "", "    return LAUNCH", "    if programs == 1:\n        return None\n    return LAUNCH"
    ),
}
WRONG["my_pick"] = {
    "pick by the rule of thumb": _code(
        "",
        "from helpers.choosing.rules import pick\n\n\ndef my_pick(n_cols, n_rows, dtype):\n"
        "    return pick(n_cols, n_rows=n_rows, dtype=dtype, rule='thumb').launch",
    ),
    "pick for most": _swap(
        "",
        "    BLOCK = tile(n_cols)",
        "    from helpers.choosing.rules import pick\n    if n_cols > 512:\n"
        "        return pick(n_cols, n_rows, dtype).launch\n    BLOCK = tile(n_cols)",
    ),
}
_RANDN = "x = torch.randn(gpu.shape, device=gpu.device)"
_CHECKED = "not torch.allclose(mine(x).double(), expected, rtol=1e-4, atol=1e-9)"
_FLUSH = "            gpu.flush()\n"
WRONG["benchmark"] = {
    "no warm-up": _swap("", "    theirs(x)\n", ""),
    "warm-up of another shape": _swap("", "    theirs(x)\n", "    theirs(x[:1])\n"),
    "one row repeated": _swap(
        "", _RANDN, "x = torch.randn(1, gpu.shape[1], device=gpu.device).repeat(gpu.shape[0], 1)"
    ),
    "0 to 9": _swap("", _RANDN, "x = torch.randint(0, 10, gpu.shape, device=gpu.device).float()"),
    "arange": _swap("", _RANDN, "x = torch.arange(8 * 4096, device=gpu.device).reshape(gpu.shape) / 1000.0"),
    "the last column": _swap("", _CHECKED, "not torch.allclose(mine(x)[:, -1].double(), expected[:, -1], rtol=1e-4)"),
    "all rows but the last": _swap(
        "", _CHECKED, "not torch.allclose(mine(x)[:-1].double(), expected[:-1], rtol=1e-4, atol=1e-9)"
    ),
    "all columns but the first": _swap(
        "", _CHECKED, "not torch.allclose(mine(x)[:, 1:].double(), expected[:, 1:], rtol=1e-4, atol=1e-9)"
    ),
    "every other row": _swap(
        "", _CHECKED, "not torch.allclose(mine(x)[::2].double(), expected[::2], rtol=1e-4, atol=1e-9)"
    ),
    "to 10 %": _swap("", "rtol=1e-4", "rtol=0.1"),
    "to 1e-4 at most": _swap("", "atol=1e-9", "atol=1e-4"),
    "sorted": _swap(
        "", _CHECKED, "not torch.allclose(mine(x).double().sort(1).values, expected.sort(1).values, rtol=1e-4)"
    ),
    "3 repeats": _swap("", "range(30)", "range(3)"),
    "flush, then x read": _swap("", _FLUSH, _FLUSH + "            x.sum()\n"),
    "two halves": _swap(
        "",
        _TURNS,
        "    for name, fn in (('mine', mine), ('theirs', theirs), ('theirs', theirs), ('mine', mine)):\n        for _ in range(15):\n",
    ),
    "flush between the marks": _swap(
        "", _FLUSH + "            start = gpu.record()\n", "            start = gpu.record()\n" + _FLUSH
    ),
}

POINTS = {
    ("two_pass", "a single tile"): 2, ("two_pass", "lesson 05's kernel"): 2, ("online", "a single tile"): 2.5,
    ("online", "one tile, whatever BLOCK is"): 2.5,
    **{("benchmark", lie): 3 for lie in (
        "no warm-up", "warm-up of another shape", "one row repeated", "0 to 9", "arange", "3 repeats", "flush, then x read",
        "two halves", "flush between the marks",
    )},
    ("two_pass", "its tile three times"): 2, ("online", "its tile twice"): 2.5,
    ("online", "lesson 03's kernel for long rows, lesson 04's for others"): 2.5,
    ("split_row", "lesson 05's kernel, and programs that do nothing"): 2,
    ("split_row", "a single tile"): 2, ("split_row", "lesson 05's kernel"): 2,
}  # fmt: skip
"""What a right answer to another exercise keeps."""

_EXP2 = ("tl.exp(x - m)", "tl.exp2(x * 1.4426950408889634 - m * 1.4426950408889634)")
_FLOAT64 = (".to(tl.float32)", ".to(tl.float64)")
_RECIPROCAL = ("e / l", "e * (1.0 / l)")
_TWICE_RESCALED = (
    "l = l * tl.exp(m - shift) + tl.sum(tl.exp(x - shift), axis=0)",
    "half = 0.5 * (m - shift)\n        l = l * tl.exp(half) * tl.exp(half) + tl.sum(tl.exp(x - shift), axis=0)",
)
_SWIZZLED = "row = tl.program_id(0) // 2 + tl.program_id(0) % 2 * ((M + 1) // 2)"
_OF_M = (
    "x_stride, x_col_stride, N,",
    "x_stride, x_col_stride, M, N,",
    "x.stride(0), x.stride(1), N,",
    "x.stride(0), x.stride(1), M, N,",
)


def _rows(row, grid, line="row = tl.program_id(0).to(tl.int64)"):
    """Rows in another order: the kernel gets M, and is launched with another grid."""
    return _swap("", *_OF_M, line, f"{row}\n    row = tl.cast(row, tl.int64)", "[(M,)]", f"[{grid}]")


def _tile_rows(row, grid="(M,)"):
    """The same in exercise 2.1, whose kernel gets one stride alone."""
    return _swap("", "x_ptr, stride,", "x_ptr, stride, M,", "x, x.stride(0),", "x, x.stride(0), M,", "row = tl.program_id(0)", row,
                 "[(M,)]", f"[{grid}]")  # fmt: skip


_BY_TICKET = """
@triton.jit
def kernel(y_ptr, x_ptr, next_ptr, y_stride, x_stride, x_col_stride, M, N, BLOCK: tl.constexpr):
    cols = tl.arange(0, BLOCK).to(tl.int64)
    row = tl.atomic_add(next_ptr, 1).to(tl.int64)
    {loop} row < M:
        x = tl.load(x_ptr + row * x_stride + cols * x_col_stride, mask=cols < N, other=-float("inf")).to(tl.float32)
        e = tl.exp(x - tl.max(x, axis=0))
        tl.store(y_ptr + row * y_stride + cols, e / tl.sum(e, axis=0), mask=cols < N)
        {next}


def my_softmax(x):
    M, N = x.shape
    y = torch.empty(M, N, dtype=x.dtype, device=x.device)
    counter = torch.zeros(1, dtype=torch.int32, device=x.device)
    strides = y.stride(0), *x.stride()
    kernel[({grid},)](y, x, counter, *strides, M, N, BLOCK=triton.next_power_of_2(N))
    return y
"""
_A_LAUNCH_A_ROW = """
launch = softmax_kernel


def my_softmax(x):
    M, N = x.shape
    y = torch.empty(M, N, dtype=x.dtype, device=x.device)
    for i in range(M):
        launch[(1,)](y[i], x[i], {arguments})
    return y
"""
_FIRST_OR_ALL = "x, BLOCK=512, num_warps=4)", "x)", "    BLOCK = min(BLOCK,", "    num_warps = 8\n    BLOCK = min(4096,"

ROWS_OF_A_TILE = {
    "a swizzle": _tile_rows(_SWIZZLED),
    "rows in blocks of 64 by turns": _tile_rows("row = tl.program_id(0) % 64 * tl.cdiv(M, 64) + tl.program_id(0) // 64\n    if (row >= M) | (tl.program_id(0) // 64 >= tl.cdiv(M, 64)):\n        return",
                                    "(64 * triton.cdiv(M, 64),)"),
    "two dimensions": _tile_rows("row = tl.program_id(0) * tl.num_programs(1) + tl.program_id(1)\n    if row >= M:\n        return", "(triton.cdiv(M, 257), 257)"),
    "three dimensions": _tile_rows(
        "row = (tl.program_id(0) * tl.num_programs(1) + tl.program_id(1)) * tl.num_programs(2) + tl.program_id(2)\n    if row >= M:\n        return",
        "(triton.cdiv(M, 105), 7, 15)"),
    "by ticket": _code("", _BY_TICKET.format(loop="if", next="pass", grid="M")),
    "by ticket, a few programs": _code("", _BY_TICKET.format(loop="while", next="row = tl.atomic_add(next_ptr, 1).to(tl.int64)", grid="min(M, 8)")),
    "a launch for each row": _code("", _A_LAUNCH_A_ROW.format(arguments="x.stride(0), BLOCK=N")),
}  # fmt: skip
ROWS = {
    "a swizzle": _rows(_SWIZZLED, "(M,)"),
    "a swizzle of blocks": _rows("row = tl.program_id(0) % 8 * tl.cdiv(M, 8) + tl.program_id(0) // 8\n    if row >= M:\n        return", "(8 * triton.cdiv(M, 8),)"),
    "two dimensions": _rows("row = tl.program_id(0) * tl.num_programs(1) + tl.program_id(1)\n    if row >= M:\n        return", "(triton.cdiv(M, 257), 257)"),
    "in inference mode": _code("", "once = my_softmax\n\n\nclass Softmax(torch.nn.Module):\n    def forward(self, x):\n        with torch.inference_mode():\n            return once(x)\n\n\nmy_softmax = Softmax()\n"),
}  # fmt: skip

RIGHT = {
    "predict_time": {
        "limits that blend where they are nearly equal": _swap(
            "",
            "max(memory, instructions, turns * (ALONE + load + compute))",
            "sum(t**6 for t in (memory, instructions, turns * (ALONE + load + compute))) ** (1 / 6)",
        ),
        "a launch of 4 µs and 1.3 µs alone": _swap("", "LAUNCH, ALONE = 132, 3.5, 1.5", "LAUNCH, ALONE = 132, 4.0, 1.3"),
    },
    "benchmark": {
        "10 repeats": _swap("", "range(30)", "range(10)"),
        "fresh data in each turn": _swap("", _FLUSH, "            x = torch.randn_like(x)\n" + _FLUSH),
        "the first runs dropped": _swap("", "    theirs(x)\n", "", "in marks[name])", "in marks[name][2:])"),
        "less exact": _swap("", "rtol=1e-4, atol=1e-9", "rtol=1e-3, atol=1e-7"),
    },
    "my_pick": {"warps of its own": _swap("", "max(1, BLOCK // 512)", "max(1, BLOCK // 512 if n_rows else 1)")},
    "eager": {
        "a reciprocal": _swap("", _E_SUM, "    return e * (1 / e.sum(dim=1, keepdim=True))"),
        "logarithms": _code("", "def my_softmax(x):\n    return torch.log_softmax(x, dim=1).exp()"),
        "in float64": _code("", "def my_softmax(x):\n    return torch.softmax(x.double(), dim=1).to(x.dtype)"),
        "a copy changed": _swap("", "    e = torch.exp(x - m)", "    x = x.clone()\n    x -= m\n    e = torch.exp(x)"),
    },
    "single_tile": {
        "exp2 and a reciprocal": _swap("", *_EXP2, *_RECIPROCAL),
        "in float64": _swap("", ".to(tl.float32)", ".to(tl.float64)"),
        "logarithm of the sum": _swap("", "e / l", "tl.exp(x - m - tl.log(l))"),
        "rows in chunks": _swap("", "    softmax_kernel[(M,)](y, x, x.stride(0), BLOCK=N)",
                                "    for i in range(0, M, 32768):\n        part = x[i : i + 32768]\n        softmax_kernel[(len(part),)](y[i:], part, x.stride(0), BLOCK=N)"),
        "without float32": _swap("", ".to(tl.float32)", ""),
        "no keyword": _swap("", "torch.empty_like(x)", "x.new_empty(M, N)"),
        **ROWS_OF_A_TILE,
        "in inference mode": ROWS["in inference mode"],
    },
    "masked": {
        "exp2 and a reciprocal": _swap("", *_EXP2, *_RECIPROCAL),
        "in float64": _swap("", "x.to(tl.float32)", "x.to(tl.float64)"),
        "a persistent loop of three programs": _ours("kernels.persistent_softmax(x, programs=3)"),
        "several rows a program": _ours("kernels.several_rows_softmax(x)"),
        "a promise that holds": _swap("", "tl.exp(x - m)", "tl.exp(tl.max_constancy(tl.max_contiguous(cols, BLOCK) * 0.0, BLOCK) + x - m)"),
        "a sum of its own": _swap("", "@triton.jit\n", "@triton.jit\ndef added(a, b):\n    return a + b\n\n\n@triton.jit\n", "tl.sum(e, axis=0)", "tl.reduce(e, 0, added)"),
        "a device of its own": _swap("", "device=x.device", "device=DEVICE"),
        "moved to the device": _swap("", _EMPTY_Y, "torch.empty(M, N, dtype=x.dtype).to(x.device)"),
        **ROWS,
        "by ticket": _code("", _BY_TICKET.format(loop="if", next="pass", grid="M")),
        "a launch for each row": _code("", _A_LAUNCH_A_ROW.format(arguments="0, 0, x.stride(1), N, BLOCK=triton.next_power_of_2(N)")),
    },
    "two_pass": {
        "exp2 and a reciprocal": _swap("", *_EXP2, "/ l", "* (1.0 / l)"),
        "in float64": _swap("", *_FLOAT64, "l = 0.0", "l = tl.full((), 0.0, tl.float64)", 'm = -float("inf")', 'm = tl.full((), -float("inf"), tl.float64)'),
        "a driver without BLOCK": _swap("", *_FIRST_OR_ALL),
        "tiles of 16": _swap("", "x, BLOCK=512, num_warps=4)", "x)", "BLOCK = min(BLOCK,", "num_warps, BLOCK = 1, min(16,"),
        "from the end": _swap("", f"l = 0.0\n    for start in range(0, N, BLOCK):\n        cols = start + tl.arange(0, BLOCK)\n        {_SUM_LOOP}",
                              f"l = 0.0\n    for step in range(0, tl.cdiv(N, BLOCK)):\n        cols = (tl.cdiv(N, BLOCK) - 1 - step) * BLOCK + tl.arange(0, BLOCK)\n        {_SUM_LOOP}"),
    },
    "online": {
        "exp2 and a reciprocal": _swap("", "tl.exp(x - shift) / l", "tl.exp2(x * 1.4426950408889634 - shift * 1.4426950408889634) * (1.0 / l)"),
        "rescaled twice": _swap("", *_TWICE_RESCALED),
        "running sums of 16,384": _swap("", "tl.sum(tl.exp(x - shift), axis=0)", "tl.sum(tl.where(tl.arange(0, BLOCK) == BLOCK - 1, tl.cumsum(tl.exp(x - shift), axis=0), 0.0), axis=0)",
                                        "x, BLOCK=512, num_warps=4)", "x)", "BLOCK = min(BLOCK,", "num_warps, BLOCK = 8, min(16384,"),
        "in float64": _swap("", *_FLOAT64, 'm, shift, l = -float("inf"), 0.0, 0.0',
                            'm, shift, l = tl.full((), -float("inf"), tl.float64), tl.full((), 0.0, tl.float64), tl.full((), 0.0, tl.float64)'),
        "a driver without BLOCK": _swap("", *_FIRST_OR_ALL),
    },
    "split_row": {
        "slices of 128": _swap("", "BLOCK=512", "BLOCK=128"),
        "pairs in float64": _swap("", "torch.empty(*grid, 2, device=x.device)", "torch.empty(*grid, 2, dtype=torch.float64, device=x.device)"),
        "exp2 and a reciprocal": _swap("", "tl.exp(x - shift) / l", "tl.exp2(x * 1.4426950408889634 - shift * 1.4426950408889634) * (1.0 / l)"),
        "merged in turn, guarded": _swap("", "l = tl.sum(l_parts * tl.exp(m_parts - shift), axis=0)",
                                         _IN_TURN.replace("tl.exp(m - m_new)", "tl.exp(m - shift)").replace(
                                             "m_new = tl.maximum(m, tl.load(pair))", "m_new = shift").replace("m, l = ", "m, l = shift, 0.0  # ")),
    },
    "merge": {
        "by the difference": _code("", "def merge(a, b):\n    (m, l), (low, s) = (a, b) if a[0] >= b[0] else (b, a)\n    return (m, l) if low == -INF else (m, l + s * math.exp(low - m))"),
        "logarithms of float64": _code("", "def merge(a, b):\n    m = max(a[0], b[0])\n    if m == -INF:\n        return m, 0.0\n"
                                       "    t = torch.tensor([a, b], dtype=torch.float64)\n    return m, (t[:, 1] * (t[:, 0] - m).exp()).sum().item()"),
        "fsum": _swap("", "return m, " + _MERGE_L, "return m, math.fsum([l_a * math.exp(m_a - m), l_b * math.exp(m_b - m)])"),
    },
    "recurrence": {
        "element by element": _swap("", "        m_new = max(m, max(block))\n        " + _STEP + "\n        m = m_new",
                                    "        for x in block:\n            m_new = max(m, x)\n            l = l * math.exp(m - m_new) + math.exp(x - m_new)\n            m = m_new"),
        "pairs merged": _swap("", "        m_new = max(m, max(block))\n        " + _STEP + "\n        m = m_new",
                              "        m_b = max(block)\n        l_b = sum(math.exp(x - m_b) for x in block)\n        m_new = max(m, m_b)\n"
                              "        l = l * math.exp(m - m_new) + l_b * math.exp(m_b - m_new)\n        m = m_new"),
        "by index": _swap("", "for block in blocks:", "for i in range(len(blocks)):\n        block = blocks[i]"),
    },
}  # fmt: skip
