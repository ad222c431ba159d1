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
"""


def start(program, **environment):
    """A fresh Python without a GPU and without our own choice, running `program`."""
    inherited = {key: value for key, value in os.environ.items() if key != "TRITON_INTERPRET"}
    environment = {**inherited, "CUDA_VISIBLE_DEVICES": "", "PYTHONIOENCODING": "utf-8", **environment}
    command = [sys.executable, "-c", program]
    return subprocess.Popen(command, cwd=ROOT, env=environment, text=True, encoding="utf-8", stdout=subprocess.PIPE)


@pytest.fixture(scope="module")
def said():
    """The lines that the two programs print, run at the same time."""
    refusals, compiling_only = start(REFUSALS), start(COMPILING_ONLY, TRITON_INTERPRET="0")
    bad_value, triton_first = refusals.communicate(timeout=120)[0].splitlines()
    device, line, error = compiling_only.communicate(timeout=120)[0].splitlines()
    return {
        "a bad value": bad_value,
        "triton first": triton_first,
        "device without a GPU": device,
        "banner without a GPU": line,
        "a kernel without a GPU": error,
    }


@pytest.mark.parametrize(
    ("cuda_available", "setting", "triton_imported", "chosen"),
    [
        pytest.param(True, None, False, ("cuda", "0"), id="compiled on a GPU"),
        pytest.param(False, None, False, ("cpu", "1"), id="interpreted without a GPU"),
        pytest.param(True, "1", False, ("cpu", "1"), id="interpreted beside a GPU when asked to"),
        pytest.param(True, "0", False, ("cuda", "0"), id="compiled on a GPU when asked to"),
        pytest.param(False, "0", False, ("cpu", "0"), id="compiled but not launched without a GPU when asked to"),
        pytest.param(True, "0", True, ("cuda", "0"), id="triton may come first when told to compile"),
        pytest.param(False, "1", True, ("cpu", "1"), id="triton may come first when told to interpret"),
    ],
)
def test_kernels_are(cuda_available, setting, triton_imported, chosen):
    assert runtime.choose(cuda_available, setting, triton_imported) == chosen


@pytest.mark.parametrize("cuda_available", [True, False])
def test_triton_imported_first_is_refused_with_or_without_a_gpu(cuda_available):
    with pytest.raises(ImportError, match="Restart the kernel"):
        runtime.choose(cuda_available, None, triton_imported=True)


@pytest.mark.parametrize("setting", ["", "2", "true", " 1", "yes"])
def test_any_other_setting_is_refused_by_its_value(setting):
    with pytest.raises(ImportError, match=f"TRITON_INTERPRET is '{setting}'; unset it, or set it to 1 .* or 0"):
        runtime.choose(False, setting, triton_imported=False)


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


def test_compiling_without_a_gpu_does_not_claim_the_interpreter(said):
    assert said["banner without a GPU"].startswith("CPU, kernels can be compiled but not run · torch ")


def test_the_choice_stays_in_the_environment_for_child_processes():
    assert os.environ["TRITON_INTERPRET"] == ("1" if runtime.INTERPRETED else "0")


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
