"""Guesses are kept and shown beside the answers, in tables that read the same as text and as HTML."""

import numpy as np
import pytest
import torch

from helpers import predict
from helpers.table import Table, Tabular


@pytest.fixture(autouse=True)
def no_guesses_yet(monkeypatch):
    monkeypatch.setattr(predict, "_guesses", {})
    monkeypatch.setattr(predict, "_answered", {})


def test_a_guess_is_confirmed_in_one_line(capsys):
    predict.guess("traffic", loads=5, stores=2.5)
    assert capsys.readouterr().out == "Kept: loads = 5, stores = 2.5\n"


def test_no_guess_is_an_invitation_to_make_one(capsys):
    predict.guess("traffic", loads=None, stores=None)
    assert capsys.readouterr().out.startswith("No guess yet. Replace None by a number")


def test_a_guess_of_0_is_a_guess(capsys):
    predict.guess("traffic", loads=0, stores=0.0)
    assert capsys.readouterr().out == "Kept: loads = 0, stores = 0\n"


def test_only_the_guesses_made_are_confirmed(capsys):
    predict.guess("traffic", loads=5, stores=None)
    assert capsys.readouterr().out == "Kept: loads = 5\n"


@pytest.mark.parametrize("value", ["5", True, [5], 5j, torch.tensor(5.0)], ids=lambda value: type(value).__name__)
def test_a_guess_that_is_no_number_is_refused_by_its_name(value):
    with pytest.raises(TypeError, match="stores must be a number, or None for no guess"):
        predict.guess("traffic", loads=5, stores=value)


def test_a_guess_without_a_name_is_refused_with_what_to_write():
    with pytest.raises(TypeError, match="give each number a name, as in loads=5; 5, 3 came without one"):
        predict.guess("traffic", 5, 3)


def test_a_refused_guess_leaves_the_one_before_it():
    predict.guess("traffic", loads=5)
    with pytest.raises(TypeError):
        predict.guess("traffic", loads="many")
    assert predict.reveal("traffic").rows == [["loads", "5"]]


def test_a_new_guess_replaces_the_one_before_it():
    predict.guess("traffic", loads=5)
    predict.guess("traffic", loads=1)
    assert predict.reveal("traffic").rows == [["loads", "1"]]


def test_a_guess_changed_after_its_answer_is_shown_as_changed():
    predict.guess("traffic", loads=5, stores=1)
    predict.reveal("traffic", counted={"loads": 3, "stores": 1})
    predict.guess("traffic", loads=3, stores=1)
    shown = predict.reveal("traffic", counted={"loads": 3, "stores": 1})
    assert shown.rows == [["loads", "5, then 3", "3"], ["stores", "1", "1"]]
    assert shown.notes == ["Changed after the answer was shown: loads."]


def test_a_guess_first_made_after_its_answer_is_shown_as_made_then():
    predict.guess("traffic", loads=None)
    predict.reveal("traffic", counted={"loads": 3})
    predict.guess("traffic", loads=3)
    assert predict.reveal("traffic", counted={"loads": 3}).rows == [["loads", "–, then 3", "3"]]


def test_a_guess_changed_before_its_answer_is_shown_is_not_called_changed():
    predict.guess("traffic", loads=5, stores=3)
    predict.reveal("traffic", counted={"stores": 1})
    predict.guess("traffic", loads=4, stores=3)
    shown = predict.reveal("traffic", counted={"loads": 3, "stores": 1})
    assert shown.rows == [["loads", "4", "3"], ["stores", "3", "1"]] and not shown.notes


def test_a_guess_of_nan_that_stays_is_not_called_changed():
    for _ in range(2):
        predict.guess("a row of −inf", entry=float("nan"))
        shown = predict.reveal("a row of −inf", torch={"entry": float("nan")})
    assert shown.rows == [["entry", "nan", "nan"]] and not shown.notes


def test_a_misspelt_guess_is_told_the_name_that_is_near_it():
    predict.guess("traffic", laods=5, stores=1)
    shown = predict.reveal("traffic", counted={"loads": 5, "stores": 1})
    assert shown.notes == ["The question does not ask for laods, but for loads."]


def test_a_misspelt_question_is_told_the_one_that_is_near_it():
    predict.guess("eager softmax per element", loads=5)
    shown = predict.reveal("eager softmax, per element", counted={"loads": 5})
    assert shown.notes == [
        "No guess cell was run for 'eager softmax, per element'. One was run for 'eager softmax per element'."
    ]


def test_a_guess_of_another_name_is_told_all_that_is_asked():
    predict.guess("traffic", speed=5)
    shown = predict.reveal("traffic", counted={"loads": 5, "stores": 1})
    assert shown.notes == ["The question does not ask for speed, but for loads and stores."]


def test_a_name_without_a_guess_needs_no_note():
    predict.guess("traffic", laods=None, loads=5)
    assert not predict.reveal("traffic", counted={"loads": 5}).notes


def test_who_changes_what_guessed_returns_changes_no_guess():
    predict.guess("traffic", loads=5)
    predict.guessed("traffic")["loads"] = 3
    assert predict.guessed("traffic") == {"loads": 5}


def test_questions_keep_their_guesses_apart():
    predict.guess("eager", loads=5)
    predict.guess("fused", loads=1)
    assert predict.reveal("eager").rows == [["loads", "5"]]


def test_the_guess_stands_beside_each_answer_in_the_order_given():
    predict.guess("speed", times=3)
    table = predict.reveal("speed", trips_say={"times": 4}, measured={"times": 5.2345})
    assert table.head == ["speed", "your guess", "trips say", "measured"]
    assert table.rows == [["times", "3", "4", "5.234"]]


def test_without_a_guess_the_answer_is_shown_all_the_same():
    table = predict.reveal("never asked", counted={"loads": 1.0})
    assert table.rows == [["loads", "–", "1"]]
    assert table.notes == ["No guess cell was run for 'never asked'."]


def test_a_cell_run_without_a_guess_is_not_called_missing():
    predict.guess("traffic", loads=None)
    assert predict.reveal("traffic", counted={"loads": 1.0}).notes == []


def test_a_guess_without_an_answer_is_shown_all_the_same():
    predict.guess("traffic", loads=5, launches=1)
    assert predict.reveal("traffic", counted={"loads": 5.0}).rows == [["loads", "5", "5"], ["launches", "1", "–"]]


@pytest.mark.parametrize(
    ("number", "shown"),
    [
        (0.012346, "0.01235"), (5, "5"), (-5.25, "-5.25"), (999.94, "999.9"), (999.97, "1,000"),
        (1234.5678, "1,235"), (131_072, "131,072"), (2.5e9, "2,500,000,000"), (-131_072.6, "-131,073"),
        (float("inf"), "inf"),
    ],
)  # fmt: skip
def test_a_number_is_shown_with_four_digits_or_all_before_the_point(number, shown):
    assert predict.reveal("numbers", counted={"n": number}).rows == [["n", "–", shown]]


def test_quantities_come_in_the_order_in_which_they_were_guessed_and_then_answered():
    predict.guess("traffic", stores=1, loads=5)
    table = predict.reveal("traffic", counted={"launches": 1, "loads": 5, "stores": 3})
    assert [name for name, *_ in table.rows] == ["stores", "loads", "launches"]


def test_an_answer_of_nan_is_shown_as_nan():
    assert predict.reveal("sums", counted={"row": float("nan")}).rows == [["row", "–", "nan"]]


def test_a_table_as_text_is_aligned_left_first_and_right_after():
    table = Table(["name", "loads"], [["eager", "5.00"], ["a longer name", "12.00"]], ["A note."])
    assert repr(table) == "\n".join(
        [
            "name           loads",
            "eager           5.00",
            "a longer name  12.00",
            "A note.",
        ]
    )


def test_a_table_without_rows_is_its_head():
    assert repr(Table(["name", "loads"], [])) == "name  loads"


def test_a_table_as_html_has_the_same_cells():
    html = Table(["name", "loads"], [["eager", "5.00"]], ["A note."])._repr_html_()
    assert [cell in html for cell in (">name</th>", ">loads</th>", ">eager</td>", ">5.00</td>", "<p>A note.</p>")] == (
        [True] * 5
    )


def test_a_table_as_html_shows_markup_as_text():
    html = Table(["<b>", "&"], [["<script>", "1 < 2"]], ["<i>"])._repr_html_()
    for text in ("&lt;b&gt;", "&amp;", "&lt;script&gt;", "1 &lt; 2", "<p>&lt;i&gt;</p>"):
        assert text in html
    assert "<script>" not in html


@pytest.mark.parametrize("row", [["eager"], ["eager", "5.00", "3.00"]], ids=["short", "long"])
@pytest.mark.parametrize("show", [repr, Table._repr_html_], ids=["text", "html"])
def test_a_row_of_the_wrong_length_is_refused(show, row):
    with pytest.raises((ValueError, IndexError)):
        show(Table(["name", "loads"], [row]))


def test_what_has_a_table_is_shown_by_it():
    class Answer(Tabular):
        def table(self):
            return Table(["name", "loads"], [["eager", "5"]])

    assert repr(Answer()) == "name   loads\neager      5"
    assert Answer()._repr_html_() == Answer().table()._repr_html_()


def test_a_guess_may_be_a_number_of_numpy():
    predict.guess("numpy", loads=np.float32(5), stores=np.int64(3))
    assert predict.guessed("numpy") == {"loads": 5, "stores": 3}
    assert {type(value) for value in predict.guessed("numpy").values()} == {int, float}
