"""The checks of lesson 08: letters for the lines of the exhibit, and a benchmark tried on simulated GPUs."""

import json

import pytest
import torch

from exercises import ROOT, SOLUTIONS, wrong_findings
from helpers import check
from helpers.check.exercises import lesson_08
from helpers.gpu.misleading import MisleadingGpu

SOLUTION = ROOT / "solutions" / "08_benchmarks_that_lie.ipynb"

pytestmark = pytest.mark.usefixtures("nothing_passed_yet")


def softmax(x):
    return torch.softmax(x, dim=1)


def left(report):
    return {finding.case: finding.seen for finding in report.findings if not finding.ok}


# 8.1


@pytest.fixture
def found():
    return SOLUTIONS["exhibit"].answered()


def test_every_letter_charged_is_a_line_of_the_exhibit():
    cells = json.loads(SOLUTION.read_text(encoding="utf-8"))["cells"]
    shown = "".join("".join(cell["source"]) + "\n" for cell in cells if cell["id"].startswith("exhibit-"))
    lettered = {line.split("  # ")[1] for line in shown.splitlines() if "  # " in line}
    assert lettered == set("ABCDEFGHIJKLMN")
    assert {letter for lines, _ in lesson_08.EXHIBIT.values() for letter in lines} < lettered


def test_small_letters_and_either_line_of_the_first_call_are_right_too(found):
    assert check.exhibit({charge: letter.lower() for charge, letter in found.items()}).points == 2
    assert check.exhibit(found | {"starts the clock before a first call was made": "G"}).points == 2


@pytest.mark.parametrize("charge", lesson_08.EXHIBIT)
def test_a_wrong_line_is_named_without_the_right_one(found, charge):
    report = check.exhibit(found | {charge: "A"})
    assert left(report) == {charge: f"it is not 'A': {lesson_08.EXHIBIT[charge][1]}"}
    assert report.points == 0


@pytest.mark.parametrize("letter", ["BC", "line B", 2, ""], ids=repr)
def test_what_is_no_letter_is_told_so(found, letter):
    report = check.exhibit(found | {"computes a part of the row": letter})
    assert left(report) == {"computes a part of the row": f"needs one letter; it is {letter!r}"}
    assert report.points == 0


def test_a_line_left_out_is_named(found):
    charge = next(iter(found))
    assert left(check.exhibit(found | {charge: None})) == {charge: "not filled in yet"}


@pytest.mark.parametrize("given", [None, "BCLFIM", {"B": "computes a part of the row"}], ids=str)
def test_an_answer_of_another_form_is_refused(given):
    (seen,) = wrong_findings(check.exhibit(given)).values()
    assert "check.exhibit takes a dict with the keys 'computes a part of the row'" in seen


# 8.2


@pytest.fixture
def benchmark_report():
    """The report on the solution, with pieces of its text replaced by others in turn, or on other code."""
    return lambda *replaced, code="": check.benchmark(SOLUTIONS["benchmark"].answered(*replaced, code=code))


def test_each_of_the_lies_handed_out_is_named_with_its_figures(benchmark_report):
    lying = "benchmark = lambda gpu, mine, theirs: tuple(1.0001 * ms for ms in lies.lying_benchmark(gpu, mine, theirs))"
    report = benchmark_report(code=lying)
    assert report.points == 0
    needs = "for a kernel that needs 0.1 ms"
    assert left(report) == {
        "a kernel that skips work": "a kernel that computes 512 of 4096 columns gets a time, 0.0125 ms; "
        "a ValueError should refuse it",
        "launches that return at once": "you report 0.008 ms for a kernel that needs 0.4 ms; "
        "the host launches it in 0.004 ms",
        "a first call that compiles": f"you report 20.1 ms {needs}; its first call takes 200 ms",
        "a slow run now and then": f"you report 1.26 ms {needs}; 4 runs of 20 take 3 ms",
        "a copy that takes time": f"you report 0.2 ms {needs}; a copy of its result takes 0.1 ms",
        "an L2 cache": f"you report 0.046 ms {needs}; with its input in L2 it needs 0.04 ms",
        "a kernel that is slower on real data": f"you report 0.05 ms {needs}; "
        "on numbers that are nearly the same it needs 0.05 ms",
        "a clock that drifts": "two kernels that need the same, on a GPU that needs 1.5 times as long at the end as "
        "at the beginning: you report 0.111 ms and 0.136 ms",
    }
    assert all(seen in str(report) for seen in left(report).values())


SINGLE = {
    "a kernel that skips work": ("if not torch.allclose", "if mine(x) is None and torch.allclose"),
    "a slow run now and then": ("statistics.median", "statistics.mean"),
    "a fast run now and then": ("statistics.median", "min"),
    "a copy that takes time": ("            fn(x)\n", "            fn(x).clone()\n"),
    "an L2 cache": ("gpu.flush()", "pass"),
    "a kernel that is slower on real data": ("    theirs(x)\n",
                                             "    x = torch.zeros_like(x)\n    mine(x), theirs(x)\n"),
    "a first call that compiles": ("range(30):", "range(30, 0, -1):", "for _ in range(30", "for rows in range(30",
                                   "            fn(x)\n", "            fn(x[:, rows:])\n"),
    "launches that return at once": ("start = gpu.record()", "start = gpu.now()",
                                     "(start, gpu.record())", "gpu.now() - start",
                                     "start.elapsed_time(end) for start, end in", "ms for ms in"),
    "a clock that drifts": (
        '    for _ in range(30):\n        for name, fn in (("mine", mine), ("theirs", theirs)):\n',
        '    for name, fn in (("mine", mine), ("theirs", theirs)):\n        for _ in range(30):\n',
    ),
}  # fmt: skip


@pytest.mark.thinned
@pytest.mark.parametrize("lie", SINGLE)
def test_a_single_lie_is_the_only_one_named(benchmark_report, lie):
    report = benchmark_report(*SINGLE[lie])
    assert list(left(report)) == [lie]
    assert report.points == (0 if lie == "a kernel that skips work" else 3)


@pytest.mark.thinned(1)
@pytest.mark.parametrize(
    "lies_told",
    [
        ("a slow run now and then", "an L2 cache"),
        ("a kernel that is slower on real data", "an L2 cache", "a copy that takes time"),
        ("a clock that drifts", "a slow run now and then", "an L2 cache"),
        ("a kernel that skips work", "a copy that takes time"),
    ],
    ids=", ".join,
)
def test_several_lies_are_all_named(benchmark_report, lies_told):
    report = benchmark_report(*(text for lie in lies_told for text in SINGLE[lie]))
    assert set(left(report)) == set(lies_told)
    assert report.points == (3 if len(lies_told) == 2 and "a kernel that skips work" not in lies_told else 0)


@pytest.mark.parametrize("kernel", lesson_08.WRONG)
def test_every_kernel_that_skips_work_is_wrong_on_random_data(kernel):
    x = torch.randn(MisleadingGpu.shape)
    assert not torch.allclose(lesson_08.WRONG[kernel](x), softmax(x), rtol=1e-3)


def test_one_kernel_that_skips_work_is_right_on_zeros():
    x = torch.zeros(MisleadingGpu.shape)
    assert any(torch.allclose(result(x), softmax(x)) for result in lesson_08.WRONG.values())
