"""The numbers of rows that lie over ranks, right ones and wrong ones, as answers compute them."""

from __future__ import annotations

from collections.abc import Callable
from functools import cached_property

import torch

from helpers.check.problems.cases import INF
from helpers.check.trial.ranked import Sharded

_T = torch.Tensor


class ShardedRows:
    """The numbers of rows that lie over ranks, in float32, as answers compute them."""

    def __init__(self, case: Sharded) -> None:
        self.x = torch.tensor(case.rows)
        self.sizes, self.world = list(case.sizes), len(case.sizes)
        self.shards = self.x.split(self.sizes, dim=1)
        self.starts = [sum(self.sizes[:rank]) for rank in range(self.world)]
        self.target = torch.tensor(list(case.target or ()), dtype=torch.int64)

    @cached_property
    def m_parts(self) -> _T:
        """(W, M); as kernels compute it, NaN is no maximum."""
        none = self.x.new_full((len(self.x), 1), -INF)
        return torch.stack([torch.cat((shard.where(~shard.isnan(), -INF), none), 1).amax(1) for shard in self.shards])

    @cached_property
    def l_parts(self) -> _T:
        """(W, M)"""
        shift = torch.where(self.m_parts == -INF, 0.0, self.m_parts)
        return torch.stack([torch.exp(x - m[:, None]).sum(1) for x, m in zip(self.shards, shift, strict=True)])

    @property
    def m(self) -> _T:
        return self.m_parts.amax(0)

    @property
    def total(self) -> _T:
        """l of whole rows."""
        return self.sum_of(self.m)

    @property
    def counts(self) -> _T:
        """Which rows are not ignored."""
        return self.target != -100

    def sum_of(self, shift: _T) -> _T:
        """Σ exp(x − shift) of whole rows, from pairs."""
        return (self.l_parts * torch.exp(self.m_parts - shift)).sum(0)

    def softmax(self, shift: _T | None = None, l: _T | None = None) -> list[_T]:
        """exp(x − shift) / l of each shard, with the right ones by default."""
        shift = self.m if shift is None else shift
        l = self.sum_of(shift) if l is None else l
        return [torch.exp(x - shift[:, None]) / l[:, None] for x in self.shards]

    def logits(self, lookup: Callable[[int, _T, int], _T]) -> _T:
        """(W, M): of each rank what `lookup` (rank, target − start, columns) finds: a column, or −1 for none."""
        found = torch.zeros(self.world, len(self.x))
        for rank, (shard, start) in enumerate(zip(self.shards, self.starts, strict=True)):
            at = lookup(rank, self.target - start, shard.shape[1])
            rows = torch.nonzero((at >= 0) & (at < shard.shape[1]))[:, 0]
            found[rank, rows] = shard[rows, at[rows]]
        return found

    @cached_property
    def x_target(self) -> _T:
        """(W, M): x at the target on the rank that has it, and 0 on the others."""
        return self.logits(lambda _, local, n: local)

    def loss(self, lse: _T | None = None, x_target: _T | None = None) -> _T:
        """The mean loss of the rows that are not ignored."""
        lse = self.m + self.total.log() if lse is None else lse
        rows = lse - (self.x_target.sum(0) if x_target is None else x_target)
        return rows[self.counts].sum() / self.counts.sum()

    def rows_of_loss(self) -> _T:
        return self.m + self.total.log() - self.x_target.sum(0)

    def gradient(
        self, softmax: list[_T] | None = None, columns: Callable[[int, _T, int], _T] | None = None
    ) -> list[_T]:
        """softmax − onehot of each shard, ignored rows too, not divided; `columns` as of `logits`."""
        columns = columns or (lambda _, local, n: local)
        found = []
        for rank, y in enumerate(softmax or self.softmax()):
            y, at = y.clone(), columns(rank, self.target - self.starts[rank], y.shape[1])
            rows = torch.nonzero((at >= 0) & (at < y.shape[1]))[:, 0]
            y[rows, at[rows]] -= 1
            found.append(y)
        return found

    def mean(self, gradient: list[_T], by: _T | float | None = None) -> list[_T]:
        """A gradient, 0 in ignored rows, divided by the number of the others, or `by`."""
        by = self.counts.sum() if by is None else by
        return [torch.where(self.counts[:, None], one / by, 0.0) for one in gradient]


def grown_sum(parts: ShardedRows) -> _T:
    """The sum with its factors upside down."""
    return (parts.l_parts * torch.exp(parts.m - parts.m_parts)).sum(0)


def own_softmax(parts: ShardedRows) -> list[_T]:
    """The softmax of each shard alone."""
    return [torch.softmax(shard, 1) for shard in parts.shards]


def own_numerator(parts: ShardedRows, l: _T) -> list[_T]:
    """exp(x − the maximum of the shard) / l"""
    return [torch.exp(x - m[:, None]) / l[:, None] for x, m in zip(parts.shards, parts.m_parts, strict=True)]


def by_own_sum(parts: ShardedRows) -> list[_T]:
    """exp(x − m) / the sum of the shard"""
    return [torch.exp(x - parts.m[:, None]) / l[:, None] for x, l in zip(parts.shards, parts.l_parts, strict=True)]
