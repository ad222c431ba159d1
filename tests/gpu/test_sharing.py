"""Programs in Python that share rows on a simulated GPU: who ends, who waits, and what is wrong with their words."""

import math
import struct
from functools import partial

import pytest

from helpers.gpu import stepped
from helpers.gpu.sharing import LOWEST_FLOAT32, near, pair_in, pair_of_row, pair_of_slice, shared_run, some_numbers

ROW = [(0, part) for part in range(3)]
ROWS = [(row, part) for part in range(3) for row in range(4)]


def word(m, l):
    return struct.unpack("<Q", struct.pack("<ff", l, m))[0]


def merged(words):
    pairs = [pair_in(one) for one in words]
    m = max(m for m, _ in pairs)
    return m, sum(l * math.exp(slice_m - m) for slice_m, l in pairs)


def helper(words, part, x, load, looks=3):
    words[part] = word(*pair_of_slice(x))
    for _ in range(looks):
        if all(words):
            break
        yield
    for other in range(len(words)):
        if not words[other]:
            words[other] = word(*pair_of_slice(load(other)))
    return merged(words)


def waiter(words, part, x, load):
    words[part] = word(*pair_of_slice(x))
    while not all(words):
        yield
    return merged(words)


def is_right(end):
    return all(near(result, pair_of_row(some_numbers, row, 3)) for row, _, result in end.results)


@pytest.mark.thinned(7)
@pytest.mark.parametrize("seed", [None, *range(20)])
@pytest.mark.parametrize("places", [1, 2, 5, 12])
def test_programs_that_help_end_with_the_pair_of_their_row_on_any_number_of_places(places, seed):
    end = shared_run(helper, ROWS, places=places, seed=seed)
    assert len(end.results) == 12 and is_right(end)
    assert (end.waiting, end.never_started, end.early, end.stores) == (0, 0, 0, [])


def test_where_all_have_a_place_nobody_needs_help_and_otherwise_each_missing_slice_is_loaded_once():
    assert shared_run(helper, ROWS, places=12).loads == 0
    assert shared_run(helper, ROW, places=1).loads == 2


def test_programs_that_wait_for_others_without_a_place_wait_forever():
    end = shared_run(waiter, ROW, places=2)
    assert (end.results, end.waiting, end.never_started) == ([], 2, 1)
    assert len(shared_run(waiter, ROW, places=3).results) == 3


def test_the_order_of_a_seed_is_always_the_same_and_others_go_on_in_the_midst_of_a_program():
    seen = []

    def watched(words, part, x, load):
        seen.append(("begins", part))
        yield from helper(words, part, x, load)
        seen.append(("ends", part))

    for _ in range(2):
        shared_run(watched, ROW, places=3, seed=5)
    assert seen[: len(seen) // 2] == seen[len(seen) // 2 :]
    halves = {shared_run(halved, ROW, places=3, seed=seed).results[-1][2] for seed in range(20)}
    assert len(halves) > 1  # somebody has looked between the two stores


def halved(words, part, x, load):
    m, l = pair_of_slice(x)
    words[part] = word(m, 0.0)
    words[part] = word(m, l)
    return tuple(pair_in(one)[1] for one in words)


@pytest.mark.parametrize(
    ("stored", "noted"),
    [
        (lambda m, l, old: [word(m, l)], []),
        (lambda m, l, old: [word(m, 0.0), word(m, l)], ["half of a pair"]),
        (lambda m, l, old: [word(0.0, l)], ["half of a pair"]),
        (lambda m, l, old: [word(l, m)], ["m and l swapped"]),
        (lambda m, l, old: [word(*pair_of_slice(some_numbers(0, 0)))], ["the pair of another slice"]),
        (lambda m, l, old: [word(m, l), 2 * word(m, l) % 2**64], ["a word added to one that was there"]),
        (lambda m, l, old: [word(m + 1, l)], ["something else"]),
    ],
    ids=["right", "m first", "l first", "swapped", "another slice", "added", "else"],
)
def test_what_is_stored_instead_of_a_pair_is_noted(stored, noted):
    def program(words, part, x, load):
        if part == 1:
            for one in stored(*pair_of_slice(x), words[part]):
                words[part] = one
        return 0.0, 0.0

    assert shared_run(program, ROW, places=3).stores == noted


def test_a_program_that_looks_without_end_in_one_step_is_stopped():
    def program(words, part, x, load):
        while not all(words):
            pass

    with pytest.raises(stepped.WaitsInPlace, match="lets no other one go on: where is its yield"):
        shared_run(program, ROW, places=2)


def test_slices_whose_pair_is_there_need_no_load():
    def program(words, part, x, load):
        words[part] = word(*pair_of_slice(x))
        load(part)
        return 0.0, 0.0

    assert (shared_run(program, ROW, places=3).needless, shared_run(program, ROW, places=3).early) == (3, 2)


def silent(words, part, x, load):
    while not all(words):
        yield


def after_a_load(words, part, x, load):
    load((part + 1) % len(words))
    words[part] = word(*pair_of_slice(x))


def after_a_yield(words, part, x, load):
    yield
    words[part] = word(*pair_of_slice(x))


def of_a_load(words, part, x, load):
    words[part] = word(*pair_of_slice(load(part)))


def of_a_load_later(words, part, x, load):
    yield
    words[part] = word(*pair_of_slice(load(part)))


@pytest.mark.parametrize(
    ("program", "unpublished", "late", "reloaded"),
    [
        (helper, 0, 0, 0),
        (waiter, 0, 0, 0),
        (silent, 2, 0, 0),
        (lambda *_: (0.0, 0.0), 3, 0, 0),
        (after_a_load, 0, 3, 0),
        (after_a_yield, 0, 3, 0),
        (of_a_load, 0, 0, 3),
        (of_a_load_later, 3, 0, 3),
    ],
)
def test_whether_a_program_publishes_and_when_and_what_it_loads_is_counted(program, unpublished, late, reloaded):
    end = shared_run(program, ROW, places=2)
    assert (end.unpublished, end.late, end.reloaded) == (unpublished, late, reloaded)


@pytest.mark.parametrize("looks", [0, 1, 30, 1001, 2500])
def test_looks_are_counted(looks):
    assert shared_run(partial(helper, looks=looks), ROW, places=1).looks == looks


def test_yields_without_a_look_count_beyond_a_hundred():
    def blind(words, part, x, load, yields):
        for _ in range(yields):
            yield

    assert [shared_run(partial(blind, yields=n), ROW, places=1).looks for n in (100, 1500)] == [0, 1400]


def test_half_of_the_programs_may_begin_late_and_are_no_hang():
    for late in (0, 20):
        assert shared_run(partial(helper, looks=late + 1), ROW, places=3, late=late).loads == 0
    assert shared_run(partial(helper, looks=19), ROW, places=3, late=20).loads > 0


def test_a_thousand_looks_in_an_order_without_a_rule_are_no_hang():
    def patient(words, part, x, load):
        words[part] = word(*pair_of_slice(x))
        for _ in range(1000):
            yield
        return (yield from helper(words, part, x, load, looks=0))

    for seed in range(8):
        end = shared_run(patient, ROW, places=2, seed=seed)
        assert (end.waiting, end.never_started) == (0, 0) and is_right(end)


@pytest.mark.parametrize("wrong", [0.5, -1, 2**64, True, "1"], ids=repr)
def test_what_is_no_word_is_refused(wrong):
    def program(words, part, x, load):
        words[part] = wrong

    with pytest.raises(ValueError, match="a word is a whole number of 64 bits"):
        shared_run(program, ROW, places=3)


@pytest.mark.parametrize("place", [3, -1, 0.0])
def test_a_word_that_the_row_does_not_have_is_refused(place):
    def program(words, part, x, load):
        words[place] = word(1.0, 1.0)

    with pytest.raises(IndexError, match="the row has the words 0 to 2"):
        shared_run(program, ROW, places=3)


def test_what_a_program_raises_comes_out():
    def program(words, part, x, load):
        yield
        raise OverflowError("too large")

    with pytest.raises(OverflowError, match="too large"):
        shared_run(program, ROW, places=3, seed=1)


def test_the_pair_of_a_slice_of_only_minus_infinity_has_the_lowest_float32():
    assert pair_of_slice([-math.inf, -math.inf]) == (LOWEST_FLOAT32, 0.0)
    assert (
        struct.unpack("<f", struct.pack("<f", LOWEST_FLOAT32))[0]
        == LOWEST_FLOAT32
        == pair_in(word(LOWEST_FLOAT32, 0.0))[0]
    )


def test_minus_infinity_in_place_of_the_lowest_number_is_noted():
    def program(words, part, x, load):
        words[part] = word(-math.inf, 0.0)

    end = shared_run(program, ROW, places=3, numbers=lambda row, part: [-math.inf])
    assert end.stores == ["−inf, not the lowest number"]


def test_a_slice_that_the_row_does_not_have_is_refused():
    with pytest.raises(IndexError, match="the row has the slices 0 to 2; slice 3 does not exist"):
        shared_run(lambda words, part, x, load: load(3), ROW, places=3)


@pytest.mark.parametrize(("grid", "places", "says"), [([], 1, "nothing to run"), (ROW, 0, "places must be")])
def test_a_launch_of_nothing_or_on_nothing_is_refused(grid, places, says):
    with pytest.raises(ValueError, match=says):
        shared_run(helper, grid, places=places)
