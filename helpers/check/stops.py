"""Mistakes by which an answer stops with an error: crashes.py finds them in the line, by the same ids.

They point to no hint, save in an exercise that has one for errors.
"""

from __future__ import annotations

from collections.abc import Mapping

from helpers.check.recognise import Mistake, stopped_by

_WORDS: Mapping[str, tuple[str, str]] = {
    "dtype_of_torch": (
        "A dtype of PyTorch stands in the kernel.",
        "What is float32 called in triton.language?",
    ),
    "host_function": (
        "A function of PyTorch, NumPy or math is called in the kernel.",
        "Which module has the functions that work on a tile?",
    ),
    "pointer_indexed": (
        "A pointer is indexed like a tensor.",
        "x_ptr is an address: what has to be added to it, and which function then loads from there?",
    ),
    "store_swapped": (
        "The arguments of tl.store are swapped.",
        "Which comes first, the pointers or the values?",
    ),
    "other_without_mask": (
        "A load has other, and no mask.",
        "Which lanes are to hold that value, and what tells tl.load so?",
    ),
    "no_start_value": (
        "A variable is used before it has a value.",
        "Which value does it need before the line runs for the first time?",
    ),
    "undefined_name": (
        "A name is used that nothing defines.",
        "Is it misspelt, or is an import, an argument or a line missing?",
    ),
    "no_such_function": (
        "A module has no function of that name.",
        "Is the name misspelt, and is it the right module?",
    ),
    "axis_beyond": (
        "A tile of one dimension has only axis 0.",
        "How many dimensions does a tile have that was made with one tl.arange?",
    ),
    "no_columns": (
        "The columns are missing from a pointer.",
        "What has to be added to the beginning of a row, so that a whole tile is loaded or stored?",
    ),
    "not_decorated": (
        "The kernel is a plain Python function.",
        "Which line has to stand above its def, so that it can be launched with a grid in brackets?",
    ),
    "no_grid": (
        "The kernel is called like a function.",
        "What has to stand in brackets between its name and its arguments?",
    ),
    "global_in_kernel": (
        "The kernel reads a global variable.",
        "How else can the kernel get that number?",
    ),
    "grid_without_comma": (
        "The grid is a number, not a tuple.",
        "Which character makes a tuple of a single number in brackets?",
    ),
    "launch_arguments": (
        "The launch does not give the kernel the arguments that it takes.",
        "Which arguments does the kernel list, in which order, and which are missing or too many?",
    ),
    "real_gpu": (
        "torch.cuda is used where no GPU may be.",
        "On which device does x lie, and what of that device does the same?",
    ),
    "values_missing": (
        "The maximum along a dimension comes with its index, and both are taken.",
        "x.max(dim=1) returns two tensors: which of them is the maximum, and what is it called?",
    ),
    "number_function": (
        "A function for numbers is given a tensor.",
        "Which module has the same function for tensors?",
    ),
    "tensor_function": (
        "A function for tensors is given a number or a list.",
        "Which module has the same function for numbers?",
    ),
    "list_as_tensor": (
        "A list is used as if it were a tensor.",
        "Which functions of Python give the largest number of a list, and the sum of one number for each entry?",
    ),
    "shapes": (
        "The shapes of two tensors do not fit together.",
        "What shape does each of them have, and which dimension was lost?",
    ),
}
"""By the id of a cause: what is wrong, and a question."""


def stops(hint: int = 0) -> tuple[Mistake, ...]:
    """The mistakes of every cause, all with the same hint."""
    return tuple(Mistake(id, *words, hint, stopped_by(id)) for id, words in _WORDS.items())
