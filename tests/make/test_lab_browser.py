"""What `make lab` shows in a browser: no tool of an instructor. A JupyterLab without its settings shows them all."""

from urllib.parse import urlencode

import pytest

pytest.importorskip("playwright", reason="Playwright is not installed: make install")

from helpers.make.lab import CHECKOUT, command
from lab import CHROMIUM, browser, serve

if not CHROMIUM:
    pytest.skip("Chromium is not installed: apt install chromium", allow_module_level=True)

pytestmark = pytest.mark.proof

TOOLS = ("Create Assignment", "Nbgrader", "Validate")
OPENED = """async path => {
    await jupyterapp.restored;
    window.panel = await jupyterapp.commands.execute('docmanager:open', {path});
    await panel.context.ready;
    await panel.revealed;
}"""
SEEN = """() => document.body.innerText + [...document.querySelectorAll('[title], [aria-label]')]
    .map(node => node.title + node.ariaLabel).join()"""


def seen(*options: str, picture: str | None = None) -> str:
    """What a page of JupyterLab shows, with its names for those who do not see it."""
    with serve(options=options) as lab, browser() as page:
        page.goto(f"{lab.url}lab?{urlencode({'token': lab.token, 'reset': ''})}")
        page.wait_for_function("window.jupyterapp?.restored.then(() => true)")
        page.evaluate(OPENED, "lessons/01_eager_softmax.ipynb")
        page.get_by_role("button", name="Notebook Actions").or_(
            page.locator(".jp-NotebookPanel-toolbar")
        ).first.wait_for()
        page.wait_for_timeout(2000)
        if picture:
            page.screenshot(path=picture)
        return page.evaluate(SEEN)


def test_learners_see_no_tool_of_instructors():
    (settings,) = (option for option in command("127.0.0.1", 8888, True) if "app_settings_dir" in option)
    assert str(CHECKOUT) in settings
    shown = seen(settings)
    assert "Eager softmax" in shown
    assert not [tool for tool in TOOLS if tool in shown]


def test_without_these_settings_an_instructor_sees_them():
    shown = seen()
    assert [tool for tool in TOOLS if tool in shown] == list(TOOLS)
