"""What programs do to each other in one launch is named, and costs all points, even where every result is right."""

import pytest
import torch
import triton
import triton.language as tl

import needs
from corpus import RIGHT, WRONG
from exercises import SOLUTIONS
from helpers import check
from helpers.check.judge import RACE, RACE_OF_LANES
from helpers.check.trial import call
from mistakes_table import report
from posed import posed
from variants import proofs_but_for

pytestmark = pytest.mark.usefixtures("nothing_passed_yet")


@triton.jit
def once_kernel(y_ptr, started_ptr, N, BLOCK: tl.constexpr):
    """A softmax of zeros, stored only by those programs that start in the order of their numbers."""
    row, cols = tl.program_id(0), tl.arange(0, BLOCK)
    if tl.atomic_add(started_ptr, 1) == row:
        tl.store(y_ptr + row * N + cols, 1.0 / N, mask=cols < N)


@triton.jit
def wait_kernel(y_ptr, started_ptr, N, BLOCK: tl.constexpr):
    """A softmax of zeros, for which each program waits until the one before has started."""
    row, cols = tl.program_id(0), tl.arange(0, BLOCK)
    while tl.atomic_add(started_ptr, 0) < row:
        pass
    tl.store(y_ptr + row * N + cols, 1.0 / N, mask=cols < N)
    tl.atomic_add(started_ptr, 1)


def of_zeros(kernel):
    def fn(x):
        M, N = x.shape
        y = torch.empty(M, N, device=x.device)
        kernel[(M,)](y, torch.zeros(1, dtype=torch.int32, device=x.device), N, BLOCK=triton.next_power_of_2(N))
        return y

    return fn


RACES = [(name, fault) for name, faults in WRONG.items() for fault, wrong in faults.items() if wrong.named == "race"]


@pytest.mark.parametrize(("name", "fault"), proofs_but_for(RACES, 2))
def test_programs_that_depend_on_their_order_get_no_points_and_are_named(name, fault):
    wrong = report(name, fault)
    assert (wrong.points, wrong.passed, wrong.diagnosis) == (0, False, RACE)
    first = wrong.findings[0]
    assert first.case == "programs side by side" and not first.ok
    assert "right here, and wrong on a GPU: " in first.seen


@pytest.mark.thinned(0)
@pytest.mark.parametrize(
    ("name", "way"),
    proofs_but_for(
        [
            ("single_tile", "the last row first"),
            ("split_row", "slices take turns at one pair"),
            ("two_pass", "a launch of its own prepares what all read"),
            ("split_row", "the slice that ends last writes the row"),
        ],
        2,
    ),
)
def test_their_twins_that_do_not_keep_all_points(name, way):
    assert check.report_on(name, SOLUTIONS[name].variant(RIGHT[name][way])).passed


@pytest.mark.thinned(0)
def test_a_race_that_makes_results_wrong_is_named_where_nothing_better_is_known():
    wrong = SOLUTIONS["masked"].answered(
        "    tl.store(y_ptr + row * y_stride + cols, e / l, mask=mask)",
        "    tl.store(y_ptr + row * y_stride + cols, e / l, mask=mask)\n"
        "    tl.store(y_ptr + (row + 1) * y_stride, 0.25, mask=row + 1 < tl.num_programs(0))\n"
        "    tl.store(y_ptr + (row - 1) * y_stride, 0.25, mask=row > 0)",
    )
    found = check.report_on("masked", wrong)
    assert (found.points, found.diagnosis) == (0, RACE)
    assert found.findings[0].case == "programs side by side"
    assert "program 0 and program 1 of softmax_kernel both store element 1" in found.findings[0].seen


@needs.interpreter
def test_a_result_that_another_order_changes_is_found_without_a_race():
    one = call.of_tensors(of_zeros(once_kernel), posed(torch.zeros(6, 5)))
    assert one.reordered == "if programs run from the last to the first, the result is another"


@needs.interpreter
def test_an_error_in_another_order_is_said():
    def fn(x):
        y = of_zeros(once_kernel)(x)
        if y[0, 0].isnan():
            raise ValueError("no first row")
        return y

    assert call.of_tensors(fn, posed(torch.zeros(6, 5))).reordered == (
        "if programs run from the last to the first, ValueError: no first row"
    )


@pytest.mark.thinned(0)
def test_programs_that_wait_for_an_earlier_one_are_not_blamed():
    assert call.of_tensors(of_zeros(wait_kernel), posed(torch.zeros(6, 5))).reordered == ""


@pytest.mark.thinned(0)
@needs.interpreter
def test_a_function_that_goes_wrong_when_called_again_is_not_blamed_on_the_order():
    calls = []

    def fn(x):
        calls.append(x)
        y = of_zeros(wait_kernel)(x)
        return y if len(calls) == 1 else y + 1

    assert call.of_tensors(fn, posed(torch.zeros(6, 5))).reordered == "" and len(calls) > 1


@needs.interpreter
@pytest.mark.parametrize(
    ("shape", "calls"), [((6, 5), 4), ((2, 1100), 3), ((2, 300), 2), ((5, 2000), 1), ((1, 1100), 1)], ids=str
)
def test_other_orders_are_tried_on_small_inputs_of_several_rows(shape, calls):
    """Up to 1,024 elements there is a second call with other numbers as well."""
    seen = []

    def fn(x):
        seen.append(x)
        return SOLUTIONS["masked"].answered()(x)

    call.of_tensors(fn, posed(torch.randn(shape)))
    assert len(seen) == calls


# Lanes of one program

STORE = "    tl.store(y_ptr + row * y_stride + cols, e / l, mask=mask)"
AGAIN = """
    tl.debug_barrier()
    first = tl.load(y_ptr + row * y_stride + (cols + 1) % N, mask=mask)
    tl.debug_barrier()
    tl.store(y_ptr + row * y_stride + (cols + 1) % N, first, mask=mask)"""


@pytest.mark.thinned(0)
def test_a_lane_that_loads_what_another_has_stored_races_without_a_barrier():
    raced = check.report_on(
        "masked", SOLUTIONS["masked"].answered(STORE, STORE + AGAIN.replace("    tl.debug_barrier()\n", ""))
    )
    assert (raced.points, raced.diagnosis) == (0, RACE_OF_LANES)
    said = raced.findings[0]
    assert (
        said.case == "lanes side by side" and "and other lanes load it with no tl.debug_barrier() between" in said.seen
    )
    assert check.report_on("masked", SOLUTIONS["masked"].answered(STORE, STORE + AGAIN)).points == 2


@pytest.mark.thinned(0)
def test_a_lane_that_loads_what_it_has_stored_itself_does_not_race():
    own = AGAIN.replace("    tl.debug_barrier()\n", "").replace("(cols + 1) % N", "cols")
    assert check.report_on("masked", SOLUTIONS["masked"].answered(STORE, STORE + own)).points == 2
