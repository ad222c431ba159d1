"""A report as a bare number, as text and as a table."""

import re
from dataclasses import replace

import pytest
import torch

from helpers import check
from helpers.check.report import Diagnosis, first_lines

pytestmark = pytest.mark.usefixtures("nothing_passed_yet")
RIGHT = check.Report("online", 5, True, (check.Finding("a case", True, "within 1e-05 of float64"),))
WRONG_IN_ONE = check.Report("online", 5, True, (*RIGHT.findings, check.Finding("a <case>", False, "1 < 2 & got nan")))
NOT_ATTEMPTED = check.Report("online", 5, False, ())
each_report = pytest.mark.parametrize(
    ("report", "text"), [(RIGHT, "5"), (WRONG_IN_ONE, "0"), (NOT_ATTEMPTED, "0")], ids=["right", "wrong", "untouched"]
)


@each_report
def test_a_report_as_text_is_its_points_as_a_bare_number(report, text):
    assert repr(report) == text
    assert float(repr(report)) == report.points


def test_points_that_are_no_whole_number_are_a_bare_number_too():
    assert repr(check.Report("online", 2.5, True, RIGHT.findings)) == "2.5"


@each_report
def test_a_report_never_gives_more_than_its_points(report, text):
    assert 0 <= report.points <= report.max_points


def test_right_wrong_and_not_attempted_look_different():
    pages = [report._repr_html_() for report in (RIGHT, WRONG_IN_ONE, NOT_ATTEMPTED)]
    borders = [re.search(r"border-left:4px solid ([^;]+);", page)[1] for page in pages]
    assert len(set(pages)) == len(set(borders)) == 3


def test_right_wrong_and_not_attempted_are_said_in_a_sentence():
    assert RIGHT.summary() == "online: right in 1 case, 5 of 5 points."
    assert WRONG_IN_ONE.summary() == "online: right in 1 of 2 cases, not finished yet."
    said = "not attempted yet: the result is that of the empty cell"
    assert NOT_ATTEMPTED.summary().startswith(f"online: {said}. Write your answer into its cell, under the name")


def test_the_named_mistake_and_its_question_stand_above_the_cases():
    report = check.eager(lambda x: torch.exp(x) / torch.exp(x).sum(dim=1, keepdim=True))
    question = "What is exp(1000), and which number keeps every exponent at or below 0? More in Hint 2 below."
    assert str(report).splitlines()[:3] == [report.summary(), "The maximum is not subtracted.", question]
    page = report._repr_html_()
    assert page.index("The maximum is not subtracted.") < page.index("Hint 2") < page.index("<table>")


def test_a_report_as_text_says_what_was_right_and_what_was_wrong():
    assert str(WRONG_IN_ONE).splitlines()[1:] == ["✗ a <case>: 1 < 2 & got nan", "✓ a case"]
    assert str(RIGHT) == RIGHT.summary() and str(NOT_ATTEMPTED) == NOT_ATTEMPTED.summary()


def test_a_wrong_answer_is_shown_case_by_case_with_markup_as_text():
    page = WRONG_IN_ONE._repr_html_()
    assert "✓ a case" in page and "✗ a &lt;case&gt;" in page
    assert "1 &lt; 2 &amp; got nan" in page


def test_a_report_in_jupyter_needs_no_more_than_its_text_and_its_html():
    assert {name for name in dir(RIGHT) if name.startswith("_repr_")} == {"_repr_html_"}


def test_a_report_stays_short_however_many_ways_there_are_to_be_wrong():
    report = check.Report("online", 5, True, tuple(check.Finding(f"case {n}", False, f"got {n}") for n in range(30)))
    lines = str(report).splitlines()
    assert lines[1:4] == ["✗ case 0: got 0", "✗ case 1: got 1", "✗ case 2: got 2"]
    assert len(lines) == 6 and lines[-1].endswith("case 28; case 29: wrong as well")


def test_wrong_cases_that_say_the_same_share_a_line():
    html = check.eager(lambda x: 1 / 0)._repr_html_()
    assert html.count("✗") == 1 and f"and {len(check.EXERCISES['eager'].makers) - 3} more cases" in html


MISTAKE = Diagnosis("id", "Named.", "Why?", 0)


def test_a_mistake_without_a_hint_points_to_none():
    report = replace(WRONG_IN_ONE, diagnosis=MISTAKE)
    assert "Named." in str(report) and "Hint" not in str(report) + report._repr_html_()


def test_a_right_answer_is_told_of_no_mistake():
    report = replace(RIGHT, diagnosis=MISTAKE)
    assert "Named." not in str(report) + report._repr_html_()


def test_what_was_printed_is_text_on_the_page():
    assert "<pre>1 &lt; 2</pre>" in replace(WRONG_IN_ONE, printed="1 < 2")._repr_html_()


def test_half_of_the_points_are_said_and_not_called_unfinished():
    assert replace(WRONG_IN_ONE, kept=2.5).summary() == "online: right in 1 of 2 cases, 2.5 of 5 points."


# Lines


def report_of(*findings, **changed):
    return replace(check.Report("online", 5, True, tuple(findings)), **changed)


def test_findings_of_one_kind_share_the_line_of_the_first():
    shapes = [check.Finding(f"case {n}", False, f"shape {n}", kind="shape") for n in range(5)]
    assert str(report_of(*shapes)).splitlines()[1] == "✗ case 0; case 1; case 2 and 2 more cases: shape 0"


def test_the_case_that_shows_the_diagnosis_has_the_first_line():
    findings = [check.Finding(f"case {n}", False, f"got {n}") for n in range(9)]
    assert str(report_of(*findings, shown_by="case 7")).splitlines()[1] == "✗ case 7: got 7"


def test_a_case_more_is_one_case():
    same = [check.Finding(f"case {n}", False, "got 1") for n in range(4)]
    assert "case 2 and 1 more case: got 1" in str(report_of(*same))


def test_what_all_cases_show_together_is_no_case():
    together = check.Finding("trips to memory", False, "too many", extra=True)
    assert report_of(*RIGHT.findings, together).summary() == (
        "online: all results are right (1 case), but not finished yet."
    )
    assert report_of(*RIGHT.findings, replace(together, ok=True)).summary() == "online: right in 1 case, 5 of 5 points."


def test_one_point_is_one_point():
    assert replace(RIGHT, max_points=1).summary().endswith("1 of 1 point.")


def test_why_there_are_so_many_points_is_said():
    said = replace(WRONG_IN_ONE, kept=2.5, because="Half of the points, since so much is right.").summary()
    assert said.endswith("2.5 of 5 points. Half of the points, since so much is right.")


def test_the_right_cases_are_folded_and_take_no_room_from_the_message():
    page = WRONG_IN_ONE._repr_html_()
    assert "<td colspan=2 style='text-align:left'><details><summary>✓ the others</summary>✓ a case</details>" in page


def test_what_was_seen_is_cut():
    assert len(str(report_of(check.Finding("a case", False, "x" * 10**6)))) < 1000


def test_of_what_was_printed_the_beginning_of_each_of_the_first_lines_is_kept():
    assert first_lines("x" * 10**7) == "x" * 199 + "…"
    assert first_lines("\n".join(map(str, range(99)))).splitlines() == [str(n) for n in range(20)]
