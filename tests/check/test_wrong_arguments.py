"""What a check says of an argument of another kind: one line of a report, whatever the exercise and the argument."""

import pytest
import torch

from helpers import check
from helpers.check import EXERCISES
from helpers.kernels import single_tile_kernel

pytestmark = pytest.mark.usefixtures("nothing_passed_yet")

ARGUMENTS = {
    "a list": [1, 2],
    "nothing": None,
    "a kernel": single_tile_kernel,
    "a tensor": torch.zeros(2, 3),
    "a wrong key": {"a key": 1, 2: None},
    "keys of text": {"torch.float32": 1.0, "2": 3},
    "an empty dict": {},
    "a text": "my_softmax",
    "a number": 3,
    "a class": int,
}


@pytest.mark.thinned
@pytest.mark.parametrize("argument", ARGUMENTS)
@pytest.mark.parametrize("name", [name for name in EXERCISES])
def test_an_argument_of_another_kind_is_a_report_without_points(name, argument):
    report = getattr(check, name)(ARGUMENTS[argument])
    assert report.points == 0
    if report.attempted:
        assert report.findings and all(finding.seen for finding in report.findings if not finding.ok)


@pytest.mark.parametrize(
    ("name", "argument", "said"),
    [
        ("eager", [1], "check.eager takes your function itself, as in check.eager(my_function); got [1]."),
        ("single_tile", single_tile_kernel, "the driver, the Python function that launches single_tile_kernel."),
        ("deadlock", {"x": 1}, "check.deadlock takes a dict with the keys 'parts first', 'rows first'"),
        ("overflow", {"torch.float32": 1}, "check.overflow takes a dict with the keys torch.float32, torch.bfloat16"),
    ],
)
def test_the_report_says_what_was_wrong_and_what_to_pass(name, argument, said):
    (finding,) = getattr(check, name)(argument).findings
    assert (finding.ok, said in finding.seen) == (False, True)


def test_an_exercise_of_another_edition_is_named():
    with pytest.raises(AttributeError, match="the course has no exercise 'cliff'; it has overflow, eager,"):
        check.cliff  # noqa: B018
