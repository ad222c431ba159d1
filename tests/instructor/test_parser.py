"""What learners write is parsed in one place, which raises nothing but NotPython, whatever the text is."""

import random
from contextlib import suppress

import pytest

from helpers.instructor.grade import origin
from helpers.instructor.publish import editions
from helpers.instructor.report import understood
from helpers.instructor.sandbox import cells, language, parser, shell, wire

PARTS = (
    "%", "%%", "!", "!!", "?", "??", "%time", "%%time", "%env A=0", "x = %'''", "x = !ls", "'", '"', "'''", '"""',
    "\\", "\\\n", "(", ")", "[", "]", "{", "}", ":", ";", ",", "\n", "\n", "\r", "\r\n", "\t", " ", "    ", "\f",
    "\v", "\0", "\ud800", "\udfff", "\x1c", "\x85", "\u2028", "\N{NO-BREAK SPACE}", "\N{ZERO WIDTH SPACE}", "\ufeff",
    "é", "ℯ", "def f(x):", "@triton.jit\n", "return", "lambda", "x", "=", ":=", "f'", "f'{", "}'", "b'", "1", "0x",
    "1_", "async ", "await ", "for x in ", "if ", "else", "class A:", "@", "#", "# coding: none\n", "-", "not ", "*",
    "**", "...", "->", "import ", "from ", "match x:", "case ", "global x", "nonlocal x", "__debug__", "yield ",
    "In [1]: ", ">>> ", "/f x", ";f x", "%%writefile a.py\n", "import triton\nimport triton.language as tl\n",
)  # fmt: skip
DEEP = [
    "(" * 300, "x = " + "-" * 200_000 + "1", "x" + ".x" * 100_000, "x" + "[x" * 5_000, "not " * 20_000 + "x",
    "f(" * 150 + ")" * 150, "+".join(["x"] * 50_000), "\n".join("    " * n + "if x:" for n in range(150)),
    "\n".join(" " * n + "def f():" for n in range(99)) + "\n" + " " * 99 + "pass", "lambda: " * 5_000 + "1",
    "f'{" * 200, "\n".join(["!ls"] * 600), "\n".join(["!ls"] * 40) + "\nx = %'''",
]  # fmt: skip
"""Texts that nest deeper, or hold more magics, than the tools that read Python and Jupyter's magics take."""


def texts(count):
    chosen = random.Random(0)
    return ["".join(chosen.choices(PARTS, k=chosen.randint(1, 14))) for _ in range(count)]


def read_everywhere(text):
    """Reads a text in every place that parses what a learner has written."""
    read = cells.bound(text), cells.names_read(text), cells.needed([text], "x", [0])
    kept = understood.statements(text), origin.is_borrowed("", [text], [text]), editions.fingerprint(text)
    shell._failure(0, IndexError("list index out of range"), text)
    with suppress(language.NotTriton):
        language.require(text)
    return *read, *kept, wire.decode(text)


@pytest.mark.thinned(0)
def test_no_text_raises_in_the_grader():
    for text in texts(1_500):
        read_everywhere(text)


@pytest.mark.thinned
@pytest.mark.parametrize("number", range(len(DEEP)))
def test_no_depth_raises_in_the_grader(number):
    read_everywhere(DEEP[number])


def test_a_cell_that_jupyter_cannot_read_is_named_with_its_line():
    with pytest.raises(parser.NotPython, match="IndexError") as unread:
        parser.as_python("a = 1\n\nx = %'''\nb = 2")
    assert unread.value.line == 3


def test_python_s_own_refusal_has_its_line():
    with pytest.raises(parser.NotPython, match="invalid syntax") as unread:
        parser.tree_of("x = 1\nx = = 2")
    assert unread.value.line == 2


@pytest.mark.parametrize("end", ["\n", "\r\n", "\r"], ids=["n", "rn", "r"])
def test_a_carriage_return_ends_a_line_as_it_does_in_python(end):
    cell = f"def answer(x):{end}    return 2 * x{end}{end}answer(2)"
    assert wire.decode(parser.with_line_ends(cell)) == cell.replace(end, "\n")
    assert "\ufffd" not in wire.decode(cell) and cells.bound(wire.decode(cell)) == {"answer"}


def test_a_long_cell_with_many_magics_is_not_read_for_minutes():
    with pytest.raises(parser.NotPython, match="these magics"):
        parser.as_python("\n".join(["!ls"] * 499 + ["x = 1234 + 4567"] * 60_000))


@pytest.mark.thinned(0)
def test_a_cell_without_magics_may_be_as_long_as_a_notebook():
    assert cells.bound("x = 1234 + 4567\n" * 60_000) == {"x"}


@pytest.mark.thinned(0)
def test_a_function_longer_than_any_kernel_is_none_of_the_course():
    long = "\n".join(" " * n + "def f():" for n in range(99)) + "\n" + " " * 99 + ";".join(["x = y"] * 20_000)
    assert origin._bodies([long]) == set()
