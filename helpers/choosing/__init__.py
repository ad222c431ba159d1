"""Lesson 06: which softmax for this row length, with what BLOCK and num_warps.

A `Launch` is a variant and its numbers, `candidates` are those worth measuring, `of_gpu` what each of them took
(launches.py); `pick` chooses one by a rule (rules.py); `picker.show` is the same as a slider (picker/).
"""

from helpers.choosing.launches import Launch, candidates, of_gpu, tile
from helpers.choosing.rules import pick

__all__ = ["Launch", "candidates", "of_gpu", "pick", "tile"]
