"""Answers that forge what is said of them: what judges runs in the grader's process, where no learner's code is."""

import pytest

from exercises import SOLUTIONS
from forged import FORGED
from helpers.instructor.collect.course import GradedCell
from helpers.instructor.grade.exercise import Grader, Handed

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
