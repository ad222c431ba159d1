"""Checks what a kernel promises the compiler about its tiles: tl.multiple_of, tl.max_contiguous, tl.max_constancy.

A GPU's compiler believes a promise: if pointers are said to be aligned and adjacent, it loads 128 bits at once. A false
promise gives wrong numbers, or an error. The interpreter ignores promises; this module checks them there.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np


class BrokenPromise(ValueError):
    """A tile does not have a property that the kernel promises."""


def hook_promises(handle: type, watched: Callable[[], bool]) -> None:
    """Hooks `handle`, the interpreter's class for a tile: promises are checked wherever `watched()` is true."""
    believe = handle.set_attr

    def promised(self: Any, key: str, values: list[int]) -> None:
        if key in _PROMISES and watched():
            name, holds = _PROMISES[key]
            kind = self.dtype.scalar
            step = max(1, kind.element_ty.primitive_bitwidth // 8) if kind.is_ptr() else 1
            for axis, value in zip(range(self.data.ndim), values, strict=False):
                if not holds(np.moveaxis(self.data, axis, -1).astype(np.int64), value, step):
                    raise BrokenPromise(
                        f"tl.{name}(…, {value}) promises something untrue of this tile. A GPU takes your word for it, "
                        "and may load or store elsewhere: leave the promise out, or make it true."
                    )
        believe(self, key, values)

    handle.set_attr = promised


def _divides(data: np.ndarray, value: int, step: int) -> bool:
    """Every group of `value` neighbours begins with a multiple, as Triton reads it: 16 holds for tl.arange(0, 32)."""
    return not (data[..., ::value] % value).any()


def _adjoins(data: np.ndarray, value: int, step: int) -> bool:
    return bool((_steps(data, value) == step).all())


def _repeats(data: np.ndarray, value: int, step: int) -> bool:
    return not _steps(data, value).any()


def _steps(data: np.ndarray, value: int) -> np.ndarray:
    """The differences of neighbours, without those from one group of `value` to the next."""
    return np.diff(data, axis=-1)[..., np.arange(1, data.shape[-1]) % value != 0]


_PROMISES = {
    "tt.divisibility": ("multiple_of", _divides),
    "tt.contiguity": ("max_contiguous", _adjoins),
    "tt.constancy": ("max_constancy", _repeats),
}
