"""A problem: the tensors that an answer is given, and the shapes and dtypes of its results.

A learner's process may have all of this: nothing here says which result is right (kind.py does).
"""

from __future__ import annotations

import mmap
import resource
import warnings
import zlib
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import torch

Inputs = tuple[torch.Tensor, ...]
Wants = tuple[tuple[tuple[int, ...], torch.dtype], ...]
"""Shape and dtype of each result."""
Make = Callable[[torch.Generator], torch.Tensor | Inputs]
"""Makes the input of a case, or its inputs, on the CPU."""

MANY = 1000
"""More rows than these, and only a sample of a launch's programs is run."""
ENDS = 4
"""Programs taken from the beginning, and from the end, of each axis of a grid that is sampled."""


@dataclass(frozen=True)
class Problem:
    """What an answer is given: x and, it may be, other tensors; and what it is to return."""

    inputs: Inputs
    wants: Wants
    options: Mapping[str, int] = field(default_factory=dict)
    """For the driver, as far as it takes them: BLOCK, or the number of parts."""
    turned: int = 0
    """The input that has other numbers in a second call."""
    seed: int = 0
    """What the inputs were drawn from."""

    @property
    def x(self) -> torch.Tensor:
        """The first input, whose loads are counted."""
        return self.inputs[0]

    def turn(self) -> None:
        """Puts the numbers of the second call into the tensor that has been given, at the same address.

        An answer may have asked for its gradient.
        """
        with torch.no_grad():
            overwrite(self.inputs[self.turned], changed(self.inputs[self.turned]))

    def changed(self) -> Problem:
        """The problem of a second call, which finds other numbers in one input."""
        inputs = list(self.inputs)
        inputs[self.turned] = changed(inputs[self.turned])
        return replace(self, inputs=tuple(inputs))

    def of_rows(self, rows: Sequence[int]) -> Problem:
        """These rows of every input and of every result; the first rows with their strides."""
        at = slice(len(rows)) if list(rows) == list(range(len(rows))) else list(rows)
        wants = tuple(((len(rows), *shape[1:]), dtype) for shape, dtype in self.wants)
        return replace(self, inputs=tuple(one[at] for one in self.inputs), wants=wants)

    def plain(self) -> dict[str, Any]:
        """Its fields as plain values and tensors, to be sent to another process."""
        return {"inputs": self.inputs, "wants": self.wants, "options": dict(self.options), "turned": self.turned}


@dataclass(frozen=True)
class Problems:
    """By case, makers of problems; `wants` says of the inputs of one what is to be returned."""

    makers: Mapping[str, Make]
    wants: Callable[..., Wants]
    seed: int
    turned: int = 0
    """The input that has other numbers in a second call."""

    def draw(self) -> dict[str, Problem]:
        """Each drawn from the seed and its case: the same in any process and with any others."""
        drawn = {case: inputs_of(make, case, self.seed) for case, make in self.makers.items()}
        return {
            case: Problem(one, self.wants(*one), options_of(self.makers[case]), self.turned, self.seed)
            for case, one in drawn.items()
        }

    def only(self, cases: Iterable[str]) -> Problems:
        """The problems of these cases, as far as there are such."""
        return replace(self, makers={case: self.makers[case] for case in cases if case in self.makers})


def inputs_of(make: Make, case: str, seed: int) -> Inputs:
    """The inputs of a case."""
    made = make(torch.Generator().manual_seed(seed ^ zlib.crc32(case.encode())))
    return made if isinstance(made, tuple) else (made,)


class With:
    """A maker whose inputs are given to the driver with these options, as far as the driver takes them."""

    def __init__(self, make: Make, **options: int) -> None:
        self.make, self.options = make, options

    def __call__(self, generator: torch.Generator) -> torch.Tensor | Inputs:
        """See Make."""
        return self.make(generator)


def options_of(make: Make) -> Mapping[str, int]:
    """The options that a case asks for."""
    return make.options if isinstance(make, With) else {}


def changed(x: torch.Tensor) -> torch.Tensor:
    """Other numbers of the same shape, for a second call: each row, and all rows, from the last to the first."""
    return x.flip(0, -1)


# Memory


def reserved(size: int, dtype: torch.dtype = torch.float16) -> torch.Tensor:
    """A flat tensor of zeros that takes up memory only where it is written to. Raises MemoryError."""
    no_reserve = getattr(mmap, "MAP_NORESERVE", 0x4000)  # named from Python 3.13 on
    _allow(dtype.itemsize * size)
    try:
        memory = mmap.mmap(-1, dtype.itemsize * size, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS | no_reserve)
    except OSError as error:
        raise MemoryError(f"{dtype.itemsize * size:,} bytes cannot be reserved ({error})") from None
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return torch.frombuffer(memory, dtype=dtype)


def _allow(more: int) -> None:
    """Raises the limit of this process's address space, if it has one: reserved memory is not used."""
    most, hard = resource.getrlimit(resource.RLIMIT_AS)
    if most != resource.RLIM_INFINITY:
        most = most + more if hard == resource.RLIM_INFINITY else min(most + more, hard)
        resource.setrlimit(resource.RLIMIT_AS, (most, hard))


def flat_where_overlapping(x: torch.Tensor) -> torch.Tensor:
    """x; if its rows overlap, the flat memory in which they lie."""
    reach = 1 + sum((size - 1) * stride for size, stride in zip(x.shape, x.stride(), strict=True))
    return x if x.numel() <= reach else x.as_strided((reach,), (1,))


def overwrite(x: torch.Tensor, values: torch.Tensor) -> torch.Tensor:
    """Fills x with values of its shape, and returns it. If its rows overlap, one of them has the last word."""
    flat = flat_where_overlapping(x)
    if flat is x:
        return x.copy_(values)
    flat[places_of(x).flatten().to(x.device)] = values.flatten().to(x)
    return x


def places_of(x: torch.Tensor, rows: Sequence[int] | None = None) -> torch.Tensor:
    """The place of each element of x in memory, counted in elements from its first; of the rows `rows` alone."""
    numbers = [torch.arange(size) for size in x.shape]
    if rows is not None:
        numbers[0] = torch.tensor(rows, dtype=torch.int64)
    places = torch.zeros((), dtype=torch.int64)
    for number, stride in zip(numbers, x.stride(), strict=True):
        places = places[..., None] + number * stride
    return places
