"""Programs that wait for each other's words, interpreted: others begin meanwhile, as many as there are places."""

import pytest
import torch
import triton
import triton.language as tl

import needs
from helpers import DEVICE, traffic
from helpers.engine import interpreter
from helpers.engine.memory import MOST_BEGUN, WaitsForever

pytestmark = needs.interpreter

BLOCK = 128
LOWEST = tl.constexpr(-3.4028234663852886e38)


@triton.jit
def pair_of(x):
    m = tl.maximum(tl.max(x, axis=0), LOWEST)
    return m, tl.sum(tl.exp(x - m), axis=0)


@triton.jit
def publish(word_ptr, m, l):
    m_bits = m.to(tl.uint32, bitcast=True).to(tl.uint64)
    l_bits = l.to(tl.uint32, bitcast=True).to(tl.uint64)
    tl.atomic_xchg(word_ptr, ((m_bits << 32) | l_bits).to(tl.int64), sem="relaxed")


@triton.jit
def collect(word_ptr, parts, PARTS: tl.constexpr):
    """m and l of the row's slices, and the first slice whose word is missing, or `parts` if none is."""
    tl.debug_barrier()
    part = tl.arange(0, PARTS)
    words = tl.load(word_ptr + part, mask=part < parts, other=0, volatile=True)
    m = (words >> 32).to(tl.int32).to(tl.float32, bitcast=True)
    l = (words & 0xFFFFFFFF).to(tl.int32).to(tl.float32, bitcast=True)
    first = tl.min(tl.where((words == 0) & (part < parts), part, parts), axis=0)
    return tl.where(words == 0, LOWEST, m), l, first


@triton.jit
def shared_row_kernel(
    y_ptr, word_ptr, x_ptr, x_stride, N, parts, looks,
    BLOCK: tl.constexpr, PARTS: tl.constexpr, HELPS: tl.constexpr,
):  # fmt: skip
    row, part = (tl.program_id(0) // parts).to(tl.int64), tl.program_id(0) % parts
    words = word_ptr + row * parts
    cols = part * BLOCK + tl.arange(0, BLOCK)
    x = tl.load(x_ptr + row * x_stride + cols, mask=cols < N, other=-float("inf"))
    m, l = pair_of(x)
    publish(words + part, m, l)
    m_parts, l_parts, first = collect(words, parts, PARTS)
    while (first < parts) & (looks > 0):
        m_parts, l_parts, first = collect(words, parts, PARTS)
        looks -= 1
    if HELPS:
        while first < parts:
            missing = first * BLOCK + tl.arange(0, BLOCK)
            m, l = pair_of(tl.load(x_ptr + row * x_stride + missing, mask=missing < N, other=-float("inf")))
            publish(words + first, m, l)
            m_parts, l_parts, first = collect(words, parts, PARTS)
    m = tl.max(m_parts, axis=0)
    l = tl.sum(l_parts * tl.exp(m_parts - m), axis=0)
    tl.store(y_ptr + row * N + cols, tl.exp(x - m) / l, mask=cols < N)


def shared_row(x, looks=20, helps=True):
    M, N = x.shape
    parts = triton.cdiv(N, BLOCK)
    words = torch.zeros(M, parts, dtype=torch.int64, device=x.device)
    y = torch.empty(M, N, device=x.device)
    PARTS = max(triton.next_power_of_2(parts), 128)
    shared_row_kernel[(M * parts,)](y, words, x, x.stride(0), N, parts, looks, BLOCK=BLOCK, PARTS=PARTS, HELPS=helps)
    return y


def numbers(rows, slices):
    return torch.randn(rows, slices * BLOCK - 5, device=DEVICE)


@pytest.mark.parametrize(("rows", "slices"), [(1, 1), (3, 5), (2, MOST_BEGUN)], ids=str)
def test_programs_that_have_places_wait_and_each_number_makes_one_trip(rows, slices):
    x = numbers(rows, slices)
    counted = traffic.count(shared_row, x)
    torch.testing.assert_close(counted.result, torch.softmax(x, 1))
    # Words: each is made 0 first and exchanged by its program, which looks at all of its row at most twice.
    assert counted.loads <= x.numel() + rows * slices * (1 + 2 * slices)
    assert counted.stores == x.numel() + 2 * rows * slices


def test_a_program_that_looks_once_lets_no_other_begin():
    x = numbers(1, 4)
    assert traffic.count(lambda x: shared_row(x, looks=0), x).loads > 1.7 * x.numel()


@pytest.mark.parametrize("slices", [MOST_BEGUN + 1, 2 * MOST_BEGUN])
def test_who_has_looked_in_vain_helps_the_programs_that_have_no_place(slices):
    x = numbers(2, slices)
    torch.testing.assert_close(shared_row(x), torch.softmax(x, 1))


def test_who_does_not_help_is_wrong_where_a_place_is_lacking():
    x = numbers(1, MOST_BEGUN + 1)
    assert not torch.allclose(shared_row(x, helps=False), torch.softmax(x, 1))


def test_who_waits_without_end_is_stopped_and_told_why():
    with pytest.raises(interpreter.KernelError, match="looked 1,200 times .* 16 programs keep their places") as stopped:
        shared_row(numbers(1, MOST_BEGUN + 1), looks=10**6, helps=False)
    assert stopped.value.cause is WaitsForever


@triton.jit
def fails_in_the_last_kernel(word_ptr, y_ptr, programs):
    program = tl.program_id(0)
    tl.atomic_add(word_ptr, 1, sem="relaxed")
    looks = 0
    while (tl.load(word_ptr, volatile=True) < programs) & (looks < 9):
        looks += 1
    tl.store(y_ptr + program, program)


def test_the_error_of_a_program_that_began_meanwhile_is_its_own():
    words, y = torch.zeros(1, dtype=torch.int32, device=DEVICE), torch.zeros(3, dtype=torch.int32, device=DEVICE)
    with pytest.raises(
        interpreter.OutOfBounds, match=r"program 3 of fails_in_the_last_kernel stores element 3 of y_ptr"
    ):
        fails_in_the_last_kernel[(4,)](words, y, 4)


@triton.jit
def begun_kernel(order_ptr, word_ptr):
    number = tl.atomic_add(word_ptr, 1, sem="relaxed")
    tl.store(order_ptr + number, 10 * tl.program_id(0) + tl.program_id(1))
    looks = 0
    while (tl.load(word_ptr, volatile=True) < 6) & (looks < 9):
        looks += 1


def test_programs_begin_in_the_order_of_a_gpu_and_each_runs_once():
    words, order = torch.zeros(1, dtype=torch.int32, device=DEVICE), torch.zeros(6, dtype=torch.int32, device=DEVICE)
    begun_kernel[3, 2](order, words)
    assert order.tolist() == [0, 10, 20, 1, 11, 21]


@triton.jit
def racing_kernel(y_ptr, word_ptr):
    tl.atomic_add(word_ptr, 1, sem="relaxed")
    looks = 0
    while (tl.load(word_ptr, volatile=True) < 2) & (looks < 9):
        looks += 1
    tl.store(y_ptr, tl.program_id(0))


def test_a_race_with_a_program_that_began_meanwhile_is_seen():
    words, y = torch.zeros(1, dtype=torch.int32, device=DEVICE), torch.zeros(1, dtype=torch.int32, device=DEVICE)
    launches = []
    with interpreter.watching(launches.append, addresses=True):
        racing_kernel[(2,)](y, words)
    assert launches[0].race == "program 1 and program 0 of racing_kernel both store element 0 of y_ptr"
