"""How many rows of logits are there at once, and how many programs share the classes of one."""

from __future__ import annotations

from triton import cdiv

from helpers.softmax.plans.gpu import Chip

MOST_BYTES = 504 * 2**20
"""Of the logits that are there at once."""
BLOCK_M, BLOCK_V = 128, 256
"""Rows and classes of a tile of logits, the largest whose sums an SM's registers hold."""
_TILE = 128
"""Rows and columns of the tiles in which a library's products are counted."""
_FLOPS = {"sm_80": 2048, "sm_86": 512, "sm_89": 512, "sm_90": 4096, "sm_100": 8192, "sm_103": 8192, "sm_120": 512}
"""Operations of an SM in a cycle, of 16 bits added up in float32: by NVIDIA's data sheets, over SMs and clocks."""
_UNCOVERED = 0.5
"""The part of the trips of W that the products do not cover, as measured on an H200."""


def rows_of_chunk(M: int, H: int, V: int, itemsize: int, gpu: Chip) -> int:
    """Rows of logits to make at once, of M rows with H inputs and V classes; at most MOST_BYTES, if that is a tile.

    Each chunk reads W twice, and reads and writes its gradient once: that favours few. The product for the inputs'
    gradient has few tiles, and the last of them leave SMs without work: that favours numbers that fit. The times of
    both are added, in units of that product alone.
    """
    most = max(_TILE, MOST_BYTES // (V * itemsize) // _TILE * _TILE)
    fewest = cdiv(M, most)
    cycles_of_trips = 2 * itemsize * _FLOPS.get(gpu.target, 4096) / gpu.cycle_bytes * _UNCOVERED

    def cost(chunks: int) -> float:
        rows = _even(M, chunks)
        tiles = cdiv(rows, _TILE) * cdiv(H, _TILE)
        return cdiv(tiles, gpu.sms) * gpu.sms / tiles + cycles_of_trips / rows

    return _even(M, min(range(fewest, 2 * fewest + 1), key=cost))


def _even(M: int, chunks: int) -> int:
    """Rows of each of so many chunks, in whole tiles."""
    return min(M, cdiv(cdiv(M, chunks), _TILE) * _TILE)


def classes_of_part(M: int, V: int, gpu: Chip) -> int:
    """Classes that a program walks over: with that many parts the SMs are busy for the shortest time. A program's start
    takes about as long as a tile."""
    tiles_of_rows, tiles = cdiv(M, BLOCK_M), cdiv(V, BLOCK_V)

    def cost(parts: int) -> int:
        return cdiv(tiles_of_rows * parts, gpu.sms) * (cdiv(tiles, parts) + 1)

    return cdiv(tiles, min(range(1, min(tiles, gpu.sms) + 1), key=cost)) * BLOCK_V
