"""The X-ray compiles what a launch would: the options of decorator and launch, from a script as from a notebook."""

import os
import subprocess
import sys
from pathlib import Path

import pytest
import torch
import triton
import triton.language as tl

from helpers import xray
from helpers.engine.compiler import request
from helpers.engine.compiler.request import CannotAsk, CompileRequest, request_of_launch
from helpers.softmax.kernels.shared import shared_kernel
from small_kernels import compiled, copy_kernel

ROOT = Path(__file__).resolve().parents[2]


@triton.jit(noinline=True)
def doubled(x):
    return 2 * x


@triton.jit(do_not_specialize=["N"], do_not_specialize_on_alignment=["x_ptr"])
def decorated_kernel(y_ptr, x_ptr, N, BLOCK: tl.constexpr):
    cols = tl.arange(0, BLOCK)
    tl.store(y_ptr + cols, doubled(tl.load(x_ptr)), mask=cols < N)


def launched(kernel, *args, **kwargs):
    return request_of_launch(kernel, args, kwargs, "sm_90")


def test_the_options_of_a_decorator_are_in_the_text():
    text = launched(decorated_kernel, torch.empty(8), torch.empty(8), 16, BLOCK=8).text
    assert "@triton.jit(noinline=True)\ndef doubled" in text
    assert (
        "@triton.jit(do_not_specialize=['N'], do_not_specialize_on_alignment=['x_ptr'])\ndef decorated_kernel" in text
    )


def test_a_kernel_decorated_otherwise_has_another_text(monkeypatch):
    monkeypatch.setattr(request, "_texts", {})
    plain, apart = (triton.jit(copy_kernel.fn, noinline=noinline) for noinline in (False, True))
    assert request.source_of(plain) != request.source_of(apart)


def test_the_shared_kernel_has_the_registers_of_its_launch():
    words, x = torch.zeros(4, dtype=torch.int64), torch.zeros(16384)
    constants = {"VEC": 4, "EDGES": False, "PARTS": 256, "BLOCK": 8192}
    args = x, x, words, 16384, 16384, 1, 16384, 1000
    free = xray.report(shared_kernel, *args, **constants, num_warps=8, target="sm_90")
    held = xray.report(shared_kernel, *args, **constants, num_warps=8, maxnreg=40, target="sm_90")
    assert held.registers <= 40 < free.registers


@triton.jit
def refused_kernel(y_ptr, x_ptr, N, BLOCK: tl.constexpr):
    cols = tl.arange(0, BLOCK)
    mask = cols < N
    tl.store(y_ptr + cols, doubled(tl.load(x_ptr + cols, mask=mask)), mask=mask)


def test_a_tile_given_to_a_function_that_is_not_inlined_is_refused_as_a_launch_would():
    with pytest.raises(ValueError, match="doubled is marked noinline, but was called with non-scalar argument"):
        compiled(refused_kernel)


def test_maxnreg_and_num_ctas_are_launch_options():
    asked = launched(copy_kernel, torch.empty(8), torch.empty(8), 5, BLOCK=8, num_warps=8, num_stages=2, maxnreg=64)
    assert (asked.num_warps, asked.num_stages, asked.options) == (8, 2, (("maxnreg", 64),))
    assert compiled(copy_kernel, num_ctas=2, target="sm_90").registers > 0


@pytest.mark.parametrize(("option", "value"), [("maxnreg", 0), ("maxnreg", "64"), ("num_ctas", 1.5)])
def test_an_option_that_no_launch_has_is_refused(option, value):
    with pytest.raises(ValueError, match=f"{option} must be a number from 1 on; it is {value!r}"):
        compiled(copy_kernel, **{option: value})


@triton.jit
def tuple_kernel(pointers, sizes, BLOCK: tl.constexpr):
    cols = tl.arange(0, BLOCK)
    tl.store(pointers[0] + cols, tl.load(pointers[1] + cols, mask=cols < sizes[0]), mask=cols < sizes[1])


def test_the_parts_of_a_tuple_are_told_to_the_compiler_one_by_one():
    x = torch.empty(32)
    asked = launched(tuple_kernel, (x, x[1:]), (1, 16), BLOCK=16)
    assert asked.signature[:2] == (("pointers", ("*fp32", "*fp32")), ("sizes", ("constexpr", "i32")))
    assert (asked.constants, asked.divisible) == ((((1, 0), 1), ("BLOCK", 16)), ((0, 0), (1, 1)))
    assert xray.report(tuple_kernel, (x, x), (5, 5), BLOCK=16).registers > 0


@triton.jit
def typed_kernel(y_ptr, DTYPE: tl.constexpr, PAIR: tl.constexpr):
    tl.store(y_ptr, tl.full((), PAIR[1], DTYPE))


def test_a_request_sent_to_another_process_is_the_same_there():
    asked = launched(typed_kernel, torch.empty(1), tl.float32, (1, 2.5))
    sent = asked.plain()
    assert dict(sent["constants"]) == {"DTYPE": {"dtype": "fp32"}, "PAIR": (1, 2.5)}
    assert CompileRequest.of(sent) == asked


def test_what_a_launch_can_pass_and_no_request_can_hold_is_told_apart():
    with pytest.raises(CannotAsk, match="BLOCK is a list"):
        launched(copy_kernel, torch.empty(8), torch.empty(8), 5, BLOCK=[8])
    with pytest.raises(TypeError) as refused:
        launched(copy_kernel, torch.empty(8), torch.empty(8), [5], BLOCK=8)
    assert not isinstance(refused.value, CannotAsk)


def test_every_launch_option_is_one_of_triton_s():
    from triton.backends.nvidia.compiler import CUDAOptions

    assert set(request.LAUNCH_OPTIONS) <= set(CUDAOptions.__dataclass_fields__)


# From wherever it is called

PROGRAM = """
import helpers
import torch, triton, triton.language as tl
from helpers import xray
from helpers.kernels import single_tile_kernel
from helpers.softmax.kernels.shared import shared_kernel
row = torch.empty(64)
print("ran", xray.report(single_tile_kernel, row, row, 64, 64, 1, 64, BLOCK=64, target="sm_90").target, flush=True)
"""


@pytest.mark.thinned(0)
def test_a_plain_script_runs_once_and_gets_its_report(tmp_path):
    script = tmp_path / "script.py"
    script.write_text(PROGRAM)
    environment = {**os.environ, "PYTHONPATH": str(ROOT), "TRITON_CACHE_DIR": str(tmp_path)}
    done = subprocess.run([sys.executable, str(script)], cwd=tmp_path, env=environment, capture_output=True, text=True)
    assert (done.returncode, done.stdout, done.stderr) == (0, "ran sm_90\n", "")
