"""Counts are exact, for eager operations and for kernels; accesses out of bounds are refused before they happen."""

import numpy as np
import pytest
import torch
import triton
import triton.language as tl

import needs
from helpers import DEVICE, kernels, traffic
from helpers.engine import child, interpreter
from helpers.softmax import softmax
from helpers.softmax.launches import losses as loss_launch
from helpers.softmax.launches.rows import rows_launcher
from helpers.softmax.plans.losses import LossOptions


@triton.jit
def copy_kernel(y_ptr, x_ptr, size, first, BLOCK: tl.constexpr):
    offsets = first + tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    tl.store(y_ptr + offsets, tl.load(x_ptr + offsets, mask=offsets < size), mask=offsets < size)


@triton.jit
def add_kernel(total_ptr, x_ptr, BLOCK: tl.constexpr):
    tl.atomic_add(total_ptr, tl.sum(tl.load(x_ptr + tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)), axis=0))


@triton.jit
def unfinished_kernel(y_ptr, x_ptr, BLOCK: tl.constexpr):
    pass


def copied(size, first=0, programs=1, length=16):
    """A function that copies `size` elements, masked there, into a tensor of `length`."""

    def fn(x):
        y = torch.empty(length, device=DEVICE)
        copy_kernel[(programs,)](y, x, size, first, BLOCK=8)
        return y

    return fn


def numbers(*shape, dtype=torch.float32):
    return torch.randn(*shape, device=DEVICE).to(dtype)


def test_the_self_test_passes():
    traffic.self_test()


@pytest.mark.parametrize("M, N", [(1, 1), (4, 8), (16, 300), (64, 512)])
def test_eager_softmax_reads_5mn_plus_2m_and_writes_3mn_plus_3m(M, N):
    counted = traffic.count(kernels.eager_softmax, numbers(M, N))
    assert (counted.loads, counted.stores) == (5 * M * N + 2 * M, 3 * M * N + 3 * M)
    assert [operation.name for operation in counted.operations] == ["max", "sub", "exp", "sum", "div"]
    assert (counted.launches, counted.kernels) == (5, 0)


@pytest.mark.parametrize(
    "fn, loads, stores",
    [
        (kernels.copy, 1, 1),
        (kernels.single_tile_softmax, 1, 1),
        (kernels.several_rows_softmax, 1, 1),
        (kernels.persistent_softmax, 1, 1),
        (lambda x: kernels.two_pass_softmax(x, BLOCK=64), 3, 1),
        (lambda x: kernels.online_softmax(x, BLOCK=64), 2, 1),
    ],
    ids=["copy", "single tile", "several rows", "persistent", "two-pass", "online"],
)
@pytest.mark.parametrize("n_cols", [128, 200])
def test_each_kernel_makes_the_trips_that_the_course_promises(fn, loads, stores, n_cols):
    counted = traffic.count(fn, numbers(6, n_cols))
    assert (counted.loads_per_element, counted.stores_per_element) == (loads, stores)
    assert counted.launches == counted.kernels == 1


@pytest.mark.parametrize("n_cols", [128, 200])
def test_a_split_row_reads_twice_and_writes_once_and_its_pairs_besides(n_cols):
    counted = traffic.count(lambda x: kernels.split_row_softmax(x, BLOCK=64), numbers(6, n_cols))
    parts = -(-n_cols // 64)
    assert counted.loads == 6 * (2 * n_cols + 2 * parts * parts)
    assert counted.stores == 6 * (n_cols + 2 * parts)
    assert counted.launches == counted.kernels == 2


def test_lanes_switched_off_by_a_mask_do_not_count():
    counted = traffic.count(copied(size=11, programs=2), numbers(16))
    assert (counted.loads, counted.stores) == (11, 11)


def test_bytes_follow_the_dtype():
    x = numbers(4, 64, dtype=torch.bfloat16)
    assert traffic.count(kernels.single_tile_softmax, x).bytes == 2 * 4 * 64 * 2
    assert traffic.count(torch.exp, x).bytes == 2 * 4 * 64 * 2


def test_the_result_is_the_functions_own():
    x = numbers(3, 50)
    assert torch.equal(traffic.count(kernels.copy, x).result, x)


@pytest.mark.parametrize(
    "fn, loads, stores",
    [
        (lambda x: x.t()[1:].unsqueeze(0), 0, 0),
        (lambda x: x.clone(), 32, 32),
        (lambda x: x[:1].expand(4, -1) + 1, 8, 32),
        (lambda x: x.add_(1), 32, 32),
        (lambda x: x.zero_(), 0, 32),
        (lambda x: torch.empty_like(x).copy_(x), 32, 32),
        (lambda x: torch.exp(x, out=torch.empty_like(x)), 32, 32),
        (lambda x: x.max(dim=1), 32, 8),
        (lambda x: x.amax(dim=1), 32, 4),
        (lambda x: torch.softmax(x, dim=1), 32, 32),
        (lambda x: torch.cat([x, x]), 64, 64),
        (lambda x: torch.split(x, 2)[0].add(1), 16, 16),
    ],
    ids=[
        "views",
        "clone",
        "expanded",
        "in place",
        "zero",
        "copy_",
        "out=",
        "max",
        "amax",
        "torch.softmax",
        "cat",
        "split",
    ],
)
def test_eager_operations_read_their_inputs_and_write_their_results_once(fn, loads, stores):
    counted = traffic.count(fn, numbers(4, 8))
    assert (counted.loads, counted.stores) == (loads, stores)


@pytest.mark.parametrize(
    "fn",
    [
        lambda x: x.fill_(2), lambda x: x.zero_(), lambda x: x.uniform_(), lambda x: x.normal_(), lambda x: x.random_(),
        lambda x: x.bernoulli_(0.5), lambda x: x.exponential_(),
    ],
    ids=["fill_", "zero_", "uniform_", "normal_", "random_", "bernoulli_", "exponential_"],
)  # fmt: skip
def test_what_overwrites_a_tensor_does_not_read_it(fn):
    counted = traffic.count(fn, numbers(4, 8))
    assert (counted.loads, counted.stores) == (0, 32)


@pytest.mark.parametrize(
    "fn",
    [torch.zeros_like, torch.ones_like, torch.rand_like, torch.randn_like, lambda x: torch.full_like(x, 2),
     lambda x: torch.randint_like(x, 3), lambda x: x.new_zeros(x.shape), lambda x: x.new_ones(x.shape),
     lambda x: x.new_full(x.shape, 2)],
    ids=["zeros_like", "ones_like", "rand_like", "randn_like", "full_like", "randint_like", "new_zeros", "new_ones",
         "new_full"],
)  # fmt: skip
def test_what_takes_the_shape_of_a_tensor_does_not_read_it(fn):
    (made,) = traffic.count(fn, numbers(4, 8)).operations
    assert (made.loads, made.stores, made.at_least) == (0, 32, False)


@pytest.mark.parametrize(("fn", "trips"), [(torch.Tensor.addmm_, (3, 1)), (torch.addmm, (4, 2))])
def test_a_product_is_added_in_place_or_to_a_copy(fn, trips):
    seen = traffic.count(fn, *(numbers(4, 4) for _ in range(3)))
    assert (seen.loads_per_element, seen.stores_per_element) == trips


@pytest.mark.parametrize(
    "fn",
    [
        torch.empty_like,
        lambda x: x.new_empty(3),
        lambda x: torch.empty(3),
        lambda x: torch.empty(3, device=x.device).set_(x),
    ],
    ids=["empty_like", "new_empty", "empty", "set_"],
)
def test_making_room_moves_nothing(fn):
    assert traffic.count(fn, numbers(4, 8)).operations == ()


def test_an_operation_s_bytes_are_those_of_what_it_reads_and_of_what_it_writes():
    assert traffic.count(lambda x: x.to(torch.bfloat16), numbers(4, 8)).bytes == 32 * 4 + 32 * 2


def test_a_kernel_s_bytes_are_those_of_what_it_loads_and_of_what_it_stores():
    x, total = numbers(32, dtype=torch.bfloat16), torch.zeros(1, device=DEVICE)
    counted = traffic.count(lambda x: add_kernel[(4,)](total, x, BLOCK=8), x)
    assert counted.bytes == 32 * 2 + 4 * 4 + 4 * 4


def test_an_empty_input_has_no_trips_per_element():
    counted = traffic.count(torch.exp, numbers(0))
    assert (counted.loads_per_element, counted.stores_per_element) == (0.0, 0.0)


def test_trips_are_given_for_each_element_of_the_first_tensor():
    counted = traffic.count(lambda number, x, y: y + number, 1, numbers(4), numbers(8))
    assert (counted.loads_per_element, counted.stores_per_element) == (2.0, 2.0)


def test_eager_operations_and_kernels_are_counted_together_in_order():
    counted = traffic.count(lambda x: kernels.copy(torch.exp(x)), numbers(4, 8))
    assert [(o.name, o.is_kernel) for o in counted.operations] == [("exp", False), ("copy_kernel", True)]


def test_an_atomic_addition_loads_and_stores():
    total = torch.zeros(1, device=DEVICE)
    x = torch.ones(32, device=DEVICE)
    counted = traffic.count(lambda x: add_kernel[(4,)](total, x, BLOCK=8), x)
    assert (counted.loads, counted.stores, total.item()) == (32 + 4, 4, 32)


def test_a_kernel_that_does_nothing_counts_nothing():
    counted = traffic.count(lambda x: unfinished_kernel[(2,)](x, x, BLOCK=8), numbers(16))
    assert (counted.loads, counted.stores, counted.kernels) == (0, 0, 1)


def test_a_read_past_the_end_names_program_tensor_and_element():
    with pytest.raises(traffic.OutOfBounds, match="program 1 of copy_kernel loads element 12 of x_ptr, .* 0 to 11 "):
        traffic.count(copied(size=16, programs=2), numbers(12))


def test_a_read_before_the_beginning_is_refused():
    with pytest.raises(traffic.OutOfBounds, match="program 0 of copy_kernel loads element -3 of x_ptr"):
        traffic.count(copied(size=16, first=-3), numbers(16))


def test_a_store_out_of_bounds_writes_nothing():
    x, base = numbers(16), torch.full((16,), 7.0, device=DEVICE)
    with pytest.raises(traffic.OutOfBounds, match="stores element 4 of y_ptr"):
        traffic.count(lambda x: copy_kernel[(1,)](base[:4], x, 8, 0, BLOCK=8), x)
    assert (base == 7.0).all()


def test_a_tensor_that_lies_right_behind_another_is_not_mistaken_for_it():
    base = numbers(32)
    x, y = base[:12], base[12:28]
    with pytest.raises(traffic.OutOfBounds, match="loads element 12 of x_ptr"):
        traffic.count(lambda x: copy_kernel[(2,)](y, x, 16, 0, BLOCK=8), x)


def test_the_end_of_a_slice_is_the_end_though_its_storage_goes_on():
    with pytest.raises(traffic.OutOfBounds, match="element 12 of x_ptr"):
        traffic.count(copied(size=16, programs=2), numbers(32)[:12])


def test_a_bare_number_for_the_grid_is_explained():
    x = numbers(8)
    with pytest.raises(TypeError, match=r"the grid is 8; it must be a tuple .* such as \(8,\)"):
        traffic.count(lambda x: copy_kernel[(8)](x, x, 8, 0, BLOCK=8), x)


def test_more_arguments_than_a_kernel_takes_are_refused_with_those_that_it_takes():
    x = numbers(8)
    with pytest.raises(TypeError, match="too many positional arguments: copy_kernel takes y_ptr, x_ptr"):
        traffic.count(lambda x: copy_kernel[(1,)](x, x, 8, 0, 8, 1, 2), x)


@pytest.mark.parametrize(
    ("grid", "error", "said"),
    [
        ((2.0,), TypeError, r"the grid is \(2[.]0,\); it must hold whole numbers[.] Is a / meant to be //"),
        (("2",), TypeError, "it must hold whole numbers"),
        ((None,), TypeError, "it must hold whole numbers"),
        ((), ValueError, r"the grid is \(\); it must hold one to three numbers"),
        ((1, 1, 1, 1), ValueError, "it must hold one to three numbers"),
    ],
    ids=str,
)
def test_a_grid_holds_one_to_three_whole_numbers(grid, error, said):
    x = numbers(16)
    with pytest.raises(error, match=said):
        traffic.count(lambda x: copy_kernel[grid](torch.empty_like(x), x, 16, 0, BLOCK=8), x)


def test_a_grid_may_hold_whole_numbers_of_numpy():
    x, grid = numbers(16), (np.int64(2),)
    assert traffic.count(lambda x: copy_kernel[grid](torch.empty_like(x), x, 16, 0, BLOCK=8), x).loads == 16


def test_a_grid_may_be_a_function_of_the_arguments():
    x = numbers(16)
    grid = lambda meta: (triton.cdiv(16, meta["BLOCK"]),)  # noqa: E731
    assert traffic.count(lambda x: copy_kernel[grid](torch.empty_like(x), x, 16, 0, BLOCK=8), x).loads == 16


def test_counting_a_result_is_refused_with_what_to_write():
    x = numbers(4, 8)
    with pytest.raises(TypeError, match=r"as in traffic.count\(softmax, x\); got a Tensor[.]"):
        traffic.count(kernels.eager_softmax(x), x)


def test_count_without_a_tensor_is_explained():
    with pytest.raises(ValueError, match="needs a tensor among args"):
        traffic.count(lambda: None)


def test_the_table_has_a_line_for_each_operation_and_their_sum():
    text = repr(traffic.count(kernels.eager_softmax, numbers(4, 8)))
    assert [line.split()[0] for line in text.splitlines()] == [
        "operation", "max", "sub", "exp", "sum", "div", "together",
    ]  # fmt: skip


def test_a_line_of_the_table_has_the_counts_and_the_counts_per_element():
    table = traffic.count(lambda x: x.amax(dim=1), numbers(4, 800)).table()
    assert table.head == ["operation", "loads", "stores", "loads per element", "stores per element"]
    assert table.rows == [["amax", "3,200", "4", "1.00", "0.00"], ["together", "3,200", "4", "1.00", "0.00"]]


@needs.interpreter
def test_every_launch_is_guarded_not_only_counted_ones():
    x = numbers(12)
    with pytest.raises(traffic.OutOfBounds):
        copy_kernel[(2,)](torch.empty(16), x, 16, 0, BLOCK=8)


@needs.interpreter
def test_after_an_error_the_next_launch_works():
    with pytest.raises(traffic.OutOfBounds):
        traffic.count(copied(size=16, programs=2), numbers(12))
    assert traffic.count(copied(size=8), numbers(8)).loads == 8


@needs.interpreter
def test_the_interpreter_leaves_none_of_its_names_where_the_kernel_is_defined():
    before = set(globals())
    copied(size=8)(numbers(8))
    assert set(globals()) - before <= {"interpreter_semantic"}


@needs.interpreter
def test_infinities_raise_no_warning(recwarn, capfd):
    kernels.online_softmax(torch.tensor([[-float("inf")] * 8, [float("inf")] * 8]), BLOCK=4)
    assert not list(recwarn) and capfd.readouterr() == ("", "")


@needs.interpreter
def test_a_triton_that_has_moved_a_hook_is_named(monkeypatch):
    from triton.runtime import interpreter as tri

    monkeypatch.setattr(tri, "_guarded", False)
    monkeypatch.delattr(tri, "_implicit_cvt")
    with pytest.raises(RuntimeError, match=f"Triton {triton.__version__} has moved _implicit_cvt"):
        interpreter.guard()


ROWS = 3
LIMIT = tl.constexpr(3)


@triton.jit
def row_mask_kernel(y_ptr, x_ptr, M, N, BLOCK: tl.constexpr):
    row = tl.program_id(0)
    cols = tl.arange(0, BLOCK)
    mask = (row < M) & (cols < N)
    tl.store(y_ptr + row * N + cols, tl.load(x_ptr + row * N + cols, mask=mask, other=0.0), mask=mask)


@triton.jit
def wrong_axis_kernel(y_ptr, x_ptr, BLOCK: tl.constexpr):
    x = tl.load(x_ptr + tl.arange(0, BLOCK))
    tl.store(y_ptr, tl.max(x, axis=1))


@triton.jit
def global_number_kernel(y_ptr, x_ptr):
    tl.store(y_ptr, tl.load(x_ptr) + ROWS)


@triton.jit
def global_constexpr_kernel(y_ptr, x_ptr):
    tl.store(y_ptr, tl.load(x_ptr) + LIMIT)


def test_a_mask_may_combine_a_number_and_a_tile():
    x, y = numbers(4, 6), torch.zeros(4, 6, device=DEVICE)
    counted = traffic.count(lambda x: row_mask_kernel[(5,)](y, x, 3, 6, BLOCK=8), x)
    assert counted.loads == 18 and torch.equal(y[:3], x[:3]) and not y[3].any()


@needs.interpreter
def test_an_error_in_a_kernel_names_the_line():
    with pytest.raises(
        interpreter.KernelError,
        match=r"wrong_axis_kernel, in the line `.*axis=1\)\)`: Triton's compiler refuses it: inv",
    ):
        wrong_axis_kernel[(1,)](numbers(8), numbers(8), BLOCK=8)


@needs.interpreter
def test_a_global_number_is_refused_as_a_gpu_would():
    with pytest.raises(interpreter.KernelError, match="compiler refuses it: Cannot access global variable ROWS"):
        global_number_kernel[(1,)](numbers(1), numbers(1))
    global_constexpr_kernel[(1,)](numbers(1), numbers(1))


@needs.interpreter
def test_a_kernel_called_without_a_grid_is_explained():
    with pytest.raises(TypeError, match=r"copy_kernel is a kernel; launch it with a grid in brackets"):
        copy_kernel(numbers(8), numbers(8), 8, 0, BLOCK=8)


@needs.interpreter
def test_the_first_count_notices_an_interpreter_whose_loads_go_unseen(monkeypatch):
    monkeypatch.setattr(
        interpreter.LaunchTraffic, "loads", property(lambda launch: 0, lambda launch, value: None), raising=False
    )
    traffic.self_test.cache_clear()
    with pytest.raises(RuntimeError, match="counted as 0 loads and 15 stores: this version of Triton has moved"):
        traffic.count(torch.exp, numbers(4))
    monkeypatch.undo()
    traffic.count(torch.exp, numbers(4))


# What PyTorch does inside


@pytest.mark.parametrize(
    ("fn", "at_least"),
    [
        pytest.param(kernels.eager_softmax, False, id="elementwise operations and reductions"),
        pytest.param(kernels.single_tile_softmax, False, id="a kernel"),
        pytest.param(lambda x: x.clone().zero_(), False, id="a copy and a fill"),
        pytest.param(lambda x: torch.softmax(x, dim=1), True, id="softmax"),
        pytest.param(lambda x: x.logsumexp(dim=1), True, id="logsumexp"),
        pytest.param(lambda x: x @ x.t(), True, id="a product of matrices"),
        pytest.param(lambda x: x.sort(dim=1), True, id="sort"),
    ],
)
def test_at_least_stands_where_an_operation_may_do_more_inside(fn, at_least):
    counted = traffic.count(fn, numbers(4, 8))
    assert counted.at_least is at_least
    assert ("together, at least" in repr(counted)) is at_least


@pytest.mark.parametrize(
    ("fn", "loads", "stores"),
    [
        pytest.param(lambda x, at: torch.nn.functional.nll_loss(x, at, reduction="none"), 0, 0, id="nll_loss"),
        pytest.param(lambda x, at: x.gather(1, at[:, None]), 0, 0, id="gather"),
        pytest.param(lambda x, at: x[at], 1, 1, id="rows by their number"),
    ],
)
def test_a_tensor_from_which_little_is_picked_is_not_read_whole(fn, loads, stores):
    x, at = numbers(4, 1000), torch.tensor([0, 1, 2, 3], device=DEVICE)
    counted = traffic.count(lambda x: fn(x, at), x)
    assert (round(counted.loads_per_element, 1), round(counted.stores_per_element, 1)) == (loads, stores)


def test_only_the_operation_itself_and_the_sum_say_at_least():
    table = traffic.count(lambda x: torch.softmax(x + 1, dim=1), numbers(4, 8)).table()
    assert [row[0] for row in table.rows] == ["add", "_softmax, at least", "together, at least"]


# The shipped softmax, which launches what it has prepared


@needs.gpu
@pytest.mark.parametrize("shape", [(16, 300), (2, 8, 5)], ids=str)
def test_the_shipped_softmax_is_counted_whenever_it_is_called(shape):
    x = numbers(*shape)
    for _ in range(3):
        counted = traffic.count(softmax, x)
        assert (counted.loads_per_element, counted.stores_per_element, counted.kernels) == (1.0, 1.0, 1)


def replayed(name):
    """In a process that compiles, as one beside a GPU: loads and stores of a launch that is replayed to be counted."""
    if name == "a row of 16 bits that programs share":
        x = torch.randn(2, 20000).bfloat16()
        launch = rows_launcher(x, 2, 20000, 20000)
        tensors = torch.empty_like(x), x, torch.zeros(launch.words, dtype=torch.int64)
        own = launch.named | {"looks": 4096}
    else:
        layout = ((torch.float32, torch.float32), 4, 4096, 4096, 0, (0, 0), 0)
        how = LossOptions(-100, "mean", 0.0, torch.float32)
        launch = loss_launch._backward_launcher(*layout, how, over=True, again=False)
        gradient, half = torch.ones(4, 4096), torch.tensor(0.5)
        tensors = gradient, gradient, half, torch.zeros(4, dtype=torch.int64), half
        own = launch.named | {"EARLY": True}
    counted = traffic._replay_in_child(launch.kernel, (*tensors, *own.values()), launch.grid, launch.options)
    return counted.loads, counted.stores


@pytest.mark.parametrize(
    ("name", "elements", "trips"),
    [("a row of 16 bits that programs share", 40000, 2), ("a launch that begins early", 16384, 1)],
)
def test_what_only_a_compiler_knows_is_left_out_of_a_replay(name, elements, trips):
    loads, stores = child.call(replayed, name, interpret=False)
    assert trips <= loads / elements < trips + 0.1 and 1 <= stores / elements < 1.01
