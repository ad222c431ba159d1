"""What the tests of other dimensions share: launches of several programs for each group, and how a result is judged."""

import pytest
import torch

from helpers import DEVICE, ON_GPU
from helpers.softmax.launches.launch import Launch
from helpers.softmax.plans.columns import SharedGroup, ThreeLaunches

SHARED = SharedGroup(8, 32, 1, 128, SPLIT=10)
TEAMS = SHARED.replaced(TEAM=4)
LONG = ThreeLaunches(8, 32, 1, 128, SPLIT=3)
BY_PROGRAMS = pytest.mark.parametrize("chosen", [SHARED, TEAMS], ids=["shared", "teams"])


def with_looks(launch: Launch, looks: int) -> Launch:
    """The launcher with programs that look `looks` times more before they help."""
    return launch.replaced(looks=looks)


def launched(launch: Launch, x: torch.Tensor) -> torch.Tensor:
    y = torch.full(x.shape, 7.0, dtype=x.dtype, device=DEVICE)
    launch((y, x), torch.cuda.current_stream().cuda_stream if ON_GPU else 0)
    return y


def assert_agrees(y: torch.Tensor, x: torch.Tensor, dim: int) -> None:
    want = torch.softmax(x.double(), dim)
    theirs = (torch.softmax(x, dim).double() - want).norm()
    assert (y.double() - want).norm() <= 2 * theirs + torch.finfo(torch.float32).eps * want.norm()
