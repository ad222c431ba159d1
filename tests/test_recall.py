"""Three questions from earlier lessons: right numbers, other ones in every session, and what is kept of them."""

import json
import random
import re

import pytest

from helpers import predict, progress, recall
from helpers.check import kept
from helpers.engine import notes
from helpers.engine.words import WIDTH

pytestmark = pytest.mark.usefixtures("nothing_passed_yet")

IDS = [question.id for question in recall.QUESTIONS]


@pytest.fixture(autouse=True)
def nothing_asked_yet(monkeypatch):
    monkeypatch.setattr(recall, "_asked", {})
    monkeypatch.setattr(predict, "_guesses", {})
    monkeypatch.setattr(predict, "_answered", {})


def new_session():
    recall._asked.clear()


def right_numbers(lesson):
    return [number for _, _, number, _ in recall._asked[lesson].drawn()]


@pytest.mark.parametrize("question", recall.QUESTIONS, ids=IDS)
def test_a_question_has_other_numbers_for_another_seed_and_the_same_for_the_same(question):
    texts = [question.draw(random.Random(seed))[0] for seed in range(30)]
    assert len(set(texts)) > 2 and question.draw(random.Random(3)) == question.draw(random.Random(3))


@pytest.mark.parametrize(
    ("id", "contains", "number"),
    [
        ("eager bytes", "1,000 × 500 ", 16.0),
        ("time of a copy", "4,000 GB/s. How many µs does it take for a tensor of 400 MB", 200.0),
        ("idle lanes", None, None),
        ("merge", None, None),
    ],
)
def test_the_right_number_is_what_the_text_asks_for(id, contains, number):
    question = next(question for question in recall.QUESTIONS if question.id == id)
    drawn = [question.draw(random.Random(seed)) for seed in range(200)]
    if contains:
        assert {right for text, right, _ in drawn if contains in text} == {number}
    if id == "idle lanes":
        for text, idle, _ in drawn:
            columns = int(text.split()[3].replace(",", ""))
            tile = next(2**power for power in range(20) if 2**power >= columns)
            assert idle == tile - columns
    if id == "merge":
        assert all(1 < l < 6 for _, l, _ in drawn)


@pytest.mark.parametrize("lesson", [2, 3, 4, 5, 6, 7, 8, 9, 10])
def test_each_lesson_asks_three_questions_from_lessons_before_it(lesson, capsys):
    assert recall.quiz(lesson) is None
    lines = capsys.readouterr().out.splitlines()
    assert max(map(len, lines)) <= WIDTH
    assert [line.split()[0] for line in lines if line[0] != " "][:3] == ["first", "second", "third"]
    printed = " ".join(map(str.strip, lines))
    asked = recall._asked[lesson].drawn()
    assert len({question.id for question, *_ in asked}) == 3
    assert all(question.lesson < lesson and text in printed for question, text, _, _ in asked)


def test_before_the_second_lesson_there_is_nothing_to_ask():
    with pytest.raises(ValueError, match="no questions come before lesson 1"):
        recall.quiz(1)


def test_the_numbers_stay_for_a_session_and_are_drawn_anew_in_the_next():
    recall.quiz(9)
    first = recall._asked[9]
    recall.quiz(9, 1.0)
    assert recall._asked[9] == first
    new_session()
    recall.quiz(9)
    assert recall._asked[9].seed != first.seed


def test_answers_that_stand_in_the_cell_after_a_restart_belong_to_the_same_questions():
    recall.quiz(5)
    asked = recall._asked[5]
    new_session()
    recall.quiz(5, 1.0)
    assert recall._asked[5] == asked


def test_a_right_number_is_shown_only_where_an_answer_is_given():
    recall.quiz(4)
    numbers = right_numbers(4)
    shown = predict._number
    assert [right for _, _, *right in recall.quiz(4, numbers[0], None, 1e9).rows] == [
        [shown(numbers[0])], ["–"], [shown(numbers[2])],
    ]  # fmt: skip


def test_a_wrong_answer_gets_the_reason_and_a_right_one_does_not():
    recall.quiz(4)
    numbers, reasons = right_numbers(4), [why for *_, why in recall._asked[4].drawn()]
    assert recall.quiz(4, numbers[0], 1e9, None).notes == [f"second: {reasons[1]}."]


@pytest.mark.parametrize(
    ("answer", "right", "near"), [(0.37, 0.3679, True), (0.4, 0.3679, False), (0, 0, True), (1, 0, False)]
)
def test_two_percent_off_is_right_too(answer, right, near):
    assert recall.is_near(answer, right) == near


def test_what_was_answered_right_is_kept_beside_the_points_and_asked_last():
    notes.put({"eager": 2})
    recall.quiz(3)
    recall.quiz(3, *right_numbers(3))
    answered = recall.once_right()
    assert len(answered) == 3 and kept.points() == {"eager": 2}
    for seed in range(20):  # of five questions before lesson 03, two were not answered yet
        assert len(answered & set(recall.choose_questions(3, seed).ids)) == 1
    assert f"Questions from earlier lessons: 3 of {len(IDS)} once right." in progress.table().notes


def test_points_of_a_check_leave_what_is_kept_of_the_questions():
    recall.quiz(3)
    before = notes.entry("recall")
    notes.put({"eager": 2})
    assert notes.entry("recall") == before != {}


@pytest.mark.parametrize("strange", ["[]", "nonsense", '{"recall": 3}', '{"recall": {"right": 3, "3": [1, "x"]}}'])
def test_a_strange_file_is_no_error(strange):
    with open(notes.FILE, "w") as file:
        file.write(strange)
    recall.quiz(3, 1.0)
    assert json.load(open(notes.FILE))["recall"]["3"][0] == recall._asked[3].seed


def test_an_answer_that_is_no_number_is_refused_by_its_name():
    with pytest.raises(TypeError, match="second must be a number, or None"):
        recall.quiz(3, 1.0, "many")


def test_nothing_answered_leaves_the_table_of_progress_without_a_note():
    recall.quiz(3)
    assert progress.table().notes == []


@pytest.mark.parametrize("seed", range(5))
def test_a_claim_s_speed_is_of_what_is_read_and_written(seed):
    text, answer, _ = recall._claimed(random.Random(seed))
    megabytes, us = map(int, re.findall(r"(\d+) (?:MB|µs)", text))
    assert answer == pytest.approx((megabytes + megabytes) * 1e6 / (us * 1e-6) / 1e9)
