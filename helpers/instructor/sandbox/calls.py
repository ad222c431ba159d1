"""System calls that a sandbox has no use for, refused by a filter in the kernel (seccomp, see its man page).

They make new namespaces, mount, open sockets, look into other processes, hold memory that belongs to no process and
that nobody counts, or leave in the kernel what another sandbox can find, since all of them read the same files. On
machines of another kind than those below, and on kernels without filters, there is none.
"""

from __future__ import annotations

import ctypes
import errno
import platform
import struct
from dataclasses import dataclass, replace

_LOAD, _AND, _EQUAL, _AT_LEAST, _ANY_BIT, _RETURN = 0x20, 0x54, 0x15, 0x35, 0x45, 0x06
_NUMBER, _MACHINE, _ARGUMENTS = 0, 4, 16  # where struct seccomp_data has them
_ALLOW, _ERROR, _KILL = 0x7FFF0000, 0x00050000, 0x80000000
_SECCOMP, _FILTER = 22, 2

_MACHINES = {"x86_64": (0xC000003E, 0), "aarch64": (0xC00000B7, 1)}
"""Of each kind: its number in the kernel, and which of a call's numbers is its own."""


@dataclass(frozen=True)
class _Test:
    """Whether an argument, of which the lower 32 bits under `mask` are looked at, is `value`; or is not."""

    argument: int
    value: int
    equal: bool
    mask: int = 0xFFFFFFFF
    upper: bool = False
    """The upper 32 bits instead."""


@dataclass(frozen=True)
class _Call:
    """A call, by its numbers on the machines (None where a machine lacks it), and when it is refused.

    It is refused where all tests of one clause hold; the clause () always holds. With `error` 0 it does nothing and
    says that it has done it.
    """

    numbers: tuple[int | None, int | None]
    clauses: tuple[tuple[_Test, ...], ...] = ((),)
    error: int = errno.EPERM


def _everywhere(number: int) -> _Call:
    return _Call((number, number))


_UNIX, _STREAM, _SEQPACKET, _KIND_OF_SOCKET = 1, 1, 5, 0xF
_CORE = 4  # RLIMIT_CORE, which stays 1: not even a program that collects cores is then started
_NEW_NAMESPACES, _PIDFD = 0x7E020080, 0x1000
"""Flags of clone: CLONE_NEWNS, NEWTIME, NEWCGROUP, NEWUTS, NEWIPC, NEWUSER, NEWPID, NEWNET; and CLONE_PIDFD."""

_OF_ONE_S_OWN = (0, 1, 2, 3, 4, 1030, 1032)
"""Commands of fcntl that concern a file as this process has it open: F_DUPFD, F_GETFD, F_SETFD, F_GETFL, F_SETFL,
F_DUPFD_CLOEXEC, F_GETPIPE_SZ. All others concern a file that other processes have open too, or the user's quota."""
_PRIVATE, _COMMAND = 128, 127
_FUTEX_WAIT, _FUTEX_WAIT_BITSET = 0, 9
_ONLY_IF_CACHED = 8  # RWF_NOWAIT
_OF_SOCKETS, _COOKIE = 1, 57  # SOL_SOCKET, SO_COOKIE

_SHARED = {
    # Locks, leases, hints and events of files, and whether a page of one is in memory.
    "flock": _Call((73, 32)), "fcntl": _Call((72, 25), (tuple(_Test(1, one, False) for one in _OF_ONE_S_OWN),)),
    "inotify_init": _Call((253, None)), "inotify_init1": _Call((294, 26)), "fanotify_init": _Call((300, 262)),
    "mincore": _Call((27, 232)), "cachestat": _everywhere(451),
    "preadv2": _Call((327, 286), ((_Test(5, _ONLY_IF_CACHED, True, _ONLY_IF_CACHED),),)),
    "fadvise64": _Call((221, 223)),
    # What the kernel numbers for all processes together: of these a file tells the number, or a socket its cookie.
    "eventfd": _Call((284, None)), "eventfd2": _Call((290, 19)), "pidfd_open": _everywhere(434),
    "getsockopt": _Call((55, 209), ((_Test(1, _OF_SOCKETS, True), _Test(2, _COOKIE, True)),)),
    # What the whole machine has: its log, the number of its processes, names of sockets, locked memory.
    "syslog": _Call((103, 116)), "sysinfo": _Call((99, 179)), "bind": _Call((49, 200)),
    "mlock": _Call((149, 228)), "mlock2": _Call((325, 284)), "mlockall": _Call((151, 230)),
}  # fmt: skip
"""By which two sandboxes could talk. What they still notice of each other is how long things take, how far the
kernel's own counts have gone, and how many processes share a page of a file that all of them read (smaps)."""

_OF_RANKS = {
    "futex": _Call((202, 98), (
        (_Test(1, 0, True, _PRIVATE), *(_Test(1, one, False, _COMMAND) for one in (_FUTEX_WAIT, _FUTEX_WAIT_BITSET))),
    ), errno.EINVAL),
    **{name: _Call((number, number), error=errno.ENOSYS) for name, number in (
        ("futex_waitv", 449), ("futex_wake", 454), ("futex_wait", 455), ("futex_requeue", 456),
    )},
}  # fmt: skip
"""By which ranks could: whoever waits in a page of a file is woken by another process, and counted. All others have it,
since the locks of multiprocessing need it. The C library waits so for the end of a thread, which the kernel tells."""

_REFUSED = {
    "unshare": _Call((272, 97)), "setns": _Call((308, 268)), "mount": _Call((165, 40)), "umount2": _Call((166, 39)),
    "pivot_root": _Call((155, 41)), "open_tree": _everywhere(428), "move_mount": _everywhere(429),
    "fsopen": _everywhere(430), "fsconfig": _everywhere(431), "fsmount": _everywhere(432),
    "mount_setattr": _everywhere(442), "ptrace": _Call((101, 117)), "process_vm_readv": _Call((310, 270)),
    "process_vm_writev": _Call((311, 271)), "pidfd_getfd": _everywhere(438), "bpf": _Call((321, 280)),
    "perf_event_open": _Call((298, 241)), "userfaultfd": _Call((323, 282)), "io_uring_setup": _everywhere(425),
    "memfd_create": _Call((319, 279)), "memfd_secret": _everywhere(447), "shmget": _Call((29, 194)),
    "semget": _Call((64, 190)), "msgget": _Call((68, 186)), "mq_open": _Call((240, 180)), "add_key": _Call((248, 217)),
    "request_key": _Call((249, 218)), "keyctl": _Call((250, 219)),
    # Of sockets there are pairs alone, and of these the kinds that cannot be sent elsewhere later.
    "socket": _Call((41, 198)), "connect": _Call((42, 203)),
    "socketpair": _Call((53, 199), (
        (_Test(0, _UNIX, False),),
        (_Test(1, _STREAM, False, _KIND_OF_SOCKET), _Test(1, _SEQPACKET, False, _KIND_OF_SOCKET)),
    )),
    # The C library falls back from clone3 on clone, whose flags can be seen.
    "clone3": _Call((435, 435), error=errno.ENOSYS),
    "setrlimit": _Call((160, 164), ((_Test(0, _CORE, True),),), error=0),
    # Whoever yields to all others takes no processor time on a busy machine, and so is at no end of it.
    "sched_setparam": _Call((142, 118)), "sched_setscheduler": _Call((144, 119)), "sched_setattr": _Call((314, 274)),
    "setpriority": _Call((141, 140)),
}  # fmt: skip
_CLONE = (56, 220)
_PRLIMIT = _Call(
    (302, 261),
    ((_Test(1, _CORE, True), _Test(2, 0, False)), (_Test(1, _CORE, True), _Test(2, 0, False, upper=True))),
    error=0,
)
"""It also reads limits, where the new ones are not given."""

_OF_THE_SAME_USER = {
    "chmod": _Call((90, None)), "fchmod": _Call((91, 52)), "fchmodat": _Call((268, 53)), "fchmodat2": _everywhere(452),
    "chown": _Call((92, None)), "fchown": _Call((93, 55)), "lchown": _Call((94, None)), "fchownat": _Call((260, 54)),
    "utime": _Call((132, None)), "utimes": _Call((235, None)), "futimesat": _Call((261, None)),
    "utimensat": _Call((280, 88)), "setxattr": _Call((188, 5)), "lsetxattr": _Call((189, 6)),
    "fsetxattr": _Call((190, 7)), "removexattr": _Call((197, 14)), "lremovexattr": _Call((198, 15)),
    "fremovexattr": _Call((199, 16)), "setxattrat": _everywhere(463), "removexattrat": _everywhere(466),
    "file_setattr": _everywhere(469), "ioprio_set": _Call((251, 30)), "migrate_pages": _Call((256, 238)),
    "move_pages": _Call((279, 239)), "process_madvise": _everywhere(440), "kcmp": _Call((312, 272)),
    "sched_setaffinity": _Call((203, 122), ((_Test(0, 0, False),),)),
}  # fmt: skip
"""What changes files and processes of one's own user, and Landlock lets through."""
_PRLIMIT_OF_OTHERS = (_Test(0, 0, False),)


_PACKETS_ONLY = ((_Test(0, _UNIX, False),), (_Test(1, _SEQPACKET, False, _KIND_OF_SOCKET),))
_BESIDE_GPU = {"socket": replace(_REFUSED["socket"], clauses=_PACKETS_ONLY)}
"""CUDA makes a socket of this kind when it starts, and ends where it cannot. Nothing can be reached by it: that takes
connect. It has the calls that are _SHARED too, for of a learner's only kernels run there."""


def program(machine: str, same_user: bool = False, beside_gpu: bool = False, of_rank: bool = False) -> bytes:
    """The filter for a machine as the kernel reads it, one struct sock_filter after another; empty for others.

    `same_user` is for a sandbox whose user has files and processes outside of it, `beside_gpu` for one that uses CUDA,
    `of_rank` for one that other ranks of the same learner run next to.
    """
    if machine not in _MACHINES:
        return b""
    number, which = _MACHINES[machine]
    refused = _REFUSED | (_BESIDE_GPU if beside_gpu else _SHARED) | (_OF_RANKS if of_rank else {})
    steps = [(_LOAD, 0, 0, _MACHINE), (_EQUAL, 1, 0, number), (_RETURN, 0, 0, _KILL), (_LOAD, 0, 0, _NUMBER)]
    steps += [(_AT_LEAST, 0, 1, 1 << 30), (_RETURN, 0, 0, _ERROR | errno.ENOSYS)]  # x32, which has other numbers
    for call in (*refused.values(), *(_OF_THE_SAME_USER.values() if same_user else ())):
        steps += _steps(call, which)
    others = [*_clause(_PRLIMIT_OF_OTHERS, errno.EPERM)] if same_user else []
    steps += _steps(_PRLIMIT, which, others)
    steps += [(_EQUAL, 0, 3, _CLONE[which]), (_LOAD, 0, 0, _ARGUMENTS), (_ANY_BIT, 0, 1, _NEW_NAMESPACES | _PIDFD)]
    steps += [(_RETURN, 0, 0, _ERROR | errno.EPERM), (_RETURN, 0, 0, _ALLOW)]
    return b"".join(struct.pack("=HBBI", *step) for step in steps)


_Step = tuple[int, int, int, int]


def _steps(call: _Call, which: int, first: list[_Step] | None = None) -> list[_Step]:
    number = call.numbers[which]
    if number is None:
        return []
    body = list(first or [])
    for clause in call.clauses:
        body += _clause(clause, call.error)
    if call.clauses != ((),):
        body.append((_RETURN, 0, 0, _ALLOW))
    return [(_EQUAL, 0, len(body), number), *body]


def _clause(tests: tuple[_Test, ...], error: int) -> list[_Step]:
    steps: list[_Step] = []
    for index, test in enumerate(tests):
        over = 3 * (len(tests) - index - 1) + 1  # the other tests, and the return
        jumps = (0, over) if test.equal else (over, 0)
        place = _ARGUMENTS + 8 * test.argument + 4 * test.upper
        steps += [(_LOAD, 0, 0, place), (_AND, 0, 0, test.mask), (_EQUAL, *jumps, test.value)]
    return [*steps, (_RETURN, 0, 0, _ERROR | error)]


class _Program(ctypes.Structure):
    _fields_ = (("length", ctypes.c_ushort), ("filter", ctypes.c_void_p))


def refuse(same_user: bool = False, beside_gpu: bool = False, of_rank: bool = False) -> bool:
    """Has these calls refused to this process and all that come from it; whether the kernel has taken the filter.

    The process must have given up to gain privileges (PR_SET_NO_NEW_PRIVS) before.
    """
    content = program(platform.machine(), same_user, beside_gpu, of_rank)
    if not content:
        return False
    held = ctypes.create_string_buffer(content, len(content))
    asked = _Program(len(content) // 8, ctypes.addressof(held))
    return ctypes.CDLL(None).prctl(_SECCOMP, _FILTER, ctypes.byref(asked), 0, 0) == 0
