"""The tensors of a launch, as an interpreted kernel sees them: where each lies, and what is out of bounds.

Each tensor of a launch gets an address range of its own, far from all others. A pointer therefore always tells which
tensor it was made from, and becomes a real address only after its bounds are checked.
"""

from __future__ import annotations

import dataclasses

import numpy as np
import torch

_SPACE_BITS = 48
_MIDDLE = 1 << (_SPACE_BITS - 1)


@dataclasses.dataclass(frozen=True)
class Access:
    """A load, store or update that left its tensor: the first element outside, and how many lanes there were.

    Of the `tile` lanes, `lanes` are switched on, and `outside` of these lie outside.
    """

    action: str
    tensor: str
    element: int
    outside: int
    lanes: int
    tile: int


class OutOfBounds(IndexError):
    """A program loads or stores an element that its tensor does not have. Nothing was read or written there.

    `access` tells more, save for a pointer that was made from no tensor.
    """

    access: Access | None = None

    def _render_traceback_(self) -> list[str]:
        """Jupyter shows the sentence alone: the frames between are Triton's, not the learner's."""
        return [f"OutOfBounds: {self}"]


@dataclasses.dataclass
class LaunchTraffic:
    """The traffic of one kernel launch, in elements and in bytes. Lanes switched off by a mask do not count."""

    kernel: str
    grid: tuple[int, ...]
    loads: int = 0
    stores: int = 0
    bytes_loaded: int = 0
    bytes_stored: int = 0
    tile: int = 0
    """Lanes of the widest access, those switched off included."""
    loaded: list[np.ndarray] = dataclasses.field(default_factory=list)
    """Addresses loaded, access by access, where `watching` was asked for them."""
    stored: list[np.ndarray] = dataclasses.field(default_factory=list)


@dataclasses.dataclass
class _Space:
    """One tensor of a launch: `address` is the pointer given to the kernel in place of `real`."""

    name: str
    address: int
    real: int
    first: int
    last: int
    itemsize: int
    layout: str


class Memory:
    """The tensors of the launch in progress and the traffic seen so far; `program` is the one that runs."""

    def __init__(self, launch: LaunchTraffic, names: list[str]) -> None:
        self.launch = launch
        self.program: tuple[int, ...] = (0, 0, 0)
        self.names = iter(names)
        self.spaces: list[_Space] = []
        self.patched: set[frozenset[str]] = set()

    def add(self, tensor: torch.Tensor) -> int:
        """Gives `tensor` a range of its own and returns the address that stands for its first element."""
        reach = [(size - 1) * stride for size, stride in zip(tensor.shape, tensor.stride(), strict=True)]
        empty = tensor.numel() == 0
        space = _Space(
            name=next(self.names, "tensor"),
            address=((len(self.spaces) + 1) << _SPACE_BITS) + _MIDDLE + tensor.data_ptr() % 256,
            real=tensor.data_ptr(),
            first=sum(r for r in reach if r < 0),
            last=-1 if empty else sum(r for r in reach if r > 0),
            itemsize=tensor.element_size(),
            layout=f"shape {tuple(tensor.shape)}, strides {tuple(tensor.stride())}",
        )
        self.spaces.append(space)
        return space.address

    def translate(self, pointers: np.ndarray, mask: np.ndarray, action: str, width: int) -> np.ndarray:
        """Returns the real addresses of the lanes switched on; raises OutOfBounds if one of them has none."""
        active = pointers[mask]
        real = pointers.copy()
        if active.size:
            owners = active >> np.uint64(_SPACE_BITS)
            for owner in (owners[0],) if (owners == owners[0]).all() else np.unique(owners):
                lanes = owners == owner
                active[lanes] = self._real(int(owner), active[lanes], action, width, mask.size)
            real[mask] = active
        return real

    def _real(self, owner: int, pointers: np.ndarray, action: str, width: int, tile: int) -> np.ndarray:
        if not 1 <= owner <= len(self.spaces):
            name = self.launch.kernel
            raise OutOfBounds(f"program {self._program()} of {name} {action}s through a pointer to no tensor.")
        space = self.spaces[owner - 1]
        offset = (pointers - np.uint64(space.address)).view(np.int64)
        outside = (offset < space.first * space.itemsize) | (offset + width > (space.last + 1) * space.itemsize)
        if outside.any():
            element = int(offset[outside][0]) // space.itemsize
            has = f"elements {space.first} to {space.last}" if space.last >= space.first else "no elements"
            error = OutOfBounds(
                f"program {self._program()} of {self.launch.kernel} {action}s element {element} of {space.name}, "
                f"which has {has} ({space.layout}). Is a mask missing, or an offset wrong?"
            )
            error.access = Access(action, space.name, element, int(outside.sum()), outside.size, tile)
            raise error
        return offset.view(np.uint64) + np.uint64(space.real)

    def _program(self) -> str:
        used = self.program if any(self.program[1:]) else self.program[:1]
        return str(used[0]) if len(used) == 1 else str(used)
