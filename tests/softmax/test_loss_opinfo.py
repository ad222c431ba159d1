"""torch's own samples for cross_entropy and log_softmax, given to ours: the same results and gradients."""

from importlib.util import find_spec

import pytest
import torch
import torch.nn.functional as F

from helpers import DEVICE
from helpers.softmax import cross_entropy, log_softmax

pytestmark = pytest.mark.skipif(not find_spec("expecttest"), reason="expecttest is not installed: make install")
DTYPES = (torch.float32, torch.bfloat16, torch.float16, torch.float64)
OURS = {"ignore_index", "reduction", "label_smoothing"}
"""The options of cross_entropy that we take."""


def samples(name, variant, dtype):
    """torch's samples for an operation, each with the input, other arguments and options."""
    from torch.testing._internal.common_methods_invocations import op_db

    (op,) = (op for op in op_db if op.name == name and op.variant_test_name == variant)
    return [
        (sample.input, sample.args, sample.kwargs)
        for sample in op.sample_inputs(DEVICE.type, dtype, requires_grad=True)
    ]


def outcome(function, x, *args, **options):
    """The result and the gradient of x, or the type of the error."""
    leaf = x.detach().clone().requires_grad_()
    y = function(leaf, *args, **options)
    return y.detach(), torch.autograd.grad(y, leaf, torch.ones_like(y))[0]


def assert_same(ours, torchs):
    for got, want in zip(ours, torchs, strict=True):
        # torch rounds log-probabilities and gradients to 16 bits on the way, and we do not.
        loose = {torch.bfloat16: 2e-2, torch.float16: 4e-3}.get(want.dtype)
        tolerances = {"rtol": loose, "atol": loose} if loose else {}
        torch.testing.assert_close(got, want, equal_nan=True, **tolerances)


@pytest.mark.thinned(1)
@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("dtype", DTYPES, ids=str)
def test_every_sample_of_cross_entropy_without_weights_has_torchs_result(dtype, record_property):
    tried = 0
    for x, args, options in samples("nn.functional.cross_entropy", "", dtype):
        if set(options) <= OURS:
            assert_same(outcome(cross_entropy, x, *args, **options), outcome(F.cross_entropy, x, *args, **options))
            tried += 1
    record_property(f"samples of cross_entropy, {dtype}", str(tried))
    assert tried >= 10


@pytest.mark.thinned(2)
@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("variant", ["", "with_dtype"])
@pytest.mark.parametrize("dtype", DTYPES, ids=str)
def test_every_sample_of_log_softmax_has_torchs_result(dtype, variant, record_property):
    given = samples("log_softmax", variant, dtype)
    for x, (dim, *dtypes), options in given:
        dtypes = {"dtype": dtypes[0]} if dtypes else {}
        ours, torchs = (outcome(f, x, dim, **dtypes, **options) for f in (log_softmax, F.log_softmax))
        assert_same(ours, torchs)
    record_property(f"samples of log_softmax {variant}, {dtype}", str(len(given)))
    assert given
