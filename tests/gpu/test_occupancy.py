"""How many programs fit on an SM: worked out by hand from the limits in the CUDA Programming Guide."""

import pytest

from helpers.gpu import occupancy
from helpers.gpu.architectures import ARCHITECTURES, KB
from helpers.gpu.occupancy import resident


def programs(target, num_warps, registers, shared_bytes=0):
    return resident(target, num_warps, registers, shared_bytes).programs


def test_forty_registers_and_sixteen_warps_leave_a_quarter_of_the_sm_empty():
    # 40 × 32 = 1280 registers a warp, 12 warps in a partition's 16384, 48 warps in all: three programs of 16.
    seen = resident("sm_90", 16, 40, 64)
    assert (seen.programs, seen.warps, seen.max_warps, seen.limited_by) == (3, 48, 64, "registers")
    assert seen.fraction == 0.75


def test_a_kernel_can_have_a_single_register_and_32_warps():
    assert resident("sm_90", 32, 1, 0).programs == 2


def test_thirty_two_registers_fill_the_sm():
    seen = resident("sm_90", 16, 32, 64)
    assert (seen.programs, seen.warps, seen.limited_by, seen.fraction) == (4, 64, "warps", 1.0)


def test_registers_are_handed_out_in_units_of_256_a_warp():
    assert programs("sm_90", 4, 33) == programs("sm_90", 4, 40) == 12
    assert programs("sm_90", 4, 32) == 16


def test_each_of_the_four_partitions_holds_whole_warps():
    # 96 × 32 = 3072 registers a warp: 21 warps in all of them, but 5 in each quarter.
    assert programs("sm_90", 1, 96) == 20


def test_programs_of_one_warp_meet_the_limit_of_programs_first():
    seen = resident("sm_90", 1, 16, 0)
    assert (seen.programs, seen.limited_by, seen.fraction) == (32, "programs", 0.5)


def test_shared_memory_limits_programs_that_use_much_of_it():
    # 64 KB and CUDA's 1 KB each: three in 228 KB.
    seen = resident("sm_90", 16, 32, 64 * KB)
    assert (seen.programs, seen.limited_by) == (3, "shared memory")


@pytest.mark.parametrize(
    ("target", "shared_bytes", "fit"),
    [
        ("sm_90", 165 * 128 - KB, 11),  # 165 units of 128 bytes with CUDA's own: 11 × 21120 are less than 228 KB,
        ("sm_90", 165 * 128 - KB + 1, 10),  # and 11 × 21248 are more.
        ("sm_75", 42 * 256, 6),  # 42 units of 256 bytes: 6 × 10752 are less than 64 KB,
        ("sm_75", 42 * 256 + 1, 5),  # and 6 × 11008 are more.
    ],
)
def test_shared_memory_is_handed_out_in_units_with_what_cuda_reserves(target, shared_bytes, fit):
    assert programs(target, 1, 16, shared_bytes) == fit


# Resident threads, programs and kilobytes of shared memory of an SM, as the CUDA Programming Guide's table has them.
GUIDE = {
    "sm_75": (1024, 16, 64),
    "sm_80": (2048, 32, 164),
    "sm_86": (1536, 16, 100),
    "sm_87": (1536, 16, 164),
    "sm_89": (1536, 24, 100),
    "sm_90": (2048, 32, 228),
    "sm_100": (2048, 32, 228),
    "sm_103": (2048, 32, 228),
    "sm_120": (1536, 24, 100),
    "sm_121": (1536, 24, 100),
}


@pytest.mark.parametrize("target", ARCHITECTURES)
def test_the_limits_of_an_sm_are_the_programming_guide_s(target):
    sm = ARCHITECTURES[target]
    assert (32 * sm.max_warps, sm.max_programs, sm.shared_bytes / KB) == GUIDE[target]


@pytest.mark.parametrize("target", ARCHITECTURES)
def test_a_program_can_have_all_the_shared_memory_but_cudas_own(target):
    room = ARCHITECTURES[target].program_shared_bytes
    assert programs(target, 4, 32, room) == 1
    assert programs(target, 4, 32, room + 1) == 0


@pytest.mark.parametrize(
    ("target", "kilobytes"),
    [("sm_75", 64), ("sm_80", 163), ("sm_86", 99), ("sm_89", 99), ("sm_90", 227), ("sm_100", 227), ("sm_120", 99)],
)
def test_the_shared_memory_of_a_program_is_the_programming_guides(target, kilobytes):
    assert ARCHITECTURES[target].program_shared_bytes == kilobytes * KB


def test_a_kernel_that_needs_too_many_registers_for_its_warps_does_not_fit():
    seen = resident("sm_90", 32, 72, 0)
    assert (seen.programs, seen.warps, seen.fraction, seen.limited_by) == (0, 0, 0.0, "registers")


def test_of_limits_that_tie_the_sms_own_is_named():
    # 40 registers allow 48 warps, which is all that this SM holds.
    assert resident("sm_120", 8, 40, 0).limited_by == "warps"


@pytest.mark.parametrize(("num_warps", "registers"), [(32, 64), (16, 128), (8, 255), (4, 255), (1, 255)])
def test_a_thread_has_its_share_of_the_registers_and_at_most_255(num_warps, registers):
    assert occupancy.register_limit(num_warps) == registers


def test_a_program_without_shared_memory_is_not_limited_by_it():
    assert resident("sm_75", 1, 32, 0).limited_by == "programs"


def test_what_fits_the_register_limit_fits_the_sm():
    assert all(programs("sm_90", 2**n, occupancy.register_limit(2**n)) >= 1 for n in range(6))


def test_a_target_that_is_not_known_is_refused_with_those_that_are():
    with pytest.raises(ValueError, match="target must be one of sm_75, .*, sm_121; it is 'sm_99'.*H200 sm_90"):
        resident("sm_99", 4, 32, 0)


@pytest.mark.parametrize(
    ("numbers", "message"),
    [
        ((0, 32, 0), "num_warps must be between 1 and 32; it is 0"),
        ((33, 32, 0), "num_warps must be between 1 and 32; it is 33"),
        ((4, 0, 0), "registers must be between 1 and 255 a thread; they are 0"),
        ((4, 256, 0), "registers must be between 1 and 255 a thread; they are 256"),
        ((4, 32, -1), "shared_bytes cannot be negative; they are -1"),
    ],
)
def test_numbers_that_no_kernel_has_are_refused(numbers, message):
    with pytest.raises(ValueError, match=message):
        resident("sm_90", *numbers)
