"""What README says of the lessons is what the notebooks say: their names, minutes and points."""

import re
from pathlib import Path

import pytest

from helpers.instructor.collect.course import graded_cells
from helpers.instructor.publish.notebooks import read_notebook

ROOT = Path(__file__).resolve().parents[2]
README = (ROOT / "README.md").read_text(encoding="utf-8")
LESSONS = sorted((ROOT / "lessons").glob("*.ipynb"))


@pytest.mark.parametrize("path", LESSONS, ids=lambda path: path.stem)
def test_a_lesson_has_the_name_the_minutes_and_the_points_of_readme(path):
    title, question = read_notebook(path).cells[0].source.split("\n\n")[:2]
    name = title.removeprefix("# ").replace(" · ", " ", 1)
    ((minutes, more),) = re.findall(r"\((\d+) minutes(?:, and (\d+) more if you have them)?\)", question)
    minutes += f" + {more}" if more else ""
    assert int(minutes.partition(" ")[0]) <= 60
    points = sum(cell.points for cell in graded_cells(path.read_bytes()))
    (row,) = (line for line in README.splitlines() if f"(lessons/{path.name})" in line)
    assert row.startswith(f"| [{name}]") and row.strip("| ").split(" | ")[2:] == [minutes, f"{points:g}"]


def test_the_four_lines_that_a_newcomer_needs_stand_above_all_sections():
    above = README.partition("\n## ")[0].splitlines()
    lines = [line.strip().partition("  ")[0] for line in above if line.startswith("    ")]
    assert lines == ["git clone ADDRESS softmax-in-triton", "cd softmax-in-triton", "make lab", "make container"]
    targets = re.findall(r"^(\w+):", (ROOT / "Makefile").read_text(encoding="utf-8"), flags=re.MULTILINE)
    assert {"lab", "container"} <= set(targets)


def test_readme_says_how_many_hours_the_lessons_take():
    minutes = [
        [int(one) for one in re.findall(r"\d+", row.split(" | ")[2])]
        for row in README.splitlines()
        if "(lessons/" in row
    ]
    hours = [sum(own[0] for own in minutes) / 60, sum(sum(own[1:]) for own in minutes) / 60]
    said = re.search(r"the whole course takes (\d+) hours, and (\d+)(½?)\s+more", README)
    assert [round(hours[0]), round(2 * hours[1]) / 2] == [int(said[1]), int(said[2]) + 0.5 * bool(said[3])]


def test_readme_is_a_page():
    assert len(README.split()) <= 1070
