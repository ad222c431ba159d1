"""Inputs on which wrong softmax kernels go wrong. Each maker takes a generator and returns one (M, N) CPU tensor."""

from __future__ import annotations

from collections.abc import Callable

import torch

INF = float("inf")
Make = Callable[[torch.Generator], torch.Tensor]


def _randn(*shape: int, scale: float = 1.0, shift: float = 0.0, dtype: torch.dtype = torch.float32) -> Make:
    return lambda g: (torch.randn(*shape, generator=g) * scale + shift).to(dtype)


def _ramp(n_cols: int, first: float, last: float) -> Make:
    return lambda g: torch.linspace(first, last, n_cols).repeat(2, 1) + torch.rand(2, n_cols, generator=g)


def _with_inf(n_cols: int, where: Callable[[torch.Tensor], None]) -> Make:
    def make(g: torch.Generator) -> torch.Tensor:
        x = torch.randn(3, n_cols, generator=g)
        where(x)
        return x

    return make


def _scatter(x: torch.Tensor) -> None:
    x[:, 1::3] = -INF


def _lead(x: torch.Tensor) -> None:
    x[1, : x.shape[1] * 2 // 3] = -INF


def _lead_low(x: torch.Tensor) -> None:
    x -= 1000.0
    _lead(x)


def _trail(x: torch.Tensor) -> None:
    x[1, x.shape[1] // 4 :] = -INF


def _middle(x: torch.Tensor) -> None:
    x[1, 100:-100] = -INF


def _only(x: torch.Tensor) -> None:
    x[1] = -INF


def _nan(x: torch.Tensor) -> None:
    x[1, x.shape[1] // 2] = float("nan")


STABLE: dict[str, Make] = {
    "small random values": _randn(4, 128),
    "large values, around +1000": _randn(4, 128, shift=1000.0),
    "very negative values, around −1000": _randn(4, 128, shift=-1000.0),
    "a wide range in one row": _randn(4, 128, scale=60.0),
    "rows at very different levels": lambda g: torch.randn(3, 128, generator=g) + torch.tensor([[-500.0], [0], [500]]),
    "one column": _randn(3, 1),
}
POWER_OF_TWO: dict[str, Make] = {
    **STABLE,
    "one row of 1024": _randn(1, 1024),
    "more rows than columns": _randn(33, 16),
    "bfloat16": _randn(4, 256, dtype=torch.bfloat16),
}
ANY_LENGTH: dict[str, Make] = {
    **POWER_OF_TWO,
    "127 columns": _randn(3, 127),
    "129 columns": _randn(3, 129),
    "781 columns, around −50": _randn(3, 781, shift=-50.0),
    "781 columns, around −200": _randn(3, 781, shift=-200.0),
    "781 columns, around −2000": _randn(3, 781, shift=-2000.0),
    "300 columns, around −10⁶": _randn(2, 300, scale=5.0, shift=-1e6),
    "781 columns, around +200": _randn(3, 781, shift=200.0),
    "every second column of a larger tensor": lambda g: torch.randn(4, 400, generator=g)[:, ::2],
    "rows with a gap between them": lambda g: torch.randn(5, 300, generator=g)[:, :201],
    "a transposed tensor": lambda g: torch.randn(130, 5, generator=g).t(),
    "float16, 100 columns": _randn(3, 100, dtype=torch.float16),
    "scattered −inf": _with_inf(300, _scatter),
    "a row of only −inf gives NaN": _with_inf(300, _only),
    "NaN stays in its row": _with_inf(300, _nan),
}
STREAMED: dict[str, Make] = {
    **ANY_LENGTH,
    "gently ascending": _ramp(1500, 0.0, 20.0),
    "steeply ascending, range 600": _ramp(1500, -300.0, 300.0),
    "descending": _ramp(1500, 30.0, -30.0),
    "steeply descending, range 600": _ramp(1500, 300.0, -300.0),
    "2048 columns": _randn(2, 2048),
    "2049 columns, around −80": _randn(2, 2049, shift=-80.0),
    "one row of 20,000": _ramp(20_000, -20.0, 20.0),
    "bfloat16, 1500 columns": _randn(2, 1500, dtype=torch.bfloat16),
    "float16, 1500 columns": _randn(2, 1500, scale=3.0, dtype=torch.float16),
    "a long start of only −inf": _with_inf(1800, _lead),
    "a long start of only −inf, then around −1000": _with_inf(1800, _lead_low),
    "a long end of only −inf": _with_inf(1800, _trail),
    "only −inf in the middle": _with_inf(1800, _middle),
}


def expected(x: torch.Tensor) -> torch.Tensor:
    """Softmax of each row in float64 on the CPU."""
    return torch.softmax(x.double().cpu(), dim=1)


def tolerance(dtype: torch.dtype) -> tuple[float, float]:
    """Relative and absolute error allowed: 4 units in the last place, at least 2⁻¹⁵ for the GPU's fast exp; 10⁻⁷."""
    return max(4 * torch.finfo(dtype).eps, 2.0**-15), 1e-7
