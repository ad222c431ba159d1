"""Turns of phrase that readers stumble over stay as rare in notebooks as in widely read courses, and grow nowhere."""

import pytest

from prose import TURNS, found, rate, texts_of

LEFT = {
    "guides": dict(zip(TURNS, (1.0, 5.0, 4.5, 0.5, 4.5, 8.0), strict=True)),
    "code": dict(zip(TURNS, (3.0, 24.0, 17.0, 2.0, 3.0, 12.0), strict=True)),
}
"""In 10,000 words: what is left, mostly in docstrings, and a little more. `tests/proofs/prose.py --list` has all."""


@pytest.mark.parametrize("turn", TURNS)
def test_a_turn_is_no_more_frequent_in_notebooks_than_in_courses_that_are_read(turn: str) -> None:
    assert rate("notebooks", turn) <= TURNS[turn][1]


@pytest.mark.parametrize("turn", TURNS)
@pytest.mark.parametrize("part", LEFT)
def test_a_turn_becomes_no_more_frequent_in_guides_and_code(part: str, turn: str) -> None:
    hits = [f"{where}: … {near} …" for where, near in found(texts_of(part), TURNS[turn][0])]
    assert rate(part, turn) <= LEFT[part][turn], "\n".join(hits)


@pytest.mark.parametrize(
    ("turn", "text", "hits"),
    [
        ("is no NOUN", "This is no number. There is no number. It is no longer one.", 1),
        ("what is, as subject or object", "Keep what is subtracted. What is an SM? What it does.", 1),
        ("those that", "The rows and those that end. Those rows.", 1),
        ("as many", "As many as fit, and as many again.", 1),
        ("anew, for ever, so many", "Draw anew. So many that it ends, so many words that fit.", 1),
        ("beside", "It stands beside it, besides, and in beside.py.", 1),
    ],
)
def test_a_turn_is_found_where_it_stands(turn: str, text: str, hits: int) -> None:
    assert len(found([("a text", text)], TURNS[turn][0])) == hits
