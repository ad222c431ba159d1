"""Kernels outside their own process: their source, the children that run or compile it, and what a compiler reports."""

import ast
import json
import linecache
import os
import signal
import subprocess
import sys
import threading
from concurrent.futures import CancelledError
from dataclasses import asdict
from pathlib import Path
from types import SimpleNamespace

import pytest
import torch
import triton
import triton.language as tl
from triton.language import exp as tl_exp
from triton.language import max as tl_max

from helpers import DEVICE, xray
from helpers.engine import child, kernel_text
from helpers.engine.runtime import ON_GPU
from helpers.kernels import persistent_kernel, several_rows_kernel, single_tile_kernel
from helpers.xray import __main__ as command
from helpers.xray import kept, request
from helpers.xray.ask import in_a_child
from helpers.xray.references import Reference

ROOT = Path(__file__).resolve().parents[2]
FACTOR = 3.0
HALF = tl.constexpr(0.5)
MINUS_INF = tl.constexpr(-float("inf"))
TABLE = [1.0, 2.0]


@triton.jit
def halve(x):
    return x * HALF


@triton.jit
def quarter(x):
    return halve(halve(x))


in_quarters = quarter


@triton.jit
def copy_kernel(y_ptr, x_ptr, N, BLOCK: tl.constexpr):
    cols = tl.arange(0, BLOCK)
    tl.store(y_ptr + cols, tl.load(x_ptr + cols, mask=cols < N), mask=cols < N)


@triton.jit
def documented_kernel(y_ptr, x_ptr, N, BLOCK: tl.constexpr, SHIFT: tl.constexpr = 1.5):
    """Adds a default."""
    cols = tl.arange(0, BLOCK)
    mask = cols < N  # a comment
    tl.store(y_ptr + cols, tl.load(x_ptr + cols, mask=mask) + SHIFT, mask=mask)


@triton.jit
def calling_kernel(y_ptr, x_ptr, N, BLOCK: tl.constexpr):
    cols = tl.arange(0, BLOCK)
    tl.store(y_ptr + cols, quarter(tl.load(x_ptr + cols, mask=cols < N)), mask=cols < N)


@triton.jit
def constexpr_kernel(y_ptr, x_ptr, N, BLOCK: tl.constexpr):
    cols = tl.arange(0, BLOCK)
    tl.store(y_ptr + cols, tl.load(x_ptr + cols, mask=cols < N) * HALF, mask=cols < N)


@triton.jit
def constant_kernel(y_ptr, x_ptr, N, BLOCK: tl.constexpr):
    cols = tl.arange(0, BLOCK)
    tl.store(y_ptr + cols, tl.load(x_ptr + cols, mask=cols < N) * FACTOR, mask=cols < N)


@triton.jit
def infinite_kernel(y_ptr, x_ptr, N, BLOCK: tl.constexpr):
    cols = tl.arange(0, BLOCK)
    tl.store(y_ptr + cols, tl.maximum(tl.load(x_ptr + cols, mask=cols < N), MINUS_INF), mask=cols < N)


@triton.jit
def alias_kernel(y_ptr, x_ptr, N, BLOCK: tl.constexpr):
    cols = tl.arange(0, BLOCK)
    tl.store(y_ptr + cols, in_quarters(tl.load(x_ptr + cols, mask=cols < N)), mask=cols < N)


@triton.jit
def list_kernel(y_ptr, x_ptr, N, BLOCK: tl.constexpr):
    cols = tl.arange(0, BLOCK)
    tl.store(y_ptr + cols, tl.load(x_ptr + cols, mask=cols < N) * TABLE, mask=cols < N)


@triton.jit
def exp_kernel(y_ptr, x_ptr, N, BLOCK: tl.constexpr):
    cols = tl.arange(0, BLOCK)
    tl.store(y_ptr + cols, tl_exp(tl.load(x_ptr + cols, mask=cols < N)), mask=cols < N)


@triton.jit
def max_kernel(y_ptr, x_ptr, N, BLOCK: tl.constexpr):
    cols = tl.arange(0, BLOCK)
    tl.store(y_ptr + cols, tl_max(tl.load(x_ptr + cols, mask=cols < N), axis=0), mask=cols < N)


def output(kernel):
    """What a kernel of (y_ptr, x_ptr, N, BLOCK) makes of a short row."""
    x = torch.linspace(-1, 1, 5, device=DEVICE)
    y = torch.zeros(5, device=DEVICE)
    kernel[(1,)](y, x, 5, BLOCK=8)
    return y


def remade(kernel):
    return kernel_text.load(kernel_text.source(kernel), kernel.fn.__name__)


def compiled(kernel, **options):
    row = torch.empty(8)
    return xray.report(kernel, row, row, 5, BLOCK=8, **options)


# Source and back


@pytest.mark.parametrize(
    "kernel",
    [
        pytest.param(copy_kernel, id="on its own"),
        pytest.param(documented_kernel, id="with a docstring, a comment and a default"),
        pytest.param(calling_kernel, id="that calls kernels that call kernels"),
        pytest.param(constexpr_kernel, id="that names a tl.constexpr"),
        pytest.param(infinite_kernel, id="that names an infinite tl.constexpr"),
        pytest.param(alias_kernel, id="that calls a kernel by another name"),
        pytest.param(max_kernel, id="that names a kernel of Triton"),
    ],
)
def test_a_kernel_made_anew_from_its_source_gives_the_same_result(kernel):
    assert torch.equal(output(remade(kernel)), output(kernel))


def test_a_kernel_made_anew_has_a_source_itself():
    assert kernel_text.source(remade(calling_kernel)) == kernel_text.source(calling_kernel)


def test_the_source_holds_what_the_kernel_names_and_nothing_else():
    module = ast.parse(kernel_text.source(calling_kernel))
    imported = {name.asname or name.name for node in module.body if isinstance(node, ast.Import) for name in node.names}
    assigned = {node.targets[0].id for node in module.body if isinstance(node, ast.Assign)}
    defined = {node.name for node in module.body if isinstance(node, ast.FunctionDef)}
    assert (imported, assigned, defined) == ({"triton", "tl"}, {"HALF"}, {"halve", "quarter", "calling_kernel"})


def test_the_source_imports_a_function_of_triton_from_where_it_comes():
    assert "from triton.language.math import exp as tl_exp" in kernel_text.source(exp_kernel)


def test_the_source_imports_a_kernel_of_triton_from_where_it_comes():
    assert "from triton.language.standard import max as tl_max" in kernel_text.source(max_kernel)


@pytest.mark.parametrize("value", [1.5, -0.0, float("inf"), -float("inf"), float("nan"), 3, True, "a", None], ids=repr)
def test_the_text_of_a_constant_gives_the_constant_again(value):
    again = eval(kernel_text._literal(value))
    assert type(again) is type(value) and repr(again) == repr(value)


def test_a_definition_has_no_decorators():
    assert kernel_text.definition(copy_kernel).startswith("def copy_kernel(")


def test_a_kernel_whose_source_is_lost_is_refused_with_what_to_do():
    exec("def lost(x_ptr): pass", scope := {})
    with pytest.raises(ValueError, match="the source of lost cannot be found; define it in a cell or a file"):
        kernel_text.source(SimpleNamespace(fn=scope["lost"]))


@pytest.mark.parametrize("other", ["import triton", "def another(x_ptr): pass", "    or half a line"])
def test_another_text_in_the_place_of_a_kernel_is_not_taken_for_its_source(monkeypatch, other):
    monkeypatch.setitem(linecache.cache, "<replaced>", (len(other), None, [other], "<replaced>"))
    exec(compile("def replaced(x_ptr): pass", "<replaced>", "exec"), scope := {"__name__": __name__})
    with pytest.raises(ValueError, match="the source of replaced cannot be found"):
        kernel_text.source(SimpleNamespace(fn=scope["replaced"]))


def test_a_global_that_cannot_be_written_down_is_refused_by_its_name():
    with pytest.raises(ValueError, match="the kernel uses the global TABLE, a list; pass it as an argument instead"):
        kernel_text.source(list_kernel)


# Child processes


def test_a_child_is_another_process_and_stays_for_the_next_call():
    first, second = (child.call(os.getpid, interpret=False) for _ in range(2))
    assert first == second != os.getpid()


def test_a_child_that_compiles_is_told_so_and_the_parent_keeps_its_own_setting():
    before = dict(os.environ)
    assert child.call(os.getenv, "TRITON_INTERPRET", interpret=False) == "0"
    assert dict(os.environ) == before


def test_what_a_function_raises_in_a_child_is_raised_here():
    with pytest.raises(ValueError, match="invalid literal for int.* 'many'"):
        child.call(int, "many", interpret=False)


def test_a_child_that_dies_is_an_error_and_the_next_call_gets_a_new_one():
    with pytest.raises(RuntimeError, match="the child process that ran this kernel died"):
        child.call(os._exit, 3, interpret=False)
    assert child.call(os.getpid, interpret=False) != os.getpid()


def test_starting_a_child_leaves_the_environment_that_this_process_reads_alone(monkeypatch):
    seen, before = [], dict(os.environ)
    pool = SimpleNamespace(submit=lambda *_: seen.append(dict(os.environ)))
    monkeypatch.setattr(child, "_pool", lambda interpret: pool)
    child.prepare(os.getpid, interpret=False)
    assert seen == [before]


PARENT = """
import json, os, sys
from helpers.engine import child
names = "TRITON_INTERPRET", "CUDA_VISIBLE_DEVICES"
pid, *settings = [child.call(os.getpid, interpret=True), *(child.call(os.getenv, n, interpret=True) for n in names)]
print(json.dumps([pid, settings]), flush=True)
sys.stdin.read()
"""


@pytest.fixture(scope="module")
def orphan():
    """A parent that is killed once it has a child that interprets: the child's settings, and whether it ended too."""
    command = [sys.executable, "-c", PARENT]
    parent = subprocess.Popen(command, cwd=ROOT, text=True, stdin=subprocess.PIPE, stdout=subprocess.PIPE)
    pid, settings = json.loads(parent.stdout.readline())
    parent.kill()
    try:
        parent.communicate(timeout=30)  # the child has the pipe too, so this ends when both have
        ended = True
    except subprocess.TimeoutExpired:
        os.kill(pid, signal.SIGKILL)
        parent.communicate()
        ended = False
    return SimpleNamespace(settings=settings, ended=ended)


def test_a_child_that_interprets_is_told_so_and_sees_no_gpu(orphan):
    assert orphan.settings == ["1", ""]


def test_a_child_ends_with_its_parent_even_when_that_is_killed(orphan):
    assert orphan.ended


# What the compiler reports


def test_a_report_says_what_was_asked_for():
    seen = compiled(copy_kernel, target="sm_80", num_warps=2)
    assert (seen.target, seen.num_warps, seen.threads) == ("sm_80", 2, 64)


def test_a_copy_of_eight_elements_is_a_load_and_a_store_without_a_barrier():
    seen = compiled(copy_kernel)
    assert (seen.loads, seen.stores, seen.barriers) == ({32: 1}, {32: 1}, 0)
    assert (seen.spill_bytes, seen.shared_bytes, seen.missing) == (0, 0, "")
    assert 0 < seen.registers <= 32


@pytest.mark.skipif(ON_GPU, reason="the default is the GPU that is here")
def test_the_default_is_four_warps_on_sm_90():
    assert compiled(copy_kernel) == compiled(copy_kernel, target="sm_90", num_warps=4)


def test_the_default_beside_a_gpu_is_that_gpu(monkeypatch):
    monkeypatch.setattr(request, "ON_GPU", True)
    monkeypatch.setattr(torch.cuda, "get_device_capability", lambda: (12, 0))
    assert compiled(copy_kernel).target == "sm_120"


@pytest.mark.parametrize("kernel", [calling_kernel, constexpr_kernel, documented_kernel, exp_kernel])
def test_a_kernel_compiles_with_all_that_it_names(kernel):
    assert compiled(kernel).registers > 0


def test_a_kernel_compiles_with_a_kernel_of_triton_imported_by_name():
    assert compiled(max_kernel).registers > 0


def test_nothing_runs_when_a_report_is_asked_for():
    x, y = torch.ones(8), torch.zeros(8)
    xray.report(copy_kernel, y, x, 8, BLOCK=8)
    assert torch.equal(y, torch.zeros(8))


# As a launch would compile it


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float16, torch.float64, torch.int32])
def test_a_tensor_gives_its_dtype(dtype):
    row = torch.empty(8, dtype=dtype)
    assert xray.report(copy_kernel, row, row, 8, BLOCK=8).loads == {8 * dtype.itemsize: 1}


def told(kernel, *args, **kwargs):
    asked = request.request_of(kernel, args, kwargs, "sm_90", 4, None)
    return dict(asked.signature), dict(asked.constants), asked.divisible


def test_arguments_are_told_to_the_compiler_as_a_launch_tells_them():
    row = torch.empty(32)
    signature, constants, divisible = told(single_tile_kernel, row, row[1:], 48, 7, 1, 2**40, BLOCK=16)
    assert list(signature.values()) == ["*fp32", "*fp32", "i32", "i32", "constexpr", "i64", "constexpr"]
    assert constants == {"x_col_stride": 1, "BLOCK": 16}
    assert divisible == (0, 2, 5)


def test_an_argument_that_is_not_specialized_is_a_plain_number_whatever_it_is():
    row = torch.empty(32)
    asked = [told(several_rows_kernel, row, row, 16, 16, 1, M, 16, ROWS=2, BLOCK=16) for M in (1, 16, 17)]
    assert asked[0][0]["M"] == "i32"
    assert asked[0] == asked[1] == asked[2]


@triton.jit
def annotated_kernel(y_ptr, flag, count: tl.int64, scale: tl.float32):
    tl.store(y_ptr, count * scale, mask=flag)


def test_an_annotation_decides_the_type():
    signature, _, divisible = told(annotated_kernel, torch.empty(8), True, 16, 2.0)
    assert list(signature.values()) == ["*fp32", "u1", "i64", "fp32"]
    assert divisible == (0, 2)


@triton.jit
def product_kernel(y_ptr, x_ptr, K):
    rows = tl.arange(0, 16)[:, None]
    cols = tl.arange(0, 16)[None, :]
    total = tl.zeros((16, 16), tl.float32)
    for k in range(0, K, 16):
        a = tl.load(x_ptr + rows * K + cols + k)
        total += tl.dot(a, tl.load(x_ptr + (rows + k) * 16 + cols))
    tl.store(y_ptr + rows * 16 + cols, total)


def test_num_stages_is_a_launch_option():
    row = torch.empty(16, dtype=torch.float16)
    one, four = (xray.report(product_kernel, row, row, 1024, target="sm_80", num_stages=n) for n in (1, 4))
    assert four.shared_bytes > one.shared_bytes


# What is refused


@pytest.mark.parametrize("target", ["", "90", "sm90", "sm_9", "sm_90a", "cuda:90", "SM_90", "sm_90\n", "sm_99"])
def test_a_target_that_is_not_one_of_those_is_refused(target):
    with pytest.raises(ValueError, match="target must be one of sm_75, .*, sm_121; it is"):
        compiled(copy_kernel, target=target)


@pytest.mark.parametrize("num_warps", [0, 3, 64, -4, "4"])
def test_a_number_of_warps_that_no_launch_has_is_refused(num_warps):
    with pytest.raises(ValueError, match=f"num_warps must be 1, 2, 4, 8, 16 or 32; it is {num_warps!r}"):
        compiled(copy_kernel, num_warps=num_warps)


@pytest.mark.parametrize("num_stages", [0, -1, "2", 1.5])
def test_a_number_of_stages_that_no_launch_has_is_refused(num_stages):
    with pytest.raises(ValueError, match=f"num_stages must be a number from 1 on; it is {num_stages!r}"):
        compiled(copy_kernel, num_stages=num_stages)


def test_a_plain_global_number_is_refused_by_its_name():
    with pytest.raises(ValueError, match="Cannot access global variable FACTOR"):
        compiled(constant_kernel)


def test_a_name_that_is_nowhere_is_refused():
    misspelt = kernel_text.load(
        "import triton\nimport triton.language as tl\n@triton.jit\n"
        "def misspelt(y_ptr, BLOCK: tl.constexpr):\n    tl.store(y_ptr + tl.arange(0, BLOCK), nowhere)\n",
        "misspelt",
    )
    with pytest.raises(ValueError, match="nowhere is not defined"):
        xray.report(misspelt, torch.empty(8), BLOCK=8)


def test_an_argument_left_out_is_refused_by_its_name():
    with pytest.raises(
        TypeError, match="copy_kernel: missing a required argument: 'N'; its parameters are y_ptr, x_ptr"
    ):
        xray.report(copy_kernel, torch.empty(8), torch.empty(8), BLOCK=8)


def test_an_argument_that_the_kernel_does_not_take_is_refused_by_its_name():
    with pytest.raises(TypeError, match="copy_kernel: got an unexpected keyword argument 'BLOK'"):
        compiled(copy_kernel, BLOK=8)


def test_an_argument_that_no_launch_can_pass_is_refused_by_its_name():
    with pytest.raises(TypeError, match="copy_kernel: N is a list; a launch passes tensors, numbers and None"):
        xray.report(copy_kernel, torch.empty(8), torch.empty(8), [5], BLOCK=8)


def test_a_constant_that_cannot_be_written_down_is_refused_by_its_name():
    with pytest.raises(TypeError, match="copy_kernel: BLOCK is a list; xray takes numbers, strings, None and dtypes"):
        xray.report(copy_kernel, torch.empty(8), torch.empty(8), 5, BLOCK=[8])


def test_what_is_no_kernel_is_refused():
    with pytest.raises(
        TypeError, match="takes the kernel itself, made with @triton.jit, and not the function that launches it"
    ):
        xray.report(output, torch.empty(8))


def test_an_autotuned_kernel_is_refused_with_what_to_pass():
    with pytest.raises(TypeError, match="got a SimpleNamespace. Of an autotuned kernel it takes the .fn"):
        xray.report(SimpleNamespace(fn=copy_kernel), torch.empty(8))


def test_a_kernel_that_does_not_compile_is_refused_in_one_line_without_the_childs_traceback():
    with pytest.raises(ValueError, match="must be a power of 2 .in `cols = tl.arange.0, BLOCK.`.$") as refusal:
        xray.report(copy_kernel, torch.empty(8), torch.empty(8), 5, BLOCK=7, target="sm_90")
    assert str(refusal.value).startswith("copy_kernel does not compile for sm_90: ")
    assert len(str(refusal.value).splitlines()) == 1
    assert refusal.value.__cause__ is None and refusal.value.__suppress_context__


@triton.jit
def assembly_kernel(y_ptr):
    tl.store(y_ptr, tl.inline_asm_elementwise("nonsense $0;", "=r", [], dtype=tl.int32, is_pure=True, pack=1))


def test_a_kernel_that_the_assembler_refuses_is_refused_in_its_words():
    with pytest.raises(ValueError, match="ptxas says: Not a name of any known instruction: 'nonsense'$"):
        xray.report(assembly_kernel, torch.empty(8, dtype=torch.int32))


def test_a_kernel_that_needs_more_shared_memory_than_there_is_is_refused_with_what_to_do():
    row = torch.empty(32), torch.empty(32), 16384, 16384, 1, 1, 16384
    with pytest.raises(
        ValueError, match="a program needs .* bytes of shared memory and can have 101,376. Use a smaller"
    ):
        xray.report(persistent_kernel, *row, BLOCK=16384, STAGES=4, num_warps=32, target="sm_120")


# How a report looks

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


# What is kept


@pytest.fixture
def folder(tmp_path, monkeypatch):
    """An empty cache on disk and in memory; returns the folder where reports go."""
    monkeypatch.setenv("TRITON_CACHE_DIR", str(tmp_path))
    monkeypatch.setattr(kept, "reports", {})
    return tmp_path / "xray"


def never(request):
    raise AssertionError("the compiler was asked")


def test_the_same_question_is_compiled_once(folder):
    assert compiled(copy_kernel) is compiled(copy_kernel)


def test_a_report_on_disk_needs_no_compiler(folder):
    first = compiled(copy_kernel)
    kept.reports.clear()
    with xray.compiled_by(never):
        assert compiled(copy_kernel) == first


def test_another_compiler_answers_what_is_not_kept_and_is_gone_afterwards(folder):
    usual = compiled(copy_kernel)
    figures = {name: value for name, value in asdict(usual).items() if name not in ("target", "num_warps")}
    with xray.compiled_by(lambda request: figures | {"registers": len(request.name)}):
        other = compiled(copy_kernel, num_warps=2)
    assert other.registers == len("copy_kernel")
    assert compiled(copy_kernel, num_warps=8).registers == usual.registers


REPORTING = """
import torch
from helpers import xray
from helpers.kernels import single_tile_kernel
row = torch.empty(32)
print(xray.report(single_tile_kernel, row, row, 64, 64, 1, 64, BLOCK=64, target="sm_90").registers)
"""
WITHOUT_A_COMPILER = REPORTING.replace("print(", "with xray.compiled_by(None): print(")


def test_another_process_finds_the_report_on_disk(folder):
    row = torch.empty(32)
    first = xray.report(single_tile_kernel, row, row, 64, 64, 1, 64, BLOCK=64, target="sm_90")
    second = subprocess.run([sys.executable, "-c", WITHOUT_A_COMPILER], cwd=ROOT, capture_output=True, text=True)
    assert (second.stdout.strip(), second.stderr) == (str(first.registers), "")


def test_a_report_is_one_file_in_the_folder_xray_of_tritons_cache(folder):
    compiled(copy_kernel)
    assert [path.suffix for path in folder.iterdir()] == [".json"]


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
    kept.reports.clear()
    assert xray.cached(copy_kernel, torch.empty(8), torch.empty(8), 5, BLOCK=8) is None
    assert compiled(copy_kernel) == first
    assert file.read_text() == whole


@pytest.mark.parametrize("setting", ["TRITON_CACHE_DIR", "HOME"])
def test_where_no_cache_can_be_written_a_kernel_is_compiled_all_the_same(tmp_path, setting):
    (tmp_path / "file").touch()
    environment = {name: value for name, value in os.environ.items() if name != "TRITON_CACHE_DIR"}
    environment[setting] = str(tmp_path / "file" / "folder")
    done = subprocess.run([sys.executable, "-c", REPORTING], cwd=ROOT, env=environment, capture_output=True, text=True)
    assert (done.stdout.strip().isdecimal(), done.stderr) == (True, "")


def test_what_is_kept_in_memory_is_bounded(folder, monkeypatch):
    monkeypatch.setattr(kept, "_KEPT_IN_MEMORY", 2)
    for num_warps in (1, 2, 4):
        compiled(copy_kernel, num_warps=num_warps)
    assert len(kept.reports) == 2


ROW = torch.empty(16)
SAME = {"kernel": copy_kernel, "y_ptr": ROW, "x_ptr": ROW, "N": 5, "BLOCK": 8, "target": "sm_90"}


@pytest.fixture
def finds(folder):
    """A report is in the cache; returns whether the same question, changed so, finds one."""
    xray.report(**SAME)
    return lambda **change: xray.cached(**{**SAME, **change}) is not None


def test_a_report_is_found_again(finds):
    assert finds()


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
    monkeypatch.setattr(kept, "_FORMAT", -1)
    assert not finds()


def test_a_constant_that_the_kernel_names_is_part_of_the_question(monkeypatch):
    before = kept.source_of(calling_kernel)
    monkeypatch.setitem(globals(), "HALF", tl.constexpr(0.25))
    assert kept.source_of(calling_kernel) == before.replace("0.5", "0.25")


@pytest.mark.parametrize(
    "parameter", [pytest.param("N: tl.constexpr", id="an annotation"), pytest.param("N=3", id="a default")]
)
def test_a_parameter_changed_is_another_source(parameter):
    text = "import triton\n@triton.jit\ndef k(y_ptr, N):\n    pass\n"
    first, second = (kernel_text.load(text.replace("N)", f"{end})"), "k") for end in ("N", parameter))
    assert kept.source_of(first) != kept.source_of(second)


# Without waiting


@pytest.fixture
def held(folder):
    """Holds every answer of the compiler back until `release` is set; `asked` is set when it is asked."""
    events = SimpleNamespace(release=threading.Event(), asked=threading.Event())

    def wait(request):
        events.asked.set()
        assert events.release.wait(60)
        return in_a_child(request)

    with xray.compiled_by(wait):
        yield events
    events.release.set()


def test_submit_does_not_wait_for_the_answer(held):
    future = xray.submit(**SAME)
    assert not future.done()
    held.release.set()
    assert future.result(60) == xray.report(**SAME)


def test_a_question_whose_turn_has_not_come_can_be_withdrawn(held):
    first = xray.submit(**SAME)
    assert held.asked.wait(60)
    second = xray.submit(**{**SAME, "num_warps": 8})
    assert second.cancel()
    held.release.set()
    assert first.result(60).num_warps == 4
    with pytest.raises(CancelledError):
        second.result(60)


def test_submit_gives_the_exception_that_report_raises(folder):
    with pytest.raises(ValueError, match="must be a power of 2"):
        xray.submit(**{**SAME, "BLOCK": 7}).result(60)


def test_submit_refuses_wrong_arguments_at_once():
    with pytest.raises(ValueError, match="num_warps must be"):
        xray.submit(**SAME, num_warps=3)


@pytest.mark.parametrize("failure", [RuntimeError("the child died"), CancelledError()], ids=["died", "cancelled"])
def test_a_question_is_asked_again_when_another_call_ended_the_child(folder, failure):
    failures = [failure]

    def fail_first(request):
        if failures:
            raise failures.pop()
        return in_a_child(request)

    with xray.compiled_by(fail_first):
        assert xray.submit(**SAME).result(60).num_warps == 4


def test_calls_of_the_main_thread_and_questions_do_not_disturb_each_other(folder):
    futures = [xray.submit(**SAME, num_warps=num_warps) for num_warps in (1, 2, 8)]
    pids = {child.call(os.getpid, interpret=False) for _ in range(20)}
    assert len(pids) == 1
    assert [future.result(60).num_warps for future in futures] == [1, 2, 8]


def test_cached_compiles_nothing(folder):
    with xray.compiled_by(never):
        assert xray.cached(**SAME) is None


def test_cached_finds_what_was_reported(folder):
    assert xray.report(**SAME) is xray.cached(**SAME)


# The table of `python -m helpers.xray`


def test_the_survey_is_a_line_for_every_kernel_dtype_and_target(monkeypatch):
    monkeypatch.setattr(command, "DTYPES", {"fp32": torch.float32})
    copy = Reference("copy", copy_kernel, (ROW, ROW, 8), {"BLOCK": 8, "num_warps": 4})
    monkeypatch.setattr(command, "references", lambda dtype: [copy])
    table = command.survey(("sm_80", "sm_90"))
    assert [row[:3] for row in table.rows] == [["copy 8, 4 warps", "fp32", t] for t in ("sm_80", "sm_90")]
    assert [note.split(":")[0] for note in table.notes] == [
        "Compiled, with empty caches",
        "Asked again, read from disk",
    ]
