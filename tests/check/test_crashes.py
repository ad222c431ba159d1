"""The line in which an answer stopped, and the cause that is known of it."""

import ast
import math
from types import SimpleNamespace

import pytest
import torch
import triton
import triton.language as tl

from helpers.check.mistakes.stops import STOPS
from helpers.check.trial import crashes
from helpers.check.trial.crashes import IN_KERNEL, IN_PYTHON, Stop, place_of, stop_of
from helpers.check.trial.trial import failed

X = torch.tensor([[0.0, 1.0], [2.0, 3.0]])


def stop(fn, *args):
    """The stop of fn(*args), which raises an error."""
    with pytest.raises(Exception) as raised:
        fn(*args)
    return stop_of(raised.value, fn)


def plain(y_ptr, BLOCK):
    pass


@triton.jit
def kernel(y_ptr, n, BLOCK: tl.constexpr):
    tl.store(y_ptr + tl.arange(0, BLOCK), n)


def not_decorated(x):
    plain[(2,)](x, BLOCK=2)


def no_grid(x):
    kernel(x, 1.0, BLOCK=2)


def no_comma(x):
    M = 2
    kernel[(M)](x, 1.0, BLOCK=2)


def too_few(x):
    kernel[(1,)](x, BLOCK=2)


def too_many(x):
    kernel[(1,)](x, 1.0, 2, BLOCK=2)


def in_several_lines(x):
    kernel[(1,)](
        x,
        BLOCK=2,
    )


def no_values(x):
    m = x.max(dim=1, keepdim=True)
    return x - m


def no_values_in_the_line(x):
    return x - x.max(dim=1, keepdim=True)


def of_math(x):
    return math.exp(x)


def of_torch(x):
    m = 1.0
    return torch.exp(m)


def of_a_list(x):
    block = x.tolist()
    return block.max()


def misspelt(x):
    return x + zero  # noqa: F821


def unbound(x):
    for _ in range(2):
        l += x  # noqa: F821
    return l


def no_function(x):
    return torch.expp(x)


def no_fit(x):
    e = torch.ones(3)
    return x + e


def on_a_gpu(x):
    return torch.cuda.no_such_thing()


PLAIN = {
    not_decorated: "not_decorated",
    no_grid: "no_grid",
    no_comma: "grid_without_comma",
    too_few: "launch_arguments",
    too_many: "launch_arguments",
    in_several_lines: "launch_arguments",
    no_values: "values_missing",
    no_values_in_the_line: "values_missing",
    of_math: "number_function",
    of_torch: "tensor_function",
    of_a_list: "list_as_tensor",
    misspelt: "undefined_name",
    unbound: "no_start_value",
    no_function: "no_such_function",
    no_fit: "shapes",
}


@pytest.mark.parametrize(("fn", "cause"), PLAIN.items(), ids=lambda value: getattr(value, "__name__", value))
def test_the_cause_is_found_in_a_line_of_python(fn, cause):
    assert stop(fn, X).cause == cause


def test_the_line_and_its_place_are_those_of_the_answer():
    found = stop(no_values, X)
    assert found.line == "return x - m"
    assert place_of(found) == f"line {no_values.__code__.co_firstlineno + 2} of test_crashes.py"


def test_a_line_of_a_cell_is_said_to_be_of_the_cell():
    assert (
        place_of(Stop("x", 3, "<cell 3>")) == place_of(Stop("x", 3, "/gone/ipykernel_1/2.py")) == "line 3 of the cell"
    )


def test_a_line_that_is_long_is_cut():
    assert len(crashes._shortened("x" * 999)) == 160


def _raises(x):
    raise TypeError(f"a maximum of mine: {x.max(0)}")


class Event:
    __module__ = "torch.cuda.streams"  # torch's own, which no build for the CPU can make


def between(marks):
    return sum(start.elapsed_time(end) for start, end in marks)


def test_an_event_of_torch_stops_an_answer_later_than_in_the_line_that_names_torch_cuda():
    assert stop(between, [(Event(), Event())]).cause == "real_gpu"


def test_triton_s_driver_needs_a_gpu_too():
    driver = SimpleNamespace(active=None)

    def asking(x):
        return driver.active.utils.get_device_properties(0)

    found = stop(asking, X)
    assert found.cause == "real_gpu" and found.line == "return driver.active.utils.get_device_properties(0)"


def test_an_error_that_the_answer_raises_itself_has_a_line_and_no_cause():
    found = stop(_raises, X)
    assert (found.line, found.cause) == ('raise TypeError(f"a maximum of mine: {x.max(0)}")', "")


def test_an_error_from_elsewhere_has_no_line():
    assert stop_of(ValueError("never raised")) == Stop()


class Strange(Exception):
    __cause__ = property(lambda self: 1 / 0)

    def __str__(self):
        raise RuntimeError("no text")


def test_errors_that_are_each_other_s_cause_end():
    one, other = ValueError(1), ValueError(2)
    one.__cause__, other.__cause__ = other, one
    assert list(crashes.chain_of(one)) == [one, other]


def test_an_error_that_cannot_be_looked_at_is_told_by_its_type():
    assert stop_of(Strange()) == Stop()
    assert failed(Strange()).raised == "Strange"


def test_of_a_long_message_the_beginning_is_told():
    assert len(failed(ValueError("x" * 10**7)).raised) < 400


# In a kernel, as Triton's compiler refuses it: with the source and the node, and without values


class Refused(Exception):
    def __init__(self, src, node):
        self.src, self.node = src, node


def cause_in_kernel(line, error=None):
    """The cause in a line of a kernel that loads a tile x, and a single number s."""
    source = f"""@triton.jit
def kernel(y_ptr, x_ptr, stride, BLOCK: tl.constexpr):
    cols = tl.arange(0, BLOCK)
    x_row = x_ptr + stride
    x = tl.load(x_row + cols)
    s = tl.load(x_row)
    {line}
    late = 0.0
"""
    refused = Refused(source, ast.parse(source).body[0].body[4])
    refused.__cause__ = error
    return stop_of(refused, cause_in_kernel).cause


@pytest.mark.parametrize(
    ("line", "cause"),
    [
        ("y = torch.exp(x)", "host_function"),
        ("y = math.exp(x)", "host_function"),
        ("y = np.exp(x)", "host_function"),
        ("y = x.to(torch.float32)", "dtype_of_torch"),
        ("y = tl.load(x_ptr[cols])", "pointer_indexed"),
        ("y = tl.load(x_row[0])", "pointer_indexed"),
        ("tl.store(x, y_ptr + cols)", "store_swapped"),
        ("y = tl.load(x_row + cols, other=0.0)", "other_without_mask"),
        ("y = max(x)", "host_function"),
        ("y = tl.load(x_row, stride + cols)", "offsets_as_mask"),
        ("tl.store(y_ptr, cols, x)", "offsets_as_mask"),
        ("y = tl.load(x_row, cols < 3)", ""),
        ("y = tl.max(s, tl.max(x, axis=0))", "maximum_of_two"),
        ("y = tl.max(x, s)", "maximum_of_two"),
        ("y = tl.max(x, 0)", ""),
        ("y = tl.max(x, axis=1)", "axis_beyond"),
        ("y = tl.max(x, 1)", "axis_beyond"),
        ("y = x.max(axis=1)", "axis_beyond"),
        ("y = x.max(1)", "axis_beyond"),
        ("y = tl.max(s, axis=0)", "no_columns"),
        ("tl.store(y_ptr + stride, x)", "no_columns"),
        ("y = tl.expp(x)", "no_such_function"),
        ("tl.store(y_ptr + cols, x)", ""),
        ("tl.store(y_ptr, tl.max(x, axis=0))", ""),
        ("y = tl.load(x_row + cols, mask=cols < 3, other=0.0)", ""),
        ("y = tl.max(x, axis=0)", ""),
    ],
)
def test_the_cause_is_found_in_a_line_of_a_kernel(line, cause):
    assert cause_in_kernel(line) == cause


@pytest.mark.parametrize(
    ("line", "cause"),
    [("y = late + x", "no_start_value"), ("late += x", "no_start_value"), ("y = nowhere + x", "undefined_name")],
)
def test_a_name_without_a_value_is_told_from_one_that_nothing_defines(line, cause):
    assert cause_in_kernel(line, NameError("late is not defined")) == cause


@pytest.mark.parametrize(
    ("loop", "cause"),
    [
        ("for start in range(0, 4, 2):\n        e = s", "left_in_loop"),
        ("while s < 4:\n        e = s", "left_in_loop"),
        ("for start in tl.static_range(0, 4, 2):\n        e = s", "undefined_name"),
        ("e = 0.0\n    for start in range(0, 4, 2):\n        e = s", "undefined_name"),
        ("for start in range(0, 4, 2):\n        s = e", "no_start_value"),
    ],
)
def test_a_name_of_a_loop_is_forgotten_after_it(loop, cause):
    source = f"@triton.jit\ndef kernel(y_ptr, s):\n    {loop}\n    y = e\n    e = 1.0\n"
    body = ast.parse(source).body[0].body
    refused = Refused(source, next(node for node in body if ast.unparse(node) == "y = e"))
    refused.__cause__ = NameError("e is not defined")
    assert stop_of(refused, print).cause == cause


def test_every_cause_has_a_mistake_and_every_mistake_a_cause():
    assert {mistake.id for mistake in STOPS} == {*IN_KERNEL, *IN_PYTHON}
