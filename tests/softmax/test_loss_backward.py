"""helpers.softmax.cross_entropy where what arrives in backward is not 1: right, rounded once, and no trip too many."""

import gc
from importlib import import_module

import pytest
import torch
import torch.nn.functional as F
from torch.autograd.graph import save_on_cpu
from torch.multiprocessing.reductions import StorageWeakRef

import needs
from helpers import DEVICE, ON_GPU, traffic
from helpers.engine import child, compiled
from helpers.softmax import cross_entropy
from helpers.softmax.plans.losses import LossOptions
from losses import IGNORED, assert_agrees, classes, logits, with_gradient

launches = import_module("helpers.softmax.launches.losses")
operators = torch.ops.softmax_in_triton
DTYPES = (torch.float32, torch.bfloat16, torch.float16)


@pytest.fixture(autouse=True)
def seed():
    torch.manual_seed(0)


def number(value, dtype=torch.float32):
    return torch.tensor(value, dtype=dtype, device=DEVICE)


# Right


@pytest.mark.thinned
@pytest.mark.parametrize("dtype", DTYPES, ids=str)
@pytest.mark.parametrize("upstream", [0.3, -3.0, 0.0])
@pytest.mark.parametrize("reduction", ["none", "sum", "mean"])
def test_the_gradient_is_multiplied_by_what_arrives(reduction, upstream, dtype):
    x, target = logits(4, 3073, dtype=dtype), classes(4, 3073)
    arriving = number(upstream)
    arriving = arriving * torch.arange(4, device=DEVICE) if reduction == "none" else arriving
    assert_agrees(x, target, arriving, reduction=reduction)


@pytest.mark.thinned
@pytest.mark.parametrize("dtype", DTYPES, ids=str)
@pytest.mark.parametrize("V", [2, 7, 64, 781, 4096, 4097, 9001])
def test_so_it_is_at_every_length_and_with_smoothing(V, dtype):
    assert_agrees(logits(4, V, dtype=dtype), classes(4, V), number(0.3), label_smoothing=0.1)


@pytest.mark.thinned(0)
@pytest.mark.parametrize("dtype", DTYPES, ids=str)
@pytest.mark.parametrize("reduction", ["none", "mean"])
@pytest.mark.parametrize("V", [3, 21, 100])
def test_many_short_rows_are_multiplied_in_tiles(V, reduction, dtype):
    x, target = logits(2112, V, dtype=dtype), classes(2112, V)
    upstream = number(0.3) if reduction == "mean" else torch.linspace(-1, 2, 2112, device=DEVICE)
    assert_agrees(x, target, upstream, reduction=reduction)


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
def test_of_one_class_it_is_0_but_for_rounding(dtype):
    x, target = logits(4, 1, dtype=dtype), classes(4, 1)
    _, gradient = with_gradient(cross_entropy, x, target, number(0.3), label_smoothing=0.1)
    assert gradient.abs().max() <= torch.finfo(torch.float32).eps


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
def test_a_row_whose_upstream_gradient_is_1_stays_as_it_is_beside_others(dtype):
    x, target = logits(3, 5001, dtype=dtype), classes(3, 5001)
    assert_agrees(x, target, number([1.0, 3.0, 1.0]), reduction="none")


def test_a_scaled_loss_saves_what_a_mean_makes_too_small_for_float16():
    """The mean of 30 rows divides most of their gradient to where float16 has a few bits left."""
    x, target = logits(30, 3000, dtype=torch.float16), classes(30, 3000)
    x, scale = x / 16, number(2.0**14)
    _, gradient = with_gradient(cross_entropy, x, target)
    assert (gradient.abs() < torch.finfo(torch.float16).tiny).double().mean() > 0.9
    assert_agrees(x, target, scale)


@pytest.mark.thinned(2)
@pytest.mark.parametrize("V", [7, 4097])
@pytest.mark.parametrize("dtype", DTYPES, ids=str)
def test_special_values_and_targets_of_no_class_are_those_of_a_loss_that_is_not_scaled(dtype, V):
    inf = float("inf")
    x = logits(6, V, dtype=dtype)
    x[0], x[1, 0], x[2, 1], x[3, 1:] = -inf, inf, float("nan"), -inf
    target = torch.tensor([0, 1, 1, 0, V, IGNORED], device=DEVICE)
    _, want = with_gradient(cross_entropy, x, target, reduction="none")
    _, twice = with_gradient(cross_entropy, x, target, torch.full((6,), 2.0, device=DEVICE), reduction="none")
    torch.testing.assert_close(twice, 2 * want, equal_nan=True)


@pytest.mark.parametrize("inplace", [False, True])
def test_what_is_compiled_for_one_dtype_is_not_launched_for_another(inplace):
    """A launcher goes round Triton, and nobody would notice. Under autocast float32 arrives whatever the logits are."""
    launches._backward_launcher.cache_clear()
    for dtype in DTYPES:
        hidden = 1 * logits(4, 77, dtype=dtype).requires_grad_()
        with torch.autocast(DEVICE.type, dtype=torch.bfloat16):
            loss = cross_entropy(hidden, classes(4, 77), inplace=inplace)
        torch.autograd.grad(loss, hidden)
    assert launches._backward_launcher.cache_info().currsize == len(DTYPES)


# The logits that are kept for it


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16], ids=str)
@pytest.mark.parametrize("retain", [True, False])
def test_a_graph_that_is_kept_can_be_asked_again(retain, dtype):
    x, target = logits(3, 501, dtype=dtype).requires_grad_(), classes(3, 501)
    loss = cross_entropy(x, target)
    (first,) = torch.autograd.grad(loss, x, number(2.0, dtype), retain_graph=True)
    before = first.clone()
    (second,) = torch.autograd.grad(loss, x, number(1.0, dtype), retain_graph=retain)
    assert torch.equal(first, before) and torch.equal(first, 2 * second)


def test_logits_may_be_overwritten_before_backward_as_with_torch_s():
    leaf, target = logits(3, 501, dtype=torch.bfloat16).requires_grad_(), classes(3, 501)
    _, want = with_gradient(cross_entropy, leaf, target)
    hidden = 1 * leaf
    loss = cross_entropy(hidden, target)
    with torch.no_grad():
        hidden.zero_()
    (gradient,) = torch.autograd.grad(loss, hidden, number(2.0, torch.bfloat16))
    assert torch.equal(gradient, 2 * want)


@pytest.mark.parametrize("loss_of", [cross_entropy, F.cross_entropy], ids=["ours", "torch's"])
def test_targets_may_not(loss_of):
    x, target = logits(3, 501).requires_grad_(), classes(3, 501)
    loss = loss_of(x, target)
    target.zero_()
    with pytest.raises(RuntimeError, match="modified by an inplace operation"):
        loss.backward()


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
def test_the_gaps_between_rows_are_not_allocated_for_the_gradient(dtype):
    """The logits of the last token of each sequence lie a whole sequence apart."""
    x, target = logits(4, 32, 70, dtype=dtype)[:, -1].requires_grad_(), classes(4, 70)
    (gradient,) = torch.autograd.grad(0.3 * cross_entropy(x, target), x)
    assert gradient.untyped_storage().nbytes() <= 2 * x.numel() * x.element_size()
    torch.testing.assert_close(gradient, with_gradient(cross_entropy, x.detach().clone(), target, number(0.3))[1])


def is_in_memory(storage):
    gc.collect()  # Triton's interpreter leaves cycles
    return not storage.expired()


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
def test_16_bit_logits_are_kept_until_backward_and_no_longer(dtype):
    leaf = logits(3, 501, dtype=dtype).requires_grad_()
    hidden = 1 * leaf
    memory, loss = StorageWeakRef(hidden.untyped_storage()), cross_entropy(hidden, classes(3, 501))
    del hidden
    assert is_in_memory(memory) == (dtype != torch.float32)
    loss.backward()
    assert not is_in_memory(memory)


def test_where_hooks_take_what_is_saved_no_logits_are_kept_besides():
    """They move it elsewhere, or forget it and compute it again, to have its memory for other things."""
    leaf, target = logits(3, 501, dtype=torch.bfloat16).requires_grad_(), classes(3, 501)
    _, want = with_gradient(cross_entropy, leaf, target)
    hidden = 1 * leaf
    memory = StorageWeakRef(hidden.untyped_storage())
    with save_on_cpu():
        loss = cross_entropy(hidden, target)
    del hidden
    assert not is_in_memory(memory)
    (gradient,) = torch.autograd.grad(2 * loss, leaf)
    assert torch.equal(gradient, 2 * want)


# Trips


def trips(run, x):
    counted = traffic.count(run, x)
    return round(counted.loads / x.numel(), 1), round(counted.stores / x.numel(), 1)


@needs.interpreter
@pytest.mark.parametrize("dtype", DTYPES, ids=str)
def test_where_1_arrives_each_program_of_backward_loads_that_and_nothing_else(dtype):
    x, target = logits(4, 1000, dtype=dtype).requires_grad_(), torch.randint(0, 1000, (4,), device=DEVICE)
    loss, one = cross_entropy(x, target), number(1.0, dtype)
    counted = traffic.count(lambda x: torch.autograd.grad(loss, x, one), x)
    assert (counted.loads, counted.stores) == (4, 0)


@needs.interpreter
@pytest.mark.parametrize("dtype", DTYPES, ids=str)
def test_any_other_number_costs_a_read_and_a_write(dtype):
    x, target = logits(4, 3000, dtype=dtype).requires_grad_(), torch.randint(0, 3000, (4,), device=DEVICE)
    loss, two = cross_entropy(x, target), number(2.0, dtype)
    assert trips(lambda x: torch.autograd.grad(loss, x, two), x) == (1, 1)


@needs.interpreter
def test_the_launches_of_its_operators_read_the_logits_and_then_write_the_gradient_once():
    x, target = logits(4, 1500), torch.randint(0, 1500, (4,), device=DEVICE)
    how, pairs, gradient = LossOptions(IGNORED, "mean", 0.0, x.dtype), launches.pairs_like(x), torch.empty_like(x)
    assert trips(lambda x: launches.loss_of(x, target, how, pairs=pairs), x) == (1, 0)
    assert trips(lambda x: launches.gradient_again(gradient, x, target, pairs, number(3.0), how), x) == (1, 1)


def test_its_backward_is_a_proper_operator_of_torch():
    x, target, how = logits(3, 5), classes(3, 5), (IGNORED, "mean", 0.0)
    _, pairs = operators.cross_entropy(x, target, *how, torch.float32, True)
    torch.library.opcheck(
        operators.cross_entropy_backward, (number(2.0), x, target, pairs, *how),
        test_utils=("test_schema", "test_faketensor"),
    )  # fmt: skip


# A launch that begins early


def launcher_over_a_gradient():
    how = LossOptions(-100, "mean", 0.0, torch.float32)
    layout = ((torch.float32, torch.float32), 4, 4096, 4096, 0, (0, 0), 0)
    return launches._backward_launcher(*layout, how, over=True, again=False)


def ptx_of_backward(early):
    """In a process that compiles: PTX of the launch over a float32 gradient."""
    launcher = launcher_over_a_gradient()
    kernel, constants = launcher.kernel, {}
    signature = {name: "*fp32" for name in kernel.arg_names[:5]} | {"target_ptr": "*i64", "pair_ptr": "*i64"}
    for parameter, value in zip(kernel.params[5:], launcher.arguments, strict=True):
        signature[parameter.name] = "constexpr" if parameter.is_constexpr else "i32"
        if parameter.is_constexpr:
            constants[parameter.name] = value
    constants["EARLY"] = early
    return compiled.compile_without_launch(kernel, signature, constants, (), "sm_90", launcher.options).asm["ptx"]


def test_a_launch_that_begins_early_waits_before_it_reads():
    ptx = child.call(ptx_of_backward, True, interpret=False)
    assert 0 < ptx.index("griddepcontrol.wait") < ptx.index("ld.global")


def test_no_other_launch_waits():
    assert "griddepcontrol" not in child.call(ptx_of_backward, False, interpret=False)


def test_it_begins_early_where_the_gpu_can():
    can = ON_GPU and torch.cuda.get_device_capability() >= (9, 0)
    launcher = launcher_over_a_gradient()
    assert launcher.options.get("launch_pdl", False) == launcher.named["EARLY"] == can


@pytest.mark.parametrize(("stride", "kernel"), [(2, "columns_backward_kernel"), (16_909_321, "backward_kernel")])
def test_short_rows_that_reach_farther_than_32_bits_are_no_tile(stride, kernel):
    how = LossOptions(-100, "sum", 0.0, torch.float32)
    layout = ((torch.bfloat16, torch.float32), 2112, 2, stride, 0, (0, 0), 0)
    assert launches._backward_launcher(*layout, how, over=True, again=False).kernel.fn.__name__ == kernel


@needs.gpu
def test_it_reads_what_the_launch_ahead_of_it_has_written_last():
    x, target = logits(64, 50257), classes(64, 50257)
    for _ in range(50):
        upstream = torch.zeros(2**26, device=DEVICE).add_(0.25).sum() / 2**24  # 1, and late
        leaf = x.clone().requires_grad_()
        (gradient,) = torch.autograd.grad(cross_entropy(leaf, target), leaf, upstream / 2)
        torch.testing.assert_close(gradient, torch.autograd.grad(cross_entropy(leaf, target), leaf)[0] / 2)
