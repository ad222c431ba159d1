"""Mistakes in a formula, mask or loop are told by what comes back, what is loaded and stored, and what is not run."""

import pytest
import torch

from helpers.check.mistakes.recognise import Seen, best_explained, masked_by_place, too_slow
from helpers.check.mistakes.terms import TERMS
from helpers.check.problems import cases
from helpers.check.trial.trial import Trial
from helpers.engine.isolate import End

X = torch.tensor([[0.5, -1.0, 2.0, 1.5], [-3.0, -2.0, -2.5, -4.0], [3.0, 1.0, 0.0, 2.0]])
M = X.amax(dim=1, keepdim=True)
E = torch.exp(X - M)


def of_rows(numbers):
    return numbers.sum(dim=1, keepdim=True)


def seen(x, y):
    """What a check has seen of a call that returned y."""
    return Seen("a case", x, Trial(results=[y]), bool(cases.is_right(x, y)))


@pytest.mark.parametrize(
    ("y", "named"),
    [
        ((torch.exp(X) - M) / of_rows(torch.exp(X) - M), "maximum_after_exp"),
        (E / of_rows(X), "scores_added"),
        (E / of_rows(X - M), "scores_added"),
        (X / of_rows(E), "scores_divided"),
        ((X - M) / of_rows(E), "scores_divided"),
        ((X - M) / of_rows(X - M), "scores_divided"),
        (E / torch.exp(of_rows(X) - M), "exp_of_the_sum"),
        (E / torch.exp(of_rows(X - M)), "exp_of_the_sum"),
    ],
)
def test_wrong_terms_are_named(y, named):
    assert best_explained(TERMS, [seen(X, y)])[0].id == named


@pytest.mark.parametrize("y", [E / of_rows(E), E, E / of_rows(E).sum(), X * 2], ids=["right", "e", "one sum", "2 x"])
def test_other_results_are_no_wrong_terms(y):
    assert best_explained(TERMS, [seen(X, y)])[0] is None


def masked(x, loaded, stored, programs=5):
    """What a check has seen of a call that loaded and stored these elements once."""
    return Seen("a case", x, Trial(results=[x], loaded=1 * loaded, stored=1 * stored, programs=programs), False)


PLACES = torch.arange(5)[:, None] + 5 * torch.arange(8)
FIRST = (torch.arange(5) == 0)[:, None].expand(5, 8)


@pytest.mark.parametrize(
    ("x", "loaded", "stored", "programs", "found"),
    [
        (torch.rand(8, 5).t(), PLACES < 8, PLACES < 8, 5, 1),
        (torch.rand(8, 5).t(), torch.arange(5)[:, None] + torch.arange(8) < 8, FIRST, 5, 1),
        (torch.rand(5, 8), FIRST | ~FIRST, FIRST, 5, 1),
        (torch.rand(5, 8), FIRST | ~FIRST, 5 * FIRST, 5, 0),
        (torch.rand(5, 8), FIRST | ~FIRST, FIRST, 1, 0),
        (torch.rand(8, 5).t(), FIRST, FIRST | ~FIRST, 5, 0),
    ],
    ids=["places", "without the column stride", "on the store", "all to row 0", "one program", "row 0 loaded"],
)
def test_a_mask_of_places_is_found(x, loaded, stored, programs, found):
    assert masked_by_place([masked(x, loaded, stored, programs)]) == found


def test_a_mask_of_places_is_found_where_it_shows_in_every_wrong_case():
    right = masked(torch.rand(8, 5).t(), PLACES < 8, PLACES < 8)
    other = masked(torch.rand(5, 8), FIRST | ~FIRST, FIRST | ~FIRST)
    assert (masked_by_place([right, other]), masked_by_place([])) == (0, 0)


RAN, GIVEN_UP, NOT_BEGUN = Trial(), Trial(skipped=True), Trial(End.NOT_RUN)


@pytest.mark.parametrize(
    ("trials", "slow"),
    [
        ((RAN, NOT_BEGUN), 1),
        ((RAN, GIVEN_UP), 1),
        ((NOT_BEGUN, NOT_BEGUN), 0),
        ((RAN, Trial(End.OUT_OF_TIME), NOT_BEGUN), 0),
    ],
)
def test_too_slow_is_right_as_far_as_it_ran(trials, slow):
    assert too_slow([Seen("a case", X, trial, trial is RAN) for trial in trials]) == slow
