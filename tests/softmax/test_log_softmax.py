"""helpers.softmax.log_softmax: torch's log_softmax from one read and one write."""

import pytest
import torch
import torch.nn.functional as F

import needs
from helpers import DEVICE, traffic
from helpers.softmax import log_softmax
from helpers.softmax.kernels.rows import tile_kernel
from helpers.softmax.kernels.shared import shared_kernel
from helpers.softmax.launches.rows import log_softmax_launcher
from helpers.softmax.log_softmax import log_gradient_launcher_of

DTYPES = (torch.float32, torch.bfloat16, torch.float16)


@pytest.fixture(autouse=True)
def seed():
    torch.manual_seed(0)


def error(got, want):
    return (got.double() - want).norm().item() / max(want.norm().item(), 1e-300)


def with_gradient(f, x, dy, dtype=None):
    x = x.detach().clone().requires_grad_()
    y = f(x, -1, dtype=dtype)
    return y.detach(), torch.autograd.grad(y, x, dy.to(y.dtype))[0]


@pytest.mark.thinned
@pytest.mark.parametrize("result", [None, torch.float32], ids=str)
@pytest.mark.parametrize("dtype", DTYPES, ids=str)
@pytest.mark.parametrize("N", [1, 2, 7, 33, 64, 72, 1001, 3001, 9000, 9001, 40000])
def test_agrees_with_float64(N, dtype, result):
    x, dy = (4 * torch.randn(2, 3, N, device=DEVICE)).to(dtype), torch.randn(2, 3, N, device=DEVICE)
    ours, torchs = (with_gradient(f, x, dy, result) for f in (log_softmax, F.log_softmax))
    want = with_gradient(F.log_softmax, x.double(), dy.to(torchs[0].dtype))
    for got, other, right in zip(ours, torchs, want, strict=True):
        assert got.dtype == other.dtype and got.shape == other.shape
        assert error(got, right) <= 2 * error(other, right) + 4 * torch.finfo(torch.float32).eps


@pytest.mark.parametrize(("N", "kernel"), [(7, tile_kernel), (64, tile_kernel), (3000, shared_kernel)])
def test_of_the_shortest_rows_a_program_has_several(N, kernel):
    assert log_softmax_launcher(1000, N, 4, True).kernel is kernel


def test_a_gradient_is_launched_by_the_alignment_of_each_tensor():
    """A kernel that was compiled for an unaligned dy and an aligned y moves y in vectors."""
    at = {0: torch.zeros(4, 64, device=DEVICE), 4: torch.zeros(257, device=DEVICE)[1:].view(4, 64)}
    tensors = [(at[dx], at[dy], at[y]) for dx in at for dy in at for y in at]
    assert len({id(log_gradient_launcher_of(*three)) for three in tensors}) == 8


@pytest.mark.parametrize("N", [5, 72, 9001])
def test_special_values_are_those_of_torch(N):
    inf, nan = float("inf"), float("nan")
    x = torch.randn(6, N, device=DEVICE)
    x[0], x[1, 0], x[2, 1], x[3, 1:], x[4] = -inf, inf, nan, -inf, torch.finfo(torch.float32).min
    torch.testing.assert_close(log_softmax(x), F.log_softmax(x, -1), equal_nan=True)


@pytest.mark.parametrize("dim", [0, 1, -1])
def test_other_dimensions_layouts_and_dtypes_are_torchs(dim):
    for x in (torch.randn(4, 6, device=DEVICE), torch.randn(4, 6, device=DEVICE).t(), torch.randn(3, 5).double()):
        torch.testing.assert_close(log_softmax(x, dim), F.log_softmax(x, dim))


def test_can_be_differentiated_twice():
    x = torch.randn(2, 7, device=DEVICE, requires_grad=True)

    def second(f):
        (first,) = torch.autograd.grad((f(x, -1) ** 2).sum(), x, create_graph=True)
        return torch.autograd.grad((first**2).sum(), x)[0]

    torch.testing.assert_close(second(log_softmax), second(F.log_softmax))


def test_under_autocast_the_result_is_torchs():
    x = torch.randn(3, 40, device=DEVICE).bfloat16()
    with torch.autocast(DEVICE.type, dtype=torch.bfloat16):
        torch.testing.assert_close(log_softmax(x), F.log_softmax(x, -1))


@needs.interpreter
def test_reads_and_writes_each_element_once():
    x = torch.randn(4, 1500, device=DEVICE)
    counted = traffic.count(log_softmax, x)
    assert counted.loads == x.numel() and counted.stores == x.numel() + 4  # a zero for the word of each row


def test_anything_but_a_tensor_is_refused():
    with pytest.raises(TypeError, match="it is a list"):
        log_softmax([1.0])
