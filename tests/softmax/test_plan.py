"""The plan: which kernel takes a row of a length, in which slices, by how many warps, with how many registers."""

import pytest
import triton

from helpers.softmax.plans.columns import SharedGroup
from helpers.softmax.plans.gpu import H200, Chip, cycle_bytes_of, fetching_pays
from helpers.softmax.plans.losses import loss_plan
from helpers.softmax.plans.pace import Pause, pace_of, policy_of
from helpers.softmax.plans.rows import Shared, Tile, TwoLaunches, plan_launch

MANY = 10**6
FETCHING = H200._replace(fetches_ahead=True)
LENGTHS = (1, 2, 3, 7, 8, 9, 40, 255, 264, 520, 643, 781, 1024, 1283, 2563, 5001, 8192, 12296, 17000)
LONG = (4105, 32001, 50257, 65536, 98305, 131072, 151936, 262145, 524288, 1048576)


def tile(BLOCK, num_warps, maxnreg, ROWS=1, REST=0):
    return Tile(BLOCK, num_warps, maxnreg, ROWS, REST)


def shared(BLOCK, num_warps, maxnreg, SPLIT):
    return Shared(BLOCK, num_warps, maxnreg, SPLIT=SPLIT)


ALIGNED = {
    # A program loads at least 1300 bytes: as many rows as that takes, up to 128.
    (1, 4): tile(1, 1, 96, ROWS=128),
    (32, 4): tile(32, 1, 96, ROWS=16),
    (256, 4): tile(256, 1, 96, ROWS=2),
    (324, 4): tile(256, 1, 80, ROWS=2, REST=128),
    (325, 4): tile(256, 1, 80, ROWS=1, REST=128),
    (512, 2): tile(512, 1, 96, ROWS=2),
    # The rest of a row just above a power of two is an eighth or a quarter of a tile, 512 bytes a program at least.
    (300, 4): tile(256, 1, 80, ROWS=2, REST=64),
    (768, 4): tile(512, 1, 80, REST=256),
    (769, 4): tile(1024, 1, 96),
    (1280, 4): tile(1024, 1, 80, REST=256),
    (1281, 4): tile(1024, 1, 80, REST=512),
    (2048, 2): tile(2048, 1, 96),
    (2049, 2): tile(2048, 1, 168, REST=512),
    # Up to 6144 bytes, and from 8192 to 10240, a row stays in one program.
    (1536, 4): tile(1024, 1, 80, REST=512),
    (1537, 4): shared(1024, 1, 64, SPLIT=2),
    (2048, 4): shared(1024, 1, 64, SPLIT=2),
    (2049, 4): tile(2048, 1, 168, REST=512),
    (2560, 4): tile(2048, 1, 168, REST=512),
    (2561, 4): shared(1024, 1, 64, SPLIT=3),
    (4096, 2): shared(2048, 1, 64, SPLIT=2),
    (4097, 2): tile(4096, 2, 168, REST=1024),
    # A slice is 4 kB up to 16384 columns and 8 kB above, by one warp each up to 32 slices, then 32 kB by four warps.
    (16384, 4): shared(1024, 1, 64, SPLIT=16),
    (16384, 2): shared(2048, 1, 64, SPLIT=8),
    (16385, 4): shared(2048, 1, 80, SPLIT=9),
    (16385, 2): shared(4096, 1, 80, SPLIT=5),
    (65536, 4): shared(2048, 1, 80, SPLIT=32),
    (65537, 4): shared(8192, 4, 80, SPLIT=9),
    (131072, 2): shared(4096, 1, 80, SPLIT=32),
    (131073, 2): shared(16384, 4, 80, SPLIT=9),
    # More than 128 slices are cut again, twice as long for twice the warps, and more than 2048 are too many to merge.
    (128 * 8192, 4): shared(8192, 4, 80, SPLIT=128),
    (128 * 8192 + 4, 4): shared(16384, 8, 128, SPLIT=65),
    (2048 * 16384, 4): shared(16384, 8, 128, SPLIT=2048),
    (2048 * 16384 + 4, 4): TwoLaunches(16384, 8, 128, SPLIT=2049),
    (2048 * 32768, 2): shared(32768, 8, 128, SPLIT=2048),
    (2048 * 32768 + 8, 2): TwoLaunches(32768, 8, 128, SPLIT=2049),
}
"""By columns and bytes of an element, where every row begins and ends at a multiple of 16 bytes, for many rows."""

UNALIGNED = {
    # The addresses of more than 16 rows would spill, and several warps share these.
    (21, 4): tile(32, 2, 96, ROWS=16),
    (33, 2): tile(32, 2, 96, ROWS=16),
    (47, 2): tile(64, 2, 96, ROWS=16),
    (63, 2): tile(64, 4, 96, ROWS=16),
    (65, 4): tile(64, 4, 96, ROWS=16),
    (127, 2): tile(128, 4, 96, ROWS=16),
    (129, 4): tile(128, 1, 96, ROWS=4),
    # The tile holds only whole vectors.
    (1025, 4): tile(1024, 1, 96),
    (1025, 2): tile(1024, 1, 96),
    (1539, 4): tile(1024, 1, 80, REST=512),
    (1540, 4): shared(1024, 1, 64, SPLIT=2),
    (2051, 4): shared(1024, 1, 64, SPLIT=2),
    (2052, 4): shared(1024, 1, 64, SPLIT=3),
    # Edges need registers.
    (16391, 2): shared(2048, 1, 64, SPLIT=8),
    (16393, 2): shared(4096, 1, 88, SPLIT=5),
    (16389, 4): shared(2048, 1, 80, SPLIT=9),
    (65541, 4): shared(8192, 4, 96, SPLIT=9),
    (131081, 2): shared(16384, 4, 96, SPLIT=9),
}
"""The same where rows begin or end elsewhere."""


@pytest.mark.parametrize(("n_cols", "itemsize"), ALIGNED, ids=str)
def test_many_aligned_rows(n_cols, itemsize):
    assert plan_launch(MANY, n_cols, itemsize) == ALIGNED[n_cols, itemsize]


@pytest.mark.parametrize(("n_cols", "itemsize"), UNALIGNED, ids=str)
def test_many_unaligned_rows(n_cols, itemsize):
    assert plan_launch(MANY, n_cols, itemsize, aligned=False) == UNALIGNED[n_cols, itemsize]


@pytest.mark.parametrize(
    ("n_rows", "n_cols", "itemsize"),
    [
        (256, 4100, 2),
        (256, 4100, 4),
        (1, 4096, 4),
        (129, 16384, 4),
        (129, 16384, 2),
        (33, 65536, 4),
        (33, 131072, 4),
        (4, 524288, 4),
    ],
    ids=str,
)
def test_more_elements_or_rows_than_are_few_and_shorter_rows_stay_as_they_are(n_rows, n_cols, itemsize):
    assert plan_launch(n_rows, n_cols, itemsize) == plan_launch(MANY, n_cols, itemsize)


FEW = {
    # Up to 2²¹ elements: slices of 2 kB by one warp, and of 1024 columns beyond 16384.
    (1, 4100, 4): shared(512, 1, 64, SPLIT=9),
    (255, 4100, 2): shared(1024, 1, 64, SPLIT=5),
    (128, 16384, 4): shared(512, 1, 64, SPLIT=32),
    (127, 16388, 4): shared(1024, 1, 64, SPLIT=17),
    (32, 65536, 2): shared(1024, 1, 64, SPLIT=64),
    # Up to 2²² in longer rows: slices of 2048, by more warps where there are the fewest.
    (1, 65540, 2): shared(2048, 2, 64, SPLIT=33),
    (32, 131072, 2): shared(2048, 2, 64, SPLIT=64),
    (16, 131072, 4): shared(2048, 4, 64, SPLIT=64),
    (17, 131072, 4): shared(2048, 2, 64, SPLIT=64),
    (16, 262144, 2): shared(2048, 2, 64, SPLIT=128),
    # Longer rows in few programs: 128 slices of at most 16 kB.
    (1, 131073 * 4, 2): shared(8192, 4, 64, SPLIT=65),
    (1, 524288, 4): shared(4096, 4, 64, SPLIT=128),
    (1, 1048576, 2): shared(8192, 4, 64, SPLIT=128),
    (1, 524292, 4): shared(8192, 4, 80, SPLIT=65),
    # At most 16 MB of at least 256 rows, of 4 to 16 kB with few idle lanes: a row in one program.
    (1024, 4096, 2): tile(4096, 4, 96),
    (1024, 4096, 4): tile(4096, 4, 96),
    (256, 2048, 2): tile(2048, 4, 96),
    (1025, 4096, 4): shared(1024, 1, 64, SPLIT=4),
    (1024, 8192, 4): shared(1024, 1, 64, SPLIT=8),
    (512, 5120, 2): tile(4096, 2, 168, REST=1024),
    # 16-bit rows in at most 2048 programs of one warp: more of them.
    (64, 131072, 2): shared(2048, 1, 64, SPLIT=64),
    (65, 131072, 2): shared(4096, 1, 80, SPLIT=32),
    (64, 65536, 4): shared(2048, 1, 80, SPLIT=32),
}
"""By rows, columns and bytes of an element, where every row begins and ends at a multiple of 16 bytes."""


@pytest.mark.parametrize("shape", FEW, ids=str)
def test_few_rows(shape):
    assert plan_launch(*shape) == FEW[shape]


@pytest.mark.thinned
@pytest.mark.parametrize("itemsize", [2, 4])
@pytest.mark.parametrize("n_cols", [*LENGTHS, *LONG, 10**7])
@pytest.mark.parametrize("n_rows", [1, 64, MANY])
@pytest.mark.parametrize("aligned", [True, False], ids=["aligned", "unaligned"])
def test_the_slices_cover_the_row_and_a_program_has_no_more_lanes_than_registers(n_rows, n_cols, itemsize, aligned):
    chosen = plan_launch(n_rows, n_cols, itemsize, aligned)
    whole = n_cols if aligned else n_cols // (16 // itemsize) * (16 // itemsize)
    assert chosen.BLOCK * chosen.SPLIT + chosen.REST >= whole
    assert chosen.BLOCK * (chosen.SPLIT - 1) < max(1, whole)
    assert chosen.ROWS * (chosen.BLOCK + chosen.REST) <= 128 * 32 * chosen.num_warps
    assert 32 * chosen.num_warps * chosen.maxnreg <= 65536


@pytest.mark.parametrize("itemsize", [2, 4])
@pytest.mark.parametrize("n_cols", [1032, 2056, 4104, 8200])
def test_a_row_just_above_a_power_of_two_leaves_few_lanes_idle(n_cols, itemsize):
    chosen = plan_launch(MANY, n_cols, itemsize)
    assert chosen.SPLIT * chosen.BLOCK + chosen.REST <= 1.25 * n_cols


def test_powers_of_two_agree_with_triton():
    assert plan_launch(MANY, 1000, 4).BLOCK == triton.next_power_of_2(1000)


PACES = {
    "one program a row": (tile(1024, 4, 96), (0, 0)),
    "five programs on an SM": (shared(8192, 4, 96, SPLIT=8), (5, 50)),
    "24 programs of a warp": (shared(4096, 1, 80, SPLIT=8), (24, 238)),
    "a row for more than the GPU holds": (shared(16384, 8, 128, SPLIT=2048), (2, 0)),
    "columns": (SharedGroup(64, 512, 4, 168, SPLIT=8), (3, 30)),
}


@pytest.mark.parametrize("name", PACES)
def test_programs_that_exchange_words_take_turns_and_fetch_ahead(name):
    chosen, pace = PACES[name]
    TURNS, AHEAD = pace
    assert pace_of(MANY, chosen, FETCHING) == (TURNS, 0, AHEAD)
    assert pace_of(MANY, chosen) == (TURNS, 0, 0)


def test_programs_that_the_gpu_nearly_holds_take_turns_alone():
    chosen = shared(8192, 4, 96, SPLIT=8)
    assert 123 * 8 < 1.5 * 5 * H200.sms < 124 * 8
    assert [pace_of(rows, chosen, FETCHING).AHEAD > 0 for rows in (1, 123, 124)] == [False, False, True]
    assert pace_of(1, chosen).TURNS == 5


def test_lines_of_large_inputs_stay_in_the_cache():
    least = 2**26
    assert [policy_of(nbytes) for nbytes in (0, least - 1, least)] == ["", "", "evict_last"]


def test_programs_pause_that_look_for_many_words_on_a_full_gpu():
    chosen, pause = shared(8192, 4, 96, SPLIT=33), Pause(33, 6000)
    assert pace_of(MANY, chosen, pause=pause).PAUSE == 6000
    assert pace_of(MANY, chosen.replaced(SPLIT=32), pause=pause).PAUSE == 0
    assert pace_of(MANY, chosen).PAUSE == 0
    assert 30 * 33 <= 1.5 * 5 * H200.sms < 31 * 33
    assert [pace_of(rows, chosen, pause=pause).PAUSE for rows in (30, 31)] == [0, 6000]


A100, RTX_4090 = Chip(108, "sm_80"), Chip(128, "sm_89")


def test_programs_are_counted_by_the_device_s_own_multiprocessors():
    chosen = shared(8192, 4, 96, SPLIT=8)
    assert [gpu.programs_at_once(4, 96) for gpu in (H200, A100, RTX_4090)] == [132 * 5, 108 * 5, 128 * 5]
    assert [gpu.programs_at_once(1, 64) for gpu in (H200, A100, RTX_4090)] == [132 * 32, 108 * 32, 128 * 24]
    assert [pace_of(rows, chosen, A100._replace(fetches_ahead=True)).AHEAD > 0 for rows in (101, 102)] == [False, True]


def test_a_gpu_of_fewer_multiprocessors_shares_a_row_among_fewer_programs():
    assert [plan_launch(4, 55 * 16384, 2, gpu=gpu).SPLIT for gpu in (H200, A100)] == [110, 55]


@pytest.mark.parametrize(
    ("target", "memory_khz", "bus_bits", "sms", "clock_khz", "nbytes"),
    [
        ("sm_90", 3201000, 6144, 132, 1980000, 18),
        ("sm_90", 2619000, 5120, 132, 1980000, 18),
        ("sm_80", 1215000, 5120, 108, 1410000, 10),
        ("sm_89", 10501000, 384, 128, 2520000, 3),
    ],
    ids=["H200", "H100, as it was recorded", "A100", "RTX 4090"],
)
def test_a_turn_lasts_as_long_as_the_device_s_own_memory_needs(target, memory_khz, bus_bits, sms, clock_khz, nbytes):
    assert cycle_bytes_of(target, memory_khz, bus_bits, sms, clock_khz) == nbytes


@pytest.mark.parametrize(
    ("l2_mb", "memory_mhz", "bus_bits", "pays"),
    [
        pytest.param(60, 3201, 6144, True, id="an H200"),
        pytest.param(50, 2619, 5120, False, id="an H100"),
        pytest.param(4, 5001, 256, False, id="a T4"),
        pytest.param(4, 3201, 6144, False, id="a small cache"),
        pytest.param(32, 2000, 8000, True, id="the least"),
    ],
)
def test_fetching_ahead_pays_with_a_large_cache_and_a_fast_memory(l2_mb, memory_mhz, bus_bits, pays):
    """The clocks and widths are those that torch reports: an H200's 4917 GB/s, an H100's 3352."""
    assert fetching_pays(l2_mb * 2**20, 1000 * memory_mhz, bus_bits) == pays


# Losses


LOSSES = {
    # Up to 6144 bytes, one program.
    (MANY, 1536, 4): tile(2048, 1, 96),
    (MANY, 3072, 2): tile(4096, 2, 96),
    # Up to 16 kB, slices of 4 kB; then of 8 kB, as long as a row has at most 80 words.
    (MANY, 1537, 4): shared(1024, 1, 64, SPLIT=2),
    (MANY, 8192, 2): shared(2048, 1, 64, SPLIT=4),
    (MANY, 8193, 2): shared(4096, 1, 96, SPLIT=3),
    (MANY, 50257, 2): shared(4096, 1, 96, SPLIT=13),
    (MANY, 31 * 4096, 2): shared(4096, 1, 96, SPLIT=31),
    (MANY, 151936, 4): shared(2048, 1, 96, SPLIT=75),
    (MANY, 80 * 2048, 4): shared(2048, 1, 96, SPLIT=80),
    (MANY, 80 * 2048 + 1, 4): shared(8192, 4, 96, SPLIT=21),
    # From 32 slices on, elements of 16 bits in slices of 16 kB.
    (MANY, 31 * 4096 + 1, 2): shared(8192, 2, 96, SPLIT=16),
    (MANY, 80 * 4096, 2): shared(8192, 2, 96, SPLIT=40),
    (MANY, 80 * 4096 + 1, 2): shared(8192, 4, 64, SPLIT=41),
    (MANY, 512 * 4096, 2): shared(8192, 4, 64, SPLIT=256),
    (MANY, 512 * 4096 + 1, 2): shared(16384, 4, 96, SPLIT=129),
    # Few rows: slices of 2048 columns, or of 4096 where the GPU would hold too few of them.
    (1, 151936, 2): shared(2048, 4, 64, SPLIT=75),
    (17, 151936, 2): shared(2048, 4, 64, SPLIT=75),
    (18, 151936, 2): shared(4096, 4, 64, SPLIT=38),
    (52, 50257, 2): shared(2048, 4, 64, SPLIT=25),
    (53, 50257, 2): shared(4096, 4, 64, SPLIT=13),
    (78, 50257, 2): shared(4096, 4, 64, SPLIT=13),
    (13, 151936, 4): shared(2048, 4, 64, SPLIT=75),
    (79, 50257, 2): shared(4096, 1, 96, SPLIT=13),
}
"""By rows, columns and bytes of an element."""
SMOOTHED = {
    # Every slice has two words then, and elements of 16 bits would spill where fewer warps hold them.
    (MANY, 40 * 2048, 4): shared(2048, 1, 96, SPLIT=40),
    (MANY, 40 * 2048 + 1, 4): shared(8192, 4, 96, SPLIT=11),
    (MANY, 8192, 2): shared(2048, 2, 64, SPLIT=4),
    (MANY, 50257, 2): shared(8192, 4, 72, SPLIT=7),
}


LOSSES_ALONE = {
    # The same up to 16 kB and for few rows; else slices of 16 kB, held by four warps, of small tensors 4 kB by one, and
    # of 16-bit rows with edges 8 kB by two.
    (MANY, 3072, 2): tile(4096, 2, 96),
    (MANY, 8192, 2): shared(2048, 1, 64, SPLIT=4),
    (MANY, 8193, 2): shared(4096, 2, 64, SPLIT=3),
    (MANY, 8200, 2): shared(8192, 4, 64, SPLIT=2),
    (MANY, 50257, 2): shared(4096, 2, 64, SPLIT=13),
    (MANY, 80 * 4096 + 1, 2): shared(8192, 4, 64, SPLIT=41),
    (MANY, 50257, 4): shared(4096, 4, 64, SPLIT=13),
    (MANY, 512 * 4096 + 1, 2): shared(16384, 4, 96, SPLIT=129),
    (42, 50257, 2): shared(2048, 4, 64, SPLIT=25),
    (2**11, 2**15, 2): shared(2048, 1, 64, SPLIT=16),
    (2**11 + 1, 2**15, 2): shared(8192, 4, 64, SPLIT=4),
    (2**10, 2**15, 4): shared(1024, 1, 64, SPLIT=32),
    (2**8, 2**18, 2): shared(2048, 1, 64, SPLIT=128),
    (2**8 - 1, 2**18 + 1, 2): shared(4096, 2, 64, SPLIT=65),
    (2**8 - 1, 2**18 + 8, 2): shared(8192, 4, 64, SPLIT=33),
}
"""Without a gradient."""


def test_smoothed_losses_of_small_tensors_have_the_slices_of_others():
    """In smaller ones the edges of 16-bit rows would spill."""
    assert loss_plan(2**10, 2**15, 2, smoothing=True, grad=False) == shared(8192, 4, 72, SPLIT=4)
    assert loss_plan(2**10, 2**14, 4, smoothing=True, grad=False) == shared(4096, 4, 64, SPLIT=4)


def test_losses_without_a_gradient():
    assert {shape: loss_plan(*shape, grad=False) for shape in LOSSES_ALONE} == LOSSES_ALONE


@pytest.mark.parametrize(("shapes", "smoothing"), [(LOSSES, False), (SMOOTHED, True)], ids=["plain", "smoothed"])
def test_losses(shapes, smoothing):
    assert {shape: loss_plan(*shape, smoothing=smoothing) for shape in shapes} == shapes


@pytest.mark.parametrize("reduction", ["none", "sum"])
def test_losses_that_nobody_counts(reduction):
    """Long rows of 16 bits would spill in slices of 16 kB."""
    assert loss_plan(MANY, 128256, 2, reduction) == shared(4096, 1, 96, SPLIT=32)
