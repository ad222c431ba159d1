"""The tensors of a launch, as an interpreted kernel sees them: where each lies, and which accesses are out of bounds.

Each tensor of a launch gets an address range of its own, far from all others. A pointer therefore always tells which
tensor it was made from, and becomes a real address only after its bounds are checked.
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Callable, Iterator

import numpy as np
import torch

from helpers.engine.races import MOST_IN_PAIRS, Crowd, Race, Sync, Touch, race, race_of_lanes

Order = Callable[[int], np.ndarray]
"""The order in which to run n programs, as a permutation of their numbers."""

_SPACE_BITS = 48
_MIDDLE = 1 << (_SPACE_BITS - 1)
_PATIENCE = 10_000
"""Accesses after which a program that does not run in its usual turn is taken to wait for another one."""
MOST_BEGUN = 16
"""Programs that may have begun and not ended: one that waits lets another begin as long as there is a place."""
LOOKS_IN_VAIN = 1200
"""Looks after which a program waits forever, since no other program can go on before it ends."""


Programs = list[tuple[int, int, int]]
"""The indices of some programs of a grid."""


def in_order(order: Order, grid: tuple[int, ...]) -> Programs:
    """All programs of a grid in this order."""
    indices = np.unravel_index(order(math.prod(grid)), (*grid, 1, 1)[:3])
    return [(int(i), int(j), int(k)) for i, j, k in zip(*indices, strict=True)]


def backwards(count: int) -> np.ndarray:
    """The last program first."""
    return np.arange(count)[::-1]


def shuffled(count: int) -> np.ndarray:
    """An irregular order, always the same for the same count."""
    return np.random.default_rng(count).permutation(count)


def _as_on_a_gpu(grid: tuple[int, ...]) -> Iterator[tuple[int, int, int]]:
    """The programs of a grid in the order in which a GPU usually begins them."""
    x, y, z = (*grid, 1, 1)[:3]
    return ((i, j, k) for k in range(z) for j in range(y) for i in range(x))


@dataclasses.dataclass(frozen=True)
class Access:
    """A load, store or update that left its tensor: the first element outside, and the number of lanes.

    Of the `tile` lanes, `lanes` are switched on, and `outside` of these lie outside.
    """

    action: str
    tensor: str
    element: int
    outside: int
    lanes: int
    tile: int


class OutOfBounds(IndexError):
    """A program loads or stores an element that its tensor does not have. The access was not made.

    `access` tells more, unless the pointer was not made from any tensor.
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
    tickets: list[int] = dataclasses.field(default_factory=list)
    """The address of each update of a single word, such as the counter that hands out rows; an update that a mask
    switches off is none. They are among loads and stores too."""
    loaders: list[int] = dataclasses.field(default_factory=list)
    """For each access in `loaded`, the program that made it, by its turn."""
    storers: list[int] = dataclasses.field(default_factory=list)
    unfounded: set[int] = dataclasses.field(default_factory=set)
    """Where only some programs run: the turns of the programs that loaded an element which no program has stored."""
    loads_of: list[int] = dataclasses.field(default_factory=list)
    """Elements loaded by each program, in their turns."""
    race: str = ""
    """What two programs do to one element in no order, where `watching` was asked for addresses."""
    not_looked_at: str = ""
    """Where no race shows, and there may be one: a sentence."""
    race_of_lanes: str = ""
    """What two lanes of one program do to one element without a barrier between."""


@dataclasses.dataclass
class _Space:
    """One tensor of a launch: `address` is the pointer given to the kernel in place of `real`."""

    name: str
    address: int
    real: int
    last: int
    itemsize: int
    layout: str
    axes: tuple[tuple[int, int], ...]
    """Size and stride of each dimension, the largest stride first, where there are gaps between the elements."""

    def in_a_gap(self, elements: np.ndarray) -> np.ndarray:
        """Which of these elements, counted in memory from the tensor's first one on, lie in its gaps."""
        for size, stride in self.axes:
            elements = elements - (elements // stride).clip(0, size - 1) * stride
        return elements != 0

    def why_not(self, element: int) -> str:
        """Why `element` is none of the tensor's."""
        if self.axes and 0 <= element < self.last:
            return f"which lies between the {'rows' if self.axes[-1][1] == 1 else 'elements'} of this view"
        return f"which has elements 0 to {self.last}" if self.last >= 0 else "which has no elements"


def _axes(tensor: torch.Tensor) -> tuple[tuple[int, int], ...]:
    """The axes of a _Space: none without gaps, or where elements overlap and gaps cannot be told."""
    pairs = zip(tensor.shape, tensor.stride(), strict=True)
    axes = sorted(((size, stride) for size, stride in pairs if size > 1 and stride > 0), key=lambda axis: axis[1])
    reach = 0
    for size, stride in axes:
        if stride <= reach:
            return ()
        reach += (size - 1) * stride
    return tuple(reversed(axes)) if math.prod(size for size, _ in axes) <= reach and tensor.numel() else ()


class Enough(BaseException):
    """A call has shown what it can show in reasonable time, so the rest of it is not run. No answer catches this."""


class WaitsForLater(RuntimeError):
    """A program waits for another one, which in this order runs only after it."""


class WaitsForever(RuntimeError):
    """A program waits for another one, which cannot begin before it ends."""


@dataclasses.dataclass
class _Begun:
    """A program that has begun, as number `turn`, and has not ended: what it has done so far."""

    program: tuple[int, ...]
    turn: int
    accesses: int = 0
    phase: int = 0
    """Barriers and updates that it has met."""
    looked_at: set[int] = dataclasses.field(default_factory=set)
    """Addresses of its volatile loads."""
    looks_in_vain: int = 0


class Memory:
    """The tensors of the launch in progress and the traffic seen so far; `now` is the program that runs.

    `turns` are the programs to run, if these are not all from the first to the last. With `reordered`, a program that
    waits for a later one is stopped. With `watched`, every access is kept for `race`.

    A program waits if it looks again, by a volatile load, at what it has looked at before. Then another program begins
    and goes on until it ends, as long as fewer than MOST_BEGUN programs have begun and not ended. Programs begin in the
    order of the grid, whose first dimension runs fastest, as on GPUs; or in that of `turns`.
    """

    def __init__(
        self,
        launch: LaunchTraffic,
        names: list[str],
        turns: Programs | None = None,
        reordered: bool = False,
        watched: bool = False,
    ) -> None:
        self.launch = launch
        self.programs: list[tuple[int, ...]] = []
        self.turns = turns
        self.reordered = reordered
        self.accesses_of: list[int] = []
        self._begun: list[_Begun] = []
        self._have_begun: set[tuple[int, ...]] = set()
        self._asked_for = 0
        self._next = iter(turns if turns is not None else _as_on_a_gpu(launch.grid))
        self.watched = watched
        self.touches: list[Touch] = []
        self.names = iter(names)
        self.spaces: list[_Space] = []

    def add(self, tensor: torch.Tensor) -> int:
        """Gives `tensor` a range of its own and returns the address that stands for its first element."""
        reach = sum((size - 1) * stride for size, stride in zip(tensor.shape, tensor.stride(), strict=True))
        space = _Space(
            name=next(self.names, "tensor"),
            address=((len(self.spaces) + 1) << _SPACE_BITS) + _MIDDLE + tensor.data_ptr() % 256,
            real=tensor.data_ptr(),
            last=reach if tensor.numel() else -1,
            itemsize=tensor.element_size(),
            layout=f"shape {tuple(tensor.shape)}, strides {tuple(tensor.stride())}",
            axes=_axes(tensor),
        )
        self.spaces.append(space)
        return space.address

    def in_turn(self, program: tuple[int, ...]) -> tuple[int, ...]:
        """The program whose turn it is, if there is an order: else `program`."""
        if self.turns is not None:
            program = self.turns[self._asked_for]
            self._asked_for += 1
        return program

    def has_begun(self, program: tuple[int, ...]) -> bool:
        """Whether this program has begun while another one was waiting."""
        return program in self._have_begun

    def begin(self, program: tuple[int, ...]) -> None:
        """From here on this program runs."""
        self._begun.append(_Begun(program, len(self.programs)))
        self._have_begun.add(program)
        self.programs.append(program)
        self.launch.loads_of.append(0)

    def end(self) -> None:
        """The program that runs has ended: the one that it was begun by goes on."""
        self.accesses_of.append(self._begun.pop().accesses)

    def another(self, addresses: np.ndarray) -> tuple[int, ...] | None:
        """The program that may begin before the one that runs looks at these addresses; None if it does not wait.

        Raises WaitsForever if it has waited long and none can begin.
        """
        addresses = set(addresses.tolist())
        waits = not self.now.looked_at.isdisjoint(addresses)
        self.now.looked_at |= addresses
        if not waits:
            return None
        if len(self._begun) < MOST_BEGUN:
            for program in self._next:
                if program not in self._have_begun:
                    return program
        self.now.looks_in_vain += 1
        if self.now.looks_in_vain >= LOOKS_IN_VAIN:
            raise WaitsForever(
                f"program {self._name()} has looked {LOOKS_IN_VAIN:,} times at what nobody can store any more: "
                f"{len(self._begun)} programs keep their places, and no other one can go on before this one ends."
            )
        return None

    @property
    def now(self) -> _Begun:
        """The program that runs."""
        return self._begun[-1]

    @property
    def accesses(self) -> int:
        """The accesses of the program that runs."""
        return self.now.accesses

    def translate(
        self,
        pointers: np.ndarray,
        mask: np.ndarray,
        action: str,
        width: int,
        sync: Sync | None = None,
        values: np.ndarray | None = None,
    ) -> np.ndarray:
        """Returns the real addresses of the lanes switched on; raises OutOfBounds if one of them has none.

        `sync` and `values` are what a Touch has. Raises WaitsForLater if a program does not come to its end.
        """
        self.now.accesses += 1
        if self.reordered and self.now.accesses > _PATIENCE:
            raise WaitsForLater(f"program {self._name()} of {self.launch.kernel} waits for another one.")
        active = pointers[mask]
        real = pointers.copy()
        if active.size:
            owners = active >> np.uint64(_SPACE_BITS)
            for owner in (owners[0],) if (owners == owners[0]).all() else np.unique(owners):
                lanes = owners == owner
                active[lanes] = self._real(int(owner), active[lanes], action, width, mask.size)
                if self.watched:
                    stored = None if values is None else np.broadcast_to(values, mask.shape)[mask][lanes]
                    places = np.flatnonzero(mask)[lanes]
                    space = int(owner) - 1
                    self.touches.append(
                        Touch(
                            self.now.turn,
                            action,
                            active[lanes],
                            width,
                            space,
                            sync,
                            stored,
                            places,
                            mask.size,
                            self.now.phase,
                        )
                    )
            self.now.phase += action == "update"
            real[mask] = active
        return real

    def race(self) -> tuple[str, str]:
        """The race of two programs of the launch for one element, as the end of a sentence, and what was not looked at,
        as a sentence; "" if there is none."""
        extents = [(space.real, space.real + (space.last + 1) * space.itemsize) for space in self.spaces]
        found = race(self.touches, extents)
        if isinstance(found, Crowd):
            element = self._element(found.one, found.address)
            said = f"whether programs of {self.launch.kernel} race for {element}"
            return "", f"Not looked at: {said}, which they access more than {MOST_IN_PAIRS:,} times."
        return ("" if found is None else self._words(found)), ""

    def race_of_lanes(self) -> str:
        """The race of two lanes of one program for one element, as the end of a sentence; "" if there is none.

        Tiles of one lane are ignored, because they look like single numbers.
        """
        found = race_of_lanes(self.touches) if self.launch.tile > 1 else None
        if found is None:
            return ""
        program = f"program {self._name(self.programs[found.second.turn])} of {self.launch.kernel}"
        element = self._element(found.second, found.address)
        then = "another lane stores it again" if found.second.action == "store" else "other lanes load it"
        return f"{program} stores {element}, and {then} with no tl.debug_barrier() between"

    def _element(self, touch: Touch, address: int) -> str:
        space = self.spaces[touch.space]
        return f"element {(address - space.real) // space.itemsize} of {space.name}"

    def _words(self, found: Race) -> str:
        element = self._element(found.second, found.address)
        first, second = (f"program {self._name(self.programs[t.turn])}" for t in (found.first, found.second))
        if found.first.action == found.second.action:
            return f"{first} and {second} of {self.launch.kernel} both {found.first.action} {element}"
        return (
            f"{first} of {self.launch.kernel} {found.first.action}s {element}, "
            f"and {second} {found.second.action}s it in the same launch"
        )

    def _real(self, owner: int, pointers: np.ndarray, action: str, width: int, tile: int) -> np.ndarray:
        if not 1 <= owner <= len(self.spaces):
            name = self.launch.kernel
            raise OutOfBounds(f"program {self._name()} of {name} {action}s through a pointer to no tensor.")
        space = self.spaces[owner - 1]
        offset = (pointers - np.uint64(space.address)).view(np.int64)
        outside = (offset < 0) | (offset + width > (space.last + 1) * space.itemsize)
        if space.axes:
            for byte in (*range(0, width, space.itemsize), width - 1):
                outside |= space.in_a_gap((offset + byte) // space.itemsize)
        if outside.any():
            element = int(offset[outside][0]) // space.itemsize
            error = OutOfBounds(
                f"program {self._name()} of {self.launch.kernel} {action}s element {element} of {space.name}, "
                f"{space.why_not(element)} ({space.layout}). Is a mask missing, or an offset wrong?"
            )
            error.access = Access(action, space.name, element, int(outside.sum()), outside.size, tile)
            raise error
        return offset.view(np.uint64) + np.uint64(space.real)

    def _name(self, program: tuple[int, ...] = ()) -> str:
        axes = max((axis + 1 for axis, size in enumerate(self.launch.grid) if size > 1), default=1)
        used = (program or self.now.program)[:axes]
        return str(used[0]) if len(used) == 1 else str(used)
