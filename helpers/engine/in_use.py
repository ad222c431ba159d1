"""What PyTorch's operations hold in memory during a call, and what they take at once."""

from __future__ import annotations

import itertools
import re
from collections.abc import Sequence
from collections.abc import Set as AbstractSet
from typing import Any

import torch

from helpers.engine import interpreter
from helpers.engine.modes import Mode
from helpers.engine.torch_parts import tree_leaves

OVERWRITES = {"copy_", "fill_", "zero_", "uniform_", "normal_", "random_", "bernoulli_", "exponential_"}
_REDUCTIONS = {"sum", "mean", "prod", "max", "min", "amax", "amin", "argmax", "argmin", "all", "any"}
_COPIES = {"clone", "_to_copy", "cat", "stack", "zeros", "ones", "full"}
OF_SHAPE = {
    "zeros_like", "ones_like", "full_like", "rand_like", "randn_like", "randint_like",
    "new_zeros", "new_ones", "new_full",
}  # fmt: skip
"""Operations that take of a tensor its shape and dtype, and write."""
_ONCE = {*OVERWRITES, *_REDUCTIONS, *_COPIES, *OF_SHAPE}
"""Operations that are not elementwise, and touch each element once all the same."""


def touches_once(func: Any) -> bool:
    """Whether an operation of PyTorch is elementwise, a sum or a copy, and so touches each element once."""
    return func._schema.name.split("::")[-1] in _ONCE or torch.Tag.pointwise in func.tags


_MOVES = re.compile(r"index|scatter|gather|select|slice|pad|cat|stack|split|copy|clone|fill|zero|empty|one|full")
"""Names of operations that put elements in other places, or make them."""


class InUse(Mode):
    """Watches the tensors of PyTorch's operations in the block.

    `joined` has the numbers of elements of the tensors that were taken by an operation which is neither elementwise nor
    a sum nor a copy, such as a product of matrices. A tensor is in use from the operation that makes it to the last one
    that takes it, whatever Python holds: that is known also where operations are carried out again from a record.
    If tensors are `given`, other memory that comes from elsewhere is in use from the first operation that takes it.
    """

    def __init__(self, given: Sequence[torch.Tensor] | None = None) -> None:
        super().__init__()
        self._given = given and _bytes_by_place(given).keys()
        self.joined: set[int] = set()
        self._made: list[list[int]] = []
        self._of_memory: dict[int, int] = {}
        self._step = 0

    @property
    def most_bytes(self) -> int:
        """The most bytes that were in use at once of what operations have made."""
        changes = [0] * (self._step + 2)
        for size, first, last in self._made:
            changes[first] += size
            changes[last + 1] -= size
        return max(itertools.accumulate(changes))

    def __torch_dispatch__(self, func: Any, types: Any, args: tuple = (), kwargs: dict | None = None) -> Any:
        result = func(*args, **(kwargs or {}))
        if interpreter.in_launch() or func.is_view:
            return result
        self._step += 1
        taken = [one for one in tree_leaves((args, kwargs)) if isinstance(one, torch.Tensor)]
        places = _bytes_by_place(taken)
        if self._given is not None:
            self._note(places, self._given | self._of_memory.keys())
        for place in places.keys() & self._of_memory.keys():
            self._made[self._of_memory[place]][2] = self._step
        self._note(_bytes_by_place(tree_leaves(result)), places.keys())
        if not touches_once(func) and not _MOVES.search(func._schema.name):
            self.joined |= {one.numel() for one in taken}
        return result

    def _note(self, found: dict[int, int], known: AbstractSet[int]) -> None:
        """From now on the memory of these places is in use, but for the `known` ones."""
        for place in found.keys() - known:
            self._of_memory[place] = len(self._made)
            self._made.append([found[place], self._step, self._step])


def _bytes_by_place(values: Sequence[Any]) -> dict[int, int]:
    """The memory that the dense tensors among these values have, by its address."""
    tensors = [one for one in values if isinstance(one, torch.Tensor) and one.layout == torch.strided]
    storages = [one.untyped_storage() for one in tensors]
    return {one.data_ptr(): one.nbytes() for one in storages}
