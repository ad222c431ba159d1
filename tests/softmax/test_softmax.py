"""helpers.softmax: a drop-in for torch.softmax; on a GPU, also that no launch can hang and no bit changes."""

import random
import time

import pytest
import torch

import needs
from helpers import DEVICE, ON_GPU
from helpers.softmax import function, softmax
from helpers.softmax.launches.rows import shared_launcher
from helpers.softmax.plans.rows import Shared, plan_launch

DTYPES = (torch.float32, torch.bfloat16, torch.float16)
LENGTHS = (1, 2, 3, 7, 8, 9, 40, 255, 264, 520, 643, 781, 1024, 1283, 2563, 5001, 8192, 12296, 17000)
LONG = (4105, 32001, 50257, 65536, 98305, 131072, 151936, 262145, 524288, 1048576)


@pytest.fixture(autouse=True)
def seed():
    torch.manual_seed(0)


def error(y, want):
    return (y.double() - want).norm().item() / max(want.norm().item(), 1e-300)


def assert_agrees(x, dim=-1):
    y, want = softmax(x, dim), torch.softmax(x.double(), dim)
    assert y.shape == x.shape and y.dtype == x.dtype and y.is_contiguous()
    assert error(y, want) <= 2 * error(torch.softmax(x, dim), want) + torch.finfo(torch.float32).eps


@pytest.mark.thinned
@pytest.mark.parametrize("dtype", DTYPES, ids=str)
@pytest.mark.parametrize("n_cols", LENGTHS)
def test_agrees_with_float64_at_every_length(n_cols, dtype):
    assert_agrees((4 * torch.randn(3, n_cols, device=DEVICE)).to(dtype))


@pytest.mark.parametrize("shape", [(5,), (), (2, 3, 50), (4, 1, 6, 9), (2, 5000)], ids=str)
def test_takes_every_dimension(shape):
    x = torch.randn(shape, device=DEVICE)
    for dim in range(-max(1, x.dim()), max(1, x.dim())):
        assert_agrees(x, dim)


@pytest.mark.parametrize(
    "view",
    [
        lambda x: x[:, ::2, ::3], lambda x: x.transpose(0, 2), lambda x: x[1:, 3:, 1:], lambda x: x[:, :, 5:13],
        lambda x: x.permute(2, 0, 1), lambda x: x[:, :1].expand(-1, 4, -1), lambda x: x[0].t(), lambda x: x[:, 1],
    ],
)  # fmt: skip
def test_takes_every_layout(view):
    x = view(torch.randn(6, 8, 41, device=DEVICE))
    for dim in range(x.dim()):
        assert_agrees(x, dim)


def test_agrees_in_random_layouts():
    draw = random.Random(0)
    for _ in range(60):
        x = torch.randn([draw.choice([1, 2, 3, 5, 8, 17]) for _ in range(draw.randint(1, 4))], device=DEVICE)
        for dim in range(x.dim()):
            if draw.random() < 0.4:
                x = x.narrow(dim, x.shape[dim] // 3, max(1, x.shape[dim] // 2))
        assert_agrees(x.permute(*draw.sample(range(x.dim()), x.dim())), draw.randrange(-x.dim(), x.dim()))


@pytest.mark.parametrize("shape", [(0, 5), (5, 0), (0,), (3, 0, 4)], ids=str)
def test_no_elements_give_no_elements(shape):
    assert softmax(torch.empty(shape, device=DEVICE), 0).shape == shape


@pytest.mark.parametrize("n_cols", [5, 5001, 40000])
def test_special_values_are_those_of_torch(n_cols):
    inf, nan = float("inf"), float("nan")
    x = torch.randn(6, n_cols, device=DEVICE)
    x[0], x[1, 0], x[2, 1], x[3, 1:], x[4] = -inf, inf, nan, -inf, torch.finfo(torch.float32).min
    y, want = softmax(x), torch.softmax(x.double(), -1)
    assert torch.equal(y.isnan(), want.isnan())
    torch.testing.assert_close(y.nan_to_num(), want.nan_to_num().float(), rtol=1e-4, atol=1e-6)


@pytest.mark.parametrize("n_cols", [7, 33, 255, 264, 643, 2563, 5001])
def test_a_maximum_far_above_the_rest_is_noticed_in_every_part_of_a_row(n_cols):
    columns = sorted({0, 1, n_cols // 2, n_cols - 2, n_cols - 1})
    x = torch.zeros(len(columns), n_cols, device=DEVICE)
    x[range(len(columns)), columns] = 1000.0
    assert torch.equal(softmax(x), x / 1000)


@pytest.mark.filterwarnings("ignore:Input .* not a double precision")
@pytest.mark.parametrize("dim", [-1, 1])
def test_gradients_are_those_of_finite_differences(dim):
    x = torch.randn(2, 3, 4, device=DEVICE, requires_grad=True)
    check = {"eps": 1e-2, "atol": 2e-3, "rtol": 1e-2, "fast_mode": True}
    assert torch.autograd.gradcheck(lambda x: softmax(x, dim), x, **check)
    assert torch.autograd.gradgradcheck(lambda x: softmax(x, dim), x, **check)


@pytest.mark.thinned(2)
@pytest.mark.parametrize("dtype", DTYPES, ids=str)
@pytest.mark.parametrize(
    ("shape", "dim"),
    [((3, 781), -1), ((2, 19, 33), 1), ((2, 19, 100), 1), ((1, 100, 70), 1), ((2, 17000), -1), ((2, 40000), -1)],
    ids=str,
)
def test_the_backward_pass_agrees_with_torch(shape, dim, dtype):
    x, dy = torch.randn(2, *shape, device=DEVICE).to(dtype)
    x.requires_grad_()
    (dx,) = torch.autograd.grad(softmax(x, dim), x, dy)
    double = x.detach().double().requires_grad_()
    (want,) = torch.autograd.grad(torch.softmax(double, dim), double, dy.double())
    (torchs,) = torch.autograd.grad(torch.softmax(x, dim), x, dy)
    assert dx.dtype == dtype and error(dx, want) <= 2 * error(torchs, want) + torch.finfo(torch.float32).eps


@pytest.mark.parametrize(
    ("x", "dim", "error", "says"),
    [
        (lambda: [1.0], -1, TypeError, "torch.Tensor; it is a list"),
        (lambda: torch.zeros(2, 3, dtype=torch.int64, device=DEVICE), -1, NotImplementedError, "dtype=torch.float32"),
        (lambda: torch.zeros(2, 3, device=DEVICE), 2, IndexError, "between -2 and 1"),
    ],
)
def test_refuses_what_it_cannot_take(x, dim, error, says):
    with pytest.raises(error, match=says):
        softmax(x(), dim)


@pytest.mark.thinned
@pytest.mark.parametrize("dtype", DTYPES, ids=str)
@pytest.mark.parametrize("n_cols", LONG)
def test_long_rows_agree_with_float64(n_cols, dtype):
    for n_rows in (1, 3, 300) if ON_GPU else (1,):
        assert_agrees((4 * torch.randn(n_rows, n_cols, device=DEVICE)).to(dtype))


@needs.gpu
@pytest.mark.parametrize("dtype", DTYPES, ids=str)
@pytest.mark.parametrize("n_cols", [20000, 50257, 131072, 524288])
def test_a_program_that_has_to_help_writes_the_same_bits(n_cols, dtype):
    x = torch.randn(40, n_cols, device=DEVICE).to(dtype)
    V = 16 // x.element_size()
    chosen = plan_launch(4096, n_cols, x.element_size(), n_cols % V == 0)
    waiting, helping = torch.empty_like(x), torch.empty_like(x)
    stream = torch.cuda.current_stream().cuda_stream
    shared_launcher(*x.shape, n_cols, x.element_size(), V, n_cols % V != 0, chosen)((waiting, x), stream)
    shared_launcher(*x.shape, n_cols, x.element_size(), V, n_cols % V != 0, chosen, looks=0)((helping, x), stream)
    assert torch.equal(waiting, helping)


@needs.gpu
def test_ten_thousand_launches_beside_another_kernel_neither_hang_nor_err(record_property):
    busy, mine = torch.cuda.Stream(), [torch.cuda.Stream() for _ in range(2)]
    a = torch.randn(8192, 8192, device=DEVICE, dtype=torch.bfloat16)
    inputs = [torch.randn(shape, device=DEVICE) for shape in ((1, 1048576), (8, 131072), (700, 50257))]
    want = [softmax(x) for x in inputs]
    torch.cuda.synchronize()
    begun, wrong = time.perf_counter(), torch.zeros((), device=DEVICE, dtype=torch.int64)
    with torch.cuda.stream(busy):
        for _ in range(400):
            a @ a
    for turn in range(10_000):
        with torch.cuda.stream(mine[turn % 2]):
            x = inputs[turn % 3] if turn % 100 == 2 else inputs[turn % 2]
            y = softmax(x)
            if turn % 50 == 0:
                wrong += (y != want[next(i for i, other in enumerate(inputs) if other is x)]).sum()
    torch.cuda.synchronize()
    record_property("softmax beside another kernel", f"10000 launches in {time.perf_counter() - begun:.1f} s")
    assert wrong.item() == 0


@needs.gpu
def test_a_million_rows_that_are_shared():
    x = torch.randn(1_000_000, 8200, device=DEVICE, dtype=torch.bfloat16)
    y = softmax(x)
    assert isinstance(plan_launch(*x.shape, 2), Shared)
    assert ((y[::1000].float().sum(1) - 1).abs() < 1e-2).all() and error(
        y[-2:], torch.softmax(x[-2:].double(), 1)
    ) < 1e-2


@needs.gpu
@pytest.mark.parametrize("shape", [(64, 781), (16, 131072)], ids=str)
def test_runs_in_cuda_graphs(shape):
    x = torch.randn(shape, device=DEVICE)
    softmax(x)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        y = softmax(x)
    for _ in range(5):
        x.normal_()
        graph.replay()
        assert torch.equal(y, softmax(x))


@needs.gpu
def test_is_the_same_from_run_to_run():
    for n_cols in (781, 50257, 524288):
        x = torch.randn(300, n_cols, device=DEVICE)
        y = softmax(x)
        assert all(torch.equal(softmax(x), y) for _ in range(20))


@needs.gpu
@pytest.mark.parametrize("dtype", DTYPES, ids=str)
def test_kernels_fit_into_registers(dtype, record_property):
    compiled = {}
    for n_cols in (
        1,
        3,
        8,
        33,
        64,
        264,
        323,
        643,
        781,
        1024,
        1283,
        3001,
        3081,
        4105,
        8192,
        12288,
        *LONG,
        16384,
        262144,
    ):
        x = torch.zeros(300, n_cols, dtype=dtype, device=DEVICE)
        launch = function.launcher_of(x, 1)
        words = (torch.zeros(launch.words, dtype=torch.int64, device=DEVICE),) if launch.words else ()
        kernel = launch.kernel[launch.grid](torch.empty_like(x), x, *words, *launch.arguments, **launch.options)
        compiled[n_cols] = kernel.n_regs, kernel.n_spills
    table = "\n".join(f"{n:>8} columns: {regs} registers, {spills} spilled" for n, (regs, spills) in compiled.items())
    record_property(f"registers of softmax, {dtype}", table)
    assert all(spills == 0 for _, spills in compiled.values()), table
