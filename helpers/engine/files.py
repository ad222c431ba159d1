"""Writes files whole or not at all, and reads only regular files."""

from __future__ import annotations

import os
import stat
import threading
from pathlib import Path


def write_whole(path: Path, content: bytes) -> None:
    """Writes a file in one step: a reader finds the old content or the new one, also after a crash."""
    path.parent.mkdir(parents=True, exist_ok=True)
    partial = path.with_name(f".{path.name}.{os.getpid()}-{threading.get_ident()}.partial")
    try:
        with partial.open("wb") as file:
            file.write(content)
            file.flush()
            os.fsync(file.fileno())
        partial.replace(path)
    except OSError:
        partial.unlink(missing_ok=True)
        raise


def link_in(path: Path) -> Path | None:
    """The first part of a path, as it is written, that is a link; None if it has none."""
    return next((part for part in (*reversed(path.parents), path) if part.is_symlink()), None)


class NotRegular(ValueError):
    """A file that must not be read; the message says why."""


def read_regular(path: Path, most: int) -> bytes:
    """The bytes of a file of unknown kind. Raises NotRegular unless it is a regular file of at most `most` bytes."""
    try:
        number = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK)
    except OSError as error:
        raise NotRegular(f"it cannot be opened, or is a link ({error.strerror})") from None
    try:
        about = os.fstat(number)
        if not stat.S_ISREG(about.st_mode):
            raise NotRegular("it is not a regular file")
        if about.st_size > most:
            raise NotRegular(f"it has {about.st_size:,} bytes; {most:,} are the most")
        with open(number, "rb", closefd=False) as file:
            return file.read(most + 1)
    finally:
        os.close(number)
