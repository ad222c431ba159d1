"""What the checks take for right: float64, and how far from it a result may be."""

import pytest
import torch

from helpers.check.problems import cases
from posed import drawn

X = torch.tensor([[0.0, 1.0, 2.0], [3.0, 4.0, 5.0]])

# The inputs, and what is right there


def test_another_seed_draws_other_inputs_and_so_does_another_case():
    makers = {"one": cases.randn(2, 3), "two": cases.randn(2, 3)}
    first, second = drawn(makers, 1), drawn(makers, 2)
    assert not torch.equal(first["one"], second["one"]) and not torch.equal(first["one"], first["two"])


def test_random_values_are_scaled_then_shifted():
    (x,) = drawn({"large": cases.randn(100, 100, scale=0.01, shift=1000.0)}, 7).values()
    assert 999 < x.min() < 1000 < x.max() < 1001


def test_a_start_of_minus_inf_has_the_length_asked_for():
    (x,) = drawn({"start": cases.start_of_minus_inf(10, 4)}, 7).values()
    assert (x == -cases.INF).sum() == 4


def test_right_is_the_softmax_of_each_row_in_float64():
    assert torch.equal(cases.expected(X), torch.softmax(X.double(), dim=1))


def test_a_row_of_only_minus_inf_is_right_where_it_is_nan():
    row = torch.full((1, 3), -torch.inf)
    assert cases.is_right(row, torch.full((1, 3), torch.nan)) and not cases.is_right(row, torch.zeros(1, 3))


# The tolerance

UNIT = torch.finfo(torch.float32).eps


def units(*row, dtype=torch.float32):
    """The error allowed of each element of a row, in units of its dtype's last place."""
    rtol, _ = cases.tolerance(torch.tensor([row], dtype=dtype))
    return (rtol / torch.finfo(dtype).eps).squeeze(0).tolist()


def test_a_single_small_number_is_held_to_a_few_units():
    assert units(0.0) == pytest.approx([6 + 3 / 4])


def test_the_tolerance_grows_with_the_distance_from_the_maximum_and_with_the_size_of_the_row():
    low, high = units(-10.0, 0.0)
    assert (low - high, high) == (pytest.approx(20), pytest.approx(6 + 0.75 * 2**0.5 + 30))
    assert units(1000.0) == pytest.approx([3006 + 3 / 4])


def test_minus_infinity_and_nan_leave_the_tolerance_of_the_others_alone():
    assert units(-torch.inf, 0.0, torch.inf, torch.nan)[1] == pytest.approx(6 + 0.75 * 4**0.5)


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16], ids=str)
def test_16_bits_have_three_quarters_of_a_unit_or_what_float32_costs(dtype):
    assert units(0.0, dtype=dtype) == [0.75]
    assert units(16384.0, dtype=dtype)[0] == max(0.75, (6 + 3 / 4 + 3 * 16384) * UNIT / torch.finfo(dtype).eps)


@pytest.mark.parametrize(("error", "ok"), [(6, True), (8, False)])
def test_an_error_in_float32_is_right_up_to_the_tolerance(error, ok):
    x = torch.zeros(1, 1)
    assert cases.is_right(x, torch.ones(1, 1) * (1 - error * UNIT)) is ok


def test_what_is_smaller_than_a_normal_number_may_be_0():
    x = torch.tensor([[0.0, -88.0, -80.0]])
    y = torch.softmax(x, 1)
    assert cases.is_right(x, torch.where(x == -88, 0.0, y)) and not cases.is_right(x, torch.where(x == -80, 0.0, y))
