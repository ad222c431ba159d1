"""Mistakes by which an answer does not return, of every exercise; crashes.py finds causes in a line, by these ids.

They point to no hint, save in an exercise that has one for errors.
"""

from __future__ import annotations

from collections.abc import Mapping

from helpers.check.mistakes.recognise import Mistake, ended, raised, stopped_by, too_slow, where
from helpers.engine.isolate import End

_WORDS: Mapping[str, tuple[str, str]] = {
    "dtype_of_torch": (
        "A dtype of PyTorch stands in the kernel.",
        "What is float32 called in triton.language?",
    ),
    "host_function": (
        "Something of Python, PyTorch, NumPy or math stands in the kernel.",
        "Which module has the functions that work on a tile?",
    ),
    "pointer_indexed": (
        "A pointer is indexed like a tensor.",
        "It is an address: what has to be added to it, and which function then loads from there?",
    ),
    "store_swapped": (
        "The arguments of tl.store are swapped.",
        "Which comes first, the pointers or the values?",
    ),
    "other_without_mask": (
        "A load has other, and no mask.",
        "Which lanes are to hold that value, and what tells tl.load so?",
    ),
    "offsets_as_mask": (
        "A comma stands between the address and the offsets.",
        "The second argument of tl.load is a mask: which sign joins the offsets to the address?",
    ),
    "maximum_of_two": (
        "Two numbers are given to tl.max.",
        "It takes the largest of one tile: which function of tl takes the larger of two numbers?",
    ),
    "no_start_value": (
        "A variable is used before it has a value.",
        "Which value does it need before the line runs for the first time?",
    ),
    "left_in_loop": (
        "A name is used after the loop that gave it a value.",
        "A kernel forgets it at the end of the loop: where must this line stand, or which line has to come again?",
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
        "The kernel reads a variable of the notebook.",
        "A kernel sees only its own arguments: which of them do you mean, or which one is missing?",
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
        "A part of torch.cuda, or Triton's driver, is used where no GPU may be.",
        "On which device does x lie, and does the line have to ask a GPU for anything?",
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
    "builtin_of_tensor": (
        "Python's own max or min is given a tensor, and compares its rows as a whole.",
        "Which method of a tensor finds the largest entry of each row, along which dimension?",
    ),
    "shapes": (
        "The shapes of two tensors do not fit together.",
        "What shape does each of them have, and along which dimension should they be equal?",
    ),
}
"""By the id of a cause: the fault, and a question."""


STOPS = tuple(Mistake(id, *words, 0, stopped_by(id)) for id, words in _WORDS.items())
"""The mistakes in a line that raises an error."""
ERRORS = ("error", *(stop.id for stop in STOPS))
"""Their ids, and that of any other error: they share a hint, "It stops with an error"."""

GENERAL = (
    Mistake(
        "endless",
        "The code does not come to an end.",
        "Which loop is it, what would end it, and does every round bring that nearer?",
        0,
        ended(End.OUT_OF_TIME),
    ),
    Mistake(
        "too_slow",
        "Right as far as it ran, and too slow to try every case.",
        "Which loop goes through more rounds than it needs, or which grid has more programs?",
        0,
        too_slow,
    ),
    Mistake(
        "ends_its_process",
        "The code ends its own process.",
        "What in it calls exit or kill, or brings Python itself down?",
        0,
        lambda seen: max(ended(End.DIED)(seen), raised("SystemExit")(seen)),
    ),
    Mistake(
        "asks_for_input",
        "The code asks for input.",
        "Nobody can answer while it is checked: where else can that value come from?",
        0,
        raised("EOFError"),
    ),
    Mistake(
        "prints_without_end",
        "The code prints without end.",
        "Is a print left in a loop that was there only to look?",
        0,
        ended(End.PRINTED_TOO_MUCH),
    ),
    Mistake(
        "too_much_memory",
        "The code asks for more memory than it may have.",
        "How many elements does the largest tensor need, and how many programs does the grid?",
        0,
        ended(End.OUT_OF_MEMORY),
    ),
    Mistake(
        "writes_to_the_check",
        "The code writes to a file, or a pipe, that it has not opened.",
        "Which file does it mean, and where does its number come from?",
        0,
        ended(End.STRAYED),
    ),
    *STOPS,
    Mistake(
        "not_implemented",
        "NotImplementedError is still raised.",
        "On which way through the code does that line still stand?",
        0,
        ended(End.NOT_IMPLEMENTED),
    ),
    Mistake(
        "error",
        "The code stops with an error.",
        "What does the message say, and if it names a line, what are the shapes and types there?",
        0,
        where(lambda seen: bool(seen.trial.raised) and seen.trial.end is not End.NOT_RUN, weight=0.1),
    ),
    Mistake(
        "nothing_returned",
        "Nothing is returned.",
        "Where does the result leave the function?",
        0,
        where(lambda seen: seen.trial.got_none),
    ),
)
