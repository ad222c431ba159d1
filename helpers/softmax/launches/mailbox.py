"""Zeros for the words that programs leave for each other, without a launch for every call."""

from __future__ import annotations

import threading

import torch

from helpers.engine.runtime import DEVICE, INTERPRETED
from helpers.engine.torch_parts import is_current_stream_capturing

_WORDS = 2**20
_is_capturing = (lambda: True) if INTERPRETED else is_current_stream_capturing


class _Buffer:
    """`words`, which begin at `address`; of all `size` of them the first `start` have been given away."""

    __slots__ = ("address", "size", "start", "words")

    def __init__(self, size: int) -> None:
        with torch.inference_mode(False):  # else it could be zeroed again in inference mode alone
            self.words = torch.zeros(size, dtype=torch.int64, device=DEVICE.type)
        self.address, self.size, self.start = self.words.data_ptr(), size, 0


class _OfThread(threading.local):
    """Buffers by device and stream. Each thread has its own: others may run between its taking words and its launch."""

    def __init__(self) -> None:
        self.buffers: dict[tuple[int, int], _Buffer] = {}


_kept = _OfThread()


def fresh(count: int, device: int, stream: int) -> tuple[torch.Tensor, int]:
    """As `zeros`, of the launch's own: where torch.compile owns the memory, nothing may stay from call to call."""
    words = torch.zeros(count, dtype=torch.int64, device=DEVICE.type)
    return words, words.data_ptr()


def zeros(count: int, device: int, stream: int) -> tuple[torch.Tensor, int]:
    """Returns the address of `count` zeros of int64 that no launch of this stream has been given yet, after the memory
    that they lie in, which has to stay until the launch. `device` is the current one.

    In a CUDA graph, which runs many times, the zeros are the graph's own, and in the interpreter the launch's own.
    """
    return fresh(count, device, stream) if _is_capturing() else from_buffer(count, device, stream)


def from_buffer(count: int, device: int, stream: int) -> tuple[torch.Tensor, int]:
    """As `zeros`, at a multiple of 16 bytes in a buffer of 8 MB for each stream and thread.

    The buffer is zeroed again when it is used up. The order of the stream keeps that after every launch that used it.
    """
    buffer = _kept.buffers.get((device, stream))
    if buffer is None or buffer.start + count > buffer.size:
        buffer = _kept.buffers[device, stream] = _emptied(buffer, count)
    start = buffer.start
    buffer.start = start + count + count % 2
    return buffer.words, buffer.address + 8 * start


def _emptied(buffer: _Buffer | None, count: int) -> _Buffer:
    if buffer is None or count > buffer.size:
        return _Buffer(max(_WORDS, count))
    buffer.words.zero_()
    buffer.start = 0
    return buffer
