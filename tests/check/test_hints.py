"""The hint that a diagnosis names is there, and is about it."""

import json
import re

import pytest

from exercises import ROOT
from helpers.check import EXERCISES
from helpers.check.mistakes.stops import ERRORS


def titles():
    """The titles of the hints, by the name of the check above them and by their numbers."""
    found = {}
    for path in sorted((ROOT / "solutions").glob("*.ipynb")):
        cells = json.loads(path.read_text(encoding="utf-8"))["cells"]
        texts = ["".join(cell["source"]) for cell in cells]
        for index, cell in enumerate(cells):
            if cell["metadata"].get("nbgrader", {}).get("grade"):
                hints = re.findall(r"<summary>Hint (\d) · (.*?)</summary>", texts[index + 1])
                found[re.search(r"check\.(\w+)\(", texts[index])[1]] = {int(number): title for number, title in hints}
    return found


TITLES = titles()
ABOUT_ERRORS = re.compile(r"stops with an error|[Aa]n error|Error|stops|out of bounds")
ABOUT = {
    "no_maximum": r"large|NaN|inf|wrong|equal|add up|one rank",
    "race": "order",
    "over_budget": "loads",
    **dict.fromkeys(("load_unmasked", "store_unmasked", "out_of_bounds", "past_the_end"), r"OutOfBounds|missing"),
    **dict.fromkeys(("small_grid", "stores_row_0", "stores_to_row_0"), r"[Rr]ow"),
    **dict.fromkeys(("empty_tile_of_keys", "empty_query", "wrong_with_minus_inf", "only_minus_inf"), r"NaN|−inf"),
    **dict.fromkeys(("strides_of_x", "n_as_stride", "no_column_stride"), r"strid|apart|gaps|sliced|OutOfBounds|large"),
    **dict.fromkeys(ERRORS, ABOUT_ERRORS.pattern),
}
"""By the id of a mistake: what the title of its hint speaks of, in any exercise."""


@pytest.mark.parametrize("name", EXERCISES)
def test_the_hint_of_each_mistake_is_there_and_is_about_it(name):
    exercise = EXERCISES[name]
    for mistake in (*exercise.known, *getattr(exercise, "overspent", ())):
        if mistake.hint:
            assert mistake.hint in TITLES[name], f"{mistake.id}: there is no Hint {mistake.hint}"
            title = TITLES[name][mistake.hint]
            assert not title.startswith("The lines"), f"{mistake.id}: Hint {mistake.hint} has only the lines"
            assert re.search(ABOUT.get(mistake.id, ""), title), f"{mistake.id}: Hint {mistake.hint} is '{title}'"


@pytest.mark.parametrize("name", [name for name in EXERCISES if any("stops with" in t for t in TITLES[name].values())])
def test_an_error_points_to_the_hint_about_errors(name):
    of_errors = {mistake.hint for mistake in EXERCISES[name].known if mistake.id == "error"}
    assert not EXERCISES[name].known or [number for number, t in TITLES[name].items() if "stops with" in t] == [
        *of_errors
    ]
