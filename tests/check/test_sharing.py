"""The checks of lesson 09: a merge across programs, and numbers judged by the simulator and by the size of a cache."""

import pytest

from corpus import WRONG
from exercises import SOLUTIONS, STUBS, wrong_findings
from helpers import check
from helpers.check import EXERCISES
from helpers.check.exercises.lesson_09 import MANY_SLICES, ONE_TRIP, SPLIT
from helpers.check.problems.problem import options_of
from helpers.engine.memory import MOST_BEGUN
from helpers.gpu.places import least_places
from helpers.gpu.waiting import VARIANTS
from posed import drawn

pytestmark = pytest.mark.usefixtures("nothing_passed_yet")


@pytest.mark.thinned(0)
@pytest.mark.parametrize("name", ["split_row", "deadlock", "one_trip", "l2"])
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
        ("two launches at once", 100, "The places of one launch are counted, and two run at once."),
        ("persistent, 132 programs", 16, "A program that waits never comes to its next slice."),
        ("persistent, 133 programs", 121, "A program that waits never comes to its next slice."),
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


def test_the_trips_of_9_3_count_if_at_most_one_slice_of_a_row_has_no_place():
    def slices(case, x):
        return -(-x.shape[1] // options_of(ONE_TRIP[case]).get("BLOCK", 512))

    found = {case: slices(case, x) for case, x in drawn(ONE_TRIP, 0).items()}
    uncounted = EXERCISES["one_trip"].uncounted
    assert max(number for case, number in found.items() if case not in uncounted) == MOST_BEGUN + 1
    assert min(found[case] for case in uncounted) > MOST_BEGUN + 1


@pytest.mark.thinned(0)
def test_a_row_is_loaded_once_by_programs_that_wait():
    answer = SOLUTIONS["one_trip"].answered()
    report = check.one_trip(answer)
    assert report.points == 4
    seen = {finding.case: finding.seen for finding in report.findings}
    assert seen["trips to memory"] == "1.0 loads and 1.0 stores per element"
    assert check.yours("one_trip")["yours"].func is answer


@pytest.mark.thinned(0)
def test_a_program_that_hangs_is_told_how_many_keep_their_places():
    variant = WRONG["one_trip"]["no help"]
    findings = wrong_findings(check.one_trip(SOLUTIONS["one_trip"].variant(variant)))
    assert set(findings) == {"an ascending row of 8,448", "17 slices of 128, in every second column", *MANY_SLICES}
    assert all("16 programs keep their places" in seen for seen in findings.values())


@pytest.mark.thinned(0)
@pytest.mark.parametrize("fault", ["no look", "loaded again for the store"])
def test_a_right_result_of_too_many_loads_keeps_half_and_is_told_why(fault):
    variant = WRONG["one_trip"][fault]
    report = check.one_trip(SOLUTIONS["one_trip"].variant(variant))
    assert (report.points, report.diagnosis.id) == (2, variant.named)


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
