"""Cases from axes: what an exercise says of its tensors becomes cases, and no exercise of kernels goes without them."""

from dataclasses import replace

import pytest
import torch

from helpers.check import EXERCISES
from helpers.check.problems.axes import VALUES, Asked, Dimension, derived
from helpers.check.problems.problem import Problems, options_of

OF_TWO = Asked(
    dimensions={
        "M": Dimension("query", usual=3, many="queries", near=8, beyond=70),
        "N": Dimension("key", usual=5, near=16, empty=True),
    },
    tensors={"x": "MN", "w": "N"},
    draw=lambda generator, sizes: (
        torch.randn(sizes["M"], sizes["N"], generator=generator),
        torch.randn(sizes["N"], generator=generator),
    ),
    of_row=lambda generator, row: (row.repeat(2, 1), torch.zeros(len(row))),
    row="scores",
    length=150,
    options=({"BLOCK": 4, "N": 9}, {"S": 1}),
    dtypes=(torch.bfloat16,),
)


def inputs(asked, case):
    return Problems(derived(asked), lambda *inputs: (), seed=1).draw()[case].inputs


@pytest.mark.parametrize(
    ("case", "shape"),
    [
        ("small random values", (3, 5)),
        ("1 query, 1 key", (1, 1)),
        ("7 queries, 15 keys", (7, 15)),
        ("8 queries, 16 keys", (8, 16)),
        ("9 queries, 17 keys", (9, 17)),
        ("70 queries", (70, 5)),
        ("no keys", (3, 0)),
        ("BLOCK = 4, 9 keys", (3, 9)),
        ("S = 1", (3, 5)),
        ("scores all equal", (2, 150)),
    ],
)
def test_each_free_size_is_tried_at_1_around_what_a_program_takes_and_far_beyond(case, shape):
    assert inputs(OF_TWO, case)[0].shape == shape


def test_the_options_of_a_case_go_to_the_driver_and_its_sizes_to_the_inputs():
    makers = derived(OF_TWO)
    assert options_of(makers["BLOCK = 4, 9 keys"]) == {"BLOCK": 4} and options_of(makers["S = 1"]) == {"S": 1}
    assert options_of(makers["9 queries, 17 keys"]) == {}


def last_offset(x, axis):
    return (x.shape[axis] - 1) * x.stride(axis)


def test_each_dimension_of_each_tensor_lies_far_apart_and_at_one_place():
    x, w = inputs(OF_TWO, "keys of w far apart in memory")
    assert last_offset(w, 0) >= 2**31 and x.is_contiguous()
    x, w = inputs(OF_TWO, "queries of x far apart in memory")
    assert last_offset(x, 0) >= 2**31 and w.is_contiguous() and x.dtype == w.dtype
    x, w = inputs(OF_TWO, "every key at one place")
    assert x.stride() == (3, 0) and w.stride() == (0,)


def test_tensors_lie_in_ways_of_their_own_and_are_not_aligned():
    x, w = inputs(OF_TWO, "strides of their own")
    assert x.stride(0) < x.stride(1) and x.stride(0) != w.stride(0) != 1 and x.data_ptr() % 16 and w.data_ptr() % 16


def test_the_dtypes_and_the_values_of_a_row_are_tried():
    assert {x.dtype for x in inputs(OF_TWO, "bfloat16")} == {torch.bfloat16}
    for words in VALUES:
        row = inputs(OF_TWO, f"scores {words}")[0]
        assert row.shape == (2, 150) and not row.isnan().any()


def test_a_case_is_left_out_by_its_name_and_no_other_is():
    assert derived(OF_TWO).keys() - derived(replace(OF_TWO, left_out={"S = 1": "a reason"})).keys() == {"S = 1"}
    with pytest.raises(ValueError, match="left out, and no case: S = 2; there are small random values, "):
        derived(replace(OF_TWO, left_out={"S = 2": "a reason"}))


TAKING_STRIDES = {
    name: exercise
    for name, exercise in EXERCISES.items()
    if float(exercise.number) > 3 and getattr(exercise, "loads", None) is not None and name != "operator"
}
"""But 16.1, where rows are copied if no strides lead along them."""
ONE_AFTER_THE_OTHER = {("row_loss", 0, 1), ("loss_and_gradient", 0, 1)}
"""The columns of logits, by the text of lesson 10."""


@pytest.mark.parametrize("name", TAKING_STRIDES)
def test_every_exercise_reads_each_tensor_past_2_31_elements_in_each_direction(name):
    makers, kind = TAKING_STRIDES[name].makers, TAKING_STRIDES[name].kind
    drawn = Problems({case: make for case, make in makers.items() if "far apart" in case}, kind.wants, 1).draw()
    some = next(iter(drawn.values())).inputs
    needed = {(place, axis) for place, x in enumerate(some) if x.is_floating_point() for axis in range(x.dim())}
    found = {
        (place, axis)
        for problem in drawn.values()
        for place, axis in needed
        if last_offset(problem.inputs[place], axis) >= 2**31
    }
    assert needed - found == {(place, axis) for exercise, place, axis in ONE_AFTER_THE_OTHER if exercise == name}
