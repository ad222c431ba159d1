"""A simulated GPU: in what each behaviour misleads, and that nothing else does."""

import math

import pytest
import torch

from helpers.gpu.misleading import EVERY, SLOWER, Behaviour, MisleadingGpu


def softmax(x):
    return torch.softmax(x, dim=1)


def timed(gpu, fn, x):
    start = gpu.record()
    fn(x)
    end = gpu.record()
    gpu.synchronize()
    return start.elapsed_time(end)


def random(gpu):
    return torch.randn(gpu.shape, device=gpu.device)


def test_a_gpu_that_misleads_in_nothing_takes_just_its_time():
    gpu = MisleadingGpu(Behaviour())
    x, kernel = random(gpu), gpu.kernel(0.25, softmax)
    before = gpu.now()
    assert timed(gpu, kernel, x) == pytest.approx(0.25) == pytest.approx(gpu.now() - before)
    assert torch.equal(kernel(x), softmax(x))


def test_a_queue_returns_at_once_and_is_waited_for():
    gpu = MisleadingGpu(Behaviour(in_queue=True))
    x, kernel = random(gpu), gpu.kernel(0.25, softmax)
    start = gpu.record()
    kernel(x)
    end = gpu.record()
    assert gpu.now() < 0.01
    with pytest.raises(RuntimeError, match="synchronize first"):
        start.elapsed_time(end)
    end.synchronize()
    assert start.elapsed_time(end) == pytest.approx(0.25, rel=0.05)


def test_the_first_call_with_each_shape_compiles():
    gpu = MisleadingGpu(Behaviour(compile_ms=100))
    x, kernel = random(gpu), gpu.kernel(0.25, softmax)
    times = [timed(gpu, kernel, given) for given in (x, x, x[:, :2048], x[:, :2048])]
    assert [time > 100 for time in times] == [True, False, True, False]


def test_an_input_used_just_before_is_warm_until_it_is_overwritten():
    gpu = MisleadingGpu(Behaviour(warm=0.5))
    x, kernel = random(gpu), gpu.kernel(0.2, softmax)
    times = [timed(gpu, kernel, x), timed(gpu, kernel, x)]
    gpu.flush()
    times.append(timed(gpu, kernel, x))
    with gpu.watching():
        torch.empty(2**28, dtype=torch.int8, device=gpu.device).zero_()
    times.append(timed(gpu, kernel, x))
    for _ in range(3):
        kernel(random(gpu))
    times.append(timed(gpu, kernel, x))
    assert times == pytest.approx([0.2, 0.1, 0.2, 0.2, 0.2])


@pytest.mark.parametrize("easy", [torch.zeros(8, 4096), 0.1 * torch.randn(8, 4096)], ids=["zeros", "0.1 * randn"])
def test_numbers_that_are_nearly_the_same_are_easy(easy):
    gpu = MisleadingGpu(Behaviour(easy=0.5))
    kernel = gpu.kernel(0.2, softmax)
    assert timed(gpu, kernel, easy) == pytest.approx(0.1)
    assert timed(gpu, kernel, random(gpu)) == pytest.approx(0.2)


def test_one_run_of_seven_is_slow():
    gpu = MisleadingGpu(Behaviour(slow_run=2))
    x, kernel = random(gpu), gpu.kernel(0.1, softmax)
    times = [timed(gpu, kernel, x) for _ in range(2 * EVERY)]
    assert [launch for launch, ms in enumerate(times) if math.isclose(ms, 0.1 * SLOWER)] == [2, 2 + EVERY]


def test_a_clock_drifts_over_all_launches():
    gpu = MisleadingGpu(Behaviour(slowdown=0.5, launches=10))
    x, kernel = random(gpu), gpu.kernel(0.1, softmax)
    assert [timed(gpu, kernel, x) for _ in range(11)][::10] == pytest.approx([0.1, 0.15])


def test_operations_of_pytorch_take_time_while_they_are_watched():
    gpu = MisleadingGpu(Behaviour(operation_ms=0.1))
    x, kernel = random(gpu), gpu.kernel(0.25, softmax)
    y = torch.empty_like(x)
    with gpu.watching():
        assert timed(gpu, lambda x: y.copy_(kernel(x)), x) == pytest.approx(0.35)
        assert timed(gpu, lambda x: kernel(x[:4]), x) == pytest.approx(0.125)
