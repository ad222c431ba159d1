"""The launch that is planned for a tensor: what records of launches time."""

from __future__ import annotations

import torch

from helpers.softmax.function import gradient_launcher_of, launcher_of
from helpers.softmax.launches.launch import Launch, gpu_of
from helpers.softmax.launches.losses import loss_launcher, pairs_like
from helpers.softmax.launches.rows import log_softmax_launcher
from helpers.softmax.plans.losses import LossOptions


def planned_launch(what: str, x: torch.Tensor, y: torch.Tensor) -> tuple[Launch, tuple[torch.Tensor, ...]]:
    """The planned launch for contiguous x over its second dimension, and its tensors, whose first gets the result.

    It is a "softmax", the "gradient" of one that gave x (dy is random), a "log_softmax", a mean "loss" with its
    gradient, or a "loss alone"; the last three take (M, N). All but the last one fill y.
    """
    if what == "softmax":
        return launcher_of(x, 1), (y, x)
    if what == "gradient":
        dy = torch.randn_like(x)
        return gradient_launcher_of(dy, x, 1), (y, dy, x)
    M, N = x.shape
    if what == "log_softmax":
        layout = M, N, x.element_size(), x.data_ptr() % 16 == 0
        return log_softmax_launcher(*layout, gpu_of(x.get_device())), (y, x)
    target = torch.randint(0, N, (M,), device=x.device)
    loss = torch.empty((), dtype=x.dtype, device=x.device)
    mean = LossOptions(-100, "mean", 0.0, x.dtype)
    if what == "loss alone":
        return loss_launcher(x, mean, False), (loss, loss, x, target, loss)
    pairs = x.element_size() == 2  # as `cross_entropy` asks for them
    return loss_launcher(x, mean, True, pairs), (y, loss, x, target, pairs_like(x))
