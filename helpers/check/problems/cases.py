"""Inputs on which wrong softmax kernels go wrong. Each maker takes a generator and returns one (M, N) CPU tensor."""

from __future__ import annotations

from collections.abc import Callable

import torch

from helpers.check.problems.kind import Kind, Output
from helpers.check.problems.problem import Make

INF = float("inf")


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


_OF_A_SUM = {torch.bfloat16: (4, -2.5, -1.375), torch.float16: (16, -2.64453125, -0.67333984375)}
"""By dtype: a period and an entry with which a sum lies near the middle of two numbers, and an entry whose exp does."""


def sums_between(dtype: torch.dtype, n_cols: int) -> Make:
    """Two rows, the same for any seed, whose length is a power of two and at least 1,024. They show the digits that 16
    bits lose in the first one's sum, or the sums of parts of 16 or more, and in the terms of the second one's sum."""
    period, in_sum, in_term = _OF_A_SUM[dtype]

    def make(g: torch.Generator) -> torch.Tensor:
        first = torch.full((1024,), in_sum)
        first[::period] = 0.0
        second = torch.full((8, 128), in_term)
        second[:, 0] = 0.0
        second[:, 1:8] = torch.linspace(-1, -4, 56).reshape(8, 7)
        return torch.stack([first, second.flatten()]).repeat(1, n_cols // 1024).to(dtype)

    return make


def start_of_minus_inf(n_cols: int, first: int) -> Make:
    """One ascending row that begins with `first` entries of −inf."""

    def make(g: torch.Generator) -> torch.Tensor:
        x = ramp(n_cols, -20.0, 20.0)(g)
        x[:, :first] = -INF
        return x

    return make


def nan_among_minus_inf(n_cols: int, first: int) -> Make:
    """One row whose first entries are −inf, with NaN among them: nothing that follows may make it forgotten."""

    def make(g: torch.Generator) -> torch.Tensor:
        x = start_of_minus_inf(n_cols, first)(g)
        x[0, first // 2] = float("nan")
        return x

    return make


def small_terms(n_cols: int, below: float) -> Make:
    """One row whose first entry exceeds all others by about `below`: only together do these count."""

    def make(g: torch.Generator) -> torch.Tensor:
        x = 0.1 * torch.randn(1, n_cols, generator=g)
        x[0, 0] = below
        return x

    return make


SPIKE = 150.0
"""More than exp can bear in float32: subtracting a maximum that has missed such an entry overflows."""


def few_values(rows: int, n_cols: int) -> Make:
    """Whole numbers from −2 to 0: every row, and every long part of one, has its maximum many times."""
    return lambda g: torch.randint(-2, 1, (rows, n_cols), generator=g).float()


def spikes(n_cols: int, *columns: int) -> Make:
    """For each of `columns` a random row whose entry there exceeds all others by SPIKE."""

    def make(g: torch.Generator) -> torch.Tensor:
        x = torch.randn(len(columns), n_cols, generator=g)
        x[range(len(columns)), columns] = SPIKE
        return x

    return make


def lone_spike(n_cols: int, above: float = SPIKE) -> Make:
    """One row of equal entries, save for the last, which exceeds them by `above`."""

    def make(g: torch.Generator) -> torch.Tensor:
        x = torch.rand(1, 1, generator=g).repeat(1, n_cols)
        x[:, -1] += above
        return x

    return make


def view(shape: tuple[int, int], cut: Callable[[torch.Tensor], torch.Tensor], between: float = 2 * SPIKE) -> Make:
    """The part of a larger tensor of `shape` that `cut` takes: random, with a spike in the last column of its first row
    and in the first of its last. What lies between is larger than all of it."""

    def make(g: torch.Generator) -> torch.Tensor:
        x = cut(torch.full(shape, between))
        x.copy_(torch.randn(x.shape, generator=g))
        x[0, -1] = x[-1, 0] = SPIKE
        return x

    return make


def specials(n_cols: int, *largest: float) -> Make:
    """A row of numbers, one with −inf among them, one of only −inf, one with NaN, and one for each of `largest`."""

    def make(g: torch.Generator) -> torch.Tensor:
        x = 0.1 * torch.randn(4 + len(largest), n_cols, generator=g)
        x[1, ::2] = x[2] = -INF
        x[3:, n_cols // 2] = torch.tensor([float("nan"), *largest])
        return x

    return make


def in_levels(rows: int, n_cols: int, *levels: float) -> Make:
    """Whole numbers from −2 to 0, in parts of equal length that lie at these levels."""

    def make(g: torch.Generator) -> torch.Tensor:
        level = torch.tensor(levels)[torch.arange(n_cols) * len(levels) // n_cols]
        return few_values(rows, n_cols)(g) + level

    return make


def stacked(*rows: Make) -> Make:
    """The rows of several tensors of equal length, one below the other."""
    return lambda g: torch.cat([make(g) for make in rows])


def overlapping(n_rows: int, n_cols: int, dtype: torch.dtype = torch.float16) -> Make:
    """Rows that each begin two elements after the one before: many of them in little memory."""
    last = 2 * (n_rows - 1) + n_cols
    return lambda g: torch.randn(last, generator=g).to(dtype).as_strided((n_rows, n_cols), (2, 1))


GPU = (
    "small random values", "large values, around +1000", "one row of 1024", "bfloat16", "129 columns",
    "every second column of a larger tensor", "a transposed tensor", "a row of only −inf gives NaN",
    "an ascending row of 8,448", "a long start of only −inf", "float16, 1100 columns", "rows of three slices",
    "equal maxima", "tiles of 64",
)  # fmt: skip
"""One case of each kind that Triton compiles."""

TELLING = (
    "small random values", "rows at very different levels", "very negative values, around −1000", "one row of 1024",
    "more rows than columns", "bfloat16", "129 columns", "300 columns, around −50", "781 columns, around −200",
    "every second column of a larger tensor", "rows with a gap between them", "a transposed tensor",
    "a row of only −inf gives NaN", "NaN stays in its row", "gently ascending", "steeply ascending, range 600",
    "descending", "513 columns, around −80", "float16, 1100 columns", "a long start of only −inf",
    "a long start of only −inf, then around −1000", "a long end of only −inf", "only −inf in the middle",
    "equal maxima in every tile", "tiles of 64", "300 columns, a maximum far above the rest in several",
)  # fmt: skip


def expected(x: torch.Tensor) -> torch.Tensor:
    """Softmax of each row in float64 on the CPU."""
    return torch.softmax(x.double().cpu(), dim=-1)


def tolerance(x: torch.Tensor) -> tuple[torch.Tensor, float]:
    """Relative error allowed of each element, as the condition of the problem has it, and absolute error.

    In float32 the exponent x − m is uncertain by a unit in the last place of x − m, or of x and m where both are
    multiplied by log2(e) before they are subtracted; exp and the quotient add a few units, and the sum of N terms
    ¾ √N, since equal terms are rounded alike: torch's softmax of 16,384 numbers that are −2, −1 or 0 is off by 0.76 √N
    in all on a processor without AVX-512. Rounding to 16 bits once, at the end, costs half a unit; doing arithmetic in
    16 bits costs more than ¾. A number as small as the least normal one may become 0. However large the numbers are,
    0 is no result for anything larger.
    """
    x = x.detach().cpu()
    finite = x.double().where(x.isfinite(), 0.0)
    below = (finite.masked_fill(~x.isfinite(), -INF).amax(dim=1, keepdim=True) - finite).nan_to_num(posinf=0, neginf=0)
    size = finite.abs().amax(dim=1, keepdim=True)
    units = 6 + 0.75 * x.shape[1] ** 0.5 + 2 * below + 3 * size
    rtol = (torch.finfo(torch.float64 if x.dtype == torch.float64 else torch.float32).eps * units).clamp(max=0.5)
    if x.dtype.itemsize == 2:
        rtol = rtol.clamp(min=0.75 * torch.finfo(x.dtype).eps)
    least = torch.finfo(x.dtype)
    return rtol, least.smallest_normal * (0.75 * least.eps if x.dtype == torch.float16 else 2)


def _allowed(want: torch.Tensor, x: torch.Tensor) -> torch.Tensor:
    rtol, atol = tolerance(x)
    return atol + rtol * want.abs()


SOFTMAX = Kind(
    (Output("the softmax", lambda x: (tuple(x.shape), x.dtype), _allowed),),
    lambda x: (expected(x),),
    telling=TELLING,
    on_gpu=GPU,
)
"""The softmax of each row of x, in its shape and dtype."""


def wrong(x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
    """Where y is not the softmax of x, as an (M, N) mask."""
    return SOFTMAX.wrong((x,), (y,))[0]


def is_right(x: torch.Tensor, y: torch.Tensor) -> bool:
    """True where y, in any dtype, is the softmax of x."""
    return not wrong(x, y.to(x.dtype)).any()
