"""Cases from axes that all exercises share: sizes, options of the driver, places in memory, dtypes, values of a row.

An exercise says what it asks for (`Asked`), and `derived` makes the cases. It writes a case of its own only for what it
alone has. Every small case is repeated: a second call, another order of the programs (trial/call.py).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field

import torch

from helpers.check.problems.cases import INF
from helpers.check.problems.problem import Inputs, Make, With, reserved

Sizes = Mapping[str, int]
"""By letter, the size of each dimension."""


@dataclass(frozen=True)
class Dimension:
    """A dimension that may have any size: what it counts, and the sizes that are tried."""

    of: str
    """Such as "key"."""
    usual: int
    many: str = ""
    """Of several, if it is not `of` and an s."""
    near: int = 2
    """A block, or a power of two: it is tried, and one less and one more."""
    beyond: int = 0
    """Far beyond any number of the text or the starter code."""
    empty: bool = False
    """Whether there may be none."""


@dataclass(frozen=True)
class Asked:
    """What an exercise asks for."""

    dimensions: Mapping[str, Dimension]
    """By letter."""
    tensors: Mapping[str, str]
    """By name, the letters of each input's dimensions, such as "HLD"."""
    draw: Callable[[torch.Generator, Sizes], Inputs]
    """Ordinary inputs in float32."""
    of_row: Callable[[torch.Generator, torch.Tensor], Inputs]
    """Inputs of which every row has these values (N,), each tile of a row in another range of them."""
    row: str
    """The values of a row, in a case's name: "scores"."""
    length: int
    """Values of a row: several tiles, and a part of one."""
    options: Sequence[Sizes] = ()
    """Options that the driver has by the text, with sizes of their own for the dimensions, by letter."""
    few: Sizes = field(default_factory=dict)
    """Options with which places and values take few programs."""
    dtypes: Sequence[torch.dtype] = (torch.bfloat16, torch.float16)
    """Those besides float32."""
    left_out: Mapping[str, str] = field(default_factory=dict)
    """Cases that are not among those derived, each with the reason."""

    def sizes(self, **others: int) -> dict[str, int]:
        """The usual sizes, but for these."""
        return {letter: one.usual for letter, one in self.dimensions.items()} | others


def derived(asked: Asked) -> dict[str, Make]:
    """The cases of an exercise, by name. Raises ValueError if a name that is left out is none of theirs."""
    quick = {case: With(make, **asked.few) for case, make in (*_of_places(asked), *_of_values(asked))}
    cases = dict((*_of_sizes(asked), *_of_options(asked), *_of_dtypes(asked))) | quick
    if unknown := asked.left_out.keys() - cases.keys():
        raise ValueError(f"left out, and no case: {', '.join(sorted(unknown))}; there are {', '.join(cases)}")
    return {case: make for case, make in cases.items() if case not in asked.left_out}


Cases = Iterator[tuple[str, Make]]


def _drawn(asked: Asked, **sizes: int) -> Make:
    return lambda generator: asked.draw(generator, asked.sizes(**sizes))


def _of_sizes(asked: Asked) -> Cases:
    """All dimensions of size 1, and all one below, at and one above what a program takes at once; then one of them far
    beyond, and one of them empty."""
    yield "small random values", _drawn(asked)
    near = ({letter: one.near + more for letter, one in asked.dimensions.items()} for more in (-1, 0, 1))
    for sizes in (dict.fromkeys(asked.dimensions, 1), *near):
        yield _named(asked, sizes), _drawn(asked, **sizes)
    for letter, one in asked.dimensions.items():
        if one.beyond:
            yield _named(asked, {letter: one.beyond}), _drawn(asked, **{letter: one.beyond})
        if one.empty:
            yield f"no {_many(one)}", _drawn(asked, **{letter: 0})


def _named(asked: Asked, sizes: Sizes) -> str:
    named = ((size, asked.dimensions[letter]) for letter, size in sizes.items())
    return ", ".join(f"{size:,} {one.of if size == 1 else _many(one)}" for size, one in named)


def _many(one: Dimension) -> str:
    return one.many or f"{one.of}s"


def _of_options(asked: Asked) -> Cases:
    for given in asked.options:
        sizes = {letter: size for letter, size in given.items() if letter in asked.dimensions}
        options = {name: value for name, value in given.items() if name not in sizes}
        said = [f"{name} = {value}" for name, value in options.items()]
        yield ", ".join([*said, *filter(None, [_named(asked, sizes)])]), With(_drawn(asked, **sizes), **options)


def _of_places(asked: Asked) -> Cases:
    """Each stride of each tensor past 2³¹ elements, and each dimension's 0; then all strides otherwise in each tensor,
    and none aligned. What lies far apart takes the addresses of 4 GiB, and hardly any memory."""
    for name, letters in asked.tensors.items():
        for letter in letters:
            far = _placed(asked, _far, letter, torch.float16, only=name)
            yield f"{_many(asked.dimensions[letter])} of {name} far apart in memory", far
    for letter in dict.fromkeys("".join(asked.tensors.values())):
        yield f"every {asked.dimensions[letter].of} at one place", _placed(asked, _everywhere, letter)
    yield (
        "strides of their own",
        lambda generator: tuple(
            _turned(x, 1 + place) if x.is_floating_point() else x
            for place, x in enumerate(asked.draw(generator, asked.sizes()))
        ),
    )


def _placed(
    asked: Asked,
    place: Callable[[torch.Tensor, int], torch.Tensor],
    letter: str,
    dtype: torch.dtype = torch.float32,
    only: str = "",
) -> Make:
    """Small inputs, each of which, or `only` one, lies otherwise along this dimension, if it has it; integers lie as
    they are drawn. Of three elements the last lies past 2³¹ by a stride that itself has 32 bits."""
    sizes = dict.fromkeys(asked.dimensions, 2) | {letter: 3}

    def make(generator: torch.Generator) -> Inputs:
        drawn = _of_dtype(asked.draw(generator, asked.sizes(**sizes)), dtype)
        return tuple(
            place(x, letters.index(letter)) if letter in letters and x.is_floating_point() and only in ("", name) else x
            for x, (name, letters) in zip(drawn, asked.tensors.items(), strict=True)
        )

    return make


_PAST = 1 << 31
"""Elements that an offset of 32 bits does not reach."""


def _far(x: torch.Tensor, axis: int) -> torch.Tensor:
    """x, whose last index along the axis lies past 2³¹ elements, in memory that is reserved and hardly touched."""
    strides = list(torch.empty(*x.shape[:axis], 1, *x.shape[axis + 1 :], device="meta").stride())
    last = max(1, x.shape[axis] - 1)
    strides[axis] = -(-_PAST // last)
    return reserved(strides[axis] * last + x.numel(), x.dtype).as_strided(x.shape, strides).copy_(x)


def _everywhere(x: torch.Tensor, axis: int) -> torch.Tensor:
    return x.narrow(axis, 0, 1).expand_as(x)


def _turned(x: torch.Tensor, first: int) -> torch.Tensor:
    """x with its first dimension innermost, gaps between all elements, and `first` elements before it: not aligned."""
    strides, stride = [], 1 + first
    for size in x.shape:
        strides.append(stride)
        stride = stride * size + first
    return torch.full((first + stride,), 300.0).as_strided(x.shape, strides, first).copy_(x)


def _of_dtypes(asked: Asked) -> Cases:
    for dtype in asked.dtypes:
        yield str(dtype).removeprefix("torch."), _in_dtype(asked, dtype)


def _in_dtype(asked: Asked, dtype: torch.dtype) -> Make:
    return lambda generator: _of_dtype(asked.draw(generator, asked.sizes()), dtype)


def _of_dtype(inputs: Inputs, dtype: torch.dtype) -> Inputs:
    """The inputs, of which integers stay what they are."""
    return tuple(x.to(dtype) if x.is_floating_point() else x for x in inputs)


FAR_DOWN = -2e37
"""Below any number that stands for −inf; four times as much is a float32."""
ONE_FAR_ABOVE = "around −2·10³⁷, one far above the others"
"""It stands in for equal numbers: added to their m, log l is rounded away, and exp(x − (m + log l)) is wrong."""


def _ramp(first: float, last: float) -> Callable[[torch.Generator, int], torch.Tensor]:
    return lambda generator, N: torch.linspace(first, last, N) + torch.rand(N, generator=generator)


def _around(level: float) -> Callable[[torch.Generator, int], torch.Tensor]:
    return lambda generator, N: level + torch.randn(N, generator=generator)


def _hidden(at: slice, size: float = 3.0) -> Callable[[torch.Generator, int], torch.Tensor]:
    def make(generator: torch.Generator, N: int) -> torch.Tensor:
        row = size * torch.randn(N, generator=generator)
        row[at] = -INF
        return row

    return make


def _alone(at: int, value: float, others: float) -> Callable[[torch.Generator, int], torch.Tensor]:
    def make(generator: torch.Generator, N: int) -> torch.Tensor:
        row = torch.full((N,), others)
        row[at] = value
        return row

    return make


VALUES: dict[str, Callable[[torch.Generator, int], torch.Tensor]] = {
    "that rise, from −500 to 500": _ramp(-500.0, 500.0),
    "that fall, from 500 to −500": _ramp(500.0, -500.0),
    "around 1,000": _around(1000.0),
    "around −1,000": _around(-1000.0),
    "around 12,000": _around(12000.0),
    "around −12,000": _around(-12000.0),
    "all equal": lambda generator, N: torch.zeros(N),
    ONE_FAR_ABOVE: _alone(0, FAR_DOWN, 1.5 * FAR_DOWN),
    "of −inf at the start": _hidden(slice(0, 131)),
    "of −inf at the end": _hidden(slice(100, None)),
    "of −inf, every other one": _hidden(slice(1, None, 2), size=1.0),
    "of −inf, all but the last": _alone(-1, 1.0, -INF),
    "of −inf alone": lambda generator, N: torch.full((N,), -INF),
}
"""By words after the row's, the values of a row."""


def _of_values(asked: Asked) -> Cases:
    for words, values in VALUES.items():
        yield f"{asked.row} {words}", _with_row(asked, values)


def _with_row(asked: Asked, values: Callable[[torch.Generator, int], torch.Tensor]) -> Make:
    return lambda generator: asked.of_row(generator, values(generator, asked.length))
