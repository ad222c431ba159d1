"""What PyTorch's operations hold in memory during a call, and what they take at once."""

from __future__ import annotations

import itertools
import re
from typing import Any

import torch

from helpers.engine import interpreter
from helpers.engine.modes import Mode
from helpers.engine.torch_parts import tree_leaves
from helpers.traffic import touches_once

_MOVES = re.compile(r"index|scatter|gather|select|slice|pad|cat|stack|split|copy|clone|fill|zero|empty|one|full")
"""Names of operations that put elements in other places, or make them."""


class InUse(Mode):
    """Watches the tensors of PyTorch's operations in the block.

    `joined` has the numbers of elements of the tensors that were taken by an operation which is neither elementwise nor
    a sum nor a copy, such as a product of matrices. A tensor is in use from the operation that makes it to the last one
    that takes it, whatever Python holds: that is known also where operations are carried out again from a record.
    """

    def __init__(self) -> None:
        super().__init__()
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
        places = {one.untyped_storage().data_ptr() for one in taken}
        for place in places & self._of_memory.keys():
            self._made[self._of_memory[place]][2] = self._step
        for one in tree_leaves(result):
            if isinstance(one, torch.Tensor) and (place := one.untyped_storage().data_ptr()) not in places:
                self._of_memory[place] = len(self._made)
                self._made.append([one.untyped_storage().nbytes(), self._step, self._step])
        if not touches_once(func) and not _MOVES.search(func._schema.name):
            self.joined |= {one.numel() for one in taken}
        return result
