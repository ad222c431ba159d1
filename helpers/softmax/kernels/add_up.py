"""Losses, or sums of a program's own, added up by whichever program hands in the last one.

A group's losses are added in one word, as whole numbers of units of 2⁻²⁹: these have the same sum in any order, and the
word that counts them holds it. So the last program asks for no other loss.

All words are 0 at first. One counts the groups that are complete, and one the targets that are not ignored. Each group
has a word that adds its losses up and one for its sum; and each loss has one, which is read only if a loss of the group
did not fit. Then, and where there are several groups, float32 sums are made in an order that is always the same: a
result has the same bits from run to run.

Letters as in `helpers.softmax`.
"""

import triton
import triton.language as tl

from helpers.softmax.plans.losses import COUNTING_WORDS

COUNTERS = tl.constexpr(COUNTING_WORDS)
"""Words that count complete groups and targets."""

_AT_A_TIME, _OF_A_THREAD = 256, 8
"""Words that a program reads at a time, or targets that it counts at a time; and the fewest targets of each thread."""

_WORDS, _COUNTING = tl.constexpr(_AT_A_TIME), tl.constexpr(256)
"""Words as before; and the most programs that count. They have the lowest numbers and, as a rule, run first: programs
that fill the GPU then wait for none that cannot start. Whoever waits in vain counts by itself."""

_UNIT, _ONE_MORE, _SPOILT = tl.constexpr(2.0**-29), tl.constexpr(1 << 49), tl.constexpr(1 << 62)
"""A group's word: units in the lowest 49 bits, how many losses they are of in the next 13, and then whether one of them
did not fit. Losses from 1/64 on are whole numbers of units. Smaller ones are rounded, by less than what they have lost
already: they are log(l), and l, near 1, has 24 bits."""

_ROUNDED_BELOW, _MOST_OF_ALL = tl.constexpr(2.0**-6), tl.constexpr(2.0**20)
"""_MOST_OF_ALL is 2⁴⁹ units: a whole group fits if each of its losses is less than its part of this."""


@triton.jit
def word_of_number(number):
    """A float32 as a word that is never 0."""
    return (number.to(tl.uint32, bitcast=True).to(tl.uint64) | (1 << 32)).to(tl.int64)


@triton.jit
def number_of_word(word):
    """The float32 in the lower half of a word."""
    return (word & 0xFFFFFFFF).to(tl.int32).to(tl.float32, bitcast=True)


@triton.constexpr_function
def _targets_at_a_time(THREADS: int) -> int:
    """Of a program."""
    return max(_AT_A_TIME, _OF_A_THREAD * THREADS)


@triton.jit
def _counting(programs, M, THREADS: tl.constexpr):
    """How many of the programs, of THREADS each, count M targets."""
    return tl.minimum(tl.minimum((M - 1) // _targets_at_a_time(THREADS) + 1, _COUNTING), programs)


@triton.jit
def _are_counted(target_ptr, begin, M, ignore_index, THREADS: tl.constexpr):
    """1 for each of the next targets, which its THREADS load at a time, that is not ignored; else 0."""
    rows = begin + tl.arange(0, _targets_at_a_time(THREADS))
    return (tl.load(target_ptr + rows, mask=rows < M, other=ignore_index) != ignore_index).to(tl.int32)


@triton.jit
def _count_of(target_ptr, begin, M, ignore_index, THREADS: tl.constexpr):
    """How many of the next targets, which its THREADS load at a time, are not ignored."""
    return tl.sum(_are_counted(target_ptr, begin, M, ignore_index, THREADS).to(tl.int64), axis=0)


@triton.jit(noinline=True)
def _count_of_rest(target_ptr, begin, counting, M, ignore_index, THREADS: tl.constexpr, ROUNDS: tl.constexpr):
    """How many of a program's targets behind its first ones, at `begin`, are not ignored, where `counting` programs
    count, of THREADS each, and the loads of ROUNDS rounds are on their way together.

    Out of line, it costs the other programs no register, unless it needs many: then a row's programs spill. `begin`
    lies before M, or unrolled rounds, which are counted unsigned, would be very many.
    """
    round = tl.cast(counting, tl.int64) * _targets_at_a_time(THREADS)
    counts = tl.zeros_like(tl.arange(0, _targets_at_a_time(THREADS)))
    for begin_of_more in tl.range(begin + round, M, round, loop_unroll_factor=ROUNDS):
        counts += _are_counted(target_ptr, begin_of_more, M, ignore_index, THREADS)
    return tl.sum(counts.to(tl.int64), axis=0)


@triton.jit
def count_targets(
    counter_ptr, target_ptr, program, programs, M, ignore_index,
    REDUCTION: tl.constexpr, THREADS: tl.constexpr, ROUNDS: tl.constexpr,
):  # fmt: skip
    """Where the REDUCTION is a mean, and this `program` one of the first among at least `programs`, of THREADS
    each: adds to a word how many of its share of M targets are not ignored, and in the upper half that one more program
    has counted. Whoever reads the word has to know of the same programs and threads. ROUNDS as in
    `_count_of_rest`."""
    if REDUCTION == "mean":
        counting = _counting(programs, M, THREADS)
        if program < counting:
            begin = tl.cast(program, tl.int64) * _targets_at_a_time(THREADS)
            count = _count_of(target_ptr, begin, M, ignore_index, THREADS)
            if M > tl.cast(counting, tl.int64) * _targets_at_a_time(THREADS):
                count += _count_of_rest(target_ptr, begin, counting, M, ignore_index, THREADS, ROUNDS)
            tl.atomic_add(counter_ptr + 1, count + (1 << 32), sem="relaxed")


@triton.jit
def all_targets(target_ptr, M, ignore_index, THREADS: tl.constexpr):
    """How many of M targets are not ignored, for a program that has not seen the count of all of them: its THREADS
    count."""
    count = tl.cast(0, tl.int64)
    for begin in range(tl.cast(0, tl.int64), M, _targets_at_a_time(THREADS)):
        count += _count_of(target_ptr, begin, M, ignore_index, THREADS)
    return count.to(tl.float32)


@triton.jit
def _count_of_word(word, counting):
    """How many targets are not ignored, and whether all that are `counting` have counted."""
    return (word & 0xFFFFFFFF).to(tl.float32), (word >> 32) == counting


@triton.jit
def counted_targets(counter_ptr, programs, M, looks, THREADS: tl.constexpr):
    """How many targets are not ignored, and whether all have been counted after at most `looks` more looks.

    All THREADS look, and all agree. The first look may be answered by the SM's own cache: where it was not, 16-bit
    rows took up to 1 % more time.
    """
    at, counting = counter_ptr + 1 + tl.zeros([THREADS], tl.int32), _counting(programs, M, THREADS)
    count, counted = _count_of_word(tl.max(tl.load(at), axis=0), counting)
    while (not counted) & (looks > 0):
        count, counted = _count_of_word(tl.max(tl.load(at, volatile=True), axis=0), counting)
        looks -= 1
    return count, counted


@triton.jit
def count_for_mean(
    counter_ptr, target_ptr, program, programs, M, ignore_index, looks,
    GRAD: tl.constexpr, OWN: tl.constexpr, REDUCTION: tl.constexpr, THREADS: tl.constexpr,
):  # fmt: skip
    """What the gradient of each loss is divided by: for GRAD and a REDUCTION to the mean how many targets are not
    ignored, else 1. The `programs`, of THREADS each, count them before they begin, unless each counts its OWN."""
    if not OWN:
        count_targets(counter_ptr, target_ptr, program, programs, M, ignore_index, REDUCTION, THREADS, 2)
    count = 1.0
    if GRAD and REDUCTION == "mean":
        count, counted = counted_targets(counter_ptr, programs, M, looks, THREADS)
        if not counted:
            count = all_targets(target_ptr, M, ignore_index, THREADS)
    return count


@triton.jit(noinline=True)
def _sum_of_words(word_ptr, n):
    """The sum of n numbers, added in an order that is always the same.

    All have been handed in, in memory that need not show it yet: this wait ends whatever other programs do. Few
    programs come here: out of line, it costs the others no register.
    """
    sums = tl.zeros([_WORDS], tl.float32)
    for begin in range(0, n, _WORDS):
        places = begin + tl.arange(0, _WORDS)
        words = tl.load(word_ptr + places, mask=places < n, other=1 << 32, volatile=True)
        while tl.min((words != 0).to(tl.int32), axis=0) == 0:
            words |= tl.load(word_ptr + places, mask=words == 0, other=0, volatile=True)
        sums += number_of_word(words)
    return tl.sum(sums, axis=0)


@triton.jit(noinline=True)
def _count_of_own(counter_ptr, n, THREADS: tl.constexpr):
    """How many targets are not ignored, where n programs have added how many of their own: as in `_sum_of_words`, the
    wait for what all have added ends. All THREADS look, and all agree."""
    at = counter_ptr + 1 + tl.zeros([THREADS], tl.int32)
    count, counted = _count_of_word(tl.max(tl.load(at, volatile=True), axis=0), n)
    while not counted:
        count, counted = _count_of_word(tl.max(tl.load(at, volatile=True), axis=0), n)
    return count


@triton.jit
def hand_in(
    loss, own, loss_ptr, target_ptr, count_ptr, counter_ptr, word_ptr, place, n, M, ignore_index,
    PAIRS: tl.constexpr, REDUCTION: tl.constexpr, THREADS: tl.constexpr, GROUP: tl.constexpr,
):  # fmt: skip
    """Stores the loss at its `place` among n, or where there is a REDUCTION adds it to its group. Whoever adds the last
    one stores the sum or mean, on which its THREADS agree.

    Neighbours are in different groups of at most GROUP, since words that many programs add to at a time are slow. A
    loss that does not fit in the sum (too large, negative or NaN) is left out of it and says so: then the words of all
    losses are added. `counter_ptr` points to the COUNTERS, `word_ptr` to the other words. A mean is divided by how many
    of M targets are not ignored; with PAIRS, `count_ptr` gets this number as a word.

    `own` is how many targets a program has seen that are not ignored, where each of the n adds that for a mean before
    its loss; None where they are counted by `count_targets`.

    Relaxed order is enough: the same thread writes to a group's word whether its loss fits and then that it has come,
    and words that are read because of another one are awaited, since they may be seen later.
    """
    if REDUCTION == "none":
        tl.store(loss_ptr + place, loss)
    else:
        # Which group the loss belongs to, and where the words of the group are.
        place = place.to(tl.int32)  # a row's number has 64 bits, and needs 32 to be divided
        groups = (n - 1) // GROUP + 1  # n + GROUP may need more than 32 bits
        group, most = place % groups, (n - 1) // groups + 1
        group_ptr, sum_ptr, handed_ptr = word_ptr + group, word_ptr + groups, word_ptr + 2 * groups.to(tl.int64)
        handed_ptr += group.to(tl.int64) * most
        # The loss itself, which is read only if a loss of its group does not fit.
        tl.atomic_xchg(handed_ptr + place // groups, word_of_number(loss), sem="relaxed")
        fits = (loss >= 0) & (loss < _MOST_OF_ALL / GROUP)
        if not fits:
            tl.atomic_or(group_ptr, tl.cast(_SPOILT, tl.int64), sem="relaxed")
        if REDUCTION == "mean":
            if own is not None:
                tl.atomic_add(counter_ptr + 1, own.to(tl.int64) + (1 << 32), sem="relaxed")
            else:  # asked for before it is needed: one wait is for both words
                of_targets = tl.load(counter_ptr + 1 + tl.zeros([THREADS], tl.int32), volatile=True)
        # Add the loss to its group as whole units, and count it.
        units = tl.where(fits, loss, 0.0) / _UNIT + tl.where(loss < _ROUNDED_BELOW, 0.5, 0.0)
        one = _ONE_MORE + units.to(tl.int64)
        word = tl.atomic_add(group_ptr, one, sem="relaxed") + one
        # The last one of a group has its sum. The last group's adds up the groups, and stores the result.
        members = (n - 1 - group) // groups + 1
        if (word % _SPOILT) // _ONE_MORE == members:
            total = (word % _ONE_MORE).to(tl.float32) * _UNIT
            if word >= _SPOILT:
                total = _sum_of_words(handed_ptr, members)
            last = True
            if groups > 1:
                tl.atomic_xchg(sum_ptr + group, word_of_number(total), sem="relaxed")
                last = tl.atomic_add(counter_ptr, 1, sem="relaxed") == groups - 1
                if last:
                    total = _sum_of_words(sum_ptr, groups)
            if last:
                if REDUCTION == "mean":
                    if own is not None:
                        count = _count_of_own(counter_ptr, n, THREADS)
                    else:
                        count, counted = _count_of_word(tl.max(of_targets, axis=0), _counting(n, M, THREADS))
                        if not counted:
                            count = all_targets(target_ptr, M, ignore_index, THREADS)
                    total = tl.div_rn(total, count)
                    if PAIRS:
                        tl.store(count_ptr, word_of_number(count))
                tl.store(loss_ptr, total)
