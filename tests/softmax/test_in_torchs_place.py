"""Ours in the place of torch's functions: the names of their parameters, and the modules of torch that call them."""

import warnings

import pytest
import torch
import torch.nn.functional as F
from torch import nn

from helpers import DEVICE
from helpers.softmax import cross_entropy, log_softmax, softmax, torch_side

PAIRS = {"softmax": (softmax, torch.softmax), "log_softmax": (log_softmax, torch.log_softmax)}
TARGET = torch.tensor([1, 0, 3, -100], device=DEVICE)


@pytest.fixture(autouse=True)
def seed():
    torch.manual_seed(0)


@pytest.fixture
def patched(monkeypatch):
    """torch's own functions, and a call that puts ours in their place."""

    def patch():
        for name, fn in (("softmax", softmax), ("log_softmax", log_softmax), ("cross_entropy", cross_entropy)):
            monkeypatch.setattr(F, name, fn)
        monkeypatch.setattr(torch, "softmax", softmax)
        monkeypatch.setattr(torch, "log_softmax", log_softmax)

    return patch


def random(*shape):
    return torch.randn(shape, device=DEVICE)


# Names


NAMED = {
    "axis": lambda fn, x: fn(x, axis=0),
    "x": lambda fn, x: fn(x=x, dim=1),
    "x and axis": lambda fn, x: fn(x=x, axis=-1),
    "input and dim": lambda fn, x: fn(input=x, dim=-2),
    "axis and dtype": lambda fn, x: fn(x, axis=1, dtype=torch.float64),
    "out": lambda fn, x: fn(x, 1, out=torch.empty_like(x)),
}


@pytest.mark.parametrize("named", NAMED)
@pytest.mark.parametrize("name", PAIRS)
def test_a_parameter_has_all_of_torch_s_names(name, named):
    x = random(3, 5)
    mine, theirs = (NAMED[named](fn, x) for fn in PAIRS[name])
    assert mine.dtype == theirs.dtype
    torch.testing.assert_close(mine, theirs)


@pytest.mark.parametrize("name", PAIRS)
def test_other_names_are_known_to_torch_compile(name):
    mine, theirs = PAIRS[name]
    x = random(3, 5)
    torch.compiler.reset()
    compiled = torch.compile(lambda x: (mine(x, axis=0), mine(x)), backend="eager", fullgraph=True)
    torch.testing.assert_close(compiled(x), (theirs(x, 0), theirs(x, -1)))


WRONG = {
    "dim and axis": lambda fn, x: fn(x, dim=-1, axis=-1),
    "a second argument and axis": lambda fn, x: fn(x, 1, axis=1),
    "input and x": lambda fn, x: fn(x, x=x, dim=1),
    "no tensor": lambda fn, x: fn(dim=1),
    "an axis that is text": lambda fn, x: fn(x, axis="a"),
    "an axis that it lacks": lambda fn, x: fn(x, axis=2),
    "an unknown name": lambda fn, x: fn(x, 1, axes=1),
}


@pytest.mark.parametrize("wrong", WRONG)
@pytest.mark.parametrize("name", PAIRS)
def test_wrong_names_are_errors_of_torch_s_class(name, wrong):
    raised = []
    for fn in PAIRS[name]:
        with pytest.raises((TypeError, IndexError)) as error:
            WRONG[wrong](fn, random(3, 5))
        raised.append(error.type)
    assert raised[0] is raised[1]


def test_the_last_dimension_is_shown_as_a_number():
    assert repr(torch_side.LAST) == "-1"


LOSSES = {
    "no weight": {"weight": None},
    "weights": {"weight": torch.tensor([0.5, 1.0, 2.0, 1.0, 0.1], device=DEVICE)},
    "weights and smoothing": {
        "weight": torch.tensor([0.5, 1.0, 2.0, 1.0, 0.1], device=DEVICE), "label_smoothing": 0.1, "reduction": "sum",
    },
    "size_average": {"size_average": False},
    "reduce": {"reduce": False},
}  # fmt: skip


@pytest.mark.filterwarnings("ignore:size_average and reduce")
@pytest.mark.parametrize("options", LOSSES)
def test_a_loss_takes_all_of_torch_s_options(options):
    x = random(4, 5).requires_grad_()
    mine, theirs = (fn(input=x, target=TARGET, **LOSSES[options]) for fn in (cross_entropy, F.cross_entropy))
    torch.testing.assert_close(mine, theirs)
    torch.testing.assert_close(torch.autograd.grad(mine.sum(), x), torch.autograd.grad(theirs.sum(), x))


def test_a_loss_takes_torch_s_options_in_torch_s_order():
    x = random(4, 5)
    in_order = None, None, 1, None, "sum", 0.1
    torch.testing.assert_close(
        cross_entropy(x, TARGET.clamp(0), *in_order), F.cross_entropy(x, TARGET.clamp(0), *in_order)
    )


def test_a_weight_that_is_a_number_is_an_error_of_torch_s_class():
    with pytest.raises(TypeError, match="weight"):
        cross_entropy(random(4, 5), TARGET, 3.0)


def test_weights_leave_no_loss_in_place():
    x = random(4, 5).requires_grad_() * 1
    with pytest.raises(ValueError, match="without weights"):
        cross_entropy(x, TARGET, torch.ones(5, device=DEVICE), inplace=True)


# Modules


def attending(module):
    return lambda x: module(x, x, x)[0]


MODULES = {
    "CrossEntropyLoss": lambda: lambda x: nn.CrossEntropyLoss()(x, TARGET),
    "CrossEntropyLoss with options": lambda: lambda x: nn.CrossEntropyLoss(
        reduction="sum", ignore_index=0, label_smoothing=0.1
    )(x, TARGET.clamp(0)),
    "CrossEntropyLoss with weights": lambda: lambda x: nn.CrossEntropyLoss(
        torch.arange(1.0, 7.0, device=DEVICE)
    )(x, TARGET),
    "CrossEntropyLoss of probabilities": lambda: lambda x: nn.CrossEntropyLoss()(x, x.detach().abs()),
    "CrossEntropyLoss of float64": lambda: lambda x: nn.CrossEntropyLoss()(x.double(), TARGET),
    "Softmax": lambda: nn.Softmax(-1),
    "Softmax without a dimension": nn.Softmax,
    "Softmax of float64": lambda: lambda x: nn.Softmax(-1)(x.double()),
    "LogSoftmax": lambda: nn.LogSoftmax(1),
    "LogSoftmax without a dimension": nn.LogSoftmax,
    "Softmax2d": lambda: lambda x: nn.Softmax2d()(x[None, :, :, None]),
    "MultiheadAttention": lambda: attending(nn.MultiheadAttention(6, 2, device=DEVICE)),
    "TransformerEncoderLayer": lambda: nn.TransformerEncoderLayer(6, 2, 8, dropout=0.0, device=DEVICE),
}  # fmt: skip


@pytest.mark.filterwarnings("ignore:Implicit dimension choice")
@pytest.mark.parametrize("name", MODULES)
def test_torch_s_modules_compute_the_same_with_ours(name, patched):
    module, x = MODULES[name](), random(4, 6).requires_grad_()
    theirs = module(x)
    arriving = torch.randn_like(theirs)
    (wanted,) = torch.autograd.grad(theirs, x, arriving)
    patched()
    mine = module(x)
    torch.testing.assert_close(mine, theirs)
    torch.testing.assert_close(torch.autograd.grad(mine, x, arriving)[0], wanted)


@pytest.mark.parametrize("module", [nn.Softmax, nn.LogSoftmax])
def test_a_module_without_a_dimension_is_warned_as_by_torch(module, patched):
    with warnings.catch_warnings(record=True) as by_torch:
        warnings.simplefilter("always")
        module()(random(4, 6))
    patched()
    with pytest.warns(UserWarning, match="Implicit dimension choice") as by_ours:
        module()(random(4, 6))
    assert by_ours[0].filename == by_torch[0].filename


def test_a_module_calls_ours(patched):
    patched()
    x = random(4, 6).requires_grad_()
    assert "_CrossEntropy" in type(nn.CrossEntropyLoss()(x, TARGET).grad_fn).__name__
    assert "_Softmax" in type(nn.Softmax(-1)(x).grad_fn).__name__
