"""The simulated GPUs of 8.2 while answers are graded: they are the grader's, and say what they say in a notebook."""

import json
import random
from functools import partial

import pytest
import torch
from torch.utils._python_dispatch import _disable_current_modes

from corpus import RIGHT, WRONG
from exercises import SOLUTIONS
from families import RIGHT as RIGHT_TOO
from families import WRONG as WRONG_TOO
from helpers.check import EXERCISES
from helpers.check.problems import misled
from helpers.check.trial import trial
from helpers.check.trial.trial import Trial
from helpers.engine.isolate import End
from helpers.gpu.misleading import Behaviour
from helpers.instructor.grade import benchmarks
from helpers.instructor.grade.benchmarks import SimulatedDevice
from helpers.instructor.sandbox import wire
from helpers.instructor.sandbox.client import Ended
from helpers.instructor.sandbox.far_gpu import FarGpu

RIGHT_WAYS = {
    name: way for name, way in (RIGHT["benchmark"] | RIGHT_TOO["benchmark"]).items() if name != "the course's"
}
WRONG_WAYS = {name: way for name, way in (WRONG["benchmark"] | WRONG_TOO["benchmark"]).items() if name != "endless"}

PLAIN = (Behaviour(), 0.1, 0.2, lambda x: torch.softmax(x, dim=1))
"""A GPU that misleads in nothing."""


def sent(value):
    """A value on its way between processes."""
    return wire.decode(json.loads(json.dumps(wire.encode(value))))


def elsewhere(device):
    """Asks a device as if it were in another process, where nobody watches PyTorch's operations."""

    def ask(question):
        with _disable_current_modes():
            return sent(device(sent(question)))

    return ask


def far(run, launches=1, units=(1, 1)):
    """Both ends of a simulated GPU."""
    device = SimulatedDevice(run, launches, units)
    return device, FarGpu(elsewhere(device.answer))


class Here:
    """A sandbox without walls, and a place, that has a benchmark; `gpus` are those on which it was tried."""

    def __init__(self, benchmark):
        self.benchmark, self.gpus = benchmark, []

    def ask(self, request, seconds, device):
        assert request == {"do": "benchmark", "answer": "benchmark"}
        self.gpus.append(device.__self__.gpu)
        gpu = FarGpu(elsewhere(device))
        one = trial.of_numbers(partial(misled.called, self.benchmark, gpu, *gpu.kernels), ())
        gpu.asked("now")
        return sent(one.plain())

    def answers(self, given, through):
        assert through is misled.attempt
        return benchmarks.tried(self, "benchmark", [case for (case,) in given], random.Random(7))


def report_on(benchmark):
    return EXERCISES["benchmark"].report(Here(benchmark))


def wrong_cases(report):
    return [finding.case for finding in report.findings if not finding.ok]


# What it says


RUNS = {f"{case}-{number}": run for case, runs in misled.RUNS.items() for number, run in enumerate(runs)}


@pytest.mark.thinned
@pytest.mark.parametrize("run", RUNS.values(), ids=RUNS)
def test_it_says_what_the_gpu_of_a_notebook_says(run):
    def everything(gpu, mine, theirs):
        torch.manual_seed(1)
        said, kept = [], []
        for x in (torch.zeros(gpu.shape), torch.randn(gpu.shape), torch.randn(4, 4096)):
            for fn in (mine, theirs, mine):
                start, before = gpu.record(), gpu.now()
                y = fn(x)
                kept.append(y.clone())
                end = gpu.record()
                end.synchronize()
                said += [start.elapsed_time(end), gpu.now() - before, y.nan_to_num(0).double().sum().item()]
            gpu.flush()
            kept.append(torch.empty(2**25, dtype=torch.int8).zero_())
            gpu.synchronize()
        return said + [gpu.now()]

    device, gpu = far(run, 10)
    here = misled.called(everything, *misled.simulated(run, 10))
    there = misled.called(everything, gpu, *gpu.kernels)
    assert there == pytest.approx(here, rel=1e-6)
    assert device.gpu.kernel_launches == 9


def test_each_kernel_needs_the_time_that_was_drawn_for_it_and_the_answer_is_told_in_the_units_of_its_run():
    def benchmark(gpu, mine, theirs):
        x, said = torch.randn(gpu.shape), []
        for fn in (mine, theirs):
            start = gpu.record()
            fn(x)
            said.append(start.elapsed_time(gpu.record()))
        raw.append(said)
        return tuple(said)

    raw = []
    (one,) = benchmarks.tried(Here(benchmark), "benchmark", ["a copy that takes time"])
    assert one.answer == [pytest.approx([misled.MINE_MS, misled.THEIRS_MS])]
    low, high = (1 - benchmarks.APART) * benchmarks.UNITS[0], (1 + benchmarks.APART) * benchmarks.UNITS[1]
    drawn = [ms / true for ms, true in zip(raw[0], (misled.MINE_MS, misled.THEIRS_MS), strict=True)]
    assert all(low <= unit <= high for unit in drawn) and drawn[0] != drawn[1]


def test_what_is_published_of_the_runs_earns_nothing():
    def benchmark(gpu, mine, theirs):
        x = torch.randn(gpu.shape)
        if not torch.allclose(mine(x), torch.softmax(x, dim=1), rtol=1e-4, atol=1e-9):
            raise ValueError
        return misled.MINE_MS, misled.THEIRS_MS

    assert report_on(benchmark).points == 0


def test_only_kernels_that_need_the_same_are_drawn_the_same():
    mine, theirs = benchmarks._drawn(random.Random(1), same=True)
    assert mine == theirs != 1
    mine, theirs = benchmarks._drawn(random.Random(1), same=False)
    assert mine != theirs


def test_a_clock_drifts_over_the_launches_of_the_benchmark_itself():
    def benchmark(gpu, mine, theirs):
        for _ in range(5):
            mine(torch.zeros(gpu.shape))
        return 1, 1

    one = Here(benchmark)
    benchmarks.tried(one, "benchmark", [misled.DRIFT])
    assert [gpu.behaviour.launches for gpu in one.gpus] == [1, 5] * len(misled.RUNS[misled.DRIFT])
    assert [bool(gpu.behaviour.slowdown) for gpu in one.gpus] == [False, True] * len(misled.RUNS[misled.DRIFT])


def test_other_numbers_in_the_same_place_are_seen():
    _, gpu = far((Behaviour(easy=0.5), *PLAIN[1:]))
    x, times = torch.zeros(gpu.shape), []
    for _ in range(2):
        start = gpu.record()
        gpu.kernels[0](x)
        times.append(start.elapsed_time(gpu.record()))
        x[:, 1:-1].normal_()
    assert times == pytest.approx([0.05, 0.1])


def test_runs_come_in_any_order():
    def order():
        seen = []

        def benchmark(gpu, mine, theirs):
            seen.append(mine(torch.zeros(gpu.shape)).nan_to_num(0).sum().item())
            raise ValueError

        benchmarks.tried(Here(benchmark), "benchmark", [misled.SKIPPED])
        return seen

    first = order()
    assert len(first) == len(misled.WRONG) and any(order() != first for _ in range(3))


# What is judged


@pytest.mark.parametrize("way", ["solution", *(pytest.param(way, marks=pytest.mark.proof) for way in RIGHT_WAYS)])
def test_a_right_benchmark_has_all_points(way):
    solution = SOLUTIONS["benchmark"]
    benchmark = solution.answered() if way == "solution" else solution.variant(RIGHT_WAYS[way])
    report = report_on(benchmark)
    assert (wrong_cases(report), report.points) == ([], 6)


SAMPLE = ("no warm-up",)


@pytest.mark.parametrize("way", [w if w in SAMPLE else pytest.param(w, marks=pytest.mark.proof) for w in WRONG_WAYS])
def test_a_wrong_benchmark_is_judged_as_in_a_notebook(way):
    benchmark = SOLUTIONS["benchmark"].variant(WRONG_WAYS[way])
    here, there = EXERCISES["benchmark"].report_on(benchmark, seed=3), report_on(benchmark)
    assert (wrong_cases(there), there.points) == (wrong_cases(here), here.points)
    assert (there.diagnosis and there.diagnosis.id) == (here.diagnosis and here.diagnosis.id)


def test_the_stub_is_not_an_attempt():
    def benchmark(gpu, mine, theirs):
        raise NotImplementedError

    assert not report_on(benchmark).attempted


def test_a_sandbox_that_ends_is_told_of_once_and_no_other_run_is_begun():
    class Ending(Here):
        begun = 0

        def ask(self, request, seconds, device):
            self.begun += 1
            raise Ended("its process ended by itself", End.DIED)

    one = Ending(None)
    found = benchmarks.tried(one, "benchmark", list(misled.RUNS))
    assert one.begun == 1
    assert sorted(trial.raised for trial in found if trial.end is not End.NOT_RUN) == ["its process ended by itself"]
    assert sum(trial.end is End.NOT_RUN for trial in found) == len(misled.RUNS) - 1


def test_a_run_that_did_not_return_is_the_trial_of_its_case():
    stopped, not_run = Trial(End.DIED, "it died"), Trial(End.NOT_RUN, "not run any more")
    together = benchmarks._together
    assert together([Trial(answer=[1, 2]), not_run, stopped]).raised == "it died"
    assert together([Trial(answer=[1, 2], printed="a"), Trial(answer=None, printed="b")]).answer == [[1, 2], None]
    assert together([Trial(printed="a"), Trial(printed="b")]).printed == "ab"


# What a learner's process may send


def test_errors_of_a_learner_s_own_calls_are_passed_on():
    _, gpu = far((Behaviour(in_queue=True), *PLAIN[1:]))
    start = gpu.record()
    gpu.kernels[0](torch.randn(gpu.shape))
    with pytest.raises(RuntimeError, match="synchronize first"):
        start.elapsed_time(gpu.record())
    with pytest.raises(IndexError, match="Dimension out of range"):
        gpu.kernels[0](torch.randn(4))


@pytest.mark.parametrize(
    "sent",
    [
        {"events": [["open", "/etc/passwd"]], "question": ["now"]},
        {"events": [["launch", 0, [1, 2, 3], "unknown", 0]], "question": ["now"]},
        {"events": [["numbers", {}, "no tensor"]], "question": ["now"]},
        {"events": 3, "question": ["now"]},
        {"question": ["now"]},
    ],
    ids=repr,
)
def test_what_a_gpu_does_not_do_is_an_error_of_the_learner_s(sent):
    device = SimulatedDevice(PLAIN, 1, (1, 1))
    try:
        assert set(device.answer(sent)) == {"raised"}
    except Ended:
        pass


@pytest.mark.parametrize(
    ("event", "times", "said"),
    [
        (["flush"], 1 << 18, "does more than 262,144 things"),
        (["numbers", "x", torch.zeros(1 << 22)], 16, "256 MB of numbers"),
    ],
    ids=["events", "numbers"],
)
def test_what_is_done_to_a_gpu_has_a_limit(event, times, said):
    device = SimulatedDevice(PLAIN, 1, (1, 1))
    device.answer({"events": [event] * times, "question": ["now"]})
    with pytest.raises(Ended, match=said):
        device.answer({"events": [event], "question": ["now"]})


def test_a_kernel_s_result_is_sent_once_for_the_same_numbers_and_is_new_every_time():
    device = SimulatedDevice(PLAIN, 1, (1, 1))
    asked, numbers = [], []

    def ask(question):
        asked.append(question["question"][0])
        numbers.extend(event for event in question["events"] if event[0] == "numbers")
        return device.answer(question)

    gpu = FarGpu(ask)
    x = torch.randn(gpu.shape)
    first = gpu.kernels[0](x)
    first.zero_()
    second = gpu.kernels[0](x.clone())
    assert asked == ["launch"] and torch.equal(second, torch.softmax(x, dim=1))
    x[0, 0] += 1
    assert torch.equal(gpu.kernels[0](x), torch.softmax(x, dim=1)) and asked == ["launch"] * 2
    gpu.kernels[1](x)
    assert asked == ["launch"] * 3 and len(numbers) == 2


def test_events_do_not_pile_up():
    device = SimulatedDevice(PLAIN, 1, (1, 1))
    longest = []

    def ask(question):
        longest.append(len(question["events"]))
        return device.answer(question)

    gpu = FarGpu(ask)
    for _ in range(2500):
        gpu.flush()
    assert longest == [1000, 1000]
