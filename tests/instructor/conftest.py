"""What the tests of grading share: the process that sandboxes are forked from, and a course directory."""

from contextlib import suppress
from pathlib import Path

import pytest

from handed_in import ONLINE, TILE
from helpers.instructor.collect import course
from helpers.instructor.grade.workshop import Workshop
from helpers.instructor.sandbox.client import NoSandbox

ROOT = Path(__file__).resolve().parents[2]
LESSONS = (TILE, ONLINE)


@pytest.fixture(scope="session", autouse=True)
def workshop():
    """The processes that sandboxes are forked from, for all tests: to start them takes seconds.

    They are started before the first test, so that no test is taken for the one that left them behind.
    """
    workshop = Workshop()
    with suppress(NoSandbox):  # where nothing compiles, each report says so
        workshop.compiling()
    yield workshop
    workshop.close()


@pytest.fixture(scope="session")
def original(tmp_path_factory):
    """A course directory into which nothing was handed in."""
    directory = tmp_path_factory.mktemp("original")
    course.make_course(directory, [ROOT / "solutions" / f"{lesson}.ipynb" for lesson in LESSONS])
    return directory
