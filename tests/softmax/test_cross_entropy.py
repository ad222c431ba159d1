"""helpers.softmax.cross_entropy: the loss and its gradient as torch has them, each logit read once and written once."""

import pytest
import torch
import torch.nn.functional as F

import needs
from helpers import DEVICE, ON_GPU, traffic
from helpers.engine import child, compiled
from helpers.softmax import cross_entropy
from helpers.softmax.kernels.loss_rows import cross_entropy_kernel
from helpers.softmax.launches import mailbox
from helpers.softmax.launches.losses import loss_launcher
from helpers.softmax.plans.losses import MOST_IN_A_GROUP, LossOptions
from losses import IGNORED, assert_agrees, classes, logits, with_gradient

DTYPES = (torch.float32, torch.bfloat16, torch.float16)
LENGTHS = (1, 2, 7, 33, 781, 1001, 3001, 9000, 9001)
VOCABULARIES = (32000, 50257, 128256, 151936, 262144)


@pytest.fixture(autouse=True)
def seed():
    torch.manual_seed(0)


# Right


@pytest.mark.thinned
@pytest.mark.parametrize("dtype", DTYPES, ids=str)
@pytest.mark.parametrize("V", LENGTHS)
def test_agrees_with_float64_at_every_length(V, dtype):
    assert_agrees(logits(4, V, dtype=dtype), classes(4, V))


@pytest.mark.thinned
@pytest.mark.parametrize("V", [5, 1001, 9001])
@pytest.mark.parametrize("label_smoothing", [0.0, 0.1, 1.0])
@pytest.mark.parametrize("reduction", ["none", "sum", "mean"])
def test_takes_every_reduction_and_any_smoothing(reduction, label_smoothing, V):
    assert_agrees(logits(4, V), classes(4, V), reduction=reduction, label_smoothing=label_smoothing)


@pytest.mark.thinned
@pytest.mark.parametrize("V", [5, 1001, 4097, 9001])
@pytest.mark.parametrize("shared", [1e4, -1e4, 1e36])
def test_smoothing_loses_no_digits_to_what_all_logits_share(shared, V):
    assert_agrees(logits(4, V) + shared, classes(4, V), label_smoothing=0.1)


@pytest.mark.thinned(0)
@pytest.mark.parametrize("dtype", DTYPES, ids=str)
@pytest.mark.parametrize("V", VOCABULARIES)
def test_agrees_with_float64_at_the_lengths_of_vocabularies(V, dtype):
    for M in (1, 3, 700) if ON_GPU else (1,):
        assert_agrees(logits(M, V, dtype=dtype), classes(M, V))


@pytest.mark.parametrize("V", [7, 9001])
def test_the_target_may_be_any_column(V):
    columns = sorted({0, 1, 3, 6, V // 2, V - 2, V - 1})
    x = logits(len(columns), V)
    assert_agrees(x, torch.tensor(columns, device=DEVICE))


@pytest.mark.thinned(0)
@pytest.mark.parametrize("M", [257, 256, 520, pytest.param(2 * MOST_IN_A_GROUP + 1, marks=needs.gpu)])
def test_a_mean_divides_by_the_targets_that_count_however_many_rows_there_are(M):
    assert_agrees(logits(M, 3), classes(M, 3))


@pytest.mark.parametrize("ignore_index", [0, 1, 16, -1, 10**6], ids=str)
def test_any_class_may_be_the_one_that_is_ignored(ignore_index):
    target = torch.tensor([0, 1, 16, 5], device=DEVICE)
    assert_agrees(logits(4, 17), target, ignore_index=ignore_index)


@pytest.mark.thinned
@pytest.mark.parametrize("shape", [(5,), (2, 5, 3), (2, 5, 3, 2), (0, 5)], ids=str)
@pytest.mark.parametrize("reduction", ["none", "sum", "mean"])
@pytest.mark.filterwarnings("ignore:Mean of empty slice")
def test_classes_lie_in_the_second_dimension_as_in_torch(shape, reduction):
    x = logits(*shape)
    target = torch.randint(0, 5, shape[:1] + shape[2:] if len(shape) > 1 else (), device=DEVICE)
    ours, torchs = (with_gradient(f, x, target, reduction=reduction) for f in (cross_entropy, F.cross_entropy))
    for got, want in zip(ours, torchs, strict=True):
        torch.testing.assert_close(got, want, equal_nan=True)


@pytest.mark.thinned(1)
@pytest.mark.parametrize(
    "view",
    [lambda x: x[:, :40], lambda x: x[:, 1:42], lambda x: x.t(), lambda x: x[::2], lambda x: x[:1].expand(6, -1)],
    ids=["a padded vocabulary", "an odd address", "transposed", "every second row", "one row, repeated"],
)
def test_takes_every_layout(view):
    x = view(logits(64, 64))
    assert_agrees(x, classes(*x.shape))


@pytest.mark.thinned(2)
@pytest.mark.parametrize("label_smoothing", [0.0, 0.1])
@pytest.mark.parametrize("V", [5, 1001, 9001])
def test_special_values_are_those_of_torch(V, label_smoothing):
    inf, nan = float("inf"), float("nan")
    x = logits(7, V)
    x[0], x[1, 0], x[2, 1], x[3, 1:], x[4, 2:], x[5] = -inf, inf, nan, -inf, -inf, torch.finfo(torch.float32).min
    target = torch.tensor([0, 1, 1, 0, 3, 1, 2], device=DEVICE)
    options = {"reduction": "none", "label_smoothing": label_smoothing}
    ours = with_gradient(cross_entropy, x, target, **options)
    for got, want in zip(ours, with_gradient(F.cross_entropy, x.double(), target, **options), strict=True):
        torch.testing.assert_close(got, want.float(), equal_nan=True, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("V", [5, 9001])
def test_an_ignored_row_has_no_part_in_anything_even_if_it_holds_nan(V):
    x = logits(3, V)
    x[1] = float("nan")
    target = torch.tensor([1, IGNORED, 2], device=DEVICE)
    loss, gradient = with_gradient(cross_entropy, x, target)
    want, _ = with_gradient(F.cross_entropy, x[::2], target[::2])
    torch.testing.assert_close(loss, want)
    assert not gradient[1].any() and gradient[::2].isfinite().all()


@pytest.mark.parametrize("V", [5, 9001])
def test_where_all_rows_are_ignored_the_sum_is_0_and_the_mean_is_nan(V):
    x, target = logits(3, V), torch.full((3,), IGNORED, device=DEVICE)
    for reduction, want in (("sum", 0.0), ("mean", float("nan"))):
        loss, gradient = with_gradient(cross_entropy, x, target, reduction=reduction)
        torch.testing.assert_close(loss.item(), want, equal_nan=True)
        assert not gradient.any()


@pytest.mark.thinned(2)
@pytest.mark.parametrize("V", [5, 1001, 9001])
@pytest.mark.parametrize("wrong", [-1, "V", 2**40, -(2**40)], ids=str)
def test_a_target_that_is_no_class_makes_its_row_nan_and_no_other(wrong, V):
    x, target = logits(3, V), torch.tensor([1, V if wrong == "V" else wrong, 2], device=DEVICE)
    loss, gradient = with_gradient(cross_entropy, x, target, reduction="none")
    assert loss.isnan().tolist() == [False, True, False]
    assert gradient.isnan().all(dim=1).tolist() == [False, True, False] and gradient[::2].isfinite().all()


@pytest.mark.thinned(0)
def test_a_buffer_that_is_used_up_is_zeroed_for_the_next_launch(monkeypatch):
    monkeypatch.setattr(mailbox, "_WORDS", 4)
    x, target = logits(257, 3), classes(257, 3)
    for _ in range(3):
        assert_agrees(x, target)


@needs.gpu
def test_is_the_same_from_run_to_run():
    for V in (781, 50257, 262144):
        x, target = logits(600, V, dtype=torch.bfloat16), classes(600, V)
        loss, gradient = with_gradient(cross_entropy, x, target)
        for _ in range(20):
            again = with_gradient(cross_entropy, x, target)
            assert torch.equal(again[0], loss) and torch.equal(again[1], gradient)


# One read, one write


def trips(run, x):
    """Loads and stores for each logit; all that is read besides is less than a few percent of a long row."""
    counted = traffic.count(run, x)
    return counted.loads / x.numel(), counted.stores / x.numel()


@needs.interpreter
@pytest.mark.parametrize("reduction", ["none", "sum", "mean"])
@pytest.mark.parametrize("V", [3000, 3001])
def test_a_row_of_one_program_is_read_once_and_its_gradient_written_once(V, reduction):
    x, target = logits(4, V, dtype=torch.bfloat16).requires_grad_(), torch.randint(0, V, (4,), device=DEVICE)
    loads, stores = trips(lambda x: cross_entropy(x, target, reduction=reduction), x)
    assert 1 <= loads < 1.01 and 1 <= stores < 1.01


@needs.interpreter
@pytest.mark.parametrize("V", [3000, 9001])
def test_without_a_gradient_nothing_of_its_size_is_written(V):
    x, target = logits(4, V), torch.randint(0, V, (4,), device=DEVICE)
    loads, stores = trips(lambda x: cross_entropy(x, target), x)
    assert stores < 0.02 and loads < 2.2  # in the interpreter, the first program of a row reads for all of them


@needs.interpreter
def test_rows_that_are_ignored_are_read_once_and_do_not_wait_for_each_other():
    x, target = logits(8, 3000).requires_grad_(), torch.full((8,), IGNORED, device=DEVICE)
    loads, stores = trips(lambda x: cross_entropy(x, target), x)
    assert 1 <= loads < 1.01 and 1 <= stores < 1.01


# What torch does with an operation


def test_a_second_derivative_is_refused():
    x, target = logits(3, 5).requires_grad_(), classes(3, 5)
    with pytest.raises(RuntimeError, match="no second derivative"):
        torch.autograd.grad(cross_entropy(x, target), x, create_graph=True)


@pytest.mark.parametrize("V", [40, 9001])
def test_inplace_the_gradient_lies_where_the_logits_were(V):
    x, target = logits(4, V), classes(4, V)
    _, want = with_gradient(cross_entropy, x, target)
    leaf = x.clone().requires_grad_()
    hidden = 1 * leaf
    address = hidden.data_ptr()
    (gradient,) = torch.autograd.grad(cross_entropy(hidden, target, inplace=True), hidden)
    assert torch.equal(gradient, want) and gradient.data_ptr() == address


def ptx_of_whole_rows(reduction):
    """In a process that compiles: PTX of a gradient over 16-bit rows that two warps hold, one row a program."""
    x = torch.empty(300, 3072, dtype=torch.bfloat16, device="meta")
    launch = loss_launcher(x, LossOptions(IGNORED, reduction, 0.0, torch.float32), True)
    names = cross_entropy_kernel.arg_names
    kinds = ["*bf16", "*fp32", "*bf16", "*i64", "*i64", "*i64", "i32", "i32", "i32", "i32", "i32"]
    assert launch.named["WHOLE"] and launch.options["num_warps"] == 2
    signature = dict(zip(names, kinds, strict=False))
    constants = {name: value for name, value in launch.named.items() if name not in signature}
    signature |= dict.fromkeys(constants, "constexpr")
    return compiled.compile_without_launch(
        cross_entropy_kernel, signature, constants, (*range(6), names.index("stride"), names.index("N")), "sm_90",
        launch.options,
    ).asm["ptx"]  # fmt: skip


@pytest.mark.parametrize("reduction", ["none", "sum", "mean"])
def test_inplace_the_warps_meet_between_reading_the_target_s_logit_and_writing_over_it(reduction):
    entry = child.call(ptx_of_whole_rows, reduction, interpret=False).split(".entry")[1]
    logit = entry.rindex("ld.global.b16")
    assert "bar.sync" in entry[logit : entry.index("st.global", logit)]


def test_inplace_torch_notices_if_another_operation_has_kept_the_logits():
    leaf = logits(3, 40).requires_grad_()
    hidden = 1 * leaf
    kept = hidden.exp() * hidden
    loss = cross_entropy(hidden, classes(3, 40), inplace=True) + kept.sum()
    with pytest.raises(RuntimeError, match="modified by an inplace operation"):
        loss.backward()


def test_inplace_changes_nothing_where_no_gradient_is_wanted():
    x, target = logits(3, 40), classes(3, 40)
    before = x.clone()
    cross_entropy(x, target, inplace=True)
    assert torch.equal(x, before)


@pytest.mark.thinned(0)
def test_inplace_changes_nothing_under_torch_compile():
    x, target = logits(3, 40), classes(3, 40)
    _, want = with_gradient(cross_entropy, x, target)
    leaf = x.clone().requires_grad_()
    torch.compile(lambda x: cross_entropy(1 * x, target, inplace=True), backend="aot_eager")(leaf).backward()
    torch.testing.assert_close(leaf.grad, want)


def test_under_autocast_the_loss_is_float32_as_in_torch_and_no_logit_is_converted():
    x, target = logits(4, 781, dtype=torch.bfloat16), classes(4, 781)
    with torch.autocast(DEVICE.type, dtype=torch.bfloat16):
        assert_agrees(x, target)
        loss, gradient = with_gradient(cross_entropy, x, target)
    assert (loss.dtype, gradient.dtype) == (torch.float32, torch.bfloat16)


@pytest.mark.thinned(1)
@pytest.mark.filterwarnings("ignore:.*")
@pytest.mark.parametrize("reduction", ["none", "mean"])
@pytest.mark.parametrize("V", [40, 9001])
def test_is_one_operator_under_torch_compile(V, reduction):
    x, target = logits(4, V), classes(4, V)
    compiled = torch.compile(
        lambda x, target: 2 * cross_entropy(x, target, reduction=reduction), backend="aot_eager", fullgraph=True
    )
    ours, want = (
        with_gradient(f, x, target) for f in (compiled, lambda x, t: 2 * cross_entropy(x, t, reduction=reduction))
    )
    assert all(map(torch.equal, ours, want))


@pytest.mark.thinned(0)
@pytest.mark.filterwarnings("ignore:.*")
@pytest.mark.parametrize("dtype", DTYPES, ids=str)
def test_one_compilation_serves_any_number_of_rows(dtype):
    torch.compiler.reset()
    compiled = torch.compile(lambda x, target: cross_entropy(x, target), backend="aot_eager", fullgraph=True)
    for M in (4, 6, 9):
        x, target = logits(M, 40, dtype=dtype).requires_grad_(), classes(M, 40)
        torch._dynamo.mark_dynamic(x, 0)  # raises where the compiler has to settle on a number
        torch._dynamo.mark_dynamic(target, 0)
        loss = compiled(x, target)
        torch.testing.assert_close(loss, cross_entropy(x, target))
        torch.testing.assert_close(*(torch.autograd.grad(one, x)[0] for one in (loss, cross_entropy(x, target))))


def test_is_a_proper_operator_of_torch():
    for gradient in (True, False):
        x = logits(3, 5).requires_grad_(gradient)
        torch.library.opcheck(
            torch.ops.softmax_in_triton.cross_entropy,
            (x, classes(3, 5), IGNORED, "mean", 0.0, torch.float32, gradient),
            test_utils=("test_schema", "test_faketensor", "test_autograd_registration"),
        )


@needs.gpu
@pytest.mark.parametrize("shape", [(64, 781), (600, 50257)], ids=str)
def test_runs_in_cuda_graphs(shape):
    x, target = logits(*shape), classes(*shape)
    with_gradient(cross_entropy, x, target)
    x.requires_grad_()
    one, graph = torch.ones((), device=DEVICE), torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        loss = cross_entropy(x, target)
        (gradient,) = torch.autograd.grad(loss, x, one)
    for _ in range(3):
        with torch.no_grad():
            x.normal_()
        graph.replay()
        want = with_gradient(cross_entropy, x, target)
        assert torch.equal(loss, want[0]) and torch.equal(gradient, want[1])


@needs.gpu
def test_ten_thousand_launches_beside_another_kernel_neither_hang_nor_err():
    busy, mine = torch.cuda.Stream(), [torch.cuda.Stream() for _ in range(2)]
    a = torch.randn(8192, 8192, device=DEVICE, dtype=torch.bfloat16)
    inputs = [(logits(M, V), classes(M, V)) for M, V in ((1, 262144), (8, 131072), (600, 50257))]
    want = [with_gradient(cross_entropy, *one) for one in inputs]
    leaves = [x.requires_grad_() for x, _ in inputs]
    torch.cuda.synchronize()
    wrong = torch.zeros((), device=DEVICE, dtype=torch.int64)
    with torch.cuda.stream(busy):
        for _ in range(300):
            a @ a
    for turn in range(10_000):
        which = 2 if turn % 100 == 2 else turn % 2
        with torch.cuda.stream(mine[turn % 2]):
            loss = cross_entropy(leaves[which], inputs[which][1])
            if turn % 50 <= 2:
                (gradient,) = torch.autograd.grad(loss, leaves[which], torch.ones_like(loss))
                wrong += (gradient != want[which][1]).sum() + (loss != want[which][0])
    torch.cuda.synchronize()
    assert wrong.item() == 0


# What it refuses, and what it leaves to torch


@pytest.mark.parametrize(
    ("arguments", "options", "error", "says"),
    [
        (([1.0], classes(1, 1)), {}, TypeError, "logits must be a torch.Tensor; it is a list"),
        ((logits(2, 3), [0, 1]), {}, TypeError, "target must be a torch.Tensor; it is a list"),
        ((logits(2, 3), torch.zeros(2, dtype=torch.int32, device=DEVICE)), {}, TypeError, r"Use target.long\(\)"),
        ((logits(2, 3), classes(3, 3)), {}, ValueError, r"need a target of the shape \(2,\); it is \(3,\)"),
        ((logits(2, 3, 4), classes(2, 3)), {}, ValueError, r"need a target of the shape \(2, 4\)"),
        ((logits(2, 3), classes(2, 3)), {"reduction": "max"}, ValueError, "'none', 'sum', 'mean'; it is 'max'"),
        ((logits(2, 3), classes(2, 3)), {"label_smoothing": 1.5}, ValueError, "between 0 and 1; it is 1.5"),
        ((logits(2, 3), classes(2, 3)), {"label_smoothing": "a"}, TypeError, "a number from 0 to 1; it is 'a'"),
        ((logits(2, 3), classes(2, 3)), {"ignore_index": 1.0}, TypeError, "must be an integer; it is 1.0"),
        ((logits(2, 3), classes(2, 3)), {"ignore_index": 2**63}, ValueError, "must be an int64; it is 92"),
        ((logits(2, 3).requires_grad_(), classes(2, 3)), {"inplace": True}, ValueError, "overwrite a leaf"),
        ((1 * logits(3, 2).requires_grad_().t(), classes(2, 3)), {"inplace": True}, ValueError, "rows of contiguous"),
        ((1 * logits(1, 2049, 2).requires_grad_(), classes(2, 3)[None]), {"inplace": True}, ValueError, "at most 2,04"),
        ((logits(2, 3).double(), classes(2, 3)), {"inplace": True}, ValueError, "is for float32, bfloat16 and float16"),
    ],
    ids=[
        "a list", "a list of targets", "int32", "too many targets", "a matrix and three dimensions", "reduction",
        "smoothing", "smoothing in words", "ignore_index", "a large ignore_index", "a leaf", "transposed",
        "many classes", "float64",
    ],
)  # fmt: skip
def test_refuses_what_makes_no_sense_at_the_first_call(arguments, options, error, says):
    with pytest.raises(error, match=says):
        cross_entropy(*arguments, **options)


def test_what_is_not_for_our_kernels_is_torchs():
    x, target = torch.randn(3, 5, device=DEVICE), torch.tensor([1, 2, 3], device=DEVICE)
    probabilities = torch.softmax(torch.randn(3, 5, device=DEVICE), 1)
    for one, other in ((x.double(), target), (x, probabilities), (x, target.to(torch.uint8))):
        assert torch.equal(cross_entropy(one, other), F.cross_entropy(one, other))
    (ours,) = torch.func.grad(lambda x: cross_entropy(x, target))(x)[None]
    torch.testing.assert_close(ours, torch.func.grad(lambda x: F.cross_entropy(x, target))(x))
