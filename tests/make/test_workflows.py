"""The workflows of a forge: what they run is there, and the oldest versions tried are those of pyproject.toml."""

import os
import re
import subprocess
import tomllib
from pathlib import Path

import pytest
import yaml
from packaging.requirements import Requirement

from helpers.make import install

ROOT = Path(__file__).resolve().parents[2]
WORKFLOWS = {path.stem: path.read_text(encoding="utf-8") for path in (ROOT / ".github/workflows").glob("*.yml")}
each_workflow = pytest.mark.parametrize("name", WORKFLOWS)


def runs(name):
    """The shell commands of a workflow, a text for each step."""
    jobs = yaml.safe_load(WORKFLOWS[name])["jobs"].values()
    return [step["run"] for job in jobs for step in job["steps"] if "run" in step]


def test_a_push_runs_both_suites_and_every_week_the_newest_and_the_oldest_are_tried():
    assert set(WORKFLOWS) == {"tests", "weekly"}
    assert ".ci/run" in runs("tests") and ".ci/run EVERY=1 BUGS=100 SEED=$(date +%s)" in runs("weekly")
    last = (ROOT / ".ci/run").read_text().splitlines()[-1]
    assert re.fullmatch(r'make proofs EVERY=\d+ BUGS=\d+ SEED=\d+ "\$@"', last), "the week's words come last"
    assert any("--upgrade-strategy eager" in run for run in runs("weekly"))
    assert any("conda env create --file environment.yml" in run for run in runs("weekly"))


def test_the_proofs_begin_with_what_make_test_runs_in_a_random_order():
    shuffled = next(line for line in would_run("proofs", "SEED=7") if "pytest" in line)
    assert shuffled == f"{would_run('test')[-1]} --random-order-bucket=parent --random-order-seed=7"


def would_run(*words):
    """The commands of a target of make, by itself and not below the make that runs this test."""
    own = {name: value for name, value in os.environ.items() if not name.startswith(("MAKE", "ARGS", "SEED"))}
    done = subprocess.run(["make", "--dry-run", *words], cwd=ROOT, env=own, capture_output=True, text=True, check=True)
    return [line.strip() for line in done.stdout.splitlines()]


@each_workflow
def test_what_a_workflow_runs_is_there(name):
    makefile = (ROOT / "Makefile").read_text(encoding="utf-8")
    for run in runs(name):
        for target in re.findall(r"^make ([a-z ]+)$", run, flags=re.MULTILINE):
            assert all(f"\n{word}:" in makefile for word in target.split())
        for path in re.findall(r"[\w./]+/[\w./*]+\.(?:py|ipynb)|\S*Dockerfile|\.ci/run", run):
            assert list(ROOT.glob(path)), path


@each_workflow
def test_every_python_of_a_workflow_is_supported(name):
    versions = re.findall(r'"(3\.\d+)"', WORKFLOWS[name])
    assert versions and all(install.supported(tuple(map(int, version.split(".")))) for version in versions)


@each_workflow
def test_a_workflow_may_only_read(name):
    workflow = yaml.safe_load(WORKFLOWS[name])
    assert workflow["permissions"] == {"contents": "read"}
    assert not any("permissions" in job for job in workflow["jobs"].values())
    checkouts = WORKFLOWS[name].count("actions/checkout@")
    assert WORKFLOWS[name].count("persist-credentials: false") == checkouts > 0


def test_the_oldest_versions_that_are_tried_are_the_oldest_of_the_ranges():
    dependencies = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["dependencies"]
    oldest = {one.name: lowest(one) for one in map(Requirement, dependencies)}
    (run,) = (run for run in runs("weekly") if "python -m venv" in run)
    tried = {one.name: lowest(one) for one in map(Requirement, re.findall(r"'([^']+)'", run)) if one.name in oldest}
    assert set(tried) == {"torch", "numpy", "matplotlib", "ipywidgets", "anywidget"}
    assert all(oldest[name].startswith(version) for name, version in tried.items())


def lowest(requirement):
    """The lower end of a range, "" where it has none."""
    return next((part.version for part in requirement.specifier if part.operator == ">="), "")
