"""Which of the wrong elements a report shows, and the numbers there."""

import math

import torch

from helpers.check.judge import at_worst


def worst(want, got):
    want, got = torch.tensor([want], dtype=torch.float64), torch.tensor([got])
    return at_worst(want, got, torch.ones_like(got, dtype=torch.bool))


def test_the_largest_error_is_shown_and_no_number_that_the_dtype_cannot_hold():
    assert worst([1e-120, 0.5, 0.25], [0.1, 0.9, 0.25]) == "the worst at row 0, column 1: expected 0.5, got 0.9"
    assert worst([1e-120], [0.1]) == "the worst at row 0, column 0: expected 0, got 0.1"


def test_of_results_that_are_nan_the_one_of_the_largest_number_is_shown():
    assert worst([1e-120, 0.5, 0.25], [math.nan] * 3) == "the worst at row 0, column 1: expected 0.5, got nan"
