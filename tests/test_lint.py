"""`make lint` finds what it looks for."""

import shutil

import pytest

import house
from prose import TURNS, found


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
def test_a_turn_is_found_where_it_stands(turn, text, hits):
    assert len(found([("a text", text)], TURNS[turn][0])) == hits


SOURCE = """
import imported
from package import also_imported

A: int = 1
B, (C, D) = 1, (2, 3)
for E in (1, 2):
    pass
imported.attribute, B[0] = 1, 2
_PRIVATE = 1


def function():
    inner = 1


async def asynchronous(): ...


class Class:
    of_class = 1
"""


def test_what_a_module_defines_is_found():
    assert house.defined(SOURCE) == {"A", "B", "C", "D", "E", "function", "asynchronous", "Class"}


@pytest.mark.parametrize(
    ("rule", "name", "text"),
    [
        (house.top_of_helpers, "helpers/of_nobody.py", ""),
        (house.doubled_names, "helpers/of_nobody.py", "def log_softmax(): ..."),
        (house.doubled_mistakes, "helpers/check/of_nobody.py", 'Mistake("no_kernel", "", "", 0, None)'),
        (house.private_parts, "helpers/of_nobody.py", "from triton.runtime import jit"),
        (house.private_parts, "helpers/of_nobody.py", "import triton\ntriton.runtime.jit.JITFunction"),
        (house.private_parts, "helpers/of_nobody.py", "from torch.distributed import _symmetric_memory"),
        (house.private_parts, "helpers/of_nobody.py", "import torch.distributed as dist\ndist.Backend._plugins"),
        (house.private_parts, "helpers/of_nobody.py", 'import_module("torch._dynamo")'),
        (house.long_test_files, "tests/test_of_nobody.py", "\n" * 501),
        (house.one_letter_for_the_sum, "helpers/of_nobody.py", "# \N{SCRIPT SMALL L}"),
    ],
)
def test_a_rule_names_the_place_that_breaks_it(rule, name, text, tmp_path):
    ignored = shutil.ignore_patterns("__pycache__", "recorded")
    for folder in ("helpers", "lessons"):
        shutil.copytree(house.ROOT / folder, tmp_path / folder, ignore=ignored)
    before = set(rule(tmp_path))
    (tmp_path / name).parent.mkdir(exist_ok=True)
    (tmp_path / name).write_text(text, encoding="utf-8")
    (place,) = set(rule(tmp_path)) - before
    assert "of_nobody" in place
