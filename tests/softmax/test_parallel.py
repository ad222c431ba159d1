"""helpers.softmax.parallel: rows that lie over several ranks, held against torch on whole rows in float64."""

import itertools

import pytest
import torch
import torch.distributed as dist
import torch.nn.functional as F

from helpers import DEVICE, ranks
from helpers.ranks import running
from helpers.softmax import cross_entropy, parallel
from helpers.softmax.launches import shards

IGNORED = -100
SIZES = ([10, 10, 10], [7, 0, 23], [0, 30, 0])
INF = float("inf")


@pytest.fixture(autouse=True)
def seed():
    torch.manual_seed(0)


def logits(M=6, C=30, dtype=torch.float32):
    x = (4 * torch.randn(M, C, device=DEVICE)).to(dtype)
    x[0, :20] = -INF  # of two of three equal shards nothing is left
    x[1, 3], x[1, 17] = 80, -80
    return x


def targets():
    return torch.tensor([25, 3, IGNORED, 29, 0, 10], device=DEVICE)


def loss_and_gradient(loss_of, x, target, upstream, **options):
    x = x.detach().clone().requires_grad_()
    loss = loss_of(x, target, **options)
    return loss.detach(), torch.autograd.grad(loss, x, upstream.to(loss))[0]


def of_shards(x, sizes, target, cases, group):
    """On one rank, for each case: the loss, and the gradient of the rank's shard."""
    shard = x.split(sizes, 1)[group.rank()]
    return [
        loss_and_gradient(parallel.cross_entropy, shard, target, upstream, group=group, **options)
        for upstream, options in cases
    ]


def run_over(x, sizes, target, cases, inner=""):
    """By case: the losses of all ranks, and the gradient of the whole row."""
    found, _ = running._results(lambda group: of_shards(x, sizes, target, cases, group), (), len(sizes), 20, inner)
    for case in range(len(cases)):
        yield [of_rank[case][0] for of_rank in found], torch.cat([of_rank[case][1] for of_rank in found], 1)


CASES = [
    (torch.linspace(0.5, 3, 6) if reduction == "none" else torch.tensor(2.5), {"reduction": reduction, **more})
    for reduction, more in itertools.product(
        ("none", "sum", "mean"), ({}, {"label_smoothing": 0.1}, {"label_smoothing": 1.0})
    )
]


def assert_right(x, target, cases, found, rtol):
    for (upstream, options), (losses, gradient) in zip(cases, found, strict=True):
        loss, want = loss_and_gradient(F.cross_entropy, x.double(), target, upstream, **options)
        for one in losses:
            torch.testing.assert_close(one, losses[0], rtol=0, atol=0, equal_nan=True)
        torch.testing.assert_close(losses[0].double(), loss, rtol=rtol, atol=rtol, equal_nan=True)
        ignored = (target == options.get("ignore_index", IGNORED))[:, None]
        torch.testing.assert_close(
            gradient.double(), want.masked_fill(ignored, 0), rtol=rtol, atol=rtol, equal_nan=True, msg=str(options)
        )


@pytest.mark.thinned
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.bfloat16, torch.float16], ids=str)
@pytest.mark.parametrize("sizes", SIZES, ids=str)
def test_loss_and_gradient_are_those_of_the_whole_row(sizes, dtype):
    x = logits(dtype=dtype)
    x[0, :20] = x[0, :20].clamp(min=-1000)  # torch's smoothing makes NaN of −inf in some cases: below
    target = targets()
    rtol = {torch.float64: 1e-12, torch.float32: 2e-6}.get(dtype, 2e-2)
    assert_right(x, target, CASES, run_over(x, sizes, target, CASES), rtol)


@pytest.mark.parametrize("inner", ["", "gloo"])
def test_shards_of_only_minus_infinity_have_no_part(inner):
    x, target = logits(), targets()
    cases = [case for case in CASES if "label_smoothing" not in case[1]]
    assert_right(x, target, cases, run_over(x, [10, 10, 10], target, cases, inner), 2e-6)


def test_rows_that_have_no_loss_are_as_torchs():
    x = logits()
    x[3] = -INF
    x[4, 4] = INF
    x[5, 20] = float("nan")
    target = torch.tensor([5, 3, 4, 29, 0, 10], device=DEVICE)  # a target whose logit is −inf, and three rows of NaN
    cases = [(torch.ones(6), {"reduction": "none"})]
    assert_right(x, target, cases, run_over(x, [10, 10, 10], target, cases), 2e-6)


def test_another_index_is_ignored_and_all_may_be():
    x, target = logits(), torch.full((6,), 3, device=DEVICE)
    cases = [(torch.tensor(1.0), {"ignore_index": 3}), (torch.tensor(1.0), {"ignore_index": 3, "reduction": "sum"})]
    (mean, gradient), (total, _) = run_over(x, [10, 10, 10], target, cases)
    assert mean[0].isnan() and total[0] == 0 and not gradient.any()
    target[1] = 4
    assert_right(x, target, cases, run_over(x, [10, 10, 10], target, cases), 2e-6)


@pytest.mark.parametrize("wrong", [30, -1, 2**40])
def test_a_target_of_no_class_makes_its_row_nan(wrong):
    x, target = logits(), targets()
    target[4] = wrong
    ((losses, gradient),) = run_over(x, [10, 10, 10], target, [(torch.ones(6), {"reduction": "none"})])
    assert losses[0].isnan().tolist() == gradient.isnan().any(1).tolist() == [False] * 4 + [True, False]


def test_no_rows_are_a_loss_of_none():
    ((losses, gradient),) = run_over(
        torch.empty(0, 30, device=DEVICE),
        [10, 10, 10],
        torch.empty(0, dtype=torch.int64, device=DEVICE),
        [(torch.tensor(1.0), {})],
    )
    assert losses[0].isnan() and gradient.shape == (0, 30)


@pytest.fixture
def by_kernels(monkeypatch):
    """Kernels also take tensors that are interpreted."""
    for module in (parallel, shards):
        monkeypatch.setattr(module, "by_kernel", lambda x: x.dtype != torch.float64)


@pytest.mark.parametrize("sizes", SIZES, ids=str)
def test_a_loss_by_kernels_is_that_of_the_whole_row(sizes, by_kernels):
    x, target = logits().clamp(min=-1000), targets()
    assert_right(x, target, CASES, run_over(x, sizes, target, CASES), 2e-6)


def test_a_softmax_by_kernels_is_that_of_the_whole_row(by_kernels):
    test_a_softmax_is_that_of_the_whole_row_and_its_gradient(torch.float32)


def test_launches_are_made_once_for_a_layout():
    x, options = torch.randn(4, 32, device=DEVICE), shards.ShardOptions(True)
    launches = shards.launches_of(x, 3, 32, True, options)
    assert shards.launches_of(x + 1, 3, 32, True, shards.ShardOptions(True)) is launches
    others = [(x[:, :31], 3, 32, True, options), (x, 2, 32, True, options), (x, 3, 64, True, options)]
    others += [
        (x, 3, 32, False, options),
        (x, 3, 32, True, options._replace(reduction="sum")),
        (x.half(), 3, 32, True, options),
    ]
    assert all(shards.launches_of(*other) is not launches for other in others)


def test_equal_shards_take_one_collective_of_12_bytes_a_row():
    def loss(shard, target, group):
        return parallel.cross_entropy(shard, target, group=group)

    x, target = logits(), targets()
    seen = ranks.count(loss, *[(shard, target) for shard in x.chunk(3, 1)])
    assert (seen.collectives, seen.sent, seen.received) == (1, 12 * 6 + 12, 2 * (12 * 6 + 12))


def test_shards_whose_first_class_is_named_take_one_collective_also_with_a_gradient():
    x, target, begins = logits(), targets(), [0, 7, 7]

    def loss(shard, group):
        start = begins[group.rank()]
        shard = shard.requires_grad_()
        loss = parallel.cross_entropy(shard, target, group=group, label_smoothing=0.2, start=start)
        loss.backward()
        return loss.detach(), shard.grad

    seen = ranks.count(loss, *x.clamp(min=-1000).split([7, 0, 23], 1))
    assert seen.collectives == 1 and seen.sent == 16 * 6 + 12
    options = {"label_smoothing": 0.2}
    want = loss_and_gradient(F.cross_entropy, x.double().clamp(min=-1000), target, torch.tensor(1.0), **options)
    torch.testing.assert_close(seen.results[0][0].double(), want[0], rtol=2e-6, atol=2e-6)
    torch.testing.assert_close(torch.cat([one[1] for one in seen.results], 1).double(), want[1], rtol=2e-6, atol=2e-6)


def test_first_classes_that_do_not_fit_are_refused_on_all_ranks():
    def loss(shard, group):
        try:
            parallel.cross_entropy(shard, targets().cpu(), group=group, start=8 * group.rank())
        except ValueError as error:
            return str(error)

    (said,) = set(ranks.run(loss, *logits().cpu().split([10, 10, 10], 1)))
    assert said.startswith("the shards have 10, 10, 10 classes, and do not begin where those before them end.")


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.bfloat16], ids=str)
def test_a_softmax_is_that_of_the_whole_row_and_its_gradient(dtype):
    x, dy = logits(dtype=dtype).view(2, 3, 30), torch.randn(2, 3, 30, device=DEVICE).to(dtype)

    def of_shards(group):
        found = []
        for sizes in SIZES:
            shard = x.split(sizes, -1)[group.rank()].clone().requires_grad_()
            y = parallel.softmax(shard, group=group)
            (dx,) = torch.autograd.grad(y, shard, dy.split(sizes, -1)[group.rank()])
            found.append((y, dx))
        return found

    whole = x.double().requires_grad_()
    y = whole.softmax(-1)
    (dx,) = torch.autograd.grad(y, whole, dy.double())
    rtol = {torch.float64: 1e-12, torch.float32: 2e-6}.get(dtype, 1e-2)
    for parts in zip(*ranks.run(of_shards, world=3), strict=True):
        got = [torch.cat(part, -1).double() for part in zip(*parts, strict=True)]
        torch.testing.assert_close(got[0], y.detach(), rtol=rtol, atol=rtol)
        torch.testing.assert_close(got[1], dx, rtol=rtol, atol=rtol)


def test_a_softmax_of_any_dimension_takes_one_collective_of_8_bytes_a_row():
    x = torch.randn(4, 9, 5, device=DEVICE)
    x[0, :, 0], x[1, 2, 1] = -INF, float("nan")
    seen = ranks.count(lambda shard, group: parallel.softmax(shard, 1, group=group), *x.tensor_split(4, 1))
    assert (seen.collectives, seen.sent) == (1, 8 * 20 + 12)
    torch.testing.assert_close(torch.cat(seen.results, 1), x.softmax(1), equal_nan=True)


@pytest.mark.thinned
@pytest.mark.parametrize(
    ("dtype", "cast_to"),
    [
        (torch.float32, torch.bfloat16),
        (torch.bfloat16, torch.bfloat16),
        (torch.bfloat16, torch.float16),
        (torch.float16, torch.float16),
        (torch.float64, torch.bfloat16),
    ],
    ids=str,
)
@pytest.mark.parametrize("options", [{}, {"reduction": "none"}, {"reduction": "sum", "label_smoothing": 0.1}], ids=str)
def test_under_autocast_a_loss_has_the_dtype_of_torch_s_and_its_digits(options, dtype, cast_to):
    x, target = logits(dtype=dtype).clamp(min=-1000), targets()
    upstream = torch.ones(6) if options.get("reduction") == "none" else torch.tensor(1.0)
    with torch.autocast(x.device.type, cast_to):
        assert cross_entropy(x, target, **options).dtype == F.cross_entropy(x, target, **options).dtype

    def by_rank(shard, group):
        with torch.autocast(shard.device.type, cast_to):
            want = F.cross_entropy(x.to(shard.device), target.to(shard.device), **options)
            return want, *loss_and_gradient(parallel.cross_entropy, shard, target, upstream, group=group, **options)

    found = ranks.run(by_rank, *x.split([7, 0, 23], 1))
    for want, loss, gradient in found:
        assert (loss.dtype, gradient.dtype) == (want.dtype, dtype)
        torch.testing.assert_close(loss, want, rtol=2e-6, atol=2e-6)
    whole = [loss for _, loss, _ in found], torch.cat([gradient for *_, gradient in found], 1)
    assert_right(x, target, [(upstream, options)], [whole], 2e-2 if dtype.itemsize == 2 else 2e-6)


def test_under_autocast_a_loss_by_kernels_has_torch_s_dtype_too(by_kernels):
    test_under_autocast_a_loss_has_the_dtype_of_torch_s_and_its_digits({}, torch.bfloat16, torch.bfloat16)


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float16, torch.float64], ids=str)
def test_under_autocast_a_softmax_and_its_gradient_have_the_dtypes_of_torch_s(dtype):
    def of_shards(softmax, x, **how):
        x = x.detach().clone().requires_grad_()
        with torch.autocast(x.device.type, torch.bfloat16):
            y, want = softmax(x, 1, **how), torch.softmax(x, 1)
            return y.dtype == want.dtype and torch.autograd.grad(y.sum(), x)[0].dtype == dtype

    x = logits(dtype=dtype)
    assert ranks.run(lambda shard, group: of_shards(parallel.softmax, shard, group=group), *x.chunk(3, 1)) == [True] * 3


def test_a_group_may_be_a_mesh_of_one_dimension():
    x, target = logits(), targets()

    def by_mesh(shard, group):
        mesh = dist.init_device_mesh(DEVICE.type, (2, 2), mesh_dim_names=("rows", "columns"))["columns"]
        loss = parallel.cross_entropy(shard, target[mesh_rows(group)], group=mesh)
        return parallel.softmax(shard, group=mesh), loss

    def mesh_rows(group):
        return slice(0, 3) if group.rank() < 2 else slice(3, 6)

    shards = [part for rows in x.chunk(2) for part in rows.split([20, 10], 1)]
    found = ranks.run(by_mesh, *shards)
    for first, rows, want in ((0, x[:3], target[:3]), (2, x[3:], target[3:])):
        parts, losses = zip(*found[first : first + 2], strict=True)
        torch.testing.assert_close(torch.cat(parts, 1), rows.softmax(1))
        torch.testing.assert_close(losses[0], F.cross_entropy(rows, want))


def test_a_rank_that_is_no_member_and_a_mesh_of_two_dimensions_are_refused():
    def refused(group):
        x, said = torch.ones(2, 3, device=DEVICE), []
        groups = dist.new_group([0]), dist.DeviceMesh(DEVICE.type, [0]), dist.init_device_mesh(DEVICE.type, (1, 2))
        for one in groups if group.rank() else groups[2:]:
            for call in (parallel.softmax, lambda x, group: parallel.cross_entropy(x, x[:, 0].long(), group=group)):
                with pytest.raises(ValueError) as error:
                    call(x, group=one)
                said.append(str(error.value))
        return said

    no_member = "this rank does not belong to group. Only ranks of the group have shards, and call this."
    mesh = "group is a mesh of 2 dimensions: pass that of the shards, mesh[NAME]."
    assert ranks.run(refused, world=2) == [[mesh] * 2, [no_member] * 4 + [mesh] * 2]


def test_there_is_no_second_derivative():
    def twice(group):
        x, said = torch.randn(2, 3, device=DEVICE, requires_grad=True), []
        for value in (
            parallel.softmax(x, group=group)[0, 0],
            parallel.cross_entropy(x, torch.zeros(2, device=DEVICE).long(), group=group),
        ):
            try:
                torch.autograd.grad(value, x, create_graph=True)
            except RuntimeError as error:
                said.append(str(error))
        return said

    assert ranks.run(twice, world=2) == [["functions of helpers.softmax.parallel have no second derivative."] * 2] * 2


@pytest.mark.parametrize(
    ("error", "said", "change"),
    [
        (TypeError, "logits_shard must be a torch.Tensor; it is a list", {"logits_shard": [1.0]}),
        (
            TypeError,
            "must be float32, bfloat16, float16 or float64; it is torch.int64",
            {"logits_shard": torch.ones(2, 3).long()},
        ),
        (TypeError, "Use target.long", {"target": torch.zeros(2)}),
        (ValueError, "Use logits_shard.flatten", {"logits_shard": torch.ones(2, 3, 4)}),
        (ValueError, "they have \\(2, 3\\) and \\(3,\\)", {"target": torch.zeros(3).long()}),
        (ValueError, "reduction must be one of", {"reduction": "average"}),
        (ValueError, "between 0 and 1; it is 1.5", {"label_smoothing": 1.5}),
        (TypeError, "label_smoothing must be a number", {"label_smoothing": "0.1"}),
        (TypeError, "ignore_index must be an integer; it is 1.5", {"ignore_index": 1.5}),
        (ValueError, "start must not be negative", {"start": -1}),
    ],
)
def test_what_cannot_be_computed_is_refused(error, said, change):
    given = {"logits_shard": torch.ones(2, 3), "target": torch.zeros(2).long(), "group": None} | change
    with pytest.raises(error, match=said):
        parallel.cross_entropy(given.pop("logits_shard"), given.pop("target"), **given)


def test_a_softmax_of_no_such_dimension_is_refused():
    with pytest.raises(ValueError, match="dim must be a dimension of the shard, which has 2; it is 2"):
        parallel.softmax(torch.ones(2, 3), 2, group=None)
