"""A lesson in an earlier and a newer edition, a checkout that holds it, and a learner's copies."""

import json
from pathlib import Path

import nbformat
from nbformat.v4 import new_code_cell, new_markdown_cell, new_notebook

from helpers.make.working_copy import bring

EARLIER = {"title": "# One", "setup": "import helpers", "kernel": "def f(): ...", "end": "The end"}
ANSWERED = EARLIER | {"kernel": "def f(): return 1"}
NEWER = EARLIER | {"title": "# One, better"}
LESSON = "01_eager_softmax.ipynb"


def notebook(cells: dict[str, str], **metadata) -> dict:
    """A notebook of these sources by id; those without a bracket or a word of Python are text."""
    made = []
    for name, source in cells.items():
        kind = new_code_cell if any(word in source for word in ("import", "def ", "=")) else new_markdown_cell
        made.append(kind(source, id=name, metadata=metadata))
    return json.loads(nbformat.writes(new_notebook(cells=made)))


def as_bytes(cells: dict[str, str], **metadata) -> bytes:
    return json.dumps(notebook(cells, **metadata)).encode()


def checkout_in(tmp_path: Path) -> Path:
    """A checkout with two lessons and no git."""
    (tmp_path / "lessons").mkdir()
    for name in (LESSON, "02_next.ipynb"):
        (tmp_path / "lessons" / name).write_bytes(as_bytes(EARLIER))
    return tmp_path


def brought(checkout, published=lambda path: None):
    return list(bring(checkout, published))


def mine(checkout):
    """The names and contents of what a learner sees."""
    return {path.name: path.read_bytes() for path in sorted((checkout / "my-lessons").glob("[!.]*"))}


def edition(checkout, cells):
    (checkout / "lessons" / LESSON).write_bytes(as_bytes(cells))


def work(checkout, cells, name=LESSON):
    (checkout / "my-lessons" / name).write_bytes(as_bytes(cells))
