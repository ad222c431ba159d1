"""log_softmax and cross_entropy do what torch's do with everything that torch takes."""

import gc
from importlib import import_module

import pytest
import torch
import torch.nn.functional as F
from torch._subclasses import FakeTensorMode
from torch.autograd import forward_ad
from torch.fx import symbolic_trace
from torch.fx.experimental.proxy_tensor import make_fx

from helpers import DEVICE
from helpers.softmax import cross_entropy, log_softmax, softmax
from watching import Functions, Operations

TARGET = torch.tensor([1, 0, 3], device=DEVICE)
BOTH = {
    "log_softmax": (lambda x: log_softmax(x, -1), lambda x: F.log_softmax(x, -1)),
    "mean": (lambda x: cross_entropy(x, TARGET), lambda x: F.cross_entropy(x, TARGET)),
    "losses": tuple(
        lambda x, loss_of=loss_of: loss_of(x, TARGET, reduction="none", label_smoothing=0.1)
        for loss_of in (cross_entropy, F.cross_entropy)
    ),
}
"""Functions of (3, 5) logits: ours, and torch's."""


@pytest.fixture(autouse=True)
def seed():
    torch.manual_seed(0)
    torch.compiler.reset()


@pytest.fixture(params=BOTH)
def both(request):
    return BOTH[request.param]


def random(*shape):
    return torch.randn(*(shape or (3, 5)), device=DEVICE)


def assert_same(y, want):
    assert type(y) is type(want) and y.dtype == want.dtype and y.device == want.device and y.shape == want.shape
    if not y.is_meta:
        torch.testing.assert_close(y, want)


class Marked(torch.Tensor):
    pass


ELSEWHERE = {
    "a negative bit": lambda: torch.randn(3, 5, dtype=torch.cfloat, device=DEVICE).conj().imag,
    "zeros that are never stored": lambda: torch._efficientzerotensor(3, 5, device=DEVICE),
    "a subclass": lambda: random().as_subclass(Marked),
    "float64": lambda: random().double(),
}


@pytest.mark.parametrize("name", ELSEWHERE)
def test_what_has_no_plain_address_is_torch_s(name, both):
    x = ELSEWHERE[name]()
    assert_same(*(fn(x) for fn in both))


def test_a_tensor_without_memory_has_a_result_without_memory():
    x = torch.empty(3, 5, device="meta")
    assert_same(log_softmax(x), F.log_softmax(x, -1))
    target = torch.empty(3, dtype=torch.int64, device="meta")
    assert_same(cross_entropy(x, target), F.cross_entropy(x, target))
    with FakeTensorMode():
        x, target = random(), torch.zeros(3, dtype=torch.int64, device=DEVICE)
        assert type(log_softmax(x)) is type(cross_entropy(x, target)) is type(x)


@pytest.mark.parametrize("needs_gradient", [False, True])
def test_tangents_are_carried_forward(needs_gradient, both):
    x, tangent = random().requires_grad_(needs_gradient), random()
    with forward_ad.dual_level():
        mine, theirs = (forward_ad.unpack_dual(fn(forward_ad.make_dual(x, tangent))) for fn in both)
        torch.testing.assert_close(mine.tangent, theirs.tangent)


TRANSFORMS = {
    "vmap": lambda fn: lambda x: torch.vmap(fn)(torch.stack([x, 2 * x])),
    "grad": lambda fn: torch.func.grad(lambda x: (fn(x) ** 2).sum()),
    "jvp": lambda fn: lambda x: torch.func.jvp(fn, (x,), (x,))[1],
    "jacrev": torch.func.jacrev,
    "hessian": lambda fn: torch.func.hessian(lambda x: (fn(x) ** 2).sum()),
}


@pytest.mark.parametrize("name", TRANSFORMS)
def test_functions_are_transformed(name, both):
    x = random()
    assert_same(*(TRANSFORMS[name](fn)(x) for fn in both))


@pytest.mark.thinned
@pytest.mark.parametrize("name", ["vmap", "grad", "jvp", "jacrev"])
def test_functions_are_transformed_within_what_is_compiled(name, both):
    x = random()
    mine = torch.compile(TRANSFORMS[name](both[0]), backend="aot_eager")(x)
    torch.testing.assert_close(mine, TRANSFORMS[name](both[1])(x))


def test_modes_that_watch_see_the_operation(both):
    mine, theirs = both
    with Operations() as operations:
        mine(random())
    assert "aten::_log_softmax" in operations.seen
    seen = []
    for fn in (mine, theirs):
        with Functions() as functions:
            fn(random())
        seen.append(functions.seen[-1])
    assert seen[0] is seen[1]


@pytest.mark.filterwarnings("ignore:`torch.jit", "ignore:Converting a tensor to a Python boolean")
@pytest.mark.parametrize(
    "trace",
    [lambda fn: make_fx(fn)(random()), lambda fn: symbolic_trace(fn), lambda fn: torch.jit.trace(fn, random())],
    ids=["make_fx", "symbolic_trace", "torch.jit.trace"],
)
def test_a_trace_holds_the_operation_and_not_its_result(trace, both):
    mine, theirs = both
    traced, x = trace(lambda x: mine(x)), random()
    torch.testing.assert_close(traced(x), theirs(x))


class Loss(torch.nn.Module):
    """The loss of some rows; only the run knows how many."""

    def __init__(self, loss_of, rows_of):
        super().__init__()
        self.loss_of, self.rows_of = loss_of, rows_of

    def forward(self, x, target, counts):
        rows = self.rows_of(counts)
        return self.loss_of(x[rows], target[rows])


ROWS = {"those that count": lambda counts: counts, "the first ones": lambda counts: slice(counts.sum().item())}


@pytest.mark.thinned
@pytest.mark.parametrize("strict", [True, False], ids=["strict", "non-strict"])
@pytest.mark.parametrize("rows", ROWS)
def test_exported_without_a_gradient_it_trains_all_the_same(rows, strict):
    counts, x = torch.tensor([True, False, True], device=DEVICE), random().requires_grad_()
    losses = []
    for loss_of in (F.cross_entropy, cross_entropy):
        try:
            exported = torch.export.export(Loss(loss_of, ROWS[rows]), (random(), TARGET, counts), strict=strict)
        except Exception as refused:
            if loss_of is cross_entropy:
                raise
            pytest.skip(f"this torch cannot export its own: {type(refused).__name__}")
        losses.append(exported.module()(x, TARGET, counts))
    torch.testing.assert_close(*losses)
    torch.testing.assert_close(*(torch.autograd.grad(loss, x) for loss in losses))


def test_an_operator_that_kept_no_pairs_has_no_gradient():
    x = random().requires_grad_()
    loss, _ = torch.ops.softmax_in_triton.cross_entropy(x, TARGET, -100, "mean", 0.0, torch.float32, False)
    with pytest.raises(RuntimeError, match="keeps_pairs"):
        loss.backward()


TARGETS = {
    "zeros that are never stored": lambda: torch._efficientzerotensor(3, dtype=torch.int64, device=DEVICE),
    "a list of one class, for logits without rows": lambda: TARGET[:1],
}


@pytest.mark.parametrize("name", TARGETS)
def test_a_target_that_no_kernel_takes_is_torch_s(name):
    target = TARGETS[name]()
    x = random() if target.shape == (3,) else random(5)
    assert_same(cross_entropy(x, target), F.cross_entropy(x, target))


# Gradients that arrive


def test_gradients_are_batched(both):
    x = random().requires_grad_()
    batch = random(4, *both[1](x).shape)
    assert_same(*(torch.autograd.grad(fn(x), x, batch, is_grads_batched=True)[0] for fn in both))


ARRIVING = {
    "a negative bit": lambda y: torch.complex(torch.randn_like(y), torch.randn_like(y)).conj().imag,
    "zeros that are never stored": lambda y: torch._efficientzerotensor(y.shape, device=y.device),
    "one number, repeated": lambda y: torch.tensor(2.5, device=y.device).expand(y.shape),
    "every second number": lambda y: random(*y.shape, 2)[..., 1],
}


@pytest.mark.thinned
@pytest.mark.parametrize("retain", [False, True])
@pytest.mark.parametrize("name", ARRIVING)
def test_a_gradient_may_arrive_in_any_form(name, retain, both):
    x = random().requires_grad_()
    dy = ARRIVING[name](both[1](x).detach())
    assert_same(*(torch.autograd.grad(fn(x), x, dy, retain_graph=retain)[0] for fn in both))


class _NothingArrives(torch.autograd.Function):
    @staticmethod
    def forward(ctx, y):
        return y.sum()

    @staticmethod
    def backward(ctx, arrived):
        return None


ALL = {"softmax": (lambda x: softmax(x, -1), lambda x: torch.softmax(x, -1)), **BOTH}
"""As BOTH, and softmax."""


@pytest.mark.parametrize("fn", ALL.values(), ids=ALL)
def test_where_no_gradient_arrives_none_is_left(fn):
    x = random().requires_grad_()
    _NothingArrives.apply(fn[0](x)).backward()
    assert x.grad is None


LAID_OUT_ANEW = {
    "transposed": lambda t: t.t().contiguous().t() if t.dim() == 2 else t,
    "with gaps": lambda t: torch.stack([t, t], -1)[..., 0],
    "as a negative view": lambda t: t.neg()._neg_view() if t.is_floating_point() else t,
}


@pytest.mark.thinned
@pytest.mark.parametrize("laid_out", LAID_OUT_ANEW.values(), ids=LAID_OUT_ANEW)
@pytest.mark.parametrize("fn", ALL.values(), ids=ALL)
@pytest.mark.parametrize("compiled", [False, True], ids=["eagerly", "compiled"])
def test_what_was_saved_may_come_back_with_other_strides(compiled, fn, laid_out):
    x = random().requires_grad_()
    mine = torch.compile(fn[0], backend="eager", fullgraph=True) if compiled else fn[0]
    gradients = []
    for one in (mine, fn[1]):
        with torch.autograd.graph.saved_tensors_hooks(lambda t: t, laid_out):
            y = one(x)
        dy = torch.arange(1.0, 1 + y.numel(), device=DEVICE).view(y.shape)
        gradients += torch.autograd.grad(y, x, dy)
    torch.testing.assert_close(*gradients)


@pytest.mark.parametrize("fn", ALL.values(), ids=ALL)
def test_what_a_hook_has_kept_is_not_overwritten(fn):
    kept, x = [], random().requires_grad_()
    with torch.autograd.graph.saved_tensors_hooks(lambda t: kept.append(t) or t, lambda t: t):
        y = fn[0](x)
    before = [t.clone() for t in kept]
    (3 * y).sum().backward()
    assert all(map(torch.equal, kept, before))


@pytest.mark.parametrize("fn", ALL.values(), ids=ALL)
def test_backward_alone_can_be_compiled(fn):
    x = random().requires_grad_()
    with_gradient = [(3 * one(x)).sum() for one in fn]
    want = torch.autograd.grad(with_gradient[1], x)[0]
    by_dynamo = torch.compile(backend="eager", fullgraph=True)
    with torch._dynamo.compiled_autograd._enable(by_dynamo):
        with_gradient[0].backward()
    torch.testing.assert_close(x.grad, want)


@pytest.mark.parametrize("fn", ALL.values(), ids=ALL)
def test_in_inference_mode_nothing_is_recorded(fn):
    with torch.inference_mode(), torch.enable_grad():
        inside = fn[0](random().requires_grad_())
    with torch.inference_mode():
        x = random().requires_grad_()
    assert not inside.requires_grad and not fn[0](x).requires_grad


@pytest.mark.parametrize("shape", [(5,), (3, 5), (2, 5, 3), (2, 5, 3, 2)])
@pytest.mark.parametrize("needs_gradient", [False, True])
def test_losses_are_no_view(shape, needs_gradient):
    x = torch.randn(shape, device=DEVICE, requires_grad=needs_gradient)
    target = torch.zeros(shape[:1] + shape[2:] if len(shape) > 1 else (), dtype=torch.int64, device=DEVICE)
    losses = cross_entropy(x, target, reduction="none")
    assert losses.shape == target.shape and not losses._is_view()
    if needs_gradient:
        dy = torch.rand(target.shape[::-1], device=DEVICE).permute(tuple(range(target.dim()))[::-1])
        want = torch.autograd.grad(F.cross_entropy(x, target, reduction="none"), x, dy)[0]
        torch.testing.assert_close(torch.autograd.grad(losses, x, dy)[0], want)


def test_logits_of_16_bits_are_let_go_where_no_gradient_arrives():
    x = 1 * random().bfloat16().requires_grad_()
    loss = cross_entropy(x, TARGET)
    memory = x.untyped_storage()._weak_ref()
    _NothingArrives.apply(loss).backward()
    del x
    gc.collect()
    assert torch.UntypedStorage._expired(memory)


def test_logits_whose_memory_was_freed_are_not_read():
    leaf = random().bfloat16().requires_grad_()
    x = 1 * leaf
    loss = cross_entropy(x, TARGET)
    x.untyped_storage().resize_(0)
    (2 * loss).backward()
    want = torch.autograd.grad(2 * F.cross_entropy(leaf, TARGET), leaf)[0]
    torch.testing.assert_close(leaf.grad, want, rtol=0.02, atol=1e-6)


def test_any_integer_may_be_ignored():
    numpy = pytest.importorskip("numpy")
    x = random()
    want = F.cross_entropy(x, TARGET, ignore_index=3)
    for ignored in (numpy.int64(3), torch.tensor(3)):
        torch.testing.assert_close(cross_entropy(x, TARGET, ignore_index=ignored), want)


@pytest.mark.parametrize("ignored", [True, 3.0, "3", torch.tensor(3.0)], ids=repr)
def test_only_an_integer_may_be_ignored(ignored):
    with pytest.raises(TypeError, match="ignore_index must be an integer"):
        cross_entropy(random(), TARGET, ignore_index=ignored)


@pytest.mark.parametrize("reduction", ["none", "mean"])
@pytest.mark.parametrize("value", [float("inf"), float("nan")], ids=str)
def test_whatever_arrives_at_an_ignored_row_its_gradient_is_0(value, reduction):
    """As in torch: loss / count of rows without a count, masked afterwards, sends NaN back to them."""
    x, target = random().requires_grad_(), torch.tensor([1, -100, 3], device=DEVICE)
    for loss_of in (cross_entropy, F.cross_entropy):
        loss = loss_of(x, target, reduction=reduction)
        (gradient,) = torch.autograd.grad(loss, x, torch.full_like(loss, value))
        assert not gradient[1].any() and not gradient[::2].isfinite().any()


@pytest.mark.parametrize("value", [float("inf"), float("nan")], ids=str)
def test_what_is_not_finite_reaches_every_element_of_a_row_that_counts(value):
    """A class whose probability is too small for float32 has the gradient 0, and 0 · NaN is NaN."""
    x, target = torch.tensor([[0.0, -200.0, -200.0]], device=DEVICE).requires_grad_(), torch.tensor([0], device=DEVICE)
    for loss_of in (cross_entropy, F.cross_entropy):
        loss = loss_of(x, target)
        assert not torch.autograd.grad(loss, x, torch.full_like(loss, value))[0].isfinite().any()


def test_an_ignored_row_is_0_also_where_what_arrives_has_a_negative_bit():
    x, target = random().requires_grad_(), torch.tensor([1, -100, 3], device=DEVICE)
    for loss_of in (cross_entropy, F.cross_entropy):
        loss = loss_of(x, target)
        (gradient,) = torch.autograd.grad(loss, x, torch._neg_view(torch.full_like(loss, float("nan"))))
        assert not gradient[1].any() and gradient[::2].isnan().all()


# Arguments


@pytest.mark.parametrize("dim", [1.0, True, "1", 2, -3], ids=repr)
def test_errors_of_log_softmax_are_of_torch_s_class(dim):
    for x in (random(), random().double(), torch.ones(3, 5, dtype=torch.int64, device=DEVICE)):
        with pytest.raises(Exception) as theirs:
            F.log_softmax(x, dim)
        with pytest.raises(theirs.type):
            log_softmax(x, dim)


def test_a_dimension_of_one_has_torch_s_stride():
    x = random(6)[::3, None][:1]
    assert log_softmax(x).stride() == F.log_softmax(x, -1).stride() != x.stride()


# Over the logits


@pytest.mark.parametrize("view", [lambda x: x.view(-1, 5), lambda x: x[:, 1:]], ids=["view", "slice"])
def test_a_view_of_a_leaf_is_not_overwritten(view):
    leaf = random().requires_grad_()
    with pytest.raises(ValueError, match="overwrite a leaf"):
        cross_entropy(view(leaf), TARGET, inplace=True)


def test_a_launch_compiled_for_another_alignment_of_the_gradient_is_not_taken(monkeypatch):
    """A kernel that stores vectors of 16 bytes would store them where none can begin."""
    module = import_module("helpers.softmax.launches.losses")
    monkeypatch.setattr(module, "_launchers", {})
    module._backward_launcher.cache_clear()
    leaf = random(3, 80).requires_grad_()
    for inplace in (False, True):
        logits = (1 * leaf)[:, 1:65]
        torch.autograd.grad(2 * cross_entropy(logits, TARGET, inplace=inplace), leaf)
    assert len(module._launchers) == module._backward_launcher.cache_info().currsize == 2


@pytest.mark.parametrize(("rows", "ours"), [(2**31 - 1, True), (2**31, False)])
def test_more_rows_than_32_bits_count_are_torch_s(rows, ours):
    logits, target = torch.zeros(1, 2, device=DEVICE), torch.zeros(1, dtype=torch.int64, device=DEVICE)
    module = import_module("helpers.softmax.cross_entropy")
    assert module._is_ours(logits.expand(rows, 2), target.expand(rows)) == ours


# Rows that depend on data, in one graph


def with_gradient_of(fn, logits, target):
    logits = logits.detach().requires_grad_()
    loss = fn(logits, target)
    return loss.detach(), torch.autograd.grad(loss.sum(), logits)[0]


BY_MASK = {
    "a mask": lambda logits, target: (logits[target != -100], target[target != -100]),
    "places": lambda logits, target: tuple(
        x.index_select(0, (target != -100).nonzero()[:, 0]) for x in (logits, target)
    ),
    "columns of a mask": lambda logits, target: (logits.T[:, target != -100].T, target[target != -100]),
}


@pytest.mark.thinned
@pytest.mark.parametrize("options", [{}, {"reduction": "sum", "label_smoothing": 0.1}, {"reduction": "none"}], ids=str)
@pytest.mark.parametrize("kept", BY_MASK)
def test_rows_may_be_dropped_before_the_loss_in_one_graph(kept, options):
    def dropping(loss_of):
        return lambda logits, target: loss_of(*BY_MASK[kept](logits, target), **options)

    compiled = torch.compile(dropping(cross_entropy), backend="aot_eager", fullgraph=True)
    for target in ([0, -100, 2, -100, 4, 5], [-100] * 6, [3] + [-100] * 5, [1] * 6):
        arguments = random(6, 9), torch.tensor(target, device=DEVICE)
        mine, theirs = (with_gradient_of(fn, *arguments) for fn in (compiled, dropping(F.cross_entropy)))
        torch.testing.assert_close(mine, theirs, equal_nan=True)


def test_rows_that_depend_on_data_are_not_torch_s():
    seen = []

    def keep(graph, _):
        seen.extend(str(node.target) for node in graph.graph.nodes)
        return graph

    torch.compile(
        lambda logits, target: cross_entropy(logits[target > 0], target[target > 0]), backend=keep, fullgraph=True
    )(random(), TARGET)
    assert any("softmax_in_triton" in name for name in seen)


def test_rows_that_differ_from_the_targets_are_found_when_the_graph_runs():
    compiled = torch.compile(
        lambda logits, target, kept: cross_entropy(logits[kept], target[target > 0]), backend="eager", fullgraph=True
    )
    # torch 2.11 finds it before our operator runs.
    with pytest.raises(RuntimeError, match="logits and target have different numbers of rows|for expression Eq"):
        compiled(random(), TARGET, TARGET >= 0)


WITH_TARGETS = {
    "softmax": lambda softmax, _, __: lambda x, target: softmax(x, -1),
    "log_softmax": lambda _, log_softmax, __: lambda x, target: log_softmax(x, -1),
    "mean": lambda _, __, loss_of: lambda x, target: loss_of(x, target),
    "losses": lambda _, __, loss_of: lambda x, target: loss_of(x, target, reduction="none", label_smoothing=0.1),
}


@pytest.mark.thinned
@pytest.mark.parametrize("mark", ["mark_unbacked", "mark_dynamic"])
@pytest.mark.parametrize("name", WITH_TARGETS)
def test_a_number_of_rows_may_be_marked_as_unknown(name, mark):
    mine = WITH_TARGETS[name](softmax, log_softmax, cross_entropy)
    theirs = WITH_TARGETS[name](F.softmax, F.log_softmax, F.cross_entropy)
    x, target = random(), TARGET.clone()
    for tensor in (x, target):
        getattr(torch._dynamo.decorators, mark)(tensor, 0)
    torch.testing.assert_close(torch.compile(mine, backend="eager", fullgraph=True)(x, target), theirs(x, target))


def test_classes_whose_number_depends_on_data_are_torch_s():
    def narrowed(loss_of):
        def fn(logits, target):
            classes = (target >= 0).sum().item()
            torch._check(classes <= 5)
            return loss_of(logits[:, :classes], target.clamp(max=0))

        return fn

    with torch._dynamo.config.patch(capture_scalar_outputs=True):
        compiled = torch.compile(narrowed(cross_entropy), backend="aot_eager", fullgraph=True)
        x = random()
        torch.testing.assert_close(compiled(x, TARGET), narrowed(F.cross_entropy)(x, TARGET))
