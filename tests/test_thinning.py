"""A few cases of a test run before a commit; a run without time for all proofs leaves out some, which another runs."""

import thinning

CASES = [f"test_a.py::test_long[{number}]" for number in range(40)]


def test_of_a_long_test_a_few_cases_run_before_a_commit_and_the_first_is_among_them():
    assert thinning.few(CASES[:3]) == set(CASES[:3])
    assert len(thinning.few(CASES)) == thinning.FEW and CASES[0] in thinning.few(CASES) < set(CASES)


def test_of_a_test_that_runs_with_the_proofs_alone_none_does():
    assert thinning.few(CASES, 0) == set()


def test_a_case_more_changes_one_of_the_few_at_most():
    more = [[*CASES[:at], "test_a.py::test_long[more]", *CASES[at:]] for at in range(1, len(CASES))]
    assert all(len(thinning.few(CASES) - thinning.few(cases)) <= 1 for cases in more)


def test_values_of_crossed_parameters_are_not_all_the_same():
    few = thinning.few([f"test_a.py::test_crossed[{number}-{kind}]" for number in range(25) for kind in "abcd"])
    assert len({case[-2] for case in few}) > 1


def test_runs_whose_shifts_follow_each_other_run_every_proof_once():
    parts = [thinning.part(CASES, 3, shift) for shift in (7, 8, 9)]
    assert all(parts) and sorted(sum(parts, [])) == sorted(CASES)


def test_a_proof_more_does_not_change_which_others_run():
    assert thinning.part(CASES[1:], 3) == [case for case in thinning.part(CASES, 3) if case != CASES[0]]


def test_one_in_one_is_all_of_them():
    assert thinning.part(CASES, 1, 5) == CASES
