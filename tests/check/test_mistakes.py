"""Every known mistake is rejected and named, and right answers that are written differently pass.

One of each for every exercise, in every run; all of them among the proofs.
"""

import re

import pytest

from corpus import RIGHT, WRONG
from exercises import SOLUTIONS, judged
from helpers.check import EXERCISES
from helpers.check.judge import ANOTHER_EXERCISE, OVER_BUDGET, RACE, RACE_OF_LANES, STORED_TWICE, TORCH_AT_WORK
from helpers.check.mistakes.recognise import with_hints
from mistakes_table import report, table
from variants import each

OF_ALL = OVER_BUDGET, TORCH_AT_WORK, RACE, RACE_OF_LANES, ANOTHER_EXERCISE, STORED_TWICE
KNOWN = {name: (*EXERCISES[name].known, *OF_ALL) for name in WRONG}


@pytest.mark.parametrize(("name", "fault"), each(WRONG, 4))
def test_a_known_mistake_is_rejected_and_named(name, fault):
    wrong = report(name, fault)
    assert (wrong.attempted, wrong.passed) == (True, False)
    assert wrong.points in (0, wrong.max_points / 2) or (name == "looks_right" and wrong.points < wrong.max_points)
    assert wrong.diagnosis, "it is rejected, and no mistake is named"
    assert wrong.diagnosis.id == WRONG[name][fault].named


def test_the_corpus_holds_every_mistake_that_can_be_named():
    made = {wrong.named for faults in WRONG.values() for wrong in faults.values()}
    assert {mistake.id for known in KNOWN.values() for mistake in known} <= made
    assert sum(map(len, WRONG.values())) >= 45


@pytest.mark.parametrize("name", KNOWN)
def test_the_mistakes_of_an_exercise_have_ids_of_their_own(name):
    ids = [mistake.id for mistake in KNOWN[name]]
    assert len(set(ids)) == len(ids)


def test_a_hint_for_a_mistake_that_is_not_there_is_refused():
    with pytest.raises(ValueError, match="no mistake here has the id nonsense"):
        with_hints(EXERCISES["merge"].known, nonsense=2)


@pytest.mark.parametrize("name", KNOWN)
def test_a_diagnosis_is_a_sentence_and_a_question_and_points_to_one_of_the_hints(name):
    for mistake in KNOWN[name]:
        assert re.fullmatch(r"(?:[A-Z\d]|[lmox] ).*\.", mistake.name) and mistake.question.endswith("?")
        assert mistake.hint in range(6)


@pytest.mark.parametrize(("name", "way"), each(RIGHT, 3))
def test_a_right_answer_written_differently_gets_full_points(name, way):
    right = judged(name, SOLUTIONS[name].variant(RIGHT[name][way]))
    assert [finding for finding in right.findings if not finding.ok] == []
    assert right.points == SOLUTIONS[name].points


def test_there_are_many_ways_to_be_right():
    assert sum(map(len, RIGHT.values())) >= 15


@pytest.mark.proof
@pytest.mark.parametrize("name", WRONG)
@pytest.mark.parametrize("seed", range(20))
def test_the_solution_gets_full_points_whatever_the_seed(name, seed):
    right = EXERCISES[name].report_on(SOLUTIONS[name].answered(), seed=seed)
    assert [finding for finding in right.findings if not finding.ok] == []
    assert right.points == SOLUTIONS[name].points


@pytest.mark.proof
def test_the_table_of_mistakes_says_that_each_is_rejected_and_named(record_property, request):
    if request.config.option.every > 1:
        pytest.skip("takes the reports on all known mistakes: make proofs EVERY=1")
    shown = table()
    record_property("known mistakes, and the cases that reject them", shown)
    heads = re.findall(r"^### (\w+): (\d+) of (\d+) mistakes rejected, (\d+) named first$", shown, re.MULTILINE)
    assert heads == [(name, *[str(len(faults))] * 3) for name, faults in WRONG.items()]
