"""The checks of the exercises: each takes the learner's function, or answer, and returns a Report.

A softmax is right if it agrees with float64 on every case; a kernel must also stay within its traffic budget and do the
work itself. Whatever the function does, it does it in a child process, and a mistake that is known is named.
`yours_or_ours(name)` gives later cells the learner's function where it has passed, and the course's where it has not;
`yours(name)` lets it join a comparison.
"""

from __future__ import annotations

import functools
import math
import random
from collections.abc import Callable, Mapping
from typing import Any

import torch

from helpers import kernels, lies, progress
from helpers.check import benchmarking, cases, choosing, mistakes, sharing, trial
from helpers.check.judge import Exercise, compare_pairs, judge_answers, judge_softmax
from helpers.check.report import Finding, Report
from helpers.choosing.launches import Launch, of_gpu

__all__ = [
    "Finding", "Report", "benchmark", "cliff", "deadlock", "eager", "exhibit", "l2", "masked", "merge", "my_pick",
    "occupancy", "online", "overflow", "recurrence", "single_tile", "spill", "split_row", "two_pass", "yours",
    "yours_or_ours",
]  # fmt: skip

Pair = tuple[float, float]
Softmax = Callable[[torch.Tensor], torch.Tensor]


def eager(fn: Softmax) -> Report:
    """Checks a softmax written with PyTorch operations against float64, on values that overflow the naive form."""
    return _check(Exercise("eager", cases.STABLE, 2, mistakes.EAGER), fn)


def single_tile(fn: Softmax) -> Report:
    """Checks a kernel with one program per row, for contiguous rows whose length is a power of two. 1 load, 1 store."""
    return _check(Exercise("single_tile", cases.POWER_OF_TWO, 4, mistakes.SINGLE_TILE, loads=1), fn)


def masked(fn: Softmax) -> Report:
    """Checks a single-tile kernel for rows of any length, strides and −inf. 1 load and 1 store per element."""
    return _check(Exercise("masked", cases.ANY_LENGTH, 4, mistakes.MASKED, loads=1), fn)


def two_pass(fn: Softmax) -> Report:
    """Checks a kernel that streams the row in tiles: maximum, then sum, then write. 3 loads and 1 store per element."""
    return _check(Exercise("two_pass", cases.STREAMED, 4, mistakes.TWO_PASS, loads=3), fn)


def online(fn: Softmax) -> Report:
    """Checks a kernel that finds maximum and sum in one pass over the row. 2 loads and 1 store per element."""

    return _check(Exercise("online", cases.STREAMED, 5, mistakes.ONLINE, loads=2, untouched=_exp_by_zero), fn)


def split_row(fn: Softmax) -> Report:
    """Checks two kernels whose programs share each row and meet in a buffer of pairs. 2 loads and 1 store per element.

    The buffer may cost a tenth of a trip more.
    """
    return _check(
        Exercise("split_row", cases.SPLIT, 4, mistakes.SPLIT_ROW, loads=2, untouched=_exp_by_zero, buffer=0.1), fn
    )


def _exp_by_zero(x: torch.Tensor) -> torch.Tensor:
    """What a kernel stores where 0 is subtracted and the sum is 0."""
    return torch.exp(x.float()) / 0


def overflow(limits: Mapping[torch.dtype, float | None]) -> Report:
    """Checks, for each dtype, the largest x whose exp is still finite: exact to 0.01, or to the dtype's own spacing."""
    dtypes = (torch.float32, torch.bfloat16, torch.float16)
    if not isinstance(limits, Mapping) or not set(dtypes) <= set(limits):
        raise TypeError(f"check.overflow takes a dict with the keys {', '.join(map(str, dtypes))}; got {limits!r}.")
    if all(limits[dtype] is None for dtype in dtypes):
        return _keep(limits, Report("overflow", 2, attempted=False, findings=()))
    findings = tuple(_overflow_finding(dtype, trial.number(limits[dtype])) for dtype in dtypes)
    return _keep(limits, Report("overflow", 2, attempted=True, findings=findings))


def _overflow_finding(dtype: torch.dtype, limit: float | None) -> Finding:
    name = str(dtype).removeprefix("torch.")
    if isinstance(limit, bool) or not isinstance(limit, int | float) or not math.isfinite(limit):
        return Finding(name, False, f"needs a finite number; it is {limit!r}")
    spacing = torch.finfo(dtype).eps * 2.0 ** math.floor(math.log2(max(1.0, abs(limit))))
    higher = limit + max(0.01, spacing)
    below, above = (torch.exp(torch.tensor(x, dtype=dtype).double()).to(dtype) for x in (limit, higher))
    if below.isinf():
        stored = torch.tensor(limit, dtype=dtype).item()
        return Finding(name, False, f"exp({limit:g}) is already inf; {limit:g} is stored as {stored:.7g}")
    if not above.isinf():
        return Finding(name, False, f"exp({higher:g}) is finite too; the limit is higher")
    return Finding(name, True, f"exp({limit:g}) is finite, exp({higher:g}) is inf")


def merge(fn: Callable[[Pair, Pair], Pair]) -> Report:
    """Checks a merge of two (m, l) pairs, each the maximum and the sum of exp(x − m) of one part of a row."""
    parts = {
        "the larger maximum on the right": ([1.0, 2.0], [5.0, 3.0]),
        "the larger maximum on the left": ([5.0, 3.0], [1.0, 2.0]),
        "equal maxima": ([4.0, 1.0], [4.0]),
        "far apart, 800 against −800": ([800.0], [-800.0]),
        "random parts": ([random.gauss(0, 9) for _ in range(5)], [random.gauss(0, 9) for _ in range(3)]),
        "only −inf on the left": ([-math.inf], [1.0, 2.0]),
        "only −inf on the right": ([1.0, 2.0], [-math.inf]),
        "only −inf on both sides": ([-math.inf], [-math.inf]),
    }
    given = {name: ((_statistics(left), _statistics(right)), left + right) for name, (left, right) in parts.items()}
    return _check_pairs("merge", 2, mistakes.MERGE, fn, given)


def recurrence(fn: Callable[[list[list[float]]], Pair]) -> Report:
    """Checks the textbook recurrence: blocks of a row in, the row's maximum and its sum of exp(x − m) out."""
    rows = {
        "descending": [[9.0, 7.0], [4.0, 2.0], [1.0]],
        "ascending": [[1.0, 2.0], [4.0, 7.0], [9.0]],
        "steeply ascending": [[-900.0, -400.0], [0.0, 300.0], [650.0]],
        "one block": [[0.5, -0.5, 2.0]],
        "random": [[random.gauss(0, 20) for _ in range(4)] for _ in range(5)],
    }
    given = {name: ((blocks,), [x for block in blocks for x in block]) for name, blocks in rows.items()}
    return _check_pairs("recurrence", 1, mistakes.RECURRENCE, fn, given, untouched=(-math.inf, 0.0))


def occupancy(fn: Callable[[int, int], int]) -> Report:
    """Checks the number of programs that an SM of an H200 holds, a function of registers a thread and num_warps."""
    _require_function("occupancy", fn)
    wanted = {
        f"{registers} registers, {num_warps} warp{'s' if num_warps > 1 else ''}": ((registers, num_warps), programs)
        for registers, num_warps in choosing.RESIDENT
        for programs in [choosing.programs(registers, num_warps)]
    }
    seen = trial.answers(fn, [args for args, _ in wanted.values()])
    return _keep(fn, judge_answers("occupancy", 2, choosing.OCCUPANCY, wanted, seen, choosing.compare_number))


def spill(answers: Mapping[str, int | None]) -> Report:
    """Checks what is said of a tile of 32768 float32 elements and 4 warps on sm_90, against the compiler's report."""
    right = choosing.spill_answers()
    _require_keys("spill", answers, right)
    return _keep(answers, choosing.spill(answers, right))


def cliff(found: Mapping[int | str, object]) -> Report:
    """Checks the longest tile that found["kernel"], lesson 02's, holds without a spill on sm_90, for each num_warps.

    It is compiled for float32 with the tile that was found, and with the next longer one.
    """
    if not isinstance(found, Mapping) or set(found) != {"kernel", *choosing.CLIFF_WARPS}:
        keys = ", ".join(map(str, choosing.CLIFF_WARPS))
        raise TypeError(f"check.cliff takes a dict with your kernel as 'kernel', and the keys {keys}; got {found!r}.")
    return _keep(found, choosing.cliff(found))


def my_pick(fn: Callable[[int, int, str], Launch]) -> Report:
    """Checks a rule that picks a Launch for (n_cols, n_rows, dtype), on recorded shapes that were held out.

    It has to take no more than 1.15 times as long as the best launch, in the geometric mean over each kind of shape.
    Half of the points for a rule that is not as good, but loses less than the textbook's.
    """
    _require_function("my_pick", fn)
    shapes = of_gpu(choosing.TARGET).held_out
    return _keep(fn, choosing.pick(shapes, trial.answers(fn, [(s.n_cols, s.n_rows, s.dtype) for s in shapes])))


def exhibit(found: Mapping[str, str | None]) -> Report:
    """Checks which line of lesson 07's exhibit, by its letter, does what it is charged with."""
    _require_keys("exhibit", found, benchmarking.EXHIBIT)
    return _keep(found, benchmarking.exhibit(found))


def benchmark(fn: Callable[[Any, Callable, Callable], tuple[float, float]]) -> Report:
    """Checks a benchmark(gpu, mine, theirs) on simulated GPUs, each of which misleads in one way, and names its lies.

    It is to return the milliseconds that each of the two functions needs on random data that are not in the cache, and
    to raise ValueError where mine(x) is no softmax. Half of the points where at most two lies are left.
    """
    _require_function("benchmark", fn)
    seen = trial.answers(functools.partial(benchmarking.attempt, fn), [(case,) for case in benchmarking.RUNS])
    return _keep(fn, benchmarking.benchmark(dict(zip(benchmarking.RUNS, seen, strict=True))))


def deadlock(least: Mapping[str, int | None]) -> Report:
    """Checks, for each launch of waiting.VARIANTS, the fewest places on which it comes to an end, by running it."""
    _require_keys("deadlock", least, sharing.VARIANTS)
    return _keep(least, sharing.deadlock(least))


def l2(rows: float | None) -> Report:
    """Checks up to how many rows of 131072 float32 the second launch finds its input in the L2 cache of an H200."""
    rows = trial.number(rows)
    if rows is not None and (isinstance(rows, bool) or not isinstance(rows, int | float)):
        raise TypeError(f"check.l2 takes a number of rows; got {rows!r}.")
    return _keep(rows, sharing.l2(rows))


def _merge(a: Pair, b: Pair) -> Pair:
    """The pair (m, l) of two parts of a row together."""
    m = max(a[0], b[0])
    if m == -math.inf:
        return m, 0.0
    return m, a[1] * math.exp(a[0] - m) + b[1] * math.exp(b[0] - m)


_OURS: dict[str, Callable] = {
    "eager": kernels.eager_softmax,
    "single_tile": kernels.single_tile_softmax,
    "masked": kernels.single_tile_softmax,
    "two_pass": kernels.two_pass_softmax,
    "online": kernels.online_softmax,
    "merge": _merge,
    "benchmark": lies.benchmark,
    "split_row": kernels.split_row_softmax,
}
_passed: dict[str, Callable] = {}


def yours_or_ours(name: str) -> Callable:
    """Returns the learner's function for exercise `name` where its check has passed, else the course's, and says so."""
    _known(name)
    if name in _passed:
        print(f"From here on: your {getattr(_passed[name], '__name__', 'function')}.")
        return _passed[name]
    print(f"From here on: the course's {_OURS[name].__name__.lstrip('_')}, until yours passes its check.")
    return _OURS[name]


def yours(name: str, **options: object) -> dict[str, Callable]:
    """Returns {"yours": fn} for a comparison where the learner's function has passed its check, else an empty dict.

    `options`, such as BLOCK=8192, are passed on to the function in every call.
    """
    _known(name)
    return {"yours": functools.partial(_passed[name], **options)} if name in _passed else {}


def _known(name: str) -> None:
    if name not in _OURS:
        raise ValueError(f"no exercise is called {name!r}; there are {', '.join(_OURS)}.")


def _require_keys(name: str, answers: object, keys: Mapping) -> None:
    if not isinstance(answers, Mapping) or set(answers) != set(keys):
        raise TypeError(f"check.{name} takes a dict with the keys {', '.join(map(repr, keys))}; got {answers!r}.")


def _keep(answer: object, report: Report) -> Report:
    if report.passed:
        _passed[report.exercise] = answer
    else:
        _passed.pop(report.exercise, None)
    progress.record(report)
    return report


def _check(exercise: Exercise, fn: Softmax) -> Report:
    _require_function(exercise.name, fn)
    seed = random.SystemRandom().randrange(2**31)
    trials = trial.softmaxes(fn, exercise.makers, seed, kernel=exercise.loads is not None)
    return _keep(fn, judge_softmax(exercise, seed, trials, lambda: trial.on_gpu(fn, exercise.makers, seed)))


def _check_pairs(
    name: str,
    points: int,
    known: tuple[mistakes.Mistake, ...],
    fn: Callable,
    given: Mapping[str, tuple[tuple, list[float]]],
    untouched: Pair | None = None,
) -> Report:
    """Checks a function that returns a pair (m, l); `given` has its arguments and the elements it speaks of."""
    _require_function(name, fn)
    seen = trial.answers(fn, [args for args, _ in given.values()])
    wanted = {case: (args, _statistics(elements)) for case, (args, elements) in given.items()}
    return _keep(fn, judge_answers(name, points, known, wanted, seen, compare_pairs, untouched))


def _require_function(name: str, fn: object) -> None:
    if hasattr(fn, "fn") and hasattr(fn, "run"):
        raise TypeError(f"check.{name} takes the driver, the Python function that launches {fn.fn.__name__}.")
    if not callable(fn):
        raise TypeError(f"check.{name} takes your function itself, as in check.{name}(my_function); got {fn!r}.")


def _statistics(part: list[float]) -> Pair:
    m = max(part)
    return m, sum(math.exp(x - m) for x in part) if m > -math.inf else 0.0
