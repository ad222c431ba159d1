"""What solutions/ and lessons/ have to be, and that the tools which make them keep to it.

A rule is a function of a notebook that says, in one sentence each, what breaks it. Every rule is held against every
notebook of the course, and, because a course without notebooks breaks none, against a tiny notebook with one defect.
"""

import ast
import re
from collections import Counter
from collections.abc import Callable, Iterator
from functools import cache
from html import unescape
from pathlib import Path

import nbformat
import pytest
from nbformat import NotebookNode
from nbformat.v4 import new_code_cell, new_markdown_cell, new_output

import needs
from helpers.instructor.publish.notebooks import normalised, place, read_notebook, to_bytes
from helpers.instructor.publish.release import BEGIN, END, check_lessons, release, release_bytes
from tiny import HINTS, SHUFFLED, add_cells, set_source, tiny

ROOT = Path(__file__).resolve().parents[2]
SOLUTIONS_DIR, LESSONS_DIR = ROOT / "solutions", ROOT / "lessons"
SOLUTIONS, LESSONS = sorted(SOLUTIONS_DIR.glob("*.ipynb")), sorted(LESSONS_DIR.glob("*.ipynb"))

MOST_CELLS, MOST_WORDS = 45, 80
ENDING = {"what-next", "elsewhere", "page"}
"""The cells after the last lesson, which are no part of it."""
LINES, KERNEL_LINES = 15, 25
WIDTH, KERNEL_WIDTH = 88, 112
"""Characters of a line of code. In JupyterLab's own font a window of 700 px shows 74, one of 868 px 88, one of 1,000 px
105; a load with its mask stays in one line."""

MACHINE_PATH = re.compile(r"(?<![\w.])/(?:work|tmp|root|home|Users)/")
METADATA_TYPES = {"schema_version": int, "grade_id": str, "grade": bool, "solution": bool, "locked": bool}

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
            numbers = re.findall(r"<details\b[^>]*>(?:<summary>Hint (\d) · )?", below.source)
            if below.cell_type != "markdown" or numbers not in [list("12345")[:most] for most in (3, 4, 5)]:
                yield f"{where}: the cell after a check has to hold three to five hints, numbered, each in <details>."


def lines_out_of_order_are_those_of_the_solution(nb: NotebookNode) -> Iterator[str]:
    """A last hint that gives the lines of the answer gives all but its comments, in another order than they have."""
    for index, cell in enumerate(nb.cells):
        shuffled = re.search(r"The lines, out of order</summary>.*?<pre>(.*?)</pre>", cell.source, re.DOTALL)
        if shuffled:
            lines = [line.strip() for line in regions(nb.cells[index - 2].source)[0]]
            answer = [line for line in lines if not line.startswith("#")]
            given = [line.strip() for line in unescape(shuffled[1]).strip().splitlines()]
            if sorted(given) != sorted(answer) or given == answer:
                yield f"{place('the notebook', index, cell)}: its lines are not the solution's, or are in its order."


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
    if (count := sum(cell.get("id") not in ENDING for cell in nb.cells)) > MOST_CELLS:
        yield f"{count} cells; at most about {MOST_CELLS} make a lesson."
    for where, cell in cells(nb, "markdown"):
        words = sum(bool(re.search(r"\w", word)) for word in unfolded(cell).split())
        if words > MOST_WORDS:
            yield f"{where}: {words} words; one idea takes at most {MOST_WORDS}."
    for where, cell in cells(nb):
        code = [*filter(str.strip, cell.source.splitlines())]
        most, width = (KERNEL_LINES, KERNEL_WIDTH) if "@triton.jit" in cell.source else (LINES, WIDTH)
        if len(code) > most:
            yield f"{where}: {len(code)} lines of code; at most {most}."
        if (widest := max(map(len, code), default=0)) > width:
            yield f"{where}: a line of {widest} characters, which scrolls sideways; at most {width}."


def unfolded(cell: NotebookNode) -> str:
    """What a reader sees of a text before opening anything."""
    return re.sub(r"<details>.*?</details>", "", cell.source, flags=re.DOTALL)


# Rules for lessons whose readers are to find out for themselves


def guesses_have_a_place(nb: NotebookNode) -> Iterator[str]:
    for index, cell in enumerate(nb.cells):
        below = nb.cells[index + 1].source if index + 1 < len(nb.cells) else ""
        if cell.cell_type == "markdown" and re.search(r"\b([Gg]uess|Predict)\b", unfolded(cell)):
            if "predict.guess(" not in below:
                yield f"{place('the notebook', index, cell)}: it asks for a guess, and the next cell keeps none."


def no_kernel_is_shown_before_it_is_asked_for(nb: NotebookNode) -> Iterator[str]:
    """Kernels that are given before the last exercise take no exponentials: the learner's is the first that does."""
    last = max((index for index, cell in enumerate(nb.cells) if is_check(cell)), default=0)
    for index, cell in enumerate(nb.cells[:last]):
        given = cell.cell_type == "code" and not marks(cell, "solution")
        if given and "@triton.jit" in cell.source and "tl.exp" in cell.source:
            yield f"{place('the notebook', index, cell)}: a kernel with tl.exp, before the exercise that asks for it."


def thousands_have_commas(nb: NotebookNode) -> Iterator[str]:
    for where, cell in cells(nb, "markdown"):
        if found := re.search(r"\b\d{1,3}[ \u00a0\u202f]\d{3}\b|(?<![\w.,/])\d{5,}\b", cell.source):
            yield f"{where}: {found[0]} has no comma between its thousands."


RULES: list[Rule] = [
    nbgrader_metadata_is_whole,
    checks_are_graded_safely,
    exercises_are_complete,
    cells_run_anywhere,
    names_no_machine,
]
SOLUTION_RULES: list[Rule] = [
    *RULES,
    solution_cells_have_regions,
    lines_out_of_order_are_those_of_the_solution,
    is_executed,
    solutions_earn_full_points,
]
LESSON_RULES: list[Rule] = [*RULES, is_cleared, is_short, guesses_have_a_place, thousands_have_commas]


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


@pytest.mark.parametrize("path", LESSONS[:7], ids=lambda path: path.stem)
def test_the_first_lessons_show_no_kernel_before_it_is_asked_for(path: Path) -> None:
    assert not list(no_kernel_is_shown_before_it_is_asked_for(cached(path)))


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


@needs.nbgrader
def test_lessons_are_what_the_solutions_generate() -> None:
    assert not check_lessons(SOLUTIONS_DIR, LESSONS_DIR)


@needs.nbgrader
@over_solutions
def test_generating_twice_gives_the_same_bytes(path: Path) -> None:
    assert release_bytes(path) == release_bytes(path)


# The rules, on a tiny course


@pytest.mark.parametrize("rule", SOLUTION_RULES, ids=lambda rule: rule.__name__)
def test_rule_accepts_a_good_solution(rule: Rule) -> None:
    assert not list(rule(tiny()))


@needs.nbgrader
@pytest.mark.parametrize(
    "rule", [*LESSON_RULES, no_kernel_is_shown_before_it_is_asked_for], ids=lambda rule: rule.__name__
)
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
        (exercises_are_complete, set_source(4, HINTS.replace("Hint 2 · ", ""))),
        (exercises_are_complete, set_source(4, HINTS.replace("Hint 2", "Hint 3"))),
        (exercises_are_complete, lambda nb: nb.cells.insert(3, new_code_cell("double(1)"))),
        (lines_out_of_order_are_those_of_the_solution, set_source(4, HINTS + SHUFFLED.format("doubled = 2 * x"))),
        (lines_out_of_order_are_those_of_the_solution, set_source(4, HINTS + SHUFFLED.format("doubled = x + 1.0 * x"))),
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
        (guesses_have_a_place, set_source(0, "Guess how many.")),
        (no_kernel_is_shown_before_it_is_asked_for, set_source(1, "@triton.jit\ndef f(x):\n    tl.exp(x)")),
        (thousands_have_commas, set_source(0, "131 072 columns")),
        (thousands_have_commas, set_source(0, "131072 columns")),
        (is_short, add_cells(MOST_CELLS)),
        (is_short, set_source(0, "word " * (MOST_WORDS + 1))),
        (is_short, set_source(1, "x = 1\n\n" * (LINES + 1))),
        (is_short, set_source(1, "@triton.jit\n" + "x = 1\n" * KERNEL_LINES)),
        (is_short, set_source(1, "x" * (WIDTH + 1))),
        (is_short, set_source(1, "@triton.jit\n" + "x" * (KERNEL_WIDTH + 1))),
    ],
)
def test_rule_names_what_breaks_it(rule: Rule, change: Callable[[NotebookNode], object]) -> None:
    nb = tiny()
    change(nb)
    assert list(rule(nb))


def test_a_kernel_and_a_folded_text_may_be_longer_and_a_link_may_hold_home() -> None:
    nb = tiny()
    nb.cells[0].source = "[docs](https://example.org/home/x)" + "<details>" + "word " * MOST_WORDS + "</details>"
    nb.cells[1].source = "@triton.jit\n" + "x" * KERNEL_WIDTH + "\n" + "x = 1\n" * (KERNEL_LINES - 2)
    assert not [*is_short(nb), *names_no_machine(nb)]


@needs.nbgrader
def test_an_answer_in_the_lesson_is_found() -> None:
    solution, lesson = tiny(), release(tiny())
    assert not list(answers_in(lesson, solution))
    lesson.cells[1].source = "doubled = x + 1.0 * x"
    assert list(answers_in(lesson, solution))


def test_the_tiny_solution_is_a_valid_notebook() -> None:
    nbformat.validate(tiny())


# The page of names


def test_the_page_of_names_has_what_the_kernels_use_and_every_lesson_with_kernels_links_to_it() -> None:
    (page,) = (cell.source for p in SOLUTIONS for cell in cached(p).cells if cell.id == "names")
    listed = set(re.findall(r"<code>(?:\w+\.to\()?tl\.(\w+)", page)) | {"int64"}
    for path in SOLUTIONS:
        code = "\n".join(cell.source for _, cell in cells(cached(path)))
        assert set(re.findall(r"\btl\.(\w+)", code)) <= listed, path.name
        texts = [cell.source for _, cell in cells(cached(path), "markdown")]
        if "@triton.jit" in code and page not in texts:
            assert any("(02_your_first_kernel.ipynb#The-names-of-tl)" in text for text in texts), path.name
