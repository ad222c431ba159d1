"""The known mistakes of lesson 15, as edits of the course's answers: a loop of chunks, and a walk over the classes."""

from __future__ import annotations

from helpers.check.mistakes import names
from helpers.check.mistakes.edited import OfTensors
from helpers.check.mistakes.recognise import Mistake, came_back
from helpers.check.mistakes.shared import INPUT_OVERWRITTEN, NUMBER_AT_A_TIME, OFFSETS_OVERFLOW, OUT_OF_BOUNDS
from helpers.check.mistakes.stops import GENERAL
from helpers.check.problems.without_logits import LOSS_AND_GRADIENTS, LOSSES_WITHOUT_LOGITS
from helpers.softmax import without_logits

_CHUNKS = OfTensors(without_logits.loss_in_place, without_logits.chunked_loss, kind=LOSS_AND_GRADIENTS)
_N, _OF_CHUNK = "n = (target != -100).sum()", "(target[rows] != -100).sum()"
_LOSS = "loss += loss_in_place(logits, target[rows], n)"
_LOGSUMEXP, _LOG_OF_SUM = "torch.logsumexp(logits, dim=1, keepdim=True)", "logits.exp().sum(1, keepdim=True).log()"
_LOSS_OF_SHARE = f"loss += len(logits) / len(x) * loss_in_place(logits, target[rows], {_OF_CHUNK})"
_COUNTED = "[start // ROWS * len(logits) :][: len(logits)]"
_DX, _DW = "torch.mm(logits, W, out=dx[rows])", "dW.addmm_(logits.T, x[rows])"
_LINES = f"{_LOSS}\n        {_DX}\n        {_DW}"
_RANGE, _END, _RETURN = "range(0, len(x), ROWS)", "start + ROWS)", "return loss, dx, dW"


def _in_order(*lines: str) -> tuple[str, str]:
    return _LINES, "\n        ".join(lines)


OF_CHUNKS = (
    *GENERAL,
    INPUT_OVERWRITTEN,
    Mistake(
        "no_loss_and_gradients", "Something other than loss, dx and dW comes back.",
        "Which three tensors are asked for, in which order, shape and dtype?", 4,
        lambda seen: max(came_back(kind)(seen) for kind in ("pair", "order", "type", "shape", "dtype")),
    ),
    _CHUNKS.mistake(
        "mean_of_means", "Each chunk takes a mean of its own.",
        "Of two chunks one has 16 tokens that count, the other has 1: how much of the mean does each token make up?", 1,
        (_LOSS, _LOSS.replace(", n)", f", {_OF_CHUNK})")),
        (_LOSS, _LOSS.replace(", n)", f", {_OF_CHUNK} * -(-len(x) // ROWS))")),
        (_LOSS, _LOSS.replace(", n)", f", {_OF_CHUNK}.clamp(min=1))")),
        (_LOSS, _LOSS.replace(", n)", ", len(logits))")),
        (_LOSS, f"{_LOSS_OF_SHARE}\n        logits *= len(logits) / len(x)"),
        (_LOSS, f"kept = logits.clone()\n        {_LOSS_OF_SHARE}\n        logits = kept\n        {_LOSS[8:]}"),
    ),
    _CHUNKS.mistake(
        "divided_by_something_else", "Loss or gradients are not divided once by the number of tokens that count.",
        "By which number does loss_in_place divide, if 10 of 40 tokens are ignored? What is left to divide?", 1,
        (_N, "n = len(x)"),
        (_N, "n = 1"),
        (_N, "n = -(-len(x) // ROWS)"),
        (_N, f"{_N} - 1"),
        (_N, "n = (target > 0).sum()"),
        (_N, "n = target[target != -100].sum()"),
        (_N, "n = 0", _LOSS, f"n += {_OF_CHUNK}\n        {_LOSS}"),
        (_N, f"{_N}\n    n = n * -(-len(x) // ROWS)"),
        (_RETURN, "return loss / n, dx / n, dW / n"),
        (_RETURN, "return loss / n, dx, dW"),
        (_RETURN, "return loss, dx / n, dW / n"),
        (_RETURN, "return loss, dx * n, dW * n"),
    ),
    _CHUNKS.mistake(
        "mean_of_nothing", "If no token counts, the loss is a number.",
        "What is a mean of no losses, and what does torch return?", 1,
        (_N, f"{_N}.clamp(min=1)"),
    ),
    _CHUNKS.mistake(
        "gradient_of_nothing", "If no token counts, the gradients are NaN.",
        "What is 0 / 0, and which gradient has a token that is ignored?", 1,
        (_N, f"{_N}\n    count, n = n, 1", _RETURN, "return loss / count, dx / count, dW / count"),
        ("logits.div_(n).masked_fill_(~counts[:, None], 0.0)", "logits.masked_fill_(~counts[:, None], 0.0).div_(n)"),
    ),
    _CHUNKS.mistake(
        "last_chunk_alone", "The loss, or dW, is the last chunk's alone.",
        "What becomes of the earlier chunks' parts, when the next one is stored?", 2,
        (_DW, "torch.mm(logits.T, x[rows], out=dW)"),
        ("loss += ", "loss = "),
        ("loss += ", "loss = ", _DW, "torch.mm(logits.T, x[rows], out=dW)"),
    ),
    _CHUNKS.mistake(
        "tokens_in_no_chunk", "Some tokens are in no chunk.",
        "Where does the last chunk begin and end, if ROWS does not divide the number of tokens?", 2,
        (_RANGE, "range(0, len(x) - ROWS + 1, ROWS)"),
        (_RANGE, "range(0, len(x) - ROWS, ROWS)"),
        (_RANGE, "range(0, len(x) - 1, ROWS)"),
        (_END, "start + ROWS - 1)"),
    ),
    _CHUNKS.mistake(
        "tokens_in_two_chunks", "Some tokens are in two chunks.",
        "Which is the last token of a chunk, and which is the first of the next?", 2,
        (_END, "start + ROWS + 1)"),
        ("slice(start, ", "slice(max(0, min(start, len(x) - ROWS)), "),
    ),
    _CHUNKS.mistake(
        "rows_of_another_chunk", "A chunk takes targets or tokens of another one, or stores its dx there.",
        "Which rows of x, of target and of dx belong to a chunk, in particular to a short last one?", 2,
        (_LOSS, _LOSS.replace("target[rows]", "target[: len(logits)]")),
        (_LOSS, _LOSS.replace("[rows]", _COUNTED)),
        (_LOSS, _LOSS.replace("[rows]", _COUNTED), _DX, _DX.replace("[rows]", _COUNTED)),
        (_DW, _DW.replace("x[rows]", "x[: len(logits)]")),
        (_DX, _DX.replace("dx[rows]", "dx[: len(logits)]")),
    ),
    _CHUNKS.mistake(
        "products_of_logits", "The logits are multiplied, not their gradient.",
        "What do the logits hold before loss_in_place is called, and what after?", 3,
        _in_order(_DX, _DW, _LOSS),
        _in_order(_DX, _LOSS, _DW),
        _in_order(_DW, _LOSS, _DX),
    ),
    _CHUNKS.mistake(
        "gradient_with_minus", "A gradient has the other sign.",
        "Which sign has what loss_in_place leaves in the logits, and which one has dx?", 3,
        (_DW, _DW.replace(")", ", alpha=-1)")),
        (_DX, f"{_DX}.neg_()"),
        (_RETURN, "return loss, -dx, -dW"),
    ),
    _CHUNKS.named(
        names.NO_MAXIMUM, 1,
        (_LOGSUMEXP, _LOG_OF_SUM),
        (_LOGSUMEXP, _LOG_OF_SUM, "logits.sub_(lse).exp_()", "logits.exp_().div_(lse.exp())"),
    ),
    _CHUNKS.mistake(
        "kept_in_16_bits", "A tensor on the way has 16 bits.",
        "Of which dtype is x, and of which dtype is each tensor between x and the results?", 3,
        ("torch.zeros_like(W)", "torch.zeros_like(W).bfloat16()", _DW, "dW += (logits.T @ x[rows]).bfloat16()",
         _RETURN, "return loss, dx, dW.to(W.dtype)"),
        (_DW, f"logits = logits.bfloat16().to(x.dtype)\n        {_DW}"),
    ),
)  # fmt: skip

_WALK = OfTensors(without_logits.walk_kernel, without_logits.walked_losses, kind=LOSSES_WITHOUT_LOGITS)
_FIRST_M = 'm = tl.full((BLOCK_M,), -float("inf"), tl.float32)'
_EMPTY = "s = tl.zeros((BLOCK_M, BLOCK_V), tl.float32)"
_DOT = 's = tl.dot(x, w.T, s, input_precision="ieee")'
_TAIL = 's = tl.where((cols < V)[None, :], s, -float("inf"))'
_X_TARGET = "x_target = tl.zeros((BLOCK_M,), tl.float32)"
_CHOSEN = "tl.where(cols[None, :] == target[:, None], s, 0.0)"
_SHIFT = 'shift = tl.where(m_new == -float("inf"), 0.0, m_new)'
_EXP = "tl.exp(s - shift[:, None])"
_TAIL_OF_SUM = _EXP, f"tl.where((cols < V)[None, :], {_EXP}, 0.0)"
_L = "l = l * tl.exp(m - shift) +"
_M_NEW, _KEEP = "m_new = tl.maximum(m, tl.max(s, axis=1))", "        m = m_new\n"
_LSE, _OF_TOKEN = "lse = m + tl.log(l)", "loss = tl.where(target == -100, 0.0, lse - x_target)"

OF_WALK = (
    *GENERAL,
    NUMBER_AT_A_TIME,
    _WALK.named(names.NEVER_RESCALED, 2, (_L, "l = l +")),
    _WALK.mistake(
        "m_of_one_tile", "m is not the maximum of a token's logits in all tiles so far.",
        "With which m does a token begin? After the second tile, does m still know the first, and no other token?", 2,
        *((_FIRST_M, _FIRST_M.replace('-float("inf")', low)) for low in ("-1e30", "-1e9")),
        (_M_NEW, "m_new = tl.maximum(m, tl.max(s))"),
        (_M_NEW, "m_new = tl.max(s, axis=1)"),
        (_KEEP, "        m = m\n"),
    ),
    _WALK.mistake(
        "tail_of_classes", "Lanes past the last class are counted in l.",
        "Which logit have lanes whose weights are 0, and which one has the exponential 0?", 2,
        (_TAIL, "s = s"),
    ),
    _WALK.mistake(
        "not_one_sum", "A logit is not the sum over all numbers of its own token and class.",
        "What does s hold when a tile of classes begins, and what after the first 32 of 64 numbers?", 1,
        (_DOT, _DOT.replace("w.T, s,", "w.T,")),
        (_DOT, _DOT.replace("s = ", "s += ")),
        ("range(0, H, BLOCK_H)", "range(0, BLOCK_H, BLOCK_H)"),
        ("range(0, H, BLOCK_H)", "range(0, H // BLOCK_H * BLOCK_H, BLOCK_H)"),
        (f"        {_EMPTY}\n", "", _X_TARGET, f"{_X_TARGET}\n    {_EMPTY}"),
        (f"        {_EMPTY}\n", "", _X_TARGET, f"{_X_TARGET}\n    {_EMPTY}", _TAIL, "", *_TAIL_OF_SUM),
    ),
    _WALK.mistake(
        "classes_in_tiles", "Some classes are in no tile, or in two.",
        "At which class does each tile begin, and which tile has the last one?", 2,
        ("range(0, V, BLOCK_V)", "range(0, V // BLOCK_V * BLOCK_V, BLOCK_V)"),
        ("range(0, V, BLOCK_V)", "range(0, V, BLOCK_H)"),
        ("range(0, V, BLOCK_V)", "range(0, BLOCK_V, BLOCK_V)"),
    ),
    _WALK.mistake(
        "target_in_tile", "The target is compared with the lanes of a tile.",
        "Which class has the first lane of the second tile?", 3,
        ("cols[None, :] == target", "tl.arange(0, BLOCK_V)[None, :] == target"),
    ),
    _WALK.mistake(
        "target_of_last_tile", "The target's logit is that of the last tile, or 0.",
        "If the target lies in the first tile, what does the second one add to x_target?", 3,
        ("x_target += ", "x_target = "),
        (_OF_TOKEN, _OF_TOKEN.replace("lse - x_target", "lse")),
    ),
    _WALK.mistake(
        "ignored_have_a_loss", "An ignored token has a loss.",
        "Which target has an ignored token, and which loss?", 4,
        (_OF_TOKEN, "loss = lse - x_target"),
    ),
    _WALK.mistake(
        "ignored_have_no_lse", "The log-sum-exp of an ignored token is missing.",
        "Which of the two results is 0 if a token is ignored, and which one belongs to every token?", 4,
        (_OF_TOKEN, f"{_OF_TOKEN}\n    lse = tl.where(target == -100, 0.0, lse)"),
    ),
    _WALK.mistake(
        "zero_times_minus_inf", "The target's logit is NaN: a lane of another class adds 0 times −inf.",
        "What is 0 · (−inf)? Which function chooses one of two numbers instead?", 3,
        (_CHOSEN, "s * (cols[None, :] == target[:, None])"),
    ),
    _WALK.named(
        names.NO_MAXIMUM, 2,
        (_M_NEW, "m_new = tl.zeros((BLOCK_M,), tl.float32)"),
        (_SHIFT, "shift = m_new * 0.0", _LSE, "lse = tl.log(l)"),
    ),
    _WALK.mistake(
        "another_formula", "Loss or log-sum-exp are not made of m, l and the target's logit as they should be.",
        "Which of m, log l and the target's logit are added, and which one is subtracted?", 4,
        (_LSE, "lse = m + l"),
        (_LSE, "lse = tl.log(l)"),
        (_LSE, "lse = m + tl.log2(l)"),
        (_OF_TOKEN, _OF_TOKEN.replace("lse - x_target", "x_target - lse")),
        (_OF_TOKEN, _OF_TOKEN.replace("lse - x_target", "x_target")),
    ),
    _WALK.mistake(
        "tf32", "The product keeps 10 bits of each float32, or fewer.",
        "What does tl.dot do with float32 numbers, unless it is told otherwise?", 1,
        (_DOT, _DOT.replace("x, w.T", "x.to(tl.bfloat16), w.to(tl.bfloat16).T")),
        (_DOT, _DOT.replace(', input_precision="ieee"', "")),
    ),
    _WALK.mistake(
        "minus_inf_so_far", "A first tile of only −inf spoils the token.",
        "As long as m is −inf, what is m − m, and which number could be subtracted instead?", 2,
        (_SHIFT, "shift = m_new"),
    ),
    OFFSETS_OVERFLOW,
    OUT_OF_BOUNDS,
)  # fmt: skip
