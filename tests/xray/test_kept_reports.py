"""Reports in memory and on disk: which question finds which, and what becomes of a damaged file."""

import os
import subprocess
import sys
from pathlib import Path

import pytest
import torch
import triton
import triton.language as tl

import small_kernels
from helpers import xray
from helpers.engine import kernel_text
from helpers.engine.compiler import request, store
from helpers.kernels import single_tile_kernel
from helpers.xray import ask
from small_kernels import ROW, SAME, calling_kernel, compiled, copy_kernel, exp_kernel, never

ROOT = Path(__file__).resolve().parents[2]


def test_the_same_question_is_compiled_once(folder):
    assert compiled(copy_kernel) is compiled(copy_kernel)


def test_a_report_on_disk_needs_no_compiler(folder):
    first = compiled(copy_kernel)
    ask.reports.clear()
    with xray.compiled_by(never):
        assert compiled(copy_kernel) == first


REPORTING = """
import torch
from helpers import xray
from helpers.kernels import single_tile_kernel
row = torch.empty(32)
print(xray.report(single_tile_kernel, row, row, 64, 64, 1, 64, BLOCK=64, target="sm_90").registers)
"""
WITHOUT_A_COMPILER = REPORTING.replace("print(", "with xray.compiled_by(None): print(")


@pytest.mark.thinned(0)
def test_another_process_finds_the_report_on_disk(folder):
    row = torch.empty(32)
    first = xray.report(single_tile_kernel, row, row, 64, 64, 1, 64, BLOCK=64, target="sm_90")
    second = subprocess.run([sys.executable, "-c", WITHOUT_A_COMPILER], cwd=ROOT, capture_output=True, text=True)
    assert (second.stdout.strip(), second.stderr) == (str(first.registers), "")


def test_a_report_is_one_file_in_the_folder_xray_of_tritons_cache(folder):
    compiled(copy_kernel)
    assert [path.suffix for path in folder.iterdir()] == [".json"]


@pytest.mark.thinned(2)
@pytest.mark.parametrize(
    "spoil",
    [
        pytest.param(lambda text: "", id="empty"),
        pytest.param(lambda text: text[: len(text) // 2], id="cut off"),
        pytest.param(lambda text: "[]", id="no mapping"),
        pytest.param(lambda text: '{"registers": 3}', id="fields missing"),
        pytest.param(lambda text: text.replace('"registers": ', '"registers": "many", "x": '), id="another field"),
        pytest.param(lambda text: text.replace('"loads": {', '"loads": {"wide": 2, '), id="a width that is none"),
        pytest.param(lambda text: text.replace('"registers": ', '"registers": 9'), id="registers that no thread has"),
    ],
)
def test_a_damaged_file_is_as_none(folder, spoil):
    first = compiled(copy_kernel)
    (file,) = folder.iterdir()
    whole = file.read_text()
    file.write_text(spoil(whole))
    ask.reports.clear()
    assert xray.cached(copy_kernel, torch.empty(8), torch.empty(8), 5, BLOCK=8) is None
    assert compiled(copy_kernel) == first
    assert file.read_text() == whole


@pytest.mark.thinned(0)
@pytest.mark.parametrize("setting", ["TRITON_CACHE_DIR", "HOME"])
def test_where_no_cache_can_be_written_a_kernel_is_compiled_all_the_same(tmp_path, setting):
    (tmp_path / "file").touch()
    environment = {name: value for name, value in os.environ.items() if name != "TRITON_CACHE_DIR"}
    environment[setting] = str(tmp_path / "file" / "folder")
    done = subprocess.run([sys.executable, "-c", REPORTING], cwd=ROOT, env=environment, capture_output=True, text=True)
    assert (done.stdout.strip().isdecimal(), done.stderr) == (True, "")


def test_what_is_kept_in_memory_is_bounded(folder, monkeypatch):
    monkeypatch.setattr(store, "_KEPT_IN_MEMORY", 2)
    for num_warps in (1, 2, 4):
        compiled(copy_kernel, num_warps=num_warps)
    assert len(ask.reports) == 2


@pytest.fixture
def finds(folder):
    """A report is in the cache; returns whether the same question, changed so, finds one."""
    xray.report(**SAME)
    return lambda **change: xray.cached(**{**SAME, **change}) is not None


def test_a_report_is_found_again(finds):
    assert finds()


@pytest.mark.thinned(2)
@pytest.mark.parametrize(
    "change",
    [
        pytest.param({"kernel": exp_kernel}, id="another kernel"),
        pytest.param({"y_ptr": ROW.double()}, id="another dtype"),
        pytest.param({"y_ptr": ROW[1:]}, id="another alignment"),
        pytest.param({"N": 16}, id="a multiple of 16"),
        pytest.param({"BLOCK": 16}, id="another constant"),
        pytest.param({"target": "sm_80"}, id="another target"),
        pytest.param({"num_warps": 8}, id="another number of warps"),
        pytest.param({"num_stages": 1}, id="another number of stages"),
    ],
)
def test_another_question_is_not_answered_from_the_cache(finds, change):
    assert not finds(**change)


def test_a_number_that_compiles_to_the_same_is_the_same_question(finds):
    assert finds(N=7)


def test_another_version_of_triton_is_another_question(finds, monkeypatch):
    monkeypatch.setattr(triton, "__version__", "0.0")
    assert not finds()


def test_another_assembler_is_another_question(finds, monkeypatch, tmp_path):
    (tmp_path / "ptxas").write_text("another")
    monkeypatch.setenv("TRITON_PTXAS_PATH", str(tmp_path / "ptxas"))
    assert not finds()


def test_another_form_of_report_is_another_question(finds, monkeypatch):
    monkeypatch.setattr(request, "_FORMAT", -1)
    assert not finds()


def test_a_constant_that_the_kernel_names_is_part_of_the_question(monkeypatch):
    before = request.source_of(calling_kernel)
    monkeypatch.setattr(small_kernels, "HALF", tl.constexpr(0.25))
    assert request.source_of(calling_kernel) == before.replace("0.5", "0.25")


@pytest.mark.parametrize(
    "parameter", [pytest.param("N: tl.constexpr", id="an annotation"), pytest.param("N=3", id="a default")]
)
def test_a_parameter_changed_is_another_source(parameter):
    text = "import triton\n@triton.jit\ndef k(y_ptr, N):\n    pass\n"
    first, second = (kernel_text.load(text.replace("N)", f"{end})"), "k") for end in ("N", parameter))
    assert request.source_of(first) != request.source_of(second)


# How much is kept


@pytest.fixture
def entries(tmp_path):
    """Makes files of these sizes, each written a second after the one before; returns the names of those left."""

    def made(*sizes):
        for number, size in enumerate(sizes):
            path = tmp_path / f"{number}.json"
            path.write_bytes(b"x" * size)
            os.utime(path, (1000 + number, 1000 + number))
        return lambda: sorted(path.stem for path in tmp_path.iterdir())

    return made


def test_what_is_too_old_is_removed(entries, tmp_path):
    left = entries(1, 1, 1)
    store.remove_oldest(tmp_path, now=1001 + store.OLDEST_S)
    assert left() == ["1", "2"]


def test_the_oldest_are_removed_where_there_are_too_many(entries, tmp_path, monkeypatch):
    monkeypatch.setattr(store, "MOST_ENTRIES", 2)
    left = entries(1, 1, 1)
    store.remove_oldest(tmp_path, now=1003)
    assert left() == ["1", "2"]


def test_the_oldest_are_removed_where_they_are_too_large_together(entries, tmp_path, monkeypatch):
    monkeypatch.setattr(store, "LARGEST_CACHE", 25)
    left = entries(10, 10, 10)
    store.remove_oldest(tmp_path, now=1003)
    assert left() == ["1", "2"]


def test_too_much_is_removed_while_answers_are_written(folder, monkeypatch):
    monkeypatch.setattr(store, "MOST_ENTRIES", 3)
    monkeypatch.setattr(store, "_WRITTEN_BETWEEN", 1)
    for number in range(9):
        store.keep_answers(f"{number:064}", {f"{number}": {"reason": "", "meaning": ""}})
    assert len(list(folder.iterdir())) == 3


def test_a_large_entry_is_not_written(folder, monkeypatch):
    monkeypatch.setattr(store, "LARGEST_ENTRY", 10)
    store.keep_answers("0" * 64, {"a": {"reason": "x" * 10}})
    assert not folder.exists() or not list(folder.iterdir())


def test_of_an_answer_two_short_texts_are_kept(folder):
    store.keep_answers("0" * 64, {"b": {"reason": "x" * 99_999, "meaning": "", "figures": "y" * 99_999}})
    assert store.known_answers("0" * 64, ["b"]) == {"b": {"reason": "x" * 1000, "meaning": ""}}
