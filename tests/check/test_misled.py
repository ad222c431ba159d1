"""The simulated GPUs of 8.2: what a benchmark that one of them misleads says there, and what it says elsewhere."""

import statistics

import pytest
import torch

from helpers.check.problems import misled
from helpers.gpu.misleading import Behaviour


def timed(gpu, fn, x, runs):
    """The milliseconds of each of so many launches."""
    said = []
    for _ in range(runs):
        start = gpu.record()
        fn(x)
        end = gpu.record()
        gpu.synchronize()
        said.append(start.elapsed_time(end))
    return said


def nearly(times, other):
    return times[0] == pytest.approx(other[0], rel=0.02) and times[1] == pytest.approx(other[1], rel=0.02)


def test_what_is_half_a_percent_off_is_seen_by_relative_differences_whatever_x_is():
    """A draw with a score of 5 or more would show it to absolute ones."""
    x = torch.randn(8, 4096)
    x[0, 0] = 6
    right, wrong = torch.softmax(x.double(), dim=1), misled.WRONG["is half a percent off"](x)
    assert torch.allclose(wrong.double(), right, rtol=1e-6, atol=1e-4)
    assert not torch.allclose(wrong.double(), right, rtol=1e-3, atol=1e-9)


def test_a_refusal_is_an_answer_in_a_few_words():
    def benchmark(gpu, mine, theirs):
        raise ValueError("wrong\n" + "x" * 999)

    (answer,) = misled.attempt(benchmark, "a copy that takes time")
    assert answer == [misled.REFUSED, "ValueError: wrong " + "x" * 94]


@pytest.mark.parametrize("error", [NotImplementedError, TypeError, AssertionError])
def test_another_error_is_none(error):
    def benchmark(gpu, mine, theirs):
        raise error

    with pytest.raises(error):
        misled.attempt(benchmark, "a copy that takes time")


def test_an_error_of_torch_cuda_is_none():
    of_torch = {"__name__": "torch.cuda.streams"}
    exec("def elapsed_time(): raise ValueError('Both events must be recorded')", of_torch)

    with pytest.raises(ValueError, match="Both events"):
        misled.attempt(lambda gpu, mine, theirs: of_torch["elapsed_time"](), "an L2 cache")


@pytest.mark.parametrize("kept", [5, 30, 31])
def test_a_first_call_that_is_thrown_away_is_not_held_against_the_median_of_the_others(kept):
    def benchmark(gpu, mine, theirs):
        x = torch.randn(gpu.shape)
        return tuple(statistics.median(timed(gpu, fn, x, kept + 1)[1:]) for fn in (mine, theirs))

    (answer,) = misled.attempt(benchmark, "a first call that compiles")
    assert misled.FIRST_TIMED not in answer


@pytest.mark.parametrize("median", [statistics.median, statistics.median_high])
def test_a_first_call_that_any_median_hides_is_told(median):
    def benchmark(gpu, mine, theirs):
        x = torch.randn(gpu.shape)
        return tuple(median(timed(gpu, fn, x, 30)) for fn in (mine, theirs))

    (answer,) = misled.attempt(benchmark, "a first call that compiles")
    assert answer[0] == misled.FIRST_TIMED and len(answer) == 3


def test_a_refusal_after_a_first_call_that_was_timed_is_a_refusal():
    def benchmark(gpu, mine, theirs):
        timed(gpu, mine, torch.randn(gpu.shape), 30)
        raise ValueError

    ((refused, _),) = misled.attempt(benchmark, "a first call that compiles")
    assert refused == misled.REFUSED


def test_a_clock_that_drifts_may_change_at_once():
    def mirrored(gpu, mine, theirs):
        x = torch.randn(gpu.shape)
        first, middle, last = (timed(gpu, fn, x, runs) for fn, runs in ((mine, 35), (theirs, 70), (mine, 35)))
        return statistics.median(first + last), statistics.median(middle)

    little_by_little, at_once = misled.attempt(mirrored, misled.DRIFT)
    assert little_by_little[0] == pytest.approx(little_by_little[1], rel=0.02)
    assert at_once[0] != pytest.approx(at_once[1], rel=0.1)


def test_launches_are_counted_on_a_gpu_that_misleads_in_nothing():
    drifting = misled.RUNS[misled.DRIFT][0]
    assert misled.steadied(drifting) == (Behaviour(), *drifting[1:]) != drifting


def test_a_benchmark_that_launches_nothing_is_an_answer_too():
    assert misled.attempt(lambda gpu, mine, theirs: (1.0, 1.0), misled.DRIFT) == [(1.0, 1.0)] * 2


def test_a_benchmark_that_launches_something_the_second_time_alone_is_an_answer_too():
    called = []

    def benchmark(gpu, mine, theirs):
        called.append(gpu)
        if len(called) % 2 == 0:
            mine(torch.zeros(gpu.shape))
        return 1.0, 1.0

    assert misled.attempt(benchmark, misled.DRIFT) == [(1.0, 1.0)] * 2 and len(called) == 4


def test_slow_runs_begin_anywhere():
    def without_the_first(gpu, mine, theirs):
        x = torch.randn(gpu.shape)
        return tuple(statistics.mean(timed(gpu, fn, x, 20)[4:]) for fn in (mine, theirs))

    true = misled.MINE_MS, misled.THEIRS_MS
    first, *others = misled.attempt(without_the_first, "a slow run now and then")
    assert nearly(first, true) and others and not any(nearly(one, true) for one in others)


def test_results_of_two_right_kernels_differ_in_their_last_bits():
    def exact(gpu, mine, theirs):
        x = torch.randn(gpu.shape)
        if not torch.equal(mine(x), theirs(x)):
            raise ValueError

    ((refused, _),) = misled.attempt(exact, "a copy that takes time")
    assert refused == misled.REFUSED
