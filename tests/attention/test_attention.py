"""Attention against float64, over lengths, layouts, masks and groups, and what is torch's."""

import pytest
import torch
import triton

from helpers.attention import attention, launches, torchs_attention
from helpers.attention.kernels import attend_kernel
from helpers.engine.runtime import DEVICE
from helpers.softmax.launches.launch import Launch

DTYPES = torch.float32, torch.bfloat16, torch.float16


def tensors(*shapes, dtype=torch.float32, seed=0, scale=1.0):
    generator = torch.Generator().manual_seed(seed)
    return [(scale * torch.randn(shape, generator=generator)).to(DEVICE, dtype) for shape in shapes]


def expected(q, k, v, is_causal=False, scale=None, enable_gqa=False):
    return torchs_attention(
        *(x.double().cpu() for x in (q, k, v)), is_causal=is_causal, scale=scale, enable_gqa=enable_gqa
    )


def error(y, want):
    return (y.double().cpu() - want).abs().max().item()


def close(q, k, v, *, largest_score=0.0, **how):
    """Ours is at most twice as far from float64 as torch's own, and a little for the last digits of o and of scores."""
    want = expected(q, k, v, **how)
    torchs = error(torchs_attention(q.cpu(), k.cpu(), v.cpu(), **how), want)
    least = torch.finfo(q.dtype).eps * want.abs().max().item() * (1 + largest_score)
    return error(attention(q, k, v, **how), want) <= 2 * torchs + 2 * least


@pytest.mark.thinned
@pytest.mark.parametrize("dtype", DTYPES, ids=str)
@pytest.mark.parametrize("is_causal", [False, True])
@pytest.mark.parametrize(("tokens", "keys"), [(1, 1), (70, 70), (130, 257), (257, 130), (1, 300), (3, 1000), (64, 64)])
def test_any_lengths(dtype, is_causal, tokens, keys):
    assert close(*tensors((2, 2, tokens, 32), (2, 2, keys, 32), (2, 2, keys, 32), dtype=dtype), is_causal=is_causal)


@pytest.mark.parametrize("columns", [1, 8, 16, 64, 80, 96, 128, 256])
def test_any_number_of_columns(columns):
    assert close(*tensors(*[(1, 2, 40, columns)] * 3, dtype=torch.bfloat16))


@pytest.mark.parametrize("tokens", [1, 5, 90])
@pytest.mark.parametrize("is_causal", [False, True])
def test_query_heads_share_keys_and_values(tokens, is_causal):
    q, k, v = tensors((2, 8, tokens, 16), (2, 2, 210, 16), (2, 2, 210, 16))
    assert close(q, k, v, is_causal=is_causal, enable_gqa=True)


@pytest.mark.parametrize("tokens", [2, 80])
def test_any_strides(tokens):
    q, k, v = (x.transpose(1, 2) for x in tensors((2, tokens, 3, 16), (2, 100, 3, 16), (2, 100, 3, 16)))
    assert close(q, k, v)
    k, v = (x.transpose(2, 3) for x in tensors((2, 3, 16, 100), (2, 3, 16, 100)))
    assert close(q, k[..., :].expand(2, 3, 100, 16), v)
    assert close(q, *(x[:, :1].expand(2, 3, 100, 16) for x in (k, v)))


@pytest.mark.parametrize("tokens", [2, 80])
@pytest.mark.parametrize("is_causal", [False, True])
def test_steep_scores_up_and_down(tokens, is_causal):
    q, k, v = tensors((1, 1, tokens, 16), (1, 1, 200, 16), (1, 1, 200, 16))
    for sign in (1, -1):
        steep = k + sign * torch.linspace(-80, 80, 200, device=DEVICE)[:, None]
        largest = (q.abs() @ steep.mT / 4).abs().max().item()
        assert close(q.abs(), steep, v + 5, is_causal=is_causal, largest_score=largest)


def test_a_scale():
    q, k, v = tensors(*[(2, 70, 16)] * 3)
    for scale in (0.01, 3.0, 0.0, -1.0):
        assert close(q, k, v, scale=scale)


@pytest.mark.parametrize("tokens", [2, 80])
def test_inf_and_nan_reach_just_their_rows(tokens):
    q, k, v = tensors((1, 1, tokens, 16), (1, 1, 90, 16), (1, 1, 90, 16))
    q[0, 0, 1] = float("nan")
    y = attention(q, k, v)
    assert y[0, 0, 1].isnan().all() and y[0, 0].isnan().any(dim=1).sum() == 1


@pytest.mark.parametrize("tokens", [2, 80])
def test_scores_of_minus_inf_are_left_out(tokens):
    q, k, v = tensors((1, 1, tokens, 16), (1, 1, 300, 16), (1, 1, 300, 16))
    k[0, 0, :250, 0] = -float("inf")
    q[..., 0] = 1.0
    y = attention(q, k, v)
    assert error(y, expected(q, k[:, :, 250:], v[:, :, 250:])) < 1e-5


@pytest.mark.parametrize(
    "make",
    [
        lambda q, k, v: (q.double(), k.double(), v.double()),
        lambda q, k, v: (q.requires_grad_(), k, v),
        lambda q, k, v: (q, k, v[..., :8]),
        lambda q, k, v: (q[:1], k, v),
        lambda q, k, v: (q[:, :0], k, v),
        lambda q, k, v: (q, k[:, :0], v[:, :0]),
    ],
    ids=["float64", "gradient", "other width of values", "broadcast", "no queries", "no keys"],
)
def test_the_rest_is_torch_s(make):
    q, k, v = make(*tensors(*[(2, 40, 16)] * 3))
    y = attention(q, k, v)
    assert torch.allclose(y, torchs_attention(q, k, v), atol=1e-5) and y.requires_grad == q.requires_grad


@pytest.mark.parametrize("how", [{"is_causal": 1}, {"is_causal": "yes"}, {"enable_gqa": "no"}], ids=str)
def test_a_flag_that_torch_refuses_is_refused(how):
    with pytest.raises(TypeError):
        attention(*tensors(*[(1, 2, 40, 16)] * 3), **how)


def test_autocast_has_torch_s_dtype():
    x = tensors(*[(1, 2, 40, 16)] * 3)
    with torch.autocast(DEVICE.type, torch.bfloat16):
        assert attention(*x).dtype == torchs_attention(*x).dtype == torch.bfloat16


def test_a_scale_that_float32_does_not_hold_gives_the_mean():
    q, k, v = tensors(*[(1, 2, 70, 16)] * 3)
    assert torch.allclose(attention(q, k, v, scale=1e-50), v.mean(2, keepdim=True).expand_as(v), atol=1e-5)


@pytest.mark.parametrize("tokens", [1, 70])
def test_a_gpu_with_too_little_shared_memory_takes_torch_s(tokens, monkeypatch):
    tried = []

    def refuse(self, *_):
        tried.append(self.kernel)
        raise triton.OutOfResources(163_840, 101_376, "shared memory")

    monkeypatch.setattr(Launch, "__call__", refuse)
    monkeypatch.setattr(launches, "_known", {})
    x = tensors((1, 2, tokens, 16), *[(1, 2, 3000, 16)] * 2)
    for _ in range(2):
        assert torch.equal(attention(*x), torchs_attention(*x))
    assert tried == [attend_kernel]


def test_an_empty_list_of_keys_gives_0():
    q, k, v = tensors((1, 1, 3, 16), (1, 1, 0, 16), (1, 1, 0, 16))
    assert torch.equal(attention(q, k, v), torch.zeros_like(q))
