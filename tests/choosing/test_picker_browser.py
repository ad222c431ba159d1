"""The picker in JupyterLab, in a browser: dragged, typed into, chosen from, read, and seen. All of these are proofs.

    python tests/choosing/test_picker_browser.py

prints how long it takes from the mouse event to the changed card.
"""

import statistics
from collections.abc import Iterator

import nbformat
import pytest
from nbformat.v4 import new_code_cell, new_notebook, new_output

pytest.importorskip("playwright", reason="Playwright is not installed: make install")

from playwright.sync_api import Locator, Page, expect

from helpers.choosing import picker
from helpers.table import Table
from lab import CHROMIUM, QUIET, WINDOW, Lab, browser, flaws, run_all, serve, set_theme

if not CHROMIUM:
    pytest.skip("Chromium is not installed: apt install chromium", allow_module_level=True)

KERNEL = {"name": "python3", "display_name": "Python 3"}

# For every event: until the card shows what it asked for, or what a later one did.
WATCH = """lengths => {
    const asked = window.asked = [];
    const slider = document.querySelector('.picker input[type=range]');
    document.addEventListener('input', () =>
        asked.push({at: performance.now(), n: String(lengths[slider.valueAsNumber])}), {capture: true});
    new MutationObserver(() => {
        const now = performance.now();
        const shown = document.querySelector('.picker-card').dataset.nCols;
        const last = asked.findLastIndex(({n}) => n === shown);
        asked.slice(0, last + 1).forEach(event => event.ms ??= now - event.at);
    }).observe(document.querySelector('.picker-card').parentElement, {childList: true});
}"""


@pytest.fixture(scope="module")
def lab() -> Iterator[Lab]:
    with serve() as lab:
        yield lab


@pytest.fixture(scope="module")
def shown(lab: Lab) -> Iterator[Page]:
    """The page of a notebook that shows the picker."""
    with browser() as page:
        open_picker(lab, page)
        yield page


def open_picker(lab: Lab, page: Page) -> None:
    write(lab, new_code_cell("from helpers.choosing import picker\npicker.show()"))
    lab.open(page, "scratch.ipynb")
    problems = run_all(page)
    assert not problems, "\n".join(problems)


def write(lab: Lab, *cells: dict) -> None:
    notebook = new_notebook(cells=list(cells), metadata={"kernelspec": KERNEL})
    nbformat.write(notebook, lab.folder / "scratch.ipynb")


@pytest.fixture
def page(shown: Page) -> Page:
    """The picker as it is first shown: a row of 4096."""
    exact(shown).fill("4096")
    for name, value in {"dtype": '"fp32"', "Rows": "null", "GPU": '"NVIDIA H200"'}.items():
        menu(shown, name).select_option(value)
    expect_card(shown, n_cols=4096, dtype="fp32", gpu="NVIDIA H200")
    shown.clear_console_messages()
    shown.clear_page_errors()
    return shown


def slider(page: Page) -> Locator:
    return page.get_by_role("slider", name="Row length", exact=True)


def exact(page: Page) -> Locator:
    return page.get_by_role("spinbutton", name="Exact row length", exact=True)


def menu(page: Page, name: str) -> Locator:
    return page.get_by_role("combobox", name=name, exact=True).and_(page.locator(".picker *"))


def card(page: Page) -> Locator:
    return page.locator(".picker-card")


def expect_card(page: Page, **figures: object) -> None:
    for name, value in figures.items():
        expect(card(page)).to_have_attribute(f"data-{name.replace('_', '-')}", str(value), timeout=20_000)


def n_cols(page: Page) -> int:
    """The row length of the card, once nothing changes any more."""
    page.evaluate(QUIET)
    return int(card(page).get_attribute("data-n-cols"))


def thumb(page: Page, position: float) -> tuple[float, float]:
    """Where the slider's thumb is at a share of its way."""
    slider(page).scroll_into_view_if_needed()
    box = slider(page).bounding_box()
    return box["x"] + 8 + position * (box["width"] - 16), box["y"] + box["height"] / 2


def drag(page: Page, start: float, end: float, steps: int = 90) -> None:
    """Drag the thumb with the mouse, an event a frame."""
    (x, y), (last, _) = thumb(page, start), thumb(page, end)
    page.mouse.move(x, y)
    page.mouse.down()
    for step in range(1, steps + 1):
        page.mouse.move(x + (last - x) * step / steps, y)
        page.wait_for_timeout(16)
    page.mouse.up()


def is_read_out(page: Page, role: str, name: str) -> bool:
    return page.get_by_role(role, name=name, exact=True).and_(page.locator(".picker *")).count() == 1


# What the mouse does


@pytest.mark.proof
def test_dragging_changes_the_card_all_the_way(page: Page) -> None:
    x, y = thumb(page, slider(page).evaluate("slider => slider.valueAsNumber / slider.max"))
    page.mouse.move(x, y)
    page.mouse.down()
    lengths = [4096]
    for _ in range(6):
        x += 18
        page.mouse.move(x, y)
        lengths.append(n_cols(page))
    page.mouse.up()
    assert lengths == sorted(set(lengths)) and len(lengths) == 7
    assert exact(page).input_value() == str(lengths[-1])
    assert f"A row of {lengths[-1]:,} " in card(page).inner_text()


@pytest.mark.proof
def test_a_fast_drag_ends_at_the_length_under_the_thumb(page: Page) -> None:
    drag(page, 0.6, 0.05, steps=15)
    expect_card(page, n_cols=exact(page).input_value())
    assert n_cols(page) == int(exact(page).input_value()) < 20


@pytest.mark.proof
def test_common_lengths_can_be_chosen_by_name(page: Page) -> None:
    for length in picker.model.COMMON:
        menu(page, "By name").select_option(str(length))
        expect_card(page, n_cols=length)
        expect(exact(page)).to_have_value(str(length))


@pytest.mark.proof
def test_dtype_rows_and_gpu_change_the_card(page: Page) -> None:
    exact(page).fill("262144")
    expect_card(page, n_cols=262144, variant="online")
    menu(page, "Rows").select_option("8")
    expect_card(page, n_rows=8, variant="split row")
    menu(page, "dtype").select_option('"bf16"')
    expect_card(page, dtype="bf16")
    menu(page, "GPU").select_option('"sm_120"')
    expect_card(page, gpu="sm_120")
    expect(card(page)).to_contain_text("sm_120 has no record; python -m helpers.measure.record on such a GPU makes one")
    assert page.locator(".picker-bar").count() == 0


@pytest.mark.proof
def test_what_the_compiler_makes_of_it_fills_in(page: Page) -> None:
    expect_card(page, xray="ready")
    meter = page.get_by_role("meter", name="registers a thread")
    assert (
        meter.get_attribute("aria-valuetext")
        == f"{card(page).get_attribute('data-registers')} of at most 128, no spill"
    )
    exact(page).fill("65536")
    expect_card(page, n_cols=65536, xray="ready")
    expect(card(page)).to_contain_text(f"spills {int(card(page).get_attribute('data-spill')):,} bytes a thread")


@pytest.mark.proof
def test_the_code_can_be_copied(page: Page) -> None:
    page.get_by_role("button", name="Copy the code").click()
    expect(page.locator("[data-copy]")).to_have_text(["Copied"], use_inner_text=True)


# What the keyboard does


@pytest.mark.proof
def test_arrows_home_and_end_move_the_thumb(page: Page) -> None:
    slider(page).focus()
    for key, length in {"ArrowRight": 4277, "ArrowUp": 4467, "ArrowLeft": 4277, "ArrowDown": 4096}.items():
        page.keyboard.press(key)
        expect_card(page, n_cols=length)
    page.keyboard.press("Home")
    expect_card(page, n_cols=1)
    lengths = [1]
    for _ in range(5):
        page.keyboard.press("ArrowRight")
        lengths.append(n_cols(page))
    assert lengths == [1, 2, 3, 4, 5, 6]
    page.keyboard.press("End")
    expect_card(page, n_cols=1048576)
    expect(slider(page)).to_have_attribute("aria-valuetext", "1,048,576 columns")
    page.keyboard.press("PageDown")
    assert n_cols(page) < 1048576
    expect(slider(page)).to_be_focused()


@pytest.mark.proof
def test_a_typed_length_is_kept_to_the_column(page: Page) -> None:
    exact(page).select_text()
    page.keyboard.type("50257", delay=30)
    expect_card(page, n_cols=50257)
    exact(page).press("Tab")
    assert (exact(page).input_value(), n_cols(page)) == ("50257", 50257)
    expect(slider(page)).to_have_attribute("aria-valuetext", "50,257 columns")


@pytest.mark.proof
def test_a_length_that_no_row_has_is_refused_in_words(page: Page) -> None:
    for wrong in ("0", "1048577", "2.5", ""):
        exact(page).fill(wrong)
        expect(page.get_by_text("A row has a whole number of columns, from 1 to 1,048,576.")).to_be_visible()
        expect(page.get_by_text("What stands below is still for 4,096 columns.")).to_be_visible()
        expect(exact(page)).to_have_attribute("aria-invalid", "true")
        expect(page.locator(".picker-stale")).to_be_visible()
    assert n_cols(page) == 4096
    exact(page).blur()
    expect(exact(page)).to_have_value("4096")
    expect(page.locator(".picker-stale")).to_have_count(0)
    expect(page.get_by_text("A row has a whole number of columns")).to_be_visible()  # or nobody is told
    exact(page).fill("4097")
    expect(page.get_by_text("A row has a whole number of columns")).to_be_hidden()


@pytest.mark.proof
def test_keys_in_the_picker_are_no_shortcuts_of_the_notebook(page: Page) -> None:
    cells = page.evaluate("panel.content.widgets.length")
    for control in (slider(page), menu(page, "GPU"), menu(page, "dtype")):
        control.focus()
        for key in "ddabxm":
            page.keyboard.press(key)
    slider(page).focus()
    active = page.evaluate("panel.content.activeCellIndex")
    page.keyboard.press("ArrowDown")
    page.evaluate(QUIET)
    assert page.evaluate("[panel.content.widgets.length, panel.content.activeCellIndex]") == [cells, active]


# What is read out, and seen


@pytest.mark.proof
def test_every_control_has_a_name(page: Page) -> None:
    named = [("slider", "Row length"), ("spinbutton", "Exact row length"), ("button", "Copy the code")]
    named += [("combobox", name) for name in ("By name", "dtype", "Rows", "GPU")]
    assert [name for role, name in named if not is_read_out(page, role, name)] == []
    assert page.locator(".picker :is(input, select, button)").count() == len(named)


@pytest.mark.proof
def test_the_sentence_is_announced_once_the_drag_rests(page: Page) -> None:
    exact(page).fill("781")
    expect(page.locator(".picker [role=status]")).to_have_text(picker.state(781).choice.why)


@pytest.mark.proof
def test_the_picture_of_the_row_says_what_it_shows(page: Page) -> None:
    exact(page).fill("5000")
    expect(page.get_by_role("img", name="One tile of 8,192 lanes: 3,192 of 8,192 lanes idle (39 %)")).to_be_visible()


@pytest.mark.proof
def test_every_control_shows_the_focus(page: Page) -> None:
    slider(page).focus()
    for _ in range(7):
        ring = page.evaluate("(({outlineStyle, outlineWidth}) => [outlineStyle, outlineWidth])"
                             "(getComputedStyle(document.activeElement))")  # fmt: skip
        assert ring == ["solid", "2px"], page.evaluate("document.activeElement.outerHTML")
        page.keyboard.press("Tab")


TOO_WIDE = """picker => [picker, ...picker.querySelectorAll('*')].filter(node =>
    node.scrollWidth > node.clientWidth + 1 && getComputedStyle(node).display !== 'inline'
    && !node.matches('svg *, [role=status]')).map(node => node.outerHTML)"""


@pytest.mark.proof
@pytest.mark.parametrize("width", [1000, 700, 560])
def test_nothing_is_wider_than_the_window(page: Page, width: int) -> None:
    page.set_viewport_size(WINDOW | {"width": width})
    try:
        for length in (100, 4096, 502060):
            exact(page).fill(str(length))
            expect_card(page, n_cols=length)
            assert page.locator(".picker").evaluate(TOO_WIDE) == []
        assert not [flaw for flaw in flaws(page) if "wider" in flaw]
    finally:
        page.set_viewport_size(WINDOW)


@pytest.mark.proof
@pytest.mark.parametrize("theme", ["light", "dark"])
def test_text_stands_out_from_the_ground_in(page: Page, theme: str) -> None:
    set_theme(page, theme)
    try:
        exact(page).fill("65536")
        expect_card(page, n_cols=65536, xray="ready")
        assert {words: round(ratio, 2) for words, ratio in page.evaluate(CONTRAST) if ratio < 4.5} == {}
    finally:
        set_theme(page, "light")


# Text against the nearest ground that is not transparent, as WCAG 2 computes it.
CONTRAST = """() => {
    const canvas = new OffscreenCanvas(1, 1).getContext('2d', {willReadFrequently: true});
    const luminance = colors => {
        canvas.clearRect(0, 0, 1, 1);
        for (const color of colors) { canvas.fillStyle = color; canvas.fillRect(0, 0, 1, 1); }
        const [r, g, b] = [...canvas.getImageData(0, 0, 1, 1).data].map(
            c => c / 255 <= 0.04045 ? c / 255 / 12.92 : ((c / 255 + 0.055) / 1.055) ** 2.4);
        return 0.2126 * r + 0.7152 * g + 0.0722 * b;
    };
    const grounds = node => node ? [...grounds(node.parentElement), getComputedStyle(node).backgroundColor] : [];
    return [...document.querySelectorAll('.picker *')]
        .filter(node => [...node.childNodes].some(child => child.nodeType === 3 && child.data.trim()))
        .map(node => {
            const ground = luminance(grounds(node));
            const text = luminance([...grounds(node), getComputedStyle(node).color]);
            return [node.textContent, (Math.max(text, ground) + 0.05) / (Math.min(text, ground) + 0.05)];
        });
}"""


@pytest.mark.proof
def test_the_browser_has_nothing_to_complain_of(page: Page) -> None:
    drag(page, 0.2, 0.9, steps=30)
    page.evaluate(QUIET)
    assert [message.text for message in page.console_messages() if message.type == "error"] == []
    assert page.page_errors() == []


# How long it takes


def latency(page: Page) -> Table:
    """From the mouse event to the changed card, for drags from end to end."""
    page.evaluate(WATCH, list(picker.model.LENGTHS))
    rows = []
    for name in ("first drag, compiling meanwhile", "second drag", "third drag", "fourth drag"):
        page.evaluate("asked.length = 0")
        start, end = (0.02, 0.98) if len(rows) % 2 == 0 else (0.98, 0.02)
        drag(page, start, end)
        page.evaluate(QUIET)
        times = sorted(page.evaluate("asked.map(({ms}) => ms)"))
        assert None not in times and len(times) > 20
        p95 = statistics.quantiles(times, n=20)[-1]
        rows.append([name, str(len(times)), *(f"{time:.0f}" for time in (statistics.median(times), p95, times[-1]))])
    return Table(["mouse event to changed card", "events", "median ms", "p95 ms", "worst ms"], rows)


@pytest.mark.proof
def test_every_event_of_a_drag_is_answered(page: Page, record_property) -> None:
    record_property("from the mouse event to the changed card of the picker", repr(latency(page)))


@pytest.mark.proof
def test_without_a_kernel_the_stored_notebook_shows_the_table_and_the_figure(shown: Page) -> None:
    """In a JupyterLab of its own: opening another notebook ends the kernel of the page that the other tests share."""
    data, metadata = picker.show(5000)._repr_mimebundle_()
    stored = new_output("execute_result", data, metadata=metadata, execution_count=1)
    with serve() as lab, shown.context.browser.new_page(viewport=WINDOW) as page:
        write(lab, new_code_cell("picker.show(5000)", execution_count=1, outputs=[stored]))
        lab.open(page, "scratch.ipynb")
        page.evaluate(QUIET)
        expect(page.locator(".jp-OutputArea-output table")).to_contain_text("3,192 of 8,192 lanes idle (39 %)")
        expect(page.locator(".jp-OutputArea-output img")).to_have_attribute(
            "alt", picker.as_picture(picker.state(5000)).alt
        )
        assert flaws(page) == []


if __name__ == "__main__":
    with serve() as running, browser() as window:
        open_picker(running, window)
        print(latency(window))
