"""The editions of a lesson: which commit a notebook was handed out by, told by the code that it was given.

`editions.json` holds, for each lesson, every commit that has changed a code cell of it, with a fingerprint of each of
its code cells; `python -m helpers.instructor editions` makes it from git's history.
"""

from __future__ import annotations

import hashlib
import json
import re
import subprocess
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any, NamedTuple

from helpers.engine.files import write_whole
from helpers.instructor import REPOSITORY
from helpers.instructor.collect.course import graded_cells
from helpers.instructor.publish.notebooks import NotebookError
from helpers.instructor.sandbox import cells as notebooks
from helpers.make.working_copy import RENAMED

TABLE = Path(__file__).with_name("editions.json")


def fingerprint(source: str) -> str:
    """Names the text of a cell; spaces at the ends of lines do not count."""
    text = "\n".join(line.rstrip() for line in source.strip().splitlines())
    return hashlib.sha256(text.encode(errors="replace")).hexdigest()[:10]


@dataclass(frozen=True)
class Edition:
    """The code cells of a lesson as a commit has handed it out; "" stands for this checkout."""

    commit: str
    date: str
    cells: frozenset[str]


@cache
def known_editions(table: Path = TABLE) -> dict[str, tuple[Edition, ...]]:
    """The editions of each lesson, the newest first."""
    told = json.loads(table.read_text(encoding="utf-8"))
    return {
        lesson: tuple(Edition(one["commit"], one["date"], frozenset(one["cells"])) for one in reversed(editions))
        for lesson, editions in told.items()
    }


def of_lesson(released: bytes, editions: Mapping[str, Sequence[Edition]] | None = None) -> Sequence[Edition]:
    """The known editions of the lesson that shares most cells with a released one, whatever its name is."""
    found = frozenset(fingerprint(cell["source"]) for cell in notebooks.read_cells(released))
    return max((known_editions() if editions is None else editions).values(), key=lambda own: len(own[0].cells & found))


def edition_of(sources: Sequence[str], released: bytes, editions: Sequence[Edition]) -> Edition | None:
    """The edition that shares most cells with a notebook whose code cells are `sources`, the newest of several.

    `released` is the lesson as this course hands it out, the newest of all. None where no edition shares a cell.
    """
    found = frozenset(map(fingerprint, sources))
    this = Edition("", "", frozenset(fingerprint(cell["source"]) for cell in notebooks.read_cells(released)))
    best = max((this, *editions), key=lambda edition: len(edition.cells & found))
    return best if best.cells & found else None


def of_another_lesson(
    sources: Sequence[str], released: bytes, editions: Mapping[str, Sequence[Edition]] | None = None
) -> str:
    """A sentence where a notebook whose code cells are `sources` was handed out for another lesson than `released` is.

    It is of another where it has half of the code cells of an edition of that one, and more of them than of this. ""
    otherwise: what students have written themselves decides nothing.
    """
    known = known_editions() if editions is None else editions
    found = frozenset(map(fingerprint, sources))
    own = frozenset(fingerprint(cell["source"]) for cell in notebooks.read_cells(released))
    most = max(len(cells & found) for cells in (own, *(one.cells for one in of_lesson(released, known))))
    others = [(len(one.cells & found), one, name) for name, several in known.items() for one in several]
    shared, edition, name = max(others, key=lambda other: other[0])
    if shared <= most or 2 * shared < len(edition.cells):
        return ""
    return (
        f"this is {name} as the edition of commit {edition.commit} ({edition.date}) handed it out: hand it in under "
        "that name, or grade it in a checkout of that commit"
    )


def noted(
    exercises: Sequence[Mapping[str, Any]], sources: Sequence[str], released: bytes, editions: Sequence[Edition]
) -> list[dict[str, Any]]:
    """The results of a notebook's exercises, with a note where points are lost and the code given is not this course's,
    or is gone.

    A given cell, told not to change, may then have cost the points: it is somebody's turn to look at it.
    """
    edition = edition_of(sources, released, editions)
    found = frozenset(map(fingerprint, sources))
    absent = frozenset().union(*map(notebooks.names_read, sources)) - frozenset().union(*map(notebooks.bound, sources))
    told = []
    for exercise in exercises:
        note, grade_id = exercise["note"], exercise["grade_id"]
        if exercise["points"] < exercise["max_points"] and not note and exercise["answer"]:
            if gone := _gone(grade_id, released, edition, found, absent):
                note = _said_of_gone(gone)
            elif exercise["attempted"] and (other := _other_code(grade_id, released, edition, found)):
                note = _said(edition, other)
        told.append({**exercise, "note": note})
    return told


def _said_of_gone(gone: Mapping[str, frozenset[str]]) -> str:
    names = ", ".join(sorted(frozenset().union(*gone.values())))
    return f"given code is gone: cell{'s' * (len(gone) > 1)} {', '.join(gone)}, alone in defining {names}; put it back"


def _said(edition: Edition | None, other: Sequence[str]) -> str:
    where = f"cell{'s' * (len(other) > 1)} {', '.join(other)}"
    if edition is not None and edition.commit:
        return (
            f"handed out by the edition of commit {edition.commit} ({edition.date}), whose given code in {where} is "
            "not what this one hands out: not graded here, grade it in a checkout of that commit"
        )
    return f"edition unknown: the given code in {where} is that of no edition; compare it with the lesson"


def _other_code(grade_id: str, released: bytes, edition: Edition | None, found: frozenset[str]) -> list[str]:
    """The given cells that an exercise needs whose code, in this notebook's edition, is not the released lesson's."""
    needed = {name: cell for name, cell in _needed(released)[grade_id].items() if cell.functions}
    if edition is not None and edition.commit:
        return [name for name, cell in needed.items() if cell.fingerprint not in edition.cells]
    return [name for name, cell in needed.items() if cell.fingerprint not in found and not cell.is_stub]


def _gone(
    grade_id: str, released: bytes, edition: Edition | None, found: frozenset[str], absent: frozenset[str]
) -> dict[str, frozenset[str]]:
    """The given cells that an exercise needs and a notebook of this edition lacks, with their names that are `absent`:
    that it reads and defines nowhere."""
    if edition is not None and edition.commit:
        return {}
    needed = {name: cell for name, cell in _needed(released)[grade_id].items() if not cell.is_stub}
    return {
        name: cell.binds & absent
        for name, cell in needed.items()
        if cell.fingerprint not in found and cell.binds & absent
    }


class _Needed(NamedTuple):
    """A cell that an answer needs: as it is compared, whether it is to be filled in, has functions, and its names."""

    fingerprint: str
    is_stub: bool
    functions: bool
    binds: frozenset[str]


@cache
def _needed(released: bytes) -> dict[str, dict[str, _Needed]]:
    """By graded cell: the cells that its answer needs, by id. A stub may be another exercise's."""
    listed = [cell for cell in json.loads(released)["cells"] if cell["cell_type"] == "code"]
    sources = ["".join(cell["source"]) for cell in listed]
    marks = [cell["metadata"].get("nbgrader", {}).get("grade_id", "") for cell in listed]
    graded = graded_cells(released)
    stubs = {name for cell in graded for name in cell.solutions}
    cells = [
        _Needed(fingerprint(source), mark in stubs, bool(re.search(r"^def ", source, re.M)), notebooks.bound(source))
        for source, mark in zip(sources, marks, strict=True)
    ]
    names = [mark or str(cell.get("id", i)) for i, (cell, mark) in enumerate(zip(listed, marks, strict=True))]
    return {
        one.grade_id: {names[i]: cells[i] for i in notebooks.needed(sources[: marks.index(one.grade_id)], one.answer)}
        for one in graded
    }


def history(repository: Path = REPOSITORY) -> dict[str, list[dict[str, Any]]]:
    """What the table holds, from git: by lesson, as it is called now, its editions, oldest first.

    Commits of a branch count as the one that merged it: nobody was handed a lesson by them.

    Raises NotebookError where the folder is not a clone, or one without its history.
    """
    if _git(repository, "rev-parse", "--is-shallow-repository").strip() != b"false":
        raise NotebookError("The editions of the lessons are read from git's history: this is not a full clone.")
    found: dict[str, list[dict[str, Any]]] = {}
    commits = _git(repository, "log", "--first-parent", "--reverse", "--abbrev=7", "--format=%h %cs", "--", "lessons")
    for line in commits.decode().splitlines():
        commit, date = line.split()
        for path in _git(repository, "ls-tree", "--name-only", commit, "lessons/").decode().splitlines():
            if path.endswith(".ipynb"):
                content = _git(repository, "show", f"{commit}:{path}")
                prints = sorted({fingerprint(cell["source"]) for cell in notebooks.read_cells(content)})
                editions = found.setdefault(RENAMED.get(Path(path).stem, Path(path).stem), [])
                if not editions or editions[-1]["cells"] != prints:
                    editions.append({"commit": commit, "date": date, "cells": prints})
    return found


def write_editions(repository: Path = REPOSITORY, table: Path = TABLE) -> int:
    """Writes the table and returns the number of editions in it. Raises NotebookError as `history` does."""
    found = history(repository)
    lines = [
        f"{json.dumps(lesson)}: [\n" + ",\n".join(f" {json.dumps(one)}" for one in editions) + "\n]"
        for lesson, editions in sorted(found.items())
    ]
    write_whole(table, ("{\n" + ",\n".join(lines) + "\n}\n").encode())
    return sum(map(len, found.values()))


def _git(repository: Path, *words: str) -> bytes:
    """Raises NotebookError where git cannot answer."""
    try:
        told = subprocess.run(["git", "-C", str(repository), *words], capture_output=True, check=True)
    except (OSError, subprocess.CalledProcessError):
        raise NotebookError("The editions of the lessons are read from git's history, which is not there.") from None
    return told.stdout
