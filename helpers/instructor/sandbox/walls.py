"""The walls of a sandbox: what a process gives up before it runs a learner's code.

On Linux with namespaces (which need no privilege, where the system allows them) the process sees no other process, no
network, and of the file system Python and `helpers` alone, which it cannot write to; what it may write is a small
folder in memory. Where namespaces are refused, Landlock closes the files, and the filter of `calls` the network. Where
that is refused too, root can make it another user. Less is not enough to grade with: see MEANING and ENOUGH.
"""

from __future__ import annotations

import ctypes
import os
import pwd
import resource
import sys
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from helpers.instructor import REPOSITORY
from helpers.instructor.sandbox import calls, landlock, lent

NAMESPACES = "namespaces"
LANDLOCK = "Landlock"
OTHER_USER = "another user"
LIMITS_ONLY = "limits only"

MEANING = {
    NAMESPACES: "no network, no other process, nothing of the file system but Python and helpers, read only",
    LANDLOCK: "no network, no signals to other processes, and of the files the content of Python and helpers alone",
    OTHER_USER: "no network and a user without rights of its own, who can read the files that everybody can",
    LIMITS_ONLY: "limits only: the learners' code can read and write what you can, and end your processes",
}
ENOUGH = (NAMESPACES, LANDLOCK, OTHER_USER)
"""Strangers' code runs behind the first of these that holds."""
CHOICES = {"namespaces": NAMESPACES, "landlock": LANDLOCK, "user": OTHER_USER, "limits": LIMITS_ONLY}
"""The kinds by the words that `--walls` takes."""


@dataclass(frozen=True)
class SandboxLimits:
    """What a sandbox may use, children included: seconds of processor time a process, bytes, processes, open files."""

    cpu_s: int = 120
    memory: int = 3 << 30
    address_space: int = 12 << 30
    file: int = 64 << 20
    processes: int = 24
    open_files: int = 256
    folder: int = 96 << 20
    """Bytes of files."""
    n_files: int = 8_000


@dataclass(frozen=True)
class SandboxRequest:
    """What a zygote is asked for: a sandbox behind walls of this kind, with a folder of its own below `folder`.

    It ends when all its processes together have taken `processor_s` seconds. Where `devices` are to be used, the
    process inside is a new Python, since a forked one cannot use a GPU. Of the course it has the `given` files: all
    of it for None.
    """

    kind: str
    folder: str
    processor_s: float = 600.0
    devices: tuple[str, ...] = ()
    given: lent.Lent | None = lent.NOTHING
    of_rank: bool = False
    """Whether other ranks of the same learner run next to it, with which it must not talk."""

    def __post_init__(self) -> None:
        """Raises ValueError for a kind of walls that there is not."""
        if self.kind not in MEANING:
            raise ValueError(f"walls of the kind {self.kind!r} do not exist; there are {', '.join(MEANING)}.")


def limits_of(request: SandboxRequest) -> SandboxLimits:
    """The limits of a sandbox. A GPU's library reserves far more addresses than there is memory."""
    return SandboxLimits(address_space=1 << 46, processes=96) if request.devices else SandboxLimits()


_NEWNS, _NEWUTS, _NEWIPC, _NEWUSER, _NEWPID, _NEWNET = (
    0x00020000, 0x04000000, 0x08000000, 0x10000000, 0x20000000, 0x40000000,
)  # fmt: skip
_RDONLY, _NOSUID, _NODEV, _REMOUNT, _BIND, _MOVE, _REC, _PRIVATE = 1, 2, 4, 32, 4096, 8192, 16384, 1 << 18
_KEPT_FLAGS = {2: 2, 4: 4, 8: 8, 1024: 1024, 2048: 2048, 4096: 1 << 21}  # of statvfs → of mount, which must be kept
_PDEATHSIG, _CAPBSET_DROP, _SUBREAPER, _NO_NEW_PRIVS = 1, 24, 36, 38

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


def close_in(request: SandboxRequest, limits: SandboxLimits, own: Path, shown: Sequence[Path]) -> None:
    """In the first process of a sandbox: gives up files, network, privileges, and goes to the folder that it may write.

    That folder is `own`, which is empty; with namespaces it is one in memory instead. Of the course it sees what is
    `shown`: files and folders. Devices of the `request` stay usable. Raises OSError.
    """
    kind, devices = request.kind, [Path(device) for device in request.devices]
    as_root, seen = os.geteuid() == 0, visible(shown)
    changes_user = as_root and kind != LIMITS_ONLY
    user = 1_000_000 + (_outer_pid() if kind == NAMESPACES else os.getppid())
    most = limits.processes + (0 if as_root or kind == NAMESPACES else _tasks_of(os.geteuid()))
    if kind == NAMESPACES:
        _checked(_libc.unshare(_NEWNS | _NEWNET | _NEWIPC | _NEWUTS), "unshare")
        _stand_on(own, seen, devices)
    else:
        os.chdir(own)
    for capability in range(64):
        try:
            prctl(_CAPBSET_DROP, capability)
        except OSError:  # there are no more, or none are held
            break
    if changes_user:
        if kind != NAMESPACES:
            os.chown(own, user, user)
        os.setgroups([])
        os.setresgid(user, user, user)
        os.setresuid(user, user, user)
    _drop_privileges()
    die_with_parent()
    if kind in (LANDLOCK, OTHER_USER):
        _require_readable(seen)
    if kind == LANDLOCK:
        _lock([*seen, Path("/proc")], own, devices, changes_user)
    limit(limits, most)
    os.nice(5)
    filtered = calls.refuse(kind == LANDLOCK and not changes_user, bool(devices), request.of_rank)
    if not filtered and kind in (LANDLOCK, OTHER_USER):
        raise OSError("this kernel takes no filter of system calls, which would refuse the network")


def _require_readable(paths: Sequence[Path]) -> None:
    for path in paths:
        if not os.access(path, os.R_OK):
            raise OSError(f"{path}, which Python needs, can be read by its owner alone")


def _lock(seen: Sequence[Path], own: Path, devices: Sequence[Path], other_user: bool) -> None:
    known = landlock.version()
    if not known:
        raise OSError("this kernel has none, or it is switched off")
    if known < landlock.KEEPS_SIGNALS_FROM and not other_user:
        raise OSError(f"version {known} of this kernel does not keep signals in, which Linux 6.12 and newer do")
    nodes = [path for name in _NODES if (path := Path("/dev") / name).exists()]
    landlock.restrict(seen, [own], [*nodes, *devices], [Path("/proc")] if devices else [])


def write_own_processes_only(kind: str, own: Path, devices: Sequence[Path]) -> None:
    """In the process that uses `devices`: of what says something of processes it can write only its own.

    CUDA gives its threads names there. Elsewhere than behind Landlock other processes are not there, or another user's.
    """
    if kind == LANDLOCK:
        nodes = [path for name in _NODES if (path := Path("/dev") / name).exists()]
        landlock.restrict([Path("/")], [own], [*nodes, *devices], [Path("/proc/self")])


def _tasks_of(user: int) -> int:
    """How many processes and threads a user has: the limit of a sandbox that is the same user counts them too."""
    found = 0
    for name in filter(str.isdigit, os.listdir("/proc")):
        try:
            if os.stat(f"/proc/{name}").st_uid == user:
                found += len(os.listdir(f"/proc/{name}/task"))
        except OSError:
            continue
    return found


def _outer_pid() -> int:
    """A number that no other sandbox has at this time: the process id outside, as the /proc of outside still tells."""
    return int(os.readlink("/proc/self"))


_NODES = ("null", "zero", "full", "random", "urandom")


def _stand_on(root: Path, seen: Sequence[Path], devices: Sequence[Path]) -> None:
    _mount(None, "/", None, _REC | _PRIVATE)
    _mount("tmpfs", root, "tmpfs", _NOSUID | _NODEV, "size=96m,nr_inodes=8k,mode=755")
    for path in seen:
        _show(path, root)
    for name in _NODES:
        _show(Path("/dev") / name, root, _NOSUID)  # written to all the same, but for its times
    for path in devices:
        _show(path, root, read_only=False)
    for name in ("tmp", "dev/shm"):
        (root / name).mkdir(exist_ok=True)
        (root / name).chmod(0o1777)
    (root / "proc").mkdir()
    try:  # without the machine's own counts, which are for CUDA
        _mount("proc", root / "proc", "proc", _NOSUID | _NODEV | 8, None if devices else "subset=pid")
    except OSError:  # before Linux 5.8
        _mount("proc", root / "proc", "proc", _NOSUID | _NODEV | 8)
    if not devices:  # CUDA gives its threads names there
        _mount(None, root / "proc", None, _REMOUNT | _BIND | _RDONLY | _NOSUID | _NODEV | 8)
    os.chdir(root)
    _mount(root, "/", None, _MOVE)
    os.chroot(".")
    os.chdir("/tmp")


def visible(shown: Sequence[Path]) -> list[Path]:
    """What a sandbox sees: Python, the system's libraries, the packages, and the `shown` files of the course."""
    settings = "/etc/python{}.{}".format(*sys.version_info)  # Debian's Python has links to it
    system = ("/usr", "/bin", "/sbin", "/lib", "/lib64", "/etc/ld.so.cache", "/etc/alternatives", settings)
    elsewhere = [Path(entry) for entry in sys.path if entry and Path(entry).exists() and not is_private(Path(entry))]
    python = [Path(sys.prefix), Path(sys.base_prefix), *shown, *elsewhere]
    behind_links = [path.resolve() for path in python]
    paths: list[Path] = []
    for path in [*map(Path, system), *behind_links, *python]:
        if path.exists() and not any(path.is_relative_to(other) for other in paths):
            paths.append(path)
    return paths


def is_private(path: Path) -> bool:
    """Whether a folder from which Python imports holds more than packages: this checkout, another one, or a home."""
    path = path.resolve()
    places = (REPOSITORY.resolve(), *_homes())
    return (path / "solutions").exists() or any(place.is_relative_to(path) for place in places)


def _homes() -> list[Path]:
    """The homes that the environment and the system say the user has, which differ in containers and after su."""
    homes = [os.environ["HOME"]] if os.environ.get("HOME") else []
    with suppress(KeyError):  # a user without a name, as containers have them
        homes.append(pwd.getpwuid(os.getuid()).pw_dir)
    return [Path(home).resolve() for home in homes]


def _show(path: Path, root: Path, flags: int = _NOSUID | _NODEV, read_only: bool = True) -> None:
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
        _mount(None, inside, None, _BIND | _REMOUNT | _RDONLY | flags | kept)


def _mount(source: object, target: object, kind: str | None, flags: int, options: str | None = None) -> None:
    names = [None if name is None else str(name).encode() for name in (source, target, kind, options)]
    _checked(_libc.mount(names[0], names[1], names[2], ctypes.c_ulong(flags), names[3]), f"mount {target}")


def _drop_privileges() -> None:
    prctl(_NO_NEW_PRIVS, 1)
    header = (ctypes.c_uint32 * 2)(0x20080522, 0)
    _checked(_libc.capset(header, (ctypes.c_uint32 * 6)()), "capset")


def limit(limits: SandboxLimits, processes: int) -> None:
    """Sets the limits of this process and its children; its user may have this number of `processes`."""
    with open("/proc/self/statm") as file:
        in_use = int(file.read().split()[0]) * resource.getpagesize()
    for what, soft, hard in (
        (resource.RLIMIT_CPU, limits.cpu_s, limits.cpu_s + 5),
        (resource.RLIMIT_AS, in_use + limits.address_space, in_use + limits.address_space),
        (resource.RLIMIT_FSIZE, limits.file, limits.file),
        (resource.RLIMIT_NOFILE, limits.open_files, limits.open_files),
        (resource.RLIMIT_NPROC, processes, processes),
        (resource.RLIMIT_CORE, 1, 1),
    ):
        resource.setrlimit(what, (soft, hard))


def adopt_orphans() -> None:
    """Has this process become the parent of its descendants whose own parents end."""
    prctl(_SUBREAPER, 1)


def memory_of(pids: list[int]) -> int:
    """Bytes of memory that processes hold; what they share is counted once, unless they hide their maps."""
    total = 0
    for pid in pids:
        try:
            lines = Path(f"/proc/{pid}/smaps_rollup").read_text().splitlines()
        except PermissionError:
            total += _resident(pid)
            continue
        except OSError:
            continue
        total += sum(int(line.split()[1]) << 10 for line in lines if line.startswith(("Pss_Anon:", "Pss_Shmem:")))
    return total


def _resident(pid: int) -> int:
    """Bytes of a process's own memory, as everybody can read them."""
    try:
        _, resident, shared, *_ = map(int, Path(f"/proc/{pid}/statm").read_text().split())
    except (OSError, ValueError):
        return 0
    return (resident - shared) * resource.getpagesize()


def fills(folder: Path, limits: SandboxLimits) -> str:
    """Why a folder, or the disk that it is on, holds too much; empty where it does not."""
    free = os.statvfs(folder)
    if free.f_bavail * free.f_frsize < LEAST_FREE:
        return f"less than {LEAST_FREE >> 20} MB of the disk were left"
    size, count, waiting = 0, 0, [folder]
    while waiting:
        try:
            entries = list(os.scandir(waiting.pop()))
        except OSError:
            continue
        for entry in entries:
            try:
                size, count = size + entry.stat(follow_symlinks=False).st_blocks * 512, count + 1
            except OSError:
                continue
            if size > limits.folder or count > limits.n_files:
                return f"it wrote more than {limits.folder >> 20} MB or {limits.n_files:,} files"
            if entry.is_dir(follow_symlinks=False):
                waiting.append(Path(entry.path))
    return ""


LEAST_FREE = 256 << 20
"""Bytes of a disk without which no sandbox begins, and with which one ends whose files lie there."""
