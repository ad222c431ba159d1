"""From trials of functions of numbers to a report on them."""

from dataclasses import replace

import pytest

from exercises import wrong_findings
from helpers.check.exercise import AnswersExercise
from helpers.check.judge import (
    compare_number,
    compare_pairs,
    judge_answers,
)
from helpers.check.mistakes.recognise import Mistake
from helpers.check.trial.trial import Trial
from helpers.engine.isolate import End

NAMED = Mistake("named", "Named.", "Why?", 0, lambda seen: 1.0)
MISSING = Trial(unwritten=True, got_none=True, got="None; is a return missing?")


def judged_pairs(*pairs, starter=None):
    """The report on a function whose right result is always (2, 3); a trial may stand in place of its pair."""
    trials = [pair if isinstance(pair, Trial) else Trial(pair=pair) for pair in pairs]
    given = {f"case {n}": ((n,), (2.0, 3.0)) for n in range(len(trials))}
    exercise = AnswersExercise(
        name="pairs", number="0.2", points=2, about="", known=(NAMED,), draw=lambda random: given,
        judge=lambda exercise, given, trials: judge_answers(exercise, given, trials, compare_pairs, starter),
    )  # fmt: skip
    return exercise.judge(exercise, given, trials)


def test_a_function_that_is_right_in_every_case_has_all_points_and_no_diagnosis():
    report = judged_pairs([2.0, 3.0], [2.0, 3.0])
    assert (report.passed, report.points, report.diagnosis) == (True, 2, None)


def test_a_function_that_is_wrong_in_one_case_has_none_and_its_mistake_is_named():
    report = judged_pairs([2.0, 3.0], [2.0, 4.0])
    assert (report.points, list(wrong_findings(report)), report.diagnosis) == (0, ["case 1"], NAMED)


def test_a_function_that_returns_nothing_is_not_attempted():
    assert not judged_pairs(MISSING, MISSING).attempted


def test_a_function_that_prints_and_returns_nothing_is_attempted():
    report = judged_pairs(replace(MISSING, printed="2.0 3.0"), MISSING)
    assert report.attempted and report.printed == "2.0 3.0"


def test_what_the_starter_code_returns_in_every_case_is_not_attempted():
    assert not judged_pairs([0.0, 0.0], [0.0, 0.0], starter=(0.0, 0.0)).attempted


def test_what_the_starter_code_returns_in_one_case_may_be_an_answer():
    assert judged_pairs([0.0, 0.0], [2.0, 3.0], starter=(0.0, 0.0)).attempted


def test_cases_of_numbers_that_were_not_run_any_more_say_nothing():
    assert not judged_pairs(MISSING, Trial(End.NOT_RUN, "not run any more")).attempted


# Numbers


@pytest.mark.parametrize(
    ("pair", "ok"),
    [
        ([2.0, 3.0], True),
        ([2.0, 3.0 * (1 + 9e-13)], True),
        ([2.0, 3.0 * (1 + 2e-12)], False),
        ([2.0000001, 3.0], False),
    ],
    ids=["right", "l nearly", "l not quite", "m not quite"],
)
def test_a_pair_has_the_maximum_itself_and_the_sum_as_floats_of_python_hold_it(pair, ok):
    assert compare_pairs("a case", Trial(pair=pair), (2.0, 3.0)).ok is ok


@pytest.mark.parametrize(("answer", "ok"), [(3, True), (3.0, True), (4, False), (True, False), ("3", False)], ids=repr)
def test_a_number_is_equal_and_a_number(answer, ok):
    assert compare_number("a case", Trial(answer=answer), 3).ok is ok


def test_a_number_is_not_nearly_equal():
    assert not compare_number("a case", Trial(answer=1000), 1001).ok


def test_a_number_that_is_true_is_not_one():
    assert not compare_number("a case", Trial(answer=True), 1).ok
