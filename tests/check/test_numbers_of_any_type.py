"""A right number is right in every numeric type, and what is no number is told in a line."""

import math
from decimal import Decimal
from enum import StrEnum
from fractions import Fraction

import numpy as np
import pytest
import torch

from exercises import judged, wrong_findings
from helpers import check
from helpers.check.exercises.lesson_05 import merge
from helpers.check.exercises.lesson_06 import programs
from helpers.check.exercises.lesson_08 import EXHIBIT
from helpers.check.trial.trial import is_number, number, of_numbers, shown
from helpers.engine.isolate import call_each
from helpers.gpu.places import least_places
from helpers.gpu.waiting import VARIANTS

pytestmark = pytest.mark.usefixtures("nothing_passed_yet")
TYPES = [int, float, np.int32, np.float64, np.array, torch.tensor, Fraction, Decimal]
DTYPES = (torch.float32, torch.bfloat16, torch.float16)
each_type = pytest.mark.parametrize("type_", TYPES)


@each_type
def test_a_number_of_any_type_is_one_of_pythons_own(type_):
    found = number(type_(16))
    assert found == 16 and type(found) in (int, float) and is_number(found)


class Length(float):
    """A number of a class that a notebook defines."""


class Letter(StrEnum):
    B = "B"


class NoNumber(float):
    def __float__(self):
        raise RuntimeError("not this one")


@pytest.mark.parametrize("value", [math.inf, -math.inf, 0.5, 3.0])
@pytest.mark.parametrize("type_", [Length, Decimal])
def test_of_a_class_of_ones_own_nothing_but_the_number_is_left(type_, value):
    found = number(type_(value))
    assert found == value and type(found) in (int, float)


def test_no_number_of_a_class_of_ones_own_stays_no_number():
    assert math.isnan(number(Length("nan"))) and type(number(Length("nan"))) is float


@pytest.mark.parametrize(
    ("answer", "arrives"),
    [
        pytest.param((Length(0.5), Length(2)), [0.5, 2], id="numbers"),
        pytest.param(Letter.B, "B", id="a letter"),
        pytest.param({"B": Letter.B}, "{'B': <Letter.B: 'B'>}", id="a dict"),
        pytest.param(NoNumber(0.5), "0.5", id="a number that cannot be had"),
    ],
)
def test_an_answer_of_a_class_of_ones_own_comes_back_from_its_process(answer, arrives):
    (outcome,) = call_each(lambda given: of_numbers(lambda: answer, given).plain(), [()])
    assert (outcome.said, outcome.value["answer"]) == ("", arrives)


def test_a_pair_of_a_class_of_ones_own_is_right():
    assert judged("merge", lambda a, b: tuple(map(Length, merge(a, b)))).passed


@pytest.mark.parametrize(
    "value", [True, None, "16", [16], torch.ones(2), np.ones(2), 1j, 10**400, np.bool_(True)], ids=repr
)
def test_what_is_no_number_stays_none(value):
    assert not is_number(number(value))


def test_what_is_shown_of_a_value_is_short():
    assert shown("x" * 999) == "'" + "x" * 78 + "…"


@pytest.mark.thinned(2)
@each_type
def test_numbers_of_any_type_are_right(type_):
    assert check.l2(type_(100)).passed
    assert check.deadlock({variant: type_(least_places(*grids)) for variant, grids in VARIANTS.items()}).passed
    assert judged("occupancy", lambda registers, warps: type_(programs(registers, warps))).passed


def test_pairs_of_any_type_are_right():
    assert judged("merge", lambda a, b: np.array(merge(a, b))).passed
    assert judged("merge", lambda a, b: torch.tensor(merge(a, b), dtype=torch.float64)).passed
    assert not judged("merge", lambda a, b: tuple(map(str, merge(a, b)))).passed


@pytest.mark.parametrize("type_", [float, np.float64, torch.tensor])
def test_a_logarithm_is_refused_if_the_dtype_rounds_it_up_and_the_report_says_how_it_is_stored(type_):
    report = check.overflow({dtype: type_(math.log(torch.finfo(dtype).max)) for dtype in DTYPES})
    assert (report.points, report.diagnosis.id) == (0, "rounded_up")
    assert "is stored as" in wrong_findings(report)["float16"]


@pytest.mark.parametrize(
    ("limits", "named"),
    [
        ([torch.finfo(dtype).max for dtype in DTYPES], "largest_number"),
        ([3.4e38, 3.39e38, 65504], "largest_number"),
        ([38.53, 38.53, 4.81], "other_base"),
        ([128, 128, 16], "other_base"),
        ([88.72, 88.75, 11.09], "rounded_up"),
        ([88.72, 11.08, 88.5], "dtypes_swapped"),
    ],
)
def test_a_limit_that_is_another_number_s_is_named(limits, named):
    assert check.overflow(dict(zip(DTYPES, limits, strict=True))).diagnosis.id == named


def test_a_limit_beside_the_formula_is_wrong():
    limits = {dtype: math.log(torch.finfo(dtype).max) + 1e-3 for dtype in DTYPES}
    assert "float16" in wrong_findings(check.overflow(limits))


@pytest.mark.thinned
@pytest.mark.parametrize(
    "value",
    ["88.72", 10**400, math.inf, math.nan, True, object()],
    ids=["text", "huge", "inf", "nan", "True", "object"],
)
def test_what_is_no_finite_number_is_a_line(value):
    for report in (
        check.overflow(dict.fromkeys(DTYPES, value)),
        check.l2(value),
        check.deadlock(dict.fromkeys(VARIANTS, value)),
    ):
        assert (
            report.attempted
            and all("needs a" in said for said in wrong_findings(report).values())
            and report.points == 0
        )


def test_a_letter_with_spaces_is_that_letter():
    assert check.exhibit({charge: f" {lines[0]} " for charge, (lines, _) in EXHIBIT.items()}).passed
