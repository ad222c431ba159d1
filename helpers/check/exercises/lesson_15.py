"""Lesson 15, the logits that never exist: trips of chunks, a loop of chunks, a walk over the classes, and bugs."""

from __future__ import annotations

from functools import partial

import torch

from helpers.check.exercise import CountedExercise, TensorExercise, ValuesExercise
from helpers.check.mistakes.recognise import with_hints
from helpers.check.mistakes.stops import ERRORS
from helpers.check.mistakes.without_logits import OF_CHUNKS, OF_WALK
from helpers.check.problems import without_logits as problems
from helpers.check.problems.problem import Inputs
from helpers.check.report import Diagnosis
from helpers.check.trial.trial import Trial
from helpers.check.values import judge_values
from helpers.softmax import without_logits

# 15.1

IN_CHUNKS = {
    "loads of W": 16,
    "loads of dW": 7,
    "stores of dW": 8,
    "tokens of a chunk": 275,
    "logits in memory": 0.125,
}
_APART = Diagnosis("sum_apart", "The product is stored, and then added.", "What does addmm load and store of dW?", 2)
_KEPT = Diagnosis("dw_kept", "The sum dW is counted once for all chunks.", "Where is dW between two chunks?", 2)
_OF_NUMBERS = (
    ("loads of W", (8, 24), Diagnosis(
        "products_with_w", "W stands in two products.", "Which of the three products take W?", 1)),
    ("loads of W", (1, 2, 3), Diagnosis(
        "w_kept", "W is counted once for all chunks.", "Is W, 1 GB, still on the chip for the next chunk?", 1)),
    ("loads of dW", (8,), Diagnosis(
        "dw_before_first", "The first chunk adds to nothing.", "What does the first chunk find of dW?", 2)),
    ("stores of dW", (7,), Diagnosis(
        "first_never_stored", "The first chunk stores, too.", "Who keeps what the first chunk has made?", 2)),
    ("loads of dW", (14, 15, 16), _APART),
    ("loads of dW", (0, 1), _KEPT),
    ("stores of dW", (15, 16), _APART),
    ("stores of dW", (1,), _KEPT),
    ("tokens of a chunk", (206, 207, 412, 413), Diagnosis(
        "one_product", "One product is compared, not all three.", "What do all three make and move?", 3)),
    ("tokens of a chunk", (68.7, 69), Diagnosis(
        "one_trip", "One trip is compared, not all four.", "Which loads and stores of W and dW has a chunk?", 3)),
    ("tokens of a chunk", (137.4, 138), Diagnosis(
        "half_the_tokens", "It is half of the right number.",
        "How many trips are there, of how many bytes a number, and how many operations has a term?", 3)),
    ("tokens of a chunk", (549.4,), Diagnosis(
        "twice_the_tokens", "It is twice the right number.",
        "How many operations has each term of a product, and how many bytes has a number of W?", 3)),
    ("tokens of a chunk", (274,), Diagnosis(
        "rounded_down", "The number is rounded down.", "With 274 tokens, which of the two times is longer?", 3)),
    ("tokens of a chunk", (1024,), Diagnosis(
        "own_tokens", "It is the number of tokens that a chunk here has.", "Which two times are to be equal?", 3)),
    ("logits in memory", (8, 12.5), Diagnosis(
        "above_1", "The fraction is above 1.", "Which part of all logits is one chunk of eight?", 4)),
    ("logits in memory", (0.25, 0.375, 1), Diagnosis(
        "whole_logits", "More than one chunk's logits are counted.", "Where does the gradient go?", 4)),
)  # fmt: skip

# 15.2

SUM_APART = Diagnosis(
    "more_trips_than_chunks", "The result is right, and something as large as W moves once more for each chunk.",
    "Which line makes a tensor as large as W, and could the product add to dW itself?", 5,
)  # fmt: skip
LOGITS_AT_ONCE = Diagnosis(
    "logits_at_once", "The result is right, and the logits of many chunks exist at once.",
    "Has a chunk more than ROWS tokens? Which tensor outlives its chunk, and who still needs it?", 5,
)  # fmt: skip


def _trips(inputs: Inputs, trial: Trial) -> str:
    """Says how often W and dW move, if that is too often: in 16 chunks, if H is larger than V."""
    _, W, _ = inputs
    loads, stores = (number / (16 * W.numel()) for number in (trial.loads, trial.stores))
    if W.shape[1] < len(W) or (loads < 3.7 and stores < 1.6):
        return ""
    return f"for each element of W {loads:.1f} loads and {stores:.1f} stores a chunk; 3 and 1 are enough"


def _kept(inputs: Inputs, trial: Trial) -> str:
    """Says how many bytes are in use besides dx and dW, if these are a sixth of all logits; V is larger than H.

    A chunk has a 32nd of them, and an answer may hold several tensors of its size.
    """
    x, W, _ = inputs
    logits, besides = len(x) * len(W) * x.element_size(), trial.most_bytes - x.nbytes - W.nbytes
    if W.shape[1] > len(W) or 6 * besides < logits:
        return ""
    return f"{besides:,} bytes are in use at once, besides dx and dW; all logits have {logits:,}"


def _zeros(x: torch.Tensor, W: torch.Tensor, target: torch.Tensor) -> tuple[torch.Tensor, ...]:
    return x.new_zeros(()), torch.zeros_like(x), torch.zeros_like(W)


# 15.3

_LEAST_TOKENS, _LEAST_CLASSES = 16, 32
"""Tokens of a tile that tl.dot takes at least; classes of the smallest tile that the text asks for."""


def loads_of_walk(inputs: Inputs, trial: Trial) -> int:
    """Loads that are enough: W for each tile of tokens, x for each of classes; x, and W at the targets, once more."""
    x, W, _ = inputs
    tiles = -(-len(x) // max(_LEAST_TOKENS, trial.most_stored))
    return W.numel() * tiles + x.numel() * (-(-len(W) // _LEAST_CLASSES) + 2) + len(x)


def _nothing_walked(x: torch.Tensor, W: torch.Tensor, target: torch.Tensor) -> tuple[torch.Tensor, ...]:
    return torch.zeros(len(x)), torch.full((len(x),), -torch.inf)


# 15.4

_SHOWN_BY = {
    "weighted_means": "ignored unevenly",
    "sixteen_chunks": "few tokens",
    "copies": "bfloat16",
    "moved_targets": "a short last chunk",
}
_LOOKS = ("a short last chunk", "ignored unevenly", "large logits", "bfloat16", "few tokens")
_OF_LOOKS = (
    ("weighted_means", ("a short last chunk",), Diagnosis(
        "weights_of_tokens", "A short chunk weighs less here.", "With which number is its mean weighed?", 1)),
    ("copies", ("large logits", "few tokens"), Diagnosis(
        "values_for_bytes", "The loss is right.", "Of which dtype of W does .float() make a copy?", 2)),
    ("sixteen_chunks", ("a short last chunk",), Diagnosis(
        "right_in_any_chunks", "Chunks of any size give the right loss.", "How large is a chunk?", 3)),
    ("moved_targets", ("ignored unevenly", "few tokens"), Diagnosis(
        "all_chunks_alike", "With equal chunks it is right.", "When is i * len(a) not the start of chunk i?", 4)),
)  # fmt: skip

EXERCISES = (
    ValuesExercise(
        name="in_chunks",
        number="15.1",
        points=2,
        about="Checks numbers of a loss in chunks: trips of W and dW, tokens of a chunk, and logits in memory.",
        judge=partial(judge_values, right=IN_CHUNKS, named=_OF_NUMBERS),
    ),
    CountedExercise(
        name="chunked_loss",
        number="15.2",
        points=4,
        about=(
            "Checks a function in PyTorch of x (M, H), W (V, H) and targets (M,) that returns the mean loss of the "
            "logits x Wᵀ, dx and dW, for chunks of ROWS tokens; dW is summed without a trip of its own."
        ),
        kind=problems.LOSS_AND_GRADIENTS,
        makers=problems.CHUNKS,
        further=problems.MANY_CHUNKS,
        spends=((SUM_APART, _trips), (LOGITS_AT_ONCE, _kept)),
        piece="chunk",
        starter=_zeros,
        starter_shows="the results are still 0, as the starter code makes them",
        known=with_hints(OF_CHUNKS, **dict.fromkeys(ERRORS, 4)),
        why="Why may the gradient be divided by n before the other chunks are known?",
        ours=without_logits.chunked_loss,
    ),
    TensorExercise(
        name="walk",
        number="15.3",
        points=5,
        about=(
            "Checks a kernel without logits: a function of x (M, H), W (V, H) and targets (M,) that returns the losses "
            "and the log-sum-exps of all tokens in float32. W is loaded for each tile of tokens, x for each of classes."
        ),
        kind=problems.LOSSES_WITHOUT_LOGITS,
        makers=problems.WALKS,
        loads=loads_of_walk,
        stores=2,
        starter=_nothing_walked,
        starter_shows="loss and lse are still what the starter code makes them",
        known=with_hints(OF_WALK, out_of_bounds=5, offsets_overflow=5, **dict.fromkeys(ERRORS, 5)),
        why="Why does the tile of tokens decide how often W is loaded, and the tile of classes how often x is?",
        ours=without_logits.walked_losses,
    ),
    ValuesExercise(
        name="chunk_bugs",
        number="15.4",
        points=2,
        about="Checks what shows the bugs of four losses in chunks.",
        judge=partial(judge_values, right=_SHOWN_BY, choices=_LOOKS, named=_OF_LOOKS),
    ),
)
