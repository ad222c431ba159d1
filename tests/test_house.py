"""Lessons of the first edition find what they import."""

import importlib

import pytest

EARLIER = {
    "helpers.launches": ("helpers.choosing.launches", ["Launch", "candidates", "tile"]),
    "helpers.pick": ("helpers.choosing.rules", ["pick", "textbook"]),
    "helpers.picker": ("helpers.choosing.picker", ["show"]),
    "helpers.residency": ("helpers.gpu.waiting", ["VARIANTS", "parts_first", "rows_first", "run"]),
}
"""By the module that lessons of the first edition import: where it is now, and the names they use."""


@pytest.mark.parametrize("earlier", EARLIER)
def test_lessons_of_the_first_edition_find_what_they_import(earlier):
    now, names = EARLIER[earlier]
    for name in names:
        assert getattr(importlib.import_module(earlier), name) is getattr(importlib.import_module(now), name)


def test_the_record_of_launches_is_found_under_its_earlier_name():
    from helpers.choosing.launches import of_gpu
    from helpers.launches import record

    assert record is of_gpu
