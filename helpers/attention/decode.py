"""The kernels that lesson 12 arrives at: one query a head, and its keys in parts, one for each program.

q is (H, d), k and v are (H / G, N, d), of float32, bfloat16 or float16 with any strides: G query heads share a head of
keys and values, query head h the head h // G. o is (H, d) in q's dtype, the log-sum-exp of each head's scores (H,) in
float32, base e. Without keys, or with scores of −inf alone, they are 0 and −inf.

The letters are those of lesson 11: s scores, m a maximum, l a sum of exp(s − m), o one of exp(s − m) v. Each part of
the keys leaves its (m, l) and its o, undivided, in float32; a second kernel merges S of them.
"""

from __future__ import annotations

import torch
import triton
import triton.language as tl


@triton.jit
def keys_of(part, parts, N):
    """The first of the N keys that a part has, and the key after its last; of an empty part these are the same."""
    each = (N + parts - 1) // parts
    first = tl.minimum(N, part * each)
    end = tl.minimum(N, first + each)
    return first, end


@triton.jit
def part_kernel(
    pair_ptr, part_ptr, q_ptr, k_ptr, v_ptr, q_head, q_col, k_head, k_row, k_col, v_head, v_row, v_col,
    N, D, G, scale, BLOCK_N: tl.constexpr, BLOCK_D: tl.constexpr,
):  # fmt: skip
    """(m, l) and o of one query and one part of its keys: program (part, head) loads these in tiles of BLOCK_N.

    A key has D ≤ BLOCK_D columns.
    """
    part, S, head = tl.program_id(0), tl.num_programs(0), tl.program_id(1).to(tl.int64)
    first, end = keys_of(part, S, N)
    cols = tl.arange(0, BLOCK_D).to(tl.int64)
    q = tl.load(q_ptr + head * q_head + cols * q_col, mask=cols < D, other=0.0).to(tl.float32)
    m, l, o = -float("inf"), 0.0, tl.zeros((BLOCK_D,), tl.float32)
    for start in range(first, end, BLOCK_N):
        keys = start + tl.arange(0, BLOCK_N).to(tl.int64)
        at, mask = head // G * k_head + keys[:, None] * k_row, (keys < end)[:, None] & (cols < D)[None, :]
        k = tl.load(k_ptr + at + cols[None, :] * k_col, mask=mask, other=0.0).to(tl.float32)
        at = head // G * v_head + keys[:, None] * v_row
        v = tl.load(v_ptr + at + cols[None, :] * v_col, mask=mask, other=0.0).to(tl.float32)
        s = tl.where(keys < end, tl.sum(q[None, :] * k, axis=1) * scale, -float("inf"))
        m_new = tl.maximum(m, tl.max(s, axis=0))
        shift = tl.where(m_new == -float("inf"), 0.0, m_new)
        p, factor = tl.exp(s - shift), tl.exp(m - shift)
        l, o, m = l * factor + tl.sum(p, axis=0), o * factor + tl.sum(p[:, None] * v, axis=0), m_new
    tl.store(pair_ptr + 2 * (head * S + part), m)
    tl.store(pair_ptr + 2 * (head * S + part) + 1, l)
    tl.store(part_ptr + (head * S + part) * D + cols, o, mask=cols < D)


@triton.jit
def merge_kernel(o_ptr, lse_ptr, pair_ptr, part_ptr, S, D, BLOCK_S: tl.constexpr, BLOCK_D: tl.constexpr):
    """o, of D ≤ BLOCK_D columns, and the log-sum-exp of one query head, from the S ≤ BLOCK_S parts of its keys."""
    head = tl.program_id(0).to(tl.int64)
    parts, cols = tl.arange(0, BLOCK_S), tl.arange(0, BLOCK_D)
    at, exists = head * S + parts, parts < S
    there = exists[:, None] & (cols < D)[None, :]
    m_parts = tl.load(pair_ptr + 2 * at, mask=exists, other=-float("inf"))
    l_parts = tl.load(pair_ptr + 2 * at + 1, mask=exists, other=0.0)
    o_parts = tl.load(part_ptr + at[:, None] * D + cols[None, :], mask=there, other=0.0)
    m = tl.max(m_parts, axis=0)
    shift = tl.where(m == -float("inf"), 0.0, m)
    weights = tl.exp(m_parts - shift)
    l = tl.sum(weights * l_parts, axis=0)
    o = tl.sum(weights[:, None] * o_parts, axis=0)
    o = o / tl.where(l == 0.0, 1.0, l)
    lse = m + tl.log(l)
    tl.store(o_ptr + head * D + cols, o, mask=cols < D)
    tl.store(lse_ptr + head, lse)


@triton.jit
def group_kernel(
    pair_ptr, part_ptr, q_ptr, k_ptr, v_ptr, q_head, q_col, k_head, k_row, k_col, v_head, v_row, v_col,
    N, D, G, scale, BLOCK_G: tl.constexpr, BLOCK_N: tl.constexpr, BLOCK_D: tl.constexpr,
):  # fmt: skip
    """As part_kernel, for the G ≤ BLOCK_G queries of a group at once.

    Program (part, kv) loads its keys once, in tiles of BLOCK_N, with D ≤ BLOCK_D columns.
    """
    part, S, kv = tl.program_id(0), tl.num_programs(0), tl.program_id(1).to(tl.int64)
    first, end = keys_of(part, S, N)
    rows, cols = tl.arange(0, BLOCK_G), tl.arange(0, BLOCK_D).to(tl.int64)
    m = tl.full((BLOCK_G,), -float("inf"), tl.float32)
    l = tl.zeros((BLOCK_G,), tl.float32)
    o = tl.zeros((BLOCK_G, BLOCK_D), tl.float32)
    heads, there = kv * G + rows, (rows < G)[:, None] & (cols < D)[None, :]
    q = tl.load(q_ptr + heads[:, None] * q_head + cols[None, :] * q_col, mask=there, other=0.0)
    for start in range(first, end, BLOCK_N):
        keys = start + tl.arange(0, BLOCK_N).to(tl.int64)
        mask = (keys < end)[:, None] & (cols < D)[None, :]
        k = tl.load(k_ptr + kv * k_head + keys[:, None] * k_row + cols[None, :] * k_col, mask=mask, other=0.0)
        v = tl.load(v_ptr + kv * v_head + keys[:, None] * v_row + cols[None, :] * v_col, mask=mask, other=0.0)
        s = tl.dot(q, k.T, input_precision="ieee") * scale
        s = tl.where((keys < end)[None, :], s, -float("inf"))
        m_new = tl.maximum(m, tl.max(s, axis=1))
        shift = tl.where(m_new == -float("inf"), 0.0, m_new)
        p = tl.exp(s - shift[:, None])
        factor = tl.exp(m - shift)
        l = l * factor + tl.sum(p, axis=1)
        o = o * factor[:, None] + tl.dot(p.to(v.dtype), v, input_precision="ieee")
        m = m_new
    at = heads * S + part
    tl.store(pair_ptr + 2 * at, m, mask=rows < G)
    tl.store(pair_ptr + 2 * at + 1, l, mask=rows < G)
    tl.store(part_ptr + at[:, None] * D + cols[None, :], o, mask=there)


def decoded(
    kernel: triton.JITFunction,
    programs: int,
    q: torch.Tensor,
    k: torch.Tensor,
    v: torch.Tensor,
    S: int,
    **blocks: int,
) -> tuple[torch.Tensor, torch.Tensor]:
    """o and the log-sum-exps: S × `programs` programs of `kernel`, and the merge of the S parts of each head."""
    (H, D), N, G = q.shape, k.shape[1], len(q) // len(k)
    o = torch.empty(H, D, dtype=q.dtype, device=q.device)
    lse = torch.empty(H, device=q.device)
    pairs, parts = (torch.empty(H, S, n, device=q.device) for n in (2, D))
    numbers = *q.stride(), *k.stride(), *v.stride(), N, D, G, D**-0.5
    BLOCK_S, BLOCK_D = triton.next_power_of_2(S), max(16, triton.next_power_of_2(D))
    kernel[S, programs](pairs, parts, q, k, v, *numbers, BLOCK_D=BLOCK_D, **blocks)
    merge_kernel[(H,)](o, lse, pairs, parts, S, D, BLOCK_S=BLOCK_S, BLOCK_D=BLOCK_D)
    return o, lse


def split_decode(
    q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, S: int = 6, BLOCK_N: int = 64
) -> tuple[torch.Tensor, torch.Tensor]:
    """o and the log-sum-exps, by S programs for each query head: K and V are loaded once for each query of a group."""
    return decoded(part_kernel, len(q), q, k, v, S, BLOCK_N=BLOCK_N)


def grouped_decode(
    q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, S: int = 6, BLOCK_N: int = 32
) -> tuple[torch.Tensor, torch.Tensor]:
    """o and the log-sum-exps, by S programs for each head of keys: K and V are loaded once."""
    BLOCK_G = max(16, triton.next_power_of_2(len(q) // len(k)))
    return decoded(group_kernel, len(k), q, k, v, S, BLOCK_N=BLOCK_N, BLOCK_G=BLOCK_G)
