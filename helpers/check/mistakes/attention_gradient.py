"""The known mistakes of the gradient of attention, in PyTorch: each is told by the gradients that it makes."""

from __future__ import annotations

from helpers.attention import lesson
from helpers.check.mistakes import names
from helpers.check.mistakes.attention_walk import wrong_only
from helpers.check.mistakes.edited import OfTensors
from helpers.check.mistakes.recognise import Mistake, any_of, came_back, where
from helpers.check.mistakes.shared import MEMORY_USED_AGAIN
from helpers.check.mistakes.stops import GENERAL
from helpers.check.problems.attention import ATTENTION_GRADIENT

_GRADIENT = OfTensors(lesson.attention_gradient, kind=ATTENTION_GRADIENT)
_S, _P = "s = scale * q", "p = torch.exp(s - lse[..., None])"
_DELTA = "delta = (o * do).sum(dim=-1, keepdim=True)"
_DS = "ds = p * (do @ v[:, keys].mT - delta)"
_DV, _DQ, _DK = "dv[:, keys] = p.mT @ do", "dq += scale * ds", "dk[:, keys] = scale * ds.mT"
_DQ_ALONE, _DK_ALONE = (_DQ, "dq += ds"), (_DK, "dk[:, keys] = ds.mT")
_DQ_TWICE, _DK_TWICE = (_DQ, "dq += scale * scale * ds"), (_DK, "dk[:, keys] = scale * scale * ds.mT")

_OTHER_DELTAS = (
    "do.sum(-1, keepdim=True)",
    "o.sum(-1, keepdim=True)",
    "(o * o).sum(-1, keepdim=True)",
    "(do * do).sum(-1, keepdim=True)",
    "(q * do).sum(-1, keepdim=True)",
    "(o * do).mean(-1, keepdim=True)",
)

ATTENTION_GRADIENT_MISTAKES = (
    *GENERAL,
    Mistake(
        "no_three",
        "Something other than dq, dk and dv comes back.",
        "Which three tensors are asked for, and in which order?",
        3,
        lambda seen: max(came_back(kind)(seen) for kind in ("pair", "order", "type")),
    ),
    Mistake(
        "shape_of_gradient",
        "A gradient has the wrong shape.",
        "Which tensor is each of them the gradient of?",
        3,
        came_back("shape"),
    ),
    Mistake(
        "dtype_of_gradient",
        "A gradient has the wrong dtype.",
        "Which dtype has the tensor that it is the gradient of?",
        3,
        came_back("dtype"),
    ),
    Mistake(
        "input_of_backward_changed",
        "An input is overwritten.",
        "Which line changes a tensor in place, and whose is it?",
        3,
        where(lambda seen: seen.trial.input_changed),
    ),
    MEMORY_USED_AGAIN,
    _GRADIENT.mistake(
        "no_lse",
        "The log-sum-exp is not subtracted.",
        "What do the weights of a query add up to, and what does exp(s) add up to?",
        1,
        (_P, "p = torch.exp(s)"),
    ),
    _GRADIENT.mistake(
        "softmax_of_block",
        "The weights are a softmax of one block.",
        "Over which keys do the weights of a query add up to 1, and which number says so?",
        1,
        (_P, "p = torch.softmax(s, dim=-1)"),
    ),
    _GRADIENT.mistake(
        "weights_of_base_2",
        "2 is raised to a power, not e.",
        "Of which base is the log-sum-exp?",
        1,
        (_P, "p = torch.exp2(s - lse[..., None])"),
        (_P, "p = torch.exp2(s * 1.4426950408889634 - lse[..., None])"),
    ),
    _GRADIENT.mistake(
        "scores_not_scaled",
        "The scores are not scaled.",
        "With which factor were the scores made that the log-sum-exp is of?",
        1,
        (_S, "s = q"),
        (_S, "s = scale * scale * q"),
        (_S, "s = q / scale"),
    ),
    _GRADIENT.named(names.EXPONENTIAL_OVERFLOWS, 1, (_P, "p = torch.exp(s) / torch.exp(lse[..., None])")),
    _GRADIENT.mistake(
        "another_scale",
        "The scale is another one than 1 / √d.",
        "Which size of q is d, and is it the same for every q?",
        2,
        ("q.shape[-1] ** -0.5", "q.shape[1] ** -0.5"),
        ("q.shape[-1] ** -0.5", "0.125"),
    ),
    _GRADIENT.mistake(
        "keys_in_no_block",
        "Some keys are in no block.",
        "Which key is the last one of a block, which the first of the next, and where does the last block end?",
        3,
        ("range(0, k.shape[1], BLOCK)", "range(0, q.shape[1], BLOCK)"),
        ("range(0, k.shape[1], BLOCK)", "range(0, k.shape[1] - BLOCK + 1, BLOCK)"),
        ("start + BLOCK)", "start + BLOCK - 1)"),
    ),
    _GRADIENT.mistake(
        "no_delta",
        "The term delta is not subtracted.",
        "A weight that grows takes from all others: which term says so?",
        2,
        (_DS, "ds = p * (do @ v[:, keys].mT)"),
    ),
    _GRADIENT.mistake(
        "delta_added",
        "The term delta is added, or the difference has the wrong sign.",
        "What is ds for the weight of a value that is just as good as the mean?",
        2,
        (_DS, _DS.replace("- delta", "+ delta")),
        (_DS, "ds = p * (delta - do @ v[:, keys].mT)"),
    ),
    _GRADIENT.mistake(
        "delta_of_others",
        "The term delta is made of other tensors than o and do.",
        "Which two rows does delta multiply, number by number?",
        2,
        *((_DELTA, f"delta = {other}") for other in _OTHER_DELTAS),
    ),
    _GRADIENT.mistake(
        "ds_without_p",
        "The slope ds is not weighed with p.",
        "How much does a score matter whose weight is nearly 0?",
        2,
        (_DS, "ds = do @ v[:, keys].mT - delta"),
        (_DS, "ds = p * (do @ v[:, keys].mT) - delta"),
    ),
    _GRADIENT.mistake(
        "dq_without_scale",
        "The factor scale is missing in dq or in dk.",
        "The scores are scale · q k: what is their slope in q, and what in k?",
        2,
        _DQ_ALONE,
        _DK_ALONE,
        (*_DQ_ALONE, *_DK_ALONE),
    ),
    _GRADIENT.mistake(
        "scale_twice",
        "The factor scale is applied twice.",
        "Which of ds, dq and dk holds the factor already?",
        2,
        _DQ_TWICE,
        _DK_TWICE,
        (*_DQ_TWICE, *_DK_TWICE),
    ),
    _GRADIENT.mistake(
        "dq_of_last_block",
        "The gradient dq holds the part of the last block alone.",
        "Which keys does a query get its gradient from, and what becomes of the earlier blocks' parts?",
        3,
        ("dq += ", "dq = "),
    ),
    _GRADIENT.mistake(
        "dk_of_p",
        "The tensors p and ds have changed places.",
        "Which of the two does dv take, and which one dk?",
        1,
        (_DV, "pass", _DQ, f"dv[:, keys] = ds.mT @ do\n        {_DQ}"),
        (_DK, "dk[:, keys] = scale * p.mT"),
    ),
    Mistake(
        "dv_wrong",
        "Only dv is wrong, and all else is right.",
        "Which weights does a value enter o with, and which rows of do does it meet?",
        1,
        wrong_only(ATTENTION_GRADIENT, 2),
    ),
    Mistake(
        "dq_wrong",
        "The gradient dq is wrong, and dv is right.",
        "ds has a row for each query: which rows does it weigh, and are the parts of all blocks added?",
        2,
        any_of(wrong_only(ATTENTION_GRADIENT, 0), wrong_only(ATTENTION_GRADIENT, 0, 1)),
    ),
    Mistake(
        "dk_wrong",
        "Only dk is wrong, and all else is right.",
        "ds turned over has a row for each key: which rows does it weigh?",
        2,
        wrong_only(ATTENTION_GRADIENT, 1),
    ),
)  # fmt: skip
