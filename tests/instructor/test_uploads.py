"""What one student hands in touches nobody else: too much of it, another's folder, names that are hard to read."""

import errno
import io
import os
import resource

import pytest

import classes
from handed_in import TILE
from helpers.instructor.collect import incoming, sources
from helpers.instructor.collect.incoming import collect
from helpers.instructor.collect.person import Person

LESSONS = (TILE,)


def came(course):
    """What lies in submitted/, by student and lesson."""
    found = (course / "submitted").rglob("*.ipynb")
    return {(path.parts[-3], path.parts[-2][:2]): path.read_text(encoding="utf-8") for path in found}


def pack(folder, *names):
    """A zip with right notebooks of these names."""
    (folder / "export.zip").write_bytes(classes.zipped([(name, b"right") for name in names]))
    return folder / "export.zip"


# Too much

EVE = "Eve_9_assignsubmission_file"
HONEST = [(f"{name}_assignsubmission_file/{TILE}.ipynb", b"right") for name in ("Ada_1", "Zoe_3")]
OTHERS = [("Ada_1", "02"), ("Zoe_3", "02")]


def too_much():
    """By its name, what one student hands in that is too much, and what is said of it."""
    files = [(f"{at}.txt", b"") for at in range(30)]
    inner = classes.zipped([("a.bin", os.urandom(1_000))])
    bombs = classes.zipped([(f"{at}.zip", inner) for at in range(8)])
    more = [(f"x{at}.zip", classes.zipped(files[at::4])) for at in range(4)]
    return {
        "files in an archive": ([(f"{EVE}/x.zip", classes.zipped(files))], "x.zip: holds more than 20 files"),
        "files in archives within": ([(f"{EVE}/x.zip", classes.zipped(more))], "x.zip: holds more than 20 files"),
        "files": ([(f"{EVE}/{name}", content) for name, content in files], "Eve_9: handed in 30 files, and 20 are"),
        "archives within": ([(f"{EVE}/x.zip", bombs)], "x.zip: holds archives of more than 0 MB in all"),
    }


@pytest.mark.parametrize("name", too_much())
@pytest.mark.parametrize("within", ["zip", "folder of zips"])
def test_an_upload_that_holds_too_much_is_named_and_the_class_goes_on(name, within, tmp_path, monkeypatch):
    for module in (sources, incoming):
        monkeypatch.setattr(module, "MOST_FILES", 20)
    monkeypatch.setattr(sources, "_MOST_UNPACKED", 5_000)
    files, said = too_much()[name]
    (tmp_path / "exports").mkdir()
    (tmp_path / "exports" / "class.zip").write_bytes(classes.zipped([*HONEST, *files]))
    done = collect(tmp_path / "exports" / ("class.zip" if within == "zip" else ""), tmp_path, LESSONS)
    assert sorted(came(tmp_path)) == OTHERS
    assert len(done.passed_over) == 1 and said in done.passed_over[0]


class FullDisk:
    """In place of a temporary file: has room for 500 bytes, as `io` says it where a buffer cannot be emptied."""

    def __init__(self):
        self.file = io.BytesIO()

    def __enter__(self):
        return self.file

    def __exit__(self, *exception):
        if len(self.file.getvalue()) > 500:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))


def test_where_the_disk_is_full_the_uploads_that_it_hits_are_named_and_the_others_taken(tmp_path, monkeypatch):
    monkeypatch.setattr(sources, "TemporaryFile", FullDisk)
    large, small = (classes.zipped([(f"{TILE}.ipynb", b"right"), ("x", os.urandom(size))]) for size in (1000, 1))
    bob = ("Bob_2_assignsubmission_file/x.zip", small)
    export = tmp_path / "class.zip"
    export.write_bytes(classes.zipped([*HONEST, (f"{EVE}/x.zip", large), bob]))
    done = collect(export, tmp_path, LESSONS)
    assert sorted(came(tmp_path)) == [OTHERS[0], ("Bob_2", "02"), OTHERS[1]]
    assert len(done.passed_over) == 1 and "x.zip: cannot be unpacked, because the disk" in done.passed_over[0]


def test_where_the_table_cannot_be_written_what_was_collected_stays_and_it_is_said(tmp_path, monkeypatch):
    def full(*_):
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(incoming, "write_ledger", full)
    done = collect(pack(tmp_path, f"ada_{TILE}.ipynb"), tmp_path, LESSONS)
    assert list(came(tmp_path)) == [("ada", "02")] and "(No space left on device): make room" in done.passed_over[0]


def test_no_more_archives_are_open_than_are_read(tmp_path, monkeypatch):
    names = [f"s{at}" for at in range(40)]
    for name in names:
        (tmp_path / f"{name}.zip").write_bytes(
            classes.zipped([("x.zip", classes.zipped([(f"{TILE}.ipynb", b"right")]))])
        )
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (len(os.listdir("/proc/self/fd")) + 20, hard))
    try:
        done = collect(tmp_path, tmp_path / "course", LESSONS)
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
    assert (done.count, done.passed_over) == (len(names), [])


def test_a_folder_of_a_system_s_form_in_a_student_s_archive_takes_nobody_s_place(tmp_path):
    for name, files in {
        "Ada_1": HONEST[:1],
        "Mallory": [(HONEST[0][0], b"forged"), (f"{EVE}/{TILE}.ipynb", b"x")],
    }.items():
        path = tmp_path / "export" / f"{name.partition('_')[0]}.zip"
        path.parent.mkdir(exist_ok=True)
        path.write_bytes(classes.zipped(files))
    collect(tmp_path / "export", tmp_path, LESSONS)
    assert "forged" not in came(tmp_path).values()


# Names of which an archive does not say what their bytes stand for


def undeclared(folder, encoding, *names):
    """A zip as programs of other systems write it."""
    stands_for = {"x" * len(name.encode(encoding)) + str(at): name for at, name in enumerate(names)}
    archive = pack(folder, *(f"{letters}/{TILE}.ipynb" for letters in stands_for))
    content = archive.read_bytes()
    for letters, name in stands_for.items():
        content = content.replace(letters.encode(), name.encode(encoding) + letters[-1:].encode())
    archive.write_bytes(content)
    return archive


@pytest.mark.parametrize(
    ("encoding", "name"),
    [
        ("gbk", "张伟"),
        ("cp932", "山田太郎"),
        ("cp866", "Анна Каренина"),
        ("cp850", "Jürgen Müßig"),
        ("cp1252", "Zoë Søn"),
    ],
)
def test_names_in_an_undeclared_encoding_are_read_by_the_roster(encoding, name, tmp_path):
    people = [Person(name=f"{name}0"), Person(name="Ada")]
    done = collect(undeclared(tmp_path, encoding, name, "Ada"), tmp_path, LESSONS, "", people)
    assert sorted(came(tmp_path)) == sorted([(f"{name}0", "02"), ("Ada1", "02")]) and done.notes == []


def test_without_a_roster_it_is_said_that_undeclared_names_may_be_wrong(tmp_path):
    done = collect(undeclared(tmp_path, "cp866", "Анна", "Ada"), tmp_path, LESSONS)
    assert len(came(tmp_path)) == 2
    assert "may be wrong: with a roster that has the names, export.zip is read rightly" in done.notes[0]
    assert "Ada" not in done.notes[0]
