"""A function arrives in another process with its kernels and its values, and runs there in that process's way."""

import functools
import threading
from types import CodeType

import cloudpickle
import pytest
import torch

from corpus import RIGHT
from exercises import SOLUTIONS
from helpers import DEVICE, kernels
from helpers.check.trial import place
from helpers.engine import child, pickled

FACTOR = 3


def runs(content):
    """In the child: what the function gives, on that process's device."""
    from helpers import DEVICE

    return pickled.loads(content)(torch.arange(6.0, device=DEVICE).reshape(2, 3)).cpu().tolist()


def there(fn):
    return child.call(runs, pickled.dumps(fn), interpret=True)


def here(fn):
    return fn(torch.arange(6.0, device=DEVICE).reshape(2, 3)).cpu().tolist()


@pytest.mark.parametrize("name", ["masked", "two_pass", "online"])
def test_a_kernel_of_a_notebook_arrives_with_its_source(name):
    fn = SOLUTIONS[name].answered()
    assert there(fn) == [pytest.approx(row, rel=1e-5) for row in here(fn)]


def test_the_file_of_a_function_arrives_where_cloudpickle_leaves_it_out(monkeypatch):
    """As 3.1.3 does, and the kernel's text is found by it."""
    table = cloudpickle.Pickler._dispatch_table
    reduced = table[CodeType]
    monkeypatch.setitem(table, CodeType, lambda code: reduced(code.replace(co_filename="<dynamic-code>")))
    fn = SOLUTIONS["masked"].answered()
    arrived = pickled.loads(pickled.dumps(fn))
    sent, found = (
        [part.__code__.co_filename for part in (one, one.__globals__["softmax_kernel"].fn)] for one in (fn, arrived)
    )
    assert found == sent


def test_a_kernel_that_calls_the_course_s_arrives():
    fn = SOLUTIONS["split_row"].variant(RIGHT["split_row"]["the course's"])
    assert there(fn) == [pytest.approx(row, rel=1e-5) for row in here(fn)]


def test_values_devices_and_tensors_of_a_closure_arrive():
    shift = torch.ones(3, device=DEVICE)

    def fn(x):
        return kernels.copy(x) * FACTOR + shift.to(DEVICE)

    assert there(fn) == here(fn)


DECORATED = {
    "autotuned": ("", "@triton.autotune([triton.Config({}, num_warps=4)], key=['N'])\n", ""),
    "with heuristics": ("", "@triton.heuristics({'unused': lambda args: 1})\n", ", unused: tl.constexpr"),
    "constexpr by its name": ("from triton.language import constexpr as known", "", ", more: known = known(2)"),
}


@pytest.mark.parametrize("name", DECORATED)
def test_a_decorated_kernel_arrives(name):
    before, decorator, parameter = DECORATED[name]
    fn = SOLUTIONS["masked"].answered(
        "@triton.jit", f"{before}\n{decorator}@triton.jit", "BLOCK: tl.constexpr)", f"BLOCK: tl.constexpr{parameter})"
    )
    assert there(fn) == [pytest.approx(row, rel=1e-5) for row in here(fn)]


def test_a_function_that_the_compiler_computes_arrives():
    term = "@triton.constexpr_function\ndef last(n):\n    return n - 1\n\n\n@triton.jit"
    fn = SOLUTIONS["masked"].answered("@triton.jit", term, "cols < N", "cols < N - 1 - last(BLOCK) + BLOCK")
    assert there(fn) == [pytest.approx(row, rel=1e-5) for row in here(fn)]


def test_a_gradient_that_has_none_itself_arrives():
    class Twice(torch.autograd.Function):
        @staticmethod
        def forward(ctx, x):
            return 2 * x

        @staticmethod
        @torch.autograd.function.once_differentiable
        def backward(ctx, dy):
            return 2 * dy

    def gradient(x):
        return torch.autograd.grad(Twice.apply(x.requires_grad_()).sum(), x)[0]

    assert there(gradient) == here(gradient) == [[2.0] * 3] * 2


def test_an_error_in_the_kernel_names_its_line():
    fn = SOLUTIONS["masked"].answered("tl.exp(x - m)", "tl.exp(x - mm)")
    with pytest.raises(Exception, match=r"in the line `e = tl.exp\(x - mm\)`.*mm is not defined"):
        there(fn)


def test_what_exists_in_this_process_only_is_refused_in_a_sentence():
    lock = threading.Lock()
    with pytest.raises(TypeError, match="this function cannot be sent to another process: cannot pickle"):
        pickled.dumps(lambda x: (lock, x))


class Refuses:
    def __reduce__(self):
        return int, ("x",)


def test_what_cannot_be_made_again_there_is_refused_in_a_sentence():
    with pytest.raises(pickled.CannotBeSent, match="cannot be sent to another process: invalid literal"):
        there(functools.partial(print, Refuses()))
    (tried,) = place.BesideGpu(functools.partial(print, Refuses())).answers([()])
    assert tried.raised.startswith("this function cannot be sent to another process")
