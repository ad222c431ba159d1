"""From solutions to lessons: releasing, executing, and the commands that do so."""

import os
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
from nbformat import NotebookNode
from nbformat.v4 import new_output

import needs
from helpers.instructor.__main__ import main
from helpers.instructor.publish.execute import execute, kernel_environment
from helpers.instructor.publish.notebooks import NotebookError, normalised, read_notebook, to_bytes
from helpers.instructor.publish.release import check_lessons, release, release_bytes, write_lessons
from tiny import ANSWER, edit, set_source, tiny

ROOT = Path(__file__).resolve().parents[2]


@pytest.fixture
def solution(tmp_path: Path) -> Path:
    """The tiny notebook as the only solution of a course."""
    path = tmp_path / "solutions" / "01_tiny.ipynb"
    path.parent.mkdir()
    path.write_bytes(to_bytes(tiny()))
    return path


# Releasing


@needs.nbgrader
def test_release_replaces_the_region_alone_and_leaves_the_solution() -> None:
    solution = tiny()
    lesson = release(solution)
    assert solution == tiny()
    assert lesson.cells[2].source == (
        "def double(x):\n    doubled = x\n    # your code here\n    pass\n    return doubled"
    )
    assert [cell.id for cell in lesson.cells] == [cell.id for cell in solution.cells]
    assert not lesson.cells[3].metadata.editable and not lesson.cells[3].metadata.deletable
    assert lesson.cells[3].metadata.nbgrader.checksum


@needs.nbgrader
def test_a_kernel_of_which_nothing_is_left_is_still_python() -> None:
    solution = tiny()
    solution.cells[
        2
    ].source = (
        "@triton.jit\ndef kernel(x, BLOCK: tl.constexpr):\n    ### BEGIN SOLUTION\n    tl.load(x)\n    ### END SOLUTION"
    )
    assert release(solution).cells[2].source.endswith("tl.constexpr):\n    # your code here\n    pass")


@needs.nbgrader
def test_the_same_bytes_whenever_and_wherever_the_solution_ran(solution: Path) -> None:
    before = release_bytes(solution)

    def as_saved_elsewhere(nb: NotebookNode) -> None:
        nb.metadata.update(
            kernelspec={"display_name": "mine", "language": "python", "name": "mine"},
            widgets={"application/vnd.jupyter.widget-state+json": {"state": {}}},
        )
        nb.cells[1].metadata.update(execution={"iopub.status.busy": "2024-01-01T00:00:00Z"}, collapsed=True)
        nb.cells[1].execution_count = 40

    edit(solution, as_saved_elsewhere)
    assert release_bytes(solution) == before
    edit(solution, lambda nb: nb.metadata.update(language_info={"name": "python", "version": "3.11.1"}))
    with_3_11_1 = release_bytes(solution)
    edit(solution, lambda nb: nb.metadata.language_info.update(version="3.13.0"))
    assert release_bytes(solution) == with_3_11_1


@needs.nbgrader
@pytest.mark.parametrize(
    ("change", "message"),
    [
        (set_source(2, "double = 2"), r"cell 3 \(id answer\) is a solution cell without"),
        (set_source(2, ANSWER.replace("### END SOLUTION", "")), r"cell 3 \(id answer\): every '### BEGIN SOLUTION'"),
        (set_source(2, ANSWER.replace("### BEGIN SOLUTION", "")), r"cell 3 \(id answer\): every '### BEGIN SOLUTION'"),
        (
            set_source(2, ANSWER.replace("BEGIN", "X").replace("END", "BEGIN").replace("X", "END")),
            r"cell 3 \(id answer\): every '### BEGIN SOLUTION'",
        ),
        (set_source(3, ANSWER), r"cell 4 \(id check\) has a solution region, but is not marked"),
        (set_source(2, f"f(\n{ANSWER}\n)"), r"cell 3 \(id answer\), line 2 is not valid Python"),
        (set_source(1, ANSWER), r"cell 2 \(id run\) has a solution region, but is not marked"),
        (lambda nb: nb.cells[3].metadata.nbgrader.pop("points"), "nbgrader refuses it"),
        (lambda nb: nb.cells[3].metadata.nbgrader.update(schema_version=99), "nbgrader refuses it"),
        (lambda nb: nb.cells[3].metadata.nbgrader.update(grade_id="double"), "nbgrader refuses it: .*double"),
    ],
)
def test_a_solution_that_cannot_be_released_is_named(
    solution: Path, change: Callable[[NotebookNode], object], message: str
) -> None:
    edit(solution, change)
    with pytest.raises(NotebookError, match=f"^solutions/01_tiny.ipynb.*{message}"):
        release_bytes(solution)


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        ('"nbformat_minor": 5', '"nbformat_minor": 4', "is nbformat 4.4"),
        ('"id": "run",', "", r"cell 2 \(id missing\) has no id"),
        ('"id": "run",', '"id": "hints",', r"cell 2 \(id hints\) shares its id"),
        ('"cells"', '"sells"', "is not a notebook"),
        ("{", "", "is not a notebook"),
    ],
)
def test_a_notebook_without_ids_of_its_own_is_named(solution: Path, old: str, new: str, message: str) -> None:
    solution.write_text(solution.read_text().replace(old, new))
    with pytest.raises(NotebookError, match=f"^solutions/01_tiny.ipynb.*{message}"):
        read_notebook(solution)


def test_a_cell_without_an_id_is_not_released() -> None:
    solution = tiny()
    del solution.cells[1]["id"]
    with pytest.raises(NotebookError, match=r"the notebook, cell 2 \(id missing\) has no id"):
        release(solution)


def test_a_notebook_ends_with_one_newline() -> None:
    assert to_bytes(tiny()).endswith(b"}\n")


@needs.nbgrader
def test_a_missing_stale_or_surplus_lesson_is_named(solution: Path) -> None:
    solutions, lessons = solution.parent, solution.parent.with_name("lessons")
    [missing] = check_lessons(solutions, lessons)
    assert missing.startswith("lessons/01_tiny.ipynb is missing") and "make lessons" in missing

    [lesson] = write_lessons(solutions, lessons)
    assert check_lessons(solutions, lessons) == []

    lesson.write_bytes(lesson.read_bytes() + b"\n")
    (lessons / "00_old.ipynb").write_bytes(b"")
    surplus, stale = check_lessons(solutions, lessons)
    assert surplus.startswith("lessons/00_old.ipynb has no solutions/00_old.ipynb") and "make lessons" in surplus
    assert stale.startswith("lessons/01_tiny.ipynb is not what") and "make lessons" in stale

    assert write_lessons(solutions, lessons) == [lesson] == list(lessons.iterdir())
    assert check_lessons(solutions, lessons) == []


@needs.nbgrader
def test_nothing_is_written_unless_everything_can_be(solution: Path) -> None:
    solutions, lessons = solution.parent, solution.parent.with_name("lessons")
    [lesson] = write_lessons(solutions, lessons)
    before = lesson.read_bytes()
    edit(solution, set_source(0, "# Another title"))
    (solutions / "02_broken.ipynb").write_text("{}")
    with pytest.raises(NotebookError, match="02_broken"):
        write_lessons(solutions, lessons)
    for path in solutions.iterdir():
        path.unlink()
    with pytest.raises(NotebookError, match="solutions/ has no notebook"):
        write_lessons(solutions, lessons)
    assert lesson.read_bytes() == before


def test_without_nbgrader_the_error_says_so(monkeypatch: pytest.MonkeyPatch) -> None:
    for module in ("nbgrader", "nbgrader.preprocessors"):
        monkeypatch.setitem(sys.modules, module, None)
    with pytest.raises(NotebookError, match="nbgrader, which is not installed"):
        release(tiny())


# Executing


def test_widgets_and_chunks_of_a_stream_leave_no_trace() -> None:
    view = {"application/vnd.jupyter.widget-view+json": {"model_id": "random"}, "text/plain": "IntSlider(value=0)"}
    nb = tiny()
    nb.cells[1].outputs = [new_output("stream", text=text) for text in "ab"] + [new_output("display_data", view)]
    text, slider = normalised(nb).cells[1].outputs
    assert text.text == "ab" and slider.data == {"text/plain": "IntSlider(value=0)"}


def test_chunks_of_different_streams_stay_apart() -> None:
    nb = tiny()
    nb.cells[1].outputs = [new_output("stream", text="a"), new_output("stream", name="stderr", text="b")]
    assert [output.text for output in normalised(nb).cells[1].outputs] == ["a", "b"]


def test_a_notebook_that_is_normalised_stays_as_it_is() -> None:
    nb = tiny()
    nb.cells[1].metadata.collapsed = True
    normalised(nb)
    assert nb.cells[1].metadata.collapsed


@needs.nbgrader
def test_execute_stores_fresh_outputs_and_generates_the_lesson(solution: Path, capfd: pytest.CaptureFixture) -> None:
    facts = f"""import os, sys
assert sys.executable == {sys.executable!r}
assert os.getcwd() == {str(solution.parent.resolve())!r}
assert os.environ["PYTHONPATH"].split(os.pathsep)[0] == {str(ROOT)!r}
from tqdm import tqdm
for _ in tqdm(range(3)):
    print("row")
"""

    def prepare(nb: NotebookNode) -> None:
        nb.metadata.kernelspec = {"display_name": "gone", "language": "python", "name": "no-such-kernel"}
        nb.cells[1].source = facts
        nb.cells[3].source = "double(21)"

    edit(solution, prepare)
    assert main(["--root", str(solution.parents[1]), "execute", "01"]) == 0
    stored = read_notebook(solution)
    assert solution.read_bytes() == to_bytes(normalised(stored))
    assert [cell.execution_count for cell in stored.cells if cell.cell_type == "code"] == [1, 2, 3]
    assert "version" not in stored.metadata.language_info
    assert stored.cells[1].outputs == [new_output("stream", text="row\nrow\nrow\n")]
    assert stored.cells[3].outputs[0].data["text/plain"] == "42.0"
    assert "double(21)" in (solution.parent.with_name("lessons") / solution.name).read_text()
    assert "1 lessons written" in capfd.readouterr().out


def test_the_kernel_is_of_this_python_whatever_the_machine_calls_python3(
    solution: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    spec = tmp_path / "jupyter" / "kernels" / "python3" / "kernel.json"
    spec.parent.mkdir(parents=True)
    spec.write_text('{"argv": ["false"], "display_name": "another", "language": "python"}')
    monkeypatch.setenv("JUPYTER_PATH", str(tmp_path / "jupyter"))
    edit(solution, set_source(3, ""))
    execute(solution)
    assert read_notebook(solution).cells[1].outputs == [new_output("stream", text="a\n")]


@pytest.mark.thinned(0)
def test_progress_is_that_of_a_learner_who_has_solved_the_lessons_before(solution: Path) -> None:
    third = solution.rename(solution.with_name("03_tiny.ipynb"))
    (solution.parent / "progress.json").write_text('{"online": 5}')
    edit(third, set_source(1, "from helpers.check import kept\nprint(kept.points())"))
    edit(third, set_source(3, ""))
    execute(third)
    told = "{'overflow': 2, 'eager': 2, 'single_tile': 4}\n"
    assert read_notebook(third).cells[1].outputs == [new_output("stream", text=told)]


def test_a_cell_from_which_everything_was_deleted_has_no_outputs(solution: Path) -> None:
    edit(solution, set_source(1, ""))
    edit(solution, set_source(3, ""))
    execute(solution)
    assert read_notebook(solution).cells[1].outputs == []


def test_a_kernel_imports_our_helpers_and_draws_into_the_notebook(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PYTHONPATH", "elsewhere")
    monkeypatch.setenv("MPLBACKEND", "agg")
    environment = kernel_environment()
    assert environment["PYTHONPATH"].split(os.pathsep) == [str(ROOT), "elsewhere"]
    assert "MPLBACKEND" not in environment


def test_a_failing_cell_is_named_and_nothing_stored(
    solution: Path, capfd: pytest.CaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    for module in ("nbgrader", "nbgrader.preprocessors"):
        monkeypatch.setitem(sys.modules, module, None)
    monkeypatch.delitem(sys.modules, "helpers.instructor.publish.execute")
    edit(solution, set_source(2, "raise ValueError('a\\nlast line')"))
    before = solution.read_bytes()
    assert main(["--root", str(solution.parents[1]), "execute"]) == 1
    out, err = capfd.readouterr()
    assert "error: solutions/01_tiny.ipynb, cell 3 (id answer): last line\n" in err
    assert "make lessons" in out
    assert solution.read_bytes() == before


@pytest.mark.thinned(0)
def test_a_cell_that_does_not_end_is_named(solution: Path) -> None:
    edit(solution, set_source(1, "while True: pass"))
    with pytest.raises(NotebookError, match=r"cell 2 \(id run\): not finished after 1 s"):
        execute(solution, timeout=1)


# The command line


@needs.nbgrader
def test_command_line_writes_and_checks_lessons(solution: Path, capsys: pytest.CaptureFixture) -> None:
    root = ["--root", str(solution.parents[1])]
    assert main([*root, "lessons", "--check"]) == 1
    assert "lessons/01_tiny.ipynb is missing" in capsys.readouterr().out
    assert main([*root, "lessons"]) == 0
    assert main([*root, "lessons", "--check"]) == 0
    solution.write_text("{}")
    assert main([*root, "lessons", "--check"]) == 1
    assert capsys.readouterr().err.startswith("error: solutions/01_tiny.ipynb is nbformat 0.0")


def test_command_line_names_an_unknown_solution(solution: Path, capsys: pytest.CaptureFixture) -> None:
    assert main(["--root", str(solution.parents[1]), "execute", "7"]) == 1
    assert capsys.readouterr().err == "error: '7' stands for 0 notebooks; choose one of 01_tiny.\n"


@pytest.mark.parametrize("command", [[], ["lessons"], ["execute"]], ids=" ".join)
def test_every_command_explains_itself(command: list[str], capsys: pytest.CaptureFixture) -> None:
    with pytest.raises(SystemExit, match="0"):
        main([*command, "--help"])
    assert "usage: python -m helpers.instructor" in capsys.readouterr().out
