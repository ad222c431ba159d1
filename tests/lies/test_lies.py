"""Benchmarks that lie: what is shown of them, what is recorded, and that all of them run through."""

import ast
import contextlib
import inspect
import json
import re

import pytest
import torch

from exercises import ROOT, STUBS
from helpers import lies, predict, recorded, timing
from helpers.gpu.real import RealGpu
from helpers.lies import benchmarks, display, exercise, exhibit
from helpers.measure import record as making

SOLUTION = ROOT / "solutions" / "08_benchmarks_that_lie.ipynb"
CELLS = {
    cell["id"]: "".join(cell["source"])
    for cell in json.loads(SOLUTION.read_text(encoding="utf-8"))["cells"]
}  # fmt: skip


def softmax(x):
    return torch.softmax(x, dim=1)


# The record


@pytest.fixture
def without_gpu(monkeypatch):
    """The record, where figures are looked up in it."""
    monkeypatch.setattr(display, "ON_GPU", False)
    display._figures.cache_clear()
    yield recorded.by_gpu("lies")[recorded.REFERENCE]
    display._figures.cache_clear()


def test_the_record_names_its_origin(without_gpu):
    origin = without_gpu["origin"]
    assert origin["gpu"] == "NVIDIA H200" and origin["command"].startswith("python -m helpers.measure.record")
    assert all(origin[name] for name in ("torch", "triton", "driver", "clocks", "date"))


def test_the_record_holds_both_ways_of_every_lie(without_gpu):
    for name in lies.LIES:
        ways = without_gpu["lies"][name]
        assert list(ways["lying"]) == list(ways["honest"])
        assert all(value > 0 for figures in ways.values() for value in figures.values())


def test_without_a_gpu_nothing_is_run(without_gpu):
    def never():
        raise AssertionError("a benchmark ran where nothing can be timed")

    assert lies.measured_or_recorded(never, "published") == without_gpu["published"]


def test_beside_a_gpu_what_is_measured_is_shown(monkeypatch):
    monkeypatch.setattr(display, "ON_GPU", True)
    monkeypatch.setattr(torch.cuda, "get_device_name", lambda: "Some GPU")
    assert lies.measured_or_recorded(lambda: "measured", "published") == "measured"
    assert lies.origin() == "measured here on one Some GPU"


# What is shown


@pytest.mark.parametrize("name", lies.LIES)
def test_a_lie_is_seen_with_its_source_and_its_figures_alone(without_gpu, name):
    ((title, question, source, _, table),) = lies.see(name).parts
    assert title == name and question == lies.LIES[name].question and question in repr(lies.see(name))
    assert source.startswith(f"def {lies.LIES[name].lying.__name__}(")
    assert table.head == ["it says", lies.LIES[name].heads[0]]
    assert lies.LIES[name].why not in table.notes
    assert timing.recorded_origin(without_gpu) in repr(lies.see(name)).replace("Recorded", "recorded")


@pytest.mark.parametrize("name", lies.LIES)
def test_a_lie_is_exposed_by_the_honest_source_and_both_figures(without_gpu, name):
    ((_, question, source, _, table),) = lies.expose(name).parts
    assert not question
    assert source.startswith(f"def {lies.LIES[name].honest.__name__}(")
    assert table.head == ["it says", *lies.LIES[name].heads]
    assert table.notes[0] == lies.LIES[name].why


@pytest.mark.parametrize(
    ("number", "text"),
    [(12345.6, "12,346"), (100.0, "100"), (99.96, "100."), (1.5, "1.50"), (0.04567, "0.0457"), (-250.0, "-250")],
)
def test_a_figure_is_shown_with_three_digits_or_as_a_whole_number(number, text):
    assert display._number(number) == text


def test_the_figures_of_a_lie_are_those_of_its_record(without_gpu):
    (*_, table) = lies.expose("host time").parts[0]
    recorded_ways = without_gpu["lies"]["host time"]
    labels = list(recorded_ways["lying"])
    assert table.rows == [
        [label, *(display._number(recorded_ways[w][label]) for w in ("lying", "honest"))] for label in labels
    ]


def test_the_html_has_the_source_in_code_and_escaped(without_gpu):
    html = lies.see("host time")._repr_html_()
    assert html.startswith("<h4>host time</h4><p>What would") and "f&quot;copy of {megabytes} MB" in html
    assert "<pre>def host_time_lying(" in html and "<b>" not in html


def test_lines_that_the_lying_benchmark_has_not_are_bold(without_gpu):
    html = lies.expose("host time")._repr_html_()
    bold = [line.strip() for line in re.findall(r"<b>(.*?)</b>", html)]
    assert bold == ["start = gpu.record()", "end = gpu.record()", "times.append(start.elapsed_time(end))"]


@pytest.mark.parametrize("name", lies.LIES)
def test_a_guess_stands_where_its_question_is_answered(without_gpu, name, monkeypatch):
    monkeypatch.setattr(predict, "_guesses", {})
    predict.guess(name, honest=None)
    assert "your guess" not in repr(lies.expose(name))
    predict.guess(name, honest=12.5)
    table = lies.expose(name).parts[0].table
    assert table.head[2] == "your guess"
    assert [row[0] for row in table.rows if row[2]] == [lies.LIES[name].guessed]
    assert {row[2] for row in table.rows} <= {"", "12.5"}


@pytest.mark.parametrize("show", [lies.see, lies.expose])
def test_several_lies_stand_one_below_the_other(without_gpu, show):
    both = show("warm L2", "host time")
    assert [part.name for part in both.parts] == ["warm L2", "host time"]
    assert both._repr_html_().count("<pre>") == 2


def test_an_unknown_lie_is_refused_with_those_there_are():
    with pytest.raises(ValueError, match="no lie is called 'warm cache'; there are the first call, host time"):
        lies.see("warm cache")


def test_the_benchmarks_shown_fit_into_a_notebook():
    for lie in lies.LIES.values():
        for way in (lie.lying, lie.honest):
            lines = inspect.getsource(way).splitlines()
            assert len(lines) <= 16 and max(map(len, lines)) <= 88


# On a GPU


class Mark:
    def record(self):
        pass

    def elapsed_time(self, end):
        return 1.0


class Graph:
    def replay(self):
        pass


class Launchable:
    def __getitem__(self, grid):
        return lambda *args, **kwargs: None


@pytest.fixture
def gpu_of_one_millisecond(monkeypatch):
    """Every time is a millisecond, and tensors have shapes but no elements."""
    meta = torch.device("meta")
    monkeypatch.setattr(RealGpu, "device", meta)
    monkeypatch.setattr(RealGpu, "record", lambda self: Mark())
    monkeypatch.setattr(RealGpu, "flush", lambda self: None)
    monkeypatch.setattr(torch.cuda, "synchronize", lambda: None)
    monkeypatch.setattr(torch.cuda, "empty_cache", lambda: None)
    monkeypatch.setattr(torch.cuda, "Event", lambda **_: Mark())
    monkeypatch.setattr(torch.cuda, "CUDAGraph", Graph)
    monkeypatch.setattr(torch.cuda, "graph", lambda graph: contextlib.nullcontext())
    monkeypatch.setattr(torch.Tensor, "item", lambda self: 0.5)
    monkeypatch.setattr(torch, "allclose", lambda *args, **kwargs: True)
    monkeypatch.setattr(benchmarks.triton.testing, "get_dram_gbps", lambda: 5000.0)
    monkeypatch.setattr(benchmarks.time, "sleep", lambda seconds: None)
    monkeypatch.setattr(benchmarks, "_salted_kernel", Launchable())
    monkeypatch.setattr(exhibit, "vectorized_kernel", Launchable())
    for module in (benchmarks, display, exhibit):
        monkeypatch.setattr(module, "DEVICE", meta)
    for module in (benchmarks, exhibit, exercise):
        monkeypatch.setattr(module, "single_tile_softmax", softmax)
    for name in ("online_softmax", "two_pass_softmax"):
        monkeypatch.setattr(benchmarks, name, softmax)

    def in_turns(functions, repeats=None):
        for fn in functions.values():
            fn()
        return dict.fromkeys(functions, timing.Measurement(1.0, 1.0, 1.0, 20))

    monkeypatch.setattr(timing, "measure_in_turns", in_turns)


def test_everything_that_is_recorded_runs_through(gpu_of_one_millisecond, without_gpu):
    found = {"origin": {"gpu": "none"}} | lies.run_all()
    assert list(found) == list(without_gpu)
    assert list(found["lies"]) == list(lies.LIES)
    assert list(found["published"]) == list(without_gpu["published"])
    assert list(found["repairs"]) == list(without_gpu["repairs"])
    assert list(found["believed"]) == list(without_gpu["believed"])
    for name, ways in found["lies"].items():
        assert list(ways["lying"]) == list(ways["honest"]) == list(without_gpu["lies"][name]["honest"])


def test_what_is_recorded_has_four_digits(gpu_of_one_millisecond, monkeypatch):
    way = {"ms": 1.23456789, "whole": 12345678}
    monkeypatch.setattr(display, "_run", lambda name, way_asked: way)
    assert lies.run_all()["lies"]["host time"] == {
        "lying": {"ms": 1.235, "whole": 12345678},
        "honest": {"ms": 1.235, "whole": 12345678},
    }


def test_what_is_believed_is_the_solved_benchmark_s(gpu_of_one_millisecond, monkeypatch):
    asked = []
    monkeypatch.setattr(display, "believed", lambda benchmark: asked.append(benchmark) or {})
    lies.run_all()
    assert asked == [exercise.honest_benchmark]


def test_beside_a_gpu_a_benchmark_runs_once_for_both_cells(monkeypatch):
    calls = []

    def way(gpu):
        calls.append(gpu)
        return {"ms": 1.0}

    monkeypatch.setattr(display, "ON_GPU", True)
    monkeypatch.setattr(display, "origin", lambda: "measured here")
    monkeypatch.setitem(lies.LIES, "a test", lies.Lie(way, way, "", "ms", ""))
    lies.see("a test"), lies.expose("a test")
    assert len(calls) == 2
    display._figures.cache_clear()


@pytest.mark.parametrize("only, written", [("lies", ["none/lies.json"]), ("launches", ["none/launches.json"])])
def test_the_command_writes_the_record_that_is_asked_for(monkeypatch, tmp_path, capsys, only, written):
    monkeypatch.setattr("sys.argv", ["measure", "--only", only])
    monkeypatch.setattr(making, "ON_GPU", True)
    monkeypatch.setattr(making, "origin_here", lambda: {"gpu": "none"})
    monkeypatch.setattr(torch.cuda, "get_device_name", lambda: "None")
    monkeypatch.setattr(making, "measure_launches", lambda dtypes: ([], []))
    monkeypatch.setattr(lies, "run_all", dict)
    making.main(tmp_path)
    files = [str(path.relative_to(tmp_path)) for path in tmp_path.rglob("*.json")]
    assert files == written and f"wrote {tmp_path / written[0]}" in capsys.readouterr().out


# What the notebook shows is what is recorded


def code(text):
    """The functions of a piece of code without comments, names of arguments' types and decorators' line breaks."""
    return {node.name: ast.dump(node) for node in ast.parse(text).body if isinstance(node, ast.FunctionDef)}


def test_the_exhibit_of_the_notebook_is_the_one_that_was_recorded():
    in_cells = code(CELLS["exhibit-kernel"]) | code(CELLS["exhibit-benchmark"]) | code(CELLS["exhibit-published"])
    measured = code(inspect.getsource(exhibit))
    assert list(in_cells) == ["vectorized_kernel", "vectorized_softmax", "mean_ms", "published"]
    assert all(measured[name] == source for name, source in in_cells.items())


def test_the_benchmark_handed_out_is_the_one_that_counts_as_untouched():
    handed_out = code(STUBS["benchmark"].cells[-1])["benchmark"]
    untouched = code(inspect.getsource(exercise))["lying_benchmark"]
    assert handed_out == untouched.replace("'lying_benchmark'", "'benchmark'")
