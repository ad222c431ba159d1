"""The fewest places on which programs that wait for each other (waiting.py) all come to an end."""

from __future__ import annotations

from bisect import bisect_left

from helpers.gpu.waiting import Grid, run


def least_places(*grids: Grid) -> int:
    """The fewest places on which the grids, run at the same time, come to an end. With more places they also do.

    Raises ValueError for grids without programs.
    """
    run(*grids, places=1)
    most = sum(map(len, grids))
    return 1 + bisect_left(range(1, most), True, key=lambda places: not run(*grids, places=places).hangs)
