"""The page of progress.show in JupyterLab: readable in both themes and in a narrow window, kept as files that open."""

import json

import nbformat
import pytest
from nbformat.v4 import new_code_cell, new_notebook

pytest.importorskip("playwright", reason="Playwright is not installed: make install")

from lab import CHROMIUM, THEMES, WINDOW, browser, flaws, run_all, serve, set_theme
from noted import HALF, WHOLE

if not CHROMIUM:
    pytest.skip("Chromium is not installed: apt install chromium", allow_module_level=True)

pytestmark = pytest.mark.proof


@pytest.mark.parametrize("known", [{}, HALF, WHOLE], ids=["nothing", "half", "everything"])
def test_the_page_can_be_read_in_both_themes_and_in_a_narrow_window(known):
    with serve() as lab, browser() as page:
        notebook = new_notebook(cells=[new_code_cell("from helpers import progress\n\nprogress.show()")])
        notebook.metadata.kernelspec = {"name": "python3", "display_name": "Python 3"}
        nbformat.write(notebook, lab.folder / "end.ipynb")
        (lab.folder / "progress.json").write_text(json.dumps(known))
        lab.open(page, "end.ipynb")
        assert run_all(page) == []
        page.evaluate("document.querySelectorAll('.jp-OutputArea details').forEach(one => one.open = true)")
        for width in (WINDOW["width"], 800):
            page.set_viewport_size(WINDOW | {"width": width})
            for theme in THEMES:
                set_theme(page, theme)
                assert flaws(page) == []
        page.goto((lab.folder / "my-kernels.html").as_uri())
        assert page.title() == "My softmax, counted trip by trip"
        assert page.evaluate("document.images.length === 1 && document.images[0].naturalWidth > 1000")
        assert page.evaluate("document.body.scrollWidth <= innerWidth")
