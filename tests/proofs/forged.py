"""Answers that forge what is said of them: each is a cell, for an exercise without kernels. None deserves a point."""

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
