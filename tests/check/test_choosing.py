"""The checks of lesson 07: numbers against the compiler's report, and a rule against the recorded launches."""

import pytest
import torch

from exercises import SOLUTIONS, judged, wrong_findings
from helpers import check
from helpers.check.exercises import lesson_07
from helpers.check.trial.trial import Trial
from helpers.choosing.launches import Launch, of_gpu, tile
from helpers.choosing.rules import pick, textbook

pytestmark = pytest.mark.usefixtures("nothing_passed_yet")


# 7.1


@pytest.fixture
def spill():
    return dict(SOLUTIONS["spill"].answered())


def test_what_is_right_about_the_spill_follows_from_the_threads(spill):
    elements, registers, warps, tile = lesson_07._spill_answers().values()
    assert (elements, registers) == (256, 255) and tile / 4 == 32768 / warps
    assert check.spill(spill).points == 2


@pytest.mark.parametrize("question", lesson_07._SPILL_QUESTIONS)
def test_a_wrong_number_is_named_without_the_right_one(spill, question):
    report = check.spill({**spill, question: 4})
    assert wrong_findings(report) == {question: f"it is not 4: {lesson_07._SPILL_QUESTIONS[question]}"}
    assert report.points == 0


def test_a_number_left_out_is_named(spill):
    report = check.spill({**spill, "registers it can have": None})
    assert report.attempted and wrong_findings(report) == {"registers it can have": "not filled in yet"}


@pytest.mark.parametrize("answers", [None, [256, 255, 16], {"elements": 256}], ids=str)
def test_answers_to_other_questions_are_refused(answers):
    (seen,) = wrong_findings(check.spill(answers)).values()
    assert "check.spill takes a dict with the keys 'elements a thread holds'" in seen


# 7.2


def test_what_the_record_gives_is_no_rule_of_ones_own():
    report = check.my_pick(lambda n_cols, n_rows, dtype: pick(n_cols, n_rows, dtype).launch)
    assert set(wrong_findings(report)) == {"a rule of your own"} and report.points == 0


@pytest.mark.parametrize("rule", ["measured", "thumb"])
def test_a_rule_that_asks_pick_now_and_then_is_no_rule_of_ones_own(rule):
    def asking(n_cols, n_rows, dtype):
        return pick(n_cols, n_rows, dtype, rule=rule).launch if n_cols < 500 else textbook(n_cols)

    report = check.my_pick(asking)
    assert (report.points, wrong_findings(report)["a rule of your own"]) == (0, "`pick`, or the record, is asked")
    assert report.diagnosis.id == "looked_up"


def test_a_rule_may_be_good_on_average_and_is_wrong_where_it_is_very_slow():
    shape = max(of_gpu(lesson_07._TARGET).held_out, key=lambda shape: max(map(shape.lost, shape.launches)))
    slow = max(shape.launches, key=shape.lost)
    answers = [(shape, Trial(answer=list(shape.best)))] * 200
    assert shape.lost(slow) > 2.5 and lesson_07._kind_finding("kind", answers).ok
    assert not lesson_07._kind_finding("kind", [*answers, (shape, Trial(answer=list(slow)))]).ok


def test_a_rule_better_than_the_textbook_but_not_good_enough_keeps_half():
    def rule(n_cols, n_rows, dtype):
        return Launch("several rows", tile(n_cols), 4, 2048 // tile(n_cols)) if n_cols <= 512 else textbook(n_cols)

    report = judged("my_pick", rule)
    assert (report.passed, report.points) == (False, 2)
    assert report.diagnosis.name == "Few long rows are left to one program each."
    assert set(wrong_findings(report)) == {
        "at most 64 rows, beyond 8,192 columns", "many rows, 8,193 to 32,768 columns",
    }  # fmt: skip


def test_the_textbook_keeps_nothing():
    assert check.my_pick(lambda n_cols, n_rows, dtype: textbook(n_cols)).points == 0


def test_the_finding_names_the_worst_shape_and_what_is_best_there():
    says = wrong_findings(check.my_pick(lambda n_cols, n_rows, dtype: textbook(n_cols)))["many rows, up to 512 columns"]
    assert "times as long as the best, at worst" in says and "is best" in says


def test_every_kind_of_shape_has_some_of_the_record():
    kinds = [lesson_07._kind(shape) for shape in of_gpu(lesson_07._TARGET).held_out]
    assert len(set(kinds)) == 6 and min(map(kinds.count, set(kinds))) >= 20


def test_the_nearest_candidate_stands_beside_a_launch_that_is_none():
    shape = next(shape for shape in of_gpu(lesson_07._TARGET).held_out if shape.n_cols == 80)
    said = lesson_07._no_candidate(Launch("several rows", 128, 1, 16), shape)
    assert said.endswith("Launch(variant='several rows', BLOCK=128, num_warps=4, rows=16) is")
    assert lesson_07._no_candidate(Launch("online", 8192, 16), shape).endswith("; no online is")


@pytest.mark.thinned(1)
@pytest.mark.parametrize(
    "answer, says",
    [
        (torch.tensor([1.0, 2.0]), "expected a Launch"),
        ("single tile", "expected a Launch, got 'single tile'"),
        (Launch("single tile", 100, 4), "is none of candidates"),
    ],
    ids=str,
)
def test_an_answer_that_is_no_launch_is_named(answer, says):
    report = check.my_pick(lambda n_cols, n_rows, dtype: answer)
    assert not report.points and all(says in seen for seen in wrong_findings(report).values())
