"""The GPUs that the course mentions, by name. The limits of one multiprocessor are in `helpers.gpu.architectures`.

Sources: for H100, H200 and the multiprocessors of B200, CUDA's device properties; for the L2 cache of B200, the CUDA
Blackwell Tuning Guide, section "Increased L2 Capacity"; for A100, RTX 4090 and RTX 5090, NVIDIA's white papers on the
Ampere, Ada and RTX Blackwell architectures.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

MB = 2**20


@dataclass(frozen=True)
class Datasheet:
    """A GPU's architecture ("sm_90"), its streaming multiprocessors (SMs), and the bytes of its L2 cache."""

    architecture: str
    multiprocessors: int
    l2_bytes: int


DATASHEETS = {
    "A100": Datasheet("sm_80", 108, 40 * MB),
    "RTX 4090": Datasheet("sm_89", 128, 72 * MB),
    "H100": Datasheet("sm_90", 132, 50 * MB),
    "H200": Datasheet("sm_90", 132, 60 * MB),
    "B200": Datasheet("sm_100", 148, 126 * MB),
    "RTX 5090": Datasheet("sm_120", 170, 96 * MB),
}
"""Keyed by the name that NVIDIA sells the GPU under. If there are several versions, it is the SXM version for servers.
"""

PEAK_GBPS = {
    "T4": 320, "L4": 300, "A100": 2039, "RTX 4090": 1008, "RTX 5090": 1792, "H100": 3938, "H200": 4800, "B200": 8000,
}  # fmt: skip
"""The memory bandwidth in the data sheet of a GPU, in GB/s, for the fastest version sold under this name."""

ENOUGH_PROGRAMS = 256
"""With this many programs, every multiprocessor of each GPU above has one: the power of two above their largest number.
"""


def gpus_of(architecture: str) -> list[str]:
    """The names of the GPUs that have this architecture."""
    return [name for name, gpu in DATASHEETS.items() if gpu.architecture == architecture]


def sold_as(gpu: str) -> str | None:
    """The name in PEAK_GBPS that a driver's name contains (A100 for "NVIDIA A100-SXM4-80GB"), or None."""
    return next((name for name in PEAK_GBPS if re.search(rf"\b{name}\b", gpu)), None)
