"""Answers that are right in the interpreter, and that no compiler takes, have no points."""

import sys

import pytest

import needs
from corpus import WRONG
from exercises import SOLUTIONS
from helpers.check import EXERCISES
from helpers.check.trial import place as places
from helpers.engine.compiler import store, verdict
from helpers.engine.compiler.refusal import Refusal
from helpers.engine.compiler.request import CompileRequest
from variants import proofs_but_for

pytestmark = needs.interpreter


@pytest.fixture(autouse=True)
def nothing_known(monkeypatch, tmp_path):
    monkeypatch.setenv("TRITON_CACHE_DIR", str(tmp_path))
    monkeypatch.setattr(store, "answers", {})


def report_on(name, *replaced):
    return EXERCISES[name].report_on(SOLUTIONS[name].answered(*replaced))


def test_triton_s_own_softmax_is_not_an_answer():
    steps = ["tl.max(x, axis=0)", "0.0", "e = tl.exp(x - m)", "e = tl.softmax(x)", "l = tl.sum(e, axis=0)", "l = 1.0"]
    report = report_on("single_tile", *steps)
    assert (report.points, report.diagnosis.id) == (0, "triton_s_softmax")


def solved():
    return report_on("single_tile")


def test_a_launch_that_python_refuses_is_refused_without_a_question():
    found = verdict.verdict_on([{"refused": "no such argument", "kernel": "mine"}], judge=None)
    assert found.refusals == (Refusal("mine", "", "no such argument"),)


@pytest.mark.parametrize(("answer", "refused", "too_large"), [("", [], ["sm_75"]), ("no", ["sm_75", "sm_90"], [])])
def test_what_only_some_gpus_have_too_little_memory_for_is_not_refused(answer, refused, too_large):
    def judge(tasks):
        lacks = {"reason": "it does not fit", "meaning": "", "fits": "no"}
        return [lacks if answer or task["target"] == "sm_75" else {"reason": "", "meaning": ""} for task in tasks]

    request = CompileRequest(f"of {answer}", "mine", (("y_ptr", "*fp32"),), (), (), "sm_75", 4, None)
    found = verdict.verdict_on([{"asks": request.plain()}], judge)
    assert [one.target for one in found.refusals] == refused and [one.target for one in found.too_large] == too_large


@pytest.mark.parametrize(
    ("launched", "compiled"),
    [
        ([{"BLOCK": n} for n in (1024, 65_536, 4096, 131_072)], {"BLOCK": 65_536}),
        ([{"BLOCK": n} for n in (262_144, 131_072)], {"BLOCK": 131_072}),
        ([{"BLOCK": 131_072, "N": 70_001}, {"BLOCK": 4096, "N": 4095}], {"BLOCK": 4096, "N": 4095}),
        ([{"M": 64, "N": 64, "D": d} for d in (16, 128, 64)], {"M": 64, "N": 64, "D": 128}),  # no tile of M · N · D
    ],
)
def test_of_the_tiles_launched_the_largest_is_compiled_that_does_not_take_long(launched, compiled):
    constants = []

    def judge(tasks):
        constants.extend(dict(task["constants"]) for task in tasks)
        return [{"reason": "", "meaning": ""}] * len(tasks)

    asks = [
        CompileRequest("", "mine", (("y_ptr", "*fp32"),), tuple(sizes.items()), (), "sm_75", 4, None)
        for sizes in launched
    ]
    verdict.verdict_on([{"asks": request.plain()} for request in asks], judge)
    assert constants == [compiled] * len(verdict.VERDICT_TARGETS)


@pytest.mark.thinned(0)
def test_a_tile_too_large_for_the_oldest_gpu_is_right():
    report = report_on("grouped", "BLOCK_N=32", "BLOCK_N=64")
    assert report.passed
    (finding,) = [one for one in report.findings if one.case == "compiled"]
    assert finding.seen.startswith("compiled for sm_90; group_kernel does not fit sm_75: a program needs ")


# What the compiler refuses

KNOWN = {
    ("two_pass", "l begins as an integer"): "`l = 0` is an integer (int32) and becomes a float (fp32) in the loop",
    ("two_pass", "tiles in a list"): "Triton has no lists that change",
    ("two_pass", "leaves the loop"): "Triton has no `break`",
    ("online", "empty tiles left out"): "Triton has no `continue`",
    ("masked", "a return in a loop"): "Triton has no `return` inside a loop",
    ("masked", "a dict"): "Triton has no dicts",
}


def refused(report, said):
    return (report.points, report.diagnosis.id) == (0, "does_not_compile") and said in report.diagnosis.question


@pytest.mark.thinned(1)
@pytest.mark.parametrize(("name", "fault"), proofs_but_for(KNOWN, 2))
def test_a_kernel_that_no_compiler_takes_has_no_points_and_is_told_why(name, fault):
    assert refused(report_on(name, *WRONG[name][fault].replaced), KNOWN[name, fault])


def test_a_function_of_python_is_named():
    wrong = "def term(x):\n    return tl.exp(x)\n\n\n@triton.jit\ndef softmax_kernel("
    report = report_on("masked", "tl.exp(x - m)", "term(x - m)", "@triton.jit\ndef softmax_kernel(", wrong)
    assert refused(report, "the kernel calls term, a function of Python")


@pytest.mark.thinned(0)
def test_what_only_the_assembler_refuses_has_no_points_either():
    """No PTX has a load that is cached in L2 alone and evicted first; the front end and the interpreter take it."""
    hints = ' + cols, cache_modifier=".cg", eviction_policy="evict_first")'
    report = report_on("single_tile", "tl.load(x_ptr + row * stride + cols)", f"tl.load(x_ptr + row * stride{hints}")
    assert refused(report, "ptxas says: ")
    assert [finding.case for finding in report.findings if not finding.ok] == ["compiled: softmax_kernel"]


# What is asked, and what is not


@pytest.mark.thinned(0)
def test_what_is_known_is_not_compiled_again_not_in_another_process_either(monkeypatch):
    assert solved().passed
    monkeypatch.setattr(store, "answers", {})
    monkeypatch.setattr(places.child, "call", lambda *_, **__: pytest.fail("it was compiled again"))
    assert solved().passed


@pytest.mark.thinned(1)
@pytest.mark.parametrize("error", [places.child.ChildDied("killed by SIGSEGV"), TimeoutError()])
def test_a_compiler_that_dies_or_takes_too_long_costs_nothing_and_the_report_says_so(monkeypatch, error):
    def fail(*_, **__):
        raise error

    monkeypatch.setattr(places.child, "call", fail)
    report = solved()
    assert report.passed
    assert "Not compiled here: " in str(report)
    assert "the compiler did not answer" in str(report)


def test_a_triton_without_its_compiler_costs_nothing_and_the_report_says_so(monkeypatch):
    def missing(*_):
        raise RuntimeError("Triton 9 has moved CUDABackend")

    monkeypatch.setattr(verdict, "request_of_launch", missing)
    report = solved()
    assert report.passed
    assert "Not compiled here: Triton 9 has moved CUDABackend" in str(report)


@pytest.mark.parametrize("in_a_notebook", [True, False])
def test_in_a_notebook_alone_the_compiler_is_started_before_a_check_asks_it(monkeypatch, in_a_notebook):
    asked = []
    monkeypatch.setattr(places.child, "prepare", lambda function, interpret: asked.append(interpret))
    modules = {name: module for name, module in sys.modules.items() if name != "ipykernel"}
    monkeypatch.setattr(places.sys, "modules", modules | ({"ipykernel": None} if in_a_notebook else {}))
    places.start_early()
    assert asked == ([False] if in_a_notebook else [])
