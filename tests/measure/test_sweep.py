"""The sweep behind the plan of helpers.softmax, on a GPU that is simulated; and the plan beside what was recorded."""

import json
import math
import sys

import pytest
import torch

import needs
from helpers import DEVICE, recorded, timing
from helpers.engine import interpreter
from helpers.measure import record as making
from helpers.measure import sweep
from helpers.softmax.plans.rows import Flat, Shared, Tile

SMALL = [sweep.Layout(*shape) for shape in (("fp32", 40, 16), ("bf16", 3, 325), ("fp32", 2, 2051), ("bf16", 2, 5120))]
RECORDS = recorded.by_gpu("plan")
PLANNED = [gpu_name for gpu_name, record in RECORDS.items() if record["origin"]["target"] == "sm_90"]
"""The GPUs for which launches are planned: those of the H200's architecture."""


@pytest.fixture
def gpu(monkeypatch):
    """A GPU on which every launch takes a millisecond, and a copy half of one."""

    def time_shape(functions, n_rows, n_cols, dtype, repeats):
        x = torch.randn(n_rows, n_cols, device=DEVICE).to(timing.DTYPES[dtype])
        for fn in functions.values():
            torch.testing.assert_close(fn(x), torch.softmax(x, dim=1), rtol=2e-2, atol=1e-3)
        times = dict.fromkeys(functions, timing.Measurement(1.0, 1.0, 1.0, repeats))
        return timing.Measurement(0.5, 0.5, 0.5, repeats), times

    monkeypatch.setattr(timing, "time_shape", time_shape)


@pytest.mark.thinned
@pytest.mark.parametrize("layout", sweep.layouts(), ids=str)
def test_the_planned_launch_has_alternatives_of_which_each_covers_the_row(layout):
    first, *others = sweep.alternatives(layout)
    assert first == layout.planned() and others and len({first, *others}) == 1 + len(others)
    vector = 1 if layout.aligned else 16 // timing.DTYPES[layout.dtype].itemsize
    for plan in (first, *others):
        if isinstance(plan, Flat):
            assert plan.USED * layout.n_cols <= plan.RUN
        else:
            assert plan.BLOCK * plan.SPLIT + plan.REST >= layout.n_cols // vector * vector
            assert isinstance(plan, Shared) == (plan.SPLIT > 1)
        assert 32 * plan.num_warps * plan.maxnreg <= 65536


def test_what_is_swept_has_rows_of_both_sizes_aligned_and_not_many_and_few():
    kinds = {(layout.dtype, layout.aligned, layout.n_rows < 100) for layout in sweep.layouts()}
    assert len(kinds) == 8


@pytest.mark.thinned(0)
def test_every_launch_that_is_swept_is_right_and_timed(gpu):
    for layout, swept in zip(SMALL, sweep.sweep(SMALL), strict=True):
        assert (swept.layout, swept.copy_us) == (layout, 500.0)
        assert swept.plans == dict.fromkeys(sweep.alternatives(layout), 1000.0)


def test_a_plan_that_cannot_be_launched_is_left_out_with_the_reason(gpu, monkeypatch, capsys):
    impossible = Tile(24, 1, 96)
    monkeypatch.setattr(sweep, "alternatives", lambda layout: [layout.planned(), impossible])
    (swept,) = sweep.sweep(SMALL[:1])
    assert list(swept.plans) == [SMALL[0].planned()]
    assert "('fp32', 40, 16): ['tile', 24, 1, 96, 1, 0, 1] left out: " in capsys.readouterr().out


def test_a_record_is_read_as_it_was_written(gpu):
    swept = sweep.sweep(SMALL[:2])
    assert sweep.read(json.loads(sweep.text({"gpu": "none"}, swept))) == swept


def test_what_a_plan_loses_is_its_time_over_that_of_the_fastest():
    slow, fast = Tile(512, 1, 96), Tile(512, 2, 96)
    swept = sweep.Swept(SMALL[0], 1.0, {slow: 3.0, fast: 2.0})
    assert (swept.lost(slow), swept.lost(fast)) == (1.5, 1.0)


def test_the_command_writes_the_record(gpu, monkeypatch, tmp_path, capsys):
    monkeypatch.setattr(sys, "argv", ["record", "--only", "plan"])
    monkeypatch.setattr(making, "ON_GPU", True)
    monkeypatch.setattr(making, "origin_here", lambda: {"gpu": "none"})
    monkeypatch.setattr(torch.cuda, "get_device_name", lambda: "None")
    monkeypatch.setattr(sweep, "layouts", lambda: SMALL[:1])
    monkeypatch.setattr(sweep, "compile_ahead", lambda layouts: None)
    making.main(tmp_path)
    record = json.loads((tmp_path / "none" / "plan.json").read_text(encoding="utf-8"))
    assert record["origin"] == {"gpu": "none"} and [swept.layout for swept in sweep.read(record)] == SMALL[:1]
    assert f"wrote {tmp_path / 'none' / 'plan.json'}: 1 layouts" in capsys.readouterr().out


@needs.interpreter
def test_every_launch_that_is_swept_is_compiled_ahead():
    launches = []
    with interpreter.watching(launches.append):
        sweep._launch_all(SMALL[2])
    assert len(launches) == len(sweep.alternatives(SMALL[2]))


# What was recorded


@pytest.mark.skipif(not PLANNED, reason="no plan.json is recorded: python -m helpers.measure.record --only plan")
@pytest.mark.parametrize("gpu_name", PLANNED)
def test_the_plan_takes_at_most_a_twentieth_longer_than_the_best_alternative(gpu_name):
    swept = sweep.read(RECORDS[gpu_name])
    lost = [one.lost(one.layout.planned()) for one in swept]
    assert math.exp(sum(map(math.log, lost)) / len(lost)) <= 1.05
