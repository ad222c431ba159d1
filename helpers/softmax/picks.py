"""The kernels that lesson 14 arrives at: one column of each row, drawn with probability exp(x − m) / l.

x is (M, N), of float32, bfloat16 or float16 with any strides. A row is cut into tiles of BLOCK columns. u holds numbers
in [0, 1), of any strides: u[row, tile] decides whether the tile's column takes the place of the one picked before. The
results are M columns in int64; a row of only −inf has −1. `helpers.softmax.sample` is what the course ships.

The letters: m a maximum, l a sum of exp(x − m), s the part of l that a tile has, place the number u · l.
"""

from __future__ import annotations

import torch
import triton
import triton.language as tl

TILES = 2
"""Tiles of a part, whatever the number of rows."""


@triton.jit
def pick_of(x_row, x_col, u_row, u_col, N, first, end, BLOCK: tl.constexpr):
    """(m, l, pick) of the tiles from `first` on and before `end`, of BLOCK columns each, of a row of N."""
    m, l, pick = -float("inf"), 0.0, -1
    for tile in range(first, end):
        cols = tile * BLOCK + tl.arange(0, BLOCK)
        x = tl.load(x_row + cols * x_col, mask=cols < N, other=-float("inf")).to(tl.float32)
        m_new = tl.maximum(m, tl.max(x, axis=0))
        shift = tl.where(m_new == -float("inf"), 0.0, m_new)
        e = tl.exp(x - shift)
        s = tl.sum(e, axis=0)
        l = l * tl.exp(m - shift) + s
        m = m_new
        place = tl.load(u_row + tile * u_col) * l
        if place < s:
            last = tl.max(tl.where(e > 0, cols, -1), axis=0)
            past = (tl.cumsum(e, axis=0) > place) & (e > 0)
            pick = tl.min(tl.where(past, cols, last), axis=0)
    return m, l, pick


@triton.jit
def picks_kernel(pick_ptr, x_ptr, u_ptr, x_stride, x_col, u_stride, u_col, N, tiles, BLOCK: tl.constexpr):
    """Each program stores the pick of a row of N columns, from all its tiles of BLOCK."""
    row = tl.program_id(0).to(tl.int64)
    x_col, u_col = tl.cast(x_col, tl.int64), tl.cast(u_col, tl.int64)
    m, l, pick = pick_of(x_ptr + row * x_stride, x_col, u_ptr + row * u_stride, u_col, N, 0, tiles, BLOCK)
    tl.store(pick_ptr + row, pick)


def tiles_for(N: int, numbers: int) -> tuple[int, int]:
    """How many tiles a row of N columns has, at most as many as there are numbers for it, and their columns."""
    BLOCK = max(16, triton.next_power_of_2(triton.cdiv(N, numbers)))
    return triton.cdiv(N, BLOCK), BLOCK


def tile_sample(x: torch.Tensor, u: torch.Tensor) -> torch.Tensor:
    """A column of each row, by one program a row; u is (M, T) for at most T tiles."""
    (M, N), (tiles, BLOCK) = x.shape, tiles_for(x.shape[1], u.shape[1])
    picks = torch.empty(M, dtype=torch.int64, device=x.device)
    picks_kernel[(M,)](picks, x, u, *x.stride(), *u.stride(), N, tiles, BLOCK=BLOCK)
    return picks


@triton.jit
def triples_kernel(
    pair_ptr, part_pick_ptr, x_ptr, u_ptr, x_stride, x_col, u_stride, u_col, N, tiles,
    TILES: tl.constexpr, BLOCK: tl.constexpr,
):  # fmt: skip
    """Program (row, part) stores (m, l) and the pick of TILES tiles of a row, of BLOCK columns each."""
    row, part, parts = tl.program_id(0).to(tl.int64), tl.program_id(1), tl.num_programs(1)
    x_col, u_col = tl.cast(x_col, tl.int64), tl.cast(u_col, tl.int64)
    at = row * parts + part
    first = part * TILES
    end = tl.minimum(tiles, first + TILES)
    m, l, pick = pick_of(x_ptr + row * x_stride, x_col, u_ptr + row * u_stride, u_col, N, first, end, BLOCK)
    tl.store(pair_ptr + 2 * at, m)
    tl.store(pair_ptr + 2 * at + 1, l)
    tl.store(part_pick_ptr + at, pick)


@triton.jit
def merge_kernel(pick_ptr, pair_ptr, part_pick_ptr, u_ptr, u_stride, parts, PARTS: tl.constexpr):
    """Each program picks a part of its row, in PARTS lanes, and stores the pick of this part."""
    row = tl.program_id(0).to(tl.int64)
    part = tl.arange(0, PARTS)
    at, exists = row * parts + part, part < parts
    pick = tl.cast(-1, tl.int64)
    m = tl.load(pair_ptr + 2 * at, mask=exists, other=-float("inf"))
    l = tl.load(pair_ptr + 2 * at + 1, mask=exists, other=0.0)
    top = tl.max(m, axis=0)
    s = l * tl.exp(m - tl.where(top == -float("inf"), 0.0, top))
    place = tl.load(u_ptr + row * u_stride) * tl.sum(s, axis=0)
    last = tl.max(tl.where(s > 0, part, 0), axis=0)
    past = (tl.cumsum(s, axis=0) > place) & (s > 0)
    chosen = tl.min(tl.where(past, part, last), axis=0)
    pick = tl.load(part_pick_ptr + row * parts + chosen)
    tl.store(pick_ptr + row, pick)


def split_sample(x: torch.Tensor, u: torch.Tensor) -> torch.Tensor:
    """A column of each row, by a program for each part of TILES tiles; u is (M, T + 1), the last number the merge's."""
    (M, N), (tiles, BLOCK) = x.shape, tiles_for(x.shape[1], u.shape[1] - 1)
    parts = triton.cdiv(tiles, TILES)
    picks = torch.empty(M, dtype=torch.int64, device=x.device)
    pairs = torch.empty(M, parts, 2, device=x.device)
    part_picks = picks.new_empty(M, parts)
    strides = *x.stride(), *u.stride()
    cut = {"TILES": TILES, "BLOCK": BLOCK}
    triples_kernel[(M, parts)](pairs, part_picks, x, u, *strides, N, tiles, **cut)
    rest, PARTS = (u[:, -1], u.stride(0), parts), triton.next_power_of_2(parts)
    merge_kernel[(M,)](picks, pairs, part_picks, *rest, PARTS=PARTS)
    return picks
