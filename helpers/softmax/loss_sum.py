"""Losses of rows, added up by whichever program hands in the last one.

A group's losses are added in one word, as whole numbers of units of 2⁻²⁵: these have the same sum in any order, so the
result is the same from run to run, and the word that counts them holds their sum as well. Where each loss had a word of
its own, and the last program read them all, a mean took an H100 1.1 to 1.4 µs more (in no record).

Of the words, all 0 at first, one counts the groups that are complete, and one the targets that are not ignored. Then
come, for each group, a word that adds its losses up and one for its sum; and for each row one for its loss.
"""

import triton
import triton.language as tl

LOSSES_IN_A_GROUP = 8192

_GROUP, _AT_A_TIME = tl.constexpr(LOSSES_IN_A_GROUP), tl.constexpr(256)
"""Losses that a word adds up at most; and words that a program reads, or targets that it counts, at a time."""

_UNITS, _ONE_MORE, _SPOILT = tl.constexpr(2.0**25), tl.constexpr(1 << 48), tl.constexpr(1 << 62)
"""A group's word: units in the lowest 48 bits, how many losses they are of in the next 14, and then whether one of them
did not fit. Losses from 1/4 on are whole numbers of units."""

_TOO_LARGE = tl.constexpr(2.0**10)
"""8192 losses below it, in units, fit in 48 bits."""


def words_to_add_up(M: int) -> int:
    """How many words the losses of M rows take to be added up."""
    return 2 + 2 * triton.cdiv(M, LOSSES_IN_A_GROUP) + M


@triton.jit
def words_behind_losses(word_ptr, M):
    """Where the words end that `words_to_add_up` counts."""
    return word_ptr + 2 + 2 * tl.cdiv(M, _GROUP) + M


@triton.jit
def word_of_number(number):
    """A float32 as a word that is never 0."""
    return (number.to(tl.uint32, bitcast=True).to(tl.uint64) | (1 << 32)).to(tl.int64)


@triton.jit
def number_of_word(word):
    """The float32 in the lower half of a word."""
    return (word & 0xFFFFFFFF).to(tl.int32).to(tl.float32, bitcast=True)


@triton.jit
def count_targets(word_ptr, target_ptr, part, row, M, ignore_index, REDUCTION: tl.constexpr):
    """For a mean: adds to a word how many of some targets are not ignored, and 1 << 32, since these are counted then.

    The first program of row r counts 256 of them from 256 · r on: these programs are the first to run.
    """
    if REDUCTION == "mean":
        if (part == 0) & (row * _AT_A_TIME < M):
            rows = row * _AT_A_TIME + tl.arange(0, _AT_A_TIME)
            targets = tl.load(target_ptr + rows, mask=rows < M, other=ignore_index)
            count = tl.sum((targets != ignore_index).to(tl.int64), axis=0)
            tl.atomic_add(word_ptr + 1, count + (1 << 32), sem="relaxed")


@triton.jit
def all_targets(target_ptr, M, ignore_index):
    """How many of M targets are not ignored, for a program that has waited long enough for others to count them."""
    counts = tl.zeros([_AT_A_TIME], tl.int64)
    for begin in range(0, M, _AT_A_TIME):
        rows = begin + tl.arange(0, _AT_A_TIME)
        targets = tl.load(target_ptr + rows, mask=rows < M, other=ignore_index)
        counts += (targets != ignore_index).to(tl.int64)
    return tl.sum(counts, axis=0).to(tl.float32)


@triton.jit
def _count_of_word(word, M):
    """How many targets are not ignored, and whether all have been counted."""
    return (word & 0xFFFFFFFF).to(tl.float32), (word >> 32) == tl.cdiv(M, _AT_A_TIME)


@triton.jit
def counted_targets(word_ptr, M, looks, THREADS: tl.constexpr):
    """How many targets are not ignored, and whether all have been counted after at most `looks` more looks.

    Every thread looks, and all agree. The first look may be answered by the SM's own cache: where none was, 16-bit rows
    took up to 1 % more time.
    """
    at = word_ptr + 1 + tl.zeros([THREADS], tl.int32)
    count, counted = _count_of_word(tl.max(tl.load(at), axis=0), M)
    while (not counted) & (looks > 0):
        count, counted = _count_of_word(tl.max(tl.load(at, volatile=True), axis=0), M)
        looks -= 1
    return count, counted


@triton.jit(noinline=True)
def _sum_of_words(word_ptr, n):
    """The sum of n numbers, added in an order that is always the same.

    All have been handed in, in memory that need not show it yet: this wait ends whatever other programs do. Few
    programs come here: out of line, it costs the others no register.
    """
    sums = tl.zeros([_AT_A_TIME], tl.float32)
    for begin in range(0, n, _AT_A_TIME):
        places = begin + tl.arange(0, _AT_A_TIME)
        words = tl.load(word_ptr + places, mask=places < n, other=1 << 32, volatile=True)
        while tl.min((words != 0).to(tl.int32), axis=0) == 0:
            words |= tl.load(word_ptr + places, mask=words == 0, other=0, volatile=True)
        sums += number_of_word(words)
    return tl.sum(sums, axis=0)


@triton.jit
def hand_in(
    loss, loss_ptr, target_ptr, pair_ptr, word_ptr, row, M, ignore_index,
    PAIRS: tl.constexpr, REDUCTION: tl.constexpr, THREADS: tl.constexpr, GROUP: tl.constexpr = _GROUP,
):  # fmt: skip
    """Stores the loss of a row, or adds it to its GROUP. Whoever adds the last one stores the sum or the mean.

    A loss that is too large for the sum, or NaN, is left out of it, but says so; the words of all losses are added
    then. With PAIRS, `pair_ptr` gets the mean's divisor as its word M. A word is value and flag at once, and no other
    memory is read because of one: relaxed order is enough.
    """
    if REDUCTION == "none":
        tl.store(loss_ptr + row, loss)
    else:
        groups = tl.cdiv(M, GROUP)
        group = row // GROUP
        group_ptr, sum_ptr, handed_ptr = word_ptr + 2 + group, word_ptr + 2 + groups, word_ptr + 2 + 2 * groups
        tl.atomic_xchg(handed_ptr + row, word_of_number(loss), sem="relaxed")
        fits = (loss >= 0) & (loss < _TOO_LARGE)
        if not fits:
            tl.atomic_or(group_ptr, tl.cast(_SPOILT, tl.int64), sem="relaxed")
        if REDUCTION == "mean":  # asked for before it is needed: one wait is for both words
            of_targets = tl.load(word_ptr + 1 + tl.zeros([THREADS], tl.int32), volatile=True)
        one = _ONE_MORE + (tl.where(fits, loss, 0.0) * _UNITS).to(tl.int64)
        word = tl.atomic_add(group_ptr, one, sem="relaxed") + one
        n = tl.minimum(M - group * GROUP, GROUP)
        if (word % _SPOILT) // _ONE_MORE == n:
            total = (word % _ONE_MORE).to(tl.float32) / _UNITS
            if word >= _SPOILT:
                total = _sum_of_words(handed_ptr + group * GROUP, n)
            last = True
            if groups > 1:
                tl.atomic_xchg(sum_ptr + group, word_of_number(total), sem="relaxed")
                last = tl.atomic_add(word_ptr, 1, sem="relaxed") == groups - 1
                if last:
                    total = _sum_of_words(sum_ptr, groups)
            if last:
                if REDUCTION == "mean":
                    count, counted = _count_of_word(tl.max(of_targets, axis=0), M)
                    if not counted:
                        count = all_targets(target_ptr, M, ignore_index)
                    total /= count
                    if PAIRS:
                        tl.store(pair_ptr + M, word_of_number(count))
                tl.store(loss_ptr, total)
