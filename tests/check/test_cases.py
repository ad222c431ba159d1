"""The inputs that answers are tried on: drawn by a seed, and given with their strides."""

import pytest
import torch

from exercises import wrong_findings
from helpers import check
from helpers.check import EXERCISES
from helpers.check.exercises.lesson_04 import STREAMED
from helpers.check.exercises.lesson_09 import SPLIT
from helpers.check.problems import cases
from helpers.check.problems.problem import inputs_of, overwrite

pytestmark = pytest.mark.usefixtures("nothing_passed_yet")


@pytest.mark.thinned
@pytest.mark.parametrize("make", [pytest.param(make, id=case) for case, make in STREAMED.items()])
def test_a_case_is_the_same_for_the_same_seed(make):
    (first,), (second,) = (inputs_of(make, "a case", 7) for _ in range(2))
    torch.testing.assert_close(first, second, rtol=0, atol=0, equal_nan=True)
    assert first.dim() == 2 and first.stride() == second.stride()


def test_the_cases_for_a_gpu_are_cases():
    assert set(cases.GPU) <= {*STREAMED, *SPLIT}


def test_inputs_are_drawn_anew_in_every_check():
    def mine(x):
        raise ValueError(float(x[0, 0]))

    said = [wrong_findings(check.eager(mine))["small random values"] for _ in range(2)]
    assert said[0] != said[1]


def test_a_wrong_value_is_reported_with_the_seed_that_shows_it_again():
    assert "(seed 123)" in wrong_findings(EXERCISES["eager"].report_on(torch.exp, seed=123))["small random values"]


def test_the_same_seed_draws_the_same_inputs():
    def mine(x):
        raise ValueError(float(x[0, 0]))

    first, second = (wrong_findings(EXERCISES["eager"].report_on(mine, seed=123)) for _ in range(2))
    assert first == second


def test_a_tensor_reaches_the_answer_with_its_strides():
    def mine(x):
        raise ValueError(f"{x.stride()} {x.storage_offset()}")

    said = {case: seen.partition(" (line ")[0] for case, seen in wrong_findings(check.masked(mine)).items()}
    assert said["every second column of a larger tensor"] == "ValueError: (400, 2) 0"
    assert said["rows with a gap between them"] == "ValueError: (300, 1) 307"
    assert said["a transposed tensor"] == "ValueError: (1, 5) 0"
    assert said["rows of x far apart in memory"] == f"ValueError: ({2**30}, 1) 0"


@pytest.mark.parametrize(
    "x",
    [torch.zeros(1, 4).expand(3, 4), torch.zeros(6).unfold(0, 4, 1), torch.zeros(3, 8)[:, ::2], torch.zeros(3, 4)],
    ids=["one row for all", "rows that overlap", "columns apart", "no gap"],
)
def test_a_tensor_is_overwritten_whatever_its_rows_share(x):
    values = torch.arange(6.0).unfold(0, 4, 1).contiguous() if x.stride() == (1, 1) else torch.arange(4.0).expand(3, 4)
    assert overwrite(x, values) is x and torch.equal(x, values)
