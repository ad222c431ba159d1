"""What students get: the course as a folder and as a zip, without solutions, tests and what instructors run."""

from __future__ import annotations

import re
import shutil
from collections.abc import Iterator
from pathlib import Path

from helpers.instructor import REPOSITORY
from helpers.instructor.collect.course import COURSE_ID, lessons_of

HANDED_OUT = (
    ".devcontainer", ".gitattributes", ".gitignore", ".vscode", "AGENTS.md", "CHANGELOG.md", "CITATION.cff",
    "LICENSE", "LICENSE-TEXT", "Makefile", "README.md", "environment.yml", "helpers", "lessons", "pyproject.toml",
)  # fmt: skip
"""What of the repository's top students get, where it is there."""
KEPT_BACK = (".ci", ".github", "solutions", "tests")
"""What they do not get. Everything at the top stands in one of the two."""

HANDOUT = "handout"
_TARGETS = {"help", "install", "lab", "container", "clean"}
_SECTIONS = ("For instructors", "For maintainers")
_NOT_IN_HELPERS = {"__pycache__", "instructor"}


def write_handout(course: Path, repository: Path = REPOSITORY) -> Path:
    """Writes the folder and its zip into a course directory, and returns the folder.

    Its lessons are all that the course has released. What an earlier run has written there is replaced. Raises
    NotebookError for a folder that is not a course directory.
    """
    released = lessons_of(course)
    folder = course / HANDOUT / COURSE_ID
    shutil.rmtree(folder, ignore_errors=True)
    for path in _files(repository):
        target = folder / path.relative_to(repository)
        target.parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(path, target)
    (folder / "lessons").mkdir(exist_ok=True)
    for path in released.values():
        shutil.copy(path, folder / "lessons" / path.name)
    for name, of_students in (("Makefile", makefile_of_students), ("README.md", readme_of_students)):
        if (folder / name).exists():
            text = (folder / name).read_text(encoding="utf-8")
            (folder / name).write_text(of_students(text), encoding="utf-8")
    shutil.make_archive(str(folder), "zip", root_dir=folder.parent, base_dir=folder.name)
    return folder


def _files(repository: Path) -> Iterator[Path]:
    for name in HANDED_OUT:
        top = repository / name
        for path in [top] if top.is_file() else sorted(top.rglob("*")):
            inside = path.relative_to(repository).parts
            is_ours = not (_NOT_IN_HELPERS & set(inside[:2]) or "__pycache__" in inside or name == "lessons")
            if path.is_file() and not path.is_symlink() and is_ours:
                yield path


def makefile_of_students(text: str) -> str:
    """The Makefile with the targets alone that need nothing but what students have."""
    blocks = []
    for block in text.split("\n\n"):
        target = re.match(r"(\w+):(?!=)", block)
        if block.startswith(".PHONY:"):
            block = ".PHONY: " + " ".join(word for word in block.split()[1:] if word in _TARGETS)
        if target is None or target[1] in _TARGETS:
            blocks.append(block)
    return "\n\n".join(blocks).rstrip("\n") + "\n"


def readme_of_students(text: str) -> str:
    """README without the sections that are not for students, and without links to what they do not get."""
    first, *sections = re.split(r"^(?=## )", text, flags=re.MULTILINE)
    kept = [section for section in sections if not section.startswith(tuple(f"## {name}" for name in _SECTIONS))]
    elsewhere = rf"\[([^]]+)\]\((?:{'|'.join(map(re.escape, KEPT_BACK))})/[^)]*\)"
    return re.sub(elsewhere, r"\1", "".join([first, *kept])).rstrip("\n") + "\n"
