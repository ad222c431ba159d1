"""What later cells are given: the learner's function where it has passed, and elsewhere the course's."""

import functools

import pytest
import torch

from exercises import SOLUTIONS, judged
from helpers import DEVICE, check
from helpers.check import EXERCISES
from variants import proofs_but_for

pytestmark = pytest.mark.usefixtures("nothing_passed_yet")


def test_before_it_passes_yours_is_ours(capsys):
    assert check.yours_or_ours("merge") is EXERCISES["merge"].ours
    assert capsys.readouterr().out == "From here on: the course's merge, until yours passes its check.\n"
    assert check.yours("merge") == {}


def test_from_the_pass_on_yours_is_yours(capsys):
    mine = SOLUTIONS["merge"].answered()
    check.merge(mine)
    assert check.yours_or_ours("merge") is mine
    assert capsys.readouterr().out == "From here on: your merge.\n"


def test_after_it_fails_again_yours_is_ours(capsys):
    check.merge(SOLUTIONS["merge"].answered())
    check.merge(lambda a, b: a)
    assert check.yours_or_ours("merge") is EXERCISES["merge"].ours
    assert check.yours("merge") == {}


def test_exercises_are_passed_one_by_one():
    check.merge(SOLUTIONS["merge"].answered())
    assert check.yours("eager") == {} != check.yours("merge")
    assert check.yours_or_ours("eager") is EXERCISES["eager"].ours


def test_yours_joins_a_comparison_with_its_options():
    def mine(x, dim=1):
        return torch.softmax(x, dim=dim)

    x = torch.randn(2, 3, device=DEVICE)
    check.eager(mine)
    assert torch.equal(check.yours("eager")["yours"](x), mine(x))
    assert torch.equal(check.yours("eager", dim=0)["yours"](x), mine(x, dim=0))


@pytest.mark.thinned(0)
@pytest.mark.parametrize("name", proofs_but_for([name for name, exercise in EXERCISES.items() if exercise.ours], 3))
def test_ours_is_right_itself(name):
    assert judged(name, EXERCISES[name].ours).passed


def test_an_unknown_exercise_is_refused_with_those_there_are():
    with pytest.raises(ValueError, match="no exercise is called 'onlin'; there are eager, .*online"):
        check.yours_or_ours("onlin")
    with pytest.raises(ValueError, match="no exercise is called 'onlin'"):
        check.yours("onlin")


def test_a_partial_function_that_passes_can_be_used_from_then_on(capsys):
    mine = functools.partial(torch.softmax, dim=1)
    check.eager(mine)
    assert check.yours_or_ours("eager") is mine


def test_an_exercise_that_asks_for_no_function_is_told_so():
    with pytest.raises(ValueError, match="'overflow' asks for no function; there are eager"):
        check.yours_or_ours("overflow")
