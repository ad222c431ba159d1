"""helpers/make/mistakes_page.py: the site's page of exercises and of the mistakes that their checks name."""

import re
from types import SimpleNamespace

from helpers.check import EXERCISES
from helpers.make.mistakes_page import mistakes_page

PAGE = mistakes_page(EXERCISES.values())
PLAIN = re.sub(r"\\(.)", r"\1", PAGE)


def test_every_exercise_has_a_heading_with_its_points():
    headings = [line for line in PLAIN.splitlines() if line.startswith("## ")]
    assert headings == [f"## {one.number} · check.{one.name}, {one.points:g} points" for one in EXERCISES.values()]


def test_every_mistake_stands_beside_its_question():
    for exercise in EXERCISES.values():
        for mistake in exercise.known:
            assert f"| {' '.join(mistake.name.split())} | {' '.join(mistake.question.split())} |" in PLAIN


def test_markdown_finds_nothing_to_format_in_a_mistake():
    mistake = SimpleNamespace(name="a | b, *c* and $d$", question="Is `x_1`\n<y>?")
    exercise = SimpleNamespace(number="1.1", name="x", points=2, about="About.", known=(mistake,))
    assert r"| a \| b, \*c\* and \$d\$ | Is \`x\_1\` \<y\>? |" in mistakes_page([exercise])
