"""Reads figures out of two texts: machine code as nvdisasm prints it (SASS), and the kernel in Triton's IR (TTIR)."""

from __future__ import annotations

import math
import re
from collections import Counter
from typing import Any, NamedTuple

from helpers.gpu.architectures import WARP


class Unknown(Exception):
    """Why a figure cannot be had."""


class TileAccess(NamedTuple):
    """A load or store in the kernel: its line of TTIR, lanes of its tile (1 for a scalar), bits of an element."""

    line: int
    is_store: bool
    lanes: int
    bits: int


Span = tuple[int, int]
"""First and last line, or instruction, of a loop."""


def used(usage: str) -> dict[str, int]:
    """Registers and stack bytes of a thread, from what `cuobjdump -res-usage` prints."""
    found = re.search(r"\bREG:(\d+) STACK:(\d+)", usage)
    if not found:
        raise Unknown("cuobjdump prints the registers in a form that is not known here.")
    return {"registers": int(found[1]), "spill_bytes": int(found[2])}


_LABEL = re.compile(r"(\.L\w+):")
_INSTRUCTION = re.compile(r"\s*/\*[0-9a-f]{4,}\*/\s+(@!?\w+\s+)?([A-Z][\w.]*)(.*)")


def instructions(sass: str, name: str) -> tuple[list[str], list[Span]]:
    """The opcodes of the kernel up to its last EXIT, and the loops among them: what a branch back jumps over."""
    opcodes: list[str] = []
    labels: dict[str, int] = {}
    branches: list[tuple[int, str]] = []
    end = 0
    for line in sass.partition(f"\n.text.{name}:")[2].partition("\n//--")[0].splitlines():
        if label := _LABEL.match(line):
            labels[label[1]] = len(opcodes)
        elif found := _INSTRUCTION.match(line):
            condition, opcode, operands = found.groups()
            if opcode.split(".")[0] == "BRA" and (to := re.search(r"\((\.L\w+)\)", operands)):
                branches.append((len(opcodes), to[1]))
            opcodes.append(opcode)
            if opcode == "EXIT" and not condition:
                end = len(opcodes)
    if not end:
        raise Unknown("nvdisasm prints the instructions in a form that is not known here.")
    loops: dict[int, int] = {}
    for source, label in branches:
        if source < end and labels.get(label, end) <= source:
            loops[labels[label]] = max(source, loops.get(labels[label], 0))
    return opcodes[:end], sorted(loops.items())


def counts(opcodes: list[str]) -> dict[str, Any]:
    """The loads and stores by width, and the barriers. Raises Unknown if they are not a thread's own."""
    if any(opcode.startswith(("UTMA", "UBLKCP")) for opcode in opcodes):
        raise Unknown("the kernel moves tiles through tensor descriptors, whose copies are not a thread's.")
    return {
        "loads": dict(Counter(_width(opcode) for opcode in opcodes if _is(opcode, "LDG", "LDGSTS"))),
        "stores": dict(Counter(_width(opcode) for opcode in opcodes if _is(opcode, "STG"))),
        "barriers": sum(opcode.startswith(("BAR.SYNC", "BAR.RED")) for opcode in opcodes),
    }


def _is(opcode: str, *names: str) -> bool:
    return opcode.split(".")[0] in names


def _width(opcode: str) -> int:
    """Bits that a load or store moves for a thread: 32 unless the opcode says otherwise."""
    said = re.search(r"\.[US]?(8|16|64|128|256)(?:\.|$)", opcode)
    return int(said[1]) if said else 32


def tiles(ttir: str) -> tuple[list[TileAccess], list[Span]]:
    """The loads and stores of a kernel in Triton's IR, and the lines of its loops."""
    accesses: list[TileAccess] = []
    loops: list[Span] = []
    opened: list[tuple[int, int]] = []
    depth = 0
    for number, line in enumerate(ttir.splitlines()):
        if re.search(r"\bscf\.(for|while)\b", line):
            opened.append((number, depth))
        elif found := re.search(r"\btt\.(load|store) .*?(?:tensor<([\dx]+)x)?!tt\.ptr<\D*(\d+)", line):
            lanes = [int(size) for size in (found[2] or "1").split("x")]
            accesses.append(TileAccess(number, found[1] == "store", math.prod(lanes), max(8, int(found[3]))))
        depth += line.count("{") - line.count("}")
        while opened and depth <= opened[-1][1]:
            loops.append((opened.pop()[0], number))
    return accesses, sorted(loops)


def per_element(
    opcodes: list[str], loops: list[Span], accesses: list[TileAccess], ir_loops: list[Span], num_warps: int
) -> float:
    """Instructions of all threads per lane of the tile, as KernelReport says. `ir_loops` are the loops of the IR.

    Raises Unknown if the compiler changed the loops so that one cannot tell which is which.
    """
    threads = WARP * num_warps
    moving = [loop for loop in ir_loops if any(access.lanes > 1 for access in _within(loop, accesses))]
    innermost = [loop for loop in moving if not any(other != loop and _inside(other, loop) for other in moving)]
    whole = ((0, len(opcodes) - 1), (0, max((access.line for access in accesses), default=0)))
    if innermost and not loops:
        pairs = [whole]
    elif _depths(loops) != _depths(ir_loops):
        raise Unknown("the compiler changed the kernel's loops, so its instructions per element cannot be told.")
    else:
        pairs = [(loop, same) for loop, same in zip(loops, ir_loops, strict=True) if same in innermost] or [whole]
    instructions, lanes = 0.0, 0
    for (first, last), ir_span in pairs:
        here = _within(ir_span, accesses)
        moved = sum(_width(opcode) for opcode in opcodes[first : last + 1] if _is(opcode, "LDG", "LDGSTS", "STG"))
        looped = [access for loop in innermost for access in _within(loop, here)]
        once, rest = _bits(looped, threads), _bits([access for access in here if access not in looped], threads)
        copies = max(1, round((moved - rest) / once)) if looped else 1
        instructions += (last - first + 1) / copies
        stored = sum(access.lanes for access in here if access.is_store)
        lanes = max(lanes, stored, *(access.lanes for access in here if not access.is_store), 0)
    if lanes < 2:
        raise Unknown("the kernel moves no tile, so instructions for an element cannot be counted.")
    return instructions * threads / lanes


def _bits(accesses: list[TileAccess], threads: int) -> int:
    """Bits that these move for a thread, which has one element of a tile at least."""
    return sum(max(1, access.lanes // threads) * access.bits for access in accesses)


def _within(span: Span, accesses: list[TileAccess]) -> list[TileAccess]:
    return [access for access in accesses if span[0] <= access.line <= span[1]]


def _inside(inner: Span, outer: Span) -> bool:
    return outer[0] <= inner[0] and inner[1] <= outer[1]


def _depths(loops: list[Span]) -> list[int]:
    """How many loops each loop is inside of, itself included: the same for two programs with the same loops."""
    return [sum(_inside(loop, other) for other in loops) for loop in loops]
