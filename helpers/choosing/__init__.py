"""Lesson 07: which softmax for this row length, with what BLOCK and num_warps.

A `Launch` is a variant and its numbers, `candidates` lists the launches worth timing, and `of_gpu` returns the recorded
times (launches.py). `pick` chooses a launch by a rule (rules.py). `picker.show` does the same with a slider (picker/).
"""

from helpers.choosing.launches import Launch, candidates, of_gpu, tile
from helpers.choosing.rules import pick

__all__ = ["Launch", "candidates", "of_gpu", "pick", "tile"]
