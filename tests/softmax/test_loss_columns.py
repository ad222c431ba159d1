"""Losses of classes that others lie behind, such as the channels of an image: as torch has them, in one read and one
write, and when they are taken so."""

import itertools
import re
from importlib import import_module

import pytest
import torch
import torch.nn.functional as F

import needs
from helpers import DEVICE, traffic
from helpers.engine import child, compiled
from helpers.softmax import cross_entropy
from helpers.softmax.kernels.loss_columns import cross_entropy_columns_kernel
from helpers.softmax.launches import mailbox
from helpers.softmax.launches.launch import on_stream
from helpers.softmax.launches.losses import columns_of, loss_columns_launcher
from helpers.softmax.plans.losses import ColumnTiles, LossOptions, loss_columns_plan
from losses import IGNORED, assert_agrees, error, logits, with_gradient

MANY_TARGETS = 2**18 + 2
"""Of so many a program counts those that it reads, unless it writes a gradient."""

launches = import_module("helpers.softmax.launches.losses")
DTYPES = (torch.float32, torch.bfloat16, torch.float16)


@pytest.fixture(autouse=True)
def seed():
    torch.manual_seed(0)


def targets_of(x):
    """Targets, the third of which is to be ignored."""
    target = torch.randint(0, x.shape[1], x.shape[:1] + x.shape[2:], device=DEVICE)
    target.view(-1)[2::3] = IGNORED
    return target


def inputs(*shape, dtype=torch.float32):
    x = logits(*shape, dtype=dtype)
    return x, targets_of(x)


# Right


@pytest.mark.thinned
@pytest.mark.parametrize("dtype", DTYPES, ids=str)
@pytest.mark.parametrize("N", [2, 3, 5, 9, 21, 33, 150, 1000])
@pytest.mark.parametrize("places", [(48,), (9, 7)], ids=str)
def test_agrees_with_float64_at_every_number_of_classes(N, places, dtype):
    assert_agrees(*inputs(2, N, *places, dtype=dtype))


@pytest.mark.thinned
@pytest.mark.parametrize("label_smoothing", [0.0, 0.1, 1.0])
@pytest.mark.parametrize("reduction", ["none", "sum", "mean"])
@pytest.mark.parametrize("N", [5, 150])
def test_takes_every_reduction_and_any_smoothing(N, reduction, label_smoothing):
    assert_agrees(*inputs(2, N, 40), reduction=reduction, label_smoothing=label_smoothing)


@pytest.mark.thinned
@pytest.mark.parametrize("dtype", DTYPES, ids=str)
@pytest.mark.parametrize("reduction", ["none", "sum", "mean"])
@pytest.mark.parametrize("label_smoothing", [0.0, 0.1])
def test_the_gradient_is_multiplied_by_what_arrives(reduction, label_smoothing, dtype):
    x, target = inputs(2, 21, 5, 8, dtype=dtype)
    upstream = torch.tensor(0.3, device=DEVICE)
    if reduction == "none":
        upstream = torch.arange(80.0, device=DEVICE).view(target.shape) / 16
    assert_agrees(x, target, upstream, reduction=reduction, label_smoothing=label_smoothing)


def test_one_number_for_all_losses_may_arrive():
    x, target = inputs(2, 5, 40)
    x.requires_grad_()
    (got,) = torch.autograd.grad(cross_entropy(x, target, reduction="none").sum(), x)
    (want,) = torch.autograd.grad(F.cross_entropy(x, target, reduction="none").sum(), x)
    torch.testing.assert_close(got, want)


def test_of_one_class_it_is_0_but_for_rounding():
    _, gradient = with_gradient(cross_entropy, *inputs(2, 1, 40), label_smoothing=0.1)
    assert gradient.abs().max() <= torch.finfo(torch.float32).eps


@pytest.mark.parametrize("scaled", [False, True])
def test_special_values_are_those_of_torch(scaled):
    inf = float("inf")
    x, target = logits(1, 5, 40), torch.full((1, 40), 1, device=DEVICE)
    x[0, 3, 1], x[0, 4, 2], x[0, :, 3], x[0, 1, 4], x[0, 1:, 5] = float("nan"), inf, -inf, -inf, -inf
    upstream = torch.full((1, 40), 2.0, device=DEVICE) if scaled else None
    ours = with_gradient(cross_entropy, x, target, upstream, reduction="none")
    torchs = with_gradient(F.cross_entropy, x.double(), target, upstream, reduction="none")
    for got, want in zip(ours, torchs, strict=True):
        torch.testing.assert_close(got, want.float(), equal_nan=True, rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("upstream", [1.0, 3.0, float("inf")])
def test_an_ignored_column_has_no_part_in_anything_even_if_it_holds_nan(upstream):
    x, target = inputs(1, 5, 40)
    x[0, :, 2] = float("nan")
    assert target[0, 2] == IGNORED
    loss, gradient = with_gradient(cross_entropy, x, target, torch.tensor(upstream, device=DEVICE))
    assert loss.isfinite() and not gradient[0, :, 2].any()
    assert upstream == float("inf") or gradient.isfinite().all()


@pytest.mark.thinned
@pytest.mark.parametrize("wrong", [5, 8, -1, 2**40])
@pytest.mark.parametrize("upstream", [1.0, 3.0])
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16], ids=str)
def test_a_target_that_is_no_class_makes_its_column_nan_and_no_other(wrong, upstream, dtype):
    x, target = inputs(1, 5, 40, dtype=dtype)
    target[0, 7] = wrong
    upstream = torch.full((1, 40), upstream, device=DEVICE)
    loss, gradient = with_gradient(cross_entropy, x, target, upstream, reduction="none")
    assert loss.isnan().nonzero().tolist() == [[0, 7]]
    assert gradient.isnan().any(dim=1).nonzero().tolist() == [[0, 7]] and gradient[0, :, 7].isnan().all()


def test_a_class_may_be_the_one_that_is_ignored():
    x = logits(2, 5, 40)
    assert_agrees(x, torch.randint(0, 5, (2, 40), device=DEVICE), ignore_index=2)


def test_where_all_columns_are_ignored_the_mean_is_nan_and_the_gradient_0():
    x, target = inputs(2, 5, 40)
    loss, gradient = with_gradient(cross_entropy, x, torch.full_like(target, IGNORED))
    assert loss.isnan() and not gradient.any()


def test_it_is_the_same_from_run_to_run():
    x, target = inputs(3, 21, 300)
    runs = [with_gradient(cross_entropy, x, target) for _ in range(3)]
    assert all(torch.equal(a, b) for run in runs[1:] for a, b in zip(run, runs[0], strict=True))


def test_it_is_known_to_torch_compile():
    x, target = inputs(2, 5, 4, 10, dtype=torch.bfloat16)
    compiled = torch.compile(lambda x, target: cross_entropy(x, target), backend="aot_eager", fullgraph=True)
    _, gradient = with_gradient(compiled, x, target)
    assert error(gradient, with_gradient(F.cross_entropy, x.double(), target)[1]) < 4e-3


# Layouts


@pytest.mark.thinned
@pytest.mark.parametrize(
    "layout",
    [
        lambda: logits(2, 8, 6, 7)[:, 1:6],
        lambda: logits(5, 2, 6, 7).transpose(0, 1),
        lambda: logits(2, 5, 42).view(2, 5, 6, 7),
        lambda: logits(4, 5, 6, 7)[::2],
        lambda: logits(1, 5, 6, 7).expand(2, -1, -1, -1),
        lambda: logits(2, 5, 6, 9)[..., 1:8],
        lambda: logits(2, 6, 7, 5).permute(0, 3, 1, 2),
        lambda: logits(2, 1, 6, 7).expand(-1, 5, -1, -1),
    ],
    ids=["some channels", "images within channels", "contiguous", "every second image", "one image, repeated",
         "a part of each line", "channels last", "one channel, repeated"],
)  # fmt: skip
@pytest.mark.parametrize("upstream", [1.0, 3.0])
def test_takes_every_layout(layout, upstream):
    x = layout().detach().requires_grad_()
    target = targets_of(x)
    loss = cross_entropy(x, target)
    (gradient,) = torch.autograd.grad(upstream * loss, x)
    want, right = with_gradient(F.cross_entropy, x, target, torch.tensor(upstream, device=DEVICE))
    torch.testing.assert_close(loss, want)
    torch.testing.assert_close(gradient, right)


def test_the_gradient_is_as_contiguous_as_torch_s():
    _, gradient = with_gradient(cross_entropy, *inputs(2, 5, 6, 7))
    assert gradient.is_contiguous()


@pytest.mark.parametrize(
    ("x", "taken"),
    [
        (torch.empty(2, 5, 6, 7), (2, 5, 42)),
        (torch.empty(2, 5, 6), (2, 5, 6)),
        (torch.empty(2, 8, 6, 7)[:, 1:6], (2, 5, 42)),
        (torch.empty(5, 2, 6, 7).transpose(0, 1), (2, 5, 42)),
        (torch.empty(2, 2048, 6), (2, 2048, 6)),
        # Rows, whether or not they have to be copied: nothing behind a class, channels last, gaps, too many classes.
        (torch.empty(2, 5), None),
        (torch.empty(2, 5, 1, 1), None),
        (torch.empty(2, 6, 7, 5).permute(0, 3, 1, 2), None),
        (torch.empty(2, 5, 6, 9)[..., 1:8], None),
        (torch.empty(2, 2049, 6), None),
        # What overlaps, and what lies too far apart for places of 32 bits.
        (torch.empty(2, 1, 6).expand(-1, 5, -1), None),
        (torch.empty(1, 5, 6).expand(2, -1, -1), None),
        (torch.empty(1, device="meta").as_strided((1, 5, 6), (1, 2**28, 1)), None),
    ],
)
def test_columns(x, taken):
    columns = columns_of(x)
    assert (None if columns is None else tuple(columns.shape)) == taken
    assert columns is None or columns.data_ptr() == x.data_ptr()


# Over the logits


@pytest.mark.thinned
@pytest.mark.parametrize("dtype", DTYPES, ids=str)
@pytest.mark.parametrize("upstream", [1.0, 3.0])
@pytest.mark.parametrize("N", [5, 150])
def test_inplace_the_gradient_is_written_over_the_logits(N, upstream, dtype):
    x, target = inputs(2, N, 6, 8, dtype=dtype)
    leaf, upstream = x.clone().requires_grad_(), torch.tensor(upstream, device=DEVICE)
    hidden = 1 * leaf
    (gradient,) = torch.autograd.grad(cross_entropy(hidden, target, inplace=True), hidden, upstream.to(dtype))
    _, right = with_gradient(F.cross_entropy, x.double(), target, upstream)
    assert error(gradient, right) < 8 * torch.finfo(dtype).eps
    assert gradient.data_ptr() == hidden.data_ptr()


def ptx_with_gradient():
    """In a process that compiles: PTX of a gradient of 150 classes, whose columns lie in four warps."""
    launch = loss_columns_launcher(
        torch.empty(8, 150, 4096, device="meta"), LossOptions(IGNORED, "sum", 0.0, torch.float32), (150 * 4096, 4096, 1)
    )
    kernel = cross_entropy_columns_kernel
    kinds = ["*fp32", "*fp32", "*fp32", "*i64", "*i64", "*i64", *["i32"] * 10]
    signature = dict(zip(kernel.arg_names, kinds, strict=False))
    constants = {name: value for name, value in launch.named.items() if name not in signature}
    signature |= dict.fromkeys(constants, "constexpr")
    what = kernel, signature, constants, tuple(range(11))
    return compiled.compile_without_launch(*what, "sm_90", launch.options).asm["ptx"]


def test_inplace_the_warps_meet_before_a_logit_is_written_over_and_before_the_target_s_is_written_again():
    blocks = child.call(ptx_with_gradient, interpret=False).split(".entry")[1].split("$L__BB")
    (writing,) = (block for block in blocks if "st.global.v2" in block)
    steps = re.findall(r"bar\.sync|ld\.global|st\.global\.\w+", writing)
    assert [step for step, _ in itertools.groupby(steps)] == ["bar.sync", "st.global.v2", "bar.sync", "st.global.b32"]


@needs.gpu
@pytest.mark.parametrize("dtype", DTYPES, ids=str)
@pytest.mark.parametrize("N", [150, 1000, 2000], ids=["4 warps", "8 warps", "16 warps"])
def test_inplace_the_debug_barriers_hold_on_a_gpu(N, dtype):
    """Without the first, a target's logit may be read when the gradient is written over it; without the second, the
    gradient at a target may be overwritten by that of its tile."""
    x, target = inputs(8, N, 4096, dtype=dtype)
    _, right = with_gradient(F.cross_entropy, x.double(), target, reduction="sum")
    at_targets = target.clamp(min=0).unsqueeze(1)
    for _ in range(50):
        hidden = 1 * x.clone().requires_grad_()
        (gradient,) = torch.autograd.grad(cross_entropy(hidden, target, reduction="sum", inplace=True), hidden)
        found, wanted = gradient.gather(1, at_targets), right.gather(1, at_targets)
        assert (found.double() - wanted).abs().max() < 8 * torch.finfo(dtype).eps


# Bytes and launches


def launched(x, target, chosen, grad=True, reduction="mean", looks=4096, into=None):
    """The loss, the gradient and how many targets count, of (OUTER, N, INNER) logits."""
    gradient = torch.full_like(x, 7) if into is None else into
    how, strides = LossOptions(IGNORED, reduction, 0.0, torch.float32), gradient.stride() if grad else None
    launch = loss_columns_launcher(x, how, strides, True, chosen, looks)
    loss = torch.full((), -1.0, device=DEVICE)
    count = torch.zeros(1, dtype=torch.int64, device=DEVICE)
    on_stream(x, launch, (gradient, loss, x, target, count), mailbox.fresh)
    return loss, gradient, count


@needs.interpreter
@pytest.mark.parametrize("grad", [False, True])
def test_each_logit_is_read_once_and_its_gradient_written_once(grad):
    x, target = inputs(1, 200, 160)
    chosen = ColumnTiles(32, 256, 4, 128, 2)
    counted = traffic.count(lambda x: launched(x, target, chosen, grad, into=x), x)
    # Besides: a target's logit and its gradient once more, the targets twice, and words.
    assert 1 <= counted.loads / x.numel() < 1.03 and grad <= counted.stores / x.numel() < grad + 0.01


@pytest.mark.thinned
@pytest.mark.parametrize("programs", [1, 2, 5, 100])
@pytest.mark.parametrize("looks", [0, 4096])
def test_any_number_of_programs_share_the_tiles(programs, looks):
    x, target = inputs(3, 21, 160)
    loss, gradient, count = launched(x, target, ColumnTiles(16, 32, 1, 128, programs), looks=looks)
    want, right = with_gradient(F.cross_entropy, x.double(), target)
    torch.testing.assert_close(loss.double(), want, rtol=2e-6, atol=0)
    torch.testing.assert_close(gradient.double(), right, rtol=1e-5, atol=2e-8)
    assert torch.tensor([count.item() & 0xFFFFFFFF]).int().view(torch.float32).item() == (target != IGNORED).sum()


def test_of_very_many_columns_each_program_counts_its_own_targets():
    x, target = inputs(1, 2, MANY_TARGETS)
    loss, _, count = launched(x, target, ColumnTiles(4096, 2, 4, 128, 7), grad=False)
    want, _ = with_gradient(F.cross_entropy, x.double(), target)
    torch.testing.assert_close(loss.double(), want, rtol=2e-6, atol=0)
    assert torch.tensor([count.item() & 0xFFFFFFFF]).int().view(torch.float32).item() == (target != IGNORED).sum()


@needs.interpreter
def test_of_very_many_columns_each_target_is_read_once():
    x, target = inputs(1, 2, MANY_TARGETS)
    counted = traffic.count(lambda x: launched(x, target, ColumnTiles(4096, 2, 4, 128, 7), grad=False), x)
    launch = next(one for one in counted.operations if one.name == "cross_entropy_columns_kernel")
    # A target and two logits of each column, that of the target again where it counts; and words.
    assert 0 <= launch.loads - 3 * MANY_TARGETS - (target != IGNORED).sum() < 100


def test_what_is_compiled_for_one_dtype_is_not_launched_for_another():
    launches.columns_backward_launcher.cache_clear()
    for dtype in DTYPES:
        hidden = 1 * logits(2, 5, 40, dtype=dtype).requires_grad_()
        torch.autograd.grad(cross_entropy(hidden, targets_of(hidden)), hidden)
    assert launches.columns_backward_launcher.cache_info().currsize == len(DTYPES)


@pytest.mark.parametrize(
    ("shape", "plan"),
    [
        # A thread has all classes of two neighbours: 8 elements at least, and 64 at most.
        ((8, 2, 2**18), ColumnTiles(512, 2, 4, 64, 132 * 8)),
        ((8, 5, 2**18), ColumnTiles(256, 8, 4, 64, 132 * 8)),
        ((8, 9, 2**18), ColumnTiles(256, 16, 4, 64, 132 * 8)),
        ((8, 21, 2**18), ColumnTiles(256, 32, 4, 128, 132 * 4)),
        ((8, 150, 2**14), ColumnTiles(32, 256, 4, 128, 132 * 4)),
        # Sixteen neighbours at least, of more warps where there are many classes.
        ((4, 1000, 3136), ColumnTiles(16, 1024, 8, 128, 132 * 2)),
        ((4, 2000, 3136), ColumnTiles(16, 2048, 16, 128, 132)),
        # Fewer where there are few tiles, or few neighbours.
        ((1, 21, 2**16), ColumnTiles(64, 32, 1, 128, 132 * 16)),
        ((1, 21, 2**12), ColumnTiles(16, 32, 1, 128, 132 * 16)),
        ((2**12, 1000, 4), ColumnTiles(4, 1024, 2, 128, 132 * 8)),
    ],
    ids=str,
)
def test_plan(shape, plan):
    assert loss_columns_plan(*shape) == plan
