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
_GPU_IN_A_FRAME = """
import gc, math, sys
def program(words, part, x, load):
    frame = sys._getframe()
    while frame:
        for value in list(frame.f_locals.values()):
            gpu = getattr(value, "_gpu", value)
            if hasattr(gpu, "numbers") and hasattr(gpu, "parts"):
                numbers = [n for p in range(gpu.parts) for n in gpu.numbers(words._row, p)]
                m = max(numbers)
                low = -(2.0 - 2.0**-23) * 2.0**127
                return (low, 0.0) if m == -math.inf else (m, sum(math.exp(n - m) for n in numbers))
        frame = frame.f_back
    return 0.0, 0.0
"""
FORGED = {
    "the launches replaced": (
        "row_program",
        "import helpers.check.shared_rows\nhelpers.check.shared_rows.share_rows = lambda program, case, seed: []\n"
        "def program(words, part, x, load):\n    return 0",
    ),
    "the launch of a sandbox replaced": (
        "row_program",
        "import sys\nfor module in list(sys.modules.values()):\n"
        "    for name in ('share_rows', 'shared_run', 'Programs'):\n"
        "        if hasattr(module, name):\n            setattr(module, name, lambda *_, **__: [])\n"
        "def program(words, part, x, load):\n    return 0",
    ),
    "the simulated GPU in a frame": ("row_program", _GPU_IN_A_FRAME),
    "the recurrence computed by who asks": (
        "recurrence",
        _RECURRENCE + "helpers.check.problems.asking.statistics_of = lambda answer, blocks: found(blocks)\n"
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
CELLS = ["import torch, math, struct", "".join(SOLUTIONS["row_program"].cells[:1])]


def scored(workshop, name, cell):
    exercise = SOLUTIONS[name]
    graded = GradedCell(name, name, exercise.answer, exercise.points, ())
    return Grader(workshop, {}).score(Handed([*CELLS, cell], len(CELLS) + 1), graded)


@pytest.mark.parametrize("way", FORGED)
def test_a_forged_answer_has_no_points(workshop, way):
    name, cell = FORGED[way]
    assert scored(workshop, name, cell).report.points == 0
