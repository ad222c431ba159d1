"""Files that are whole or not there, that are what they seem, and names that lead nowhere else."""

import os
import threading
from pathlib import Path

import pytest

from helpers.engine.files import NotRegular, link_in, read_regular, write_whole

# Writing


def test_a_file_is_written_into_a_folder_that_is_made(tmp_path):
    write_whole(tmp_path / "a" / "b" / "file", b"content")
    assert (tmp_path / "a" / "b" / "file").read_bytes() == b"content"


def test_whoever_is_reading_a_file_still_finds_the_old_content(tmp_path):
    write_whole(tmp_path / "file", b"old")
    with (tmp_path / "file").open("rb") as reader:
        write_whole(tmp_path / "file", b"new")
        assert reader.read() == b"old"


def test_what_cannot_be_written_raises_and_leaves_nothing_behind(tmp_path):
    (tmp_path / "folder").mkdir()
    with pytest.raises(OSError):
        write_whole(tmp_path / "folder", b"content")
    assert [path.name for path in tmp_path.iterdir()] == ["folder"]


@pytest.fixture
def written_first(monkeypatch):
    """The names that files have while they are written."""
    names = []
    monkeypatch.setattr(Path, "replace", lambda self, target: names.append(self.name))
    return names


def test_threads_that_write_the_same_file_do_not_write_into_each_other(tmp_path, written_first):
    write_whole(tmp_path / "file", b"content")
    thread = threading.Thread(target=write_whole, args=(tmp_path / "file", b"content"))
    thread.start()
    thread.join()
    assert len(set(written_first)) == 2


def test_processes_that_write_the_same_file_do_not_write_into_each_other(tmp_path, written_first, monkeypatch):
    write_whole(tmp_path / "file", b"content")
    monkeypatch.setattr(os, "getpid", lambda: -1)
    write_whole(tmp_path / "file", b"content")
    assert len(set(written_first)) == 2


# Reading


def test_a_file_of_the_largest_size_is_read(tmp_path):
    (tmp_path / "file").write_bytes(b"12345")
    assert read_regular(tmp_path / "file", 5) == b"12345"


def test_a_larger_file_is_refused(tmp_path):
    (tmp_path / "file").write_bytes(b"12345")
    with pytest.raises(NotRegular, match="it has 5 bytes; 4 are the most"):
        read_regular(tmp_path / "file", 4)


def test_a_link_is_refused(tmp_path):
    (tmp_path / "file").write_bytes(b"12345")
    (tmp_path / "link").symlink_to(tmp_path / "file")
    with pytest.raises(NotRegular, match="it cannot be opened, or is a link"):
        read_regular(tmp_path / "link", 5)


def test_a_linked_folder_on_the_way_to_a_file_is_found(tmp_path, monkeypatch):
    (tmp_path / "there").mkdir()
    (tmp_path / "there" / "file").touch()
    (tmp_path / "here").symlink_to("there")
    monkeypatch.chdir(tmp_path)
    assert link_in(Path("there/../here/file")) == Path("there/../here")
    assert link_in(Path("here")) == Path("here")
    assert link_in(Path("there/file")) is None


@pytest.mark.parametrize("make", [os.mkdir, os.mkfifo], ids=["folder", "pipe"])
def test_what_is_not_a_file_is_refused(tmp_path, make):
    make(tmp_path / "thing")
    with pytest.raises(NotRegular, match="it is not a regular file"):
        read_regular(tmp_path / "thing", 5)


def test_no_file_stays_open(tmp_path):
    (tmp_path / "file").write_bytes(b"12345")
    before = os.listdir("/proc/self/fd")
    read_regular(tmp_path / "file", 5)
    assert len(os.listdir("/proc/self/fd")) == len(before)
