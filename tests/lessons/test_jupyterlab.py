"""Every lesson runs from top to bottom in JupyterLab, and every notebook can be read there.

All but one of these tests are proofs: each opens a notebook in a browser.
"""

import sys
from collections.abc import Iterator
from pathlib import Path

import nbformat
import pytest
from nbformat.v4 import new_code_cell, new_markdown_cell, new_notebook
from PIL import Image

pytest.importorskip("playwright", reason="Playwright is not installed: make install")

from playwright.sync_api import Page

from lab import (
    CHECKOUT,
    CHROMIUM,
    QUIET,
    TALLEST_PICTURE,
    Lab,
    browser,
    flaws,
    notebooks,
    picture_spans,
    run_all,
    screenshot,
    serve,
)

if not CHROMIUM:
    pytest.skip("Chromium is not installed: apt install chromium", allow_module_level=True)

pytestmark = pytest.mark.proof
PIXEL = "data:image/gif;base64,R0lGODlhAQABAAAAACH5BAEKAAEALAAAAAABAAEAAAICTAEAOw=="


@pytest.fixture(scope="module")
def lab() -> Iterator[Lab]:
    with serve() as lab:
        yield lab


@pytest.fixture(scope="module")
def page() -> Iterator[Page]:
    with browser() as page:
        yield page


def show(lab: Lab, page: Page, *cells: str, text: str = "Text") -> None:
    """Open a notebook of one text cell and these code cells."""
    notebook = new_notebook(cells=[new_markdown_cell(text), *map(new_code_cell, cells)])
    notebook.metadata.kernelspec = {"name": "python3", "display_name": "Python 3"}
    nbformat.write(notebook, lab.folder / "scratch.ipynb")
    lab.open(page, "scratch.ipynb")


@pytest.mark.parametrize("notebook", [name for name in notebooks() if name.startswith("lessons")])
def test_a_lesson_runs_from_top_to_bottom_and_can_be_read(lab: Lab, page: Page, notebook: str) -> None:
    lab.open(page, notebook)
    problems = run_all(page) + flaws(page)
    assert not problems, "\n".join(problems)


@pytest.mark.parametrize("notebook", [name for name in notebooks() if name.startswith("solutions")])
def test_a_solution_can_be_read_as_it_is_stored(lab: Lab, page: Page, notebook: str) -> None:
    """nbval runs the solutions; here they are opened with the outputs that they are stored with."""
    lab.open(page, notebook)
    page.evaluate(QUIET)
    problems = flaws(page) + [
        f"console: {message.text}" for message in page.console_messages() if message.type == "error"
    ]
    assert not problems, "\n".join(problems)


def test_an_error_is_reported_and_so_is_what_did_not_run_after_it(lab: Lab, page: Page) -> None:
    show(lab, page, "1/0", "2")
    assert run_all(page) == [
        "cell 2 (1/0): ZeroDivisionError: division by zero",
        "cell 3 (2): did not run to its end, [ ]:",
    ]


def test_a_message_of_the_browser_and_a_cell_without_a_number_are_reported(lab: Lab, page: Page) -> None:
    show(lab, page, "%%javascript\nconsole.error('Ouch')", "")
    assert run_all(page) == ["cell 3 (): did not run to its end, [ ]:", "console: Ouch"]


def test_a_kernel_that_dies_is_reported(lab: Lab, page: Page) -> None:
    show(lab, page, "import os; os._exit(1)")
    assert any(problem.startswith("dialog: Kernel Restarting") for problem in run_all(page))


def test_a_notebook_that_does_not_end_is_reported(lab: Lab, page: Page) -> None:
    show(lab, page, "while True: pass")
    assert run_all(page, timeout=2) == [
        "not finished after 2 s",
        "cell 2 (while True: pass): did not run to its end, [*]:",
    ]


def test_what_cannot_be_read_is_reported(lab: Lab, page: Page) -> None:
    pictures = [f'<img src="{PIXEL}">', f'<img src="{PIXEL}" alt=" ">', "<svg></svg>"]
    cells = [f"%%html\n{html}" for html in [*pictures, '<table style="width: 2000px"><tr><td>1</table>']]
    show(lab, page, *cells, text=r"$\frac{1}$")
    assert run_all(page) == []
    assert flaws(page) == [
        "cell 1: a formula with an error",
        *[f"cell {number}: a picture without a text alternative" for number in (2, 3, 4)],
        "cell 5: an output wider than its column",
    ]


def test_pictures_show_the_whole_notebook(lab: Lab, page: Page, tmp_path: Path) -> None:
    show(lab, page, *["print('line\\n' * 40)"] * 3)
    assert run_all(page) == []
    heights = [Image.open(picture).height for picture in screenshot(page, tmp_path / "long.png")]
    first, last = (page.locator(".jp-Cell").nth(n).bounding_box() for n in (0, -1))
    assert len(heights) > 1 and max(heights) <= TALLEST_PICTURE
    assert sum(heights) == pytest.approx(last["y"] + last["height"] - first["y"], abs=30)


def test_a_picture_breaks_between_cells_where_it_can() -> None:
    full = TALLEST_PICTURE
    assert picture_spans([100, 200]) == [(0, 200)]
    assert picture_spans([100, full, full + 1]) == [(0, full), (full, full + 1)]
    assert picture_spans([100, full + 50, full + 60]) == [(0, 100), (100, full + 60)]
    assert picture_spans([full + 50]) == [(0, full), (full, full + 50)]


def test_a_good_notebook_has_no_problems(lab: Lab, page: Page) -> None:
    show(
        lab,
        page,
        f"import sys; assert sys.executable == {sys.executable!r} and {str(CHECKOUT)!r} in sys.path",
        "from IPython.display import HTML; import ipywidgets",
        f"""HTML('<img alt="A dot" src="{PIXEL}"><svg role="img" aria-label="Nothing"></svg>')""",
        "ipywidgets.IntSlider()",
        "from helpers.choosing import picker; picker.show()",
        text=r"$\frac{1}{2}$",
    )
    assert run_all(page) + flaws(page) == []
    assert page.locator(".jupyter-widgets .noUi-handle").count() == 1
    assert page.locator(".picker-card").count() == 1
