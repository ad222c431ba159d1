"""helpers/make/working_copy.py: a learner's work outlives every newer edition of the lessons."""

import json
import os
import shutil
import subprocess
import sys
from collections import Counter
from pathlib import Path

import nbformat
import pytest
from hypothesis import given
from hypothesis import strategies as st
from nbformat.v4 import new_code_cell, new_notebook

from copies import ANSWERED, EARLIER, LESSON, NEWER, as_bytes, brought, checkout_in, edition, mine, notebook, work
from helpers.make import working_copy
from helpers.make.working_copy import CARRIED, carry_over

ROOT = Path(__file__).resolve().parents[2]


def merged(mine: dict[str, str], newer: dict[str, str], earlier: dict[str, str] = EARLIER) -> list[tuple[str, str]]:
    """Ids and sources of what carrying over makes; it is a notebook."""
    made = carry_over(notebook(earlier), notebook(mine), notebook(newer)).notebook
    nbformat.validate(nbformat.reads(json.dumps(made), 4))
    return [(cell["id"], "".join(cell["source"])) for cell in made["cells"]]


def both_changed(mine: dict[str, str], newer: dict[str, str]) -> int:
    return carry_over(notebook(EARLIER), notebook(mine), notebook(newer)).both_changed


# What is carried over


def test_an_answer_goes_into_the_newer_edition():
    newer = EARLIER | {"title": "# One, better"}
    assert merged(ANSWERED, newer) == list((newer | {"kernel": "def f(): return 1"}).items())


def test_cells_that_nobody_touched_are_those_of_the_newer_edition():
    newer = {"title": "# One, better", "new": "A new cell", "setup": "import helpers.x", "kernel": EARLIER["kernel"]}
    assert merged(EARLIER, newer) == list(newer.items())


def test_a_cell_that_both_have_changed_stands_after_the_newer_one_under_a_line_that_says_so():
    newer = EARLIER | {"kernel": "def f(BLOCK): ..."}
    assert merged(ANSWERED, newer)[2:] == [
        ("kernel", "def f(BLOCK): ..."),
        ("kernel-carried", CARRIED),
        ("kernel-mine", "def f(): return 1"),
        ("end", "The end"),
    ]
    assert (both_changed(ANSWERED, newer), both_changed(ANSWERED, EARLIER)) == (1, 0)


def test_an_answer_to_what_the_newer_edition_has_dropped_stays_where_it_was():
    newer = {name: source for name, source in EARLIER.items() if name != "kernel"}
    assert [name for name, _ in merged(ANSWERED, newer)] == ["title", "setup", "kernel-carried", "kernel", "end"]
    assert both_changed(ANSWERED, newer) == 1


def test_both_may_have_made_the_same_change():
    assert merged(ANSWERED, ANSWERED) == list(ANSWERED.items())


def test_cells_of_the_learner_stay_after_the_cell_that_they_stood_after():
    mine = {"first": "x = 0", "title": "# One", "a": "x = 1", "b": "x = 2", **EARLIER, "last": "x = 3"}
    assert [name for name, _ in merged(mine, EARLIER)] == ["first", "title", "a", "b", "setup", "kernel", "end", "last"]


def test_a_cell_that_the_learner_removed_comes_again():
    mine = {name: source for name, source in EARLIER.items() if name != "setup"}
    assert merged(mine, EARLIER) == list(EARLIER.items())


def test_no_id_occurs_twice_after_two_editions_that_changed_the_same_cell():
    newer, newest = (EARLIER | {"kernel": f"def f({arguments}): ..."} for arguments in ("BLOCK", "BLOCK, N"))
    second = dict(merged(ANSWERED, newer)) | {"kernel": "def f(BLOCK): return 2"}
    names = [name for name, _ in merged(second, newest, newer)]
    sources = [source for _, source in merged(second, newest, newer)]
    assert len(names) == len(set(names)) == 8
    assert {"def f(): return 1", "def f(BLOCK): return 2", "def f(BLOCK, N): ..."} <= set(sources)


def test_what_is_carried_has_no_metadata_because_an_exercise_is_marked_once():
    mine = json.loads(as_bytes(ANSWERED, nbgrader={"grade_id": "kernel"}))
    made = carry_over(notebook(EARLIER), mine, notebook(EARLIER | {"kernel": "def f(BLOCK): ..."})).notebook
    assert [cell["metadata"] for cell in made["cells"]] == [{}] * 6


def test_pictures_of_a_text_cell_are_carried_too():
    mine = notebook(EARLIER | {"note": "![](attachment:a.png)"})
    mine["cells"][-1]["attachments"] = {"a.png": {"image/png": "iVBO"}}
    assert carry_over(notebook(EARLIER), mine, notebook(EARLIER)).notebook["cells"][-1]["attachments"]


def test_of_two_cells_with_one_id_neither_is_lost():
    mine = notebook(EARLIER | {"kernel": "first = 1"})
    copy = {**mine["cells"][2], "source": "second = 2"}
    mine["cells"].insert(3, copy)
    for newer, both in ((EARLIER | {"title": "# Better"}, 0), (EARLIER | {"kernel": "def g(): ..."}, 1)):
        made = carry_over(notebook(EARLIER), mine, notebook(newer))
        sources = ["".join(cell["source"]) for cell in made.notebook["cells"]]
        assert sources.index("first = 1") < sources.index("second = 2") < sources.index("The end")
        assert made.both_changed == both


def test_pictures_of_a_cell_of_the_course_are_carried_too():
    mine = notebook(EARLIER | {"end": "My end ![](attachment:a.png)"})
    mine["cells"][-1]["attachments"] = {"a.png": {"image/png": ""}}
    assert carry_over(notebook(EARLIER), mine, notebook(EARLIER)).notebook["cells"][-1]["attachments"]


NAMES = st.sampled_from(["a", "b", "c", None])
TEXTS = st.sampled_from([f"x = {number}" for number in range(6)])


@st.composite
def notebooks(draw) -> dict:
    """A notebook whose cells may have the same id, or none."""
    cells = []
    for name, source in draw(st.lists(st.tuples(NAMES, TEXTS), min_size=1, max_size=6)):
        cell = new_code_cell(source)
        del cell["id"]
        cells.append({**cell, **({} if name is None else {"id": name})})
    return {**new_notebook(), "cells": cells}


@given(notebooks(), notebooks(), notebooks())
def test_whatever_three_notebooks_hold_nothing_of_the_learner_s_is_dropped(earlier, mine, newer):
    def texts(notebook):
        return Counter("".join(cell["source"]) for cell in notebook["cells"])

    try:
        made = carry_over(earlier, mine, newer).notebook
    except ValueError:
        return  # the newer edition then lies beside the copy, which stays
    mine_alone = {text for text in texts(mine) if text not in texts(earlier)}
    assert mine_alone <= texts(made).keys()
    kept = texts(made) + Counter(dict.fromkeys(texts(earlier), len(mine["cells"])))
    assert not texts(mine) - kept - Counter(dict.fromkeys(texts(newer), len(mine["cells"])))
    names = Counter(cell["id"] for cell in newer["cells"] if "id" in cell)
    found = Counter(cell["id"] for cell in made["cells"] if "id" in cell)
    assert all(count == max(1, names[name]) for name, count in found.items())


def test_half_of_the_cells_are_enough_to_merge():
    earlier = {f"cell{i}": f"x = {i}" for i in range(4)}
    mine = {"cell0": "x = 0", "cell1": "mine = 1", "other2": "x = 2", "other3": "x = 3"}
    made = carry_over(notebook(earlier), notebook(mine), notebook(earlier)).notebook
    assert "mine = 1" in [cell["source"] for cell in made["cells"]]


def test_a_notebook_whose_cells_got_other_ids_is_not_merged():
    with pytest.raises(ValueError, match="other ids"):
        merged({f"colab-{name}": source for name, source in ANSWERED.items()}, EARLIER)


# Files


@pytest.fixture
def checkout(tmp_path):
    return checkout_in(tmp_path)


def test_at_first_every_lesson_is_copied(checkout):
    (sentence,) = brought(checkout)
    assert "work there" in sentence
    assert mine(checkout) == {name: as_bytes(EARLIER) for name in (LESSON, "02_next.ipynb")}


def test_nothing_happens_and_nothing_is_said_while_lessons_stay_as_they_are(checkout):
    brought(checkout)
    work(checkout, ANSWERED)
    before = mine(checkout)
    assert (brought(checkout), mine(checkout)) == ([], before)


def test_a_copy_that_nobody_touched_gives_way_to_a_newer_edition(checkout):
    brought(checkout)
    edition(checkout, NEWER)
    (sentence,) = brought(checkout)
    assert "had not touched" in sentence and "01_eager_softmax" in sentence
    assert mine(checkout)[LESSON] == as_bytes(NEWER)
    assert brought(checkout) == []


def test_a_newer_edition_lies_beside_a_copy_with_work_in_it_and_has_that_work(checkout):
    brought(checkout)
    work(checkout, ANSWERED)
    edition(checkout, NEWER)
    (sentence,) = brought(checkout)
    assert "01_eager_softmax.newer.ipynb, with your cells carried over." in sentence
    assert mine(checkout)[LESSON] == as_bytes(ANSWERED)
    made = json.loads(mine(checkout)["01_eager_softmax.newer.ipynb"])
    assert {cell["id"]: "".join(cell["source"]) for cell in made["cells"]} == NEWER | {"kernel": ANSWERED["kernel"]}
    assert brought(checkout) == []


def test_the_third_edition_has_the_work_of_the_second_and_writes_over_neither(checkout):
    brought(checkout)
    work(checkout, ANSWERED)
    edition(checkout, NEWER)
    brought(checkout)
    work(checkout, NEWER | {"kernel": "def f(): return 2"}, "01_eager_softmax.newer.ipynb")
    before = mine(checkout)
    edition(checkout, NEWER | {"end": "The very end"})
    (sentence,) = brought(checkout)
    assert "01_eager_softmax.newer2.ipynb" in sentence
    after = mine(checkout)
    assert {name: after[name] for name in before} == before
    assert "return 2" in after["01_eager_softmax.newer2.ipynb"].decode()


# Lessons that are called otherwise now


@pytest.fixture
def renumbered(checkout):
    """A checkout whose second lesson has been given another name since it was copied, and worked in."""
    before, now = "06_choosing_a_variant.ipynb", "07_choosing_a_variant.ipynb"
    (checkout / "lessons" / before).write_bytes(as_bytes(EARLIER))
    brought(checkout)
    work(checkout, ANSWERED, before)
    (checkout / "lessons" / before).rename(checkout / "lessons" / now)
    return checkout


def test_a_lesson_with_another_name_gives_it_to_its_copy_and_what_is_kept_of_it(renumbered):
    (sentence,) = brought(renumbered)
    assert sentence.startswith("06_choosing_a_variant is called 07_choosing_a_variant now")
    assert mine(renumbered)["07_choosing_a_variant.ipynb"] == as_bytes(ANSWERED)
    assert "06_choosing_a_variant.ipynb" not in mine(renumbered)
    assert brought(renumbered) == []


def test_a_newer_edition_with_another_name_has_the_work_of_the_copy(renumbered):
    (renumbered / "lessons" / "07_choosing_a_variant.ipynb").write_bytes(as_bytes(NEWER))
    _, sentence = brought(renumbered)
    assert "07_choosing_a_variant.newer.ipynb, with your cells carried over." in sentence


def test_a_copy_keeps_its_name_where_the_newer_one_is_taken(renumbered):
    work(renumbered, ANSWERED, "07_choosing_a_variant.ipynb")
    brought(renumbered)
    assert mine(renumbered)["06_choosing_a_variant.ipynb"] == as_bytes(ANSWERED)


def test_outputs_alone_are_work_that_is_kept(checkout):
    brought(checkout)
    executed = notebook(EARLIER)
    executed["cells"][1]["execution_count"] = 1
    (checkout / "my-lessons" / LESSON).write_text(json.dumps(executed))
    edition(checkout, NEWER)
    brought(checkout)
    assert json.loads(mine(checkout)[LESSON]) == executed


@pytest.mark.parametrize("broken", [b"", b"{", b"[]", b'{"cells": 1}', b'{"cells": [{}]}'], ids=bytes.decode)
def test_a_copy_that_cannot_be_read_stays_and_the_newer_edition_comes_without_it(checkout, broken):
    brought(checkout)
    (checkout / "my-lessons" / LESSON).write_bytes(broken)
    edition(checkout, NEWER)
    (sentence,) = brought(checkout)
    assert "without your cells" in sentence
    assert mine(checkout)[LESSON] == broken
    assert mine(checkout)["01_eager_softmax.newer.ipynb"] == as_bytes(NEWER)


def test_a_copy_of_unknown_origin_stays_beside_the_edition(checkout):
    brought(checkout)
    work(checkout, ANSWERED)
    shutil.rmtree(checkout / "my-lessons" / ".editions")
    (sentence,) = brought(checkout)
    assert "what the copy was made from is not known" in sentence
    assert mine(checkout)[LESSON] == as_bytes(ANSWERED)


def test_a_copy_that_was_removed_comes_again(checkout):
    brought(checkout)
    (checkout / "my-lessons" / LESSON).unlink()
    assert brought(checkout) == []
    assert mine(checkout)[LESSON] == as_bytes(EARLIER)


def test_a_lesson_that_is_new_is_copied(checkout):
    brought(checkout)
    (checkout / "lessons" / "03_new.ipynb").write_bytes(as_bytes(NEWER))
    brought(checkout)
    assert mine(checkout)["03_new.ipynb"] == as_bytes(NEWER)


def test_progress_goes_with_the_work_and_is_never_written_over(checkout):
    (checkout / "lessons" / "progress.json").write_text('{"two_pass": 4}')
    brought(checkout)
    assert mine(checkout)["progress.json"] == b'{"two_pass": 4}'
    (checkout / "my-lessons" / "progress.json").write_text("{}")
    brought(checkout)
    assert mine(checkout)["progress.json"] == b"{}"


# Work in lessons/


def test_work_in_lessons_is_copied_and_a_newer_edition_is_laid_beside_it(checkout):
    edition(checkout, ANSWERED)
    *_, sentence = brought(checkout, lambda path: as_bytes(EARLIER))
    assert LESSON in sentence and "02_next" not in sentence and "git checkout lessons" in sentence
    assert mine(checkout)[LESSON] == as_bytes(ANSWERED)
    edition(checkout, NEWER)
    assert "carried over" in " ".join(brought(checkout, lambda path: path.read_bytes()))
    assert "return 1" in mine(checkout)["01_eager_softmax.newer.ipynb"].decode()


def test_later_work_in_lessons_is_laid_beside_the_copy_once(checkout):
    brought(checkout)
    edition(checkout, ANSWERED)
    for _ in range(2):
        brought(checkout, lambda path: as_bytes(EARLIER))
    assert sorted(mine(checkout)) == [LESSON, "01_eager_softmax.lessons.ipynb", "02_next.ipynb"]
    assert mine(checkout)["01_eager_softmax.lessons.ipynb"] == as_bytes(ANSWERED)


def test_other_ends_of_lines_are_no_work(checkout):
    text = (checkout / "lessons" / LESSON).read_bytes()
    spaced = json.dumps(json.loads(text), indent=1).encode().replace(b"\n", b"\r\n")
    (checkout / "lessons" / LESSON).write_bytes(spaced)
    assert len(brought(checkout, lambda path: text)) == 1
    edition(checkout, NEWER)
    assert "had not touched" in brought(checkout)[0]


# With git, as learners do

LEARNER = {f"GIT_{who}_{what}": "learner" for who in ("AUTHOR", "COMMITTER") for what in ("NAME", "EMAIL")}


def git(where: Path, *arguments: str) -> subprocess.CompletedProcess:
    quiet = {"GIT_CONFIG_GLOBAL": os.devnull, "GIT_CONFIG_SYSTEM": os.devnull}
    command = ["git", "-c", "init.defaultBranch=main", *arguments]
    return subprocess.run(command, cwd=where, env=os.environ | LEARNER | quiet, capture_output=True, text=True)


@pytest.fixture
def clone(tmp_path, checkout):
    """A learner's clone of a repository that holds these lessons and this program, and the repository."""
    upstream = tmp_path / "upstream"
    (upstream / "helpers" / "make").mkdir(parents=True)
    (checkout / "lessons").rename(upstream / "lessons")
    shutil.copy(working_copy.__file__, upstream / "helpers" / "make")
    shutil.copy(ROOT / ".gitignore", upstream)
    for command in (["init"], ["add", "."], ["commit", "-m", "first"], ["clone", ".", str(tmp_path / "clone")]):
        assert git(upstream, *command).returncode == 0
    return tmp_path / "clone", upstream


def make_lab(clone: Path) -> str:
    """What `make lab` prints of the working copy."""
    command = [sys.executable, "helpers/make/working_copy.py"]
    return subprocess.run(command, cwd=clone, check=True, capture_output=True, text=True).stdout


def publish(upstream: Path, cells: dict[str, str]) -> None:
    (upstream / "lessons" / LESSON).write_bytes(as_bytes(cells))
    assert git(upstream, "commit", "-am", "newer").returncode == 0


def test_a_pull_over_work_goes_through_and_the_work_is_in_the_newer_edition(clone):
    clone, upstream = clone
    make_lab(clone)
    work(clone, ANSWERED)
    assert git(clone, "status", "--porcelain").stdout == ""
    publish(upstream, NEWER)
    assert git(clone, "pull").returncode == 0
    assert "01_eager_softmax.newer.ipynb, with your cells carried over" in make_lab(clone)
    assert mine(clone)[LESSON] == as_bytes(ANSWERED)


def test_who_worked_in_lessons_can_pull_after_what_is_said(clone):
    clone, upstream = clone
    (clone / "lessons" / LESSON).write_bytes(as_bytes(ANSWERED))
    publish(upstream, NEWER)
    assert git(clone, "pull").returncode != 0
    assert "git checkout lessons" in make_lab(clone)
    assert git(clone, "checkout", "lessons").returncode == git(clone, "pull").returncode == 0
    assert "carried over" in make_lab(clone)
    assert "return 1" in mine(clone)["01_eager_softmax.newer.ipynb"].decode()


def test_a_folder_that_cannot_be_written_gets_one_sentence(clone):
    clone, _ = clone
    (clone / "my-lessons").write_text("a file")
    command = [sys.executable, "helpers/make/working_copy.py"]
    result = subprocess.run(command, cwd=clone, capture_output=True, text=True)
    assert (result.returncode, result.stdout) == (1, "")
    assert len(result.stderr.splitlines()) == 1
