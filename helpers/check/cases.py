"""Inputs on which wrong softmax kernels go wrong. Each maker takes a generator and returns one (M, N) CPU tensor."""

from __future__ import annotations

import mmap
import warnings
from collections.abc import Callable, Mapping

import torch

INF = float("inf")
Make = Callable[[torch.Generator], torch.Tensor]


def _randn(*shape: int, scale: float = 1.0, shift: float = 0.0, dtype: torch.dtype = torch.float32) -> Make:
    return lambda g: (torch.randn(*shape, generator=g) * scale + shift).to(dtype)


def _ramp(n_cols: int, first: float, last: float) -> Make:
    return lambda g: torch.linspace(first, last, n_cols) + torch.rand(1, n_cols, generator=g)


def _with_inf(n_cols: int, where: Callable[[torch.Tensor], None], rows: int = 2) -> Make:
    """Random rows, of which `where` changes the last."""

    def make(g: torch.Generator) -> torch.Tensor:
        x = torch.randn(rows, n_cols, generator=g)
        where(x)
        return x

    return make


def _scatter(x: torch.Tensor) -> None:
    x[:, 1::3] = -INF


def _lead(x: torch.Tensor) -> None:
    x[-1, : x.shape[1] * 2 // 3] = -INF


def _lead_low(x: torch.Tensor) -> None:
    x -= 1000.0
    _lead(x)


def _trail(x: torch.Tensor) -> None:
    x[-1, x.shape[1] // 4 :] = -INF


def _middle(x: torch.Tensor) -> None:
    x[-1, 100:-100] = -INF


def _only(x: torch.Tensor) -> None:
    x[-1] = -INF


def _plus_inf(x: torch.Tensor) -> None:
    x[-1, 3] = INF


def _nan(x: torch.Tensor) -> None:
    x[-1, x.shape[1] // 2] = float("nan")


def _sums_round_down(generator: torch.Generator) -> torch.Tensor:
    """Each 512 columns add 487, of which a sum kept in bfloat16 loses 7 from 2048 on: 1 % in the end, with any seed."""
    x = torch.full((1, 8448), -0.05004883)
    x[0, 0] = 0.0
    return x.to(torch.bfloat16)


def _start_of_minus_inf(n_cols: int, first: int) -> Make:
    """One ascending row that begins with `first` entries of −inf."""

    def make(g: torch.Generator) -> torch.Tensor:
        x = _ramp(n_cols, -20.0, 20.0)(g)
        x[:, :first] = -INF
        return x

    return make


def _far_apart(shape: tuple[int, int], strides: tuple[int, int]) -> Make:
    """Rows or columns 2³⁰ elements apart, in memory that is reserved and hardly touched: the third is at 2³¹."""
    return lambda g: reserved(2 * 2**30 + 64).as_strided(shape, strides).copy_(torch.randn(*shape, generator=g))


def reserved(size: int, dtype: torch.dtype = torch.float16) -> torch.Tensor:
    """A flat tensor of zeros that takes up memory only where it is written to."""
    no_reserve = getattr(mmap, "MAP_NORESERVE", 0x4000)  # named from Python 3.13 on
    memory = mmap.mmap(-1, dtype.itemsize * size, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS | no_reserve)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return torch.frombuffer(memory, dtype=dtype)


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
    "more rows than columns": _randn(17, 8),
    "bfloat16": _randn(3, 256, dtype=torch.bfloat16),
}
ANY_LENGTH: dict[str, Make] = {
    **POWER_OF_TWO,
    "127 columns": _randn(3, 127),
    "129 columns": _randn(3, 129),
    "300 columns, around −50": _randn(1, 300, shift=-50.0),
    "781 columns, around −200": _randn(1, 781, shift=-200.0),
    "300 columns, around −2000": _randn(1, 300, shift=-2000.0),
    "300 columns, around −10⁶": _randn(1, 300, scale=5.0, shift=-1e6),
    "300 columns, around +200": _randn(1, 300, shift=200.0),
    "every second column of a larger tensor": lambda g: torch.randn(4, 400, generator=g)[:, ::2],
    "rows with a gap between them": lambda g: torch.randn(5, 300, generator=g)[1:, 7:208],
    "a transposed tensor": lambda g: torch.randn(130, 5, generator=g).t(),
    "rows 2³⁰ elements apart": _far_apart((3, 64), (2**30, 1)),
    "columns 2³⁰ elements apart": _far_apart((5, 3), (1, 2**30)),
    "float16, 100 columns": _randn(3, 100, dtype=torch.float16),
    "scattered −inf": _with_inf(300, _scatter),
    "a row of only −inf gives NaN": _with_inf(300, _only),
    "a row of only −inf, 128 columns": _with_inf(128, _only),
    "NaN stays in its row": _with_inf(300, _nan),
    "+inf gives NaN in its row": _with_inf(300, _plus_inf),
}
STREAMED: dict[str, Make] = {
    **ANY_LENGTH,
    "gently ascending": _ramp(1100, 0.0, 20.0),
    "steeply ascending, range 600": _ramp(1300, -300.0, 300.0),
    "descending": _ramp(1100, 30.0, -30.0),
    "steeply descending, range 600": _ramp(1100, 300.0, -300.0),
    "an ascending row of 8,448": _ramp(8448, -20.0, 20.0),
    "a row of 8,448, its start of only −inf": _start_of_minus_inf(8448, 8200),
    "511 columns": _randn(1, 511),
    "512 columns": _randn(1, 512),
    "513 columns, around −80": _randn(1, 513, shift=-80.0),
    "a row of 8,448 in bfloat16, whose sums round down": _sums_round_down,
    "float16, 1100 columns": _randn(1, 1100, scale=3.0, dtype=torch.float16),
    "a long start of only −inf": _with_inf(1100, _lead, rows=1),
    "a long start of only −inf, then around −1000": _with_inf(1100, _lead_low, rows=1),
    "a long end of only −inf": _with_inf(1100, _trail, rows=1),
    "only −inf in the middle": _with_inf(1100, _middle, rows=1),
}
SPLIT: dict[str, Make] = {
    **STREAMED,
    "rows of three slices": _randn(4, 1100, scale=3.0),
    "rows of five slices, at different levels": lambda g: (
        torch.randn(3, 2200, generator=g) + torch.tensor([[-500.0], [0], [500]])
    ),
    "rows of three slices, around −1000": _randn(2, 1400, shift=-1000.0),
    "rows of four slices": _randn(3, 2048),
    "one row of seven slices": _randn(1, 3500, scale=5.0),
    "three slices, each at another level": lambda g: (
        torch.randn(2, 1536, generator=g) + torch.tensor([-300.0, 300.0, 0]).repeat_interleave(512)
    ),
    "rows of three slices with a gap between them": lambda g: torch.randn(4, 1500, generator=g)[1:, 7:1207],
    "three slices of a transposed tensor": lambda g: torch.randn(1100, 3, generator=g).t(),
    "a second row whose first slice is only −inf": _with_inf(1100, _lead),
    "a second row whose last slices are only −inf": _with_inf(1300, _trail),
    "three slices of only −inf give NaN": _with_inf(1300, _only),
    "NaN in one slice of three": _with_inf(1300, _nan),
    "+inf in one slice of three": _with_inf(1300, _plus_inf),
    "bfloat16, three slices": _randn(2, 1100, scale=3.0, dtype=torch.bfloat16),
}
"""Rows that several programs share: slices of 512 columns in the starter code, powers of two and others."""

GPU = (
    "small random values", "large values, around +1000", "one row of 1024", "bfloat16", "129 columns",
    "every second column of a larger tensor", "a transposed tensor", "a row of only −inf gives NaN",
    "an ascending row of 8,448", "a long start of only −inf", "float16, 1100 columns", "rows of three slices",
)  # fmt: skip
"""Cases that run on a GPU too, beside one, after all have passed interpreted: one of each kind that compiles anew."""


def make(makers: Mapping[str, Make], seed: int) -> dict[str, torch.Tensor]:
    """The inputs of all cases, drawn from `seed`: the same for the same seed, in any process."""
    generator = torch.Generator().manual_seed(seed)
    return {case: maker(generator) for case, maker in makers.items()}


def expected(x: torch.Tensor) -> torch.Tensor:
    """Softmax of each row in float64 on the CPU."""
    return torch.softmax(x.double().cpu(), dim=1)


def tolerance(dtype: torch.dtype) -> tuple[float, float]:
    """Relative and absolute error allowed: ¾ of a unit in the last place, at least 2⁻¹⁵ for the GPU's fast exp; 10⁻⁷.

    Rounding to 16 bits once, at the end, costs half a unit; doing arithmetic in 16 bits costs more than ¾.
    """
    return max(0.75 * torch.finfo(dtype).eps, 2.0**-15), 1e-7


def wrong(x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
    """Where y is not the softmax of x, as an (M, N) mask."""
    rtol, atol = tolerance(x.dtype)
    return ~torch.isclose(y.double(), expected(x), rtol=rtol, atol=atol, equal_nan=True)


def is_right(x: torch.Tensor, y: torch.Tensor) -> bool:
    """True where y, in any dtype, is the softmax of x."""
    return not wrong(x, y.to(x.dtype)).any()
