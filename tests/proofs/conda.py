"""Run the pip section of environment.yml in a bare virtual environment, as conda does, and use what it brings.

    python tests/proofs/conda.py

copies the checkout, installs (some minutes, with the network), holds every version against the lock, asks JupyterLab
for its version and runs a solution with `pytest --nbval`.
"""

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path
from tempfile import TemporaryDirectory

import yaml
from packaging.version import Version

CHECKOUT = Path(__file__).resolve().parents[2]
SOLUTION = "solutions/02_your_first_kernel.ipynb"
USED = ("torch", "triton", "jupyterlab", "ipywidgets", "matplotlib", "nbval", "softmax-in-triton")


def copied(folder: Path) -> Path:
    """A copy of what git knows of the checkout, as it stands now."""
    listed = subprocess.run(["git", "ls-files", "-z"], cwd=CHECKOUT, capture_output=True, text=True, check=True)
    for name in filter(None, listed.stdout.split("\0")):
        if (source := CHECKOUT / name).is_file():
            (folder / name).parent.mkdir(parents=True, exist_ok=True)
            shutil.copy2(source, folder / name)
    return folder


def installed_as_by_conda(checkout: Path) -> Path:
    """A bare environment with the pip section of environment.yml; returns the folder of its programs.

    conda writes the section, a line for each entry, to a file beside environment.yml, and runs pip in that folder.
    """
    environment = yaml.safe_load((checkout / "environment.yml").read_text(encoding="utf-8"))
    (section,) = (entry["pip"] for entry in environment["dependencies"] if isinstance(entry, dict))
    subprocess.run([sys.executable, "-m", "venv", checkout / ".conda"], check=True)
    requirements = checkout / "condaenv.requirements.txt"
    requirements.write_text("\n".join(section), encoding="utf-8")
    programs = checkout / ".conda" / "bin"
    pip = [programs / "python", "-m", "pip", "install", "-U", "-r", requirements, "--exists-action=b"]
    subprocess.run(pip, cwd=checkout, check=True, stdout=subprocess.DEVNULL)
    return programs


def strange_versions(checkout: Path, programs: Path) -> list[str]:
    """Packages that are not there, or in another version than the lock's."""
    lines = (checkout / "helpers/make/versions.txt").read_text(encoding="utf-8").splitlines()
    locked = dict(line.partition(" ")[0].split("==") for line in lines if not line.startswith("#"))
    pip_list = [programs / "python", "-m", "pip", "list", "--format=json"]
    listed = json.loads(subprocess.run(pip_list, capture_output=True, text=True, check=True).stdout)
    there = {entry["name"].lower().replace("_", "-"): Version(entry["version"]).public for entry in listed}
    other = [
        f"{name} {there[name]}, not {locked[name]}"
        for name in there.keys() & locked.keys()
        if there[name] != locked[name]
    ]
    unlocked = there.keys() - locked.keys() - {"pip", "setuptools", "softmax-in-triton"}
    return [
        *other,
        *(f"{name} is not there" for name in USED if name not in there),
        *(f"{name} is not in the lock" for name in unlocked),
    ]


def main() -> int:
    """Install, say what is wrong, and run a solution."""
    with TemporaryDirectory(prefix="conda-") as folder:
        checkout = copied(Path(folder))
        programs = installed_as_by_conda(checkout)
        wrong = strange_versions(checkout, programs)
        print(f"versions: {len(wrong)} wrong", *wrong, sep="\n  ")
        # As `conda activate` does it, and without what this proof's own environment has set.
        activated = {
            name: value for name, value in os.environ.items() if not name.startswith(("PYTHON", "VIRTUAL_ENV"))
        }
        activated["PATH"] = f"{programs}:{os.environ['PATH']}"
        lab = subprocess.run(["jupyter", "lab", "--version"], cwd=checkout, env=activated)
        ran = subprocess.run(["pytest", "--nbval", "-n", "0", "-q", SOLUTION], cwd=checkout, env=activated)
    return 1 if wrong or lab.returncode or ran.returncode else 0


if __name__ == "__main__":
    sys.exit(main())
