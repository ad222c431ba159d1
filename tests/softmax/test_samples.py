"""softmax on torch's own samples of the operation, with their gradients."""

import pytest
import torch

from helpers import DEVICE
from helpers.softmax import softmax

pytest.importorskip("expecttest", reason="expecttest, which torch's samples need, is not installed: make install")

from torch.testing._internal.common_methods_invocations import op_db

EVERY = [
    pytest.param(op, dtype, id=f"{op.variant_test_name or 'plain'}-{dtype}")
    for op in op_db
    if op.name == "softmax"
    for dtype in sorted(op.supported_dtypes(DEVICE.type), key=str)
]


@pytest.fixture(autouse=True)
def seed():
    torch.manual_seed(0)


@pytest.mark.thinned
@pytest.mark.filterwarnings("ignore:Casting complex values to real")
@pytest.mark.parametrize("reference", ["operation", "decomposition"])
@pytest.mark.parametrize(("op", "dtype"), EVERY)
def test_agrees_with_torch(op, dtype, reference):
    of_torch = op if reference == "operation" else torch._refs.softmax
    for sample in op.reference_inputs(DEVICE, dtype):
        y = softmax(sample.input, *sample.args, **sample.kwargs)
        want = of_torch(sample.input, *sample.args, **sample.kwargs)
        assert type(y) is type(want) and y.dtype == want.dtype
        assert y.shape == want.shape and y.stride() == want.stride()
        torch.testing.assert_close(y, want, equal_nan=True)


@pytest.mark.thinned(2)
@pytest.mark.parametrize(("op", "dtype"), [one for one in EVERY if one.values[1].is_floating_point])
def test_gradients_are_as_near_as_torch_s(op, dtype):
    for sample in op.sample_inputs(DEVICE, dtype, requires_grad=True):
        exact = sample.input.detach().double().requires_grad_()
        y, theirs, want = (fn(x, *sample.args, **kwargs) for fn, x, kwargs in (
            (softmax, sample.input, sample.kwargs), (op, sample.input, sample.kwargs),
            (op, exact, sample.kwargs | {"dtype": torch.float64}),
        ))  # fmt: skip
        dy = torch.randn_like(theirs)
        (dx,) = torch.autograd.grad(y, sample.input, dy)
        (torchs,) = torch.autograd.grad(theirs, sample.input, dy)
        (right,) = torch.autograd.grad(want, exact, dy.double())
        assert dx.dtype == torchs.dtype
        cancelled = (want.detach() * dy).norm()  # what dy − Σ dy · y is small against
        assert (dx - right).norm() <= 2 * ((torchs - right).norm() + torch.finfo(torch.float32).eps * cancelled)
