"""What of the course a learner's process has: what its exercise lends, and of everything else the names."""

import contextlib
import textwrap

import pytest

from helpers import check
from helpers.check.exercise import EVERY_ONE
from helpers.instructor import REPOSITORY
from helpers.instructor.sandbox import lent, walls
from helpers.instructor.sandbox.client import Sandbox, Zygote
from helpers.instructor.sandbox.lent import module_files

ANSWERS = {
    "helpers.check.exercises.lesson_05", "helpers.check.exercises.lesson_06", "helpers.check.exercises.lesson_07",
    "helpers.check.exercises.lesson_08", "helpers.check.mistakes.simulate", "helpers.choosing.rules", "helpers.draw",
    "helpers.gpu.places", "helpers.kernels", "helpers.lies.exercise", "helpers.softmax.function",
    "helpers.softmax.kernels.shared",
}  # fmt: skip
"""Modules that an answer, or most of one, could be taken from."""
NOT_FOR = {
    "occupancy": {"helpers.gpu.occupancy"}, "predict_time": {"helpers.check.exercises.lesson_06"},
    "l2": {"helpers.gpu.datasheets"}, "my_pick": {"helpers.choosing.rules"},
    "deadlock": {"helpers.gpu.places"}, "benchmark": {"helpers.lies.exercise"}, "recurrence": {"helpers.draw"},
    "exhibit": {"helpers.check.exercises.lesson_08"},
}  # fmt: skip
"""By exercise: the modules in which its answer stands."""
UNTIL_6 = [name for name, exercise in check.EXERCISES.items() if exercise.number < "6"]


@pytest.fixture(scope="module")
def zygote():
    with contextlib.closing(Zygote()) as zygote:
        yield zygote


def ran(zygote, cell, *names):
    """What a cell leaves as `answer` in a sandbox to which these names are lent."""
    with Sandbox(zygote, given=lent.lent(names)) as sandbox:
        source = textwrap.dedent(cell)
        told = sandbox.ask({"do": "define", "sources": [source], "answer": "answer", "every_cell": True}, 60)
        assert told["failed"] == [], told
        return told["value"]


def called(zygote, cell, *names, given=(1,)):
    """The trial of the function `answer` that a cell defines."""
    with Sandbox(zygote, given=lent.lent(names)) as sandbox:
        source = textwrap.dedent(cell)
        sandbox.ask({"do": "define", "sources": [source], "answer": "answer", "every_cell": True}, 60)
        (trial,) = sandbox.ask({"do": "answers", "answer": "answer", "given": [given]}, 60)
        return trial


# What is lent


def test_the_guide_names_every_exercise_that_may_call_something():
    guide = (REPOSITORY / "helpers" / "instructor" / "README.md").read_text(encoding="utf-8")
    named = guide.partition("what the exercise lends")[2].partition("Every other name")[0]
    lending = [one for one in check.EXERCISES.values() if one.may_call]
    assert lending and [one.number for one in lending if one.number not in named] == []
    modules = {name.removeprefix("helpers.") for one in lending for name in one.may_call}
    words = {"xray": "X-ray", "kernels.single_tile_kernel": "kernel of its examples"}
    assert [name for name in modules if words.get(name, f"`{name.rpartition('.')[2]}`") not in named] == []


def test_every_name_that_an_exercise_may_call_is_there():
    for exercise in check.EXERCISES.values():
        assert set(lent.lent(exercise.may_call).names) == set(exercise.may_call)
    assert set(lent.lent(EVERY_ONE).modules) == set()


def test_a_name_that_helpers_does_not_have_is_refused():
    with pytest.raises(ValueError, match=r"helpers has no helpers\.kernels\.no_softmax\."):
        lent.lent(("helpers.kernels.no_softmax",))


def test_a_name_comes_from_where_it_is_defined():
    assert lent.lent(("helpers.choosing.Launch",)).names == {"helpers.choosing.Launch": "helpers.choosing.launches"}


def test_what_is_lent_brings_what_it_imports():
    assert "helpers.recorded" in lent.lent(("helpers.choosing.Launch",)).modules


@pytest.mark.parametrize("exercise", UNTIL_6)
def test_an_exercise_of_the_first_lessons_is_lent_no_module_with_answers(exercise):
    assert not ANSWERS & set(lent.lent(check.EXERCISES[exercise].may_call).modules)


@pytest.mark.parametrize("exercise", NOT_FOR)
def test_an_exercise_is_not_lent_the_module_with_its_answer(exercise):
    assert not NOT_FOR[exercise] & set(lent.lent(check.EXERCISES[exercise].may_call).modules)


def test_the_files_shown_are_those_of_what_is_lent():
    base, more = ({p.name for p in lent.lent(n).files()} for n in ((), ("helpers.gpu.waiting",)))
    assert more - base == {"waiting.py"} and "kernels.py" not in base


# What a process has


@pytest.mark.thinned(0)
def test_a_process_has_no_module_with_answers_in_memory(zygote):
    cell = """
        import gc, sys, types
        gc.unfreeze()
        found = [f for f in gc.get_objects() if isinstance(f, types.FunctionType)]
        answer = sorted({m for f in found if isinstance(m := f.__module__, str) and m.startswith("helpers.")})
    """
    assert not ANSWERS & set(ran(zygote, cell))


def test_a_process_holds_nothing_but_base_of_helpers(zygote):
    cell = """
        import sys
        answer = sorted(n for n, m in sys.modules.items() if n.startswith("helpers") and m.__dict__.get("__file__"))
    """
    assert all(lent._is_in_base(name) for name in ran(zygote, cell))


def test_no_file_with_answers_is_seen(zygote):
    if zygote.kind != walls.NAMESPACES:
        pytest.skip(f"files are hidden by namespaces; the walls here: {zygote.kind}")
    folder = str(REPOSITORY / "helpers")
    cell = f"""
        import os
        answer = [os.path.join(at, name) for at, _, names in os.walk({folder!r}) for name in names]
    """
    seen = set(ran(zygote, cell))
    assert seen and not seen & {str(module_files()[name]) for name in ANSWERS}


WAYS = {
    "an import": "from helpers.kernels import eager_softmax as f",
    "importlib": "import importlib\nf = importlib.import_module('helpers.kernels').eager_softmax",
    "another name": "import helpers.kernels as k\nf = k.eager_softmax",
    "the package": "import helpers\nfrom helpers import kernels\nf = helpers.kernels.eager_softmax",
    "sys.modules": "import sys\nimport helpers.kernels\nf = sys.modules['helpers.kernels'].eager_softmax",
    "the check": "from helpers import check\nf = check.EXERCISES['eager'].ours",
    "a module of the function's name": "from helpers.softmax import cross_entropy as f",
    "a private name": "from helpers.check.exercises.lesson_06 import _programs as f",
}


@pytest.mark.thinned(2)
@pytest.mark.parametrize("way", WAYS)
def test_a_call_of_the_course_is_an_error_that_names_it(way, zygote):
    trial = called(zygote, f"{WAYS[way]}\ndef answer(x):\n    return f(x)")
    assert "NotYours: helpers." in trial["raised"] and "write your own" in trial["raised"]


ROUND = {
    "the finder removed": "import sys\nsys.meta_path.pop(0)\ndel sys.modules['helpers']\n",
    "the file read": "import helpers, os\nopen(os.path.join(os.path.dirname(helpers.__file__), 'kernels.py')).read()\n",
    "the shelf opened": "from helpers.instructor.sandbox import lent\nlent.lend_everything()\n",
}


@pytest.mark.parametrize("way", ROUND)
def test_ways_round_the_names_lead_to_files_that_are_not_there(way, zygote):
    if zygote.kind != walls.NAMESPACES:
        pytest.skip(f"files are hidden by namespaces; the walls here: {zygote.kind}")
    cell = f"{ROUND[way]}from helpers.kernels import eager_softmax\nanswer = eager_softmax.__code__.co_name"
    with Sandbox(zygote) as sandbox:
        told = sandbox.ask({"do": "define", "sources": [cell], "answer": "answer", "every_cell": True}, 60)
    assert not told["defined"] and told["failed"][0][1] in ("ModuleNotFoundError", "FileNotFoundError")


def test_what_is_lent_works(zygote):
    cell = """
        from helpers.choosing import Launch, tile
        from helpers.gpu import waiting
        answer = [Launch("online", 8192, 16).code(), tile(781), waiting.run(waiting.parts_first(2, 2), places=4).hangs]
    """
    names = ("helpers.choosing.Launch", "helpers.choosing.tile", "helpers.gpu.waiting")
    assert ran(zygote, cell, *names) == ["online_softmax(x, BLOCK=8192, num_warps=16)", 1024, False]


def test_of_a_module_only_the_names_that_are_lent_are_there(zygote):
    cell = """
        from helpers.choosing import Launch, of_gpu, pick
        answer = [type(one).__name__ for one in (Launch, of_gpu, pick)]
    """
    assert ran(zygote, cell, "helpers.choosing.Launch") == ["type", "Absent", "Absent"]


# What is absent


def test_while_cells_run_what_is_absent_lets_itself_be_used(zygote):
    cell = """
        import torch
        from helpers import check, draw, predict, timing
        from helpers.kernels import eager_softmax
        compared = timing.compare({"course": eager_softmax}, columns=(1024,))
        print(compared, f"{compared.rows[0].median_ms:.2f}", round(2 * compared.best, 1), list(compared.rows))
        assert torch.allclose(torch.ones(3), eager_softmax(torch.ones(3)))
        check.merge(max)
        draw.ladder({**check.yours("merge"), "two": 2})
        answer = "done"
    """
    assert ran(zygote, cell) == "done"


def test_what_is_absent_is_no_value(zygote):
    value = ran(
        zygote, "from helpers.gpu.datasheets import DATASHEETS\nanswer = {'l2': DATASHEETS['H200'].l2_bytes // 4}"
    )
    assert "helpers.gpu.datasheets.DATASHEETS, which is the course's own" in repr(value["l2"])


@pytest.mark.parametrize("made", ["int(f)", "float(f)", "range(f)", "list(range(3))[f]"])
def test_what_is_absent_makes_no_number(made, zygote):
    with Sandbox(zygote) as sandbox:
        cell = f"from helpers.kernels import MAX_TILE as f\nanswer = {made}"
        told = sandbox.ask({"do": "define", "sources": [cell], "answer": "answer", "every_cell": True}, 60)
    assert told["failed"][0][1] == "NotYours" and not told["defined"]


def test_a_process_without_learners_code_may_have_everything(zygote):
    with Sandbox(zygote, given=None) as sandbox:
        cell = "from helpers.kernels import online_softmax\nanswer = online_softmax.__name__"
        told = sandbox.ask({"do": "define", "sources": [cell], "answer": "answer", "every_cell": True}, 60)
    assert told["value"] == "online_softmax"
