"""Landlock: a process gives up files that are not listed, TCP, and signals to others, without any privilege.

The names come from https://docs.kernel.org/userspace-api/landlock.html. What Landlock lets through, such as UDP and
the modes of files that one owns, the filter of `calls` refuses.
"""

from __future__ import annotations

import ctypes
import os
import stat
import struct
from collections.abc import Iterable
from pathlib import Path

_CREATE, _ADD, _RESTRICT = 444, 445, 446  # the system calls, on every machine
_VERSION, _BENEATH = 1, 1

_EXECUTE, _WRITE_FILE, _READ_FILE, _READ_DIR = 1 << 0, 1 << 1, 1 << 2, 1 << 3
_REMOVE_DIR, _REMOVE_FILE, _MAKE_DIR, _MAKE_REG = 1 << 4, 1 << 5, 1 << 7, 1 << 8
_MAKE_FIFO, _MAKE_SYM, _REFER, _TRUNCATE, _IOCTL_DEV = 1 << 10, 1 << 12, 1 << 13, 1 << 14, 1 << 15
_OF_FILES = _EXECUTE | _WRITE_FILE | _READ_FILE | _TRUNCATE | _IOCTL_DEV
_READ = _EXECUTE | _READ_FILE | _READ_DIR
_CHANGE = (
    _READ | _WRITE_FILE | _REMOVE_DIR | _REMOVE_FILE | _MAKE_DIR | _MAKE_REG | _MAKE_FIFO | _MAKE_SYM | _REFER
    | _TRUNCATE
)  # fmt: skip
_DEVICE = _READ_FILE | _WRITE_FILE | _IOCTL_DEV
_OVERWRITE = _READ_FILE | _WRITE_FILE | _TRUNCATE

_HANDLED = {1: (1 << 13) - 1, 2: (1 << 14) - 1, 3: (1 << 15) - 1, 5: (1 << 16) - 1}
"""From each version on: the ways of using files that it knows."""
_TCP_FROM, _SCOPES_FROM = 4, 6
_TCP, _SCOPES = 0b11, 0b11  # to bind and to connect; abstract sockets and signals

KEEPS_SIGNALS_FROM = _SCOPES_FROM
"""The version of Linux 6.12, from which on a process cannot send signals to processes outside."""

_libc = ctypes.CDLL(None, use_errno=True)


def version() -> int:
    """The version of Landlock that this kernel has; 0 where it has none, or where it is switched off."""
    return max(0, _libc.syscall(_CREATE, None, ctypes.c_size_t(0), _VERSION))


def restrict(
    readable: Iterable[Path], writable: Iterable[Path], devices: Iterable[Path], overwritable: Iterable[Path] = ()
) -> None:
    """Closes this process, and all that come from it, in: of the files it keeps these and what lies in them.

    In the folders that are `overwritable` it can write files that are there. Closed folders stay closed.
    It must have given up to gain privileges (PR_SET_NO_NEW_PRIVS) before. Raises OSError.
    """
    known = version()
    handled = max((ways for since, ways in _HANDLED.items() if since <= known), default=0)
    tcp, scopes = _TCP * (known >= _TCP_FROM), _SCOPES * (known >= _SCOPES_FROM)
    asked = struct.pack("=QQQ", handled, tcp, scopes)[: 24 if scopes else 16 if tcp else 8]
    rules = _called("make rules", _CREATE, asked, ctypes.c_size_t(len(asked)), 0)
    try:
        for paths, ways in (
            (readable, _READ), (writable, _CHANGE), (devices, _DEVICE), (overwritable, _OVERWRITE),
        ):  # fmt: skip
            for path in paths:
                _allow(rules, path, ways & handled)
        _called("restrict", _RESTRICT, rules, 0)
    finally:
        os.close(rules)


def _allow(rules: int, path: Path, ways: int) -> None:
    place = os.open(path, os.O_PATH | os.O_CLOEXEC)
    try:
        if not stat.S_ISDIR(os.fstat(place).st_mode):
            ways &= _OF_FILES
        _called(f"allow {path}", _ADD, rules, _BENEATH, struct.pack("=Qi", ways, place), 0)
    finally:
        os.close(place)


def _called(what: str, *arguments: object) -> int:
    result = _libc.syscall(*arguments)
    if result < 0:
        number = ctypes.get_errno()
        raise OSError(number, f"Landlock, {what}: {os.strerror(number)}")
    return result
