"""Updates that a mask switches off, and programs that move nothing, buy no trips to memory; others share no row."""

from dataclasses import replace

import pytest
import torch
import triton
import triton.language as tl

from exercises import SOLUTIONS
from helpers.check import EXERCISES
from helpers.check.problems import cases
from helpers.check.problems.problem import Problem
from helpers.check.trial.call import of_tensors
from helpers.check.trial.place import here
from helpers.engine.isolate import LIMITS
from helpers.kernels import online_softmax
from variants import Variant
from wrong_attention import WRONG as OF_ATTENTION

IDLE = """
import torch, triton, triton.language as tl


@triton.jit
def idle_kernel(x_ptr):
    if tl.program_id(0) < 0:
        tl.load(x_ptr)


once = {answer}


def {answer}(x, *others):
    idle_kernel[(64,)](x)
    return once(x, *others)
"""
WIDE = IDLE.replace(
    "if tl.program_id(0) < 0:\n        tl.load(x_ptr)",
    "lanes = tl.arange(0, 65536)\n    tl.load(x_ptr + lanes, mask=lanes < 0)",
)
"""Its tile would hold every key that no query sees, if lanes that are off counted without an end."""
BUSY = IDLE.replace("if tl.program_id(0) < 0:\n        tl.load(x_ptr)", "tl.load(x_ptr + tl.arange(0, 1024))").replace(
    "[(64,)](x)", "[(64,)](torch.zeros(1024, device=x.device))"
)
"""Its programs load more than the answer's, and nothing of x."""
ONE_PROGRAM = Variant("another_exercise", code='''
import torch, triton, triton.language as tl


@triton.jit
def kernel(y_ptr, x_ptr, y_stride, x_stride, x_col_stride, N, BLOCK: tl.constexpr, EXTRA: tl.constexpr):
    row, part = tl.program_id(0).to(tl.int64), tl.program_id(1)
    x_row = x_ptr + row * x_stride
    cols = tl.arange(0, BLOCK)
    if part == 1:
        for start in range(0, EXTRA, BLOCK):
            tl.load(x_row + (start + cols) * x_col_stride, mask=start + cols < EXTRA)
    if part == 0:
        m, shift, l = -float("inf"), 0.0, 0.0
        for start in range(0, N, BLOCK):
            at, there = (start + cols).to(tl.int64) * x_col_stride, start + cols < N
            x = tl.load(x_row + at, mask=there, other=-float("inf")).to(tl.float32)
            m_new = tl.maximum(m, tl.max(x, axis=0))
            shift = tl.where(m_new == -float("inf"), 0.0, m_new)
            l = l * tl.exp(m - shift) + tl.sum(tl.exp(x - shift), axis=0)
            m = m_new
        for start in range(0, N, BLOCK):
            at, there = (start + cols).to(tl.int64) * x_col_stride, start + cols < N
            x = tl.load(x_row + at, mask=there, other=-float("inf")).to(tl.float32)
            tl.store(y_ptr + row * y_stride + start + cols, tl.exp(x - shift) / l, mask=start + cols < N)


def my_softmax(x, BLOCK=1024):
    M, N = x.shape
    y = torch.empty(M, N, dtype=x.dtype, device=x.device)
    if y.numel():
        long = N > 16_384
        programs, extra = (900, 9 * N // 40) if long else (1, 0)
        kernel[(M, programs)](y, x, y.stride(0), *x.stride(), N, BLOCK=BLOCK, EXTRA=extra)
    return y
''')  # fmt: skip
"""Lesson 05's kernel, and two ninths of the longest rows once more, so that no program loads nine tenths of them."""
_LONG = (
    "a row of 20,000, one large entry and many that are small", "one row of 16,384", "an ascending row of 8,448",
    "a row of 8,448, all equal but for the last",
)  # fmt: skip
_ONE_A_ROW = Variant("another_exercise", code="from helpers.kernels import online_softmax as my_softmax\n")
_TWO_PASSES, _ALL_TILES = OF_ATTENTION["attend"]["two passes over K"], OF_ATTENTION["causal"]["everything loaded"]
IDLE_PROGRAMS = {
    "two passes over K": ("attend", _TWO_PASSES, IDLE, ["200 queries"]),
    "hidden tiles loaded": ("causal", _ALL_TILES, IDLE, ["BLOCK_M = 128, BLOCK_N = 16, 200 queries, 200 keys"]),
    "hidden tiles loaded, and a tile that loads nothing": (
        "causal", _ALL_TILES, WIDE, ["BLOCK_M = 128, BLOCK_N = 16, 200 queries, 200 keys"],
    ),
    "lesson 05's kernel": ("split_row", ONE_PROGRAM, "", _LONG),
    "lesson 05's kernel, and a launch that loads nothing": ("split_row", _ONE_A_ROW, IDLE, _LONG),
    "lesson 05's kernel, and a launch that loads something else": ("split_row", _ONE_A_ROW, BUSY, _LONG),
}  # fmt: skip
"""An exercise, an answer to it that moves too much, and the cases that it is tried on."""


@triton.jit
def update_kernel(word_ptr, ON: tl.constexpr):
    tl.atomic_add(word_ptr + tl.program_id(0), 0, mask=tl.program_id(0) * 0 < ON)


def counted(besides):
    """The loads and stores of a right softmax of 4 × 16 numbers that calls besides(x) first."""
    x = torch.randn(4, 16)
    trial = of_tensors(lambda x: (besides(x), online_softmax(x))[1], Problem((x,), cases.SOFTMAX.wants(x)))
    return trial.loads, trial.stores


def counters(x, on, programs=64):
    update_kernel[(programs,)](torch.empty(programs, dtype=torch.int32, device=x.device), on)


def test_the_words_of_a_counter_are_free_and_updates_that_a_mask_switches_off_are_nothing():
    assert counted(lambda x: None) == (128, 64)
    assert [counted(lambda x, on=on: counters(x, on)) for on in (0, 1)] == 2 * [(128, 64)]


def test_an_input_is_no_counter():
    loads, stores = counted(lambda x: update_kernel[(64,)](x.view(torch.int32), 1))
    assert (loads, stores) == (128 + 64, 64 + 64)


@pytest.mark.parametrize("attack", IDLE_PROGRAMS)
def test_an_answer_that_moves_too_much_keeps_half_whatever_idle_programs_it_launches(attack):
    name, variant, besides, tried = IDLE_PROGRAMS[attack]
    besides = besides.format(answer=SOLUTIONS[name].answer)
    answer = SOLUTIONS[name].answered(*variant.replaced, code=variant.code + besides)
    exercise = replace(EXERCISES[name], makers={case: EXERCISES[name].makers[case] for case in tried})
    assert exercise.report(here(answer, LIMITS), seed=3).points == exercise.points / 2
