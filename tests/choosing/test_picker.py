"""What the picker shows, without a browser: its states, cards, tables and figures, and compiling in the background."""

import json
import re
import subprocess
import sys
import threading
import time
from concurrent.futures import Future
from dataclasses import replace
from html import unescape

import numpy as np
import pytest
import torch
import traitlets

from helpers import DEVICE, kernels, recorded, xray
from helpers.choosing import launches, picker
from helpers.choosing.launches import TRIPS, Launch
from helpers.choosing.picker import compiler, model, phrases, view
from helpers.choosing.picker.compiler import Newest, look
from helpers.xray import KernelReport

H200 = "NVIDIA H200"
SEEN = KernelReport("sm_90", 8, 80, 0, 64, {128: 8}, {128: 8}, 5, 20.0)
SPILLING = replace(SEEN, num_warps=32, registers=64, spill_bytes=192)
UNKNOWN = KernelReport("sm_90", 8, None, None, 64, None, None, None, None, missing="cuobjdump is missing.")

STATES = {
    "one column": picker.state(1, gpu=H200),
    "short rows": picker.state(80, gpu=H200),
    "odd": picker.state(781, 64, gpu=H200),
    "tile": picker.state(5000, gpu=H200),
    "few long rows": picker.state(262144, 1, "bf16", H200),
    "longest": picker.state(2**20, gpu=H200),
    "no record": picker.state(5000, gpu="sm_120"),
    "architecture": picker.state(5000, 4096, "fp16", "sm_90"),
}
each_state = pytest.mark.parametrize("state", STATES.values(), ids=STATES)


@pytest.fixture
def compiled(monkeypatch):
    """Nothing is compiled: xray.cached knows nothing, and what xray.submit is asked for stays open."""
    asked = []

    def submit(kernel, *args, **options):
        asked.append((options["BLOCK"], Future()))
        return asked[-1][1]

    monkeypatch.setattr(xray, "cached", lambda *args, **options: None)
    monkeypatch.setattr(xray, "submit", submit)
    return asked


def with_launch(launch, n_cols, n_rows=None):
    """The state of a question for which this launch was chosen."""
    state = picker.state(n_cols, n_rows, gpu=H200)
    state.__dict__["choice"] = replace(state.choice, launch=launch, programs_per_row=launch.programs_per_row(n_cols))
    return state


def tags(html):
    """Opening and closing tags of HTML that stands for itself."""
    return re.findall(r"<(/?)(\w+)[^>]*?(/?)>", html)


# States


@each_state
def test_a_state_answers_with_what_pick_picks(state):
    assert state.choice == picker.model.pick(state.n_cols, state.rows, state.dtype, state.gpu)
    assert state.tiles * state.choice.BLOCK >= state.n_cols and state.idle >= 0


@each_state
def test_the_bars_are_those_of_the_nearest_recorded_shape(state):
    if not state.shape:
        assert state.bars == () and state.gpu == "sm_120"
        return
    assert [bar.name for bar in state.bars] == [*TRIPS, "torch.softmax", "eager", "helpers.softmax"]
    marks = [mark for bar in state.bars for mark in bar.marks]
    assert marks.count("choice") == 1 and any(mark.startswith("best") for mark in marks)


def test_rows_fill_the_gpu_unless_their_number_is_given():
    assert picker.state(4096).rows == 65536 and picker.state(4096, 8).rows == 8


def test_the_textbook_is_compared_where_it_was_timed():
    state = picker.state(500_000, 1, gpu=H200)
    assert state.lost(state.textbook) > 10 and state.lost(state.choice) < 1.2
    assert STATES["no record"].lost(STATES["no record"].textbook) is None


def test_what_can_be_chosen_was_timed():
    known = launches.of_gpu(H200)
    shapes = (*known.shapes, *known.held_out)
    assert set(model.COMMON) <= {shape.n_cols for shape in shapes}
    assert set(model.ROW_COUNTS) - {None} <= {shape.n_rows for shape in shapes}


def test_lanes_are_idle_past_the_end_of_rows_and_where_there_is_no_row():
    shared = picker.state(16, 8, gpu=H200)
    assert (shared.choice.rows_per_program, shared.rows_held, shared.lanes) == (64, 8, 1024)
    assert shared.idle == 1024 - 8 * 16
    assert picker.state(80, gpu=H200).idle == 8 * (128 - 80)


def test_the_chosen_variant_is_shown_as_fast_as_the_chosen_launch_and_others_at_their_best():
    state = with_launch(Launch("single tile", 8192, 16), 5000)
    speed = {launch: state.shape.gbps(microseconds) for launch, microseconds in state.shape.launches.items()}
    shown = {bar.name: bar.gbps for bar in state.bars}
    assert shown["single tile"] == speed[state.choice.launch] < speed[state.shape.best]
    assert shown["online"] == max(gbps for launch, gbps in speed.items() if launch.variant == "online")


def test_the_best_speed_stands_beside_a_slower_launch_of_the_best_variant():
    (marks,) = (bar.marks for bar in with_launch(Launch("single tile", 8192, 16), 5000).bars if "choice" in bar.marks)
    assert len(marks) == 2 and marks[1].startswith("best ") and marks[1].endswith(" GB/s")


def test_what_torch_does_faster_still_is_marked():
    marks = {bar.name: bar.marks for bar in picker.state(50257, None, "bf16", H200).bars}
    assert (marks["torch.softmax"], marks["eager"]) == (("faster still",), ())


def test_the_softmax_of_lesson_09_is_shown_where_it_was_timed_at_the_same_shape():
    (shown,) = (bar for bar in picker.state(50257, None, "bf16", H200).bars if bar.name == "helpers.softmax")
    assert shown.marks == ("faster still",) and shown.gbps > picker.state(50257, None, "bf16", H200).bars[3].gbps
    assert picker.state(5000, None, "fp32", H200).shipped_gbps is None
    assert picker.state(50257, 8, "bf16", H200).shipped_gbps is None


@pytest.mark.parametrize(
    ("fraction", "text"),
    [(0, "0 %"), (0.005, "< 1 %"), (0.0099, "< 1 %"), (0.01, "1 %"), (0.394, "39 %"), (0.999, "> 99 %"), (1, "100 %")],
)
def test_a_part_is_never_called_nothing_or_all(fraction, text):
    assert phrases.percent(fraction) == text


def test_what_is_copied_runs_as_it_is():
    copied = re.search(r'data-copy="(.*?)"', view.as_card(picker.state(5000)), re.DOTALL)[1]
    exec(unescape(copied), {"x": torch.randn(1, 8)})


def test_speeds_at_a_shape_that_pick_was_not_shown_say_what_it_chose_by():
    said = phrases.unseen_in_words(picker.state(50257, 64, gpu=H200))
    assert said == "pick was not shown 64 × 50,257 fp32, which tests it: it chose what was best at 64 × 49,153 fp32"
    assert phrases.unseen_in_words(picker.state(1, gpu=H200)) == ""


def test_the_slider_stops_16_times_an_octave_and_never_twice():
    assert model.LENGTHS[0] == 1 and model.LENGTHS[-1] == 2**20 and 4096 in model.LENGTHS
    assert (
        list(model.LENGTHS) == sorted(set(model.LENGTHS)) and len([n for n in model.LENGTHS if 512 <= n < 1024]) == 16
    )


@pytest.mark.parametrize(
    "arguments, exception, says",
    [
        ({"n_cols": 0}, ValueError, "n_cols must be a whole number from 1 to 1,048,576; it is 0"),
        ({"n_cols": 2**20 + 1}, ValueError, "from 1 to 1,048,576"),
        ({"n_cols": 2.5}, ValueError, "whole number"),
        ({"n_cols": 4096.0}, ValueError, "whole number from 1 to 1,048,576; it is 4096.0"),
        ({"n_cols": np.float64(4096)}, ValueError, "whole number"),
        ({"n_cols": True}, ValueError, "whole number"),
        ({"n_rows": 10**400}, ValueError, "n_rows must be less than 2⁶³"),
        ({"n_rows": 0}, ValueError, "n_rows must be a whole number"),
        ({"dtype": "int8"}, ValueError, "dtype must be fp32, bf16, fp16"),
        ({"gpu": "sm_1"}, ValueError, "gpu must be one of"),
    ],
    ids=str,
)
def test_arguments_that_make_no_question_are_refused_in_a_sentence(arguments, exception, says):
    with pytest.raises(exception, match=says) as refusal:
        picker.show(**arguments)
    assert len(str(refusal.value).splitlines()) == 1


@pytest.mark.parametrize("integer", [np.int64, np.int32, torch.tensor], ids=lambda kind: kind.__name__)
def test_a_number_of_another_library_is_a_number(integer):
    assert picker.state(integer(50257), integer(8)) == picker.state(50257, 8)
    assert picker.show(integer(50257), integer(8)) is not None


# Cards


@pytest.mark.thinned
@each_state
@pytest.mark.parametrize("seen", [None, SEEN, SPILLING, UNKNOWN, "does <not> compile"], ids=str)
def test_a_card_is_whole_html_and_says_all_of_it(state, seen):
    html = picker.as_card(replace(state, seen=seen))
    opened = [name for closing, name, alone in tags(html) if not closing and not alone and name not in ("line", "rect")]
    closed = [name for closing, name, _ in tags(html) if closing]
    assert sorted(opened) == sorted(closed)
    for shown in (state.choice.variant, state.choice.code(), f"{state.choice.BLOCK:,}", phrases.trips_in_words(state)):
        assert shown in html
    assert "<not>" not in html


def test_a_card_tells_registers_and_occupancy():
    html = picker.as_card(replace(STATES["tile"], seen=SEEN))
    assert "80 of at most 255" in html and "no spill" in html and 'data-xray="ready"' in html
    assert "3 programs an SM, limited by registers" in html


def test_a_spill_is_said_in_words_and_marked():
    html = picker.as_card(replace(STATES["tile"], seen=SPILLING))
    assert "spills 192 bytes a thread" in html and "picker-warn" in html
    assert "picker-warn" not in picker.as_card(replace(STATES["tile"], seen=SEEN))


def test_what_is_being_compiled_is_said_to_be():
    html = picker.as_card(replace(STATES["tile"], seen=None))
    assert "compiling" in html and 'data-xray="compiling"' in html


@pytest.mark.parametrize(
    "seen, reason", [(UNKNOWN, "cuobjdump is missing"), ("the tile is too large", "the tile is too")]
)
def test_what_cannot_be_had_is_said_with_the_reason(seen, reason):
    html = picker.as_card(replace(STATES["tile"], seen=seen))
    assert reason in html and 'data-xray="missing"' in html


def test_lanes_past_the_end_are_counted():
    assert "3,192 of 8,192 lanes idle (39 %)" in picker.as_card(STATES["tile"])
    assert "no lane idle" in picker.as_card(picker.state(4096, gpu=H200))


def test_a_gpu_without_a_record_says_how_to_make_one():
    html = picker.as_card(STATES["no record"])
    assert "sm_120 has no record" in html and "python -m helpers.measure.record" in html and "picker-bar" not in html


# Without a kernel


@each_state
def test_the_table_has_what_the_card_has(state):
    text = repr(picker.as_table(replace(state, seen=SEEN)))
    for shown in (
        state.choice.variant,
        state.choice.code(),
        state.choice.why,
        phrases.idle_in_words(state),
        "80 of at most 255",
    ):
        assert shown in text


@each_state
def test_the_figure_says_what_it_shows(state):
    alt = picker.as_picture(state).alt
    assert phrases.tiling_in_words(state) in alt and ("torch.softmax" in alt) == bool(state.bars)


def test_what_is_stored_is_a_table_and_a_picture_without_scripts():
    data, _ = picker.show(5000)._repr_mimebundle_()
    assert {"text/plain", "text/html"} < set(data) and any("widget" in kind for kind in data)
    assert "<table" in data["text/html"] and 'src="data:image/png' in data["text/html"]
    assert not re.search(r"<(script|svg|style)", data["text/html"])


def test_without_anywidget_the_picker_is_its_table_and_picture_and_says_so(monkeypatch):
    monkeypatch.setattr(xray, "cached", lambda *args, **options: SEEN)
    shown = picker.form(has_anywidget=False)(picker.state(5000, gpu=H200))
    for text in (repr(shown), shown._repr_html_()):
        assert "80 of at most 255" in text and "the package anywidget" in text
    assert "<table" in shown._repr_html_() and 'src="data:image/png' in shown._repr_html_()


def test_without_anywidget_the_compiler_is_waited_for(compiled):
    threading.Timer(0.1, lambda: compiled[0][1].set_result(SEEN)).start()
    assert picker.form(has_anywidget=False)(picker.state(5000, gpu=H200)).state.seen is SEEN


def test_a_kernel_that_does_not_compile_says_why_without_anywidget_too(compiled):
    threading.Timer(0.1, lambda: compiled[0][1].set_exception(ValueError("the tile is too large"))).start()
    assert "the tile is too large" in repr(picker.form(has_anywidget=False)(picker.state(5000, gpu=H200)))


@pytest.mark.thinned(0)
def test_nothing_of_the_picker_but_its_widget_needs_anywidget():
    code = "import sys; sys.modules['anywidget'] = None; from helpers.choosing import picker; picker.form(False)"
    subprocess.run([sys.executable, "-c", code], check=True)


def test_with_anywidget_the_picker_is_a_widget():
    assert picker.form(has_anywidget=True).__mro__[1].__name__ == "AnyWidget"


# In words

WORDS = {
    Launch("single tile", 8192, 16): ("4", "1 row each", "One tile of 8,192 lanes", "1 + 1"),
    Launch("several rows", 8192, 4, 2): ("2", "2 rows each", "One tile of 2 rows × 8,192 lanes", "1 + 1"),
    Launch("persistent", 8192, 16): ("up to 4", "each row after row", "One tile of 8,192 lanes", "1 + 1"),
    Launch("online", 4096, 8): (
        "4",
        "1 row each",
        "2 tiles of 4,096 lanes, one after the other in one program",
        "2 + 1",
    ),
    Launch("split row", 1024, 4): (
        "20",
        "5 a row, launched twice",
        "5 tiles of 1,024 lanes, a program for each",
        "2 + 1",
    ),
}


@pytest.mark.parametrize("launch", WORDS, ids=str)
def test_a_launch_is_put_into_words(launch):
    state = with_launch(launch, 5000, 4)
    functions = (phrases.programs_in_words, phrases.share_in_words, phrases.tiling_in_words, phrases.trips_in_words)
    assert tuple(function(state) for function in functions) == WORDS[launch]


def test_a_kernel_that_fits_on_no_sm_says_what_it_needs_too_much_of():
    report = replace(SEEN, num_warps=32, registers=72)
    assert phrases.occupancy_in_words(report) == "fits on no SM: too much for its registers"


@pytest.mark.parametrize(
    ("times", "text"),
    [
        (1.0, "1.00 × the time of the best"),
        (9.99, "9.99 × the time of the best"),
        (15.47, "15 × the time of the best"),
        (None, ""),
    ],
)
def test_what_a_choice_loses_has_two_digits_below_ten(times, text, monkeypatch):
    monkeypatch.setattr(model.State, "lost", lambda self, choice: times)
    state = STATES["tile"]
    assert phrases.lost_in_words(state, state.choice) == text


# The code line


@pytest.mark.thinned
@pytest.mark.parametrize("n_rows", [1, None])
@pytest.mark.parametrize("n_cols", [1, 80, 781, 4096, 20_000, 50_257])
def test_the_code_line_is_a_softmax(n_cols, n_rows):
    x = torch.randn(2, n_cols, device=DEVICE)
    y = eval(picker.state(n_cols, n_rows, gpu=H200).choice.code(), {"x": x, **vars(kernels)})
    torch.testing.assert_close(y, torch.softmax(x, dim=1))


# Compiling in the background


def test_the_card_comes_at_once_and_the_registers_when_they_are_there(compiled):
    widget = picker.show(5000, gpu=H200)
    assert 'data-xray="compiling"' in widget.card
    compiled[0][1].set_result(SEEN)
    assert "80 of at most 255" in widget.card


def test_of_the_lengths_that_wait_the_newest_is_compiled_next(compiled):
    widget = picker.show(5000, gpu=H200)
    for n_cols in (20_000, 30_000, 1000):
        widget.n_cols = n_cols
    assert [BLOCK for BLOCK, _ in compiled] == [8192]
    compiled[0][1].set_result(SEEN)
    assert [BLOCK for BLOCK, _ in compiled] == [8192, 1024]
    assert 'data-xray="compiling"' in widget.card
    compiled[1][1].set_result(SEEN)
    assert 'data-n-cols="1000"' in widget.card and 'data-xray="ready"' in widget.card


def test_a_kernel_that_does_not_compile_says_why_on_the_card(compiled):
    widget = picker.show(5000, gpu=H200)
    compiled[0][1].set_exception(ValueError("the tile is too large"))
    assert "the tile is too large" in widget.card


def test_what_is_no_longer_wanted_is_not_shown(compiled):
    widget = picker.show(5000, gpu=H200)
    newest = Newest(lambda state: pytest.fail("nothing is wanted"))
    newest.want(widget.state)
    newest.want(None)
    compiled[-1][1].set_result(SEEN)


def test_a_real_kernel_is_compiled_while_the_card_is_there():
    widget = picker.show(96, gpu=H200)
    deadline = time.monotonic() + 60
    while 'data-xray="ready"' not in widget.card and time.monotonic() < deadline:
        time.sleep(0.05)
    assert isinstance(look(picker.state(96, gpu=H200)).seen, KernelReport) and 'data-xray="ready"' in widget.card


def test_a_card_takes_no_time_once_its_kernel_is_known(monkeypatch):
    monkeypatch.setattr(xray, "submit", lambda *args, **options: pytest.fail("nothing is to be compiled"))
    monkeypatch.setattr(compiler.xray, "cached", lambda *args, **options: SEEN)
    before = threading.active_count()
    picker.show(5000, gpu=H200).n_cols = 781
    assert threading.active_count() == before


# The widget


def test_setting_a_trait_changes_the_card():
    widget = picker.show(5000, gpu=H200)
    widget.n_cols, widget.n_rows, widget.dtype = 262144, 8, "bf16"
    assert 'data-n-cols="262144"' in widget.card and "split row" in widget.card
    assert widget.state.dtype == "bf16"


@pytest.mark.parametrize("name, value", [("n_cols", 0), ("n_rows", -1), ("dtype", "int8"), ("gpu", "sm_1")])
def test_a_trait_that_makes_no_question_is_refused_and_the_card_stays(name, value):
    widget = picker.show(5000, gpu=H200)
    before = widget.card
    with pytest.raises(traitlets.TraitError):
        setattr(widget, name, value)
    assert widget.card == before


def test_the_choices_are_plain_data_for_the_browser():
    options = picker.show(5000, 7, gpu="sm_86").options
    assert json.loads(json.dumps(options))["lengths"][-1] == 2**20
    assert [7, "7"] in options["rows"] and "sm_86" in dict(options["targets"])
    assert set(recorded.by_gpu("launches")) <= set(dict(options["targets"]))


def test_cards_of_other_lengths_are_sent_when_asked_for(monkeypatch):
    widget, sent = picker.show(5000, 8, gpu=H200), []
    monkeypatch.setattr(widget, "send", sent.append)
    settings = {"n_rows": 8, "dtype": "bf16", "gpu": "sm_120"}
    widget._handle_custom_msg({"lengths": [16, 4096], "settings": settings}, [])
    ((message),) = sent
    assert message["settings"] == settings and [n for n, _ in message["cards"]] == [16, 4096]
    assert all('data-n-rows="8" data-dtype="bf16" data-gpu="sm_120"' in html for _, html in message["cards"])
    assert all(f'data-n-cols="{n}"' in html and 'data-n-rows="8"' in html for n, html in message["cards"])
    assert widget.state.n_cols == 5000
