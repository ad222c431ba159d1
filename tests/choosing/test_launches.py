"""The launches that are timed, their record, and the functions and kernels that they stand for."""

import dataclasses
import json

import pytest
import torch

import needs
from helpers import DEVICE, kernels, traffic
from helpers.choosing import functions, launches
from helpers.choosing.launches import TRIPS, Launch, Record, Shape, candidates, dtype_name, of_gpu, tile
from helpers.choosing.rules import textbook
from helpers.measure import record as making

RECORD = of_gpu("NVIDIA H200")


def found(n_cols):
    """The candidates for a length, by variant."""
    by_variant = {}
    for launch in candidates(n_cols):
        by_variant.setdefault(launch.variant, []).append(launch)
    return by_variant


# A launch


def test_programs_in_the_grid():
    assert Launch("several rows", 128, 4, 16).programs(100, 128) == 7
    assert Launch("split row", 1024, 4).programs(3, 2500) == 9
    assert Launch("online", 1024, 4).programs(3, 2500) == 3


@pytest.mark.parametrize(
    "launch, code",
    [
        (Launch("single tile", 8192, 16), "single_tile_softmax(x, num_warps=16)"),
        (Launch("several rows", 128, 4, 16), "several_rows_softmax(x, rows=16, num_warps=4)"),
        (Launch("persistent", 8192, 16), "persistent_softmax(x, num_warps=16)"),
        (Launch("online", 4096, 8), "online_softmax(x, BLOCK=4096, num_warps=8)"),
        (Launch("split row", 4096, 8), "split_row_softmax(x, BLOCK=4096, num_warps=8)"),
        (Launch("two-pass", 8192, 16), "two_pass_softmax(x, BLOCK=8192, num_warps=16)"),
    ],
)
def test_the_code_names_the_function_and_the_numbers_that_it_takes(launch, code):
    assert launch.code() == code


def test_a_tile_is_the_next_power_of_two():
    assert [tile(n) for n in (1, 2, 3, 4, 5, 1023, 1024, 1025)] == [1, 2, 4, 4, 8, 1024, 1024, 2048]


@pytest.mark.parametrize("n_cols", [0, -4, 2.5, True, None, "8"], ids=repr)
def test_what_is_not_a_row_length_has_no_tile(n_cols):
    with pytest.raises(ValueError, match=f"n_cols must be a whole number of at least 1; it is {n_cols!r}"):
        tile(n_cols)


@pytest.mark.parametrize("name, dtype", kernels.DTYPES.items())
def test_a_dtype_goes_by_the_course_s_name_by_torch_s_and_by_itself(name, dtype):
    assert dtype_name(name) == dtype_name(dtype) == dtype_name(str(dtype)) == name


def test_a_ratio_is_at_least_one():
    assert launches.ratio(2, 8) == launches.ratio(8, 2) == 4.0 and launches.ratio(3, 3) == 1.0


# Which are timed


def test_a_thread_of_a_single_tile_holds_at_most_256_elements():
    assert [launch.num_warps for launch in found(16384)["single tile"]] == [2, 4, 8, 16, 32]
    assert [launch.num_warps for launch in found(16385)["single tile"]] == [4, 8, 16, 32]


def test_a_single_tile_is_at_most_the_longest_that_a_kernel_takes():
    assert "single tile" in found(kernels.MAX_TILE) and "single tile" not in found(kernels.MAX_TILE + 1)


def test_several_rows_are_two_or_more_and_give_a_thread_4_to_32_elements():
    tiles = {(launch.rows * launch.BLOCK, launch.num_warps) for launch in found(80)["several rows"]}
    assert tiles == {(1024, 4), (1024, 8), (2048, 4), (2048, 8), (4096, 4), (4096, 8), (8192, 8)}
    assert [launch.rows for launch in found(2048)["several rows"]] == [2, 2, 4]
    assert "several rows" not in found(2049)


def test_a_persistent_kernel_is_timed_from_129_to_65536_columns_with_16_elements_a_thread():
    assert [("persistent" in found(n)) for n in (128, 129, 65536, 65537)] == [False, True, True, False]
    assert [found(n)["persistent"][0].num_warps for n in (256, 1024, 8192, 65536)] == [1, 2, 16, 32]


@pytest.mark.parametrize("variant, first", [("online", 2049), ("split row", 1025), ("two-pass", 4097)])
def test_a_row_is_streamed_or_split_from_the_length_on_that_needs_it(variant, first):
    assert variant not in found(first - 1) and variant in found(first)


def test_a_split_row_has_at_least_two_slices():
    assert all(launch.programs_per_row(n) >= 2 for n in (1025, 5000, 131072) for launch in found(n)["split row"])


def test_a_streamed_tile_is_no_longer_than_the_row_s():
    assert [launch.BLOCK for launch in found(4096)["online"]] == [4096, 4096]
    assert {launch.BLOCK for launch in found(8193)["online"]} == {4096, 8192, 16384}


@pytest.mark.parametrize("n_cols", [1, 33, 200])
def test_every_candidate_is_a_softmax_with_the_trips_that_are_promised(n_cols):
    x = torch.randn(5, n_cols, device=DEVICE)
    for launch in candidates(n_cols):
        counted = traffic.count(functions.softmax_of(launch), x)
        torch.testing.assert_close(counted.result, torch.softmax(x, dim=1))
        assert (counted.loads_per_element, counted.stores_per_element) == TRIPS[launch.variant]


@pytest.mark.parametrize(
    "launch", [Launch("online", 4096, 8), Launch("split row", 1024, 4), Launch("two-pass", 8192, 16)]
)
def test_a_launch_that_streams_has_the_trips_that_are_promised(launch):
    x = torch.randn(2, 20_000, device=DEVICE)
    counted = traffic.count(functions.softmax_of(launch), x)
    torch.testing.assert_close(counted.result, torch.softmax(x, dim=1))
    assert (round(counted.loads_per_element), round(counted.stores_per_element)) == TRIPS[launch.variant]


def test_of_variants_with_the_same_trips_the_simplest_comes_first():
    assert list(TRIPS) == ["single tile", "several rows", "persistent", "online", "split row", "two-pass"]


# What is compiled


@pytest.mark.parametrize("launch", [*candidates(512), *candidates(16384)], ids=str)
def test_the_kernel_of_a_launch_takes_the_arguments_it_is_compiled_for(launch):
    kernel, args, options = functions.compiled_as(launch, launch.BLOCK, torch.bfloat16)
    names = [name for name in kernel.arg_names if name not in options]
    assert len(args) == len(names) and options["BLOCK"] == launch.BLOCK and options["num_warps"] == launch.num_warps


COMPILED = {
    Launch("single tile", 1024, 2): (kernels.single_tile_kernel, {}),
    Launch("several rows", 512, 4, 4): (kernels.several_rows_kernel, {"ROWS": 4}),
    Launch("persistent", 1024, 2): (kernels.persistent_kernel, {"STAGES": kernels.default_num_stages(2048)}),
    Launch("two-pass", 8192, 16): (kernels.two_pass_kernel, {}),
    Launch("online", 4096, 8): (kernels.online_kernel, {}),
    Launch("split row", 1024, 4): (kernels.split_write_kernel, {"PARTS": 4}),
}


@pytest.mark.parametrize("launch", COMPILED, ids=str)
def test_a_variant_is_compiled_as_its_kernel_with_that_kernel_s_constants(launch):
    kernel, constants = COMPILED[launch]
    compiled, args, options = functions.compiled_as(launch, 2500, torch.bfloat16)
    assert compiled is kernel
    assert options == {"BLOCK": launch.BLOCK, "num_warps": launch.num_warps, **constants}
    by_name = dict(zip((name for name in kernel.arg_names if name not in options), args, strict=True))
    assert by_name["x_ptr"].dtype == by_name["y_ptr"].dtype == torch.bfloat16
    assert by_name["N"] == 2500 and by_name["x_col_stride"] == 1


def test_a_persistent_kernel_has_the_stages_for_the_bytes_of_its_tile(monkeypatch):
    monkeypatch.setattr(kernels, "default_num_stages", lambda row_bytes: {2048: 2}[row_bytes])
    _, _, options = functions.compiled_as(Launch("persistent", 1024, 2), 1000, torch.bfloat16)
    assert options["STAGES"] == 2


def test_the_pairs_of_a_split_row_are_float32():
    _, args, options = functions.compiled_as(Launch("split row", 1024, 4), 2500, torch.float16)
    names = [name for name in kernels.split_write_kernel.arg_names if name not in options]
    assert args[names.index("pair_ptr")].dtype == torch.float32


# The record


def test_every_shape_of_the_record_has_all_candidates_a_copy_and_torch():
    for shape in (*RECORD.shapes, *RECORD.held_out):
        assert set(shape.launches) == set(candidates(shape.n_cols))
        assert set(shape.functions) == {"copy", "torch.softmax", "eager"}
        assert min(*shape.launches.values(), *shape.functions.values()) > 0


def test_the_record_says_where_it_is_from():
    own = {"gpu", "target", "driver", "clocks", "torch", "triton", "python", "date", "command"}
    assert set(RECORD.origin) - own <= {"persistent anew"} and own < set(RECORD.origin)
    assert RECORD.origin["persistent anew"].endswith("python -m helpers.measure.record --only persistent")
    assert RECORD.origin["command"].startswith("python -m helpers.measure.record")
    assert str(RECORD).startswith("recorded on one NVIDIA H200, torch ")


def test_the_textbook_is_among_the_candidates_wherever_it_is_compared():
    assert all(textbook(shape.n_cols) in shape.launches for shape in RECORD.held_out)


def test_a_record_written_is_read_again():
    shapes = list(RECORD.shapes[:3])
    text = launches.as_json(RECORD.origin, shapes, shapes[:1])
    assert launches.from_data(json.loads(text)) == Record(RECORD.origin, tuple(shapes), tuple(shapes[:1]))


def test_a_record_has_a_line_for_each_shape():
    lines = launches.as_json(RECORD.origin, list(RECORD.shapes[:3]), []).splitlines()
    assert sum('"n_rows"' in line for line in lines) == 3


@pytest.mark.parametrize("target", ["NVIDIA H200", "H200", "sm_90"])
def test_a_gpu_is_found_by_its_name_for_short_and_by_its_architecture(target):
    assert of_gpu(target) is RECORD


def test_no_record_is_none():
    assert of_gpu("sm_80") is None


# Shapes


SINGLE, ONLINE = Launch("single tile", 8192, 16), Launch("online", 8192, 16)


def test_the_best_launch_is_the_fastest_and_the_others_lose_by_it():
    shape = Shape("fp32", 1, 8192, {}, {ONLINE: 3.0, SINGLE: 2.0})
    assert shape.best == SINGLE and (shape.lost(SINGLE), shape.lost(ONLINE)) == (1.0, 1.5)


def test_what_was_not_timed_has_no_loss():
    with pytest.raises(KeyError):
        Shape("fp32", 1, 8192, {}, {SINGLE: 2.0}).lost(ONLINE)


@pytest.mark.parametrize("dtype, gbps", [("fp32", 65.536), ("bf16", 32.768)])
def test_the_speed_counts_input_and_output_once(dtype, gbps):
    assert Shape(dtype, 10, 8192, {}, {}).gbps(10.0) == pytest.approx(gbps)


def nearest(asked, *known):
    """The one of the known (dtype, rows, columns) that is nearest to the one asked for."""
    dtype, n_rows, n_cols = asked
    shapes = tuple(Shape(*shape, {}, {}) for shape in known)
    shape = Record({}, shapes[:1], shapes[1:]).nearest(n_cols, n_rows, dtype)
    return shape.dtype, shape.n_rows, shape.n_cols


def test_nearest_is_the_shape_itself_where_it_was_timed():
    shape = RECORD.nearest(50257, 64, "fp32")
    assert (shape.dtype, shape.n_rows, shape.n_cols) == ("fp32", 64, 50257)


def test_the_tile_goes_before_the_length():
    assert nearest(("fp32", 8, 1040), ("fp32", 8, 1024), ("fp32", 8, 2048)) == ("fp32", 8, 2048)


def test_the_bytes_of_an_element_go_before_the_alignment():
    assert nearest(("fp32", 8, 1024), ("bf16", 8, 1024), ("fp32", 8, 1023)) == ("fp32", 8, 1023)


def test_the_alignment_goes_before_the_ratio():
    assert nearest(("fp32", 8, 1008), ("fp32", 8, 1009), ("fp32", 8, 576)) == ("fp32", 8, 576)
    assert RECORD.nearest(50256, 64, "fp32").n_cols % 16 == 0


def test_lengths_are_near_by_ratio_and_not_by_difference():
    assert nearest(("fp32", 8, 7120), ("fp32", 8, 6144), ("fp32", 8, 8192)) == ("fp32", 8, 8192)


def test_columns_count_twice_as_much_as_rows():
    # Three times the rows are nearer than twice the columns, and five times are not.
    assert nearest(("fp32", 8, 1040), ("fp32", 24, 1040), ("fp32", 8, 2048)) == ("fp32", 24, 1040)
    assert nearest(("fp32", 8, 1040), ("fp32", 40, 1040), ("fp32", 8, 2048)) == ("fp32", 8, 2048)


def test_the_ratio_goes_before_the_name_of_the_dtype():
    assert nearest(("fp16", 8, 1024), ("fp16", 64, 1024), ("bf16", 8, 1024)) == ("bf16", 8, 1024)
    assert nearest(("fp16", 8, 1024), ("bf16", 8, 1024), ("fp16", 8, 1024)) == ("fp16", 8, 1024)


def test_beyond_the_longest_tile_all_shapes_are_compared():
    assert nearest(("fp32", 8, 2**20), ("fp32", 8, 1024), ("fp32", 8, 2**18)) == ("fp32", 8, 2**18)


# Timing


def test_the_lengths_of_the_table_have_every_tile_aligned_and_not():
    lengths = making.launch_lengths()
    assert {tile(n) for n in lengths} == {2**k for k in range(21)}
    for BLOCK in (2**k for k in range(7, 21)):
        mine = [n for n in lengths if tile(n) == BLOCK]
        assert sum(n % 16 == 0 for n in mine) >= 2 and sum(n % 16 != 0 for n in mine) >= 2


def test_lengths_held_out_are_none_of_the_table():
    assert not set(making.held_out_lengths()) & set(making.launch_lengths())


@needs.gpu
def test_a_shape_is_timed_with_every_candidate():
    shape = making.time_launches("fp32", 64, 700)
    assert set(shape.launches) == set(candidates(700)) and set(shape.functions) == {"copy", "torch.softmax", "eager"}
    assert dataclasses.asdict(shape)["n_cols"] == 700
