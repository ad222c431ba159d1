"""From shapes to a plan: the tiles of attention, and into how many parts the keys are split. Only numbers.

Tiles are the best of some 20 that were probed on an H100 for each head dimension (Triton 3.6).
"""

from __future__ import annotations

from typing import NamedTuple

import triton


class Plan(NamedTuple):
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

_WAVES = 4
"""Programs an SM that a split aims at."""


def plan_attention(
    batch: int, heads: int, group: int, tokens: int, N: int, D: int, itemsize: int, is_causal: bool, sms: int
) -> Plan:
    """The plan for `tokens` queries in each of `heads` heads, N keys, and D columns, on a GPU of `sms` SMs."""
    BLOCK_D = max(16, triton.next_power_of_2(D))
    if not is_causal and tokens * group <= _FEW:
        BLOCK_M = max(16, triton.next_power_of_2(tokens * group))
        BLOCK_N = 128 if BLOCK_D * itemsize <= 256 else 64 if BLOCK_D * itemsize <= 512 else 32
        programs = batch * heads // group
        S = max(1, min(-(-_WAVES * sms // programs), N // BLOCK_N))
        return Plan(group, BLOCK_M, BLOCK_N, BLOCK_D, 4, 3 if itemsize == 2 else 2, S)
    if itemsize == 4:
        return Plan(1, 32 if BLOCK_D > 64 else 64, 32, BLOCK_D, 4, 2, 1)
    if BLOCK_D <= 64:
        return Plan(1, 64, 64 if is_causal else 128, BLOCK_D, 4, 3 if is_causal else 2, 1)
    if BLOCK_D == 128:
        return Plan(1, 128, 128, BLOCK_D, 8, 3, 1)
    return Plan(1, 64, 64, BLOCK_D, 4, 3, 1)
