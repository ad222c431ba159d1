"""Variants of lesson 10's answers, wrong and right, as corpus.py lists those of the other lessons."""

from variants import Variant
from variants import coded as _code
from variants import swapped as _swap

_LOSS = "m - x_target + tl.log(l)"
_LOGIT = 'tl.load(x_ptr + row * x_stride + target, mask=is_class, other=float("nan")).to(tl.float32)'
_NO_NAN = 'other=float("nan")', "other=0.0"
_PLAIN_ONEHOT = 'tl.where(is_class, (cols == target).to(tl.float32), float("nan"))', "(cols == target).to(tl.float32)"
_TILE = 'mask=cols < N, other=-float("inf")).to(tl.float32)'
_GRADIENT = "tl.where(target >= 0, e / l - onehot, 0.0)"
_KEPT = f"loss = tl.where(target >= 0, {_LOSS}, 0.0)"


def _loss(named: str, formula: str) -> Variant:
    return _swap(named, _LOSS, formula)


def _gradient(named: str, formula: str) -> Variant:
    return _swap(named, _GRADIENT, formula)


_TORCH_LOSS = """
def my_loss(x, target):
    kept = target >= 0
    losses = torch.logsumexp(x.float(), dim=1) - x.float().gather(1, target.clamp(min=0)[:, None])[:, 0]
    return torch.where(kept, losses, 0.0)
"""
_STREAMED = """
@triton.jit
def streamed_kernel(loss_ptr, x_ptr, target_ptr, x_stride, N, BLOCK: tl.constexpr):
    row = tl.program_id(0).to(tl.int64)
    target = tl.load(target_ptr + row)
    m, l, x_target = -float("inf"), 0.0, 0.0
    for start in range(0, N, BLOCK):
        cols = start + tl.arange(0, BLOCK)
        x = tl.load(x_ptr + row * x_stride + cols, mask=cols < N, other=-float("inf")).to(tl.float32)
        x_target += tl.sum(tl.where(cols == target, x, 0.0), axis=0)
        m_new = tl.maximum(m, tl.max(x, axis=0))
        shift = tl.where(m_new == -float("inf"), 0.0, m_new)
        l = l * tl.exp(m - shift) + tl.sum(tl.exp(x - shift), axis=0)
        m = m_new
    if target >= 0:
        tl.store(loss_ptr + row, m + tl.log(l) - x_target)
    else:
        tl.store(loss_ptr + row, 0.0)


def my_loss(x, target):
    losses = torch.empty(len(x), device=x.device)
    streamed_kernel[(len(x),)](losses, x, target, x.stride(0), x.shape[1], BLOCK=64)
    return losses
"""
_TWO_PASSES = _STREAMED.replace(
    """        m_new = tl.maximum(m, tl.max(x, axis=0))
        shift = tl.where(m_new == -float("inf"), 0.0, m_new)
        l = l * tl.exp(m - shift) + tl.sum(tl.exp(x - shift), axis=0)
        m = m_new
""",
    """        m = tl.maximum(m, tl.max(x, axis=0))
    for start in range(0, N, BLOCK):
        cols = start + tl.arange(0, BLOCK)
        x = tl.load(x_ptr + row * x_stride + cols, mask=cols < N, other=-float("inf")).to(tl.float32)
        l += tl.sum(tl.exp(x - m), axis=0)
""",
)
_TWO_LAUNCHES = """
@triton.jit
def gradient_kernel(grad_ptr, x_ptr, target_ptr, grad_stride, x_stride, N, BLOCK: tl.constexpr):
    row = tl.program_id(0).to(tl.int64)
    cols = tl.arange(0, BLOCK)
    x = tl.load(x_ptr + row * x_stride + cols, mask=cols < N, other=-float("inf")).to(tl.float32)
    target = tl.load(target_ptr + row)
    e = tl.exp(x - tl.max(x, axis=0))
    grad = tl.where(target >= 0, e / tl.sum(e, axis=0) - (cols == target).to(tl.float32), 0.0)
    tl.store(grad_ptr + row * grad_stride + cols, grad, mask=cols < N)


both = my_loss_and_gradient


def my_loss_and_gradient(x, target):
    losses, gradient = both(x, target)
    M, N = x.shape
    gradient_kernel[(M,)](gradient, x, target, N, x.stride(0), N, BLOCK=triton.next_power_of_2(N))
    return losses, gradient
"""
_STORE = "    tl.store(grad_ptr + row * grad_stride + cols, grad, mask=cols < N)"
_TARGET_AGAIN = """
    tl.store(grad_ptr + row * grad_stride + target, tl.exp(x_target - m) / l - 1.0, mask=is_class)
"""
_SOFTMAX_BY_TORCH = """
def my_loss_and_gradient(x, target, both=my_loss_and_gradient):
    losses, gradient = both(x, target)
    kept = (target >= 0)[:, None]
    onehot = torch.zeros_like(gradient).scatter_(1, target.clamp(0, x.shape[1] - 1)[:, None], 1.0)
    return losses, torch.where(kept, torch.softmax(x.float(), dim=1) - onehot, 0.0).to(x.dtype)
"""

WRONG: dict[str, dict[str, Variant]] = {
    "row_loss": {
        "no maximum": _loss("no_maximum", "tl.log(tl.sum(tl.exp(x), axis=0)) - x_target"),
        "maximum not added": _loss("maximum_not_added", "tl.log(l) - x_target"),
        "no target": _loss("target_forgotten", "m + tl.log(l)"),
        "negative": _loss("loss_negative", "x_target - m - tl.log(l)"),
        "target added": _loss("target_added", "m + tl.log(l) + x_target"),
        "log2": _loss("logarithm_of_2", "m + tl.log2(l) - x_target"),
        "no log": _loss("no_logarithm", "m + l - x_target"),
        "the probability": _loss("probability_returned", "tl.exp(x_target - m) / l"),
        "log of the probability": _loss("logarithm_of_rounded", "-tl.log(tl.exp(x_target - m) / l)"),
        "target of row 0": _swap("target_of_row_0", "target = tl.load(target_ptr + row)", "kept = tl.load(target_ptr + row); target = tl.load(target_ptr)",
                                 _LOGIT, "tl.load(x_ptr + row * x_stride + tl.maximum(target, 0)).to(tl.float32); target = kept"),
        "logit of row 0": _swap("logit_of_row_0", _LOGIT, _LOGIT.replace("row * x_stride + ", "")),
        "the row's number": _swap("row_number_as_target", _LOGIT, "tl.load(x_ptr + row * x_stride + tl.minimum(row, N - 1)).to(tl.float32)"),
        "ignored rows count": _swap("ignored_row_counts", *_NO_NAN, _KEPT, f"loss = {_LOSS}"),
        "targets past the row loaded": _swap("target_past_row_loaded", "(target >= 0) & (target < N)", "target >= 0"),
        "ignored rows are inf": _swap("ignored_row_counts", 'other=float("nan")', 'other=-float("inf")',
                                      _KEPT, f"loss = {_LOSS}"),
        "column 0 ignored": _swap("column_0_ignored", "tl.where(target >= 0, m", "tl.where(target > 0, m"),
        "ignored target loaded": _swap("ignored_target_loaded", ', mask=is_class, other=float("nan")', ""),
        "N as stride of the target": _swap("n_as_stride", "row * x_stride + target", "row * N + target"),
        "target times the stride": _swap("target_outside_row", "row * x_stride + target", "row + target * x_stride"),
        "the row's number, as it is": _swap("row_number_as_target", "row * x_stride + target", "row * x_stride + row"),
        "a tile of losses": _loss("tile_as_loss", "m + tl.log(l) - x"),
        "a mean": _loss("divided_by_columns", "(m + tl.log(l) - x_target) / N"),
        "lanes hold 0": _swap("idle_lanes_hold_0", _TILE, "mask=cols < N, other=0.0).to(tl.float32)"),
        "N as stride": _swap("n_as_stride", "row * x_stride + cols", "row * N + cols"),
        "no mask": _swap("load_unmasked", ', mask=cols < N, other=-float("inf")).to(tl.float32)', ").to(tl.float32)"),
        "arithmetic in 16 bits": _swap("only_16_bit", _LOSS, "m + tl.log(l) - x_target + tl.where(x_ptr.dtype.element_ty == tl.float32, 0.0, 0.05)"),
        "m added to the logarithm of all": _loss("no_maximum", "m + tl.log(tl.sum(tl.exp(x), axis=0)) - x_target"),
        "m taken away twice": _loss("maximum_not_added", "tl.log(l) - m - x_target"),
        "exp2": _swap("exponential_of_2", "tl.exp(x - m)", "tl.exp2(x - m)"),
        "exp2 and log2": _swap("exponential_of_2", "tl.exp(x - m)", "tl.exp2(x - m)", "tl.log(l)", "tl.log2(l)"),
        "the other rows": _swap("kept_and_ignored_swapped", *_NO_NAN, "loss = tl.where(target >= 0", "loss = tl.where(target < 0"),
        "a mean of the rows": _loss("divided_by_rows", "(m + tl.log(l) - x_target) / tl.num_programs(0)"),
        "row 0 for all": _swap("row_0_loaded", "x_ptr + row * x_stride + cols", "x_ptr + cols"),
        "0 times NaN": _swap("zero_times_nan", *_NO_NAN, _KEPT, f"loss = ({_LOSS}) * (target >= 0)"),
        "0 times inf": _swap("idle_lanes_give_nan", _LOGIT, "tl.sum(x * (cols == target), axis=0)"),
        "no store": _swap("not_all_stored", "    tl.store(loss_ptr + row, loss)", ""),
        "ignored rows not stored": _swap("not_all_stored", "    loss = 0.0\n", "    loss = 0.0\n    if target < 0:\n        return\n"),
        "a program too few": _swap("not_all_stored", "loss_kernel[(M,)]", "loss_kernel[(M - 1,)]"),
        "a tile too small": _swap("not_all_loaded", "BLOCK = triton.next_power_of_2(N)", "BLOCK = 64"),
        "a column too few": _swap("not_all_loaded", "mask=cols < N,", "mask=cols < N - 1,"),
        "a column too many": _swap("one_lane_too_many", "mask=cols < N,", "mask=cols <= N,"),
        "the column before": _swap("target_outside_row", "row * x_stride + target", "row * x_stride + target - 1"),
        "loss one place on": _swap("outside", "loss_ptr + row,", "loss_ptr + row + 1,"),
        "exponentials in bfloat16": _swap("losses_nearly_right", "tl.exp(x - m)", "tl.exp(x - m).to(tl.bfloat16).to(tl.float32)"),
        "rounded to float16": _swap("losses_nearly_right", _LOSS, f"({_LOSS}).to(tl.float16).to(tl.float32)"),
        "in the dtype of x": _swap("wrong_dtype", "torch.empty(M, device=x.device)", "torch.empty(M, dtype=x.dtype, device=x.device)"),
        "the minimum": _swap("idle_lanes_give_nan", "tl.max(x, axis=0)", "tl.min(x, axis=0)"),
        "the target's logit from the targets": _swap(
            "outside", "tl.load(x_ptr + row * x_stride + target, mask", "tl.load(target_ptr + row * x_stride + target, mask"
        ),
        "a program too many": _swap("outside", "loss_kernel[(M,)]", "loss_kernel[(M + 1,)]"),
        "NaN hidden": _swap("nan_hidden", _KEPT, f"{_KEPT}\n    loss = tl.where(loss != loss, 0.0, loss)"),
        "a tile for one column less": _swap(
            "not_all_loaded", "BLOCK = triton.next_power_of_2(N)", "BLOCK = max(16, triton.next_power_of_2(N - 1))"
        ),
        "nothing returned": _swap("nothing_returned", "    return losses\n", ""),
        "a number returned": _swap("other_result", "    return losses\n", "    return losses.sum().item()\n"),
        "softmax by Triton": _loss("triton_s_softmax", "m - tl.log(tl.max(tl.softmax(x), axis=0)) - x_target"),
        "moved elsewhere": _swap("wrong_device", "    return losses\n", '    return losses.to("meta")\n'),
        "target of row 0, for ignored rows too": _swap("target_of_row_0", "tl.load(target_ptr + row)", "tl.load(target_ptr)"),
        "log l subtracted": _loss("logarithm_subtracted", "m - tl.log(l) - x_target"),
        "the target itself": _loss("target_as_logit", "m + tl.log(l) - target"),
        "ignored rows are NaN": _swap("ignored_loss_not_zero", "+ tl.log(l), 0.0)", '+ tl.log(l), float("nan"))'),
        "ignored rows take column 0": _swap("ignored_row_counts", _LOGIT, "tl.load(x_ptr + row * x_stride + tl.maximum(target, 0)).to(tl.float32)",
                                            _KEPT, f"loss = {_LOSS}"),
        "N, M": _swap("rows_for_columns", "M, N = x.shape", "N, M = x.shape"),
        "one y for all calls": _swap("memory_used_again", "torch.empty(M, device=x.device)", "vars(my_loss).setdefault(str(x.shape), torch.empty(M, device=x.device))"),
        "losses kept by x's address": _swap("result_used_again", "    return losses\n", "    return vars(my_loss).setdefault(str(x.data_ptr()), losses)\n"),
        "made without x's device": _swap("wrong_device", "torch.empty(M, device=x.device)", "torch.empty(M)"),
        "matrix of losses": _code("wrong_shape", "def my_loss(x, target):\n    return x.float()\n"),
        "by torch": _code("no_kernel", _TORCH_LOSS),
        "in two passes": _code("over_budget", _TWO_PASSES),
        "logits overwritten": _swap("input_overwritten", "    return losses\n", "    x.zero_()\n    return losses\n"),
        "32-bit offsets": _swap("offsets_overflow", "tl.program_id(0).to(tl.int64)", "tl.program_id(0)"),
    },
    "slopes": {
        "row changed": _swap("row_changed", "up, down = list(x), list(x)", "up = x; down = list(x)"),
        "divided by h": _swap("step_counted_once", "/ (2 * h)", "/ h"),
        "divided by the logit": _swap("divided_by_logit", "/ (2 * h)", "/ x[i]"),
        "one step, divided by two": _swap("step_counted_twice", "down[i] = up[i] + h, down[i] - h", "down[i] = up[i] + h, down[i]"),
        "the other way": _swap("slope_negative", "loss(up) - loss(down)", "loss(down) - loss(up)"),
        "not divided": _swap("not_divided_by_step", " / (2 * h)", ""),
        "halved, and multiplied": _swap("not_divided_by_step", "/ (2 * h)", "/ 2 * h"),
        "one copy for all": _swap("stay_moved", "    for i in range(len(x)):\n        up, down = list(x), list(x)\n",
                                  "    up, down = list(x), list(x)\n    for i in range(len(x)):\n"),
        "a step for the list": _swap("number_as_list", "(loss(up) - loss(down))", "(loss(x + h) - loss(x - h))"),
        "a number for the list": _swap("number_as_list", "(loss(up) - loss(down))", "(loss(x[i] + h) - loss(x[i] - h))"),
        "all moved": _swap("all_moved", "up[i], down[i] = up[i] + h, down[i] - h", "up, down = [v + h for v in up], [v - h for v in down]"),
        "a step of 1e-14": _swap("step_too_small", "h = 1e-5", "h = 1e-14"),
        "x changed, by two names": _swap("row_changed", "up, down = list(x), list(x)", "up, down = x, x"),
        "autograd": _code("autograd", "def slopes(loss, x):\n    t = torch.tensor(x, requires_grad=True)\n    loss(t).backward()\n"
                                      "    return t.grad.tolist()"),
        "the formula": _code("loss_not_asked", "def slopes(loss, x):\n    m, said = max(x), loss(x)\n    e = [math.exp(v - m) for v in x]\n"
                             "    all_of_it = m + math.log(sum(e))\n    target = min(range(len(x)), key=lambda i: abs(all_of_it - x[i] - said))\n"
                             "    return [v / sum(e) - (i == target) for i, v in enumerate(e)]"),
        "no step left": _swap("step_lost", "h = 1e-5", "h = 1e-18"),
        "a long step": _swap("step_far_off", "h = 1e-5", "h = 1.0"),
        "a short step, to one side": _swap(
            "step_too_small", "h = 1e-5", "h = 1e-13", "down[i] = up[i] + h, down[i] - h", "down[i] = up[i] + h, down[i]",
            "/ (2 * h)", "/ h"),
        "a step of a tenth": _swap("step_far_off", "h = 1e-5", "h = 0.1"),
        "a step of 0": _swap("step_of_0", "h = 1e-5", "h = 0.0"),
        "losses": _swap("losses_returned", "(loss(up) - loss(down)) / (2 * h)", "loss(up)"),
        "a number": _swap("no_list_of_slopes", "    return found", "    return sum(found)"),
        "the first slope": _swap("no_list_of_slopes", "/ (2 * h))\n", "/ (2 * h))\n        return found\n"),
    },
    "loss_and_gradient": {
        "softmax": _gradient("softmax_returned", "tl.where(target >= 0, e / l, 0.0)"),
        "losses alone": _gradient("gradient_zero", "tl.zeros([BLOCK], tl.float32)"),
        "gradient alone": _swap("losses_zero", _KEPT, "loss = 0.0"),
        "1 added": _gradient("onehot_added", "tl.where(target >= 0, e / l + onehot, 0.0)"),
        "divided by the columns": _gradient("gradient_by_columns", "tl.where(target >= 0, (e / l - onehot) / N, 0.0)"),
        "negative": _gradient("gradient_negative", "tl.where(target >= 0, onehot - e / l, 0.0)"),
        "1 from all": _gradient("one_everywhere", "tl.where(target >= 0, e / l - 1, 0.0)"),
        "not divided": _gradient("not_divided", "tl.where(target >= 0, e - onehot, 0.0)"),
        "1 inside": _gradient("onehot_inside", "tl.where(target >= 0, (e - onehot) / l, 0.0)"),
        "column of the row": _swap("onehot_of_row", "(cols == target)", "(cols == tl.minimum(row, N - 1))"),
        "column of the row, if there is one": _swap("onehot_of_row", "(cols == target)", "(cols == row)"),
        "column beside": _swap("column_beside", "(cols == target)", "(cols == target + 1)"),
        "column before": _swap("column_beside", "(cols == target)", "(cols == target - 1)"),
        "the target alone": _gradient("only_target", "tl.where(target >= 0, (e / l - 1) * onehot, 0.0)"),
        "the target replaced": _gradient("target_replaced", "tl.where(target >= 0, tl.where(cols == target, -1.0, e / l), 0.0)"),
        "targets past the row loaded": _swap("target_past_row_loaded", "(target >= 0) & (target < N)", "target >= 0"),
        "ignored rows count": _swap("ignored_gradient_counts", *_PLAIN_ONEHOT, _GRADIENT, "e / l - onehot"),
        "a mean": _gradient("mean_of_rows", "tl.where(target >= 0, (e / l - onehot) / tl.num_programs(0), 0.0)"),
        "times the loss": _gradient("times_loss", "tl.where(target >= 0, (e / l - onehot) * loss, 0.0)"),
        "the other rows": _swap("gradient_swapped", *_PLAIN_ONEHOT, _GRADIENT, "tl.where(target < 0, e / l - onehot, 0.0)"),
        "column 0 ignored": _gradient("gradient_column_0_ignored", "tl.where(target > 0, e / l - onehot, 0.0)"),
        "1 in place of the target": _gradient("target_replaced", "tl.where(target >= 0, tl.where(cols == target, 1.0, e / l), 0.0)"),
        "columns up to the target": _swap("one_from_several", "(cols == target)", "(cols <= target)"),
        "1 from the logits": _gradient("no_probability", "tl.where(target >= 0, x - onehot, 0.0)"),
        "1 from log p": _gradient("no_probability", "tl.where(target >= 0, x - m - tl.log(l) - onehot, 0.0)"),
        "0 times NaN": _swap("zero_times_nan_in_gradient", *_PLAIN_ONEHOT, _GRADIENT, "(e / l - onehot) * (target >= 0)"),
        "rounded before 1 is taken": _gradient(
            "only_16_bit", "tl.where(target >= 0, (e / l).to(grad_ptr.dtype.element_ty).to(tl.float32) - onehot, 0.0)"
        ),
        "exponentials in float16": _gradient("gradient_nearly_right", "tl.where(target >= 0, (e / l).to(tl.float16).to(tl.float32) - onehot, 0.0)"),
        "rows as in x": _swap("stride_of_x_for_gradient", "row * grad_stride + cols", "row * x_stride + cols"),
        "a column not stored": _swap("not_all_stored", "cols, grad, mask=cols < N)", "cols, grad, mask=cols < N - 1)"),
        "the target stored again": _swap("stored_twice", _STORE, _STORE + _TARGET_AGAIN),
        "softmax by Triton": _gradient("triton_s_softmax", "tl.where(target >= 0, tl.softmax(x) - onehot, 0.0)"),
        "store not masked": _swap("store_unmasked", "cols, grad, mask=cols < N)", "cols, grad)"),
        "no target": _loss("target_forgotten", "m + tl.log(l)"),
        "in two launches": _code("over_budget", _TWO_LAUNCHES),
        "softmax by torch": _code("torch_at_work", _SOFTMAX_BY_TORCH),
        "gradient in float32": _swap("wrong_dtype", "dtype=x.dtype, device", "device"),
        "gradient elsewhere": _swap("wrong_device", "return losses, gradient", 'return losses, gradient.to("meta")'),
        "one gradient for all calls": _swap("memory_used_again", "torch.empty(M, N, dtype=x.dtype, device=x.device)",
                                            "vars(my_loss_and_gradient).setdefault(str(x.shape), torch.empty(M, N, dtype=x.dtype, device=x.device))"),
        "gradient made without x's device": _swap("wrong_device", "dtype=x.dtype, device=x.device)", "dtype=x.dtype)"),
        "gradient returned first": _swap("results_swapped", "return losses, gradient", "return gradient, losses"),
        "losses returned alone": _swap("other_result", "    return losses, gradient", "    return losses"),
        "32-bit offsets": _swap("offsets_overflow", "tl.program_id(0).to(tl.int64)", "tl.program_id(0)"),
        "32-bit offsets of the gradient": _swap("offsets_overflow", "row * grad_stride", "tl.program_id(0) * grad_stride"),
        "the target stored over the softmax": _swap("race_of_lanes", _GRADIENT, "tl.where(target >= 0, e / l, 0.0)", _STORE, _STORE + _TARGET_AGAIN),
    },
}  # fmt: skip

_EXP2 = "l = tl.sum(tl.exp2((x - m) * 1.4426950408889634), axis=0)"

RIGHT: dict[str, dict[str, Variant]] = {
    "row_loss": {
        "streamed": _code("", _STREAMED),
        "zeros to begin with": _swap("", "torch.empty(M, device", "torch.zeros(M, device"),
        "ignored rows left 0": _swap("", "torch.empty(M, device", "torch.zeros(M, device", "loss_ptr + row, loss)", "loss_ptr + row, loss, mask=target >= 0)"),
        "targets of 32 bits": _swap("", "(losses, x, target,", "(losses, x, target.int(),"),
        "powers of 2": _swap("", "l = tl.sum(tl.exp(x - m), axis=0)", _EXP2),
        "target subtracted last": _loss("", "m + tl.log(l) - x_target"),
        "logarithm of base 2": _loss("", "m + tl.log2(l) * 0.6931471805599453 - x_target"),
        "target found in the tile": _swap("", _LOGIT, "tl.sum(tl.where(cols == target, x, 0.0), axis=0)"),
        "shifted by the target": _swap("", _LOSS, "tl.log(l) + (m - x_target)"),
        "kept by comparing with −100": _swap("", "tl.where(target >= 0, m", "tl.where(target != -100, m"),
        "an if": _swap("", _KEPT, f"if target >= 0:\n        loss = {_LOSS}"),
    },
    "slopes": {
        "to one side": _swap("", "down[i] = up[i] + h, down[i] - h", "down[i] = up[i] + h, down[i]", "(2 * h)", "h"),
        "a larger step": _swap("", "h = 1e-5", "h = 1e-3"),
        "the last one from the others": _code("", "def slopes(loss, x):\n    at, found = loss(x), []\n    for i in range(len(x) - 1):\n"
                                              "        row = list(x)\n        row[i] += 1e-6\n        found.append((loss(row) - at) / 1e-6)\n"
                                              "    return [*found, -sum(found)]"),
        "rows made anew": _swap("", "up, down = list(x), list(x)", "up, down = [*x], x[:]"),
        "a tuple": _swap("", "    return found", "    return tuple(found)"),
    },
    "loss_and_gradient": {
        "multiplied by the reciprocal": _swap("", "e / l - onehot", "e * (1 / l) - onehot"),
        "by the log-sum-exp": _swap("", "e / l - onehot", "tl.exp(x - (m + tl.log(l))) - onehot"),
        "where in place of onehot": _gradient("", "tl.where(target >= 0, tl.where(cols == target, e / l - 1, e / l), 0.0)"),
        "the logit from the tile": _swap("", _LOGIT, "tl.sum(tl.where(cols == target, x, 0.0), axis=0)"),
        "zeros to begin with": _swap("", "torch.empty(M, device", "torch.zeros(M, device"),
        "an if": _swap("", f"{_KEPT}\n", f"if target >= 0:\n        loss = {_LOSS}\n"),
    },
}  # fmt: skip
