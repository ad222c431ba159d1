"""helpers/measure/chart.py: the record's page of the site, which works without a script."""

import re

import pytest

from helpers import recorded, timing
from helpers.measure import chart

RECORD = recorded.by_gpu("softmax")
ROWS = [
    timing.Row("a", "fp32", 8, 256, 2.0, 2.0, 2.0, 1.0),
    timing.Row("a", "fp32", 8, 512, 2.0, 2.0, 2.0, 2.0),
    timing.Row("b & c", "fp32", 8, 256, 1.0, 1.0, 1.0, 1.0),
    timing.Row("a", "bf16", 8, 256, 4.0, 4.0, 4.0, 1.0),
]


@pytest.fixture(scope="module")
def figure() -> str:
    """The figure of four measurements."""
    return chart.figure_to_choose_in(ROWS, "GPU 1", "recorded today")


def test_the_page_has_a_figure_for_every_gpu_and_a_mark_for_every_measurement():
    page = chart.record_page(RECORD)
    assert re.findall("^## (.*)$", page, re.MULTILINE) == list(RECORD)
    assert page.count("<circle") == sum(len(record["softmax"]) for record in RECORD.values())


def test_no_empty_line_ends_the_html_in_markdown(figure):
    assert "\n\n" not in figure and figure.startswith("<div")


def test_ids_are_those_of_one_gpu_and_used_once():
    pages = [chart.figure_to_choose_in(ROWS, gpu, "") for gpu in ("GPU 1", "GPU 2")]
    ids = [name for page in pages for name in re.findall(r' id="([^"]*)"', page)]
    assert len(ids) == len(set(ids)) == 2 * (1 + 2 + 2)


def test_what_is_not_chosen_is_hidden_and_can_be_chosen(figure):
    rules = dict(re.findall(r"#gpu-GPU-1:has\(#([\w-]+):not\(:checked\)\) \.([\w-]+)", figure, re.IGNORECASE))
    assert list(rules) == list(rules.values()) == ["gpu-gpu-1-fp32", "gpu-gpu-1-bf16", "gpu-gpu-1-a", "gpu-gpu-1-b-c"]
    for key in rules:
        assert f'<label for="{key}">' in figure and f'id="{key}"' in figure and f'<g class="{key}">' in figure


def test_one_dtype_is_chosen_at_first_and_the_softmaxes_of_the_lessons():
    page = chart.record_page(RECORD)
    dtypes = re.findall(r'<input type="radio"[^>]* checked>', page)
    softmaxes = re.findall(r'<input type="checkbox"[^>]* checked>(?: <svg.*?</svg>)? ([^<]*)</label>', page)
    assert len(dtypes) == len(RECORD)
    assert set(softmaxes) == set(chart.SHOWN_FIRST)


def test_a_mark_names_its_numbers_and_stands_where_they_say(figure):
    marks = re.findall(r'<circle cx="([\d.]+)" cy="([\d.]+)"[^>]*><title>(.*?)</title>', figure)
    numbers = {words: (float(x), float(y)) for x, y, words in marks}
    assert list(numbers) == [
        "a, fp32, 8 × 256, 0 GB/s, 0.50 of a copy",
        "a, fp32, 8 × 512, 0 GB/s, 1.00 of a copy",
        "b &amp; c, fp32, 8 × 256, 0 GB/s, 1.00 of a copy",
        "a, bf16, 8 × 256, 0 GB/s, 0.25 of a copy",
    ]
    (short, slow), (long, twice), (_, fast), _ = numbers.values()
    assert short < long and slow > fast == twice


def test_every_number_stands_in_the_table_for_those_who_see_no_marks(figure):
    table = figure[figure.index("<table>") :]
    assert table.count("<tr>") == 1 + len(ROWS)
    assert "<td>b &amp; c</td><td>fp32</td><td>8 × 256</td><td>0 GB/s</td><td>1.00 of a copy</td>" in table


def test_the_origin_stands_below_the_figure(figure):
    assert "recorded today" in figure
