"""The checks of the exercises: each takes the learner's function, or answer, and returns a Report.

`yours_or_ours(name)` gives later cells the learner's function where it has passed, and the course's where it has not;
`yours(name)` lets it join a comparison.
"""

from __future__ import annotations

import functools
import math
import random
from collections.abc import Callable, Mapping

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


def eager(fn: Softmax) -> Report:
    """Checks a softmax written with PyTorch operations against float64, on values that overflow the naive form."""
    return _check("eager", fn, cases.STABLE, max_points=2, needs_kernel=False)


def single_tile(fn: Softmax) -> Report:
    """Checks a kernel with one program per row, for contiguous rows whose length is a power of two."""
    return _check("single_tile", fn, cases.POWER_OF_TWO, max_points=4)


def masked(fn: Softmax) -> Report:
    """Checks a single-tile kernel for rows of any length, strides and −inf."""
    return _check("masked", fn, cases.ANY_LENGTH, max_points=4)


def two_pass(fn: Softmax) -> Report:
    """Checks a kernel that streams the row in tiles: maximum, then sum, then write."""
    return _check("two_pass", fn, cases.STREAMED, max_points=4)


def online(fn: Softmax) -> Report:
    """Checks a kernel that finds maximum and sum in one pass over the row."""
    return _check("online", fn, cases.STREAMED, max_points=5)


def overflow(limits: Mapping[torch.dtype, float | None]) -> Report:
    """Checks, for each dtype, the largest x whose exp is still finite: exact to 0.01, or to the dtype's own spacing."""
    if any(limits.get(dtype) is None for dtype in (torch.float32, torch.bfloat16, torch.float16)):
        return Report("overflow", 2, attempted=False, findings=())

    def finding(dtype: torch.dtype, limit: float) -> Finding:
        x = torch.tensor(limit, dtype=torch.float64)
        step = max(0.01, torch.finfo(dtype).eps * 2.0 ** math.floor(math.log2(max(1.0, abs(limit)))))
        below, above = (torch.exp(v.to(dtype).double()).to(dtype) for v in (x, x + step))
        if not math.isfinite(below):
            return Finding(
                str(dtype), False, f"exp({limit:g}) is already inf; it is stored as {x.to(dtype).item():.7g}"
            )
        return Finding(str(dtype), bool(above.isinf()), f"exp({limit:g}) is finite; is exp({limit + step:g}) inf?")

    findings = tuple(finding(dtype, float(limit)) for dtype, limit in limits.items())
    return Report("overflow", 2, attempted=True, findings=findings)


def recurrence(fn: Callable[[list[list[float]]], Pair]) -> Report:
    """Checks the textbook recurrence: blocks of a row in, the row's maximum and its sum of exp(x − m) out."""
    rows = {
        "descending": [[9.0, 7.0], [4.0, 2.0], [1.0]],
        "ascending": [[1.0, 2.0], [4.0, 7.0], [9.0]],
        "steeply ascending": [[-900.0, -400.0], [0.0, 300.0], [650.0]],
        "one block": [[0.5, -0.5, 2.0]],
        "random": [[random.gauss(0, 20) for _ in range(4)] for _ in range(5)],
    }
    findings = []
    for name, blocks in rows.items():
        try:
            got = fn([list(block) for block in blocks])
        except Exception as error:
            findings.append(Finding(name, False, _sentence(error)))
            continue
        if got is None or tuple(got) == (-math.inf, 0.0):
            return Report("recurrence", 1, attempted=False, findings=())
        findings.append(_compare_pairs(name, got, _statistics([x for block in blocks for x in block])))
    return Report("recurrence", 1, attempted=True, findings=tuple(findings))


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
    findings = []
    for name, (left, right) in parts.items():
        want = _statistics(left + right)
        try:
            got = fn(_statistics(left), _statistics(right))
        except NotImplementedError:
            got = None
        except Exception as error:
            findings.append(Finding(name, False, _sentence(error)))
            continue
        if got is None:
            return Report("merge", 2, attempted=False, findings=())
        findings.append(_compare_pairs(name, got, want))
    report = Report("merge", 2, attempted=True, findings=tuple(findings))
    return _keep("merge", fn, report)


def yours_or_ours(name: str) -> Callable:
    """Returns the learner's function for exercise `name` where its check has passed, else the course's, and says so."""
    if name not in _OURS:
        raise ValueError(f"no exercise is called {name!r}; there are {', '.join(_OURS)}.")
    if name in _passed:
        print(f"From here on: your {_passed[name].__name__}.")
        return _passed[name]
    print(f"From here on: the course's {_OURS[name].__name__}, until yours passes its check.")
    return _OURS[name]


def yours(name: str, **options: object) -> dict[str, Callable]:
    """Returns {"yours": fn} for a comparison where the learner's function has passed its check, else an empty dict.

    `options`, such as BLOCK=8192, are passed on to the function in every call.
    """
    return {"yours": functools.partial(_passed[name], **options)} if name in _passed else {}


def _keep(name: str, fn: Callable, report: Report) -> Report:
    if report.passed:
        _passed[name] = fn
    else:
        _passed.pop(name, None)
    return report


def _check(
    name: str, fn: Softmax, makers: Mapping[str, cases.Make], max_points: int, needs_kernel: bool = True
) -> Report:
    if not callable(fn):
        raise TypeError(f"check.{name} takes your function itself, as in check.{name}(my_softmax); got {fn!r}.")
    seed = random.SystemRandom().randrange(2**31)
    generator = torch.Generator().manual_seed(seed)
    findings = []
    for case, make in makers.items():
        finding = _run_case(case, fn, make(generator), needs_kernel, seed)
        if finding is None:
            return _keep(name, fn, Report(name, max_points, attempted=False, findings=()))
        findings.append(finding)
    return _keep(name, fn, Report(name, max_points, attempted=True, findings=tuple(findings)))


def _run_case(case: str, fn: Softmax, x: torch.Tensor, needs_kernel: bool, seed: int) -> Finding | None:
    """Returns what one case shows, or None where nothing has been written yet."""
    given = _to_device(x)
    try:
        counted = traffic.count(fn, given)
    except NotImplementedError:
        return None
    except Exception as error:
        return Finding(case, False, _sentence(error))
    y = counted.result
    if y is None or (needs_kernel and counted.kernels and not any(o.stores for o in counted.operations if o.is_kernel)):
        return None
    if not isinstance(y, torch.Tensor) or y.shape != x.shape or y.dtype != x.dtype:
        got = f"{tuple(y.shape)} {y.dtype}" if isinstance(y, torch.Tensor) else type(y).__name__
        return Finding(case, False, f"expected a tensor {tuple(x.shape)} {x.dtype}, got {got}")
    if needs_kernel and not counted.kernels:
        return Finding(case, False, "no Triton kernel was launched")
    if not torch.equal(given.cpu().nan_to_num(7), x.nan_to_num(7)):
        return Finding(case, False, "the input was overwritten")
    return _compare(case, x, y.cpu(), seed)


def _to_device(x: torch.Tensor) -> torch.Tensor:
    """Copies x to the device with its strides, a gap between rows included."""
    base = torch.as_strided(x, (x.untyped_storage().nbytes() // x.element_size(),), (1,), 0).to(DEVICE, copy=True)
    return torch.as_strided(base, x.shape, x.stride(), x.storage_offset())


def _compare(case: str, x: torch.Tensor, y: torch.Tensor, seed: int) -> Finding:
    want = cases.expected(x)
    rtol, atol = cases.tolerance(x.dtype)
    wrong = ~torch.isclose(y.double(), want, rtol=rtol, atol=atol, equal_nan=True)
    if not wrong.any():
        return Finding(case, True, f"within {rtol:.0e} of float64")
    row, col = (int(i) for i in wrong.nonzero()[0])
    where = f"first at row {row}, column {col}: expected {want[row, col]:.6g}, got {y[row, col].item():.6g}"
    return Finding(case, False, f"{int(wrong.sum())} of {wrong.numel()} elements are wrong, {where} (seed {seed})")


def _statistics(part: list[float]) -> Pair:
    m = max(part)
    return m, sum(math.exp(x - m) for x in part) if m > -math.inf else 0.0


def _compare_pairs(name: str, got: object, want: Pair) -> Finding:
    try:
        m, l = (float(value) for value in got)
    except (TypeError, ValueError):
        return Finding(name, False, f"expected a pair (m, l), got {got!r}")
    ok = m == want[0] and math.isclose(l, want[1], rel_tol=1e-12, abs_tol=1e-300)
    return Finding(name, ok, f"expected ({want[0]:g}, {want[1]:g}), got ({m:g}, {l:g})")


def _sentence(error: Exception) -> str:
    return f"{type(error).__name__}: {str(error).strip().splitlines()[0] if str(error).strip() else 'no message'}"
