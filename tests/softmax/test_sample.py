"""helpers.softmax.sample: a column of each row by its probability, and the same one whatever is beside the row."""

import pytest
import torch
import triton
import triton.language as tl

import needs
from helpers import DEVICE, traffic
from helpers.softmax import sample
from helpers.softmax.kernels.sample import _pick
from helpers.softmax.launches.sample import picks_of, sample_launches

DTYPES = (torch.float32, torch.bfloat16, torch.float16)
INF, NAN = float("inf"), float("nan")
LONG = 5200
"""Columns of eleven tiles, the last one not whole, whose pairs several programs find."""


def seeded(seed=0):
    return torch.Generator(DEVICE).manual_seed(seed)


def drawn(x, seed=0, **options):
    return sample(x, generator=seeded(seed), **options)


def far_apart(n_rows, n_cols, dtype=torch.float32):
    """Logits of which every row has one that takes all the probability, and its columns."""
    torch.manual_seed(0)
    x, at = torch.randn(n_rows, n_cols, device=DEVICE), torch.randint(0, n_cols, (n_rows,), device=DEVICE)
    return x.scatter_(1, at[:, None], 300.0).to(dtype), at


@triton.jit
def shares_kernel(count_ptr, w_ptr, U, LANES: tl.constexpr):
    """How many numbers of a grid of U in [0, 1) pick each lane of LANES weights."""
    w = tl.load(w_ptr + tl.arange(0, LANES))
    for i in range(U):
        lane, _ = _pick(w, i / U, LANES)
        tl.store(count_ptr + lane, tl.load(count_ptr + lane) + 1)


def shares(*weights, U):
    count = torch.zeros(len(weights), dtype=torch.int32, device=DEVICE)
    shares_kernel[1,](count, torch.tensor(weights, device=DEVICE), U, len(weights))
    return count.tolist()


def test_a_lane_is_picked_for_its_share_of_all_numbers():
    assert shares(1.0, 5.0, 0.0, 2.0, U=64) == [8, 40, 0, 16]


@pytest.mark.parametrize("weights", [(0.0, 0.0, 1.0, 2.0), (3.0, 0.0, 0.0, 0.0), (0.0, 1.0, 0.0, 0.0)])
def test_a_lane_without_weight_is_picked_for_no_number(weights):
    picked = shares(*weights, U=16)
    assert all(count == 0 for count, weight in zip(picked, weights, strict=True) if weight == 0) and sum(picked) == 16


@needs.gpu
def test_sums_that_grow_where_a_weight_is_0_pick_no_such_lane():
    """Threads add in another order than their neighbours: without a guard, rounding tells their sums apart."""
    w = torch.rand(512, generator=seeded(), device=DEVICE)
    w[torch.rand(512, generator=seeded(1), device=DEVICE) < 0.8] = 0.0
    picked = torch.tensor(shares(*w.tolist(), U=200_000), device=DEVICE)
    assert (picked[w == 0] == 0).all() and picked.sum() == 200_000


@triton.jit
def last_kernel(lane_ptr, w_ptr, LANES: tl.constexpr):
    lane, _ = _pick(tl.load(w_ptr + tl.arange(0, LANES)), 1.0, LANES)
    tl.store(lane_ptr, lane)


def test_where_rounding_leads_past_the_end_the_last_lane_with_weight_is_picked():
    w, lane = torch.zeros(64, device=DEVICE), torch.zeros(1, dtype=torch.int32, device=DEVICE)
    w[:41] = torch.rand(41, generator=seeded(), device=DEVICE)
    last_kernel[1,](lane, w, 64)
    assert lane.item() == 40


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
@pytest.mark.parametrize("n_cols", [1, 2, 31, 33, 512, 513, LONG])
def test_any_number_of_columns_in_every_dtype(n_cols, dtype):
    x, at = far_apart(3, n_cols, dtype)
    assert drawn(x).equal(at) and drawn(x).dtype == torch.int64


@pytest.mark.parametrize(
    "view", [lambda x: x, lambda x: x[:, 1], lambda x: x.transpose(0, 1), lambda x: x[..., 1::3], lambda x: x[0, 0],
             lambda x: x.transpose(0, 2), lambda x: x[:1].expand(5, -1, -1), lambda x: x[:0], lambda x: x[:, :, :1]]
)  # fmt: skip
def test_any_strides_give_what_a_copy_gives(view):
    x = view(torch.randn(2, 3, 14, generator=seeded(), device=DEVICE))
    assert drawn(x).equal(drawn(x.clone(memory_format=torch.contiguous_format))) and drawn(x).shape == x.shape[:-1]


def test_columns_of_several_tiles_may_lie_apart():
    x, at = far_apart(2, 1100)
    assert drawn(x.t().contiguous().t()).equal(at) and drawn(torch.stack([x, -x], -1)[..., 0]).equal(at)


@pytest.mark.parametrize(("shape", "temperature"), [((300, 5), 1.0), ((200, LONG), 0.5)], ids=str)
def test_columns_come_as_often_as_they_are_probable(shape, temperature):
    """Five columns, of which the long row has one at each end of its tiles: χ² of 4 degrees is below 18.5 but for one
    seed in a thousand."""
    M, N = shape
    p = torch.tensor([0.4, 0.3, 0.2, 0.08, 0.02], device=DEVICE)
    columns = torch.tensor([0, 1, 2, 3, 4] if N == 5 else [0, 511, 512, 2047, N - 1], device=DEVICE)
    x = torch.full((N,), -INF, device=DEVICE)
    x[columns] = temperature * p.log()
    picks = drawn(x.expand(M, N), temperature=temperature)
    count = torch.stack([(picks == column).sum() for column in columns])
    assert count.sum() == M and ((count - M * p) ** 2 / (M * p)).sum() < 18.5


@needs.gpu
@pytest.mark.parametrize("dtype", DTYPES[:2], ids=str)
@pytest.mark.parametrize("n_cols", [5, 1000, 131072])
def test_ten_million_draws(n_cols, dtype):
    """χ² of the columns with p > 10⁻³, within 5 standard deviations."""
    from helpers.measure.sample import frequencies

    found = frequencies(n_cols, dtype)
    assert abs(found["chi2"] - found["columns"]) < 5 * (2 * found["columns"]) ** 0.5


@pytest.mark.parametrize("n_cols", [40, LONG])
@pytest.mark.parametrize("dtype", DTYPES[:2], ids=str)
def test_a_row_gets_the_same_column_whatever_is_beside_it(n_cols, dtype):
    x = torch.randn(9, n_cols, generator=seeded(), device=DEVICE).to(dtype)
    of_all = drawn(x)
    for n_rows in (1, 2, 8):
        assert drawn(x[:n_rows]).equal(of_all[:n_rows])
    others = torch.cat([x[:1], 5 * x[1:], x])
    assert drawn(others)[0] == of_all[0] and drawn(x.view(3, 3, n_cols)).view(-1).equal(of_all)


@needs.gpu
def test_a_busy_gpu_draws_the_same():
    x, busy = torch.randn(64, 131072, generator=seeded(), device=DEVICE), torch.cuda.Stream()
    alone, a = drawn(x), torch.randn(4096, 4096, device=DEVICE)
    for _ in range(20):
        with torch.cuda.stream(busy):
            a = (a @ a).clamp(-1, 1)
        assert drawn(x).equal(alone)


def test_rows_have_random_numbers_of_their_own():
    assert len(drawn(torch.zeros(12, 400, device=DEVICE)).unique()) > 6


def test_the_generator_is_advanced_once_a_call():
    x, generator = torch.zeros(4, 400, device=DEVICE), seeded()
    first, second = sample(x, generator=generator), sample(x, generator=generator)
    assert first.equal(drawn(x)) and not first.equal(second) and not first.equal(drawn(x, seed=1))
    other = seeded()
    torch.randint(2**63 - 1, (1,), generator=other, device=DEVICE)
    assert sample(x, generator=other).equal(second)


def test_without_a_generator_torchs_seed_counts():
    x = torch.zeros(4, 400, device=DEVICE)
    first, again = (torch.manual_seed(7) and sample(x) for _ in range(2))
    assert first.equal(again) and not sample(x).equal(again)


@pytest.mark.parametrize("n_cols", [7, LONG])
@pytest.mark.parametrize("dtype", DTYPES[:2], ids=str)
def test_at_temperature_0_the_first_of_the_largest_is_picked(n_cols, dtype):
    x = torch.randint(0, 3, (5, n_cols), generator=seeded(), device=DEVICE).to(dtype)
    x[0, 2:5], x[1], x[2, -1], x[3] = 9.0, torch.finfo(dtype).min, INF, 2.0
    assert drawn(x, temperature=0).equal(x.argmax(-1))


def test_at_temperature_0_the_closest_logits_are_told_apart():
    x = torch.tensor([1e-44, 3e-45, 1.5e-44, 0.0], device=DEVICE)
    assert drawn(x, temperature=0).item() == 2


def test_each_row_has_its_temperature():
    x = torch.randn(2, 4, LONG, generator=seeded(), device=DEVICE)
    T = torch.tensor([[0.0], [1.0]], device=DEVICE)
    picks = drawn(x, temperature=T)
    assert picks[0].equal(x[0].argmax(-1)) and picks[1].equal(drawn(x)[1])
    assert drawn(x, temperature=torch.tensor(0.0)).equal(x.argmax(-1))


def test_a_low_temperature_picks_among_the_largest():
    x = torch.randn(6, LONG, generator=seeded(), device=DEVICE)
    assert drawn(x, temperature=1e-6).equal(x.argmax(-1))


def test_logits_that_softmax_can_take_can_be_drawn_from():
    lowest = torch.finfo(torch.float32).min
    x = torch.tensor([[lowest, lowest, -INF], [3e38, lowest, -3e38], [INF, 0.0, -INF]], device=DEVICE)
    assert (drawn(x) < torch.tensor([2, 1, 1], device=DEVICE)).all()


@pytest.mark.parametrize("n_cols", [1, 40, LONG])
@pytest.mark.parametrize("spoilt", ["NaN", "only −inf", "temperature"])
def test_no_column_is_drawn_of_a_row_without_probabilities(n_cols, spoilt):
    x, T = torch.randn(3, n_cols, generator=seeded(), device=DEVICE), torch.ones(3, device=DEVICE)
    if spoilt == "NaN":
        x[1, n_cols // 2] = NAN
    elif spoilt == "only −inf":
        x[1] = -INF
    else:
        T[1] = -1.0
    for temperature in (T, 0 * T.clamp(min=0) if spoilt != "temperature" else NAN * T):
        bad = (temperature[:, None] + x).isnan().any(1) | x.isneginf().all(1) | (temperature < 0)
        seed = torch.zeros(1, dtype=torch.int64, device=DEVICE)
        assert (picks_of(x, seed, None, temperature) == -1).equal(bad)
    if DEVICE.type == "cpu":
        with pytest.raises(RuntimeError, match=r"no column of row 1 can be drawn"):
            drawn(x, temperature=T)
    else:
        assert drawn(x, temperature=T)[1] == -1


@needs.interpreter
@pytest.mark.parametrize(("n_cols", "tile", "pairs"), [(400, 0, 0), (LONG, 512, 11)])
def test_reads_each_logit_once_and_the_tile_that_is_picked_again(n_cols, tile, pairs):
    x = torch.zeros(2, n_cols, device=DEVICE)
    x[:, 0] = 600.0  # the first tile, which is whole, is picked
    kernels = [operation for operation in traffic.count(drawn, x).operations if operation.is_kernel]
    assert len(kernels) == (2 if tile else 1)
    seed = 1
    assert sum(kernel.loads for kernel in kernels) == x.numel() + 2 * (tile + 2 * pairs + seed)


def test_a_launch_is_remembered_for_a_layout_and_a_temperature():
    x = torch.zeros(3, LONG, device=DEVICE)
    assert sample_launches(x, 1.0) is sample_launches(x.clone(), 1.0) is not sample_launches(x, 2.0)


def test_torch_compile_takes_it_as_one_operator():
    x = torch.randn(3, LONG, generator=seeded(), device=DEVICE, requires_grad=True)
    picks = torch.compile(lambda x: sample(2 * x, temperature=0), backend="aot_eager", fullgraph=True)(x)
    assert picks.equal(x.argmax(-1))


@needs.gpu
def test_a_cuda_graph_draws_anew_at_each_replay():
    x = torch.zeros(8, 131072, device=DEVICE)
    sample(x)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        picks = sample(x)
    graph.replay()
    first = picks.clone()
    graph.replay()
    assert not picks.equal(first) and (first >= 0).all()


@pytest.mark.parametrize(
    ("logits", "options", "error", "words"),
    [
        ([1.0], {}, TypeError, "they are a list"),
        (torch.zeros(2, 3, dtype=torch.float64), {}, TypeError, "float64"),
        (torch.zeros(()), {}, ValueError, r"their shape is \(\)"),
        (torch.zeros(3, 0), {}, ValueError, "at least one column"),
        (torch.zeros(2, 3), {"temperature": "hot"}, TypeError, "it is a str"),
        (torch.zeros(2, 3), {"temperature": -1.0}, ValueError, "it is -1.0"),
        (torch.zeros(2, 3), {"temperature": INF}, ValueError, "finite"),
        (torch.zeros(2, 3), {"temperature": torch.ones(3)}, ValueError, r"must expand to \(2,\)"),
    ],
)
def test_what_cannot_be_drawn_from_is_refused(logits, options, error, words):
    with pytest.raises(error, match=words):
        sample(logits.to(DEVICE) if isinstance(logits, torch.Tensor) else logits, **options)
