"""The kernel that shares a row: right however many pairs are missing, and each element loaded and stored once."""

import re

import pytest
import torch
import triton
import triton.language as tl

import needs
from helpers import DEVICE
from helpers.engine import child, compiled, interpreter
from helpers.softmax.kernels import shared
from helpers.softmax.launches.rows import shared_launcher
from helpers.softmax.plans.rows import Shared

BLOCK = 256
ONE_WARP, FOUR_WARPS = (Shared(BLOCK, num_warps, 80) for num_warps in (1, 4))
DTYPES = (torch.float32, torch.bfloat16, torch.float16)


@pytest.fixture(autouse=True)
def seed():
    torch.manual_seed(0)


class Row:
    """Rows of x shared by programs of BLOCK columns, with their words, which stay from launch to launch."""

    def __init__(self, x, chosen=ONE_WARP, looks=0):
        self.x, (M, N) = x, x.shape
        self.split = -(-N // BLOCK)
        V = 16 // x.element_size()
        chosen = chosen.replaced(SPLIT=self.split)
        self.launch = shared_launcher(M, N, x.stride(0), x.element_size(), V, N % V != 0, chosen, looks=looks)
        self.parts = max(32 * chosen.num_warps, 1 << (self.split - 1).bit_length())
        self.words = torch.zeros(M, self.split, dtype=torch.int64, device=DEVICE)

    def softmax(self):
        y = torch.empty(self.x.shape, dtype=self.x.dtype, device=DEVICE)
        launch = self.launch
        launch.kernel[launch.grid](y, self.x, self.words, *launch.arguments, **launch.options)
        return y

    def traffic(self):
        """Loads and stores of a launch."""
        launches = []
        with interpreter.watching(launches.append):
            self.softmax()
        (launch,) = launches
        return launch.loads, launch.stores


def numbers(*shape, dtype=torch.float32):
    return (4 * torch.randn(*shape, device=DEVICE)).to(dtype)


def error(y, x):
    want = torch.softmax(x.double(), dim=1)
    return ((y.double() - want).norm() / want.norm()).item()


def assert_agrees(y, x):
    assert error(y, x) <= 2 * error(torch.softmax(x, dim=1), x) + torch.finfo(torch.float32).eps


@pytest.mark.thinned
@pytest.mark.parametrize("dtype", DTYPES, ids=str)
@pytest.mark.parametrize("n_cols", [257, 1000, 1001, 1024, 4093, 9000])
@pytest.mark.parametrize("chosen", [ONE_WARP, FOUR_WARPS], ids=["one warp", "four warps"])
def test_agrees_with_float64(n_cols, dtype, chosen):
    x = numbers(3, n_cols, dtype=dtype)
    assert_agrees(Row(x, chosen).softmax(), x)


def test_rows_may_lie_apart():
    base = numbers(4, 1024)
    assert_agrees(Row(base[:, :1000]).softmax(), base[:, :1000])


@pytest.mark.parametrize("column", [0, 1, 998, 999, 1000], ids=lambda column: f"column {column}")
def test_the_elements_before_and_after_the_whole_vectors_count(column):
    x = numbers(5, 1001)
    x[:, column] = 20.0
    y = Row(x).softmax()
    assert_agrees(y, x)
    assert (y[:, column] > 0.9).all()


@pytest.mark.parametrize("edge", [0.0, -1.0, -float("inf")], ids=str)
def test_a_row_whose_maximum_is_at_its_edge(edge):
    x = torch.full((5, 1001), -float("inf"), device=DEVICE)
    x[:, 0], x[:, -1] = edge, 0.0
    torch.testing.assert_close(Row(x).softmax(), torch.softmax(x, dim=1))


@pytest.mark.thinned(2)
@pytest.mark.parametrize("value", [-float("inf"), float("inf"), float("nan"), torch.finfo(torch.float32).min], ids=str)
@pytest.mark.parametrize("columns", [slice(0, 1), slice(500, 501), slice(None), slice(256, 512)], ids=str)
def test_special_values_are_those_of_torch(value, columns):
    x = numbers(3, 1001)
    x[1, columns] = value
    torch.testing.assert_close(Row(x).softmax(), torch.softmax(x, dim=1), equal_nan=True, rtol=1e-4, atol=1e-6)


@pytest.mark.thinned(1)
@pytest.mark.parametrize("dtype", DTYPES, ids=str)
@pytest.mark.parametrize("n_cols", [1000, 1001])
def test_a_program_that_finds_pairs_missing_writes_the_same_bits(n_cols, dtype):
    """In the interpreter the first program of a row finds all the other pairs missing, the second time none."""
    row = Row(numbers(5, n_cols, dtype=dtype))
    helped = row.softmax()
    assert row.words.all()
    assert torch.equal(row.softmax(), helped)


@pytest.mark.parametrize("missing", [[0], [3], [1, 2], [0, 1, 2, 3]], ids=str)
def test_whoever_helps_writes_the_words_that_their_owners_write(missing):
    row = Row(numbers(5, 1001))
    y, words = row.softmax(), row.words.clone()
    row.words[:, missing] = 0
    assert torch.equal(row.softmax(), y) and torch.equal(row.words, words)


@pytest.fixture
def last_programs_first(monkeypatch):
    """The interpreter begins with the program that has the largest number."""
    from triton.runtime.interpreter import interpreter_builder as builder

    set_grid_idx = builder.set_grid_idx
    monkeypatch.setattr(
        builder,
        "set_grid_idx",
        lambda *index: set_grid_idx(*(size - 1 - i for size, i in zip(builder.grid_dim, index, strict=True))),
    )


@needs.interpreter
@pytest.mark.parametrize("n_cols", [1000, 1001])
def test_any_program_may_be_the_one_that_helps(n_cols, last_programs_first):
    row = Row(numbers(5, n_cols))
    helped = row.softmax()
    assert_agrees(helped, row.x)
    assert torch.equal(row.softmax(), helped)


def test_a_word_is_the_maximum_and_the_sum_of_its_slice():
    x = numbers(2, 1000)
    row = Row(x)
    row.softmax()
    m, l = (row.words >> 32).int().view(torch.float32), row.words.int().view(torch.float32)
    slices = [x[:, start : start + BLOCK].double() for start in range(0, 1000, BLOCK)]
    torch.testing.assert_close(m, torch.stack([part.amax(1) for part in slices], 1).float())
    sums = torch.stack([(part - part.amax(1, keepdim=True)).exp().sum(1) for part in slices], 1)
    torch.testing.assert_close(l, sums.float())


@needs.interpreter
def test_every_element_is_loaded_once_and_stored_once_where_nobody_helps():
    row = Row(numbers(5, 1001))
    row.softmax()
    programs = 5 * row.split
    # A program's own word is exchanged, which is a load and a store, and it loads all words of its row.
    assert row.traffic() == (5 * 1001 + programs * (1 + row.parts), 5 * 1001 + programs)


@needs.interpreter
@pytest.mark.parametrize("looks", [0, 1, 5])
def test_a_program_looks_at_the_missing_words_as_often_as_it_was_told(looks):
    """No other program runs that could store a word meanwhile."""
    n_cols = 1000
    with interpreter.running_only(lambda grid: [(0, 0, 0)]):
        without, _ = Row(numbers(1, n_cols)).traffic()
        loads, _ = Row(numbers(1, n_cols), looks=looks).traffic()
    missing = Row(numbers(1, n_cols)).parts - 1
    assert loads - without == looks * missing


@needs.interpreter
def test_help_computes_only_the_pairs_that_are_missing():
    row = Row(numbers(1, 1000))
    row.softmax()
    complete, _ = row.traffic()
    row.words[:, -1] = 0
    loads, _ = row.traffic()
    again = 1000 - 3 * BLOCK
    # The first program asks for four words, computes and exchanges one pair, and does its own slice once more.
    assert loads - complete == 4 + again + 1 + row.parts + BLOCK


def test_rows_beyond_65535_go_into_the_third_dimension_of_the_grid():
    launch = shared_launcher(65536 * 2, 512, 512, 4, 4, False, ONE_WARP.replaced(SPLIT=2))
    assert launch.grid == (2, 43691, 3) and launch.words == 65536 * 2 * 2


def test_programs_of_rows_that_do_not_exist_do_nothing():
    x = numbers(3, 1000)
    row = Row(x)
    row.launch.grid = (row.split, 2, 2)
    assert_agrees(row.softmax(), x)


def test_every_thread_reads_a_word_so_that_all_warps_agree():
    for num_warps, split in ((1, 4), (4, 4), (1, 100), (4, 4096)):
        chosen = Shared(BLOCK, num_warps, 80, SPLIT=split)
        launch = shared_launcher(1, BLOCK * split, 0, 4, 4, False, chosen)
        of = launch.named
        assert of["PARTS"] >= max(split, 32 * num_warps) and of["PARTS"].bit_count() == 1 and of["BLOCK"] == BLOCK


# Ahead


@triton.jit
def _places_ahead(place_ptr, x_ptr, M, N, stride, BLOCK: tl.constexpr, LINES: tl.constexpr, AHEAD: tl.constexpr):
    """The elements, counted from x_ptr, whose lines a program for each (slice, row) would fetch."""
    part, row, SPLIT = shared.part_row_and_split()
    at = shared.lines_ahead(x_ptr, part, row, stride, M, N, BLOCK, AHEAD)
    places = (at.to(tl.int64) - x_ptr.to(tl.int64)) // (x_ptr.dtype.element_ty.primitive_bitwidth // 8)
    tl.store(place_ptr + (row * SPLIT + part) * LINES + tl.arange(0, LINES), places)


@pytest.mark.parametrize(("dtype", "line"), [(torch.float32, 32), (torch.bfloat16, 64)], ids=str)
def test_half_the_slice_some_rows_further_is_fetched_by_lines_and_nothing_outside_the_rows(dtype, line):
    M, N, stride, split, AHEAD = 6, 3 * 256 + 5, 1000, 4, 2
    lines = 256 // line // 2
    places = torch.zeros(M, split, lines, dtype=torch.int64, device=DEVICE)
    x = torch.zeros(M, stride, dtype=dtype, device=DEVICE)
    _places_ahead[(split, M, 1)](places, x, M, N, stride, 256, lines, AHEAD)
    of_slices = torch.arange(split)[:, None] * 256 + torch.arange(lines) * line
    rows = torch.arange(AHEAD, M + AHEAD).clamp(max=M - 1)
    assert torch.equal(places.cpu(), rows[:, None, None] * stride + of_slices.clamp(max=N - 1))


# Compiled


def ptx_of_shared_kernel(dtype, num_warps=1, turns=0, ahead=0, pause=0):
    """In a process that compiles: PTX for an H200."""
    types = dict.fromkeys(["y_stride", "x_stride", "M", "N", "looks"], "i32")
    types |= {"y_ptr": f"*{dtype}", "x_ptr": f"*{dtype}", "word_ptr": "*i64"}
    constants = {"VEC": 8, "EDGES": False, "PARTS": 32 * num_warps, "BLOCK": BLOCK, "POLICY": ""}
    constants |= {"TURNS": turns, "SMS": 132, "CYCLES": 100, "PAUSE": pause, "AHEAD": ahead}
    signature = {name: types.get(name, "constexpr") for name in shared.shared_kernel.arg_names}
    kernel, options = shared.shared_kernel, {"num_warps": num_warps}
    return compiled.compile_without_launch(kernel, signature, constants, (), "sm_90", options).asm["ptx"]


@pytest.mark.parametrize(
    ("dtype", "unpacking"), [("bf16", {"shl.b32", "and.b32"}), ("fp16", {"cvt.f32.f16"}), ("fp32", set())]
)
def test_compiled_it_fetches_words_early_and_unpacks_16_bits_at_each_use(dtype, unpacking):
    ptx = child.call(ptx_of_shared_kernel, dtype, interpret=False)
    inline = {
        word for text in re.findall(r"begin inline asm(.*?)end inline asm", ptx, re.DOTALL) for word in text.split()
    }
    assert "prefetch.global.L2" in inline
    assert inline & {"shl.b32", "and.b32", "cvt.f32.f16"} == unpacking


@pytest.mark.parametrize("num_warps", [1, 4])
def test_compiled_its_threads_meet_between_helping_and_beginning_again(num_warps):
    ptx = child.call(ptx_of_shared_kernel, "fp32", num_warps, interpret=False)
    (between,) = re.findall(r"call\.uni[^;]*help_row[^;]*;(.*?)call\.uni[^;]*_begin_again", ptx, re.DOTALL)
    assert re.search(r"\bbar\.(warp\.)?sync", between)


@pytest.mark.parametrize("turns", [0, 1, 6])
def test_compiled_its_programs_take_turns_where_an_sm_holds_several(turns):
    ptx = child.call(ptx_of_shared_kernel, "fp32", 4, turns, interpret=False)
    assert ("%clock" in ptx) == (turns > 1)


def test_compiled_it_fetches_ahead_between_its_word_and_the_first_look():
    """Before its word, others would wait for it longer; after the look, it would be too late."""
    ptx = child.call(ptx_of_shared_kernel, "fp32", 4, 0, 3, interpret=False)
    order = re.findall(r"atom\.global\.gpu\.relaxed\.exch|prefetch\.global\.L2|ld\.volatile", ptx)
    assert order[:4] == ["prefetch.global.L2", "atom.global.gpu.relaxed.exch", "prefetch.global.L2", "ld.volatile"]


def test_compiled_it_pauses_between_its_word_and_the_first_look():
    ptx = child.call(ptx_of_shared_kernel, "fp32", 4, 0, 0, 6000, interpret=False)
    order = re.findall(r"atom\.global\.gpu\.relaxed\.exch|mov\.u32 begin, %clock|ld\.volatile", ptx)
    assert order[:3] == ["atom.global.gpu.relaxed.exch", "mov.u32 begin, %clock", "ld.volatile"]
