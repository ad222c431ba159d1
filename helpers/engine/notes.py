"""What a notebook notes for later sessions, in the file progress.json next to it.

The file is a convenience: nothing depends on it, deleting it loses nothing else, and nothing in it says who has worked.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from helpers.engine.files import write_whole

FILE = "progress.json"


def _working_directory() -> Path:
    try:
        return Path.cwd()
    except OSError:  # it was removed
        return Path()


_folder = _working_directory()
_unwritten: dict[str, Any] = {}
"""The entries that the file has not taken: they last as long as the kernel."""


def folder() -> Path:
    """Where the file is: a cell that changes the working directory later does not move it."""
    return _folder


def place_not_written() -> Path | None:
    """The folder whose file has not taken the last entries, if there is one."""
    return _folder if _unwritten else None


def entries() -> dict[str, Any]:
    """All entries; a file that is missing or broken counts as empty."""
    try:
        noted = json.loads((_folder / FILE).read_text(encoding="utf-8-sig"))
    except (OSError, ValueError):
        noted = {}
    return (noted if isinstance(noted, dict) else {}) | _unwritten


def entry(name: str) -> dict[str, Any]:
    """The entry of this name, which is to be a dict; empty where it is missing or something else."""
    found = entries().get(name)
    return found if isinstance(found, dict) else {}


def put(new: dict[str, Any]) -> None:
    """Writes entries into the file; the others stay. Nothing is raised for a folder that cannot be written to."""
    try:
        write_whole(_folder / FILE, json.dumps(entries() | new, indent=1).encode() + b"\n")
        _unwritten.clear()
    except OSError:
        _unwritten.update(new)
