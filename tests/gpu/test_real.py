"""The GPU that is there, and that it and the simulated one have what benchmarks ask of a GPU."""

import time

import pytest
import torch

from helpers.gpu import Gpu, Mark, real
from helpers.gpu.misleading import Behaviour, MisleadingGpu
from helpers.gpu.real import RealGpu


class Event:
    """An event that notes what it was made for and when it was recorded."""

    def __init__(self, enable_timing=False):
        self.enable_timing, self.recorded = enable_timing, 0

    def record(self):
        self.recorded += 1

    def elapsed_time(self, end):
        return 0.0


@pytest.mark.parametrize("gpu", [RealGpu(), MisleadingGpu(Behaviour())], ids=["real", "misleading"])
def test_a_benchmark_can_be_given_either(gpu):
    assert isinstance(gpu, Gpu)


def test_a_simulated_mark_is_what_a_real_one_is():
    assert isinstance(MisleadingGpu(Behaviour()).record(), Mark) and issubclass(torch.cuda.Event, Mark)


def test_the_host_s_clock_is_in_milliseconds(monkeypatch):
    monkeypatch.setattr(time, "perf_counter", lambda: 1.5)
    assert RealGpu().now() == 1500.0


def test_a_mark_is_put_into_the_queue_at_once_and_can_be_timed(monkeypatch):
    monkeypatch.setattr(torch.cuda, "Event", Event)
    mark = RealGpu().record()
    assert (mark.enable_timing, mark.recorded) == (True, 1)


def test_a_gpu_is_waited_for(monkeypatch):
    waited = []
    monkeypatch.setattr(torch.cuda, "synchronize", lambda: waited.append(True))
    RealGpu().synchronize()
    assert waited == [True]


def test_a_flush_overwrites_512_mb_of_one_tensor(monkeypatch):
    monkeypatch.setattr(real, "DEVICE", torch.device("meta"))
    real._flushed.cache_clear()
    RealGpu().flush()
    assert real._flushed().nbytes == 512 * 2**20 and real._flushed() is real._flushed()
    real._flushed.cache_clear()
