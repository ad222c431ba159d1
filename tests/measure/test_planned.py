"""Planned launches, and the same with other arguments."""

import pytest
import torch

from helpers import DEVICE
from helpers.kernels import DTYPES
from helpers.measure.planned import planned_launch
from helpers.softmax.launches.launch import current_stream


@pytest.mark.thinned
@pytest.mark.parametrize("what", ["softmax", "gradient", "log_softmax", "loss"])
def test_a_launch_with_other_arguments_differs_in_them_alone(what):
    x = torch.randn(3, 9000, device=DEVICE)
    planned, tensors = planned_launch(what, x, torch.empty_like(x))
    other = planned.replaced(TURNS=2, POLICY="evict_last")
    assert other.named == planned.named | {"TURNS": 2, "POLICY": "evict_last"}
    nothing = {"named": {}, "arguments": ()}
    assert vars(other) | nothing == vars(planned) | nothing
    results = []
    for launcher in (planned, other):
        launcher(tensors, current_stream(x.get_device()))
        results.append(tensors[0].clone())
    assert torch.equal(*results)


@pytest.mark.parametrize("dtype", ["fp32", "bf16"])
def test_a_loss_is_launched_as_a_step_of_training_launches_it(dtype):
    x = torch.empty(3, 9000, device=DEVICE, dtype=DTYPES[dtype])
    known = planned_launch("loss", x, x)[0].named
    assert known["GRAD"] and known["PAIRS"] == (dtype == "bf16")


def test_each_launch_computes_what_torch_computes():
    x = torch.randn(5, 3000, device=DEVICE)
    for what in ("softmax", "log_softmax", "gradient"):
        launcher, tensors = planned_launch(what, x, torch.empty_like(x))
        launcher(tensors, current_stream(x.get_device()))
        y = tensors[0]
        expected = {
            "softmax": lambda: torch.softmax(x, 1),
            "log_softmax": lambda: torch.log_softmax(x, 1),
            "gradient": lambda dy=tensors[1]: x * (dy - (x * dy).sum(1, keepdim=True)),
        }[what]()
        assert torch.allclose(y, expected, rtol=1e-4, atol=1e-4), what
    launcher, tensors = planned_launch("loss alone", x, x)
    assert not launcher.named["GRAD"]
    launcher(tensors, current_stream(x.get_device()))
    _, loss, _, target, _ = tensors
    assert torch.allclose(loss, torch.nn.functional.cross_entropy(x, target), rtol=1e-5)
