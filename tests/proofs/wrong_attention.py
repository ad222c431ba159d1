"""Variants of lesson 11's answers, wrong and right, as corpus.py lists those of the other lessons."""

from variants import Variant
from variants import coded as _code
from variants import swapped as _swap

_S = 's = tl.dot(q, k.T, input_precision="ieee") * scale'
_TAIL = 's = tl.where((keys < N)[None, :], s, -float("inf"))'
_SEEN = "(keys < N)[None, :] & (keys[None, :] <= rows[:, None])"
_M = "m_new = tl.maximum(m, tl.max(s, axis=1))"
_SHIFT = 'shift = tl.where(m_new == -float("inf"), 0.0, m_new)'
_P = "p = tl.exp(s - shift[:, None])"
_FACTOR = "factor = tl.exp(m - shift)"
_L = "l = l * factor + tl.sum(p, axis=1)"
_PV = 'tl.dot(p.to(v.dtype), v, input_precision="ieee")'
_O = f"o = o * factor[:, None] + {_PV}"
_KEEP = "        m = m_new"
_LSE = "lse = m + tl.log(l)"
_END = "o = o / tl.where(l == 0.0, 1.0, l)[:, None]"
_K = "k_ptr + head * k_head + keys[:, None] * k_row + cols[None, :] * k_col"
_V = "v_ptr + head * v_head + keys[:, None] * v_row + cols[None, :] * v_col"
_LOOP_END = "end = tl.minimum(N, (tl.program_id(0) + 1) * BLOCK_M)"
_TORCH = """
def my_attention(q, k, v):
    s = q.float() @ k.float().mT * q.shape[-1] ** -0.5
    lse = torch.logsumexp(s, dim=-1)
    return (torch.softmax(s, dim=-1).nan_to_num(0) @ v.float()).to(q.dtype), lse
"""
_TWO_LOOPS = (
    "    for start in range(0, N, BLOCK_N):\n",
    """    for start in range(0, N, BLOCK_N):
        keys = start + tl.arange(0, BLOCK_N).to(tl.int64)
        mask = (keys < N)[:, None] & (cols < D)[None, :]
        k = tl.load(k_ptr + head * k_head + keys[:, None] * k_row + cols[None, :] * k_col, mask=mask, other=0.0)
        s = tl.dot(q, k.T, input_precision="ieee") * scale
        s = tl.where((keys < N)[None, :], s, -float("inf"))
        m = tl.maximum(m, tl.max(s, axis=1))
    for start in range(0, N, BLOCK_N):
""",
)
_WHOLE_TILES = """    ends = N // BLOCK_N * BLOCK_N
    for start in range(0, ends, BLOCK_N):
        keys = start + tl.arange(0, BLOCK_N).to(tl.int64)
        mask = (keys >= 0)[:, None] & (cols < D)[None, :]
        k = tl.load(k_ptr + head * k_head + keys[:, None] * k_row + cols[None, :] * k_col, mask=mask, other=0.0)
        v = tl.load(v_ptr + head * v_head + keys[:, None] * v_row + cols[None, :] * v_col, mask=mask, other=0.0)
        s = tl.dot(q, tl.trans(k), input_precision="ieee") * scale
        m_new = tl.maximum(m, tl.max(s, axis=1))
        shift = tl.where(m_new == -float("inf"), 0.0, m_new)
        p = tl.exp(s - shift[:, None])
        factor = tl.exp(m - shift)
        l = l * factor + tl.sum(p, axis=1)
        o = o * factor[:, None] + tl.dot(p.to(v.dtype), v, input_precision="ieee")
        m = m_new
    for start in range(ends, N, BLOCK_N):
"""

_OF_BOTH = {
    "o not rescaled": _swap("o_not_rescaled", "o = o * factor[:, None] +", "o = o +"),
    "l not rescaled": _swap("l_not_rescaled", "l = l * factor +", "l = l +"),
    "nothing rescaled": _swap("nothing_rescaled", "l = l * factor +", "l = l +", "o = o * factor[:, None] +", "o = o +"),
    "the other way": _swap("old_sums_grow", _FACTOR, 'factor = tl.where(m == -float("inf"), 0.0, tl.exp(shift - m))'),
    "divided by the factor": _swap("old_sums_grow", "o * factor[:, None]", "o / factor[:, None]",
                                   _FACTOR, _FACTOR),
    "o after adding": _swap("rescaled_late", _O, f"o = (o + {_PV}) * factor[:, None]"),
    "both after adding": _swap("rescaled_late", _O, f"o = (o + {_PV}) * factor[:, None]",
                               _L, "l = (l + tl.sum(p, axis=1)) * factor"),
    "p with the old maximum": _swap("weights_of_old_maximum", _P, 'p = tl.exp(s - tl.where(m == -float("inf"), 0.0, m)[:, None])'),
    "m never kept": _swap("m_never_kept", _KEEP, "        m = m"),
    "m of the tile": _swap("m_of_last_tile", _M, "m_new = tl.max(s, axis=1)"),
    "l of the tile": _swap("sums_of_last_tile", _L, "l = tl.sum(p, axis=1)"),
    "o of the tile": _swap("sums_of_last_tile", _O, f"o = {_PV}"),
    "divided in every tile": _swap("divided_in_every_tile", _END, "o = o", _KEEP,
                                   "        o = o / tl.where(l == 0.0, 1.0, l)[:, None]\n        m = m_new"),
    "divided in every tile, and at the end": _swap("divided_in_every_tile", _KEEP,
                                                   "        o = o / tl.where(l == 0.0, 1.0, l)[:, None]\n        m = m_new"),
    "never divided": _swap("not_divided_by_l", _END, "o = o"),
    "divided twice": _swap("divided_twice", _END, f"{_END}\n    {_END}"),
    "m begins at 0": _swap("m_starts_high", 'm = tl.full((BLOCK_M,), -float("inf"), tl.float32)', "m = tl.zeros((BLOCK_M,), tl.float32)"),
    "m begins at -1": _swap("m_starts_high", 'm = tl.full((BLOCK_M,), -float("inf"), tl.float32)', "m = tl.full((BLOCK_M,), -1.0, tl.float32)"),
    "m begins at -10,000": _swap("m_starts_high", 'm = tl.full((BLOCK_M,), -float("inf"), tl.float32)', "m = tl.full((BLOCK_M,), -1e4, tl.float32)"),
    "no maximum": _swap("maximum_missing", _M, "m_new = tl.zeros((BLOCK_M,), tl.float32)", 'm = tl.full((BLOCK_M,), -float("inf"), tl.float32)',
                        "m = tl.zeros((BLOCK_M,), tl.float32)"),
    "a maximum of 10": _swap("maximum_missing", _M, "m_new = tl.full((BLOCK_M,), 10.0, tl.float32)", 'm = tl.full((BLOCK_M,), -float("inf"), tl.float32)',
                             "m = tl.full((BLOCK_M,), 10.0, tl.float32)"),
    "no scale": _swap("no_scale", " * scale\n", "\n"),
    "scaled by 1/d": _swap("scaled_by_d", " * scale\n", " / D\n"),
    "scaled twice": _swap("scaled_by_d", " * scale\n", " * scale * scale\n"),
    "scale fixed at 1/8": _swap("scaled_by_d", " * scale\n", " * 0.125\n"),
    "exp2": _swap("scores_of_base_2", "tl.exp(s - shift[:, None])", "tl.exp2(s - shift[:, None])", "tl.exp(m - shift)", "tl.exp2(m - shift)"),
    "lse of base 2": _swap("lse_base_2", _LSE, "lse = m + tl.log2(l)"),
    "lse all in base 2": _swap("lse_base_2", _LSE, "lse = m * 1.4426950408889634 + tl.log2(l)"),
    "lse without m": _swap("lse_without_m", _LSE, "lse = tl.log(l)"),
    "l in its place": _swap("lse_without_m", _LSE, "lse = l"),
    "lse without log": _swap("lse_without_log", _LSE, "lse = m + l"),
    "m in its place": _swap("lse_without_log", _LSE, "lse = m"),
    "lse negative": _swap("lse_negative", _LSE, "lse = -m - tl.log(l)"),
    "log subtracted": _swap("lse_negative", _LSE, "lse = m - tl.log(l)"),
    "0 divided by 0": _swap("empty_query", _END, "o = o / l[:, None]"),
    "no shift": _swap("empty_tile_of_keys", _SHIFT, "shift = m_new"),
    "no shift in the factor": _swap("empty_tile_of_keys", _FACTOR, "factor = tl.exp(m - m_new)"),
    "no shift in the terms": _swap("empty_tile_of_keys", _P, "p = tl.exp(s - m_new[:, None])"),
    "K for V": _swap("keys_as_values", _V, _K),
    "V for K": _swap("keys_as_values", _K, _V),
    "scores for weights": _swap("scores_not_exponentials", _PV, "tl.dot(tl.where(s == -float('inf'), 0.0, s).to(v.dtype), v, input_precision='ieee')"),
    "o in bfloat16": _swap("sums_in_16_bits", _O, f"{_O}\n        o = o.to(tl.bfloat16).to(tl.float32)"),
    "o in float16": _swap("sums_in_16_bits", _O, f"{_O}\n        o = o.to(tl.float16).to(tl.float32)"),
    "head 0 of K": _swap("head_0", "head * k_head + ", ""),
    "head 0 of V": _swap("head_0", "head * v_head + ", ""),
    "head 0 of all": _swap("head_0", "head * k_head + ", "", "head * v_head + ", "", "q_ptr + head * q_head", "q_ptr"),
    "strides of q for k": _swap("strides_of_another", _K, _K.replace("k_head", "q_head").replace("k_row", "q_row").replace("k_col", "q_col")),
    "strides of k for v": _swap("strides_of_another", _V, _V.replace("v_head", "k_head").replace("v_row", "k_row").replace("v_col", "k_col")),
    "columns one apart": _swap("strides_of_another", "cols[None, :] * k_col", "cols[None, :]"),
    "rows D apart": _swap("strides_of_another", "keys[:, None] * k_row", "keys[:, None] * D"),
    "int32": _swap("offsets_overflow", "keys = start + tl.arange(0, BLOCK_N).to(tl.int64)", "keys = start + tl.arange(0, BLOCK_N)"),
    "TF32": _swap("not_exact", _S, "s = tl.dot(q, k.T) * scale"),
    "TF32 of p and v": _swap("not_exact", _PV, "tl.dot(p.to(v.dtype), v)"),
    "scores in bfloat16": _swap("not_exact", " * scale\n", " * scale\n        s = s.to(tl.bfloat16).to(tl.float32)\n"),
    "p in float32, v not": _swap("does_not_compile", "p.to(v.dtype)", "p"),
    "k not turned over": _swap("does_not_compile", "k.T", "k"),
    "axis 0": _swap("does_not_compile", "tl.max(s, axis=1)", "tl.max(s, axis=0)"),
    "no column": _swap("does_not_compile", "s - shift[:, None]", "s - shift"),
    "no mask for K and V": _swap("past_the_end", "mask = (keys < N)[:, None] & (cols < D)[None, :]", "mask = (keys >= 0)[:, None] & (cols < D)[None, :]"),
    "no mask for the columns": _swap("past_the_end", "mask = (keys < N)[:, None] & (cols < D)[None, :]", "mask = (keys < N)[:, None] & (cols >= 0)[None, :]"),
    "one head of programs": _swap("results_not_stored", "kernel[triton.cdiv(L, BLOCK_M), H]", "kernel[triton.cdiv(L, BLOCK_M), 1]"),
    "full tiles of queries only": _swap("results_not_stored", "kernel[triton.cdiv(L, BLOCK_M), H]", "kernel[max(1, L // BLOCK_M), H]"),
    "lse and o swapped": _swap("no_two_results", "return o, lse", "return lse, o"),
    "o alone": _swap("no_two_results", "return o, lse", "return o"),
    "o in q": _swap("input_overwritten", "torch.empty(H, L, D, dtype=q.dtype, device=q.device)", "q"),
    "a column of log-sum-exps": _swap("wrong_shape", "return o, lse", "return o, lse[..., None]"),
    "o in v's dtype": _swap("wrong_in_16_bits", _O, f"{_O}\n        o = o.to(v.dtype).to(tl.float32)"),
    "o in float32": _swap("wrong_dtype", "dtype=q.dtype, device=q.device", "device=q.device"),
    "the lse of row 0": _swap("lse_wrong", "lse_ptr + head * L + rows, lse", "lse_ptr + head * L + rows, tl.sum(tl.where(rows == 0, lse, 0.0), axis=0) + 0.0 * l"),
}  # fmt: skip

WRONG: dict[str, dict[str, Variant]] = {
    "triples": {
        "all as they are": _swap("parts_as_they_are", "f_a, f_b = math.exp(m_a - m), math.exp(m_b - m)", "f_a = f_b = 1.0"),
        "smaller maximum": _swap("smaller_maximum", "max(m_a, m_b)", "min(m_a, m_b)"),
        "lists joined": _swap("lists_joined", "[f_a * x + f_b * y for x, y in zip(o_a, o_b, strict=True)]", "o_a + o_b"),
        "two empty parts": _swap("two_empty_triples", "    if m == -INF:\n        return m, 0.0, [0.0] * len(o_a)\n", ""),
        "two empty parts counted": _swap("two_empty_triples", "return m, 0.0, [0.0] * len(o_a)", "return m, 1.0, [0.0] * len(o_a)"),
        "an empty side": _swap("empty_side", "    if m == -INF:", "    if -INF in (m_a, m_b):"),
        "overflow": _swap("exponential_overflows", "math.exp(m_a - m), math.exp(m_b - m)", "math.exp(m_a) / math.exp(m), math.exp(m_b) / math.exp(m)"),
        "a list that was given": _swap("lists_changed", "    return m, f_a * l_a + f_b * l_b, o", "    o_a[:] = o\n    return m, f_a * l_a + f_b * l_b, o_a"),
        "a pair": _swap("no_triple", "return m, f_a * l_a + f_b * l_b, o", "return m, o"),
    },
    "attend": {
        "the tail scores 0": _swap("tail_scores_0", _TAIL, "s = s"),
        "the tail scores -10,000": _swap("tail_scores_low_number", _TAIL, "s = tl.where((keys < N)[None, :], s, -1e4)"),
        "the tail scores -1,000,000": _swap("tail_scores_low_number", _TAIL, "s = tl.where((keys < N)[None, :], s, -1e6)"),
        "the tail scores -1e30": _swap("tail_scores_low_number", _TAIL, "s = tl.where((keys < N)[None, :], s, -1e30)"),
        "key N counts": _swap("other_lanes_count", _TAIL, 's = tl.where((keys <= N)[None, :], s, -float("inf"))'),
        "the last key hidden": _swap("other_lanes_count", _TAIL, 's = tl.where((keys < N - 1)[None, :], s, -float("inf"))'),
        "keys up to L": _swap("other_lanes_count", _TAIL, 's = tl.where((keys < L)[None, :], s, -float("inf"))'),
        "the tail in the maximum": _swap("tail_in_maximum", _TAIL, "s = s", "p = tl.exp(s - shift[:, None])",
                                         "p = tl.where((keys < N)[None, :], tl.exp(s - shift[:, None]), 0.0)"),
        "l rescaled late": _swap("rescaled_late", "l = l * factor + tl.sum(p, axis=1)", "l = (l + tl.sum(p, axis=1)) * factor"),
        "l rescaled late, with a logarithm of 1 for 0": _swap("rescaled_late", _L, "l = (l + tl.sum(p, axis=1)) * factor", _LSE, "lse = m + tl.log(tl.where(l == 0.0, 1.0, l))"),
        "exp2 in the terms": _swap("scores_of_base_2", "p = tl.exp(s", "p = tl.exp2(s"),
        "p with the old maximum, not guarded": _swap("weights_of_old_maximum", "p = tl.exp(s - shift[:, None])", "p = tl.exp(s - m[:, None])"),
        "no last tile": _swap("tail_never_loaded", "range(0, N, BLOCK_N)", "range(0, N // BLOCK_N * BLOCK_N, BLOCK_N)"),
        "one tile": _swap("one_tile", "range(0, N, BLOCK_N)", "range(0, min(N, BLOCK_N), BLOCK_N)"),
        "mean of the values": _swap("mean_of_values", _S, f"{_S} * 0.0\n        s = tl.where(s == s, s, 0.0)"),
        "causal": _swap("later_keys_hidden", _TAIL, f's = tl.where({_SEEN}, s, -float("inf"))'),
        "-inf as 0": _swap("wrong_with_minus_inf", _TAIL, f's = tl.where(s == -float("inf"), 0.0, s)\n        {_TAIL}'),
        "in PyTorch": _code("no_kernel", _TORCH),
        "two passes over K": _swap("over_budget", *_TWO_LOOPS),
        **_OF_BOTH,
    },
    "causal": {
        "not causal": _swap("not_causal", _SEEN, "(keys < N)[None, :]", _LOOP_END, "end = N"),
        "what is loaded is seen": _swap("loaded_is_seen", _SEEN, "(keys < N)[None, :]"),
        "> for >=": _swap("own_key_hidden", "keys[None, :] <= rows[:, None]", "keys[None, :] < rows[:, None]"),
        "one key more": _swap("one_key_too_many", "keys[None, :] <= rows[:, None]", "keys[None, :] <= rows[:, None] + 1"),
        "the earlier ones hidden": _swap("earlier_hidden", "keys[None, :] <= rows[:, None]", "keys[None, :] >= rows[:, None]"),
        "rows of the tile": _swap("rows_of_tile", "keys[None, :] <= rows[:, None]", "keys[None, :] <= tl.arange(0, BLOCK_M)[:, None]"),
        "keys of the tile": _swap("keys_of_tile", "keys[None, :] <= rows[:, None]", "tl.arange(0, BLOCK_N)[None, :] <= rows[:, None]"),
        "rows and keys of the tile": _swap("both_of_tile", "keys[None, :] <= rows[:, None]",
                                           "tl.arange(0, BLOCK_N)[None, :] <= tl.arange(0, BLOCK_M)[:, None]"),
        "no brackets": _swap("and_before_comparison", _SEEN, "(keys < N)[None, :] & keys[None, :] <= rows[:, None]"),
        "rows alone say which keys": _swap("other_lanes_count", _SEEN, "keys[None, :] <= rows[:, None]",
                                           "tl.minimum(N, (tl.program_id(0) + 1) * BLOCK_M)", "(tl.program_id(0) + 1) * BLOCK_M"),
        "bottom right": _swap("bottom_right", "keys[None, :] <= rows[:, None]", "keys[None, :] <= rows[:, None] + N - L", _LOOP_END, "end = N"),
        "hidden scores of -10,000": _swap("hidden_scores_low_number", f'tl.where({_SEEN}, s, -float("inf"))', f"tl.where({_SEEN}, s, -1e4)"),
        "hidden scores of -1,000,000": _swap("hidden_scores_low_number", f'tl.where({_SEEN}, s, -float("inf"))', f"tl.where({_SEEN}, s, -1e6)"),
        "hidden scores times 0": _swap("hidden_scores_0", f's = tl.where({_SEEN}, s, -float("inf"))',
                                       's = tl.where((keys < N)[None, :], s * (keys[None, :] <= rows[:, None]), -float("inf"))'),
        "up to the first row": _swap("end_of_first_row", _LOOP_END, "end = tl.minimum(N, tl.program_id(0) * BLOCK_M)"),
        "one key short": _swap("end_of_first_row", _LOOP_END, "end = tl.minimum(N, (tl.program_id(0) + 1) * BLOCK_M - BLOCK_N)"),
        "tiles of keys for tiles of queries": _swap("end_of_first_row", _LOOP_END, "end = tl.minimum(N, (tl.program_id(0) + 1) * BLOCK_N)"),
        "only the causal mask": _swap("other_lanes_count", _SEEN, "keys[None, :] <= rows[:, None]"),
        "everything loaded": _swap("hidden_tiles_loaded", _LOOP_END, "end = N"),
        **{name: wrong for name, wrong in _OF_BOTH.items() if name in (
            "o not rescaled", "l not rescaled", "the other way", "p with the old maximum", "m never kept", "never divided", "m begins at 0", "no scale", "exp2",
            "lse of base 2", "no shift", "K for V", "0 divided by 0", "TF32", "int32", "head 0 of K")},
    },
    "attention_gradient": {
        "no delta": _swap("no_delta", "- delta)", ")"),
        "delta of do": _swap("delta_of_others", "(do @ v[:, keys].mT - delta)", "(do @ v[:, keys].mT - do.sum(-1, keepdim=True))"),
        "without p": _swap("ds_without_p", "p * (do", "(do"),
        "dv twice": _swap("dv_wrong", "dv[:, keys] = p", "dv[:, keys] = 2 * p"),
        "dq twice": _swap("dq_wrong", "dq += scale", "dq += 2 * scale"),
        "dk negative": _swap("dk_wrong", "dk[:, keys] = scale", "dk[:, keys] = -scale"),
        "an input overwritten": _swap("input_of_backward_changed", "        s = scale", "        do *= 1.001\n        s = scale"),
        "two gradients": _swap("no_three", "return dq, dk, dv", "return dq, dk"),
        "dv turned over": _swap("shape_of_gradient", "return dq, dk, dv", "return dq, dk, dv.mT"),
        "dq in float64": _swap("dtype_of_gradient", "return dq, dk, dv", "return dq.double(), dk, dv"),
        "order": _swap("no_three", "return dq, dk, dv", "return dv, dk, dq"),
        "all keys at once": _swap("scores_at_once", "BLOCK=64", "BLOCK=4096"),
        "all keys in every block": _swap("scores_at_once", "scale * q @ k[:, keys].mT", "(scale * q @ k.mT)[..., keys]"),
    },
}  # fmt: skip

_EXP2 = (" * scale\n", " * (scale * 1.4426950408889634)\n", "tl.exp(s - shift[:, None])", "tl.exp2(s - shift[:, None])", "tl.exp(m - shift)",
         "tl.exp2(m - shift)", _LSE, "lse = m * 0.6931471805599453 + tl.log(l)")  # fmt: skip
_RIGHT_OF_BOTH = {
    "exp2, with the scale folded in": _swap("", *_EXP2),
    "the logarithm of 1 for an l of 0": _swap("", _LSE, "lse = m + tl.log(tl.where(l == 0.0, 1.0, l))"),
    "tl.trans": _swap("", "k.T", "tl.trans(k)"),
    "keys loaded turned over": _swap("", f"k = tl.load({_K}, mask=mask, other=0.0)",
                                     "k = tl.load(k_ptr + head * k_head + keys[None, :] * k_row + cols[:, None] * k_col, mask=(keys < N)[None, :] & (cols < D)[:, None], other=0.0)",
                                     "k.T", "k"),
    "added by tl.dot": _swap("", _O, 'o = tl.dot(p.to(v.dtype), v, o * factor[:, None], input_precision="ieee")'),
    "m begins at the lowest number": _swap("", 'm = tl.full((BLOCK_M,), -float("inf"), tl.float32)', "m = tl.full((BLOCK_M,), -3.4028234663852886e38, tl.float32)",
                                           _SHIFT, "shift = m_new", _LSE, 'lse = tl.where(l == 0.0, -float("inf"), m + tl.log(l))'),
    "a product with 1 / l": _swap("", _END, "o = o * (1.0 / tl.where(l == 0.0, 1.0, l))[:, None]"),
    "tiles of 32 × 32": _swap("", "BLOCK_M=64, BLOCK_N=32", "BLOCK_M=32, BLOCK_N=32"),
    "tiles of 64 × 16": _swap("", "BLOCK_M=64, BLOCK_N=32", "BLOCK_M=64, BLOCK_N=16"),
    "tiles of 16 × 16": _swap("", "BLOCK_M=64, BLOCK_N=32", "BLOCK_M=16, BLOCK_N=16"),
    "v masked before": _swap("", _O, f"v = tl.where((keys < N)[:, None], v, 0.0)\n        {_O}"),
    "scale on q": _swap("", " * scale\n", "\n", "    lse = m\n", "    q = (q.to(tl.float32) * scale)\n    lse = m\n",
                        "tl.dot(q, k.T", "tl.dot(q, k.to(tl.float32).T"),
    "tf32x3": _swap("", 'k.T, input_precision="ieee"', 'k.T, input_precision="tf32x3"'),
}  # fmt: skip

RIGHT: dict[str, dict[str, Variant]] = {
    "triples": {
        "in one expression": _code("", "def merge(a, b):\n    m = max(a[0], b[0])\n    w = [math.exp(x[0] - m) if x[0] > -INF else 0.0 for x in (a, b)]\n"
                                   "    return [m, sum(x * y[1] for x, y in zip(w, (a, b))), [w[0] * x + w[1] * y for x, y in zip(a[2], b[2])]]\n"),
        "by torch": _code("", "def merge(a, b):\n    if b[0] == -INF:\n        return a\n    if a[0] == -INF:\n        return b\n    m = max(a[0], b[0])\n"
                          "    x, y = math.exp(a[0] - m), math.exp(b[0] - m)\n    o = x * torch.tensor(a[2], dtype=torch.float64) + y * torch.tensor(b[2], dtype=torch.float64)\n"
                          "    return m, x * a[1] + y * b[1], o.tolist()\n"),
    },
    "attend": {
        "whole tiles without a mask": _swap("", "    for start in range(0, N, BLOCK_N):\n", _WHOLE_TILES),
        "heads in the first axis": _swap("", "kernel[triton.cdiv(L, BLOCK_M), H]", "kernel[H, triton.cdiv(L, BLOCK_M)]",
                                         "head = tl.program_id(1)", "head = tl.program_id(0)", "rows = tl.program_id(0)", "rows = tl.program_id(1)"),
        **_RIGHT_OF_BOTH,
    },
    "causal": {
        "the longest first": _swap("", "rows = tl.program_id(0) * BLOCK_M", "tile = tl.num_programs(0) - 1 - tl.program_id(0)\n    rows = tile * BLOCK_M",
                                   "(tl.program_id(0) + 1) * BLOCK_M", "(tile + 1) * BLOCK_M"),
        "up to the tile's end": _swap("", _LOOP_END, "end = tl.minimum(N, tl.cdiv((tl.program_id(0) + 1) * BLOCK_M, BLOCK_N) * BLOCK_N)"),
        "two masks": _swap("", f's = tl.where({_SEEN}, s, -float("inf"))',
                           's = tl.where((keys < N)[None, :], s, -float("inf"))\n        s = s + tl.where(keys[None, :] <= rows[:, None], 0.0, -float("inf"))'),
        **{name: right for name, right in _RIGHT_OF_BOTH.items() if name in (
            "exp2, with the scale folded in", "tiles of 32 × 32", "tiles of 64 × 16", "m begins at the lowest number")},
    },
    "attention_gradient": {
        "einsum": _swap("", "p.mT @ do", "torch.einsum('hln,hld->hnd', p, do)"),
        "blocks of 32": _swap("", "BLOCK=64", "BLOCK=32"),
        "delta anew": _swap("", "- delta)", "- (o * do).sum(-1, keepdim=True))"),
        "in place": _swap("", "torch.exp(s - lse[..., None])", "s.sub_(lse[..., None]).exp_()"),
    },
}  # fmt: skip
