"""Zeros for the words that programs leave for each other, without a launch for every call."""

from __future__ import annotations

import threading

import torch

_WORDS = 2**20

_lock = threading.Lock()
_buffers: dict[tuple[torch.device, int], tuple[torch.Tensor, int]] = {}


def zeros(count: int, device: torch.device, stream: int) -> torch.Tensor:
    """Returns `count` zeros, int64, aligned to 16 bytes, which no launch of this stream has been given before.

    They are cut from a buffer of 8 MB for each stream, which is zeroed again when it is used up: the stream's order
    keeps that behind every launch that used it. In a CUDA graph, which runs many times, the zeros are the graph's own.
    """
    if torch.cuda.is_current_stream_capturing():
        return torch.zeros(count, dtype=torch.int64, device=device)
    with _lock:
        buffer, used = _buffers.get((device, stream), (None, 0))
        if buffer is None or count > buffer.numel():
            buffer, used = torch.zeros(max(_WORDS, count), dtype=torch.int64, device=device), 0
        elif used + count > buffer.numel():
            buffer.zero_()
            used = 0
        _buffers[device, stream] = buffer, used + count + count % 2
    return buffer[used : used + count]
