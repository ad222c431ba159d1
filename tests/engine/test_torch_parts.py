"""torch's private parts are where this torch has them; without one, the rest of the course works, and says which."""

import re
import subprocess
import sys
from inspect import getsource
from pkgutil import resolve_name

import pytest

from helpers.engine import torch_parts
from helpers.engine.runtime import DEVICE, ON_GPU

SOURCE = getsource(torch_parts).replace("{DEVICE.type}", DEVICE.type)
PARTS = re.findall(r'_part\(\s*f?"([\w.]+)"', SOURCE)
REPLACED = re.findall(r'_part\(\s*f?"([\w.]+)", without', SOURCE)
OF_GPUS = {"torch._C._cuda_getDevice", "torch._C._cuda_getCurrentRawStream", "torch._C._cuda_isCurrentStreamCapturing"}

WITHOUT = """
import pkgutil, sys
found = pkgutil.resolve_name

def lost(whole):
    if whole in sys.argv:
        raise AttributeError(whole)
    return found(whole)

pkgutil.resolve_name = lost
from helpers import DEVICE, attention, check, ranks, softmax, traffic
from helpers.engine.torch_parts import DisableTorchDispatch
import torch
x, target = torch.randn(3, 5, device=DEVICE), torch.tensor([0, 4, 2], device=DEVICE)
"""
SAYS_WHICH = """
for call in (lambda: softmax.softmax(x), lambda: softmax.cross_entropy(x, target), DisableTorchDispatch):
    try:
        print(call())
    except RuntimeError as error:
        print(error)
"""
AS_TORCH = """
torch.testing.assert_close(softmax.softmax(x), torch.softmax(x, 1))
x.requires_grad_()
results = []
for cross_entropy in (softmax.cross_entropy, torch.nn.functional.cross_entropy):
    loss = cross_entropy(x, target)
    results.append((loss, *torch.autograd.grad(loss, x)))
torch.testing.assert_close(*results)
q = torch.randn(1, 1, 20, 16, device=DEVICE)
torch.testing.assert_close(attention.attention(q, q, q), torch.nn.functional.scaled_dot_product_attention(q, q, q))
"""


def says(code, parts):
    """What a program prints for which torch has moved these parts."""
    done = subprocess.run([sys.executable, "-c", WITHOUT + code, *parts], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    return done.stdout


@pytest.mark.parametrize("whole", [*PARTS, "torch.autograd.forward_ad._current_level"])
def test_a_part_is_where_it_is_looked_for(whole):
    if whole in OF_GPUS and not ON_GPU:
        pytest.skip("this torch may know no GPU")
    resolve_name(whole)


def test_without_any_of_them_everything_can_be_imported_and_the_first_call_says_which_is_missing():
    of_softmax, of_loss, of_ranks = says(SAYS_WHICH, PARTS).splitlines()
    assert of_softmax == of_loss
    assert re.fullmatch(
        r"torch 2\.\S+ has moved _len_torch_function_stack in torch._C, so softmax, cross_entropy and attention cannot "
        r"know who watches operations. `make install` brings the course's version; torch 2.11 to 2.15 are known to "
        "work.",
        of_softmax,
    )
    assert "_DisableTorchDispatch" in of_ranks and "so operations cannot be counted." in of_ranks


def test_where_a_public_part_takes_its_place_results_are_right():
    assert len(REPLACED) > 8
    says(AS_TORCH, REPLACED)
