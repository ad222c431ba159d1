"""The softmax of rows over several GPUs by programs that write their pairs into each other's memory.

Each rank has three mails, used in turn. While one is in use, the one before it is cleared: its words have all been
read. The next one is clear, and the fastest rank may write into it; it comes to the mail that is being cleared only
after it has read everybody's words of the next turn, which nobody writes before it has cleared.
"""

from __future__ import annotations

import socket
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple, TypeVar
from weakref import WeakKeyDictionary

import torch
import torch.distributed as dist
from triton import cdiv, next_power_of_2

from helpers.engine.torch_parts import symmetric_memory
from helpers.softmax.kernels.exchange import HEADER, exchange_kernel, late_kernel
from helpers.softmax.launches.launch import Launch, current_stream, gpu_of, keep_launcher, on_stream
from helpers.softmax.plans.layout import vectors
from helpers.softmax.plans.pace import pace_of

SLOTS = 8
"""The most parts of a row on a rank."""

_MAIL_WORDS, _TURNS = 2**20, 3
"""Words of a mail, for all rows of a call: 8 MB; and mails of a rank."""

_LOOKS, _LATE_LOOKS = 2**14, 2**30
"""How often a program looks for words, some 0.6 µs each: 10 ms in the first launch, and 10 minutes in the second. That
one leaves the GPU to others, but if shards are wider than the chip holds: then up to 1,024 programs wait there."""

_LATE_PROGRAMS, _MOST_LATE_PROGRAMS = 32, 1024
"""Programs that wait for ranks that are late; and that write what did not fit on the chip."""

_LEAST_BLOCK, _WARP_BYTES, _MOST_WARPS, _REGISTERS = 1024, 4096, 16, 96
_MOST_ROWS = 65535

_T = TypeVar("_T")


class _Slices(NamedTuple):
    """How the programs of a row share a shard: SPLIT slices of BLOCK columns."""

    BLOCK: int
    SPLIT: int
    CHUNKS: int
    num_warps: int
    maxnreg: int = _REGISTERS


def _slices(N: int, itemsize: int) -> _Slices:
    """For N columns."""
    most = _MOST_WARPS * _WARP_BYTES // itemsize
    BLOCK = min(most, max(_LEAST_BLOCK, next_power_of_2(cdiv(N, SLOTS))))
    CHUNKS = cdiv(N, SLOTS * BLOCK) if N > SLOTS * BLOCK else 1
    return _Slices(BLOCK, max(1, cdiv(N, BLOCK * CHUNKS)), CHUNKS, max(1, BLOCK * itemsize // _WARP_BYTES))


class Exchange:
    """The mails of one rank of W, and where the mails of all ranks lie."""

    def __init__(self, mails: Sequence[torch.Tensor], peers: Sequence[torch.Tensor], rank: int, W: int) -> None:
        """`mails` are zeros of int64 on this rank; `peers` are (W,) int64 each, the addresses of all ranks' mails."""
        self.mails, self.peers, self.rank, self.W = tuple(mails), tuple(peers), rank, W
        self._turn, self._stream = 0, 0
        self._known: dict[tuple, tuple[Launch, Launch]] = {}

    def holds(self, M: int) -> bool:
        """Whether the words of M rows fit. All ranks find the same."""
        return 0 < M <= _MOST_ROWS and HEADER.value + M * self.W * SLOTS <= len(self.mails[0])

    def softmax(self, x: torch.Tensor) -> torch.Tensor:
        """This rank's part of the softmax, of a shard (M, N) with contiguous rows."""
        y = torch.empty(x.shape, dtype=x.dtype, device=x.device)
        self._follow(x)
        for launch, tensors in self.steps(y, x):
            on_stream(x, launch, tensors)
        return y

    def _follow(self, x: torch.Tensor) -> None:
        """The turns' order is that of one stream: in another one, a call waits for all before it."""
        stream = current_stream(x.get_device())
        if stream != self._stream:
            torch.cuda.synchronize(x.device)
            self._stream = stream

    def steps(
        self, y: torch.Tensor, x: torch.Tensor, looks: int = _LOOKS, late_looks: int = _LATE_LOOKS
    ) -> list[tuple[Launch, tuple[torch.Tensor, ...]]]:
        """The two launches that fill y, with their tensors; each looks at most this often. It is the next turn then."""
        key = x.shape, x.stride(), x.dtype, x.data_ptr() % 16, looks, late_looks
        first, late = self._known.get(key) or keep_launcher(self._known, key, self._launches(x, looks, late_looks))
        mail, read, peers = self.mails[self._turn], self.mails[self._turn - 1], self.peers[self._turn]
        self._turn = (self._turn + 1) % _TURNS
        return [(first, (y, x, mail, peers)), (late, (y, x, mail, read))]

    def _launches(self, x: torch.Tensor, looks: int, late_looks: int) -> tuple[Launch, Launch]:
        (M, N), stride, itemsize = x.shape, x.stride(0), x.element_size()
        aligned = x.data_ptr() % 16 == 0 and (M == 1 or (stride - N) * itemsize % 16 == 0)
        VEC, EDGES = vectors(N, 16 // itemsize, aligned)
        slices = _slices(N, itemsize)
        named: dict[str, Any] = {"x_stride": stride, "M": M, "N": N, "W": self.W, "SLOTS": SLOTS, "VEC": VEC}
        named |= {"PARTS": max(32 * slices.num_warps, next_power_of_2(self.W * SLOTS))}
        named |= {"EDGES": EDGES, "BLOCK": slices.BLOCK}
        of_all = {"warps": slices.num_warps, "registers": _REGISTERS}
        ahead = 0 if slices.CHUNKS > 1 else pace_of(M, slices, gpu_of(x.get_device())).AHEAD
        named_first = {"rank": self.rank, "looks": looks, "CHUNKS": slices.CHUNKS, "AHEAD": ahead, **named}
        programs = _LATE_PROGRAMS if slices.CHUNKS == 1 else min(M, _MOST_LATE_PROGRAMS)
        return (
            Launch(exchange_kernel, (slices.SPLIT, M, 1), **of_all, **named_first),
            Launch(late_kernel, (programs, 1, 1), **of_all, looks=late_looks, **named),
        )


_of_groups: WeakKeyDictionary[dist.ProcessGroup, Exchange | None] = WeakKeyDictionary()


def exchange_of(x: torch.Tensor, group: dist.ProcessGroup) -> Exchange | None:
    """This rank's exchange with the others of a group for GPU tensors like x; None if the ranks have no common memory,
    or if a CUDA graph is being captured: its launches would come back to one turn.

    All ranks find the same. A group's first call makes the mails, which takes collectives.
    """
    if x.is_cuda and torch.cuda.is_current_stream_capturing():
        return None
    if group not in _of_groups:
        _of_groups[group] = None
        if "cuda:nccl" in str(dist.get_backend_config(group)):
            with torch.cuda.device(x.device):
                _of_groups[group] = _made_for(group, x.device)
    return _of_groups[group]


def _made_for(group: dist.ProcessGroup, device: torch.device) -> Exchange | None:
    hosts: list[Any] = [None] * group.size()
    dist.all_gather_object(hosts, socket.gethostname(), group=group)
    if len(set(hosts)) > 1:
        return None
    mails = _by_all(lambda: _mails(device), group, device)
    return None if mails is None else _by_all(lambda: _in_common_memory(mails, group, device), group, device)


def _by_all(make: Callable[[], _T], group: dist.ProcessGroup, device: torch.device) -> _T | None:
    """What this rank makes, or None if a rank cannot make its own. It returns once all ranks have tried."""
    try:
        made = make()
    except Exception:  # whatever the driver, the GPUs or this version of torch lack
        made = None
    have = torch.tensor(int(made is not None), device=device)
    dist.all_reduce(have, dist.ReduceOp.MIN, group=group)
    return made if have.item() else None


def _mails(device: torch.device) -> list[torch.Tensor]:
    """Empty mails, in torch's symmetric memory, which is a prototype."""
    symmetric = symmetric_memory()
    return [symmetric.empty(_MAIL_WORDS, dtype=torch.int64, device=device).zero_() for _ in range(_TURNS)]


def _in_common_memory(mails: Sequence[torch.Tensor], group: dist.ProcessGroup, device: torch.device) -> Exchange:
    """The exchange by mails that all ranks have made: their rendezvous waits for all."""
    symmetric = symmetric_memory()
    handles = [symmetric.rendezvous(mail, group) for mail in mails]
    peers = [torch.tensor(list(handle.buffer_ptrs), dtype=torch.int64, device=device) for handle in handles]
    torch.cuda.synchronize(device)
    return Exchange(mails, peers, group.rank(), group.size())
