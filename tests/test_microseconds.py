"""What lesson 06 explains times with: the record of memories, loads, counters, and launches with their X-ray."""

import json

import pytest
import torch

import needs
from helpers import DEVICE, microseconds, recorded, xray
from helpers.check import EXERCISES
from helpers.choosing.functions import compiled_as
from helpers.choosing.launches import ELEMENTS, Launch, of_gpu
from helpers.kernels import DTYPES
from helpers.measure import why

ROOT = recorded.HOME.parents[1]
RECORD = microseconds.measured()


def test_a_gpu_without_a_record_is_refused_with_those_that_have_one():
    with pytest.raises(ValueError, match="no record of 'NVIDIA T4'; there are records of .*NVIDIA H200"):
        microseconds.measured("NVIDIA T4")


def test_a_memory_is_faster_the_nearer_it_is():
    assert sorted(RECORD["gbps"], key=RECORD["gbps"].__getitem__) == ["DRAM", "L2", "L1", "registers"]


@pytest.mark.parametrize("each", sorted({each for _, each, _ in RECORD["flight"]}))
def test_more_programs_load_more_until_memory_is_busy(each):
    speeds = [gbps for _, size, gbps in sorted(RECORD["flight"]) if size == each]
    busy = next((at for at, gbps in enumerate(speeds) if gbps > 0.9 * RECORD["gbps"]["DRAM"]), len(speeds))
    assert speeds[: busy + 1] == sorted(speeds[: busy + 1]) and max(speeds) < 1.02 * RECORD["gbps"]["DRAM"]


def test_loads_under_way_are_those_that_are_measured():
    assert [tuple(waiting) for *waiting, _ in RECORD["flight"]] == [
        (programs, 4 * BLOCK) for programs, BLOCK in why.FLIGHT
    ]


# Launches and their features


def test_the_x_ray_kept_is_that_of_every_launch_listed():
    assert [tuple(line[:3]) for line in RECORD["compiled"]] == [
        (dtype, launch.BLOCK, launch.num_warps) for dtype, launch in why.XRAYED
    ]


@pytest.mark.parametrize("line", RECORD["compiled"][::9], ids=str)
def test_the_x_ray_kept_is_what_the_compiler_here_says(line):
    dtype, BLOCK, num_warps, registers, shared_bytes, instructions = line
    kernel, args, options = compiled_as(Launch("single tile", BLOCK, num_warps), BLOCK, DTYPES[dtype])
    seen = xray.report(kernel, *args, **options, target="sm_90")
    assert seen.spill_bytes == 0
    assert abs(seen.registers - registers) <= 8 and seen.shared_bytes == shared_bytes
    assert seen.instructions_per_element == pytest.approx(instructions, rel=0.1)


@pytest.mark.parametrize("part", ["shapes", "held_out"])
def test_timed_launches_are_the_record_s_with_an_x_ray(part):
    launches = microseconds.timed(part)
    assert len(launches) > 100
    assert {one.features.num_warps for one in launches} == {4, 8, 16, 32}
    assert min(one.features.n_rows for one in launches) == 64 and all(one.n_cols % 16 == 0 for one in launches)


def test_the_features_of_a_launch_come_from_its_shape_and_x_ray():
    one = microseconds.many_rows("bf16", 18432, 32)
    assert str(one) == "14,563 × 18,432 bf16, 32 warps"
    registers, _, instructions = next(line[3:] for line in RECORD["compiled"] if line[:3] == ["bf16", 32768, 32])
    assert one.features == (ELEMENTS // 18432, 2 * 18432, instructions * 32768, 32, 1)
    shape = of_gpu("NVIDIA H200").nearest(18432, 14563, "bf16")
    assert (one.us, one.copy_us) == (shape.launches[Launch("single tile", 32768, 32)], shape.functions["copy"])


def test_a_launch_that_was_not_timed_is_refused():
    with pytest.raises(ValueError, match="no such launch .*: 4096 columns in fp32 with 1 warps"):
        microseconds.many_rows("fp32", 4096, 1)


def test_predictions_stand_beside_what_was_recorded():
    one = microseconds.many_rows("fp32", 4096, 8)
    shown = repr(microseconds.compared(lambda *features: 2 * one.us, [one]))
    assert "+100.0%" in shown and f"{one.us:,.1f}" in shown and str(of_gpu("NVIDIA H200")) in shown


@pytest.mark.parametrize(
    ("asked", "bar"),
    [(("fp32", 4096, 8), "memory"), (("bf16", 4096, 32), "turns"), (("bf16", 18432, 32), "turns")],
)
def test_the_bar_that_decides_is_named(asked, bar):
    launch = microseconds.many_rows(*asked)
    assert microseconds.decided_by(EXERCISES["predict_time"].ours, launch.features) == bar


def test_a_prediction_that_instructions_decide_is_named_so():
    one = microseconds.many_rows("fp32", 4096, 8)
    assert microseconds.decided_by(lambda rows, nbytes, instructions, warps, programs: instructions, one.features) == (
        "instructions"
    )


# The hardware counters

REPORT = """==PROF== Connected
"ID","Process ID","Kernel Name","Metric Name","Metric Unit","Metric Value"
"""


def report(launches, left_out=""):
    lines = [
        f'"{number}","1","single_tile_kernel","{metric}","x","{1000 * number + place:,}"'
        for number in range(launches)
        for place, metric in enumerate(why.METRICS)
        if metric != left_out
    ]
    return REPORT + "\n".join(lines)


def test_counters_are_read_by_launch():
    found = why.parse_counters(report(len(why.LOOKED_AT)), "")
    assert [line["launch"] for line in found] == [list(launch) for *_, launch in why.LOOKED_AT]
    assert [line["read_bytes"] for line in found] == [1, 1001, 2001, 3001]


@pytest.mark.parametrize(
    "report", [report(3), report(4, left_out="dram__bytes_read.sum"), ""], ids=["launch", "counter", "nothing"]
)
def test_counters_that_are_missing_are_an_error_with_ncu_s_words(report):
    with pytest.raises(RuntimeError, match="(?s)ncu counted . launches of 4: .*ERR_NVGPUCTRPERM"):
        why.parse_counters(report, "ERR_NVGPUCTRPERM")


def test_recorded_counters_agree_with_the_count_and_the_x_ray():
    assert len(RECORD["counters"]) == len(why.LOOKED_AT)
    for line in RECORD["counters"]:
        launch, size = Launch(*line["launch"]), DTYPES[line["dtype"]].itemsize
        rows = ELEMENTS // line["n_cols"]
        assert line["read_bytes"] == pytest.approx(rows * line["n_cols"] * size, rel=0.01)
        assert line["write_bytes"] == pytest.approx(rows * line["n_cols"] * size, rel=0.05)
        if launch.variant == "single tile" and needs.TRITON < (3, 8):  # which makes other instructions of it
            kernel, args, options = compiled_as(launch, line["n_cols"], DTYPES[line["dtype"]])
            seen = xray.report(kernel, *args, **options, target="sm_90")
            assert line["instructions"] / (rows * launch.BLOCK) == pytest.approx(
                seen.instructions_per_element, rel=0.05
            )
            assert seen.occupancy.fraction - 0.1 < line["occupancy_percent"] / 100 <= seen.occupancy.fraction


def test_the_table_of_counters_has_a_line_for_each_single_tile():
    shown = repr(microseconds.hardware_counters())
    assert "single tile, 18,432 bf16, 32 warps" in shown and "1.074" in shown
    assert "persistent" not in shown  # which lesson 07 explains


def test_the_command_in_the_lesson_asks_for_counters_that_the_record_has():
    cells = json.loads((ROOT / "solutions" / "06_why_in_microseconds.ipynb").read_text(encoding="utf-8"))["cells"]
    text = next("".join(cell["source"]) for cell in cells if cell["id"] == "counters-text")
    asked = text.split("--metrics ")[1].split()[0].split(",")
    assert set(asked) < set(why.METRICS) and text.rstrip("`").endswith("-m helpers.measure.record --once why")


# The kernels that measure


def test_a_reader_loads_its_tiles_in_turn_around_within_the_span():
    x = torch.arange(64.0, device=DEVICE)
    for waits in (False, True):
        sums = torch.empty(2 * 16, device=DEVICE)
        why.read_kernel[(2,)](sums, x, 16, 16, 32, 3, BLOCK=16, CACHE=".cg", WAITS=waits)
        one = x[:16] + x[16:32] + x[:16]
        assert torch.equal(sums, torch.cat([one, one + 48]))


def test_multiply_adds_are_done_16_times_a_step():
    y = torch.empty(16, device=DEVICE)
    why.multiply_kernel[(1,)](y, 0.5, 1.0, 2, BLOCK=16)
    assert torch.equal(y, torch.arange(16.0, device=DEVICE) / 2**32 + (2 - 2.0**-31))


def test_a_record_is_written_with_a_line_for_each_entry():
    text = why.record_text({"origin": {"gpu": "x"}, "flight": [[1, 2, 3.5], [4, 5, 6.5]]})
    assert json.loads(text) == {"origin": {"gpu": "x"}, "flight": [[1, 2, 3.5], [4, 5, 6.5]]}
    assert "\n[1, 2, 3.5],\n[4, 5, 6.5]\n" in text
