"""What to compute from logits and targets, besides a gradient."""

from __future__ import annotations

from typing import NamedTuple

import torch


class How(NamedTuple):
    """The results to compute from the logits."""

    ignore_index: int
    reduction: str
    label_smoothing: float
    loss_dtype: torch.dtype
