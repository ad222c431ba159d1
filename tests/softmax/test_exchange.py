"""Programs that write their pairs into each other's memory: here all ranks are of one process, one after another."""

import pytest
import torch

import needs
from helpers import DEVICE, ranks, traffic, xray
from helpers.softmax.kernels.exchange import HEADER, exchange_kernel, late_kernel
from helpers.softmax.launches import exchange
from helpers.softmax.launches.exchange import SLOTS, Exchange

INF = float("inf")


@pytest.fixture(autouse=True)
def seed():
    torch.manual_seed(0)


def exchanges_of(W, words=2000):
    """The exchanges of W ranks that reach each other's memory."""
    mails = [[torch.zeros(words, dtype=torch.int64, device=DEVICE) for _ in range(3)] for _ in range(W)]
    peers = [torch.tensor([of_rank[turn].data_ptr() for of_rank in mails], device=DEVICE) for turn in range(3)]
    return [Exchange(of_rank, peers, rank, W) for rank, of_rank in enumerate(mails)]


def run(launch, tensors):
    exchange.on_stream(tensors[0], launch, tensors)


def softmax_over(exchanges, x, sizes, lay=torch.Tensor.contiguous):
    """One call on each rank: all publish, then those that have looked in vain look again."""
    shards = list(map(lay, x.split(sizes, 1)))
    ys = [torch.full_like(shard, 7.0) for shard in shards]
    steps = [of.steps(y, shard, 0, 0) for of, y, shard in zip(exchanges, ys, shards, strict=True)]
    for first, _ in steps:
        run(*first)
    late = [bool((y == 7).all()) for y in ys]
    for _, second in steps:
        run(*second)
    return torch.cat(ys, 1), late


@pytest.mark.thinned
@pytest.mark.parametrize("sizes", [[1000, 0, 103], [300, 500, 303], [1, 1, 1101], [1103, 0, 0]], ids=str)
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float16], ids=str)
def test_it_is_the_softmax_of_the_whole_row(sizes, dtype):
    x = (4 * torch.randn(4, 1103, device=DEVICE)).to(dtype)
    x[0, :900], x[1, :], x[2, 5] = -INF, -INF, float("nan")
    found, _ = softmax_over(exchanges_of(3), x, sizes)
    close = {"rtol": 1e-4, "atol": 1e-6} if dtype == torch.float32 else {"rtol": 1e-2, "atol": 1e-3}
    torch.testing.assert_close(found.double(), x.double().softmax(1), equal_nan=True, **close)


def test_the_last_rank_waits_for_nobody_and_the_others_write_later():
    x = torch.randn(3, 60, device=DEVICE)
    found, late = softmax_over(exchanges_of(3), x, [20, 20, 20])
    assert late == [True, True, False]
    torch.testing.assert_close(found, x.softmax(1))


def test_mail_is_clear_when_its_turn_comes_again():
    exchanges = exchanges_of(2)
    for M in (5, 2, 4, 1, 5, 3, 5):
        x = torch.randn(M, 8230, device=DEVICE)
        found, late = softmax_over(exchanges, x, [30, 8200])
        assert late == [True, False]  # the first rank found no word of an earlier call
        for mail in (one.mails[one._turn - 2] for one in exchanges):  # of the call before
            assert not mail[0] and not mail[HEADER.value :].any()
        torch.testing.assert_close(found, x.softmax(1))


def test_shards_of_one_shape_may_lie_otherwise():
    exchanges, x = exchanges_of(2), torch.randn(3, 50, device=DEVICE)
    for dtype, lay in ((torch.float32, torch.clone), (torch.bfloat16, torch.clone), (torch.float32, lambda part: part)):
        found, _ = softmax_over(exchanges, x.to(dtype), [25, 25], lay)
        torch.testing.assert_close(found, x.to(dtype).softmax(1))
    assert len(exchanges[0]._known) == 3  # a launch that is compiled for one is not used for another


def test_a_rank_may_be_a_call_ahead():
    ahead, behind = exchanges_of(2)
    xs = torch.randn(6, 3, 40, device=DEVICE)
    waiting = []
    for x in xs:  # the rank behind publishes, and is late, each time before the rank ahead has looked
        ys = torch.empty(3, 20, device=DEVICE), torch.empty(3, 20, device=DEVICE)
        steps = [one.steps(y, part, 0, 0) for one, y, part in zip((behind, ahead), ys, halves(x), strict=True)]
        run(*steps[0][0])
        for step in waiting:
            run(*step)
        run(*steps[1][0])
        run(*steps[0][1])
        waiting = [steps[1][1]]
        torch.testing.assert_close(torch.cat(ys, 1), x.softmax(1))


def halves(x):
    return [half.contiguous() for half in x.chunk(2, 1)]


@needs.interpreter  # on a GPU the launch fails
def test_a_row_is_nan_if_a_rank_never_comes():
    exchanges, x = exchanges_of(2), torch.randn(3, 40, device=DEVICE)
    y = torch.zeros(3, 20, device=DEVICE)
    for step in exchanges[0].steps(y, halves(x)[0], 3, 3):
        run(*step)
    assert y.isnan().all()


def test_a_shard_too_wide_for_the_chip_is_loaded_twice(monkeypatch):
    monkeypatch.setattr(exchange, "_MOST_WARPS", 1)
    x = torch.randn(2, 20000, device=DEVICE)
    assert exchange._slices(19000, 4)[:3] == (1024, 7, 3)
    found, late = softmax_over(exchanges_of(2), x, [19000, 1000])
    assert late == [True, False]
    torch.testing.assert_close(found, x.softmax(1))


@needs.interpreter  # addresses of a GPU mean nothing in the process that counts
def test_there_is_one_load_and_one_store():
    y, shards = torch.empty(4, 3000, device=DEVICE), halves(torch.randn(4, 6000, device=DEVICE))
    steps = [of.steps(y, shard, 0, 0) for of, shard in zip(exchanges_of(2), shards, strict=True)]
    for first, _ in steps:
        run(*first)
    mail = steps[1][0][1][2]
    mail[0] = 0  # all words are there now: as if nobody had been late

    def again(shard):
        for launch, (_, _, *more) in steps[1]:
            run(launch, (y, shard, *more))

    seen = traffic.count(again, shards[1])
    assert (seen.loads_per_element, seen.stores_per_element) == (pytest.approx(1, abs=0.05), pytest.approx(1, abs=0.05))


@pytest.mark.parametrize(
    ("N", "itemsize", "slices"),
    [(0, 2, (1024, 1, 1, 1)), (1100, 2, (1024, 2, 1, 1)), (64128, 2, (8192, 8, 1, 4)), (64128, 4, (8192, 8, 1, 8)),
     (2**20, 2, (32768, 8, 4, 16)), (2**20, 4, (16384, 8, 8, 16))],
)  # fmt: skip
def test_a_shard_has_at_most_as_many_slices_as_slots(N, itemsize, slices):
    """BLOCK, SPLIT, CHUNKS and warps."""
    assert exchange._slices(N, itemsize)[:4] == slices and slices[1] <= SLOTS


def test_mail_holds_the_words_of_so_many_rows():
    (rank, _) = exchanges_of(2, 2 + 2 * SLOTS * 10)
    assert [rank.holds(M) for M in (0, 1, 10, 11)] == [False, True, True, False]


@needs.forked_ranks
@pytest.mark.parametrize("lacking", ["_mails", "_in_common_memory"])
def test_what_one_rank_lacks_is_used_by_none(monkeypatch, lacking):
    def made(group):
        return exchange._made_for(group, torch.device("cpu"))

    def lacks(*given):
        raise RuntimeError("out of memory")

    def on_rank(group):
        if group.rank() == 1:
            setattr(exchange, lacking, lacks)
        return made(group)

    monkeypatch.setattr(exchange, "_mails", lambda *given: "mails")
    monkeypatch.setattr(exchange, "_in_common_memory", lambda *given: "all mails")
    assert ranks.run(made, world=2) == ["all mails"] * 2
    assert ranks.run(on_rank, world=3) == [None] * 3


def test_the_kernels_compile_for_a_gpu_without_spilling():
    x, mail = torch.empty(16, dtype=torch.bfloat16), torch.empty(16, dtype=torch.int64)
    of_all = {"W": 4, "SLOTS": SLOTS, "VEC": 8, "EDGES": False, "PARTS": 128, "BLOCK": 8192}
    given = {
        exchange_kernel: ((x, x, mail, mail, 64128, 64, 64128, 1, 100), {**of_all, "AHEAD": 40}),
        late_kernel: ((x, x, mail, mail, 64128, 64, 64128, 100), of_all),
    }
    for kernel, (args, options) in given.items():
        report = xray.report(kernel, *args, **options, num_warps=4, maxnreg=96, target="sm_90")
        assert not report.spill_bytes, kernel
