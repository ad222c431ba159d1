"""Every command that a document tells its readers to type is run: by a push, by the weekly workflow, or by a test."""

import re
import shutil
import subprocess
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
DOCUMENTS = [ROOT / "README.md", *ROOT.glob(".github/*.md"), *ROOT.glob("helpers/**/README.md")]
RUNS = [ROOT / ".ci" / "run", *ROOT.glob(".github/workflows/*.yml")]

CODE = re.compile(r"`([^`\n]+)`|^ {4}(\S.+)$", re.MULTILINE)
COMMAND = re.compile(
    r"(?:- )*(?:run: )?(?:\$CONDA/bin/)?(?:conda run --name \S+ )?(?:"
    r"make(?P<targets>(?: [a-z]+)+)"
    r"|(?:\S*python|uv run) (?:-P )?(?:-m )?(?P<ours>(?:helpers|tests)[\w./]+(?: [a-z][\w-]*)?)"
    r"|(?P<others>(?:conda env|dask|jupyter|nbgrader|pixi|uv) [a-z_]+))"
)

RUN_BY = {
    "make clean": ("tests/make/test_documents.py", '["make", "clean"]'),
    "make container": ("tests/make/test_container.py", '["make", "container", *variables]'),
    "make help": ("tests/make/test_documents.py", '["make", "--silent", "help"]'),
    "make lab": ("tests/make/test_lab.py", '[sys.executable, "helpers/make/lab.py", *arguments]'),
    "make lock": ("tests/make/test_lock.py", "lock.main()"),
    "make record": ("tests/measure/test_record.py", "making.main()"),
    "helpers.instructor course": ("tests/instructor/test_commands.py", 'main(["course", '),
    "helpers.instructor export": ("tests/instructor/test_commands.py", 'main(["export", '),
    "helpers.instructor feedback": ("tests/instructor/test_commands.py", 'main(["feedback", '),
    "helpers.instructor forget": ("tests/instructor/test_commands.py", 'main(["forget", '),
    "helpers.instructor grade": ("tests/instructor/test_commands.py", 'main(["grade", '),
    "helpers.instructor grade-one": ("tests/instructor/test_one.py", '"-m", "helpers.instructor", "grade-one"'),
    "helpers.instructor report": ("tests/instructor/test_commands.py", 'main(["report", '),
    "helpers.measure.decode": ("tests/measure/test_decode.py", '"-m", "helpers.measure.decode"'),
    "helpers.measure.linear_loss": ("tests/measure/test_linear_loss.py", '"-m", "helpers.measure.linear_loss"'),
    "helpers.measure.record": ("tests/measure/test_record.py", "making.main()"),
    "helpers.measure.sample": ("tests/measure/test_sample.py", '"-m", "helpers.measure.sample"'),
    "helpers.measure.shards": ("tests/measure/test_shards.py", '"-m", "helpers.measure.shards"'),
    "helpers/make/lab.py": ("tests/make/test_lab.py", '[sys.executable, "helpers/make/lab.py", *arguments]'),
    "tests/proofs/planted.py": ("Makefile", "tests/proofs/planted.py --sample $(BUGS)"),
    "dask scheduler": ("tests/proofs/prove_grading.py", '"-m", "distributed.cli.dask_scheduler"'),
    "dask worker": ("tests/proofs/prove_grading.py", '"-m", "distributed.cli.dask_worker"'),
    "nbgrader autograde": ("tests/proofs/prove_grading.py", '"autograde"'),
    "nbgrader collect": ("tests/instructor/test_jupyterhub.py", '"Collect"'),
    "nbgrader release_feedback": ("tests/instructor/test_jupyterhub.py", '"ReleaseFeedback"'),
    "nbgrader release_assignment": ("tests/instructor/test_jupyterhub.py", '"ReleaseAssignment"'),
}
"""The commands that neither a push nor the weekly workflow has, and the line of a test or proof that runs each."""


def commands(lines):
    """The commands that begin these lines, without their arguments."""
    for match in filter(None, (COMMAND.match(line.strip()) for line in lines)):
        yield from (f"make {target}" for target in (match["targets"] or "").split())
        yield from filter(None, (match["ours"], match["others"]))


def of_documents():
    """What readers are told to type: code of the documents, and what `make help` lists."""
    told = subprocess.run(["make", "--silent", "help"], cwd=ROOT, capture_output=True, text=True, check=True).stdout
    code = [one or other for path in DOCUMENTS for one, other in CODE.findall(path.read_text(encoding="utf-8"))]
    return {*commands(code), *(f"make {line.split()[0]}" for line in told.splitlines())}


def test_every_command_of_the_documents_and_every_target_of_make_help_is_run():
    run = set(commands(line for path in RUNS for line in path.read_text(encoding="utf-8").splitlines()))
    assert of_documents() - run == set(RUN_BY)


def test_what_runs_the_others_is_there():
    for command, (path, line) in RUN_BY.items():
        assert line in (ROOT / path).read_text(encoding="utf-8"), command


def test_make_clean_leaves_the_checkout_without_its_environment(tmp_path):
    shutil.copy(ROOT / "Makefile", tmp_path)
    (tmp_path / ".venv").mkdir()
    subprocess.run(["make", "clean"], cwd=tmp_path, check=True, capture_output=True)
    assert [path.name for path in tmp_path.iterdir()] == ["Makefile"]
