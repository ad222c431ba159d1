"""What lies in a tensor and what does not: gaps of a view, its ends, accesses wider than its elements."""

import numpy as np
import pytest
import torch
import triton
import triton.language as tl

import needs
from helpers import DEVICE
from helpers.check.problems.problem import reserved
from helpers.engine import memory

pytestmark = needs.interpreter


@triton.jit
def load_kernel(y_ptr, x_ptr, FIRST: tl.constexpr, LANES: tl.constexpr, BLOCK: tl.constexpr):
    """Loads LANES elements from FIRST on."""
    lanes = tl.arange(0, BLOCK)
    x = tl.load(x_ptr + FIRST + lanes, mask=lanes < LANES, other=0.0)
    tl.store(y_ptr + lanes, x)


@triton.jit
def store_kernel(y_ptr, FIRST: tl.constexpr, BLOCK: tl.constexpr):
    tl.store(y_ptr + FIRST + tl.arange(0, BLOCK), 7.0)


@triton.jit
def load_wide_kernel(y_ptr, x_ptr, FIRST: tl.constexpr):
    """Loads two int32, or eight bytes, as one int64."""
    tl.store(y_ptr, tl.load((x_ptr + FIRST).to(tl.pointer_type(tl.int64))))


def loaded(x, first, lanes=1, block=1):
    """The elements that a program loads from `first` on."""
    y = torch.zeros(block, dtype=x.dtype, device=DEVICE)
    load_kernel[(1,)](y, x, int(first), lanes, block)
    return y


def has(x, element):
    try:
        loaded(x, element)
    except memory.OutOfBounds:
        return False
    return True


def grid(*shape, dtype=torch.float32):
    return torch.arange(1, 1 + int(np.prod(shape)), device=DEVICE).to(dtype).view(shape)


VIEWS = {
    "a slice of rows and columns": lambda: grid(4, 10)[:3, :5],
    "one column": lambda: grid(4, 6)[:, 2],
    "one column of a matrix": lambda: grid(4, 6)[:, 2:3],
    "every second column": lambda: grid(4, 6)[:, ::2],
    "every second column, transposed": lambda: grid(4, 6)[:, ::2].t(),
    "every third row": lambda: grid(7, 3)[::3],
    "three dimensions": lambda: grid(3, 4, 6)[:2, 1:3, ::2],
    "three dimensions in another order": lambda: grid(3, 4, 6)[::2, :3, :4].permute(1, 2, 0),
    "a row that is repeated": lambda: grid(2, 8)[:, None, :5].expand(2, 3, 5),
    "no gap": lambda: grid(3, 5),
    "transposed": lambda: grid(3, 5).t(),
    "a number": lambda: grid(4)[2],
    "rows of one column apart": lambda: grid(5, 7)[:, :1],
    "bytes": lambda: grid(4, 9, dtype=torch.int8)[:, :4],
}


@pytest.mark.thinned
@pytest.mark.parametrize("view", VIEWS)
def test_exactly_the_elements_of_a_view_are_loaded(view):
    x = VIEWS[view]()
    offsets = [sum(i * s for i, s in zip(index, x.stride(), strict=True)) for index in np.ndindex(*x.shape)]
    own = set(offsets)
    around = range(-2, max(own) + 4)
    assert [element for element in around if has(x, element)] == sorted(own)


@pytest.mark.parametrize(
    ("shape", "strides"), [((3, 4), (2, 1)), ((3, 2), (3, 3)), ((2, 3), (4, 2)), ((2, 2, 2), (5, 4, 3))], ids=str
)
def test_where_elements_overlap_or_interleave_no_own_element_is_refused(shape, strides):
    x = grid(40).as_strided(shape, strides)
    offsets = np.indices(shape).reshape(len(shape), -1).T @ np.array(strides)
    assert all(has(x, element) for element in offsets.tolist())
    assert not has(x, max(offsets) + 1) and not has(x, -1)


def test_where_elements_overlap_only_the_ends_count():
    x = grid(40).as_strided((3, 2), (3, 3))
    assert has(x, 1) and has(x, 8) and not has(x, 10)


def test_a_load_between_rows_says_so_and_reads_nothing():
    with pytest.raises(memory.OutOfBounds) as error:
        loaded(grid(4, 10)[:3, :5], 0, lanes=8, block=8)
    assert str(error.value) == (
        "program 0 of load_kernel loads element 5 of x_ptr, which lies between the rows of this view "
        "(shape (3, 5), strides (10, 1)). Is a mask missing, or an offset wrong?"
    )
    assert error.value.access == memory.Access("load", "x_ptr", element=5, outside=3, lanes=8, tile=8)


def test_a_store_between_rows_writes_nothing():
    base = torch.zeros(4, 10, device=DEVICE)
    with pytest.raises(memory.OutOfBounds, match="stores element 5 of y_ptr, which lies between the rows of this view"):
        store_kernel[(1,)](base[:3, :5], 0, BLOCK=8)
    assert not base.any()


def test_between_columns_it_is_called_between_the_elements():
    with pytest.raises(memory.OutOfBounds, match="element 1 of x_ptr, which lies between the elements of this view"):
        loaded(grid(4, 10)[:, ::2], 1)


def test_past_the_end_of_a_view_the_ends_are_named():
    with pytest.raises(memory.OutOfBounds, match="element 25 of x_ptr, which has elements 0 to 24"):
        loaded(grid(4, 10)[:3, :5], 25)


def test_a_tensor_without_elements_has_none():
    with pytest.raises(memory.OutOfBounds, match="element 0 of x_ptr, which has no elements"):
        loaded(grid(4, 10)[:, :0], 0)


@pytest.mark.parametrize(("first", "fits"), [(0, True), (2, True), (3, False), (4, False), (10, True), (9, False)])
def test_a_wide_load_must_lie_in_one_row(first, fits):
    x, y = grid(4, 10, dtype=torch.int32)[:, :4], torch.zeros(1, dtype=torch.int64, device=DEVICE)
    if fits:
        load_wide_kernel[(1,)](y, x, first)
        return
    with pytest.raises(memory.OutOfBounds, match=f"loads element {first} of x_ptr"):
        load_wide_kernel[(1,)](y, x, first)


@pytest.mark.parametrize("first", [1, 3])
def test_a_wide_load_of_bytes_must_lie_in_the_tensor(first):
    y = torch.zeros(1, dtype=torch.int64, device=DEVICE)
    with pytest.raises(memory.OutOfBounds, match=f"element {first} of x_ptr, which has elements 0 to 7"):
        load_wide_kernel[(1,)](y, grid(8, dtype=torch.int8), first)


def test_gaps_of_a_gigabyte_cost_nothing():
    x = reserved(2**31 + 4).as_strided((3, 4), (2**30, 1))
    assert has(x, 2**30) and has(x, 2**31 + 3) and not has(x, 4) and not has(x, 2**31 - 1)
