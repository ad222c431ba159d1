"""Two programs that meet at an element in no order are found, in whatever order they ran; what is in order is not."""

import numpy as np
import pytest
import torch
import triton
import triton.language as tl

import needs
from helpers import DEVICE, kernels
from helpers.engine import interpreter, memory
from helpers.engine import races as finder
from helpers.softmax import softmax

pytestmark = needs.interpreter

ORDERS = {"first to last": None, "backwards": memory.backwards, "shuffled": memory.shuffled}
in_each_order = pytest.mark.parametrize("order", ORDERS.values(), ids=ORDERS)


@triton.jit
def overlapping_kernel(y_ptr, SAME: tl.constexpr):
    """Programs store eight elements each, of which the last four are the next program's first."""
    lanes = 4 * tl.program_id(0) + tl.arange(0, 8)
    tl.store(y_ptr + lanes, lanes if SAME else 0 * lanes + tl.program_id(0))


@triton.jit
def next_kernel(y_ptr, OFFSET: tl.constexpr):
    """Each program stores its element and loads the one `OFFSET` further."""
    row = tl.program_id(0)
    tl.store(y_ptr + row, row)
    tl.store(y_ptr + 100 + row, tl.load(y_ptr + row + OFFSET))


@triton.jit
def last_kernel(y_ptr, part_ptr, done_ptr, ASKS: tl.constexpr, SEM: tl.constexpr, SCOPE: tl.constexpr):
    """The program that a counter tells to be the last, or else the last of the grid, adds what all have stored."""
    row = tl.program_id(0)
    tl.store(part_ptr + row, row + 1.0)
    tl.debug_barrier()
    count = tl.atomic_add(done_ptr, 1, sem=SEM, scope=SCOPE)
    if (count if ASKS else row) == tl.num_programs(0) - 1:
        l = 0.0
        for i in range(tl.num_programs(0)):
            l += tl.load(part_ptr + i)
        tl.store(y_ptr, l)


@triton.jit
def lock_kernel(y_ptr, lock_ptr, LOCKED: tl.constexpr):
    """Programs take turns, or do not, at adding to one element."""
    if LOCKED:
        while tl.atomic_cas(lock_ptr, 0, 1) == 1:
            pass
    tl.store(y_ptr, tl.load(y_ptr) + 1)
    if LOCKED:
        tl.debug_barrier()
        tl.atomic_xchg(lock_ptr, 0)


@triton.jit
def add_kernel(y_ptr, l_ptr, READS: tl.constexpr):
    """Programs add to one element by atomics, and the last of the grid may load it."""
    row = tl.program_id(0)
    tl.atomic_add(l_ptr, 1.0)
    if READS:
        if row == tl.num_programs(0) - 1:
            tl.store(y_ptr, tl.load(l_ptr))


@triton.jit
def mailbox_kernel(y_ptr, word_ptr, VOLATILE: tl.constexpr):
    """Program 0 leaves a word, at which the others look once."""
    row = tl.program_id(0)
    if row == 0:
        tl.atomic_xchg(word_ptr, 7)
    else:
        tl.store(y_ptr + row, tl.load(word_ptr, volatile=VOLATILE))


@triton.jit
def wait_kernel(y_ptr, word_ptr):
    """All other programs wait for program 0, and then load what it has stored."""
    row = tl.program_id(0)
    if row == 0:
        tl.store(y_ptr, 3)
        tl.debug_barrier()
        tl.atomic_xchg(word_ptr, 1)
    else:
        while tl.atomic_add(word_ptr, 0) == 0:
            pass
        tl.store(y_ptr + row, tl.load(y_ptr))


@triton.jit
def ticket_kernel(y_ptr, ticket_ptr, M):
    """Programs draw rows until none is left."""
    row = tl.atomic_add(ticket_ptr, 1)
    while row < M:
        tl.store(y_ptr + row, row)
        row = tl.atomic_add(ticket_ptr, 1)


@triton.jit
def words_kernel(y_ptr, word_ptr):
    """Each program stores two int32, and loads the next program's as one int64."""
    row = tl.program_id(0)
    tl.store(y_ptr + 2 * row + tl.arange(0, 2), row)
    tl.store(word_ptr + row, tl.load((y_ptr + 2 * row + 2).to(tl.pointer_type(tl.int64))))


@triton.jit
def sum_kernel(y_ptr, l_ptr, done_ptr):
    """Programs add to one element by atomics, and the one that a counter tells to be the last loads it."""
    tl.atomic_add(l_ptr, 1.0)
    if tl.atomic_add(done_ptr, 1) == tl.num_programs(0) - 1:
        tl.store(y_ptr, tl.load(l_ptr))


@triton.jit
def halves_kernel(y_ptr, word_ptr, WAITS: tl.constexpr):
    """A program stores eight int32, and loads them as four int64."""
    tl.store(y_ptr + tl.arange(0, 8), tl.arange(0, 8))
    if WAITS:
        tl.debug_barrier()
    tl.store(word_ptr + tl.arange(0, 4), tl.load(y_ptr.to(tl.pointer_type(tl.int64)) + tl.arange(0, 4)))


@triton.jit
def number_kernel(y_ptr, started_ptr):
    """Which program is the how manyth to start."""
    number = (tl.program_id(0) * tl.num_programs(1) + tl.program_id(1)) * tl.num_programs(2) + tl.program_id(2)
    tl.store(y_ptr + tl.atomic_add(started_ptr, 1), number)


def zeros(count, dtype=torch.int32):
    return torch.zeros(count, dtype=dtype, device=DEVICE)


def races(launch, order=None):
    """The race that each of its launches is found to have."""
    seen = []
    with interpreter.watching(seen.append, addresses=True, order=order):
        launch()
    return [one.race for one in seen]


def last(asks=True, sem="acq_rel", scope="gpu", programs=5):
    floats = zeros(1, torch.float32), zeros(programs, torch.float32)
    last_kernel[(programs,)](*floats, zeros(1), asks, sem, scope)
    return floats[0]


IN_ORDER = {
    "elements of their own": lambda: next_kernel[(5,)](zeros(200), 0),
    "the same bits twice": lambda: overlapping_kernel[(3,)](zeros(16), SAME=True),
    "an element that nobody stores": lambda: next_kernel[(5,)](zeros(200), 50),
    "the last one is counted": last,
    "a lock": lambda: lock_kernel[(40,)](zeros(1), zeros(1), LOCKED=True),
    "atomics alone": lambda: add_kernel[(5,)](zeros(1, torch.float32), zeros(1, torch.float32), READS=False),
    "a word that is looked at": lambda: mailbox_kernel[(5,)](zeros(5), zeros(1), VOLATILE=True),
    "rows handed out": lambda: ticket_kernel[(3,)](zeros(7), zeros(1), 7),
    "one program": lambda: lock_kernel[(1,)](zeros(1), zeros(1), LOCKED=False),
    "no program": lambda: lock_kernel[(0,)](zeros(1), zeros(1), LOCKED=False),
}
RACES = {
    "other bits": lambda: overlapping_kernel[(3,)](zeros(16), SAME=False),
    "the next one's element": lambda: next_kernel[(5,)](zeros(200), 1),
    "a counter that orders nothing": lambda: last(sem="relaxed"),
    "a counter that only acquires": lambda: last(sem="acquire"),
    "a counter that only releases": lambda: last(sem="release"),
    "a counter for the program alone": lambda: last(scope="cta"),
    "no lock": lambda: lock_kernel[(5,)](zeros(1), zeros(1), LOCKED=False),
    "a sum by atomics, loaded": lambda: add_kernel[(5,)](zeros(1, torch.float32), zeros(1, torch.float32), READS=True),
    "a word that is loaded": lambda: mailbox_kernel[(5,)](zeros(5), zeros(1), VOLATILE=False),
    "two halves of a word": lambda: words_kernel[(5,)](zeros(12), zeros(5, torch.int64)),
}


@pytest.mark.thinned
@in_each_order
@pytest.mark.parametrize("way", IN_ORDER)
def test_there_is_no_race_between(way, order):
    assert set(races(IN_ORDER[way], order)) == {""}


@pytest.mark.thinned
@in_each_order
@pytest.mark.parametrize("way", RACES)
def test_there_is_a_race_between(way, order):
    assert all(races(RACES[way], order))


@pytest.mark.parametrize(
    ("launch", "said"),
    [
        (RACES["other bits"], "program 0 and program 1 of overlapping_kernel both store element 4 of y_ptr"),
        (
            lambda: next_kernel[(2, 1)](zeros(200), -1 + 1 + 1),
            "program 0 of next_kernel loads element 1 of y_ptr, and program 1 stores it in the same launch",
        ),
        (
            RACES["a sum by atomics, loaded"],
            "program 0 of add_kernel updates element 0 of l_ptr, and program 4 loads it in the same launch",
        ),
    ],
    ids=["two stores", "a load and a store", "an update and a load"],
)
def test_a_race_names_both_programs_and_the_element(launch, said):
    assert races(launch) == [said]


def test_programs_of_a_grid_of_two_dimensions_are_named_by_both():
    (said,) = races(lambda: lock_kernel[(1, 3)](zeros(1), zeros(1), LOCKED=False))
    assert said.startswith("program (0, 0) of lock_kernel stores element 0 of y_ptr, and program (0, 1) loads it")


def test_elements_are_told_apart_by_where_they_lie_and_not_by_the_argument():
    y = zeros(5)
    assert races(lambda: mailbox_kernel[(2,)](y[:2], y[2:], VOLATILE=True)) == [""]
    assert races(lambda: mailbox_kernel[(2,)](y[:2], y[1:], VOLATILE=True)) == [
        "program 0 of mailbox_kernel updates element 1 of y_ptr, and program 1 stores it in the same launch"
    ]


@pytest.mark.parametrize("order", [memory.backwards, memory.shuffled])
def test_a_counter_that_nobody_asks_puts_in_order_only_what_happened_to_be(order):
    assert races(lambda: last(asks=False)) == [""]
    (said,) = races(lambda: last(asks=False), order)
    assert said.startswith("program 4 of last_kernel loads element")


def test_two_launches_are_in_order():
    y = zeros(200)

    def launch():
        overlapping_kernel[(1,)](y, SAME=False)
        next_kernel[(1,)](y, 1)
        overlapping_kernel[(1,)](y, SAME=True)

    assert races(launch) == ["", "", ""]


def test_an_element_with_too_many_accesses_is_not_passed_over_in_silence(monkeypatch):
    launches = []
    with interpreter.watching(launches.append, addresses=True):
        for most in (6, 5):
            monkeypatch.setattr(finder, "MOST_IN_PAIRS", most)
            sum_kernel[(5,)](zeros(1, torch.float32), zeros(1, torch.float32), zeros(1))
    said = "Not looked at: whether programs of sum_kernel race for element 0 of l_ptr, which they access more than"
    assert [launch.race for launch in launches] == ["", ""]
    assert launches[0].not_looked_at == "" and launches[1].not_looked_at.startswith(said)


@pytest.mark.parametrize("waits", [False, True])
def test_lanes_race_for_the_halves_of_a_word(waits):
    launches = []
    with interpreter.watching(launches.append, addresses=True):
        halves_kernel[(1,)](zeros(8), zeros(4, torch.int64), waits)
    assert bool(launches[0].race_of_lanes) != waits


OURS = {
    "copy": (kernels.copy, (5, 300)),
    "single tile": (kernels.single_tile_softmax, (5, 300)),
    "several rows": (kernels.several_rows_softmax, (17, 8)),
    "persistent": (lambda x: kernels.persistent_softmax(x, programs=2), (5, 30)),
    "two passes": (kernels.two_pass_softmax, (3, 1100)),
    "online": (kernels.online_softmax, (3, 1100)),
    "split rows": (lambda x: kernels.split_row_softmax(x, BLOCK=128), (3, 1100)),
    "softmax": (softmax, (5, 300)),
    "softmax of shared rows": (softmax, (2, 40000)),
    "softmax over another dimension": (lambda x: softmax(x, 0), (30, 70)),
}


@pytest.mark.thinned
@in_each_order
@pytest.mark.parametrize("name", OURS)
def test_the_courses_own_kernels_do_not_race_in_any_order(name, order):
    fn, shape = OURS[name]
    x, seen = torch.randn(shape, device=DEVICE), []
    with interpreter.watching(seen.append, addresses=True, order=order):
        y = fn(x)
    assert {launch.race or launch.not_looked_at or launch.race_of_lanes for launch in seen} == {""}
    with interpreter.watching(seen.append):
        assert torch.equal(y, fn(x))


def test_nothing_is_looked_for_unless_addresses_are_asked_for():
    seen = []
    with interpreter.watching(seen.append):
        RACES["other bits"]()
    assert seen[0].race == ""


# The order


@in_each_order
@pytest.mark.parametrize("grid", [(6,), (2, 3), (2, 1, 3), (0,)], ids=str)
def test_every_program_runs_once_and_in_the_order_that_was_asked_for(grid, order):
    y, count = zeros(6), int(np.prod(grid))
    with interpreter.watching(lambda launch: None, order=order):
        number_kernel[grid](y, zeros(1))
    expected = np.arange(count) if order is None else order(count)
    assert y[:count].tolist() == expected.tolist()


def test_the_order_ends_with_the_block():
    with interpreter.watching(lambda launch: None, order=memory.backwards):
        pass
    y = zeros(6)
    number_kernel[(6,)](y, zeros(1))
    assert y.tolist() == [0, 1, 2, 3, 4, 5]


def test_a_shuffled_order_is_neither_of_the_others_and_always_the_same():
    assert sorted(memory.shuffled(9)) == list(range(9))
    assert memory.shuffled(9).tolist() == memory.shuffled(9).tolist()
    assert memory.shuffled(9).tolist() not in (list(range(9)), list(range(9))[::-1])


def test_a_program_that_waits_for_a_later_one_is_given_up():
    assert races(lambda: wait_kernel[(5,)](zeros(5), zeros(1))) == [""]
    with pytest.raises(interpreter.KernelError, match="program 4 of wait_kernel waits for another one") as error:
        races(lambda: wait_kernel[(5,)](zeros(5), zeros(1)), memory.backwards)
    assert error.value.cause is memory.WaitsForLater
