"""The checks of lesson 09: a merge across programs, and numbers judged by the simulator and by the size of a cache."""

import math
from random import Random

import pytest

from corpus import WRONG
from exercises import SOLUTIONS, STUBS, wrong_findings
from helpers import check
from helpers.check import EXERCISES
from helpers.check.exercises.lesson_09 import SPLIT
from helpers.check.helping import judge_shared, shared_cases
from helpers.check.problems.shared_rows import FAIR, ONE_PLACE, SHARED_LAUNCHES, SLOW, drawn_numbers, share_rows
from helpers.check.trial.trial import Trial
from helpers.gpu.places import least_places
from helpers.gpu.sharing import SharedEnd
from helpers.gpu.waiting import VARIANTS
from posed import drawn

pytestmark = pytest.mark.usefixtures("nothing_passed_yet")


@pytest.mark.thinned(0)
@pytest.mark.parametrize("name", ["split_row", "deadlock", "row_program", "l2"])
def test_the_starter_code_is_not_attempted(name):
    report = getattr(check, name)(STUBS[name].answered())
    assert (report.attempted, report.points) == (False, 0)


# 9.1


def test_the_cases_have_rows_of_several_slices_and_of_numbers_of_slices_that_are_no_power_of_two():
    slices = {(len(x), -(-x.shape[1] // 512)) for x in drawn(SPLIT, 0).values()}
    assert {(1, 17), (1, 7), (3, 5), (4, 3), (3, 4)} <= slices


@pytest.mark.thinned(0)
def test_the_solution_stays_within_the_budget_and_says_its_trips():
    report = check.split_row(SOLUTIONS["split_row"].answered())
    assert report.points == 4
    seen = {finding.case: finding.seen for finding in report.findings}
    assert seen["trips to memory"] == "2.0 loads and 1.0 stores per element"


@pytest.mark.thinned(0)
def test_later_cells_can_have_the_learner_s_function():
    answer = SOLUTIONS["split_row"].answered()
    check.split_row(answer)
    assert check.yours_or_ours("split_row") is answer


# 9.2


@pytest.fixture
def least():
    return dict(SOLUTIONS["deadlock"].answered())


def test_the_solution_is_what_the_simulator_finds(least):
    assert least == {variant: least_places(*grids) for variant, grids in VARIANTS.items()}
    assert check.deadlock(least).points == 2


def test_some_of_the_launches_hang_on_an_h200_and_some_do_not(least):
    assert 0 < sum(places > 132 for places in least.values()) < len(least)


@pytest.mark.parametrize("variant", VARIANTS)
def test_one_place_too_few_hangs_and_one_too_many_is_not_the_least(least, variant):
    right = least[variant]
    few = check.deadlock({**least, variant: right - 1})
    assert wrong_findings(few)[variant].startswith(f"hangs on {right - 1} places: ")
    many = check.deadlock({**least, variant: right + 1})
    assert wrong_findings(many) == {variant: f"comes to an end on {right} places too"}
    assert few.points == many.points == 0


@pytest.mark.parametrize(
    ("variant", "places", "named"),
    [
        ("rows first", 480, "It is the largest number of places on which it still hangs."),
        ("rows first", 16, "Places are counted as if the slices of a row started one after the other."),
        ("two launches at once", 100, "Places are counted as if the slices of a row started one after the other."),
        ("rows first", 512, "A place is counted for every program."),
        ("parts first", 512, "A place is counted for every program."),
    ],
)
def test_a_known_mistake_is_named(least, variant, places, named):
    assert check.deadlock({**least, variant: places}).diagnosis.name == named


def test_a_number_that_nothing_explains_has_no_name(least):
    assert check.deadlock({**least, "rows first": 77}).diagnosis is None


@pytest.mark.parametrize("places", [0, -3, 1.5, True, "16"], ids=repr)
def test_what_is_no_number_of_places_is_a_finding(least, places):
    seen = wrong_findings(check.deadlock({**least, "rows first": places}))
    assert seen == {"rows first": f"needs a whole number of places, at least 1; it is {places!r}"}


def test_a_number_left_out_is_named(least):
    assert wrong_findings(check.deadlock({**least, "rows first": None})) == {"rows first": "not filled in yet"}


@pytest.mark.parametrize("answers", [None, [16, 481], {"parts first": 16}], ids=str)
def test_answers_about_other_launches_are_refused(answers):
    (seen,) = wrong_findings(check.deadlock(answers)).values()
    assert "check.deadlock takes a dict with the keys 'parts first', 'rows first'" in seen


# 9.3


def test_a_program_that_hangs_is_told_on_how_many_places_and_who_waits():
    variant = WRONG["row_program"]["no help"]
    findings = wrong_findings(check.row_program(SOLUTIONS["row_program"].variant(variant)))
    assert findings["one place"] == "hangs on 1 place: after 4,000 rounds 1 wait, and 5 cannot start"
    assert "a place for every program" not in findings


@pytest.mark.parametrize("fault", ["no look", "kept to itself", "all helped", "m, then the pair"])
def test_a_program_whose_results_are_right_and_whose_way_is_not_is_named(fault):
    variant = WRONG["row_program"][fault]
    report = check.row_program(SOLUTIONS["row_program"].variant(variant))
    assert (report.points, report.diagnosis.id) == (0, variant.named)


@pytest.mark.parametrize("returned", ["m", "(m, l, 0.0)", "'m'", "None"])
def test_what_is_no_pair_is_shown(returned):
    answer = SOLUTIONS["row_program"].answered("SOLUTION\n    return m, l", f"SOLUTION\n    return {returned}")
    assert all(seen.startswith("expected (m, l), got") for seen in wrong_findings(check.row_program(answer)).values())


def test_the_most_that_is_loaded_for_others_is_what_the_solution_loads():
    program = SOLUTIONS["row_program"].answered()
    loads = {case: [SharedEnd(*end).loads for end in share_rows(program, case, 0)] for case in (ONE_PLACE, FAIR, SLOW)}
    assert loads == {ONE_PLACE: [4], FAIR: [0], SLOW: [0]}


def test_every_launch_has_other_numbers_for_another_seed():
    for case, launch in SHARED_LAUNCHES.items():
        (row, part), *_ = launch.grid
        drawn = {tuple(drawn_numbers(case, seed)(row, part)) for seed in range(20)}
        assert len(drawn) > 10 or set(launch.numbers(row, part)) == {-math.inf}


def test_an_account_of_fewer_runs_is_no_right_answer():
    (finding, *_) = judge_shared(EXERCISES["row_program"], shared_cases(Random(0)), [Trial(answer=[])] * 10).findings
    assert (finding.ok, finding.seen) == (False, "what became of the programs is not known")


# 9.4


@pytest.mark.parametrize("rows", [30, 32, 40, 60, 95, 100, 120, 120.0, 128])
def test_a_prediction_between_what_was_measured_and_x_alone_is_right(rows):
    assert check.l2(rows).points == 2


@pytest.mark.parametrize("rows", [1, 29, 133, 200, 1e9])
def test_a_prediction_far_from_both_is_wrong(rows):
    report = check.l2(rows)
    assert (report.attempted, report.points) == (True, 0)


@pytest.mark.parametrize(
    ("rows", "named"),
    [
        (60 * 2**20 // 131072, "Elements are counted, not bytes."),
        (60 * 2**20 // (2 * 131072), "A float32 is taken to have 2 bytes."),
        (60 * 2**20 // (32 * 131072), "Bits are counted, not bytes."),
        (60 * 2**20 // 4, "The columns are counted, not the rows."),
        (60 * 2**20, "Bytes are counted, not rows."),
    ],
)
def test_a_unit_mixed_up_is_named(rows, named):
    assert check.l2(rows).diagnosis.name == named


def test_the_finding_tells_the_bytes_and_not_the_answer():
    assert wrong_findings(check.l2(480)) == {
        "rows whose input stays in L2": "480 rows are 240.0 MB of 2²⁰ bytes, more than the cache holds"
    }


@pytest.mark.parametrize("rows", ["120", True, {}, [120]], ids=repr)
def test_what_is_no_number_is_a_finding(rows):
    said = f"needs a number of rows; it is {rows!r}"
    assert wrong_findings(check.l2(rows)) == {"rows whose input stays in L2": said}
