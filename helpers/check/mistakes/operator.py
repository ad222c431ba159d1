"""The known mistakes of exercise 16.1, a softmax with its gradient as an operator: edits of the course's own."""

from __future__ import annotations

from helpers.check.mistakes import names
from helpers.check.mistakes.edited import OfTensors
from helpers.check.mistakes.recognise import Explains, Mistake, any_of, where
from helpers.check.mistakes.shared import (
    INPUT_OVERWRITTEN,
    NO_KERNEL,
    OFFSETS_OVERFLOW,
    OUT_OF_BOUNDS,
    WRONG_DTYPE,
    WRONG_SHAPE,
)
from helpers.check.mistakes.stops import GENERAL
from helpers.check.problems.operating import OPERATOR
from helpers.softmax import taken_home as ours

_OPERATOR = OfTensors(
    ours.softmax_kernel,
    ours.rows_softmax,
    ours.gradient_kernel,
    ours.rows_gradient,
    ours.RowSoftmax,
    ours.softmax,
    ours.trained,
    kind=OPERATOR,
)
_DX = "y * (dy - tl.sum(dy * y, axis=0))"
_MOVED, _BACK = "x.movedim(dim, -1)", "y.reshape(rows.shape).movedim(-1, dim)"
_DY = "dy = tl.load(dy_ptr + row * dy_stride + cols * dy_col, mask=mask, other=0.0).to(tl.float32)"
_EMPTY, _LANES = "dx = torch.empty(M, N, dtype=y.dtype, device=y.device)", "BLOCK=triton.next_power_of_2(N)"
_ANY_ROWS = "rows.shape[:-1].numel(), rows.shape[-1]", "x.numel() // x.shape[dim], x.shape[dim]"
_SAVE, _SAVED = "ctx.save_for_backward(y)", "(y,) = ctx.saved_tensors"


def _raised(words: str) -> Explains:
    """What torch says of a gradient."""
    return where(lambda seen: words in seen.trial.raised)


OF_OPERATOR = (
    *GENERAL,
    NO_KERNEL,
    Mistake(
        "cut_off_from_autograd",
        "The result is cut off from x: PyTorch finds no way back.",
        "Which call makes PyTorch remember backward, RowSoftmax.apply or RowSoftmax.forward, and what is detached?",
        3,
        _raised("does not require grad"),
    ),
    Mistake(
        "gradient_missing",
        "No gradient of x comes back.",
        "What does backward return, and for which argument of forward?",
        3,
        any_of(*(_raised(words) for words in ("not have been used in the graph", "gradients (expected"))),
    ),
    Mistake(
        "nothing_saved",
        "Nothing is saved for backward.",
        "What does ctx.saved_tensors hold if ctx.save_for_backward was given nothing?",
        3,
        _raised("not enough values to unpack"),
    ),
    INPUT_OVERWRITTEN,
    WRONG_DTYPE,
    WRONG_SHAPE,
    _OPERATOR.mistake(
        "dimension_not_moved",
        "The dimension is not moved to the end, or not back.",
        "Of which elements does a row consist when dim is 0, and where does each result belong?",
        4,
        (_MOVED, "x", _BACK, "y.reshape(rows.shape)"),
        (_BACK, "y.reshape(x.shape)"),
        (_MOVED, "x.transpose(dim, -1)"),
        (_MOVED, "x", *_ANY_ROWS, _BACK, "y.reshape(x.shape)"),
    ),
    _OPERATOR.mistake(
        "strides_of_dy",
        "The strides of dy are not used.",
        "Which strides has the gradient of y.sum(), a single number that stands for all?",
        2,
        (_DY, "dy = tl.load(dy_ptr + row * N + cols, mask=mask, other=0.0).to(tl.float32)"),
        (_DY, "dy = tl.load(dy_ptr + row * dy_stride + cols, mask=mask, other=0.0).to(tl.float32)"),
    ),
    _OPERATOR.mistake(
        "sum_of_another",
        "The sum is left out, or it is not that of dy · y.",
        "A probability that grows takes from all others: which two rows does that sum multiply before it adds?",
        1,
        (_DX, "y * dy"),
        (_DX, "dy * y * (1 - y)"),
        (_DX, "y * (dy - tl.sum(dy, axis=0))"),
        (_DX, "y * (dy - tl.sum(y, axis=0))"),
        (_DX, "y * (dy - tl.sum(dy * dy, axis=0))"),
        (_DX, "y * (dy - tl.sum(dy * y, axis=0) / N)"),
        (_DX, "y * (dy + tl.sum(dy * y, axis=0))"),
    ),
    _OPERATOR.mistake(
        "not_times_y",
        "The difference is not multiplied by y, or y is taken from it.",
        "How much can a logit move a probability that is nearly 0?",
        1,
        (_DX, "dy - tl.sum(dy * y, axis=0)"),
        (_DX, "y * dy - tl.sum(dy * y, axis=0)"),
        (_DX, "dy - y * tl.sum(dy * y, axis=0)"),
        (_DX, "dy - y * tl.sum(dy, axis=0)"),
        (_DX, "dy - tl.exp(y) * tl.sum(dy, axis=0)"),
    ),
    _OPERATOR.mistake(
        "x_in_place_of_y",
        "The gradient is made of x, not of y.",
        "Which tensor does the formula ask for: what went in, or what came out?",
        3,
        (_SAVE, "ctx.save_for_backward(x)"),
    ),
    _OPERATOR.mistake(
        "kept_outside_ctx",
        "A second call takes the place of what the first has kept.",
        "Two softmaxes run forward before the first runs backward: whose is each y, and where does it wait?",
        3,
        (_SAVE, "RowSoftmax.y = y", _SAVED, "y = RowSoftmax.y"),
    ),
    _OPERATOR.mistake(
        "y_overwritten",
        "The gradient is stored over y.",
        "Who else holds y when backward runs?",
        2,
        (_EMPTY, "dx = y"),
    ),
    _OPERATOR.mistake(
        "rows_left_out",
        "A part of dx is never stored: the launch has too few programs, or too few lanes.",
        "How many rows has dy, how many numbers has a row, and which of the two does the grid count?",
        2,
        ("gradient_kernel[(M,)]", "gradient_kernel[(1,)]"),
        *((_LANES, f"BLOCK={lanes}") for lanes in (64, 128, 256, 512, 1024, 2048)),
    ),
    _OPERATOR.named(
        names.ONLY_16_BIT,
        1,
        ("tl.sum(dy * y, axis=0)", "tl.sum((dy * y).to(tl.bfloat16), axis=0)"),
        ("mask=mask, other=0.0).to(tl.float32)", "mask=mask, other=0.0)"),
    ),
    OFFSETS_OVERFLOW,
    OUT_OF_BOUNDS,
)  # fmt: skip
