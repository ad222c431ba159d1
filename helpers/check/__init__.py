"""The checks of the exercises: each takes the learner's function, or answer, and returns a Report.

A softmax is right if it agrees with float64 on every case; a kernel must also stay within its traffic budget and do the
work itself. `yours_or_ours(name)` gives later cells the learner's function where it has passed, and the course's
where it has not; `yours(name)` lets it join a comparison.
"""

from __future__ import annotations

import functools
import math
import random
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass

import torch

from helpers import kernels, traffic
from helpers.check import cases
from helpers.check.report import Finding, Report
from helpers.runtime import DEVICE

__all__ = [
    "Finding", "Report", "eager", "masked", "merge", "online", "overflow", "recurrence", "single_tile", "two_pass",
    "yours", "yours_or_ours",
]  # fmt: skip

Pair = tuple[float, float]
Softmax = Callable[[torch.Tensor], torch.Tensor]


@dataclass(frozen=True)
class _Exercise:
    """A softmax to write: its cases, its points, and for a kernel the loads per element that it may make."""

    name: str
    makers: Mapping[str, cases.Make]
    points: int
    loads: float | None = None
    untouched: Softmax | None = None
    """What the starter code computes, where it stores something."""


def eager(fn: Softmax) -> Report:
    """Checks a softmax written with PyTorch operations against float64, on values that overflow the naive form."""
    return _check(_Exercise("eager", cases.STABLE, points=2), fn)


def single_tile(fn: Softmax) -> Report:
    """Checks a kernel with one program per row, for contiguous rows whose length is a power of two. 1 load, 1 store."""
    return _check(_Exercise("single_tile", cases.POWER_OF_TWO, points=4, loads=1), fn)


def masked(fn: Softmax) -> Report:
    """Checks a single-tile kernel for rows of any length, strides and −inf. 1 load and 1 store per element."""
    return _check(_Exercise("masked", cases.ANY_LENGTH, points=4, loads=1), fn)


def two_pass(fn: Softmax) -> Report:
    """Checks a kernel that streams the row in tiles: maximum, then sum, then write. 3 loads and 1 store per element."""
    return _check(_Exercise("two_pass", cases.STREAMED, points=4, loads=3), fn)


def online(fn: Softmax) -> Report:
    """Checks a kernel that finds maximum and sum in one pass over the row. 2 loads and 1 store per element."""

    def untouched(x: torch.Tensor) -> torch.Tensor:
        return torch.exp(x.float()) / 0

    return _check(_Exercise("online", cases.STREAMED, points=5, loads=2, untouched=untouched), fn)


def overflow(limits: Mapping[torch.dtype, float | None]) -> Report:
    """Checks, for each dtype, the largest x whose exp is still finite: exact to 0.01, or to the dtype's own spacing."""
    dtypes = (torch.float32, torch.bfloat16, torch.float16)
    if not isinstance(limits, Mapping) or not set(dtypes) <= set(limits):
        raise TypeError(f"check.overflow takes a dict with the keys {', '.join(map(str, dtypes))}; got {limits!r}.")
    if all(limits[dtype] is None for dtype in dtypes):
        return Report("overflow", 2, attempted=False, findings=())
    findings = tuple(_overflow_finding(dtype, limits[dtype]) for dtype in dtypes)
    return Report("overflow", 2, attempted=True, findings=findings)


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
    return _keep(fn, _check_pairs("merge", 2, fn, given))


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
    return _check_pairs("recurrence", 1, fn, given, untouched=(-math.inf, 0.0))


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


def _keep(fn: Callable, report: Report) -> Report:
    if report.passed:
        _passed[report.exercise] = fn
    else:
        _passed.pop(report.exercise, None)
    return report


@dataclass
class _Seen:
    """What one case showed: a finding, whether anything was attempted there, and the traffic."""

    finding: Finding
    attempted: bool
    counted: traffic.Traffic | None = None


def _check(exercise: _Exercise, fn: Softmax) -> Report:
    _require_function(exercise.name, fn)
    seed = random.SystemRandom().randrange(2**31)
    generator = torch.Generator().manual_seed(seed)
    with _unwritten_memory_is_nan():
        seen = [_run_case(exercise, case, fn, make(generator), seed) for case, make in exercise.makers.items()]
    if not any(case.attempted for case in seen):
        return _keep(fn, Report(exercise.name, exercise.points, attempted=False, findings=()))
    findings = [case.finding for case in seen]
    if exercise.loads is not None and all(finding.ok for finding in findings):
        findings += [_budget(exercise, seen), _own_work(seen)]
    return _keep(fn, Report(exercise.name, exercise.points, attempted=True, findings=tuple(findings)))


def _require_function(name: str, fn: object) -> None:
    if hasattr(fn, "fn") and hasattr(fn, "run"):
        raise TypeError(f"check.{name} takes the driver, the Python function that launches {fn.fn.__name__}.")
    if not callable(fn):
        raise TypeError(f"check.{name} takes your function itself, as in check.{name}(my_function); got {fn!r}.")


@contextmanager
def _unwritten_memory_is_nan() -> Iterator[None]:
    """Makes torch.empty return NaN, so that a result never written cannot look right by accident."""
    before = torch.are_deterministic_algorithms_enabled(), torch.is_deterministic_algorithms_warn_only_enabled()
    torch.use_deterministic_algorithms(True, warn_only=True)
    try:
        yield
    finally:
        torch.use_deterministic_algorithms(before[0], warn_only=before[1])


def _run_case(exercise: _Exercise, case: str, fn: Softmax, x: torch.Tensor, seed: int) -> _Seen:
    given = _to_device(x)
    try:
        counted = traffic.count(fn, given)
    except NotImplementedError:
        return _Seen(Finding(case, False, "not implemented"), attempted=False)
    except Exception as error:
        return _Seen(Finding(case, False, _sentence(error)), attempted=True)
    y = counted.result
    if y is None:
        return _Seen(Finding(case, False, "got None; is a return missing?"), bool(counted.operations), counted)
    if not isinstance(y, torch.Tensor) or y.shape != x.shape or y.dtype != x.dtype:
        got = f"{tuple(y.shape)} {y.dtype}" if isinstance(y, torch.Tensor) else type(y).__name__
        return _Seen(Finding(case, False, f"expected a tensor {tuple(x.shape)} {x.dtype}, got {got}"), True, counted)
    if exercise.loads is not None and not counted.kernels:
        return _Seen(Finding(case, False, "no Triton kernel was launched"), True, counted)
    if exercise.loads is not None and not any(o.stores for o in counted.operations if o.is_kernel):
        return _Seen(Finding(case, False, "the kernel stored nothing"), _eager_work(counted) != [], counted)
    if exercise.untouched is not None and _same(y.cpu(), exercise.untouched(x).to(y.dtype)):
        return _Seen(Finding(case, False, "m and l are still what they were before the loop"), False, counted)
    if not _same(given.cpu(), x):
        return _Seen(Finding(case, False, "the input was overwritten"), True, counted)
    return _Seen(_compare(case, x, y.cpu(), seed), True, counted)


def _budget(exercise: _Exercise, seen: list[_Seen]) -> Finding:
    elements = sum(case.counted.elements for case in seen)
    loads = sum(case.counted.loads for case in seen) / elements
    stores = sum(case.counted.stores for case in seen) / elements
    ok = loads <= exercise.loads + 0.01 and stores <= 1.01
    needs = f"{exercise.loads:.1f} and 1.0 are enough"
    return Finding("trips to memory", ok, f"{loads:.1f} loads and {stores:.1f} stores per element; {needs}")


_MOVES = {"clone", "copy_", "_to_copy", "fill_", "zero_", "full", "full_like", "zeros", "zeros_like", "contiguous"}


def _eager_work(counted: traffic.Traffic) -> list[str]:
    """Names of the PyTorch operations that read something, other than to copy or to fill."""
    return [o.name for o in counted.operations if not o.is_kernel and o.name not in _MOVES and o.loads]


def _own_work(seen: list[_Seen]) -> Finding:
    names = sorted({name for case in seen for name in _eager_work(case.counted)})
    if names:
        return Finding("your own kernel", False, f"PyTorch computed {', '.join(names)}; the kernel is to do it")
    return Finding("your own kernel", True, "no PyTorch operation took part")


def _to_device(x: torch.Tensor) -> torch.Tensor:
    """Copies x to the device with its strides, a gap between rows included."""
    base = torch.as_strided(x, (x.untyped_storage().nbytes() // x.element_size(),), (1,), 0).to(DEVICE, copy=True)
    return torch.as_strided(base, x.shape, x.stride(), x.storage_offset())


def _same(a: torch.Tensor, b: torch.Tensor) -> bool:
    return torch.equal(a.isnan(), b.isnan()) and torch.equal(a.nan_to_num(0), b.nan_to_num(0))


def _compare(case: str, x: torch.Tensor, y: torch.Tensor, seed: int) -> Finding:
    want = cases.expected(x)
    rtol, atol = cases.tolerance(x.dtype)
    wrong = ~torch.isclose(y.double(), want, rtol=rtol, atol=atol, equal_nan=True)
    if not wrong.any():
        return Finding(case, True, f"within {rtol:.0e} of float64")
    row, col = (int(i) for i in wrong.nonzero()[0])
    where = f"first at row {row}, column {col}: expected {want[row, col]:.6g}, got {y[row, col].item():.6g}"
    return Finding(case, False, f"{int(wrong.sum())} of {wrong.numel()} elements are wrong, {where} (seed {seed})")


def _check_pairs(
    name: str, points: int, fn: Callable, given: Mapping[str, tuple[tuple, list[float]]], untouched: Pair | None = None
) -> Report:
    """Checks a function that returns a pair (m, l); `given` has its arguments and the elements it speaks of."""
    _require_function(name, fn)
    findings, attempted = [], False
    for case, (args, elements) in given.items():
        try:
            got = fn(*args)
        except NotImplementedError:
            findings.append(Finding(case, False, "not implemented"))
            continue
        except Exception as error:
            findings.append(Finding(case, False, _sentence(error)))
            attempted = True
            continue
        attempted |= got is not None and got != untouched
        findings.append(_compare_pairs(case, got, _statistics(elements)))
    return Report(name, points, attempted=attempted, findings=tuple(findings) if attempted else ())


def _statistics(part: list[float]) -> Pair:
    m = max(part)
    return m, sum(math.exp(x - m) for x in part) if m > -math.inf else 0.0


def _compare_pairs(case: str, got: object, want: Pair) -> Finding:
    try:
        m, l = (float(value) for value in got)
    except (TypeError, ValueError):
        return Finding(case, False, f"expected a pair (m, l), got {got!r}")
    ok = m == want[0] and math.isclose(l, want[1], rel_tol=1e-6, abs_tol=1e-300)
    return Finding(case, ok, f"expected ({want[0]:.9g}, {want[1]:.9g}), got ({m:.9g}, {l:.9g})")


def _sentence(error: Exception) -> str:
    text = " ".join(str(error).split())[:300]
    return f"{type(error).__name__}: {text}" if text else type(error).__name__
