"""Every figure: a picture that is not blank, words that say its figures, and no complaint from matplotlib."""

import base64
import inspect
import io
import math
import re

import pytest
import torch
from PIL import Image

from helpers import DEVICE, draw, timing, traffic

INF = math.inf
ORIGIN = "recorded on one NVIDIA Example, 2026-01-02"
COMPARISON = timing.Comparison(
    tuple(
        timing.Row(variant, "fp32", 2**28 // n_cols, n_cols, ms, ms, ms, copy_ms=0.5)
        for n_cols, times in {1024: (2.0, 0.625), 4096: (2.5, 0.5)}.items()
        for variant, ms in zip(("eager", "online"), times, strict=True)
    ),
    ORIGIN,
)
GBPS = {"DRAM": 4300.0, "L2": 9200.0, "L1": 32_000.0, "registers": 391_000.0}

PICTURES = {
    "ladder": (lambda: draw.ladder({"eager": (5.01, 3.02), "copy": (1, 1)}), "eager 5.01 loads and 3.02 stores; copy"),
    "accesses": (lambda: draw.accesses({0: [1, 1, 1, 0]}, {0: [1, 1, 1, 1]}), "columns 0 to 2 once, column 3 never"),
    "lanes": (
        lambda: draw.lanes(5, 8),
        "8 lanes over a row of 5 columns, the last 3 lanes masked off and holding −inf",
    ),
    "grid": (lambda: draw.grid(4, 8), "4 rows and 8 columns; program i works on row i"),
    "passes": (
        lambda: draw.passes(11, 4, ("maximum", "sum", "write")),
        "11 columns in 3 tiles of 4, the last lane masked off, gone through for maximum, then sum, then write",
    ),
    "memory": (
        lambda: draw.memory(GBPS),
        "One of 132 SMs, in four parts, each with registers of its own; from top to bottom: a program computes here, "
        "132 × 256 kB, 391.0 TB/s; shared memory and L1, one in each SM, 132 × 256 kB, 32.0 TB/s; L2 cache, one for "
        "all SMs, 60 MB, 9.2 TB/s; DRAM: your tensors, 141 GB, 4.3 TB/s.",
    ),
    "two_launches": (lambda: draw.two_launches(3), "a row in 3 slices. In the first each program loads its slice and"),
    "one_launch": (lambda: draw.one_launch(3), "a row in 3 slices. Each program loads its slice once, keeps it"),
    "score_tiles": (
        lambda: draw.score_tiles(100, 100, 64, 32, causal=True),
        "100 queries and 100 keys: 2 programs of 64 queries, each with 4 tiles of 32 keys; causal, of all tiles: "
        "2 every key is seen, 4 masked in part, 2 never loaded",
    ),
    "tensor_core": (draw.tensor_core, "A tile of 64 queries times a tile of 128 keys, turned over, gives"),
    "limits": (
        lambda: draw.limits(9, 6, 3, {"load": 1, "compute": 2.5, "rest": 1.5}),
        "memory 9 µs, instructions 6 µs, 3 turns of 5 µs (load 1, compute 2.5, rest 1.5). It takes as long as the "
        "longest: turns.",
    ),
    "variants": (draw.variants, "single tile, one row a program; several rows, several rows a program, at once; split"),
    "trace": (
        lambda: draw.trace([2, 1, 4, 3], 2),
        "block 1: m = 2, no old l, l = 1.368; block 2: m = 4, old l × 0.135, l = 1.553",
    ),
    "choice": (
        lambda: draw.choice(
            5,
            8,
            gbps={"online": 50.0, "several rows": None, "eager": 9.0},
            copy_gbps=60.0,
            marks={"online": ("choice", "best")},
            origin="made up",
        ),
        "5 columns in 1 tile of 8. online 50 GB/s, choice, best; several rows not timed here; eager 9 GB/s; a copy of",
    ),
    "speedups": (
        lambda: draw.speedups({"as published": 4.5, "all columns": 0.8}, ORIGIN),
        "is said to be, step by step: as published 4.50; all columns 0.80",
    ),
    "bandwidth": (lambda: draw.bandwidth(COMPARISON), "At 4,096 columns, of copy: eager 0.20, online 1.00"),
}
"""An example of every figure, and what its words have to say."""

pytestmark = pytest.mark.filterwarnings("error")
each_picture = pytest.mark.parametrize("name", PICTURES)


def drawn(name):
    return PICTURES[name][0]()


def pixels(picture):
    """The picture as decoded from its PNG, pixel by pixel; raises where the PNG is damaged."""
    with Image.open(io.BytesIO(picture.png())) as image:
        assert image.format == "PNG"
        image.load()
        return image.convert("RGB")


def is_blank(picture):
    lowest_and_highest = pixels(picture).getextrema()
    return all(low == high for low, high in lowest_and_highest)


def texts(picture):
    """All words that stand in the figure itself."""
    return [text.get_text() for text in picture.figure.findobj(lambda artist: hasattr(artist, "get_text"))]


def test_every_figure_of_the_module_has_an_example_here():
    functions = inspect.getmembers(draw, inspect.isfunction)
    figures = {name for name, function in functions if function.__annotations__.get("return") == "Picture"}
    assert figures == set(PICTURES)


@pytest.mark.thinned
@each_picture
def test_the_png_is_valid_and_not_blank(name):
    assert not is_blank(drawn(name))


@each_picture
def test_the_words_say_the_figures(name):
    assert PICTURES[name][1] in drawn(name).alt


@each_picture
def test_the_words_are_one_line_that_ends_like_a_sentence(name):
    assert re.fullmatch(r"[A-Z].*\.", drawn(name).alt)


@each_picture
def test_as_text_a_picture_is_its_words(name):
    picture = drawn(name)
    assert repr(picture) == picture.alt


def test_the_png_has_twice_the_resolution_that_the_html_asks_for():
    picture = draw.grid(2, 3)
    (width,) = re.findall(r'<img width="(\d+)"', picture._repr_html_())
    assert pixels(picture).width == pytest.approx(2 * int(width), abs=2)


def test_without_its_inside_the_memory_has_the_same_levels_and_no_multiprocessor():
    picture = draw.memory(GBPS, inside=False)
    assert picture.alt.startswith(
        "From top to bottom: a program computes here, 132 × 256 kB, 391.0 TB/s; shared memory"
    )
    assert set(texts(picture)) < set(texts(drawn("memory"))) and not any("warp" in text for text in texts(picture))


def test_too_many_tiles_of_scores_are_refused():
    with pytest.raises(ValueError, match="65 × 1 tiles are too many to draw"):
        draw.score_tiles(65, 1, 1, 1)


@pytest.mark.parametrize(("memory", "longest"), [(9, "turns"), (16, "memory")])
def test_the_longest_limit_is_marked(memory, longest):
    picture = draw.limits(memory, 6, 3, {"load": 1, "compute": 2.5, "rest": 1.5})
    (marked,) = [text for text in texts(picture) if "the longest" in text]
    assert marked.startswith(f"{max(memory, 15)} µs") and picture.alt.endswith(f"the longest: {longest}.")


@pytest.mark.parametrize(
    "limits", [(0, 6, 3, {"load": 1}), (9, 6, 3, {}), (9, 6, 3, {"load": -1}), (9, 6, 0, {"load": 1})]
)
def test_limits_that_are_no_times_are_refused(limits):
    with pytest.raises(ValueError, match="limits draws times above 0|turns must be"):
        draw.limits(*limits)


@pytest.mark.parametrize("figure", [draw.two_launches, draw.one_launch])
@pytest.mark.parametrize("parts", [0, 9])
def test_a_row_in_no_slices_or_too_many_is_refused(figure, parts):
    with pytest.raises(ValueError, match=f"parts must be between 1 and 8, or the picture is too wide; it is {parts}"):
        figure(parts)


def test_the_html_carries_the_png_and_the_words():
    picture = draw.lanes(5, 8)
    ((words, content),) = re.findall(r'alt="(.*)" src="data:image/png;base64,(.*)">', picture._repr_html_())
    assert words == picture.alt
    with Image.open(io.BytesIO(base64.b64decode(content))) as image:
        image.verify()


def test_the_html_shows_markup_in_the_words_as_text():
    html = draw.lanes(1, 2, other='"><script>')._repr_html_()
    assert "<script>" not in html


# The ladder


def test_the_ladder_takes_counted_traffic_as_it_is():
    counted = traffic.count(torch.clone, torch.zeros(3, 5, device=DEVICE))
    assert "clone 1.00 loads and 1.00 stores" in draw.ladder({"clone": counted}).alt


def test_the_ladder_writes_the_counts_beside_the_bars():
    assert "5.01 + 3.02" in texts(drawn("ladder"))


def test_the_bars_of_stores_go_on_where_those_of_loads_end():
    bars = drawn("ladder").figure.axes[0].patches
    ends = [(bar.get_x(), bar.get_x() + bar.get_width(), bar.get_y() + bar.get_height() / 2) for bar in bars]
    assert ends == [pytest.approx(end) for end in [(0, 5.01, 0), (5.01, 8.03, 0), (0, 1, 1), (1, 2, 1)]]


def test_the_ladder_begins_with_the_first_name_at_the_top():
    axes = drawn("ladder").figure.axes[0]
    assert [label.get_text() for label in axes.get_yticklabels()] == ["eager", "copy"] and axes.yaxis_inverted()


def test_the_ladder_may_hold_something_that_moves_nothing():
    assert not is_blank(draw.ladder({"a view": (0, 0)}))


def test_a_ladder_of_nothing_is_refused():
    with pytest.raises(ValueError, match="nothing to draw: give ladder at least one count"):
        draw.ladder({})


def test_a_ladder_of_counts_without_a_name_is_refused():
    counted = traffic.count(torch.clone, torch.zeros(3, 5, device=DEVICE))
    with pytest.raises(TypeError, match=r'as in ladder\(\{"eager": traffic\}\); got a Traffic'):
        draw.ladder(counted)


@pytest.mark.parametrize(
    "count", [5.01, (1,), (1, 1, 1), ("5", "3"), torch.clone], ids=["a number", "one", "three", "strings", "a function"]
)
def test_a_ladder_refuses_a_count_that_is_none_by_its_name(count):
    with pytest.raises(TypeError, match="the count of 'eager' must be what traffic.count returns"):
        draw.ladder({"eager": count})


# The speed-ups


def test_every_step_has_its_figure_beside_its_bar():
    assert {"4.50 ×", "0.80 ×", "as published", "all columns", ORIGIN} <= set(texts(drawn("speedups")))


@pytest.mark.parametrize("steps", [{}, {"as published": 0.0}, {"as published": INF - INF}], ids=str)
def test_speedups_that_are_none_are_refused(steps):
    with pytest.raises(ValueError, match="speedups draws numbers above 0 by name"):
        draw.speedups(steps)


def test_a_speedup_s_bar_goes_from_1_to_it():
    first, last = drawn("speedups").figure.axes[0].patches
    assert (first.get_x(), first.get_x() + first.get_width()) == (1, pytest.approx(4.5))
    assert (last.get_x(), last.get_x() + last.get_width()) == (1, pytest.approx(0.8))


# The tile


def test_a_tile_that_fits_has_no_masked_lanes():
    assert draw.lanes(8, 8).alt == "A tile of 8 lanes over a row of 8 columns."


def test_a_tile_speaks_of_one_column_and_one_lane():
    picture = draw.lanes(1, 2)
    assert picture.alt == "A tile of 2 lanes over a row of 1 column, the last lane masked off and holding −inf."
    assert {"1 column", "1 lane masked off"} < set(texts(picture))


@pytest.mark.parametrize(
    ("n_cols", "BLOCK", "values", "fault"),
    [
        (8, 5, None, "a tile of BLOCK=5 lanes cannot hold a row of 8 columns"),
        (0, 5, None, "n_cols must be a whole number of at least 1; it is 0"),
        (2, 4, [1.0], "a value for each of the 2 columns; there are 1"),
    ],
)
def test_a_tile_that_cannot_be_is_refused(n_cols, BLOCK, values, fault):
    with pytest.raises(ValueError, match=fault):
        draw.lanes(n_cols, BLOCK, values)


def test_a_tile_shows_the_values_given_and_other_in_the_masked_lanes():
    shown = texts(draw.lanes(3, 4, values=[1.5, -2, -INF], other="?"))
    assert [text for text in shown if text in ("1.5", "-2", "-inf", "?")] == ["1.5", "-2", "-inf", "?"]


# The grid


def test_each_row_of_the_grid_says_on_its_left_where_it_begins():
    figure = draw.grid(2, 3).figure
    begins = {text.get_text(): text for text in figure.axes[0].texts if not text.get_text().isdigit()}
    assert list(begins) == ["program 0", "x_ptr + 0 · stride →", "program 1", "x_ptr + 1 · stride →"]
    assert all(text.get_position()[0] < 0 and text.get_horizontalalignment() == "right" for text in begins.values())


def test_each_cell_of_the_grid_has_the_number_of_its_element():
    numbers = [text for text in draw.grid(2, 3).figure.axes[0].texts if text.get_text().isdigit()]
    assert [text.get_text() for text in numbers] == ["0", "1", "2", "3", "4", "5"]
    assert [text.get_position()[1] for text in numbers] == pytest.approx([0.4] * 3 + [1.4] * 3)


@pytest.mark.parametrize(("n_rows", "n_cols"), [(33, 8), (4, 33)])
def test_a_grid_too_large_to_be_read_is_refused(n_rows, n_cols):
    with pytest.raises(ValueError, match=f"at most 32 rows and 32 columns; these are {n_rows} and {n_cols}"):
        draw.grid(n_rows, n_cols)


@pytest.mark.parametrize(("n_rows", "n_cols", "name"), [(0, 8, "n_rows"), (4, 0, "n_cols")])
def test_a_grid_of_nothing_is_refused(n_rows, n_cols, name):
    with pytest.raises(ValueError, match=f"{name} must be a whole number of at least 1; it is 0"):
        draw.grid(n_rows, n_cols)


def test_the_largest_grid_is_drawn():
    assert not is_blank(draw.grid(32, 32))


# The passes


def test_the_loads_of_all_passes_are_numbered_in_order():
    shown = [text for text in texts(drawn("passes")) if text.isdigit()]
    assert shown == [str(number) for number in range(1, 10)]


def test_passes_over_a_row_that_the_tiles_fit_have_no_masked_lanes():
    assert draw.passes(8, 4, ["sum"]).alt == "A row of 8 columns in 2 tiles of 4, gone through for sum."


def test_passes_speak_of_several_lanes_masked_off():
    assert "in 3 tiles of 4, the last 2 lanes masked off, gone" in draw.passes(10, 4, ["sum"]).alt


@pytest.mark.parametrize(
    ("n_cols", "BLOCK", "names", "fault"),
    [
        (0, 4, ["sum"], "n_cols must be a whole number of at least 1; it is 0"),
        (8, 0, ["sum"], "BLOCK must be a whole number of at least 1; it is 0"),
        (8, 4, [], "give at least one pass"),
    ],
)
def test_passes_over_nothing_are_refused(n_cols, BLOCK, names, fault):
    with pytest.raises(ValueError, match=fault):
        draw.passes(n_cols, BLOCK, names)


# The online recurrence


def reference(x, BLOCK):
    """m and l after each block, from all elements so far, without any recurrence."""
    for end in range(BLOCK, len(x) + BLOCK, BLOCK):
        m = max(x[:end])
        yield m, math.fsum(math.exp(value - m) for value in x[:end]) if m > -INF else 0.0


ROWS = {
    "descending": [3.0, 2.0, 1.0, 0.0, -1.0],
    "ascending": [-1.0, 0.0, 1.0, 2.0, 3.0],
    "steep": [-700.0, 0.0, 700.0, 710.0],
    "random": torch.randn(17, dtype=torch.float64, generator=torch.Generator().manual_seed(0)).mul(9).tolist(),
    "integers": [2, 1, 0, -1, 4, 3, 1, 5],
    "−inf first": [-INF, -INF, -INF, 1.0, 2.0, 0.0],
    "−inf last": [1.0, 2.0, -INF, -INF],
    "−inf scattered": [-INF, 0.5, -INF, -3.0, 7.0, -INF],
    "only −inf": [-INF, -INF, -INF],
}
each_row = pytest.mark.parametrize("row", ROWS.values(), ids=ROWS.keys())
each_block = pytest.mark.parametrize("BLOCK", [1, 2, 3, 64])


@each_row
@each_block
def test_steps_hold_the_maximum_and_the_sum_of_all_elements_so_far(row, BLOCK):
    states = draw.steps(row, BLOCK)
    expected = list(reference(row, BLOCK))
    assert [m for m, _, _ in states] == [m for m, _ in expected]
    assert [l for _, l, _ in states] == pytest.approx([l for _, l in expected], rel=1e-12, abs=0)


@each_row
@each_block
def test_the_factor_of_a_step_is_what_the_old_sum_was_multiplied_by(row, BLOCK):
    before = -INF
    for m, _, factor in draw.steps(row, BLOCK):
        assert factor == (0.0 if before == -INF else pytest.approx(math.exp(before - m), rel=1e-12, abs=0))
        before = m


def test_the_trace_writes_each_step_under_its_block():
    shown = texts(draw.trace([2, 1, 4, 3], 2))
    assert "block 1\nm = 2\nno old l\nl = 1.368" in shown
    assert "block 2\nm = 4\nold l × 0.135\nl = 1.553" in shown


def test_the_trace_takes_a_tensor():
    assert draw.trace(torch.tensor([2.0, 1, 4, 3]), 2).alt == draw.trace([2, 1, 4, 3], 2).alt


@pytest.mark.parametrize(
    ("x", "BLOCK", "fault"),
    [
        ([], 2, "x must hold at least one number"),
        ([1.0], 0, "BLOCK must be a whole number of at least 1; it is 0"),
        ([1.0, INF], 2, "x holds .inf or NaN"),
        ([math.nan], 2, "x holds .inf or NaN"),
    ],
)
def test_a_trace_of_what_cannot_be_drawn_is_refused(x, BLOCK, fault):
    with pytest.raises(ValueError, match=fault):
        draw.trace(x, BLOCK)


@pytest.mark.parametrize("row", [[3.0], [0.0, 0.0], [-5.0, -7.0, -6.0]], ids=["one element", "only 0", "all negative"])
def test_the_trace_draws_a_row(row):
    assert not is_blank(draw.trace(row, 2))


@pytest.mark.parametrize("name", [name for name in ROWS if "−inf" in name])
def test_the_trace_draws_a_row_with(name):
    picture = draw.trace(ROWS[name], 2)
    assert not is_blank(picture)
    assert texts(picture).count("−inf") == ROWS[name].count(-INF)


def test_the_words_of_a_trace_that_begins_with_minus_infinity():
    assert "block 1: m = −inf, no old l, l = 0; block 2: m = 1, old l × 0, l = 1" in draw.trace([-INF, 1.0], 1).alt


# The bandwidth


def test_the_bandwidth_says_of_which_dtype_it_is_and_where_it_was_measured():
    assert f"fp32, {ORIGIN}" in texts(drawn("bandwidth"))


@pytest.mark.parametrize("other", [None, [], {}], ids=repr)
def test_anything_but_a_comparison_is_refused(other):
    with pytest.raises(TypeError, match="draw.bandwidth draws what timing.compare returns; it is "):
        draw.bandwidth(other)


def test_the_bandwidth_is_that_of_input_and_output_under_the_roof_of_the_copy():
    axes = draw.bandwidth(COMPARISON).figure.axes[0]
    lines = {line.get_label(): list(line.get_ydata()) for line in axes.lines}
    assert lines == {
        "copy of the same bytes": pytest.approx([4294.967, 4294.967]),
        "eager": pytest.approx([1073.742, 858.993]),
        "online": pytest.approx([3435.974, 4294.967]),
    }


def test_the_numbers_on_the_axes_have_commas_between_their_thousands():
    axes = draw.bandwidth(COMPARISON).figure.axes[0]
    assert [label.get_text() for label in axes.get_xticklabels()] == ["1,024", "4,096"]
    assert "4,000" in [label.get_text() for label in axes.get_yticklabels()]


def test_the_bandwidth_leaves_out_lengths_that_a_variant_cannot_take():
    shorter = timing.Comparison(COMPARISON.rows[:-1], ORIGIN)
    lines = {line.get_label(): list(line.get_xdata()) for line in draw.bandwidth(shorter).figure.axes[0].lines}
    assert (lines["eager"], lines["online"]) == ([1024, 4096], [1024])


def test_the_bandwidth_draws_all_the_variants_recorded_and_yours():
    variants = [f"variant {number}" for number in range(15)]
    rows = tuple(timing.Row(variant, "fp32", 1024, 1024, 1.0, 1.0, 1.0, 0.5) for variant in variants)
    lines = draw.bandwidth(timing.Comparison(rows, ORIGIN)).figure.axes[0].lines[1:]
    assert [line.get_label() for line in lines] == variants
    assert len({(line.get_color(), line.get_linestyle(), line.get_marker()) for line in lines}) == len(variants)


def test_the_variants_of_one_lesson_have_colours_of_their_own():
    variants = ["eager", "torch.softmax", "torch.compile", "single tile", "yours"]
    rows = tuple(timing.Row(variant, "fp32", 1024, 1024, 1.0, 1.0, 1.0, 0.5) for variant in variants)
    lines = draw.bandwidth(timing.Comparison(rows, ORIGIN)).figure.axes[0].lines[1:]
    assert len({line.get_color() for line in lines}) == len(variants)


def test_the_bandwidth_of_nothing_recorded_says_so():
    with pytest.raises(ValueError, match="nothing to draw: the comparison has no rows for mine. On a GPU"):
        draw.bandwidth(timing.Comparison((), ORIGIN, missing=("mine",)))


def test_in_a_dark_theme_of_jupyterlab_the_picture_is_inverted_and_elsewhere_it_is_not():
    """Themes set the number: 0 where they are light, 32 where they are dark; nothing else does."""
    (style,) = re.findall(r'<img [^>]*style="(.*?)"', draw.grid(2, 3)._repr_html_())
    number = "calc(var(--jp-shadow-base-lightness, 0) / 32)"
    assert style == f"filter: invert({number}) hue-rotate(calc({number} * 180deg))"


def test_accesses_says_which_columns_were_loaded_and_stored_how_often():
    picture = draw.accesses({0: [1, 1, 1, 0]}, {0: [2, 2, 1, 1], 2: [0, 1, 0, 1]})
    assert picture.alt == (
        "Loads from x, row 0: columns 0 to 2 once, column 3 never; "
        "stores to y, row 0: columns 0 to 1 twice, columns 2 to 3 once; "
        "stores to y, row 2: column 0 never, column 1 once, column 2 never, column 3 once."
    )
    with pytest.raises(ValueError, match="nothing to draw"):
        draw.accesses({}, {})
