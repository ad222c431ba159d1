"""The launches that draw a column of each row: the pairs of its tiles, if it has several, and then the pick."""

from __future__ import annotations

import torch
from triton import cdiv, next_power_of_2

from helpers.softmax.kernels.sample import pairs_kernel, pick_kernel
from helpers.softmax.launches.launch import Launch, gpu_of, keep_launcher, on_stream

_TILE, _LEAST = 512, 32
"""The most columns of a tile, whatever the rows: the tile must not depend on how many there are. And the fewest: of a
tile of one bfloat16, Triton 3.6 makes text that it cannot parse (sm_90)."""

_MOVED = 4096
"""Bytes of tiles whose pairs a program finds: what one warp loads at a time."""

_known: dict[tuple, tuple[Launch | None, Launch]] = {}


def sample_launches(x: torch.Tensor, temperature: float | None) -> tuple[Launch | None, Launch]:
    """The launch for the pairs of rows x (M, N), None if a row is one tile, and the launch for their picks, at a
    temperature, or at one for each row (None). They are made once and remembered."""
    key = (x.shape, x.stride(), x.dtype, x.get_device(), x.data_ptr() % 16, temperature)
    return _known.get(key) or keep_launcher(_known, key, _launches(x, temperature))


def _launches(x: torch.Tensor, temperature: float | None) -> tuple[Launch | None, Launch]:
    (M, N), (row_stride, col_stride) = x.shape, x.stride()
    BLOCK = min(_TILE, max(_LEAST, next_power_of_2(N)))
    tiles, early = cdiv(N, BLOCK), N > BLOCK and gpu_of(x.get_device()).starts_early
    of_both = {"row_stride": row_stride, "col_stride": col_stride, "N": N, "BLOCK": BLOCK, "EARLY": early}
    of_both |= {"temperature": temperature or 0.0, "OF_ROWS": temperature is None}
    pick = Launch(pick_kernel, (M, 1, 1), warps=1, early=early, PARTS=next_power_of_2(tiles), **of_both)
    if tiles == 1:
        return None, pick
    TILES = _MOVED // (BLOCK * x.element_size())
    programs = M * cdiv(tiles, TILES)
    return Launch(pairs_kernel, (programs, 1, 1), warps=1, early=early, TILES=TILES, **of_both), pick


def picks_of(
    x: torch.Tensor, seed: torch.Tensor, temperature: float | None, temperatures: torch.Tensor | None
) -> torch.Tensor:
    """A column of each of the rows x (M, N), M > 0, by a `seed` of one int64 on their device; −1 for a row without a
    sum. `temperatures` are M float32, one behind another, if `temperature` is None."""
    pairs, pick = sample_launches(x, temperature)
    picks = torch.empty(len(x), dtype=torch.int64, device=x.device)
    pair = torch.empty((len(x), cdiv(x.shape[1], _TILE), 2) if pairs else 0, device=x.device)
    of_rows = pair if temperatures is None else temperatures
    if pairs:
        on_stream(x, pairs, (pair, x, of_rows))
    on_stream(x, pick, (picks, pair, x, of_rows, seed))
    return picks
