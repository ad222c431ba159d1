"""Answers that are right in the interpreter: those that no compiler takes have no points, their twins have all."""

import sys

import pytest
import torch
import triton
import triton.language as tl

import needs
from helpers.check import EXERCISES
from helpers.check import place as places
from helpers.xray import kept, verdict

pytestmark = needs.interpreter


@pytest.fixture(autouse=True)
def nothing_known(monkeypatch, tmp_path):
    monkeypatch.setenv("TRITON_CACHE_DIR", str(tmp_path))
    monkeypatch.setattr(kept, "answers", {})


def driver(kernel, BLOCK=512):
    """A softmax that launches `kernel` on rows of any stride; with BLOCK None its tile holds the row."""

    def my_softmax(x):
        M, N = x.shape
        y = torch.empty((M, N), dtype=x.dtype, device=x.device)
        kernel[(M,)](y, x, y.stride(0), x.stride(0), x.stride(1), N, BLOCK=BLOCK or triton.next_power_of_2(N))
        return y

    return my_softmax


def report_on(name, kernel, **options):
    return EXERCISES[name].report_on(driver(kernel, **options))


# What the compiler refuses


@triton.jit
def sum_begins_as_an_integer(y_ptr, x_ptr, y_stride, x_stride, x_col_stride, N, BLOCK: tl.constexpr):
    row = tl.program_id(0).to(tl.int64)
    m = -float("inf")
    l = 0
    for start in range(0, N, BLOCK):
        cols = start + tl.arange(0, BLOCK).to(tl.int64)
        x = tl.load(x_ptr + row * x_stride + cols * x_col_stride, mask=cols < N, other=-float("inf")).to(tl.float32)
        m = tl.maximum(m, tl.max(x, axis=0))
    for start in range(0, N, BLOCK):
        cols = start + tl.arange(0, BLOCK).to(tl.int64)
        x = tl.load(x_ptr + row * x_stride + cols * x_col_stride, mask=cols < N, other=-float("inf")).to(tl.float32)
        l += tl.sum(tl.exp(x - m), axis=0)
    for start in range(0, N, BLOCK):
        cols = start + tl.arange(0, BLOCK).to(tl.int64)
        x = tl.load(x_ptr + row * x_stride + cols * x_col_stride, mask=cols < N, other=-float("inf")).to(tl.float32)
        tl.store(y_ptr + row * y_stride + cols, tl.exp(x - m) / l, mask=cols < N)


@triton.jit
def list_of_tiles(y_ptr, x_ptr, y_stride, x_stride, x_col_stride, N, BLOCK: tl.constexpr):
    row = tl.program_id(0).to(tl.int64)
    m = -float("inf")
    l = 0.0
    es = []
    for start in range(0, N, BLOCK):
        cols = start + tl.arange(0, BLOCK).to(tl.int64)
        x = tl.load(x_ptr + row * x_stride + cols * x_col_stride, mask=cols < N, other=-float("inf")).to(tl.float32)
        m = tl.maximum(m, tl.max(x, axis=0))
    for start in range(0, N, BLOCK):
        cols = start + tl.arange(0, BLOCK).to(tl.int64)
        x = tl.load(x_ptr + row * x_stride + cols * x_col_stride, mask=cols < N, other=-float("inf")).to(tl.float32)
        es.append(tl.exp(x - m))
        l += tl.sum(tl.exp(x - m), axis=0)
    i = 0
    for start in range(0, N, BLOCK):
        cols = start + tl.arange(0, BLOCK).to(tl.int64)
        tl.store(y_ptr + row * y_stride + cols, es[i] / l, mask=cols < N)
        i += 1


@triton.jit
def with_a_break(y_ptr, x_ptr, y_stride, x_stride, x_col_stride, N, BLOCK: tl.constexpr):
    row = tl.program_id(0).to(tl.int64)
    cols = tl.arange(0, BLOCK).to(tl.int64)
    for i in range(0, 2):
        if i == 1:
            break
        x = tl.load(x_ptr + row * x_stride + cols * x_col_stride, mask=cols < N, other=-float("inf")).to(tl.float32)
        e = tl.exp(x - tl.max(x, axis=0))
        tl.store(y_ptr + row * y_stride + cols, e / tl.sum(e, axis=0), mask=cols < N)


@triton.jit
def with_a_dict(y_ptr, x_ptr, y_stride, x_stride, x_col_stride, N, BLOCK: tl.constexpr):
    row = tl.program_id(0).to(tl.int64)
    cols = tl.arange(0, BLOCK).to(tl.int64)
    kept = {"x": tl.load(x_ptr + row * x_stride + cols * x_col_stride, mask=cols < N, other=-float("inf"))}
    e = tl.exp(kept["x"].to(tl.float32) - tl.max(kept["x"].to(tl.float32), axis=0))
    tl.store(y_ptr + row * y_stride + cols, e / tl.sum(e, axis=0), mask=cols < N)


@triton.jit
def with_a_try(y_ptr, x_ptr, y_stride, x_stride, x_col_stride, N, BLOCK: tl.constexpr):
    row = tl.program_id(0).to(tl.int64)
    cols = tl.arange(0, BLOCK).to(tl.int64)
    try:
        x = tl.load(x_ptr + row * x_stride + cols * x_col_stride, mask=cols < N, other=-float("inf")).to(tl.float32)
    finally:
        e = tl.exp(x - tl.max(x, axis=0))
    tl.store(y_ptr + row * y_stride + cols, e / tl.sum(e, axis=0), mask=cols < N)


@triton.jit
def skips_tiles(y_ptr, x_ptr, y_stride, x_stride, x_col_stride, N, BLOCK: tl.constexpr):
    row = tl.program_id(0).to(tl.int64)
    m = -float("inf")
    l = 0.0
    for start in range(0, N, BLOCK):
        cols = start + tl.arange(0, BLOCK).to(tl.int64)
        x = tl.load(x_ptr + row * x_stride + cols * x_col_stride, mask=cols < N, other=-float("inf")).to(tl.float32)
        if tl.max(x, axis=0) == -float("inf"):
            continue
        m_new = tl.maximum(m, tl.max(x, axis=0))
        l = l * tl.exp(m - m_new) + tl.sum(tl.exp(x - m_new), axis=0)
        m = m_new
    for start in range(0, N, BLOCK):
        cols = start + tl.arange(0, BLOCK).to(tl.int64)
        x = tl.load(x_ptr + row * x_stride + cols * x_col_stride, mask=cols < N, other=-float("inf")).to(tl.float32)
        tl.store(y_ptr + row * y_stride + cols, tl.exp(x - m) / l, mask=cols < N)


def softmax_of_a_tile(x):
    e = tl.exp(x - tl.max(x, axis=0))
    return e / tl.sum(e, axis=0)


@triton.jit
def calls_python(y_ptr, x_ptr, y_stride, x_stride, x_col_stride, N, BLOCK: tl.constexpr):
    row = tl.program_id(0).to(tl.int64)
    cols = tl.arange(0, BLOCK).to(tl.int64)
    x = tl.load(x_ptr + row * x_stride + cols * x_col_stride, mask=cols < N, other=-float("inf")).to(tl.float32)
    tl.store(y_ptr + row * y_stride + cols, softmax_of_a_tile(x), mask=cols < N)


ONE_TILE = {"BLOCK": None}
REFUSED = [
    ("two_pass", sum_begins_as_an_integer, {}, "`l = 0` is an integer (int32) and becomes a float (fp32) in the loop"),
    ("two_pass", list_of_tiles, {}, "Triton has no lists that change"),
    ("online", skips_tiles, {}, "Triton has no `continue`"),
    ("masked", with_a_break, ONE_TILE, "Triton has no `break`"),
    ("masked", with_a_dict, ONE_TILE, "Triton has no dicts"),
    ("masked", with_a_try, ONE_TILE, "Triton has no exceptions"),
    ("masked", calls_python, ONE_TILE, "the kernel calls softmax_of_a_tile, a function of Python"),
]


@pytest.mark.parametrize(
    ("name", "kernel", "options", "said"), REFUSED, ids=[kernel.fn.__name__ for _, kernel, _, _ in REFUSED]
)
def test_a_kernel_that_runs_in_the_interpreter_alone_has_no_points_and_is_told_why(name, kernel, options, said):
    report = report_on(name, kernel, **options)
    assert report.points == 0
    assert report.diagnosis.id == "does_not_compile"
    assert said in report.diagnosis.question


# Their twins


@triton.jit
def softmax_of_a_row(x):
    e = tl.exp(x - tl.max(x, axis=0))
    return e / tl.sum(e, axis=0)


@triton.jit(noinline=False, do_not_specialize=["N"])
def calls_a_kernel(y_ptr, x_ptr, y_stride, x_stride, x_col_stride, N, BLOCK: tl.constexpr):
    row = tl.program_id(0).to(tl.int64)
    cols = tl.arange(0, BLOCK).to(tl.int64)
    x = tl.load(x_ptr + row * x_stride + cols * x_col_stride, mask=cols < N, other=-float("inf")).to(tl.float32)
    tl.store(y_ptr + row * y_stride + cols, softmax_of_a_row(x), mask=cols < N)


@triton.jit
def with_while_and_tuple(y_ptr, x_ptr, y_stride, x_stride, x_col_stride, N, BLOCK: tl.constexpr):
    row = tl.program_id(0).to(tl.int64)
    pair = (-float("inf"), 0.0)
    m, l = pair
    start = 0
    while start < N:
        cols = start + tl.arange(0, BLOCK).to(tl.int64)
        x = tl.load(x_ptr + row * x_stride + cols * x_col_stride, mask=cols < N, other=-float("inf")).to(tl.float32)
        m_new = tl.maximum(m, tl.max(x, axis=0))
        shift = tl.where(m_new == -float("inf"), 0.0, m_new)
        l = l * tl.exp(m - shift) + tl.sum(tl.exp(x - shift), axis=0)
        m = m_new
        start += BLOCK
    for start in tl.range(0, N, BLOCK):
        cols = start + tl.arange(0, BLOCK).to(tl.int64)
        x = tl.load(x_ptr + row * x_stride + cols * x_col_stride, mask=cols < N, other=-float("inf")).to(tl.float32)
        tl.store(y_ptr + row * y_stride + cols, tl.exp(x - m) / l, mask=cols < N)


@pytest.mark.parametrize(("name", "kernel", "options"), [
    ("masked", calls_a_kernel, ONE_TILE), ("online", with_while_and_tuple, {}),
])  # fmt: skip
def test_its_twin_in_triton_s_language_has_all_points(name, kernel, options):
    report = report_on(name, kernel, **options)
    assert report.passed, str(report)


# What is asked, and what is not


def test_what_is_known_is_not_compiled_again_not_in_another_process_either(monkeypatch):
    assert report_on("single_tile", calls_a_kernel, **ONE_TILE).passed
    monkeypatch.setattr(kept, "answers", {})
    monkeypatch.setattr(places.child, "call", lambda *_, **__: pytest.fail("it was compiled again"))
    assert report_on("single_tile", calls_a_kernel, **ONE_TILE).passed


@pytest.mark.parametrize("error", [places.child.ChildDied("killed by SIGSEGV"), TimeoutError()])
def test_a_compiler_that_dies_or_takes_too_long_costs_nothing_and_the_report_says_so(monkeypatch, error):
    def fail(*_, **__):
        raise error

    monkeypatch.setattr(places.child, "call", fail)
    report = report_on("single_tile", calls_a_kernel, **ONE_TILE)
    assert report.passed
    assert "Not compiled here: " in str(report)
    assert "the compiler did not answer" in str(report)


def test_a_triton_without_its_compiler_costs_nothing_and_the_report_says_so(monkeypatch):
    def missing(*_):
        raise RuntimeError("Triton 9 has moved CUDABackend")

    monkeypatch.setattr(verdict, "request_of_launch", missing)
    report = report_on("single_tile", calls_a_kernel, **ONE_TILE)
    assert report.passed
    assert "Not compiled here: Triton 9 has moved CUDABackend" in str(report)


@pytest.mark.parametrize("in_a_notebook", [True, False])
def test_in_a_notebook_the_compiler_is_started_when_helpers_are_imported(monkeypatch, in_a_notebook):
    asked = []
    monkeypatch.setattr(places.child, "prepare", lambda function, interpret: asked.append(interpret))
    modules = {name: module for name, module in sys.modules.items() if name != "ipykernel"}
    monkeypatch.setattr(places.sys, "modules", modules | ({"ipykernel": None} if in_a_notebook else {}))
    places.start_early()
    assert asked == ([False] if in_a_notebook else [])
