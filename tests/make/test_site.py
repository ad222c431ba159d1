"""helpers/make/site.py: the solutions and guides as a static book, with answers folded and nothing from the network."""

import json
import re
import subprocess
import sys
from html.parser import HTMLParser
from pathlib import Path

import pytest

from helpers.make import site

ROOT = Path(__file__).resolve().parents[2]
MADE = {
    "README.md": "index.md",
    "solutions/01_a.ipynb": "01_a.ipynb",
    "helpers/b/README.md": "helpers-b.md",
    "helpers/b/SPEED.md": "helpers-b-speed.md",
    "CHANGELOG.md": "changelog.md",
    ".github/SECURITY.md": "security.md",
}


def cell(source: str, kind: str = "code", **nbgrader: object) -> dict:
    """A notebook's cell, with nbgrader's metadata if given."""
    graded = {"metadata": {"nbgrader": nbgrader} if nbgrader else {}}
    outputs = {"outputs": [], "execution_count": None} if kind == "code" else {}
    return {"cell_type": kind, "id": f"of-{len(source)}", "source": source, **graded, **outputs}


@pytest.fixture
def checkout(tmp_path: Path) -> Path:
    """A course of one lesson with one exercise, a guide, and a file and a folder that are not pages."""
    answer = cell("x = 1\n### BEGIN SOLUTION\nx = 2\n### END SOLUTION", grade_id="a", solution=True)
    starter = cell("x = 1\n# your code", grade_id="a", solution=True)
    for folder, graded in ("solutions", answer), ("lessons", starter):
        (tmp_path / folder).mkdir()
        cells = [cell("# A\n\n[back](../README.md)", "markdown"), graded]
        notebook = {
            "cells": cells,
            "metadata": {"language_info": {"name": "python"}},
            "nbformat": 4,
            "nbformat_minor": 5,
        }
        (tmp_path / folder / "01_a.ipynb").write_text(json.dumps(notebook))
    (tmp_path / "helpers" / "b" / "code").mkdir(parents=True)
    (tmp_path / "helpers" / "b" / "c.py").write_text("c = 1")
    (tmp_path / "helpers" / "b" / "README.md").write_text("# B\n\n[c](c.py)")
    (tmp_path / "helpers" / "b" / "SPEED.md").write_text("# Speed of B")
    (tmp_path / "CHANGELOG.md").write_text("# Changelog")
    (tmp_path / ".github").mkdir()
    (tmp_path / ".github" / "SECURITY.md").write_text("# Security")
    (tmp_path / "README.md").write_text("# Course\n\n[A](lessons/01_a.ipynb)")
    return tmp_path


# What Sphinx reads


def test_lessons_come_first_then_guides_then_the_files_of_the_project(checkout):
    assert list(site.pages(checkout).items()) == list(MADE.items())


@pytest.mark.parametrize(
    ("text", "source", "shown", "files"),
    [
        ("[A](lessons/01_a.ipynb)", "README.md", "[A](01_a.ipynb)", set()),
        ("[A](solutions/01_a.ipynb)", "README.md", "[A](01_a.ipynb)", set()),
        ("[course](../README.md)", "solutions/01_a.ipynb", "[course](index.md)", set()),
        ("[course](../..)", "helpers/b/README.md", "[course](index.md)", set()),
        ("[b](helpers/b)", "README.md", "[b](helpers-b.md)", set()),
        ("[b](helpers/b/)", "README.md", "[b](helpers-b.md)", set()),
        ("[b](../helpers/b/README.md#c)", "solutions/01_a.ipynb", "[b](helpers-b.md#c)", set()),
        ("[speed](helpers/b/SPEED.md)", "README.md", "[speed](helpers-b-speed.md)", set()),
        ("[v](../CHANGELOG.md#V)", "solutions/01_a.ipynb", "[v](changelog.md#V)", set()),
        ("[b](../lessons/01_a.ipynb#The-names)", "solutions/01_a.ipynb", "[b](01_a.ipynb#the-names)", set()),
        ("[`b`/](code) x", "helpers/b/README.md", "`b`/ x", set()),
        ("[c](c.py)", "helpers/b/README.md", "[c](helpers/b/c.py)", {"helpers/b/c.py"}),
        ("![c](helpers/b/c.py)", "README.md", "![c](helpers/b/c.py)", {"helpers/b/c.py"}),
        ("[![c](c.py)](code)", "helpers/b/README.md", "[![c](helpers/b/c.py)]", {"helpers/b/c.py"}),
        ("[`f[0]`](helpers/b)", "README.md", "[`f[0]`](helpers-b.md)", set()),
        ("[report](.github/SECURITY.md)", "README.md", "[report](security.md)", set()),
        ("[here](#start)", "README.md", "[here](#start)", set()),
        ("[out](https://example.org/a)", "README.md", "[out](https://example.org/a)", set()),
        ("`f[(4,)](x)`", "README.md", "`f[(4,)](x)`", set()),
        ("``a`b[1](x)``", "README.md", "``a`b[1](x)``", set()),
        ("```\nf[1](x)\n```", "README.md", "```\nf[1](x)\n```", set()),
    ],
    ids=[
        "lesson", "solution", "course", "folder of the course", "folder", "folder with a slash", "place", "guide",
        "of a file", "heading", "no page", "file", "picture", "linked picture", "code in a link", "hidden folder",
        "same page", "outside", "code", "code with a backtick", "block of code",
    ],
)  # fmt: skip
def test_links_lead_to_pages_and_other_files_go_along(checkout, text, source, shown, files):
    assert site.relinked(text, source, MADE, checkout) == (shown, files)


def test_a_link_that_leads_nowhere_is_refused_by_name(checkout):
    with pytest.raises(ValueError, match=r"README\.md links to lessons/09\.ipynb, which does not exist"):
        site.relinked("[A](lessons/09.ipynb)", "README.md", MADE, checkout)


def test_an_answer_is_folded_without_its_markers_below_what_the_lesson_starts_with(checkout):
    site.stage(checkout, folder := checkout / "staged")
    _, starter, answer = json.loads((folder / "01_a.ipynb").read_text())["cells"]
    assert (starter["source"], starter["metadata"]) == ("x = 1\n# your code", {})
    assert answer["source"] == "x = 1\nx = 2\n"
    assert answer["metadata"]["tags"] == ["hide-cell"]
    assert starter["id"] != answer["id"]


def test_an_answer_that_the_lesson_does_not_ask_for_is_refused():
    with pytest.raises(ValueError, match="lessons/ has no cell a, which solutions/ answers: `make lessons`"):
        site.folded(cell("x", grade_id="a", solution=True), {})


@pytest.mark.parametrize("other", [cell("x"), cell("x", grade=True, grade_id="a", solution=False)])
def test_a_cell_without_an_answer_stays_as_it_is(other):
    assert site.folded(other, {}) == [other]


def test_headings_in_outputs_stand_one_level_below_the_text():
    shown = {**cell("x"), "outputs": [{"data": {"text/html": "<h4>a</h4>"}}]}
    assert site.outlined(shown)["outputs"] == [{"data": {"text/html": "<h3>a</h3>"}}]


def test_the_contents_name_every_page_but_the_first():
    text = site.contents(MADE)
    assert [line for line in text.splitlines() if re.fullmatch(r"\S+\.(md|ipynb)", line)] == [
        "01_a.ipynb",
        "record.md",
        "mistakes.md",
        "helpers-b.md",
        "helpers-b-speed.md",
        "changelog.md",
        "security.md",
    ]


def test_every_link_of_this_course_leads_somewhere(tmp_path):
    site.stage(ROOT, folder := tmp_path / "staged")
    assert {path.name for path in folder.iterdir()} >= set(site.pages(ROOT).values())


# What is made


@pytest.mark.parametrize(
    ("made", "repaired"),
    [
        ("<pre>x</pre>", '<pre tabindex="0">x</pre>'),
        ('<div class="table-wrapper docutils">', '<div class="table-wrapper docutils" tabindex="0">'),
        ('<div class="math-wrapper docutils">', '<div class="math-wrapper docutils" tabindex="0">'),
        ('<div class="output text_html">', '<div class="output text_html" tabindex="0">'),
        ('<aside class="sidebar-drawer">', '<aside class="sidebar-drawer" aria-label="The book">'),
        ('<aside class="toc-drawer no-toc">', '<aside class="toc-drawer no-toc" aria-label="This page">'),
        ('<p class="caption" role="heading">', '<p class="caption" role="heading" aria-level="2">'),
        ('<th class="head"><p></p></th>', '<td class="head"></td>'),
        ('<th style="a"></th>', '<td style="a"></td>'),
        ("<th>a</th>", "<th>a</th>"),
        ('<div id="search-results">', '<h1>Search</h1><div id="search-results">'),
        (
            '<details class="admonition hide above-input">\n<summary aria-label="Toggle">\n<p class="a">Show</p>\n'
            '<p class="b">Hide</p>\n</summary>\n<p>x</p></details>',
            "<details><summary>Show</summary>\n<p>x</p></details>",
        ),
    ],
)
def test_what_the_theme_leaves_out_for_screen_readers_and_keyboards_is_added(made, repaired):
    assert site.accessible(made) == repaired


@pytest.mark.parametrize(
    ("html", "fault"),
    [
        ('<a href="gone.html">', "a.html links to gone.html, which does not exist"),
        ('<img src="gone.png">', "a.html links to gone.png, which does not exist"),
        ('<a href="#gone">', "a.html links to #gone, and that page has no such place"),
        ('<a href="b.html#gone">', "a.html links to b.html#gone, and that page has no such place"),
        ('<script src="https://c.org/d.js">', "a.html loads https://c.org/d.js from the network"),
        ('<link href="//c.org/d.css">', "a.html loads //c.org/d.css from the network"),
        ('<style>@import url("https://c.org/d.css")</style>', "a.html loads https://c.org/d.css from the network"),
    ],
)
def test_a_wrong_link_is_named(tmp_path, html, fault):
    (tmp_path / "a.html").write_text(html)
    (tmp_path / "b.html").write_text('<p id="here">')
    assert site.faults(tmp_path) == [fault]


def test_a_style_that_loads_from_the_network_is_named(tmp_path):
    (tmp_path / "a.css").write_text("@font-face { src: url(https://c.org/d.woff2) }")
    assert site.faults(tmp_path) == ["a.css loads https://c.org/d.woff2 from the network"]


def test_links_that_lead_somewhere_are_not_faults(tmp_path):
    links = ("b.html", "b.html?q=1#here", "#there", "https://example.org/a", "mailto:a@b")
    pictures = '<img src="data:image/png;base64,x"><p id="there">'
    (tmp_path / "a.html").write_text("".join(f'<a href="{link}">' for link in links) + pictures)
    (tmp_path / "b.html").write_text('<p id="here">')
    assert site.faults(tmp_path) == []
    assert site.external_links(tmp_path) == ["https://example.org/a"]


def test_packages_that_are_not_installed_are_named():
    assert site.lacking_packages(["json", "not_a_package_of_anyone"]) == ["not_a_package_of_anyone"]


# The site


class Shown(HTMLParser):
    """The text of a page that stands outside of every fold, what its folds are called, and its pictures."""

    def __init__(self, html: str) -> None:
        super().__init__()
        self.depth, self.text, self.folds, self.pictures, self.open = 0, "", [], [], []
        self.feed(html)

    def handle_starttag(self, tag, attrs):
        self.open.append(tag)
        self.depth += tag == "details"
        if tag == "img":
            self.pictures.append(dict(attrs).get("alt"))

    def handle_endtag(self, tag):
        self.depth -= tag == "details"

    def handle_data(self, data):
        if self.get_starttag_text() == "<summary>":
            self.folds.append(data)
        if not self.depth:
            self.text += data


LACKING = site.lacking_packages(site.PACKAGES)
installed = pytest.mark.skipif(bool(LACKING), reason=f"the site needs {', '.join(LACKING)}, which `make site` installs")


@pytest.fixture(scope="module")
def made(tmp_path_factory) -> Path:
    """The site of this course, made once."""
    if LACKING:
        pytest.skip(installed.kwargs["reason"])
    out = tmp_path_factory.mktemp("made") / "site"
    command = [sys.executable, "-m", "helpers.make.site", "--out", str(out)]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True)
    assert (done.returncode, done.stderr) == (0, ""), done.stdout
    return out


def shown(made: Path, name: str) -> Shown:
    """What a page of the site shows."""
    return Shown((made / name).read_text(encoding="utf-8"))


@installed
@pytest.mark.parametrize(("place", "status"), [("gone", 1), ("b", 0)])
def test_a_link_to_a_place_that_its_page_lacks_is_an_error(checkout, place, status):
    (checkout / "CHANGELOG.md").write_text(f"# Changelog\n\n[b](helpers/b#{place})")
    code = "from helpers.make.site import *; sys.exit(build(*map(Path, sys.argv[1:])))"
    command = [sys.executable, "-c", code, str(checkout), str(checkout / "site")]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True)
    assert (done.returncode, "gone" in done.stderr) == (status, bool(status)), done.stderr


@pytest.mark.thinned(0)
@pytest.mark.skipif(not LACKING, reason="about a machine without the site's packages")
def test_without_its_packages_one_sentence_says_what_installs_them(tmp_path):
    command = [sys.executable, "-m", "helpers.make.site", "--out", str(tmp_path / "site")]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True)
    assert (done.returncode, done.stdout) == (1, "")
    assert done.stderr == f"The site needs {', '.join(LACKING)}, which `make site` installs.\n"


LESSONS = sorted(path.stem for path in (ROOT / "solutions").glob("*.ipynb"))


@pytest.mark.parametrize("lesson", LESSONS)
def test_a_lesson_has_its_answers_and_hints_folded(made, lesson):
    page = shown(made, f"{lesson}.html")
    cells = json.loads((ROOT / "solutions" / f"{lesson}.ipynb").read_text(encoding="utf-8"))["cells"]
    answers = [one for one in cells if one["metadata"].get("nbgrader", {}).get("solution")]
    folded = sum("".join(one["source"]).count("<details>") for one in cells if one["cell_type"] == "markdown")
    assert page.folds.count(site.SHOW) == len(answers)
    assert len([fold for fold in page.folds if fold != site.SHOW]) >= folded > 0
    given = (ROOT / "lessons" / f"{lesson}.ipynb").read_text(encoding="utf-8")
    given += json.dumps([one.get("outputs") for one in cells], ensure_ascii=False)
    lines = {line.strip() for answer in answers for line in "".join(answer["source"]).splitlines()}
    kept = {line for line in lines if len(line) > 8 and json.dumps(line, ensure_ascii=False)[1:-1] not in given}
    assert kept and {line for line in kept if line in page.text} == set()


@pytest.mark.parametrize("lesson", LESSONS)
def test_every_picture_of_a_lesson_has_its_description(made, lesson):
    pictures = shown(made, f"{lesson}.html").pictures
    assert all(pictures)
    notebook = (ROOT / "solutions" / f"{lesson}.ipynb").read_text(encoding="utf-8")
    assert len(pictures) == len(re.findall(r"<img width", notebook))


def test_formulas_need_no_script(made):
    page = (made / "05_online.html").read_text(encoding="utf-8")
    assert "<math" in page and not re.search("<script[^>]*mathjax", page, re.IGNORECASE)
    assert "$" not in shown(made, "05_online.html").text


def test_the_site_can_be_searched_without_a_server(made):
    assert "searchindex.js" in (made / "search.html").read_text(encoding="utf-8")
    assert "shuffl" in (made / "searchindex.js").read_text(encoding="utf-8")
