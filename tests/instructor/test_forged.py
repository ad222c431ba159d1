"""Answers that forge what is said of them: what judges runs in the grader's process, where no learner's code is."""

import pytest

from exercises import SOLUTIONS
from helpers.instructor.collect.course import GradedCell
from helpers.instructor.grade.exercise import Grader, Handed

_RECURRENCE = """
import helpers.check.problems.asking, math
def found(blocks):
    row = [x for block in blocks for x in block]
    m = max(row)
    return m, sum(math.exp(x - m) for x in row)
"""
_SOFTMAX = """
import sys
def replaced(*args, **options):
    from helpers.check.trial.trial import Trial
    return Trial(y=torch.softmax(args[1], 1))
"""
FORGED = {
    "the recurrence computed by who asks": (
        "recurrence",
        _RECURRENCE + "helpers.check.problems.asking.keeping = lambda answer, blocks: found(blocks)\n"
        "def statistics(blocks):\n    return None",
    ),
    "a report on a softmax": (
        "eager",
        _SOFTMAX + "import helpers.check.trial.call\nhelpers.check.trial.call.of_tensors = replaced\n"
        "def my_softmax(x):\n    return 0",
    ),
    "the target in a closure": (
        "slopes",
        "import math\ndef slopes(loss, x):\n"
        "    target = next(c.cell_contents for c in loss.__closure__ if isinstance(c.cell_contents, int))\n"
        "    m = max(x)\n    e = [math.exp(v - m) for v in x]\n"
        "    return [v / sum(e) - (i == target) for i, v in enumerate(e)]",
    ),
    "the formula, with a target that one loss tells": (
        "slopes",
        "import math\ndef slopes(loss, x):\n    m, said = max(x), loss(x)\n"
        "    e = [math.exp(v - m) for v in x]\n    whole = m + math.log(sum(e))\n"
        "    target = min(range(len(x)), key=lambda i: abs(whole - x[i] - said))\n"
        "    return [v / sum(e) - (i == target) for i, v in enumerate(e)]",
    ),
}
"""By what is forged: the exercise, and the cell."""
CELLS = ["import torch, math"]


def scored(workshop, name, cell):
    exercise = SOLUTIONS[name]
    graded = GradedCell(name, name, exercise.answer, exercise.points, ())
    return Grader(workshop, {}).score(Handed([*CELLS, cell], len(CELLS) + 1), graded)


@pytest.mark.parametrize("way", FORGED)
def test_a_forged_answer_has_no_points(workshop, way):
    name, cell = FORGED[way]
    assert scored(workshop, name, cell).report.points == 0


CHANGING = {
    "recurrence": """
right = statistics
def statistics(blocks):
    found = right(blocks)
    blocks[0].append(0.0)
    return found
""",
    "triples": """
right = merge
def merge(a, b):
    m, l, o = right(a, b)
    a[2][:] = o
    return m, l, a[2]
""",
}
"""By exercise: cells after which the right answer changes a list that it is given."""


@pytest.mark.parametrize(("name", "id"), [("recurrence", "blocks_changed"), ("triples", "lists_changed")])
def test_an_answer_that_changes_what_it_is_given_is_named_here_as_in_a_notebook(workshop, name, id):
    cell = "\n".join([*SOLUTIONS[name].cells, CHANGING[name]])
    report = scored(workshop, name, cell).report
    assert report.diagnosis and report.diagnosis.id == id, str(report)
