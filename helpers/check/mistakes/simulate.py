"""What wrong softmax kernels return: known mistakes, carried out in PyTorch on the input of a case.

Each function takes x, an (M, N) CPU tensor, and B, the kernel's tile; it returns the (M, N) float32 result that the
mistake leads to. Only those of a row shared by programs need a tile.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass

import torch

from helpers.check.problems.cases import INF

Simulation = Callable[[torch.Tensor, int], torch.Tensor]
Statistic = Callable[[torch.Tensor, int], torch.Tensor]


def tiles_of(x: torch.Tensor, B: int) -> Iterator[torch.Tensor]:
    """The (M, B) tiles of x in float32, lanes past the end of the row filled with −inf."""
    for start in range(0, x.shape[1], B):
        tile = x[:, start : start + B].float()
        yield torch.nn.functional.pad(tile, (0, B - tile.shape[1]), value=-INF)


def maximum(x: torch.Tensor, B: int) -> torch.Tensor:
    """The maximum of each row, (M, 1)."""
    return x.float().amax(dim=1, keepdim=True)


def constant(value: float) -> Statistic:
    """The same number in place of a maximum; 0 subtracts nothing."""
    return lambda x, B: torch.full((x.shape[0], 1), value)


def exps(x: torch.Tensor, m: torch.Tensor) -> torch.Tensor:
    """exp(x − m)."""
    return torch.exp(x.float() - m)


def in_two_passes(
    m: Statistic = maximum,
    *,
    m_of_l: Statistic | None = None,
    term: Callable[[torch.Tensor], torch.Tensor] = torch.exp,
    term_of_l: Callable[[torch.Tensor], torch.Tensor] | None = None,
    m_of_y: Statistic | None = None,
) -> Simulation:
    """m first, then l; `term` stands for exp.

    `m_of_l` and `term_of_l` replace m and exp in the sum alone, `m_of_y` m in the result alone.
    """

    def result(x: torch.Tensor, B: int) -> torch.Tensor:
        l_shift, y_shift = ((shift or m)(x, B) for shift in (m_of_l, m_of_y))
        l = sum((term_of_l or term)(tile - l_shift).sum(dim=1, keepdim=True) for tile in tiles_of(x, B))
        return term(x.float() - y_shift) / l

    return result


def in_terms(
    numerator: Callable[[torch.Tensor, torch.Tensor], torch.Tensor],
    denominator: Callable[[torch.Tensor, torch.Tensor], torch.Tensor],
) -> Simulation:
    """The right m, and other terms: l adds up `denominator(tile, m)` of all tiles, and divides `numerator(x, m)`."""

    def result(x: torch.Tensor, B: int) -> torch.Tensor:
        m = maximum(x, B)
        l = sum(denominator(tile, m).sum(dim=1, keepdim=True) for tile in tiles_of(x, B))
        return numerator(x.float(), m) / l

    return result


def no_division(x: torch.Tensor, B: int) -> torch.Tensor:
    """exp(x − m), never divided by l."""
    return exps(x, maximum(x, B))


def no_division_guarded(x: torch.Tensor, B: int) -> torch.Tensor:
    """exp(x − m), where 0 is subtracted from a row of only −inf."""
    m = maximum(x, B)
    return exps(x, torch.where(m == -INF, 0.0, m))


def right(x: torch.Tensor, B: int = 0) -> torch.Tensor:
    """The softmax of each row."""
    return torch.softmax(x.float(), dim=1)


def scores(x: torch.Tensor, B: int) -> torch.Tensor:
    """x itself."""
    return x.float()


def one_sum_for_a_tile(idle: float) -> Simulation:
    """The softmax of a kernel whose tile holds several rows, which are divided by the sum of all of them.

    Each row that the last tile lacks adds `idle`.
    """

    def result(x: torch.Tensor, B: int) -> torch.Tensor:
        rows = max(1, B >> (x.shape[1] - 1).bit_length())
        e = no_division(x, B)
        sums = torch.nn.functional.pad(e.sum(dim=1), (0, -len(x) % rows), value=idle)
        return e / sums.view(-1, rows).sum(dim=1).repeat_interleave(rows)[: len(x), None]

    return result


def of_rounded(dtype: torch.dtype) -> Simulation:
    """The softmax of x rounded to another dtype."""
    return lambda x, B: right(x.to(dtype))


def through(dtype: torch.dtype) -> Simulation:
    """The right result, rounded to another dtype on the way."""
    return lambda x, B: right(x).to(dtype).float()


def empty_rows_as(value: Callable[[int], float]) -> Simulation:
    """A row of only −inf gives value(N) everywhere."""
    return lambda x, B: torch.where(x.float().amax(dim=1, keepdim=True) == -INF, value(x.shape[1]), right(x))


def nan_as_minus_inf(x: torch.Tensor, B: int) -> torch.Tensor:
    """NaN entries are left out as if they were −inf."""
    return right(x.float().nan_to_num(nan=-INF, posinf=INF, neginf=-INF))


def nan_results_as_zero(x: torch.Tensor, B: int) -> torch.Tensor:
    """Every NaN of the result is replaced by 0."""
    return right(x).nan_to_num(0.0)


def of_row(row: int) -> Simulation:
    """Every row of the result is the softmax of one row."""
    return lambda x, B: right(x)[row : row + 1].expand(x.shape[0], -1)


def with_strides(strides: Callable[[torch.Tensor], tuple[int, int]]) -> Simulation:
    """The softmax of what lies in memory where x is, read with other strides."""

    def result(x: torch.Tensor, B: int) -> torch.Tensor:
        wrong = strides(x)
        last = x.storage_offset() + sum((size - 1) * stride for size, stride in zip(x.shape, wrong, strict=True))
        if last >= x.untyped_storage().nbytes() // x.element_size():
            raise IndexError("these strides leave the storage of x")
        return right(torch.as_strided(x, x.shape, wrong))

    return result


def exp_of_at_least(lowest: float) -> Callable[[torch.Tensor], torch.Tensor]:
    """exp of an exponent that is never below `lowest`."""
    return lambda exponent: torch.exp(exponent.clamp(min=lowest))


def exp_in(dtype: torch.dtype) -> Callable[[torch.Tensor], torch.Tensor]:
    """exp, whose result passes through another dtype."""
    return lambda exponent: torch.exp(exponent).to(dtype).float()


def divided_by_exp_m(x: torch.Tensor, B: int) -> torch.Tensor:
    """exp(x) / exp(m) in place of exp(x − m)."""
    e = torch.exp(x.float()) / torch.exp(maximum(x, B))
    return e / e.sum(dim=1, keepdim=True)


def cut_at(limit: float) -> Simulation:
    """exp(min(x, limit)) in place of exp(x − m)."""

    def result(x: torch.Tensor, B: int) -> torch.Tensor:
        e = torch.exp(x.float().clamp(max=limit))
        return e / e.sum(dim=1, keepdim=True)

    return result


@dataclass(frozen=True)
class Pairs:
    """The pairs of the slices of each row, (M, PARTS), and how many slices there are; PARTS is a power of two, and
    slices past the last hold what a masked load gives."""

    m: torch.Tensor
    l: torch.Tensor
    parts: int

    def shift(self) -> torch.Tensor:
        """The row's maximum, or 0 where that is −inf, (M, 1)."""
        m = self.m.amax(dim=1, keepdim=True)
        return torch.where(m == -INF, 0.0, m)

    def sum(self, shift: torch.Tensor) -> torch.Tensor:
        """The row's sum of exp(x − shift), (M, 1)."""
        return (self.l * torch.exp(self.m - shift)).sum(dim=1, keepdim=True)

    def own(self, values: torch.Tensor) -> torch.Tensor:
        """For each slice its own value, (M, parts)."""
        return values[:, : self.parts]

    def taken(self, index: Callable[[torch.Tensor, int], torch.Tensor], apart: int = 1) -> Pairs:
        """The pairs that are found where the m of slice i is looked for at index(row, i) of the buffer's numbers, and
        its l `apart` numbers further on. A larger buffer holds NaN behind the pairs.
        """
        rows = torch.arange(self.m.shape[0])
        buffer = torch.stack([self.own(self.m), self.own(self.l)], dim=2).flatten()
        at = torch.stack([index(rows, i) for i in range(self.parts)], dim=1)
        buffer = torch.nn.functional.pad(buffer, (0, max(0, int(at.max()) + apart + 1 - len(buffer))), value=torch.nan)
        m, l = self.m.clone(), self.l.clone()
        m[:, : self.parts], l[:, : self.parts] = buffer[at], buffer[at + apart]
        return Pairs(m, l, self.parts)


def in_slices(
    shift: Callable[[Pairs], torch.Tensor] = Pairs.shift,
    l: Callable[[Pairs, torch.Tensor], torch.Tensor] = Pairs.sum,
    *,
    seen: Callable[[Pairs], Pairs] = lambda pairs: pairs,
    past: tuple[float, float] = (-INF, 0.0),
) -> Simulation:
    """A row shared by programs, with a part of the merge replaced: the number subtracted, or how l comes from pairs.

    Both are (M, 1), or (M, parts) where each program has its own. `seen` replaces the pairs themselves, and `past` is
    what slices past the last hold.
    """

    def result(x: torch.Tensor, B: int) -> torch.Tensor:
        cut = list(tiles_of(x, B))
        m = torch.cat([tile.amax(dim=1, keepdim=True) for tile in cut], dim=1)
        guarded = torch.where(m == -INF, 0.0, m)
        sums = torch.cat(
            [exps(tile, at).sum(dim=1, keepdim=True) for tile, at in zip(cut, guarded.split(1, 1), strict=True)], dim=1
        )
        idle = (1 << (len(cut) - 1).bit_length()) - len(cut)
        m, sums = (torch.nn.functional.pad(t, (0, idle), value=v) for t, v in zip((m, sums), past, strict=True))
        pairs = seen(Pairs(m, sums, len(cut)))
        shifts = shift(pairs)
        totals = l(pairs, shifts).expand(len(x), len(cut))
        shifts = shifts.expand(len(x), len(cut))
        y = [exps(tile, shifts[:, i : i + 1]) / totals[:, i : i + 1] for i, tile in enumerate(cut)]
        return torch.cat(y, dim=1)[:, : x.shape[1]]

    return result


def merged_in_turn(pairs: Pairs, _: torch.Tensor) -> torch.Tensor:
    """l of a merge that goes from slice to slice and does not guard an m of −inf."""
    m, l = torch.full_like(pairs.m[:, :1], -INF), torch.zeros_like(pairs.l[:, :1])
    for m_part, l_part in zip(pairs.m.split(1, 1), pairs.l.split(1, 1), strict=True):
        m_new = torch.maximum(m, m_part)
        l = l * torch.exp(m - m_new) + l_part * torch.exp(m_part - m_new)
        m = m_new
    return l
