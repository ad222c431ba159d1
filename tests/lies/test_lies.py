"""Benchmarks that lie: what is shown of them, what is recorded, and that all of them run through."""

import ast
import contextlib
import json
import math

import pytest
import torch

from exercises import ROOT, SOLUTIONS, STUBS
from helpers import lies, timing
from helpers.check.exercises import lesson_07
from helpers.gpu.misleading import EVERY, SLOWER, Behaviour, Gpu
from helpers.make import record as making

SOLUTION = ROOT / "solutions" / "07_benchmarks_that_lie.ipynb"
CELLS = {
    cell["id"]: "".join(cell["source"])
    for cell in json.loads(SOLUTION.read_text(encoding="utf-8"))["cells"]
}  # fmt: skip


def softmax(x):
    return torch.softmax(x, dim=1)


# The record


@pytest.fixture
def without_gpu(monkeypatch):
    monkeypatch.setattr(lies, "ON_GPU", False)
    lies._figures.cache_clear()
    yield lies.record()
    lies._figures.cache_clear()


def test_the_record_names_its_origin(without_gpu):
    origin = without_gpu["origin"]
    assert origin["gpu"] == "NVIDIA H200" and origin["command"].startswith("python -m helpers.make.record")
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


# What is shown


@pytest.mark.parametrize("name", lies.LIES)
def test_a_lie_is_seen_with_its_source_and_its_figures_alone(without_gpu, name):
    ((shown, source, table),) = lies.see(name).parts
    assert shown == name and source.startswith(f"def {lies.LIES[name].lying.__name__}(")
    assert table.head == ["it says", "lying"]
    assert lies.LIES[name].why not in table.notes
    assert timing.recorded_origin(without_gpu) in repr(lies.see(name)).replace("Recorded", "recorded")


@pytest.mark.parametrize("name", lies.LIES)
def test_a_lie_is_exposed_by_the_honest_source_and_both_figures(without_gpu, name):
    ((_, source, table),) = lies.expose(name).parts
    assert source.startswith(f"def {lies.LIES[name].honest.__name__}(")
    assert table.head == ["it says", "lying", "honest"]
    assert table.notes[0] == lies.LIES[name].why


@pytest.mark.parametrize("show", [lies.see, lies.expose])
def test_several_lies_stand_one_below_the_other(without_gpu, show):
    shown = show("warm L2", "host time")
    assert [name for name, _, _ in shown.parts] == ["warm L2", "host time"]
    assert shown._repr_html_().count("<pre>") == 2


def test_an_unknown_lie_is_refused_with_those_there_are():
    with pytest.raises(ValueError, match="no lie is called 'warm cache'; there are the first call, host time"):
        lies.see("warm cache")


def test_the_benchmarks_shown_fit_into_a_notebook():
    for lie in lies.LIES.values():
        for way in (lie.lying, lie.honest):
            lines = lies.inspect.getsource(way).splitlines()
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
    monkeypatch.setattr(lies, "DEVICE", torch.device("meta"))
    monkeypatch.setattr(lies.Gpu, "device", torch.device("meta"))
    monkeypatch.setattr(lies.Gpu, "record", lambda self: Mark())
    monkeypatch.setattr(lies.Gpu, "flush", lambda self: None)
    monkeypatch.setattr(torch.cuda, "synchronize", lambda: None)
    monkeypatch.setattr(torch.cuda, "empty_cache", lambda: None)
    monkeypatch.setattr(torch.cuda, "Event", lambda **_: Mark())
    monkeypatch.setattr(torch.cuda, "CUDAGraph", Graph)
    monkeypatch.setattr(torch.cuda, "graph", lambda graph: contextlib.nullcontext())
    monkeypatch.setattr(torch.Tensor, "item", lambda self: 0.5)
    monkeypatch.setattr(torch, "allclose", lambda *args, **kwargs: True)
    monkeypatch.setattr(lies.triton.testing, "get_dram_gbps", lambda: 5000.0)
    monkeypatch.setattr(lies.time, "sleep", lambda seconds: None)
    for kernel in ("vectorized_kernel", "_salted_kernel"):
        monkeypatch.setattr(lies, kernel, Launchable())
    for name in ("single_tile_softmax", "online_softmax", "two_pass_softmax"):
        monkeypatch.setattr(lies, name, softmax)

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


def test_beside_a_gpu_a_benchmark_runs_once_for_both_cells(monkeypatch):
    calls = []

    def way(gpu):
        calls.append(gpu)
        return {"ms": 1.0}

    monkeypatch.setattr(lies, "ON_GPU", True)
    monkeypatch.setattr(lies, "origin", lambda: "measured here")
    monkeypatch.setitem(lies.LIES, "a test", lies.Lie(way, way, ""))
    lies.see("a test"), lies.expose("a test")
    assert len(calls) == 2
    lies._figures.cache_clear()


@pytest.mark.parametrize("only, written", [("lies", ["none/lies.json"]), ("launches", ["none/launches.json"])])
def test_the_command_writes_the_record_that_is_asked_for(monkeypatch, tmp_path, capsys, only, written):
    monkeypatch.setattr("sys.argv", ["measure", "--only", only])
    monkeypatch.setattr(making, "ON_GPU", True)
    monkeypatch.setattr(making, "origin", lambda: {"gpu": "none"})
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
    shown = code(CELLS["exhibit-kernel"]) | code(CELLS["exhibit-benchmark"])
    recorded = code((ROOT / "helpers" / "lies" / "__init__.py").read_text(encoding="utf-8"))
    assert list(shown) == ["vectorized_kernel", "vectorized_softmax", "mean_ms", "published"]
    assert all(recorded[name] == source for name, source in shown.items())


def test_the_benchmark_handed_out_is_the_one_that_counts_as_untouched():
    handed_out = code(STUBS["benchmark"].cells[-1])["benchmark"]
    recorded = code((ROOT / "helpers" / "lies" / "__init__.py").read_text(encoding="utf-8"))["lying_benchmark"]
    assert handed_out == recorded.replace("'lying_benchmark'", "'benchmark'")


def test_every_letter_charged_is_a_line_of_the_exhibit():
    lettered = {
        line.split("# ")[1]
        for line in (CELLS["exhibit-kernel"] + CELLS["exhibit-benchmark"]).split("\n")
        if "  # " in line
    }
    assert lettered == set("ABCDEFGHIJKLMN")
    assert {letter for lines, _ in lesson_07.EXHIBIT.values() for letter in lines} < lettered


# The simulated GPU


def timed(gpu, fn, x):
    start = gpu.record()
    fn(x)
    end = gpu.record()
    gpu.synchronize()
    return start.elapsed_time(end)


def random(gpu):
    return torch.randn(gpu.shape, device=gpu.device)


def test_a_gpu_that_misleads_in_nothing_takes_just_its_time():
    gpu = Gpu(Behaviour())
    x, kernel = random(gpu), gpu.kernel(0.25, softmax)
    before = gpu.now()
    assert timed(gpu, kernel, x) == pytest.approx(0.25) == pytest.approx(gpu.now() - before)
    assert torch.equal(kernel(x), softmax(x))


def test_a_queue_returns_at_once_and_is_waited_for():
    gpu = Gpu(Behaviour(in_queue=True))
    x, kernel = random(gpu), gpu.kernel(0.25, softmax)
    start = gpu.record()
    kernel(x)
    end = gpu.record()
    assert gpu.now() < 0.01
    with pytest.raises(RuntimeError, match="synchronize first"):
        start.elapsed_time(end)
    end.synchronize()
    assert start.elapsed_time(end) == pytest.approx(0.25, rel=0.05)


def test_the_first_call_with_each_shape_compiles():
    gpu = Gpu(Behaviour(compile_ms=100))
    x, kernel = random(gpu), gpu.kernel(0.25, softmax)
    times = [timed(gpu, kernel, given) for given in (x, x, x[:, :2048], x[:, :2048])]
    assert [time > 100 for time in times] == [True, False, True, False]


def test_an_input_used_just_before_is_warm_until_it_is_overwritten():
    gpu = Gpu(Behaviour(warm=0.5))
    x, kernel = random(gpu), gpu.kernel(0.2, softmax)
    times = [timed(gpu, kernel, x), timed(gpu, kernel, x)]
    gpu.flush()
    times.append(timed(gpu, kernel, x))
    with gpu.watching():
        torch.empty(2**28, dtype=torch.int8, device=gpu.device).zero_()
    times.append(timed(gpu, kernel, x))
    for _ in range(3):
        kernel(random(gpu))
    times.append(timed(gpu, kernel, x))
    assert times == pytest.approx([0.2, 0.1, 0.2, 0.2, 0.2])


@pytest.mark.parametrize("easy", [torch.zeros(8, 4096), 0.1 * torch.randn(8, 4096)], ids=["zeros", "0.1 * randn"])
def test_numbers_that_are_nearly_the_same_are_easy(easy):
    gpu = Gpu(Behaviour(easy=0.5))
    kernel = gpu.kernel(0.2, softmax)
    assert timed(gpu, kernel, easy) == pytest.approx(0.1)
    assert timed(gpu, kernel, random(gpu)) == pytest.approx(0.2)


def test_one_run_of_seven_is_slow():
    gpu = Gpu(Behaviour(slow_run=2))
    x, kernel = random(gpu), gpu.kernel(0.1, softmax)
    times = [timed(gpu, kernel, x) for _ in range(2 * EVERY)]
    assert [launch for launch, ms in enumerate(times) if math.isclose(ms, 0.1 * SLOWER)] == [2, 2 + EVERY]


def test_a_clock_drifts_over_all_launches():
    gpu = Gpu(Behaviour(slowdown=0.5, launches=10))
    x, kernel = random(gpu), gpu.kernel(0.1, softmax)
    assert [timed(gpu, kernel, x) for _ in range(11)][::10] == pytest.approx([0.1, 0.15])


def test_operations_of_pytorch_take_time_while_they_are_watched():
    gpu = Gpu(Behaviour(operation_ms=0.1))
    x, kernel = random(gpu), gpu.kernel(0.25, softmax)
    y = torch.empty_like(x)
    with gpu.watching():
        assert timed(gpu, lambda x: y.copy_(kernel(x)), x) == pytest.approx(0.35)
        assert timed(gpu, lambda x: kernel(x[:4]), x) == pytest.approx(0.125)


# The checks


@pytest.fixture
def benchmark_report():
    from helpers import check

    return lambda *replaced, code="": check.report_on(
        "benchmark", SOLUTIONS["benchmark"].answered(*replaced, code=code)
    )


def left(report):
    return {finding.case: finding.seen for finding in report.findings if not finding.ok}


def test_each_of_the_lies_handed_out_is_named_with_its_figures(benchmark_report):
    lying = "benchmark = lambda gpu, mine, theirs: tuple(1.0001 * ms for ms in lies.lying_benchmark(gpu, mine, theirs))"
    report = benchmark_report(code=lying)
    assert report.points == 0
    needs = "for a kernel that needs 0.1 ms"
    assert left(report) == {
        "a kernel that skips work": "a kernel that computes 512 of 4096 columns gets a time, 0.0125 ms; "
        "a ValueError should refuse it",
        "launches that return at once": "you report 0.008 ms for a kernel that needs 0.4 ms; "
        "the host launches it in 0.004 ms",
        "a first call that compiles": f"you report 20.1 ms {needs}; its first call takes 200 ms",
        "a slow run now and then": f"you report 0.68 ms {needs}; one run of 7 takes 3 ms",
        "a copy that takes time": f"you report 0.2 ms {needs}; a copy of its result takes 0.1 ms",
        "an L2 cache": f"you report 0.046 ms {needs}; with its input in L2 it needs 0.04 ms",
        "a kernel that is slower on real data": f"you report 0.05 ms {needs}; "
        "on numbers that are nearly the same it needs 0.05 ms",
        "a clock that drifts": "two kernels that need the same, on a GPU that needs 1.5 times as long at the end as "
        "at the beginning: you report 0.111 ms and 0.136 ms",
    }
    assert all(seen in str(report) for seen in left(report).values())


SINGLE = {
    "a kernel that skips work": ("if not torch.allclose", "if False and torch.allclose"),
    "a slow run now and then": ("statistics.median", "statistics.mean"),
    "a copy that takes time": ("            fn(x)\n", "            fn(x).clone()\n"),
    "an L2 cache": ("gpu.flush()", "pass"),
    "a kernel that is slower on real data": ("    theirs(x)\n",
                                             "    x = torch.zeros_like(x)\n    mine(x), theirs(x)\n"),
    "a first call that compiles": ("range(30):", "range(30, 0, -1):", "for _ in range(30", "for rows in range(30",
                                   "            fn(x)\n", "            fn(x[:, rows:])\n"),
    "launches that return at once": ("start = gpu.record()", "start = gpu.now()",
                                     "(start, gpu.record())", "gpu.now() - start",
                                     "start.elapsed_time(end) for start, end in", "ms for ms in"),
    "a clock that drifts": (
        '    for _ in range(30):\n        for name, fn in (("mine", mine), ("theirs", theirs)):\n',
        '    for name, fn in (("mine", mine), ("theirs", theirs)):\n        for _ in range(30):\n',
    ),
}  # fmt: skip


@pytest.mark.parametrize("lie", SINGLE)
def test_a_single_lie_is_the_only_one_named(benchmark_report, lie):
    report = benchmark_report(*SINGLE[lie])
    assert list(left(report)) == [lie]
    assert report.points == (0 if lie == "a kernel that skips work" else 3)


@pytest.mark.parametrize(
    "lies_told",
    [
        ("a slow run now and then", "an L2 cache"),
        ("a kernel that is slower on real data", "an L2 cache", "a copy that takes time"),
        ("a clock that drifts", "a slow run now and then", "an L2 cache"),
        ("a kernel that skips work", "a copy that takes time"),
    ],
    ids=", ".join,
)
def test_several_lies_are_all_named(benchmark_report, lies_told):
    report = benchmark_report(*(text for lie in lies_told for text in SINGLE[lie]))
    assert set(left(report)) == set(lies_told)
    assert report.points == (3 if len(lies_told) == 2 and "a kernel that skips work" not in lies_told else 0)


@pytest.mark.parametrize("kernel", lesson_07.WRONG)
def test_every_kernel_that_skips_work_is_wrong_on_random_data(kernel):
    x = torch.randn(Gpu.shape)
    assert not torch.allclose(lesson_07.WRONG[kernel](x), softmax(x), rtol=1e-3)


def test_one_kernel_that_skips_work_is_right_on_zeros():
    x = torch.zeros(Gpu.shape)
    assert any(torch.allclose(result(x), softmax(x)) for result in lesson_07.WRONG.values())


# 7.1


@pytest.fixture
def found():
    return SOLUTIONS["exhibit"].answered()


@pytest.fixture
def exhibit():
    from helpers import check

    return check.EXERCISES["exhibit"].report_on


def test_small_letters_and_either_line_of_the_first_call_are_right_too(found, exhibit):
    assert exhibit({charge: letter.lower() for charge, letter in found.items()}).points == 2
    assert exhibit(found | {"starts the clock before a first call was made": "G"}).points == 2


@pytest.mark.parametrize("charge", lesson_07.EXHIBIT)
@pytest.mark.parametrize("letter", ["A", "BC", 2, ""], ids=repr)
def test_a_wrong_line_is_named_without_the_right_one(found, exhibit, charge, letter):
    report = exhibit(found | {charge: letter})
    assert left(report) == {charge: f"it is not {letter!r}: {lesson_07.EXHIBIT[charge][1]}"}
    assert report.points == 0


def test_a_line_left_out_is_named(found, exhibit):
    charge = next(iter(found))
    assert left(exhibit(found | {charge: None})) == {charge: "not filled in yet"}


@pytest.mark.parametrize("given", [None, "BCLFIM", {"B": "computes a part of the row"}], ids=str)
def test_an_answer_of_another_form_is_refused(exhibit, given):
    with pytest.raises(TypeError, match="check.exhibit takes a dict with the keys 'computes a part of the row'"):
        exhibit(given)
