"""What of the course an answer calls, as its notebook's check can tell it."""

from functools import partial

import pytest

import helpers.kernels as other_name
from exercises import SOLUTIONS
from helpers import check, kernels, traffic
from helpers.check.exercise import EVERY_ONE, OURS
from helpers.check.judge import OVER_BUDGET
from helpers.check.trial.own import borrows
from helpers.choosing import Launch, pick
from helpers.gpu import waiting
from helpers.kernels import eager_softmax, single_tile_kernel


def own(x):
    return x.softmax(1)


def by_name(x):
    return eager_softmax(x)


def by_module(x):
    return kernels.eager_softmax(x)


def by_another_name(x):
    return other_name.eager_softmax(x)


def inside(x):
    from helpers.kernels import eager_softmax as f

    return f(x)


def in_a_list(x):
    return [kernels.eager_softmax(row) for row in x]


def in_a_lambda(x):
    return (lambda row: eager_softmax(row))(x)


def through_another(x):
    return by_name(x)


def of_a_kernel(x):
    single_tile_kernel[(1,)](x)


def closed_over():
    f = eager_softmax
    return lambda x: f(x)


EAGER = "helpers.kernels.eager_softmax"
WAYS = {
    "itself": (eager_softmax, EAGER), "a partial": (partial(eager_softmax, stable=True), EAGER),
    "by name": (by_name, EAGER), "by module": (by_module, EAGER), "another name": (by_another_name, EAGER),
    "an import inside": (inside, EAGER), "in a list": (in_a_list, EAGER), "in a lambda": (in_a_lambda, EAGER),
    "through another": (through_another, EAGER), "in a closure": (closed_over(), EAGER),
    "a kernel": (of_a_kernel, "helpers.kernels.single_tile_kernel"),
}  # fmt: skip


@pytest.mark.parametrize("way", WAYS)
def test_what_an_answer_calls_of_the_course_is_named(way):
    answer, name = WAYS[way]
    assert borrows(answer, EVERY_ONE) == name


def recursive(n):
    return recursive(n - 1)


def counted(x):
    return traffic.count(own, x)


def tiled(n_cols, n_rows, dtype):
    return Launch("online", 8192, 16)


def ran():
    return waiting.run(waiting.parts_first(1, 1), places=1)


@pytest.mark.parametrize(
    ("answer", "may_call"),
    [(own, ()), (recursive, ()), (max, ()), (counted, EVERY_ONE), (tiled, ("helpers.choosing.launches.Launch",)),
     (ran, ("helpers.gpu.waiting",))],
)  # fmt: skip
def test_what_is_one_s_own_or_on_the_list_is_not_named(answer, may_call):
    assert borrows(answer, may_call) == ""


def test_every_solution_keeps_to_its_list():
    for name, solution in SOLUTIONS.items():
        answer = solution.answered() if name != "spill" else None
        if callable(answer):
            assert borrows(answer, (*EVERY_ONE, *check.EXERCISES[name].may_call)) == "", name


def test_it_has_no_points_in_a_notebook_either():
    report = check.report_on("eager", by_module)
    assert (report.passed, report.points, report.diagnosis) == (False, 0, OURS)
    assert report.findings[-1].seen.startswith(f"{EAGER} is the course's own: where answers are graded")
    assert check.report_on("eager", own).points == 2


def test_a_wrong_answer_is_told_what_is_wrong_alone():
    wrong = check.report_on("eager", lambda x: eager_softmax(x, stable=False))
    assert wrong.points == 0 and "your own code" not in [finding.case for finding in wrong.findings]


def test_what_is_wrong_besides_is_named_first():
    report = check.report_on("masked", lambda x: kernels.single_tile_softmax(x.clone()))
    assert (report.points, report.diagnosis) == (0, OVER_BUDGET) and report.findings[-1].case == "your own code"


def test_a_choice_of_the_course_is_named():
    assert borrows(lambda *shape: pick(*shape).launch, EVERY_ONE) == "helpers.choosing.rules.pick"
