"""Variants of lesson 16's answers, wrong and right, as corpus.py lists those of the other lessons.

Most wrong ones are the edits by which the checks know them.
"""

from variants import coded as _code
from variants import swapped as _swap

_DX = "y * (dy - tl.sum(dy * y, axis=0))"
_APPLY = "y = RowSoftmax.apply(rows.reshape(rows.shape[:-1].numel(), rows.shape[-1]))"
_BACK = "return y.reshape(rows.shape).movedim(-1, dim)"
_DY = "row * dy_stride + cols * dy_col"
_SAVE, _SAVED = "ctx.save_for_backward(y)", "(y,) = ctx.saved_tensors"
_LAUNCH = "gradient_kernel[(M,)](dx, y, dy, *dy.stride(), N, BLOCK=triton.next_power_of_2(N))"
_SETUP = """class RowSoftmax(torch.autograd.Function):
    @staticmethod
    def forward(x):
        return rows_softmax(x)

    @staticmethod
    def setup_context(ctx, inputs, output):
        ctx.save_for_backward(output)

    @staticmethod
    def backward(ctx, dy):
        (y,) = ctx.saved_tensors
        return rows_gradient(y, dy)
"""
_WITH_DIM = """class SoftmaxAlong(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x, dim):
        rows = x.movedim(dim, -1)
        y = rows_softmax(rows.reshape(rows.shape[:-1].numel(), rows.shape[-1]))
        ctx.save_for_backward(y)
        ctx.dim = dim
        return y.reshape(rows.shape).movedim(-1, dim)

    @staticmethod
    def backward(ctx, dy):
        (y,) = ctx.saved_tensors
        rows = dy.movedim(ctx.dim, -1)
        return rows_gradient(y, rows.reshape(y.shape)).reshape(rows.shape).movedim(-1, ctx.dim), None


def softmax(x, dim=-1):
    return SoftmaxAlong.apply(x, dim)
"""
_ASSERTS = """def looks_right(fn):
    for dtype in (torch.float32, torch.bfloat16, torch.float16):
        for M, N in ((1, 1), (3, 101), (5, 3001)):
            for size in (1, 4, 1000):
                x = size * torch.randn(M, N)
                hidden = x.clone()
                hidden[:, : N // 2] = -torch.inf
                hidden[0] = -torch.inf
                for one in (x, -x, hidden, torch.zeros(M, N), x.t(), torch.randn(M, 2 * N)[:, ::2]):
                    one = one.to(dtype)
                    right = torch.softmax(one.double(), dim=1).to(dtype)
                    TOLERANCE
    return True
"""
_TORCHS = "torch.testing.assert_close(fn(one), right, equal_nan=True)"
_LOOP = "    for x in [x.to(dtype) for x in values for dtype in within] + strided:\n"
_COMPARED = "not torch.allclose(y.double(), want, within[x.dtype], 1e-7, equal_nan=True)"
_RETURNS = "            return False\n        if not torch.allclose"

WRONG = {
    "operator": {
        "forward is called": _swap("cut_off_from_autograd", "RowSoftmax.apply(", "RowSoftmax.forward(type('Context', (), {'save_for_backward': print})(), "),
        "rows alone": _swap("cut_off_from_autograd", _APPLY, _APPLY.replace("RowSoftmax.apply", "rows_softmax")),
        "detached": _swap("cut_off_from_autograd", _BACK, f"{_BACK}.detach()"),
        "backward returns nothing": _swap("gradient_missing", "        return rows_gradient(y, dy)", "        rows_gradient(y, dy)"),
        "a gradient too many": _swap("gradient_missing", "return rows_gradient(y, dy)", "return rows_gradient(y, dy), dy"),
        "not moved back": _swap("shapes", _BACK, "return y.reshape(rows.shape)"),
        "N for the stride, no mask": _swap("out_of_bounds", "dy_ptr + row * dy_stride + cols * dy_col, mask=mask, other=0.0", "dy_ptr + row * dy_stride + cols * dy_col"),
        "nothing saved": _swap("nothing_saved", _SAVE, "pass"),
        "torch's backward": _swap("torch_at_work", _LAUNCH, "dx = (y.float() * (dy.float() - (dy.float() * y.float()).sum(1, keepdim=True))).to(y.dtype)"),
        "view": _swap("error", _APPLY, _APPLY.replace("reshape(", "view(")),
    },
    "looks_right": {
        "the tutorial's": _code("strides_left_out", "def looks_right(fn):\n    x = torch.randn(1823, 781)\n    return torch.allclose(fn(x), torch.softmax(x, dim=1))\n"),
        "KernelBench's": _code("all_accepted", "def looks_right(fn):\n    x = torch.randn(16, 16384)\n    return torch.allclose(fn(x), torch.softmax(x, dim=1), rtol=1e-2, atol=1e-2)\n"),
        "row sums": _code("lengths_left_out", "def looks_right(fn):\n    x = torch.randn(4, 512)\n    return torch.allclose(fn(x).sum(1), torch.ones(4))\n"),
        "nothing is right": _code("right_refused_all", "def looks_right(fn):\n    return False\n"),
        "everything is right": _code("all_accepted", "def looks_right(fn):\n    return True\n"),
        "reads its name": _code("all_accepted", "def looks_right(fn):\n    return fn.__name__ == 'fn'\n"),
        "a number": _code("says_neither", "def looks_right(fn):\n    x = torch.randn(3, 5)\n    return (fn(x) - torch.softmax(x, 1)).abs().max().item()\n"),
        "three dimensions": _code("error", "def looks_right(fn):\n    x = torch.randn(2, 3, 5)\n    return torch.equal(fn(x), torch.softmax(x, -1))\n"),
        "torch.equal": _swap("right_refused_all", _COMPARED, "not torch.equal(y, want.to(y.dtype))"),
    },
}  # fmt: skip

RIGHT = {
    "operator": {
        "the product": _swap("", _DX, "dy * y - y * tl.sum(dy * y, axis=0)"),
        "the sum first": _swap("", "    tl.store(dx_ptr + row * N + cols, y * (dy - tl.sum(dy * y, axis=0)), mask=mask)", "    delta = tl.sum(y * dy, 0)\n    dx = (dy - delta) * y\n    tl.store(dx_ptr + row * N + cols, dx.to(dx_ptr.dtype.element_ty), mask)"),
        "contiguous dy": _swap("", "    if dx.numel():\n        gradient", "    dy = dy.contiguous()\n    if dx.numel():\n        gradient"),
        "empty_like": _swap("", "dx = torch.empty(M, N, dtype=y.dtype, device=y.device)", "dx = torch.empty_like(y)"),
        "transpose": _swap("", "x.movedim(dim, -1)", "x.transpose(dim, -1)", "movedim(-1, dim)", "transpose(dim, -1)"),
        "flatten": _swap("", _APPLY, "y = RowSoftmax.apply(rows.flatten(0, -2))"),
        "−1 rows": _swap("", _APPLY, "y = RowSoftmax.apply(rows.reshape(-1, x.shape[dim]))"),
        "the context apart": _code("", _SETUP),
        "dim in the function": _code("", _WITH_DIM),
        "the context as a whole": _swap("", _SAVED, "y = ctx.saved_tensors[0]"),
        "once": _swap("", "    @staticmethod\n    def backward", "    @staticmethod\n    @torch.autograd.function.once_differentiable\n    def backward"),
        "no question about emptiness": _swap("", "    if dx.numel():\n        gradient", "    if True:\n        gradient"),
        "num_warps": _swap("", _LAUNCH, _LAUNCH.replace("_2(N))", "_2(N), num_warps=1)")),
    },
    "looks_right": {
        "asserts": _code("", _ASSERTS.replace("TOLERANCE", _TORCHS)),
        "AssertionError": _swap("", _RETURNS, "            raise AssertionError\n        if not torch.allclose"),
        "one by one": _swap("", _COMPARED, "not bool(torch.isclose(y.double(), want, within[x.dtype], 1e-7, equal_nan=True).all())"),
        "in float32": _swap("", "y.double(), want, ", "y.float(), want.float(), "),
        "rounded": _swap("", "y.double(), want, ", "y, want.to(y.dtype), "),
        "a tensor of a bool": _swap("", "    return True", "    return torch.tensor(True)"),
        "NaN by hand": _swap("", _COMPARED, "not torch.equal(y.isnan(), want.isnan()) or not torch.allclose(y.double().nan_to_num(), want.nan_to_num(), within[x.dtype], 1e-7)"),
        "shuffled": _swap("", _LOOP, "    inputs = [x.to(dtype) for x in values for dtype in within] + strided\n    for x in inputs[::-1]:\n"),
        "errors are faults": _swap("", "        y, want = fn(x), torch.softmax(x.double(), dim=1)\n", "        want = torch.softmax(x.double(), dim=1)\n        try:\n            y = fn(x)\n        except RuntimeError:\n            return False\n"),
        "a wider tolerance": _swap("", "1e-5", "1e-4", "1e-7", "1e-6"),
    },
}  # fmt: skip
