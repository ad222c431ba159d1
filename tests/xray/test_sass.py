"""What is read from compiled code: registers, widths of accesses, barriers, instructions per element."""

import ctypes
from types import SimpleNamespace

import pytest
import torch
import triton

import needs
from helpers import xray
from helpers.engine import child
from helpers.engine.compiler import request
from helpers.engine.runtime import ON_GPU
from helpers.kernels import persistent_kernel, single_tile_kernel, two_pass_kernel
from helpers.xray import compile, sass
from helpers.xray.references import references


def arguments(N, dtype=torch.float32, row_stride=None, col_stride=1, offset=0):
    """What single_tile_kernel and the streaming kernels take for rows of N, laid out so."""
    x = torch.empty(32, dtype=dtype)[offset:]
    return torch.empty(32, dtype=dtype), x, N, row_stride or N, col_stride, N


def single_tile(BLOCK, num_warps, target="sm_90", **layout):
    """The report of single_tile_kernel for rows that fill its tile."""
    row = arguments(BLOCK, **layout)
    return xray.report(single_tile_kernel, *row, BLOCK=BLOCK, num_warps=num_warps, target=target)


# Registers, spills, shared memory and barriers


@pytest.mark.parametrize("target", xray.TARGETS)
def test_every_target_compiles(target):
    assert single_tile(1024, num_warps=4, target=target).registers > 0


@pytest.mark.parametrize("target", ["sm_75", "sm_80", "sm_86", "sm_87", "sm_89", "sm_90", "sm_100", "sm_120"])
def test_all_figures_of_a_target_that_the_disassembler_knows_are_known(target):
    assert single_tile(1024, num_warps=4, target=target).missing == ""


def test_a_tile_of_8192_with_4_warps_takes_about_a_hundred_registers():
    assert 80 <= single_tile(8192, num_warps=4).registers <= 120


def test_a_tile_of_65536_spills_with_32_warps():
    seen = single_tile(65536, num_warps=32)
    assert seen.registers == (32 if needs.TRITON == (3, 8) else 64)  # 3.8 leaves half of them unused
    assert seen.register_limit == 64 and seen.spill_bytes > 0


def test_a_tile_of_8192_does_not_spill_with_16_warps():
    assert single_tile(8192, num_warps=16).spill_bytes == 0


def test_a_tile_of_32768_does_not_spill_with_16_warps():
    assert single_tile(32768, num_warps=16).spill_bytes == 0


def test_more_warps_leave_fewer_registers_to_each_thread():
    assert single_tile(8192, num_warps=16).registers < single_tile(8192, num_warps=4).registers


def test_one_warp_needs_no_shared_memory_and_several_share_some():
    assert single_tile(1024, num_warps=1).shared_bytes == 0
    assert single_tile(1024, num_warps=4).shared_bytes > 0


def test_one_warp_needs_no_barrier_and_several_wait_for_each_other():
    assert single_tile(1024, num_warps=1).barriers == 0
    assert single_tile(1024, num_warps=4).barriers > 0


def test_the_occupancy_follows_from_the_registers():
    seen = single_tile(8192, num_warps=4)
    held = seen.occupancy
    assert held.limited_by == "registers"
    assert held.programs * seen.threads * seen.registers <= 65536 < (held.programs + 1) * seen.threads * 120


# How wide loads and stores are


def test_aligned_rows_are_loaded_and_stored_128_bits_at_a_time():
    seen = single_tile(4096, num_warps=8)
    assert (seen.loads, seen.stores) == ({128: 4}, {128: 4})


def test_half_as_many_loads_of_128_bits_hold_a_row_of_half_the_bytes():
    seen = single_tile(4096, num_warps=8, dtype=torch.bfloat16)
    assert (seen.loads, seen.stores) == ({128: 2}, {128: 2})


@pytest.mark.parametrize(
    "layout",
    [
        pytest.param({"col_stride": 2}, id="neighbours apart"),
        pytest.param({"row_stride": 4097}, id="rows that start anywhere"),
        pytest.param({"offset": 1}, id="a tensor that starts anywhere"),
    ],
)
@pytest.mark.parametrize(("dtype", "bits"), [(torch.float32, 32), (torch.bfloat16, 16), (torch.float16, 16)])
def test_what_is_not_aligned_is_loaded_one_element_at_a_time(layout, dtype, bits):
    assert single_tile(4096, num_warps=8, dtype=dtype, **layout).loads == {bits: 16}


def test_asynchronous_copies_to_shared_memory_are_loads():
    row = arguments(8192)
    seen = xray.report(persistent_kernel, *row[:5], 1, 8192, BLOCK=8192, STAGES=2, num_warps=16, target="sm_80")
    assert set(seen.loads) == {128}
    assert seen.shared_bytes >= 8192 * 4


def test_spilled_registers_are_neither_loads_nor_stores():
    seen = single_tile(65536, num_warps=32)
    assert (seen.loads, seen.stores) == ({128: 16}, {128: 16})


# Instructions per element


def straight(*opcodes):
    """The disassembly of a kernel k, an instruction or a label an entry."""
    lines = [entry if entry.endswith(":") else f"        /*{n:04x}0*/   {entry} ;" for n, entry in enumerate(opcodes)]
    return "\n".join(["\t.section", ".text.k:", *lines, "", "//---- another section"])


IR = """
tt.func public @k(%x: !tt.ptr<f32>) {
  %a = tt.load %p, %m, %o : tensor<128x!tt.ptr<f32>> loc(#1)
  tt.store %q, %a, %m : tensor<128x!tt.ptr<f32>> loc(#2)
}
"""
IR_OF_A_LOOP = """
tt.func public @k(%x: !tt.ptr<f32>) {
  scf.for %i = %0 to %n step %s : i32 {
    %a = tt.load %p, %m, %o : tensor<256x!tt.ptr<bf16>> loc(#1)
  } loc(#3)
  tt.store %q, %a : !tt.ptr<f32> loc(#2)
}
"""


def per_element(code, ir, num_warps=4):
    return sass.per_element(*sass.instructions(code, "k"), *sass.tiles(ir), num_warps)


def test_without_a_loop_every_instruction_up_to_the_last_exit_counts():
    code = straight("MOV R1, R2", "@P0 LDG.E R1, [R2]", "@P1 EXIT", "STG.E [R3], R1", "EXIT")
    assert per_element(code, IR) == 5


def test_padding_and_the_branch_to_itself_behind_the_exit_do_not_count():
    assert per_element(straight("LDG.E R1", "STG.E R1", "EXIT", ".L_x_0:", "BRA `(.L_x_0)", "NOP", "NOP"), IR) == 3


def test_blocks_for_rare_cases_behind_the_exit_do_not_count_nor_make_a_loop():
    code = straight("BRA.DIV UR4, `(.L_x_1)", ".L_x_0:", "LDG.E R1", "EXIT", ".L_x_1:", "WARPSYNC", "BRA `(.L_x_0)")
    assert per_element(code, IR) == 3


def test_a_thread_with_fewer_elements_executes_more_instructions_for_each():
    code = straight("LDG.E R1", "STG.E R1", "EXIT")
    assert per_element(code, IR, num_warps=8) == 2 * per_element(code, IR, num_warps=4)


def test_a_tile_of_two_dimensions_has_rows_times_columns():
    assert per_element(straight("LDG.E R1", "STG.E R1", "EXIT"), IR.replace("128x", "4x64x")) == 1.5


def test_with_a_loop_its_body_counts_and_what_lies_outside_does_not():
    code = straight("MOV R1", ".L_x_0:", "LDG.E R2", "FADD R3", "@P0 BRA `(.L_x_0)", "STG.E R3", "EXIT")
    assert per_element(code, IR_OF_A_LOOP) == 3 * 128 / 256


def test_a_loop_unrolled_twice_counts_half():
    once = ["LDG.E R2", "FADD R3"]
    code = straight(".L_x_0:", *once, *once, "@P0 BRA `(.L_x_0)", "STG.E R3", "EXIT")
    assert per_element(code, IR_OF_A_LOOP) == 5 / 2 * 128 / 256


def test_a_loop_unrolled_altogether_counts_as_often_as_it_ran():
    once = ["LDG.E R2", "FADD R3"]
    code = straight(*once, *once, *once, *once, "STG.E R3", "EXIT")
    assert per_element(code, IR_OF_A_LOOP) == pytest.approx(10 / 4 * 128 / 256)


def test_of_nested_loops_the_innermost_that_moves_a_tile_counts():
    ir = IR_OF_A_LOOP.replace("{\n  scf", "{\n  scf.while (%j = %0) : (i32) -> i32 {\n  } do {\n  scf").replace(
        "} loc(#3)", "} loc(#3)\n  }"
    )
    inner = [".L_x_1:", "LDG.E R2", "@P0 BRA `(.L_x_1)"]
    assert per_element(straight(".L_x_0:", "MOV R1", *inner, "@P1 BRA `(.L_x_0)", "EXIT"), ir) == 2 * 128 / 256


def test_loops_that_do_not_match_the_kernels_are_not_known():
    twice = [".L_x_0:", "LDG.E R2", "@P0 BRA `(.L_x_0)", ".L_x_1:", "LDG.E R2", "@P0 BRA `(.L_x_1)", "EXIT"]
    with pytest.raises(sass.Unknown, match="the compiler changed the kernel's loops"):
        per_element(straight(*twice), IR_OF_A_LOOP)


def test_a_kernel_that_moves_no_tile_has_no_elements():
    with pytest.raises(sass.Unknown, match="moves no tile"):
        per_element(straight("LDG.E R1", "EXIT"), IR.replace("tensor<128x!tt.ptr<f32>>", "!tt.ptr<f32>"))


def test_a_disassembly_of_another_form_is_not_known():
    with pytest.raises(sass.Unknown, match="nvdisasm prints the instructions in a form that is not known here"):
        sass.instructions("nothing of the kind", "k")


@pytest.mark.parametrize(
    ("opcode", "bits"),
    [
        ("LDG.E", 32),
        ("LDG.E.64", 64),
        ("LDG.E.128.SYS", 128),
        ("STG.E.ENL2.256", 256),
        ("LDG.E.U8", 8),
        ("LDG.E.S16", 16),
        ("LDG.E.U16.CONSTANT", 16),
        ("LDGSTS.E.BYPASS.LTC128B.128", 128),
        ("LDGSTS.E.LTC128B", 32),
    ],
)
def test_the_opcode_says_how_wide_an_access_is(opcode, bits):
    assert sass._width(opcode) == bits


def test_a_kernel_of_three_loops_takes_more_instructions_than_one_of_none():
    row = arguments(8192)
    streamed = xray.report(two_pass_kernel, *row, BLOCK=8192, num_warps=16, target="sm_90")
    assert 10 < single_tile(8192, num_warps=16).instructions_per_element < streamed.instructions_per_element < 40


def test_a_loop_that_the_compiler_unrolls_keeps_its_figure():
    row = arguments(8192)
    one, four = (xray.report(two_pass_kernel, *row, BLOCK=128 * n, target="sm_90") for n in (1, 4))
    assert sum(one.loads.values()) > 3  # the third loop is unrolled
    assert 3 * four.instructions_per_element > one.instructions_per_element > 2 * four.instructions_per_element


# Figures that cannot be had


def without(tool):
    """Runs in the child: the figures of a tile without one of the tools that read compiled code."""
    output = compile._output

    def refuse(name, *arguments):
        if name == tool:
            raise sass.Unknown(f"{tool} is not here.")
        return output(name, *arguments)

    asked = request.request_of(single_tile_kernel, arguments(1024), {"BLOCK": 1024}, "sm_90", 4, None)
    compile._output = refuse
    try:
        return compile.compile_kernel(asked)
    finally:
        compile._output = output


def lacking(tool):
    return xray.KernelReport("sm_90", 4, **child.call(without, tool, interpret=False))


def test_without_the_disassembler_what_it_reads_is_none_and_the_rest_is_known():
    seen = lacking("nvdisasm")
    assert (seen.loads, seen.stores, seen.barriers, seen.instructions_per_element) == (None,) * 4
    assert seen.registers > 0 and seen.occupancy.programs > 0
    assert seen.missing == "nvdisasm is not here."


def test_without_cuobjdump_registers_and_occupancy_are_none_and_the_rest_is_known():
    seen = lacking("cuobjdump")
    assert (seen.registers, seen.spill_bytes, seen.occupancy) == (None, None, None)
    assert seen.loads == {128: 2}


def test_a_report_shows_what_is_not_known_and_why():
    text = repr(lacking("nvdisasm"))
    assert "instructions per element  not known here" in text
    assert text.endswith("Not known here: nvdisasm is not here.")


def test_a_tool_that_is_missing_is_named(monkeypatch):
    monkeypatch.setattr(triton.knobs, "nvidia", SimpleNamespace(nvdisasm=SimpleNamespace(path="/nowhere/nvdisasm")))
    with pytest.raises(sass.Unknown, match="nvdisasm, which Triton should bring along, is missing"):
        compile._output("nvdisasm", "-c")


def test_a_tool_that_refuses_is_quoted(tmp_path):
    (tmp_path / "kernel.cubin").write_bytes(b"no such thing")
    with pytest.raises(sass.Unknown, match="nvdisasm cannot read the compiled code: "):
        compile._output("nvdisasm", "-c", str(tmp_path / "kernel.cubin"))


# All reference kernels


@pytest.mark.parametrize("reference", references(), ids=lambda r: f"{r.name} {r.options['BLOCK']}")
def test_every_figure_of_a_reference_kernel_is_known(reference):
    seen = xray.report(reference.kernel, *reference.args, target="sm_90", **reference.options)
    assert (seen.missing, None in vars(seen).values()) == ("", False)


# Beside a GPU: what a launch was compiled to


def launched(reference):
    return reference.kernel[(1,)](*reference.args, **reference.options)


def _launches():
    for name, dtype in {"fp32": torch.float32, "bf16": torch.bfloat16, "fp16": torch.float16}.items():
        for reference in references(dtype) if ON_GPU else [None]:
            label = f"{reference.name} {reference.options['BLOCK']}" if reference else "kernel"
            yield pytest.param(reference, id=f"{label} {name}")


LAUNCHES = list(_launches())


@needs.gpu
@pytest.mark.parametrize("reference", LAUNCHES)
def test_a_report_says_what_a_launch_was_compiled_to(reference):
    real = launched(reference)
    seen = xray.report(reference.kernel, *reference.args, **reference.options)
    assert (seen.registers, seen.spill_bytes, seen.shared_bytes) == (
        real.n_regs,
        4 * real.n_spills,
        real.metadata.shared,
    )


@needs.gpu
@pytest.mark.parametrize("reference", LAUNCHES)
def test_the_driver_gives_a_kernel_the_same_occupancy(reference):
    real = launched(reference)
    seen = xray.report(reference.kernel, *reference.args, **reference.options)
    programs = ctypes.c_int()
    driver = ctypes.CDLL("libcuda.so.1")
    failed = driver.cuOccupancyMaxActiveBlocksPerMultiprocessor(
        ctypes.byref(programs),
        ctypes.c_void_p(real.function),
        ctypes.c_int(seen.threads),
        ctypes.c_size_t(seen.shared_bytes),
    )
    assert (failed, seen.occupancy.programs) == (0, programs.value)
