"""A product of float32 tiles, interpreted, has the digits that a GPU gives it: TF32's, unless it is told otherwise."""

import pytest
import torch
import triton
import triton.language as tl

from helpers.engine.runtime import DEVICE


@triton.jit
def product_kernel(y_ptr, a_ptr, b_ptr, PRECISION: tl.constexpr):
    at = tl.arange(0, 16)[:, None] * 16 + tl.arange(0, 16)[None, :]
    a, b = tl.load(a_ptr + at), tl.load(b_ptr + at)
    if PRECISION == "":
        tl.store(y_ptr + at, tl.dot(a, b))
    else:
        tl.store(y_ptr + at, tl.dot(a, b, input_precision=PRECISION))


def error(dtype, precision):
    a, b = torch.randn(2, 16, 16, generator=torch.Generator().manual_seed(1)).to(DEVICE, dtype)
    y = torch.empty(16, 16, device=DEVICE)
    product_kernel[(1,)](y, a, b, PRECISION=precision)
    return (y.double() - a.double() @ b.double()).abs().max().item()


@pytest.mark.parametrize("precision", ["", "tf32"])
def test_a_product_of_float32_loses_digits(precision):
    assert 1e-4 < error(torch.float32, precision) < 2e-2


@pytest.mark.parametrize("precision", ["ieee", "tf32x3"])
def test_a_product_that_is_to_be_exact_keeps_them(precision):
    assert error(torch.float32, precision) < 1e-5


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
def test_products_of_16_bits_are_exact(dtype):
    assert error(dtype, "") < 1e-5
