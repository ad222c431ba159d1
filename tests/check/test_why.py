"""The checks of lesson 06: programs of an SM, loads under way, and predicted times against the recorded launches."""

import json
import math
import re

import pytest

from exercises import ROOT, SOLUTIONS, judged, wrong_findings
from helpers import check, microseconds
from helpers.check.exercises import lesson_06
from helpers.check.exercises.lesson_06 import predicted
from helpers.check.mistakes.edited import edited

SOLUTION = ROOT / "solutions" / "06_why_in_microseconds.ipynb"

pytestmark = pytest.mark.usefixtures("nothing_passed_yet")


def source(cell_id):
    cells = json.loads(SOLUTION.read_text(encoding="utf-8"))["cells"]
    return next("".join(cell["source"]) for cell in cells if cell["id"] == cell_id)


# 6.1


def test_the_cases_of_occupancy_have_every_limit_and_every_rounding():
    right = [lesson_06.programs(*case) for case in lesson_06._RESIDENT]
    assert right == [3, 8, 4, 12, 1, 2, 1, 32, 32, 16, 16, 4, 2, 0, 0]


# 6.2


def right():
    return lesson_06.flight_answers()


def test_the_law_is_applied_to_the_recorded_loads():
    ns, each, programs = right().values()
    record = microseconds.measured()
    slowest = next(gbps for *waiting, gbps in record["flight"] if waiting == [1, 512])
    assert ns == pytest.approx(132 * 512 / slowest)
    assert 132 * each * 1000 / ns == pytest.approx(4200)
    assert programs * 512 == pytest.approx(each * 1000)


def test_the_number_in_the_lesson_is_the_record_s():
    slowest = next(gbps for *waiting, gbps in microseconds.measured()["flight"] if waiting == [1, 512])
    assert float(re.search(r"together = ([\d.]+)", source("flight"))[1]) == slowest
    assert f"reached {slowest} GB/s" in source("ex-flight")


@pytest.mark.parametrize("factor", [0.92, 1.0, 1.08])
def test_loads_under_way_are_right_to_within_a_tenth(factor):
    assert check.in_flight({question: factor * answer for question, answer in right().items()}).points == 2


@pytest.mark.parametrize(
    ("question", "factor", "named"),
    [
        ("nanoseconds a load takes", 1 / 132, "one_sm"),
        ("nanoseconds a load takes", 1e-3, "microseconds_given"),
        ("kB under way an SM", 132, "all_sms"),
        ("kB under way an SM", 2, "both_directions"),
        ("kB under way an SM", 1e3, "bytes_given"),
        ("programs an SM of 512 bytes each", 132, "all_sms"),
        ("programs an SM of 512 bytes each", 7, ""),
    ],
)
def test_a_wrong_number_of_loads_is_named(question, factor, named):
    report = check.in_flight(right() | {question: factor * right()[question]})
    assert list(wrong_findings(report)) == [question] and report.points == 0
    assert (report.diagnosis.id if report.diagnosis else "") == named


@pytest.mark.parametrize("answer", [None, "16", math.nan, math.inf], ids=repr)
def test_what_is_no_number_of_loads_is_a_finding(answer):
    assert list(wrong_findings(check.in_flight(right() | {"kB under way an SM": answer}))) == ["kB under way an SM"]


# 6.3


def test_the_constants_of_the_lesson_are_those_of_the_check():
    names = {}
    exec(source("predict-time").partition("def ")[0], names)
    theirs = names["SMS"], names["LAUNCH"], names["ALONE"], names["BYTES"], names["RATE"]
    own = lesson_06.SMS, lesson_06.LAUNCH, lesson_06.ALONE, lesson_06.BYTES, lesson_06.RATE
    assert theirs == own


def test_the_bandwidth_is_the_recorded_copy_s_and_the_lone_constants_are_near_the_measured_ones():
    record = microseconds.measured()
    many = [one for one in microseconds.timed("shapes") if one.dtype == "fp32" and one.features.n_rows > 4096]
    copies = [2 * one.features.n_rows * one.features.row_bytes / one.copy_us for one in many]
    assert max(copies) == pytest.approx(lesson_06.BYTES, rel=0.02)
    assert abs(record["empty_us"] - lesson_06.LAUNCH) < 1


def test_the_model_is_off_by_6_percent_on_average_and_by_25_at_most():
    off = [abs(predicted(*one.features) / one.us - 1) for one in microseconds.timed("held_out")]
    assert round(sum(off) / len(off), 2) == 0.06 and round(max(off), 2) == 0.25
    assert "6 % on average, and at most 25 %" in source("predicted-found")


def test_of_many_rows_nine_predictions_in_ten_are_within_15_percent():
    for part in ("held_out", "shapes"):
        many = [one for one in microseconds.timed(part) if one.features.n_rows > 4096]
        near = [abs(predicted(*one.features) / one.us - 1) <= 0.15 for one in many]
        assert sum(near) > 0.9 * len(near)


def test_each_kind_of_launch_has_shapes_and_instructions_decide_none_but_come_near():
    held_out = microseconds.timed("held_out")
    assert len({lesson_06._kind(one) for one in held_out}) == 5
    longest = {"m": "memory", "i": "instructions", "t": lesson_06._OF_TURNS}
    alone = {letter: edited((predicted,), (f"LAUNCH + {lesson_06._LONGEST}", one)) for letter, one in longest.items()}
    bounds = [{letter: bound(*one.features) for letter, bound in alone.items()} for one in held_out]
    assert {max(one, key=one.get) for one in bounds} == {"m", "t"}
    near = [one for one, bound in zip(held_out, bounds, strict=True) if bound["i"] > 0.85 * max(bound.values())]
    many = [predicted(*one.features) / one.us - 1 for one in near if one.features.n_rows > 4096]
    assert len(many) >= 3 and max(many) < -0.08 and min(many) > -0.18


def test_a_prediction_is_given_the_features_of_the_launch():
    told = []
    check.predict_time(lambda *features: told.append(features))  # in a process of its own
    names = re.search(r"def predict_time\((.*)\):", source("predict-time"))[1].split(", ")
    assert tuple(names) == microseconds.Features._fields


def test_times_a_little_too_long_or_too_short_pass_and_others_do_not():
    assert judged("predict_time", lambda *features: 1.03 * predicted(*features)).points == 4
    for factor, named in ((1.3, "too_long"), (0.7, "too_short")):
        report = judged("predict_time", lambda *features, factor=factor: factor * predicted(*features))
        assert report.points == 0 and report.diagnosis.id == named


def test_what_is_no_time_is_a_finding_with_its_launch():
    report = check.predict_time(lambda *features: "fast")
    assert "64 × " in wrong_findings(report)["64 rows, less than one turn"] and report.points == 0


def test_later_cells_use_the_course_s_prediction_until_one_has_passed(capsys):
    assert check.yours_or_ours("predict_time") is predicted
    answer = SOLUTIONS["predict_time"].answered()
    check.predict_time(answer)
    assert check.yours_or_ours("predict_time") is answer
