"""pick() and its rules: what they choose, why, from which measurements, and what that loses at shapes not seen."""

import statistics

import numpy as np
import pytest
import torch

from helpers import DEVICE, kernels
from helpers.choosing.launches import TRIPS, Launch, Shape, of_gpu, tile
from helpers.choosing.rules import RULES, pick, simplest, textbook, thumb
from helpers.gpu.datasheets import ENOUGH_PROGRAMS
from helpers.table import Table

LENGTHS = (1, 2, 15, 16, 17, 80, 128, 781, 1000, 4096, 4097, 50257, 131072, 131073, 262144, 1_048_576, 5_000_000)
HOPPERS = "NVIDIA H200", "NVIDIA H100 80GB HBM3"


def times(rule, shapes, gpu):
    """How many times as long as the best launch each shape takes with what `rule` picks for a GPU."""
    return [shape.lost(pick(shape.n_cols, shape.n_rows, shape.dtype, gpu, rule).launch) for shape in shapes]


def best_at(*arguments):
    """The shape that pick's answer comes from, in words."""
    return pick(*arguments).origin.partition(", recorded")[0].removeprefix("best at ")


# A pure function


@pytest.mark.thinned
@pytest.mark.parametrize("rule", RULES)
@pytest.mark.parametrize("n_rows", [1, 64, 100_000, None])
@pytest.mark.parametrize("n_cols", LENGTHS)
def test_every_choice_can_be_launched_on_any_row_length(n_cols, n_rows, rule):
    choice = pick(n_cols, n_rows, "bf16", rule=rule)
    launch = choice.launch
    assert launch.BLOCK == tile(launch.BLOCK) and launch.num_warps in (1, 2, 4, 8, 16, 32)
    if launch.variant in ("single tile", "several rows", "persistent"):
        assert launch.BLOCK == tile(n_cols) <= kernels.MAX_TILE
    else:
        assert launch.BLOCK <= tile(n_cols)
    assert choice.programs_per_row == (-(-n_cols // launch.BLOCK) if launch.variant == "split row" else 1)
    assert choice.trips == sum(TRIPS[launch.variant])


@pytest.mark.parametrize("n_cols", [1, 80, 781, 50257])
def test_the_line_it_gives_launches_a_softmax_with_these_numbers(n_cols):
    x = torch.randn(3, n_cols, device=DEVICE)
    for n_rows in (1, 100_000):
        choice = pick(n_cols, n_rows)
        y = eval(choice.code(), {"x": x, **vars(kernels)})
        torch.testing.assert_close(y, torch.softmax(x, dim=1))


def test_a_choice_has_the_numbers_of_its_launch():
    choice = pick(80, 1000, rule="thumb")
    assert choice.launch == ("several rows", 128, 4, 16)
    assert (choice.variant, choice.BLOCK, choice.num_warps, choice.rows_per_program) == choice.launch


def test_a_choice_shows_its_code_its_reason_its_trips_and_its_origin():
    assert repr(pick(5000, 1, rule="textbook")).splitlines() == [
        "single_tile_softmax(x, num_warps=16)",
        "A row of 5,000 is held in one tile of 8,192 lanes and read once; 16 warps give each thread 16 elements.",
        "1 + 1 trips to memory per element; the textbook's rule.",
    ]


def test_rows_are_by_default_as_many_as_fill_a_gpu():
    assert pick(262_144) == pick(262_144, 1024) != pick(262_144, 1)
    assert pick(2**30, rule="thumb") == pick(2**30, 1, rule="thumb")
    assert [pick(n_cols, rule="thumb").variant for n_cols in (2**20, 2**20 + 1)] == ["online", "split row"]


@pytest.mark.parametrize(
    "arguments, exception, says",
    [
        ({"n_cols": 0}, ValueError, "n_cols must be a whole number of at least 1; it is 0"),
        ({"n_cols": 2.5}, ValueError, "n_cols must be a whole number"),
        ({"n_cols": True}, ValueError, "n_cols must be a whole number"),
        ({"n_cols": 5, "n_rows": -1}, ValueError, "n_rows must be a whole number"),
        ({"n_cols": 5, "n_rows": 0}, ValueError, "n_rows must be a whole number of at least 1; it is 0"),
        ({"n_cols": 5, "dtype": "int8"}, ValueError, "dtype must be fp32, bf16, fp16 or the torch dtype; it is 'int8'"),
        ({"n_cols": 5, "gpu": 90}, TypeError, "gpu must be a GPU's name"),
        ({"n_cols": 5, "rule": "mine"}, ValueError, "rule must be one of measured, thumb, textbook"),
    ],
    ids=str,
)
def test_arguments_that_make_no_sense_are_refused_by_name(arguments, exception, says):
    with pytest.raises(exception, match=says):
        pick(**arguments)


# Why


@pytest.mark.parametrize("n_cols", LENGTHS)
@pytest.mark.parametrize("n_rows", [1, 100_000])
def test_it_says_why_in_one_sentence(n_cols, n_rows):
    why = pick(n_cols, n_rows).why
    assert why.endswith(".") and ". " not in why and why[0].isupper()


WHY = {
    (1, 1, "thumb"): "A row of 1 is held in one tile of 1 lane and read once; some threads are idle.",
    (32, 1, "thumb"): "A row of 32 is held in one tile of 32 lanes and read once; 1 warp gives each thread 1 element.",
    (80, 1000, "thumb"): "A row of 80 is too short for a program: up to 16 rows share one, "
    "and 4 warps give each thread 16 elements.",
    (50_000, 1000, "thumb"): "A row of 50,000 is streamed through one program in tiles of 8,192 and read twice.",
    (50_000, 1, "thumb"): "With 1 row most of the GPU would be idle, "
    "so 13 programs share a row of 50,000 and read it twice.",
    (50_000, 2, "thumb"): "With 2 rows most of the GPU would be idle, "
    "so 13 programs share a row of 50,000 and read it twice.",
    (131_071, 2048, "measured"): "A row of 131,071 is shared by 8 programs and read twice; "
    "streaming it through one is slower.",
    (2**23, 1, "thumb"): "With 1 row most of the GPU would be idle, "
    "so 2,048 programs share a row of 8,388,608 and read it twice.",
}


@pytest.mark.parametrize("asked", WHY, ids=str)
def test_the_reason_names_what_the_launch_does_with_the_row(asked):
    n_cols, n_rows, rule = asked
    assert pick(n_cols, n_rows, rule=rule).why == WHY[asked]


# The textbook, and the rule of thumb


def test_the_textbook_rule_is_the_published_one():
    warps = {n: pick(n, rule="textbook").num_warps for n in (1, 1024, 1025, 2048, 2049, 4096, 8192, 8193, 100_000)}
    assert warps == {1: 4, 1024: 4, 1025: 8, 2048: 8, 2049: 16, 4096: 16, 8192: 16, 8193: 16, 100_000: 16}
    assert [textbook(n).variant for n in (8192, 8193)] == ["single tile", "online"]
    assert textbook(8193).BLOCK == 8192


def test_by_thumb_long_rows_are_split_only_while_they_are_fewer_than_256():
    assert [thumb(8193, n_rows).variant for n_rows in (255, 256)] == ["split row", "single tile"]
    assert thumb(8193, 255) == Launch("split row", 4096, 8)


def test_by_thumb_rows_are_split_beyond_8192_columns():
    assert [thumb(n_cols, 1).variant for n_cols in (8192, 8193)] == ["single tile", "split row"]


@pytest.mark.parametrize(("n_rows", "at_most"), [(1, 1.1), (8, 1.1), (64, 1.1), (53_687, 1.05)])
def test_the_rule_of_thumb_is_near_the_best_where_the_record_can_tell(n_rows, at_most):
    shape = of_gpu("NVIDIA H200").nearest(5000, n_rows, "fp32")
    assert shape.lost(thumb(shape.n_cols, shape.n_rows)) <= at_most


def test_by_thumb_short_rows_share_a_program_from_256_rows_on():
    assert [thumb(80, n_rows).variant for n_rows in (255, 256)] == ["single tile", "several rows"]


def test_by_thumb_rows_of_up_to_1024_share_a_tile_of_2048_elements():
    assert [thumb(n_cols, 1000).variant for n_cols in (1024, 1025)] == ["several rows", "single tile"]
    assert [thumb(n_cols, 1000).rows for n_cols in (1, 80, 1024)] == [2048, 16, 2]


def test_by_thumb_a_thread_of_a_single_tile_has_16_elements_and_32_if_there_are_many_rows():
    assert [thumb(n_cols, 255).num_warps for n_cols in (100, 1024, 4096)] == [1, 2, 8]
    assert [thumb(n_cols, 256).num_warps for n_cols in (2048, 4096, 32768)] == [2, 4, 32]


def test_by_thumb_rows_beyond_32768_are_streamed():
    assert [thumb(n_cols, 1000).variant for n_cols in (32768, 32769)] == ["single tile", "online"]
    assert thumb(32769, 1000) == Launch("online", 8192, 16)


def test_the_rule_of_thumb_counts_programs_enough_for_every_gpu():
    assert ENOUGH_PROGRAMS == 256


def test_a_gpu_without_a_record_gets_the_rule_of_thumb_and_is_told_so():
    choice = pick(5000, gpu="sm_80")
    assert choice.launch == pick(5000, rule="thumb").launch
    assert choice.origin.startswith("the rule of thumb: sm_80 has no record")
    assert "helpers.measure.record" in choice.origin


# Of the record


def test_few_long_rows_are_split_and_many_are_not():
    assert pick(262_144, 1).variant == "split row" and pick(262_144, 1).programs_per_row >= 16
    assert pick(16_384, 100_000).variant == "single tile"


def test_short_rows_share_a_program():
    assert pick(80).rows_per_program > 1


def test_dtypes_of_the_same_size_share_a_table_and_torch_dtypes_will_do():
    assert pick(3000, 4096, "fp16") == pick(3000, 4096, "bf16") == pick(3000, 4096, torch.float16)
    assert pick(3000, dtype=torch.float32) == pick(3000)


@pytest.mark.parametrize("target", ["NVIDIA H200", "H200", "sm_90"])
def test_a_gpu_goes_by_its_name_for_short_and_by_its_architecture(target):
    assert pick(5000, gpu=target) == pick(5000)
    assert "NVIDIA H200" in pick(5000).origin


def test_the_table_is_entered_at_the_length_nearest_by_ratio():
    # 7120 lies nearer to 6144 than to 8192, but 8192 / 7120 is less than 7120 / 6144.
    assert best_at(7120, 4096) == "4,096 × 8,192 fp32"


def test_the_table_is_entered_at_the_number_of_rows_nearest_by_ratio():
    # 2000 lies nearer to 512 than to 4096, but 4096 / 2000 is less than 2000 / 512.
    assert best_at(8192, 2000) == "4,096 × 8,192 fp32"


def test_lengths_that_are_not_a_multiple_of_16_have_a_table_of_their_own():
    assert best_at(8191, 4096) == best_at(8184, 4096) == "4,096 × 8,191 fp32"


def test_the_tile_is_that_of_the_row_and_not_of_the_nearest_length():
    assert best_at(4097, 4096) == "4,096 × 4,609 fp32"


def test_bytes_of_an_element_decide_and_not_the_name_of_the_dtype():
    assert best_at(8192, 4096, "fp16") == "4,096 × 8,192 bf16"


def test_rows_longer_than_all_that_were_timed_are_taken_for_the_longest():
    assert best_at(5_000_000, 1) == "1 × 1,048,576 fp32"


def test_of_launches_as_good_as_the_fastest_the_simplest_is_picked():
    online, single = Launch("online", 8192, 16), Launch("single tile", 8192, 16)
    assert simplest(Shape("fp32", 1, 8192, {}, {online: 1.0, single: 1.02})) == single
    assert simplest(Shape("fp32", 1, 8192, {}, {online: 1.0, single: 1.03})) == online


def test_of_launches_of_one_variant_the_faster_is_picked():
    fast, slow = Launch("single tile", 8192, 16), Launch("single tile", 8192, 8)
    assert simplest(Shape("fp32", 1, 8192, {}, {slow: 1.01, fast: 1.0})) == fast


@pytest.mark.parametrize("gpu", HOPPERS)
def test_what_pick_was_not_made_of_was_held_out(gpu):
    record = of_gpu(gpu)
    made_of = {(shape.n_cols, shape.dtype) for shape in record.shapes}
    assert not made_of & {(shape.n_cols, shape.dtype) for shape in record.held_out}
    assert {781, 50257, 128256, 151936} <= {shape.n_cols for shape in record.held_out}


@pytest.mark.parametrize("gpu", HOPPERS)
def test_pick_loses_little_at_lengths_it_was_not_made_of(gpu, record_property):
    record = of_gpu(gpu)
    lost = {rule: times(rule, record.held_out, gpu) for rule in RULES}
    rows = [
        [rule, *(f"{of(ratios):.3f}" for of in (statistics.fmean, statistics.geometric_mean, max))]
        for rule, ratios in lost.items()
    ]
    table = Table(["rule", "mean", "geometric mean", "worst"], rows, [f"{len(record.held_out)} shapes, {record}."])
    record_property("times as long as the best launch, at lengths that pick was not made of", repr(table))
    assert statistics.geometric_mean(lost["measured"]) < 1.02 and max(lost["measured"]) < 1.3
    assert statistics.geometric_mean(lost["textbook"]) > 1.4


# Beyond the record


@pytest.mark.parametrize(
    ("n_cols", "n_rows", "said"),
    [(2**40, None, "1,048,576"), (10**9, 1, "954"), (2**21, None, "2"), (3 * 2**19, 8, "1.5")],
)
def test_a_row_far_longer_than_any_that_was_timed_is_told_so(n_cols, n_rows, said):
    assert f"; this row is {said} times longer than any row timed" in pick(n_cols, n_rows).origin


def test_a_row_as_long_as_those_that_were_timed_is_not():
    assert "longer than any" not in pick(2**20).origin + pick(2**20 + 16).origin + pick(781).origin


@pytest.mark.parametrize("gpu", ["H200", "A100"])
@pytest.mark.parametrize("n_cols", [2**28 + 1, 10**9, 2**40])
def test_no_row_is_shared_by_more_programs_than_a_grid_has(n_cols, gpu):
    choice = pick(n_cols, 1, gpu=gpu)
    assert choice.programs_per_row <= 65535
    assert choice.variant == "online" or n_cols < 10**9


def test_a_row_of_too_many_slices_says_why_it_is_streamed():
    assert "no grid has a program for each of its slices (65,535 at most)" in pick(10**9).origin


# Shapes, tensors and GPUs


def test_a_tensor_is_its_shape_and_its_dtype():
    x = torch.empty(3, 64, 781, dtype=torch.bfloat16)
    assert pick(x) == pick(781, 192, "bf16")
    assert pick(x, dtype="fp32") == pick(x.shape) == pick((3, 64, 781)) == pick([3, 64, 781]) == pick(781, 192)
    assert pick((781,)) == pick(781, 1)


@pytest.mark.parametrize("integer", [np.int64, np.int32, np.uint16, torch.tensor], ids=lambda kind: kind.__name__)
def test_numbers_of_other_libraries_are_numbers(integer):
    assert pick(integer(781), integer(192)) == pick((integer(192), integer(781))) == pick(781, 192)


@pytest.mark.parametrize("rule", RULES)
@pytest.mark.parametrize("gpu", ["H200", "A100"])
def test_the_largest_size_of_torch_s_has_an_answer_and_no_larger_one_has(gpu, rule):
    assert pick(2**63 - 1, 2**63 - 1, gpu=gpu, rule=rule).variant == "online"
    for wrong in ((2**63,), (10**400,), (4096, 10**400), ((10**400, 3),)):
        with pytest.raises(ValueError, match=r"^n_(cols|rows) must be less than 2⁶³: torch has no larger sizes\.$"):
            pick(*wrong, gpu=gpu, rule=rule)


@pytest.mark.parametrize(
    ("arguments", "error", "said"),
    [
        ((torch.empty(3, 5), 3), TypeError, r"the shape \(3, 5\) has its rows: leave n_rows=3 out"),
        (((),), ValueError, r"the shape \(\) has no row"),
        ((torch.empty(0, 5),), ValueError, r"n_rows, of the shape \(0, 5\), must be a whole number of at least 1"),
        ((torch.empty(5, 0),), ValueError, "n_cols must be a whole number of at least 1; it is 0"),
        ((torch.empty(5, 5, dtype=torch.float64),), ValueError, "dtype must be fp32, bf16, fp16"),
        ((5000.0,), ValueError, r"n_cols must be an int of Python, as int\(n_cols\) makes one; it is 5000\.0"),
        ((5000, 8, "fp32", "foo"), ValueError, "gpu must be one of .*H100, H200.*sm_90.*; it is 'foo'"),
    ],
)
def test_what_is_no_question_is_said(arguments, error, said):
    with pytest.raises(error, match=said):
        pick(*arguments)


def test_a_gpu_that_is_known_without_a_record_goes_by_its_driver_s_name():
    assert pick(5000, gpu="NVIDIA A100-SXM4-80GB").launch == pick(5000, rule="thumb").launch
