"""helpers/make/beside.py: what an environment lacks is installed, and nothing that it has."""

import os
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest
from packaging.requirements import Requirement

from helpers.make import beside
from helpers.make.beside import Installed

ROOT = Path(__file__).resolve().parents[2]
PROJECT = (ROOT / "pyproject.toml").read_text(encoding="utf-8")

COLAB = {
    "torch": Installed("2.11.0+cu128", ("triton==3.6.0; platform_system == 'Linux'", "sympy>=1.13.3")),
    "triton": Installed("3.6.0"),
    "numpy": Installed("2.1.3"),
    "matplotlib": Installed("3.10.0", ("numpy>=1.23", "pillow>=8")),
    "pillow": Installed("11.3.0"),
    "ipywidgets": Installed("7.7.1", ("ipython>=4.0.0",)),
    "anywidget": Installed("0.9.21", ("ipywidgets>=7.6.0", "psygnal>=0.8.1")),
    "tqdm": Installed("4.67.3", ("colorama; platform_system == 'Windows'", "requests; extra == 'telegram'")),
    "cloudpickle": Installed("3.1.2"),
}
"""A GPU machine of Colab. Its CPU machines have no triton, and Kaggle's no anywidget."""


def find(there):
    """An environment that has these packages."""
    return there.get


def without(*names):
    return {name: package for name, package in COLAB.items() if name not in names}


def lacking(there, project=PROJECT):
    return [str(one) for one in beside.lacking(beside.dependencies(project, find(there)), find(there))]


# What lacks


def test_colab_lacks_hypothesis_alone_and_then_what_hypothesis_says_that_it_needs():
    assert lacking(COLAB) == ["hypothesis>=6.100"]
    hypothesis = Installed("6.150.0", ("sortedcontainers<3.0.0,>=2.1.0", "numpy; extra == 'numpy'"))
    assert lacking(COLAB | {"hypothesis": hypothesis}) == ["sortedcontainers<3.0.0,>=2.1.0"]
    assert lacking(COLAB | {"hypothesis": hypothesis, "sortedcontainers": Installed("2.4.0")}) == []


@pytest.mark.parametrize("kept", sorted(beside.KEPT))
def test_what_is_kept_is_never_installed_whether_it_is_there_or_needed_by_what_is(kept):
    there = without(kept) | {"cloudpickle": Installed("3.1.2", (kept,))}
    assert not any(line.startswith(kept) for line in lacking(there))


@pytest.mark.parametrize(
    ("torch", "triton"),
    [
        (Installed("2.11.0+cpu"), "triton==3.6.0"),
        (Installed("2.13.0"), "triton==3.7.1"),
        (Installed("2.16.0", ("triton~=3.9.1; platform_system == 'Linux'",)), "triton~=3.9.1"),
        (Installed("2.16.0", ("triton==9; platform_system == 'Windows'",)), "triton<3.10,>=3.6"),
        (Installed("2.99.0+cpu"), "triton<3.10,>=3.6"),
    ],
    ids=["known", "another known", "torch says so", "for another system", "unknown"],
)
def test_where_triton_is_missing_the_one_that_goes_with_torch_comes(torch, triton):
    assert lacking(without("triton") | {"torch": torch}) == [triton, "hypothesis>=6.100"]


def test_a_package_that_is_there_stays_in_a_version_out_of_range_and_is_named():
    there = COLAB | {"triton": Installed("3.12.0"), "matplotlib": Installed("3.8.1")}
    assert lacking(there) == ["hypothesis>=6.100"]
    wanted = beside.dependencies(PROJECT.replace("triton>=3.6,<3.10", "triton>=3.6,<3.11"), lambda name: None)
    assert beside.outside(wanted, find(there)) == [
        "triton 3.12.0 stays; the course was run with triton<3.11,>=3.6.",
        "matplotlib 3.8.1 stays; the course was run with matplotlib>=3.10.",
    ]


def test_a_local_build_and_a_release_candidate_are_in_range():
    wanted = [Requirement("torch>=2.11")]
    assert beside.outside(wanted, find({"torch": Installed("2.11.0+cu128")})) == []
    assert beside.outside(wanted, find({"torch": Installed("2.16.0rc1")})) == []


@pytest.mark.parametrize(
    ("there", "words"),
    [(COLAB, ""), (without("torch"), "no torch:"), (without("torch", "numpy"), "no numpy and no torch:")],
    ids=["both", "no torch", "neither"],
)
def test_without_torch_or_numpy_one_sentence_says_what_to_do(there, words):
    sentence = beside.missing(find(there))
    assert words in sentence and sentence.count(".") == (1 if words else 0)


def test_an_environment_of_uv_has_no_pip():
    assert beside.installer(True, "uv")[:3] == beside.installer(False, None)[:3] == [sys.executable, "-m", "pip"]
    assert beside.installer(False, "/bin/uv")[:3] == ["/bin/uv", "pip", "install"]
    assert all("--no-deps" in beside.installer(has_pip, "uv") for has_pip in (True, False))


def test_every_torch_of_the_range_that_was_released_has_its_triton_within_the_range():
    (triton,) = (
        Requirement(line) for line in tomllib.loads(PROJECT)["project"]["dependencies"] if line.startswith("triton")
    )
    for demanded in beside.TRITON_OF_TORCH.values():
        assert triton.specifier.contains(next(iter(Requirement(demanded).specifier)).version)


# Run, in an environment that has a stand-in for pip

PIP = """
import pathlib, sys
here = pathlib.Path(__file__).parent.parent
with (here / "asked").open("a") as asked:
    print(*sys.argv[1:], file=asked)
new = sys.argv[-1].partition("<")[0].partition(">")[0].partition("=")[0]
if sys.argv[-2] == "--editable":
    metadata = here / "softmax_in_triton-0.1.0.dist-info"
    metadata.mkdir()
    (metadata / "METADATA").write_text("Metadata-Version: 2.1\\nName: softmax-in-triton\\nVersion: 0.1.0\\n")
    (metadata / "direct_url.json").write_text('{"url": "' + pathlib.Path(sys.argv[-1]).as_uri() + '"}')
elif new in NEEDED:
    (here / (new + "-9.0.dist-info")).mkdir()
    lines = ["Metadata-Version: 2.1", "Name: " + new, "Version: 9.0"] + NEEDED[new]
    (here / (new + "-9.0.dist-info") / "METADATA").write_text("\\n".join(lines) + "\\n")
"""


@pytest.fixture
def environment(tmp_path):
    """A folder of packages: those of COLAB, packaging, and a pip that brings hypothesis and what that needs."""
    for name, (version, requires) in COLAB.items():
        (tmp_path / f"{name}-{version}.dist-info").mkdir()
        needs = [f"Requires-Dist: {line}" for line in requires if "extra" not in line and name != "torch"]
        lines = ["Metadata-Version: 2.1", f"Name: {name}", f"Version: {version}", *needs]
        (tmp_path / f"{name}-{version}.dist-info" / "METADATA").write_text("\n".join(lines) + "\n")
    (tmp_path / "pip").mkdir()
    (tmp_path / "pip" / "__init__.py").touch()
    give_pip(tmp_path, {"hypothesis": ["Requires-Dist: sortedcontainers<3.0.0,>=2.1.0"], "sortedcontainers": []})
    (tmp_path / "packaging").symlink_to(Path(sys.modules["packaging"].__file__).parent)
    return tmp_path


def give_pip(folder, brings):
    (folder / "pip" / "__main__.py").write_text(f"NEEDED = {brings!r}\n" + PIP)


def run(folder, code=f"import runpy; runpy.run_path({str(ROOT / 'helpers/make/beside.py')!r}, run_name='__main__')"):
    """Run beside.py with no packages but those of `folder`."""
    return subprocess.run(
        [sys.executable, "-S", "-c", code],
        env=os.environ | {"PYTHONPATH": str(folder)},
        cwd=folder,
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
    )


def test_what_lacks_is_installed_without_what_it_needs_until_nothing_lacks_then_the_checkout(environment):
    result = run(environment)
    assert result.returncode == 0, result.stderr
    asked = (environment / "asked").read_text().splitlines()
    assert asked == [
        "install --quiet --no-deps hypothesis>=6.100",
        "install --quiet --no-deps sortedcontainers<3.0.0,>=2.1.0",
        f"install --quiet --no-deps --editable {ROOT}",
    ]
    assert [line for line in result.stdout.splitlines() if "--no-deps" in line] != []
    assert "installed; torch 2.11.0+cu128, triton 3.6.0, numpy 2.1.3, " in result.stdout.splitlines()[-1]


def test_run_again_it_installs_nothing(environment):
    run(environment)
    (environment / "asked").unlink()
    assert run(environment).returncode == 0
    assert not (environment / "asked").exists()


def test_metadata_that_building_has_left_in_the_checkout_is_not_taken_for_another_installation(environment):
    run(environment)
    (environment / "asked").unlink()
    left = environment / "left" / "softmax_in_triton.egg-info"
    left.mkdir(parents=True)
    (left / "PKG-INFO").write_text("Metadata-Version: 2.1\nName: softmax-in-triton\nVersion: 0.1.0\n")
    path = str(ROOT / "helpers/make/beside.py")
    first = f"import runpy, sys; sys.path.insert(0, {str(left.parent)!r}); "
    assert run(environment, first + f"runpy.run_path({path!r}, run_name='__main__')").returncode == 0
    assert not (environment / "asked").exists()


def test_the_kernel_that_runs_it_finds_helpers_without_a_restart(environment):
    path = str(ROOT / "helpers/make/beside.py")
    code = f"import runpy, sys; runpy.run_path({path!r}, run_name='__main__'); print(sys.path[0])"
    assert run(environment, code).stdout.splitlines()[-1] == str(ROOT)


def test_a_package_that_does_not_come_ends_it(environment):
    give_pip(environment, {})
    result = run(environment)
    assert (result.returncode, len(result.stderr.splitlines())) == (1, 1)
    assert "hypothesis" in result.stderr
    assert (environment / "asked").read_text().splitlines() == ["install --quiet --no-deps hypothesis>=6.100"]


def test_a_failure_of_pip_is_a_failure(environment):
    (environment / "pip" / "__main__.py").write_text("raise SystemExit(3)")
    assert run(environment).returncode == 3


def test_what_pip_and_a_build_backend_warn_of_stays_out_of_the_notebook(environment):
    (environment / "pip" / "__main__.py").write_text("import warnings; warnings.warn('editable'); raise SystemExit(3)")
    result = run(environment)
    assert "editable" not in result.stdout + result.stderr


def test_without_torch_nothing_is_installed(environment):
    (environment / "torch-2.11.0+cu128.dist-info" / "METADATA").unlink()
    (environment / "torch-2.11.0+cu128.dist-info").rmdir()
    result = run(environment)
    assert (result.returncode, len(result.stderr.splitlines())) == (1, 1)
    assert not (environment / "asked").exists()
