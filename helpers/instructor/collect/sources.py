"""The files of a folder or zip, archives in it included, each with how it is read or why it cannot be.

Only regular files count. A link, a device, or a path that leads elsewhere is somebody's trick or mistake, and is named.
So is an upload that holds too much: nothing of it is taken, and the others are read.
"""

from __future__ import annotations

import errno
import os
import shutil
import stat
import time
import zipfile
import zlib
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, ExitStack, contextmanager, nullcontext, suppress
from dataclasses import dataclass
from pathlib import Path, PurePosixPath
from tempfile import TemporaryFile

from helpers.engine.files import NotRegular, read_regular
from helpers.instructor.collect.names import of_system
from helpers.instructor.publish.notebooks import NotebookError

LARGEST = 100 << 20
"""Bytes that a notebook, or an archive within an archive, may have."""
MOST_FILES = 10_000
"""Files that one student may hand in, archives within archives opened."""
_MOST_UNPACKED = 1 << 30
"""Bytes that the archives within one student's archive may have in all."""
_OF_A_CLASS = 20
"""An archive that holds a class may have this number of times as much; of its students each may have as much as any."""
_MOST_OF_ALL = 1_000_000
"""Files that an export may hold."""
_MOST_COMPARED = 2_000
"""Paths of an archive by which it is seen whether it holds a class."""
_DEEPEST = 3
"""Archives within archives that are opened."""
_UNREADABLE = (zipfile.BadZipFile, OSError, RuntimeError, NotImplementedError, EOFError, ValueError, zlib.error)
_FULL = (errno.ENOSPC, errno.EDQUOT)

_Opener = Callable[[], AbstractContextManager[zipfile.ZipFile]]
"""Opens an archive for as long as the context lasts, so that few lie unpacked on the disk at a time."""


@dataclass(frozen=True)
class SourceFile:
    """A file of a source: its path in it, the archives as folders, and its content."""

    path: str
    read: Callable[[], bytes]
    """The bytes. Raises NotRegular, whose message says why they cannot be had."""
    modified: float = 0.0
    problem: str = ""
    """Why it cannot be read, where that is known beforehand."""
    guessed: bool = False
    """Whether the letters of the path are a guess, because an archive does not say what its bytes stand for."""


@dataclass
class Opened:
    """The files of a source that people have made, and how many there are of systems."""

    files: list[SourceFile]
    of_systems: int = 0


class _TooMuch(Exception):
    """An `upload` holds too much; the message says of what."""

    def __init__(self, upload: _Upload, said: str) -> None:
        super().__init__(said)
        self.upload = upload


@dataclass
class _Upload:
    """What an archive holds in all; an archive of a class is `around` the archives of its students."""

    times: int = 1
    around: _Upload | None = None
    files: int = 0
    unpacked: int = 0

    def add(self, files: int = 0, unpacked: int = 0) -> None:
        """Counts files and bytes. Raises _TooMuch."""
        self.files, self.unpacked = self.files + files, self.unpacked + unpacked
        if self.files > self.times * MOST_FILES:
            raise _TooMuch(self, f"holds more than {self.times * MOST_FILES:,} files; nothing of it is taken")
        if self.unpacked > self.times * _MOST_UNPACKED:
            most = self.times * _MOST_UNPACKED >> 20
            raise _TooMuch(self, f"holds archives of more than {most:,} MB in all; nothing of it is taken")
        if self.around:
            self.around.add(files, unpacked)


@dataclass(frozen=True)
class _Reader:
    """The files found in a source, and how its archives are to be understood."""

    found: Opened
    holds_class: Callable[[Sequence[str]], bool]
    encoding_of: Callable[[Sequence[bytes]], str]


@contextmanager
def opened(
    source: Path,
    holds_class: Callable[[Sequence[str]], bool] = lambda paths: False,
    encoding_of: Callable[[Sequence[bytes]], str] = lambda names: "",
) -> Iterator[Opened]:
    """The files of a folder or zip, which stay readable while the context lasts.

    `holds_class` says of the paths in an archive whether they are of several students: such an archive may hold more.
    `encoding_of` names the encoding of names that are not UTF-8; "" where nobody knows it.

    Raises NotebookError for anything else, for a damaged zip, and for more than 1,000,000 files.
    """
    reader = _Reader(Opened([]), holds_class, encoding_of)
    with ExitStack() as stack:
        if source.is_dir():
            _folder(source, reader)
        elif source.is_file() and zipfile.is_zipfile(source):
            try:
                archive = stack.enter_context(zipfile.ZipFile(source))
            except _UNREADABLE as error:
                raise NotebookError(f"{source.name} cannot be read ({error}).") from None
            _archive(archive, lambda: nullcontext(archive), "", reader, None, 0)
        elif source.exists():
            raise NotebookError(f"{source.name} is neither a folder nor a zip.")
        else:
            raise NotebookError(f"There is no {source}.")
        yield reader.found


def _add(found: Opened, file: SourceFile) -> None:
    if of_system(PurePosixPath(file.path).parts):
        found.of_systems += 1
        return
    found.files.append(file)
    if len(found.files) > _MOST_OF_ALL:
        raise NotebookError(f"There are more than {_MOST_OF_ALL:,} files.")


def _refused(path: str, problem: str) -> SourceFile:
    def read() -> bytes:
        raise NotRegular(problem)

    return SourceFile(path, read, problem=problem)


def _folder(source: Path, reader: _Reader) -> None:
    found = reader.found

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
                opener = lambda path=path: zipfile.ZipFile(path)  # noqa: E731
                _within(opener, opener, relative, reader, None, 1)
            else:
                _add(found, SourceFile(relative, lambda path=path: read_regular(path, LARGEST), about.st_mtime))


def _written(path: Path, source: Path) -> str:
    """A path within a source, with bytes that are not UTF-8 written out."""
    return path.relative_to(source).as_posix().encode(errors="backslashreplace").decode()


def _within(now: _Opener, later: _Opener, path: str, reader: _Reader, upload: _Upload | None, depth: int) -> None:
    """The files of an archive within a source: one of a class, a student's, or a part of a student's `upload`.

    `now` opens the archive while the one around it is open, `later` after that.
    """
    found, begin = reader.found, len(reader.found.files)
    own = upload
    try:
        with now() as archive:
            members = archive.infolist()
            if own is None or own.times > 1:
                some = [member.filename for member in members[:: len(members) // _MOST_COMPARED + 1]]
                own = _Upload(_OF_A_CLASS if own is None and reader.holds_class(some) else 1, own)
            own.add(len(members))
            _archive(archive, later, f"{path}/", reader, own, depth)
    except _TooMuch as error:
        if error.upload is not own or own is upload:
            raise
        del found.files[begin:]
        _add(found, _refused(path, str(error)))
    except NotebookError:
        raise
    except _UNREADABLE as error:
        del found.files[begin:]
        _add(found, _refused(path, _why(error)))


def _archive(
    archive: zipfile.ZipFile, opener: _Opener, within: str, reader: _Reader, upload: _Upload | None, depth: int
) -> None:
    found, members = reader.found, archive.infolist()
    encoding, guessed = _encoding(members, reader)
    for member in sorted(members, key=lambda member: member.filename):
        name = _name(member, encoding)
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
            if upload:
                upload.add(unpacked=member.file_size)
            now, later = (lambda a=a, m=member: _unpacked(a, m) for a in (lambda: nullcontext(archive), opener))
            _within(now, later, path, reader, upload, depth + 1)
        else:
            modified = time.mktime((*member.date_time, 0, 0, -1))
            read = lambda member=member: _read(opener, member)  # noqa: E731
            _add(found, SourceFile(path, read, modified, guessed=guessed and not name.isascii()))


@contextmanager
def _unpacked(outer: _Opener, member: zipfile.ZipInfo) -> Iterator[zipfile.ZipFile]:
    """An archive within another one, unpacked to a temporary file."""
    with outer() as archive, archive.open(member) as packed, TemporaryFile() as unpacked:
        shutil.copyfileobj(packed, unpacked)
        with zipfile.ZipFile(unpacked) as inner:
            yield inner


def _read(opener: _Opener, member: zipfile.ZipInfo) -> bytes:
    try:
        with opener() as archive, archive.open(member) as file:
            return file.read(LARGEST + 1)
    except _UNREADABLE as error:
        raise NotRegular(_why(error)) from None


def _why(error: Exception) -> str:
    """Why an archive or a file in it cannot be read."""
    if isinstance(error, OSError) and error.errno in _FULL:
        return f"cannot be unpacked, because the disk for temporary files is full ({error.strerror})"
    return f"cannot be read ({error})"


def _encoding(members: Sequence[zipfile.ZipInfo], reader: _Reader) -> tuple[str, bool]:
    """The encoding of names that an archive does not declare, and whether it is a guess."""
    undeclared = [raw for member in members if (raw := _undeclared(member))]
    if not undeclared:
        return "cp437", False
    encoding = reader.encoding_of(undeclared)
    return encoding or "cp437", not encoding


def _undeclared(member: zipfile.ZipInfo) -> bytes:
    """The bytes of a name that are neither declared nor UTF-8; empty where there are none."""
    if member.flag_bits & 0x800 or member.filename.isascii():
        return b""
    try:
        raw = member.filename.encode("cp437")
    except UnicodeError:  # the archive says the name in a second place
        return b""
    return raw if _as_utf_8(raw) is None else b""


def _as_utf_8(raw: bytes) -> str | None:
    try:
        return raw.decode()
    except UnicodeError:
        return None


def _name(member: zipfile.ZipInfo, encoding: str) -> str:
    """The name of a member: macOS writes UTF-8 without saying so, and some programs write backslashes."""
    name = member.filename
    if not member.flag_bits & 0x800:
        with suppress(UnicodeError):
            raw = name.encode("cp437")
            name = _as_utf_8(raw) or raw.decode(encoding, errors="replace")
    return name if "/" in name else name.replace("\\", "/")
