"""A simulated GPU: in what each behaviour misleads, and that nothing else does."""

import math

import pytest
import torch

from helpers.gpu.misleading import EVERY, FLUSH_MS, LAUNCH_MS, SLOWER, SYNCHRONIZE_MS, Behaviour, MisleadingGpu


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


# Without a queue


@pytest.mark.parametrize("make", [torch.randn, torch.zeros])
def test_a_gpu_that_misleads_in_nothing_takes_just_its_time(make):
    gpu = MisleadingGpu(Behaviour())
    x, kernel = make(gpu.shape), gpu.kernel(0.25, softmax)
    before = gpu.now()
    times = [timed(gpu, kernel, x) for _ in range(2 * EVERY)]
    gpu.flush()
    assert times == pytest.approx([0.25] * 2 * EVERY)
    assert gpu.now() - before == pytest.approx(sum(times))


def test_a_kernel_returns_what_it_is_to_compute():
    gpu = MisleadingGpu(Behaviour())
    x = random(gpu)
    assert torch.equal(gpu.kernel(0.25, softmax)(x), softmax(x))


def test_launches_are_counted():
    gpu = MisleadingGpu(Behaviour())
    x, kernel = random(gpu), gpu.kernel(0.25, softmax)
    kernel(x), kernel(x)
    assert gpu.kernel_launches == 2


def test_a_part_of_the_matrix_takes_that_part_of_the_time():
    gpu = MisleadingGpu(Behaviour())
    assert timed(gpu, gpu.kernel(0.2, softmax), random(gpu)[:2]) == pytest.approx(0.05)


def test_a_kernel_that_fails_leaves_operations_that_take_time():
    gpu = MisleadingGpu(Behaviour(operation_ms=0.1))

    def fails(x):
        raise RuntimeError

    with pytest.raises(RuntimeError):
        gpu.kernel(0.25, fails)(random(gpu))
    with gpu.watching():
        assert timed(gpu, torch.clone, random(gpu)) == pytest.approx(0.1)


# In a queue


def test_a_launch_into_a_queue_returns_at_once():
    gpu = MisleadingGpu(Behaviour(in_queue=True))
    gpu.kernel(0.25, softmax)(random(gpu))
    assert gpu.now() == pytest.approx(LAUNCH_MS)


def test_marks_in_a_queue_are_read_only_after_it_is_waited_for():
    gpu = MisleadingGpu(Behaviour(in_queue=True))
    start = gpu.record()
    gpu.kernel(0.25, softmax)(random(gpu))
    end = gpu.record()
    with pytest.raises(RuntimeError, match="synchronize first"):
        start.elapsed_time(end)
    end.synchronize()
    assert start.elapsed_time(end) == pytest.approx(0.25 + LAUNCH_MS)
    assert gpu.now() == pytest.approx(0.25 + LAUNCH_MS)


def test_a_mark_that_was_passed_is_not_waited_for():
    gpu = MisleadingGpu(Behaviour(in_queue=True))
    start = gpu.record()
    gpu.kernel(0.25, softmax)(random(gpu))
    gpu.synchronize()
    before = gpu.now()
    start.synchronize()
    assert gpu.now() == before


def test_kernels_in_a_queue_run_one_after_the_other():
    gpu = MisleadingGpu(Behaviour(in_queue=True))
    x, kernel = random(gpu), gpu.kernel(0.25, softmax)
    kernel(x)
    assert timed(gpu, lambda x: (kernel(x), kernel(x)), x) == pytest.approx(0.5)


def test_the_host_notices_only_after_a_while_that_the_queue_is_empty():
    gpu = MisleadingGpu(Behaviour(in_queue=True))
    gpu.kernel(0.25, softmax)(random(gpu))
    gpu.synchronize()
    assert gpu.now() == pytest.approx(LAUNCH_MS + 0.25 + SYNCHRONIZE_MS)


def test_a_flush_keeps_a_queue_busy_while_the_host_prepares_the_next_launch():
    gpu = MisleadingGpu(Behaviour(in_queue=True))
    before = gpu.record()
    gpu.flush()
    after = gpu.record()
    assert timed(gpu, gpu.kernel(0.25, softmax), random(gpu)) == pytest.approx(0.25)
    assert before.elapsed_time(after) == pytest.approx(LAUNCH_MS + FLUSH_MS)


# What misleads


def test_the_first_call_with_each_shape_compiles():
    gpu = MisleadingGpu(Behaviour(compile_ms=100))
    x, kernel = random(gpu), gpu.kernel(0.25, softmax)
    times = [timed(gpu, kernel, given) for given in (x, x, x[:, :2048], x[:, :2048])]
    assert times == pytest.approx([100.25, 0.25, 100.125, 0.125])


def test_each_kernel_compiles_for_itself():
    gpu = MisleadingGpu(Behaviour(compile_ms=100))
    x = random(gpu)
    assert [timed(gpu, gpu.kernel(0.25, softmax), x) > 100 for _ in range(2)] == [True, True]


def test_an_input_used_just_before_is_warm():
    gpu = MisleadingGpu(Behaviour(warm=0.5))
    x, kernel = random(gpu), gpu.kernel(0.2, softmax)
    assert [timed(gpu, kernel, x) for _ in range(2)] == pytest.approx([0.2, 0.1])


def test_a_result_is_warm_too():
    gpu = MisleadingGpu(Behaviour(warm=0.5))
    kernel = gpu.kernel(0.2, lambda x: x + 1)
    assert timed(gpu, kernel, kernel(random(gpu))) == pytest.approx(0.1)


def test_a_flush_makes_an_input_cold():
    gpu = MisleadingGpu(Behaviour(warm=0.5))
    x, kernel = random(gpu), gpu.kernel(0.2, softmax)
    kernel(x)
    gpu.flush()
    assert timed(gpu, kernel, x) == pytest.approx(0.2)


OVERWRITE = [torch.Tensor.zero_, lambda y: y.fill_(1), lambda y: y.random_(0, 9)]


@pytest.mark.parametrize("overwrite", OVERWRITE, ids=["zero_", "fill_", "random_"])
@pytest.mark.parametrize(("nbytes", "ms"), [(2**25, 0.2), (2**16, 0.1)], ids=["as large as the cache", "small"])
def test_overwriting_a_tensor_as_large_as_the_cache_makes_an_input_cold(overwrite, nbytes, ms):
    gpu = MisleadingGpu(Behaviour(warm=0.5))
    x, y, kernel = random(gpu), torch.empty(nbytes, dtype=torch.int8), gpu.kernel(0.2, softmax)
    kernel(x)
    with gpu.watching():
        overwrite(y)
    assert timed(gpu, kernel, x) == pytest.approx(ms)


@pytest.mark.parametrize("overwrite", OVERWRITE, ids=["zero_", "fill_", "random_"])
def test_overwriting_a_tensor_as_large_as_the_cache_is_a_flush_and_not_an_operation(overwrite):
    gpu = MisleadingGpu(Behaviour(operation_ms=0.1))
    y = torch.empty(2**25, dtype=torch.int8)
    with gpu.watching():
        assert timed(gpu, overwrite, y) == 0
        assert timed(gpu, overwrite, y[1:]) == pytest.approx(0.1 * 2**10, rel=1e-3)


@pytest.mark.parametrize(("others", "ms"), [(2, 0.1), (3, 0.2)])
def test_the_cache_holds_no_more_than_three_matrices_besides_the_input(others, ms):
    # The first of them is the result of the kernel.
    gpu = MisleadingGpu(Behaviour(warm=0.5))
    x, kernel = random(gpu), gpu.kernel(0.2, softmax)
    kernel(x)
    with gpu.watching():
        kept = [random(gpu) for _ in range(others)]
    assert timed(gpu, kernel, x) == pytest.approx(ms) and len(kept) == others


@pytest.mark.parametrize(
    ("x", "ms"),
    [
        (torch.zeros(8, 4096), 0.1),
        (torch.randn(8, 4096) * 0.4, 0.1),
        (torch.randn(8, 4096) * 0.6, 0.2),
        (torch.randn(8, 4096), 0.2),
    ],
    ids=["zeros", "0.4 * randn", "0.6 * randn", "randn"],
)
def test_numbers_that_are_nearly_the_same_are_easy(x, ms):
    gpu = MisleadingGpu(Behaviour(easy=0.5))
    assert timed(gpu, gpu.kernel(0.2, softmax), x) == pytest.approx(ms)


def test_easy_numbers_in_the_cache_take_both_fractions_of_the_time():
    gpu = MisleadingGpu(Behaviour(easy=0.5, warm=0.5))
    x, kernel = torch.zeros(gpu.shape), gpu.kernel(0.2, softmax)
    assert [timed(gpu, kernel, x) for _ in range(2)] == pytest.approx([0.1, 0.05])


@pytest.mark.parametrize("first", [0, 2])
def test_four_runs_of_twenty_are_slow(first):
    gpu = MisleadingGpu(Behaviour(slow_run=first))
    x, kernel = random(gpu), gpu.kernel(0.1, softmax)
    times = [timed(gpu, kernel, x) for _ in range(24)]
    slow = [launch for launch, ms in enumerate(times) if math.isclose(ms, 0.1 * SLOWER)]
    assert slow[:4] == list(range(first, first + 4)) and set(slow[4:]) == set(range(first + 20, 24))


def test_a_clock_drifts_over_all_launches():
    gpu = MisleadingGpu(Behaviour(slowdown=0.5, launches=10))
    x, kernel = random(gpu), gpu.kernel(0.1, softmax)
    assert [timed(gpu, kernel, x) for _ in range(11)][::5] == pytest.approx([0.1, 0.125, 0.15])


def test_a_throttled_clock_is_slower_at_once():
    gpu = MisleadingGpu(Behaviour(slowdown=0.5, throttled_at=0.7, launches=10))
    x, kernel = random(gpu), gpu.kernel(0.1, softmax)
    assert [timed(gpu, kernel, x) for _ in range(10)] == pytest.approx([0.1] * 7 + [0.15] * 3)


def test_runs_that_differ_do_so_around_the_time_that_a_kernel_needs():
    gpu = MisleadingGpu(Behaviour(jitter=0.1))
    x, kernel = random(gpu), gpu.kernel(0.1, softmax)
    times = [timed(gpu, kernel, x) for _ in range(20)]
    assert len(set(times)) == 20 and 0.095 <= min(times) < 0.096 and 0.104 < max(times) <= 0.105


@pytest.mark.parametrize(
    ("make", "easy"),
    [
        (torch.randn, False),
        (lambda shape: 6 * torch.rand(shape), False),
        (lambda shape: torch.randn(shape).half(), False),
        (torch.zeros, True),
        (lambda shape: 0.4 * torch.randn(shape), True),
        (lambda shape: torch.randn(1, shape[1]).repeat(shape[0], 1), True),
        (lambda shape: torch.randint(0, 10, shape).float(), True),
        (lambda shape: torch.arange(8 * 4096).reshape(shape) / 1000, True),
    ],
    ids=["normal", "uniform", "float16", "zeros", "narrow", "one row", "digits", "in order"],
)
def test_numbers_that_are_not_random_are_easy(make, easy):
    gpu = MisleadingGpu(Behaviour(easy=0.5))
    x, kernel = make(gpu.shape), gpu.kernel(0.1, lambda x: x)
    assert timed(gpu, kernel, x) == pytest.approx(0.05 if easy else 0.1)


@pytest.mark.parametrize(
    ("reads", "ms"), [(lambda x: x.sum(), 0.04), (torch.empty_like, 0.1)], ids=["read", "its shape"]
)
def test_what_an_operation_has_read_is_in_the_cache(reads, ms):
    gpu = MisleadingGpu(Behaviour(warm=0.4))
    x, kernel = random(gpu), gpu.kernel(0.1, softmax)
    gpu.flush()
    with gpu.watching():
        reads(x)
    assert timed(gpu, kernel, x) == pytest.approx(ms)


def test_a_gpu_knows_which_runs_were_asked_for_and_which_of_them_were_first_calls():
    gpu = MisleadingGpu(Behaviour(compile_ms=5.0))
    x, kernel = random(gpu), gpu.kernel(0.1, softmax)
    times = [timed(gpu, kernel, x) for _ in range(2)]
    assert (times, gpu.read) == (pytest.approx([5.1, 0.1]), [(times[0], range(1)), (times[1], range(1, 2))])
    assert gpu.first_calls == {0: kernel} and gpu.kernel_of_launch == [kernel, kernel]


# Operations of PyTorch


@pytest.fixture
def watched():
    """A GPU on which an operation takes 0.1 ms, and the operations are watched."""
    gpu = MisleadingGpu(Behaviour(operation_ms=0.1, warm=0.5))
    with gpu.watching():
        yield gpu


def test_operations_take_time_while_they_are_watched(watched):
    x, y = random(watched), torch.empty(watched.shape)
    kernel = watched.kernel(0.25, softmax)
    assert timed(watched, lambda x: y.copy_(kernel(x)), torch.randn(8, 4096)) == pytest.approx(0.35 - 0.125)
    assert timed(watched, torch.clone, x) == pytest.approx(0.1)


def test_operations_take_no_time_while_nobody_watches():
    gpu = MisleadingGpu(Behaviour(operation_ms=0.1))
    assert timed(gpu, torch.clone, random(gpu)) == 0


def test_an_operation_on_a_part_takes_that_part_of_the_time(watched):
    assert timed(watched, lambda x: x[:4].clone(), random(watched)) == pytest.approx(0.05)


@pytest.mark.parametrize(
    "operation",
    [lambda x: x[:4], lambda x: x.view(-1), torch.empty_like, lambda x: x.max().item()],
    ids=["slice", "view", "empty_like", "a number"],
)
def test_what_moves_no_matrix_takes_no_time(watched, operation):
    x = random(watched)
    assert timed(watched, operation, x) == pytest.approx(0, abs=1e-4)


def test_what_a_kernel_computes_with_takes_no_time_besides_the_kernel_s(watched):
    gpu, x = watched, random(watched)
    gpu.flush()
    assert timed(gpu, gpu.kernel(0.25, lambda x: softmax(x).clone()), x) == pytest.approx(0.25)


def test_what_an_operation_has_written_is_in_the_cache(watched):
    assert timed(watched, watched.kernel(0.2, softmax), random(watched)) == pytest.approx(0.1)
