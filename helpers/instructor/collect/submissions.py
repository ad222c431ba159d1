"""Submissions: the notebooks in nbgrader's submitted/, and a sentence for everything else that lies there."""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from hashlib import sha256
from pathlib import Path

from helpers.engine.files import read_regular
from helpers.instructor.collect.names import composed, is_notebook, listed, of_system, printable, unusable
from helpers.instructor.collect.sources import LARGEST
from helpers.make.working_copy import RENAMED

ATTEMPTS = "attempts"
"""The folder, next to a notebook, of others of the same student for the same lesson: the best of all counts."""


@dataclass(frozen=True)
class Submission:
    """One student's notebook for one lesson: its bytes, or why they cannot be had."""

    student: str
    lesson: str
    path: Path

    def content(self) -> bytes:
        """The file's bytes. Raises NotRegular for a link, a file that is not regular, or one that is too large."""
        return read_regular(self.path, LARGEST)

    def contents(self) -> list[bytes]:
        """The same, and of each other notebook in ATTEMPTS, once each. Raises NotRegular as `content` does."""
        others = sorted((self.path.parent / ATTEMPTS).glob("*.ipynb"))
        return list(dict.fromkeys([self.content(), *(read_regular(path, LARGEST) for path in others)]))


def same_as(contents: Iterable[bytes]) -> str:
    """Names the notebooks of a submission: equal for equal bytes alone."""
    return sha256(b"".join(sha256(part).digest() for part in contents)).hexdigest()


def submitted(course: Path, lessons: Sequence[str]) -> tuple[list[Submission], list[str]]:
    """Every notebook in submitted/STUDENT/LESSON/, and a sentence for everything that is passed over.

    A student is called as the folder is, with composed letters. The notebook is LESSON.ipynb, or the only one there.
    """
    found: dict[tuple[str, str], Submission] = {}
    passed_over: list[str] = []
    for student in _entries(course / "submitted", passed_over):
        if not student.is_dir():
            passed_over.append(f"{_place(student, course)}: is a file outside of STUDENT/LESSON/.")
        elif problem := unusable(composed(student.name)):
            passed_over.append(f"{_place(student, course)}: {problem}.")
        else:
            for one in _of_student(student, course, lessons, passed_over):
                key = one.student, one.lesson
                if found.setdefault(key, one) is not one:
                    other = found[key].path.parent.parent.name.encode()
                    passed_over.append(
                        f"{_place(one.path, course)}: {one.student} has this lesson already, in a folder whose name "
                        f"has the same letters as other bytes ({other!r})."
                    )
    return list(found.values()), passed_over


def compose(course: Path) -> list[str]:
    """Gives the folders of students names with composed letters, where they are free; a sentence for each.

    macOS and some archives decompose letters, and a folder that nbgrader names otherwise would be another student.
    """
    done: list[str] = []
    for folder in _entries(course / "submitted", []):
        name = composed(folder.name)
        if name != folder.name and not folder.with_name(name).exists():
            folder.rename(folder.with_name(name))
            done.append(f"submitted/{printable(name)}: its letters were decomposed; the folder is renamed.")
    return done


def _of_student(student: Path, course: Path, lessons: Sequence[str], passed_over: list[str]) -> Iterator[Submission]:
    for folder in _entries(student, passed_over):
        if not folder.is_dir():
            if is_notebook(folder.name):
                passed_over.append(f"{_place(folder, course)}: is not in a folder of a lesson, as {lessons[0]}/.")
        elif folder.name not in lessons:
            now = RENAMED.get(folder.name)
            renamed = f" under this name; rename the folder and its notebook to {now}" if now in lessons else ""
            passed_over.append(f"{_place(folder, course)}: no lesson of this course{renamed}.")
        elif path := _notebook(folder, course, passed_over):
            yield Submission(composed(student.name), folder.name, path)


def _notebook(folder: Path, course: Path, passed_over: list[str]) -> Path | None:
    """The notebook of a lesson's folder, where there is one."""
    names = sorted(entry.name for entry in os.scandir(folder) if not of_system([entry.name]))
    notebooks = [name for name in names if is_notebook(name)]
    wanted = f"{folder.name}.ipynb"
    exact = [name for name in notebooks if composed(name).casefold() == wanted.casefold()]
    chosen = wanted if wanted in exact else exact[0] if exact else notebooks[0] if len(notebooks) == 1 else None
    if chosen is None:
        others = f" (but {listed(names)})" if names else ""
        passed_over.append(f"{_place(folder, course)}: holds no {wanted}{others}.")
        return None
    for name in notebooks:
        if name != chosen:
            passed_over.append(f"{_place(folder / name, course)}: {printable(chosen)} next to it counts.")
    return folder / chosen


def _place(path: Path, course: Path) -> str:
    return printable(str(path.relative_to(course)))


def _entries(parent: Path, passed_over: list[str]) -> Iterator[Path]:
    """The files and folders of people in a folder."""
    if not parent.is_dir():
        return
    for entry in sorted(os.scandir(parent), key=lambda entry: entry.name):
        if of_system([entry.name]):
            continue
        if entry.is_symlink():
            passed_over.append(f"{parent.name}/{printable(entry.name)}: is a link.")
        else:
            yield Path(entry.path)
