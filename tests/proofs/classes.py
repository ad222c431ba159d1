"""Made-up classes as seven systems export them: eight students with hard names, two of them called the same.

    python tests/proofs/classes.py [CLASS ...]

grades lesson 01 of each class and prints whom the exports hold, and by what a system matches them; the exit status is 1
where anyone is lost, collapsed into another, or has another identifier.
"""

from __future__ import annotations

import csv
import io
import sys
import unicodedata
import zipfile
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

LESSON = "01_eager_softmax"
WHEN = "2026-11-2{day}-13-45-02"


@dataclass(frozen=True)
class Student:
    """A student as every system knows them."""

    first: str
    last: str
    number: int
    login: str

    @property
    def name(self) -> str:
        return f"{self.first} {self.last}"

    @property
    def email(self) -> str:
        return f"{self.login}@uni.example"


STUDENTS = (
    Student("Jürgen", "Müßig", 4711, "j_muessig"),
    Student("Ada", "O'Brien, Jr.", 4712, "ada_l"),
    Student("Anne-Marie", "de la Cruz", 4713, "adlc"),
    Student("Kim", "Lee", 4714, "kim_l"),
    Student("Kim", "Lee", 4715, "kim_l2"),
    Student("ऋषि", "शर्मा", 4716, "rishi"),
    Student("ผู้", "ใหญ่", 4717, "phuyai"),
    Student("@home", "=cmd()", 4718, "+home"),
)

Files = list[tuple[str, bytes]]


def _word(text: str) -> str:
    """As Canvas leaves a name: letters, marks and digits, without capitals."""
    kept = ("L", "M", "N")
    return "".join(c for c in text.casefold() if unicodedata.category(c)[0] in kept)


def canvas(students: Sequence[Student], book: bytes) -> Files:
    """Flat, the last name first; one late, one handed in again, one in capitals, one in an archive of its own."""
    names = [f"{LESSON}.ipynb", f"{LESSON}-1.ipynb", f"{LESSON} (1).ipynb", f"{LESSON}.IPYNB", f"{LESSON}.ipynb.zip"]
    files = []
    for at, one in enumerate(students):
        late, name = "LATE_" if at == 1 else "", names[at % len(names)]
        content = zipped([(f"{LESSON}.ipynb", book), (f"__MACOSX/._{LESSON}.ipynb", b"x")]) if "zip" in name else book
        files.append((f"{_word(one.last + one.first)}_{late}{one.number}_{9000 + at}_{name}", content))
    return files


def moodle(students: Sequence[Student], book: bytes) -> Files:
    """A folder for each, and of one the text that was typed besides."""
    files = [(f"{one.name}_{one.number}_assignsubmission_file/{LESSON}.ipynb", book) for one in students]
    return [*files, (f"{students[0].name}_{students[0].number}_assignsubmission_onlinetext/onlinetext.html", b"Hello")]


def moodle_flat(students: Sequence[Student], book: bytes) -> Files:
    """Marked anonymously, without folders."""
    return [(f"Participant_{one.number}_assignsubmission_file_{LESSON}.ipynb", book) for one in students]


def blackboard(students: Sequence[Student], book: bytes) -> Files:
    """Two attempts of each, the newer one right, each with the receipt."""
    files = []
    for one in students:
        for day, content in ((0, b"{}"), (1, book)):
            stem = f"Homework_1_{one.login}_attempt_{WHEN.format(day=day)}"
            files += [(f"{stem}_{LESSON}.ipynb", content), (f"{stem}.txt", f"Name: {one.name} ({one.login})".encode())]
    return files


def brightspace(students: Sequence[Student], book: bytes) -> Files:
    """A folder for each attempt, and the list of all."""
    files = [("index.html", b"<html>")]
    for one in students:
        for when, content in (("Nov 9, 2026 1145 PM", b"{}"), ("Nov 20, 2026 145 PM", book)):
            files.append((f"{one.number}-990 - {one.name} - {when}/{LESSON}.ipynb", content))
    return files


def ilias(students: Sequence[Student], book: bytes) -> Files:
    """In two folders that hold everything; names in ASCII."""
    files = []
    for at, one in enumerate(students):
        name = f"{one.last}_{one.first}".encode("ascii", "replace").decode().replace("?", "_")
        late = "Late Submission - " if at == 1 else ""
        files.append(
            (f"Exercise 1/Submissions/{name}_{one.login.replace('_', '')}_{one.number}/{late}{LESSON}.ipynb", book)
        )
    return files


def github(students: Sequence[Student], book: bytes) -> Files:
    """A clone of each repository."""
    files = []
    for one in students:
        clone = f"softmax-1-submissions/softmax-1-{one.login.strip('+').replace('_', '-')}"
        files += [(f"{clone}/lessons/{LESSON}.ipynb", book), (f"{clone}/.git/HEAD", b"x"), (f"{clone}/README.md", b"x")]
    return files


def mac(students: Sequence[Student], book: bytes) -> Files:
    """A folder for each with decomposed letters, stale checkpoints, and what macOS puts beside."""
    files = []
    for one in students:
        folder = unicodedata.normalize("NFD", f"{one.name}, {one.login}")
        files += [
            (f"submissions/{folder}/{LESSON}.ipynb", book),
            (f"submissions/{folder}/.ipynb_checkpoints/{LESSON}-checkpoint.ipynb", b"{}"),
            (f"__MACOSX/submissions/{folder}/._{LESSON}.ipynb", b"x"),
            (f"submissions/{folder}/.DS_Store", b"x"),
        ]
    return files


CLASSES: dict[str, Callable[[Sequence[Student], bytes], Files]] = {
    "Canvas": canvas, "Moodle": moodle, "Moodle, anonymous": moodle_flat, "Blackboard": blackboard,
    "Brightspace": brightspace, "ILIAS": ilias, "GitHub Classroom": github, "folders, from a Mac": mac,
}  # fmt: skip


def zipped(files: Files) -> bytes:
    """The files as a zip."""
    out = io.BytesIO()
    with zipfile.ZipFile(out, "w", zipfile.ZIP_DEFLATED) as archive:
        for name, content in files:
            archive.writestr(name, content)
    return out.getvalue()


ROSTER_HEAD = "name,email,id,username,participant\r\n"


def roster(students: Sequence[Student], system: str) -> str:
    """The roster of a class, with somebody who hands in nothing; ILIAS and GitHub have logins of their own."""
    out = io.StringIO()
    for one in (*students, Student("Nobody", "Nowhere", 4799, "nobody")):
        login = {"ILIAS": one.login.replace("_", ""), "GitHub Classroom": one.login.strip("+").replace("_", "-")}
        row = [one.name, one.email, one.number, login.get(system, one.login)]
        csv.writer(out).writerow([*row, f"Participant {one.number}" if system.startswith("Moodle") else ""])
    return "\ufeff" + ROSTER_HEAD + out.getvalue()


def main() -> int:
    """Grades the classes and prints the table."""
    import contextlib
    import tempfile

    from handed_in import ROOT, solved, written
    from helpers.instructor.__main__ import main as instructor
    from helpers.instructor.collect import course

    book, lost = written(solved(LESSON)), 0
    columns = {"Canvas": ("canvas", 1), "Moodle": ("moodle", 1), "Moodle, anonymous": ("moodle-worksheet", 0)}
    print("| class | students | graded, all points | matched by | wrong or missing | absent named | late |")
    for system in sys.argv[1:] or CLASSES:
        files = CLASSES[system]
        by_hand = system == "folders, from a Mac"
        with tempfile.TemporaryDirectory() as folder, contextlib.redirect_stdout(io.StringIO()) as said:
            directory, export, out = Path(folder) / "course", Path(folder) / "export.zip", Path(folder) / "out.csv"
            course.make_course(directory, [ROOT / "solutions" / f"{LESSON}.ipynb"])
            export.write_bytes(zipped(files(STUDENTS, book)))
            if not by_hand:
                (directory / "roster.csv").write_text(roster(STUDENTS, system), encoding="utf-8", newline="")
            status = instructor(["grade", str(directory), "--from", str(export), "--jobs", "1"])
            form, column = columns.get(system, ("csv", 0 if by_hand else 3))
            instructor(["export", str(directory), "--format", form, "--out", str(out)])
            rows = _rows(out)
            instructor(["export", str(directory), "--out", str(out)])
            late = [row[1] for row in _rows(out) if row[-1]]
        full = (
            sum("4" in row[4:6] for row in rows) if form != "moodle-worksheet" else sum(row[3] == "4" for row in rows)
        )
        wanted = {_identifier(one, form, by_hand) for one in STUDENTS}
        wrong = wanted ^ {row[column] for row in rows if "Nobody Nowhere" not in row}
        absent = "1 of 9 has handed in nothing: Nobody Nowhere." in said.getvalue()
        lost += bool(wrong) or full != len(STUDENTS) or status != 0 or absent == by_hand
        kind = {"canvas": "ID", "moodle": "email", "moodle-worksheet": "Participant 4711"}.get(form, "id")
        print(
            f"| {system} | {len(STUDENTS)} | {full} | {form}: {'folder' if by_hand else kind} | {len(wrong)} | "
            f"{'no roster' if by_hand else absent} | {', '.join(late) or '-'} |",
            flush=True,
        )
    return int(bool(lost))


def _rows(path: Path) -> list[list[str]]:
    rows = list(csv.reader(io.StringIO(path.read_text(encoding="utf-8-sig"), newline="")))[1:]
    return [row for row in rows if "Points Possible" not in row[0]]


def _identifier(one: Student, form: str, by_hand: bool) -> str:
    """By what a student has to stand in an export."""
    if by_hand:
        name = unicodedata.normalize("NFC", f"{one.name}, {one.login}")
        return f"'{name}" if name[0] in "@+=" else name
    return {"moodle": one.email, "moodle-worksheet": f"Participant {one.number}"}.get(form, str(one.number))


if __name__ == "__main__":
    ROOT = Path(__file__).resolve().parents[2]
    sys.path[:0] = [str(ROOT), str(ROOT / "tests/kit")]
    sys.exit(main())
