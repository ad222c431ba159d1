"""Finds what was handed in: in nbgrader's submitted/, or in a folder or zip of loose notebooks as an LMS exports them.

Only regular files count. A link, a device, or a path that leads elsewhere is somebody's trick or mistake, and is named.
"""

from __future__ import annotations

import os
import re
import stat
import zipfile
import zlib
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path, PurePosixPath

from helpers.engine.files import NotRegular, read_regular, safe_name, write_whole
from helpers.instructor.publish.notebooks import NotebookError

LARGEST = 100 << 20
"""Bytes that a notebook may have."""
_MOST_IN_ZIP = 100_000
_CANVAS = re.compile(r"^(?P<student>[^_]+?)(_LATE)?_(?P<user>\d+)_(?P<attempt>\d+)_(?P<file>.+)$")
_MOODLE = re.compile(r"^(?P<student>.+?)_\d+_assignsubmission_file_?(?P<file>.*)$")


@dataclass(frozen=True)
class Submission:
    """One student's notebook for one lesson: its bytes, or why they cannot be had."""

    student: str
    lesson: str
    path: Path

    def content(self) -> bytes:
        """The file's bytes. Raises NotRegular for a link, a file that is not regular, or one that is too large."""
        return read_regular(self.path, LARGEST)


def submitted(course: Path, lessons: Sequence[str]) -> tuple[list[Submission], list[str]]:
    """Every notebook in submitted/STUDENT/LESSON/LESSON.ipynb, and a sentence for each folder that is passed over."""
    found, passed_over = [], []
    for student in _folders(course / "submitted", passed_over):
        for folder in _folders(student, passed_over):
            if folder.name not in lessons:
                passed_over.append(f"{_place(folder, course)}: no lesson of this course.")
                continue
            path = folder / f"{folder.name}.ipynb"
            if os.path.lexists(path):
                found.append(Submission(student.name, folder.name, path))
            else:
                passed_over.append(f"{_place(folder, course)}: holds no {path.name}.")
    return found, passed_over


def _place(path: Path, course: Path) -> str:
    return str(path.relative_to(course)).encode(errors="backslashreplace").decode()


def _folders(parent: Path, passed_over: list[str]) -> Iterator[Path]:
    if not parent.is_dir():
        return
    for entry in sorted(os.scandir(parent), key=lambda entry: entry.name):
        if entry.is_symlink():
            passed_over.append(f"{parent.name}/{safe_name(entry.name)}: is a link.")
        elif entry.is_dir():
            if safe_name(entry.name) == entry.name:
                yield Path(entry.path)
            else:
                passed_over.append(
                    f"{parent.name}/{safe_name(entry.name)}: has a name with characters that names lack."
                )


def collect(source: Path, course: Path, lessons: Sequence[str]) -> tuple[int, list[str]]:
    """Copies loose notebooks of a folder or zip to submitted/; how many, and a sentence for each file passed over.

    A student is known by the file's folder, or where it is in none, by what comes before the lesson's name in its own:
    `ada/01_x.ipynb`, `ada_01_x.ipynb`, and the names that Canvas and Moodle give. A folder that holds everything is
    none. Of several notebooks of a student for a lesson, the last by name counts.

    Raises NotebookError for a path that is neither a folder nor a zip.
    """
    if source.is_dir():
        files, names = _of_folder(source), [str(path.relative_to(source)) for path in source.rglob("*.ipynb")]
    elif zipfile.is_zipfile(source):
        with zipfile.ZipFile(source) as archive:
            names = [name for name in archive.namelist() if name.endswith(".ipynb")]
        files = _of_zip(source)
    else:
        raise NotebookError(f"{source} is neither a folder nor a zip file.")
    count, passed_over = 0, []
    folders = [PurePosixPath(name).parent.parts for name in names if not name.startswith(("/", ".."))]
    in_common = len(os.path.commonprefix(folders))
    came_from: dict[tuple[str, str], str] = {}
    for name, content in files:
        shown = safe_name(name)
        if isinstance(content, str):
            passed_over.append(f"{shown}: {content}")
            continue
        parts = PurePosixPath(name).parts
        named = named_as("/".join(parts[in_common:]), lessons) or named_as(name, lessons)
        if named is None:
            passed_over.append(f"{shown}: names no student, or no lesson of this course.")
            continue
        folder = parts[in_common] if len(parts) > in_common + 1 else ""
        if came_from.setdefault(named, folder) != folder:
            passed_over.append(f"{shown}: {named[0]} has this lesson already, from {safe_name(came_from[named])}.")
            continue
        student, lesson = named
        try:
            write_whole(course / "submitted" / student / lesson / f"{lesson}.ipynb", content)
        except OSError as error:
            passed_over.append(f"{shown}: cannot be written ({error.strerror}).")
            continue
        count += 1
    return count, passed_over


def named_as(name: str, lessons: Sequence[str]) -> tuple[str, str] | None:
    """The student and the lesson that a file's path speaks of; None where it does not.

    Students choose the names of their files, and whoever collects them those of the folders: a folder goes first.
    """
    path = PurePosixPath(name)
    file, folders = path.name, [part for part in path.parts[:-1] if part not in ("/", ".", "..", "submitted")]
    lesson = next((lesson for lesson in lessons if lesson in file or lesson in folders), None)
    if lesson is None:
        return None
    folders = [folder for folder in folders if folder != lesson]
    for text in folders or [file]:
        for pattern in (_CANVAS, _MOODLE):
            if match := pattern.match(text):
                user = match.groupdict().get("user")
                return safe_name(f"{match['student']}_{user}" if user else match["student"]), lesson
    student = folders[0] if folders else file.partition(lesson)[0].strip(" _-.")
    return (safe_name(student), lesson) if student else None


def _of_folder(source: Path) -> Iterator[tuple[str, bytes | str]]:
    for folder, _, names in sorted(os.walk(source)):
        for name in sorted(names):
            path = Path(folder) / name
            if name.endswith(".ipynb"):
                relative = str(path.relative_to(source))
                try:
                    yield relative, read_regular(path, LARGEST)
                except NotRegular as error:
                    yield relative, f"{error}."


def _of_zip(source: Path) -> Iterator[tuple[str, bytes | str]]:
    with zipfile.ZipFile(source) as archive:
        members = sorted(archive.infolist(), key=lambda member: member.filename)
        if len(members) > _MOST_IN_ZIP:
            raise NotebookError(f"{source.name} holds {len(members):,} files; {_MOST_IN_ZIP:,} are the most.")
        for member in members:
            mode = member.external_attr >> 16
            if member.is_dir() or not member.filename.endswith(".ipynb"):
                continue
            if stat.S_IFMT(mode) not in (0, stat.S_IFREG):
                yield member.filename, "is a link or a device."
            elif ".." in PurePosixPath(member.filename).parts or member.filename.startswith("/"):
                yield member.filename, "leads out of its folder."
            elif member.file_size > LARGEST:
                yield member.filename, f"has {member.file_size >> 20} MB; {LARGEST >> 20} are the most."
            else:
                try:
                    with archive.open(member) as file:
                        yield member.filename, file.read(LARGEST + 1)
                except (zipfile.BadZipFile, OSError, RuntimeError, NotImplementedError, EOFError, zlib.error) as error:
                    yield member.filename, f"cannot be read ({error})."
