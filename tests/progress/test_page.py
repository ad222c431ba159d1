"""What progress.show gathers and makes: from nothing, from half of the lessons, from all, and in another session."""

import getpass
import json
import platform
import re
import subprocess
import sys
from html.parser import HTMLParser
from pathlib import Path

import pytest
from PIL import Image

from exercises import SOLUTIONS
from helpers import check, predict, progress, recall, timing
from helpers.check import Finding, Report, kept
from helpers.check.report import Diagnosis
from helpers.engine import notes
from helpers.instructor.publish.notebooks import read_notebook
from helpers.lies import display
from helpers.progress.gathered import gathered
from helpers.progress.picture import NOTHING_YET
from noted import HALF, WHOLE

ROOT = Path(__file__).resolve().parents[2]
STRANGE = {
    "counted": {"online": "x", "nonsense": [1, 2], "two_pass": [1], "masked": [1, None]},
    "speeds": {"online": 3, "masked": {"gpu": 1}},
    "mistakes": {"online": "x", "masked": [1]},
    "predictions": {"q": {"n": [1], "m": "x"}, "r": 3},
}


@pytest.fixture(autouse=True)
def folder(nothing_passed_yet, tmp_path, monkeypatch):
    monkeypatch.setattr(predict, "_guesses", {})
    monkeypatch.setattr(predict, "_answered", {})
    return tmp_path


def wrong(exercise, name):
    found = (Finding("a case", False, ""),)
    return Report(exercise, 4, True, found, diagnosis=Diagnosis(f"id of {name}", name, "Why?", 1))


# -- what is noted ----------------------------------------------------------------------------------------------------


def test_no_entry_is_called_as_an_exercise():
    entries = {kept.COUNTED_TRIPS, kept.NAMED_MISTAKES, timing.SPEEDS, predict.PREDICTIONS, recall.RECALL}
    assert len(entries) == 5 and not entries & check.EXERCISES.keys()


@pytest.mark.parametrize(("name", "trips"), [("single_tile", (1, 1)), ("row_loss", (1, 0))])
def test_the_trips_of_a_kernel_that_passes_are_those_that_its_check_has_counted(name, trips):
    getattr(check, name)(SOLUTIONS[name].answered())
    assert kept.counted_trips() == {name: trips}


def test_an_answer_that_is_no_kernel_has_no_trips():
    check.merge(SOLUTIONS["merge"].answered())
    assert kept.counted_trips() == {} and kept.points() == {"merge": 2}


def test_each_named_mistake_is_noted_once_and_stays_when_the_answer_is_right(folder):
    for said in ("A row is missing.", "m is not kept.", "A row is missing."):
        kept.remember(wrong("single_tile", said), None)
    kept.remember(Report("single_tile", 4, True, (Finding("a case", True, ""),)), None)
    met = {f"id of {said}": said for said in ("A row is missing.", "m is not kept.")}
    assert kept.named_mistakes() == {"single_tile": met} and list(kept.named_mistakes()["single_tile"]) == list(met)


def test_mistakes_that_the_third_edition_noted_without_an_id_are_kept(folder):
    notes.put({kept.NAMED_MISTAKES: {"single_tile": ["A row is missing."]}})
    assert kept.named_mistakes() == {"single_tile": {"A row is missing.": "A row is missing."}}


def test_a_check_notes_what_it_has_named():
    check.merge(lambda a, b: (max(a[0], b[0]), a[1] + b[1]))
    (met,) = kept.named_mistakes().values()
    assert met.items() <= {mistake.id: mistake.name for mistake in check.EXERCISES["merge"].known}.items()


def test_a_prediction_is_the_first_guess_whose_answer_was_shown():
    predict.guess("traffic", loads=4, stores=3)
    predict.reveal("traffic", by_the_trips={"loads": 8}, counted={"loads": 5.01, "stores": 3})
    predict.guess("traffic", loads=5, stores=3)
    predict.reveal("traffic", counted={"loads": 5.02, "stores": 3})
    assert predict.predictions() == [("traffic", "loads", 4, 5.02, "counted"), ("traffic", "stores", 3, 3, "counted")]
    assert [one.is_near for one in predict.predictions()] == [False, True]


def test_a_guess_that_is_made_after_its_answer_is_no_prediction():
    for guess in (None, 5):
        predict.guess("traffic", loads=guess)
        predict.reveal("traffic", counted={"loads": 5.01})
    assert predict.predictions() == []


def test_a_question_without_a_guess_leaves_no_trace(folder):
    predict.reveal("traffic", counted={"loads": 5.01})
    assert predict.predictions() == [] and list(folder.iterdir()) == []


def test_questions_from_earlier_lessons_are_no_predictions():
    recall.quiz(3)
    recall.quiz(3, 1, 2, 3)
    assert predict.predictions() == []


def test_a_guess_at_a_lie_is_a_prediction(monkeypatch):
    monkeypatch.setattr(display, "_figures", lambda name, way: {display.LIES[name].guessed: 2.0})
    predict.guess("warm L2", honest=3)
    display.expose("warm L2")
    assert [(one.guess, one.answer) for one in predict.predictions()] == [(3, 2.0)]


def test_the_speed_of_the_learner_s_function_is_noted_under_its_exercise(monkeypatch):
    monkeypatch.setattr(timing.torch.cuda, "get_device_name", lambda: "NVIDIA L4")
    kept.remember(Report("online", 5, True, (Finding("a case", True, ""),)), lambda x: x)
    functions = {"online": lambda x: x, **check.yours("online", BLOCK=64)}
    for columns, ms in ((4096, 4.0), (8192, 2.5)):
        row = ("fp32", 2**28 // columns, columns, ms, ms, ms, 2.0)
        timing._note_yours(functions, [timing.Row(name, *row) for name in functions])
    assert timing.speeds_of_yours() == {"online": ("NVIDIA L4", [0.5, 0.8])}


def test_speeds_on_another_gpu_take_the_place_of_earlier_ones(monkeypatch):
    monkeypatch.setattr(timing.torch.cuda, "get_device_name", lambda: "NVIDIA T4")
    notes.put({"speeds": WHOLE["speeds"]})
    kept.remember(Report("online", 5, True, (Finding("a case", True, ""),)), lambda x: x)
    timing._note_yours(check.yours("online"), [timing.Row("yours", "fp32", 1, 8, 2.0, 2.0, 2.0, 1.0)])
    assert timing.speeds_of_yours() == {"online": ("NVIDIA T4", [0.5])}


# -- what is gathered -------------------------------------------------------------------------------------------------


def test_the_ladder_begins_with_pytorch_s_ways_as_they_are_counted_here():
    eager, loss = gathered().ladder
    assert (round(eager.loads), round(eager.stores), eager.mine) == (5, 3, False)
    assert (round(loss.loads), round(loss.stores), loss.mine) == (3, 3, False)


def test_the_ladder_has_the_learner_s_kernels_in_the_order_of_the_lessons():
    notes.put(WHOLE)
    counted = [rung for rung in gathered().ladder if rung.loads is not None]
    assert [(rung.number, rung.mine) for rung in counted] == [
        *(("1", False), ("2.1", True), ("5.3", True), ("10", False), ("10.1", True))
    ]
    assert gathered().own[1].speed == "0.64 to 0.70 of a copy's speed"


def test_kernels_of_several_inputs_and_functions_of_ranks_are_on_the_ladder_without_a_count():
    names = "attend", "grouped", "sharded_loss"
    notes.put({name: check.EXERCISES[name].points for name in names} | {"causal": 1})
    own = gathered().own
    assert [(rung.number, rung.trips) for rung in own] == [
        *(("11.2", "within its budget"), ("12.2", "within its budget"), ("13.3", "within its budget"))
    ]
    assert "attend (mine) within its budget" in repr(progress.show())


def test_the_page_says_what_comes_next_and_counts_neither_no_predictions_nor_mistakes():
    notes.put({"overflow": 2, kept.NAMED_MISTAKES: {"eager": {"id": "A row is missing."}}})
    shown = progress.show()
    assert "Next: exercise 1.2 eager." in shown._repr_html_()
    assert "of 0" not in repr(shown) and "mistake" not in repr(shown)
    notes.put({name: one.points for name, one in check.EXERCISES.items()})
    assert "Next: predict the times of four launches" in progress.show()._repr_html_()


# -- the page ---------------------------------------------------------------------------------------------------------


class Checked(HTMLParser):
    """Reads a page: its text, its addresses, and whether each element is closed in its turn."""

    def __init__(self, page):
        super().__init__()
        self.open, self.text, self.addresses, self.tags = [], [], [], set()
        self.feed(page)
        assert self.open == []

    def handle_starttag(self, tag, attributes):
        self.tags.add(tag)
        self.addresses += [value for name, value in attributes if name in ("src", "href")]
        if tag not in ("meta", "img"):
            self.open.append(tag)

    def handle_endtag(self, tag):
        assert self.open.pop() == tag

    def handle_data(self, data):
        self.text.append(data)


@pytest.mark.parametrize("known", [{}, HALF, WHOLE, STRANGE], ids=["nothing", "half", "everything", "a strange file"])
def test_the_page_and_its_picture_are_kept_beside_the_notebook_whatever_is_solved(folder, known):
    notes.put(known)
    shown = progress.show()
    page = Checked((folder / "my-kernels.html").read_text(encoding="utf-8"))
    assert (folder / "my-kernels.png").read_bytes().startswith(b"\x89PNG")
    assert "Kept next to this notebook: my-kernels.html" in repr(shown)
    assert "script" not in page.tags and all(address.startswith("data:image/png") for address in page.addresses)
    assert (NOTHING_YET in page.text) == (known in ({}, STRANGE))
    assert Checked(f"<div>{shown._repr_html_()}</div>").addresses == page.addresses


def test_the_page_tells_what_was_written_predicted_and_got_wrong(folder):
    notes.put(WHOLE)
    text = "|".join(Checked(progress.show().html()).text)
    for said in (
        "2.1 single tile|1.0|1.0", "5.3 online|2.0|1.0|0.64 to 0.70 of a copy's speed on NVIDIA L4",
        "eager softmax: loads|4|5.004|counted", "Predictions: 1 of 2 within 10 %",
        "2.1 single tile|Every program takes row 0.", "5.3 online|l is <never> rescaled.",
    ):  # fmt: skip
        assert said in text, said
    assert f"{sum(e.points for e in check.EXERCISES.values())} of" in progress.show().picture.alt


def test_the_page_says_nothing_of_who_made_it(folder):
    notes.put(WHOLE)
    shown = progress.show()
    page = re.sub(r"<style>.*?</style>|base64,[^\"]*", "", shown.html(), flags=re.DOTALL)
    said = [page, repr(shown), *Image.open(folder / "my-kernels.png").info.values()]
    for private in (getpass.getuser(), str(Path.home()), platform.node(), str(folder), sys.prefix):
        assert not re.search(rf"(?<!\w){re.escape(private)}(?!\w)", " ".join(map(str, said))), private


def test_another_session_shows_the_same(folder):
    check.single_tile(SOLUTIONS["single_tile"].answered())
    predict.guess("traffic", loads=1)
    predict.reveal("traffic", counted={"loads": 1.0})
    now = repr(progress.show())
    command = [sys.executable, "-c", "from helpers import progress; print(progress.show())"]
    then = subprocess.run(
        command, cwd=folder, env={"PYTHONPATH": str(ROOT)}, capture_output=True, text=True, check=True
    )
    assert then.stdout.rstrip("\n") == now and "single tile (mine) 1.0 loads and 1.0 stores" in now
    assert "1 of 1 prediction within 10 %" in now


def test_where_the_page_cannot_be_kept_it_is_shown_and_says_so(folder):
    (folder / "my-kernels.html").mkdir()
    shown = progress.show()
    assert "The page could not be kept as my-kernels.html" in repr(shown)
    assert "The page could not be kept" in shown._repr_html_()


def test_what_git_does_not_take_is_kept(folder):
    progress.show()
    ignored = (ROOT / ".gitignore").read_text(encoding="utf-8").splitlines()
    assert {path.name for path in folder.iterdir()} <= set(ignored)


def test_the_last_cell_of_the_last_lesson_shows_the_page():
    *_, next_steps, elsewhere, last = read_notebook(ROOT / "solutions" / "16_in_your_own_project.ipynb").cells
    assert last.source.splitlines()[-1] == "progress.show()" and "nbval-ignore-output" in last.metadata.tags
    assert next_steps.source.startswith("## What next")
    lines = re.findall(r"^(\d+)\. ", f"{next_steps.source}\n{elsewhere.source}", flags=re.MULTILINE)
    assert lines == [str(number) for number in range(1, 10)]
    assert json.dumps(last.outputs).count("My softmax, counted trip by trip") >= 1
