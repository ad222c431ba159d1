"""The limits of one streaming multiprocessor (SM) of each architecture that a kernel can be compiled for.

They come from the CUDA Programming Guide, appendix "Compute Capabilities", table "Technical Specifications per Compute
Capability". How kernels share them is in `helpers.gpu.occupancy`.
"""

from __future__ import annotations

from dataclasses import dataclass

from helpers.gpu import datasheets

KB = 1024
WARP = 32
REGISTERS = 65536
"""32-bit registers of an SM, the same on every architecture here."""


@dataclass(frozen=True)
class Architecture:
    """The limits of one SM: its resident warps and programs, and its bytes of shared memory.

    CUDA reserves `reserved_bytes` of shared memory in each program. A program's share is a multiple of `unit_bytes`.
    """

    max_warps: int
    max_programs: int
    shared_bytes: int
    reserved_bytes: int = KB
    unit_bytes: int = 128

    @property
    def program_shared_bytes(self) -> int:
        """The most shared memory that one program can have, in bytes."""
        return self.shared_bytes - self.reserved_bytes


ARCHITECTURES = {
    "sm_75": Architecture(32, 16, 64 * KB, reserved_bytes=0, unit_bytes=256),
    "sm_80": Architecture(64, 32, 164 * KB),
    "sm_86": Architecture(48, 16, 100 * KB),
    "sm_87": Architecture(48, 16, 164 * KB),
    "sm_89": Architecture(48, 24, 100 * KB),
    "sm_90": Architecture(64, 32, 228 * KB),
    "sm_100": Architecture(64, 32, 228 * KB),
    "sm_103": Architecture(64, 32, 228 * KB),
    "sm_120": Architecture(48, 24, 100 * KB),
    "sm_121": Architecture(48, 24, 100 * KB),
}
"""Every architecture that a kernel can be compiled for here, by target."""


def architecture(target: str) -> Architecture:
    """The limits of a target such as "sm_90". Raises ValueError if the target is not in ARCHITECTURES."""
    if target not in ARCHITECTURES:
        known = ", ".join(f"{gpu} {sheet.architecture}" for gpu, sheet in datasheets.DATASHEETS.items())
        raise ValueError(f"target must be one of {', '.join(ARCHITECTURES)}; it is {target!r}. GPUs have: {known}.")
    return ARCHITECTURES[target]
