"""helpers/make/working_copy.py: whatever has happened to one copy, it stays, and all other lessons arrive."""

import json
import os
from pathlib import Path

import nbformat
import pytest

from copies import ANSWERED, EARLIER, LESSON, NEWER, as_bytes, brought, checkout_in, edition, mine, notebook


@pytest.fixture
def checkout(tmp_path):
    return checkout_in(tmp_path)


def cell(place: int, **changes):
    """A learner's notebook of which one cell has been changed by other means than an editor."""

    def damage(path):
        made = notebook(ANSWERED)
        made["cells"][place] |= changes
        path.write_text(json.dumps(made))

    return damage


def content(text: bytes):
    return lambda path: path.write_bytes(text)


def instead(make):
    """Something in the place of a file."""

    def damage(path):
        path.unlink()
        make(path)

    return damage


def without(key: str):
    def damage(path):
        made = notebook(ANSWERED)
        del made["cells"][1][key]
        path.write_text(json.dumps(made))

    return damage


HALF = "\ud83d"
"""Half of a character, a lone surrogate: UTF-8 has no bytes for it."""

DAMAGES = {
    "half of a character in a changed cell": cell(2, source=f"x = '{HALF}'"),
    "half of a character in an id": cell(2, id=HALF),
    "half of a character in an attachment": cell(2, source="x", attachments={HALF: {"image/png": HALF}}),
    "a cell that is null": content(json.dumps(notebook(ANSWERED) | {"cells": [None] * 4}).encode()),
    "a cell that is a list": content(json.dumps(notebook(ANSWERED) | {"cells": [[]] * 4}).encode()),
    "cells that are null": content(b'{"cells": null}'),
    "a source that is null": cell(2, source=None),
    "a source of numbers": cell(2, source=[1, 2]),
    "an id that is a list": cell(2, id=["a"]),
    "an id that is a number": cell(2, id=3),
    "a type that is null": cell(2, cell_type=None),
    "no source": without("source"),
    "no type": without("cell_type"),
    "null": content(b"null"),
    "a number of 10,000 digits": content(b"9" * 10_000),
    "a list in a list, 100,000 times": content(b"[" * 100_000),
    "UTF-16": content(as_bytes(ANSWERED).decode().encode("utf-16")),
    "no text": content(bytes(range(256))),
    "a marker of a conflict": content(b"<<<<<<< HEAD\n" + as_bytes(ANSWERED)),
    "cut in the middle": content(as_bytes(ANSWERED)[:300]),
    "a directory": instead(Path.mkdir),
    "a link to a directory": instead(lambda path: path.symlink_to("/")),
    "a pipe": instead(os.mkfifo),
    "unreadable": pytest.param(
        lambda path: path.chmod(0), marks=pytest.mark.skipif(not os.geteuid(), reason="root reads every file")
    ),
}


@pytest.mark.parametrize("damage", DAMAGES.values(), ids=DAMAGES)
def test_a_damaged_copy_stays_and_keeps_no_other_lesson_from_arriving(checkout, damage):
    brought(checkout)
    copy = checkout / "my-lessons" / LESSON
    damage(copy)
    before = copy.read_bytes() if copy.is_file() and os.access(copy, os.R_OK) else copy.lstat()
    for name in (LESSON, "02_next.ipynb", "03_new.ipynb"):
        (checkout / "lessons" / name).write_bytes(as_bytes(NEWER))
    first, second = brought(checkout)
    assert "01_eager_softmax" in first and "02_next, which you had not touched" in second.replace(".ipynb", "")
    assert (copy.read_bytes() if isinstance(before, bytes) else copy.lstat()) == before
    for name in ("02_next.ipynb", "03_new.ipynb"):
        assert (checkout / "my-lessons" / name).read_bytes() == as_bytes(NEWER)
    if isinstance(before, bytes):
        assert nbformat.read(copy.with_name("01_eager_softmax.newer.ipynb"), 4).cells[0].source == NEWER["title"]


@pytest.mark.parametrize("place", [".editions", ".editions/worked"])
def test_what_is_kept_of_a_copy_may_be_damaged_too(checkout, place):
    brought(checkout)
    (checkout / "my-lessons" / place / LESSON).unlink(missing_ok=True)
    (checkout / "my-lessons" / place / LESSON).mkdir()
    (checkout / "lessons" / "03_new.ipynb").write_bytes(as_bytes(NEWER))
    edition(checkout, ANSWERED)
    said = brought(checkout, lambda path: as_bytes(EARLIER if path.name == LESSON else NEWER))
    assert any(one.startswith("01_eager_softmax cannot be brought up to date: ") for one in said)
    assert (checkout / "my-lessons" / "03_new.ipynb").exists()


def test_the_answer_of_a_copy_with_half_of_a_character_is_carried_over(checkout):
    brought(checkout)
    cell(2, source=f"x = 1  # {HALF}")(checkout / "my-lessons" / LESSON)
    edition(checkout, NEWER)
    assert "with your cells carried over" in brought(checkout)[0]
    assert b"x = 1  # ?" in mine(checkout)["01_eager_softmax.newer.ipynb"]


def test_a_copy_that_is_a_link_stays_one_and_what_it_leads_to_is_the_newer_edition(checkout, tmp_path):
    brought(checkout)
    copy, elsewhere = checkout / "my-lessons" / LESSON, tmp_path / "elsewhere.ipynb"
    copy.rename(elsewhere)
    copy.symlink_to(elsewhere)
    edition(checkout, NEWER)
    assert "had not touched" in brought(checkout)[0]
    assert copy.is_symlink() and elsewhere.read_bytes() == as_bytes(NEWER)
