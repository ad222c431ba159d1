"""A run that has no time for all proofs leaves out cases of long tests alone, and another run runs those."""

import thinning

LONG = [f"test_a.py::test_long[{number}]" for number in range(thinning.LONG + 1)]
SHORT = [f"test_a.py::test_short[{number}]" for number in range(thinning.LONG)]


def test_a_long_test_is_thinned_and_others_are_not():
    assert thinning.every_nth([*LONG, *SHORT], 2) == [*LONG[::2], *SHORT]


def test_runs_whose_shifts_follow_each_other_run_every_case_once():
    parts = [thinning.every_nth(LONG, 3, shift) for shift in (7, 8, 9)]
    assert sorted(sum(parts, [])) == sorted(LONG)


def test_every_first_case_is_all_of_them():
    assert thinning.every_nth([*LONG, *SHORT], 1, 5) == [*LONG, *SHORT]
