"""An instructor's course directory: what nbgrader expects, one assignment for each lesson."""

from __future__ import annotations

import errno
import fcntl
import json
import logging
import os
import platform
import re
import shlex
import sqlite3
import sysconfig
import traceback
from collections.abc import Iterator, Sequence
from contextlib import closing, contextmanager
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

from helpers.engine.files import write_whole
from helpers.instructor.publish.notebooks import NotebookError, normalised, read_notebook, to_bytes

COURSE_ID = "softmax-in-triton"
GRADING = ".grading"
"""The folder of a course in which `grade` keeps its results."""
RETURNED = "returned"
"""The folder of a course with archives of pages to give back."""
HELD_BACK = Path("private") / "cases.py"
"""Where an instructor may put cases of their own."""

_ENTERED = "`grade` enters all results again, but for what a person has entered in the formgrader"

_CONFIG = '''"""Settings of nbgrader for this course: open JupyterLab in this folder, and then the formgrader."""

import os

c = get_config()  # noqa: F821
c.CourseDirectory.course_id = "{course_id}"
c.CourseDirectory.root = os.path.dirname(os.path.abspath(__file__))
# Autograde would run students' notebooks with your rights and without walls; `helpers.instructor grade` does not.
c.Autograde.exporter_class = "helpers.instructor.publish.autograde.NoAutograde"
c.ClearSolutions.code_stub = {{"python": {code_stub!r}}}
c.ClearSolutions.text_stub = {text_stub!r}
'''
_NOT_FOR_GIT = "# What students hand in, and their grades, are nobody else's: git takes nothing of this folder.\n*\n"


def names_in(text: str, file: Path) -> dict[str, Any]:
    """The names that a Python file of the instructor's defines, which has this text.

    Raises NotebookError, with the line, for a text that fails.
    """
    names: dict[str, Any] = {"__name__": file.stem}
    try:
        exec(compile(text, str(file), "exec"), names)
    except Exception as error:
        lines = [frame.lineno for frame in traceback.extract_tb(error.__traceback__) if frame.filename == str(file)]
        line = error.lineno if isinstance(error, SyntaxError) else (lines or [0])[-1]
        raise NotebookError(f"{file}, line {line}: {type(error).__name__}: {error}") from error
    return names


@dataclass(frozen=True)
class GradedCell:
    """One graded cell of a lesson: check.`check`(`answer`), for `points`; `solutions` are the cells to fill in."""

    grade_id: str
    check: str
    answer: str
    points: float
    solutions: tuple[str, ...]


@cache
def graded_cells(lesson: bytes) -> tuple[GradedCell, ...]:
    """The graded cells of a lesson as it was handed out, in order.

    Raises NotebookError for a graded cell that does not end in check.NAME(ANSWER).
    """
    found: list[GradedCell] = []
    waiting: list[str] = []
    for cell in json.loads(lesson)["cells"]:
        marks = cell["metadata"].get("nbgrader", {})
        if marks.get("grade"):
            call = re.search(r"^check\.(\w+)\((\w+)\)\s*$", "".join(cell["source"]), re.MULTILINE)
            if call is None:
                raise NotebookError(f"The graded cell {marks['grade_id']} does not end in check.NAME(ANSWER).")
            found.append(GradedCell(marks["grade_id"], *call.groups(), marks["points"], tuple(waiting)))
            waiting = []
        elif marks.get("solution"):
            waiting.append(marks["grade_id"])
    return tuple(found)


def lessons_of(course: Path) -> dict[str, Path]:
    """The lessons of a course directory, by name: the notebooks that were handed out.

    Raises NotebookError for a folder that is not a course directory, or whose gradebook is gone or cannot be read.
    """
    found = {
        path.stem: path for path in sorted((course / "release").glob("*/*.ipynb")) if path.stem == path.parent.name
    }
    make, gradebook = f"`python -m helpers.instructor course {shlex.quote(str(course))}`", course / "gradebook.db"
    if not found:
        raise NotebookError(f"{course} is not a course directory: make one with {make}.")
    if not gradebook.exists():
        raise NotebookError(f"{gradebook} is gone: {make} makes it again, and {_ENTERED}.")
    try:
        with closing(sqlite3.connect(f"{gradebook.absolute().as_uri()}?mode=ro", uri=True)) as database:
            database.execute("PRAGMA schema_version")
    except sqlite3.DatabaseError as error:
        if not isinstance(error, sqlite3.OperationalError):  # busy, or not to be read here: others say so
            raise _unreadable(gradebook, error, make) from None
    return found


def _unreadable(gradebook: Path, why: object, make: str = "this") -> NotebookError:
    return NotebookError(f"{gradebook} cannot be read ({why}). Move it away and run {make} again; then {_ENTERED}.")


@contextmanager
def alone(course: Path) -> Iterator[None]:
    """While it lasts no other process is in this context for the same course directory.

    Raises NotebookError if one is. Where the file system knows no locks, nobody is kept out.
    """
    path = course / GRADING / "at-work"
    path.parent.mkdir(exist_ok=True)
    with path.open("a+") as file:
        try:
            fcntl.lockf(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError as error:
            if error.errno in (errno.EACCES, errno.EAGAIN):
                file.seek(0)
                who = f"process {file.read().strip() or '?'}"
                raise NotebookError(f"{course} is being changed by another run, {who}: wait until it ends.") from None
        file.truncate(0)
        file.write(f"{os.getpid()} of {platform.node()}\n")
        file.flush()
        yield


def make_course(course: Path, solutions: Sequence[Path]) -> list[str]:
    """Makes a course directory, or adds lessons to one, and returns the names of the lessons that were made.

    A lesson that is there already, the same to the byte and in the gradebook, is left as it is. Raises NotebookError
    for a solution that has to be repaired or that nbgrader refuses, and for a gradebook that cannot be read.
    """
    from helpers.instructor.publish.release import CODE_STUB, TEXT_STUB, release_bytes

    made = []
    settings = _CONFIG.format(course_id=COURSE_ID, code_stub=CODE_STUB, text_stub=TEXT_STUB)
    write_whole(course / "nbgrader_config.py", settings.encode())
    if not (course / ".gitignore").exists():
        write_whole(course / ".gitignore", _NOT_FOR_GIT.encode())
    for folder in ("submitted", "private"):
        (course / folder).mkdir(parents=True, exist_ok=True)
    entered = _in_gradebook(course / "gradebook.db")
    for solution in solutions:
        name, wanted = solution.stem, release_bytes(solution)
        released = course / "release" / name / f"{name}.ipynb"
        if released.exists() and released.read_bytes() == wanted and name in entered:
            continue
        write_whole(course / "source" / name / f"{name}.ipynb", to_bytes(normalised(read_notebook(solution))))
        _generate(course, name)
        if released.read_bytes() != wanted:
            raise NotebookError(f"nbgrader released {name} otherwise than lessons/ has it.")
        made.append(name)
    return made


def _in_gradebook(path: Path) -> set[str]:
    """The lessons that a gradebook knows; none where there is no gradebook."""
    if not path.exists():
        return set()
    from nbgrader.api import Gradebook
    from sqlalchemy.exc import SQLAlchemyError

    try:
        with Gradebook(f"sqlite:///{path}", COURSE_ID) as gradebook:
            return {assignment.name for assignment in gradebook.assignments}
    except SQLAlchemyError as error:
        raise _unreadable(path, error.__cause__ or error) from None


def _generate(course: Path, name: str) -> None:
    """Runs `nbgrader generate_assignment`: writes release/ and enters the exercises into the gradebook."""
    from nbgrader.converters import GenerateAssignment
    from nbgrader.coursedir import CourseDirectory

    from helpers.instructor.publish.release import config

    settings = config()
    settings.CourseDirectory.root = str(course.absolute())
    settings.CourseDirectory.course_id = COURSE_ID
    directory = CourseDirectory(config=settings)
    directory.assignment_id = name
    converter = GenerateAssignment(coursedir=directory, config=settings)
    converter.force = True
    converter.log.setLevel(logging.ERROR)
    try:
        with _scripts_on_path():
            converter.start()
    except (Exception, SystemExit) as error:
        raise NotebookError(f"{name}: nbgrader refuses it: {error}") from error


@contextmanager
def _scripts_on_path() -> Iterator[None]:
    """nbgrader asks the command alembic for the version of its tables, which only an activated environment finds."""
    before = os.environ.get("PATH", os.defpath)
    os.environ["PATH"] = os.pathsep.join([sysconfig.get_path("scripts"), before])
    try:
        yield
    finally:
        os.environ["PATH"] = before
