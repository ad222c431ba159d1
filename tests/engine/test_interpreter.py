"""What the interpreter's guard promises: every access is counted and checked, and a kernel is refused as on a GPU."""

import numpy as np
import pytest
import torch
import triton
import triton.language as tl
from triton.language.extra import libdevice
from triton.language.extra.libdevice import exp as exp_of_libdevice

import needs
from helpers import DEVICE
from helpers.engine import interpreter, memory

pytestmark = needs.interpreter

WEIGHTS = torch.ones(8)
COLUMNS = 8
SCALE = 0.5
FIXED = tl.constexpr(8)


@triton.jit
def exchange_kernel(lock_ptr, old, new):
    tl.atomic_cas(lock_ptr, old, new)


@triton.jit
def load_wide_kernel(y_ptr, x_ptr, first):
    tl.store(y_ptr, tl.load((x_ptr + first).to(tl.pointer_type(tl.int64))))


@triton.jit
def store_wide_kernel(y_ptr, first):
    tl.store((y_ptr + first).to(tl.pointer_type(tl.int64)), 7)


@triton.jit
def loaded(x_ptr, BLOCK: tl.constexpr):
    return tl.load(x_ptr + tl.arange(0, BLOCK))


@triton.jit
def calling_kernel(y_ptr, x_ptr, BLOCK: tl.constexpr):
    tl.store(y_ptr + tl.arange(0, BLOCK), loaded(x_ptr, BLOCK))


@triton.jit
def looping_kernel(y_ptr, x_ptr, times, BLOCK: tl.constexpr):
    for _ in range(times):
        tl.store(y_ptr + tl.arange(0, BLOCK), tl.load(x_ptr + tl.arange(0, BLOCK)))


@triton.jit
def convert_kernel(y_ptr, x_ptr, size, BLOCK: tl.constexpr):
    cols = tl.arange(0, BLOCK)
    tl.store(y_ptr + cols, tl.load(x_ptr + cols, mask=cols < size), mask=cols < size - 1)


@triton.jit
def global_tensor_kernel(y_ptr):
    tl.store(y_ptr, WEIGHTS)


@triton.jit
def global_int_kernel(y_ptr):
    tl.store(y_ptr, COLUMNS)


@triton.jit
def global_float_kernel(y_ptr):
    tl.store(y_ptr, SCALE)


@triton.jit
def global_constexpr_kernel(y_ptr):
    tl.store(y_ptr, FIXED)


def launched(kernel, *args, grid=(1,), addresses=False, **kwargs):
    """What the interpreter saw of one launch."""
    launches = []
    with interpreter.watching(launches.append, addresses):
        kernel[grid](*args, **kwargs)
    (launch,) = launches
    return launch


# What counts


def test_a_comparison_and_exchange_is_a_load_and_a_store():
    launch = launched(exchange_kernel, torch.zeros(1, dtype=torch.int32, device=DEVICE), 0, 1)
    assert (launch.loads, launch.stores, launch.bytes_loaded, launch.bytes_stored) == (1, 1, 4, 4)


def test_accesses_of_a_function_that_the_kernel_calls_count():
    x = torch.randn(8, device=DEVICE)
    launch = launched(calling_kernel, torch.empty_like(x), x, BLOCK=8)
    assert (launch.loads, launch.stores) == (8, 8)


def test_accesses_in_a_loop_count_every_time():
    x = torch.randn(8, device=DEVICE)
    launch = launched(looping_kernel, torch.empty_like(x), x, 5, BLOCK=8)
    assert (launch.loads, launch.stores) == (40, 40)


def test_accesses_of_all_programs_count():
    x = torch.randn(8, device=DEVICE)
    assert launched(calling_kernel, torch.empty_like(x), x, BLOCK=8, grid=(2, 3)).loads == 48


def test_bytes_are_those_of_the_dtype_that_is_loaded_and_of_the_one_that_is_stored():
    x, y = torch.randn(8, device=DEVICE).bfloat16(), torch.empty(8, dtype=torch.float32, device=DEVICE)
    launch = launched(convert_kernel, y, x, 6, BLOCK=8)
    assert (launch.loads, launch.stores, launch.bytes_loaded, launch.bytes_stored) == (6, 5, 12, 20)


def test_the_tile_is_the_widest_access_with_its_lanes_switched_off():
    x = torch.randn(8, device=DEVICE)
    assert launched(convert_kernel, torch.empty_like(x), x, 3, BLOCK=8).tile == 8


def test_addresses_are_kept_where_they_are_asked_for():
    x = torch.randn(8, device=DEVICE)
    y = torch.empty_like(x)
    launch = launched(convert_kernel, y, x, 6, BLOCK=8, addresses=True)
    assert (np.concatenate(launch.loaded) - x.data_ptr() == 4 * np.arange(6)).all()
    assert (np.concatenate(launch.stored) - y.data_ptr() == 4 * np.arange(5)).all()
    assert launched(convert_kernel, y, x, 6, BLOCK=8).loaded == []


def test_two_watchers_see_the_same_launch():
    x, one, other = torch.randn(8, device=DEVICE), [], []
    with interpreter.watching(one.append), interpreter.watching(other.append):
        calling_kernel[(1,)](torch.empty_like(x), x, BLOCK=8)
    assert len(one) == 1 and one == other


# What is refused


@pytest.mark.parametrize("first", [3, 4, -1])
def test_a_load_of_which_a_part_lies_outside_is_refused(first):
    x, y = torch.zeros(4, dtype=torch.int32, device=DEVICE), torch.zeros(1, dtype=torch.int64, device=DEVICE)
    with pytest.raises(memory.OutOfBounds, match=f"loads element {first} of x_ptr"):
        load_wide_kernel[(1,)](y, x, first)


def test_a_wide_load_that_ends_with_the_tensor_is_none_of_these():
    x, y = torch.arange(4, dtype=torch.int32, device=DEVICE), torch.zeros(1, dtype=torch.int64, device=DEVICE)
    load_wide_kernel[(1,)](y, x, 2)
    assert y.item() == 2 + (3 << 32)


def test_a_store_of_which_a_part_lies_outside_writes_nothing():
    y = torch.zeros(4, dtype=torch.int32, device=DEVICE)
    with pytest.raises(memory.OutOfBounds, match="stores element 3 of y_ptr"):
        store_wide_kernel[(1,)](y, 3)
    assert not y.any()


def test_a_refused_access_says_how_many_lanes_lie_outside():
    x, y = torch.zeros(5, device=DEVICE), torch.zeros(8, device=DEVICE)
    with pytest.raises(memory.OutOfBounds) as refusal:
        convert_kernel[(1,)](y, x, 7, BLOCK=8)
    assert refusal.value.access == memory.Access("load", "x_ptr", element=5, outside=2, lanes=7, tile=8)


@pytest.mark.parametrize(
    ("kernel", "name"),
    [(global_tensor_kernel, "WEIGHTS"), (global_int_kernel, "COLUMNS"), (global_float_kernel, "SCALE")],
    ids=["tensor", "int", "float"],
)
def test_a_global_that_the_compiler_refuses_is_refused(kernel, name):
    with pytest.raises(interpreter.KernelError, match=f"Cannot access global variable {name}") as refusal:
        kernel[(1,)](torch.zeros(8, device=DEVICE))
    assert refusal.value.cause is NameError


def test_a_global_constexpr_is_taken():
    y = torch.zeros(1, device=DEVICE)
    global_constexpr_kernel[(1,)](y)
    assert y.item() == 8


@triton.jit
def own_number_kernel(y_ptr):
    tl.store(y_ptr + tl.program_id(0), tl.program_id(0))


@triton.jit
def number_after_kernel(y_ptr):
    tl.debug_barrier()
    tl.store(y_ptr + tl.program_id(0), tl.program_id(0))


def test_a_launch_within_a_launch_leaves_its_program_where_it_was(monkeypatch):
    within, y = torch.zeros(9, dtype=torch.int32), torch.zeros(3, dtype=torch.int32)
    monkeypatch.setattr(tl, "debug_barrier", lambda **kwargs: own_number_kernel[(9,)](within))
    number_after_kernel[(3,)](y)
    assert y.tolist() == [0, 1, 2] and within.tolist() == list(range(9))


# What a cell may switch


@pytest.mark.parametrize("how", ["set", "taken out", "knob"])
def test_the_mode_that_was_chosen_is_kept(monkeypatch, how):
    monkeypatch.setenv("TRITON_INTERPRET", "0")
    if how == "taken out":
        monkeypatch.delenv("TRITON_INTERPRET")
    if how == "knob":
        triton.knobs.runtime.interpret = False
    kernel, y = triton.jit(looping_kernel.fn), torch.zeros(8)
    kernel[(1,)](y, torch.ones(8), 1, BLOCK=8)
    assert y.tolist() == [1.0] * 8


@triton.jit
def libdevice_kernel(y_ptr, x_ptr, BLOCK: tl.constexpr):
    cols = tl.arange(0, BLOCK)
    y = libdevice.exp(tl.load(x_ptr + cols))
    tl.store(y_ptr + cols, y * 2.0)


@triton.jit
def imported_kernel(y_ptr, x_ptr, BLOCK: tl.constexpr):
    tl.store(y_ptr + tl.arange(0, BLOCK), exp_of_libdevice(tl.load(x_ptr + tl.arange(0, BLOCK))) + 1.0)


@pytest.mark.parametrize("kernel", [libdevice_kernel, imported_kernel], ids=["module", "function"])
def test_libdevice_is_named_with_its_line(kernel):
    said = "the interpreter lacks the functions of libdevice; triton.language has some, such as tl.exp"
    with pytest.raises(
        interpreter.KernelError, match=rf"in the line `.*(?:libdevice\.exp|exp_of_libdevice).*`: {said}"
    ):
        kernel[(1,)](torch.zeros(8), torch.ones(8), BLOCK=8)
