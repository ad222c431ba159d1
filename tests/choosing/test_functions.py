"""A Launch becomes the function that launches so, and the question that the compiler is asked about it."""

import pytest
import torch

import needs
from helpers import DEVICE, kernels
from helpers.choosing.functions import compiled_as, softmax_of
from helpers.choosing.launches import Launch, candidates
from helpers.engine import interpreter

LAUNCHES = [
    Launch("single tile", 1024, 4),
    Launch("several rows", 1024, 4, rows=2),
    Launch("persistent", 1024, 2),
    Launch("online", 512, 8),
    Launch("split row", 256, 4),
    Launch("two-pass", 512, 16),
]
by_variant = pytest.mark.parametrize("launch", LAUNCHES, ids=lambda launch: launch.variant)


@by_variant
def test_every_variant_can_be_launched(launch):
    x = torch.randn(5, 800, device=DEVICE)
    torch.testing.assert_close(softmax_of(launch)(x), torch.softmax(x, dim=1))


@needs.interpreter
@by_variant
def test_the_compiler_is_asked_about_the_kernel_that_is_launched(launch):
    seen = []
    with interpreter.watching(seen.append):
        softmax_of(launch)(torch.randn(5, 800, device=DEVICE))
    kernel, _, _ = compiled_as(launch, 800, torch.float32)
    assert kernel.fn.__name__ == seen[-1].kernel


@by_variant
def test_the_compiler_is_asked_about_the_numbers_of_the_launch(launch):
    _, _, constants = compiled_as(launch, 800, torch.float32)
    assert (constants["BLOCK"], constants["num_warps"]) == (launch.BLOCK, launch.num_warps)
    assert constants.get("ROWS", 1) == launch.rows


@by_variant
def test_the_compiler_is_asked_about_all_arguments_of_the_kernel(launch):
    kernel, args, constants = compiled_as(launch, 800, torch.float16)
    assert len(args) + len(set(constants) - {"num_warps"}) == len(kernel.arg_names)
    assert {arg.dtype for arg in args if isinstance(arg, torch.Tensor)} <= {torch.float16, torch.float32}
    assert args[0].dtype == torch.float16 and args[-1] == 800


@pytest.mark.parametrize(("n_cols", "parts"), [(512, 2), (513, 4), (1024, 4), (1025, 8), (256 * 100, 128)])
def test_the_pairs_of_a_split_row_are_a_power_of_two(n_cols, parts):
    _, _, constants = compiled_as(Launch("split row", 256, 4), n_cols, torch.float32)
    assert constants["PARTS"] == parts


def test_the_pairs_of_a_split_row_are_float32_whatever_the_row_is():
    _, (y, pairs, x, *_), _ = compiled_as(Launch("split row", 256, 4), 800, torch.bfloat16)
    assert (y.dtype, pairs.dtype, x.dtype) == (torch.bfloat16, torch.float32, torch.bfloat16)


def test_the_compiler_is_asked_about_the_stages_that_a_row_of_this_dtype_gets(monkeypatch):
    monkeypatch.setattr(kernels, "default_num_stages", lambda row_bytes: row_bytes)
    _, _, constants = compiled_as(Launch("persistent", 1024, 2), 800, torch.bfloat16)
    assert constants["STAGES"] == 2048


@pytest.mark.parametrize("n_cols", [1, 1000, 10**5, 10**6])
def test_every_candidate_can_be_asked_about(n_cols):
    for launch in candidates(n_cols):
        compiled_as(launch, n_cols, torch.float32)
