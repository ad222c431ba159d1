"""The record of losses: what is timed, and what was."""

import json

import pytest
import torch
import torch.nn.functional as F

from helpers import DEVICE, recorded, timing
from helpers.measure import losses

RECORDS = recorded.by_gpu("loss")
each_record = pytest.mark.parametrize("gpu", RECORDS)


@pytest.fixture
def problem():
    torch.manual_seed(0)
    return torch.randn(3, 40, device=DEVICE), torch.tensor([0, 39, 7], device=DEVICE)


def test_a_step_is_the_gradient_or_a_loss(problem):
    x, target = problem
    here = losses.losses_here(losses.LossLayout("fp32", 3, 40))
    steps = losses.steps_of(here, x, target)
    assert {name for name, _ in steps} == set(here) >= {"helpers.softmax", "torch"}
    for name in ("helpers.softmax", "torch"):
        (gradient,) = steps[name, "loss and gradient"]()
        assert gradient.shape == x.shape
        forward, alone = steps[name, "forward"](), steps[name, "loss alone"]()
        assert forward.shape == alone.shape == () and forward.requires_grad and not alone.requires_grad


def test_steps_leave_the_logits_alone(problem):
    x, target = problem
    before = x.clone()
    for step in losses.steps_of({"zeros": lambda x, target: (x * 0).sum()}, x, target).values():
        step()
    assert torch.equal(x, before)


def test_a_reader_sees_every_logit():
    x = torch.zeros(3, 20_001, device=DEVICE)
    for place in (0, 30_000, x.numel() - 1):
        x.view(-1)[place] = place + 1
        for read in losses.readers(x).values():
            most, *_ = read.args
            read()
            assert most.max() == place + 1


def test_a_right_loss_is_not_refused(problem):
    for loss in losses.losses_here(losses.LossLayout("fp32", 3, 40)).values():
        assert losses.refusal_of_loss(loss, *problem) is None


@pytest.mark.parametrize(
    ("loss", "says"),
    [
        (lambda x, target: F.cross_entropy(x, target) + 1, "its loss is "),
        (lambda x, target: F.cross_entropy(x, target) * float("nan"), "its loss is nan where "),
        (lambda x, target: F.cross_entropy(x, target) + 9 * (x - x.detach()).sum(), "its gradient is wrong"),
        (lambda x, target: F.cross_entropy(x.detach(), target), "element 0 of tensors does not require grad"),
    ],
    ids=["another loss", "NaN", "another gradient", "no gradient"],
)
def test_a_wrong_loss_is_refused_with_what_is_wrong(problem, loss, says):
    assert losses.refusal_of_loss(loss, *problem).startswith(says)


def test_a_wrong_gradient_of_images_is_refused():
    torch.manual_seed(0)
    x, target = torch.randn(2, 5, 6, 7, device=DEVICE), torch.randint(0, 5, (2, 6, 7), device=DEVICE)
    assert losses.refusal_of_loss(F.cross_entropy, x, target) is None

    def wrong(x, target):
        return F.cross_entropy(x, target) + (x[0, 1] - x[0, 1].detach()).mean()

    assert losses.refusal_of_loss(wrong, x, target) == "its gradient is wrong"


@pytest.mark.thinned(0)
def test_images_are_taken_by_ours_by_torch_s_and_compiled_in_bfloat16():
    found = [losses.losses_of_images_here(losses.ImageLayout(dtype, (2, 5, 6, 7))) for dtype in ("fp32", "bf16")]
    assert [list(each) for each in found] == [
        ["helpers.softmax", "torch"], ["helpers.softmax", "torch", "torch.compile"]
    ]  # fmt: skip


@pytest.mark.parametrize(("name", "kept"), [("Liger", {"torch"}), ("helpers.softmax", None)])
def test_a_peer_that_is_wrong_is_left_out_and_ours_raises(problem, name, kept):
    here = {"torch": F.cross_entropy, name: lambda x, target: x.sum()}
    layout = losses.LossLayout("fp32", 3, 40)
    if kept:
        assert set(losses._right(layout, here, *problem)) == kept
    else:
        with pytest.raises(ValueError, match="helpers.softmax at 3 × 40 fp32: its loss is "):
            losses._right(layout, here, *problem)


@pytest.mark.thinned(0)
def test_torch_compile_is_given_long_batches_of_16_bits_alone():
    names = {
        layout: losses.losses_here(losses.LossLayout(*layout)) for layout in (("bf16", 2048, 9), ("fp32", 2048, 9))
    }
    assert ["torch.compile" in found for found in names.values()] == [True, False]


def test_quack_has_a_part_in_bfloat16_alone(monkeypatch):
    monkeypatch.setattr(losses, "find_spec", lambda name: name == "quack")
    found = [losses.losses_here(losses.LossLayout(dtype, 1, 9)) for dtype in ("fp32", "bf16", "fp16")]
    assert ["QuACK" in each for each in found] == [False, True, False]


def test_the_record_is_written_with_a_line_for_each_row():
    rows = [{"variant": "a", "median_ms": 1.0}, {"variant": "b", "median_ms": 2.0}]
    text = losses.text_of_losses({"gpu": "X"}, rows)
    assert json.loads(text) == {"origin": {"gpu": "X"}, "losses": rows}
    assert sum("variant" in line for line in text.splitlines()) == 2


def test_losses_of_images_have_a_part_of_their_own():
    rows, images = [{"variant": "a"}], [{"variant": "b"}, {"variant": "c"}]
    text = losses.text_of_losses({"gpu": "X"}, rows, images)
    assert json.loads(text) == {"origin": {"gpu": "X"}, "losses": rows, "images": images}


# What was recorded


@each_record
def test_ours_and_torchs_are_recorded_at_every_layout_in_every_pass(gpu):
    found = {(row["variant"], row["pass"], *(row[name] for name in losses.LossLayout._fields)) for row in rows(gpu)}
    passes = {row["pass"] for row in rows(gpu)}
    assert passes == set(losses.PASSES)
    for variant in ("helpers.softmax", "torch"):
        for which in passes:
            assert {(variant, which, *layout) for layout in losses.loss_layouts()} <= found


@each_record
def test_at_vocabularies_ours_is_first_and_takes_half_of_the_time_of_who_does_not_read_once(gpu):
    """What the lesson and SPEED.md say of it. QuACK's forward reads once, and its backward once more."""
    for layout in losses.loss_layouts()[: 3 * len(losses.VOCABULARIES)]:
        at = [row for row in rows(gpu) if (row["dtype"], row["n_rows"], row["n_cols"]) == layout]
        times = {row["variant"]: row["median_ms"] for row in at if row["pass"] == "loss and gradient"}
        mine = times.pop("helpers.softmax")
        assert mine < min(times.values())
        assert mine < 0.55 * min(time for name, time in times.items() if name != "QuACK")


@pytest.mark.parametrize("gpu", ["H200", "H100"])
def test_a_loss_alone_takes_little_longer_than_reading(gpu):
    """SPEED.md's 0.95 to 1.00 of these two, in its two digits."""
    for layout in losses.loss_layouts()[: 3 * len(losses.VOCABULARIES)]:
        alone = [row for row in recorded.find("loss", gpu)["losses"] if row["pass"] == "loss alone"]
        at = [row for row in alone if (row["dtype"], row["n_rows"], row["n_cols"]) == layout]
        times = {row["variant"]: row["median_ms"] for row in at}
        assert 0.95 <= round(times[losses.READING] / times["helpers.softmax"], 2) <= 1


@each_record
def test_ours_needs_memory_for_the_gradient_alone(gpu):
    ours = [row for row in rows(gpu) if row["variant"] == "helpers.softmax" and row["n_rows"] > 1000]
    assert {round(row["peak"], 2) for row in ours} == {0.0, 1.0}


def rows(gpu):
    return RECORDS[gpu]["losses"]


def test_a_lesson_finds_the_rows_of_a_dtype_and_a_length_with_their_origin():
    found = timing.losses(recorded.REFERENCE, dtype="bf16", columns=151936)
    assert {(row["dtype"], row["n_cols"]) for row in found} == {("bf16", 151936)}
    assert timing.losses_origin(recorded.REFERENCE).startswith(f"recorded on one {recorded.REFERENCE}, torch ")


def test_a_gpu_without_a_record_of_losses_is_named():
    with pytest.raises(ValueError, match="no record of losses on 'NVIDIA T4'; recorded are .*NVIDIA H200"):
        timing.losses("NVIDIA T4", dtype="bf16")


def test_a_loss_of_images_takes_less_time_than_torch_s():
    """What SPEED.md says of an H100."""
    images = recorded.find("loss", "H100")["images"]
    for layout in losses.image_layouts():
        at = [row for row in images if {**row, **layout.in_record()} == row]
        for which in ("loss and gradient", "loss alone"):
            times = {row["variant"]: row["median_ms"] for row in at if row["pass"] == which}
            assert times["helpers.softmax"] < 0.5 * times["torch"]
