"""The stored solutions as nbviewer and a repository's viewer show them: no kernel, no script, no network."""

import base64
import re
from collections.abc import Iterator
from pathlib import Path

import nbformat
import pytest
from nbconvert import HTMLExporter
from nbformat import NotebookNode

from helpers.make.site import parsed

ROOT = Path(__file__).resolve().parents[2]
SOLUTIONS = {path.stem: nbformat.read(path, 4) for path in sorted(ROOT.glob("solutions/*.ipynb"))}
each_solution = pytest.mark.parametrize("notebook", SOLUTIONS.values(), ids=SOLUTIONS)

SHOWN_WITHOUT_A_KERNEL = {"text/plain", "text/html"}
ACTIVE = re.compile(r"<(?:script|iframe|object|embed|link|form)\b|<[^>]*\son\w+\s*=", re.IGNORECASE)


def stored(notebook: NotebookNode) -> Iterator[NotebookNode]:
    """What the cells of a notebook have shown, by type, with a text for each type."""
    for cell in notebook.cells:
        yield from (output.data for output in cell.get("outputs", []) if "data" in output)


def figures(html: str) -> list[tuple[str, str]]:
    """The description and the source of each image of a page."""
    images = re.findall(r"<img\b[^>]*>", html)
    return [tuple(re.search(f' {name}="([^"]*)"', image)[1] for name in ("alt", "src")) for image in images]


@each_solution
def test_every_output_has_a_form_that_needs_no_kernel(notebook):
    assert "widgets" not in notebook.metadata
    assert all("text/plain" in data and set(data) <= SHOWN_WITHOUT_A_KERNEL for data in stored(notebook))


@each_solution
def test_no_output_runs_or_loads_anything(notebook):
    pages = [data.get("text/html", "") for data in stored(notebook)]
    assert not any(ACTIVE.search(page) for page in pages)
    assert all(source.startswith("data:image/png;base64,") for page in pages for source in parsed(page).loads)


@pytest.mark.proof
@each_solution
def test_every_figure_is_a_picture_with_its_description_in_the_page_that_nbviewer_makes(notebook):
    page, _ = HTMLExporter(template_name="basic").from_notebook_node(notebook)
    shown, outputs = figures(page), [data.get("text/html", "") for data in stored(notebook)]
    assert len(shown) == sum(html.count("<img") for html in outputs)
    assert shown == [figure for html in outputs for figure in figures(html)]
    for alt, source in shown:
        assert len(alt.split()) > 3
        assert base64.b64decode(source.partition(",")[2], validate=True).startswith(b"\x89PNG\r\n")


@pytest.mark.parametrize("markup", ["<script>", '<IFRAME src="a">', '<p onclick="a()">', "<p\nonload = 'a()'>"])
def test_what_would_run_is_found(markup):
    assert ACTIVE.search(markup)


@pytest.mark.parametrize("markup", ["<p>on = 1</p>", "<b>scripted</b>", '<td class="online">', '<img src="data:x">'])
def test_what_only_looks_like_it_is_not(markup):
    assert not ACTIVE.search(markup)
