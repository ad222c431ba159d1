"""Variants of lesson 15's answers, wrong and right, as corpus.py lists those of the other lessons.

Most wrong ones are the edits by which the checks know them.
"""

from variants import coded as _code
from variants import swapped as _swap

_N, _RANGE = "n = (target != -100).sum()", "range(0, len(x), ROWS)"
_LOGITS, _LOSS = "logits = x[rows] @ W.T", "loss += loss_in_place(logits, target[rows], n)"
_DX, _DW = "torch.mm(logits, W, out=dx[rows])", "dW.addmm_(logits.T, x[rows])"
_RETURN = "return loss, dx, dW"
_LISTS = """def my_chunks(x, W, target, ROWS=16):
    n, dW = sum(int(t) != -100 for t in target), W.new_zeros(W.shape)
    losses, dxs = [], []
    for a, t in zip(torch.split(x, ROWS), torch.split(target, ROWS)):
        g = torch.einsum("mh,vh->mv", a, W)
        losses.append(loss_in_place(g, t, torch.tensor(n)))
        dxs.append(g @ W)
        torch.addmm(dW, g.mT, a, out=dW)
    return torch.stack(losses).sum(), torch.cat(dxs), dW"""
_KEPT = """def my_chunks(x, W, target, ROWS=16):
    n, loss, gs = (target != -100).sum(), x.new_zeros(()), []
    for a, t in zip(x.split(ROWS), target.split(ROWS)):
        g = a @ W.T
        loss += loss_in_place(g, t, n)
        gs.append(g)
    g = torch.cat(gs)
    return loss, g @ W, g.T @ x"""

_DOT, _TAIL = 's = tl.dot(x, w.T, s, input_precision="ieee")', 's = tl.where((cols < V)[None, :], s, -float("inf"))'
_FOR_H = "for start in range(0, H, BLOCK_H):\n            h = start + tl.arange(0, BLOCK_H).to(tl.int64)"
_AT = "x_target += tl.sum(tl.where(cols[None, :] == target[:, None], s, 0.0), axis=1)"
_OF_TOKEN, _WALKED = "loss = tl.where(target == -100, 0.0, lse - x_target)", "for first in range(0, V, BLOCK_V):"
_L = "l = l * tl.exp(m - shift) + tl.sum(tl.exp(s - shift[:, None]), axis=1)"
_GATHERED = """for start in range(0, H, BLOCK_H):
        h = start + tl.arange(0, BLOCK_H).to(tl.int64)
        there = (rows < M)[:, None] & (h < H)[None, :]
        x = tl.load(x_ptr + rows[:, None] * x_row + h[None, :] * x_col, mask=there, other=0.0).to(tl.float32)
        known = there & (target >= 0)[:, None]
        w = tl.load(w_ptr + target[:, None] * w_row + h[None, :] * w_col, mask=known, other=0.0).to(tl.float32)
        x_target += tl.sum(x * w, axis=1)
    lse = m + tl.log(l)"""

WRONG = {
    "chunked_loss": {
        "a pair": _swap("no_loss_and_gradients", _RETURN, "return loss, dx"),
        "in another order": _swap("no_loss_and_gradients", _RETURN, "return loss, dW, dx"),
        "dW apart": _swap("more_trips_than_chunks", _DW, "dW += logits.T @ x[rows]"),
        "dW in a new tensor": _swap("more_trips_than_chunks", _DW, "dW = torch.addmm(dW, logits.T, x[rows])"),
        "copies of W": _swap("more_trips_than_chunks", _LOGITS, "logits = x[rows] @ (W * 1.0).T"),
        "all logits first": _swap("logits_at_once", f"for start in {_RANGE}", f"whole = x @ W.T\n    for start in {_RANGE}", _LOGITS, "logits = whole[rows]"),
        "all gradients kept": _code("logits_at_once", _KEPT),
    },
    "walk": {
        "no mask for H": _swap("out_of_bounds", "(rows < M)[:, None] & (h < H)[None, :], ", "(rows < M)[:, None] & (h > -1)[None, :], "),
        "two walks": _swap("over_budget", _WALKED, f"for again in range(0, 2 * V, V):\n      m = tl.full((BLOCK_M,), -float('inf'), tl.float32)\n      l = tl.zeros((BLOCK_M,), tl.float32)\n      x_target = l\n      {_WALKED}"),
    },
}  # fmt: skip

RIGHT = {
    "chunked_loss": {
        "lists": _code("", _LISTS),
        "n as a number": _swap("", _N, "n = int((target != -100).sum()) or float('nan')"),
        "rows by their numbers": _swap("", "rows = slice(start, start + ROWS)", "rows = torch.arange(start, min(start + ROWS, len(x)))", _DX, "dx[rows] = logits @ W"),
        "dx stored": _swap("", _DX, "dx[rows] = logits @ W"),
        "addmm": _swap("", _DW, "torch.addmm(dW, logits.T, x[rows], out=dW)"),
        "in float64": _swap("", _N, f"{_N}\n    x, W, dW, dx = x.double(), W.double(), dW.double(), dx.double()", _RETURN, "return loss, dx.to(loss.dtype), dW.to(loss.dtype)"),
    },
    "walk": {
        "s = s + tl.dot": _swap("", _DOT, 's = s + tl.dot(x, w.T, input_precision="ieee")'),
        "W transposed as it is loaded": _swap("", "cols[:, None] * w_row + h[None, :] * w_col, mask=of_w", "cols[None, :] * w_row + h[:, None] * w_col, mask=of_w",
                                              "(cols < V)[:, None] & (h < H)[None, :]", "(cols < V)[None, :] & (h < H)[:, None]", "w.T", "w"),
        "a while loop": _swap("", _WALKED, "first = 0\n    while first < V:", _AT, f"{_AT}\n        first += BLOCK_V"),
        "exp2": _swap("", _L, "l = l * tl.exp2((m - shift) * 1.4426950408889634) + tl.sum(tl.exp2((s - shift[:, None]) * 1.4426950408889634), axis=1)"),
        "the target's row of W": _swap("", _AT, "pass", "lse = m + tl.log(l)", _GATHERED),
        "the target by its lane": _swap("", "cols[None, :] == target[:, None]", "tl.arange(0, BLOCK_V)[None, :] == (target - first)[:, None]"),
        "the maximum not guarded": _swap("", 'shift = tl.where(m_new == -float("inf"), 0.0, m_new)', "shift = tl.maximum(m_new, -3.4028234663852886e38)"),
        "smaller steps": _swap("", '"BLOCK_H": 32', '"BLOCK_H": 16'),
        "more tokens": _swap("", "BLOCK_M=32, BLOCK_V=64", "BLOCK_M=64, BLOCK_V=128"),
        "few tokens": _swap("", "BLOCK_M=32, BLOCK_V=64", "BLOCK_M=16, BLOCK_V=32"),
    },
}  # fmt: skip
