"""The tables of speeds: what they are computed from, and that they are those of the records."""

import pytest

from helpers import recorded
from helpers.measure import speeds

ROW = {"dtype": "fp32", "n_rows": 4096, "n_cols": 50257, "copy_ms": 3.0}
START, END = f"<!-- speeds: {recorded.REFERENCE} -->\n", "<!-- end -->\n"


def timed(variant, median_ms, **fields):
    return ROW | {"variant": variant, "median_ms": median_ms} | fields


def speeds_of(softmax=(), few=(), gradient=(), few_rows=(), dimensions=(), losses=(), images=(), plan=None):
    softmaxes = {"softmax": softmax, "few_rows": few}
    gradients = {"gradient": gradient, "few_rows": few_rows, "dimensions": dimensions}
    found = speeds.speeds_of(softmaxes, gradients, {"losses": losses, "images": images}, plan)
    return {(speed.line, speed.whose): speed.least_ms / speed.ms for speed in found}


def test_a_softmax_is_compared_with_a_copy_and_its_gradient_with_one_and_a_half():
    assert speeds_of(softmax=[timed("torch", 6.0)]) == {("`softmax`, rows of 50,257", "torch"): 0.5}
    assert speeds_of(gradient=[timed("torch", 6.0)]) == {("gradient, rows of 50,257", "torch"): 0.75}


def test_of_short_rows_the_planned_launch_counts():
    plans = [["fp32", 2**22, 16, 3000.0, [["planned", 4000.0], ["another", 3000.0]]], ["fp32", 2**18, 256, 1.0, []]]
    assert speeds_of(plan={"plans": plans}) == {("`softmax`, rows of 16", "helpers.softmax"): 0.75}


def test_few_rows_of_both_records_are_compared_with_one_copy_for_each_shape():
    few = [timed("torch", 6.0, copy_ms=3.0), timed("Liger", 6.0, copy_ms=3.0)]
    again = [timed("helpers.softmax", 4.0, copy_ms=5.0), timed("cluster", 8.0, n_rows=1, copy_ms=2.0)]
    line = "`softmax`, 1 to 4,096 rows of 50,257"
    assert speeds_of(few=few, few_rows=again) == {
        (line, "torch"): 4 / 6,
        (line, "Liger"): 4 / 6,
        (line, "helpers.softmax"): 1,
        (line, "cluster"): 0.25,
    }


def test_columns_that_are_read_twice_stand_apart_and_channels_last_is_compared_with_as_many_bytes():
    dimensions = [
        timed(layout, 6.0, layout=layout, direction=direction, copy_ms=copy_ms)
        for direction in ("forward", "gradient")
        for layout, copy_ms in ((speeds.READ_TWICE, 2.0), (speeds.AS_MANY_BYTES, 3.0), (speeds.CHANNELS_LAST, 24.0))
    ]
    assert speeds_of(dimensions=dimensions) == {
        ("`softmax` over 131,072 rows of 512", speeds.READ_TWICE): 2 / 6,
        ("`softmax` over another dimension", speeds.AS_MANY_BYTES): 0.5,
        ("`softmax` over another dimension", speeds.CHANNELS_LAST): 0.5,
        ("gradient over 131,072 rows of 512", speeds.READ_TWICE): 0.5,
        ("gradient over another dimension", speeds.AS_MANY_BYTES): 0.75,
        ("gradient over another dimension", speeds.CHANNELS_LAST): 0.75,
    }


def test_a_loss_with_its_gradient_is_compared_with_a_copy_and_a_loss_alone_with_reading_its_shape():
    sizes = {
        "200 million logits and more": ({}, 1.5),
        "2,048 rows of 32,000 in bf16": ({"dtype": "bf16", "n_rows": 2048, "n_cols": 32000}, 1.2),
        "256 rows in fp32": ({"n_rows": 256, "n_cols": 10**6}, 0.6),
    }
    losses = [
        timed(variant, time, **{"pass": which}, **shape)
        for shape, reading in sizes.values()
        for which in ("loss and gradient", "loss alone", "forward")
        for variant, time in (("torch", 6.0), (speeds.READING, reading))
    ]
    found = speeds_of(losses=losses)
    assert {line for line, _ in found} == {
        f"{name}, {size}" for name in ("`cross_entropy` and gradient", "loss alone") for size in sizes
    }
    for size, (_, reading) in sizes.items():
        assert found[f"`cross_entropy` and gradient, {size}", "torch"] == 0.5
        assert found[f"loss alone, {size}", "torch"] == reading / 6


def test_a_loss_of_images_is_compared_as_that_of_rows_is():
    images = [
        timed(variant, time, layout="8 × 21 × 512 × 512", **{"pass": which})
        for which in ("loss and gradient", "loss alone", "forward")
        for variant, time in (("torch", 6.0), (speeds.READING, 1.5))
    ]
    found = speeds_of(images=images)
    assert found["`cross_entropy` and gradient, images", "torch"] == 0.5
    assert found["loss alone, images", "torch"] == 0.25


def test_a_cell_is_a_range_one_number_or_a_dash():
    shown = speeds.table_of_speeds(
        speeds.Speed("x", (), whose, speed, 1.0)
        for whose, speed in (("torch", 0.5), ("torch.softmax", 0.25), ("Liger", 0.00123), ("two-pass", 0.7))
    )
    assert shown.splitlines()[-1] == "| x | – | 0.25–\N{WORD JOINER}0.50 | – | 0.001 | – | – |"


def test_who_is_ahead_is_told_by_time_at_each_shape():
    at = [
        speeds.Speed("x", shape, whose, least, ms)
        for shape, whose, least, ms in (
            (1, "helpers.softmax", 4, 5), (1, "torch", 5, 6),  # the higher speed, for its own slower copy
            (2, "helpers.softmax", 4, 5), (2, "Liger", 4, 4), (2, "QuACK", 4, 4.5),
            (3, "helpers.softmax", 4, 5), (3, "two-pass", 4, 3),  # in no column
            (4, "torch", 4, 5), (4, "Liger", 4, 3),  # and none of ours
        )
    ]  # fmt: skip
    timed_too = "Of {} cases in which another was timed, {}."
    assert speeds.others_ahead(at) == timed_too.format(2, "one took less time than ours in 1, by 20.0 % at most")
    assert speeds.others_ahead(at[:2]) == timed_too.format(1, "none took less time than ours in any")


def test_the_time_of_a_call_is_that_of_all_its_shapes():
    host = [
        {"variant": variant, "what": what, "n_rows": n_rows, "n_cols": 64, "us": us + extra + n_rows / 4}
        for variant, us in (("helpers.softmax", 9.0), ("torch.softmax", 7.0))
        for what, extra in (("forward", 0), ("forward for a gradient", 5), ("forward and gradient", 90))
        for n_rows in (1, 2)
    ]
    assert speeds.table_of_calls(host).replace(speeds._DASH, "-").splitlines() == [
        "| µs of the CPU for a call, 1 × 64 and 2 × 64 | ours | torch |",
        "| --- | --- | --- |",
        "| forward | 9.2-9.5 | 7.2-7.5 |",
        "| forward, where x requires a gradient | 14.2-14.5 | 12.2-12.5 |",
        "| forward and gradient | 99.2-99.5 | 97.2-97.5 |",
    ]


@pytest.mark.parametrize(
    ("page", "start"), [(speeds.SPEED, START), (speeds.README, START.replace(" -->", ", in short -->"))]
)
def test_the_pages_say_what_the_records_say_of_the_reference(page, start):
    text = page.read_text(encoding="utf-8")
    assert speeds.with_speeds(text) == text, "run `python -m helpers.measure.speeds`"
    assert start in text


def test_the_short_table_has_a_line_for_each_of_its_names():
    lines = speeds.speeds_in_short(recorded.REFERENCE).splitlines()
    assert [line.split(" | ")[0] for line in lines[2:]] == [f"| {name}" for name in speeds.IN_SHORT.values()]


def test_what_stands_between_the_comments_is_replaced_and_nothing_else():
    written = speeds.with_speeds(f"a\n{START}old\n{END}b\n")
    assert written.startswith(f"a\n{START}**One {recorded.REFERENCE}**")
    assert written.endswith(f" |\n{END}b\n") and "old" not in written


@pytest.mark.parametrize("text", [f"{START}old\n", START.replace(" -->\n", " --> \n") + END])
def test_a_part_without_an_end_is_refused(text):
    with pytest.raises(ValueError, match="needs a line of its own, and '<!-- end -->' after it"):
        speeds.with_speeds(text)
