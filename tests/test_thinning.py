"""A few cases of a test run before a commit; a run without time for all proofs leaves out some, which another runs."""

import thinning

LONG = [f"test_a.py::test_long[{number}]" for number in range(thinning.LONG + 3)]
SHORT = [f"test_a.py::test_short[{number}]" for number in range(thinning.LONG)]


def test_of_a_long_test_a_few_cases_run_before_a_commit_and_the_first_is_among_them():
    assert thinning.few(SHORT[:3]) == set(SHORT[:3])
    assert len(thinning.few(LONG)) == thinning.FEW and LONG[0] in thinning.few(LONG) < set(LONG)


def test_a_case_more_changes_one_of_the_few_at_most():
    more = [[*LONG[:at], "test_a.py::test_long[more]", *LONG[at:]] for at in range(1, len(LONG))]
    assert all(len(thinning.few(LONG) - thinning.few(cases)) <= 1 for cases in more)


def test_values_of_crossed_parameters_are_not_all_the_same():
    few = thinning.few([f"test_a.py::test_crossed[{number}-{kind}]" for number in range(25) for kind in "abcd"])
    assert len({case[-2] for case in few}) > 1


def test_a_long_test_is_thinned_and_others_are_not():
    assert thinning.every_nth([*LONG, *SHORT], 2) == [*LONG[::2], *SHORT]


def test_runs_whose_shifts_follow_each_other_run_every_case_once():
    parts = [thinning.every_nth(LONG, 3, shift) for shift in (7, 8, 9)]
    assert sorted(sum(parts, [])) == sorted(LONG)


def test_every_first_case_is_all_of_them():
    assert thinning.every_nth([*LONG, *SHORT], 1, 5) == [*LONG, *SHORT]
