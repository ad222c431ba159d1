"""What each exercise of the notebooks makes of its stub, its solution and other answers."""

import math
import re
from random import Random

import pytest
import torch

from corpus import WRONG
from exercises import SOLUTIONS, STUBS, judged, wrong_findings
from helpers import check, kernels
from helpers.check import EXERCISES
from helpers.check.exercises import lesson_05
from helpers.check.judge import OVER_BUDGET

pytestmark = pytest.mark.usefixtures("nothing_passed_yet")
INF = math.inf
each_exercise = pytest.mark.parametrize("name", SOLUTIONS)
_REPORTED = {}


@pytest.fixture
def reported(capfd):
    """What the check makes of an exercise's stub or solution, and what it prints meanwhile: found out once."""

    def of(given, name):
        if (given, name) not in _REPORTED:
            answer = {"stub": STUBS, "solution": SOLUTIONS}[given][name].answered()
            capfd.readouterr()
            _REPORTED[given, name] = EXERCISES[name].report_on(answer), capfd.readouterr()
        return _REPORTED[given, name]

    return of


def is_one_clear_sentence(text):
    """One line of a few words in which no Python object, traceback or memory address is quoted."""
    few_words = 3 <= len(text.split()) and len(text) <= 240
    return few_words and not re.search(r"\n|Traceback|0x[0-9a-f]{6}|<.*(object|function) ", text)


@pytest.mark.thinned
@each_exercise
def test_the_notebooks_give_every_exercise_the_points_of_its_check(name, reported):
    report, _ = reported("stub", name)
    assert STUBS[name].points == SOLUTIONS[name].points == report.max_points


def test_every_check_of_the_module_has_an_exercise_in_the_notebooks():
    assert set(SOLUTIONS) == set(STUBS) == set(EXERCISES) < set(check.__all__)


# Not attempted, right, wrong


@pytest.mark.thinned
@each_exercise
def test_the_stub_is_not_attempted(name, reported):
    report, _ = reported("stub", name)
    assert (report.attempted, report.passed, report.points) == (False, False, 0)


@pytest.mark.thinned
@each_exercise
@pytest.mark.filterwarnings("error")
def test_the_solution_gets_full_points_without_a_warning(name, reported):
    report, _ = reported("solution", name)
    assert wrong_findings(report) == {}
    assert (report.passed, report.points) == (True, SOLUTIONS[name].points)


RIGHT_LIMITS = {torch.float32: 88.72, torch.bfloat16: 88.5, torch.float16: 11.08}


@pytest.mark.parametrize(
    ("dtype", "limit", "says"),
    [
        pytest.param(torch.float32, 88.73, r"exp\(88.73\) is already inf", id="float32 a little too large"),
        pytest.param(torch.float32, 88.7, r"exp\(88.71\) is finite too; the limit is higher", id="float32 too small"),
        pytest.param(torch.bfloat16, 89.0, r"exp\(89\) is already inf", id="bfloat16 one value too large"),
        pytest.param(torch.bfloat16, 88.0, r"exp\(88.5\) is finite too", id="bfloat16 too small"),
        pytest.param(
            torch.bfloat16, 88.25, r"exp\(88.5\) is finite too", id="bfloat16 between two, stored as the lower"
        ),
        pytest.param(torch.float16, 11.1, r"exp\(11.1\) is already inf; 11.1 is stored as", id="float16 too large"),
        pytest.param(torch.float16, -5.0, r"exp\(-4.99\) is finite too", id="float16 negative"),
        pytest.param(torch.float16, math.nan, r"needs a finite number; it is nan", id="float16 NaN"),
    ],
)
def test_a_wrong_limit_is_rejected_with_a_clear_sentence(dtype, limit, says):
    report = check.overflow({**RIGHT_LIMITS, dtype: limit})
    ((case, seen),) = wrong_findings(report).items()
    assert case == str(dtype).removeprefix("torch.")
    assert re.match(says, seen) and is_one_clear_sentence(seen)


@pytest.mark.parametrize("limit", [88.72, 88.722])
def test_a_limit_is_right_to_within_a_hundredth(limit):
    assert check.overflow({**RIGHT_LIMITS, torch.float32: limit}).passed


@pytest.mark.parametrize("missing", RIGHT_LIMITS)
def test_a_missing_limit_is_named(missing):
    report = check.overflow({**RIGHT_LIMITS, missing: None})
    assert wrong_findings(report) == {str(missing).removeprefix("torch."): "needs a finite number; it is None"}


def test_no_limit_at_all_is_not_attempted():
    assert not check.overflow(dict.fromkeys(RIGHT_LIMITS)).attempted


@pytest.mark.parametrize("limits", [None, [1.0, 2.0, 3.0], {"float32": 88.7}], ids=["None", "a list", "names"])
def test_limits_that_are_no_dict_of_the_dtypes_are_refused(limits):
    (seen,) = wrong_findings(check.overflow(limits)).values()
    assert "takes a dict with the keys torch.float32" in seen


@pytest.mark.thinned(1)
@pytest.mark.parametrize(
    ("name", "old", "new"),
    [
        pytest.param("merge", "return m, 0.0", "return", id="merge, nothing for two empty parts"),
        pytest.param(
            "two_pass", "range(0, N, BLOCK)", "range(0, N // BLOCK * BLOCK, BLOCK)", id="two_pass, full tiles"
        ),
    ],
)
def test_an_answer_that_is_right_in_some_cases_only_is_attempted(name, old, new):
    assert EXERCISES[name].report_on(SOLUTIONS[name].answered(old, new)).attempted


def test_a_recurrence_that_returns_a_number_is_rejected():
    assert not check.recurrence(lambda blocks: 3.0).passed


def test_the_blocks_that_show_a_rescaled_sum_are_others_each_time():
    drawn = [lesson_05._recurrence_cases(Random(seed)) for seed in range(20)]
    rows = [[given[case][0][0] for case in lesson_05.EXACT] for given in drawn]
    assert all(up == down[::-1] and sum(up, []) == one[0] for one, up, down in rows)
    assert len({tuple(one[0]) for one, _, _ in rows}) == 20 and len({len(one[0]) for one, _, _ in rows}) > 8


@pytest.mark.thinned
@pytest.mark.parametrize("seed", range(5))
def test_a_row_that_is_summed_all_at_once_is_no_recurrence_whatever_was_drawn(seed):
    def at_once(blocks):
        row = [x for block in blocks for x in block]
        if len(row) == 33 and len(set(row)) == 3:  # the list of an earlier version
            return SOLUTIONS["recurrence"].answered()(blocks)
        return max(row), sum(math.exp(x - max(row)) for x in row) if max(row) > -math.inf else 0.0

    assert judged("recurrence", at_once, seed).diagnosis is lesson_05.ALL_AT_ONCE
    assert judged("recurrence", SOLUTIONS["recurrence"].answered(), seed).passed


def test_a_limit_of_infinity_is_rejected():
    assert not check.overflow({**RIGHT_LIMITS, torch.float32: INF}).passed


# The answer itself


@pytest.mark.parametrize("answer", [None, 3, torch.zeros(2, 2)], ids=["None", "a number", "a result"])
@pytest.mark.parametrize("name", ["eager", "single_tile", "masked", "two_pass", "online"])
def test_a_check_asks_for_the_function_itself(name, answer):
    with pytest.raises(TypeError, match=rf"check.{name} takes your function itself, as in check.{name}\(my_function\)"):
        EXERCISES[name].report_on(answer)


def test_an_answer_may_return_any_kind_of_pair():
    ours = SOLUTIONS["merge"].answered()
    assert check.merge(lambda a, b: list(ours(a, b))).passed
    assert check.merge(lambda a, b: torch.tensor(ours(a, b), dtype=torch.float64)).passed


def test_a_kernel_in_place_of_its_driver_is_explained():
    (seen,) = wrong_findings(check.online(kernels.online_kernel)).values()
    assert "takes the driver, the Python function that launches online_kernel" in seen


@pytest.mark.thinned(0)
def test_an_answer_that_says_that_it_is_not_implemented_is_not_attempted():
    def mine(*_):
        raise NotImplementedError

    assert not check.eager(mine).attempted
    assert not check.online(mine).attempted
    assert not check.merge(mine).attempted


@pytest.mark.thinned(1)
@pytest.mark.parametrize(
    ("error", "seen"),
    [
        (ValueError("sizes do not match\n  in line 3"), "ValueError: sizes do not match in line 3"),
        (RuntimeError(""), "RuntimeError"),
        (RecursionError("maximum recursion depth exceeded"), "RecursionError: maximum recursion depth exceeded"),
    ],
    ids=["of two lines", "without a message", "a RecursionError"],
)
def test_an_answer_that_raises_is_wrong_with_the_words_of_the_error(error, seen):
    def mine(*_):
        raise error

    line = f"line {mine.__code__.co_firstlineno + 1} of test_exercises.py"
    for name in ("eager", "online", "merge", "recurrence"):
        report = EXERCISES[name].report_on(mine)
        assert report.attempted and not report.passed
        assert set(wrong_findings(report).values()) == {f"{seen} ({line}: `raise error`)"}


# What is printed


@pytest.mark.thinned
@each_exercise
@pytest.mark.filterwarnings("error")
@pytest.mark.parametrize("given", ["stub", "solution"])
def test_a_check_prints_nothing_and_writes_nothing_to_stderr(name, given, reported):
    _, printed = reported(given, name)
    assert printed == ("", "")


@pytest.mark.thinned(1)
@pytest.mark.parametrize("fault", ["no mask on the store", "no_column_stride, 0"])
def test_a_check_is_silent_about_a_wrong_answer_too(fault, capfd):
    answer = SOLUTIONS["masked"].variant(WRONG["masked"][fault])
    capfd.readouterr()
    check.masked(answer)
    assert capfd.readouterr() == ("", "")


# Whose work it is, and what it costs


def test_reading_a_part_of_the_row_is_a_finding():
    said = wrong_findings(
        check.single_tile(SOLUTIONS["single_tile"].variant(WRONG["single_tile"]["a tile of part of the row"]))
    )
    assert said["reach"] == "small random values: kernels loaded 16 of the row's 128 columns"


def test_torch_inside_a_kernel_exercise_is_found():
    report = check.masked(lambda x: torch.softmax(kernels.copy(x), dim=1))
    assert wrong_findings(report)["your own kernel"] == "PyTorch computed _softmax; the kernel is to do it"


@pytest.mark.thinned(0)
def test_a_copy_made_before_the_kernel_costs_trips():
    report = judged("masked", lambda x: kernels.single_tile_softmax(x.clone()))
    assert wrong_findings(report) == {
        "trips to memory": "each element was loaded 2.0 times and stored 2.0 times; 1.0 and 1.0 are enough, "
        "and the rest costs half of the points"
    }
    assert (report.points, report.passed, report.diagnosis) == (2, False, OVER_BUDGET)


@pytest.mark.thinned(0)
@pytest.mark.parametrize("dtype", [torch.float64, torch.float16], ids=str)
@pytest.mark.parametrize("name", ["eager", "single_tile"])
def test_what_a_notebook_has_set_as_torch_s_default_dtype_changes_no_points(name, dtype):
    torch.set_default_dtype(dtype)
    try:
        report = EXERCISES[name].report_on(SOLUTIONS[name].answered())
        kept = torch.get_default_dtype()
    finally:
        torch.set_default_dtype(torch.float32)
    assert (report.points, kept) == (report.max_points, dtype)


def test_a_mistake_is_called_the_same_in_every_exercise():
    """Its id has one name and one question, wherever it is looked for, and in whatever way."""
    words = {}
    for exercise in EXERCISES.values():
        for known in exercise.known:
            assert words.setdefault(known.id, (known.name, known.question)) == (known.name, known.question)
