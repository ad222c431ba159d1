"""Programs that wait for each other on a GPU of few places: which launches hang, why, and on how many they do not."""

import pytest

from helpers.gpu import waiting
from helpers.gpu.places import least_places
from helpers.gpu.waiting import VARIANTS, parts_first, persistent, rows_first, run


def test_a_row_whose_programs_all_have_a_place_comes_to_an_end():
    outcome = run(parts_first(rows=1, parts=3), places=3)
    assert (outcome.ended, outcome.waiting, outcome.never_started) == (3, (), 0)


def test_a_row_with_one_place_too_few_hangs_with_the_last_program_outside():
    outcome = run(parts_first(rows=1, parts=3), places=2)
    assert outcome.hangs
    assert (outcome.ended, outcome.never_started) == (0, 1)
    assert [waiting.name for waiting in outcome.waiting] == ["program 0", "program 1"]
    assert outcome.waiting[0].missing == {2: "of programs that have not started"}


def test_places_that_become_free_are_taken_by_the_next_programs():
    assert run(parts_first(rows=50, parts=3), places=3).ended == 150


def test_rows_that_ended_before_the_hang_are_counted():
    grid = [*parts_first(rows=1, parts=2), [(1, 0)], [(2, 0)], [(1, 1)], [(2, 1)]]
    assert run(grid, places=2).ended == 2


@pytest.mark.parametrize(("rows", "parts"), [(1, 1), (1, 5), (4, 3), (7, 2)])
def test_parts_first_needs_the_places_of_one_row(rows, parts):
    assert least_places(parts_first(rows, parts)) == parts


@pytest.mark.parametrize(("rows", "parts"), [(1, 5), (4, 3), (7, 2), (3, 1)])
def test_rows_first_needs_places_for_all_but_the_last_part_of_every_row(rows, parts):
    assert least_places(rows_first(rows, parts)) == (parts - 1) * rows + 1


@pytest.mark.parametrize("launches", [1, 2, 3])
def test_launches_at_once_need_all_but_one_place_of_each_and_one_more(launches):
    assert least_places(*[parts_first(1, 10)] * launches) == launches * 9 + 1


def test_the_grids_hold_the_slices_in_the_order_of_their_name():
    assert parts_first(2, 2) == [[(0, 0)], [(0, 1)], [(1, 0)], [(1, 1)]]
    assert rows_first(2, 2) == [[(0, 0)], [(1, 0)], [(0, 1)], [(1, 1)]]
    assert persistent(2, 3, 4) == [[(0, 0), (1, 1)], [(0, 1), (1, 2)], [(0, 2)], [(1, 0)]]


def test_the_launches_of_the_exercise_are_those_of_its_text():
    assert {name: [(len(grid), sum(map(len, grid))) for grid in grids] for name, grids in VARIANTS.items()} == {
        "parts first": [(32 * 16, 32 * 16)],
        "rows first": [(32 * 16, 32 * 16)],
        "two launches at once": [(100, 100), (100, 100)],
        "persistent, 132 programs": [(132, 128 * 16)],
        "persistent, 133 programs": [(133, 128 * 16)],
    }


def test_of_a_long_persistent_grid_every_program_must_be_there():
    assert [least_places(persistent(128, 16, programs)) for programs in (132, 133)] == [132, 133]


def test_a_program_that_waits_does_not_come_to_its_next_slice():
    outcome = run([[(0, 0), (1, 1)], [(1, 0), (0, 1)]], places=2)
    assert [waiting.missing for waiting in outcome.waiting] == [
        {1: "of program 1, which waits itself"},
        {1: "of program 0, which waits itself"},
    ]


@pytest.mark.parametrize("variant", VARIANTS)
def test_more_places_never_make_a_launch_hang(variant):
    least = least_places(*VARIANTS[variant])
    assert run(*VARIANTS[variant], places=least - 1).hangs
    assert not any(run(*VARIANTS[variant], places=least + more).hangs for more in (0, 1, 2, 5, 50, 500))


@pytest.mark.parametrize("places", [1, 2, 50, 131])
@pytest.mark.parametrize("variant", VARIANTS)
def test_with_help_every_launch_ends_on_any_number_of_places(variant, places):
    outcome = run(*VARIANTS[variant], places=places, helps=True)
    assert not outcome.hangs and outcome.ended == sum(map(len, VARIANTS[variant]))


def test_nobody_helps_where_nobody_would_wait_for_ever():
    assert run(parts_first(4, 3), places=3, helps=True).helped == 0
    assert run(parts_first(1, 3), places=2, helps=True).helped == 1
    assert run(parts_first(1, 5), places=2, helps=True).helped == 3


def test_every_variant_works_on_each_slice_once():
    for grids in VARIANTS.values():
        for grid in grids:
            slices = [at for program in grid for at in program]
            rows, parts = (1 + max(column) for column in zip(*slices, strict=True))
            assert sorted(slices) == [(row, part) for row in range(rows) for part in range(parts)]


def test_the_table_says_who_waits_for_whom():
    lines = repr(run(rows_first(rows=4, parts=3), places=5)).splitlines()
    assert lines[1].split("  ") == ["program 0", "row 0, slice 0", "slice 2 of programs that have not started"]
    assert lines[-1] == "5 places: 0 programs ended, 5 wait forever, 7 never start."


def test_the_table_of_launches_that_end_has_one_sentence():
    lines = repr(run(parts_first(2, 3), places=3)).splitlines()
    assert lines[1:] == ["none", "3 places: 6 programs ended, 0 wait forever, 0 never start."]


def test_the_table_says_how_many_pairs_others_computed():
    assert repr(run(parts_first(1, 3), places=2, helps=True)).endswith(" Pairs that other programs computed: 1.")


def test_launches_start_one_program_each_in_turn_and_name_them_with_their_launch():
    outcome = run(parts_first(1, 2), parts_first(1, 2), places=2)
    assert [waiting.name for waiting in outcome.waiting] == ["program 0 of launch 0", "program 0 of launch 1"]


def test_launches_of_different_sizes_all_start():
    assert run(parts_first(1, 2), parts_first(1, 3), places=5).ended == 5


@pytest.mark.parametrize(
    ("parts", "text"),
    [
        ([2], "slice 2 of programs that have not started"),
        ([2, 3, 4], "slices 2 to 4 of programs that have not started"),
        ([2, 4], "slices 2, 4 of programs that have not started"),
    ],
    ids=str,
)
def test_missing_slices_are_counted_up_in_words(parts, text):
    assert waiting._listed(dict.fromkeys(parts, "of programs that have not started")) == text


def test_missing_slices_stand_together_where_the_reason_is_the_same_and_four_reasons_are_too_many():
    assert waiting._listed({0: "a", 1: "b", 2: "a"}) == "slices 0, 2 a; slice 1 b"
    assert waiting._listed({0: "a", 1: "b", 2: "c"}) == "slice 0 a; slice 1 b; slice 2 c"
    assert waiting._listed({0: "a", 1: "b", 2: "c", 3: "d"}) == "slice 0 a; slice 1 b; slice 2 c; …"


def test_a_table_of_eight_lines_is_not_cut():
    assert "more" not in repr(run(rows_first(rows=8, parts=3), places=8))


def test_a_long_table_is_cut_and_says_so():
    lines = repr(run(rows_first(rows=20, parts=3), places=12)).splitlines()
    assert "and 4 more" in lines and len(lines) == 11


def test_the_html_is_the_table():
    assert "<td" in run(parts_first(2, 2), places=1)._repr_html_()


@pytest.mark.parametrize(
    ("call", "says"),
    [
        (lambda: run(parts_first(2, 2), places=0), "places must be a whole number of at least 1; it is 0"),
        (lambda: parts_first(0, 2), "rows must be a whole number of at least 1; it is 0"),
        (lambda: rows_first(2, 1.5), "parts must be a whole number of at least 1; it is 1.5"),
        (lambda: persistent(2, 2, True), "programs must be a whole number of at least 1; it is True"),
        (lambda: run(places=3), "give at least one grid"),
        (lambda: run([], places=3), "give at least one grid"),
        (lambda: least_places(), "give at least one grid"),
    ],
    ids=["places", "rows", "parts", "programs", "no grid", "empty grid", "least of nothing"],
)
def test_what_cannot_be_run_is_refused(call, says):
    with pytest.raises(ValueError, match=says):
        call()
