"""Longer columns than the GPU holds: three launches, of which the second and the third may begin early."""

import pytest
import torch

import needs
from helpers import DEVICE, ON_GPU
from helpers.engine import child, compiled
from helpers.softmax import softmax
from helpers.softmax.function import gradient_launcher_of, launcher_of
from helpers.softmax.launches.columns import ThreeInARow, gradient_columns_launcher
from helpers.softmax.plans.gpu import Chip

SIZES = 1, 512, 2**17, 4, True
"""Of contiguous tensors: dimensions before and behind, columns, bytes of an element, whether vectors fit."""


def ptx_of(launch, early):
    """In a process that compiles: PTX of the second or the third launch of a gradient."""
    launcher = getattr(gradient_columns_launcher(*SIZES, gpu=Chip(starts_early=early)), launch)
    pointers = [name for name in launcher.kernel.arg_names if name.endswith("_ptr")]
    signature = {name: "*i64" if name == "word_ptr" else "*fp32" for name in pointers}
    constants = {}
    for parameter, value in zip(launcher.kernel.params[len(pointers) :], launcher.arguments, strict=True):
        signature[parameter.name] = "constexpr" if parameter.is_constexpr else "i32"
        if parameter.is_constexpr:
            constants[parameter.name] = value
    found = compiled.compile_without_launch(launcher.kernel, signature, constants, (), "sm_90", launcher.options)
    return found.asm["ptx"]


def test_the_merge_lets_the_last_launch_begin_and_waits_before_it_reads():
    ptx = child.call(ptx_of, "merging", True, interpret=False)
    assert ptx.index("griddepcontrol.launch_dependents") < ptx.index("griddepcontrol.wait") < ptx.index("ld.global")


def test_the_last_launch_loads_its_tile_and_waits_before_it_reads_the_merged_pairs():
    ptx = child.call(ptx_of, "writing", True, interpret=False)
    assert ptx.index("ld.global") < ptx.index("griddepcontrol.wait") < ptx.rindex("ld.global")
    assert ptx.index("griddepcontrol.wait") < ptx.index("st.global")


@pytest.mark.parametrize("launch", ["merging", "writing"])
def test_where_no_launch_can_begin_early_none_waits(launch):
    assert "griddepcontrol" not in child.call(ptx_of, launch, False, interpret=False)


@pytest.mark.parametrize("early", [False, True])
def test_a_launch_that_waits_is_one_that_may_begin_early(early):
    launches = gradient_columns_launcher(*SIZES, gpu=Chip(starts_early=early))
    assert [one.options.get("launch_pdl", False) for one in launches[:3]] == [False, early, early]
    for launch in launches[1:3]:
        assert launch.named["EARLY"] == early


def test_they_begin_early_where_the_gpu_can():
    can = ON_GPU and torch.cuda.get_device_capability() >= (9, 0)
    x = torch.empty(2**17, 512, device=DEVICE)
    for launches in (launcher_of(x, 0), gradient_launcher_of(x, x, 0)):
        assert isinstance(launches, ThreeInARow)
        assert launches.writing.options.get("launch_pdl", False) == can


@needs.gpu
@pytest.mark.parametrize("shape", [(131072, 512), (300_000, 49), (2_000_000, 3)], ids=str)
def test_each_reads_what_the_launch_ahead_of_it_has_written(shape):
    tensors = [torch.randn(shape, device=DEVICE) for _ in range(3)]
    alone = []
    for x in tensors:
        alone.append(softmax(x, 0))
        torch.cuda.synchronize()
        torch.testing.assert_close(alone[-1], torch.softmax(x, 0))
    for _ in range(50):
        together = [softmax(x, 0) for x in tensors]
        assert all(map(torch.equal, together, alone))
