"""Switches nbgrader's own Autograde off: settings of a course name the class below as what it is to convert with."""

from __future__ import annotations

from typing import Any

from nbconvert.exporters import NotebookExporter
from nbgrader.converters.base import NbGraderException

AUTOGRADE_IS_OFF = (
    "nbgrader's Autograde is switched off in this course: it would run students' notebooks with your rights and "
    "without walls, and believe what they print. Run `python -m helpers.instructor grade` in a terminal instead."
)


class NoAutograde(NotebookExporter):
    """What Autograde starts with, before it has touched a file. Raises NbGraderException."""

    def __init__(self, parent: Any = None, **settings: Any) -> None:
        if parent is not None:
            parent.log.error(AUTOGRADE_IS_OFF)
        raise NbGraderException(AUTOGRADE_IS_OFF)
