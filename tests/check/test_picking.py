"""Lesson 14's right results: the rule of the text draws by probability, and rounding decides nothing."""

import itertools

import pytest
import torch

from helpers.check import EXERCISES
from helpers.check.exercises.lesson_14 import merge
from helpers.check.problems.asking import NOT_BY_U, shares_of_picks
from helpers.check.problems.picking import PICKS, PICKS_OF_PARTS


def test_over_all_numbers_each_column_is_right_as_often_as_it_is_probable():
    steps, row = 100, 2 * torch.randn(40, generator=torch.Generator().manual_seed(0))
    u = torch.tensor(list(itertools.product(range(steps), repeat=2))) / steps + 1 / 317  # two tiles: 32 columns, 8 more
    (columns,) = PICKS.expected(row.expand(len(u), 40), u)
    shares = torch.bincount(columns.round().long(), minlength=40) / len(u)
    torch.testing.assert_close(shares, torch.softmax(row, 0), atol=2 / steps, rtol=0)


@pytest.mark.parametrize(
    ("u", "right", "wrong"),
    [(0.25, (3, 4), (2, 5)), (0.26, (4,), (3, 5)), (0.0, (0,), (1,)), (1 - 2**-24, (15,), (14,))],
)
def test_at_the_end_of_a_column_both_neighbours_are_right_and_else_one_alone(u, right, wrong):
    inputs = torch.zeros(1, 16), torch.tensor([[u]])
    assert all(PICKS.is_right(inputs, [torch.tensor([column])]) for column in right)
    assert not any(PICKS.is_right(inputs, [torch.tensor([column])]) for column in wrong)


def test_hidden_columns_are_wrong_whatever_u_is():
    x = torch.zeros(1, 16)
    x[:, :3], x[:, 10:] = -torch.inf, -torch.inf
    for u, column, hidden in ((0.0, 3, 2), (1 - 2**-24, 9, 10)):
        inputs = x, torch.tensor([[u]])
        assert PICKS.is_right(inputs, [torch.tensor([column])])
        assert not PICKS.is_right(inputs, [torch.tensor([hidden])])


def test_a_row_of_only_minus_inf_has_no_column():
    x, u = torch.full((2, 100), -torch.inf), torch.full((2, 9), 0.5)
    assert PICKS.is_right((x, u), [torch.tensor([-1, -1])])
    assert PICKS_OF_PARTS.is_right((x, u), [torch.tensor([-1, -1])])


def test_the_last_number_of_a_row_picks_its_part():
    x, u = torch.zeros(2, 128), torch.zeros(2, 9)  # 4 parts of 2 tiles of 16; u = 0 picks a part's last tile
    u[1, -1] = 0.8
    assert PICKS_OF_PARTS.is_right((x, u), [torch.tensor([16, 112])])


def test_how_three_parts_are_grouped_changes_no_share():
    a, b, c = (0.0, 1.0, 7), (1.0, 2.0, 8), (-1.0, 3.0, 9)
    *_, left, _ = shares_of_picks(merge, (a, b), c)
    *_, right, step = shares_of_picks(merge, a, (b, c))
    assert [pick for pick, _ in left] == [pick for pick, _ in right] == [7, 8, 9]
    assert all(abs(one - other) <= 2 * step for (_, one), (_, other) in zip(left, right, strict=True))


def test_a_merge_that_is_right_at_256ths_of_u_alone_is_wrong():
    def at_256ths(a, b, u):
        return merge(a, b, u if (256 * u).is_integer() else 0.0)

    report = EXERCISES["merge_picks"].report_on(at_256ths, seed=0)
    assert report.points == 0 and "of the numbers u, its share is" in report.findings[0].seen


def test_numbers_may_be_tensors_and_the_triple_a_list():
    def in_tensors(a, b, u):
        return [torch.tensor(one, dtype=torch.float64) for one in merge(a, b, u)[:2]] + [merge(a, b, u)[2]]

    two = (0.0, 1.0, 7), (0.5, 2.0, 8)
    assert shares_of_picks(in_tensors, *two) == shares_of_picks(merge, *two)


@pytest.mark.parametrize("returned", [None, (1.0, 2.0), 5, (1.0, None, 3)])
def test_something_else_than_a_triple_is_handed_on(returned):
    assert shares_of_picks(lambda a, b, u: returned, ((0.0, 1.0, 7),) * 2, (0.0, 1.0, 8)) == returned


def test_a_merge_that_counts_its_calls_in_place_of_u_picks_otherwise_when_it_is_asked_again():
    calls = itertools.count()

    def counted(a, b, u):
        return *merge(a, b, u)[:2], (a if next(calls) % 2 else b)[2]

    assert shares_of_picks(counted, (0.0, 1.0, 7), (0.0, 1.0, 8)) == NOT_BY_U
