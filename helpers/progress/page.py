"""The page that a learner keeps, and may show: what they wrote, predicted and got wrong. It names nobody."""

from __future__ import annotations

from html import escape

from helpers.draw import Picture
from helpers.engine import notes
from helpers.engine.files import write_whole
from helpers.progress.gathered import Gathered, gathered
from helpers.progress.picture import NOTHING_YET, TITLE, drawn_ladder, figures
from helpers.table import Table

FILE_STEM = "my-kernels"
"""The page's file, with .html and .png behind it, in the folder of the notebook."""

# In a browser the page follows the theme of the system by the names that JupyterLab's themes give their colours.
_STYLE = """
:root { color-scheme: light dark; --jp-content-font-color1: #222; --jp-content-font-color2: #555;
  --jp-border-color2: #ddd; --jp-layout-color2: #f4f4f4; --jp-shadow-base-lightness: 0; }
@media (prefers-color-scheme: dark) { :root { --jp-content-font-color1: #eee; --jp-content-font-color2: #aaa;
  --jp-border-color2: #444; --jp-layout-color2: #1c1c1c; --jp-shadow-base-lightness: 32; } }
body { font: 16px/1.5 system-ui, sans-serif; max-width: 54rem; margin: 2rem auto; padding: 0 1rem;
  color: var(--jp-content-font-color1); background: var(--page, #fff); }
@media (prefers-color-scheme: dark) { body { --page: #000; } }
table { border-collapse: collapse; width: 100%; font-size: 0.9rem; }
th, td { padding: 0.3rem 0.6rem; border-bottom: 1px solid var(--jp-border-color2); }
img { max-width: 100%; height: auto; }
summary { cursor: pointer; font-weight: 600; margin: 1rem 0 0.4rem; }
"""


class Page:
    """The page as a notebook shows it: a picture of the ladder, and tables below it that fold out."""

    def __init__(self, found: Gathered, said: str = "") -> None:
        self.found, self.said, self.picture = found, said, drawn_ladder(found)

    def __repr__(self) -> str:
        return "\n".join(filter(None, (self.picture.alt, self.said)))

    def _repr_html_(self) -> str:
        said = f"<p>{escape(self.said)}</p>" if self.said else ""
        return f"<div style='max-width:54rem'>{_body(self.found, self.picture, opened=False)}{said}</div>"

    def html(self) -> str:
        """The page by itself, for any browser: it needs neither a network nor a script."""
        body = _body(self.found, self.picture, opened=True)
        head = f"<meta charset='utf-8'><meta name='viewport' content='width=device-width'><title>{TITLE}</title>"
        return f"<!doctype html><html lang='en'><head>{head}<style>{_STYLE}</style></head><body>{body}</body></html>\n"


def show() -> Page:
    """Makes a page of all that was done so far, keeps it as my-kernels.html and my-kernels.png, and shows it.

    It has the ladder of the learner's own kernels, the predictions with their answers, the mistakes that checks have
    named, and speeds if there was a GPU. Both files lie in the folder of the notebook; where it cannot be written to,
    the page is shown all the same, and says so.
    """
    found = gathered()
    page, folder = Page(found), notes.folder()
    try:
        write_whole(folder / f"{FILE_STEM}.html", page.html().encode())
        write_whole(folder / f"{FILE_STEM}.png", page.picture.png({"Title": TITLE, "Description": page.picture.alt}))
    except OSError as error:
        return Page(found, f"The page could not be kept as {FILE_STEM}.html: {error.strerror}.")
    return Page(
        found,
        f"Kept next to this notebook: {FILE_STEM}.html, and {FILE_STEM}.png to show. Nothing in them says who you are.",
    )


def _body(found: Gathered, shown: Picture, opened: bool) -> str:
    parts = [shown._repr_html_(), f"<p>{escape(_next(found))}</p>"]
    for summary, table in _tables(found):
        fold = " open" * opened
        parts.append(f"<details{fold}><summary>{escape(summary)}</summary>{table._repr_html_()}</details>")
    return "".join(parts)


def _next(found: Gathered) -> str:
    """What to do next, in a sentence."""
    if found.next:
        return f"Next: exercise {found.next}."
    return (
        "Next: predict the times of four launches on your own card, time them, and send its record; then count the "
        "trips of a kernel of your own work. Others go on with GPU MODE's lectures and contests, CS336's second "
        "assignment, and the puzzles of Triton and Mojo."
    )


def _tables(found: Gathered) -> list[tuple[str, Table]]:
    """What folds out, each with its title; what there is nothing of is left out."""
    own = " ".join(figures(found)[1])
    tables = [
        (f"The ladder: {own}", _ladder(found)),
        (f"Predictions: {found.near} of {len(found.predictions)} within 10 %", _predictions(found)),
        ("What the checks have named on the way", _mistakes(found)),
    ]
    return [(summary, table) for summary, table in tables if table.rows]


def _ladder(found: Gathered) -> Table:
    rows = [
        [
            f"{rung.number} {rung.name}" if rung.mine else rung.name,
            rung.trips if rung.loads is None else f"{rung.loads:.1f}",
            "" if rung.stores is None else f"{rung.stores:.1f}",
            f"{rung.speed} on {rung.gpu}" if rung.speed else "",
        ]
        for rung in found.ladder
    ]
    timed = any(rung.speed for rung in found.ladder)
    rows = rows if timed else [row[:3] for row in rows]
    head = ["per element", "loads", "stores", "speed"][: 4 if timed else 3]
    return Table(head, rows, [] if found.own else [NOTHING_YET], align="lrrl"[: len(head)])


def _predictions(found: Gathered) -> Table:
    rows = [
        [
            f"{one.question}: {one.name.replace('_', ' ')}",
            _number(one.guess),
            _number(one.answer),
            one.how,
            "✓" if one.is_near else "",
        ]
        for one in found.predictions
    ]
    return Table(["", "my guess", "answer", "", "within 10 %"], rows, align="lrrlr")


def _mistakes(found: Gathered) -> Table:
    return Table(["exercise", "what its check named"], found.mistakes, align="ll")


def _number(value: float) -> str:
    return f"{value:,.0f}" if abs(value) >= 999.95 else f"{value:.4g}"
