"""Inputs on which wrong softmax kernels go wrong. Each maker takes a generator and returns one (M, N) CPU tensor."""

from __future__ import annotations

import mmap
import warnings
from collections.abc import Callable, Mapping

import torch

INF = float("inf")
Make = Callable[[torch.Generator], torch.Tensor]


def randn(*shape: int, scale: float = 1.0, shift: float = 0.0, dtype: torch.dtype = torch.float32) -> Make:
    return lambda g: (torch.randn(*shape, generator=g) * scale + shift).to(dtype)


def ramp(n_cols: int, first: float, last: float) -> Make:
    return lambda g: torch.linspace(first, last, n_cols) + torch.rand(1, n_cols, generator=g)


def with_inf(n_cols: int, where: Callable[[torch.Tensor], None], rows: int = 2) -> Make:
    """Random rows, of which `where` changes the last."""

    def make(g: torch.Generator) -> torch.Tensor:
        x = torch.randn(rows, n_cols, generator=g)
        where(x)
        return x

    return make


def scatter(x: torch.Tensor) -> None:
    x[:, 1::3] = -INF


def lead(x: torch.Tensor) -> None:
    x[-1, : x.shape[1] * 2 // 3] = -INF


def lead_low(x: torch.Tensor) -> None:
    x -= 1000.0
    lead(x)


def trail(x: torch.Tensor) -> None:
    x[-1, x.shape[1] // 4 :] = -INF


def middle(x: torch.Tensor) -> None:
    x[-1, 100:-100] = -INF


def last_row(x: torch.Tensor) -> None:
    x[-1] = -INF


def plus_inf(x: torch.Tensor) -> None:
    x[-1, 3] = INF


def nan(x: torch.Tensor) -> None:
    x[-1, x.shape[1] // 2] = float("nan")


def sums_round_down(generator: torch.Generator) -> torch.Tensor:
    """Each 512 columns add 487, of which a sum kept in bfloat16 loses 7 from 2048 on: 1 % in the end, with any seed."""
    x = torch.full((1, 8448), -0.05004883)
    x[0, 0] = 0.0
    return x.to(torch.bfloat16)


def start_of_minus_inf(n_cols: int, first: int) -> Make:
    """One ascending row that begins with `first` entries of −inf."""

    def make(g: torch.Generator) -> torch.Tensor:
        x = ramp(n_cols, -20.0, 20.0)(g)
        x[:, :first] = -INF
        return x

    return make


def far_apart(shape: tuple[int, int], strides: tuple[int, int]) -> Make:
    """Rows or columns 2³⁰ elements apart, in memory that is reserved and hardly touched: the third is at 2³¹."""
    return lambda g: reserved(2 * 2**30 + 64).as_strided(shape, strides).copy_(torch.randn(*shape, generator=g))


def reserved(size: int, dtype: torch.dtype = torch.float16) -> torch.Tensor:
    """A flat tensor of zeros that takes up memory only where it is written to."""
    no_reserve = getattr(mmap, "MAP_NORESERVE", 0x4000)  # named from Python 3.13 on
    memory = mmap.mmap(-1, dtype.itemsize * size, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS | no_reserve)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return torch.frombuffer(memory, dtype=dtype)


GPU = (
    "small random values", "large values, around +1000", "one row of 1024", "bfloat16", "129 columns",
    "every second column of a larger tensor", "a transposed tensor", "a row of only −inf gives NaN",
    "an ascending row of 8,448", "a long start of only −inf", "float16, 1100 columns", "rows of three slices",
)  # fmt: skip
"""Cases that run on a GPU too, beside one, after all have passed interpreted: one of each kind that compiles anew."""


def draw(makers: Mapping[str, Make], seed: int) -> dict[str, torch.Tensor]:
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
