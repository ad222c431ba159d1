"""The site in a browser, opened as files: no server and no network. All of these are proofs."""

import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

pytest.importorskip("playwright", reason="Playwright is not installed: make install")

from playwright.sync_api import Page, expect

from helpers.make import site
from lab import CHROMIUM, browser

if not CHROMIUM:
    pytest.skip("Chromium is not installed: apt install chromium", allow_module_level=True)
if lacking := site.lacking_packages(site.PACKAGES):
    pytest.skip(f"the site needs {', '.join(lacking)}, which `make site` installs", allow_module_level=True)

pytestmark = pytest.mark.proof
ROOT = Path(__file__).resolve().parents[2]


@pytest.fixture(scope="module")
def made(tmp_path_factory) -> Path:
    """The site of this course; Sphinx leaves traces in the process that it runs in."""
    out = tmp_path_factory.mktemp("made") / "site"
    subprocess.run([sys.executable, "-m", "helpers.make.site", "--out", str(out)], cwd=ROOT, check=True)
    return out


@pytest.fixture
def page() -> Iterator[Page]:
    with browser() as page:
        yield page


def test_a_search_finds_the_lesson_that_has_the_word(made, page):
    page.goto((made / "index.html").as_uri())
    page.locator("input[name=q]:visible").fill("shuffles")
    page.keyboard.press("Enter")
    expect(page.locator("#search-results").get_by_role("link", name="06 · Why, in microseconds")).to_be_visible()


def test_the_figure_of_the_record_shows_what_is_chosen(made, page):
    page.goto((made / "record.html").as_uri())
    figure = page.locator("#gpu-nvidia-h200")
    marks = figure.locator("circle:has-text('Liger, bf16')")
    expect(marks.first).to_be_hidden()
    figure.get_by_label("bf16").check()
    expect(marks.first).to_be_hidden()
    figure.get_by_label("Liger").check()
    expect(marks.first).to_be_visible()
    expect(figure.locator("circle:has-text('Liger, fp32')").first).to_be_hidden()


@pytest.mark.parametrize("width", [400, 1280])
@pytest.mark.parametrize("theme", ["light", "dark"])
def test_no_page_is_wider_than_its_window_loads_from_the_network_or_stays_in_the_other_theme(made, page, width, theme):
    outside = []
    page.on("request", lambda request: request.url.startswith(("file:", "data:")) or outside.append(request.url))
    page.emulate_media(color_scheme=theme)
    page.set_viewport_size({"width": width, "height": 900})
    backgrounds = set()
    for path in sorted(made.glob("*.html")):
        page.goto(path.as_uri())
        page.evaluate("document.querySelectorAll('details').forEach(fold => fold.open = true)")
        assert page.evaluate("document.documentElement.scrollWidth") <= width, path.name
        backgrounds.add(page.evaluate("getComputedStyle(document.body).backgroundColor"))
    assert outside == []
    (background,) = backgrounds
    assert (background == "rgb(255, 255, 255)") == (theme == "light")
