"""The kernels of attention: o = softmax(scale · q kᵀ) v, a tile of scores at a time (FlashAttention, arXiv 2205.14135).

No row of scores ever exists: for each query only (m, l, o) do, the running maximum, the running sum and the running sum
of values. `attend_kernel` keeps them over all keys, or over a part, and `merge_triples_kernel` merges the parts.
"""

from __future__ import annotations

import triton
import triton.language as tl

_LOWEST: tl.constexpr = tl.constexpr(-3.4028234663852886e38)


@triton.jit
def _tile(
    x_ptr, batch, head, start, x_batch, x_head, x_row, x_col, N, D, ROWS: tl.constexpr, COLS: tl.constexpr,
    DESCRIBED: tl.constexpr,
):  # fmt: skip
    """Rows start to start + ROWS of a head of keys or values, (ROWS, COLS), with 0 past its N rows and D columns.

    x_ptr is a pointer or, if DESCRIBED, a tensor descriptor of (batch, head, row, column), which needs no strides.
    """
    if DESCRIBED:
        return x_ptr.load([batch.to(tl.int32), head.to(tl.int32), start, 0]).reshape(ROWS, COLS)
    else:
        rows = (start + tl.arange(0, ROWS)).to(tl.int64)[:, None]
        cols = tl.arange(0, COLS).to(tl.int64)[None, :]
        head_ptr = x_ptr + batch * x_batch + head * x_head
        return tl.load(head_ptr + rows * x_row + cols * x_col, mask=(rows < N) & (cols < D), other=0.0)


@triton.jit
def _step(m, l, o, q, k, v, tokens, keys, scale, N, CAUSAL: tl.constexpr, MASK: tl.constexpr):
    """(m, l, o) of a tile of queries after one more tile of keys and values; m is in units of log2.

    s = q kᵀ;  m' = max(m, scale · max s);  p = 2^(scale · s − m');  l' = 2^(m − m') l + Σ p;  o' = 2^(m − m') o + p v

    MASK leaves out the keys from N on and, with CAUSAL, those after the token of the query.
    """
    s = tl.dot(q, k.T, input_precision="ieee")
    if MASK:
        seen = keys[None, :] < N
        if CAUSAL:
            seen = seen & (keys[None, :] <= tokens[:, None])
        s = tl.where(seen, s, -float("inf"))
    m_new = tl.maximum(m, tl.max(s, axis=1) * scale)
    p = tl.exp2(s * scale - m_new[:, None])
    fade = tl.exp2(m - m_new)
    l = l * fade + tl.sum(p, axis=1)
    o = tl.dot(p.to(v.dtype), v, o * fade[:, None], input_precision="ieee")
    return m_new, l, o


@triton.jit
def attend_kernel(
    o_ptr, pair_ptr, q_ptr, k_ptr, v_ptr,
    o_batch, o_head, o_row, q_batch, q_head, q_row, q_col,
    k_batch, k_head, k_row, k_col, v_batch, v_head, v_row, v_col,
    HEADS, GROUP, TOKENS, N, D, scale,
    TOGETHER: tl.constexpr, CAUSAL: tl.constexpr, PARTS: tl.constexpr, TAIL: tl.constexpr, DESCRIBED: tl.constexpr,
    BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr, BLOCK_D: tl.constexpr, STAGES: tl.constexpr,
):  # fmt: skip
    """o = softmax(scale · q kᵀ) v of BLOCK_M queries: of TOKENS tokens in each of TOGETHER query heads.

    GROUP query heads share a head of keys and values, N of each; D columns lie in BLOCK_D. `scale` contains log2 e.
    With CAUSAL, token t sees the keys up to t. With PARTS the second axis of the grid has a part of the keys for each
    program, which stores its (m, l) and its o undivided. TAIL: some tile of keys has to be masked.
    DESCRIBED: k_ptr and v_ptr are tensor descriptors. BLOCK_N keys are taken at once, in a loop of STAGES stages.
    """
    tiles = tl.cdiv(TOGETHER * TOKENS, BLOCK_M)
    # The longest rows of a causal mask come first, so that short ones fill the last wave.
    tile = tiles - 1 - tl.program_id(0) % tiles
    head = tl.program_id(0) // tiles * TOGETHER
    batch, head = (head // HEADS).to(tl.int64), (head % HEADS).to(tl.int64)
    rows = tile * BLOCK_M + tl.arange(0, BLOCK_M)
    heads, tokens = head + rows // TOKENS, rows % TOKENS
    there = rows < TOGETHER * TOKENS
    cols = tl.arange(0, BLOCK_D)
    mask = there[:, None] & (cols < D)[None, :]
    q_rows = q_ptr + batch * q_batch + heads * q_head + tokens.to(tl.int64) * q_row
    q = tl.load(q_rows[:, None] + cols.to(tl.int64)[None, :] * q_col, mask=mask, other=0.0)

    first, end = 0, N
    if PARTS:
        each = tl.cdiv(tl.cdiv(N, tl.num_programs(1)), BLOCK_N) * BLOCK_N
        first = tl.program_id(1) * each
        end = tl.minimum(N, first + each)
    whole = end
    if CAUSAL:
        end = tl.minimum(N, (tile + 1) * BLOCK_M)
        whole = tl.minimum(N, tile * BLOCK_M + 1)
    whole = first + tl.maximum(whole - first, 0) // BLOCK_N * BLOCK_N

    # The lowest number, not −inf, so that a tile of only −inf leaves no −inf − (−inf).
    m = tl.full([BLOCK_M], _LOWEST, tl.float32)
    l = tl.zeros([BLOCK_M], tl.float32)
    o = tl.zeros([BLOCK_M, BLOCK_D], tl.float32)
    kv = head // GROUP
    for start in tl.range(first, whole, BLOCK_N, num_stages=STAGES):
        k_tile = _tile(k_ptr, batch, kv, start, k_batch, k_head, k_row, k_col, N, D, BLOCK_N, BLOCK_D, DESCRIBED)
        v_tile = _tile(v_ptr, batch, kv, start, v_batch, v_head, v_row, v_col, N, D, BLOCK_N, BLOCK_D, DESCRIBED)
        m, l, o = _step(m, l, o, q, k_tile, v_tile, tokens, start + tl.arange(0, BLOCK_N), scale, N, CAUSAL, False)
    if TAIL:
        for start in tl.range(whole, end, BLOCK_N):
            k_tile = _tile(k_ptr, batch, kv, start, k_batch, k_head, k_row, k_col, N, D, BLOCK_N, BLOCK_D, DESCRIBED)
            v_tile = _tile(v_ptr, batch, kv, start, v_batch, v_head, v_row, v_col, N, D, BLOCK_N, BLOCK_D, DESCRIBED)
            m, l, o = _step(m, l, o, q, k_tile, v_tile, tokens, start + tl.arange(0, BLOCK_N), scale, N, CAUSAL, True)

    if PARTS:
        at = (tl.program_id(0).to(tl.int64) * tl.num_programs(1) + tl.program_id(1)) * BLOCK_M + tl.arange(0, BLOCK_M)
        tl.store(pair_ptr + 2 * at, m)
        tl.store(pair_ptr + 2 * at + 1, l)
        tl.store(o_ptr + at[:, None] * BLOCK_D + cols[None, :], o)
    else:
        o = o / tl.where(l == 0.0, 1.0, l)[:, None]
        o_rows = o_ptr + batch * o_batch + heads * o_head + tokens.to(tl.int64) * o_row
        tl.store(o_rows[:, None] + cols[None, :], o.to(o_ptr.dtype.element_ty), mask=mask)


@triton.jit
def merge_triples_kernel(
    o_ptr, part_ptr, pair_ptr, o_batch, o_head, o_row, HEADS, TOKENS, D, S,
    TOGETHER: tl.constexpr, BLOCK_M: tl.constexpr, BLOCK_D: tl.constexpr, BLOCK_S: tl.constexpr,
):  # fmt: skip
    """o = Σ 2^(m_i − m) o_i / Σ 2^(m_i − m) l_i over the S parts of one query's keys, with m the largest m_i.

    A query is one of TOKENS tokens in one of TOGETHER heads, and a part's queries lie in tiles of BLOCK_M. BLOCK_S
    parts are merged at once; BLOCK_D ≥ D is a power of two.
    """
    rows = TOGETHER * TOKENS
    group, row = tl.program_id(0) // rows, tl.program_id(0) % rows
    parts, cols = tl.arange(0, BLOCK_S), tl.arange(0, BLOCK_D)
    tiles = tl.cdiv(rows, BLOCK_M)
    first = (group * tiles + tiles - 1 - row // BLOCK_M).to(tl.int64) * S
    m = _LOWEST
    l = 0.0
    o = tl.zeros([BLOCK_D], tl.float32)
    for start in range(0, S, BLOCK_S):
        at = (first + start + parts) * BLOCK_M + row % BLOCK_M
        exists = start + parts < S
        m_parts = tl.load(pair_ptr + 2 * at, mask=exists, other=_LOWEST)
        l_parts = tl.load(pair_ptr + 2 * at + 1, mask=exists, other=0.0)
        o_parts = tl.load(part_ptr + at[:, None] * BLOCK_D + cols[None, :], mask=exists[:, None], other=0.0)
        m_new = tl.maximum(m, tl.max(m_parts, axis=0))
        weight = tl.exp2(m_parts - m_new)
        fade = tl.exp2(m - m_new)
        l = l * fade + tl.sum(weight * l_parts, axis=0)
        o = o * fade + tl.sum(weight[:, None] * o_parts, axis=0)
        m = m_new
    o = o / tl.where(l == 0.0, 1.0, l)
    head = group * TOGETHER + row // TOKENS
    batch, head = (head // HEADS).to(tl.int64), (head % HEADS).to(tl.int64)
    o_row_ptr = o_ptr + batch * o_batch + head * o_head + (row % TOKENS).to(tl.int64) * o_row
    tl.store(o_row_ptr + cols, o.to(o_ptr.dtype.element_ty), mask=cols < D)
