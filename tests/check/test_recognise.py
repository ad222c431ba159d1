"""What is named where several causes could be: the compiler's refusals, and numbers that are right."""

from dataclasses import replace

import torch

from helpers.check import EXERCISES
from helpers.check.judge import NOT_COMPILED
from helpers.check.recognise import Seen
from helpers.check.trial import Trial

X = torch.tensor([[0.0, 1.0, 2.0], [3.0, 4.0, 5.0]])
REFUSED = Trial(refused={"kernel": "mine", "reason": "no"}, error="NotCompilable", raised="no")
REFUSED_WITH_CAUSE = replace(REFUSED, cause="global_in_kernel")
RIGHT = Trial(y=torch.softmax(X, 1), kernels=1, stored_by_kernels=6)


def named(*wrong):
    """The id of the mistake that is named of trials that are wrong, and of one that is right."""
    seen = [Seen(f"case {n}", X, trial, trial is RIGHT) for n, trial in enumerate([RIGHT, *wrong])]
    found = EXERCISES["masked"].named(seen, NOT_COMPILED)
    return found and found.id


def test_a_refusal_is_named_where_most_wrong_cases_show_no_other_cause():
    assert named(REFUSED, REFUSED, REFUSED_WITH_CAUSE) == "does_not_compile"
    assert named(REFUSED, REFUSED_WITH_CAUSE) == "global_in_kernel"


def test_a_refusal_is_named_before_the_kind_of_row_that_alone_shows_it():
    """Only the wrong cases have 16 bits here."""
    x = X.to(torch.bfloat16)
    seen = [Seen("right", X, RIGHT, True), *(Seen(case, x, REFUSED, False) for case in "ab")]
    assert EXERCISES["masked"].named(seen, NOT_COMPILED) is NOT_COMPILED


def test_a_right_result_that_would_lie_elsewhere_is_on_the_wrong_device():
    assert named(replace(RIGHT, y=None, error="WrongDevice", raised="WrongDevice: …")) == "wrong_device"


def test_numbers_that_are_all_right_are_not_called_nearly_right():
    assert named(replace(RIGHT, overwritten=True)) == "memory_used_again"


def test_a_result_is_that_of_the_first_call_only_where_the_first_was_right():
    y = torch.softmax(X, 1)
    assert named(replace(RIGHT, y=y, again=y)) == "result_used_again"
    assert named(replace(RIGHT, y=y + 1, again=y)) != "result_used_again"
