"""Behind the grader's walls too, a kernel has points only if a GPU's compiler takes it."""

from types import SimpleNamespace

import pytest
import torch

from corpus import RIGHT, WRONG
from exercises import SOLUTIONS
from helpers.check.trial import Trial
from helpers.instructor.collect.course import GradedCell
from helpers.instructor.grade.answer import BehindWalls
from helpers.instructor.grade.exercise import Grader, Handed
from helpers.instructor.sandbox.client import Ended
from variants import proofs_but_for

X = torch.zeros(2, 3)
ANSWERED = [
    ("two_pass", WRONG, "l begins as an integer", 0),
    ("two_pass", RIGHT, "a while loop", 4),
    ("two_pass", WRONG, "tiles in a list", 0),
    ("two_pass", WRONG, "leaves the loop", 0),
    ("online", WRONG, "empty tiles left out", 0),
    ("masked", WRONG, "a dict", 0),
    ("online", RIGHT, "m and l in a tuple", 5),
]


def sources(name, variant):
    """The cells of a notebook that define this answer."""
    cells = list(SOLUTIONS[name].cells)
    for old, new in zip(variant.replaced[::2], variant.replaced[1::2], strict=True):
        cells = [cell.replace(old, new) for cell in cells]
    return cells


@pytest.mark.thinned(2)
@pytest.mark.parametrize(("name", "variants", "way", "points"), proofs_but_for(ANSWERED, 2), ids=lambda value: value)
def test_a_kernel_has_points_if_a_compiler_takes_it(workshop, name, variants, way, points):
    cell = GradedCell(name, name, SOLUTIONS[name].answer, SOLUTIONS[name].points, ())
    handed = sources(name, variants[name][way])
    scored = Grader(workshop, {}).score(Handed(handed, len(handed)), cell)
    assert (scored.report.points, scored.note, scored.report.note) == (points, "", "")
    named = scored.report.diagnosis and scored.report.diagnosis.id
    assert named == (None if points else "does_not_compile")


class Compiler:
    """A workshop whose compiler answers with `told`, or ends."""

    def __init__(self, told):
        self.told = told
        self.tasks = []

    def compiling(self):
        return None

    def judged(self, tasks):
        self.tasks = tasks
        return [self.told] * len(tasks)


def test_what_the_learner_s_own_process_says_of_launches_is_not_asked_about():
    learner = SimpleNamespace(ask=lambda request, seconds: [Trial(launches=[{"unknown": "believe me"}]).plain()])
    place = BehindWalls("mine", Compiler({}), learner)
    found = place.softmaxes({"small": lambda generator: X}, 7, kernel=False)
    assert found["small"][1].launches == []


def test_a_compiler_that_ends_costs_nothing_and_is_said():
    from helpers.instructor.grade import workshop as workshops

    ended = workshops.Workshop.__new__(workshops.Workshop)
    ended._in_compiler = lambda *_: (_ for _ in ()).throw(Ended("killed"))
    assert ended.judged([{}, {}]) == [{"unknown": "the compiler did not answer: killed"}] * 2
