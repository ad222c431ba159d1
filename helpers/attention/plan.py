"""From shapes to a plan: the tiles of attention, and into how many parts the keys are split. Only numbers.

Tiles are the best of some 20 that were probed on an H100 for each head dimension (Triton 3.6).
"""

from __future__ import annotations

from typing import NamedTuple

import triton


class AttentionPlan(NamedTuple):
    """A launch of attention: BLOCK_M queries a program, BLOCK_N keys a tile, S parts of the keys."""

    together: int
    """The query heads of a group whose queries share a tile: 1, or all of the group."""
    BLOCK_M: int
    BLOCK_N: int
    BLOCK_D: int
    num_warps: int
    stages: int
    S: int


_FEW = 64
"""Queries of a group up to which they share a tile, and the keys are split among programs."""

_WAVES = 2
"""Programs an SM that a split aims at, and twice as many from which nothing is split."""
_SHORT = 512
"""The keys of a part that are too few for tiles of 128."""


_DESCRIBED_FROM = 2**34
"""Products q · k from which on a GPU is as long at work as the host is at descriptors."""


def plan_attention(
    batch: int, heads: int, group: int, tokens: int, N: int, D: int, itemsize: int, is_causal: bool, sms: int
) -> AttentionPlan:
    """The plan for `tokens` queries in each of `heads` heads, N keys, and D columns, on a GPU of `sms` SMs."""
    BLOCK_D = max(16, triton.next_power_of_2(D))
    if not is_causal and tokens * group <= _FEW:
        BLOCK_M = max(16, triton.next_power_of_2(tokens * group))
        S = _parts(batch * heads // group, N, sms)
        BLOCK_N = 128 if BLOCK_D * itemsize <= 256 else 64 if BLOCK_D * itemsize <= 512 else 32
        stages = 3 if itemsize == 2 else 2
        if BLOCK_N == 128 and N // S <= _SHORT:
            BLOCK_N, stages = 64, stages + 1
        return AttentionPlan(group, BLOCK_M, BLOCK_N, BLOCK_D, 4, stages, S)
    if itemsize == 4:
        return AttentionPlan(1, 32 if BLOCK_D > 64 else 64, 32, BLOCK_D, 4, 2, 1)
    if BLOCK_D <= 64:
        return AttentionPlan(1, 64, 64 if is_causal else 128, BLOCK_D, 4, 3 if is_causal else 2, 1)
    if BLOCK_D == 128:
        return AttentionPlan(1, 128, 128, BLOCK_D, 8, 3, 1)
    return AttentionPlan(1, 64, 64, BLOCK_D, 4, 3, 1)


def pays_to_describe(products: int, is_causal: bool) -> bool:
    """Whether the GPU takes so long that the host makes tensor descriptors meanwhile: for products of numbers q · k."""
    return products // (2 if is_causal else 1) >= _DESCRIBED_FROM


def _parts(programs: int, N: int, sms: int) -> int:
    """Into how many parts N keys are split, a power of two, for so many programs that would each take all of them."""
    if programs >= 2 * _WAVES * sms:
        return 1
    fewest = 4 if programs <= _WAVES * sms else 2
    parts = max(fewest, triton.next_power_of_2(_WAVES * sms // programs + 1) // 2)
    return max(1, min(parts, N // 128))
