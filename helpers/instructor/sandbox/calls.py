"""System calls that a sandbox has no use for, refused by a filter in the kernel (seccomp, see its man page).

They make new namespaces, mount, look into other processes, or hold memory that belongs to no process and that nobody
counts. On machines of another kind than those below, and on kernels without filters, the walls stand without it.
"""

from __future__ import annotations

import ctypes
import errno
import platform
import struct

_X86_64 = {
    "unshare": 272, "setns": 308, "memfd_create": 319, "shmget": 29, "mount": 165, "umount2": 166, "pivot_root": 155,
    "ptrace": 101, "process_vm_readv": 310, "process_vm_writev": 311, "bpf": 321, "perf_event_open": 298,
    "userfaultfd": 323, "add_key": 248, "request_key": 249, "keyctl": 250,
}  # fmt: skip
_AARCH64 = {
    "unshare": 97, "setns": 268, "memfd_create": 279, "shmget": 194, "mount": 40, "umount2": 39, "pivot_root": 41,
    "ptrace": 117, "process_vm_readv": 270, "process_vm_writev": 271, "bpf": 280, "perf_event_open": 241,
    "userfaultfd": 282, "add_key": 217, "request_key": 218, "keyctl": 219,
}  # fmt: skip
_EVERYWHERE = {
    "io_uring_setup": 425, "open_tree": 428, "move_mount": 429, "fsopen": 430, "fsconfig": 431, "fsmount": 432,
    "mount_setattr": 442, "memfd_secret": 447,
}  # fmt: skip
_MACHINES = {"x86_64": (0xC000003E, _X86_64, 56), "aarch64": (0xC00000B7, _AARCH64, 220)}
"""Of each kind: its number in the kernel, the numbers of calls, and that of clone."""
_CLONE3 = 435
_NEW_NAMESPACES = 0x7E020080
"""Flags of clone: CLONE_NEWNS, NEWTIME, NEWCGROUP, NEWUTS, NEWIPC, NEWUSER, NEWPID, NEWNET."""

_LOAD, _EQUAL, _AT_LEAST, _ANY_BIT, _RETURN = 0x20, 0x15, 0x35, 0x45, 0x06
_NUMBER, _MACHINE, _FIRST_ARGUMENT = 0, 4, 16  # where struct seccomp_data has them
_ALLOW, _ERROR, _KILL = 0x7FFF0000, 0x00050000, 0x80000000
_SECCOMP, _FILTER = 22, 2


def program(machine: str) -> bytes:
    """The filter for a machine as the kernel reads it, one struct sock_filter after another; empty for others."""
    if machine not in _MACHINES:
        return b""
    number, calls, clone = _MACHINES[machine]
    steps = [(_LOAD, 0, 0, _MACHINE), (_EQUAL, 1, 0, number), (_RETURN, 0, 0, _KILL), (_LOAD, 0, 0, _NUMBER)]
    steps += [(_AT_LEAST, 0, 1, 1 << 30), (_RETURN, 0, 0, _ERROR | errno.ENOSYS)]  # x32, which has other numbers
    # The C library then falls back on clone, whose flags can be seen here.
    steps += [(_EQUAL, 0, 1, _CLONE3), (_RETURN, 0, 0, _ERROR | errno.ENOSYS)]
    for call in (*calls.values(), *_EVERYWHERE.values()):
        steps += [(_EQUAL, 0, 1, call), (_RETURN, 0, 0, _ERROR | errno.EPERM)]
    steps += [(_EQUAL, 0, 3, clone), (_LOAD, 0, 0, _FIRST_ARGUMENT), (_ANY_BIT, 0, 1, _NEW_NAMESPACES)]
    steps += [(_RETURN, 0, 0, _ERROR | errno.EPERM), (_RETURN, 0, 0, _ALLOW)]
    return b"".join(struct.pack("=HBBI", *step) for step in steps)


class _Program(ctypes.Structure):
    _fields_ = (("length", ctypes.c_ushort), ("filter", ctypes.c_void_p))


def refuse() -> bool:
    """Has these calls refused to this process and all that come from it; whether the kernel has taken the filter.

    The process must have given up to gain privileges (PR_SET_NO_NEW_PRIVS) before.
    """
    content = program(platform.machine())
    if not content:
        return False
    held = ctypes.create_string_buffer(content, len(content))
    asked = _Program(len(content) // 8, ctypes.addressof(held))
    return ctypes.CDLL(None).prctl(_SECCOMP, _FILTER, ctypes.byref(asked), 0, 0) == 0
