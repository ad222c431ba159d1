"""Turns of phrase that readers stumble over are as rare, in all that readers see, as in widely read courses."""

import pytest

from prose import PARTS, TURNS, found, rate, texts_of


@pytest.mark.parametrize("turn", TURNS)
@pytest.mark.parametrize("part", PARTS)
def test_a_turn_is_no_more_frequent_than_in_courses_that_are_read(part: str, turn: str) -> None:
    hits = [f"{where}: … {near} …" for where, near in found(texts_of(part), TURNS[turn][0])]
    assert rate(part, turn) <= TURNS[turn][1], "\n".join(hits)


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
