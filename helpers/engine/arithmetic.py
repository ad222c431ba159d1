"""Gives Triton's interpreter the numbers that a GPU computes: bfloat16, and tiles combined in pairs.

Called by interpreter.guard, which checks that every replaced name exists.
"""

from __future__ import annotations

import ast
import functools
import inspect
import textwrap
import types
from collections.abc import Callable
from typing import Any

import numpy as np
import torch

Arrays = tuple[np.ndarray, ...]


def hook_arithmetic(tri: Any, builder: Any) -> None:
    """Hooks the module triton.runtime.interpreter, and its builder."""
    _hook_bfloat16(tri, builder)
    _hook_functions_of_ones_own(tri)


def _hook_bfloat16(tri: Any, builder: Any) -> None:
    """The interpreter holds a bfloat16 as 16 bits; here it computes with the number, and rounds as a GPU does.

    It cuts off the last bits of a float32, converts other types as if the bits were an integer, and adds the bits.
    """
    import triton.language as tl

    def widened(handle: object) -> object:
        if getattr(handle, "dtype", tl.void).scalar != tl.bfloat16:
            return handle
        return tri.TensorHandle((handle.data.astype(np.uint32) << 16).view(np.float32), tl.float32)

    def rounded(handle: object) -> object:
        if handle.data.dtype == bool:
            return tri.TensorHandle(handle.data, tl.int1)
        bits = torch.from_numpy(np.ascontiguousarray(handle.data)).to(torch.bfloat16).view(torch.int16)
        return tri.TensorHandle(bits.numpy().view(np.uint16), tl.bfloat16)

    def computes(name: str) -> None:
        compute = getattr(builder, name)

        def compute_wide(first: object, *rest: object) -> object:
            if first.dtype.scalar != tl.bfloat16:
                return compute(*map(widened, (first, *rest)))
            return rounded(compute(*map(widened, (first, *rest))))

        setattr(builder, name, compute_wide)

    for name in ("binary_op", "unary_op"):
        computes(name)

    cast_impl, create_dot = builder.cast_impl, builder.create_dot

    def rounding_cast(source: object, target: object) -> object:
        if tl.bfloat16 not in (source.dtype.scalar, target.scalar) or source.dtype.scalar == target.scalar:
            return cast_impl(source, target)
        if target.scalar == tl.bfloat16:
            return rounded(source if source.dtype.scalar == tl.float32 else cast_impl(source, tl.float32))
        return cast_impl(widened(source), target)

    def dot(a: object, b: object, *rest: object) -> object:
        return create_dot(widened(a), widened(b), *rest)

    def get_bf16(value: float) -> object:
        """A bfloat16 constant, as in tl.where(mask, x, -float("inf")), which the interpreter lacks."""
        return rounded(tri.TensorHandle(np.array([value], dtype=np.float32), tl.float32))

    builder.cast_impl, builder.create_dot, builder.get_bf16 = rounding_cast, dot, get_bf16


def _hook_functions_of_ones_own(tri: Any) -> None:
    """tl.reduce and tl.associative_scan with a function of one's own combine neighbours in pairs, as a GPU does.

    The interpreter goes through a tile element by element: 16,384 take 16 s, and the error of their sum grows with
    their number instead of its logarithm.
    """

    def combining(self: Any, inputs: tuple) -> Callable[[Arrays, Arrays], Arrays]:
        def combine(first: Arrays, second: Arrays) -> Arrays:
            sides = [
                self.to_tensor(data, tile.dtype)
                for side in (first, second)
                for data, tile in zip(side, inputs, strict=True)
            ]
            combined = self.combine_fn(*sides)
            combined = combined if isinstance(combined, tuple) else (combined,)
            return tuple(_like(data, value) for data, value in zip(first, combined, strict=True))

        def combine_each(first: Arrays, second: Arrays) -> Arrays:
            combined = tuple(np.empty_like(data) for data in first)
            for at in np.ndindex(first[0].shape):
                found = combine(tuple(data[at] for data in first), tuple(data[at] for data in second))
                for data, value in zip(combined, found, strict=True):
                    data[at] = value.item()
            return combined

        return combine_each if _branches(self.combine_fn.fn) else combine

    def reduce(self: Any, inputs: tuple) -> list:
        shape = inputs[0].handle.data.shape
        flat = self.axis is None
        parts = tuple(np.ravel(t.handle.data) if flat else np.moveaxis(t.handle.data, self.axis, 0) for t in inputs)
        (total,) = zip(*reduced(combining(self, inputs), parts), strict=True)
        if self.keep_dims:
            total = [np.reshape(data, (1,) * len(shape)) if flat else np.expand_dims(data, self.axis) for data in total]
        return [self.to_tensor(data, tile.dtype) for data, tile in zip(total, inputs, strict=True)]

    def scan(self: Any, inputs: tuple) -> list:
        parts = tuple(np.moveaxis(tile.handle.data, self.axis, 0) for tile in inputs)
        running = scanned(combining(self, inputs), parts)
        return [
            self.to_tensor(np.moveaxis(data, 0, self.axis), t.dtype) for data, t in zip(running, inputs, strict=True)
        ]

    def cumsum(self: Any, tile: Any) -> list:
        """Of floats: the interpreter's error grows with their number."""
        data = tile.handle.data
        if data.dtype.kind != "f":
            return in_turn(self, tile)
        (running,) = scanned(lambda first, second: (first[0] + second[0],), (np.moveaxis(data, self.axis, 0),))
        return [self.to_tensor(np.moveaxis(running, 0, self.axis), tile.dtype)]

    in_turn = tri.ScanOps.cumsum
    tri.ReduceOps.generic_reduce, tri.ScanOps.generic_scan, tri.ScanOps.cumsum = reduce, scan, cumsum


def _like(data: np.ndarray, value: Any) -> np.ndarray:
    """What a function of one's own returns, a tile or a number, with the shape and dtype of `data`."""
    found = np.asarray(getattr(getattr(value, "handle", None), "data", value), data.dtype)
    return np.broadcast_to(found.reshape(()) if found.size == 1 else found, data.shape)


@functools.cache
def _branches(fn: Callable) -> bool:
    """Whether a function, or one that it calls, asks which of two numbers it has: tiles have no answer."""
    tree = ast.parse(textwrap.dedent(inspect.getsource(fn)))
    if any(isinstance(node, ast.If | ast.IfExp | ast.While | ast.BoolOp) for node in ast.walk(tree)):
        return True
    known = inspect.getclosurevars(fn)
    called = (getattr(value, "fn", None) for value in (*known.globals.values(), *known.nonlocals.values()))
    return any(_branches(one) for one in called if isinstance(one, types.FunctionType) and one is not fn)


def reduced(combine: Callable[[Arrays, Arrays], Arrays], parts: Arrays) -> Arrays:
    """Combines 2ⁿ elements along the first axis into one: neighbours, then pairs of neighbours, and so on."""
    while len(parts[0]) > 1:
        parts = combine(tuple(data[0::2] for data in parts), tuple(data[1::2] for data in parts))
    return parts


def scanned(combine: Callable[[Arrays, Arrays], Arrays], parts: Arrays) -> Arrays:
    """The first 1, 2, 3 … of 2ⁿ elements along the first axis, combined, with as few steps one after another.

    As in Blelloch, Prefix sums and their applications (1990): the running totals of pairs are every second one
    element; the others add one element to the total before them.
    """
    if len(parts[0]) == 1:
        return parts
    even, odd = tuple(data[0::2] for data in parts), tuple(data[1::2] for data in parts)
    pairs = scanned(combine, combine(even, odd))
    after_pairs = combine(tuple(np.roll(data, 1, axis=0) for data in pairs), even)
    running = tuple(np.empty_like(data) for data in parts)
    for data, first, until_even, until_odd in zip(running, even, after_pairs, pairs, strict=True):
        data[0::2], data[1::2] = until_even, until_odd
        data[0] = first[0]
    return running
