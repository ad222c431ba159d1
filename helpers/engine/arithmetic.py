"""Makes Triton's interpreter compute as a GPU does: bfloat16, products in TF32, and reductions that combine in pairs.

interpreter.guard calls this module, and checks that every replaced name exists. traffic.self_test sums a tile of
bfloat16, and so sees whether the interpreter still uses the replacements.
"""

from __future__ import annotations

import ast
import copy
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
    """Hooks the module triton.runtime.interpreter and its builder."""
    _hook_bfloat16(tri, builder)
    _hook_functions_of_ones_own(tri)
    _hook_standard_functions(tri)


def _hook_bfloat16(tri: Any, builder: Any) -> None:
    """Makes the interpreter compute with the number that a bfloat16 is, and round as a GPU does.

    The interpreter itself holds a bfloat16 as 16 bits: it cuts off the last bits of a float32, converts other types as
    if the bits were an integer, and adds, compares and prints the bits.
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
            _refuse_eight_bits(first)
            if first.dtype.scalar != tl.bfloat16:
                return compute(*map(widened, (first, *rest)))
            return rounded(compute(*map(widened, (first, *rest))))

        setattr(builder, name, compute_wide)

    for name in ("binary_op", "unary_op"):
        computes(name)

    cast_impl, create_dot = builder.cast_impl, builder.create_dot
    create_fma, create_print, min_max = builder.create_fma, builder.create_print, tri.ReduceOps.min_max

    def rounding_cast(source: object, target: object) -> object:
        if tl.bfloat16 not in (source.dtype.scalar, target.scalar) or source.dtype.scalar == target.scalar:
            return cast_impl(source, target)
        if target.scalar == tl.bfloat16:
            return rounded(source if source.dtype.scalar == tl.float32 else cast_impl(source, tl.float32))
        return cast_impl(widened(source), target)

    def dot(a: object, b: object, total: object, precision: object, *rest: object) -> object:
        sides = widened(a), widened(b)
        if a.dtype.scalar == tl.float32 and precision == tri._ir.INPUT_PRECISION.TF32:
            sides = [tri.TensorHandle(tf32(side.data), tl.float32) for side in sides]
        return create_dot(*sides, total, precision, *rest)

    def get_bf16(value: float) -> object:
        """A bfloat16 constant, as in tl.where(mask, x, -float("inf")), which the interpreter lacks."""
        return rounded(tri.TensorHandle(np.array([value], dtype=np.float32), tl.float32))

    def fma(x: object, y: object, z: object) -> object:
        _refuse_eight_bits(z)
        if z.dtype.scalar not in (tl.bfloat16, tl.float16):
            return create_fma(x, y, z)
        x, y, total = (widened(handle).data.astype(np.float64) for handle in (x, y, z))
        total += x * y
        if z.dtype.scalar == tl.float16:
            return tri.TensorHandle(total.astype(np.float16), tl.float16)
        return rounded(tri.TensorHandle(total.astype(np.float32), tl.float32))

    def extreme(self: Any, tile: Any, *operations: Any, **named: Any) -> Any:
        """The largest or smallest value, with its place or without it: one of the tile's own."""
        if tile.dtype.scalar != tl.bfloat16:
            return min_max(self, tile, *operations, **named)
        found = min_max(self, self.to_tensor(widened(tile.handle).data, tl.float32), *operations, **named)
        value, *place = found if isinstance(found, tuple) else (found,)
        bits = rounded(value.handle).data
        value = self.to_tensor(bits if value.type.is_block() else bits.item(), tl.bfloat16)
        return (value, *place) if place else value

    def print_numbers(prefix: str, hex: bool, values: list, signed: list) -> None:
        create_print(prefix, hex, values if hex else [widened(value) for value in values], signed)

    builder.cast_impl, builder.create_dot, builder.get_bf16 = rounding_cast, dot, get_bf16
    builder.create_fma, builder.create_print, tri.ReduceOps.min_max = fma, print_numbers, extreme


def tf32(x: np.ndarray) -> np.ndarray:
    """What a tensor core takes of float32 numbers, if it is not told otherwise: 10 of the 23 bits of their fraction."""
    return (x.view(np.uint32) & np.uint32(0xFFFFE000)).view(np.float32)


def _hook_functions_of_ones_own(tri: Any) -> None:
    """Makes tl.reduce and tl.associative_scan combine neighbours in pairs, as a GPU does, for a function of one's own.

    The interpreter goes through a tile element by element: 16,384 elements take 16 s, and the error of their sum grows
    with their number instead of with its logarithm.
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


def _hook_standard_functions(tri: Any) -> None:
    """Rounds tl.sum and the scans of 16-bit values after each step, as a GPU does: their result has 16 bits too.

    The interpreter gives these and the maximum to NumPy, which adds and compares the bits of a bfloat16, and adds
    float16 in float32. It does not recognise a copy of the function that combines, and therefore combines in pairs.
    """
    import triton.language as tl

    rounding = (tl.standard._sum_combine, tl.standard._prod_combine)

    def combining_in_pairs(owner: type) -> None:
        apply_impl = owner.apply_impl

        def apply(self: Any, inputs: tuple) -> Any:
            _refuse_eight_bits(*inputs)
            if inputs[0].dtype.scalar in (tl.bfloat16, tl.float16) and self.combine_fn in rounding:
                self.combine_fn = copy.copy(self.combine_fn)
            return apply_impl(self, inputs)

        owner.apply_impl = apply

    combining_in_pairs(tri.ReduceOps)
    combining_in_pairs(tri.ScanOps)


def _refuse_eight_bits(*values: Any) -> None:
    """Raises TypeError for 8-bit floating-point values, on which Triton compiles no arithmetic for any GPU."""
    for value in values:
        dtype = value.dtype.scalar
        if dtype.is_floating() and dtype.primitive_bitwidth == 8:
            raise TypeError(f"Triton compiles no arithmetic on {dtype}. Convert it first, as in x.to(tl.float32).")


def _like(data: np.ndarray, value: Any) -> np.ndarray:
    """What a function of one's own returns, a tile or a number, with the shape and dtype of `data`."""
    found = np.asarray(getattr(getattr(value, "handle", None), "data", value), data.dtype)
    return np.broadcast_to(found.reshape(()) if found.size == 1 else found, data.shape)


@functools.cache
def _branches(fn: Callable) -> bool:
    """True if a function, or one that it calls, asks which of two numbers it has: a tile has no such answer."""
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
