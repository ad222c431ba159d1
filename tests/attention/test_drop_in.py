"""helpers.attention in the place of torch's: its parameters, the layout of its result, and the modules that call it."""

import contextlib

import pytest
import torch
import torch.nn.functional as F
from torch import nn

from helpers.attention import attention, torchs_attention
from helpers.attention.launches import AttentionLaunches
from helpers.engine.runtime import DEVICE

B, H, L, D = 2, 4, 20, 16


@pytest.fixture(autouse=True)
def seed():
    torch.manual_seed(0)


def random(*shape, dtype=torch.float32):
    return torch.randn(shape, device=DEVICE, dtype=dtype)


@pytest.fixture
def launched(monkeypatch):
    """The shapes of the results that our kernels have filled."""
    shapes, fill = [], AttentionLaunches.fill

    def filled(self, o, *tensors):
        shapes.append(tuple(o.shape))
        return fill(self, o, *tensors)

    monkeypatch.setattr(AttentionLaunches, "fill", filled)
    return shapes


# Parameters

SEEN = torch.ones(L, L, dtype=torch.bool, device=DEVICE).tril(3)
BIAS = torch.linspace(-2, 2, L, device=DEVICE).expand(L, L)

OURS = {
    "none": ((), {}),
    "defaults by place": ((None, 0.0, False), {}),
    "causal by place": ((None, 0.0, True), {}),
    "as models call it": ((), {"attn_mask": None, "dropout_p": 0.0, "is_causal": True, "scale": None}),
    "all by name": ((), {"attn_mask": None, "dropout_p": 0, "is_causal": False, "scale": 0.3, "enable_gqa": True}),
}
TORCHS = {
    "a mask": ((), {"attn_mask": SEEN}),
    "a mask by place": ((SEEN,), {}),
    "a mask of numbers, and a scale": ((BIAS,), {"scale": 0.3}),
    "dropout": ((), {"dropout_p": 0.5}),
    "dropout by place, causal": ((None, 0.5, True), {}),
    "dropout of a mask": ((SEEN, 0.5), {}),
}


@pytest.mark.thinned
@pytest.mark.parametrize("given", [*OURS, *TORCHS])
def test_parameters_are_torch_s_by_name_and_by_place(given, launched):
    q, k, v = (random(B, H, L, D) for _ in range(3))
    places, names = (OURS | TORCHS)[given]
    found = []
    for fn in (torchs_attention, attention):
        torch.manual_seed(1)  # for dropout
        found.append(fn(q, k, v, *places, **names))
    torch.testing.assert_close(found[1], found[0])
    assert bool(launched) == (given in OURS)


def test_the_tensors_have_torch_s_names():
    q, k, v = (random(H, L, D) for _ in range(3))
    torch.testing.assert_close(attention(value=v, key=k, query=q), torchs_attention(q, k, v))


WRONG = {
    "a mask of integers": ((SEEN.int(),), {}),
    "a mask that is a number": ((1.0,), {}),
    "dropout of more than 1": ((), {"dropout_p": 1.5}),
    "dropout that is text": ((), {"dropout_p": "0"}),
    "dropout of none": ((None, None), {}),
    "a scale by place": ((None, 0.0, False, 0.3), {}),
    "an unknown name": ((), {"mask": None}),
}


@pytest.mark.parametrize("given", WRONG)
def test_what_torch_refuses_is_refused_in_its_class(given):
    q, (places, names) = random(B, H, L, D), WRONG[given]
    raised = []
    for fn in (torchs_attention, attention):
        with pytest.raises((TypeError, RuntimeError, ValueError)) as error:
            fn(q, q, q, *places, **names)
        raised.append(error.type)
    assert raised[1] is raised[0]


# The layout of the result

LAYOUTS = {
    "heads outside tokens": lambda dtype: random(B, H, L, D, dtype=dtype),
    "heads inside tokens": lambda dtype: random(B, L, H, D, dtype=dtype).transpose(1, 2),
    "a part of q, k and v": lambda dtype: random(B, L, 3, H, D, dtype=dtype)[:, :, 1].transpose(1, 2),
    "tokens outside batches": lambda dtype: random(L, B, H, D, dtype=dtype).permute(1, 2, 0, 3),
    "every second token": lambda dtype: random(B, 2 * L, H, D, dtype=dtype)[:, ::2].transpose(1, 2),
    "columns outside tokens": lambda dtype: random(B, H, D, L, dtype=dtype).mT,
    "heads that are one": lambda dtype: random(B, 1, L, D, dtype=dtype).expand(B, H, L, D),
    "windows of columns": lambda dtype: random(B, H, L + D, dtype=dtype).unfold(2, D, 1)[:, :, :L],
    "one token": lambda dtype: random(B, 1, H, D, dtype=dtype).transpose(1, 2),
    "one column": lambda dtype: random(B, L, H, 1, dtype=dtype).transpose(1, 2),
    "three dimensions": lambda dtype: random(H, L, D, dtype=dtype),
    "three, heads inside": lambda dtype: random(L, H, D, dtype=dtype).transpose(0, 1),
}
VIEWS = {
    "heads": lambda o: o.transpose(-3, -2).view(*o.shape[:-3], o.shape[-2], -1),
    "tokens of all heads": lambda o: o.view(*o.shape[:-3], -1, o.shape[-1]),
    "all but columns": lambda o: o.transpose(-3, -2).view(-1, o.shape[-3], o.shape[-1]),
    "tokens first": lambda o: o.movedim(-2, 0).view(o.shape[-2], -1),
    "numbers": lambda o: o.view(-1),
}


def views_of(o):
    """The names of the views of o that need no copy."""
    found = set()
    for name, view in VIEWS.items():
        with contextlib.suppress(RuntimeError):
            view(o)
            found.add(name)
    return found


@pytest.mark.thinned
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16], ids=str)
@pytest.mark.parametrize("gradient", [False, True])
@pytest.mark.parametrize("layout", LAYOUTS)
def test_the_result_can_be_viewed_as_torch_s(layout, gradient, dtype, launched):
    q = LAYOUTS[layout](dtype)
    k, v = (torch.randn_like(q) for _ in range(2))
    with torch.no_grad():
        theirs = torchs_attention(q, k, v, is_causal=True)
    ours = attention(q, k, v.detach().requires_grad_(gradient), is_causal=True)
    torch.testing.assert_close(ours.detach(), theirs, atol=2e-2 if dtype.itemsize == 2 else 1e-5, rtol=1e-2)
    assert bool(launched) != gradient
    assert views_of(theirs) <= views_of(ours)


def test_groups_have_torch_s_layout_too(launched):
    q, k, v = random(B, L, H, D).transpose(1, 2), random(B, 2, 70, D), random(B, 2, 70, D)
    theirs, ours = (fn(q, k, v, enable_gqa=True) for fn in (torchs_attention, attention))
    torch.testing.assert_close(ours, theirs)
    assert ours.stride() == theirs.stride() and launched


# Modules

HIDDEN = torch.ones(5, 5, dtype=torch.bool, device=DEVICE).triu(1)


def attending(**options):
    module = nn.MultiheadAttention(8, 2, batch_first=True, **options)
    return module, lambda x: module(x, x, x, need_weights=False)[0]


def attending_with(**how):
    module = nn.MultiheadAttention(8, 2, batch_first=True)
    return module, lambda x: module(x, x, x, need_weights=False, **how)[0]


def encoding(**options):
    module = nn.TransformerEncoderLayer(8, 2, 16, batch_first=True, **options)
    return module, module


def decoding(**options):
    module = nn.TransformerDecoderLayer(8, 2, 16, batch_first=True, **options)
    return module, lambda x: module(x, x.flip(0))


def translating():
    module = nn.Transformer(8, 2, 1, 1, 16, batch_first=True)
    return module, lambda x: module(x, x.flip(0), tgt_mask=HIDDEN, tgt_is_causal=True)


MODULES = {
    "MultiheadAttention": attending,
    "MultiheadAttention with dropout": lambda: attending(dropout=0.5),
    "MultiheadAttention with more keys": lambda: attending(add_bias_kv=True, add_zero_attn=True),
    "MultiheadAttention with a mask": lambda: attending_with(attn_mask=HIDDEN),
    "MultiheadAttention, causal": lambda: attending_with(attn_mask=HIDDEN, is_causal=True),
    "MultiheadAttention with padding": lambda: attending_with(key_padding_mask=HIDDEN[:3]),
    "TransformerEncoderLayer": encoding,
    "TransformerEncoderLayer, norm first, no dropout": lambda: encoding(norm_first=True, dropout=0.0),
    "TransformerDecoderLayer": decoding,
    "TransformerDecoderLayer without dropout": lambda: decoding(dropout=0.0),
    "Transformer": translating,
}


def computed(call, x, gradient):
    """The result, and with a gradient also x's."""
    torch.manual_seed(1)
    with torch.set_grad_enabled(gradient):
        y = call(x)
    return y, *(torch.autograd.grad(y.square().sum(), x) if gradient else ())


@pytest.mark.thinned
@pytest.mark.parametrize("gradient", [False, True])
@pytest.mark.parametrize("training", [False, True])
@pytest.mark.parametrize("name", MODULES)
def test_a_module_computes_the_same_with_ours(name, training, gradient, monkeypatch):
    module, call = MODULES[name]()
    module.to(DEVICE).train(training)
    x = random(3, 5, 8).requires_grad_()
    theirs = computed(call, x, gradient)
    monkeypatch.setattr(F, "scaled_dot_product_attention", attention)
    torch.testing.assert_close(computed(call, x, gradient), theirs)


def test_a_module_without_a_gradient_launches_ours(monkeypatch, launched):
    module, call = decoding()
    monkeypatch.setattr(F, "scaled_dot_product_attention", attention)
    with torch.no_grad():
        module.to(DEVICE).eval()
        call(random(3, 5, 8))
    assert launched == [(3, 2, 5, 4)]  # its first attention is torch's fast way, which calls no function
