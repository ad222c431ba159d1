"""Attention as torch's `scaled_dot_product_attention`, forward: one trip for Q and O, and no row of scores in memory.

`plan` chooses tiles, `kernels` has the two kernels, and `launches` launches them; this file chooses the calls that they
serve.
"""

from __future__ import annotations

import math

import torch
from torch.compiler import is_compiling

from helpers.attention.launches import attention_launches
from helpers.softmax.torch_side import is_plain, records_gradient

torchs_attention = torch.nn.functional.scaled_dot_product_attention
"""torch's own function: whoever puts ours in its place would otherwise send us in a circle."""

_MOST_COLUMNS = 256
_LEAST_SCALE = torch.finfo(torch.float32).tiny
"""A smaller scale may be 0 in float32, and −inf · 0 is NaN."""


def attention(
    query: torch.Tensor,
    key: torch.Tensor,
    value: torch.Tensor,
    attn_mask: torch.Tensor | None = None,
    dropout_p: float = 0.0,
    is_causal: bool = False,
    *,
    scale: float | None = None,
    enable_gqa: bool = False,
) -> torch.Tensor:
    """softmax(scale · query keyᵀ) value over the last two dimensions, (…, H, L, d): a drop-in for
    torch.nn.functional.scaled_dot_product_attention, with its parameters. The result lies as torch's lies: heads inside
    tokens if the queries' do.

    `scale` is 1 / √d by default. With `is_causal`, query t sees the keys up to t (top left, also for other lengths than
    the keys'). With `enable_gqa`, each head of keys and values serves as many query heads as their numbers say. A query
    without keys gives 0. Products are added in float32; products of float32 are exact.

    Ours are three or four dimensions of float32, bfloat16 and float16, at most 256 columns, of keys and values alike;
    everything else is torch's: masks, dropout, gradients, float64, scales of 0 or less, autocast, torch.compile,
    subclasses, modes that watch, and tiles for which this GPU has too little shared memory.

    Raises what torch raises.
    """
    as_ours = attn_mask is None and type(dropout_p) in (float, int) and not dropout_p and not is_compiling()
    if as_ours and _is_ours(query, key, value, is_causal, scale, enable_gqa):
        launches = attention_launches(query, key, value, is_causal, query.shape[-1] ** -0.5 if scale is None else scale)
        o = query.new_empty_strided(query.shape, launches.strides)
        if launches.fill(o, query, key, value):
            return o
    return torchs_attention(query, key, value, attn_mask, dropout_p, is_causal, scale=scale, enable_gqa=enable_gqa)


def _is_ours(
    q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, is_causal: bool, scale: float | None, enable_gqa: bool
) -> bool:
    if not all(map(is_plain, (q, k, v))) or not q.dtype == k.dtype == v.dtype:
        return False
    if not type(is_causal) is type(enable_gqa) is bool or torch.is_autocast_enabled(q.device.type):
        return False
    if any(x.requires_grad and records_gradient(x) for x in (q, k, v)) or not q.device == k.device == v.device:
        return False
    if q.dim() not in (3, 4) or q.dim() != k.dim() or k.shape != v.shape or q.shape[-1] != k.shape[-1]:
        return False
    if not 0 < q.shape[-1] <= _MOST_COLUMNS or not q.numel() or not k.numel():
        return False
    if scale is not None and not (isinstance(scale, float | int) and _LEAST_SCALE <= scale < math.inf):
        return False
    if enable_gqa:
        return q.dim() == 4 and q.shape[0] == k.shape[0] and q.shape[1] % k.shape[1] == 0
    return q.shape[:-2] == k.shape[:-2]
