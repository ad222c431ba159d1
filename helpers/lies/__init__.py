"""Lesson 08: pairs of a benchmark that lies and one that does not, and the figures of both for the same kernels.

`see` shows lying benchmarks, `expose` the honest ones and why they differ (display.py; the benchmarks are in
benchmarks.py). `repairs` removes the lies from the published exhibit, one after the other (exhibit.py). The benchmark
of exercise 8.2 is in exercise.py. With a GPU everything is measured; without one, recorded figures are shown.
"""

from helpers.gpu.real import RealGpu as Gpu
from helpers.lies.benchmarks import LIES, Lie
from helpers.lies.display import expose, measured_or_recorded, origin, run_all, see
from helpers.lies.exercise import believed, lying_benchmark
from helpers.lies.exercise import honest_benchmark as benchmark
from helpers.lies.exhibit import published, repairs

__all__ = [
    "LIES", "Gpu", "Lie", "believed", "benchmark", "expose", "lying_benchmark", "measured_or_recorded", "origin",
    "published", "repairs", "run_all", "see",
]  # fmt: skip
