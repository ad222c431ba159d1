"""What solutions/ and lessons/ have to be, and that the tools which make them keep to it.

A rule is a function of a notebook that says, in one sentence each, what breaks it. Every rule is held against every
notebook of the course, and, because a course without notebooks breaks none, against a tiny notebook with one defect.
"""

import ast
import re
import sys
import warnings
from collections import Counter
from collections.abc import Callable, Iterator
from functools import cache
from importlib.util import find_spec
from pathlib import Path

import nbformat
import pytest
from nbformat import NotebookNode
from nbformat.v4 import new_code_cell, new_markdown_cell, new_notebook, new_output

from helpers.instructor.__main__ import main
from helpers.instructor.publish.execute import execute
from helpers.instructor.publish.notebooks import NotebookError, normalised, place, read_notebook, to_bytes
from helpers.instructor.publish.release import BEGIN, END, check_lessons, release, release_bytes, write_lessons

ROOT = Path(__file__).resolve().parents[2]
SOLUTIONS_DIR, LESSONS_DIR = ROOT / "solutions", ROOT / "lessons"
SOLUTIONS, LESSONS = sorted(SOLUTIONS_DIR.glob("*.ipynb")), sorted(LESSONS_DIR.glob("*.ipynb"))

CELLS, MOST_CELLS = 35, 36
LINES, KERNEL_LINES = 15, 25
MACHINE_PATH = re.compile(r"(?<![\w.])/(?:work|tmp|root|home|Users)/")
METADATA_TYPES = {"schema_version": int, "grade_id": str, "grade": bool, "solution": bool, "locked": bool}

needs_nbgrader = pytest.mark.skipif(not find_spec("nbgrader"), reason="lessons are generated with nbgrader")
over_solutions = pytest.mark.parametrize("path", SOLUTIONS, ids=lambda path: path.stem)
over_lessons = pytest.mark.parametrize("path", LESSONS, ids=lambda path: path.stem)

Rule = Callable[[NotebookNode], Iterator[str]]
cached = cache(read_notebook)


# Parts of a notebook


def cells(nb: NotebookNode, kind: str = "code") -> Iterator[tuple[str, NotebookNode]]:
    """Every cell of a kind, with the words that name it."""
    for index, cell in enumerate(nb.cells):
        if cell.cell_type == kind:
            yield place("the notebook", index, cell), cell


def marks(cell: NotebookNode, name: str) -> bool:
    """Whether nbgrader takes the cell for a ``grade`` or ``solution`` cell."""
    return cell.metadata.get("nbgrader", {}).get(name, False)


def is_check(cell: NotebookNode) -> bool:
    """Whether the cell is graded by running it, not answered in."""
    return marks(cell, "grade") and not marks(cell, "solution")


def regions(source: str) -> tuple[list[str], list[str]]:
    """The lines of a cell inside and outside its solution regions, without the markers."""
    inside, outside, within = [], [], False
    for line in source.splitlines():
        if BEGIN in line or END in line:
            within = BEGIN in line
        else:
            (inside if within else outside).append(line)
    return inside, outside


# Rules for solutions and lessons


def nbgrader_metadata_is_whole(nb: NotebookNode) -> Iterator[str]:
    for index, cell in enumerate(nb.cells):
        metadata = cell.metadata.get("nbgrader")
        if metadata is not None:
            where = place("the notebook", index, cell)
            for key, kind in METADATA_TYPES.items():
                if not isinstance(metadata.get(key), kind):
                    yield f"{where}: nbgrader.{key} is not of type {kind.__name__}."
            if metadata.get("schema_version") != 3:
                yield f"{where}: nbgrader.schema_version is not 3."


def checks_are_graded_safely(nb: NotebookNode) -> Iterator[str]:
    for where, cell in cells(nb):
        if not is_check(cell):
            continue
        if not cell.metadata.nbgrader.get("points", 0) > 0:
            yield f"{where}: a graded cell needs points above 0."
        if not cell.metadata.nbgrader.get("locked"):
            yield f"{where}: a graded cell has to be locked."
        statements = ast.parse(cell.source).body
        if not re.search(r"^from helpers import (\w+, )*check\b", cell.source, re.MULTILINE):
            yield f"{where}: without 'from helpers import check' in the graded cell, a learner can replace check."
        match statements[-1:]:
            case [ast.Expr(ast.Call(ast.Attribute(ast.Name("check"))))] if not cell.source.rstrip().endswith(";"):
                pass
            case _:
                yield f"{where}: the last line has to be check.NAME(...), or nbgrader gives full points."


def exercises_are_complete(nb: NotebookNode) -> Iterator[str]:
    for index, cell in enumerate(nb.cells):
        if is_check(cell):
            where = place("the notebook", index, cell)
            if index == 0 or not marks(nb.cells[index - 1], "solution"):
                yield f"{where}: the cell before a check has to be the solution cell."
            below = nb.cells[index + 1] if index + 1 < len(nb.cells) else new_markdown_cell()
            if below.cell_type != "markdown" or len(re.findall(r"<details\b", below.source)) != 3:
                yield f"{where}: the cell after a check has to hold three hints, each in <details>."


def cells_run_anywhere(nb: NotebookNode) -> Iterator[str]:
    for where, cell in cells(nb):
        if re.search(r"^\s*(!|%%(!|bash|sh|script|system)\b|%(sx|system)\b)", cell.source, re.MULTILINE):
            yield f"{where}: a shell command."
        if "raises-exception" in cell.metadata.get("tags", []):
            yield f"{where}: the tag raises-exception."
        if cell.source.rstrip().endswith(";"):
            yield f"{where}: ends in ';', which nbval fails on: call plt.show()."


def names_no_machine(nb: NotebookNode) -> Iterator[str]:
    for index, cell in enumerate(nb.cells):
        texts = [cell.source]
        for output in cell.get("outputs", []):
            texts.append(output.get("text", ""))
            texts += [str(data) for kind, data in output.get("data", {}).items() if not kind.startswith("image/p")]
        if found := MACHINE_PATH.search("\n".join(texts)):
            yield f"{place('the notebook', index, cell)}: {found[0]} is a path of one machine."


# Rules for solutions


def solution_cells_have_regions(nb: NotebookNode) -> Iterator[str]:
    for index, cell in enumerate(nb.cells):
        if marks(cell, "solution") and not (f"### {BEGIN}" in cell.source and f"### {END}" in cell.source):
            yield f"{place('the notebook', index, cell)}: no '### {BEGIN}' and '### {END}'."


def is_executed(nb: NotebookNode) -> Iterator[str]:
    filled = [(where, cell) for where, cell in cells(nb) if cell.source.strip()]
    for count, (where, cell) in enumerate(filled, start=1):
        if cell.execution_count != count:
            yield f"{where}: execution count {cell.execution_count} instead of {count}: run `make solutions`."
        if any(output.output_type == "error" for output in cell.outputs):
            yield f"{where}: ended in an error."


def solutions_earn_full_points(nb: NotebookNode) -> Iterator[str]:
    for where, cell in cells(nb):
        if is_check(cell):
            if any(output.get("name") == "stderr" for output in cell.outputs):
                yield f"{where}: nbgrader gives 0 points to a cell that writes to stderr."
            results = [o.data.get("text/plain") for o in cell.outputs if o.output_type == "execute_result"]
            try:
                earned = [float(result) for result in results]
            except (TypeError, ValueError):
                earned = results
            if earned != [cell.metadata.nbgrader.get("points")]:
                yield f"{where}: its result is {results}, not its points as one bare number."


# Rules for lessons


def is_cleared(nb: NotebookNode) -> Iterator[str]:
    for where, cell in cells(nb):
        if cell.outputs or cell.execution_count is not None:
            yield f"{where}: carries outputs or an execution count."
    for index, cell in enumerate(nb.cells):
        if BEGIN in cell.source or END in cell.source:
            yield f"{place('the notebook', index, cell)}: carries a solution marker."


def is_short(nb: NotebookNode) -> Iterator[str]:
    if len(nb.cells) > MOST_CELLS:
        yield f"{len(nb.cells)} cells; at most about {CELLS} make a lesson."
    elif len(nb.cells) > CELLS:
        warnings.warn(f"{len(nb.cells)} cells; a lesson should have at most {CELLS}", stacklevel=2)
    for where, cell in cells(nb):
        lines, most = len([*filter(str.strip, cell.source.splitlines())]), LINES
        if "@triton.jit" in cell.source:
            most = KERNEL_LINES
        if lines > most:
            yield f"{where}: {lines} lines of code; at most {most}."


RULES: list[Rule] = [
    nbgrader_metadata_is_whole,
    checks_are_graded_safely,
    exercises_are_complete,
    cells_run_anywhere,
    names_no_machine,
]
SOLUTION_RULES: list[Rule] = [*RULES, solution_cells_have_regions, is_executed, solutions_earn_full_points]
LESSON_RULES: list[Rule] = [*RULES, is_cleared, is_short]


def answers_in(lesson: NotebookNode, solution: NotebookNode) -> Iterator[str]:
    """Lines of 15 characters or more that only the solution's regions may hold, and the lesson's code holds."""
    split = [regions(cell.source) for _, cell in cells(solution)]
    answers = {line.strip() for inside, _ in split for line in inside}
    given = "\n".join(line for _, outside in split for line in outside)
    code = "\n".join(cell.source for _, cell in cells(lesson))
    for line in sorted(answers):
        if len(line) >= 15 and line in code and line not in given:
            yield f"The lesson holds the answer '{line}'."


# The course


@over_solutions
@pytest.mark.parametrize("rule", SOLUTION_RULES, ids=lambda rule: rule.__name__)
def test_solution(path: Path, rule: Rule) -> None:
    assert not list(rule(cached(path)))


@over_lessons
@pytest.mark.parametrize("rule", LESSON_RULES, ids=lambda rule: rule.__name__)
def test_lesson(path: Path, rule: Rule) -> None:
    assert not list(rule(cached(path)))


@over_lessons
def test_lesson_holds_no_answer(path: Path) -> None:
    assert not list(answers_in(cached(path), cached(SOLUTIONS_DIR / path.name)))


@over_solutions
def test_solution_is_stored_as_execute_stores_it(path: Path) -> None:
    assert path.read_bytes() == to_bytes(normalised(cached(path))), f"{path.name}: run `make solutions`."


def test_every_solution_has_its_lesson() -> None:
    assert [path.name for path in SOLUTIONS] == [path.name for path in LESSONS], "run `make lessons`"


def test_grade_ids_are_unique_over_the_course() -> None:
    found = [
        cell.metadata.nbgrader.grade_id for p in SOLUTIONS for cell in cached(p).cells if "nbgrader" in cell.metadata
    ]
    assert not [grade_id for grade_id, uses in Counter(found).items() if uses > 1]


@needs_nbgrader
@pytest.mark.skipif(not SOLUTIONS, reason="no solutions yet")
def test_lessons_are_what_the_solutions_generate() -> None:
    assert not check_lessons(SOLUTIONS_DIR, LESSONS_DIR)


@needs_nbgrader
@over_solutions
def test_generating_twice_gives_the_same_bytes(path: Path) -> None:
    assert release_bytes(path) == release_bytes(path)


# The tools and rules, on a tiny course

ANSWER = """def double(x):
    doubled = x
    ### BEGIN SOLUTION
    doubled = x + 1.0 * x
    ### END SOLUTION
    return doubled"""
HINTS = "\n".join(f"<details><summary>{symptom}</summary>…</details>" for symptom in ("zero", "NaN", "too large"))


def nbgrader(grade_id: str, **metadata: object) -> dict:
    """nbgrader's metadata of one cell."""
    return {
        "nbgrader": {"schema_version": 3, "grade_id": grade_id, "grade": False, "solution": False, "locked": False}
        | metadata
    }


def tiny() -> NotebookNode:
    """One exercise that keeps to every rule, as if it had been executed."""
    result = new_output("execute_result", {"text/plain": "2"}, execution_count=3)
    return normalised(
        new_notebook(
            cells=[
                new_markdown_cell("# How long is a row?", id="title"),
                new_code_cell("print('a')", id="run", execution_count=1, outputs=[new_output("stream", text="a\n")]),
                new_code_cell(ANSWER, id="answer", execution_count=2, metadata=nbgrader("double", solution=True)),
                new_code_cell(
                    "from helpers import check\n\ncheck.double(double)",
                    id="check",
                    execution_count=3,
                    outputs=[result],
                    metadata=nbgrader("double-check", grade=True, locked=True, points=2),
                ),
                new_markdown_cell(HINTS, id="hints"),
            ]
        )
    )


@pytest.fixture
def solution(tmp_path: Path) -> Path:
    """The tiny notebook as the only solution of a course."""
    path = tmp_path / "solutions" / "01_tiny.ipynb"
    path.parent.mkdir()
    path.write_bytes(to_bytes(tiny()))
    return path


def edit(path: Path, change: Callable[[NotebookNode], object]) -> None:
    """Store a notebook after a change."""
    nb = read_notebook(path)
    change(nb)
    path.write_bytes(to_bytes(nb))


def set_source(index: int, source: str) -> Callable[[NotebookNode], None]:
    """A change of one cell's source."""
    return lambda nb: nb.cells[index].update(source=source)


def add_cells(number: int) -> Callable[[NotebookNode], None]:
    """A change that appends text cells."""
    return lambda nb: nb.cells.extend(new_markdown_cell("…") for _ in range(number))


@pytest.mark.parametrize("rule", SOLUTION_RULES, ids=lambda rule: rule.__name__)
def test_rule_accepts_a_good_solution(rule: Rule) -> None:
    assert not list(rule(tiny()))


@needs_nbgrader
@pytest.mark.parametrize("rule", LESSON_RULES, ids=lambda rule: rule.__name__)
def test_rule_accepts_a_good_lesson(rule: Rule) -> None:
    assert not list(rule(release(tiny())))


@pytest.mark.parametrize(
    ("rule", "change"),
    [
        (nbgrader_metadata_is_whole, lambda nb: nb.cells[2].metadata.nbgrader.pop("locked")),
        (nbgrader_metadata_is_whole, lambda nb: nb.cells[2].metadata.nbgrader.update(schema_version=2)),
        (checks_are_graded_safely, lambda nb: nb.cells[3].metadata.nbgrader.update(points=0)),
        (checks_are_graded_safely, lambda nb: nb.cells[3].metadata.nbgrader.update(locked=False)),
        (checks_are_graded_safely, set_source(3, "check.double(double)")),
        (checks_are_graded_safely, set_source(3, "from helpers import check\ncheck.double(double);")),
        (checks_are_graded_safely, set_source(3, "from helpers import check\nscore = check.double(double)")),
        (checks_are_graded_safely, set_source(3, "")),
        (exercises_are_complete, lambda nb: nb.cells.pop(4)),
        (exercises_are_complete, set_source(4, HINTS + "<details></details>")),
        (exercises_are_complete, lambda nb: nb.cells.insert(3, new_code_cell("double(1)"))),
        (cells_run_anywhere, set_source(1, "!nvidia-smi")),
        (cells_run_anywhere, set_source(1, "%%bash\nnvidia-smi")),
        (cells_run_anywhere, set_source(1, "plt.plot(x);")),
        (cells_run_anywhere, lambda nb: nb.cells[1].metadata.update(tags=["raises-exception"])),
        (names_no_machine, set_source(1, "open('/tmp/x')")),
        (names_no_machine, lambda nb: nb.cells[1].outputs[0].update(text="in /home/me/x.py")),
        (solution_cells_have_regions, set_source(2, "double = 2")),
        (is_executed, lambda nb: nb.cells[1].update(execution_count=None)),
        (is_executed, lambda nb: nb.cells[1].update(execution_count=7)),
        (is_executed, lambda nb: nb.cells[1].outputs.append(new_output("error", ename="E", evalue="", traceback=[]))),
        (solutions_earn_full_points, lambda nb: nb.cells[3].outputs[0].data.update({"text/plain": "1.5"})),
        (solutions_earn_full_points, lambda nb: nb.cells[3].outputs[0].data.update({"text/plain": "well done"})),
        (solutions_earn_full_points, lambda nb: nb.cells[3].outputs.clear()),
        (solutions_earn_full_points, lambda nb: nb.cells[3].outputs.append(new_output("stream", name="stderr"))),
        (is_cleared, lambda nb: nb.cells[1].update(outputs=[])),
        (is_short, add_cells(MOST_CELLS)),
        (is_short, set_source(1, "x = 1\n\n" * (LINES + 1))),
        (is_short, set_source(1, "@triton.jit\n" + "x = 1\n" * KERNEL_LINES)),
    ],
)
def test_rule_names_what_breaks_it(rule: Rule, change: Callable[[NotebookNode], object]) -> None:
    nb = tiny()
    change(nb)
    assert list(rule(nb))


def test_a_kernel_may_be_longer_and_a_link_may_hold_home() -> None:
    nb = tiny()
    nb.cells[0].source = "[docs](https://example.org/home/x)"
    nb.cells[1].source = "@triton.jit\n" + "x = 1\n" * (KERNEL_LINES - 1)
    assert not [*is_short(nb), *names_no_machine(nb)]


def test_many_cells_warn() -> None:
    nb = tiny()
    add_cells(CELLS + 1 - len(nb.cells))(nb)
    with pytest.warns(UserWarning, match=f"{CELLS + 1} cells"):
        assert not list(is_short(nb))


@needs_nbgrader
def test_an_answer_in_the_lesson_is_found() -> None:
    solution, lesson = tiny(), release(tiny())
    assert not list(answers_in(lesson, solution))
    lesson.cells[1].source = "doubled = x + 1.0 * x"
    assert list(answers_in(lesson, solution))


# Releasing


@needs_nbgrader
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


@needs_nbgrader
def test_a_kernel_of_which_nothing_is_left_is_still_python() -> None:
    solution = tiny()
    solution.cells[
        2
    ].source = (
        "@triton.jit\ndef kernel(x, BLOCK: tl.constexpr):\n    ### BEGIN SOLUTION\n    tl.load(x)\n    ### END SOLUTION"
    )
    assert release(solution).cells[2].source.endswith("tl.constexpr):\n    # your code here\n    pass")


@needs_nbgrader
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


@needs_nbgrader
@pytest.mark.parametrize(
    ("change", "message"),
    [
        (set_source(2, "double = 2"), r"cell 3 \(id answer\) is a solution cell without"),
        (set_source(2, ANSWER.replace("### END SOLUTION", "")), r"cell 3 \(id answer\): every '### BEGIN SOLUTION'"),
        (set_source(2, ANSWER.replace("### BEGIN SOLUTION", "")), r"cell 3 \(id answer\): every '### BEGIN SOLUTION'"),
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


@needs_nbgrader
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


@needs_nbgrader
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
    with pytest.raises(NotebookError, match="no notebook in solutions/"):
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


@needs_nbgrader
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
    assert not list(is_executed(stored))
    assert "version" not in stored.metadata.language_info
    assert stored.cells[1].outputs == [new_output("stream", text="row\nrow\nrow\n")]
    assert stored.cells[3].outputs[0].data["text/plain"] == "42.0"
    assert "double(21)" in (solution.parent.with_name("lessons") / solution.name).read_text()
    assert "1 lessons written" in capfd.readouterr().out


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


def test_a_cell_that_does_not_end_is_named(solution: Path) -> None:
    edit(solution, set_source(1, "while True: pass"))
    with pytest.raises(NotebookError, match=r"cell 2 \(id run\): not finished after 1 s"):
        execute(solution, timeout=1)


# The command line


@needs_nbgrader
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
    assert capsys.readouterr().err == "error: '7' stands for 0 solutions; choose one of 01_tiny.\n"


@pytest.mark.parametrize("command", [[], ["lessons"], ["execute"]], ids=" ".join)
def test_every_command_explains_itself(command: list[str], capsys: pytest.CaptureFixture) -> None:
    with pytest.raises(SystemExit, match="0"):
        main([*command, "--help"])
    assert "usage: python -m helpers.instructor" in capsys.readouterr().out


def test_the_tiny_solution_is_a_valid_notebook() -> None:
    nbformat.validate(tiny())
