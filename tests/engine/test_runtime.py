"""Where kernels run: on the GPU or in the interpreter, and what is said when the choice comes too late."""

import os
import subprocess
import sys
from pathlib import Path

import pytest
import torch
import triton

from helpers import DEVICE, ON_GPU, banner
from helpers.engine import runtime

ROOT = Path(__file__).resolve().parents[2]

REFUSALS = """
import os
os.environ["TRITON_INTERPRET"] = "yes"
try:
    import helpers
except ImportError as error:
    print(error)
del os.environ["TRITON_INTERPRET"]
import triton
try:
    import helpers
except ImportError as error:
    print(error)
"""
COMPILING_ONLY = """
import torch, helpers
from helpers.kernels import online_softmax
print(helpers.DEVICE, helpers.ON_GPU)
print(helpers.banner())
try:
    online_softmax(torch.zeros(2, 3))
except ValueError as error:
    print(error)
from helpers import check
try:
    check.eager(lambda x: torch.softmax(x, 1))
except ValueError as error:
    print(error)
"""


FUSION = "TRITON_DEFAULT_FP_FUSION"

# What a process says of itself: where its kernels run, and what is in the environment of its children.
SAYS = """
print(helpers.DEVICE, runtime.INTERPRETED, *(os.environ.get(n) for n in ("TRITON_INTERPRET", runtime.CHOSEN_HERE)))
"""
IMPORTED = "import os, helpers\nfrom helpers.engine import runtime\n" + SAYS
TRITON_FIRST = "import triton\n" + IMPORTED
GPU = """
import torch
torch.cuda.is_available = lambda: True
torch.cuda.get_device_name = lambda *index: "Tesla P100"
torch.cuda.get_device_capability = lambda *index: ({}, {})
"""
OLD_GPU = (
    f"""
import warnings
with warnings.catch_warnings(record=True) as seen:
    warnings.simplefilter("always")
    {GPU.format(6, 0).strip().replace(chr(10), chr(10) + "    ")}
    import os, helpers
    from helpers.engine import runtime
print(*(str(warning.message) for warning in seen if "capability" in str(warning.message)), sep="|")
print(helpers.banner())
"""
    + SAYS
)


def start(program, **environment):
    """A fresh Python without a GPU and without our own choice, running `program`."""
    chosen = "TRITON_INTERPRET", runtime.CHOSEN_HERE, FUSION
    inherited = {key: value for key, value in os.environ.items() if key not in chosen}
    environment = {**inherited, "CUDA_VISIBLE_DEVICES": "", "PYTHONIOENCODING": "utf-8", **environment}
    command = [sys.executable, "-c", program]
    return subprocess.Popen(command, cwd=ROOT, env=environment, text=True, encoding="utf-8", stdout=subprocess.PIPE)


def says(program, **environment):
    """The lines that it prints."""
    return start(program, **environment).communicate(timeout=120)[0].splitlines()


@pytest.fixture(scope="module")
def said():
    """The lines that the two programs print, run at the same time."""
    refusals, compiling_only = start(REFUSALS), start(COMPILING_ONLY, TRITON_INTERPRET="0")
    bad_value, triton_first = refusals.communicate(timeout=120)[0].splitlines()
    device, line, error, of_check = compiling_only.communicate(timeout=120)[0].splitlines()
    return {
        "a bad value": bad_value,
        "triton first": triton_first,
        "device without a GPU": device,
        "banner without a GPU": line,
        "a kernel without a GPU": error,
        "a check without a GPU": of_check,
    }


@pytest.mark.parametrize(
    ("gpu", "setting", "imported", "chosen"),
    [
        pytest.param(True, None, None, ("cuda", "0"), id="compiled on a GPU"),
        pytest.param(False, None, None, ("cpu", "1"), id="interpreted without a GPU"),
        pytest.param(True, "1", None, ("cpu", "1"), id="interpreted beside a GPU when asked to"),
        pytest.param(True, "0", None, ("cuda", "0"), id="compiled on a GPU when asked to"),
        pytest.param(False, "0", None, ("cpu", "0"), id="compiled but not launched without a GPU when asked to"),
        pytest.param(True, "0", "0", ("cuda", "0"), id="triton may come first when told to compile"),
        pytest.param(False, "1", "1", ("cpu", "1"), id="triton may come first when told to interpret"),
        pytest.param(True, None, "0", ("cuda", "0"), id="triton may come first beside a GPU"),
        pytest.param(True, None, "1", ("cpu", "1"), id="the interpreter may be chosen already beside a GPU"),
        pytest.param(False, None, "1", ("cpu", "1"), id="the interpreter may be chosen already without a GPU"),
    ],
)
def test_kernels_are(gpu, setting, imported, chosen):
    assert runtime.choose(gpu, setting, imported) == chosen


@pytest.mark.thinned(0)
@pytest.mark.parametrize(("users", "there"), [({}, "1"), ({FUSION: "0"}, "0")], ids=["unset", "the user's"])
def test_products_and_sums_are_fused_unless_the_user_says_otherwise(users, there):
    """As up to Triton 3.9, which warns where nothing says so."""
    assert says(f"import os, helpers; print(os.environ[{FUSION!r}])", **users) == [there]


@pytest.mark.parametrize(
    ("gpu", "setting", "imported"),
    [(False, None, "0"), (False, "1", "0"), (True, "1", "0"), (True, "0", "1"), (False, "0", "1")],
    ids=["no GPU", "told to interpret", "told to interpret beside a GPU", "told to compile", "to compile only"],
)
def test_triton_imported_first_in_the_other_mode_is_refused(gpu, setting, imported):
    with pytest.raises(ImportError, match="Restart the kernel"):
        runtime.choose(gpu, setting, imported)


@pytest.mark.parametrize(
    ("capability", "said"),
    [
        ((6, 0), "Tesla P100 has compute capability 6.0, and Triton needs 7.5 or more"),
        ((7, 0), "Tesla P100 has compute capability 7.0, and Triton needs 7.5 or more"),
        ((7, 5), ""),
        ((8, 0), ""),
        ((10, 0), ""),
    ],
)
def test_a_gpu_is_too_old_below_7_5(capability, said):
    assert runtime.too_old("Tesla P100", capability) == said


@pytest.mark.parametrize(
    ("environment", "setting"),
    [
        ({}, None),
        ({"TRITON_INTERPRET": "0"}, "0"),
        ({"TRITON_INTERPRET": "1"}, "1"),
        ({"TRITON_INTERPRET": "1", runtime.CHOSEN_HERE: "1"}, None),
        ({"TRITON_INTERPRET": "0", runtime.CHOSEN_HERE: "1"}, "0"),
        ({runtime.CHOSEN_HERE: "1"}, None),
    ],
    ids=["nothing set", "0", "1", "set by a parent", "set after a parent", "unset after a parent"],
)
def test_what_a_parent_process_has_set_is_not_the_users_setting(environment, setting):
    assert runtime.users_setting(environment) == setting


@pytest.mark.parametrize("setting", ["", "2", "true", " 1", "yes"])
def test_any_other_setting_is_refused_by_its_value(setting):
    with pytest.raises(ImportError, match=f"TRITON_INTERPRET is '{setting}'; unset it, or set it to 1 .* or 0"):
        runtime.choose(False, setting, imported=None)


@pytest.mark.thinned(0)
def test_importing_triton_before_helpers_says_to_restart_and_import_helpers_first(said):
    assert said["triton first"].startswith("triton was imported before helpers")
    assert "Restart the kernel and run `import helpers`" in said["triton first"]
    assert said["triton first"].endswith("above `import triton`.")


def test_importing_helpers_with_a_bad_setting_says_which_values_are_good(said):
    assert said["a bad value"].startswith("TRITON_INTERPRET is 'yes'; unset it, or set it to 1")


def test_compiling_without_a_gpu_allows_the_import(said):
    assert said["device without a GPU"] == "cpu False"


def test_compiling_without_a_gpu_refuses_to_run_a_kernel_and_says_what_to_unset(said):
    assert said["a kernel without a GPU"].startswith("no GPU was found and TRITON_INTERPRET=0")
    assert said["a kernel without a GPU"].endswith("Unset TRITON_INTERPRET and restart to run them.")
    assert said["a check without a GPU"] == said["a kernel without a GPU"]


def test_compiling_without_a_gpu_does_not_claim_the_interpreter(said):
    assert said["banner without a GPU"].startswith("CPU, kernels can be compiled but not run · torch ")


@pytest.mark.thinned(0)
def test_the_interpreter_stays_in_the_environment_for_child_processes_with_a_word_on_who_chose_it():
    assert says(IMPORTED) == ["cpu True 1 1"]


@pytest.mark.thinned(0)
def test_a_child_process_is_not_told_that_its_user_has_set_what_a_parent_has():
    child = f"import subprocess, sys, helpers\nsubprocess.run([sys.executable, '-c', {IMPORTED!r}], check=True)"
    assert says(child) == ["cpu True 1 1"]


@pytest.mark.thinned(0)
def test_beside_a_gpu_the_environment_is_left_alone():
    assert says(GPU.format(9, 0) + IMPORTED) == ["cuda False None None"]


@pytest.mark.thinned(0)
def test_a_parents_choice_of_the_interpreter_does_not_bind_a_child_that_has_a_gpu():
    inherited = {"TRITON_INTERPRET": "1", runtime.CHOSEN_HERE: "1"}
    assert says(GPU.format(9, 0) + IMPORTED, **inherited) == ["cuda False None None"]


@pytest.mark.thinned(0)
def test_triton_may_be_imported_first_where_nothing_is_left_to_choose():
    assert says(GPU.format(9, 0) + TRITON_FIRST) == ["cuda False None None"]
    assert says(TRITON_FIRST, TRITON_INTERPRET="1") == ["cpu True 1 None"]


@pytest.mark.thinned(0)
def test_a_gpu_that_triton_cannot_use_is_said_once_and_the_interpreter_takes_over():
    sentence = "Tesla P100 has compute capability 6.0, and Triton needs 7.5 or more"
    warned, banner, chosen = says(OLD_GPU)
    assert warned == f"{sentence}: kernels run in its interpreter."
    assert banner.startswith("CPU, Triton's interpreter · ") and f" · {sentence} · " in banner
    assert chosen == "cpu True 1 1"


@pytest.mark.thinned(0)
def test_a_gpu_that_triton_cannot_use_is_not_said_again_where_the_interpreter_was_asked_for_or_a_parent_has():
    assert says(OLD_GPU, TRITON_INTERPRET="1")[0] == ""
    assert says(OLD_GPU, TRITON_INTERPRET="1", **{runtime.CHOSEN_HERE: "1"})[0] == ""


def test_tensors_go_to_the_gpu_exactly_where_kernels_are_compiled_for_it():
    assert DEVICE.type == ("cuda" if ON_GPU else "cpu")
    assert not (ON_GPU and runtime.INTERPRETED)


def test_the_banner_is_one_line_with_the_device_and_the_versions():
    device = torch.cuda.get_device_name() if ON_GPU else "CPU, Triton's interpreter"
    assert banner().startswith(device)
    assert f"torch {torch.__version__}, triton {triton.__version__}, Python 3." in banner()
    assert len(banner().splitlines()) == 1


def test_the_banner_says_that_nothing_is_timed_exactly_where_there_is_no_gpu():
    assert ("times are not measured" in banner()) is not ON_GPU


@pytest.mark.parametrize(
    ("set_to", "off"), [({}, False), ({"TQDM_DISABLE": "1"}, True), ({"PYTEST_VERSION": "9"}, True)]
)
def test_bars_are_off_where_tqdm_s_variable_says_so_and_where_pytest_runs_a_notebook(set_to, off, monkeypatch):
    monkeypatch.setattr(runtime.os, "environ", set_to)
    assert runtime.bars_are_off() is off
