"""How a layout becomes a launch: what is remembered, vectors and edges, slices; and the words that programs leave."""

import contextlib
import inspect
import re
import sys
from concurrent.futures import ThreadPoolExecutor
from importlib import import_module
from pkgutil import iter_modules

import pytest
import torch
import triton

import needs
from helpers import DEVICE
from helpers.engine import child, compiled
from helpers.softmax import function
from helpers.softmax.kernels import __path__ as kernels_folder
from helpers.softmax.launches import launch as launcher
from helpers.softmax.launches import mailbox
from helpers.softmax.launches.launch import Launch, current_device, gpu_of
from helpers.softmax.launches.losses import loss_launcher, loss_launcher_of
from helpers.softmax.launches.rows import gradient_rows_launcher, log_softmax_launcher, rows_launcher, shared_launcher
from helpers.softmax.plans.gpu import Chip
from helpers.softmax.plans.losses import LossOptions
from helpers.softmax.plans.rows import Shared, TwoLaunches

of_log, of_rows, of_loss = (
    sys.modules[f"helpers.softmax.{name}"] for name in ("log_softmax", "launches.rows", "launches.losses")
)
V = {torch.float32: 4, torch.bfloat16: 8, torch.float16: 8}


def rows(n_rows, n_cols, stride, dtype=torch.float32, first=0):
    """A matrix with a row every `stride` elements, the first one `first` elements after a multiple of 16 bytes."""
    base = torch.zeros(n_rows * stride + first, dtype=dtype, device=DEVICE)
    assert base.data_ptr() % 16 == 0
    return base.as_strided((n_rows, n_cols), (stride, 1), first)


def arguments(x, dim=-1):
    """The arguments by name, besides the tensors, that the kernel for x is launched with."""
    return function.launcher_of(x, dim).named


@pytest.fixture(autouse=True)
def nothing_remembered(monkeypatch):
    monkeypatch.setattr(function, "_known", {})
    monkeypatch.setattr(function, "_gradient_launchers", {})
    yield
    of_log._launcher.cache_clear()


def test_a_launcher_is_remembered_for_tensors_of_the_same_layout():
    assert function.launcher_of(rows(3, 64, 64), -1) is function.launcher_of(rows(3, 64, 64), -1)


@pytest.mark.parametrize(
    ("x", "dim"),
    [
        (lambda: rows(4, 64, 64), -1),
        (lambda: rows(3, 68, 68), -1),
        (lambda: rows(3, 64, 68), -1),
        (lambda: rows(3, 64, 64, torch.float16), -1),
        (lambda: rows(3, 64, 64, first=1), -1),
        (lambda: rows(3, 64, 64), 0),
    ],
    ids=["rows", "columns", "stride", "dtype", "alignment", "dim"],
)
def test_a_launcher_is_not_taken_for_another_layout(x, dim):
    assert function.launcher_of(rows(3, 64, 64), -1) is not function.launcher_of(x(), dim)


def launchers_of_every_way(times):
    """Launchers of 16-bit rows, other dimensions, their gradients and losses: flat, of a tile, folded and shared.

    Of tensors of less than 67 MB, and of as many rows, or planes, `times` over.
    """
    shapes = {
        "flat rows": ((times * 2**20, 9), 1),
        "rows": ((times * 8192, 1024), 1),
        "rows in two tiles": ((times * 31775, 264), 1),
        "shared rows": ((times * 64, 131072), 1),
        "columns in two tiles": ((times * 128, 18, 4096), 1),
        "columns": ((times * 128, 64, 1024), 1),
        "folded columns": ((times * 320, 512, 7, 7), 1),
        "shared columns": ((times, 4096, 2048), 1),
    }
    for name, (shape, dim) in shapes.items():
        x = torch.empty(shape, dtype=torch.bfloat16, device="meta")
        yield name, function._launcher(x, dim)
        yield f"{name}, gradient", function._gradient_launcher(x, dim, True)
    yield "log_softmax", log_softmax_launcher(times * 64, 131072, 2, True)
    logits = torch.empty(times * 64, 131072, dtype=torch.bfloat16, device="meta")
    yield "loss", loss_launcher(logits, LossOptions(-100, "mean", 0.0, logits.dtype), True)


def ptx_of(launch):
    """In a process that compiles: PTX for sm_90 of a launcher's kernel, without the functions that it calls where
    programs have waited too long."""
    of_tensors = launch.kernel.arg_names[: -len(launch.arguments)]
    signature = {tensor: "*bf16" for tensor in of_tensors}
    signature |= {tensor: "*i64" for tensor in ("word_ptr", "target_ptr", "pair_ptr") if tensor in of_tensors}
    constants, divisible = {}, list(range(len(of_tensors)))
    for parameter, value in zip(launch.kernel.params[len(of_tensors) :], launch.arguments, strict=True):
        known = parameter.is_constexpr or (value == 1 and not parameter.do_not_specialize)
        signature[parameter.name] = "constexpr" if known else "fp32" if isinstance(value, float) else "i32"
        if known:
            constants[parameter.name] = value
        elif value % 16 == 0:
            divisible.append(parameter.num)
    what = launch.kernel, signature, constants, divisible
    ptx = compiled.compile_without_launch(*what, "sm_90", launch.options).asm["ptx"]
    return re.search(r"\.entry.*?^}", ptx, re.DOTALL | re.MULTILINE).group()


def moved_vectors(times):
    """By launcher, how its kernel loads and stores vectors of 16 bytes."""
    found = launchers_of_every_way(times)
    return {name: set(re.findall(r"(ld|st)\.global(\S*)\.v4\.b32", ptx_of(launch))) for name, launch in found}


def fetched_lines(times):
    """By launcher that can fetch ahead, how the kernel fetches then, its words and the lines of its input."""
    found = {name: launch for name, launch in launchers_of_every_way(times) if "AHEAD" in launch.named}
    ahead = {name: ptx_of(launch.replaced(AHEAD=1)) for name, launch in found.items()}
    return {name: set(re.findall(r"prefetch\.global\.(\S+)", ptx)) for name, ptx in ahead.items()}


@pytest.mark.thinned(0)
@pytest.mark.parametrize(("times", "load"), [(1, ""), (8, ".L1::evict_last.L2::cache_hint")])
def test_what_is_loaded_of_large_tensors_outlives_in_the_cache_what_is_written(times, load):
    found = child.call(moved_vectors, times, interpret=False)
    assert found == dict.fromkeys(found, {("ld", load), ("st", "")}) and len(found) == 18


@pytest.mark.thinned(0)
@pytest.mark.parametrize(("times", "lines"), [(1, "L2"), (8, "L2::evict_last")])
def test_what_is_fetched_of_large_tensors_stays_in_the_cache_as_what_is_loaded(times, lines):
    found = child.call(fetched_lines, times, interpret=False)
    words = {"L2"}
    assert len(found) == 6 and all(ways | words == {lines} | words and lines in ways for ways in found.values())


def test_no_default_of_a_kernel_s_function_is_a_plain_string():
    """Triton 3.6 refuses one in a function that a kernel calls."""
    modules = [import_module(f"helpers.softmax.kernels.{module.name}") for module in iter_modules(kernels_folder)]
    functions = {fn for module in modules for fn in vars(module).values() if isinstance(fn, triton.KernelInterface)}
    defaults = [default.default for fn in functions for default in inspect.signature(fn.fn).parameters.values()]
    assert len(functions) > 50 and not [default for default in defaults if isinstance(default, str)]


def test_slices_are_fetched_ahead_where_that_pays():
    chosen = Shared(1024, 1, 64, SPLIT=8)
    for of_rows in (
        lambda ahead: shared_launcher(2**20, 8192, 8192, 4, 4, False, chosen, Chip(fetches_ahead=ahead)),
        lambda ahead: log_softmax_launcher(2**20, 8192, 4, True, Chip(fetches_ahead=ahead)),
    ):
        not_here, here = map(of_rows, (False, True))
        assert not_here.named["AHEAD"] == 0 < here.named["AHEAD"]
        assert here.named | {"AHEAD": 0} == not_here.named


@pytest.mark.parametrize(
    ("module", "made"),
    [
        (function, lambda x: function._launcher(x, 1)),
        (of_rows, lambda x: function._launcher(x.view(64, -1), 1)),
        (function, lambda x: function._gradient_launcher(x, 1, True)),
        (of_log, lambda x: of_log._launcher(64, x.numel() // 64, x.dtype, x.dtype, 0, x.get_device())),
        (of_loss, lambda x: loss_launcher(x.view(64, -1), LossOptions(-100, "mean", 0.0, x.dtype), True)),
    ],
    ids=["over another dimension", "rows", "the gradient over another dimension", "log_softmax", "the loss"],
)
def test_a_launcher_fetches_ahead_if_its_gpu_should(module, made, monkeypatch):
    x = torch.empty(64, 1024, 1024, dtype=torch.bfloat16, device="meta")
    asked = []
    for pays in (False, True):
        of_log._launcher.cache_clear()
        seen = lambda device, pays=pays: asked.append(device) or Chip(fetches_ahead=pays)  # noqa: E731
        monkeypatch.setattr(module, "gpu_of", seen)
        assert (made(x).named["AHEAD"] > 0) == pays
    assert asked == [x.get_device()] * 2


@pytest.mark.parametrize(("itemsize", "cycles"), [(4, 7000), (2, 5000)])
def test_programs_of_long_rows_pause_before_they_look(itemsize, cycles):
    pauses = {}
    for N in (2**16, 2**20):
        x = torch.empty(2**10, N, dtype={4: torch.float32, 2: torch.bfloat16}[itemsize], device="meta")
        logarithms = log_softmax_launcher(2**10, N, itemsize, True)
        launchers = function._launcher(x, 1), logarithms, gradient_rows_launcher(2**10, N, itemsize, True)
        pauses[N] = [launcher.named["PAUSE"] for launcher in launchers]
    assert pauses == {2**16: [0, 0, 0], 2**20: [6000, 6000, cycles]}


@needs.interpreter
def test_nothing_is_fetched_ahead_in_the_interpreter():
    assert not gpu_of(-1).fetches_ahead


@needs.gpu
def test_this_gpu_fetches_ahead_if_that_pays():
    x = torch.zeros(2**12, 2**14, device=DEVICE)
    how = LossOptions(-100, "mean", 0.0, torch.float32)
    launchers = function.launcher_of(x, 1), function.launcher_of(x, 0), loss_launcher(x, how, True)
    assert {launcher.named["AHEAD"] > 0 for launcher in launchers} == {gpu_of(x.get_device()).fetches_ahead}


@needs.gpu
@pytest.mark.parametrize(("gpu", "fetches"), [("NVIDIA H200", True), ("NVIDIA H100 80GB HBM3", False)])
def test_an_h200_fetches_ahead_and_an_h100_does_not(gpu, fetches):
    if torch.cuda.get_device_name() != gpu:
        pytest.skip(f"about an {gpu}")
    assert gpu_of(0).fetches_ahead == fetches


def test_a_gradient_s_launcher_is_not_taken_where_another_of_its_tensors_is_unaligned():
    aligned, odd = rows(3, 64, 64), rows(3, 64, 64, first=1)
    pairs = [(aligned, aligned), (odd, aligned), (aligned, odd), (odd, odd)]
    assert len({id(function.gradient_launcher_of(dy, y, -1)) for dy, y in pairs}) == 4


def test_a_loss_s_launcher_is_not_taken_where_another_of_its_tensors_is_unaligned():
    aligned, odd = rows(3, 64, 64), rows(3, 64, 64, first=1)
    targets = torch.zeros(8, dtype=torch.int64, device=DEVICE)
    layouts = [(x, target, y) for x in (aligned, odd) for target in (targets[:3], targets[1:4]) for y in (aligned, odd)]
    how = LossOptions(-100, "mean", 0.0, torch.float32)
    assert len({id(loss_launcher_of(x, target, how, y, False)) for x, target, y in layouts}) == 8


def test_the_memory_for_launchers_is_emptied_when_it_is_full(monkeypatch):
    monkeypatch.setattr(launcher, "_MOST_LAUNCHERS", 2)
    for n_cols in (1, 2, 3):
        function.launcher_of(rows(1, n_cols, n_cols), -1)
    assert len(function._known) == 1


@pytest.mark.parametrize("dtype", V, ids=str)
@pytest.mark.parametrize("n_cols", [64, 9000], ids=["tile", "shared"])
def test_aligned_rows_are_moved_in_vectors_of_16_bytes_without_edges(n_cols, dtype):
    n_cols = n_cols // 8 * 8
    found = arguments(rows(3, n_cols, n_cols, dtype))
    assert (found["VEC"], found["EDGES"]) == (V[dtype], False)


@pytest.mark.parametrize("dtype", V, ids=str)
@pytest.mark.parametrize("n_cols", [65, 9001], ids=["tile", "shared"])
def test_rows_of_an_odd_length_have_edges(n_cols, dtype):
    found = arguments(rows(3, n_cols, n_cols, dtype))
    assert (found["VEC"], found["EDGES"]) == (V[dtype], True)


@pytest.mark.parametrize(
    "x",
    [
        lambda: rows(3, 64, 64, first=1),
        lambda: rows(3, 64, 65),
        lambda: rows(3, 65, 68),
        lambda: rows(3, 15, 19),
        lambda: rows(3, 31, 39, torch.bfloat16),
    ],
    ids=["first address", "stride", "stride of an odd length", "three vectors", "three vectors of 16 bits"],
)
def test_elements_are_moved_one_by_one_where_no_vector_fits_or_the_edges_are_most_of_the_row(x):
    found = arguments(x())
    assert (found["VEC"], found["EDGES"]) == (1, False)


def test_of_a_single_row_no_stride_is_looked_at():
    found = arguments(rows(1, 64, 65))
    assert (found["VEC"], found["EDGES"]) == (V[torch.float32], False)


@pytest.mark.parametrize(("n_cols", "dtype"), [(21, torch.float32), (33, torch.bfloat16)], ids=str)
def test_a_row_of_four_vectors_is_worth_its_edges(n_cols, dtype):
    assert arguments(rows(3, n_cols, n_cols, dtype))["VEC"] == V[dtype]


@pytest.mark.parametrize(
    ("x", "dim", "WIDTH"),
    [
        (lambda: torch.zeros(4, 50, 70, device=DEVICE), 1, 64),
        (lambda: torch.zeros(4, 50, 3, device=DEVICE), 1, 4),
        (lambda: torch.zeros(50, 7, device=DEVICE).t(), -1, 8),
    ],
    ids=["70 beside each other", "3", "a transposed matrix"],
)
def test_neighbours_share_a_program(x, dim, WIDTH):
    assert arguments(x(), dim)["WIDTH"] == WIDTH


def test_the_plan_is_asked_about_alignment():
    x, odd = rows(3000, 16400, 16400, torch.bfloat16), rows(3000, 16401, 16401, torch.bfloat16)
    assert [function.launcher_of(each, -1).options["maxnreg"] for each in (x, odd)] == [80, 88]


def test_a_row_of_too_many_slices_takes_two_launches():
    x = torch.randn(6, 40, device=DEVICE)[::2, :39]
    y = torch.empty(3, 39, device=DEVICE)
    rows_launcher(x, 3, 39, 80, TwoLaunches(2048, 4, 80, SPLIT=5000))((y, x), 0)
    torch.testing.assert_close(y, torch.softmax(x, 1))


# The words


@pytest.fixture
def buffers_of(monkeypatch):
    """Makes this thread's buffers begin anew, with so many words each; without CUDA the device has the number −1."""

    def begin(n_words):
        monkeypatch.setattr(mailbox._kept, "buffers", {})
        monkeypatch.setattr(mailbox, "_WORDS", n_words)

    return begin


def given(count, stream=0):
    """The words that a launch is given, and their address."""
    memory, address = mailbox.from_buffer(count, current_device(), stream)
    start = (address - memory.data_ptr()) // 8
    return memory[start : start + count], address


def test_words_are_zeros_however_many_launches_used_them(buffers_of):
    buffers_of(1000)
    for _ in range(40):
        words, address = given(103)
        assert words.shape == (103,) and address % 16 == 0 and not words.any()
        words.fill_(1)


def test_words_of_inference_mode_are_zeroed_outside_of_it(buffers_of):
    buffers_of(10)
    with torch.inference_mode():
        words, first = given(10)
        words.fill_(1)
    words, address = given(10)
    assert address == first and not words.any()


def test_a_stream_has_words_of_its_own(buffers_of):
    buffers_of(20)
    assert abs(given(10, stream=0)[1] - given(10, stream=1)[1]) >= 20 * 8


def test_a_thread_zeroes_no_words_of_another_that_has_yet_to_launch(buffers_of):
    """One thread is given the last words of its buffer, another one comes to its end, the first one launches."""
    buffers_of(20)
    given(10)
    mine, _ = given(10)
    with ThreadPoolExecutor(1) as other:
        for _ in range(3):
            other.submit(given, 10).result()
        mine.fill_(1)
        theirs, _ = other.submit(given, 10).result()
    assert not theirs.any()


def test_launches_of_a_stream_share_a_buffer_until_it_is_used_up(buffers_of):
    buffers_of(20)
    _, first = given(10)
    assert [given(10)[1] - first for _ in range(3)] == [80, 0, 80]


def test_more_words_than_a_buffer_has_get_a_larger_one(buffers_of):
    buffers_of(20)
    given(10)
    words, _ = given(50)
    assert words.numel() == 50 and not words.any()


# Launches that go round Triton, and those that somebody looks at


class Kernel:
    """Stands in for a kernel; it takes down how it is launched."""

    def __init__(self):
        self.launches = []

    def fn(self, y_ptr, x_ptr, N, BLOCK=5):
        """Only its arguments are looked at."""

    def __getitem__(self, grid):
        return lambda *args, **options: self.launches.append(("through Triton", grid, args[2:], options))

    def directly(self, *args):
        self.launches.append(("directly", args[:3], args[6:], {}))


@contextlib.contextmanager
def profiled():
    """A profiler's hook is set."""

    def hook(*args):
        raise AssertionError("nothing is launched")

    chain = triton.knobs.runtime.launch_enter_hook
    chain.add(hook)
    try:
        yield
    finally:
        chain.remove(hook)


def launched(seen_by):
    """How the second call of a launcher is made in the block `seen_by`, and the one after it."""
    kernel, x = Kernel(), rows(2, 8, 8)
    launcher = Launch(kernel, (2, 1, 1), warps=4, N=8)
    launcher.compiled = kernel.directly, ()
    with seen_by:
        launcher((torch.empty_like(x), x), 0)
    launcher((torch.empty_like(x), x), 0)
    return kernel.launches


DIRECTLY = "directly", (2, 1, 1), (8, 5), {}


@pytest.mark.parametrize(
    ("named", "said"),
    [({"N": 8, "COLOUR": 1}, "fn has no argument COLOUR; it has N, BLOCK."), ({"BLOCK": 4}, "fn also needs N.")],
)
def test_a_launch_names_the_argument_that_its_kernel_lacks_or_needs(named, said):
    with pytest.raises(ValueError, match=re.escape(said)):
        Launch(Kernel(), (2, 1, 1), warps=4, **named)


def test_a_launch_s_arguments_are_in_the_kernel_s_order_whatever_the_order_they_are_given_in():
    assert Launch(Kernel(), (2, 1, 1), warps=4, BLOCK=4, N=8).arguments == (8, 4)


def test_a_launch_that_nobody_looks_at_goes_round_triton():
    assert launched(contextlib.nullcontext()) == [DIRECTLY, DIRECTLY]


@needs.interpreter
@pytest.mark.parametrize(
    "seen_by", [lambda: compiled.before_each_launch(print), profiled], ids=["traffic.count", "a profiler"]
)
def test_a_launch_that_is_looked_at_takes_the_ordinary_way(seen_by):
    through = "through Triton", (2, 1, 1), (8, 5), {"num_warps": 4, "maxnreg": 96}
    assert launched(seen_by()) == [through, DIRECTLY]


@needs.interpreter
def test_where_launches_are_counted_no_larger_buffer_is_counted_with_them():
    kernel, x = Kernel(), rows(2, 8, 8)
    launch = Launch(kernel, (2, 1, 1), warps=4, words=5, N=8)
    with compiled.before_each_launch(print):
        launch((torch.empty_like(x), x), 0, lambda *asked: pytest.fail("a buffer is asked for its zeros"))
    (_, _, (words, *_), _) = kernel.launches[0]
    assert words.tolist() == [0] * 5


@pytest.mark.parametrize("hook", [None, triton.knobs.HookChain()], ids=["no hook", "an empty chain"])
def test_nobody_looks_where_there_is_no_hook(monkeypatch, hook):
    monkeypatch.setattr(triton.knobs.runtime, "launch_enter_hook", hook)
    assert not compiled.launches_are_seen()


def test_a_single_function_is_a_hook_too(monkeypatch):
    monkeypatch.setattr(triton.knobs.runtime, "launch_enter_hook", print)
    assert compiled.launches_are_seen()
