"""The kernels that lesson 11 arrives at: attention of heads in three dimensions, and its log-sum-exp.

q is (H, L, d), k and v are (H, N, d), of float32, bfloat16 or float16 with any strides. o is (H, L, d) in q's dtype,
the log-sum-exp of each query's scores (H, L) in float32, base e. A query that sees no key gets 0 and −inf, as in torch.

The letters are the formula's, as in helpers/kernels.py: s scores, m the running maximum, l the running sum of
exp(s − m), o that of exp(s − m) v.
"""

from __future__ import annotations

import torch
import triton
import triton.language as tl


@triton.jit
def attention_kernel(
    o_ptr, lse_ptr, q_ptr, k_ptr, v_ptr, q_head, q_row, q_col, k_head, k_row, k_col, v_head, v_row, v_col,
    L, N, D, scale, BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr, BLOCK_D: tl.constexpr, CAUSAL: tl.constexpr,
):  # fmt: skip
    """o = softmax(scale · q kᵀ) v and the log-sum-exp of BLOCK_M queries, whose keys come in tiles of BLOCK_N.

    Program (tile, head) has the tile's queries of one head, and D ≤ BLOCK_D columns. With CAUSAL, query t sees the keys
    up to t.
    """
    head = tl.program_id(1).to(tl.int64)
    rows = tl.program_id(0) * BLOCK_M + tl.arange(0, BLOCK_M).to(tl.int64)
    cols = tl.arange(0, BLOCK_D).to(tl.int64)
    there = (rows < L)[:, None] & (cols < D)[None, :]
    q = tl.load(q_ptr + head * q_head + rows[:, None] * q_row + cols[None, :] * q_col, mask=there, other=0.0)
    m = tl.full((BLOCK_M,), -float("inf"), tl.float32)
    l = tl.zeros((BLOCK_M,), tl.float32)
    o = tl.zeros((BLOCK_M, BLOCK_D), tl.float32)
    end = N
    if CAUSAL:
        # The last query of the tile sees the keys up to its own number: no later tile is loaded.
        end = tl.minimum(N, (tl.program_id(0) + 1) * BLOCK_M)
    for start in range(0, end, BLOCK_N):
        keys = start + tl.arange(0, BLOCK_N).to(tl.int64)
        mask = (keys < N)[:, None] & (cols < D)[None, :]
        k = tl.load(k_ptr + head * k_head + keys[:, None] * k_row + cols[None, :] * k_col, mask=mask, other=0.0)
        v = tl.load(v_ptr + head * v_head + keys[:, None] * v_row + cols[None, :] * v_col, mask=mask, other=0.0)
        s = tl.dot(q, k.T, input_precision="ieee") * scale
        seen = (keys < N)[None, :]
        if CAUSAL:
            seen = seen & (keys[None, :] <= rows[:, None])
        s = tl.where(seen, s, -float("inf"))
        m_new = tl.maximum(m, tl.max(s, axis=1))
        # While all scores so far are −inf, subtracting 0 instead of m avoids −inf − (−inf), which is NaN.
        shift = tl.where(m_new == -float("inf"), 0.0, m_new)
        p = tl.exp(s - shift[:, None])
        factor = tl.exp(m - shift)
        l = l * factor + tl.sum(p, axis=1)
        o = o * factor[:, None] + tl.dot(p.to(v.dtype), v, input_precision="ieee")
        m = m_new
    o = o / tl.where(l == 0.0, 1.0, l)[:, None]
    lse = m + tl.log(l)
    tl.store(o_ptr + (head * L + rows[:, None]) * D + cols[None, :], o, mask=there)
    tl.store(lse_ptr + head * L + rows, lse, mask=rows < L)


def tiled_attention(
    q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, BLOCK_M: int = 64, BLOCK_N: int = 32, *, is_causal: bool = False
) -> tuple[torch.Tensor, torch.Tensor]:
    """o and the log-sum-exp: Q and o once, K and V ⌈L / BLOCK_M⌉ times each; about half of that if causal."""
    (H, L, D), N = q.shape, k.shape[1]
    o = torch.empty(H, L, D, dtype=q.dtype, device=q.device)
    lse = torch.empty(H, L, device=q.device)
    if o.numel():
        attention_kernel[triton.cdiv(L, BLOCK_M), H](
            o, lse, q, k, v, *q.stride(), *k.stride(), *v.stride(), L, N, D, D**-0.5,
            BLOCK_M=BLOCK_M, BLOCK_N=BLOCK_N, BLOCK_D=max(16, triton.next_power_of_2(D)), CAUSAL=is_causal,
        )  # fmt: skip
    return o, lse


def causal_attention(
    q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, BLOCK_M: int = 64, BLOCK_N: int = 32
) -> tuple[torch.Tensor, torch.Tensor]:
    """`tiled_attention` in which query t sees the keys 0 to t."""
    return tiled_attention(q, k, v, BLOCK_M, BLOCK_N, is_causal=True)


def attention_gradient(
    q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, o: torch.Tensor, lse: torch.Tensor, do: torch.Tensor,
    BLOCK: int = 64,
) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:  # fmt: skip
    """The gradients of q, k and v, not causal, in PyTorch, for blocks of keys: no scores outlive their block.

    p = exp(s − lse);  dv = pᵀ do;  ds = p (do vᵀ − Σ o · do);  dq = scale · ds k;  dk = scale · dsᵀ q
    """
    scale = q.shape[-1] ** -0.5
    delta = (o * do).sum(dim=-1, keepdim=True)
    dq, dk, dv = torch.zeros_like(q), torch.zeros_like(k), torch.zeros_like(v)
    for start in range(0, k.shape[1], BLOCK):
        keys = slice(start, start + BLOCK)
        s = scale * q @ k[:, keys].mT
        p = torch.exp(s - lse[..., None])
        dv[:, keys] = p.mT @ do
        ds = p * (do @ v[:, keys].mT - delta)
        dq += scale * ds @ k[:, keys]
        dk[:, keys] = scale * ds.mT @ q
    return dq, dk, dv
