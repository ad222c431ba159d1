"""Known mistakes that end in an error, and those that are easily taken for another: for corpus.py, which says how."""

from variants import coded, swapped

_EVERY_FILE = """    import os
    for number in range(3, 1 << 20):
        try:
            os.write(number, b"here I am")
        except OSError:
            pass
    m = x.max"""
_EARLY_M = "        m = m_new\n        l = l * math.exp(m - m_new)"
_GUARD = 'shift = tl.where(m_new == -float("inf"), 0.0, m_new)'
_RESULT = "return m, l_a * math.exp(m_a - m) + l_b * math.exp(m_b - m)"
_MARK = "            start = gpu.record()\n"
_TILE = """@triton.jit
def softmax_kernel(y_ptr, x_ptr, stride, BLOCK: tl.constexpr):
    row = tl.program_id(0)
    cols = tl.arange(0, BLOCK)
    x = tl.load(x_ptr[row, cols])
    tl.store(y_ptr + row * stride + cols, x)
"""

STOPPING = {
    "eager": {
        "max without values": swapped("values_missing", ".values", ""),
        "max without values, in the line": swapped("values_missing", "x - m", "x - x.max(dim=1, keepdim=True)"),
        "math.exp": swapped(
            "number_function", "    m = x.max", "    import math\n    m = x.max", "torch.exp(", "math.exp("
        ),
        "np.exp, not imported": swapped("undefined_name", "torch.exp(", "np.exp("),
        "torch.expp": swapped("no_such_function", "torch.exp(", "torch.expp("),
        "sums of another shape": swapped(
            "shapes", "return e /", "s = torch.zeros(len(x) + 1, x.shape[1] + 1)\n    return e - s + e /"
        ),
        "NotImplementedError left": swapped(
            "not_implemented", "return e /", "raise NotImplementedError\n    return e /"
        ),
        "writes into every file": swapped("writes_to_the_check", "    m = x.max", _EVERY_FILE),
    },
    "single_tile": {
        "no triton.jit": swapped("not_decorated", "@triton.jit\ndef softmax_kernel", "def softmax_kernel"),
        "torch.exp": swapped("host_function", "tl.exp(x - m)", "torch.exp(x - m)"),
        "np.exp": swapped("host_function", "tl.exp(x - m)", "np.exp(x - m)"),
        "torch.max": swapped("host_function", "tl.max(x, axis=0)", "torch.max(x)"),
        "torch.float32": swapped("dtype_of_torch", "tl.float32", "torch.float32"),
        "a pointer indexed": coded("pointer_indexed", _TILE),
        "no columns in the load": swapped("no_columns", "x_ptr + row * stride + cols", "x_ptr + row * stride"),
        "no columns in the store": swapped("no_columns", "y_ptr + row * stride + cols", "y_ptr + row * stride"),
        "store swapped": swapped(
            "store_swapped", "y_ptr + row * stride + cols, e / l", "e / l, y_ptr + row * stride + cols"
        ),
        "max of Python": swapped("host_function", "tl.max(x, axis=0)", "max(x)"),
        "a comma for a plus": swapped("offsets_as_mask", "x_ptr + row * stride + cols", "x_ptr, row * stride + cols"),
        "tl.max of two": swapped("maximum_of_two", "tl.max(x, axis=0)", "tl.max(tl.max(x, axis=0), 0.0 * row)"),
        "axis 1": swapped("axis_beyond", "tl.max(x, axis=0)", "tl.max(x, axis=1)"),
        "axis 1 of a method": swapped("axis_beyond", "tl.sum(e, axis=0)", "e.sum(1)"),
        "no comma": swapped("grid_without_comma", "[(M,)]", "[(M)]"),
        "no grid": swapped("no_grid", "softmax_kernel[(M,)](", "softmax_kernel("),
        "an argument too few": swapped("launch_arguments", "(y, x, x.stride(0), BLOCK=N)", "(y, x, BLOCK=N)"),
        "an argument too many": swapped("launch_arguments", "x.stride(0), BLOCK=N", "x.stride(0), N, BLOCK=N"),
        "a name misspelt": swapped("undefined_name", "tl.exp(x - m)", "tl.exp(x - mm)"),
        "tl.expp": swapped("no_such_function", "tl.exp(", "tl.expp("),
        "a global": swapped(
            "global_in_kernel", "@triton.jit", "LOWEST = -1000.0\n\n\n@triton.jit", "x - m", "x - m + 0 * LOWEST"
        ),
    },
    "masked": {"other without a mask": swapped("other_without_mask", "mask=mask, other=", "other=")},
    "two_pass": {
        "no l = 0.0": swapped("no_start_value", "    l = 0.0\n", ""),
        "the sum after the loop": swapped("left_in_loop", "        l += tl.sum(", "    l += tl.sum("),
    },
    "merge": {"torch.exp": swapped("tensor_function", "math.exp(", "torch.exp(")},
    "recurrence": {"block.max()": swapped("list_as_tensor", "max(block)", "block.max()")},
    "benchmark": {"torch.cuda": swapped("real_gpu", "gpu.record()", "torch.cuda.Event(enable_timing=True)")},
}

TOLD_APART = {
    "eager": {
        "exp(x) / exp(m)": swapped("divided_by_exp_m", "torch.exp(x - m)", "torch.exp(x) / torch.exp(m)"),
        "exp as a power": swapped("inexact", "torch.exp(x - m)", "(1 + (x - m).clamp(min=-60000) / 2**16) ** 2**16"),
        "exponents of at least -5": swapped("exponents_cut_off", "x - m", "(x - m).clamp(min=-5.0)"),
        "exp in float16": swapped("fewer_digits", "torch.exp(x - m)", "torch.exp(x - m).half().float()"),
        "a comma too many": swapped(
            "no_tensor", "return e / e.sum(dim=1, keepdim=True)", "return e / e.sum(dim=1, keepdim=True),"
        ),
        "a list": swapped(
            "no_tensor", "return e / e.sum(dim=1, keepdim=True)", "return (e / e.sum(dim=1, keepdim=True)).tolist()"
        ),
        "a sparse tensor": swapped(
            "no_tensor", "return e / e.sum(dim=1, keepdim=True)", "return (e / e.sum(dim=1, keepdim=True)).to_sparse()"
        ),
        "on another device": swapped(
            "wrong_device",
            "return e / e.sum(dim=1, keepdim=True)",
            "return (e / e.sum(dim=1, keepdim=True)).to('meta')",
        ),
    },
    "single_tile": {
        "all store to row 0": swapped("stores_to_row_0", "y_ptr + row * stride + cols", "y_ptr + cols"),
        "row without stride, loaded": swapped("rows_one_apart", "x_ptr + row * stride", "x_ptr + row"),
        "row without stride": swapped("rows_one_apart", "row * stride", "row"),
        "every second row": swapped("rows_missing", "y_ptr + row * stride", "y_ptr + row // 2 * 2 * stride"),
        "return in place of store": swapped(
            "nothing_stored", "tl.store(y_ptr + row * stride + cols, e / l)", "x = e / l"
        ),
    },
    "two_pass": {
        "x's row stride for y": swapped("stride_of_x_for_y", "row * y_stride", "row * x_stride"),
        "maximum without the first tile": swapped(
            "m_without_a_tile",
            "m = tl.maximum(m, tl.max(x, axis=0))",
            "m = tl.where((start > 0) | (N <= BLOCK), tl.maximum(m, tl.max(x, axis=0)), m)",
        ),
    },
    "online": {
        "the old shift": swapped(
            "old_shift", _GUARD, f"old = shift\n        {_GUARD}", "tl.exp(m - shift)", "tl.exp(old - shift)"
        ),
        "a guard on the old m": swapped("old_m_guarded", _GUARD, _GUARD.replace("m_new ==", "m ==")),
    },
    "split_row": {
        "16 slices at most": swapped("slice_left_out", "PARTS = triton.next_power_of_2(grid[1])", "PARTS = 16"),
    },
    "merge": {
        "empty where the left is": swapped(
            "empty_side_returned", "    m = max", "    if m_a == -INF:\n        return -INF, 0.0\n    m = max"
        ),
        "two empty parts count 1": swapped("two_empty_parts_counted", "return m, 0.0", "return m, 1.0"),
        "exp of each maximum": swapped(
            "maximum_out_of_exponent", _RESULT, "return m, (l_a * math.exp(m_a) + l_b * math.exp(m_b)) / math.exp(m)"
        ),
        "a mean for the maximum": swapped(
            "other_maximum", "    if m == -INF", "    m = (m_a + m_b) / 2\n    if max(m_a, m_b) == -INF"
        ),
        "no return": swapped("nothing_returned", _RESULT, _RESULT.replace("return m, ", "l = ")),
    },
    "recurrence": {"m replaced too early": swapped("never_rescaled", "        l = l * math.exp(m - m_new)", _EARLY_M)},
    "benchmark": {
        "flush between the marks": swapped(
            "flush_timed", "            gpu.flush()\n" + _MARK, _MARK + "            gpu.flush()\n"
        )
    },
}
