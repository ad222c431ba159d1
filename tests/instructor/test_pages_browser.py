"""The pages of a class in a browser."""

import io

import pytest

pytest.importorskip("playwright", reason="Playwright is not installed: make install")

from PIL import Image, ImageStat

from helpers.instructor.report.understood import Understood, write_page
from lab import CHROMIUM, browser

if not CHROMIUM:
    pytest.skip("Chromium is not installed: apt install chromium", allow_module_level=True)

pytestmark = pytest.mark.proof


@pytest.mark.parametrize(("scheme", "darkest", "brightest"), [("light", 150, 255), ("dark", 0, 90)])
def test_the_figure_of_a_report_has_the_theme_of_its_page(scheme, darkest, brightest, tmp_path):
    report = write_page(tmp_path, [Understood("merge", 6, 4, 3, (("A mistake", 1),))], [])
    with browser() as page:
        page.emulate_media(color_scheme=scheme)
        page.goto(report.as_uri())
        shown = Image.open(io.BytesIO(page.locator("img").screenshot())).convert("L")
    assert darkest <= ImageStat.Stat(shown).mean[0] <= brightest
