"""Variants of lesson 12's answers, wrong and right, as corpus.py lists those of the other lessons."""

from variants import Variant
from variants import coded as _code
from variants import swapped as _swap

_EACH = "each = (N + parts - 1) // parts"
_FIRST = "first = tl.minimum(N, part * each)"
_END = "end = tl.minimum(N, first + each)"
_TOP = "m = tl.max(m_parts, axis=0)"
_SHIFT = 'shift = tl.where(m == -float("inf"), 0.0, m)'
_WEIGHTS = "weights = tl.exp(m_parts - shift)"
_L = "l = tl.sum(weights * l_parts, axis=0)"
_O = "o = tl.sum(weights[:, None] * o_parts, axis=0)"
_DIVIDE = "o = o / tl.where(l == 0.0, 1.0, l)"
_LSE = "lse = m + tl.log(l)"
_GUARDED = "tl.where(l_parts == 0.0, 1.0, l_parts)"
_LSE_PARTS = 'tl.where(l_parts == 0.0, -float("inf"), m_parts + tl.log(l_parts))'
_PART_STORE = "    tl.store(part_ptr + at[:, None] * D + cols[None, :], o, mask=there)"

_OF_MERGE = {
    "one part": _swap("another_exercise", "S=6, BLOCK_N=64", "S=1, BLOCK_N=64"),
    "the sum of the parts' results": _swap("mean_of_parts", _O, f"o = tl.sum(o_parts / {_GUARDED}[:, None], axis=0)", _DIVIDE, "o = o"),
    "m and l swapped": _swap("m_for_l_of_parts", "pair_ptr + 2 * at, mask", "pair_ptr + 2 * at + 1 - 0, mask", "pair_ptr + 2 * at + 1, mask", "pair_ptr + 2 * at, mask"),
    "not ended at N": _swap("past_the_end", _FIRST, "first = part * each", _END, "end = first + each"),
    "keys missing": _swap("no_part_has_keys", _EACH, "each = 0"),
    "merge missing": _swap("parts_never_merged", _DIVIDE, "o = tl.zeros((BLOCK_D,), tl.float32)", _LSE, 'lse = -float("inf")'),
    "no mask for parts": _swap("past_the_end", "exists = head * S + parts, parts < S", "exists = head * S + parts, parts < BLOCK_S"),
    "only some heads": _swap("results_not_stored", "merge_kernel[(H,)]", "merge_kernel[(max(1, H // 2),)]"),
    "lse and o swapped": _swap("no_two_results", "return o, lse", "return lse, o"),
    "o alone": _swap("no_two_results", "return o, lse", "return o"),
    "o in float32": _swap("wrong_dtype", "torch.empty(H, D, dtype=q.dtype, device=q.device)", "torch.empty(H, D, device=q.device)"),
    "o in q": _swap("input_overwritten", "o = torch.empty(H, D, dtype=q.dtype, device=q.device)", "o = q"),
    "no column of weights": _swap("does_not_compile", "weights[:, None] * o_parts", "weights * o_parts"),
    "lse off by a quarter": _swap("lse_wrong", _LSE, "lse = m + tl.log(l) + 0.25"),
}  # fmt: skip

_S = 's = tl.dot(q, k.T, input_precision="ieee") * scale'
_M_NEW = "m_new = tl.maximum(m, tl.max(s, axis=1))"
_SHIFT_OF_ROWS = 'shift = tl.where(m_new == -float("inf"), 0.0, m_new)'
_P = "p = tl.exp(s - shift[:, None])"
_FACTOR = "factor = tl.exp(m - shift)\n        l = l * factor"
_PV = 'tl.dot(p.to(v.dtype), v, input_precision="ieee")'
_O_SUM = f"o = o * factor[:, None] + {_PV}"
_LAUNCH = "return decoded(group_kernel, len(k), q, k, v, S, BLOCK_N=BLOCK_N, BLOCK_G=BLOCK_G)"
_LOOP = "    for start in range(first, end, BLOCK_N):\n        keys = start + tl.arange(0, BLOCK_N).to(tl.int64)\n        mask"

_OF_GROUP = {
    "divided in the part": _swap("o_of_parts_divided", _PART_STORE, f"    o = o / tl.where(l == 0.0, 1.0, l)[:, None]\n{_PART_STORE}"),
    "m begins at 0": _swap("m_starts_high", 'm = tl.full((BLOCK_G,), -float("inf"), tl.float32)', "m = tl.zeros((BLOCK_G,), tl.float32)"),
    "no maximum": _swap("maximum_missing", _M_NEW, "m_new = tl.zeros((BLOCK_G,), tl.float32)", 'm = tl.full((BLOCK_G,), -float("inf"), tl.float32)',
                        "m = tl.zeros((BLOCK_G,), tl.float32)"),
    "one tile a part": _swap("one_tile", _LOOP, _LOOP.replace("first, end, BLOCK_N", "first, tl.minimum(end, first + 1), BLOCK_N")),
    "no scale": _swap("no_scale", _S, _S.replace(" * scale", "")),
    "scaled by 1/d": _swap("scaled_by_d", _S, _S.replace("* scale", "/ D")),
    "scores for weights": _swap("scores_not_exponentials", _PV, "tl.dot(tl.where(s == -float('inf'), 0.0, s).to(v.dtype), v, input_precision='ieee')"),
    "mean of the values": _swap("mean_of_values", _S, f"{_S} * 0.0\n        s = tl.where(s == s, s, 0.0)"),
    "int32": _swap("offsets_overflow", "keys = start + tl.arange(0, BLOCK_N).to(tl.int64)\n        mask = (keys", "keys = start + tl.arange(0, BLOCK_N)\n        mask = (keys"),
    "TF32": _swap("not_exact", _S, "s = tl.dot(q, k.T) * scale"),
    "columns one apart": _swap("strides_of_another", "cols[None, :] * k_col, mask=mask, other=0.0)\n        v", "cols[None, :], mask=mask, other=0.0)\n        v"),
    "p in float32, v not": _swap("does_not_compile", "p.to(v.dtype)", "p"),
    "k not turned over": _swap("does_not_compile", "k.T", "k"),
    "no mask for the rows": _swap("past_the_end", "(rows < G)[:, None] & (cols < D)[None, :]", "(rows >= 0)[:, None] & (cols < D)[None, :]"),
    "a program for each query head": _swap("past_the_end", "decoded(group_kernel, len(k)", "decoded(group_kernel, len(q)"),
    "query by query": _swap("keys_for_each_query", _LAUNCH, "return decoded(part_kernel, len(q), q, k, v, S, BLOCK_N=BLOCK_N)"),
    "in PyTorch": _code("no_kernel", """
def my_grouped(q, k, v):
    G = len(q) // max(1, len(k))
    k, v = (x.float().repeat_interleave(G, 0) for x in (k, v))
    s = (k @ q.float()[..., None])[..., 0] * q.shape[-1] ** -0.5
    p = torch.softmax(s, dim=-1).nan_to_num(0)
    return (p[:, None] @ v)[:, 0].to(q.dtype), torch.logsumexp(s, dim=-1)
"""),
    "l of the first query": _swap("only_groups", "tl.store(pair_ptr + 2 * at + 1, l,",
                                  "l = tl.sum(tl.where(rows == 0, l, 0.0), axis=0) + 0.0 * l\n    tl.store(pair_ptr + 2 * at + 1, l,"),
}  # fmt: skip

WRONG: dict[str, dict[str, Variant]] = {
    "decode": _OF_MERGE,
    "grouped": _OF_GROUP,
}  # fmt: skip

_SEVERAL_TILES = """
@triton.jit
def merge_kernel(o_ptr, lse_ptr, pair_ptr, part_ptr, S, D, BLOCK_S: tl.constexpr, BLOCK_D: tl.constexpr):
    head, cols = tl.program_id(0).to(tl.int64), tl.arange(0, BLOCK_D)
    m, l, o = -float("inf"), 0.0, tl.zeros((BLOCK_D,), tl.float32)
    for start in range(0, S, 4):
        parts = start + tl.arange(0, 4)
        at, exists = head * S + parts, parts < S
        m_parts = tl.load(pair_ptr + 2 * at, mask=exists, other=-float("inf"))
        l_parts = tl.load(pair_ptr + 2 * at + 1, mask=exists, other=0.0)
        o_parts = tl.load(part_ptr + at[:, None] * D + cols[None, :], mask=exists[:, None] & (cols < D)[None, :], other=0.0)
        m_new = tl.maximum(m, tl.max(m_parts, axis=0))
        shift = tl.where(m_new == -float("inf"), 0.0, m_new)
        weights, factor = tl.exp(m_parts - shift), tl.exp(m - shift)
        l = l * factor + tl.sum(weights * l_parts, axis=0)
        o = o * factor + tl.sum(weights[:, None] * o_parts, axis=0)
        m = m_new
    tl.store(o_ptr + head * D + cols, o / tl.where(l == 0.0, 1.0, l), mask=cols < D)
    tl.store(lse_ptr + head, m + tl.log(l))
"""
_IN_TURN = """
@triton.jit
def merge_kernel(o_ptr, lse_ptr, pair_ptr, part_ptr, S, D, BLOCK_S: tl.constexpr, BLOCK_D: tl.constexpr):
    head, cols = tl.program_id(0).to(tl.int64), tl.arange(0, BLOCK_D)
    m, l, o = -float("inf"), 0.0, tl.zeros((BLOCK_D,), tl.float32)
    for part in range(S):
        at = head * S + part
        m_part, l_part = tl.load(pair_ptr + 2 * at), tl.load(pair_ptr + 2 * at + 1)
        o_part = tl.load(part_ptr + at * D + cols, mask=cols < D, other=0.0)
        m_new = tl.maximum(m, m_part)
        shift = tl.where(m_new == -float("inf"), 0.0, m_new)
        l = l * tl.exp(m - shift) + l_part * tl.exp(m_part - shift)
        o = o * tl.exp(m - shift) + o_part * tl.exp(m_part - shift)
        m = m_new
    tl.store(o_ptr + head * D + cols, o / tl.where(l == 0.0, 1.0, l), mask=cols < D)
    tl.store(lse_ptr + head, m + tl.log(l))
"""
_BY_LSE = (
    _TOP, f"lse_parts = {_LSE_PARTS}\n    m = tl.max(lse_parts, axis=0)",
    _WEIGHTS, "weights = tl.exp(lse_parts - shift)",
    _L, "l = tl.sum(weights, axis=0)",
    _O, f"o = tl.sum(weights[:, None] * (o_parts / {_GUARDED}[:, None]), axis=0)",
)  # fmt: skip

RIGHT: dict[str, dict[str, Variant]] = {
    "decode": {
        "by log-sum-exps, o divided": _swap("", *_BY_LSE),
        "in tiles of four parts": _code("", _SEVERAL_TILES),
        "in turn": _code("", _IN_TURN),
        "exp2": _swap("", _WEIGHTS, "weights = tl.exp2((m_parts - shift) * 1.4426950408889634)"),
        "a product with 1 / l": _swap("", _DIVIDE, "o = o * (1.0 / tl.where(l == 0.0, 1.0, l))"),
        "weights divided first": _swap("", _O, "o = tl.sum((weights / tl.where(l == 0.0, 1.0, l))[:, None] * o_parts, axis=0)", _DIVIDE, "o = o"),
        "parts of nearly the same length": _swap("", _FIRST, "first = (part * N) // parts", _END, "end = ((part + 1) * N) // parts"),
        "the last part has the rest": _swap("", _EACH, "each = N // parts", _END, "end = tl.where(part == parts - 1, N, first + each)"),
        "first not ended at N": _swap("", _FIRST, "first = part * each"),
        "tl.cdiv": _swap("", _EACH, "each = tl.cdiv(N, parts)"),
        "tiles of 16 keys": _swap("", "S=6, BLOCK_N=64", "S=6, BLOCK_N=16"),
        "16 parts": _swap("", "S=6, BLOCK_N=64", "S=16, BLOCK_N=64"),
        "whole tiles of 64 a part": _swap("", _EACH, "each = (N + 64 * parts - 1) // (64 * parts) * 64"),
        "64-bit keys": _swap("", _FIRST, "first = tl.minimum(N, part.to(tl.int64) * each)"),
        "the weights guarded": _swap("", _SHIFT, "shift = m", _WEIGHTS, "weights = tl.where(l_parts == 0.0, 0.0, tl.exp(m_parts - shift))"),
    },
    "grouped": {
        "exp2": _swap("", _S, _S.replace("* scale", "* (scale * 1.4426950408889634)"), _P, _P.replace("exp", "exp2"),
                      _FACTOR, _FACTOR.replace("exp", "exp2"), "at = heads * S + part", "m = m * 0.6931471805599453\n    at = heads * S + part"),
        "tl.trans": _swap("", "k.T", "tl.trans(k)"),
        "added by tl.dot": _swap("", _O_SUM, 'o = tl.dot(p.to(v.dtype), v, o * factor[:, None], input_precision="ieee")'),
        "tiles of 16 keys": _swap("", "S=6, BLOCK_N=32", "S=6, BLOCK_N=16"),
        "3 parts": _swap("", "S=6, BLOCK_N=32", "S=3, BLOCK_N=32"),
        "32 rows": _swap("", "max(16, triton.next_power_of_2(len(q) // len(k)))", "max(32, triton.next_power_of_2(len(q) // len(k)))"),
        "scale on q": _swap("", "    for start in range(first, end, BLOCK_N):\n        keys = start + tl.arange(0, BLOCK_N).to(tl.int64)\n        mask",
                            "    q = q.to(tl.float32) * scale\n    for start in range(first, end, BLOCK_N):\n        keys = start + tl.arange(0, BLOCK_N).to(tl.int64)\n        mask",
                            _S, 's = tl.dot(q, k.to(tl.float32).T, input_precision="ieee")'),
        "no tl.dot": _swap("", _S, "s = tl.sum(q.to(tl.float32)[:, None, :] * k.to(tl.float32)[None, :, :], axis=2) * scale"),
        "a maximum not guarded": _swap("", 'm = tl.full((BLOCK_G,), -float("inf"), tl.float32)', "m = tl.full((BLOCK_G,), -3.4028234663852886e38, tl.float32)",
                                       _SHIFT_OF_ROWS, "shift = m_new", "at = heads * S + part", 'm = tl.where(l == 0.0, -float("inf"), m)\n    at = heads * S + part'),
    },
}  # fmt: skip
