"""A kernel of rows in PyTorch, all its programs at once: it takes a millisecond or two, Triton's interpreter fifteen.

The axes of a tensor are the grid's first two, then the lanes. Loads and stores are PyTorch's indexing.
"""

from __future__ import annotations

import ast
import sys
from collections.abc import Callable
from functools import lru_cache
from types import SimpleNamespace
from typing import Any

import torch
import triton

from helpers.check.mistakes.edited import Edit, OfTensors, edited_text
from helpers.check.mistakes.recognise import Seen
from helpers.check.problems.cases import INF, SOFTMAX
from helpers.check.problems.problem import Inputs
from helpers.engine.kernel_text import made


class OfRows(OfTensors):
    """An answer whose kernel takes the softmax of rows, `in_tiles` as large as the learner's are."""

    most_cases, most_pairs, is_quick = 24, 800, True

    def __init__(self, *parts: Callable, in_tiles: bool = False) -> None:
        super().__init__(*parts, kind=SOFTMAX, rtol=1e-4)
        self.in_tiles = in_tiles

    def results(self, edit: Edit, case: Seen) -> Inputs | None:
        """See OfTensors. Tiles of a few numbers are as large as a row: a long one would take minutes."""
        tile = case.trial.tile if case.trial.tile >= 16 else triton.next_power_of_2(case.x.shape[1])
        return run(self.parts, edit, case.x, tile if self.in_tiles else None)


@lru_cache(maxsize=4096)
def run(parts: tuple[Callable, ...], edit: Edit, x: torch.Tensor, tile: int | None = None) -> Inputs | None:
    """What the last of these functions, edited, returns for x, a CPU tensor, in tiles of this size if one is given.

    None if it does not return, or leaves its tensors. Raises NotInAnswer for text that they do not have.
    """
    softmax = _made(parts, edit)
    try:
        return (softmax(x, BLOCK=tile) if tile else softmax(x),)
    except (ArithmeticError, AttributeError, IndexError, RuntimeError, TypeError):
        return None


@lru_cache(maxsize=1024)
def _made(parts: tuple[Callable, ...], edit: Edit) -> Callable[..., torch.Tensor]:
    text = edited_text(parts, edit)
    names = {name: one for name, one in vars(sys.modules[parts[-1].__module__]).items() if not name.startswith("__")}
    return made(ast.parse(text), text, {**names, **_INSTEAD})[parts[-1].__name__]


class _Pointer:
    """Elements of the memory that a tensor lies in."""

    def __init__(self, memory: torch.Tensor, at: int | torch.Tensor) -> None:
        self.memory, self.at = memory, at

    def __add__(self, offset: int | torch.Tensor) -> _Pointer:
        return _Pointer(self.memory, self.at + offset)

    def lanes(self, mask: torch.Tensor | bool) -> tuple[torch.Tensor, torch.Tensor]:
        """The elements, 0 for lanes that are switched off, and the mask. Raises IndexError for one outside."""
        at, mask = torch.broadcast_tensors(*map(torch.as_tensor, (self.at, mask)))
        at = torch.where(mask, at, 0)
        if at.numel() and not 0 <= at.min() <= at.max() < len(self.memory):
            raise IndexError
        return at, mask


class _Kernel:
    def __init__(self, function: Callable[..., None]) -> None:
        self.function = function

    def __getitem__(self, grid: tuple[int, ...]) -> Callable[..., None]:
        def launch(*args: Any, num_warps: int, **sizes: int) -> None:
            _tl.grid = *grid, 1
            self.function(*(_pointer(one) if isinstance(one, torch.Tensor) else one for one in args), **sizes)

        return launch


def _pointer(x: torch.Tensor) -> _Pointer:
    length = x.untyped_storage().nbytes() // x.element_size()
    return _Pointer(x.as_strided((length,), (1,), 0), x.storage_offset())


def _program_id(axis: int) -> torch.Tensor:
    return torch.arange(_tl.grid[axis]).view(-1, *[1] * (2 - axis))


def _load(pointer: _Pointer, mask: torch.Tensor | bool = True, other: float = 0.0) -> torch.Tensor:
    at, mask = pointer.lanes(mask)
    x = pointer.memory[at]
    return torch.where(mask, x, torch.tensor(other).to(x.dtype))


def _store(pointer: _Pointer, value: torch.Tensor, mask: torch.Tensor | bool = True) -> None:
    at, mask = pointer.lanes(mask)
    pointer.memory[at[mask]] = value.expand(at.shape)[mask].to(pointer.memory.dtype)


def _max(x: torch.Tensor, axis: int) -> torch.Tensor:
    """Passes over NaN, as Triton's does."""
    largest = x.masked_fill(x.isnan(), -INF).amax(-1, keepdim=True)
    return largest.masked_fill(x.isnan().all(-1, keepdim=True), torch.nan)


def _of_tensors(function: Callable[..., torch.Tensor]) -> Callable[..., torch.Tensor]:
    return lambda *args: function(*map(torch.as_tensor, args))


_DTYPES = {name: getattr(torch, name) for name in ("int64", "float16", "bfloat16", "float32")}
_FUNCTIONS = {name: _of_tensors(getattr(torch, name)) for name in ("exp", "exp2", "log", "maximum", "minimum", "where")}
_tl = SimpleNamespace(
    **_DTYPES,
    **_FUNCTIONS,
    constexpr=int,
    program_id=_program_id,
    arange=torch.arange,
    load=_load,
    store=_store,
    max=_max,
    sum=lambda x, axis: x.sum(-1, keepdim=True),
)
_triton = SimpleNamespace(jit=_Kernel, next_power_of_2=triton.next_power_of_2)
_INSTEAD = {
    "tl": _tl,
    "triton": _triton,
    "_tile": lambda x, name: triton.next_power_of_2(max(1, x.shape[1])),
    "_block": lambda x, BLOCK: BLOCK,
}
"""For names in an answer's text: a tile may be larger than the row, and x lies on no GPU."""
