"""Files and folders are written whole, on the disk before their name points to them."""

import os
import time

import pytest

from pulse_pyro._core.files import earlier_folder, whole_folder, write_whole


@pytest.fixture
def synced(monkeypatch):
    """What was handed to the disk and what was renamed, in order."""
    events = []
    fsync, replace, rename = os.fsync, os.replace, os.rename

    def noted(name, call):
        def call_and_note(*given):
            events.append(name)
            return call(*given)

        return call_and_note

    monkeypatch.setattr(os, "fsync", noted("fsync", fsync))
    monkeypatch.setattr(os, "replace", noted("rename", replace))
    monkeypatch.setattr(os, "rename", noted("rename", rename))
    return events


def test_a_file_is_on_the_disk_before_it_is_renamed(tmp_path, synced):
    write_whole(tmp_path / "a.txt", "text")
    assert synced == ["fsync", "rename", "fsync"]  # the file, its name, the folder of the name


def test_a_folder_is_on_the_disk_before_it_is_renamed(tmp_path, synced):
    with whole_folder(tmp_path / "a") as folder:
        (folder / "inner").mkdir()
        (folder / "inner" / "b.txt").write_text("text")
    assert synced == ["fsync"] * 3 + ["rename", "fsync"]
    assert (tmp_path / "a" / "inner" / "b.txt").read_text() == "text"
    assert [path.name for path in tmp_path.iterdir()] == ["a"]


def test_a_block_that_raises_changes_nothing(tmp_path):
    (tmp_path / "a").mkdir()
    (tmp_path / "a" / "mine").write_text("before")

    def interrupted():
        with whole_folder(tmp_path / "a") as folder:
            (folder / "mine").write_text("half")
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        interrupted()
    assert [path.name for path in tmp_path.iterdir()] == ["a"]
    assert (tmp_path / "a" / "mine").read_text() == "before"


def test_what_a_killed_write_kept_goes_with_the_next_one(tmp_path):
    earlier_folder(tmp_path / "a").mkdir()
    with whole_folder(tmp_path / "a") as folder:
        (folder / "mine").write_text("new")
    assert [path.name for path in tmp_path.iterdir()] == ["a"]


def test_files_and_folders_that_died_are_swept_fresh_ones_are_not(tmp_path):
    for name in (".a.saving.old", ".a.saving.fresh", ".b.saving.old"):
        (tmp_path / name).mkdir()
        (tmp_path / f"{name}.txt").write_text("half")
        for path in (tmp_path / name, tmp_path / f"{name}.txt"):
            if "fresh" not in name:
                os.utime(path, (time.time() - 7200,) * 2)
    write_whole(tmp_path / "a", "text")
    assert {path.name for path in tmp_path.iterdir()} == {
        "a",
        ".a.saving.fresh",
        ".a.saving.fresh.txt",
        ".b.saving.old",
        ".b.saving.old.txt",
    }
