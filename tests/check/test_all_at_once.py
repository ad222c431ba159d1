"""A kernel of rows, all its programs at once, does what Triton's interpreter does."""

import pytest
import torch
import triton

from helpers.check import EXERCISES
from helpers.check.mistakes.all_at_once import OfRows, run
from helpers.check.mistakes.edited import Edited, edited
from helpers.check.problems import cases
from needs import interpreter

EDITS = {
    f"{name}, {one.id}, {n}": (one.answer, edit)
    for name, exercise in EXERCISES.items()
    for one in exercise.known
    if isinstance(one, Edited) and isinstance(one.answer, OfRows)
    for n, edit in enumerate(one.edits)
}
MAKERS = {
    "negative": cases.randn(3, 129, shift=-30.0),
    "far apart": cases.randn(2, 16, scale=60.0),
    "−inf": cases.with_inf(300, cases.last_row),
    "NaN": cases.specials(64),
    "NaN alone": cases.specials(1),
    "transposed": cases.view((130, 5), lambda x: x.t()),
    "bfloat16": cases.randn(2, 200, dtype=torch.bfloat16),
}


def in_the_interpreter(answer, edit, x):
    """What the edited answer returns; None if it leaves its tensors."""
    try:
        return edited(answer.parts, edit)(x, **({"BLOCK": 64} if answer.in_tiles else {}))
    except IndexError:
        return None


@interpreter
@pytest.mark.parametrize("name", EDITS)
def test_an_edited_kernel_stores_what_it_stores_in_the_interpreter(name):
    answer, edit = EDITS[name]
    for case, make in MAKERS.items():
        x = make(torch.Generator().manual_seed(0))
        tile = min(64, triton.next_power_of_2(x.shape[1])) if answer.in_tiles else None
        (y,), want = run(answer.parts, edit, x, tile) or (None,), in_the_interpreter(answer, edit, x)
        torch.testing.assert_close(y, want, rtol=2e-4, atol=1e-6, equal_nan=True, msg=case)


def test_a_lane_outside_its_tensor_ends_a_launch():
    answer, _ = EDITS["masked, idle_lanes_hold_0, 0"]
    assert run(answer.parts, ("mask=mask, other", "other"), torch.zeros(1, 3)) is None
