"""What a collective hands each rank, as plain functions of the tensors that all ranks hand in."""

from __future__ import annotations

from collections.abc import Sequence
from functools import reduce
from typing import NamedTuple

import torch

FromRanks = Sequence[Sequence[torch.Tensor]]
"""The tensors that each rank hands in."""


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


def filled_with(call: Collective, handed: FromRanks, rank: int) -> list[torch.Tensor]:
    """What the outputs of `rank`, which has made this `call`, are filled with, in their order."""
    world, places = len(handed), range(len(call.inputs))
    if call.kind == "all_reduce" or (call.kind == "reduce" and rank == call.root):
        return [merged(call.op, [tensors[place] for tensors in handed]) for place in places]
    if call.kind == "all_gather":
        return [tensors[place] for place in places for tensors in handed]
    if call.kind == "broadcast":
        return list(handed[call.root])
    if call.kind == "gather" and rank == call.root:
        return [tensors[0] for tensors in handed]
    if call.kind == "scatter":
        return [handed[call.root][rank]]
    if call.kind == "reduce_scatter":
        own = range(rank, len(call.inputs), world)
        return [merged(call.op, [tensors[place] for tensors in handed]) for place in own]
    if call.kind == "all_to_all":
        return [tensors[rank] for tensors in handed]
    if call.kind == "send" and rank == call.to:
        return list(handed[0])
    return []


def agreement(call: Collective) -> list[str]:
    """What all ranks must say alike of this call, in words."""
    said = [f"op={call.op}"] if call.op else []
    if call.root >= 0 and call.kind != "send":
        said.append(f"root={call.root}")
    if call.kind in ("all_reduce", "reduce", "all_gather", "gather", "reduce_scatter"):
        said += dict.fromkeys(map(in_words, call.inputs))
    elif call.kind in ("broadcast", "scatter", "send"):
        said += map(in_words, call.outputs or call.inputs[:1])
    return said


def in_words(x: torch.Tensor) -> str:
    """Such as "float32 (3, 4)"."""
    return f"{str(x.dtype).removeprefix('torch.')} {tuple(x.shape)}"


def traffic_of(call: Collective, world: int, rank: int) -> tuple[int, int]:
    """Bytes that `rank` sends and receives in a call, whatever algorithm carries them.

    What a rank hands to several others counts once, and so does a reduction that reaches it: n numbers each make an
    all-gather n sent and n · (world − 1) received, an all-reduce n and n. What the links carry is up to the algorithm.
    """
    given, taken = map(_bytes_of, (call.inputs, call.outputs))
    others = world - 1
    if not others or call.kind == "barrier":
        return 0, 0
    if call.kind == "all_gather":
        return given, given * others
    if call.kind in ("broadcast", "reduce", "gather", "scatter", "send"):
        return _with_one_end(call, given, taken, others, rank)
    if call.kind == "reduce_scatter":
        return given - given // world, taken
    if call.kind == "all_to_all":
        own = call.inputs[rank].numel() * call.inputs[rank].element_size()
        return given - own, taken - own
    return given, taken


def _with_one_end(call: Collective, given: int, taken: int, others: int, rank: int) -> tuple[int, int]:
    if call.kind == "send":
        return (0, taken) if rank == call.to else (given, 0)
    is_root, share = rank == call.root, 1 / (others + 1)
    if call.kind == "broadcast":
        return (given, 0) if is_root else (0, taken)
    if call.kind == "scatter":
        return (given - int(given * share), 0) if is_root else (0, taken)
    received = given * others if call.kind == "gather" else given
    return (0, received) if is_root else (given, 0)


def _bytes_of(tensors: Sequence[torch.Tensor]) -> int:
    return sum(x.numel() * x.element_size() for x in tensors)
