"""Whole numbers: which are refused, and how a sentence counts with them."""

import numpy as np
import pytest
import torch

from helpers.engine.numbers import as_int, counted, refuse_below_one


@pytest.mark.parametrize("number", [0, -1, 1.5, True, "3", None], ids=repr)
def test_anything_but_a_whole_number_of_at_least_1_is_refused_by_its_name(number):
    with pytest.raises(ValueError, match=f"BLOCK must be a whole number of at least 1; it is {number!r}[.]"):
        refuse_below_one(n_cols=1, BLOCK=number)


@pytest.mark.parametrize("number", [np.int64(4), 4.0], ids=repr)
def test_a_whole_number_that_is_no_int_is_refused_with_what_makes_an_int_of_it(number):
    with pytest.raises(ValueError, match=r"BLOCK must be an int of Python, as int\(BLOCK\) makes one; it is "):
        refuse_below_one(BLOCK=number)


@pytest.mark.parametrize("number", [4, np.int64(4), np.uint8(4), np.array(4), torch.tensor(4)], ids=repr)
def test_a_whole_number_of_any_library_is_an_int(number):
    assert as_int(number) == 4 and type(as_int(number)) is int


@pytest.mark.parametrize("other", [4.0, np.float32(4), "4", None, True, np.bool_(True), torch.tensor(4.0)], ids=repr)
def test_anything_else_stays_what_it_is(other):
    assert as_int(other) is other


def test_whole_numbers_from_1_on_pass():
    refuse_below_one(n_cols=1, BLOCK=2**40)


@pytest.mark.parametrize(("number", "said"), [(0, "0 warps"), (1, "1 warp"), (2048, "2,048 warps")])
def test_things_are_counted_in_words(number, said):
    assert counted(number, "warp") == said
