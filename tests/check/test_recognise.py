"""What is named where several causes could be: the compiler's refusals, and numbers that are right."""

from dataclasses import replace

import torch

from helpers.check import EXERCISES
from helpers.check.judge import NOT_COMPILED
from helpers.check.mistakes.recognise import Seen
from helpers.check.trial.trial import Trial
from helpers.engine.isolate import End

X = torch.tensor([[0.0, 1.0, 2.0], [3.0, 4.0, 5.0]])
REFUSED = Trial(refused={"kernel": "mine", "reason": "no"}, error="NotCompilable", raised="no")
REFUSED_WITH_CAUSE = replace(REFUSED, cause="global_in_kernel")
RIGHT = Trial(results=[torch.softmax(X, 1)], kernels=1, stored_by_kernels=6)


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


def named_of_many_rows(trial):
    """The id of the mistake that is named of a trial that is wrong on 1,100 rows, and of one that is right."""
    tried = trial(torch.randn(1100, 2))
    x = torch.randn(max(4, len(tried.rows)), 2)
    seen = [Seen("few", X, RIGHT, True), Seen("many", x, tried, False)]
    found = EXERCISES["masked"].named(seen, NOT_COMPILED)
    return found and found.id


def sampled(x, rows, programs, missing=""):
    """The trial of a kernel of which a sample of the programs has stored these rows."""
    every = torch.ones(len(rows), x.shape[1], dtype=torch.int64)
    return Trial(
        results=[torch.softmax(x[rows], 1)], stored=every, loaded=every, programs=programs, kernels=1,
        stored_by_kernels=16,
        sampled=True, rows=rows, of_rows=len(x), missing=missing,
    )  # fmt: skip


def test_very_many_rows_are_no_reason_to_speak_of_nan_or_of_row_0():
    assert named_of_many_rows(lambda x: sampled(x, [0, 1, 1098, 1099], programs=2200)) is None
    assert named_of_many_rows(lambda x: Trial(raised="no", error="OverflowError")) == "error"


def test_a_grid_that_is_too_small_for_very_many_rows_alone_is_named():
    first = [0, 1, 2, 3, 1094]
    assert named_of_many_rows(lambda x: sampled(x, first, programs=1095, missing="5 rows")) == "small_grid"
    assert named_of_many_rows(lambda x: sampled(x, [*first, 1099], programs=1095)) is None


def test_cases_that_did_not_run_say_nothing_of_a_result():
    """A name needs the results of a fifth of the wrong cases, and those that time has left out do not count."""
    stored = Seen("stored", X, replace(RIGHT, results=[X]), False)
    for end, name in ((End.NOT_RUN, "scores_stored"), (End.RAISED, "error")):
        others = [Seen(f"case {n}", X, Trial(end, raised="no"), False) for n in range(9)]
        assert EXERCISES["masked"].named([stored, *others]).id == name


def test_a_right_result_that_would_lie_elsewhere_is_on_the_wrong_device():
    assert named(replace(RIGHT, results=[], error="WrongDevice", raised="WrongDevice: …")) == "wrong_device"


def test_numbers_that_are_all_right_are_not_called_nearly_right():
    assert named(replace(RIGHT, overwritten=True)) == "memory_used_again"


def test_a_result_is_that_of_the_first_call_only_where_the_first_was_right():
    y = torch.softmax(X, 1)
    assert named(replace(RIGHT, results=[y], again=[y])) == "result_used_again"
    assert named(replace(RIGHT, results=[y + 1], again=[y])) != "result_used_again"
