"""The interpreter takes what the compiler's front end takes, refuses what it refuses, and says so in its words."""

import sys

import pytest
import torch
import triton
import triton.language as tl
from triton.compiler import code_generator

import needs
import snippets
from helpers import DEVICE
from helpers.engine import frontend, interpreter

pytestmark = needs.interpreter

ALL = {**snippets.TAKEN, **snippets.REFUSED, **snippets.LATER}


def interpreter_says(name):
    """The interpreter's refusal of a snippet; None where it takes it and y holds what it should."""
    snippet = ALL[name]
    kernel = snippets.kernel_of(name, snippet)
    args, kwargs, y = snippets.arguments(snippet)
    try:
        kernel[(1,)](*args, **kwargs)
    except interpreter.KernelError as error:
        return str(error)
    if snippet.expected is not None:
        want = torch.as_tensor(snippet.expected(args[1])).float().expand(snippets.N)
        torch.testing.assert_close(y, want, rtol=1e-5, atol=1e-5)
    return None


# The specification


@pytest.mark.thinned
@pytest.mark.parametrize("name", [*snippets.TAKEN, *snippets.LATER])  # of the course's Triton: others differ in a few
@pytest.mark.filterwarnings("ignore")
def test_what_the_compiler_takes_works(name):
    assert interpreter_says(name) is None


@pytest.mark.thinned
@pytest.mark.parametrize("name", snippets.REFUSED)
def test_what_the_compiler_refuses_is_refused(name):
    assert "Triton's compiler refuses it: " in interpreter_says(name)


def test_there_are_many_snippets_and_about_half_are_refused():
    assert len(ALL) >= 140 and 0.4 < len(snippets.REFUSED) / len(ALL) < 0.6


@pytest.mark.proof
@pytest.mark.filterwarnings("ignore")
def test_the_compiler_and_the_interpreter_agree_on_every_snippet(record_property):
    compiler = snippets.compiler_says()
    rows, apart = [f"{'snippet':52} {'compiler':9} {'interpreter':12} same words?"], []
    for name in ALL:
        said, here = compiler[name], interpreter_says(name)
        same = here is None if said is None else here is not None and said[0] in here
        words = "" if said is None and here is None else "yes" if same else "no"
        rows.append(f"{name:52} {_verdict(said):9} {_verdict(here):12} {words}")
        if not same and name not in snippets.LATER:
            apart.append(name)
    verdicts = [_verdict(said) for said in compiler.values()]
    rows.append(f"{len(ALL)} snippets: {verdicts.count('takes')} taken, {verdicts.count('refuses')} refused")
    record_property("what the compiler and the interpreter take and refuse", "\n".join(rows))
    assert apart == [] and {name for name in compiler if compiler[name]} == {*snippets.REFUSED, *snippets.LATER}


def _verdict(said):
    return "takes" if said is None else "refuses"


# What is said


@triton.jit
def adding_kernel(y_ptr, x_ptr, N, BLOCK: tl.constexpr):
    l = 0
    for start in range(0, N, BLOCK):
        l += tl.sum(tl.load(x_ptr + start + tl.arange(0, BLOCK)), axis=0)
    tl.store(y_ptr, l)


@triton.jit
def copying_kernel(y_ptr, x_ptr, BLOCK: tl.constexpr):
    cols = tl.arange(0, BLOCK)
    tl.store(y_ptr + cols, tl.load(x_ptr + cols))


def x_and_y():
    return torch.zeros(8, device=DEVICE), torch.zeros(8, device=DEVICE)


def test_a_refusal_is_the_compilers_sentence_with_the_kernels_line():
    with pytest.raises(interpreter.KernelError) as refusal:
        adding_kernel[(1,)](*x_and_y(), 8, BLOCK=8)
    assert str(refusal.value) == (
        "adding_kernel, in the line `for start in range(0, N, BLOCK):`: Triton's compiler refuses it: Loop-carried "
        "variable l has initial type int32 but is re-assigned to fp32 in loop! "
        "Please make sure that the type stays consistent."
    )
    assert refusal.value.cause is AssertionError


@triton.jit
def wrong_axis_kernel(y_ptr, x_ptr, BLOCK: tl.constexpr):
    tl.store(y_ptr, tl.max(tl.load(x_ptr + tl.arange(0, BLOCK)), axis=1))


def test_the_line_is_the_kernels_and_not_that_of_tritons_library():
    with pytest.raises(interpreter.KernelError, match=r"in the line `tl.store\(y_ptr, .*: invalid axis 1"):
        wrong_axis_kernel[(1,)](*x_and_y(), BLOCK=8)


def test_a_refused_kernel_is_refused_again():
    for _ in range(2):
        with pytest.raises(interpreter.KernelError, match="Unsupported function referenced"):
            unmarked_kernel[(1,)](*x_and_y())


def unmarked(x):
    return x


@triton.jit
def unmarked_kernel(y_ptr, x_ptr):
    if x_ptr is None:
        tl.store(y_ptr, unmarked(1.0))


def test_a_refused_kernel_has_not_run():
    y, x = x_and_y()
    with interpreter.watching(pytest.fail), pytest.raises(interpreter.KernelError):
        adding_kernel[(1,)](y, x + 1, 8, BLOCK=8)
    assert not y.any()


def test_the_types_of_a_launch_decide():
    y, x = x_and_y()
    adding_kernel[(1,)](y, x.int(), 8, BLOCK=8)
    with pytest.raises(interpreter.KernelError):
        adding_kernel[(1,)](y, x, 8, BLOCK=8)


def test_the_constants_of_a_launch_decide():
    copying_kernel[(1,)](*x_and_y(), BLOCK=8)
    with pytest.raises(interpreter.KernelError, match="power of 2"):
        copying_kernel[(1,)](*x_and_y(), BLOCK=7)


@pytest.mark.parametrize(
    ("option", "said"), [({"num_wraps": 4}, "num_wraps was specified"), ({"num_warps": 3}, "power of 2")]
)
def test_options_that_no_launch_has_are_refused(option, said):
    with pytest.raises(interpreter.KernelError, match=said):
        copying_kernel[(1,)](*x_and_y(), BLOCK=8, **option)


def test_an_argument_that_no_launch_can_pass_is_refused():
    with pytest.raises(interpreter.KernelError, match="Triton's compiler refuses it"):
        copying_kernel[(1,)](x_and_y()[0], object(), BLOCK=8)


def test_a_missing_argument_is_left_to_the_launch():
    assert frontend.objection(copying_kernel, x_and_y()[:1], {"BLOCK": 8}) is None


def test_a_function_that_is_written_anew_is_asked_about_anew():
    above = "@triton.jit\ndef f(a):\n    {}\n    return a"
    kernel = snippets.kernel_of("wrong", snippets.Snippet("out = f(v)", above=above.format("del a")))
    right = snippets.kernel_of("right", snippets.Snippet("out = f(v)", above=above.format("pass")))
    args, kwargs, _ = snippets.arguments(snippets.Snippet(""))
    with pytest.raises(interpreter.KernelError):
        kernel[(1,)](*args, **kwargs)
    kernel.fn.__globals__["f"] = right.fn.__globals__["f"]
    kernel[(1,)](*args, **kwargs)


# A Triton that is different


@pytest.fixture
def asked_anew():
    frontend._front_end.cache_clear()
    yield
    frontend._front_end.cache_clear()


def test_the_compiler_can_be_asked_whatever_torch_s_default_dtype_is(asked_anew):
    torch.set_default_dtype(torch.float64)
    try:
        assert callable(frontend._front_end())
    finally:
        torch.set_default_dtype(torch.float32)


def test_a_front_end_that_has_moved_is_said(monkeypatch, asked_anew):
    monkeypatch.delattr(code_generator.CodeGenerator, "call_JitFunction")
    with pytest.raises(RuntimeError, match="has moved .*call_JitFunction.* in its compiler's front end"):
        frontend.objection(copying_kernel, x_and_y(), {"BLOCK": 8})


def test_a_front_end_that_refuses_what_is_right_is_said(monkeypatch, asked_anew):
    monkeypatch.delattr(code_generator.CodeGenerator, "visit_For")
    with pytest.raises(RuntimeError, match="has moved unsupported AST node type: For"):
        frontend.objection(copying_kernel, x_and_y(), {"BLOCK": 8})


def test_where_there_is_no_compiler_for_nvidia_nothing_is_refused(monkeypatch, asked_anew):
    def none(target):
        raise RuntimeError("0 compatible backends")

    monkeypatch.setattr(sys.modules["triton.compiler"], "make_backend", none)
    assert frontend.objection(adding_kernel, (*x_and_y(), 8), {"BLOCK": 8}) is None


@pytest.mark.parametrize("said", ["First('a') or Second('b')", "Case('x' y 'z')", "Bare('\\ud8')"])
def test_a_sentence_that_looks_like_an_error_s_repr_is_told_as_it_is(said):
    assert frontend.told(RuntimeError(said)).sentence == said


# Kernels without a text of their own


_ONE = (
    "import triton\nimport triton.language as tl\n\n\n@triton.jit\ndef one_kernel(y_ptr):\n    tl.store(y_ptr, 1.0)\n"
)


def _of_exec(folder):
    names = {}
    exec(_ONE, names)
    return names["one_kernel"]


def _of_file(folder, then):
    """A kernel of a file that becomes another one afterwards, or none."""
    file = folder / "of_a_file.py"
    file.write_text(_ONE, encoding="utf-8")
    names = {}
    exec(compile(_ONE, str(file), "exec"), names)
    file.unlink() if then is None else file.write_text(then, encoding="utf-8")
    return names["one_kernel"]


WITHOUT_TEXT = {
    "made by exec": _of_exec,
    "of a file deleted since": lambda folder: _of_file(folder, None),
    "of a file edited since": lambda folder: _of_file(folder, "\n" * 5 + _ONE.replace("1.0", "(")),
    "a lambda": lambda folder: triton.jit(lambda y_ptr: tl.store(y_ptr, 1.0)),
    "a function of Python's": lambda folder: triton.jit(len),
}


@pytest.fixture(params=WITHOUT_TEXT)
def without_text(request, tmp_path, monkeypatch):
    """A kernel without a text, which this module has under a name."""
    kernel = WITHOUT_TEXT[request.param](tmp_path)
    monkeypatch.setitem(globals(), "lost_kernel", kernel)
    return kernel


@triton.jit
def calling_kernel(y_ptr):
    lost_kernel(y_ptr)  # noqa: F821


def test_a_kernel_without_a_text_that_nobody_calls_changes_nothing(without_text):
    assert frontend.objection(copying_kernel, x_and_y(), {"BLOCK": 8}) is None
    y, x = x_and_y()
    copying_kernel[(1,)](y, x, BLOCK=8)
    assert torch.equal(y, x)


@pytest.mark.parametrize("launched", [True, False])
def test_a_kernel_without_a_text_is_told_what_it_lacks_if_it_is_used(without_text, launched):
    with pytest.raises(interpreter.NotCompilable, match=rf"no text of {without_text.fn.__name__} is found; define it"):
        (without_text if launched else calling_kernel)[(1,)](torch.zeros(8))
