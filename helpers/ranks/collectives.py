"""What ranks hand over in a collective, and what each of them gets: plain functions of the tensors that they have."""

from __future__ import annotations

from collections.abc import Sequence
from functools import reduce
from typing import NamedTuple

import torch

FromRanks = Sequence[Sequence[torch.Tensor]]
"""From each rank, the tensors that are for one of them."""


class Collective(NamedTuple):
    """One call of a collective on one rank: the tensors that it hands in, and those that are filled.

    `op` is the name of a reduction, such as "SUM"; `root` the rank, within the group, that hands in or receives alone,
    or the tag of a message, which goes from the group's rank `back` to its rank `to`.
    """

    kind: str
    inputs: Sequence[torch.Tensor]
    outputs: Sequence[torch.Tensor]
    op: str = ""
    root: int = -1
    to: int = -1
    back: int = -1


_MERGES = {
    "SUM": torch.add,
    "AVG": torch.add,
    "PRODUCT": torch.mul,
    "MIN": torch.minimum,
    "MAX": torch.maximum,
    "BAND": torch.bitwise_and,
    "BOR": torch.bitwise_or,
    "BXOR": torch.bitwise_xor,
}


def merged(op: str, tensors: Sequence[torch.Tensor]) -> torch.Tensor:
    """The reduction of one tensor from each rank. Raises NotImplementedError for an `op` that is not known here."""
    if op not in _MERGES:
        raise NotImplementedError(f"the reduction {op} is not known here; {', '.join(_MERGES)} are.")
    found = reduce(_MERGES[op], tensors)
    return found / len(tensors) if op == "AVG" else found


_WITH_PARTS = ("scatter", "reduce_scatter", "all_to_all")
"""Collectives in which each rank is given something else."""


def for_rank(call: Collective, world: int, rank: int) -> list[torch.Tensor]:
    """The tensors of a call that are for `rank`."""
    return list(call.inputs[rank::world] if call.kind in _WITH_PARTS else call.inputs)


def handed_over(call: Collective, world: int, rank: int) -> list[list[torch.Tensor]]:
    """What `rank` hands over: tensors for all others, or a list for each rank, empty for itself.

    Nothing else crosses: these are the bytes that a rank sends.
    """
    if call.kind in _WITH_PARTS:
        return [for_rank(call, world, other) if other != rank else [] for other in range(world)]
    return [[] if world == 1 or _only_takes(call, rank) else list(call.inputs)]


def _only_takes(call: Collective, rank: int) -> bool:
    """Whether `rank` hands nothing over, since it is, or is not, the root, or receives a message."""
    if call.kind == "send":
        return rank == call.to
    if call.kind in ("broadcast", "scatter"):
        return rank != call.root
    return call.kind in ("reduce", "gather") and rank == call.root


def arrived(content: bytes, call: Collective, world: int, rank: int, other: int) -> list[torch.Tensor]:
    """What `rank` gets from `other`, of the bytes that have arrived: its own call says the shapes and dtypes.

    Raises ValueError if the bytes are too many or too few.
    """
    if _only_takes(call, other):
        return []
    if call.kind == "all_to_all":
        like = [call.outputs[other]]
    else:
        like = call.outputs if call.kind in ("broadcast", "scatter", "send") else for_rank(call, world, rank)
    if len(content) != bytes_of(like):
        raise ValueError(f"{call.kind} brings {len(content):,} bytes, and {bytes_of(like):,} are there to be filled.")
    numbers = torch.frombuffer(bytearray(content), dtype=torch.uint8) if content else torch.empty(0, dtype=torch.uint8)
    parts = numbers.split([bytes_of([x]) for x in like])
    return [part.clone().view(x.dtype).view(x.shape) for part, x in zip(parts, like, strict=True)]


def filled_with(call: Collective, handed: FromRanks, rank: int) -> list[torch.Tensor]:
    """What the outputs of `rank`, which has made this `call`, are filled with, in their order.

    `handed` has what each rank hands over to it, and its own tensors for itself.
    """
    places = range(len(handed[rank]))
    if call.kind in ("all_reduce", "reduce_scatter") or (call.kind == "reduce" and rank == call.root):
        return [merged(call.op, [tensors[place] for tensors in handed]) for place in places]
    if call.kind == "all_gather":
        return [tensors[place] for place in places for tensors in handed]
    if call.kind in ("broadcast", "scatter"):
        return list(handed[call.root])
    if call.kind == "all_to_all" or (call.kind == "gather" and rank == call.root):
        return [tensors[0] for tensors in handed]
    return list(handed[call.back]) if call.kind == "send" and rank == call.to else []


def agreement(call: Collective) -> list[str]:
    """What all ranks must say alike of this call, in words."""
    said = [f"op={call.op}"] if call.op else []
    if call.root >= 0 and call.kind != "send":
        said.append(f"root={call.root}")
    if call.kind in ("all_reduce", "reduce", "all_gather", "gather", "reduce_scatter"):
        said += dict.fromkeys(map(in_words, call.inputs))
    elif call.kind in ("broadcast", "scatter", "send"):
        said += map(in_words, call.outputs or call.inputs[:1])
    elif call.kind == "all_to_all":
        said += dict.fromkeys(map(_dtype_of, call.inputs))
    return said


def in_words(x: torch.Tensor) -> str:
    """Such as "float32 (3, 4)"."""
    return f"{_dtype_of(x)} {tuple(x.shape)}"


def _dtype_of(x: torch.Tensor) -> str:
    return str(x.dtype).removeprefix("torch.")


def traffic_of(call: Collective, world: int, rank: int) -> tuple[int, int]:
    """Bytes that `rank` sends and receives in a call, whatever algorithm carries them.

    What a rank hands to several others counts once, and so does a reduction that reaches it: n numbers each make an
    all-gather n sent and n · (world − 1) received, an all-reduce n and n. What the links carry is up to the algorithm.
    """
    sent = sum(map(bytes_of, handed_over(call, world, rank)))
    if world == 1:
        return sent, 0
    given, taken = bytes_of(call.inputs), bytes_of(call.outputs)
    if call.kind in ("reduce", "gather"):
        taken = given * (1 if call.kind == "reduce" else world - 1) * (rank == call.root)
    elif call.kind == "all_gather":
        taken = given * (world - 1)
    elif call.kind == "all_to_all":
        taken -= bytes_of([call.outputs[rank]])
    elif call.kind in ("broadcast", "scatter"):
        taken *= rank != call.root
    return sent, taken


def bytes_of(tensors: Sequence[torch.Tensor]) -> int:
    """The bytes that the numbers of tensors take."""
    return sum(x.numel() * x.element_size() for x in tensors)
