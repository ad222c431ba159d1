"""README's tables of speeds: what they are computed from, and that they are those of the records."""

import pytest

from helpers import recorded
from helpers.make import speeds

ROW = {"dtype": "fp32", "n_rows": 4096, "n_cols": 50257, "copy_ms": 3.0}


def timed(variant, median_ms, **fields):
    return ROW | {"variant": variant, "median_ms": median_ms} | fields


def line(lines, what):
    (found,) = (line for line in lines if line.what == what)
    return dict(found.speeds)


def lines_of(softmax=(), gradient=(), few_rows=(), dimensions=(), losses=()):
    gradients = {"gradient": gradient, "few_rows": few_rows, "dimensions": dimensions}
    return speeds.lines_of_speeds({"softmax": softmax}, gradients, {"losses": losses})


def test_a_softmax_is_compared_with_a_copy_and_its_gradient_with_one_and_a_half():
    lines = lines_of([timed("torch", 6.0)], [timed("torch", 6.0)], [timed("torch", 6.0)])
    assert line(lines, "`softmax`, rows of 50,257") == {"torch": 0.5}
    assert line(lines, "its gradient, rows of 50,257") == {"torch": 0.75}
    assert line(lines, "`softmax` of 4,096 rows of 50,257") == {"torch": 0.5}


def test_layouts_of_which_a_copy_says_little_have_lines_of_their_own():
    layouts = [*speeds.LAYOUTS_APART, "dim 0 of 4096 × 16384"]
    dimensions = [
        timed(direction, number, layout=layout, direction=direction)
        for direction in ("forward", "gradient")
        for number, layout in enumerate(layouts, 1)
    ]
    found = {line.what: dict(line.speeds) for line in lines_of(dimensions=dimensions)}
    assert found["`softmax` over 131,072 rows of 512"] == {"forward": 3}
    assert found["`softmax` over channels_last"] == {"forward": 1.5}
    assert found["`softmax` over another dimension"] == {"forward": 1}
    assert found["gradient over another dimension"] == {"gradient": 1.5}


def test_a_loss_with_its_gradient_is_compared_with_a_copy_and_a_loss_alone_with_reading():
    losses = [
        timed(variant, time, **{"pass": which}, **size)
        for which in ("loss and gradient", "loss alone")
        for size in ({}, {"n_rows": 2048, "n_cols": 32000}, {"n_rows": 1})
        for variant, time in (("torch", 6.0), (speeds.READING, 1.5))
    ]
    lines = lines_of(losses=losses)
    for size in ("200 million logits and more", "2,048 rows of 32,000", "1 rows"):
        assert line(lines, f"`cross_entropy` with its gradient, {size}")["torch"] == 0.5
        assert line(lines, f"the loss alone, {size}")["torch"] == 0.25


def test_a_cell_is_a_range_one_number_or_a_dash():
    shown = speeds.table_of_speeds([speeds.Line("x", [("torch", 0.5), ("torch.softmax", 0.25), ("Liger", 0.123)])])
    assert shown.splitlines()[-1] == "| x | – | 0.25 to 0.50 | – | 0.12 | – | – |"


def test_readme_says_what_the_records_say():
    text = speeds.README.read_text(encoding="utf-8")
    assert speeds.with_speeds(text) == text, "run `python -m helpers.make.speeds`"


@pytest.mark.parametrize("gpu", recorded.by_gpu("loss"))
def test_readme_has_the_speeds_of_each_gpu_with_a_whole_record(gpu):
    assert f"<!-- speeds: {gpu} -->" in speeds.README.read_text(encoding="utf-8")


def test_what_stands_between_the_comments_is_replaced_and_nothing_else():
    text = f"a\n<!-- speeds: {recorded.REFERENCE} -->\nold\n<!-- end -->\nb\n"
    written = speeds.with_speeds(text)
    assert written.startswith(f"a\n<!-- speeds: {recorded.REFERENCE} -->\n**One NVIDIA H200**")
    assert written.endswith(".\n<!-- end -->\nb\n") and "old" not in written
