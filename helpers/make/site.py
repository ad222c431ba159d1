"""Make the site: the executed solutions and the guides as a static book, read without a network or a server.

Sphinx writes the pages, MyST-NB reads the notebooks, Furo is the theme. No notebook is executed: the outputs stored in
solutions/ are shown. This module is also the extension that Sphinx loads.
"""

from __future__ import annotations

import argparse
import copy
import json
import os
import posixpath
import re
import shutil
import sys
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from html.parser import HTMLParser
from importlib.util import find_spec
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any
from urllib.parse import unquote, urlsplit

from helpers import recorded
from helpers.check import EXERCISES
from helpers.make.mistakes_page import mistakes_page
from helpers.measure.chart import record_page

CHECKOUT = Path(__file__).resolve().parents[2]
STYLE = Path(__file__).with_name("site.css")
RECORD = "record.md"
MISTAKES = "mistakes.md"
PACKAGES = ("sphinx", "myst_nb", "furo")
SHOW = "Show the solution"

SETTINGS = {
    "project": "Softmax in Triton",
    "html_title": "Softmax in Triton",
    "language": "en",
    "root_doc": "index",
    "extensions": ["myst_nb", "helpers.make.site"],
    "nb_execution_mode": "off",
    "myst_enable_extensions": ["dollarmath"],
    "myst_heading_anchors": 4,
    "smartquotes": False,
    "html_theme": "furo",
    "html_math_renderer": "mathml",
    "html_static_path": ["_static"],
    "html_css_files": [STYLE.name],
    "html_copy_source": False,
    "html_show_copyright": False,
    "html_use_index": False,
}

# Code first, so that brackets in it are not taken for a link.
_LINK = re.compile(
    r"```.*?```|``.*?``|`[^`]*`|(?P<text>\[[^][]*)?\]\((?P<path>[^)#\s:]+)(?P<anchor>#[^)\s]*)?\)", re.DOTALL
)
_FETCHED = re.compile(r"""(?:url\(|@import)\s*["']?((?:https?:)?//[^"')\s]+)""")
_MARKER = re.compile(r"^\s*### (?:BEGIN|END) SOLUTION\n?", re.MULTILINE)
_REPAIRS = [
    (re.compile(pattern, re.DOTALL), replacement)
    for pattern, replacement in (
        (r"<pre>", '<pre tabindex="0">'),  # what is wider than its column can be scrolled by keys
        (r'(<div class="(?:(?:table|math)-wrapper|output text_html)[^>]*)>', r'\1 tabindex="0">'),
        (r'<aside class="sidebar-drawer"', r'\g<0> aria-label="The book"'),
        (r'<aside class="toc-drawer[^"]*"', r'\g<0> aria-label="This page"'),
        (r'(<p class="caption") role="heading"', r'\1 role="heading" aria-level="2"'),
        (  # MyST-NB's looks like a warning, and is announced as "Toggle hidden content"
            r'<details class="admonition hide[^>]*>\s*<summary[^>]*>\s*<p[^>]*>(.*?)</p>.*?</summary>',
            r"<details><summary>\1</summary>",
        ),
        (r"<th([^>]*)>(?:<p></p>)?</th>", r"<td\1></td>"),
        (r'<div id="search-results">', r"<h1>Search</h1>\g<0>"),
    )
]


def pages(checkout: Path) -> dict[str, str]:
    """The page made of each source, both relative to their folders: lessons, then guides, then the project's files."""
    notebooks = sorted(path.name for path in (checkout / "solutions").glob("*.ipynb"))
    guides = sorted(path.relative_to(checkout) for path in (checkout / "helpers").rglob("*.md"))
    project = sorted((*checkout.glob("*.md"), *checkout.glob(".github/*.md")), key=lambda path: path.name)
    return {
        "README.md": "index.md",
        **{f"solutions/{name}": name for name in notebooks},
        **{str(path): "-".join(path.parts).replace("-README", "").lower() for path in guides},
        **{path.relative_to(checkout).as_posix(): path.name.lower() for path in project if path.name != "README.md"},
    }


def relinked(text: str, source: str, made: Mapping[str, str], checkout: Path) -> tuple[str, set[str]]:
    """Markdown of `source` with its relative links as they are on the site, and the other files that it links to.

    A lesson's link leads to its solution's page, a folder's to the page of its README; a folder without one is
    only named. A heading's name has the case of the heading in JupyterLab, and is in lower case on the site.

    Raises ValueError for a link that leads nowhere.
    """
    files = set()

    def replaced(match: re.Match[str]) -> str:
        if match["path"] is None:
            return match[0]
        target = posixpath.normpath(posixpath.join(posixpath.dirname(source), unquote(match["path"])))
        page = next((made[name] for name in candidates_of_page(target) if name in made), None)
        text = match["text"] or ""
        if page is None and (checkout / target).is_dir():
            return text.removeprefix("[") if text else "]"
        if page is None and not (checkout / target).is_file():
            raise ValueError(f"{source} links to {match['path']}, which does not exist.")
        if page is None:
            files.add(target)
        anchor = match["anchor"] or ""
        return f"{text}]({page or target}{anchor.lower() if (page or '').endswith('.ipynb') else anchor})"

    return _LINK.sub(replaced, text), files


def candidates_of_page(target: str) -> tuple[str, ...]:
    """The sources of which a page may have been made that a link to `target` means."""
    return target, target.replace("lessons/", "solutions/", 1), posixpath.join(target, "README.md").removeprefix("./")


def folded(cell: Mapping[str, Any], starters: Mapping[str, Mapping[str, Any]]) -> list[dict[str, Any]]:
    """A cell as the site shows it: an answer is folded below what the lesson starts with, and has no markers.

    Raises ValueError where `starters`, the lesson's cells by their name in nbgrader, has no such cell.
    """
    graded = cell["metadata"].get("nbgrader", {})
    if cell["cell_type"] != "code" or not graded.get("solution"):
        return [dict(cell)]
    answer = copy.deepcopy(dict(cell))
    answer["source"] = _MARKER.sub("", "".join(cell["source"]))
    answer["metadata"]["tags"] = ["hide-cell"]
    answer["metadata"]["mystnb"] = {"code_prompt_show": SHOW}
    if graded["grade_id"] not in starters:
        raise ValueError(f"lessons/ has no cell {graded['grade_id']}, which solutions/ answers: `make lessons`.")
    starter = starters[graded["grade_id"]]
    return [{**starter, "id": f"{cell['id']}-starter", "outputs": [], "metadata": {}}, answer]


def outlined(cell: dict[str, Any]) -> dict[str, Any]:
    """A cell whose outputs have headings one level below the text's above them."""
    outputs = json.dumps(cell.get("outputs", []))
    return {**cell, "outputs": json.loads(re.sub(r"(</?)h4>", r"\1h3>", outputs))} if "outputs" in cell else cell


def stage(checkout: Path, folder: Path) -> None:
    """Write into `folder` what Sphinx reads: every page, the files that pages link to, and the style.

    Raises ValueError for a link that leads nowhere, and for an answer whose cell is missing in lessons/.
    """
    made = pages(checkout)
    linked = set()
    folder.mkdir()
    for source, page in made.items():
        text = (checkout / source).read_text(encoding="utf-8")
        if source.endswith(".ipynb"):
            notebook = json.loads(text)
            lesson = json.loads((checkout / "lessons" / page).read_text(encoding="utf-8"))
            starters = {cell["metadata"].get("nbgrader", {}).get("grade_id"): cell for cell in lesson["cells"]}
            for cell in notebook["cells"]:
                if cell["cell_type"] == "markdown":
                    cell["source"], files = relinked("".join(cell["source"]), source, made, checkout)
                    linked |= files
            notebook["cells"] = [outlined(shown) for cell in notebook["cells"] for shown in folded(cell, starters)]
            text = json.dumps(notebook)
        else:
            text, files = relinked(text, source, made, checkout)
            linked |= files
            text += contents(made) if page == "index.md" else ""
        (folder / page).write_text(text, encoding="utf-8")
    (folder / RECORD).write_text(
        record_page(recorded.by_gpu("softmax", checkout / "helpers" / "recorded")), encoding="utf-8"
    )
    (folder / MISTAKES).write_text(mistakes_page(EXERCISES.values()), encoding="utf-8")
    for name in linked:
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(checkout / name, folder / name)
    (folder / "_static").mkdir()
    shutil.copy(STYLE, folder / "_static")


def contents(made: Mapping[str, str]) -> str:
    """The book's contents: a hidden toctree for each part, which the theme shows at the side."""
    parts = {
        "Lessons": [page for source, page in made.items() if source.endswith(".ipynb")],
        "Guides": [RECORD, MISTAKES] + [page for source, page in made.items() if source.startswith("helpers/")],
        "Project": [page for source, page in made.items() if not re.match(r"README|solutions/|helpers/", source)],
    }
    trees = (
        f"```{{toctree}}\n:hidden:\n:caption: {name}\n\n" + "\n".join(part) for name, part in parts.items() if part
    )
    return "".join(f"\n{tree}\n```\n" for tree in trees)


# The extension


def setup(app: Any) -> dict[str, bool]:
    """What Sphinx calls: formulas become MathML, which browsers show without a script."""
    app.add_html_math_renderer("mathml", (_formula(False), None), (_formula(True), None))
    return {"parallel_read_safe": True, "parallel_write_safe": True}


def _formula(as_block: bool) -> Any:
    def visit(translator: Any, node: Any) -> None:
        from docutils.nodes import SkipNode
        from docutils.utils.math.latex2mathml import tex2mathml

        translator.body.append(tex2mathml(node.astext(), as_block=as_block))
        raise SkipNode

    return visit


# The site as built


def accessible(html: str) -> str:
    """A page with what the theme leaves out for screen readers and for readers without a mouse."""
    for pattern, replacement in _REPAIRS:
        html = pattern.sub(replacement, html)
    return html


@dataclass
class _Page(HTMLParser):
    """What a page defines (ids), links to, and loads when it is opened."""

    ids: set[str] = field(default_factory=set)
    links: set[str] = field(default_factory=set)
    loads: set[str] = field(default_factory=set)

    def __post_init__(self) -> None:
        super().__init__()

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        values = {name: value for name, value in attrs if value}
        self.ids |= {values[name] for name in ("id", "name") if name in values}
        if tag == "a":
            self.links |= {values[name] for name in ("href",) if name in values}
        elif tag != "base":
            self.loads |= {values[name] for name in ("href", "src", "srcset", "data", "poster") if name in values}

    def handle_data(self, data: str) -> None:
        if self.lasttag == "style":
            self.loads |= loaded_by_style(data)


def loaded_by_style(css: str) -> set[str]:
    """What a style sheet loads from the network."""
    return set(_FETCHED.findall(css))


def parsed(html: str) -> _Page:
    """The ids, links and loads of a page."""
    page = _Page()
    page.feed(html)
    return page


def faults(folder: Path) -> list[str]:
    """The faults in the links of a site: links that lead nowhere, and loads from the network."""
    made = {path.resolve(): parsed(path.read_text(encoding="utf-8")) for path in sorted(folder.rglob("*.html"))}
    styles = {path.relative_to(folder): path.read_text(encoding="utf-8") for path in sorted(folder.rglob("*.css"))}
    found = [f"{name} loads {link} from the network" for name in styles for link in loaded_by_style(styles[name])]
    for path, page in made.items():
        name = path.relative_to(folder.resolve())
        for link in sorted(page.links | page.loads):
            parts = urlsplit(link)
            if parts.scheme or parts.netloc:
                if link in page.loads and parts.scheme != "data":
                    found.append(f"{name} loads {link} from the network")
                continue
            target = (path.parent / unquote(parts.path)).resolve() if parts.path else path
            if not target.is_file():
                found.append(f"{name} links to {link}, which does not exist")
            elif parts.fragment and target in made and unquote(parts.fragment) not in made[target].ids:
                found.append(f"{name} links to {link}, and that page has no such place")
    return found


def external_links(folder: Path) -> list[str]:
    """Every address outside the site that its pages link to."""
    links = {link for path in folder.rglob("*.html") for link in parsed(path.read_text(encoding="utf-8")).links}
    return sorted(link for link in links if urlsplit(link).netloc)


# The command


def build(checkout: Path, out: Path) -> int:
    """Write the site to `out`, which is emptied first; 0 when Sphinx had nothing to warn of.

    Sphinx leaves traces in its process, of which it warns the next time: build once in a process.
    """
    from sphinx.application import Sphinx

    shutil.rmtree(out, ignore_errors=True)
    with TemporaryDirectory() as folder:
        source, doctrees = Path(folder, "source"), Path(folder, "doctrees")
        stage(checkout, source)
        app = Sphinx(source, None, out, doctrees, "html", SETTINGS, status=None, warningiserror=True)
        app.build()
    for page in out.glob("*.html"):
        page.write_text(accessible(page.read_text(encoding="utf-8")), encoding="utf-8")
    return app.statuscode


def lacking_packages(packages: Iterable[str]) -> list[str]:
    """The packages that are not installed."""
    return [name for name in packages if find_spec(name) is None]


def main() -> int:
    """Make the site, check its links, and say where it is; 1 where it cannot be made, or a link is wrong."""
    parser = argparse.ArgumentParser(prog="python -m helpers.make.site", description=__doc__)
    parser.add_argument("--out", type=Path, default=CHECKOUT / "build" / "site", help="default: build/site")
    out = parser.parse_args().out.absolute()
    if lacking := lacking_packages(PACKAGES):
        print(f"The site needs {', '.join(lacking)}, which `make site` installs.", file=sys.stderr)
        return 1
    status = build(CHECKOUT, out)
    wrong = faults(out)
    for line in wrong:
        print(line, file=sys.stderr)
    outside = external_links(out)
    print("Links that lead out of the site, not followed here:", *outside, sep="\n    ")
    size = sum(path.stat().st_size for path in out.rglob("*") if path.is_file()) / 1e6
    print(f"{len(list(out.glob('*.html')))} pages, {size:.1f} MB: open {os.path.relpath(out)}/index.html")
    return 1 if status or wrong else 0


if __name__ == "__main__":
    sys.exit(main())
