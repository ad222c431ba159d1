"""What mistakes are called that are recognised in several kinds of answers, each by something else."""

from __future__ import annotations

from helpers.check.report import Diagnosis

EXP_OF_THE_SUM = Diagnosis(
    "exp_of_the_sum",
    "The exponential of a sum is taken, not the sum of exponentials.",
    "Is exp(a + b) the same as exp(a) + exp(b)?",
    0,
)
EXPONENTIAL_OVERFLOWS = Diagnosis(
    "exponential_overflows",
    "An exponential overflows.",
    "What sign does each exponent have, and which number keeps it at or below 0?",
    0,
)
IDLE_LANES_HOLD_0 = Diagnosis(
    "idle_lanes_hold_0",
    "Lanes past the end of the row hold 0.",
    "Which number changes neither a maximum nor a sum of exponentials?",
    0,
)
M_NEVER_KEPT = Diagnosis(
    "m_never_kept", "m is never kept.", "At the end of a round, which maximum should the next one find?", 0
)
M_START = Diagnosis(
    "m_start", "m does not begin at −inf.", "What is the maximum of a row that lies wholly below your first m?", 0
)
MAXIMUM_OUT_OF_EXPONENT = Diagnosis(
    "maximum_out_of_exponent",
    "A maximum is taken out of the exponent.",
    "What is exp(1000), and which difference of two maxima is never above 0?",
    0,
)
N_AS_STRIDE = Diagnosis(
    "n_as_stride", "N is taken for the row stride of x.", "How far apart do the rows of x[:, :5] begin?", 0
)
NEVER_RESCALED = Diagnosis(
    "never_rescaled",
    "The sum is never rescaled, or always by 1.",
    "When m grows, with which m were the terms in l made, and is that m still there when the factor is computed?",
    0,
)
NO_MAXIMUM = Diagnosis(
    "no_maximum",
    "The maximum is not subtracted.",
    "What is exp(1000), and which number keeps every exponent at or below 0?",
    0,
)
ONLY_16_BIT = Diagnosis(
    "only_16_bit",
    "Only 16-bit inputs are wrong.",
    "In which dtype are the maximum, exp and the sum computed, and is any of them stored, or sent, on the way?",
    0,
)
PAIR_SWAPPED = Diagnosis(
    "pair_swapped", "The pair comes back the wrong way around.", "Which of the two numbers comes first in (m, l)?", 0
)
RESCALED_AFTER_ADDING = Diagnosis(
    "rescaled_after_adding",
    "The sum is rescaled after the new terms are added.",
    "With which m were the new terms made, and do they need the factor?",
    0,
)
RESCALED_WRONG_WAY = Diagnosis(
    "rescaled_wrong_way", "The sum is rescaled the wrong way.", "When m grows, must the old l grow or shrink?", 0
)
SCORES_ADDED = Diagnosis(
    "scores_added", "l adds up scores, not their exponentials.", "What is l the sum of, in the formula of softmax?", 0
)
LOGARITHM_RETURNED = Diagnosis(
    "logarithm_returned",
    "The logarithm of the softmax comes back, or a difference.",
    "Can a probability be negative, and which step makes one of a difference of scores?",
    0,
)
ZERO_TIMES_NAN_IN_GRADIENT = Diagnosis(
    "zero_times_nan_in_gradient",
    "The gradient of an ignored row that holds NaN or inf is NaN.",
    "What is 0 times NaN? Which function chooses one of two numbers instead?",
    0,
)
SCORES_STORED = Diagnosis(
    "scores_stored", "The result is x itself.", "Which name holds the result, and is it the one that comes back?", 0
)
SUMS_AS_THEY_ARE = Diagnosis(
    "sums_as_they_are",
    "The sums are added as they are.",
    "With which maximum was each of them made, and which one holds for all of them?",
    0,
)
TERMS_WITH_OLD_MAXIMUM = Diagnosis(
    "terms_with_old_maximum",
    "The new terms are made with the old maximum.",
    "l is to hold for the new m: which number is subtracted in each of its two parts?",
    0,
)
FACTORS_SWAPPED = Diagnosis(
    "factors_swapped", "Each sum takes the factor of the other.", "Which maximum was l_a made with?", 0
)
M_OF_LAST_TILE = Diagnosis(
    "m_of_last_tile", "m is the maximum of the last tile.", "After the second tile, does m still know the first?", 0
)
