"""Zeros for the words that programs leave for each other, without a launch for every call."""

from __future__ import annotations

import threading

import torch

from helpers.engine.runtime import INTERPRETED

_WORDS = 2**20
_is_capturing = getattr(torch._C, "_cuda_isCurrentStreamCapturing", None)


class _Buffer:
    """`words`, of which the first `start` have been given away, and how many there are."""

    __slots__ = ("size", "start", "words")

    def __init__(self, size: int, device: torch.device) -> None:
        with torch.inference_mode(False):  # else it could be zeroed again in inference mode alone
            self.words = torch.zeros(size, dtype=torch.int64, device=device)
        self.size, self.start = size, 0


class _OfThread(threading.local):
    """Buffers by device and stream. Each thread has its own: others may run between its taking words and its launch."""

    def __init__(self) -> None:
        self.buffers: dict[tuple[torch.device, int], _Buffer] = {}


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
    buffer = _kept.buffers.get((device, stream))
    if buffer is None or buffer.start + count > buffer.size:
        buffer = _emptied(buffer, count, device)
        _kept.buffers[device, stream] = buffer
    start = buffer.start
    buffer.start = start + count + count % 2
    return buffer.words, start


def _emptied(buffer: _Buffer | None, count: int, device: torch.device) -> _Buffer:
    if buffer is None or count > buffer.size:
        return _Buffer(max(_WORDS, count), device)
    buffer.words.zero_()
    buffer.start = 0
    return buffer
