"""The walls of a sandbox: what a process gives up before it runs a learner's code.

On Linux with namespaces (which need no privilege, where the system allows them) the process sees no other process, no
network, and of the file system Python and `helpers` alone, which it cannot write to; what it may write is a small
folder in memory. Where namespaces are refused, limits and, for root, a user of its own remain: see MEANING.
"""

from __future__ import annotations

import ctypes
import os
import resource
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from helpers.instructor.sandbox import calls

NAMESPACES = "namespaces"
OTHER_USER = "another user"
LIMITS_ONLY = "limits only"

MEANING = {
    NAMESPACES: "no network, no other process, nothing of the file system but Python and helpers, read only",
    OTHER_USER: "a user without rights of its own and limits, but the network and readable files are open",
    LIMITS_ONLY: "limits only: the learners' code can read and write what you can, and use the network",
}


@dataclass(frozen=True)
class SandboxLimits:
    """What a sandbox may use, children included: seconds of processor time a process, bytes, processes, open files."""

    cpu_s: int = 120
    memory: int = 3 << 30
    address_space: int = 12 << 30
    file: int = 64 << 20
    processes: int = 24
    open_files: int = 256


_NEWNS, _NEWUTS, _NEWIPC, _NEWUSER, _NEWPID, _NEWNET = (
    0x00020000, 0x04000000, 0x08000000, 0x10000000, 0x20000000, 0x40000000,
)  # fmt: skip
_RDONLY, _NOSUID, _NODEV, _REMOUNT, _BIND, _MOVE, _REC, _PRIVATE = 1, 2, 4, 32, 4096, 8192, 16384, 1 << 18
_KEPT_FLAGS = {2: 2, 4: 4, 8: 8, 1024: 1024, 2048: 2048, 4096: 1 << 21}  # of statvfs → of mount, which must be kept
_PDEATHSIG, _DUMPABLE, _CAPBSET_DROP, _SUBREAPER, _NO_NEW_PRIVS = 1, 4, 24, 36, 38

_libc = ctypes.CDLL(None, use_errno=True)


def _checked(result: int, what: str) -> None:
    if result != 0:
        number = ctypes.get_errno()
        raise OSError(number, f"{what}: {os.strerror(number)}")


def prctl(option: int, value: int = 0) -> None:
    """Sets one attribute of this process."""
    _checked(_libc.prctl(option, ctypes.c_ulong(value), 0, 0, 0), f"prctl {option}")


def die_with_parent() -> None:
    """Has this process killed when the process that forked it ends."""
    prctl(_PDEATHSIG, 9)


def hide() -> None:
    """Keeps other processes of the same user from reading or changing this one."""
    prctl(_DUMPABLE, 0)


def separate(kind: str) -> None:
    """In the guard of a sandbox: the next child is the first process of a world of its own."""
    if kind != NAMESPACES:
        return
    user, group = os.geteuid(), os.getegid()
    as_root = user == 0
    _checked(_libc.unshare(_NEWPID | (0 if as_root else _NEWUSER)), "unshare")
    if not as_root:
        Path("/proc/self/setgroups").write_text("deny")
        Path("/proc/self/uid_map").write_text(f"{user} {user} 1")
        Path("/proc/self/gid_map").write_text(f"{group} {group} 1")


def close_in(kind: str, limits: SandboxLimits, root: Path, shown: Sequence[Path]) -> None:
    """In the first process of a sandbox: gives up files, network, privileges; `root` is an empty folder to stand on.

    Of the course it sees what is `shown`: files and folders.
    """
    as_root = os.geteuid() == 0
    own = 1_000_000 + os.getppid() if kind == OTHER_USER else 1_000_000 + _outer_pid()
    if kind == NAMESPACES:
        _checked(_libc.unshare(_NEWNS | _NEWNET | _NEWIPC | _NEWUTS), "unshare")
        _stand_on(root, shown)
    elif kind == OTHER_USER:
        os.chdir("/tmp")
    for capability in range(64):
        try:
            prctl(_CAPBSET_DROP, capability)
        except OSError:  # there are no more, or none are held
            break
    if as_root and kind != LIMITS_ONLY:
        os.setgroups([])
        os.setresgid(own, own, own)
        os.setresuid(own, own, own)
    _drop_privileges()
    die_with_parent()
    limit(limits)
    os.nice(5)
    calls.refuse()


def _outer_pid() -> int:
    """A number that no other sandbox has at this time: the process id outside, as the /proc of outside still tells."""
    return int(os.readlink("/proc/self"))


def _stand_on(root: Path, shown: Sequence[Path]) -> None:
    _mount(None, "/", None, _REC | _PRIVATE)
    _mount("tmpfs", root, "tmpfs", _NOSUID | _NODEV, "size=96m,nr_inodes=8k,mode=755")
    for path in _visible(shown):
        _show(path, root)
    for name in ("null", "zero", "full", "random", "urandom"):
        _show(Path("/dev") / name, root, read_only=False)
    for name in ("tmp", "dev/shm"):
        (root / name).mkdir(exist_ok=True)
        (root / name).chmod(0o1777)
    (root / "proc").mkdir()
    _mount("proc", root / "proc", "proc", _NOSUID | _NODEV | 8)
    _mount(None, root / "proc", None, _REMOUNT | _BIND | _RDONLY | _NOSUID | _NODEV | 8)
    os.chdir(root)
    _mount(root, "/", None, _MOVE)
    os.chroot(".")
    os.chdir("/tmp")


def _visible(shown: Sequence[Path]) -> list[Path]:
    """What a sandbox sees: Python, the system's libraries, the packages, and what is `shown` of the course."""
    system = [Path(name) for name in ("/usr", "/bin", "/lib", "/lib64", "/etc/ld.so.cache", "/etc/alternatives")]
    python = [Path(sys.prefix), Path(sys.base_prefix), *shown]
    behind_links = [path.resolve() for path in python]
    paths: list[Path] = []
    for path in [*system, *behind_links, *python]:
        if path.exists() and not any(path.is_relative_to(other) for other in paths):
            paths.append(path)
    return paths


def _show(path: Path, root: Path, read_only: bool = True) -> None:
    inside = root / path.relative_to("/")
    inside.parent.mkdir(parents=True, exist_ok=True)
    if path.is_symlink():
        inside.symlink_to(path.resolve())
        return
    inside.mkdir() if path.is_dir() else inside.touch()
    _mount(path, inside, None, _BIND | _REC)
    if read_only:
        present = os.statvfs(inside).f_flag
        kept = sum(flag for seen, flag in _KEPT_FLAGS.items() if present & seen)
        _mount(None, inside, None, _BIND | _REMOUNT | _RDONLY | _NOSUID | _NODEV | kept)


def _mount(source: object, target: object, kind: str | None, flags: int, options: str | None = None) -> None:
    names = [None if name is None else str(name).encode() for name in (source, target, kind, options)]
    _checked(_libc.mount(names[0], names[1], names[2], ctypes.c_ulong(flags), names[3]), f"mount {target}")


def _drop_privileges() -> None:
    prctl(_NO_NEW_PRIVS, 1)
    header = (ctypes.c_uint32 * 2)(0x20080522, 0)
    _checked(_libc.capset(header, (ctypes.c_uint32 * 6)()), "capset")


def limit(limits: SandboxLimits) -> None:
    """Sets the limits of this process and its children."""
    with open("/proc/self/statm") as file:
        in_use = int(file.read().split()[0]) * resource.getpagesize()
    for what, soft, hard in (
        (resource.RLIMIT_CPU, limits.cpu_s, limits.cpu_s + 5),
        (resource.RLIMIT_AS, in_use + limits.address_space, in_use + limits.address_space),
        (resource.RLIMIT_FSIZE, limits.file, limits.file),
        (resource.RLIMIT_NOFILE, limits.open_files, limits.open_files),
        (resource.RLIMIT_NPROC, limits.processes, limits.processes),
        (resource.RLIMIT_CORE, 0, 0),
    ):
        resource.setrlimit(what, (soft, hard))


def adopt_orphans() -> None:
    """Has this process become the parent of its descendants whose own parents end."""
    prctl(_SUBREAPER, 1)


def descendants(pid: int) -> list[int]:
    """The processes that come from `pid`, at any remove."""
    found: list[int] = []
    waiting = [pid]
    while waiting:
        current = waiting.pop()
        try:
            for task in os.listdir(f"/proc/{current}/task"):
                waiting += map(int, Path(f"/proc/{current}/task/{task}/children").read_text().split())
        except OSError:
            continue
        found.append(current)
    return found[1:]


def memory_of(pids: list[int]) -> int:
    """Bytes of memory that processes hold, what they share counted once."""
    total = 0
    for pid in pids:
        try:
            lines = Path(f"/proc/{pid}/smaps_rollup").read_text().splitlines()
        except OSError:
            continue
        total += sum(int(line.split()[1]) << 10 for line in lines if line.startswith(("Pss_Anon:", "Pss_Shmem:")))
    return total
