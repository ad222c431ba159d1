"""Zeros for the words that programs leave for each other, without a launch for every call."""

from __future__ import annotations

import threading

import torch

from helpers.engine.runtime import INTERPRETED

_WORDS = 2**20
_is_capturing = getattr(torch._C, "_cuda_isCurrentStreamCapturing", None)


class _OfThread(threading.local):
    """Buffers by device and stream. Each thread has its own: others may run between its taking words and its launch."""

    def __init__(self) -> None:
        self.buffers: dict[tuple[torch.device, int], tuple[torch.Tensor, int]] = {}


_kept = _OfThread()


def fresh(count: int, device: torch.device, stream: int) -> tuple[torch.Tensor, int]:
    """As `zeros`, of the launch's own: where torch.compile owns the memory, nothing may stay from call to call."""
    return torch.zeros(count, dtype=torch.int64, device=device), 0


def zeros(count: int, device: torch.device, stream: int) -> tuple[torch.Tensor, int]:
    """Returns a buffer of int64, and where in it `count` zeros begin that no launch of this stream has been given yet.

    In a CUDA graph, which runs many times, the zeros are the graph's own, and in the interpreter the launch's own.
    """
    if INTERPRETED or _is_capturing():
        return fresh(count, device, stream)
    return from_buffer(count, device, stream)


def from_buffer(count: int, device: torch.device, stream: int) -> tuple[torch.Tensor, int]:
    """As `zeros`, at a multiple of 16 bytes in a buffer of 8 MB for each stream and thread.

    The buffer is zeroed again when it is used up. The order of the stream keeps that after every launch that used it.
    """
    buffer, start = _kept.buffers.get((device, stream), (None, 0))
    if buffer is None or count > buffer.numel():
        buffer, start = torch.zeros(max(_WORDS, count), dtype=torch.int64, device=device), 0
    elif start + count > buffer.numel():
        buffer.zero_()
        start = 0
    _kept.buffers[device, stream] = buffer, start + count + count % 2
    return buffer, start
