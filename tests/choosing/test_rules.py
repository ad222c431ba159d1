"""pick() and the record of launches it is made of: what it picks, what that loses at shapes it has not seen."""

import dataclasses
import json
import statistics

import pytest
import torch

from helpers import DEVICE, ON_GPU, kernels, traffic
from helpers.choosing import launches, launching
from helpers.choosing.launches import TRIPS, Launch, Record, Shape, candidates, of_gpu, tile
from helpers.choosing.rules import RULES, TIE, pick, simplest, textbook
from helpers.make import record as making
from helpers.table import Table

needs_gpu = pytest.mark.skipif(not ON_GPU, reason="launches are timed on a GPU")
LENGTHS = (1, 2, 15, 16, 17, 80, 128, 781, 1000, 4096, 4097, 50257, 131072, 131073, 262144, 1_048_576, 5_000_000)
RECORD = of_gpu("NVIDIA H200")


def times(rule, shapes):
    """How many times as long as the best launch each shape takes with what `rule` picks."""
    return [shape.lost(pick(shape.n_cols, shape.n_rows, shape.dtype, rule=rule).launch) for shape in shapes]


# A pure function


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


@pytest.mark.parametrize("n_cols", LENGTHS)
@pytest.mark.parametrize("n_rows", [1, 100_000])
def test_it_says_why_in_one_sentence(n_cols, n_rows):
    why = pick(n_cols, n_rows).why
    assert why.endswith(".") and ". " not in why and why[0].isupper()


def test_few_long_rows_are_split_and_many_are_not():
    assert pick(262_144, 1).variant == "split row" and pick(262_144, 1).programs_per_row >= 16
    assert pick(16_384, 100_000).variant == "single tile"


def test_short_rows_share_a_program():
    assert pick(80).rows_per_program > 1


def test_dtypes_of_the_same_size_share_a_table_and_torch_dtypes_will_do():
    assert pick(3000, 4096, "fp16") == pick(3000, 4096, "bf16") == pick(3000, 4096, torch.float16)
    assert pick(3000, dtype=torch.float32) == pick(3000)


def test_the_textbook_rule_is_the_published_one():
    warps = {n: pick(n, rule="textbook").num_warps for n in (1, 1024, 1025, 2048, 2049, 4096, 8192, 8193, 100_000)}
    assert warps == {1: 4, 1024: 4, 1025: 8, 2048: 8, 2049: 16, 4096: 16, 8192: 16, 8193: 16, 100_000: 16}
    assert [pick(n, rule="textbook").variant for n in (8192, 8193)] == ["single tile", "online"]


def test_a_gpu_without_a_record_gets_the_rule_of_thumb_and_is_told_so():
    choice = pick(5000, target="sm_80")
    assert choice.launch == pick(5000, rule="thumb").launch
    assert choice.origin.startswith("the rule of thumb: sm_80 has no record") and "helpers.make.record" in choice.origin


def test_an_architecture_stands_for_the_gpu_of_it_that_was_recorded():
    assert pick(5000, target="sm_90") == pick(5000, target="NVIDIA H200")
    assert "NVIDIA H200" in pick(5000).origin


@pytest.mark.parametrize(
    "arguments, exception, says",
    [
        ({"n_cols": 0}, ValueError, "n_cols must be a whole number of at least 1; it is 0"),
        ({"n_cols": 2.0}, ValueError, "n_cols must be a whole number"),
        ({"n_cols": True}, ValueError, "n_cols must be a whole number"),
        ({"n_cols": 5, "n_rows": -1}, ValueError, "n_rows must be a whole number"),
        ({"n_cols": 5, "dtype": "int8"}, ValueError, "dtype must be fp32, bf16, fp16 or the torch dtype; it is 'int8'"),
        ({"n_cols": 5, "target": 90}, TypeError, "target must be a GPU's name"),
        ({"n_cols": 5, "rule": "mine"}, ValueError, "rule must be one of measured, thumb, textbook"),
    ],
    ids=str,
)
def test_arguments_that_make_no_sense_are_refused_by_name(arguments, exception, says):
    with pytest.raises(exception, match=says):
        pick(**arguments)


# Against the record


def test_what_pick_was_not_made_of_was_held_out():
    made_of = {(shape.n_cols, shape.dtype) for shape in RECORD.shapes}
    assert not made_of & {(shape.n_cols, shape.dtype) for shape in RECORD.held_out}
    assert {781, 50257, 128256, 151936} <= {shape.n_cols for shape in RECORD.held_out}


def test_pick_loses_little_at_lengths_it_was_not_made_of(record_property):
    lost = {rule: times(rule, RECORD.held_out) for rule in RULES}
    rows = [
        [rule, *(f"{of(ratios):.3f}" for of in (statistics.fmean, statistics.geometric_mean, max))]
        for rule, ratios in lost.items()
    ]
    table = Table(["rule", "mean", "geometric mean", "worst"], rows, [f"{len(RECORD.held_out)} shapes, {RECORD}."])
    record_property("times as long as the best launch, at lengths that pick was not made of", repr(table))
    assert statistics.geometric_mean(lost["measured"]) < 1.02 and max(lost["measured"]) < 1.3
    assert statistics.geometric_mean(lost["textbook"]) > 1.4


def test_of_launches_as_good_as_the_fastest_the_simplest_is_picked():
    online, single = Launch("online", 8192, 16), Launch("single tile", 8192, 16)
    assert simplest(Shape("fp32", 1, 8192, {}, {online: 1.0, single: TIE})) == single
    assert simplest(Shape("fp32", 1, 8192, {}, {online: 1.0, single: TIE + 0.01})) == online


def test_every_shape_of_the_record_has_all_candidates_a_copy_and_torch():
    for shape in (*RECORD.shapes, *RECORD.held_out):
        assert set(shape.launches) == set(candidates(shape.n_cols))
        assert set(shape.functions) == {"copy", "torch.softmax", "eager"}
        assert min(*shape.launches.values(), *shape.functions.values()) > 0


def test_the_record_says_where_it_is_from():
    assert set(RECORD.origin) == {"gpu", "target", "driver", "clocks", "torch", "triton", "python", "date", "command"}
    assert RECORD.origin["command"].startswith("python -m helpers.make.record")
    assert str(RECORD).startswith("recorded on one NVIDIA H200, torch ")


def test_the_textbook_is_among_the_candidates_wherever_it_is_compared():
    assert all(textbook(shape.n_cols) in shape.launches for shape in RECORD.held_out)


def test_a_record_written_is_read_again():
    shapes = list(RECORD.shapes[:3])
    text = launches.as_json(RECORD.origin, shapes, shapes[:1])
    assert launches.from_data(json.loads(text)) == Record(RECORD.origin, tuple(shapes), tuple(shapes[:1]))


def test_nearest_is_the_shape_itself_where_it_was_measured():
    shape = RECORD.nearest(50257, 64, "fp32")
    assert (shape.dtype, shape.n_rows, shape.n_cols) == ("fp32", 64, 50257)
    assert RECORD.nearest(50256, 64, "fp32").n_cols % 16 == 0


def test_no_record_is_none():
    assert of_gpu("sm_80") is None


# Launches


@pytest.mark.parametrize("n_cols", [1, 33, 200])
def test_every_candidate_is_a_softmax_with_the_trips_that_are_promised(n_cols):
    x = torch.randn(5, n_cols, device=DEVICE)
    for launch in candidates(n_cols):
        counted = traffic.count(launching.softmax_of(launch), x)
        torch.testing.assert_close(counted.result, torch.softmax(x, dim=1))
        assert (counted.loads_per_element, counted.stores_per_element) == TRIPS[launch.variant]


@pytest.mark.parametrize(
    "launch", [Launch("online", 4096, 8), Launch("split row", 1024, 4), Launch("two-pass", 8192, 16)]
)
def test_a_launch_that_streams_is_a_softmax(launch):
    x = torch.randn(2, 20_000, device=DEVICE)
    torch.testing.assert_close(launching.softmax_of(launch)(x), torch.softmax(x, dim=1))


@pytest.mark.parametrize("launch", [*candidates(512), *candidates(16384)], ids=str)
def test_the_kernel_of_a_launch_takes_the_arguments_it_is_compiled_for(launch):
    kernel, args, options = launching.compiled_as(launch, launch.BLOCK, torch.bfloat16)
    names = [name for name in kernel.arg_names if name not in options]
    assert len(args) == len(names) and options["BLOCK"] == launch.BLOCK and options["num_warps"] == launch.num_warps


def test_programs_in_the_grid():
    assert Launch("several rows", 128, 4, 16).programs(100, 128) == 7
    assert Launch("split row", 1024, 4).programs(3, 2500) == 9
    assert Launch("online", 1024, 4).programs(3, 2500) == 3


# Measuring


def test_the_lengths_of_the_table_have_every_tile_aligned_and_not():
    lengths = making.launch_lengths()
    assert {tile(n) for n in lengths} == {2**k for k in range(21)}
    for BLOCK in (2**k for k in range(7, 21)):
        mine = [n for n in lengths if tile(n) == BLOCK]
        assert sum(n % 16 == 0 for n in mine) >= 2 and sum(n % 16 != 0 for n in mine) >= 2


def test_lengths_held_out_are_none_of_the_table():
    assert not set(making.held_out_lengths()) & set(making.launch_lengths())


@needs_gpu
def test_a_shape_is_timed_with_every_candidate():
    shape = making.time_launches("fp32", 64, 700)
    assert set(shape.launches) == set(candidates(700)) and set(shape.functions) == {"copy", "torch.softmax", "eager"}
    assert dataclasses.asdict(shape)["n_cols"] == 700
