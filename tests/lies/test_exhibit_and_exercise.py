"""The exhibit with its repairs, and the benchmark of exercise 8.2, as handed out and as solved."""

import pytest
import torch

from helpers.gpu.misleading import Behaviour, MisleadingGpu
from helpers.gpu.real import RealGpu
from helpers.lies import exercise, exhibit

# The exhibit and its repairs


def test_the_published_kernel_computes_512_of_4096_columns():
    x = torch.randn(3, 4096, device=exhibit.DEVICE)
    y = exhibit.vectorized_softmax(torch.zeros_like(x), x)
    torch.testing.assert_close(y[:, :512], torch.softmax(x[:, :512], dim=1))
    assert not y[:, 512:].any()


def test_each_repair_takes_one_lie_away(monkeypatch):
    steps = []
    monkeypatch.setattr(RealGpu, "shape", (4, 8))
    monkeypatch.setattr(exhibit, "launched_ms", lambda call: steps.append([call]) or float(len(steps)))
    monkeypatch.setattr(exhibit, "in_turns", lambda x, *functions: steps.append(functions) or [3.0, 4.0])
    found = exhibit.repairs({"max diff": 0.1, "torch.softmax, ms": 8.0, "vectorized, ms": 2.0})
    assert {step: tuple(ms.values()) for step, ms in found.items()} == {
        "as published": (8.0, 2.0),
        "a warm-up, and the median": (1.0, 2.0),
        "in turns, on a cold L2": (3.0, 4.0),
        "no copy in the baseline": (3.0, 4.0),
        "all 4096 columns": (3.0, 4.0),
    }
    assert all(list(ms) == ["torch.softmax, ms", "kernel, ms"] for ms in found.values())
    (theirs,), (ours,), cold, alone, whole = steps
    x = theirs.args[0]
    torch.testing.assert_close(theirs(), torch.softmax(x, dim=1))
    assert theirs() is cold[0](x)  # the tensor that both copy their result into
    assert alone[0] is whole[0] and alone[0].func is torch.softmax and alone[0].keywords == {"dim": 1}
    assert ours.func is cold[1].func is alone[1].func is exhibit.vectorized_softmax
    assert whole[1] is exhibit.single_tile_softmax


# The exercise


def right(x):
    return torch.softmax(x, dim=1) * (1 + 3e-7)


EVERYTHING = Behaviour(in_queue=True, compile_ms=200, warm=0.4, easy=0.5, slow_run=3, operation_ms=0.4)


def test_the_benchmark_as_solved_says_what_is_true_where_everything_misleads():
    gpu = MisleadingGpu(EVERYTHING)
    with gpu.watching():
        mine, theirs = exercise.honest_benchmark(gpu, gpu.kernel(0.4, right), gpu.kernel(0.8, right))
    assert (mine, theirs) == (pytest.approx(0.4, rel=0.02), pytest.approx(0.8, rel=0.02))


def test_the_benchmark_as_solved_calls_both_once_before_it_times_them_thirty_times():
    mine, theirs = MisleadingGpu(Behaviour()), MisleadingGpu(Behaviour())
    exercise.honest_benchmark(MisleadingGpu(Behaviour()), mine.kernel(0.4, right), theirs.kernel(0.8, right))
    assert mine.kernel_launches == theirs.kernel_launches == 31


def test_the_benchmark_as_solved_lets_both_take_turns():
    gpu = MisleadingGpu(Behaviour(slowdown=0.5, launches=62))
    mine, theirs = exercise.honest_benchmark(gpu, gpu.kernel(0.4, right), gpu.kernel(0.4, right))
    assert mine == pytest.approx(theirs, rel=0.02)


@pytest.mark.parametrize(
    "wrong", [torch.zeros_like, lambda x: torch.softmax(x, dim=1) * 1.001, lambda x: x * torch.nan]
)
def test_the_benchmark_as_solved_refuses_a_kernel_that_is_wrong(wrong):
    gpu = MisleadingGpu(Behaviour())
    with pytest.raises(ValueError, match="mine is wrong"):
        exercise.honest_benchmark(gpu, gpu.kernel(0.4, wrong), gpu.kernel(0.8, right))


def test_the_benchmark_as_handed_out_believes_zeros():
    gpu = MisleadingGpu(Behaviour())
    mine, theirs = exercise.lying_benchmark(gpu, gpu.kernel(0.4, torch.zeros_like), gpu.kernel(0.8, right))
    assert (mine, theirs) == (pytest.approx(0.4), pytest.approx(0.8))


def test_what_is_believed_compares_lesson_02_s_kernel_with_torch_s():
    def benchmark(gpu, mine, theirs):
        assert isinstance(gpu, RealGpu) and mine is exercise.single_tile_softmax and theirs.func is torch.softmax
        return 1.0, 2.0

    assert exercise.believed(benchmark) == {"torch.softmax, ms": 2.0, "kernel, ms": 1.0}
