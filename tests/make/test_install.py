"""helpers/make/install.py, which `make` runs first: what it installs, when it does nothing, how it stops and fails."""

import ast
import os
import re
import runpy
import select
import shlex
import shutil
import signal
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest

from helpers.make import install as installer

ROOT = Path(__file__).resolve().parents[2]
EXTRAS = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["optional-dependencies"]
INSTALLER = "helpers/make/install.py"
COPIED = ("pyproject.toml", INSTALLER, installer.LOCKED, installer.VERSIONS)

# What stands in for pip: notes what it was asked for, and brings a package.
PIP_THAT_SUCCEEDS = """
import pathlib, sys
with open("asked", "a") as asked:
    print(*sys.argv[1:], file=asked)
site_packages = pathlib.Path(__file__).parents[1]
for name in "numpy", "numpy-2.0.dist-info":
    (site_packages / name).mkdir(exist_ok=True)
(site_packages / "numpy-2.0.dist-info" / "RECORD").touch()
"""


@pytest.fixture
def checkout(tmp_path: Path) -> Path:
    """A checkout with nothing installed, at a path with spaces and a letter that is not ASCII."""
    copy = tmp_path / "my own größe"
    (copy / "helpers" / "make").mkdir(parents=True)
    for name in COPIED:
        shutil.copy(ROOT / name, copy / name)
    return copy


@pytest.fixture
def with_venv(checkout: Path) -> Path:
    """The same checkout with a .venv that holds nothing but a stand-in for pip."""
    venv = checkout / ".venv"
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", venv], check=True)
    (venv / "created").write_bytes(os.fsencode(venv))
    replace_pip(checkout, PIP_THAT_SUCCEEDS)
    return checkout


@pytest.fixture
def installed(with_venv: Path) -> Path:
    """A checkout that has been installed, and whose pip would fail if it were called again."""
    assert install(with_venv).returncode == 0
    replace_pip(with_venv, "raise SystemExit('pip was called')")
    return with_venv


def site_packages(checkout: Path) -> Path:
    """Where the packages of the checkout's .venv are."""
    (folder,) = checkout.glob(".venv/lib/python*/site-packages")
    return folder


def replace_pip(checkout: Path, code: str) -> None:
    """Give the checkout's .venv a pip that runs `code`."""
    (site_packages(checkout) / "pip").mkdir(exist_ok=True)
    (site_packages(checkout) / "pip" / "__init__.py").touch()
    (site_packages(checkout) / "pip" / "__main__.py").write_text(code)


def install(checkout: Path, *python: str, **environment: str) -> subprocess.CompletedProcess:
    """Run the checkout's installer as `make` does, without an input."""
    return subprocess.run(
        [sys.executable, *(python or [INSTALLER])],
        cwd=checkout,
        env=os.environ | environment,
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
    )


def functions_of(checkout: Path) -> dict:
    """The names that the checkout's installer defines."""
    return runpy.run_path(str(checkout / INSTALLER))


def package(checkout: Path, name: str, record: list[str] | None) -> Path:
    """The metadata of a package of this name, with a module; `record` lists its files, and None leaves the list out."""
    metadata = site_packages(checkout) / f"{name}-1.0.dist-info"
    metadata.mkdir()
    (site_packages(checkout) / f"{name}.py").touch()
    if record is not None:
        (metadata / "RECORD").write_text("".join(f"{file},sha256=0,0\n" for file in record))
    return metadata


# -- which Python -----------------------------------------------------------------------------------------------------


def as_python(version: tuple[int, ...]) -> list[str]:
    """Arguments that run the installer in a Python that takes itself for `version`."""
    disguise = f"import runpy, sys; sys.version_info = {version}"
    return ["-c", f"{disguise}; runpy.run_path({INSTALLER!r}, run_name='__main__')"]


@pytest.mark.parametrize("version", [(3, 10, 0), (3, 15, 0)])
def test_a_python_that_is_too_old_or_too_new_gets_one_sentence(checkout, version):
    result = install(checkout, *as_python(version), PATH="")
    assert (result.returncode, result.stdout) == (1, "")
    this = "{}.{}".format(*version)
    assert result.stderr == f"The course needs Python 3.11 to 3.14, and this is {this}: install one of those.\n"


def test_a_python_that_is_too_old_hands_over_to_a_newer_one_on_the_path(checkout, tmp_path):
    broken, good = tmp_path / "broken", tmp_path / "good"
    for folder, script in (broken, "exit 127"), (good, 'case "$1" in -c) echo "$0" ;; *) echo "ran $1" ;; esac'):
        folder.mkdir()
        (folder / "python3.12").write_text(f"#!/bin/sh\n{script}\n")
        (folder / "python3.12").chmod(0o755)
    result = install(checkout, *as_python((3, 9, 2)), PATH=f"{broken}:{good}")
    assert (result.returncode, result.stdout) == (0, f"ran {checkout / INSTALLER}\n")


@pytest.mark.parametrize("there", [("3.11",), ("3.11", "3.13")], ids=["the oldest", "two"])
def test_the_newest_supported_python_of_the_path_takes_over(checkout, tmp_path, there):
    for version in there:
        (tmp_path / f"python{version}").write_text(
            '#!/bin/sh\ncase "$1" in -c) echo "$0" ;; *) echo "$0 ran" ;; esac\n'
        )
        (tmp_path / f"python{version}").chmod(0o755)
    result = install(checkout, *as_python((3, 9, 2)), PATH=str(tmp_path))
    assert result.stdout == f"{tmp_path}/python{there[-1]} ran\n"


@pytest.mark.parametrize(
    ("version", "supported"),
    [((3, 10, 14), False), ((3, 11, 0), True), ((3, 14, 2), True), ((3, 15, 0), False), ((3, 11), True)],
)
def test_all_releases_of_python_from_3_11_to_3_14_are_supported(version, supported):
    assert installer.supported(version) is supported


def test_a_python_that_fails_has_not_answered_whatever_it_printed():
    assert installer.ask(Path(sys.executable), "print('yes')") == "yes"
    assert installer.ask(Path(sys.executable), "print('yes'); raise SystemExit(1)") is None


def test_an_environment_of_a_python_that_is_not_supported_is_not_used(tmp_path, monkeypatch):
    monkeypatch.setattr(installer, "VENV", tmp_path)
    monkeypatch.setattr(installer, "CREATED", tmp_path / "created")
    (tmp_path / "created").write_bytes(os.fsencode(tmp_path))
    for version, usable in (("3.10", None), ("3.11", "3.11")):
        monkeypatch.setattr(installer, "ask", lambda python, code, version=version: version)
        assert installer.usable_version() == usable


def test_what_is_installed_depends_on_the_version_of_python():
    assert installer.stamp("3.11") != installer.stamp("3.12")


def test_a_python_that_is_too_old_can_read_the_installer():
    tree = ast.parse((ROOT / INSTALLER).read_text(), feature_version=(3, 6))
    functions = [node for node in ast.walk(tree) if isinstance(node, ast.FunctionDef)]
    arguments = [argument for function in functions for argument in function.args.args]
    hints = [function.returns for function in functions] + [argument.annotation for argument in arguments]
    evaluated = [node for hint in hints if hint for node in ast.walk(hint)]
    assert not any(isinstance(node, ast.BinOp) for node in evaluated), "X | None needs Python 3.10"
    generics = {node.value.id for node in evaluated if isinstance(node, ast.Subscript)}
    assert generics <= {"List", "Optional", "Tuple"}, "list[str] needs Python 3.9"


def test_a_python_without_venv_is_told_what_to_install(checkout):
    (checkout / "ensurepip.py").write_text("raise ImportError")
    result = install(checkout, PYTHONPATH=str(checkout))
    assert (result.returncode, result.stdout) == (1, "")
    assert "apt install python3-venv" in result.stderr
    assert len(result.stderr.splitlines()) == 1


# -- what is installed, and when --------------------------------------------------------------------------------------


def test_the_locked_packages_are_installed_by_their_hashes_then_torch_and_the_course_with_all_extras(with_venv):
    assert install(with_venv).returncode == 0
    locked, course = (with_venv / "asked").read_text().splitlines()
    assert locked.endswith(f" install --require-hashes --requirement {installer.LOCKED}")
    assert f" install --no-build-isolation --constraint {installer.VERSIONS} --editable .[" in course
    assert set(course.partition("[")[2].rstrip("]").split(",")) == set(EXTRAS)


def test_when_everything_is_installed_nothing_happens_and_nothing_is_printed(installed):
    result = install(installed)
    assert (result.returncode, result.stdout, result.stderr) == (0, "", "")


@pytest.mark.parametrize("name", ["pyproject.toml", installer.LOCKED, installer.VERSIONS])
def test_a_changed_project_or_lock_is_installed_again(installed, name):
    with (installed / name).open("a") as file:
        file.write("# one line more\n")
    assert "pip was called" in install(installed).stderr


@pytest.mark.parametrize("name", ["numpy", "numpy-2.0.dist-info"])
def test_a_package_that_was_deleted_is_installed_again(installed, name):
    shutil.rmtree(site_packages(installed) / name)
    assert "pip was called" in install(installed).stderr


def test_a_package_that_was_added_is_let_be(installed):
    (site_packages(installed) / "jupyterhub").mkdir()
    assert install(installed).returncode == 0


def test_bytecode_is_not_missed(with_venv):
    (site_packages(with_venv) / "__pycache__").mkdir()
    assert install(with_venv).returncode == 0
    replace_pip(with_venv, "raise SystemExit('pip was called')")
    shutil.rmtree(site_packages(with_venv) / "__pycache__")
    assert install(with_venv).returncode == 0


def test_what_was_installed_with_fewer_extras_is_installed_again(installed):
    source = (installed / INSTALLER).read_text()
    (installed / INSTALLER).write_text(source.replace("[lab,maintain,grading]", "[lab,maintain,grading,more]"))
    assert "pip was called" in install(installed).stderr


@pytest.mark.parametrize("damage", ["moved", "without pip", "without python"])
def test_a_damaged_environment_is_not_used(with_venv, damage):
    assert functions_of(with_venv)["usable_version"]() is not None
    match damage:
        case "moved":
            with_venv = with_venv.rename(with_venv.with_name("elsewhere"))
        case "without pip":
            shutil.rmtree(site_packages(with_venv) / "pip")
        case "without python":
            (with_venv / ".venv" / "bin" / "python").unlink()
    assert functions_of(with_venv)["usable_version"]() is None


# What stands in for venv: stops when Python and a pip that can be imported are in place.
VENV_THAT_STOPS = """
import pathlib, subprocess, sys
if __name__ == "__main__":
    subprocess.run([sys.executable, "-I", "-m", "venv", "--without-pip", sys.argv[1]], check=True)
    (site_packages,) = pathlib.Path(sys.argv[1]).glob("lib/python*/site-packages")
    (site_packages / "pip.py").touch()
    sys.exit(1)
"""


def test_a_half_created_environment_is_not_used(checkout):
    (checkout / "venv.py").write_text(VENV_THAT_STOPS)
    assert install(checkout, PYTHONPATH=str(checkout)).returncode == 1
    assert (site_packages(checkout) / "pip.py").exists()
    assert functions_of(checkout)["usable_version"]() is None


@pytest.mark.parametrize(
    ("record", "kept"),
    [
        pytest.param(["whole.py", "__pycache__/whole.cpython-311.pyc"], True, id="whole, its bytecode aside"),
        pytest.param(["whole.py", "lost.py"], False, id="a file is lost"),
        pytest.param(None, False, id="pip was stopped before it wrote the list of files"),
    ],
)
def test_pip_is_made_to_install_a_damaged_package_again(with_venv, record, kept):
    metadata = package(with_venv, "whole", record)
    functions_of(with_venv)["forget_damaged_packages"]("{}.{}".format(*sys.version_info))
    assert metadata.exists() == kept


# -- what it says meanwhile -------------------------------------------------------------------------------------------


def test_in_a_terminal_one_line_moves_and_goes_at_the_end(with_venv):
    waits = "while not pathlib.Path('seen').exists(): time.sleep(0.01)"
    replace_pip(with_venv, f"import pathlib, time\nprint('Collecting numpy==2.0', flush=True)\n{waits}\n")
    ours, its = os.openpty()
    with subprocess.Popen([sys.executable, INSTALLER], cwd=with_venv, stdin=its, stdout=its, stderr=its) as started:
        os.close(its)
        said = b""
        while b"finding numpy, package 1 of" not in said:
            said += os.read(ours, 1000)
        (with_venv / "seen").touch()
        while chunk := read_or_end(ours):
            said += chunk
    os.close(ours)
    assert started.returncode == 0
    head, *shown, end = said.decode().replace("\r\n", "\n").split("\r\x1b[K")
    assert head.endswith("...\n") and "Installed in" in end
    assert not any("\n" in line for line in shown)


def read_or_end(terminal: int) -> bytes:
    """What comes from a terminal; nothing once the other side has closed it."""
    try:
        return os.read(terminal, 1000)
    except OSError:
        return b""


def test_where_nothing_moves_a_quick_installation_says_that_it_begins_and_ends(with_venv):
    begins, ends = install(with_venv).stdout.splitlines()
    assert begins.startswith("Installing the course's packages") and re.fullmatch(
        r"Installed in \d+:\d\d minutes\.", ends
    )


def test_the_lock_s_packages_are_counted(checkout):
    entries = re.findall(r"^\w", (checkout / installer.LOCKED).read_text(), flags=re.MULTILINE)
    assert functions_of(checkout)["locked"]() == len(entries)


# -- how it stops -----------------------------------------------------------------------------------------------------

# What stands in for a pip that takes long: it and a process that it starts hold a FIFO open, until they end.
PIP_THAT_TAKES_LONG = '''
import subprocess, sys
hold = """
import time
with open("fifo", "w", buffering=1) as fifo:
    print("begun", file=fifo)
    time.sleep(10)
    print("alive", file=fifo)
"""
subprocess.Popen([sys.executable, "-c", hold])
exec(hold)
'''


def begun_and_stopped_by(how: str, checkout: Path) -> tuple[str, str]:
    """What the processes of a step say until all of them have ended, and what the installer says when it is stopped."""
    command = [sys.executable, INSTALLER]
    (checkout / "Makefile").write_text(f"install:\n\t@{shlex.join(command)}\n", encoding="utf-8")
    os.mkfifo(checkout / "fifo")
    started = subprocess.Popen(
        ["make", "install"] if how == "make is killed" else command,
        cwd=checkout,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
        preexec_fn=lambda: signal.signal(signal.SIGINT, signal.SIG_DFL),  # a shell's background job ignores it
    )
    with started, open(os.open(checkout / "fifo", os.O_RDONLY | os.O_NONBLOCK)) as fifo:
        assert select.select([fifo], [], [], 60)[0], "nothing has begun"
        os.set_blocking(fifo.fileno(), True)
        said = fifo.read(len("begun\nbegun\n"))
        if how == "Ctrl-C":  # which a terminal sends to all processes of its group
            os.killpg(started.pid, signal.SIGINT)
        else:
            started.kill()
        return said + fifo.read(), started.stderr.read()


@pytest.mark.parametrize("how", ["Ctrl-C", "the installer is killed", "make is killed"])
def test_what_a_step_has_started_ends_with_the_installer(with_venv, how):
    replace_pip(with_venv, PIP_THAT_TAKES_LONG)
    said, last_words = begun_and_stopped_by(how, with_venv)
    assert said == "begun\nbegun\n"
    assert last_words == ("Stopped: the same command goes on from here.\n" if how == "Ctrl-C" else "")


def test_a_stopped_installation_goes_on_from_where_it_was(with_venv):
    replace_pip(with_venv, PIP_THAT_TAKES_LONG)
    begun_and_stopped_by("the installer is killed", with_venv)
    whole, half = package(with_venv, "whole", ["whole.py"]), package(with_venv, "half", None)
    replace_pip(with_venv, PIP_THAT_SUCCEEDS)
    assert install(with_venv).returncode == 0
    assert (whole.exists(), half.exists()) == (True, False)
    assert len((with_venv / "asked").read_text().splitlines()) == len(installer.STEPS)


# -- where it cannot be installed -------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("platform", "says"), [("darwin", "make container"), ("win32", "WSL2"), ("cygwin", "WSL2"), ("freebsd14", "Linux")]
)
def test_beside_linux_one_sentence_says_what_to_do(platform, says, capsys):
    assert installer.main(platform) == 1
    (sentence,) = capsys.readouterr().err.splitlines()
    assert says in sentence


def test_linux_needs_no_such_sentence():
    assert installer.obstacle_of("linux") == ""


# -- how it fails -----------------------------------------------------------------------------------------------------


@pytest.mark.thinned
@pytest.mark.parametrize(
    "last_words",
    [
        "Failed to establish a new connection: [Errno 113] No route to host",
        "Failed to resolve 'an.index' ([Errno -3] Temporary failure in name resolution)",
        "Failed to resolve 'an.index' ([Errno -2] Name or service not known)",
        "[Errno 101] Network is unreachable",
        "[Errno 111] Connection refused",
        "ProxyError('Cannot connect to proxy.', OSError('Tunnel connection failed: 403 Forbidden'))",
        "HTTPSConnectionPool(host='an.index', port=443): Read timed out. (read timeout=15)",
        "Could not find a version that satisfies the requirement torch (from versions: none)",
    ],
)
def test_without_a_network_one_sentence_says_so(with_venv, last_words):
    replace_pip(with_venv, f"raise SystemExit({last_words!r})")
    result = install(with_venv)
    assert result.returncode == 1
    assert result.stderr.startswith("The package index cannot be reached")
    assert len(result.stderr.splitlines()) == 1


@pytest.mark.parametrize("last_words", ["[Errno 28] No space left on device", "[Errno 122] Disk quota exceeded"])
def test_on_a_full_disk_one_sentence_says_so(with_venv, last_words):
    replace_pip(with_venv, f"raise SystemExit({last_words!r})")
    result = install(with_venv)
    assert result.returncode == 1
    assert result.stderr.startswith("The disk is full")
    assert len(result.stderr.splitlines()) == 1


def test_any_other_failure_shows_the_end_of_the_log_and_where_the_log_is(with_venv):
    replace_pip(with_venv, "raise SystemExit('pip was called')")
    result = install(with_venv)
    assert result.returncode == 1
    assert str(with_venv / ".venv" / "install.log") in result.stderr
    assert result.stderr.endswith("pip was called\n")


def test_of_a_long_log_the_end_is_shown(with_venv):
    replace_pip(with_venv, "print(*range(100, 130), sep=chr(10), flush=True); raise SystemExit('the reason')")
    shown = install(with_venv).stderr.splitlines()[1:]
    assert shown == [*map(str, range(123, 130)), "the reason"]


def test_an_installation_that_fails_is_not_taken_for_a_finished_one(with_venv):
    replace_pip(with_venv, "import sys; raise SystemExit('pip was called' if '--editable' in sys.argv else 0)")
    assert [install(with_venv).returncode for _ in range(2)] == [1, 1]


def test_a_change_that_cannot_be_fetched_offline_leaves_the_environment_as_it_was(installed):
    before = (installed / "pyproject.toml").read_text()
    (installed / "pyproject.toml").write_text(before + "# one line more\n")
    replace_pip(installed, "raise SystemExit('Connection refused')")
    assert install(installed).returncode == 1
    (installed / "pyproject.toml").write_text(before)
    assert install(installed).returncode == 0
