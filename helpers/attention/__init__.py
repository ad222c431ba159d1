"""Attention as torch's `scaled_dot_product_attention`, forward: one trip for Q and O, and no row of scores in memory.

`plan` chooses tiles, `kernels` has the two kernels; this file chooses the calls that they serve, and launches them.
"""

from __future__ import annotations

import math

import torch
import triton
from torch.compiler import is_compiling
from triton.tools.tensor_descriptor import TensorDescriptor

from helpers.attention.kernels import attend_kernel, merge_triples_kernel
from helpers.attention.plan import AttentionPlan, plan_attention
from helpers.engine.runtime import INTERPRETED
from helpers.softmax.torch_side import is_plain, records_gradient

torchs_attention = torch.nn.functional.scaled_dot_product_attention
"""torch's own function: whoever puts ours in its place would otherwise send us in a circle."""

_LOG2E = 1.4426950408889634
_MOST_COLUMNS = 256


def attention(
    query: torch.Tensor,
    key: torch.Tensor,
    value: torch.Tensor,
    *,
    is_causal: bool = False,
    scale: float | None = None,
    enable_gqa: bool = False,
) -> torch.Tensor:
    """softmax(scale · query keyᵀ) value over the last two dimensions, (…, H, L, d), as
    torch.nn.functional.scaled_dot_product_attention.

    `scale` is 1 / √d by default. With `is_causal`, query t sees the keys up to t (top left, also for other lengths than
    the keys'). With `enable_gqa`, each head of keys and values serves as many query heads as their numbers say. A query
    without keys gives 0. Products are added in float32; products of float32 are exact.

    Ours are three or four dimensions of float32, bfloat16 and float16, at most 256 columns, of keys and values alike;
    everything else is torch's: gradients, float64, scales of 0 or less, torch.compile, subclasses, modes that watch.

    Raises what torch raises.
    """
    if is_compiling() or not _is_ours(query, key, value, scale, enable_gqa):
        return torchs_attention(query, key, value, is_causal=is_causal, scale=scale, enable_gqa=enable_gqa)
    q, k, v = (x if x.dim() == 4 else x[None] for x in (query, key, value))
    o = torch.empty(q.shape, dtype=q.dtype, device=q.device)
    _attend(o, q, k, v, bool(is_causal), q.shape[3] ** -0.5 if scale is None else scale)
    return o.view(query.shape)


def _is_ours(q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, scale: float | None, enable_gqa: bool) -> bool:
    if not all(map(is_plain, (q, k, v))) or not q.dtype == k.dtype == v.dtype:
        return False
    if any(x.requires_grad and records_gradient(x) for x in (q, k, v)) or not q.device == k.device == v.device:
        return False
    if q.dim() not in (3, 4) or q.dim() != k.dim() or k.shape != v.shape or q.shape[-1] != k.shape[-1]:
        return False
    if not 0 < q.shape[-1] <= _MOST_COLUMNS or not q.numel() or not k.numel():
        return False
    if scale is not None and not (isinstance(scale, float | int) and 0 < scale < math.inf):
        return False
    if enable_gqa:
        return q.dim() == 4 and q.shape[0] == k.shape[0] and q.shape[1] % k.shape[1] == 0
    return q.shape[:-2] == k.shape[:-2]


def _attend(o: torch.Tensor, q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, is_causal: bool, scale: float) -> None:
    """Fills o, (B, H, L, d), from q of the same shape and from k and v, (B, H / group, N, d)."""
    batch, heads, tokens, D = q.shape
    N, group = k.shape[2], heads // k.shape[1]
    plan = plan_attention(batch, heads, group, tokens, N, D, q.element_size(), is_causal, _multiprocessors(q))
    groups = batch * heads // plan.together
    tiles = triton.cdiv(plan.together * tokens, plan.BLOCK_M)
    split = plan.S > 1
    described = all(map(_is_described, (k, v)))
    parts = pairs = o
    if split:
        parts = torch.empty(groups * tiles * plan.S, plan.BLOCK_M, plan.BLOCK_D, dtype=torch.float32, device=q.device)
        pairs = torch.empty(groups * tiles * plan.S, plan.BLOCK_M, 2, dtype=torch.float32, device=q.device)
    attend_kernel[(groups * tiles, plan.S)](
        parts, pairs, q, *([_descriptor(x, plan) for x in (k, v)] if described else (k, v)),
        *o.stride()[:3], *q.stride(), *k.stride(), *v.stride(),
        heads, group, tokens, N, D, scale * _LOG2E,
        TOGETHER=plan.together, CAUSAL=is_causal, PARTS=split,
        TAIL=is_causal or N % plan.BLOCK_N > 0, DESCRIBED=described,
        BLOCK_M=plan.BLOCK_M, BLOCK_N=plan.BLOCK_N, BLOCK_D=plan.BLOCK_D, STAGES=plan.stages,
        num_warps=plan.num_warps,
    )  # fmt: skip
    if split:
        merge_triples_kernel[(groups * plan.together * tokens,)](
            o, parts, pairs, *o.stride()[:3], heads, tokens, D, plan.S,
            TOGETHER=plan.together, BLOCK_M=plan.BLOCK_M, BLOCK_D=plan.BLOCK_D,
            BLOCK_S=min(32, triton.next_power_of_2(plan.S)),
        )  # fmt: skip


def _is_described(x: torch.Tensor) -> bool:
    """Whether x, (B, H, N, d), lies so that a GPU copies whole tiles by a descriptor."""
    *strides, last = x.stride()
    size = x.element_size()
    regular = last == 1 and size == 2 and x.data_ptr() % 16 == 0 and all(s > 0 and s * size % 16 == 0 for s in strides)
    return regular and not INTERPRETED and torch.cuda.get_device_capability(x.device) >= (9, 0)


def _descriptor(x: torch.Tensor, plan: AttentionPlan) -> TensorDescriptor:
    return TensorDescriptor(x, list(x.shape), list(x.stride()), [1, 1, plan.BLOCK_N, plan.BLOCK_D])


def _multiprocessors(x: torch.Tensor) -> int:
    return 132 if x.is_cpu else torch.cuda.get_device_properties(x.device).multi_processor_count
