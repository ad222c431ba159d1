"""What a launch asks of the compiler, and the arguments that are refused before it is asked."""

from types import SimpleNamespace

import pytest
import torch
import triton
import triton.language as tl

import needs
from helpers import xray
from helpers.engine.compiler import request
from helpers.kernels import several_rows_kernel, single_tile_kernel
from small_kernels import compiled, copy_kernel

# As a launch would compile it


def told(kernel, *args, **kwargs):
    asked = request.request_of(kernel, args, kwargs, "sm_90", 4, None)
    return dict(asked.signature), dict(asked.constants), asked.divisible


def test_arguments_are_told_to_the_compiler_as_a_launch_tells_them():
    row = torch.empty(32)
    signature, constants, divisible = told(single_tile_kernel, row, row[1:], 48, 7, 1, 2**40, BLOCK=16)
    assert list(signature.values()) == ["*fp32", "*fp32", "i32", "i32", "constexpr", "i64", "constexpr"]
    assert constants == {"x_col_stride": 1, "BLOCK": 16}
    assert divisible == (0, 2, 5)


def test_an_argument_that_is_not_specialized_is_a_plain_number_whatever_it_is():
    row = torch.empty(32)
    asked = [told(several_rows_kernel, row, row, 16, 16, 1, M, 16, ROWS=2, BLOCK=16) for M in (1, 16, 17)]
    assert asked[0][0]["M"] == "i32"
    assert asked[0] == asked[1] == asked[2]


@triton.jit
def annotated_kernel(y_ptr, flag, count: tl.int64, scale: tl.float32):
    tl.store(y_ptr, count * scale, mask=flag)


def test_an_annotation_decides_the_type():
    signature, _, divisible = told(annotated_kernel, torch.empty(8), True, 16, 2.0)
    assert list(signature.values()) == ["*fp32", "u1", "i64", "fp32"]
    assert divisible == (0, 2)


@needs.interpreter
def test_the_default_is_four_warps_on_sm_90():
    assert compiled(copy_kernel) == compiled(copy_kernel, target="sm_90", num_warps=4)


def test_the_default_beside_a_gpu_is_that_gpu(monkeypatch):
    monkeypatch.setattr(request, "ON_GPU", True)
    monkeypatch.setattr(torch.cuda, "get_device_capability", lambda: (12, 0))
    assert compiled(copy_kernel).target == "sm_120"


# What is refused


@pytest.mark.parametrize("target", ["", "90", "sm90", "sm_9", "sm_90a", "cuda:90", "SM_90", "sm_90\n", "sm_99"])
def test_a_target_that_is_not_one_of_those_is_refused(target):
    with pytest.raises(ValueError, match="target must be one of sm_75, .*, sm_121; it is"):
        compiled(copy_kernel, target=target)


@pytest.mark.parametrize("num_warps", [0, 3, 64, -4, "4"])
def test_a_number_of_warps_that_no_launch_has_is_refused(num_warps):
    with pytest.raises(ValueError, match=f"num_warps must be 1, 2, 4, 8, 16 or 32; it is {num_warps!r}"):
        compiled(copy_kernel, num_warps=num_warps)


@pytest.mark.parametrize("num_stages", [0, -1, "2", 1.5])
def test_a_number_of_stages_that_no_launch_has_is_refused(num_stages):
    with pytest.raises(ValueError, match=f"num_stages must be a number from 1 on; it is {num_stages!r}"):
        compiled(copy_kernel, num_stages=num_stages)


def test_an_argument_left_out_is_refused_by_its_name():
    with pytest.raises(
        TypeError, match="copy_kernel: missing a required argument: 'N'; its parameters are y_ptr, x_ptr"
    ):
        xray.report(copy_kernel, torch.empty(8), torch.empty(8), BLOCK=8)


def test_an_argument_that_the_kernel_does_not_take_is_refused_by_its_name():
    with pytest.raises(TypeError, match="copy_kernel: got an unexpected keyword argument 'BLOK'"):
        compiled(copy_kernel, BLOK=8)


def test_a_tensor_of_a_dtype_that_triton_lacks_is_refused_by_its_name():
    with pytest.raises(
        TypeError, match="copy_kernel: x_ptr is a tensor of torch.complex64, which Triton does not have"
    ):
        xray.report(copy_kernel, torch.empty(8), torch.empty(8, dtype=torch.complex64), 8, BLOCK=8)


def test_an_argument_that_no_launch_can_pass_is_refused_by_its_name():
    with pytest.raises(TypeError, match="copy_kernel: N is a list; a launch passes tensors, numbers and None"):
        xray.report(copy_kernel, torch.empty(8), torch.empty(8), [5], BLOCK=8)


def test_a_constant_that_cannot_be_written_down_is_refused_by_its_name():
    with pytest.raises(TypeError, match="copy_kernel: BLOCK is a list; xray takes numbers, strings, None, functions"):
        xray.report(copy_kernel, torch.empty(8), torch.empty(8), 5, BLOCK=[8])


def test_what_is_no_kernel_is_refused():
    with pytest.raises(
        TypeError, match="takes the kernel itself, made with @triton.jit, and not the function that launches it"
    ):
        xray.report(compiled, torch.empty(8))


def test_an_autotuned_kernel_is_refused_with_what_to_pass():
    with pytest.raises(TypeError, match="got a SimpleNamespace. Of an autotuned kernel it takes the .fn"):
        xray.report(SimpleNamespace(fn=copy_kernel), torch.empty(8))
