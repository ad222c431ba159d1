"""The instructor's command line: `python -m helpers.instructor COMMAND`.

A command is a function that adds its parser and sets `run`, which takes the arguments and returns the exit code;
list it in `COMMANDS`. `run` refuses wrong arguments and paths first, then says what it does, and only then imports what
takes seconds: `begin` does so for all that has to do with kernels.
"""

import argparse
import errno
import gc
import json
import os
import shlex
import stat
import sys
from collections.abc import Callable
from importlib.util import find_spec
from pathlib import Path
from typing import TextIO

from helpers.instructor import REPOSITORY
from helpers.instructor.collect.names import listed
from helpers.instructor.publish.notebooks import NotebookError


def add_lessons(commands: argparse._SubParsersAction) -> None:
    """Adds `lessons [--check]`."""
    about = "Generate lessons/ from solutions/."
    parser = commands.add_parser("lessons", help=about, description=about)
    parser.add_argument("--check", action="store_true", help="write nothing; list the lessons that are not up to date")
    parser.set_defaults(run=run_lessons)


def run_lessons(arguments: argparse.Namespace) -> int:
    """Writes the lessons, or compares them; 1 where one is not up to date."""
    announce("Generating the lessons from solutions/ …")
    from helpers.instructor.publish.release import check_lessons, write_lessons

    folders = arguments.root / "solutions", arguments.root / "lessons"
    if not arguments.check:
        print(f"{len(write_lessons(*folders))} lessons written to lessons/.")
        return 0
    complaints = check_lessons(*folders)
    print("\n".join(complaints) or "Every lesson is what its solution generates.")
    return int(bool(complaints))


def add_editions(commands: argparse._SubParsersAction) -> None:
    """Adds `editions`."""
    about = "Write the table of the lessons' editions, by which grading knows older ones, from git's history."
    commands.add_parser("editions", help=about, description=about).set_defaults(run=run_editions)


def run_editions(arguments: argparse.Namespace) -> int:
    """Writes the table."""
    announce("Reading the editions of the lessons from git's history …")
    from helpers.instructor.publish import editions

    print(f"{editions.write_editions(arguments.root)} editions written to {editions.TABLE}.")
    return 0


def add_execute(commands: argparse._SubParsersAction) -> None:
    """Adds `execute [NAME …]`."""
    about = "Re-execute solutions, store them with their outputs, and generate the lessons again."
    parser = commands.add_parser("execute", help=about, description=about)
    parser.add_argument("names", nargs="*", metavar="NAME", help="a solution, e.g. 01 or 01_eager_softmax; default all")
    parser.set_defaults(run=run_execute)


def run_execute(arguments: argparse.Namespace) -> int:
    """Executes every solution asked for, whether or not another fails; 1 where one failed."""
    paths = chosen(arguments.names, arguments.root / "solutions")
    announce(f"Executing {len(paths)} solutions …")
    begin()
    from helpers.instructor.publish.execute import execute

    failed = False
    for path in paths:
        try:
            execute(path)
        except NotebookError as error:
            complain(error)
            failed = True
    if find_spec("nbgrader"):
        run_lessons(argparse.Namespace(root=arguments.root, check=False))
    else:
        print("nbgrader is not installed here: run `make lessons` where it is.")
    return int(failed)


def add_course(commands: argparse._SubParsersAction) -> None:
    """Adds `course DIR [--lessons NAME …]`."""
    about = "Make an nbgrader course directory, one assignment for each lesson."
    parser = commands.add_parser("course", help=about, description=about)
    parser.add_argument(
        "dir", type=Path, metavar="DIR", help="the folder; one that exists gets the lessons that it lacks"
    )
    parser.add_argument("--lessons", nargs="+", default=[], metavar="NAME", help="e.g. 01 05; default all")
    parser.set_defaults(run=run_course)


def run_course(arguments: argparse.Namespace) -> int:
    """Makes the directory and says what to do with it."""
    from helpers.instructor.collect.course import make_course
    from helpers.instructor.publish import handout

    solutions = chosen(arguments.lessons, arguments.root / "solutions")
    announce(f"Making {len(solutions)} lessons in {arguments.dir} …")
    made = make_course(arguments.dir, solutions)
    many = "1 lesson" if len(made) == 1 else f"{len(made)} lessons"
    print(f"{many} made in {arguments.dir}, {len(solutions) - len(made)} were there already.")
    folder = handout.write_handout(arguments.dir, arguments.root)
    print(f"Hand out {folder}.zip, the course without solutions; nbgrader's exchange hands out its lessons alone.")
    print(f"What comes back belongs into {arguments.dir / 'submitted'}.")
    return 0


def add_grade(commands: argparse._SubParsersAction) -> None:
    """Adds `grade DIR`."""
    from helpers.instructor.collect.incoming import COUNTS
    from helpers.instructor.collect.lms import examples

    about = "Grade the hand-ins that have changed, and enter it into the gradebook."
    known = f"what --from reads, by system, as the system exports it, and the student's folder:\n{examples()}"
    plain = argparse.RawDescriptionHelpFormatter
    parser = commands.add_parser("grade", help=about, description=about, epilog=known, formatter_class=plain)
    parser.add_argument("dir", type=Path, metavar="DIR", help="the course directory")
    parser.add_argument("--lessons", nargs="+", default=[], metavar="NAME", help="e.g. 01 05; default all")
    parser.add_argument(
        "--from",
        dest="source",
        type=Path,
        metavar="PATH",
        help="a folder or zip of loose notebooks, as an LMS exports them: copied to submitted/ first",
    )
    parser.add_argument(
        "--counts",
        choices=COUNTS,
        default=COUNTS[0],
        help="which of several hand-ins of --from counts: the last, the last before the due date, or the best",
    )
    parser.add_argument("--lesson", metavar="NAME", help="what files of --from are whose names speak of no lesson")
    _add_students(parser)
    parser.add_argument("--again", action="store_true", help="also notebooks that have not changed, with new inputs")
    _add_roster(parser)
    where = parser.add_mutually_exclusive_group()
    where.add_argument("--jobs", type=_positive, metavar="N", help="submissions at a time (default: one a processor)")
    where.add_argument("--scheduler", metavar="ADDRESS", help="grade on a Dask cluster, e.g. tcp://10.0.0.1:8786")
    parser.add_argument("--gpu", action="store_true", help="also time right kernels, against a copy, on this GPU")
    _add_walls(parser)
    parser.set_defaults(run=run_grade)


def _add_walls(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--walls",
        choices=("namespaces", "landlock", "user", "limits"),
        help="what closes learners' code in (default: the first of namespaces, landlock, user that holds here; limits, "
        "which do not keep it from your files, only if you say so)",
    )


def _add_roster(parser: argparse.ArgumentParser) -> None:
    about = "a CSV of who is in the class, with columns folder, name, email, id (default: roster.csv in DIR)"
    parser.add_argument("--roster", type=Path, metavar="FILE", help=about)


def _add_students(parser: argparse.ArgumentParser) -> None:
    about = "some students: the folder, or the name, email, id or username of one (default: all)"
    parser.add_argument("--students", nargs="+", default=[], metavar="NAME", help=about)


def _positive(text: str) -> int:
    number = int(text)
    if number < 1:
        raise argparse.ArgumentTypeError("needs a number from 1 on")
    return number


def run_grade(arguments: argparse.Namespace) -> int:
    """Grades and prints the summary; 1 where anyone or anything was passed over or could not be graded."""
    from helpers.instructor.collect import course
    from helpers.instructor.collect.roster import roster_of

    if arguments.lesson and not arguments.source:
        raise NotebookError("--lesson says what the files of --from are. To grade some lessons, name them: --lessons.")
    released = course.lessons_of(arguments.dir)
    wanted = [path.stem for path in _of_course(arguments.lessons, arguments.dir)]
    people = roster_of(arguments.dir, arguments.roster)
    with course.alone(arguments.dir):
        return _grade(arguments, released, wanted, people)


def _grade(arguments: argparse.Namespace, released: dict[str, Path], wanted: list[str], people: list) -> int:
    """The same, with all that is known before anything is written."""
    from helpers.instructor.collect import submissions
    from helpers.instructor.collect.ledger import absent, in_several_folders, not_listed, read_ledger

    to_repair = _collect(arguments, list(released.values()), people) if arguments.source else False
    if composed := submissions.compose(arguments.dir):
        print("\n".join(composed))
    students = {one.student for one in submissions.submitted(arguments.dir, list(released))[0]}
    only = _named(arguments, students, people)
    announce(f"Grading new notebooks in {arguments.dir / 'submitted'} …")
    begin()
    announce("Comparing them with earlier results …")
    from helpers.instructor.grade import everyone
    from helpers.instructor.report import late
    from helpers.instructor.sandbox import walls
    from helpers.instructor.sandbox.client import NoSandbox

    try:
        run = everyone.grade(
            arguments.dir,
            jobs=arguments.jobs or everyone.default_jobs(),
            scheduler=arguments.scheduler,
            lessons=wanted,
            gpu=arguments.gpu,
            kinds=(walls.CHOICES[arguments.walls],) if arguments.walls else walls.ENOUGH,
            students=only,
            again=arguments.again,
        )
    except NoSandbox as error:
        raise NotebookError(str(error)) from error
    print(run.table())
    print("".join(f"{line}\n" for line in late.count_late(arguments.dir, people)), end="")
    ledger = read_ledger(arguments.dir)
    graded_ones = {result.student for result in graded(arguments.dir)}
    joined = in_several_folders(students, people, ledger)
    print("\n".join(joined), end="\n" * bool(joined))
    if (missing := absent(graded_ones, people, ledger)) and only is None:
        have = "has" if len(missing) == 1 else "have"
        print(f"{len(missing)} of {len(people)} {have} handed in nothing: {listed([one.key for one in missing], 20)}.")
    if strangers := not_listed(graded_ones, people, ledger):
        print(f"The roster does not have {listed(sorted(strangers), 20)}.")
    return int(bool(run.not_graded or run.passed_over or joined or to_repair))


def _collect(arguments: argparse.Namespace, released: list[Path], people: list) -> bool:
    """Copies what `--from` says to submitted/, and says what came; whether anything was passed over."""
    from helpers.instructor.collect import incoming

    lesson = _of_course([arguments.lesson], arguments.dir)[0].stem if arguments.lesson else ""
    if arguments.source.exists():
        announce(f"Reading {arguments.source} …")
    due = None
    if arguments.counts == "in-time":
        from helpers.instructor.report import late

        due = late.due_dates(arguments.dir)
    names = [path.stem for path in released]
    came = incoming.collect(arguments.source, arguments.dir, names, lesson, people, arguments.counts, due)
    lines = [f"{came.count} notebooks copied to {arguments.dir / 'submitted'}.", *came.notes, *came.passed_over]
    print("\n".join(lines), flush=True)
    return bool(came.passed_over)


def _named(arguments: argparse.Namespace, students: set[str], people: list) -> set[str] | None:
    """The folders of the students that `--students` names; None for all.

    Raises NotebookError for a name that is nobody's, or several people's, and for somebody who has handed in nothing.
    """
    from helpers.instructor.collect.ledger import absent, meant, read_ledger, who_is

    if not arguments.students:
        return None
    ledger = read_ledger(arguments.dir)
    known, others = who_is(students, people, ledger), absent(students, people, ledger)
    found = {meant(called, known, others)[0] for called in arguments.students}
    if nothing := sorted(found - students):
        raise NotebookError(f"{', '.join(nothing)}: has handed in nothing.")
    return found


def add_grade_one(commands: argparse._SubParsersAction) -> None:
    """Adds `grade-one NOTEBOOK`."""
    about = "Grade one notebook, without a course directory, as CI does."
    status = "Exit status: 0 for all points, 1 if some are missing, 2 if the notebook could not be graded."
    parser = commands.add_parser("grade-one", help=about, description=about, epilog=status)
    parser.add_argument("notebook", type=Path, metavar="NOTEBOOK", help="a notebook as a student hands it in")
    parser.add_argument(
        "--lesson", default="", metavar="NAME", help="e.g. 02, for a file whose name speaks of no lesson"
    )
    form = parser.add_mutually_exclusive_group()
    form.add_argument("--json", action="store_true", help="print points, diagnosis and findings of each exercise")
    form.add_argument("--gradescope", action="store_true", help="print Gradescope's results.json")
    _add_walls(parser)
    parser.set_defaults(run=run_grade_one)


def run_grade_one(arguments: argparse.Namespace) -> int:
    """Prints the result, and returns the exit status that the help names."""
    begin()
    from helpers.instructor.grade import one
    from helpers.instructor.sandbox import walls

    try:
        lesson = one.lesson_of(arguments.notebook, arguments.root / "lessons", arguments.lesson)
        kinds = (walls.CHOICES[arguments.walls],) if arguments.walls else walls.ENOUGH
        result = one.grade_one(arguments.notebook, lesson, kinds)
    except NotebookError as error:
        complain(error)
        if arguments.gradescope and isinstance(error, one.WrongFile):  # it asks for a file in any case
            print(json.dumps({"score": 0, "output": str(error)}))
        return one.NOT_GRADED
    told = one.gradescope_of(result) if arguments.gradescope else result if arguments.json else None
    print(json.dumps(told, indent=1) if told else one.table_of(result))
    return one.ALL if result["points"] >= result["max_points"] else one.SOME


def _add_dir(commands: argparse._SubParsersAction, name: str, about: str) -> argparse.ArgumentParser:
    parser = commands.add_parser(name, help=about, description=about)
    parser.add_argument("dir", type=Path, metavar="DIR", help="the course directory, after `grade`")
    return parser


def add_feedback(commands: argparse._SubParsersAction) -> None:
    """Adds `feedback DIR`."""
    parser = _add_dir(commands, "feedback", "Write a page for each student.")
    about = "also a page for each lesson, as this system takes them back: nbgrader, moodle, canvas"
    parser.add_argument("--for", dest="form", metavar="SYSTEM", help=about)
    _add_students(parser)
    _add_roster(parser)
    parser.set_defaults(run=run_feedback)


def run_feedback(arguments: argparse.Namespace) -> int:
    """Writes the pages and says where they are."""
    people, only = _graded_students(arguments)
    announce(f"Writing pages to {arguments.dir / 'feedback'} …")
    begin()
    from helpers.instructor.report import feedback, gradebook, late

    gradebook.enter(arguments.dir, graded(arguments.dir))
    late.count_late(arguments.dir, people)
    entered = gradebook.entered_by_hand(arguments.dir)
    paths = feedback.write(arguments.dir, graded(arguments.dir), entered, people, only)
    print(f"{len(paths)} pages written to {arguments.dir / feedback.FOLDER}.")
    print("".join(f"{line}\n" for line in _ungraded(arguments.dir)), end="")
    if not arguments.form:
        return 0
    if arguments.form not in feedback.RETURNS:
        raise NotebookError(f"Pages are given back to {listed(feedback.RETURNS)}.")
    own = [one for one in graded(arguments.dir) if only is None or one.student in only]
    made, left = feedback.give_back(arguments.dir, own, entered, arguments.form, people)
    back = sorted({str(path) if path.suffix else f"nbgrader release_feedback {path.name}" for path in made})
    print("\n".join([f"To give back: {one}" for one in back] + left))
    return int(bool(left))


def add_export(commands: argparse._SubParsersAction) -> None:
    """Adds `export DIR --format FORMAT`."""
    parser = _add_dir(commands, "export", "Print the grades for another system.")
    from helpers.instructor.collect.lms import GRADE_TABLES

    parser.add_argument("--format", choices=("csv", *GRADE_TABLES), default="csv", help="default: csv")
    parser.add_argument("--lessons", nargs="+", default=[], metavar="NAME", help="e.g. 01 05; default all")
    parser.add_argument("--out", type=Path, metavar="FILE", help="write to a file instead")
    _add_roster(parser)
    parser.set_defaults(run=run_export)


def run_export(arguments: argparse.Namespace) -> int:
    """Prints the grades, or writes them to a file; says whom the other system will not match.

    1 where students share what identifies them: to another system such grades are not given at all.
    """
    from helpers.instructor.collect.roster import roster_of

    lessons = [path.stem for path in _of_course(arguments.lessons, arguments.dir)]
    people = roster_of(arguments.dir, arguments.roster)
    if (out := arguments.out) and (out.is_dir() or not out.parent.is_dir()):
        raise NotebookError(f"{out}: {os.strerror(errno.EISDIR if out.is_dir() else errno.ENOENT)}.")
    announce(f"Reading the gradebook of {arguments.dir} …", sys.stdout if out else sys.stderr)
    begin()
    from helpers.instructor.report import export, gradebook, late

    gradebook.enter(arguments.dir, graded(arguments.dir))
    late.count_late(arguments.dir, people)
    found = export.grades(arguments.dir, people, lessons)
    text, doubled = export.written(found, arguments.format), export.doubled(found, arguments.format)
    if doubled and arguments.format != "csv":
        raise NotebookError("\n".join(["Nothing is exported, because grades would go astray.", *doubled, _ONE_LINE]))
    if out:
        out.write_bytes(export.encoded(text, arguments.format))
        print(f"Grades written to {out}.")
    elif _is_file(sys.stdout):
        sys.stdout.buffer.write(export.encoded(text, arguments.format))
    else:
        sys.stdout.write(text.replace("\r\n", "\n"))
    for line in (*export.unmatched(found, arguments.format), *doubled, *_ungraded(arguments.dir, lessons)):
        print(line, file=sys.stderr)
    return int(bool(doubled))


_ONE_LINE = (
    "Two people need a line each in the roster, with the `folder` and an id of their own. For one person who has two "
    "folders, `grade` says how to join them."
)


def _is_file(stream: TextIO) -> bool:
    """Whether prints go into a file, as with `> grades.csv`, and not to a terminal or a program."""
    try:
        return stat.S_ISREG(os.fstat(stream.fileno()).st_mode)
    except (OSError, ValueError):
        return False


def add_report(commands: argparse._SubParsersAction) -> None:
    """Adds `report DIR`."""
    about = "Show what the class has understood, as a table and a figure, and answers that are strangely alike."
    parser = _add_dir(commands, "report", about)
    _add_students(parser)
    _add_roster(parser)
    parser.set_defaults(run=run_report)


def run_report(arguments: argparse.Namespace) -> int:
    """Prints the table, and who has handed in nothing, and writes it with the figure; of some students it prints."""
    people, only = _graded_students(arguments)
    announce(f"Reading the results in {arguments.dir} …")
    begin()
    from helpers.instructor.collect.ledger import absent, read_ledger
    from helpers.instructor.report import understood

    results = graded(arguments.dir)
    groups = understood.alike(results, understood.given(arguments.dir))
    if only is not None:
        found = understood.by_exercise([result for result in results if result.student in only])
        print(understood.overview(found, [one for one in groups if only & {*one.students}]))
        return 0
    found = understood.by_exercise(results)
    print(understood.overview(found, groups))
    for one in absent({result.student for result in results}, people, read_ledger(arguments.dir)):
        print(f"{one.key}: has handed in nothing.")
    print("".join(f"{line}\n" for line in _ungraded(arguments.dir)), end="")
    print(f"With a figure: {understood.write_page(arguments.dir, found, groups)}")
    return 0


def _graded_students(arguments: argparse.Namespace) -> tuple[list, set[str] | None]:
    """The people of the roster, and the folders of the students that `--students` names, None for all.

    Raises NotebookError where nothing is graded, and as `_named` does.
    """
    from helpers.instructor.collect.course import GRADING, lessons_of
    from helpers.instructor.collect.roster import roster_of

    lessons_of(arguments.dir)
    students = {path.parent.name for path in (arguments.dir / GRADING / "results").glob("*/*.json")}
    if not students:
        run = f"python -m helpers.instructor grade {shlex.quote(str(arguments.dir))}"
        raise NotebookError(f"Nothing is graded in {arguments.dir} yet: run `{run}`.")
    people = roster_of(arguments.dir, arguments.roster)
    return people, _named(arguments, students, people)


def _ungraded(course: Path, lessons: list[str] | None = None) -> list[str]:
    """A sentence that names the hand-ins that are not graded yet, as when `grade` is still at work; [] without any."""
    from helpers.instructor.collect.course import lessons_of
    from helpers.instructor.report.gradebook import ungraded

    missing = ungraded(course, list(lessons_of(course)))
    missing = [one for one in missing if lessons is None or one.rpartition(", ")[2] in lessons]
    many = "1 notebook is" if len(missing) == 1 else f"{len(missing)} notebooks are"
    return [f"{many} handed in and not graded: {'; '.join(missing[:5])}{' …' * (len(missing) > 5)}."] * bool(missing)


def add_forget(commands: argparse._SubParsersAction) -> None:
    """Adds `forget DIR STUDENT`."""
    parser = _add_dir(commands, "forget", "Remove every trace of a student from a course directory.")
    parser.add_argument("student", metavar="STUDENT", help="the folder, or the name, email, id or username of one")
    _add_roster(parser)
    parser.add_argument("--and-roster", action="store_true", help="also delete the student's line of the roster")
    parser.set_defaults(run=run_forget)


def run_forget(arguments: argparse.Namespace) -> int:
    """Removes, and says what; 1 where a file other than the roster still holds the name."""
    from helpers.instructor.collect.course import alone, lessons_of
    from helpers.instructor.collect.names import printable
    from helpers.instructor.collect.roster import ROSTER, roster_of

    lessons_of(arguments.dir)
    people = roster_of(arguments.dir, arguments.roster)
    path = arguments.roster or arguments.dir / ROSTER
    announce(f"Looking for {printable(arguments.student)} in {arguments.dir} …")
    from helpers.instructor.collect.forget import forget

    with alone(arguments.dir):
        done = forget(arguments.dir, arguments.student, people, path if people and arguments.and_roster else None)
    print("\n".join(f"removed: {line}" for line in done.removed) or "There was nothing to remove.")
    for line in done.left:
        print(f"left, and still naming {printable(done.student)}: {line}")
    print("What compiled kernels need is kept without names; a name that a kernel's own text holds may be in it.")
    return int(any(arguments.dir / line != path for line in done.left))


def graded(course: Path) -> list:
    """The results of a course directory."""
    from helpers.instructor.report.gradebook import results_of

    return results_of(course)


def _of_course(names: list[str], course: Path) -> list[Path]:
    """The released notebooks of a course directory that names stand for, as `chosen`."""
    from helpers.instructor.collect.course import lessons_of

    try:
        return chosen(names, list(lessons_of(course).values()))
    except UnknownName as error:
        add = f"`python -m helpers.instructor course {shlex.quote(str(course))}` adds lessons"
        raise NotebookError(f"{error} {add}.") from None


class UnknownName(NotebookError):
    """A name stands for no notebook or for several."""


def chosen(names: list[str], among: Path | list[Path]) -> list[Path]:
    """The notebooks, of a folder or list, that names, beginnings of names or numbers stand for; without names, all.

    Raises UnknownName for a name that stands for no notebook or for several.
    """
    solutions = sorted(among.glob("*.ipynb")) if isinstance(among, Path) else among
    if not solutions:
        raise NotebookError(f"{among.name}/ has no notebook.")
    paths = []
    for name in names:
        stem = Path(name).name.removesuffix(".ipynb")
        stem = stem.zfill(2) if stem.isdigit() else stem
        found = [path for path in solutions if path.stem == stem] or [p for p in solutions if p.stem.startswith(stem)]
        if len(found) != 1:
            known = ", ".join(path.stem for path in found or solutions)
            raise UnknownName(f"'{name}' stands for {len(found)} notebooks; choose one of {known}.")
        paths += found
    return paths or solutions


def announce(what: str, stream: TextIO | None = None) -> None:
    """Prints a line at once, before the imports that the command needs."""
    print(what, file=stream or sys.stdout, flush=True)


def begin() -> None:
    """Chooses between the GPU and the interpreter, before anything that has to do with kernels is imported."""
    import helpers

    helpers.banner  # noqa: B018


def leave_out(folder: Path) -> list[str]:
    """Has Python import nothing more from a folder, unless it is the course's: a student's may hold a torch.py.

    The names of the modules that it has imported from there before.
    """
    if (folder := folder.resolve()) == REPOSITORY:
        return []
    listed_first = os.environ.get("PYTHONPATH", "").split(os.pathsep)
    sys.path[:], kept = ([one for one in some if Path(one).resolve() != folder] for some in (sys.path, listed_first))
    os.environ["PYTHONPATH"] = os.pathsep.join(kept)  # for the processes that this one starts
    files = {name: Path(file) for name, one in sys.modules.items() if (file := getattr(one, "__file__", None))}
    places = {
        name: file.parent if file.name == "__init__.py" else file for name, file in files.items() if "." not in name
    }
    return sorted(name for name, place in places.items() if place.parent.resolve() == folder)


def complain(error: NotebookError | str) -> None:
    """Prints an error for the author."""
    print(f"error: {error}", file=sys.stderr)


COMMANDS: list[Callable[[argparse._SubParsersAction], None]] = [
    add_lessons, add_editions, add_execute, add_course, add_grade, add_grade_one, add_feedback, add_export, add_report,
    add_forget,
]  # fmt: skip


def main(argv: list[str] | None = None) -> int:
    """Runs one command: 0 when all is well, 1 when something is to be repaired, 2 for a wrong call, 130 for Ctrl-C."""
    strangers = leave_out(Path.cwd())
    parser = argparse.ArgumentParser(prog="python -m helpers.instructor", description="What an instructor runs.")
    parser.add_argument("--root", type=Path, default=REPOSITORY, help="the course's folder (default: this repository)")
    commands = parser.add_subparsers(required=True, metavar="COMMAND")
    for add in COMMANDS:
        add(commands)
    arguments = parser.parse_args(argv)
    if strangers:
        ran = f"Python has imported {listed(strangers)} from the working directory"
        parser.error(
            f"{ran}: call `python -P -m helpers.instructor`, which does not, or run it in the course's folder."
        )
    try:
        return arguments.run(arguments)
    except NotebookError as error:
        complain(error)
        return 1
    except KeyboardInterrupt:
        print("interrupted", file=sys.stderr)
        return 130
    except BrokenPipeError:  # the reader of the prints has seen enough, as `head` does
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 1
    except OSError as error:
        if error.errno in (errno.ENOSPC, errno.EDQUOT):
            complain(f"The disk is full ({error.strerror}): make room and run this again; all results so far are kept.")
            return 1
        if error.filename is None:
            raise
        complain(f"{error.filename}: {error.strerror}.")
        return 1


if __name__ == "__main__":
    if sys.getfilesystemencoding() != "utf-8":  # the names of students need every letter, whatever the locale
        os.execv(sys.executable, [sys.executable, "-X", "utf8", *sys.orig_argv[1:]])
    code = main()
    gc.freeze()  # Python's own end would look through all that torch holds, which takes seconds
    sys.exit(code)
