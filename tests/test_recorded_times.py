"""Where there is no GPU, records with a complete origin stand in for times."""

import pytest

from helpers import timing


@pytest.fixture
def without_gpu(monkeypatch):
    """Timing as it is on a machine without a GPU, also beside one."""
    monkeypatch.setattr(timing, "ON_GPU", False)


def never(*_):
    raise AssertionError("a function was run where nothing can be timed")


# Recorded comparisons


def test_a_comparison_without_a_gpu_runs_nothing(without_gpu):
    assert timing.compare({"online": never, "mine": never}).rows


def test_a_comparison_without_a_gpu_comes_from_the_record(without_gpu):
    (row,) = timing.compare({"online": never}, columns=[4096]).rows
    assert vars(row) in timing.record()["softmax"]
    assert (row.variant, row.dtype, row.n_cols) == ("online", "fp32", 4096)


@pytest.mark.parametrize("shown", [repr, lambda comparison: comparison._repr_html_()], ids=["text", "html"])
def test_a_recorded_comparison_is_labelled_with_gpu_and_date(without_gpu, shown):
    origin = timing.record()["origin"]
    text = shown(timing.compare({"online": never}, columns=[4096]))
    assert f"recorded on one {origin['gpu']}" in text
    assert origin["date"] in text and origin["triton"] in text and origin["torch"] in text


def test_names_that_the_record_does_not_hold_are_listed_as_missing(without_gpu):
    comparison = timing.compare({"mine": never, "online": never, "yours": never}, columns=[4096])
    assert comparison.missing == ("mine", "yours")
    assert "Not in the record, so timed only where there is a GPU: mine, yours." in repr(comparison)


def test_nothing_is_called_missing_where_all_is_recorded(without_gpu):
    assert "Not in the record" not in repr(timing.compare({"online": never}))


def test_lengths_that_a_variant_cannot_take_are_shown_as_gaps(without_gpu):
    comparison = timing.compare({"online": never, "single tile": never}, columns=[65536, 131072])
    assert [row[2] for row in comparison.table().rows][1] == "–"
    assert comparison.missing == ()


def test_variants_and_lengths_come_in_the_order_of_the_names_and_of_size(without_gpu):
    comparison = timing.compare({"online": never, "eager": never}, columns=[4096, 1024])
    assert comparison.variants == ["online", "eager"]
    order = [(row.n_cols, row.variant) for row in comparison.rows]
    assert order == [(1024, "online"), (1024, "eager"), (4096, "online"), (4096, "eager")]
    assert [row[0] for row in comparison.table().rows] == ["262,144 × 1,024", "65,536 × 4,096"]


def test_every_dtype_has_its_own_rows(without_gpu):
    single, half = (timing.compare({"online": never}, columns=[4096], dtype=name).rows[0] for name in ("fp32", "bf16"))
    assert (single.dtype, half.dtype) == ("fp32", "bf16")
    assert half.median_ms < single.median_ms


def test_lengths_that_the_record_does_not_hold_are_named(without_gpu):
    comparison = timing.compare({"online": never}, columns=[1000, 1024, 3])
    assert comparison.notes == ("Not in the record: 1,000, 3 columns.",)
    assert comparison.missing == ()
    assert comparison.notes[0] in repr(comparison)


def test_lengths_that_the_record_holds_are_not_missing_where_the_name_is(without_gpu):
    assert timing.compare({"mine": never}, columns=[4096]).notes == ()


def test_another_number_of_elements_than_the_records_is_noted(without_gpu):
    (note,) = timing.compare({"online": never}, columns=[1024], elements=2**20).notes
    assert note == "The record has its own numbers of rows; elements=1,048,576 is used only on a GPU."


def test_one_row_length_needs_no_list(without_gpu):
    assert timing.compare({"online": never}, columns=4096) == timing.compare({"online": never}, columns=[4096])


# The records of few rows


def test_few_rows_that_were_recorded_apart_are_found_by_their_number_of_elements(without_gpu, monkeypatch):
    row = {"variant": "online", "dtype": "fp32", "n_cols": 4096, "low_ms": 1.0, "high_ms": 1.0, "copy_ms": 1.0}
    many, few = {**row, "n_rows": 65536, "median_ms": 2.0}, {**row, "n_rows": 8, "median_ms": 4.0}
    monkeypatch.setitem(timing.record(), "softmax", [many])
    monkeypatch.setitem(timing.record(), "few_rows", [few])
    assert [row.n_rows for row in timing.compare({"online": never}, columns=4096).rows] == [65536]
    asked = timing.compare({"online": never}, columns=4096, elements=8 * 4096)
    assert [row.of_copy for row in asked.rows] == [0.25] and asked.notes == ()
    neither = timing.compare({"online": never}, columns=4096, elements=64 * 4096)
    assert [row.n_rows for row in neither.rows] == [65536]


def test_as_many_rows_as_in_the_record_join_the_few_that_were_recorded_apart(without_gpu, monkeypatch):
    row = {
        "dtype": "fp32",
        "n_rows": 65536,
        "n_cols": 4096,
        "median_ms": 2.0,
        "low_ms": 1.0,
        "high_ms": 1.0,
        "copy_ms": 1.0,
    }
    monkeypatch.setitem(timing.record(), "softmax", [{**row, "variant": name} for name in ("online", "eager")])
    monkeypatch.setitem(timing.record(), "few_rows", [{**row, "variant": "online"}])
    compared = timing.compare({"online": never, "eager": never}, columns=4096)
    assert [row.variant for row in compared.rows] == ["online", "eager"]


# The copy


def test_the_roof_without_a_gpu_is_the_recorded_copy_nearest_in_size(without_gpu):
    for copy in timing.record()["copies"]:
        roof = timing.copy_roof(copy["nbytes"] + 1)
        assert (roof.nbytes, roof.gbps) == (copy["nbytes"], copy["gbps"])


def test_the_roof_without_a_gpu_is_labelled_with_gpu_and_date(without_gpu):
    origin = timing.record()["origin"]
    assert f"recorded on one {origin['gpu']}" in str(timing.copy_roof(2**20))
    assert origin["date"] in str(timing.copy_roof(2**20))


# Which record


def test_there_is_a_record_for_machines_without_a_gpu(without_gpu):
    assert timing.record() == timing.record("NVIDIA H200")


def test_a_gpu_without_a_record_is_refused_with_those_that_have_one():
    with pytest.raises(ValueError, match="no record of 'Voodoo2'; there are records of .*NVIDIA H200"):
        timing.record("Voodoo2")
