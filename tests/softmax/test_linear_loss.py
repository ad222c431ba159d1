"""linear_cross_entropy: torch's results at a fraction of the memory; and what it leaves to torch."""

import itertools

import pytest
import torch
import torch.nn.functional as F

from helpers import DEVICE
from helpers.softmax import linear_cross_entropy
from helpers.softmax.plans import linear_loss as plans
from helpers.softmax.plans.gpu import H200

SHAPES = [(5, 7, 11), (20, 72, 260)]  # a row of 72 in 16 bits has whole vectors: a GPU copies its tiles by descriptor
DTYPES = [torch.float32, torch.bfloat16, torch.float16]
INPUTS = ("input", "linear_weight", "linear_bias")


@pytest.fixture(autouse=True)
def seed():
    torch.manual_seed(0)


def given(M, H, V, dtype=torch.float32, bias=True, ignored=3):
    """Inputs that want gradients, and targets of which some are ignored."""
    tensors = torch.randn(M, H), torch.randn(V, H), torch.randn(V) if bias else None
    target = torch.randint(V, (M,))
    target[::ignored] = -100
    return [one if one is None else one.to(DEVICE, dtype).requires_grad_() for one in tensors], target.to(DEVICE)


def of_linear(x, w, target, *, linear_bias=None, **options):
    return F.cross_entropy(F.linear(x, w, linear_bias), target, **options)


def results(loss, tensors, target, arrived=None, **options):
    """The loss, and what backward brings to each tensor."""
    x, w, b = tensors
    value = loss(x, w, target, linear_bias=b, **options)
    arrived = torch.ones_like(value) if arrived is None else arrived.to(value.dtype)
    return value, *torch.autograd.grad(value, [one for one in tensors if one is not None], arrived)


def agree(tensors, target, arrived=None, **options):
    """Whether our results are about as near to the exact ones as torch's."""
    exact = [one if one is None else one.detach().double().requires_grad_() for one in tensors]
    ways = (linear_cross_entropy, tensors), (of_linear, tensors), (of_linear, exact)
    for ours, torchs, want in zip(*(results(way, of, target, arrived, **options) for way, of in ways), strict=True):
        assert ours.dtype == torchs.dtype and ours.shape == torchs.shape
        rounding = 2 * torch.finfo(ours.dtype).eps * want.norm()  # what is small may be rounded luckily by torch
        assert (ours - want).norm() <= 2 * (torchs - want).norm() + rounding


@pytest.mark.parametrize("reduction", ["mean", "sum", "none"])
@pytest.mark.parametrize("dtype", DTYPES, ids=str)
@pytest.mark.parametrize("shape", SHAPES, ids=str)
def test_results_are_torchs(shape, dtype, reduction):
    tensors, target = given(*shape, dtype)
    agree(tensors, target, torch.rand(target.shape if reduction == "none" else (), device=DEVICE), reduction=reduction)


@pytest.mark.parametrize("smoothing", [0.0, 0.1])
def test_results_are_those_of_one_chunk(monkeypatch, smoothing):
    tensors, target = given(130, 24, 40)
    whole = results(linear_cross_entropy, tensors, target, label_smoothing=smoothing)
    monkeypatch.setattr(plans, "MOST_BYTES", 1)
    assert plans.rows_of_chunk(130, 24, 40, 4, H200) == 128
    for one, other in zip(
        whole, results(linear_cross_entropy, tensors, target, label_smoothing=smoothing), strict=True
    ):
        torch.testing.assert_close(one, other)


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16], ids=str)
@pytest.mark.parametrize("shape", [*SHAPES, (1, 3, 1), (129, 65, 513)], ids=str)
def test_a_loss_alone_is_that_with_gradients(shape, dtype):
    tensors, target = given(*shape, dtype, bias=shape[0] != 20)
    with torch.no_grad():
        alone = linear_cross_entropy(tensors[0], tensors[1], target, linear_bias=tensors[2], reduction="none")
    want = of_linear(*(one.detach().double() for one in tensors[:2]), target, reduction="none",
                     linear_bias=None if tensors[2] is None else tensors[2].detach().double())  # fmt: skip
    assert alone.dtype == dtype
    torch.testing.assert_close(alone.double(), want, rtol=0.02 if dtype.itemsize == 2 else 1e-5, atol=1e-5)


def test_a_loss_alone_takes_any_strides():
    x, w = torch.randn(40, 60, device=DEVICE).bfloat16(), torch.randn(30, 90, device=DEVICE).bfloat16()
    target = torch.randint(45, (20,), device=DEVICE)
    want = linear_cross_entropy(x[::2, ::2].contiguous(), w.T[::2].contiguous(), target)
    torch.testing.assert_close(linear_cross_entropy(x[::2, ::2], w.T[::2], target), want)


@pytest.mark.parametrize("wanted", [c for n in (1, 2) for c in itertools.combinations(INPUTS, n)], ids="-".join)
def test_only_the_gradients_that_are_wanted_are_made(wanted):
    tensors, target = given(20, 8, 12)
    want = dict(zip(INPUTS, results(of_linear, tensors, target)[1:], strict=True))
    for name, one in zip(INPUTS, tensors, strict=True):
        one.requires_grad_(name in wanted)
    linear_cross_entropy(tensors[0], tensors[1], target, linear_bias=tensors[2]).backward()
    for name, one in zip(INPUTS, tensors, strict=True):
        assert (one.grad is not None) == (name in wanted)
        if name in wanted:
            torch.testing.assert_close(one.grad, want[name])


@pytest.mark.parametrize("reduction", ["mean", "sum", "none"])
def test_backward_can_be_asked_twice(reduction):
    tensors, target = given(20, 8, 12)
    loss = linear_cross_entropy(tensors[0], tensors[1], target, linear_bias=tensors[2], reduction=reduction)
    first, second = (torch.autograd.grad(loss, tensors, torch.full_like(loss, 3.0), retain_graph=True) for _ in "12")
    assert all(map(torch.equal, first, second))


def test_ignored_rows_have_no_part():
    tensors, target = given(6, 4, 5, bias=False)
    target[:] = -100
    loss, *gradients = results(linear_cross_entropy, tensors, target)
    assert loss.isnan() and not any(one.any() for one in gradients)
    agree(tensors, target, reduction="sum")
    target[:] = 4
    agree(tensors, target, ignore_index=4, reduction="sum")


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16], ids=str)
def test_a_target_that_is_no_class_makes_the_loss_nan(dtype):
    (x, w, _), target = given(6, 4, 5, dtype, bias=False)
    target[1] = 5
    with torch.no_grad():
        losses = linear_cross_entropy(x, w, target, reduction="none")
    assert losses.isnan().tolist() == [False, True, False, False, False, False]


def test_autocast_casts_as_torchs_linear_does():
    tensors, target = given(20, 8, 12)
    with torch.autocast(DEVICE.type, torch.bfloat16):
        ours, torchs = (results(way, tensors, target) for way in (linear_cross_entropy, of_linear))
    for one, other in zip(ours, torchs, strict=True):
        assert one.dtype == other.dtype == torch.float32
        torch.testing.assert_close(one, other, rtol=0.02, atol=0.002)


def test_a_checkpoint_and_a_compiled_function_have_the_same_results():
    tensors, target = given(20, 8, 12)
    want = results(linear_cross_entropy, tensors, target)

    def checkpointed(*args, **options):
        return torch.utils.checkpoint.checkpoint(linear_cross_entropy, *args, use_reentrant=False, **options)

    compiled = torch.compile(linear_cross_entropy, backend="eager")
    for way in (checkpointed, compiled):
        for one, other in zip(results(way, tensors, target), want, strict=True):
            torch.testing.assert_close(one, other)


LEFT = {
    "class weights": lambda x, w, t: {"weight": torch.rand(len(w), dtype=x.dtype, device=x.device)},
    "probabilities": lambda x, w, t: {"target": torch.rand(len(x), len(w), dtype=x.dtype, device=x.device)},
    "float64": lambda x, w, t: {"input": x.double(), "linear_weight": w.double()},
    "one row": lambda x, w, t: {"input": x[0], "target": t[0]},
    "more dimensions": lambda x, w, t: {
        "linear_weight": w.reshape(4, 3, -1), "target": torch.randint(4, (len(x), 3), device=x.device)
    },
}  # fmt: skip


@pytest.mark.parametrize("name", LEFT)
def test_what_else_torch_takes_torch_computes(name, monkeypatch):
    x, w, target = torch.randn(6, 5, device=DEVICE), torch.randn(12, 5, device=DEVICE), torch.arange(6, device=DEVICE)
    call = {"input": x, "linear_weight": w, "target": target} | LEFT[name](x, w, target)
    found = [linear_cross_entropy(**call)]
    monkeypatch.setattr("helpers.softmax.linear_loss.torch_linear_cross_entropy", None)  # as before torch 2.13
    found.append(linear_cross_entropy(**call))
    x, w, target, weight = call["input"], call["linear_weight"], call["target"], call.get("weight")
    logits = F.linear(x, w.flatten(0, -2)).unflatten(-1, w.shape[:-1])
    for one in found:
        torch.testing.assert_close(one, F.cross_entropy(logits, target, weight))


def test_shapes_that_do_not_fit_are_named():
    x, w, target = torch.randn(6, 5, device=DEVICE), torch.randn(12, 4, device=DEVICE), torch.arange(6, device=DEVICE)
    with pytest.raises(ValueError, match=r"need a linear_weight of \(12, 5\); its shape is \(12, 4\)"):
        linear_cross_entropy(x, w, target)
    with pytest.raises(ValueError, match=r"need a target of \(6,\); its shape is \(5,\)"):
        linear_cross_entropy(x, w[:, :1].expand(12, 5), target[:5])


def test_a_second_derivative_raises():
    tensors, target = given(6, 4, 5, bias=False)
    with pytest.raises(RuntimeError, match="no second derivative"):
        torch.autograd.grad(linear_cross_entropy(*tensors[:2], target), tensors[:2], create_graph=True)


def test_chunks_hold_no_more_than_they_may_and_are_tiles():
    for M, H, V in itertools.product((1, 127, 5000, 100_000), (64, 2304, 7168), (1000, 32768, 151_936)):
        rows = plans.rows_of_chunk(M, H, V, 2, H200)
        assert 0 < rows <= M and rows * V * 2 <= plans.MOST_BYTES and (rows == M or rows % 128 == 0)
        each = plans.classes_of_part(M, V, H200)
        assert each % plans.BLOCK_V == 0 and each > 0
    assert plans.rows_of_chunk(10_000, 4096, 2**24, 2, H200) == 128  # not less than a tile


@pytest.mark.parametrize("wanted", [True, False])
def test_no_tensor_has_all_logits(monkeypatch, wanted):
    monkeypatch.setattr(plans, "MOST_BYTES", 1)
    (x, w, _), target = given(256, 4, 300, torch.bfloat16, bias=False)
    with torch.profiler.profile(record_shapes=True, profile_memory=True) as seen, torch.set_grad_enabled(wanted):
        linear_cross_entropy(x, w, target)
    sizes = [event.self_cpu_memory_usage + event.self_device_memory_usage for event in seen.events()]
    chunk = 128 * 304 * x.element_size()
    assert max(sizes) == chunk if wanted else max(sizes) < chunk


@pytest.mark.skipif(not hasattr(F, "linear_cross_entropy"), reason="torch has it from 2.13 on")
@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float64], ids=str)
def test_torchs_samples_have_torchs_results(dtype):
    pytest.importorskip("expecttest", reason="expecttest, which torch's samples need, is not installed: make install")
    from torch.testing._internal.common_methods_invocations import op_db

    ops = [op for op in op_db if op.name == "nn.functional.linear_cross_entropy" and dtype in op.dtypes]
    tried = [sample for op in ops for sample in op.sample_inputs(DEVICE, dtype, requires_grad=True)]
    for sample in tried:
        found = []
        for way in (linear_cross_entropy, F.linear_cross_entropy):
            x, w = (one.detach().clone().requires_grad_() for one in (sample.input, sample.args[0]))
            value = way(x, w, *sample.args[1:], **sample.kwargs)
            found.append((value, *torch.autograd.grad(value, (x, w), torch.ones_like(value))))
        for ours, torchs in zip(*found, strict=True):
            loose = {"rtol": 0.02, "atol": 0.02} if dtype == torch.bfloat16 else {}
            torch.testing.assert_close(ours, torchs, equal_nan=True, **loose)
    assert len(tried) >= 10
