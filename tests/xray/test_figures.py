"""How a kernel's report looks, as text and in a notebook."""

from helpers import xray

SEEN = xray.KernelReport("sm_90", 16, 40, 0, 64, {128: 4, 32: 1}, {128: 4}, 5, 19.14)


def test_a_report_is_a_table_of_figures_and_what_they_mean():
    lines = repr(SEEN).splitlines()
    assert [line.split("  ")[0] for line in lines[1:-1]] == [
        "registers a thread",
        "spilled a thread",
        "shared memory",
        "occupancy",
        "loads a thread",
        "stores a thread",
        "barriers",
        "instructions per element",
    ]
    assert "40 of 128" in lines[1]
    assert "75%  3 programs an SM, limited by registers" in lines[4]
    assert "4 × 128 bits, 1 × 32 bits" in lines[5]
    assert "19.1" in lines[8]
    assert lines[-1] == "Compiled for sm_90 with 16 warps a program."


def test_a_report_is_a_table_in_a_notebook():
    assert SEEN._repr_html_().startswith("<table>") and "limited by registers" in SEEN._repr_html_()


def test_reports_can_be_members_of_a_set():
    assert len({SEEN, SEEN}) == 1
