"""The files of a folder or zip, archives in it included, each with how it is read or why it cannot be.

Only regular files count. A link, a device, or a path that leads elsewhere is somebody's trick or mistake, and is named.
"""

from __future__ import annotations

import os
import shutil
import stat
import time
import zipfile
import zlib
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path, PurePosixPath
from tempfile import TemporaryFile
from typing import IO

from helpers.engine.files import NotRegular, read_regular
from helpers.instructor.collect.names import of_system
from helpers.instructor.publish.notebooks import NotebookError

LARGEST = 100 << 20
"""Bytes that a notebook, or an archive within an archive, may have."""
_MOST_FILES = 100_000
_DEEPEST = 3
"""Archives within archives that are opened."""
_UNREADABLE = (zipfile.BadZipFile, OSError, RuntimeError, NotImplementedError, EOFError, ValueError, zlib.error)


@dataclass(frozen=True)
class SourceFile:
    """A file of a source: its path in it, the archives as folders, and its content."""

    path: str
    read: Callable[[], bytes]
    """The bytes. Raises NotRegular, whose message says why they cannot be had."""
    modified: float = 0.0
    problem: str = ""
    """Why it cannot be read, where that is known beforehand."""


@dataclass
class Opened:
    """The files of a source that people have made, and how many there are of systems."""

    files: list[SourceFile]
    of_systems: int = 0


@contextmanager
def opened(source: Path) -> Iterator[Opened]:
    """The files of a folder or zip, which stay readable while the context lasts.

    Raises NotebookError for anything else, for a damaged zip, and for more than 100,000 files.
    """
    found = Opened([])
    with ExitStack() as stack:
        if source.is_dir():
            _folder(source, found, stack)
        elif source.is_file() and zipfile.is_zipfile(source):
            try:
                archive = stack.enter_context(zipfile.ZipFile(source))
            except _UNREADABLE as error:
                raise NotebookError(f"{source.name} cannot be read ({error}).") from None
            _archive(archive, "", found, stack, 0)
        elif source.exists():
            raise NotebookError(f"{source.name} is neither a folder nor a zip.")
        else:
            raise NotebookError(f"There is no {source}.")
        yield found


def _add(found: Opened, file: SourceFile) -> None:
    if of_system(PurePosixPath(file.path).parts):
        found.of_systems += 1
        return
    found.files.append(file)
    if len(found.files) > _MOST_FILES:
        raise NotebookError(f"There are more than {_MOST_FILES:,} files.")


def _refused(path: str, problem: str) -> SourceFile:
    def read() -> bytes:
        raise NotRegular(problem)

    return SourceFile(path, read, problem=problem)


def _folder(source: Path, found: Opened, stack: ExitStack) -> None:
    def failed(error: OSError) -> None:
        _add(found, _refused(_written(Path(error.filename), source), f"cannot be read ({error.strerror})"))

    for folder, folders, names in os.walk(source, onerror=failed):
        folders[:] = sorted(name for name in folders if not of_system([name]))
        for name in sorted([*names, *(name for name in folders if (Path(folder) / name).is_symlink())]):
            path = Path(folder) / name
            relative = _written(path, source)
            about = path.lstat()
            if not stat.S_ISREG(about.st_mode):
                _add(found, _refused(relative, "is a link or a device"))
            elif name.casefold().endswith(".zip") and zipfile.is_zipfile(path) and not of_system([name]):
                try:
                    _archive(stack.enter_context(zipfile.ZipFile(path)), f"{relative}/", found, stack, 1)
                except _UNREADABLE as error:
                    _add(found, _refused(relative, f"cannot be read ({error})"))
            else:
                _add(found, SourceFile(relative, lambda path=path: read_regular(path, LARGEST), about.st_mtime))


def _written(path: Path, source: Path) -> str:
    """A path within a source, with bytes that are not UTF-8 written out."""
    return path.relative_to(source).as_posix().encode(errors="backslashreplace").decode()


def _archive(archive: zipfile.ZipFile, within: str, found: Opened, stack: ExitStack, depth: int) -> None:
    for member in sorted(archive.infolist(), key=lambda member: member.filename):
        name = _name(member)
        path, parts = within + name.lstrip("/"), PurePosixPath(name).parts
        kind = stat.S_IFMT(member.external_attr >> 16)
        if member.is_dir() or name.endswith("/"):
            continue
        if of_system(parts):
            found.of_systems += 1
        elif kind not in (0, stat.S_IFREG):
            _add(found, _refused(path, "is a link or a device"))
        elif ".." in parts or name.startswith("/"):
            _add(found, _refused(path, "leads out of its folder"))
        elif member.file_size > LARGEST:
            _add(found, _refused(path, f"has {member.file_size >> 20} MB; {LARGEST >> 20} are the most"))
        elif name.casefold().endswith(".zip") and depth < _DEEPEST:
            _inner(archive, member, path, found, stack, depth)
        else:
            modified = time.mktime((*member.date_time, 0, 0, -1))
            _add(found, SourceFile(path, lambda member=member: _read(archive, member), modified))


def _inner(
    archive: zipfile.ZipFile, member: zipfile.ZipInfo, path: str, found: Opened, stack: ExitStack, depth: int
) -> None:
    """The files of an archive within an archive, which is unpacked to a temporary file."""
    try:
        with archive.open(member) as packed:
            unpacked: IO[bytes] = stack.enter_context(TemporaryFile())
            shutil.copyfileobj(packed, unpacked)
        inner = stack.enter_context(zipfile.ZipFile(unpacked))
    except _UNREADABLE as error:
        _add(found, _refused(path, f"cannot be read ({error})"))
        return
    _archive(inner, f"{path}/", found, stack, depth + 1)


def _read(archive: zipfile.ZipFile, member: zipfile.ZipInfo) -> bytes:
    try:
        with archive.open(member) as file:
            return file.read(LARGEST + 1)
    except _UNREADABLE as error:
        raise NotRegular(f"cannot be read ({error})") from None


def _name(member: zipfile.ZipInfo) -> str:
    """The name of a member: macOS writes UTF-8 without saying so, and some programs write backslashes."""
    name = member.filename
    if not member.flag_bits & 0x800:
        try:
            name = name.encode("cp437").decode()
        except UnicodeError:
            pass
    return name if "/" in name else name.replace("\\", "/")
