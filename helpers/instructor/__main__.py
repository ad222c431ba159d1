"""The instructor's command line: ``python -m helpers.instructor COMMAND``.

A command is a function that adds its parser and sets ``run``, which takes the arguments and returns the exit code;
list it in :data:`COMMANDS`.
"""

import argparse
import sys
from collections.abc import Callable
from importlib.util import find_spec
from pathlib import Path

from helpers.instructor.notebooks import REPOSITORY, NotebookError


def add_lessons(commands: argparse._SubParsersAction) -> None:
    """Add ``lessons [--check]``."""
    about = "Generate lessons/ from solutions/."
    parser = commands.add_parser("lessons", help=about, description=about)
    parser.add_argument("--check", action="store_true", help="write nothing; list the lessons that are not up to date")
    parser.set_defaults(run=run_lessons)


def run_lessons(arguments: argparse.Namespace) -> int:
    """Write the lessons, or compare them; 1 where one is not up to date."""
    from helpers.instructor.release import check_lessons, write_lessons

    folders = arguments.root / "solutions", arguments.root / "lessons"
    if not arguments.check:
        print(f"{len(write_lessons(*folders))} lessons written to lessons/.")
        return 0
    complaints = check_lessons(*folders)
    print("\n".join(complaints) or "Every lesson is what its solution generates.")
    return int(bool(complaints))


def add_execute(commands: argparse._SubParsersAction) -> None:
    """Add ``execute [NAME …]``."""
    about = "Re-execute solutions, store them with their outputs, and generate the lessons again."
    parser = commands.add_parser("execute", help=about, description=about)
    parser.add_argument("names", nargs="*", metavar="NAME", help="a solution, e.g. 01 or 01_eager_softmax; default all")
    parser.set_defaults(run=run_execute)


def run_execute(arguments: argparse.Namespace) -> int:
    """Execute every solution asked for, whether or not another fails; 1 where one failed."""
    from helpers import progress
    from helpers.instructor.execute import execute

    if not arguments.names:
        (arguments.root / "solutions" / progress.FILE).unlink(missing_ok=True)
    failed = False
    for path in chosen(arguments.names, arguments.root / "solutions"):
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


def chosen(names: list[str], folder: Path) -> list[Path]:
    """The solutions that names, or beginnings of names, stand for; without names, all.

    Raises:
        NotebookError: a name stands for no solution or for several.
    """
    solutions = sorted(folder.glob("*.ipynb"))
    if not solutions:
        raise NotebookError(f"There is no notebook in {folder.name}/.")
    paths = []
    for name in names:
        stem = Path(name).name.removesuffix(".ipynb")
        found = [path for path in solutions if path.stem == stem] or [p for p in solutions if p.stem.startswith(stem)]
        if len(found) != 1:
            known = ", ".join(path.stem for path in found or solutions)
            raise NotebookError(f"'{name}' stands for {len(found)} solutions; choose one of {known}.")
        paths += found
    return paths or solutions


def complain(error: NotebookError) -> None:
    """Print an error for the author."""
    print(f"error: {error}", file=sys.stderr)


COMMANDS: list[Callable[[argparse._SubParsersAction], None]] = [add_lessons, add_execute]


def main(argv: list[str] | None = None) -> int:
    """Run one command: 0 when all is well, 1 when something is to be repaired, 2 for a wrong call, 130 for Ctrl-C."""
    parser = argparse.ArgumentParser(prog="python -m helpers.instructor", description="What an instructor runs.")
    parser.add_argument("--root", type=Path, default=REPOSITORY, help="the course's folder (default: this repository)")
    commands = parser.add_subparsers(required=True, metavar="COMMAND")
    for add in COMMANDS:
        add(commands)
    arguments = parser.parse_args(argv)
    try:
        return arguments.run(arguments)
    except NotebookError as error:
        complain(error)
        return 1
    except KeyboardInterrupt:
        print("interrupted", file=sys.stderr)
        return 130


if __name__ == "__main__":
    sys.exit(main())
