"""The container and the editors: `make container`, .devcontainer/ and .vscode/ agree with the lock."""

import json
import os
import re
import subprocess
from pathlib import Path

from helpers.make import install

ROOT = Path(__file__).resolve().parents[2]
DOCKERFILE = (ROOT / ".devcontainer/Dockerfile").read_text(encoding="utf-8")
DEVCONTAINER = json.loads((ROOT / ".devcontainer/devcontainer.json").read_text(encoding="utf-8"))


def docker_is_asked(tmp_path: Path, *variables: str) -> list[str]:
    """What `make container` asks docker for: a line for each call, by a stand-in that writes them down."""
    (tmp_path / "docker").write_text('#!/bin/sh\necho "$@"\n')
    (tmp_path / "docker").chmod(0o755)
    made = subprocess.run(
        ["make", "container", *variables],
        cwd=ROOT,
        env=os.environ | {"PATH": f"{tmp_path}:{os.environ['PATH']}"},
        capture_output=True,
        text=True,
        check=True,
    )
    return [line for line in made.stdout.splitlines() if line.startswith(("build", "run"))]


def test_the_container_serves_the_checkout_on_this_machine_alone_as_its_owner(tmp_path):
    built, run = docker_is_asked(tmp_path)
    assert "--file .devcontainer/Dockerfile" in built and built.endswith("--build-arg TORCH=cpu .")
    assert f"--volume {ROOT}:/course" in run and "--publish 127.0.0.1:8888:8888" in run
    assert f"--user {os.getuid()}:{os.getgid()}" in run and "--gpus" not in run


def test_with_a_gpu_torch_comes_in_its_build_for_cuda(tmp_path):
    built, run = docker_is_asked(tmp_path, "GPU=1", "PORT=9000")
    assert re.search(r"TORCH=cu\d+ \.$", built)
    assert "--gpus all" in run and "127.0.0.1:9000:8888" in run and "--env PUBLISHED_PORT=9000" in run


def test_the_container_installs_the_lock():
    for name in (install.LOCKED, install.VERSIONS):
        assert f"COPY --chown=learner {install.LOCKED} {install.VERSIONS}" in DOCKERFILE and name in DOCKERFILE
    assert f"--require-hashes --requirement {install.LOCKED}" in DOCKERFILE
    assert f"--constraint {install.VERSIONS} torch" in DOCKERFILE


def test_the_container_s_python_is_supported():
    (python,) = re.findall(r"^ARG PYTHON=3\.(\d+)$", DOCKERFILE, flags=re.MULTILINE)
    assert install.supported((3, int(python)))


def test_what_the_container_starts_is_there():
    programs = set(re.findall(r"helpers/make/\w+\.py", DOCKERFILE + json.dumps(DEVCONTAINER)))
    assert programs == {"helpers/make/working_copy.py", "helpers/make/lab.py"}
    assert all((ROOT / name).exists() for name in programs)


def test_vs_code_builds_the_same_container_and_needs_no_gpu():
    build = DEVCONTAINER["build"]
    assert (ROOT / ".devcontainer" / build["dockerfile"]).exists()
    assert (ROOT / ".devcontainer" / build["context"]).resolve() == ROOT
    assert DEVCONTAINER["hostRequirements"]["gpu"] == "optional"
    assert f"useradd --create-home --shell /bin/bash --uid 1000 {DEVCONTAINER['remoteUser']}" in DOCKERFILE


def test_vs_code_takes_the_python_of_the_container_that_has_the_course():
    python = DEVCONTAINER["customizations"]["vscode"]["settings"]["python.defaultInterpreterPath"]
    assert f"ENV VIRTUAL_ENV={Path(python).parents[1]} " in DOCKERFILE


def test_outside_it_vs_code_finds_the_python_of_the_checkout_by_itself():
    settings = json.loads((ROOT / ".vscode/settings.json").read_text(encoding="utf-8"))
    assert "python.defaultInterpreterPath" not in settings  # a workspace's settings would win over the container's
    assert (install.VENV.parent, install.VENV.name) == (install.CHECKOUT, ".venv")
